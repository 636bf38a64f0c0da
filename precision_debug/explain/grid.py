"""What integers make of numbers: the grid that a tensor is held on, and the constants that a file holds as integers.

A quantised operator is off by half a step, or something is wrong with its scale, its zero point or its constants: each
is told by numbers that one of them alone can make.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..numbers.number_types import number_type
from ..protocols import find_file_scales
from ..reasons import say
from ..reasons.causes import CAUSES
from ..records import Culprit, Stored
from .bias_scale import find_bias_scale, measure_left_of_constant
from .effects import Carried, Sink, carry_errors_together
from .file_scales import UNUSED, find_fed, find_least_scales, measure_left_with, round_up
from .held_constants import dequantise, has_one_scale, list_stored_constants
from .integer_grids import ends_of
from .introduced import MASK, Alone
from .operator_facts import error_share
from .operators import SUM_UP
from .subject import Subject
from .undo import (
    LEFT,
    Case,
    find_coarse_constant,
    find_fitting_steps,
    find_saturating_sums,
    measure_left_in_places,
    measure_left_without,
)
from .units import steps_of
from .work import Work
from .written_scales import find_other_writing

__all__ = [
    "as_one_outlier",
    "describe_outlier",
    "find_grid_cause",
    "find_outlier",
    "find_shared_scale",
    "find_stored_cause",
    "holds_another_scale",
    "measure_outlier_again",
]


Array = np.ndarray[Any, Any]
Evidence = dict[str, Any]
Told = tuple[str, Evidence]

_CUT_OFF = 0.3
"""Share of the squared error that stands where values were cut off, from which on that is the cause."""

_ALIKE = 0.5
"""Part of a shift that the elements' own errors may be, and still be off by one and the same number."""

_STEPS = 1.0
"""Steps that a shift has at least: rounding once is half of one."""

_ANOTHER_SCALE = 0.02
"""Share of itself by which all of a tensor is too large or too small, and no rounding of its largest number."""

_ANOTHER = 2.0
"""Steps by which a constant is another number than the baseline's, and not that number rounded."""

_END = 2**31 - 1
"""An int32 that stands here was cut off."""

_STEPS_OF_8_BITS, _STEPS_OF_16_BITS = 1 << 8, 1 << 16
_BESIDE = 0.1
"""Part of a step that a number may lie beside it: dequantising rounds in float32."""

_OUTLIER = 16.0
"""Times that one channel's range is the others' from which on it takes the quantised range from them."""


def find_grid_cause(case: Case) -> Told:
    """Return why a quantised operator's result is off. In this order, the first that its experiment confirms: a mask, a
    shift, values that are cut off, a wrong factor, one channel that sets the range of all. Otherwise the grid is
    coarse, and the evidence has its steps where the numbers lie on one."""
    exact, wrong = case.exact, case.wrong
    largest = float(np.abs(exact).max()) if exact.size else 0.0
    if largest > MASK or _holds_mask(exact):
        return "mask_range", {"largest": float(exact.min())}
    if written := find_other_writing(case):
        return written
    if scaled := find_coarse_constant(case):  # its zeros stand at an end of the range, and are not cut off
        return "constant_scale", scaled
    outliers: list[tuple[float, Evidence]] = []
    confirmed: list[Evidence] = []
    for code, ways in _list_suspected_causes(case, _find_step_of(case)):
        proven = [told for evidence in ways if (told := case.proven(code, evidence)) is not None]
        unmeasured = [told for told in proven if "left" not in told]
        if proven and (code != _CAUSE or unmeasured):
            return code, _choose_clearest(proven)
        confirmed += [_choose_clearest(proven)] if proven else []
        if code == _CAUSE and not ways[0].get("several"):
            best = confirmed[-1] if proven else ways[0]
            left = best["left"] if proven else measure_left_without(case, code, best)
            outliers += [] if left is None else [(left, best)]
    first = confirmed[0] if confirmed else min(outliers, key=lambda pair: pair[0])[1] if outliers else {}
    # in what it reads, and again in its result
    same = [(one.get("channel"), one.get("axis")) == (first.get("channel"), first.get("axis")) for _, one in outliers]
    places = [one for (_, one), alike in zip(outliers, same, strict=True) if alike]
    joint = measure_left_in_places(case, places) if len(places) > 1 and not first.get("several") else None
    if confirmed or (joint is not None and joint <= LEFT):
        return _CAUSE, first if joint is None else {**first, "left": min(joint, first.get("left", joint))}
    if shared := find_shared_scale(case):
        return _CAUSE, shared
    if fitting := find_fitting_steps(case):
        return "coarse", fitting
    return "coarse", {"units": None, **_find_grid(exact, wrong, _find_step_of(case))}


def find_shared_scale(case: Case) -> Evidence:
    """Return a constant on one scale where one for each of its channels, in the same type, takes most of the error
    away, however much alike these are; {} where none does."""
    found: list[Evidence] = []
    for weight, values in case.constants.items():
        if values.ndim < 2 or not has_one_scale(case.subject, case.name, weight, values):
            continue
        for axis in (0, values.ndim - 1):
            ranges = np.max(np.abs(values), axis=tuple(a for a in range(values.ndim) if a != axis))
            lower = float(np.quantile(ranges[ranges > 0], 0.25)) if (ranges > 0).any() else 0.0
            told = {
                "from": weight, "who": say("channel", number=int(ranges.argmax())), "channel": int(ranges.argmax()),
                "axis": axis, "ratio": float(ranges.max()) / (lower or 1.0), "than": say("quarter_of_channels"),
                "several": weight,
            }  # fmt: skip
            left = measure_left_without(case, _CAUSE, told)
            found += [{**told, "left": left}] if left is not None and left <= LEFT else []
    return min(found, key=lambda told: float(told["left"]), default={})


def _choose_clearest(proven: Sequence[Evidence]) -> Evidence:
    """Return the one that leaves least; of those that leave about as much the first, which is the clearest."""
    return min(proven, key=lambda told: round(float(told.get("left", 0.0)), 1))


def _list_suspected_causes(case: Case, step: float) -> Iterator[tuple[str, list[Evidence]]]:
    """Yield what may be why, each with the ways in which it may be so, the likeliest first."""
    subject, exact, wrong = case.subject, case.exact, case.wrong
    if sums := find_saturating_sums(case):  # computed as such a kernel does, so that nothing else is like it
        yield "saturating_sums", [sums]
    # then: zeros that are read as another number lie below its lowest
    if shifted := _find_shift(exact, wrong, step, case.narrow):
        alike = np.abs(wrong - exact - shifted["shift"]) <= (0.5 + _BESIDE) * step
        yield "zero_point", [{"weight": "", "which": _tell_which(alike, _find_ended(case)), **shifted}]
    if cut := _find_saturation(find_fed(case)[1], wrong, step):
        yield "saturation", [cut]
    if scaled := _find_scaling(exact, wrong, step):
        alike = np.abs(wrong - scaled["ratio"] * exact) <= (1 + _BESIDE) * step  # the ratio is fitted
        yield "scale", [{"which": _tell_which(alike, _find_ended(case)), **scaled}]
    given = {source: case.alone.exact_of(source) for source in subject.sources(case.name)}
    for where, values in (("", exact), *case.constants.items(), *given.items()):
        found = [] if values is None else _find_outliers(values)
        if values is None or not found or not (where or _are_on_one_grid(wrong, case.narrow)):
            continue
        ways: list[Evidence] = [
            {"from": where, "who": describe_outlier(subject, where or case.name, values, one,
            weight=where in case.constants),
             **one} for one in found
        ]  # fmt: skip
        yield "outlier_channel", ways
        yield "outlier_channel", [{**ways[0], "several": where or case.name}]


def _find_saturation(exact: Array, wrong: Array, step: float = 0.0) -> Evidence:
    finite = np.isfinite(wrong)
    if not finite.any():
        return {}
    top, bottom = float(wrong[finite].max()), float(wrong[finite].min())
    # what is nearer to the last number that occurs is rounded to it, wherever the range ends
    half = 0.5 * (step or _find_step(wrong))
    above, below = (exact > top + half) & (wrong == top), (exact < bottom - half) & (wrong == bottom)
    above, below = above & (top >= 0), below & (bottom <= 0)  # a zero point is one of the integers: 0 lies in the range
    beyond = above | below
    if above.any() and below.any() and top == bottom:
        return {}  # all are one number in their middle, which is no end
    if not beyond.any() or error_share(exact, wrong, beyond) <= _CUT_OFF:
        return {}
    ends = ((top, float(exact.max()), above), (bottom, float(exact.min()), below))
    limit, furthest, _ = max(ends, key=lambda end: error_share(exact, wrong, end[2]) if end[2].any() else 0.0)
    return {"share": float(beyond.mean()), "largest": furthest, "limit": limit}


def _find_step_of(case: Case) -> float:
    """Return the step of an operator's result: the target's own, where it tells it, else as the numbers show it."""
    meta = case.subject.targets.get(case.subject.row_of[case.name].target_name)
    grid = meta.grids.get(meta.name) if meta is not None else None
    return (grid[1] - grid[0]) / (grid[2] - 1) if grid is not None else _find_step(case.wrong)


def _find_ended(case: Case) -> Array:
    """Return which of an operator's results stand at an end of their grid, where the target tells it."""
    there = case.subject.row_of[case.name].target_name
    scale, zero = find_file_scales(case.subject.target).get(there, (None, None))
    meta = case.subject.targets.get(there)
    grid = meta.grids.get(meta.name) if meta is not None else None
    ends: tuple[float, ...] = grid[:2] if grid is not None else ()
    if grid is None and np.size(scale) == np.size(zero) == 1 and zero is not None and zero.dtype.kind in "iu":
        ends = tuple((end - float(zero)) * float(scale) for end in ends_of(zero.dtype))
    step = _BESIDE * _find_step_of(case)
    ended = np.zeros(case.wrong.shape, bool)
    for end in ends:
        ended |= np.abs(case.wrong - end) <= step
    return ended


def _tell_which(alike: Array, ended: Array) -> Any:
    """Return the words for those of an operator's results that are off alike."""
    if alike.all():
        return say("all_results")
    count, elements = int(alike.sum()), alike.size
    if alike[~ended].all():
        return say("all_inside", count=count, elements=elements)
    return say("some_results", count=count, elements=elements)


def _find_step(values: Array) -> float:
    """Return the smallest distance of two different numbers, where all of them are a few hundred at most; else 0."""
    some = np.unique(values[np.isfinite(values)])
    return float(np.diff(some).min()) if 2 <= some.size <= 256 else 0.0


def _find_shift(exact: Array, wrong: Array, step: float, held_as: str) -> Evidence:
    """By how much all elements are off alike, where a zero point of the type can make it."""
    error = (wrong - exact)[np.isfinite(wrong) & np.isfinite(exact)]
    if not error.size or not step:
        return {}
    middle = float(np.median(error))
    apart = float(np.sqrt(np.mean(np.square(error - middle))))
    most = _STEPS_OF_16_BITS if "16" in held_as else _STEPS_OF_8_BITS
    if not _STEPS * step <= abs(middle) < most * step or apart > _ALIKE * abs(middle):
        return {}
    return {"shift": middle, "steps": middle / step}


def _find_scaling(exact: Array, wrong: Array, step: float) -> Evidence:
    """Return how many times all elements are what they should be, where that is next to all that is wrong with them."""
    finite = np.isfinite(wrong) & np.isfinite(exact)
    size = float(np.sum(np.square(exact[finite])))
    if not size or not step:
        return {}
    ratio = float(np.sum(wrong[finite] * exact[finite])) / size
    off, rest = abs(ratio - 1) * np.sqrt(size), float(np.linalg.norm(wrong[finite] - ratio * exact[finite]))
    # by itself a coarse grid makes numbers no smaller and no larger: what is left is its own rounding; and where nearly
    # all became 0 little is left that could be of another scale
    kept = abs(ratio) * np.sqrt(size)
    return {"ratio": ratio} if abs(ratio - 1) > _ANOTHER_SCALE and rest < _ALIKE * min(off, kept) else {}


def _find_grid(exact: Array, wrong: Array, step: float) -> Evidence:
    """Return how many steps the numbers take, where each is the nearest one: then nothing but the grid is to blame."""
    off = np.abs(wrong - exact)
    if not step or float(np.quantile(off, 0.999)) > 0.51 * step:
        return {}
    return {"steps": round(float(exact.max() - exact.min()) / step), "step": step}


def _holds_mask(values: Array) -> bool:
    """Return whether some values are about one and the same negative number, far beyond all the others: "minus
    infinity"."""
    finite = values[np.isfinite(values)]
    lowest = float(finite.min()) if finite.size else 0.0
    far = finite < 0.5 * lowest
    rest = float(np.abs(finite[~far]).max()) if not far.all() else 0.0
    return lowest < 0 and far.sum() > 1 and rest > 0 and lowest < -64 * rest and float(finite[far].max()) < 0.9 * lowest


_DEAD = 1e-4
"""Of the second largest channel's range: what is that small beside two others is pruned, and loses nothing."""


def find_outlier(values: Array) -> Evidence | None:
    """Return the channel whose range is far above the others', or at least above a quarter of them, along the axis
    where that is clearest. ratio: beside ``than``, which says which."""
    return next(iter(_find_outliers(values)), None)


def _find_outliers(values: Array) -> list[Evidence]:
    """One channel of each axis that has such a one, the clearest first: one number that is large is one along each."""
    if values.ndim < 2 or values.size < 16 or values.dtype.kind != "f":
        return []
    found: list[tuple[float, Evidence]] = []
    for axis in range(values.ndim):
        if values.shape[axis] < 4:
            continue
        ranges = np.max(np.abs(values), axis=tuple(a for a in range(values.ndim) if a != axis))
        largest, second = np.partition(ranges, -2)[[-1, -2]].astype(np.float64)
        alive = ranges[ranges > _DEAD * second]
        if alive.size < 4:
            continue
        ratio = float(ranges.max() / np.quantile(alive, 0.25))  # half may be large, as of two that were joined
        if ratio > _OUTLIER:
            alone = largest > _OUTLIER * second
            found.append((ratio, {
                "channel": int(ranges.argmax()), "axis": axis, "ratio": float(largest / second) if alone else ratio,
                "than": say("other_channels") if alone else say("quarter_of_channels"),
            }))  # fmt: skip
    return [evidence for _, evidence in sorted(found, key=lambda pair: -pair[0])]


def measure_outlier_again(subject: Subject, name: str, values: Array, told: Mapping[str, Any]) -> Evidence:
    """Return who an outlier is, and beside what, by other values of its tensor; {} where these have none there."""
    found = next((one for one in _find_outliers(values) if one["axis"] == told["axis"]), None)
    if found is None or (found["channel"] != told["channel"] and "several" not in told):
        return {}
    constant = not (name in subject.row_of or name in subject.meta_of)
    return {**found, "who": describe_outlier(subject, name, values, found, weight=constant)}


_CONV = frozenset({"Conv", "conv", "MaxPool", "pool", "BatchNorm", "batch_norm", "Resize", "CONV"})


def describe_outlier(subject: Subject, name: str, values: Array, found: Evidence, *, weight: bool = False) -> str:
    """Return what an outlier is, by its axis: a channel, a token, a sample, a head; and of which other, where it lies
    in one alone, from the inside out."""
    if weight:
        return say("channel", number=found["channel"])
    place = np.take(values, found["channel"], found["axis"])
    sizes = np.abs(place)
    others = [axis for axis in range(values.ndim) if axis != found["axis"]]
    channels = _find_channel_axis(subject, name, values.ndim)
    places = {found["axis"]: found["channel"]}
    for position, axis in enumerate(others):
        ranges = sizes.max(axis=tuple(a for a in range(place.ndim) if a != position))
        if axis != channels and ranges.size > 1 and np.partition(ranges, -2)[-2] * _OUTLIER < ranges.max():
            places[axis] = int(ranges.argmax())
    inner, *outer = (_describe_axis(subject, values, axis, places[axis], channels) for axis in sorted(places)[::-1])
    for other in outer:
        inner = say("one_of", one=inner, other=other)
    return inner


def _find_channel_axis(subject: Subject, name: str, rank: int) -> int:
    """Return which axis of a tensor its channels lie along: the second where convolutions make or read it, else the
    last."""
    near, waiting, seen = [*subject.region_of.get(name, ())], [name], {name}
    while rank > 2 and waiting and not any(kind in meta.op_type for meta in near for kind in (*_CONV, *SUM_UP)):
        # what works element by element moves no axis
        readers = [one for source in waiting for one in subject.readers.get(source, ()) if one not in seen]
        seen.update(readers)
        near += [meta for one in readers for meta in subject.region_of.get(one, ())]
        waiting = [one for one in readers if _shape_of(subject, one) == _shape_of(subject, name)]
    if rank > 2 and any(kind in meta.op_type for meta in near for kind in _CONV):
        last = any(meta.op_type.isupper() for meta in near)  # TensorFlow Lite's
        return rank - 1 if last else 1
    return rank - 1


def _shape_of(subject: Subject, name: str) -> tuple[int, ...]:
    row = subject.row_of.get(name)
    return tuple(row.comparison.base.shape) if row is not None and row.comparison is not None else ()


def _describe_axis(subject: Subject, values: Array, axis: int, number: int, channels: int) -> str:
    if axis == channels:
        return say("channel", number=number)
    samples = {np.shape(feed)[0] for feed in subject.feeds.values() if np.ndim(feed)}
    if axis == 0 and values.shape[0] in samples:
        return say("sample", number=number)
    if channels == values.ndim - 1 and axis == channels - 1:
        return say("token", number=number)
    if channels == values.ndim - 1 and values.ndim == 4 and axis == 1:
        return say("head", number=number)
    return say("place", number=number, axis=axis)


def _are_on_one_grid(values: Array, held_as: str) -> bool:
    """Return whether all numbers are steps of one grid of 8 bits: what is not was not rounded to the range of its
    largest. Steps of 16 bits are too fine to be told in float32."""
    if "16" in held_as:
        return True
    some = np.unique(values[np.isfinite(values)])
    if some.size < 2:
        return True
    if some.size > _STEPS_OF_8_BITS:
        return False
    places = (some - some[0]) / float(np.diff(some).min())
    return bool(np.abs(places - np.rint(places)).max() < _BESIDE)


def find_stored_cause(case: Case) -> Told | None:
    """Return a constant that the target's file holds as integers, and that is not the baseline's rounded to a step, or
    is by a step that is far too large."""
    if misread := find_bias_scale(case):
        return "scale", misread
    for weight, own, held in list_stored_constants(case.subject, case.name):
        if case.folded is not None and weight != case.folded.weight:
            continue  # what is folded in changes a bias, and its own constants are no more
        values = own if case.folded is None else case.constants[weight]
        if told := (
            _cut_off(weight, values, held) or _find_other_scale(case, weight, values, held)
            or _find_other_integers(case, weight, values, held) or _find_large_steps(case, weight, values, held)
        ):  # fmt: skip
            return told
    return None


def _cut_off(weight: str, values: Array, held: Stored) -> Told | None:
    whole = held.integers.astype(np.float64)
    if held.integers.dtype == np.int32:
        ends = int((np.abs(whole) >= _END).sum())
        return ("bias_clipped", {"weight": weight, "count": ends, "limit": _END}) if ends else None
    real, step = dequantise(held), _measure_steps(held.integers)
    step = step * np.abs(np.asarray(held.used).astype(np.float64))
    at_top, at_bottom = _find_ends(held.integers)
    beyond = (at_top & (values - real > step)) | (at_bottom & (real - values > step))
    if not beyond.any() or error_share(values, real, beyond) <= _CUT_OFF:
        return None
    group = _group_by_scale(values, held)[0].reshape(values.shape)
    inside = ~(at_top | at_bottom) & (real != 0) & np.isin(group, group[beyond])
    if np.mean(np.abs(values - real)[inside] > step[inside]) > _MOST_INSIDE if inside.any() else False:
        return None  # what was not cut off is another number as well
    worst = np.unravel_index(int(np.argmax(np.where(beyond, np.abs(values - real), 0))), values.shape)
    return "weight_clipped", {
        "weight": weight, "count": int(beyond.sum()), "largest": float(values[worst]), "limit": float(real[worst]),
    }  # fmt: skip


_MOST_INSIDE = 0.5
"""Of the numbers between a type's ends, the share that is off by more than a step where its ends are not the reason."""


def _find_ends(integers: Array) -> tuple[Array, Array]:
    """Return which of a constant's integers are its largest, and which its least, where these are the type's."""
    whole = integers.astype(np.float64)
    low, high = ends_of(integers.dtype)
    top, bottom = float(whole.max()), float(whole.min())
    return (whole == top) & (top >= high - 1), (whole == bottom) & (bottom <= low + 1)


def _measure_steps(stored: Array) -> Array:
    """Return how far the next number of the type is from each that a file holds: 1 of integers, and of a float more the
    larger it is; of a table's numbers, which float32 stands for, as far as the next that is used."""
    held, whole = number_type(stored.dtype.name), np.abs(stored.astype(np.float64))
    if stored.dtype == np.float32 and (levels := np.unique(stored)).size > 1:
        gaps = np.diff(levels, prepend=-np.inf, append=np.inf)
        widest = np.maximum(*(np.where(np.isfinite(one), one, 0) for one in (gaps[1:], gaps[:-1])))
        return np.asarray(widest[np.searchsorted(levels, stored)], np.float64)
    if held is None or not held.bits:
        return np.ones(whole.shape)
    place = np.floor(np.log2(np.maximum(whole, held.smallest_normal)))
    return np.asarray(2.0 ** (place + 1 - held.bits))


def _group_by_scale(values: Array, held: Stored) -> tuple[Array, Array]:
    """Return which scale each element has, with its zero point, and these scales."""
    scale = np.asarray(held.used, np.float64)
    if scale.size == values.size:  # of blocks, one for each element
        zero = np.asarray(held.zero_point)
        pairs = scale + 1j * zero.astype(np.float64) if zero.size == values.size else scale
        each, group = np.unique(pairs.reshape(-1), return_inverse=True)
        return group.reshape(-1), np.abs(each.real)
    places = np.broadcast_to(np.arange(scale.size).reshape(scale.shape), values.shape)
    return places.reshape(-1), np.abs(scale).reshape(-1)


def holds_another_scale(subject: Subject, name: str) -> bool:
    """Return whether the files prove that a weight is lost: the target's holds it as integers beside a scale, of a
    channel or a block, that they were not made with. No number of bits explains that, whatever comes of it."""
    room = subject.told_by_files.setdefault("scale", {})
    if name not in room:  # asked once: unpacking takes as long as reading the file
        stored = list_stored_constants(subject, name) if subject.quantised_file else ()
        room[name] = any(_has_another_scale(values, held) for _, values, held in stored)
    return bool(room[name])


def _has_another_scale(values: Array, held: Stored) -> bool:
    rows = max(1, _PIECE * len(values) // max(1, values.size)) if values.ndim else 0
    parts = (held.integers, held.scale, held.zero_point)
    for first in range(0, len(values) if rows and held.integers.dtype != np.int32 else 0, rows):
        one, where = values[first : first + rows], slice(first, first + rows)
        # what has one number for all along this axis broadcasts as it is
        integers, scale, zero = (
            np.asarray(part)[where] if np.shape(part)[:1] == values.shape[:1] and np.ndim(part) == values.ndim
            else np.asarray(part) for part in parts
        )  # fmt: skip
        piece = Stored(integers=integers, scale=scale, zero_point=zero)
        far = np.abs(dequantise(piece) - one) > _measure_steps(integers) * np.abs(scale.astype(np.float64))
        far &= ~np.logical_or(*_find_ends(integers))  # those were cut off, perhaps
        if far.any() and (_fit_factors(one, piece, far).wrong.any() or _find_shifted(one, piece)[0].any()):
            return True
    return False


_PIECE = 1 << 20
"""Numbers of a weight that are looked at together."""

_SOME_OF_ONE_SCALE = 8
"""Numbers that have one scale, at least, of which a factor that they share is no chance."""


@dataclass(frozen=True, kw_only=True)
class _Factors:
    """What would make of a constant in integers the baseline's.

    real: what the integers stand for. group: which scale each element has. factor: by which it has to be multiplied,
    of each scale; off: its squared error; wrong: whether the factor takes most of that away."""

    real: Array
    group: Array
    factor: Array
    off: Array
    wrong: Array


def _fit_factors(values: Array, held: Stored, far: Array | None = None) -> _Factors:
    """Return by which factor each scale is off. far: the elements that are further away than a step, and not cut off,
    of which each scale that is wrong has to have one, and more than a few elements beside."""
    real, (group, _) = dequantise(held), _group_by_scale(values, held)
    mine, there = values.reshape(-1), real.reshape(-1)

    def summed(each: Array) -> Array:
        return np.bincount(group, each)

    squares = summed(there * there)
    factor = np.divide(summed(mine * there), squares, out=np.ones_like(squares), where=squares > 0)
    off, rest = summed((mine - there) ** 2), summed((mine - factor[group] * there) ** 2)
    wrong = (np.abs(factor - 1) > _ANOTHER_SCALE) & (rest < _ALIKE**2 * off) & (factor > 0)
    if far is not None:
        wrong &= (summed(far.reshape(-1)) > 0) & (summed(there != 0) >= _SOME_OF_ONE_SCALE)
    return _Factors(real=real, group=group, factor=factor, off=off, wrong=wrong)


def _find_other_scale(case: Case, weight: str, values: Array, held: Stored) -> Told | None:
    """Return a scale, of a channel or a block, that is not the one that the integers were made with. Another factor
    must take away most of what its numbers are off by, and these make most of the operator's error."""
    if held.integers.dtype == np.int32:  # a bias, whose scale is that of what it is added to
        return None
    found = _fit_factors(values, held)
    group, factor, wrong = found.group, found.factor, found.wrong
    if not wrong.any():
        return None
    right = np.where(wrong[group], factor[group] * found.real.reshape(-1), found.real.reshape(-1))
    left = measure_left_with(case, {weight: found.real}, {weight: right.reshape(values.shape)})
    if left is None or left > LEFT:
        return None
    worst = int(np.argmax(np.where(wrong, found.off, 0)))
    places = np.flatnonzero(group == worst)
    first, last = (np.unravel_index(int(places[one]), values.shape) for one in (0, -1))
    return "scale", {
        "weight": weight, "ratio": float(1 / factor[worst]), "count": int(wrong[group].sum()), "elements": values.size,
        "first": [int(one) for one in first], "last": [int(one) for one in last], "left": left,
    }  # fmt: skip


def _find_far(values: Array, held: Stored) -> Array:
    """Return which numbers of a constant are other ones than the baseline's, and not these rounded."""
    real = dequantise(held)
    scale = np.asarray(held.used).astype(np.float64)
    step = _measure_steps(held.integers) * np.abs(np.broadcast_to(scale, values.shape))  # 4 bits have them below 0, too
    return np.asarray(np.abs(real - values) > np.maximum(_ANOTHER * step, 0.01 * np.abs(values)))


def _find_large_steps(case: Case, weight: str, values: Array, held: Stored) -> Told | None:
    """Return a scale far above what the numbers that have it need, of a channel or a block say, where a fitting one
    takes most of the error away."""
    kind = held.integers.dtype
    steps, floats = steps_of(kind.name), _list_floats(kind)
    group, scales = _group_by_scale(values, held)
    flat = values.reshape(-1)
    low, high = np.zeros(scales.size), np.zeros(scales.size)
    np.minimum.at(low, group, flat)
    np.maximum.at(high, group, flat)
    fits = np.zeros_like(scales)
    if steps:
        needed = find_least_scales(values, kind, np.broadcast_to(held.zero_point, values.shape))
        np.maximum.at(fits, group, needed.reshape(-1))
    if floats.size:  # its steps are as fine as its numbers are small, down to the least of them
        fits, steps = np.maximum(-low, high) / floats.max(), floats.size - 1
    fits = round_up(fits)
    coarse = (fits > 0) & (UNUSED * fits <= scales)
    if not coarse.any():
        return None
    real, step = dequantise(held), np.where(coarse, fits, 1.0)[group]
    fitting = (flat / step).astype(kind).astype(np.float64) if floats.size else np.rint(flat / step)
    fine = np.where(coarse[group], fitting * step, real.reshape(-1)).reshape(values.shape)
    left = measure_left_with(case, {weight: real}, {weight: fine})
    if left is None or left > LEFT:
        return None
    worst = int(np.argmax(np.where(coarse, scales / np.where(fits > 0, fits, 1.0), 0)))
    ends = np.array([low[worst], high[worst]]) / scales[worst]
    used = round(ends[1] - ends[0])
    if floats.size:
        used = int(np.diff(np.searchsorted(floats, ends.astype(kind).astype(np.float64)))[0])
    return "coarse_scale", {
        "from": weight, "type": kind.name, "scale": float(scales[worst]), "fits": float(fits[worst]), "steps": steps,
        "used": used,
        "largest": float(max(-low[worst], high[worst])), "left": left,
    }  # fmt: skip


def _list_floats(dtype: Any) -> Array:
    """Return the numbers of a float type of 8 bits, the least first; none of another type."""
    if (held := number_type(dtype.name)) is None or not held.bits or dtype.itemsize > 1:
        return np.zeros(0)
    every = np.arange(256, dtype=np.uint8).view(dtype).astype(np.float64)
    return np.unique(every[np.isfinite(every)])


def _find_other_integers(case: Case, weight: str, values: Array, held: Stored) -> Told | None:
    """Return a zero point that is not the one that the integers were made with, or other numbers altogether, where
    right ones in their place take most of the error away."""
    step = np.broadcast_to(np.abs(np.asarray(held.used, np.float64)), values.shape)  # 4 bits have them below 0, too
    real, far = dequantise(held), _find_far(values, held)
    shifted, steps = _find_shifted(values, held) if held.integers.dtype != np.int32 else (far & False, step)
    left = measure_left_with(case, {weight: real}, {weight: np.where(shifted, real - steps * step, real)})
    if shifted.any() and (left is None or left <= LEFT):
        off = {"steps": float(np.median(steps[shifted])), "shift": float(np.median((real - values)[shifted]))}
        first, last = (np.argwhere(shifted)[place].tolist() for place in (0, -1))
        some = {"count": int(shifted.sum()), "elements": values.size, "first": first, "last": last}
        put_back = {} if left is None else {"left": left}
        return "zero_point", {"weight": weight, **off, **({} if shifted.all() else some), **put_back}
    left = measure_left_of_constant(case, weight, np.where(far, values, real), held) if far.any() else 1.0
    if left is not None and left > LEFT:
        return None
    worst = np.unravel_index(int(np.argmax(np.where(far, np.abs(real - values), 0))), values.shape)
    return "files_differ", {
        "what": say("a_constant"), "name": weight, "count": int(far.sum()), "elements": values.size,
        "at": [int(i) for i in worst], "base": float(values[worst]), "target": float(real[worst]),
        **({} if left is None else {"left": left}),
    }  # fmt: skip


def _find_shifted(values: Array, held: Stored) -> tuple[Array, Array]:
    """Return which numbers have a zero point, of all, a channel or a block, that is not the one that the integers were
    made with: all that have it are off by about as many steps. And by how many, each."""
    scale = np.broadcast_to(np.abs(np.asarray(held.used, np.float64)), values.shape)
    off = ((dequantise(held) - values) / np.where(scale > 0, scale, 1)).reshape(-1)
    group = _group_by_scale(values, held)[0]
    count = np.maximum(np.bincount(group), 1)
    middle = np.bincount(group, off) / count
    apart = np.sqrt(np.bincount(group, np.square(off - middle[group])) / count)
    wrong = (np.abs(middle) >= _STEPS) & (apart <= _ALIKE * np.abs(middle)) & (count >= _SOME_OF_ONE_SCALE)
    return wrong[group].reshape(values.shape), middle[group].reshape(values.shape)


# One channel that takes the quantised range of several tensors, as it goes through a residual stream: one cause, and so
# one culprit, where it is lost most, with all the others kept with it.

_CAUSE = "outlier_channel"

_Place = tuple[int, int]
"""Of a channel: its number, and its axis counted from the last one."""


def as_one_outlier(
    subject: Subject, alone: Alone, culprits: tuple[Culprit, ...], tried: Carried, sinks: Sequence[Sink],
    plain: Mapping[str, Any], work: Work,
) -> tuple[Culprit, ...]:  # fmt: skip
    """Return the culprits, worst first, with one in place of all those that one outlier channel makes.

    It is the worst of them, has the others in its evidence, and the share of all of them, which takes a run of the
    baseline for each such group. Raises work.Ended.
    """
    found: list[Culprit] = []
    waiting = list(culprits)
    while waiting:
        first = waiting.pop(0)
        place = _find_outlier_place(alone, first)
        same = [
            one for one in waiting
            if place is not None and _find_outlier_place(alone, one) == place and _are_in_line(subject, first, one)
            and one.at == first.at
        ]  # fmt: skip
        proven = any(one.cause == _CAUSE for one in (first, *same))
        same = same if proven else []
        waiting = [one for one in waiting if one not in same]
        if same:
            first = _name_outlier(subject, alone, first)
            work.go_on()
            first = _merge_group(
                subject, first, same, _measure_group_share(subject, alone, [first, *same], tried, sinks, plain)
            )
        found.append(first)
    return tuple(found)


def _find_outlier_place(alone: Alone, culprit: Culprit) -> _Place | None:
    """Where the outlier of a culprit is, or of one of ordinary rounding that has one in its result; None of another
    cause, and of one that lies in a constant."""
    if culprit.cause != _CAUSE and not (CAUSES[culprit.cause].unproven or CAUSES[culprit.cause].enlarged):
        return None
    values = alone.exact_of(culprit.evidence.get("from") or culprit.name)
    found = find_outlier(values) if values is not None else None
    return None if found is None or values is None else (found["channel"], values.ndim - found["axis"])


def _name_outlier(subject: Subject, alone: Alone, culprit: Culprit) -> Culprit:
    """Return the first of a group, some of which lose the range to the outlier, with the one that its own result
    has."""
    values = alone.exact_of(culprit.name)
    found = find_outlier(values) if culprit.cause != _CAUSE and values is not None else None
    if found is None or values is None:
        return culprit
    evidence = {"from": "", "who": describe_outlier(subject, culprit.name, values, found), **found}
    return dataclasses.replace(culprit, cause=_CAUSE, evidence=evidence)


def _are_in_line(subject: Subject, one: Culprit, other: Culprit) -> bool:
    return other.name in subject.descendants(one.name) or one.name in subject.descendants(other.name)


def _measure_group_share(
    subject: Subject, alone: Alone, group: Sequence[Culprit], tried: Carried, sinks: Sequence[Sink],
    plain: Mapping[str, Any],
) -> float | None:  # fmt: skip
    effects = carry_errors_together(subject, alone, [one.name for one in group], list(tried.effects), sinks, plain)
    return next((effect.share for effect in effects if effect.at == group[0].at), None)


def _merge_group(subject: Subject, first: Culprit, same: Sequence[Culprit], share: float | None) -> Culprit:
    where = {one.evidence.get("from") or one.name for one in same} - {first.evidence.get("from") or first.name}
    kept = dict.fromkeys(first.keep) | {name: None for one in same for name in one.keep if name != one.amplifier}
    others = ", ".join(f"`{name}`" for name in sorted(where, key=lambda name: subject.order.get(name, 0)))
    evidence = {**first.evidence, **({"too": others} if others else {})}  # what only reads that tensor has none itself
    return dataclasses.replace(first, evidence=evidence, share=share, keep=tuple(kept))
