"""The error of an output's slices, each beside its own size and spread: what one number of the whole cannot show.

An output may pack what has nothing to do with each other: boxes in pixels and scores. With one scale for both, every
score becomes 0, and the whole is off by a few thousandths. So each final output is judged along every axis of at most
``MOST`` slices, too. A slice is *lost* where the target says nothing about it that a constant would not say: its error
is as large as the slice's own spread in the baseline. That alone accuses healthy models, whose smallest classes lie
below any step of the type; what is told from them, and how, stands at ``_find_lost_slices``.

What is large and varies little (pressures of 1013 that vary by 1) is lost where the type knows no number between: the
target stands on steps as wide as the slice's own spread, and what varies no more is told beside it. The step is the
target's own, as its numbers show it: a power of two, or of an output that is quantised its scale, beside which what
varies up to GAP times as much may be all that is told. So is an output as a whole, beside which there is nothing: it
has a slice of its own, along no axis.

The sums come from slices.c, or from numpy where nothing is compiled; both agree on every count and extreme, and on sums
to some 1e-6 of themselves.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ..records import Comparison, Slices
from ..safety.compiled import load as load_library
from .blocks import Array, is_numeric
from .exact_sum import ExactSum

__all__ = [
    "ENOUGH",
    "MOST",
    "SPREAD",
    "WHOLE",
    "MergedSlices",
    "SliceTotals",
    "judge_slices",
    "largest_lost_error",
    "list_lost_parts",
    "measure_again",
    "sum_slices",
    "with_slices",
]

MOST = 4096
"""Slices of an axis, at most: a longer one is a position (an anchor, a pixel), not a quantity."""

COUNT, SUM, SQUARES, ERRORS, PEAK, STEP = range(6)
WHOLE = -1
"""In place of an axis: all of an output as one slice."""
_ROWS = 1 << 16
"""Elements that numpy takes at once."""
_SHORT, _CACHED = 512, 8192
"""Elements of a row below which axes are taken together, and up to which: the sums of its columns stay in the cache."""
_SMALL = 2 * _CACHED
_AT_ONCE = 1 << 16
"""Elements up to which all axes are looked at in one call."""
_LARGEST = 1e150

SPREAD = 0.9
"""An error of this part of a slice's own standard deviation says that it is lost. A target that is constant there has
an error of at least the whole of it, whatever the constant; noise as large as the slice is a little below."""
OWN_SIZE = 0.05
"""The error is also at least this part of the slice's own RMS, or the target stands on steps: what hardly varies beside
its mean (37 +- 0.1) is below the reach of any type of 8 bits, even with a scale of its own."""
EXACT = 1e-10
"""Part of its mean square up to which a slice's variance may be the baseline's own rounding; sums in double tell it."""
SAFE = 0.5e-5
"""Largest relative error below which nothing is lost: an RMS of SPREAD needs an element beyond half the root of EXACT,
and the 1e-7 under every relative error is a tenth of SMALLEST."""
ENOUGH = 8
"""Elements from which on a slice has a spread. With fewer, it is lost where its error is as large as itself."""
GONE = 0.98
GAP = 20.0
"""Without a graph that says what was packed: what is lost is at least so many times smaller than what is not. In a
tensor of one kind sizes go down step by step, and the type's step lies somewhere between."""
APART, ALIKE = 5.0, 2.0
"""Of several quantities, each of two columns or so, those of one are within ALIKE of the next in size, and those of
another are APART; sizes of one kind have every ratio between."""
CERTAIN = 0.02
"""Of an output within [0, 1], probabilities above all: what never exceeds this says "no", and so does a 0."""
CONSTANT = 1e-5
"""Part of its mean square up to which a slice's variance is 0: sums of float32 are off by less. With OWN_SIZE, what
varies no more than that is lost where it is off by 16 times its spread. Whose steps are known is summed in double."""
SMALLEST = 1e-6
"""RMS below which nothing is called lost."""
WORST = 3
"""Slices that are shown although they are not lost."""
TOLD = 0.5
"""Part of its own spread by which some slice may be off before any is shown."""
_STEP, _FEW, _OFTEN = 16, 64, 3
"""Every so many rows, at most, may prove that nothing is lost, with some so many elements of each slice, and rows."""
_LEVELS, _ON_STEP = 256, 1e-2
"""Kinds of numbers of a tensor in 8 bits, and by which part of a difference it may miss a multiple of its scale."""
_FLOAT32 = np.dtype(np.float32)
_GOLDEN = 0.6180339887

Parts = Mapping[int, tuple[int, ...]]
"""Of an axis, the sizes of the tensors that were put together along it."""


@dataclass(frozen=True)
class SliceTotals:
    """Sums of one pair of tensors by slices. axes: axis to an array of 6 rows (count, sum of b, of b^2, of (t - b)^2,
    largest |b|, and what every t is a multiple of: see ``_find_steps``) and one column a slice. parts: of an axis, what
    was put together along it. unit: all within [0, 1]."""

    axes: Mapping[int, Array]
    parts: Parts = field(default_factory=dict)
    unit: bool = False


@dataclass(frozen=True)
class MergedSlices:
    """The same over many samples, exactly, so that no order of merging shows. axes: axis to one tuple a slice."""

    axes: Mapping[int, tuple[tuple[int, ExactSum, ExactSum, ExactSum, float, float], ...]]
    parts: Parts = field(default_factory=dict)
    unit: bool = False

    @classmethod
    def of(cls, one: SliceTotals) -> MergedSlices:
        """One sample."""
        axes = {
            axis: tuple(
                (int(count), ExactSum.of(total), ExactSum.of(squares), ExactSum.of(errors), peak, step)
                for count, total, squares, errors, peak, step in sums.T.tolist()
            )
            for axis, sums in one.axes.items()
        }
        return cls(axes, dict(one.parts), one.unit)

    def merged(self, other: MergedSlices) -> MergedSlices:
        """An axis whose length differs between samples is a position, and is left out from there on."""
        axes = {}
        for axis, mine in self.axes.items():
            theirs = other.axes.get(axis, ())
            if len(theirs) == len(mine):
                pairs = zip(mine, theirs, strict=True)
                axes[axis] = tuple(
                    (a[0] + b[0], a[1] + b[1], a[2] + b[2], a[3] + b[3], max(a[4], b[4]), min(a[5], b[5]))
                    for a, b in pairs
                )
        parts = {axis: sizes for axis, sizes in self.parts.items() if other.parts.get(axis) == sizes}
        return MergedSlices(axes, parts, self.unit and other.unit)

    @property
    def totals(self) -> SliceTotals:
        """Each sum rounded once."""
        axes = {
            axis: np.array([[float(one) for one in each] for each in slices], np.float64).T
            for axis, slices in self.axes.items()
        }
        return SliceTotals(axes, self.parts, self.unit)

    def to_plain(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "axes": {
                str(axis): [[one[0], one[1].text, one[2].text, one[3].text, *one[4:]] for one in slices]
                for axis, slices in self.axes.items()
            },
            "parts": {str(axis): list(sizes) for axis, sizes in self.parts.items()},
            "unit": self.unit,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> MergedSlices:
        """Return the inverse. Raises KeyError, TypeError or ValueError on foreign data."""
        text = ExactSum.from_text
        axes = {
            int(axis): tuple(
                (int(a), text(b), text(c), text(d), float(e), float(f)) for a, b, c, d, e, f in slices
            )
            for axis, slices in plain["axes"].items()
        }
        parts = {int(axis): tuple(map(int, sizes)) for axis, sizes in plain["parts"].items()}
        return cls(axes, parts, bool(plain["unit"]))


def sum_slices(
    base: Array, target: Array, parts: Parts | None = None, *, unit: bool | None = None
) -> SliceTotals | None:
    """Return the sums of every axis of at most MOST slices, and of all; None of what is not floats of one shape.

    parts: sizes of what was put together, by the length of the axis along which it was. unit: whether the baseline lies
    within [0, 1], where that is known.
    """
    if base.shape != target.shape or not base.size or not (_is_float(base) and _is_float(target)):
        return None
    wanted = [axis for axis, size in enumerate(base.shape) if 1 < size <= MOST]
    kind = np.float64 if 8 in (base.dtype.itemsize, target.dtype.itemsize) else np.float32
    left, right = np.ascontiguousarray(base, kind), np.ascontiguousarray(target, kind)
    if not wanted:
        sums, _ = _sum_rows_and_columns(left.reshape(1, -1), right.reshape(1, -1), True, False)
        sums = _find_steps(base, target, WHOLE, sums)
        return SliceTotals({WHOLE: sums}, {}, _are_within_unit(left, sums) if unit is None else unit)
    lead = _count_lead_axes(base.shape, wanted)
    leading, trailing = base.shape[:lead], base.shape[lead:]
    columns, below = math.prod(trailing), wanted[0] < lead
    width = columns if below else columns * _count_stacked_rows(math.prod(leading), columns)
    by_row, by_column = _sum_rows_and_columns(
        left.reshape(-1, width), right.reshape(-1, width), below, wanted[-1] >= lead
    )
    if width > columns:
        by_column = _add_up_axes(by_column.reshape(5, -1, columns), (2,))
    axes: dict[int, Array] = {}
    for axis in wanted:
        sums, shape = (by_row, leading) if axis < lead else (by_column, trailing)
        added = _add_up_axes(sums.reshape(5, *shape), (1 + (axis if axis < lead else axis - lead),))
        axes[axis] = _find_steps(base, target, axis, added)
    packed = {axis: parts[base.shape[axis]] for axis in wanted if parts and base.shape[axis] in parts}
    axes[WHOLE] = _find_steps(base, target, WHOLE, _pool_sums(axes[wanted[0]])[:STEP, None])
    return SliceTotals(axes, packed, _are_within_unit(left, axes[wanted[0]]) if unit is None else unit)


def _count_lead_axes(shape: Sequence[int], wanted: Sequence[int]) -> int:
    """Return how many axes rows are told apart by. The others are columns: many, so that a row is worth its call, and
    few enough for their sums to stay in the cache. Of a small tensor adding up columns takes longer than its rows."""
    lead = len(shape) - 1
    if math.prod(shape) <= _SMALL:
        return lead
    while lead > wanted[0] and math.prod(shape[lead:]) < _SHORT and math.prod(shape[lead - 1 :]) <= _CACHED:
        lead -= 1
    return lead


def _count_stacked_rows(rows: int, columns: int) -> int:
    """Return how many rows, which nobody asks for, are taken for one."""
    return max((many for many in range(1, _SHORT // columns + 1) if rows % many == 0), default=1)


def _add_up_axes(sums: Array, kept: tuple[int, ...]) -> Array:
    """Return the sums of 5 and some axes over all axes but the first and those kept, and the largest peak."""
    gone = tuple(axis for axis in range(1, sums.ndim) if axis not in kept)
    if not gone:
        return sums
    return np.concatenate([sums[:PEAK].sum(axis=gone), sums[PEAK:].max(axis=gone)])


def _find_steps(base: Array, target: Array, axis: int, sums: Array) -> Array:
    """Return the sums with a sixth row: the largest power of two that every number of the target's slice is a multiple
    of, in bfloat16 or float16 the type's step at the slice's size; else the scale on whose multiples it stands. 0 where
    that is not asked: of what is off by less than its own spread or by more than OWN_SIZE, and where the baseline
    stands on such steps itself. Where it is, the
    sums of b are made anew, in double, in which what varies little about a large mean has a spread."""
    many, squares = np.maximum(sums[COUNT], 1), sums[SQUARES]
    varied = np.maximum(squares - sums[SUM] ** 2 / many - CONSTANT * squares, 0)
    errors, floor = sums[ERRORS], EXACT * squares / many
    few = sums[COUNT] < ENOUGH  # of which samples make a spread, and any of them may be right by chance
    asked = few | (errors > SPREAD**2 * EXACT * squares) & (errors >= SPREAD**2 * varied)
    asked &= errors < OWN_SIZE**2 * squares
    sums = np.concatenate([sums, np.zeros((1, sums.shape[1]))])
    at = np.flatnonzero(asked & (sums[COUNT] * sums.shape[1] == base.size))
    block, scale = max(1, _ROWS * sums.shape[1] // base.size), -1.0
    for first in range(0, at.size, block):
        some = at[first : first + block]
        theirs = _take_slices(target, axis, some)
        seen = _measure_steps(theirs[:, :_STEP]) ** 2 >= floor[some]  # of float32 a few numbers say so
        if not seen.all():
            scale = _measure_scale(target) if scale < 0 else scale
            still = some[~seen]
            if scale > 0:
                mine, sums[STEP, still] = _take_slices(base, axis, still), scale
                sums[SUM, still], sums[SQUARES, still] = mine.sum(axis=1), (mine * mine).sum(axis=1)
        some, theirs = some[seen], theirs[seen]
        if some.size:
            mine, steps = _take_slices(base, axis, some), _measure_steps(theirs)
            alone = (_measure_steps(mine) < steps) | (errors[some] == 0)
            sums[STEP, some] = np.where((steps**2 >= floor[some]) & alone, steps, 0.0)
            sums[SUM, some], sums[SQUARES, some] = mine.sum(axis=1), (mine * mine).sum(axis=1)
    return sums


def _measure_scale(target: Array) -> float:
    """Return the scale of which every number is a multiple, or an offset more, of a tensor of at most _LEVELS kinds of
    them; 0 of any other."""
    kinds = np.unique(target.reshape(-1)[: _LEVELS * _STEP])  # of floats these are too many already
    kinds = np.unique(target) if kinds.size <= _LEVELS else kinds
    if not 2 <= kinds.size <= _LEVELS or not np.isfinite(kinds).all():
        return 0.0
    apart = np.diff(kinds.astype(np.float64))
    steps = apart / apart.min()
    return float(apart.min()) if (np.abs(steps - np.rint(steps)) < _ON_STEP * steps).all() else 0.0


def _take_slices(values: Array, axis: int, at: Array) -> Array:
    """Return some slices as rows of float64."""
    if axis == WHOLE:
        return values.reshape(1, -1).astype(np.float64)
    return np.moveaxis(values.take(at, axis=axis), axis, 0).reshape(at.size, -1).astype(np.float64)


def _measure_steps(values: Array) -> Array:
    """Return of each row the largest power of two that all its numbers are multiples of; 0 of zeros alone."""
    parts, powers = np.frexp(values)
    whole = np.ldexp(np.abs(parts), 53).astype(np.int64)
    steps = np.where(whole > 0, np.ldexp((whole & -whole).astype(np.float64), powers - 53), np.inf).min(axis=1)
    return np.where(np.isfinite(steps), steps, 0.0)


def _are_within_unit(values: Array, of_axis: Array) -> bool:
    return bool(of_axis[PEAK].max(initial=0.0) <= 1.0 and values.min(initial=0.0) >= 0.0)


def _is_float(array: Array) -> bool:
    if array.dtype == _FLOAT32:  # of most, at a tenth of the cost
        return True
    return is_numeric(array.dtype) and array.dtype.kind not in "biuc" and "int" not in array.dtype.name


def _sum_rows_and_columns(left: Array, right: Array, by_rows: bool, by_columns: bool) -> tuple[Array, Array]:
    """Sums of each row, (5, rows), and of each column, (5, columns); empty where not asked for."""
    rows, columns = left.shape
    by_row, by_column = np.zeros((rows if by_rows else 0, 5)), np.zeros((5, columns if by_columns else 0))
    library = _load_library()
    if library is not None:
        room = np.empty(4 * (columns + 48) if by_columns else 0, np.float32)
        call = library.pd_slices_double if left.dtype == np.float64 else library.pd_slices_float
        call(
            left.ctypes.data, right.ctypes.data, rows, columns, by_row.ctypes.data if by_rows else None,
            by_column.ctypes.data if by_columns else None, room.ctypes.data,
        )  # fmt: skip
        return np.ascontiguousarray(by_row.T), by_column
    step = max(1, _ROWS // columns)
    with np.errstate(all="ignore"):
        for first in range(0, rows, step):
            b = left[first : first + step].astype(np.float64)
            d = right[first : first + step].astype(np.float64) - b
            finite = (np.abs(b) <= _LARGEST) & (np.abs(d) <= _LARGEST)
            b, d = np.where(finite, b, 0.0), np.where(finite, d, 0.0)
            kept = (finite.astype(np.float64), b, b * b, d * d)
            if by_rows:
                by_row[first : first + step, :PEAK] = np.stack([one.sum(axis=1) for one in kept], axis=1)
                by_row[first : first + step, PEAK] = np.abs(b).max(axis=1, initial=0.0)
            if by_columns:
                by_column[:PEAK] += np.stack([one.sum(axis=0) for one in kept])
                by_column[PEAK] = np.maximum(by_column[PEAK], np.abs(b).max(axis=0, initial=0.0))
    return np.ascontiguousarray(by_row.T), by_column


@functools.lru_cache(maxsize=1)
def _load_library() -> Any:
    """None where numpy has to do."""
    if os.environ.get("PRECISION_DEBUG_KERNEL"):
        return None
    found, _ = load_library(Path(__file__).with_name("_slices.so"), ("slices.c",))
    if found is not None:
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        for call in (found.pd_slices_float, found.pd_slices_double):
            call.restype, call.argtypes = None, [pointer, pointer, integer, integer, pointer, pointer, pointer]
        for call in (found.pd_all_told_float, found.pd_all_told_double):
            call.restype = ctypes.c_int
            call.argtypes = [pointer, pointer, pointer, integer, integer, *[ctypes.c_double] * 3]
    return found


@functools.lru_cache(maxsize=256)
def _hold_shape(shape: tuple[int, ...]) -> ctypes.Array[ctypes.c_int64]:
    return (ctypes.c_int64 * len(shape))(*shape)


def _are_all_told(base: Array, target: Array) -> bool:
    """Return whether every slice of a small tensor is told, in one call: the sums of its axes one by one take longer
    than the comparison."""
    library = _load_library()
    if library is None or base.shape != target.shape or not (_is_float(base) and _is_float(target)):
        return False
    double = 8 in (base.dtype.itemsize, target.dtype.itemsize)
    kind = np.float64 if double else np.float32
    left, right = np.ascontiguousarray(base, kind), np.ascontiguousarray(target, kind)
    call = library.pd_all_told_double if double else library.pd_all_told_float
    shape = base.shape
    return bool(
        call(left.ctypes.data, right.ctypes.data, _hold_shape(shape), len(shape), MOST, TOLD**2, CONSTANT, ENOUGH)
    )


def judge_slices(totals: SliceTotals | None) -> tuple[Slices, ...]:
    """Return what is lost, along the axis that says it in the fewest slices, and then the worst of the others."""
    if totals is None:
        return ()
    if all(_is_told(sums, sums[ERRORS]) for sums in totals.axes.values()):
        return ()
    largest = max((float(sums[PEAK].max()) for sums in totals.axes.values()), default=0.0)
    each = {axis: _Told.of(sums) for axis, sums in totals.axes.items()}
    whole = each.pop(WHOLE, None)
    lost = [found for axis, told in each.items() if (found := tuple(_find_lost_slices(totals, axis, told, largest)))]
    if whole is not None and whole.stepped.any() and not totals.unit:
        lost.append((_name_slices(totals.axes[WHOLE], WHOLE, 0, 0, largest, lost=True),))
    worst: list[Slices] = []
    for axis, told in each.items():
        sums = totals.axes[axis]
        least = np.maximum(told.spread, told.error * 1e-300)  # what the error divided by stays finite
        ratio = np.divide(told.error, least, out=np.zeros_like(least), where=told.has_spread)
        at = int(ratio.argmax()) if ratio.size else 0
        if ratio.size and ratio[at] > 0:
            worst.append(_name_slices(sums, axis, at, at, largest))
    worst.sort(key=lambda one: one.error / one.spread if one.spread else math.inf, reverse=True)
    fewest = min(lost, key=lambda found: sum(one.last - one.first + 1 for one in found), default=())
    return (*fewest, *worst[:WORST])


def with_slices(found: Comparison, base: Array, target: Array, parts: Parts) -> Comparison:
    """Return the numbers with what became of the slices; where they keep totals, with those of the slices, too.

    Where no element is off by SAFE of itself no slice is, nor where the error of the whole is too small for any: then
    nothing has to be read again.
    """
    keeps = hasattr(found, "by_slice")
    if not keeps and found.max_rel is not None and found.max_rel < SAFE:
        return found
    if not keeps and not _may_be_hidden(found):
        if not parts and all(base.size < ENOUGH * size for size in base.shape if 1 < size <= MOST):
            return found  # how large slices of a few numbers are, nobody can tell
        if _are_all_told(base, target) if base.size <= _AT_ONCE else _is_told_by_few(found, base):
            return found
    low, high = found.base.min, found.base.max
    totals = sum_slices(base, target, parts, unit=None if low is None or high is None else low >= 0 and high <= 1)
    if totals is None:
        return found
    kept: dict[str, Any] = {"by_slice": totals} if keeps else {}
    return dataclasses.replace(found, slices=judge_slices(totals), **kept)


def _may_be_hidden(found: Comparison) -> bool:
    """Return whether all of a tensor varies by little more than its error, as far as its own numbers tell."""
    size, mean, error = found.base.rms, found.base.mean, found.rmse
    if size is None or mean is None or error is None or found.base.elements < ENOUGH:
        return False
    return bool(0 < error < OWN_SIZE * size and error**2 >= TOLD**2 * (size**2 - mean**2 - CONSTANT * size**2))


def _is_told_by_few(found: Comparison, base: Array) -> bool:
    """Return whether some rows of the baseline prove that no slice is off by TOLD of its own spread.

    The squares about its mean are at least those of a part of it about the part's mean, and its error is at most that
    of the whole tensor, and no element's more than the largest. The smaller the error, the fewer rows.
    """
    wanted = [axis for axis, size in enumerate(base.shape) if 1 < size <= MOST]
    if found.rmse is None or not wanted or not _is_float(base) or found.base.nan + found.base.inf + found.target.nan:
        return False
    shape, most = base.shape, max(base.shape[axis] for axis in wanted)
    if shape[-1] > MOST:  # a position: a part of each row will do
        piece = next((size for size in range(_SHORT, _FEW, -1) if shape[-1] % size == 0), shape[-1])
        shape = (*shape[:-1], shape[-1] // piece, piece)
    leading, columns = shape[:-1], shape[-1]
    error, varied = found.rmse**2, (found.base.rms or 0.0) ** 2 - (found.base.mean or 0.0) ** 2
    largest = math.inf if found.max_abs is None else found.max_abs**2
    enough = TOLD**2 * varied / (1.2 * min(most * error, largest)) if error else math.inf
    along = max((base.shape[axis] for axis in wanted if axis < base.ndim - 1), default=1)
    often = math.prod(leading) / (_OFTEN * along)
    step = int(min(_STEP, base.size // (_FEW * most), often, enough)) - 1 + _GOLDEN  # which no size has a divisor with
    if step < 1:
        return False
    kind = np.float64 if base.dtype.itemsize == 8 else np.float32
    at = (np.arange(int((math.prod(leading) - 1) / step) + 1) * step).astype(np.int64)
    rows, by_columns, found_rows, by_column = base.reshape(-1, columns), base.ndim - 1 in wanted, [], np.zeros(0)
    for first in range(0, at.size, many := max(4, _ROWS // columns)):  # a copy that stays in the cache
        some = np.ascontiguousarray(rows.take(at[first : first + many], axis=0), kind)
        by_row, added = _sum_rows_and_columns(some, some, wanted[0] < base.ndim - 1 or not by_columns, by_columns)
        found_rows.append(by_row)
        by_column = added + by_column if first else added
    by_row = np.concatenate(found_rows, axis=1)
    for axis in wanted:
        if axis == base.ndim - 1:
            sums = by_column
        else:
            of = at // math.prod(leading[axis + 1 :]) % leading[axis]
            sums = np.stack([np.bincount(of, each, leading[axis]) for each in by_row[:ERRORS]])
        if (sums[COUNT] < ENOUGH).any() or not _is_told(sums, base.size * min(error, largest / base.shape[axis])):
            return False
    return True


def _is_told(sums: Array, error: float | Array) -> bool:
    """Return whether each slice's squares about its own mean, of a few elements the squares themselves, are so large
    that an error could not hide it. error: of each slice, or of all of the tensor."""
    many, squares = sums[COUNT], sums[SQUARES]
    about = np.where(many >= ENOUGH, squares - sums[SUM] ** 2 / np.maximum(many, 1), squares)
    return bool((many > 0).all() and (TOLD**2 * about > np.maximum(error, CONSTANT * squares)).all())


def list_lost_parts(lost: Sequence[Slices]) -> Parts:
    """Return what was lost before as parts of its axis, so that it is judged as such again: on steps each slice, which
    is told or lost beside every other."""
    if not lost or lost[0].axis == WHOLE:
        return {}
    if any(one.step for one in lost):
        return {lost[0].of: (1,) * lost[0].of}
    edges = sorted({0, lost[0].of, *(one.first for one in lost), *(one.last + 1 for one in lost)})
    return {lost[0].of: tuple(int(stop - start) for start, stop in itertools.pairwise(edges))}


def largest_lost_error(found: Comparison) -> float:
    """Return the largest relative error among the slices that are lost, of those on steps beside their spread; 0 where
    none is."""
    sizes = ((one, one.spread if one.step else one.size) for one in found.lost)
    return max((float(one.error / size) for one, size in sizes if size), default=0.0)


def measure_again(lost: Sequence[Slices], base: Array, target: Array) -> float:
    """Return the largest relative error of slices that were lost in another run, lost or not in this one: beside their
    own size here, of those on steps beside their spread. 0 where no such slices are there."""
    largest = 0.0
    for one in lost:
        there = one.axis == WHOLE or (one.axis < base.ndim and base.shape[one.axis] == one.of)
        if not there or base.shape != target.shape:
            continue
        at = np.arange(one.first, one.last + 1)
        mine, theirs = (_take_slices(side, one.axis, at) for side in (base, target))
        with np.errstate(all="ignore"):
            finite = np.isfinite(mine) & np.isfinite(theirs)
            mine, apart = mine[finite], (theirs - mine)[finite]
        size = (mine.std() if one.step else math.sqrt(np.square(mine).mean())) if mine.size else 0.0
        largest = max(largest, math.sqrt(np.square(apart).mean()) / size if size else 0.0)
    return float(largest)


@dataclass(frozen=True)
class _Told:
    """Of each slice, from its sums: RMS of its error, its own RMS, spread and largest |b|, and whether it is lost, by
    its error alone or for standing on steps as wide as its spread."""

    error: Array
    size: Array
    spread: Array
    peak: Array
    has_spread: Array
    lost: Array
    stepped: Array
    step: Array

    @classmethod
    def of(cls, sums: Array) -> _Told:
        many = np.maximum(sums[COUNT], 1)
        error, square, mean = np.sqrt(sums[ERRORS] / many), sums[SQUARES] / many, sums[SUM] / many
        least = np.where(sums[STEP] > 0, EXACT, CONSTANT)
        variance = np.where(square - mean**2 > least * square, square - mean**2, 0.0)
        size, spread = np.sqrt(square), np.sqrt(variance)
        has_spread = (sums[COUNT] >= ENOUGH) & (spread > 0)
        hidden = has_spread & (error >= SPREAD * spread) & (size >= SMALLEST)
        few = (sums[COUNT] < ENOUGH) & (sums[COUNT] > 0) & (error >= GONE * size) & (size >= SMALLEST)
        lost = (hidden & (error >= OWN_SIZE * size)) | few
        stepped = hidden & ~lost & (sums[STEP] >= spread)
        return cls(error, size, spread, sums[PEAK], has_spread, lost, stepped, sums[STEP])


def _find_lost_slices(totals: SliceTotals, axis: int, told: _Told, largest: float) -> Iterator[Slices]:
    """Where the target says nothing any more. told: of each slice of the axis.

    Of what was put together along the axis (or is the few columns of a layer), each part as a whole: within one, the
    smallest class may be 0 throughout, as in any tensor that has one scale by itself. Where nothing says what was
    packed, the slices by their sizes: all that are lost, and all that are as small, beside others that are told and as
    much larger as ``_are_apart`` asks.
    """
    sums = totals.axes[axis]
    least = CERTAIN if totals.unit else 0.0
    sizes = totals.parts.get(axis, ())
    if len(sizes) > 1 and sum(sizes) == sums.shape[1]:
        ends = np.cumsum(sizes)
        whole = np.stack([_pool_sums(sums[:, end - size : end]) for size, end in zip(sizes, ends, strict=True)], axis=1)
        of_parts = _Told.of(whole)
        gone = of_parts.lost & (of_parts.peak > least)
        if max(sizes) == 1:  # columns of one layer, say, whose sizes are told by their numbers
            gone &= of_parts.has_spread & (of_parts.peak * GAP < largest)
        if gone.any() and not gone.all():
            for first, last in _runs(gone):
                yield _name_slices(sums, axis, int(ends[first] - sizes[first]), int(ends[last]) - 1, largest, lost=True)
            return
        for one in np.flatnonzero(_find_stepped(totals, of_parts, APART)):  # each varies about a mean of its own
            yield _name_slices(sums, axis, int(ends[one] - sizes[one]), int(ends[one]) - 1, largest, lost=True)
    else:
        for one in np.flatnonzero(_find_stepped(totals, told, GAP)):
            yield _name_slices(sums, axis, int(one), int(one), largest, lost=True)
    gone = told.lost & told.has_spread & (told.peak > least)  # one number that is nearly 0 by chance is no size
    if not gone.any() or gone.all():
        return
    alive = ~told.lost & (told.peak > APART * told.peak[gone].max())
    if alive.any() and (gone | alive | (told.peak <= SMALLEST)).all() and _are_apart(told.peak, alive):
        for first, last in _runs(gone):
            yield _name_slices(sums, axis, first, last, largest, lost=True)


def _find_stepped(totals: SliceTotals, told: _Told, apart: float) -> Array:
    """Return which slices, or parts, are lost for standing on steps: what varies about as much as something that is
    told beside it, and whose mean is so many times larger beside that, so that nobody has to ask where along a ramp it
    stands. Whatever lies within [0, 1] is told to hundredths."""
    gone, alive = told.stepped, told.has_spread & (told.error < TOLD * told.spread)
    if totals.unit or not gone.any() or not alive.any():
        return np.zeros_like(gone)
    offset = told.size[alive] / told.spread[alive]
    wide = np.where(np.frexp(told.step)[0] == 0.5, APART, GAP)  # one scale has no finer steps for what is smaller
    gone = gone & (wide * told.spread >= told.spread[alive].min())
    far = told.size >= apart * offset.max() * told.spread
    return gone if (far | ~gone).all() else np.zeros_like(gone)


def _are_apart(peaks: Array, alive: Array) -> bool:
    """Return whether the sizes fall by GAP once, and nowhere else as much (along a ramp they do so again and again), or
    stand on levels, two columns or more on each, as metres, angles and speeds of one layer do."""
    falls = np.diff(np.sort(np.log(peaks[peaks > SMALLEST])))
    step = math.log(peaks[alive].min()) - math.log(peaks[~alive].max())
    levels = falls >= math.log(APART)
    if (falls[~levels] <= math.log(ALIKE)).all() and 2 * (levels.sum() + 1) <= falls.size + 1:
        return True
    largest = np.sort(falls)[::-1]
    return bool(step >= max(math.log(GAP), largest[0] - 1e-12) and (largest.size < 2 or largest[1] <= step / 2))


def _pool_sums(sums: Array) -> Array:
    return np.append(sums[:PEAK].sum(axis=1), [sums[PEAK].max(), sums[STEP].min()])


def _runs(marked: Array) -> Iterator[tuple[int, int]]:
    """First and last of each stretch of what is marked."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], marked.astype(np.int8), [0]])))
    yield from ((int(first), int(stop) - 1) for first, stop in edges.reshape(-1, 2))


def _name_slices(sums: Array, axis: int, first: int, last: int, largest: float, *, lost: bool = False) -> Slices:
    some = sums[:, first] if first == last else _pool_sums(sums[:, first : last + 1])
    count, total, squares, errors, peak, step = some.tolist()
    square, mean = squares / max(count, 1), total / max(count, 1)
    variance, error = square - mean**2, math.sqrt(errors / max(count, 1))
    spread = math.sqrt(variance) if variance > (EXACT if step else CONSTANT) * square else 0.0
    size = math.sqrt(square)
    return Slices(
        axis=axis, first=first, last=last, of=sums.shape[1], error=error, size=size, spread=spread, peak=peak,
        largest=largest, lost=lost, step=step if lost and error < OWN_SIZE * size else 0.0,
    )  # fmt: skip
