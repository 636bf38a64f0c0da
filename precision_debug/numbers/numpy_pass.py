"""The pass over a pair of tensors in blocked numpy: any types and layouts; a faster pass must give the same results."""

from __future__ import annotations

import numpy as np

from ..records import Tolerance
from . import histogram
from .blocks import BLOCK, Array, BlockPair, FlatReader, widen, widen_pair
from .metrics import DECLARED, FURTHER, Declared, evaluate_metric
from .number_types import NUMBER_TYPES
from .totals import PairTotals, Scales, SideTotals, Task, Totals

__all__ = ["REL_EPSILON", "compute_further_metrics", "count_negative_infinities", "measure", "measure_side"]

REL_EPSILON = 1e-7
"""Added to |baseline| under the relative error, as in Paddle-Inference-Demo's table, so that 0 against 0 is no
error."""

_FLOAT16 = NUMBER_TYPES["float16"]


def measure(task: Task) -> Totals:
    """Return totals of a pair of tensors."""
    totals = Totals(scales=task.scales)
    with np.errstate(all="ignore"):
        for first in range(0, task.size, BLOCK):
            totals.add(_measure_block(task, first, min(first + BLOCK, task.size)))
    return totals


def compute_further_metrics(task: Task) -> dict[str, float]:
    """Return the declared metrics that no compiled kernel holds, as Pairs.declared has them; 0 of equal blocks."""
    pairs = PairTotals(declared=dict.fromkeys((metric.name for metric in FURTHER), 0))
    with np.errstate(all="ignore"):
        for first in range(0, task.size, BLOCK):
            last = min(first + BLOCK, task.size)
            base, target = task.base(first, last), task.target(first, last)
            if _hold_same_bytes(base, target):
                continue
            pair, block = widen_pair(base, target), PairTotals()
            _add_declared(block, pair, np.isfinite(pair.base) & np.isfinite(pair.target), FURTHER)
            for name, value in block.declared.items():
                pairs.declared[name] += value
    return dict(pairs.declared)


def measure_side(read: FlatReader, size: int, scale: int = 0) -> Totals:
    """Return totals of one tensor, as the baseline."""
    totals = Totals(scales=Scales(base=scale))
    with np.errstate(all="ignore"):
        for first in range(0, size, BLOCK):
            values = widen(read(first, min(first + BLOCK, size)))
            totals.base.add(_measure_side(values, np.isfinite(values), scale))
            _count_fp16(totals, np.abs(values))
    return totals


def count_negative_infinities(task: Task, totals: Totals) -> None:
    """Set both sides' ``negative_inf``, which the passes leave out: a tensor that holds an infinity is read again."""
    for read, side in ((task.base, totals.base), (task.target, totals.target)):
        side.negative_inf = 0
        for first in range(0, task.size if side.inf else 0, BLOCK):
            side.negative_inf += int(np.count_nonzero(widen(read(first, min(first + BLOCK, task.size))) == -np.inf))


def _measure_block(task: Task, first: int, last: int) -> Totals:
    base, target = task.base(first, last), task.target(first, last)
    totals = Totals(identical=_hold_same_bytes(base, target), scales=task.scales)
    pair = BlockPair.of_one(widen(base)) if totals.identical else widen_pair(base, target)
    finite = np.isfinite(pair.base)
    totals.base = _measure_side(pair.base, finite, task.scales.base)
    _count_fp16(totals, pair.magnitude)
    if totals.identical:
        totals.target = totals.base
        if finite.all():
            totals.pairs = _measure_equal_pairs(totals.base, first, last, task)
            return totals
    else:
        target_finite = np.isfinite(pair.target)
        totals.target = _measure_side(pair.target, target_finite, task.scales.target)
        finite &= target_finite
    totals.pairs = _measure_pairs(pair, finite, first, task)
    return totals


def _hold_same_bytes(base: Array, target: Array) -> bool:
    if base.dtype != target.dtype:
        return False
    unsigned = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}.get(base.dtype.itemsize, np.uint8)
    return bool(np.array_equal(base.view(unsigned), target.view(unsigned)))


def _measure_side(values: Array, finite: Array, scale: int) -> SideTotals:
    nan = inf = 0
    if not finite.all():
        nan = int(np.count_nonzero(np.isnan(values)))
        inf = int(np.count_nonzero(~finite)) - nan
        values = values[finite]
    if not values.size:
        return SideTotals(nan=nan, inf=inf)
    scaled = _scale_values(values, scale)
    return SideTotals(
        nan=nan,
        inf=inf,
        min=float(values.min()),
        max=float(values.max()),
        sum=float(scaled.sum()),
        squares=float(np.square(scaled).sum()),
    )


def _scale_values(values: Array, scale: int) -> Array:
    return np.ldexp(values, -scale) if scale else values


def _count_fp16(totals: Totals, magnitude: Array) -> None:
    totals.fp16_overflow += int(np.count_nonzero(magnitude > _FLOAT16.largest))
    small = int(np.count_nonzero(magnitude < _FLOAT16.smallest_normal))
    if small:
        totals.fp16_subnormal += small - int(np.count_nonzero(magnitude == 0))


def _measure_equal_pairs(side: SideTotals, first: int, last: int, task: Task) -> PairTotals:
    """Return a block of finite elements that are the same on both sides."""
    pairs = PairTotals(finite=last - first, max_abs=0.0, max_abs_at=first, max_rel=0.0, max_rel_at=first)
    pairs.base_squares = pairs.target_squares = pairs.dot = side.squares
    if task.keep == "errors":
        pairs.diffs = [np.zeros(last - first)]
    elif task.keep == "histogram":
        pairs.histogram = histogram.count_buckets(np.zeros(histogram.choose_sample_positions(first, last).size))
    return pairs


def _measure_pairs(pair: BlockPair, finite: Array, first: int, task: Task) -> PairTotals:
    pairs, tolerance = PairTotals(), task.tolerance
    part = tolerance.rtol * pair.magnitude
    mismatched = ~_passes(pair, part, tolerance)
    pairs.finite = int(np.count_nonzero(finite))
    if pairs.finite == finite.size:
        diff, magnitude, where = pair.diff, pair.magnitude, None
    else:
        special = _find_special_mismatch(pair, tolerance.equal_nan)
        mismatched = np.where(finite, mismatched, special)
        pairs.special = int(np.count_nonzero(special & ~finite))
        diff, magnitude, part = pair.diff[finite], pair.magnitude[finite], part[finite]
        where = np.flatnonzero(finite)
    pairs.mismatched = int(np.count_nonzero(mismatched))
    if pairs.mismatched:
        pairs.first_mismatch = first + int(np.argmax(mismatched))
    if pairs.finite:
        _add_errors(pairs, diff, magnitude, first, where)
        _add_declared(pairs, pair, slice(None) if where is None else finite)
        _add_sums(pairs, pair, slice(None) if where is None else finite, task.scales)
        _add_required(pairs, diff, magnitude, part, tolerance)
    if where is not None:
        _add_infinite_error(pairs, pair, finite, first)
    if task.keep == "errors":
        pairs.diffs = [diff.copy()]
    elif task.keep == "histogram":
        sample = histogram.choose_sample_positions(first, first + finite.size) - first
        pairs.histogram = histogram.count_buckets(pair.diff[sample][finite[sample]])
    return pairs


def _passes(pair: BlockPair, part: Array, tolerance: Tolerance) -> Array:
    if tolerance.rule == "either":
        return pair.within(tolerance.atol) | pair.within(part)
    return pair.within(tolerance.atol + part)


def _find_special_mismatch(pair: BlockPair, equal_nan: bool) -> Array:
    mismatched: Array = ~(pair.diff == 0)
    if equal_nan:
        mismatched &= ~(np.isnan(pair.base) & np.isnan(pair.target))
    return mismatched


def _add_errors(pairs: PairTotals, diff: Array, magnitude: Array, first: int, where: Array | None) -> None:
    relative = diff / (magnitude + REL_EPSILON)
    worst, worst_relative = int(np.argmax(diff)), int(np.argmax(relative))
    pairs.max_abs, pairs.max_rel = float(diff[worst]), float(relative[worst_relative])
    pairs.max_abs_at = first + int(worst if where is None else where[worst])
    pairs.max_rel_at = first + int(worst_relative if where is None else where[worst_relative])
    pairs.sum_rel = float(relative.sum())


def _add_declared(
    pairs: PairTotals, pair: BlockPair, chosen: Array | slice, metrics: tuple[Declared, ...] = DECLARED
) -> None:
    for metric in metrics:
        values = evaluate_metric(
            metric, np, pair.base[chosen], pair.target[chosen], pair.diff[chosen], pair.magnitude[chosen]
        )  # fmt: skip
        pairs.declared[metric.name] = int(np.count_nonzero(values)) if metric.share else float(np.sum(values))


def _add_sums(pairs: PairTotals, pair: BlockPair, chosen: Array | slice, scales: Scales) -> None:
    diff = _scale_values(pair.diff[chosen], scales.diff)
    base, target = _scale_values(pair.base[chosen], scales.base), _scale_values(pair.target[chosen], scales.target)
    pairs.sum_abs = float(diff.sum())
    pairs.squares = float(np.square(diff).sum())
    pairs.base_squares = float(np.square(base).sum())
    pairs.target_squares = float(np.square(target).sum())
    product = base * target
    if pair.turn is not None:
        product = np.where(product == 0, 0.0, product * pair.turn[chosen])
    pairs.dot = float(product.sum())


def _add_required(pairs: PairTotals, diff: Array, magnitude: Array, part: Array, tolerance: Tolerance) -> None:
    either = tolerance.rule == "either"
    excess = np.where(diff > part, diff, 0.0) if either else diff - part
    pairs.required_atol = float(np.fmax.reduce(excess, initial=0.0))  # inf - inf is nothing
    beyond = diff > tolerance.atol
    if beyond.any():
        needed = diff[beyond] if either else diff[beyond] - tolerance.atol
        pairs.required_rtol = float((needed / magnitude[beyond]).max())


def _add_infinite_error(pairs: PairTotals, pair: BlockPair, finite: Array, first: int) -> None:
    infinite = ~finite & np.isinf(pair.diff)
    if infinite.any():
        at = first + int(np.argmax(infinite))
        pairs.max_abs_at = min(at, pairs.max_abs_at) if np.isinf(pairs.max_abs) else at
        pairs.max_rel_at = min(at, pairs.max_rel_at) if np.isinf(pairs.max_rel) else at
        pairs.max_abs = pairs.max_rel = np.inf
