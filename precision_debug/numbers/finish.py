"""From totals to the numbers of a Comparison.

Apart from measuring: a mean or a ratio of parts does not merge, see ``totals``.
"""

from __future__ import annotations

import dataclasses
import math
import sys
from collections.abc import Sequence
from typing import Any

from ..records import Comparison, TensorStats, Tolerance
from . import histogram
from .blocks import Array, dtype_name
from .metrics import DECLARED
from .totals import PairTotals, Scales, SideTotals, Totals

__all__ = [
    "QUANTILES",
    "choose_scales",
    "compute_cosine_distance",
    "compute_sqnr",
    "describe_without_numbers",
    "finish_comparison",
    "finish_declared_metrics",
    "finish_stats",
    "undo_scale",
    "unravel_index",
]

QUANTILES = (0.5, 0.9, 0.99, 0.999)
_FIELDS = frozenset(field.name for field in dataclasses.fields(Comparison))
_SAFE = (-440, 460)
"""Exponents of two between which 1e12 values can be squared and summed in float64 without overflow or underflow."""


def choose_scales(totals: Totals) -> Scales:
    """Return the exponents to sum by; different from ``totals.scales`` where its sums have left the range of
    float64."""
    largest = totals.pairs.max_abs
    return Scales(
        base=_exponent_of(totals.base.peak),
        target=_exponent_of(totals.target.peak),
        diff=_exponent_of(largest)
        if math.isfinite(largest)
        else _exponent_of(max(totals.base.peak, totals.target.peak)),
    )


def _exponent_of(peak: float) -> int:
    exponent = math.frexp(peak)[1]
    return 0 if peak <= 0 or _SAFE[0] <= exponent <= _SAFE[1] else exponent


def describe_without_numbers(array: Array) -> TensorStats:
    """Return what is known of a tensor that is not numeric."""
    return TensorStats(dtype=dtype_name(array.dtype), shape=array.shape, elements=array.size)


def finish_stats(array: Array, side: SideTotals, scale: int) -> TensorStats:
    """Return one side's statistics from its totals."""
    finite = array.size - side.nan - side.inf
    return TensorStats(
        dtype=dtype_name(array.dtype),
        shape=array.shape,
        elements=array.size,
        min=side.min if finite else None,
        max=side.max if finite else None,
        mean=undo_scale(side.sum / finite, scale) if finite else None,
        rms=undo_scale(math.sqrt(side.squares / finite), scale) if finite else None,
        nan=side.nan,
        inf=side.inf,
        negative_inf=side.negative_inf,
    )


def undo_scale(value: float, scale: int) -> float:
    """Return a number times two to a power; inf where that is beyond float64."""
    try:
        return math.ldexp(value, scale)
    except OverflowError:
        return math.inf


def finish_comparison(
    base: Array,
    target: Array,
    totals: Totals,
    tolerance: Tolerance,
    *,
    quantiles: Sequence[float | None] | None,
    statistic: tuple[float | None, float | None],
) -> Comparison:
    """quantiles: those of QUANTILES; None: they are read from the histogram."""
    pairs, finite = totals.pairs, totals.pairs.finite
    exact = quantiles is not None or finite == 0
    p50, p90, p99, p999 = _finish_quantiles(pairs) if quantiles is None else quantiles
    return Comparison(
        base=finish_stats(base, totals.base, totals.scales.base),
        target=finish_stats(target, totals.target, totals.scales.target),
        shapes_match=True,
        mismatched=pairs.mismatched,
        apart=_count_apart(totals, tolerance),
        same_inf=0 if totals.base.nan or totals.target.nan else base.size - finite - pairs.special,
        first_mismatch=unravel_index(pairs.first_mismatch, base.shape),
        max_abs=pairs.max_abs if pairs.max_abs_at >= 0 else None,
        max_abs_index=unravel_index(pairs.max_abs_at, base.shape),
        max_rel=pairs.max_rel if pairs.max_rel_at >= 0 else None,
        max_rel_index=unravel_index(pairs.max_rel_at, base.shape),
        mean_abs=undo_scale(pairs.sum_abs / finite, totals.scales.diff) if finite else None,
        mean_rel=pairs.sum_rel / finite if finite else None,
        rmse=undo_scale(math.sqrt(pairs.squares / finite), totals.scales.diff) if finite else None,
        cosine_distance=compute_cosine_distance(totals) if finite else None,
        sqnr_db=compute_sqnr(totals) if finite else None,
        abs_p50=p50,
        abs_p90=p90,
        abs_p99=p99,
        abs_p999=p999,
        quantiles_exact=exact,
        stat_abs=statistic[0],
        stat_rel=statistic[1],
        required_atol=_find_required_atol(pairs, tolerance) if base.size else None,
        required_rtol=_find_required_rtol(pairs) if base.size else None,
        fp16_overflow=totals.fp16_overflow,
        fp16_subnormal=totals.fp16_subnormal,
        identical=totals.identical and base.dtype == target.dtype and base.size > 0,
        **finish_declared_metrics(pairs),
    )


def finish_declared_metrics(pairs: PairTotals) -> dict[str, Any]:
    """Return the declared metrics: those that a Comparison has a field for, and the others as its ``more``."""
    if not pairs.finite:
        return {}
    found = {metric.name: pairs.declared.get(metric.name, 0) / pairs.finite for metric in DECLARED}
    own = {name: found.pop(name) for name in tuple(found) if name in _FIELDS}
    return {**own, "more": found} if found else own


def unravel_index(flat: int, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Of an element by its place in C order; None where that is -1."""
    if flat < 0:
        return None
    places = []
    for size in reversed(shape):
        flat, place = divmod(flat, size)
        places.append(place)
    return tuple(reversed(places))


def _finish_quantiles(pairs: PairTotals) -> Sequence[float | None]:
    if pairs.finite == 0 or pairs.histogram is None:
        return [None] * len(QUANTILES)
    return histogram.estimate_quantiles(histogram.make_sketch(pairs.histogram), QUANTILES, pairs.max_abs)


def compute_cosine_distance(totals: Totals) -> float | None:
    """None where a side is zero everywhere.

    The form that does not cancel holds where both norms are alike; where one is more than twice the other it would
    cancel itself, and 1 - (b . t) / (|b| |t|) is right.
    """
    pairs, scales = totals.pairs, totals.scales
    base, target = math.sqrt(pairs.base_squares), math.sqrt(pairs.target_squares)
    if base == 0 or target == 0:
        return None
    ratio = undo_scale(target / base, scales.target - scales.base)
    if 0.5 <= ratio <= 2 and math.isfinite(pairs.squares):
        error = undo_scale(pairs.squares / base / target, 2 * scales.diff - scales.base - scales.target)
        distance = (error - (1 - ratio) ** 2 / ratio) / 2
    else:
        distance = 1 - pairs.dot / base / target
    return min(max(distance, 0.0), 2.0)


def compute_sqnr(totals: Totals) -> float:
    """10 log10(sum b^2 / sum d^2); inf where d is 0 everywhere, -inf where only b is."""
    pairs, scales = totals.pairs, totals.scales
    if pairs.squares == 0:
        return math.inf
    if pairs.base_squares == 0 or math.isinf(pairs.squares):
        return -math.inf
    decibels = 10 * (math.log10(pairs.base_squares) - math.log10(pairs.squares))
    return decibels + 20 * math.log10(2) * (scales.base - scales.diff)


def _find_required_atol(pairs: PairTotals, tolerance: Tolerance) -> float:
    """One step up where the subtraction may have rounded it down, so that a run with this value does pass."""
    if pairs.special:
        return math.inf
    rounded = tolerance.rule == "isclose" and tolerance.rtol != 0
    return _step_up(pairs.required_atol, 1 if rounded else 0)


def _find_required_rtol(pairs: PairTotals) -> float:
    """Four steps up, for the roundings of a subtraction, a division and the product that the next run will make."""
    return math.inf if pairs.special else _step_up(pairs.required_rtol, 4)


def _count_apart(totals: Totals, tolerance: Tolerance) -> int:
    """Where NaN never equals NaN, pairs of two NaN were counted too: no more than the side with fewer has."""
    equal = 0 if tolerance.equal_nan else min(totals.base.nan, totals.target.nan)
    return max(0, totals.pairs.special - equal)


def _step_up(value: float, steps: int) -> float:
    for _ in range(steps if 0 < value < sys.float_info.max else 0):
        value = min(math.nextafter(value, math.inf), sys.float_info.max)
    return value
