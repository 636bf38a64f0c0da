"""What is wrong in the log of a training run: the first step that is not as those before it, or one that stands still.

A look at one step knows the steps before it (the band); a look at all of them also knows what came after: a gradient
that is gone for good, parameters that never change, a decay that rounding takes away.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...recording.training_log import ParameterNumbers, StepNumbers

__all__ = [
    "Departure",
    "Restart",
    "Untrained",
    "count_steps_with_band",
    "find_changes_by_plan",
    "find_first_departure",
    "find_not_given",
    "find_restart",
    "find_untrained",
]

_FEW = 5
"""Steps that make a band: before there are so many, only what is not finite leaves it."""

_AGAIN = 3
"""Steps of which most are too small before one is: what is too large is so at once."""

_WIDE, _LEAST = 6.0, 1.0
"""Half the width of the band of a norm, in median absolute deviations of its logarithm, and in powers of ten at least.
"""

_MORE_ZEROS = 0.5
"""Share of zeros above the median of the steps before from which on a gradient has left its band."""

_JUMP = 10.0
"""Times the largest before: warm-up and restarts of a schedule stay below it."""

_STILL = 0.5
"""Share of a parameter's elements that never changed, from which on it stands still."""

_DEAD = 0.9
"""Share of the steps at which a gradient is 0 in each of its elements, where it underflows."""

_TINY = 1e-6
"""Update over parameters, of the whole model: a few roundings of float32, and thousands of such steps change nothing.
"""

_SETTLED = 1e-2
"""Total norm over the largest one, from which on down an optimiser may have ended: nothing is left to gain."""

_CONSTANT, _CLIPPED = 1e-3, 1e-2
"""Spread of the scaled total norm, and largest total norm, where the gradients were clipped while they were scaled."""

_DECAYED, _UNDECAYED = 2e-3, 0.5
"""Share of a parameter that weight decay was to take off it over the log, and share of the elements that it could not
change."""

_MEANINGS = {"momentum": (0.0, 1.0), "betas": (0.0, 1.0), "weight_decay": (0.0, math.inf), "eps": (0.0, math.inf)}
"""From where to below where a setting of an optimiser means something: the parts of an average, what is taken off and
what keeps a divisor from 0. Optimisers look when they are made, and not at what a schedule sets later."""

_BY_PLAN = 3
"""Changes between steps, as far apart as each other, from which on the loop makes them by plan."""

_GRAVE = {
    "broken": 6, "changed": 5, "state": 5, "rate": 5, "uphill": 5, "setting": 5, "clipped": 4, "kept": 4, "gone": 3,
    "zeros": 3, "still": 3, "stopped": 3, "slowed": 3, "tiny": 2, "update": 2,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Departure:
    """The first step at which something is wrong, and the parameter that has most of it.

    what: "broken" (value: elements), "zeros" (share), "larger" or "smaller" (norm), each against ``usual``, the median
    before; "gone": its gradient is there no more; "still": value of its elements never change although they have a
    gradient; "stopped": from there on most parameters do not change although they have a gradient, at a learning rate
    of value, where the model's update was ``usual``; "tiny": the model's updates over its parameters are value;
    "clipped": the total norm times ``usual``, the loss scale, is always value; "kept": gradients are added to those of
    the step before, and the norm of all is value, where it was ``usual``; "rate": the learning rate is value, and was
    usual at most; "uphill": it is value, below 0; "setting": ``setting`` of the optimiser's group of the parameter is
    value, which means nothing, and was usual (NaN: its first); "update": the model's update over its parameters is
    value, and was usual at most; "slowed": it is value from there on, and was usual, with such rates and gradients as
    before, where ``setting`` of the optimiser was changed ("": none) as ``was`` and
    ``became`` say; "changed": it was changed by value of
    its size before the step, outside of the optimiser's steps, and "state": what the optimiser keeps of it was, 1 where
    that is gone; "undecayed": of its elements ``usual`` is not changed by a decay of value.
    parameters: how many have it."""

    step: int
    parameter: str
    what: str
    value: float
    usual: float
    parameters: int = 1
    setting: str = ""
    was: float = 0.0
    became: float = 0.0

    @property
    def meaning(self) -> tuple[float, float]:
        """From where to below where the setting means something."""
        return _MEANINGS[self.setting.partition("[")[0]]


@dataclass(frozen=True, kw_only=True)
class Untrained:
    """Parameters that ask for a gradient and are not trained, by the order of names; no fault where it is meant."""

    names: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Restart:
    """The first step at which a learning rate that had fallen is high again, in ``parameters``; no fault where the
    schedule is meant to. value: the rate there, before: at the step before. count: of such steps."""

    step: int
    parameter: str
    value: float
    before: float
    parameters: int
    count: int


def count_steps_with_band(steps: Sequence[StepNumbers]) -> int:
    """Return how many have enough steps before them for a band: of the others only NaN and Inf are known."""
    return max(0, len(steps) - _FEW)


def find_untrained(steps: Sequence[StepNumbers]) -> Untrained | None:
    """Return what was without a gradient in every step; None where nothing was."""
    never = frozenset.intersection(*(one.without for one in steps)) if steps else frozenset()
    return Untrained(names=tuple(sorted(never))) if never else None


def find_not_given(steps: Sequence[StepNumbers]) -> Untrained | None:
    """Return what had gradients, is in no group of the optimiser, and never changed: nobody moves it."""
    last = [step.parameters for step in steps[-_FEW:]]
    if len(steps) <= _FEW:
        return None
    names = (
        name for name in last[-1]
        if all(name in step and step[name].rate is None and step[name].still == 1 for step in last)
    )  # fmt: skip
    found = tuple(sorted(names))
    return Untrained(names=found) if found else None


def find_restart(steps: Sequence[StepNumbers]) -> Restart | None:
    """Return where a learning rate jumps back towards what it had been: to more than that is a departure."""
    found, highest = [], dict[str, float]()
    for last, now in itertools.pairwise(steps):
        highest |= {
            name: max(one.rate, highest.get(name, 0.0)) for name, one in last.parameters.items() if one.rate is not None
        }
        back = {
            name: (rate, low) for name, one in now.parameters.items()
            if name in last.parameters and (rate := one.rate) is not None
            and (low := last.parameters[name].rate) is not None
            and 0 <= low * _JUMP <= min(rate, highest[name]) and 0 < rate < highest[name] * _JUMP
        }  # fmt: skip
        if back:
            found.append((now.step, back))
    if not found:
        return None
    step, back = found[0]
    name = max(back, key=lambda one: back[one][0] / max(back[one][1], np.finfo(float).tiny))
    return Restart(
        step=step, parameter=name, value=back[name][0], before=back[name][1], parameters=len(back), count=len(found)
    )


def find_first_departure(steps: Sequence[StepNumbers]) -> Departure | None:
    """Return the first step with something wrong; of several things there, the gravest, and the parameter furthest
    out."""
    found = [one for one in (_find_band_departure(steps), *_find_lasting_departures(steps)) if one is not None]
    if not found:
        return None
    first = min(one.step for one in found)
    return max((one for one in found if one.step == first), key=_severity_of)


def _find_band_departure(steps: Sequence[StepNumbers]) -> Departure | None:
    for place, now in enumerate(steps):
        found = [one for name in now.parameters if (one := _check_step(steps, place, name)) is not None]
        found += _find_senseless_settings(steps, place)
        if (jump := _find_jump(steps, place)) is not None:
            found.append(jump)
        if found:
            worst = max(found, key=_severity_of)
            alike = sum(one.what == worst.what for one in found)
            return jump if worst is jump else _find_beginning(steps, place, replace(worst, parameters=alike))
    return None


def _find_beginning(steps: Sequence[StepNumbers], place: int, found: Departure) -> Departure:
    """Return the departure at the step from which on the norm is far from the spread of the steps before that one: it
    grows into a departure, and the step that began it is the one to look at."""
    name = found.parameter
    if found.what not in ("larger", "smaller"):
        return found
    for before in range(place - 1, _FEW - 1, -1):
        past = [step.parameters[name].norm for step in steps[:before] if name in step.parameters]
        own = steps[before].parameters.get(name)
        norms = np.log10([norm for norm in past if 0 < norm < math.inf])
        if own is None or own.norm <= 0 or norms.size < _FEW:
            return found
        off, width = math.log10(own.norm) - np.median(norms), _WIDE * np.median(np.abs(norms - np.median(norms)))
        if (off if found.what == "larger" else -off) <= width:
            return found
        usual = float(10.0 ** np.median(norms))
        found = replace(found, step=steps[before].step, value=own.norm, usual=usual)
    return found


def _check_step(steps: Sequence[StepNumbers], place: int, name: str) -> Departure | None:
    now = steps[place]
    own = now.parameters[name]
    past = [step.parameters[name] for step in steps[:place] if name in step.parameters]
    norms = [math.log10(one.norm) for one in past if one.norm > 0 and not one.broken]
    if own.broken:
        return Departure(step=now.step, parameter=name, what="broken", value=float(own.broken), usual=0.0)
    if len(past) < _FEW:
        return None
    zeros = float(np.median([one.zeros for one in past]))
    if own.zeros > zeros + _MORE_ZEROS:
        after = steps[place + 1 :]
        again = any(_total_norm(one) == 0 for one in (*steps[:place], *after))
        if _total_norm(now) == 0 and (_has_converged(steps[:place]) or _is_converging(steps, place)):
            return None
        if not _does_stay_zero(after, name, zeros) and (_total_norm(now) > 0 or again):
            return None  # an expert without a token comes back, and margins that every sample keeps come again
        return Departure(step=now.step, parameter=name, what="zeros", value=own.zeros, usual=zeros)
    if len(norms) < _FEW or own.norm <= 0:
        return None
    usual, width = _make_band(norms)
    off = math.log10(own.norm) - usual
    if abs(off) <= width:
        return None
    what = "larger" if off > 0 else "smaller"
    here = [step for step in steps[place:] if name in step.parameters]
    if off < 0 and not _does_stay_small([step.parameters[name].norm for step in here], 10.0 ** (usual - width)):
        return None  # a bias of four elements is near 0 once in a while
    if off < 0 and _has_converged(steps[:place]):
        return None
    if off < 0 and _is_converging(steps, place):  # all become small together: this one, in its share of them?
        shares = [_share_of(step, name) for step in steps[:place] if name in step.parameters]
        middle, width = _make_band([math.log10(one) for one in shares if one > 0])
        if not _does_stay_small([_share_of(step, name) for step in here], 10.0 ** (middle - width)):
            return None
    return Departure(step=now.step, parameter=name, what=what, value=own.norm, usual=10.0**usual)


def _make_band(logarithms: Sequence[float]) -> tuple[float, float]:
    """Return the middle of a band, and half of its width."""
    middle = float(np.median(logarithms))
    return middle, max(_LEAST, _WIDE * float(np.median(np.abs(np.array(logarithms) - middle))))


def _share_of(step: StepNumbers, name: str) -> float:
    """Return the norm of a gradient over that of all; 1 where all are 0."""
    own, total = step.parameters[name].norm, _total_norm(step)
    return own / total if total else 1.0


def _is_converging(steps: Sequence[StepNumbers], place: int) -> bool:
    """Return whether the gradients had been falling when they fell here: in the last steps together at least as far as
    in this one. A fault takes them away at once; Newton's method, the fastest, doubles the fall's exponent."""
    norms = [norm for step in steps[:place] if (norm := _total_norm(step)) > 0]
    if len(norms) < 2:
        return False
    fell, now = max(norms[-_FEW - 1 :]) / norms[-1], _total_norm(steps[place])
    return norms[-1] <= now * fell or (fell > 1 / _SETTLED and now <= _TINY * max(norms))


def _does_stay_zero(after: Sequence[StepNumbers], name: str, usual: float) -> bool:
    later = [step.parameters[name].zeros for step in after if name in step.parameters][:_FEW]
    return all(zeros > usual + _MORE_ZEROS for zeros in later)


def _has_converged(before: Sequence[StepNumbers]) -> bool:
    """Return whether all gradients had fallen to a few roundings of the largest ones."""
    norms = [_total_norm(one) for one in before]
    return max(norms[-_FEW:]) <= _TINY * max(norms)


def _does_stay_small(norms: Sequence[float], bound: float) -> bool:
    return len(norms) >= _AGAIN and float(np.median(norms[:_FEW])) < bound


def _find_jump(steps: Sequence[StepNumbers], place: int) -> Departure | None:
    """Return a learning rate below 0; else a rate far beyond each one before, or such an update that neither the rate
    nor the gradients explain."""
    now = steps[place]
    below = {name: one.rate for name, one in now.parameters.items() if one.rate is not None and one.rate < 0}
    if below:  # no optimiser takes one, so that a schedule made it
        name = min(below, key=lambda one: below[one])
        return Departure(
            step=now.step, parameter=name, what="uphill", value=below[name], usual=0.0, parameters=len(below)
        )
    if place < 2:  # a warm-up may begin at next to nothing
        return None
    rates = _find_highest_rates(steps[:place])
    jumped = {
        name: one.rate for name, one in now.parameters.items()
        if one.rate is not None and 0 < rates.get(name, 0.0) * _JUMP * (1 - 1e-6) <= one.rate
    }  # fmt: skip
    if jumped:
        name = max(jumped, key=lambda one: jumped[one] / rates[one])
        return Departure(
            step=now.step, parameter=name, what="rate", value=jumped[name], usual=rates[name], parameters=len(jumped)
        )
    if place < _FEW:
        return None
    update, norm = (max(map(measure, steps[:place])) for measure in (_update, _total_norm))
    if not update > 0 or not 0 < _total_norm(now) <= 3 * norm:
        return None
    if update * _JUMP <= _update(now) or _is_beyond_its_gradients(steps, place):
        return Departure(step=now.step, parameter=_find_furthest(now), what="update", value=_update(now), usual=update)
    return None


def _find_senseless_settings(steps: Sequence[StepNumbers], place: int) -> list[Departure]:
    """Return what the optimiser is set to from a step on and that is outside of what it means anything for."""
    now, found = steps[place], []
    for name, settings in now.settings.items():
        for setting, value in settings.items():
            meaning = _MEANINGS.get(setting.partition("[")[0])
            if meaning is None or meaning[0] <= value < meaning[1]:
                continue
            before = [one.settings[name][setting] for one in steps[:place] if setting in one.settings.get(name, {})]
            found.append(
                Departure(
                    step=now.step, parameter=name, what="setting", value=value, setting=setting,
                    usual=before[-1] if before else math.nan,
                )
            )  # fmt: skip
    return found


def _is_beyond_its_gradients(steps: Sequence[StepNumbers], place: int) -> bool:
    """Return whether a step is far longer for its learning rate than the last ones were, and for its rate and its
    gradients than each one was: of some optimisers a step follows both, of others the rate alone."""
    paces = [
        (_update(one) / rate, _update(one) / (rate * _total_norm(one))) for one in steps[: place + 1]
        if (rate := max((own.rate or 0.0 for own in one.parameters.values()), default=0.0)) > 0 and _total_norm(one) > 0
    ]  # fmt: skip
    *before, (by_rate, by_gradients) = paces or [(0.0, 0.0)]
    if len(before) < _FEW:
        return False
    return (
        by_rate >= _JUMP * max(one for one, _ in before[-_FEW:]) > 0
        and by_gradients >= _JUMP * max(one for _, one in before) > 0
    )


def _find_highest_rates(steps: Sequence[StepNumbers]) -> dict[str, float]:
    highest: dict[str, float] = {}
    for step in steps:
        for name, one in step.parameters.items():
            if one.rate is not None:
                highest[name] = max(highest.get(name, 0.0), one.rate)
    return highest


def _find_furthest(step: StepNumbers) -> str:
    return max(step.parameters, key=lambda name: step.parameters[name].moved or 0.0)


def _total_norm(step: StepNumbers) -> float:
    """Return the norm of all gradients together."""
    return math.sqrt(sum(one.norm**2 for one in step.parameters.values()))


def _update(step: StepNumbers) -> float:
    """Return the norm of all updates over that of all parameters; 0 where none was measured."""
    known = [(one.moved * one.size, one.size) for one in step.parameters.values() if one.moved is not None]
    size = math.sqrt(sum(one**2 for _, one in known))
    return math.sqrt(sum(one**2 for one, _ in known)) / size if size else 0.0


def _find_lasting_departures(steps: Sequence[StepNumbers]) -> list[Departure | None]:
    """Return what is told by the steps that follow, too; each needs as many as a band does."""
    if len(steps) <= _FEW:
        return []
    still, pace = _find_unmoved_parameter(steps), _find_tiny_updates(steps) or _find_stopped_parameters(steps)
    if still is not None and pace is not None:  # is it the type of all, or the pace, in which the largest stand first?
        still, pace = (still, None) if 2 * still.parameters > pace.parameters else (None, pace)
    return [
        _find_clipped_scaled(steps),
        _find_kept_gradients(steps),
        _find_vanished_gradient(steps),
        _find_dead_gradient(steps),
        still,
        pace,
        _find_lost_decay(steps),
        _find_slowed_updates(steps),
        _find_change_between(steps, "changed"),
        _find_change_between(steps, "state"),
    ]


def _find_last_run(fits: Sequence[bool]) -> int | None:
    """Where the steps begin that fit up to the end; None where the last does not, or they are too few."""
    begin = len(fits)
    while begin and fits[begin - 1]:
        begin -= 1
    return begin if len(fits) - begin >= _FEW else None


def _find_clipped_scaled(steps: Sequence[StepNumbers]) -> Departure | None:
    """Clipped before the loss's scale was taken out: the norm of the scaled gradients is what is constant."""
    scaled = [_total_norm(one) * one.scale for one in steps]
    last = scaled[-1]
    fits = [
        one.scale > 1 and 0 < _total_norm(one) <= _CLIPPED and math.isclose(value, last, rel_tol=_CONSTANT)
        for one, value in zip(steps, scaled, strict=True)
    ]
    if (begin := _find_last_run(fits)) is None:
        return None
    step = steps[begin]
    name = max(step.parameters, key=lambda one: step.parameters[one].norm)
    return Departure(
        step=step.step, parameter=name, what="clipped", value=last, usual=step.scale, parameters=len(step.parameters)
    )


def _find_kept_gradients(steps: Sequence[StepNumbers]) -> Departure | None:
    """Nobody sets gradients back: each step is added to those before it."""
    if (begin := _find_last_run([step.kept for step in steps])) is None:
        return None
    first, last = steps[begin], steps[-1]
    name = max(last.parameters, key=lambda one: last.parameters[one].norm)
    before = [_total_norm(one) for one in steps[:begin]] or [_total_norm(first)]
    return Departure(
        step=first.step, parameter=name, what="kept", value=_total_norm(last), usual=float(np.median(before)),
        parameters=len(last.parameters),
    )  # fmt: skip


def _find_vanished_gradient(steps: Sequence[StepNumbers]) -> Departure | None:
    found = []
    for name in dict.fromkeys(name for step in steps for name in step.parameters):
        begin = _find_last_run([name in step.without for step in steps])
        had = [step.parameters[name].norm for step in steps[:begin] if name in step.parameters] if begin else []
        if begin is not None and len(had) == begin >= _FEW:
            usual = float(np.median(had))
            found.append(Departure(step=steps[begin].step, parameter=name, what="gone", value=0.0, usual=usual))
    return _choose_first(found)


def _find_dead_gradient(steps: Sequence[StepNumbers]) -> Departure | None:
    """Return a gradient that is 0 in each element at nearly each step, beside others that are not."""
    if not any(_total_norm(one) > 0 for one in steps):
        return None  # said of the whole log
    names = dict.fromkeys(name for step in steps for name in step.parameters)
    own = {name: [step.parameters[name] for step in steps if name in step.parameters] for name in names}
    found = [
        Departure(step=steps[0].step, parameter=name, what="zeros", value=1.0, usual=1.0)
        for name, numbers in own.items()
        if len(numbers) > _FEW and sum(one.zeros == 1 for one in numbers) >= _DEAD * len(numbers)
    ]
    return _choose_first(found)


def _find_unmoved_parameter(steps: Sequence[StepNumbers]) -> Departure | None:
    found = []
    for name in dict.fromkeys(name for step in steps for name in step.parameters):
        here = [(step.step, step.parameters[name]) for step in steps if name in step.parameters]
        if len(here) > _FEW and all(_stands(one) for _, one in here[-_FEW:]):
            share = min(one.still or 0.0 for _, one in here[-_FEW:])
            begin = next(step for step, one in here if _stands(one))
            found.append(Departure(step=begin, parameter=name, what="still", value=share, usual=0.0))
    return _choose_first(found)


def _stands(one: ParameterNumbers) -> bool:
    return one.still is not None and one.still > _STILL and one.norm > 0 and bool(one.rate)


def _find_stopped_parameters(steps: Sequence[StepNumbers]) -> Departure | None:
    """Return where most parameters, which moved before, begin to stand up to the end: the rate is 0 for all, as behind
    the end of a schedule, or rounding takes each update away. A rate of 0 for some is a layer that is frozen."""
    ended = all(not one.rate for one in steps[-1].parameters.values())
    standing = [
        [
            name for name, one in step.parameters.items()
            if one.norm > 0 and one.moved == 0 and one.rate is not None and (one.rate > 0) != ended
        ]
        for step in steps
    ]  # fmt: skip
    most = [2 * len(names) > len(step.parameters) for names, step in zip(standing, steps, strict=True)]
    if (begin := _find_last_run(most)) is None or begin < _FEW:
        return None
    here, norms = steps[begin], [*map(_total_norm, steps[:begin])]
    if not ended and norms[-1] <= _SETTLED * max(norms):
        return None  # an optimiser that ends where the gradients are small enough to it
    name = max(standing[begin], key=lambda one: here.parameters[one].norm)
    return Departure(
        step=here.step, parameter=name, what="stopped", value=here.parameters[name].rate or 0.0,
        usual=float(np.median([_update(step) for step in steps[:begin]])), parameters=len(standing[begin]),
    )  # fmt: skip


def _find_slowed_updates(steps: Sequence[StepNumbers]) -> Departure | None:
    """Return from where on the updates are far shorter for their rate, and for that and their gradients, than any
    before, with about the same rates and gradients: of some optimisers a step follows both, of others the rate alone.
    """
    paces = [_measure_paces(step) for step in steps]
    for place in range(_FEW, len(steps) - _AGAIN + 1):
        now, last, later = steps[place], steps[place - 1], paces[place : place + _FEW]
        least = min(map(_total_norm, steps[place - _FEW : place]))
        same = _have_rates_alike(last, now) and 3 * _total_norm(now) >= least
        if not same or not later[0] or not _is_far_shorter(paces[:place], later, [*later[0]]):
            continue
        name = _find_furthest(now)
        setting, was, became = next(_iterate_changed_settings(steps, place), ("", 0.0, 0.0))
        return Departure(
            step=now.step, parameter=name, what="slowed", value=_update(now), parameters=len(later[0]),
            usual=float(np.median([_update(step) for step in steps[:place]])), setting=setting, was=was, became=became,
        )  # fmt: skip
    return None


def _measure_paces(step: StepNumbers) -> dict[str, tuple[float, float]]:
    """Return the length of each parameter's update over its rate, and that over its gradient's norm."""
    moved = {
        name: one.moved * one.size / one.rate for name, one in step.parameters.items()
        if one.moved and one.rate and one.size and one.norm > 0
    }  # fmt: skip
    return {name: (pace, pace / step.parameters[name].norm) for name, pace in moved.items()}


def _is_far_shorter(
    before: Sequence[Mapping[str, tuple[float, float]]], later: Sequence[Mapping[str, tuple[float, float]]],
    names: Sequence[str],
) -> bool:  # fmt: skip
    """Return whether the paces of most of these parameters are, in the later steps, a tenth of the least before at
    most, and those of all a third for their rate."""
    fallen = 0
    for name in names:
        past = [one[name] for one in before if name in one]
        here = [one[name] for one in later if name in one]
        if len(past) < _FEW or len(here) < _AGAIN:
            return False
        by_rate, by_gradient = max(one for one, _ in here), float(np.median([one for _, one in here]))
        least = min(one for one, _ in past[-_FEW:])
        if 3 * by_rate > least:
            return False
        fallen += _JUMP * by_rate <= least and _JUMP * by_gradient <= min(one for _, one in past)
    return 2 * fallen > len(names)


def _have_rates_alike(last: StepNumbers, now: StepNumbers) -> bool:
    rates = [
        (last.parameters[name].rate or 0.0, one.rate or 0.0) for name, one in now.parameters.items()
        if name in last.parameters
    ]  # fmt: skip
    return all(was <= 2 * became and became <= 2 * was for was, became in rates)


def _iterate_changed_settings(steps: Sequence[StepNumbers], place: int) -> Iterator[tuple[str, float, float]]:
    """Yield what the optimiser is set to otherwise from a step on, with what it was and what it is."""
    for group, settings in steps[place].settings.items():
        for setting, became in settings.items():
            before = [one.settings[group][setting] for one in steps[:place] if setting in one.settings.get(group, {})]
            if before and before[-1] != became:
                yield setting, before[-1], became


def _find_tiny_updates(steps: Sequence[StepNumbers]) -> Departure | None:
    moving = [
        step for step in steps if any(one.rate != 0 for one in step.parameters.values()) and _total_norm(step) > 0
    ]
    updates = [_update(step) for step in moving if _is_measured(step)]
    if len(updates) <= _FEW or max(updates) > _TINY or _is_moved_by_others(steps):
        return None
    first = moving[0]
    name = max(first.parameters, key=lambda one: first.parameters[one].norm)
    return Departure(
        step=first.step, parameter=name, what="tiny", value=float(np.median(updates)), usual=0.0,
        parameters=len(first.parameters),
    )  # fmt: skip


def _is_moved_by_others(steps: Sequence[StepNumbers]) -> bool:
    """Return whether parameters change that no step of the optimiser moves: it has copies of them in another type."""
    return any(
        one.still is not None and one.still < 1
        and all(step.parameters[name].moved == 0 for step in steps if name in step.parameters)
        for name, one in steps[-1].parameters.items()
    )  # fmt: skip


def _is_measured(step: StepNumbers) -> bool:
    return any(one.moved is not None for one in step.parameters.values())


def _find_lost_decay(steps: Sequence[StepNumbers]) -> Departure | None:
    """Decay that was to take off a part of a parameter that can be seen, and that rounding undoes at each step."""
    found = []
    many = (steps[-1].step - steps[0].step) / (len(steps) - 1)  # steps that a logged one stands for
    for name in dict.fromkeys(name for step in steps for name in step.parameters):
        own = [step.parameters[name] for step in steps if name in step.parameters]
        asked = [one for one in own if one.decay]
        total = sum(one.decay or 0.0 for one in asked) * many
        lost = [one.undecayed for one in asked if one.undecayed is not None]
        if len(lost) > _FEW and total > _DECAYED and min(lost) > _UNDECAYED:
            found.append(
                Departure(
                    step=steps[0].step, parameter=name, what="undecayed", value=float(np.median([
                        one.decay or 0.0 for one in asked])), usual=float(np.median(lost)),
                )
            )  # fmt: skip
    return _choose_first(found)


def _list_changes(steps: Sequence[StepNumbers], what: str) -> list[tuple[int, Mapping[str, float]]]:
    """Return where parameters ("changed"), or what the optimiser keeps of them ("state"), were changed before a step;
    () where that is so at most of them, as with a wrapper that keeps parameters of its own."""
    told: list[tuple[int, Mapping[str, float]]] = [
        (place, found) for place, one in enumerate(steps) if (found := one.changed if what == "changed" else one.state)
    ]
    return told if 2 * len(told) <= len(steps) else []


def _is_by_plan(places: Sequence[int]) -> bool:
    """Return whether changes come again and again, as far apart as each other: pruning, a projection, a look ahead."""
    return len(places) >= _BY_PLAN and len({b - a for a, b in itertools.pairwise(places)}) == 1


def _find_change_between(steps: Sequence[StepNumbers], what: str) -> Departure | None:
    """Return the first change between two steps, where the steps before it know of none."""
    changes = _list_changes(steps, what)
    places = [place for place, _ in changes]
    if not places or places[0] < _FEW or _is_by_plan(places):
        return None
    place, found = changes[0]
    name = max(found, key=lambda one: found[one])
    return Departure(
        step=steps[place].step, parameter=name, what=what, value=found[name], usual=0.0, parameters=len(found)
    )


def find_changes_by_plan(steps: Sequence[StepNumbers]) -> Departure | None:
    """Return the first of changes of parameters between steps that come again and again: no fault where it is meant.
    usual: every how many logged steps."""
    changes = _list_changes(steps, "changed")
    places = [place for place, _ in changes]
    if not _is_by_plan(places):
        return None
    place, found = changes[0]
    name = max(found, key=lambda one: found[one])
    return Departure(
        step=steps[place].step, parameter=name, what="changed", value=found[name], usual=float(places[1] - places[0]),
        parameters=len(found),
    )  # fmt: skip


def _choose_first(found: Sequence[Departure]) -> Departure | None:
    if not found:
        return None
    step = min(one.step for one in found)
    here = [one for one in found if one.step == step]
    return replace(max(here, key=lambda one: (one.value, one.usual)), parameters=len(here))


def _severity_of(one: Departure) -> tuple[int, float]:
    ratio = one.value / one.usual if one.usual else one.value
    return _GRAVE.get(one.what, 1), abs(math.log10(ratio)) if ratio > 0 else 0.0
