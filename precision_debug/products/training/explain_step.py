"""The story of a training step's explanation: which gradients are wrong beyond rounding, and who made them so."""

from __future__ import annotations

from pathlib import Path

from ...explain.broken_outputs import find_makers_on_both_sides
from ...explain.criteria import FAR
from ...explain.culprits import find_first_failing, list_candidates, list_early_suspects
from ...explain.effects import NOTHING_CARRIED, Sink, list_sinks, read_known_sinks, run_plain_sinks
from ...explain.explain_run import conclude
from ...explain.growth import find_amplifying, find_drifting
from ...explain.introduced import Alone, make_empty_alone, run_alone
from ...explain.subject import Subject
from ...explain.units import allowed_error, error_worth_failing
from ...explain.work import Work
from ...records import Explanation
from ...settings.setting import BACKWARD
from .step_causes import find_lost_epsilons, without_these
from .step_updates import GRADIENT, find_decided_by_rounding, find_lost_updates
from .steps import blame_outputs, find_allowed_errors, find_wrong_outputs, is_beyond_bound, predict_step_errors

__all__ = ["explain_step"]

_KEPT = 4 << 30
"""Bytes of all compared tensors up to which what every operator added is kept, on disk where there is no room."""


def explain_step(subject: Subject, work: Work, folder: Path) -> tuple[Explanation, Alone]:
    """Return what an explanation says, and what each operator added, which the caller closes. Raises work.Ended."""
    every = work.full or work.size < _KEPT
    suspected = frozenset(list_early_suspects(subject, 10_000 if work.full else 64))
    sinks = [sink for sink in list_sinks(subject, "") if sink.is_output]
    plain = read_known_sinks(subject, sinks) or run_plain_sinks(subject, [], sinks)
    drawn = predict_step_errors(subject, plain, sinks)
    looked = find_wrong_outputs(subject, sinks, drawn.errors)
    if not looked and not work.full:
        alone = make_empty_alone(subject, folder)
    else:

        def kept(name: str, units: float | None) -> bool:
            if subject.moves_on(name) and (units or 0.0) <= FAR:
                return False  # nobody will ask for it
            return every or name in suspected or (units or 0.0) > 2.0

        alone = run_alone(subject, kept, folder)
    try:
        names = list_candidates(subject, alone, []) if looked else []
        names.sort(key=lambda name: subject.order.get(name, 0))
        if not drawn.whole and not any(_is_far_off(subject, alone, name) for name in names):
            drawn = predict_step_errors(
                subject, plain, sinks, drawn
            )  # who enlarges ordinary rounding is told by how much
        culprits, tried = blame_outputs(subject, alone, sinks, looked, drawn.errors, plain, names, work) if names else (
            (), NOTHING_CARRIED
        )  # fmt: skip
        if not drawn.whole and not culprits:
            drawn = predict_step_errors(subject, plain, sinks, drawn)
        by_zero = find_lost_epsilons(subject)
        culprits = (*by_zero, *without_these(culprits, by_zero))
        lost = {one.name: one for one in find_lost_updates(subject)}
        # of the operator that is to blame for it this says more than that its rounding is amplified
        culprits = tuple(lost.pop(one.name, one) for one in culprits)
        culprits = (*culprits, *lost.values()) or find_makers_on_both_sides(subject, partly=True)
        if not culprits and looked:
            limits = find_allowed_errors(subject, sinks, drawn.errors, blamed=False)
            above = [one for one in sinks if one.rel_l2 > limits[one.name]]
            culprits = find_drifting(subject, above, dict(plain), folder) if alone.method == "isolated" else ()
            culprits = culprits or find_amplifying(subject, alone, [one.name for one in above])
    except BaseException:
        alone.close()
        raise
    unit, expected = subject.typical_unit, drawn.errors
    bounds = find_allowed_errors(subject, sinks, expected, blamed=bool(culprits))
    decided = find_decided_by_rounding(subject, sinks, expected)
    before = _bounds_before(subject, bounds, decided)
    off = is_beyond_bound(sinks, bounds)
    at = _find_worst_output(sinks, bounds)
    allowed = bounds.get(at, error_worth_failing(unit) if culprits else allowed_error(unit, expected.get(at)))
    first = find_first_failing(subject)
    return conclude(
        culprits,
        tried,
        sinks,
        at,
        expected,
        beyond=off,
        method=alone.method if looked else "",
        unit=unit,
        allowed=allowed,
        allowed_at={name: bound for name, bound in before.items() if bound != allowed},
        candidates=len(names),
        of_step=True,
        decided_by_rounding=tuple(sink.name for sink in sinks if sink.name in decided),
        unfelt=first if first and not culprits and not off and not subject.row_of[first].is_output else "",
        seconds=work.seconds,
    ), alone


def _is_far_off(subject: Subject, alone: Alone, name: str) -> bool:
    found = alone.found[name]
    born = found.born_nan + found.born_inf > 0
    return born or subject.far(found.rel_l2, found.units, FAR)


def _bounds_before(subject: Subject, bounds: dict[str, float], decided: frozenset[str]) -> dict[str, float]:
    """Return the bounds of the outputs, and of the tensors that the optimiser makes them of.

    A parameter that was 0 is one update. Of a gradient that rounding decides also those of the sum that it is, and of
    what only moves that."""
    found, whole = dict(bounds), {name for name in decided if GRADIENT in name}
    held = {name.replace(GRADIENT, f"{BACKWARD}/", 1) + ".grad/": name for name in whole}  # before it is unscaled
    for meta in reversed(subject.tensors):
        gradient = held.get(meta.name.rpartition("/")[0] + "/")
        if gradient is not None:
            found[meta.name] = bounds[gradient]
            whole.add(meta.name)
        bound = found.get(meta.name)
        for source in meta.inputs if bound is not None else ():
            above = subject.meta_of.get(source)
            if above is None or above.is_output:
                continue
            moved = meta.name in whole and (meta.is_output or subject.only_moves(meta.name))
            if above.phase == "optimiser" or moved:
                found[source] = max(found.get(source, 0.0), bound or 0.0)
                whole |= {source} if moved else set()
    return found


def _find_worst_output(sinks: list[Sink], bounds: dict[str, float]) -> str:
    """Return the output that is furthest beyond its bound."""
    judged = [sink for sink in sinks if sink.squared or sink.non_finite] or sinks
    return max(judged, key=lambda sink: (sink.non_finite > 0, sink.rel_l2 / bounds[sink.name])).name if judged else ""
