"""The story of a training step's explanation: which gradients are wrong beyond rounding, and who made them so."""

from __future__ import annotations

from pathlib import Path

from ..reasons import NOTHING, say
from ..reasons.causes import CAUSES
from ..records import Explanation
from .bounds import LEAST, allowed_error, worth
from .culprits import HALF, candidates_of, first_failing, suspects_before
from .effects import NOTHING_CARRIED, Sink, known_sinks, plain_sinks, sinks_of
from .introduced import Alone, nothing_alone, run_alone
from .step_updates import lost_updates
from .steps import allowed_at, blamed, expectations, wrong
from .subject import Subject
from .work import Work

__all__ = ["explained_step"]

_KEPT = 4 << 30
"""Bytes of all compared tensors up to which what every operator added is kept, on disk where there is no room."""


def explained_step(subject: Subject, work: Work, folder: Path) -> tuple[Explanation, Alone]:
    """What an explanation says, and what each operator added, which the caller closes. Raises work.Ended."""
    every = work.full or work.size < _KEPT
    suspected = frozenset(suspects_before(subject, 10_000 if work.full else 64))
    sinks = [sink for sink in sinks_of(subject, "") if sink.is_output]
    plain = known_sinks(subject, sinks) or plain_sinks(subject, [], sinks)
    expected = expectations(subject, plain, sinks)
    looked = wrong(subject, sinks, expected)
    if not looked and not work.full:
        alone = nothing_alone(subject, folder)
    else:
        alone = run_alone(subject, lambda name, units: every or name in suspected or (units or 0.0) > 2.0, folder)
    try:
        names = candidates_of(subject, alone, []) if looked else []
        names.sort(key=lambda name: subject.order.get(name, 0))
        culprits, tried = blamed(subject, alone, sinks, looked, expected, plain, names, work) if names else (
            (), NOTHING_CARRIED
        )  # fmt: skip
        culprits = (*culprits, *lost_updates(subject))
    except BaseException:
        alone.close()
        raise
    unit = subject.typical_unit
    bounds = allowed_at(subject, sinks, expected, blamed=bool(culprits))
    before = _before(subject, bounds)
    beyond = [sink for sink in sinks if sink.non_finite or sink.flips or sink.rel_l2 > bounds[sink.name]]
    at = _worst(sinks, bounds)
    allowed = worth(unit) if culprits else allowed_error(unit, expected.get(at))
    counts = {"always", "least"} if any(sink.rel_l2 > LEAST for sink in sinks) else {"always"}
    fails = any(CAUSES[one.cause].fails in counts for one in culprits)
    state = "culprits" if culprits else "diffuse" if beyond else "healthy"
    left, reason = len(tried.untried), NOTHING
    if state == "diffuse" and left and (tried.rest is None or tried.rest >= HALF):
        state, reason = "unknown", say("not_tried", tried=len(tried.effects), left=left)
    first = first_failing(subject)
    budget = {name: e.share for name, found in tried.effects.items() for e in found if e.at == at and e.share > 0.001}
    return Explanation(
        state=state,
        reason=reason,
        method=alone.method if looked else "",
        culprits=culprits,
        at=at,
        budget=dict(sorted(budget.items(), key=lambda pair: -pair[1])),
        actual=next((sink.rel_l2 for sink in sinks if sink.name == at and not sink.non_finite), None),
        expected=expected.get(at),
        unit=unit,
        allowed=bounds.get(at, allowed),
        allowed_at={name: bound for name, bound in before.items() if bound != bounds.get(at, allowed)},
        candidates=len(names),
        tried=len(tried.effects),
        rest=tried.rest,
        passes=bool(culprits) and not beyond and not fails,
        unfelt=first if first and not culprits and not beyond and not subject.row_of[first].is_output else "",
        seconds=work.seconds,
    ), alone


def _before(subject: Subject, bounds: dict[str, float]) -> dict[str, float]:
    """The outputs' bounds, and those of what the optimiser makes them of: a parameter that was 0 is one update."""
    found = dict(bounds)
    for meta in reversed(subject.tensors):
        bound = found.get(meta.name)
        for source in meta.inputs if bound is not None else ():
            given = subject.meta_of.get(source)
            if given is not None and given.phase == "optimiser" and not given.is_output:
                found[source] = max(found.get(source, 0.0), bound or 0.0)
    return found


def _worst(sinks: list[Sink], bounds: dict[str, float]) -> str:
    """The output that is furthest beyond its bound."""
    judged = [sink for sink in sinks if sink.squared or sink.non_finite] or sinks
    return max(judged, key=lambda sink: (sink.non_finite > 0, sink.rel_l2 / bounds[sink.name])).name if judged else ""
