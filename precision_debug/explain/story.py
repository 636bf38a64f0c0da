"""The story of an explanation on one screen: what each operator added, what that does alone, who did it and why."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import PrecisionDebugError
from ..numbers.born import infinite_introduced
from ..numbers.draw_portrait import portrait_of
from ..numbers.portrait import Portrait
from ..reasons import say
from ..reasons.causes import CAUSES
from ..records import Culprit, Explanation, Introduced
from .bounds import BEYOND, MOST, allowed_error
from .culprits import (
    candidates_of,
    first_failing,
    hidden_overflow,
    non_finite_alone,
    out_of_bounds,
    proven_to_differ,
    rank,
    suspects_before,
)
from .drift import drifting
from .effects import Sink, carried, known_sinks, plain_sinks, sinks_of
from .expected import expected_errors
from .inherited import inherited_errors
from .inputs import inputs_differ
from .introduced import Alone, nothing_alone, run_alone
from .shapes import shapes_differ
from .subject import Subject, replaces
from .unsteady import unsteady, unsteady_culprits

__all__ = ["explain"]

_FEW_BYTES = 1 << 30
"""Bytes of all compared tensors up to which all of two runs of one side are held against each other, unasked."""

_PATIENCE = 30.0
"""Seconds that running each operator alone may take unasked, however short the run was."""

_SMALL = 64 << 20
"""Bytes of all compared tensors up to which every operator is a suspect."""


_AT_LEAST = 3.0
"""Seconds that an explanation may take before it leaves out what it can."""

_DRAWN = 5
"""Culprits of which a picture is made."""

_FEW = 1000
"""Tensors up to which what each operator inherited is measured too, unasked: it takes two more runs of the baseline."""


def explain(
    subject: Subject, *, level: str, seconds: float, folder: Path,
    on_portrait: Callable[[Portrait], None] | None = None,
) -> tuple[Explanation, list[Introduced]]:  # fmt: skip
    """Who introduced the error, and what each operator added, in execution order.

    level: "fast" (effects for as long as ``seconds``; operators of a large model that is healthy are not run alone) or
    "full" (of every operator). folder: for what waits on disk. on_portrait: called with a picture of what each of the
    first culprits added. Whatever a model or an engine does here, the finished
    comparison is not lost for it: then the state is "unknown", with the reason.
    """
    begun = time.monotonic()
    fed = inputs_differ(subject)
    usual = allowed_error(subject.typical_unit, None)
    if not replaces(subject.baseline):
        reason = say("not_alone")
        state = "culprits" if fed else "unknown"
        return Explanation(state=state, reason=reason, culprits=fed, allowed=usual), []
    needs = _size(subject) / subject.bench.rate
    if level == "fast" and needs > max(_PATIENCE, 6 * seconds):
        reason = say("takes_long", minutes=needs / 60)
        return Explanation(state="unknown", reason=reason, allowed=usual), []
    try:
        explanation, found = _explained(subject, level, seconds, folder, begun, on_portrait)
    except PrecisionDebugError as error:
        reason = say("failed", detail=str(error))
    except Exception as error:
        reason = say("failed", detail=f"{type(error).__name__}: {error}")
    else:
        return explanation, found
    return Explanation(state="unknown", reason=reason, allowed=usual, seconds=time.monotonic() - begun), []


def _explained(
    subject: Subject, level: str, seconds: float, folder: Path, begun: float,
    on_portrait: Callable[[Portrait], None] | None,
) -> tuple[Explanation, list[Introduced]]:  # fmt: skip
    first = first_failing(subject)
    size = _size(subject)
    before = suspects_before(subject, 10_000 if level == "full" else 24)
    small = sum(row.comparison.base.elements for row in subject.row_of.values() if row.comparison) * 8 < _SMALL
    suspected = frozenset(before)

    def suspects(name: str, units: float | None) -> bool:
        return small or level == "full" or name in suspected or (units is not None and units > 2.0)

    sinks = sinks_of(subject, first)
    sick = bool(first) or out_of_bounds(subject, sinks)
    worth_it = sick or small or level == "full"
    alone = run_alone(subject, suspects, folder) if worth_it else nothing_alone(subject, folder)
    try:
        if subject.two_files and not sick and any(map(subject.whole_in_both, subject.row_of.values())):
            subject = dataclasses.replace(subject, proven=proven_to_differ(subject, alone))
            first = first_failing(subject)
            sinks = sinks_of(subject, first)
            sick = bool(first) or out_of_bounds(subject, sinks)
        if worth_it and (level == "full" or (small and len(subject.row_of) <= _FEW)):
            handed = inherited_errors(subject, folder)
            alone.found.update({
                name: dataclasses.replace(found, inherited=handed.get(name)) for name, found in alone.found.items()
            })  # fmt: skip
        candidates = candidates_of(subject, alone, before) if sick else []
        known = known_sinks(subject, sinks)
        plain = known or plain_sinks(subject, candidates, sinks)
        limit = math.inf if level == "full" else seconds - (time.monotonic() - begun)
        effects = carried(subject, alone, candidates, sinks, plain, limit) if candidates else {}
        culprits = rank(subject, alone, effects, sinks, first)
        # with culprits it decides of nothing, and costs another run
        late = culprits and level != "full" and time.monotonic() - begun > max(seconds, _AT_LEAST)
        expected = {} if late else expected_errors(subject, plain, sinks)
        at = _worst(sinks)
        wrong = any(sink.is_output and _out(subject, sink) for sink in sinks)
        if wrong and (not culprits or any(CAUSES[culprit.cause].unproven for culprit in culprits[:3])):
            off = next((sink.rel_l2 for sink in sinks if sink.name == at), 0.0)
            some = size <= _FEW_BYTES or level == "full"
            names = None if some else {*(sink.name for sink in sinks), *(culprit.name for culprit in culprits)}
            twice = unsteady(subject, at, off, folder, names, None if known else plain.get(at))
            culprits = unsteady_culprits(subject, culprits, twice, alone.method, at)
        if wrong and not culprits and alone.method == "isolated":
            culprits = drifting(subject, sinks, plain, folder)
        hidden = hidden_overflow(subject, sinks) if alone.method == "replayed" else None
        if hidden is not None and hidden.name not in {culprit.name for culprit in culprits}:
            behind = subject.descendants(hidden.name)
            culprits = (hidden, *(culprit for culprit in culprits if culprit.name not in behind))
        fed = (*inputs_differ(subject), *shapes_differ(subject, alone))
        told = {culprit.name for culprit in fed}
        culprits = (*fed, *(culprit for culprit in culprits if culprit.name not in told))
        judged = [sink for sink in sinks if sink.is_output] or list(sinks)
        allowed = allowed_error(subject.typical_unit, None if culprits else expected.get(at))
        beyond = any(sink.non_finite or sink.rel_l2 > allowed for sink in judged)
        budget = {name: e.share for name, found in effects.items() for e in found if e.at == at and e.share > 0.001}
        explanation = Explanation(
            state="culprits" if culprits else "diffuse" if beyond else "healthy",
            method=alone.method if worth_it else "",
            culprits=culprits,
            at=at,
            budget=dict(sorted(budget.items(), key=lambda pair: -pair[1])),
            actual=next((sink.rel_l2 for sink in sinks if sink.name == at and not sink.non_finite), None),
            expected=expected.get(at),
            unit=subject.typical_unit,
            allowed=allowed,
            first_non_finite=_first_non_finite(subject),
            seconds=time.monotonic() - begun,
        )
        if on_portrait is not None:
            _draw(subject, alone, culprits, on_portrait)
        return explanation, [infinite_introduced(own) for own in alone.found.values()]
    finally:
        alone.close()


def _draw(subject: Subject, alone: Alone, culprits: Sequence[Culprit], on_portrait: Callable[[Portrait], None]) -> None:
    """What the first culprits themselves added, as far as it was kept."""
    for culprit in culprits[:_DRAWN]:
        exact, wrong = alone.exact.get(culprit.name), alone.wrong.get(culprit.name)
        if exact is not None and wrong is not None:
            portrait = portrait_of(culprit.name, exact, wrong, introduced=True, read=subject.bench.host)
            if portrait is not None:
                on_portrait(portrait)


def _size(subject: Subject) -> int:
    """Bytes of all compared tensors, in float32."""
    return sum(row.comparison.base.elements * 4 for row in subject.row_of.values() if row.comparison is not None)


def _out(subject: Subject, sink: Sink) -> bool:
    """Whether a sink is beyond what rounding everywhere makes of it."""
    return bool(sink.non_finite or sink.flips or sink.rel_l2 > min(MOST, BEYOND * subject.typical_unit))


def _worst(sinks: tuple[Sink, ...]) -> str:
    """Where effects are judged: the output that is worst, else the first failing tensor."""
    outputs = [sink for sink in sinks if sink.is_output and (sink.squared or sink.non_finite)] or list(sinks)
    return max(outputs, key=lambda sink: (sink.non_finite, sink.rel_l2)).name if outputs else ""


def _first_non_finite(subject: Subject) -> str:
    """The first tensor with a NaN or Inf that the baseline does not have."""
    for row in sorted(subject.row_of.values(), key=lambda row: subject.order.get(row.name, 0)):
        if non_finite_alone(row):
            return row.name
    return ""
