"""Explain NaN, Inf and zeros: where they begin, on one side or both, and whether they can be repeated."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..numbers.arrays import as_array
from ..reasons.causes import CAUSES
from ..records import Culprit, Row, TensorMeta
from .causes import find_cause
from .criteria import HALF
from .culprits import is_non_finite_in_target_alone, list_kept_through
from .effects import Sink, carry_given_errors, measure_error_at
from .introduced import MASK, WAITING, Alone, is_same_kind
from .operator_facts import describe_born, name_types
from .subject import Subject
from .units import largest_of
from .work import Work

__all__ = [
    "breaks_inside",
    "breaks_outputs",
    "find_hidden_overflow",
    "find_makers_in_this_run",
    "find_makers_on_both_sides",
    "replace_by_zeros_that_count",
]


# NaN and Inf that both runs make: no matter of precision, and all the same what the reader looks for.

def find_makers_on_both_sides(subject: Subject, *, partly: bool) -> tuple[Culprit, ...]:
    """Return the operator that makes the NaN, or the Inf, of an output of both runs from numbers that have none; ()
    where no output has them on both sides, or its inputs had them already.

    partly: also where some elements of an output are NaN, and the others are numbers that can be compared.
    """
    for output in subject.outputs:
        row = subject.row_of.get(output)
        for what in ("NaN", "Inf"):
            if row is None or not row.is_output or not _is_on_both_sides(row, what):
                continue
            if not (partly and what == "NaN") and not _is_all(row, what):
                continue  # -Inf stands where a mask is
            before = [one for one in {output, *subject.ancestors(output)} & subject.row_of.keys()
                      if _is_on_both_sides(subject.row_of[one], what)]  # fmt: skip
            name = min(before, key=lambda one: subject.order.get(one, 0))
            meta = subject.meta_of.get(name)
            found = subject.row_of[name].comparison
            if found is None or meta is None or meta.op_type in {"Input", "Constant"} or meta.is_output:
                continue
            evidence = {"kind": what, "count": _count(subject.row_of[name], what), "output": output}
            cause = "born_on_both"
            if what == "NaN" and (slope := _find_infinite_slope(subject, meta)):
                cause, evidence["slope"] = "slope_infinite", slope
            return (
                Culprit(
                    name=name, node=meta.node, op_types=(meta.op_type,), cause=cause, confidence="compared",
                    evidence=evidence, at=output, fails_first=output, keep=(name,),
                ),
            )  # fmt: skip
    return ()


def _find_infinite_slope(subject: Subject, meta: TensorMeta) -> str:
    """Return the operator of the forward pass whose slope is infinite, where a NaN of the backward pass is that slope
    times 0; "" elsewhere. Of a product with an Inf that came down from a later operator it is that operator's slope.

    A quotient of numbers without NaN or Inf is NaN only as 0 / 0, a product without NaN only as 0 times Inf. That the
    slope is what is infinite the operator's own divisor or factor shows: a smallest or largest value of 0, or an Inf.
    """
    forward = _forward_of(meta.name)
    rows = [subject.row_of[one].comparison for one in meta.inputs if one in subject.row_of]
    sides = [one.base for one in rows if one is not None]
    if meta.phase != "backward" or forward not in subject.meta_of or any(one.nan for one in sides):
        return ""
    kind = meta.op_type.rpartition(".")[2]
    if kind == "mul" and any(one.inf for one in sides):
        above = [one for one in subject.ancestors(meta.name) & subject.row_of.keys()
                 if (found := subject.row_of[one].comparison) is not None and found.base.inf]  # fmt: skip
        began = _forward_of(min(above, key=lambda one: subject.order.get(one, 0), default=""))
        return began if began in subject.meta_of else forward
    if kind == "div" and not any(one.inf for one in sides) and any(0.0 in (one.min, one.max) for one in sides):
        return forward
    return ""


def _forward_of(name: str) -> str:
    """Return the forward operator to which one of the backward pass belongs."""
    return name.partition("/")[2].rpartition("/")[0]


def _count(row: Row, what: str) -> int:
    base = row.comparison.base if row.comparison is not None else None
    return 0 if base is None else int(base.nan if what == "NaN" else base.inf)


def _is_all(row: Row, what: str) -> bool:
    return row.comparison is not None and _count(row, what) == row.comparison.base.elements


def _is_on_both_sides(row: Row, what: str) -> bool:
    found = row.comparison
    there = 0 if found is None else int(found.target.nan if what == "NaN" else found.target.inf)
    return bool(there) and _count(row, what) > 0


# NaN and Inf at an output that no operator's own error makes alone: where the target's numbers begin to make them.
#
# An epsilon that a type holds as 0 is such a one: with the baseline's input it does no harm, and what became 0 before
# it does none without it. So from the first tensor that is not finite, the target's values are put into the baseline's
# run, one tensor at a time and further and further back, as long as those of an input break the output by themselves.

_RUNS = 64
"""Runs of the baseline that the way back may take; a bound on its work, not measured."""

_CONFIDENCE = "substituted"


def breaks_outputs(
    subject: Subject, alone: Alone, culprits: tuple[Culprit, ...], sinks: Sequence[Sink], first_non_finite: str,
    folder: Path, work: Work,
) -> tuple[Culprit, ...]:  # fmt: skip
    """Return the operator from which on the target's values break an output, in place of culprits that break none.

    The culprits as they are where one of them does, where all outputs are finite, and where it could not be measured.
    Raises work.Ended and BackendError.
    """
    broken = [sink.name for sink in sinks if sink.is_output and sink.non_finite]
    known = {culprit.at for culprit in culprits} & {*broken}
    if not broken or known or not _can_hold(subject, first_non_finite):
        return culprits
    about = {first_non_finite} | subject.ancestors(first_non_finite)
    with contextlib.closing(subject.bench.waiting(folder, subject.budget(WAITING))) as values:
        _hold_target(subject, about, values)
        name, at = _find_where_it_begins(subject, first_non_finite, values, broken, work)
    amplifier = next((culprit.amplifier for culprit in culprits if culprit.name == name), "")
    return (_make_culprit(subject, alone, name, at, first_non_finite, amplifier),) if at else culprits


def breaks_inside(
    subject: Subject, alone: Alone, sink: Sink | None, first_non_finite: str, plain: Any, folder: Path, work: Work
) -> tuple[Culprit, ...]:  # fmt: skip
    """Return the same of NaN or Inf that no output shows, and that by themselves make half of the error of one; else
    ().

    An infinite logarithm that a maximum holds up is such a one. sink: the output. plain: its value in an undisturbed
    run of the baseline. Raises work.Ended and BackendError.
    """
    if sink is None or sink.non_finite or plain is None or not _can_hold(subject, first_non_finite):
        return ()
    about = {first_non_finite} | subject.ancestors(first_non_finite)
    with contextlib.closing(subject.bench.waiting(folder, subject.budget(WAITING))) as values:
        _hold_target(subject, about, values)
        work.go_on()
        got = _run_with_value(subject, first_non_finite, values.get(first_non_finite), [sink.name], non_finite=True)
        error = measure_error_at(subject.bench, plain, got[sink.name]) if sink.name in got else None
        if error is None or error < HALF * sink.rel_l2:
            return ()
        name, begins = _find_where_it_begins(subject, first_non_finite, values, [first_non_finite], work)
    return (_make_culprit(subject, alone, name, sink.name, first_non_finite),) if begins else ()


def _can_hold(subject: Subject, name: str) -> bool:
    """Return whether the target's values of what leads to a tensor can be put into the baseline's run."""
    return name in subject.row_of and not subject.bench.on_device and bool(subject.partner)


def _find_where_it_begins(
    subject: Subject, first: str, values: Any, broken: Sequence[str], work: Work
) -> tuple[str, str]:
    """Return the tensor from which on the target's values make NaN or Inf of one of some tensors, and which that is; ""
    where those of the first that is not finite make none."""
    name, runs = first, 0
    at = _first_broken_output(subject, name, values.get(name), broken)
    while at and runs < _RUNS:
        there = name
        for source in subject.sources(name):
            runs += 1
            work.go_on()
            if reached := _first_broken_output(subject, source, values.get(source), broken):
                there, at = source, reached
                break
        if there == name:
            break
        name = there
    return name, at


def _hold_target(subject: Subject, names: Collection[str], values: Any) -> None:
    """Keep what the target gives for these tensors, by the baseline's names."""
    partner = {target: base for target, base in subject.partner.items() if base in names}

    def keep(_op: str, name: str, value: Any, /) -> None:
        base = partner.get(name)
        if base is not None and base not in values:
            values.put(base, as_array(value, name=name))

    subject.target.run(subject.feeds_of_target, keep, frozenset(partner))


def _first_broken_output(subject: Subject, name: str, value: Any, outputs: Sequence[str]) -> str:
    """Return the first of the outputs that has NaN or Inf where the baseline goes on with the target's value of one
    tensor; "" where none has, or it cannot."""
    seen = _run_with_value(subject, name, value, outputs)
    before: Mapping[str, int] = {
        one: (numbers.base.nan or 0) + (numbers.base.inf or 0)
        for one in outputs if (numbers := subject.row_of[one].comparison) is not None
    }  # fmt: skip
    return next((one for one, found in seen.items() if int((~np.isfinite(found)).sum()) > before.get(one, 0)), "")


def _run_with_value(
    subject: Subject, name: str, value: Any, outputs: Sequence[str], *, non_finite: bool = False
) -> dict[str, Any]:
    """Return some tensors of a run of the baseline that goes on with another value of one; {} where it cannot.

    non_finite: with what is NaN or Inf in it alone."""
    seen: dict[str, Any] = {}
    taken: list[str] = []

    def replace(_op: str, shown: str, own: Any) -> Any:
        new = None
        if shown == name and np.shape(own) == value.shape and is_same_kind(np.asarray(own), value):
            taken.append(name)
            new = np.ascontiguousarray(value.astype(np.asarray(own).dtype)).reshape(value.shape)
            new = np.where(np.isfinite(new), np.asarray(own), new) if non_finite else new
        if shown in outputs:
            seen[shown] = np.array(own if new is None else new)
        return new

    if value is not None:
        subject.operators()[0].run_replacing(subject.feeds, subject.showing(replace), frozenset({name, *outputs}))
    return seen if taken else {}


def _make_culprit(subject: Subject, alone: Alone, name: str, at: str, first: str, amplifier: str = "") -> Culprit:
    row = subject.row_of[name]
    cause, evidence, keep = "coarse", dict[str, Any](), tuple[str, ...]()
    if name in alone.found:
        cause, evidence, keep = find_cause(subject, alone, name, amplifier, poisons=True)
    numbers = row.comparison
    if name == first and numbers is not None and (CAUSES[cause].unproven or CAUSES[cause].enlarged):
        nan, inf = (max(0, a - b) for a, b in (
            (numbers.target.nan, numbers.base.nan), (numbers.target.inf, numbers.base.inf),
        ))  # fmt: skip
        cause, evidence = "born", describe_born(subject, name, nan, inf)
    made = Culprit(
        name=name,
        node=subject.meta_of[name].node if name in subject.meta_of else "",
        op_types=name_types(subject, name),
        cause=cause,
        evidence=evidence,
        confidence=_CONFIDENCE,
        at=at,
        fails_first=first,
        keep=(name,),
    )
    return dataclasses.replace(made, keep=list_kept_through(subject, keep or (name,), made.cause, ""))


# NaN and Inf that only the compared run had: neither operators alone nor an engine built again repeat it.

def find_hidden_overflow(subject: Subject, sinks: Sequence[Sink]) -> Culprit | None:
    """Where an output is not finite, the first operator before it whose results the target's type cannot hold.

    An engine that was built again to show its tensors may compute such an operator in float32, and show it finite: then
    nothing but the baseline's own range tells. Only for types that overflow where float32 does not.
    """
    limit = largest_of(subject.narrow_type)
    broken = [sink for sink in sinks if sink.is_output and sink.non_finite]
    if not broken or limit > MASK:
        return None
    before = {sink.name: {sink.name} | subject.ancestors(sink.name) for sink in broken}
    for name in sorted(subject.row_of, key=lambda item: subject.order.get(item, 0)):
        row = subject.row_of[name]
        numbers = row.comparison
        if numbers is None or subject.only_moves(name):
            continue
        largest = max(abs(numbers.base.min or 0.0), abs(numbers.base.max or 0.0))
        at = next((sink for sink, above in before.items() if name in above), "")
        if limit < largest < MASK and at:
            return Culprit(
                name=name,
                node=subject.meta_of[name].node if name in subject.meta_of else "",
                op_types=name_types(subject, name),
                cause="overflow",
                evidence={"largest": largest, "limit": limit, "count": numbers.fp16_overflow},
                confidence="ranked",
                at=at,
                fails_first=at,
                keep=(name,),
            )
    return None


def find_makers_in_this_run(subject: Subject) -> tuple[Culprit, ...]:
    """Return the first operator that gave NaN or Inf where the baseline gave none, nor what it read, for want of a
    culprit.

    Run alone, or again, it may give something else: a kernel that reads memory which nobody wrote.
    """
    for name in sorted(subject.row_of, key=lambda item: subject.order.get(item, 0)):
        row = subject.row_of[name]
        if not is_non_finite_in_target_alone(row):
            continue
        numbers = row.comparison
        fed = [subject.row_of[source] for source in subject.sources(name) if source in subject.row_of]
        if numbers is None or any(is_non_finite_in_target_alone(one) for one in fed):
            return ()
        nan, inf = (max(0, ours - theirs) for ours, theirs in (
            (numbers.target.nan, numbers.base.nan), (numbers.target.inf, numbers.base.inf),
        ))  # fmt: skip
        return (
            Culprit(
                name=name,
                node=subject.meta_of[name].node if name in subject.meta_of else "",
                op_types=name_types(subject, name),
                cause="born",
                evidence=describe_born(subject, name, nan, inf),
                confidence="compared",
                at=name,
                fails_first=name,
                keep=(name,),
            ),
        )
    return ()


# Whether what became 0 is what an error comes from: ordinary rounding nearly always makes some zeros beside it.

_TRIED = 3
"""Culprits whose zeros are put into the baseline's run, which takes one run each."""

_MOST_OF_IT = 0.5
"""Part of a culprit's share that its zeros alone must make."""


def replace_by_zeros_that_count(
    subject: Subject, alone: Alone, culprits: tuple[Culprit, ...], sinks: Sequence[Sink], plain: Mapping[str, Any],
    work: Work,
) -> tuple[Culprit, ...]:  # fmt: skip
    """Return the culprits; of those that are ordinary rounding called underflow, where the zeros alone do not make the
    error, with the cause that is left without them. Raises work.Ended."""
    found = list(culprits)
    for place, culprit in enumerate(culprits[:_TRIED]):
        if culprit.cause != "underflow" or not (culprit.amplifier or (culprit.units or 0.0) <= 1.0):
            continue
        exact, wrong = (part.get(culprit.name) for part in (alone.exact, alone.wrong))
        sink = next((sink for sink in sinks if sink.name == culprit.at), None)
        if exact is None or wrong is None or sink is None or exact.shape != wrong.shape:
            continue
        work.go_on()
        zeros = exact * (wrong != 0)  # numpy's or the device's own, where they are
        effect, = carry_given_errors(subject, {culprit.name: (exact, zeros)}, [sink], plain)
        if effect.non_finite or effect.share >= _MOST_OF_IT * (culprit.share or 0.0):
            continue
        poisons = bool(sink.non_finite)
        cause, evidence, keep = find_cause(
            subject, alone, culprit.name, culprit.amplifier, poisons=poisons, zeros_count=False
        )  # fmt: skip
        more = tuple(name for name in culprit.keep if name not in keep)
        found[place] = dataclasses.replace(culprit, cause=cause, evidence=evidence, keep=(*keep, *more))
    return tuple(found)
