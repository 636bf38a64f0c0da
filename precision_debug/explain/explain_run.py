"""The story of an explanation on one screen: what each operator added, what that does alone, who did it and why."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np

from .. import registry
from ..errors import PrecisionDebugError
from ..numbers.born import make_introduced_infinite
from ..numbers.draw_portrait import draw_portrait_of
from ..numbers.told import Portrait, TokenEffects
from ..reasons import NOTHING, as_reason, say
from ..reasons.causes import CAUSES
from ..records import Culprit, Explanation, Introduced, RepairedSet, Row
from .broken_outputs import (
    breaks_inside,
    breaks_outputs,
    find_hidden_overflow,
    find_makers_in_this_run,
    find_makers_on_both_sides,
    replace_by_zeros_that_count,
)
from .causes import with_own_numbers
from .confirm import confirm_culprits, find_few_that_halve, find_overlap, with_repairs, with_set_left_out
from .criteria import HALF
from .culprits import (
    find_first_failing,
    find_suspicious_sinks,
    is_far_off,
    is_non_finite_in_target_alone,
    list_candidates,
    list_early_suspects,
    rank,
)
from .differences import with_differences
from .effects import (
    NOTHING_CARRIED,
    Carried,
    Sink,
    carry_errors,
    list_sinks,
    measure_token_effects,
    read_known_sinks,
    run_plain_sinks,
)
from .exchanged import with_exchanged
from .expected import predict_errors
from .file_scales import find_probability_steps
from .files import find_other_shapes
from .grid import as_one_outlier
from .growth import find_amplifying, find_drifting
from .introduced import Alone, make_empty_alone, measure_inherited_errors, run_alone
from .packed import with_packers
from .regions import with_stretches
from .subject import Subject, replaces
from .units import LEAST, LOOK_LEAST, allowed_error, error_worth_failing, held_type, unit_of
from .unsteady import blame_unsteady, find_unsteady
from .work import Work, WorkEnded

__all__ = ["Explainer", "bound_hidden_share", "conclude", "explain", "find_differing_inputs", "is_of_many"]


# Whether both sides were given the same inputs: where they were not, nothing else says anything.

_FAR = 8.0
"""Units of rounding beyond which an input is another one, and not the same in a narrower type."""


def find_differing_inputs(subject: Subject) -> tuple[Culprit, ...]:
    """One for each input that the two sides do not share, in order; a cast that only rounds is no difference."""
    found = []
    for row in sorted(subject.row_of.values(), key=lambda row: subject.order.get(row.name, 0)):
        error = _measure_input_difference(subject, row) if row.op_type == "Input" else None
        numbers = row.comparison
        if error is None or numbers is None:
            continue
        found.append(
            Culprit(
                name=row.name,
                node=row.node,
                op_types=(row.op_type,),
                cause="inputs_differ",
                evidence={
                    "error": error, "base_dtype": numbers.base.dtype, "target_dtype": numbers.target.dtype,
                    "base_range": _range_text(numbers.base.min, numbers.base.max),
                    "target_range": _range_text(numbers.target.min, numbers.target.max),
                },
                confidence="compared",
                fails_first=row.name,
                keep=(row.name,),
            )
        )  # fmt: skip
    return tuple(found)


def _measure_input_difference(subject: Subject, row: Row) -> float | None:
    """Return relative L2, or of integers the share of differing elements; None where they are the same, or rounded."""
    numbers = row.comparison
    if numbers is None or numbers.identical or not numbers.base.elements:
        return None
    meta = subject.targets.get(row.target_name)
    held_as = held_type(row, meta.dtype if meta is not None else "")
    if meta is not None and meta.op_type != "Input" and _is_same_feed(subject, row):
        return None  # what the target's own operator makes of it is an error like any other
    if numbers.base.rms is None or "float" not in numbers.base.dtype:
        share = (numbers.mismatched or 0) / numbers.base.elements
        return share if share > 0 and numbers.base.rms is not None else None
    error = row.relative_l2
    if error is None or numbers.target.nan + numbers.target.inf > numbers.base.nan + numbers.base.inf:
        return None  # an overflow has a cause of its own
    unit = max(unit_of(held_as, numbers.base), subject.typical_unit)
    rounds = error <= _FAR * unit or _is_only_rounded(subject, row, held_as)
    return None if rounds else error


def _is_same_feed(subject: Subject, row: Row) -> bool:
    """Return whether the target was fed what the baseline's tensor held."""
    feed = subject.feeds_of_target.get(row.name)
    if feed is None or row.comparison is None:
        return False
    array, base = np.asarray(feed), row.comparison.base
    if array.dtype.kind != "f" or not array.size or array.shape != base.shape or not np.isfinite(array).all():
        return False
    own = (float(array.min()), float(array.max()), float(np.mean(array, dtype=np.float64)))
    return all(
        theirs is not None and math.isclose(mine, theirs, rel_tol=1e-6, abs_tol=1e-6 * (base.rms or 0.0))
        for mine, theirs in zip(own, (base.min, base.max, base.mean), strict=True)
    )


def _is_only_rounded(subject: Subject, row: Row, held_as: str) -> bool:
    """Return whether the difference is no more than what the narrower type makes of these very values, tiny ones above
    all."""
    numbers, held = row.comparison, subject.held(row.target_name, subject.feeds.get(row.name))
    feed = subject.feeds.get(row.name)
    if held_as in {"int8", "uint8"}:
        return True  # its range has a cause of its own
    if held is None or feed is None or numbers is None or numbers.rmse is None:
        return False
    with np.errstate(all="ignore"):
        off = np.asarray(held, np.float64) - np.asarray(feed, np.float64)
    return numbers.rmse <= 2 * math.sqrt(float(np.mean(np.square(off[np.isfinite(off)])))) if off.size else False


def _range_text(low: float | None, high: float | None) -> str:
    return "no number" if low is None or high is None else f"{low:.4g} to {high:.4g}"


# What an explanation says that follows from what was measured, of a run and of a training step alike.

_NAMED = 0.001
"""Share of the squared error above which an operator is named in the budget."""


def conclude(
    culprits: tuple[Culprit, ...], tried: Carried, sinks: Sequence[Sink], at: str, expected: Mapping[str, float], *,
    beyond: bool, **rest: Any,
) -> Explanation:  # fmt: skip
    """sinks: where errors are judged; ``at`` is the worst of them. beyond: one is off by more than it may be.
    rest: further fields of the explanation.

    Nobody is found, and something is off: that is the error of everybody ("diffuse") only where enough was tried to
    know it.
    """
    left = len(tried.untried)
    state, reason = "culprits" if culprits else "diffuse" if beyond else "healthy", NOTHING
    hidden = bound_hidden_share(tried)
    if state == "diffuse" and left and (hidden is None or hidden >= HALF):
        state, reason = "unknown", say("not_tried", tried=len(tried.effects), left=left)
    if state == "diffuse" and any(sink.apart and sink.name == at for sink in sinks):
        state, reason = "unknown", say("no_numbers_there", name=at)
    counts = {"always", "least"} if any(sink.rel_l2 > LEAST for sink in sinks) else {"always"}
    fails = any(CAUSES[one.cause].fails_for(one.evidence) in counts for one in culprits)
    budget = {name: e.share for name, found in tried.effects.items() for e in found if e.at == at and e.share > _NAMED}
    return Explanation(
        state=state,
        reason=reason,
        culprits=culprits,
        at=at,
        budget=dict(sorted(budget.items(), key=lambda pair: -pair[1])),
        actual=next((sink.rel_l2 for sink in sinks if sink.name == at and not sink.non_finite), None),
        expected=expected.get(at),
        tried=len(tried.effects),
        rest=tried.rest,
        part=tried.part,
        passes=bool(culprits) and not beyond and not fails,
        **rest,
    )


def is_of_many(explanation: Explanation) -> bool:
    """Return whether the error is that of many operators, or may be, since not all were tried: then a set that mends it
    can be looked for without anybody's name."""
    left = explanation.state == "unknown" and as_reason(explanation.reason).code == "not_tried"
    return explanation.state == "diffuse" or left


def bound_hidden_share(tried: Carried | Explanation) -> float | None:
    """Return the most of the squared error that one operator of those that were not tried alone may make; None where
    nobody knows."""
    found = tried.rest if tried.part is None else tried.part
    return None if found is None else float(found)


class Explainer(Protocol):
    """How something else than a forward pass is explained; behind the door "explainers"."""

    def __call__(self, subject: Subject, work: Work, folder: Path, /) -> tuple[Explanation, Alone]:
        """Return what is said, and what each operator added, which the caller closes. Raises work.Ended."""


_FEW_BYTES = 1 << 30
"""Bytes of all compared tensors up to which all of two runs of one side are held against each other, unasked."""

_SMALL = 64 << 20
"""Bytes of all compared tensors up to which every operator is run alone, also where nobody is looked for."""

_KEPT = 1 << 30
"""Bytes of all compared tensors up to which what every operator added is kept, to be carried to the outputs."""

_DRAWN = 5
"""Culprits of which a picture is made."""

_FEW = 1000
"""Tensors up to which what each operator inherited is measured too, unasked: it takes two more runs of the baseline."""


def explain(
    subject: Subject, *, level: str, folder: Path, on_portrait: Callable[[Portrait], None] | None = None,
    on_tokens: Callable[[TokenEffects], None] | None = None,
) -> tuple[Explanation, list[Introduced]]:  # fmt: skip
    """Return who introduced the error, and what each operator added, in execution order.

    level: "fast" (as many effects as work.Work allows; operators of a large model that nobody is looked for in are not
    run alone) or "full" (of every operator). folder: for what waits on disk. on_portrait: called with a picture of what
    each of the first culprits added; on_tokens with who moves a language model's token. Whatever a model or an engine
    does here, the finished comparison is not lost for it: then the state is "unknown", with the reason. What it says
    depends on the model alone, not on the machine.
    """
    work = Work(subject, level)
    fed = find_differing_inputs(subject)
    usual = allowed_error(subject.typical_unit, None)
    if not replaces(subject.baseline):
        reason = say("not_alone")
        state = "culprits" if fed else "unknown"
        return Explanation(state=state, reason=reason, culprits=fed, allowed=usual), []
    if work.too_large:
        reason = say("takes_long", minutes=work.nominal / 60)
        return Explanation(state="unknown", reason=reason, allowed=usual), []
    try:
        if subject.is_step:
            explanation, found = _explain_step(subject, work, folder, on_portrait)
        else:
            explanation, found = _explain_forward(subject, work, folder, on_portrait, on_tokens)
    except WorkEnded as ended:
        reason = say("ended_at_the_cap", minutes=ended.seconds / 60)
    except PrecisionDebugError as error:
        reason = say("failed", detail=str(error))
    except Exception as error:
        reason = say("failed", detail=f"{type(error).__name__}: {error}")
    else:
        return _order_coarsest_first(with_packers(subject, explanation, found)), found
    return Explanation(state="unknown", reason=reason, allowed=usual, seconds=work.seconds), []


def _order_coarsest_first(explanation: Explanation) -> Explanation:
    """Put the weights that few bits hold furthest from what they were made of before the others of their kind: a
    quantiser touches every one, and the coarsest is where to look."""
    theirs = [one for one in explanation.culprits if one.cause == "few_bits"]
    waiting = iter(sorted(theirs, key=lambda one: -float(one.evidence["off"])))
    told = tuple(next(waiting) if one.cause == "few_bits" else one for one in explanation.culprits)
    return dataclasses.replace(explanation, culprits=told)


def _explain_step(
    subject: Subject, work: Work, folder: Path, on_portrait: Callable[[Portrait], None] | None
) -> tuple[Explanation, list[Introduced]]:
    """Of a training step, whose tensors have a bound each."""
    explained: Explainer = registry.import_from_door("explainers", "step")
    explanation, alone = explained(subject, work, folder)
    with contextlib.closing(alone):
        explanation = dataclasses.replace(explanation, first_non_finite=_find_first_non_finite(subject))
        if on_portrait is not None:
            _draw(subject, alone, explanation.culprits, on_portrait)
        return explanation, [make_introduced_infinite(own) for own in alone.found.values()]


def _explain_forward(
    subject: Subject, work: Work, folder: Path, on_portrait: Callable[[Portrait], None] | None,
    on_tokens: Callable[[TokenEffects], None] | None,
) -> tuple[Explanation, list[Introduced]]:
    first, steps = find_first_failing(subject), find_probability_steps(subject)
    first = "" if first in steps else first
    before = list_early_suspects(subject, 10_000 if work.full else 24)
    small = work.size < _SMALL and not subject.iterations  # a run of such a loop costs what all of its operators cost
    every = work.full or work.size < _KEPT
    suspected = frozenset(before)

    def suspects(name: str, units: float | None) -> bool:
        return every or name in suspected or (units is not None and units > 2.0)

    sinks = tuple(
        dataclasses.replace(sink, squared=0.0) if sink.name in steps else sink for sink in list_sinks(subject, first)
    )
    judged = [sink for sink in sinks if sink.is_output] or list(sinks)
    looked, expected = _choose_outputs_to_explain(subject, judged, small or work.full)
    sick = bool(first or looked)
    worth_it = sick or small or work.full
    alone = run_alone(subject, suspects, folder) if worth_it else make_empty_alone(subject, folder)
    try:
        if worth_it and (work.full or (small and len(subject.row_of) <= _FEW)):
            handed = measure_inherited_errors(subject, folder)
            alone.found.update({
                name: dataclasses.replace(found, inherited=handed.get(name)) for name, found in alone.found.items()
            })  # fmt: skip
        candidates = list_candidates(subject, alone, before) if sick else []
        known = read_known_sinks(subject, sinks)
        plain = known or (run_plain_sinks(subject, candidates, sinks) if sick else {})
        tried = carry_errors(subject, alone, candidates, sinks, plain, work) if candidates else NOTHING_CARRIED
        culprits = rank(subject, alone, tried.effects, sinks, first, looked)
        if sick and not expected:
            expected = predict_errors(subject, plain, judged)
        def usual(name: str) -> float:
            return allowed_error(subject.unit_behind(name), expected.get(name))

        bounds = {sink.name: usual(sink.name) for sink in judged} if subject.few_narrow or subject.fed_by_none else {}
        culprits = replace_by_zeros_that_count(subject, alone, culprits, sinks, plain, work)
        culprits = as_one_outlier(subject, alone, culprits, tried, sinks, plain, work)
        named = culprits
        culprits, at = (
            confirm_culprits(subject, alone, culprits, tried, sinks, plain, work),
            _choose_worst_sink(sinks, bounds),
        )
        sets = tuple[RepairedSet, ...]()
        if looked and not culprits:
            beyond = any(sink.name == at and sink.rel_l2 > usual(at) for sink in judged)
            few, sets = find_few_that_halve(subject, alone, tried, sinks, at, plain, work, beyond=beyond)
            there = {name: [one for one in tried.effects[name] if one.at == at] for name in few}
            if few:
                culprits = rank(subject, alone, {**tried.effects, **there}, sinks, first, looked, few)
            if len(few) > 1:
                culprits = with_set_left_out(culprits, sets, few)
            else:
                culprits = confirm_culprits(subject, alone, culprits, tried, sinks, plain, work)
        if sick:
            culprits = breaks_outputs(subject, alone, culprits, sinks, _find_first_non_finite(subject), folder, work)
        if looked and not culprits:
            worst = next((sink for sink in judged if sink.name == at), None)
            born = _find_first_non_finite(subject)
            culprits = breaks_inside(subject, alone, worst, born, plain.get(at), folder, work)
        if looked:
            culprits = _replace_if_unsteady(subject, work, alone, culprits, sinks, {} if known else plain, folder)
        if looked and not culprits and alone.method == "isolated":
            culprits = find_drifting(subject, sinks, plain, folder)
        culprits = _add_hidden_overflow(subject, alone, culprits, sinks) or (
            find_makers_in_this_run(subject) if looked else ()
        )
        overlap = find_overlap(subject, alone, tried, sinks, at, plain, work) if named and not culprits else None
        if not culprits and looked and overlap is None:
            off = [sink.name for sink in judged if sink.rel_l2 > usual(at)]
            culprits = find_amplifying(subject, alone, off)
        culprits = with_repairs(subject, alone, culprits, tried, sinks, plain, work)
        culprits = culprits or find_makers_on_both_sides(subject, partly=False)
        culprits = with_stretches(subject, alone, culprits, work)
        culprits = with_differences(subject, alone, with_exchanged(subject, alone, culprits, work), work)
        culprits = with_own_numbers(subject, culprits)
        explanation = _make_explanation(subject, work, alone, tried, culprits, judged, expected, at, first)
        if steps:
            explanation = _bound_by_steps(subject, explanation, steps)
        if not worth_it:
            explanation = dataclasses.replace(explanation, method="")
        if explanation.state == "diffuse":
            explanation = dataclasses.replace(explanation, overlap=overlap, repaired_sets=sets)
        if on_portrait is not None:
            _draw(subject, alone, culprits, on_portrait)
        if on_tokens is not None:
            healthy = explanation.state == "healthy"
            effects = measure_token_effects(subject, alone, work, explanation.allowed, healthy=healthy)
            if effects is not None:
                on_tokens(effects)
        return explanation, [make_introduced_infinite(own) for own in alone.found.values()]
    finally:
        alone.close()


def _choose_outputs_to_explain(
    subject: Subject, judged: Sequence[Sink], always: bool
) -> tuple[frozenset[str], Mapping[str, float]]:
    """Return the outputs whose authors are to be looked for, and the error that rounding everywhere predicts there, as
    far as it was needed to tell: predicting takes a run of the baseline.

    always: predict it, so that the report can say how far the outputs are from it.
    """
    looked = find_suspicious_sinks(subject, judged, {})
    off = any(sink.squared and sink.rel_l2 > max(subject.unit_behind(sink.name), LOOK_LEAST) for sink in judged)
    if (looked and not (subject.few_narrow or subject.on_same_grids)) or not (off or always):
        return looked, {}
    expected = predict_errors(
        subject, read_known_sinks(subject, judged) or run_plain_sinks(subject, [], judged), judged
    )
    return find_suspicious_sinks(subject, judged, expected), expected


def _replace_if_unsteady(
    subject: Subject, work: Work, alone: Alone, culprits: tuple[Culprit, ...], sinks: tuple[Sink, ...],
    plain: Mapping[str, Any], folder: Path,
) -> tuple[Culprit, ...]:  # fmt: skip
    """Where nobody is found, or nobody for certain: what a second run of the same side says, with the same feeds."""
    if culprits and not any(CAUSES[culprit.cause].unproven for culprit in culprits[:3]):
        return culprits
    at = _choose_worst_sink(sinks)
    off = next((sink.rel_l2 for sink in sinks if sink.name == at), 0.0)
    some = work.size <= _FEW_BYTES or work.full
    names = None if some else {*(sink.name for sink in sinks), *(culprit.name for culprit in culprits)}
    twice = find_unsteady(subject, at, off, folder, names, plain.get(at))
    return blame_unsteady(subject, culprits, twice, alone.method, at)


def _add_hidden_overflow(
    subject: Subject, alone: Alone, culprits: tuple[Culprit, ...], sinks: tuple[Sink, ...]
) -> tuple[Culprit, ...]:
    """Add the culprits that explain others away. An overflow that the baseline does not show takes the place of the
    culprits behind it. Inputs and tensors of another value or shape come first. An output of another shape that nothing
    reads (a cache that holds fewer tokens) makes no other tensor wrong and comes last."""
    hidden = find_hidden_overflow(subject, sinks) if alone.method == "replayed" else None
    if hidden is not None and hidden.name not in {culprit.name for culprit in culprits}:
        behind = subject.descendants(hidden.name)
        culprits = (hidden, *(culprit for culprit in culprits if culprit.name not in behind))
    shaped = find_other_shapes(subject, alone)
    read = {source for meta in subject.tensors for source in meta.inputs}
    ends = tuple(culprit for culprit in shaped if culprits and culprit.name not in read)
    fed = (*find_differing_inputs(subject), *(culprit for culprit in shaped if culprit not in ends))
    names = {culprit.name for culprit in (*fed, *ends)}
    return (*fed, *(culprit for culprit in culprits if culprit.name not in names), *ends)


def _make_explanation(
    subject: Subject, work: Work, alone: Alone, tried: Carried, culprits: tuple[Culprit, ...], judged: Sequence[Sink],
    expected: Mapping[str, float], at: str, first: str,
) -> Explanation:  # fmt: skip
    """Return the explanation that follows from what was measured."""
    unit = subject.unit_behind(at)
    lost = [sink for sink in judged if sink.non_finite or sink.flips]
    # what one operator makes is little; of an output with NaN or Inf, what is left without these is everybody's
    of_one = any(not CAUSES[culprit.cause].of_many for culprit in culprits)
    one_makes_it = of_one and not any(sink.non_finite for sink in judged)

    def bound(name: str) -> float:
        known = expected.get(name)
        return (
            error_worth_failing(subject.unit_at(known, name))
            if one_makes_it
            else allowed_error(subject.unit_behind(name), known)
        )

    allowed = bound(at)
    own = {sink.name: bound(sink.name) for sink in judged} if subject.few_narrow or subject.fed_by_none else {}
    beyond = bool(lost) or any(sink.rel_l2 > own.get(sink.name, allowed) for sink in judged)
    outputs_fine = not any(is_far_off(subject, sink) for sink in judged)
    return conclude(
        culprits,
        tried,
        judged,
        at,
        expected,
        beyond=beyond,
        method=alone.method,
        unit=unit,
        allowed=allowed,
        allowed_at={name: one for name, one in own.items() if one != allowed},
        first_non_finite=_find_first_non_finite(subject),
        rounded=tuple(name for name in subject.row_of if name in subject.rounded),
        candidates=len(tried.effects) + len(tried.untried),
        unfelt=first if first and not culprits and outputs_fine and not subject.row_of[first].is_output else "",
        seconds=work.seconds,
    )


def _bound_by_steps(subject: Subject, explanation: Explanation, steps: Mapping[str, float]) -> Explanation:
    """Return the explanation with the outputs that agree within half a step of their own scale, and their errors."""
    errors = {name: subject.row_of[name].relative_l2 or 0.0 for name in steps}
    worst = max(errors, key=errors.__getitem__)
    at = worst if not explanation.actual else explanation.at
    return dataclasses.replace(
        explanation, steps=steps, at=at, actual=errors.get(at, explanation.actual),
        allowed_at={**explanation.allowed_at, **{
            name: max(error, explanation.allowed or 0.0) for name, error in errors.items()
        }},
    )  # fmt: skip


def _draw(subject: Subject, alone: Alone, culprits: Sequence[Culprit], on_portrait: Callable[[Portrait], None]) -> None:
    """What the first culprits themselves added, as far as it was kept."""
    for culprit in culprits[:_DRAWN]:
        exact, wrong = alone.exact.get(culprit.name), alone.wrong.get(culprit.name)
        if exact is not None and wrong is not None:
            portrait = draw_portrait_of(culprit.name, exact, wrong, introduced=True, read=subject.bench.host)
            if portrait is not None:
                on_portrait(portrait)


def _choose_worst_sink(sinks: tuple[Sink, ...], bounds: Mapping[str, float] = MappingProxyType({})) -> str:
    """Where effects are judged: the output that is worst, else the first failing tensor. bounds: of the outputs, where
    each has one of its own."""
    outputs = [sink for sink in sinks if sink.is_output and (sink.squared or sink.non_finite)] or list(sinks)
    if not outputs:
        return ""
    return max(outputs, key=lambda sink: (sink.non_finite, sink.rel_l2 / bounds.get(sink.name, 1.0))).name


def _find_first_non_finite(subject: Subject) -> str:
    """Return the first tensor with a NaN or Inf that the baseline does not have."""
    for row in sorted(subject.row_of.values(), key=lambda row: subject.order.get(row.name, 0)):
        if is_non_finite_in_target_alone(row):
            return row.name
    return ""
