"""The pass over a pair of tensors in blocked numpy: any types and layouts; a faster pass must give the same results."""

from __future__ import annotations

import numpy as np

from ..records import Tolerance
from . import histogram
from .blocks import BLOCK, FlatReader
from .kinds import Array
from .totals import Pairs, Scales, Side, Task, Totals
from .widen import Pair, widen, widen_pair

__all__ = ["REL_EPSILON", "measure", "measure_side"]

REL_EPSILON = 1e-7
FP16_MAX, FP16_TINY = 65504.0, 2.0**-14


def measure(task: Task) -> Totals:
    """Totals of a pair of tensors."""
    totals = Totals(scales=task.scales)
    with np.errstate(all="ignore"):
        for first in range(0, task.size, BLOCK):
            totals.add(_block(task, first, min(first + BLOCK, task.size)))
    return totals


def measure_side(read: FlatReader, size: int, scale: int = 0) -> Totals:
    """Totals of one tensor, as the baseline."""
    totals = Totals(scales=Scales(base=scale))
    with np.errstate(all="ignore"):
        for first in range(0, size, BLOCK):
            values = widen(read(first, min(first + BLOCK, size)))
            totals.base.add(_side(values, scale))
            _count_fp16(totals, values)
    return totals


def _block(task: Task, first: int, last: int) -> Totals:
    base, target = task.base(first, last), task.target(first, last)
    totals = Totals(identical=_same_bytes(base, target), scales=task.scales)
    if totals.identical:
        values = widen(base)
        pair = Pair(values, values, np.where(np.isnan(values), np.nan, 0.0))
    else:
        pair = widen_pair(base, target)
    totals.base = _side(pair.base, task.scales.base)
    totals.target = totals.base if totals.identical else _side(pair.target, task.scales.target)
    _count_fp16(totals, pair.base)
    totals.pairs = _pairs(pair, first, task)
    return totals


def _same_bytes(base: Array, target: Array) -> bool:
    if base.dtype != target.dtype:
        return False
    unsigned = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}.get(base.dtype.itemsize, np.uint8)
    return bool(np.array_equal(base.view(unsigned), target.view(unsigned)))


def _side(values: Array, scale: int) -> Side:
    nan, inf = int(np.count_nonzero(np.isnan(values))), int(np.count_nonzero(np.isinf(values)))
    if nan or inf:
        values = values[np.isfinite(values)]
    if not values.size:
        return Side(nan=nan, inf=inf)
    scaled = _scaled(values, scale)
    return Side(
        nan=nan,
        inf=inf,
        min=float(values.min()),
        max=float(values.max()),
        sum=float(scaled.sum()),
        squares=float(np.square(scaled).sum()),
    )


def _scaled(values: Array, scale: int) -> Array:
    return np.ldexp(values, -scale) if scale else values


def _count_fp16(totals: Totals, values: Array) -> None:
    magnitude = np.abs(values)
    totals.fp16_overflow += int(np.count_nonzero(magnitude > FP16_MAX))
    totals.fp16_subnormal += int(np.count_nonzero((magnitude < FP16_TINY) & (magnitude > 0)))


def _pairs(pair: Pair, first: int, task: Task) -> Pairs:
    pairs, tolerance = Pairs(), task.tolerance
    finite = np.isfinite(pair.base) & np.isfinite(pair.target)
    mismatched = ~_passes(pair, tolerance)
    pairs.finite = int(np.count_nonzero(finite))
    if pairs.finite == finite.size:
        diff, magnitude, where = pair.diff, pair.magnitude, None
    else:
        special = _special_mismatch(pair, tolerance.equal_nan)
        mismatched = np.where(finite, mismatched, special)
        pairs.special = int(np.count_nonzero(special & ~finite))
        diff, magnitude, where = pair.diff[finite], pair.magnitude[finite], np.flatnonzero(finite)
    pairs.mismatched = int(np.count_nonzero(mismatched))
    if pairs.mismatched:
        pairs.first_mismatch = first + int(np.argmax(mismatched))
    if pairs.finite:
        _errors(pairs, diff, magnitude, first, where)
        _sums(pairs, pair, finite if where is not None else slice(None), task.scales)
        _required(pairs, diff, magnitude, tolerance)
    if pairs.finite < finite.size:
        _infinite_error(pairs, pair, finite, first)
    if task.keep == "errors":
        pairs.diffs = [diff.copy()]
    elif task.keep == "histogram":
        sample = histogram.sample_positions(first, first + finite.size) - first
        pairs.histogram = histogram.bucket_counts(pair.diff[sample][finite[sample]])
    return pairs


def _passes(pair: Pair, tolerance: Tolerance) -> Array:
    if tolerance.rule == "either":
        return pair.within(tolerance.atol) | pair.within(tolerance.rtol * pair.magnitude)
    return pair.within(tolerance.atol + tolerance.rtol * pair.magnitude)


def _special_mismatch(pair: Pair, equal_nan: bool) -> Array:
    mismatched: Array = ~(pair.diff == 0)
    if equal_nan:
        mismatched &= ~(np.isnan(pair.base) & np.isnan(pair.target))
    return mismatched


def _errors(pairs: Pairs, diff: Array, magnitude: Array, first: int, where: Array | None) -> None:
    relative = diff / (magnitude + REL_EPSILON)
    worst, worst_relative = int(np.argmax(diff)), int(np.argmax(relative))
    pairs.max_abs, pairs.max_rel = float(diff[worst]), float(relative[worst_relative])
    pairs.max_abs_at = first + int(worst if where is None else where[worst])
    pairs.max_rel_at = first + int(worst_relative if where is None else where[worst_relative])
    pairs.sum_rel = float(relative.sum())
    pairs.over_1pct = int(np.count_nonzero(diff > 0.01 * magnitude))


def _sums(pairs: Pairs, pair: Pair, chosen: Array | slice, scales: Scales) -> None:
    diff = _scaled(pair.diff[chosen], scales.diff)
    base, target = _scaled(pair.base[chosen], scales.base), _scaled(pair.target[chosen], scales.target)
    pairs.sum_abs = float(diff.sum())
    pairs.squares = float(np.square(diff).sum())
    pairs.base_squares = float(np.square(base).sum())
    pairs.target_squares = float(np.square(target).sum())
    product = base * target
    if pair.turn is not None:
        product = np.where(product == 0, 0.0, product * pair.turn[chosen])
    pairs.dot = float(product.sum())


def _required(pairs: Pairs, diff: Array, magnitude: Array, tolerance: Tolerance) -> None:
    atol, rtol = tolerance.atol, tolerance.rtol
    relative_part = rtol * magnitude
    beyond = diff > atol
    if tolerance.rule == "either":
        pairs.required_atol = float(np.max(diff, where=diff > relative_part, initial=0.0))
        needed, over = diff[beyond], magnitude[beyond]
    else:
        pairs.required_atol = float(np.max(diff - relative_part, where=diff > relative_part, initial=0.0))
        needed, over = diff[beyond] - atol, magnitude[beyond]
    pairs.required_rtol = float(np.max(needed / over, initial=0.0))


def _infinite_error(pairs: Pairs, pair: Pair, finite: Array, first: int) -> None:
    infinite = ~finite & np.isinf(pair.diff)
    if infinite.any():
        at = first + int(np.argmax(infinite))
        pairs.max_abs_at = min(at, pairs.max_abs_at) if np.isinf(pairs.max_abs) else at
        pairs.max_rel_at = min(at, pairs.max_rel_at) if np.isinf(pairs.max_rel) else at
        pairs.max_abs = pairs.max_rel = np.inf
