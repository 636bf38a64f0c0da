"""Scales that a target's file has for tensors: one far larger than the values need, and what a scale can tell."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..protocols import find_file_scales
from ..records import Grid
from .integer_grids import ends_of
from .operator_facts import largest_of_row
from .operators import TURNS
from .subject import Subject
from .undo import LEFT, Case, measure_left_of, run_with
from .units import largest_of, steps_of

__all__ = [
    "UNUSED", "find_clipping_scale", "find_coarse_scale", "find_fed", "find_least_scales", "find_other_range",
    "find_own_scale", "find_probability_steps", "list_scales_around", "measure_left_with", "round_up",
]  # fmt: skip

Array = np.ndarray[Any, Any]
Evidence = dict[str, Any]

UNUSED = 4.0
"""Times that a scale is larger than the values need from which on two bits of the type are given away."""


def find_coarse_scale(case: Case) -> Evidence:
    """That the target's file quantises what an operator reads, or its result, with a scale far above what its values
    need, where a fitting one takes most of the error away, or fitting ones of all such tensors do; {} where there is
    none such."""
    found: dict[str, tuple[Evidence, Array, Array]] = {}
    for source, scale, zero, _ in list_scales_around(case.subject, case.name):
        values = _read_exact_values(case, source)
        if source not in found and values is not None and (told := _fit_scale(values, scale, zero)) is not None:
            found[source] = {"from": source, **told[0]}, *told[1:]
    left: float | None
    for source, (evidence, coarse, fine) in found.items():
        left = _measure_left_of_tensor(case, source, coarse, fine)
        if left is not None and left <= LEFT:
            return {**evidence, "left": left}
    read = {source: told for source, told in found.items() if source in case.subject.row_of and source != case.name}
    if not read or len(found) < 2:
        return {}
    left = measure_left_with(
        case, {name: told[1] for name, told in read.items()}, {name: told[2] for name, told in read.items()},
        found[case.name][0] if case.name in found else None,
    )  # fmt: skip
    furthest = max((told[0] for told in found.values()), key=lambda told: float(told["scale"]) / float(told["fits"]))
    return {**furthest, "left": left} if left is not None and left <= LEFT else {}


def find_other_range(case: Case) -> tuple[str, Evidence] | None:
    """Return that the target's file quantises what an operator reads on a range that its values do not have, or its
    channels, or its result's, where fitting ranges take most of the error away; the same ranges in another order of the
    channels, where these do so. None where there is none such."""
    for source, scale, zero, axis in list_scales_around(case.subject, case.name):
        values = _read_exact_values(case, source)
        grid = None if values is None else _Channels.of(values, scale, zero, axis)
        if values is None or grid is None or (source == case.name and grid.scale.size == 1):
            continue  # a result's own scale is told by where the result ends
        bad = (grid.least < grid.low - grid.scale) | (grid.largest > grid.high + grid.scale)
        bad |= (grid.scale.size > 1) & (grid.fits > 0) & (UNUSED * grid.fits <= grid.scale)
        held = grid.put(values)
        rest = tuple(one for one in range(values.ndim) if one != grid.axis) if bad.size > 1 else None
        off = np.where(bad, np.square(held - values).sum(rest), 0.0).reshape(-1)
        bad &= off > _BESIDE_THE_WORST * off.max()
        if not bad.any():
            continue
        fitting = grid.with_others(np.where(bad, grid.fits, grid.scale), np.where(bad, grid.find_zero(), grid.zero))
        left = _measure_left_of_tensor(case, source, held, fitting.put(values))
        if left is None or left > LEFT:
            continue
        told: Evidence = {"from": source, "left": left}
        worst = int(np.argmax(off))
        if bad.size > 1:
            told |= {"axis": grid.axis, "channel": worst, "count": int(bad.sum()), "channels": bad.size}
            order = grid.find_order()
            moved = None if order is None else grid.with_others(grid.scale[order], grid.zero[order])
            again = None if moved is None else _measure_left_of_tensor(case, source, held, moved.put(values))
            if order is not None and again is not None and again <= LEFT:
                told |= {"order": [int(one) for one in order], "left": again}
        told |= {key: float(getattr(grid, key)[worst]) for key in ("low", "high", "least", "largest")}
        return "other_range", told
    return None


@dataclass(frozen=True, kw_only=True)
class _Channels:
    """The grid of a tensor's quantiser, and what its values take: one number for all, or one for each channel.

    codes: the least and the largest. axis: of the channels. low, high: the grid's ends. least, largest: of the values,
    0 included. fits: the scale that these need."""

    scale: Array
    zero: Array
    codes: tuple[int, int]
    axis: int
    least: Array
    largest: Array

    @classmethod
    def of(cls, values: Array, scale: Array, zero: Array, axis: int) -> _Channels | None:
        """Return it; None where the scales are not of channels, or no numbers."""
        if scale.size > 1 and scale.ndim > 1:
            long = [place for place, size in enumerate(scale.shape) if size > 1]
            axis = values.ndim - scale.ndim + long[0] if len(long) == 1 else values.ndim
        axis = axis + values.ndim if axis < 0 else axis
        known = values.size and steps_of(zero.dtype.name) and zero.size in (1, scale.size) and (scale > 0).all()
        if not known or (scale.size > 1 and not (0 <= axis < values.ndim and values.shape[axis] == scale.size)):
            return None
        rest = tuple(one for one in range(values.ndim) if one != axis) if scale.size > 1 else None
        ends = np.iinfo(zero.dtype)
        return cls(
            scale=scale.reshape(-1).astype(np.float64), codes=(int(ends.min), int(ends.max)), axis=axis,
            zero=np.broadcast_to(zero.reshape(-1).astype(np.float64), scale.size),
            least=np.minimum(0.0, values.min(rest)).reshape(-1), largest=np.maximum(0.0, values.max(rest)).reshape(-1),
        )  # fmt: skip

    @property
    def low(self) -> Array:
        return np.asarray((self.codes[0] - self.zero) * self.scale)

    @property
    def high(self) -> Array:
        return np.asarray((self.codes[1] - self.zero) * self.scale)

    @property
    def fits(self) -> Array:
        return np.asarray((self.largest - self.least) / (self.codes[1] - self.codes[0]))

    def find_zero(self) -> Array:
        """Return the zero points beside the scales that the values need."""
        return np.rint(-self.least / np.where(self.fits > 0, self.fits, 1)) + self.codes[0]

    def with_others(self, scale: Array, zero: Array) -> _Channels:
        return dataclasses.replace(self, scale=scale, zero=zero)

    def put(self, values: Array) -> Array:
        """Return values as the grid has them."""
        along = [-1 if one == self.axis and self.scale.size > 1 else 1 for one in range(values.ndim)]
        scale, zero = self.scale.reshape(along), self.zero.reshape(along)
        return np.asarray((np.clip(np.rint(values / scale) + zero, *self.codes) - zero) * scale)

    def find_order(self) -> Array | None:
        """Return which channel's range each channel's values have, where all of them have another's or their own."""
        own, theirs = self.largest - self.least, self.high - self.low
        order = np.empty(own.size, np.intp)
        order[np.argsort(own, kind="stable")] = np.argsort(theirs, kind="stable")
        apart = np.abs(theirs[order] - own) > _SAME_RANGE * own
        return None if apart.any() or (order == np.arange(own.size)).all() else order


_BESIDE_THE_WORST = 0.01
"""Part of the worst channel's squared error that one makes at least of which it is told, too."""

_SAME_RANGE = 0.25
"""Share of a range by which a calibrated one may be another and still be of the same values."""


def _measure_left_of_tensor(case: Case, source: str, held: Array, right: Array) -> float | None:
    """Return the part of an operator's error that is left with other numbers in a tensor that it reads, or that is
    inside of its region, or in its result."""
    if source == case.name:
        return float(np.linalg.norm(case.wrong - (held - right) - case.exact)) / case.own if case.own else 1.0
    left = measure_left_with(case, {source: held}, {source: right}) if source in case.subject.row_of else None
    return _measure_left_inside(case, source, held, right) if left is None else left


def find_clipping_scale(case: Case) -> Evidence:
    """That the target's file holds a result in floats of 8 bits on a scale whose end is below what it reaches, where
    having that back takes most of the error away; {} where there is none such."""
    scale = find_own_scale(case.subject, case.name)
    limit = 0.0 if scale is None else scale * largest_of(case.narrow)
    name, fed = find_fed(case)
    beyond = np.isfinite(fed) & (np.abs(fed) > limit)
    if not limit or not beyond.any():
        return {}
    left = measure_left_of(case, np.where(beyond, case.exact, case.wrong))
    largest = float(fed[np.unravel_index(np.argmax(np.where(beyond, np.abs(fed), 0)), beyond.shape)])
    model = largest_of_row(case.subject, name)  # what ran alone was given rounded inputs
    largest = math.copysign(model, largest) if model > limit else largest
    evidence = {"share": float(beyond.mean()), "largest": largest, "limit": math.copysign(limit, largest), "left": left}
    return evidence if left <= LEFT else {}


def find_fed(case: Case) -> tuple[str, Array]:
    """Return which numbers the target's grid of a result is fed: those that a QuantizeLinear reads, where the
    baseline's are on a grid of their own."""
    there, target = case.subject.row_of[case.name].target_name, case.subject.operators()[1]
    operator = target.operator(there) if target is not None else None
    for read in operator.reads if operator is not None and operator.op_type == "QuantizeLinear" else ():
        name = case.subject.partner.get(read, "")
        values = case.alone.exact_of(name) if name in case.subject.row_of else None
        if values is not None and values.shape == case.exact.shape:
            return name, values.astype(np.float64)
    return case.name, case.exact


def find_own_scale(subject: Subject, name: str) -> float | None:
    """Return the one scale on which the target's file holds a result in floats of 8 bits, whose own end then says
    nothing; None where it has none, of 1, and of integers."""
    scale, zero = find_file_scales(subject.target).get(subject.row_of[name].target_name, (np.zeros(0), np.zeros(0)))
    scaled = scale.size == 1 and zero.dtype.name.startswith("float8") and scale.reshape(-1)[0] != 1
    return float(scale.reshape(-1)[0]) if scaled else None


def _fit_scale(values: Array, scale: Array, zero: Array) -> tuple[Evidence, Array, Array] | None:
    """Return how a scale is beside the one that values need, and the values on both grids; None where it is not far
    larger."""
    steps = steps_of(zero.dtype.name)
    if not values.size or scale.size != 1 or zero.size != 1 or not steps:
        return None
    step, at = float(scale.reshape(-1)[0]), zero.reshape(-1)[0]
    ends = min(0.0, float(np.min(values))), max(0.0, float(np.max(values)))
    fits = float(round_up(find_least_scales(np.array(ends), zero.dtype, np.asarray(at)).max()))
    coarse, other = _put_on_grid(values, step, at), dict[str, str]()
    if not 0 < UNUSED * fits <= step:  # or with another zero point, where the file's leaves no room on one side
        fits = float(round_up(np.asarray((ends[1] - ends[0]) / (steps - 1))))  # less one, to round the zero point
        if not 0 < UNUSED * fits <= step:
            return None
        at = math.ceil(-ends[0] / fits) + int(ends_of(zero.dtype)[0])
        other = {"with_zero": str(at)}
    evidence = {
        "type": zero.dtype.name, "scale": step, "fits": fits, "steps": steps, "zero": float(zero.reshape(-1)[0]),
        "used": round((ends[1] - ends[0]) / step), "largest": max(-ends[0], ends[1]), **other,
    }  # fmt: skip
    return evidence, coarse, _put_on_grid(values, fits, at)


def _read_exact_values(case: Case, source: str) -> Array | None:
    """Return the numbers of a tensor before it is quantised: those of the baseline where it ran alone on these."""
    if source == case.name:
        return case.exact
    if source not in case.subject.row_of:
        return _read_inner_tensor(case, source)
    exact = None if case.alone.method == "replayed" else case.alone.exact_of(source)
    return case.given(source) if exact is None else exact


def _put_on_grid(values: Array, scale: float, zero: Any) -> Array:
    """Return numbers on a quantiser's grid, wherever it ends."""
    return np.asarray((np.rint(values.astype(np.float64) / scale + float(zero)) - float(zero)) * scale)


def find_least_scales(values: Array, dtype: Any, zero: Array) -> Array:
    """Return the least scale on which each number has its place in a type of integers around that zero point, infinite
    where there is none."""
    low, high = ends_of(dtype)
    room = np.where(values > 0, high - zero.astype(np.float64), low - zero.astype(np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(values == 0, 0.0, np.where(room == 0, np.inf, values / room))


def round_up(values: Array) -> Array:
    """Return numbers no smaller that are told as they are: what is rounded down would not hold the largest."""
    with np.errstate(divide="ignore", invalid="ignore"):
        place = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(values)))
        found = np.ceil(values * place - _BESIDE) / place
    return np.where(np.isfinite(values) & (values > 0), found, values)


_DIGITS = 4
"""As numbers are printed."""

_BESIDE = 1e-9
"""Part of the last of them that a number of float64 may be beside it."""


def measure_left_with(
    case: Case, coarse: Mapping[str, Array], fine: Mapping[str, Array], result: Evidence | None = None
) -> float | None:
    """Return the part of an operator's error that is left where it reads the one in place of the other; None: not run.

    result: the scale of its own result and the one that fits, where that is exchanged too."""
    one, other = case.again(coarse), case.again(fine)
    if one is None or other is None or one.shape != case.wrong.shape or not case.own:
        return None
    if result is not None:
        one, other = _put_on_grid(one, result["scale"], result["zero"]), _put_on_grid(other, result["fits"], 0)
    return float(np.linalg.norm(case.wrong - (one - other) - case.exact)) / case.own


def _read_inner_tensor(case: Case, source: str) -> Array | None:
    """Return a tensor that the target does not show, as the baseline has it."""
    return run_with(case, {}, source).get(source)


def _measure_left_inside(case: Case, source: str, coarse: Array, fine: Array) -> float | None:
    """Return the same of a tensor inside of a region, or of one that an operator reads which only the whole runs."""
    one, other = (run_with(case, {source: grid}).get(case.name) for grid in (coarse, fine))
    if one is None or other is None or one.shape != case.wrong.shape or not case.own:
        return None
    return float(np.linalg.norm(case.wrong - (one.astype(np.float64) - other) - case.exact)) / case.own


def list_scales_around(subject: Subject, name: str) -> Iterator[tuple[str, Array, Array, int]]:
    """Yield the baseline's name, the scale, the zero point and the channels' axis of each tensor that the target's file
    quantises between the compared tensors before one and it, that one included: by an operator for it, or by who
    computes in integers."""
    target, row = subject.operators()[1], subject.row_of[name]
    inside = {meta.name for meta in subject.region_of.get(name, ())}
    of_file = {meta.origin: subject.partner[own] for own, meta in subject.targets.items()
               if meta.origin and own in subject.partner}  # fmt: skip
    partner = {**of_file, **subject.partner}
    waiting, seen = [(row.target_name, True)], set[str]()
    while waiting and target is not None and len(seen) < _FEW_OPERATORS:
        one, is_result = waiting.pop()
        found = None if one in seen else target.operator(one)
        seen.add(one)
        if found is None:
            continue
        meta = subject.targets.get(one)
        reads = [read for read in found.reads or (meta.inputs if meta is not None else ()) if read]
        turns = found.op_type in TURNS
        for read, (scale, zero) in found.scales.items():
            before = is_result and (turns or read not in reads)
            source = name if before else partner.get(read, read if read in inside else "")
            if source and found.op_type != "DequantizeLinear":  # who made these integers has their scale
                axis = found.attributes.get("axis", 1)
                yield source, np.asarray(scale), np.asarray(zero), axis if isinstance(axis, int) else 1
        waiting += [(read, is_result and turns) for read in reads if read not in partner]


_FEW_OPERATORS = 32
"""Between two tensors that are compared."""


def find_probability_steps(subject: Subject) -> dict[str, float]:
    """Return the outputs that agree within half a step of their own scale, with that step, where the scale holds
    nothing but [0, 1]: no engine can say more of such a file's probabilities. Of other numbers, or on a wider scale,
    half a step may be all that they tell."""
    found = {}
    for row in subject.row_of.values():
        numbers = row.comparison
        if not row.is_output or numbers is None or not numbers.max_abs or numbers.lost or not numbers.shapes_match:
            continue
        meta = subject.targets.get(row.target_name)
        grid = meta.grids.get(meta.name) if meta is not None else None
        for low, high, count in (grid,) if grid is not None else _list_own_grids(subject, row.name):
            step = (high - low) / (count - 1)
            if low == 0 and high <= 1 and numbers.max_abs <= _HALF_A_STEP * step:
                found[row.name] = step
    return found


_HALF_A_STEP = 0.5001


def _list_own_grids(subject: Subject, name: str) -> Iterator[Grid]:
    """Yield the grid of a result that the target's file quantises by one scale."""
    for source, scale, zero, _ in list_scales_around(subject, name):
        if source == name and scale.size == 1 and zero.dtype.kind in "iu":
            ends, factor, origin = np.iinfo(zero.dtype), float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0])
            yield (ends.min - origin) * factor, (ends.max - origin) * factor, int(ends.max) - int(ends.min) + 1
