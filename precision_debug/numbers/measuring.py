"""The numbers of a tensor, and of a pair of tensors."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from ..errors import UsageError
from ..records import Comparison, TensorStats, Tolerance
from . import blocks, finish, native, numpy_pass, statistic
from .blocks import Array, is_numeric, make_flat_reader, may_overflow, with_both_parts
from .merged import Measured
from .totals import PairTotals, Task, Totals

__all__ = ["EXACT_BELOW", "attach_totals", "choose_tolerance", "compare", "describe", "make_rank_chooser", "measure"]

EXACT_BELOW = 65536
"""Tensors with fewer elements get exact quantiles, the others a sampled histogram's."""

_ENOUGH = 1024
"""Samples that a histogram needs; where NaNs leave fewer, the quantiles are selected exactly."""

_RULES = ("isclose", "either")
_STATISTICS = ("elemwise", "max", "mean", "median", "quantile")


def compare(
    base: Any, target: Any, tolerance: Tolerance | None = None, *, threads: int = 0, quantiles: bool = True
) -> Comparison:
    """Compare two arrays of any dtype, layout and byte order, in blocks: no side is ever copied as a whole.

    Both are widened to float64, so that every element's error and the decision ``|t - b| <= atol + rtol * |b|`` are
    those of float64 arithmetic, whatever the two dtypes are. Differences of int64 and uint64 are exact, and so is
    their comparison with the tolerance; the tolerance itself, and everything that is shown, is rounded to float64.
    Complex elements are compared by the magnitude of their difference; their other numbers are of magnitudes.
    Text is compared by equality only, and so are integers and booleans where nobody gave a tolerance: the 1e-4 that is
    then counted against would call ids from 10,000 on equal that are not.
    threads: at most so many share a large tensor; 0: one for a core.
    quantiles: False leaves them None, which takes half of the time.

    Raises UsageError where the tolerance is not one.
    """
    return _compare(base, target, tolerance, threads, quantiles)[0]


def measure(base: Any, target: Any, tolerance: Tolerance | None = None, *, threads: int = 0) -> Measured:
    """As ``compare``, with the totals that the numbers were made of: see ``merged``."""
    found, totals = _compare(base, target, tolerance, threads)
    return attach_totals(found, totals)


def attach_totals(found: Comparison, totals: Totals | None) -> Measured:
    """Return the numbers with their totals beside them."""
    return Measured(**{one.name: getattr(found, one.name) for one in dataclasses.fields(found)}, totals=totals)


def choose_tolerance(tolerance: Tolerance | None, *types: np.dtype[Any]) -> Tolerance:
    """Return what arrays are compared by: whole numbers are equal or wrong where nobody gave a tolerance."""
    tolerance = tolerance or Tolerance(given=False)
    whole = all(one.kind in "iub" for one in types)
    return dataclasses.replace(tolerance, atol=0, rtol=0) if whole and not tolerance.given else tolerance


def _compare(
    base: Any, target: Any, tolerance: Tolerance | None, threads: int, quantiles: bool = True
) -> tuple[Comparison, Totals | None]:
    base, target = with_both_parts(np.asarray(base)), with_both_parts(np.asarray(target))
    tolerance = choose_tolerance(tolerance, base.dtype, target.dtype)
    _check(tolerance)
    if base.shape != target.shape:
        return _compare_kinds_apart(base, target, threads, shapes_match=False), None
    if not (is_numeric(base.dtype) and is_numeric(target.dtype)):
        return _compare_by_equality(base, target, threads), None
    task = Task(
        base=make_flat_reader(base),
        target=make_flat_reader(target),
        size=base.size,
        tolerance=tolerance,
        keep="nothing" if not quantiles else "errors" if base.size < EXACT_BELOW else "histogram",
        threads=threads,
    )
    kernel = native.load()
    if kernel is not None and kernel.supports(base.dtype, target.dtype):
        totals = kernel.measure(task, base.dtype, target.dtype)
    else:
        totals = numpy_pass.measure(task)
    scales = finish.choose_scales(totals)
    if scales != task.scales and (may_overflow(base.dtype) or may_overflow(target.dtype)):
        totals = numpy_pass.measure(dataclasses.replace(task, scales=scales))
    numpy_pass.count_negative_infinities(task, totals)
    found = finish.finish_comparison(
        base,
        target,
        totals,
        tolerance,
        quantiles=_find_exact_quantiles(task, totals.pairs, kernel) if quantiles else (None,) * len(finish.QUANTILES),
        statistic=statistic.compute_error_statistic(task, totals),
    )
    return found, totals


def describe(array: Any, *, threads: int = 0) -> TensorStats:
    """Return numbers of one array by itself; of magnitudes where it is complex, and counts only where it is not
    numeric.

    threads: see compare.
    """
    array = with_both_parts(np.asarray(array))
    return _describe(array, threads)[0]


def _describe(array: Array, threads: int) -> tuple[TensorStats, Totals | None]:
    if not is_numeric(array.dtype):
        return finish.describe_without_numbers(array), None
    read, kernel = make_flat_reader(array), native.load()
    if kernel is not None and kernel.supports(array.dtype):
        totals = kernel.measure_side(read, array.size, array.dtype, threads)
    else:
        totals = numpy_pass.measure_side(read, array.size)
    scale = finish.choose_scales(totals).base
    if scale and may_overflow(array.dtype):
        totals = numpy_pass.measure_side(read, array.size, scale)
    if totals.base.inf:
        numpy_pass.count_negative_infinities(Task.of_one(read, array.size), totals)
    return finish.finish_stats(array, totals.base, totals.scales.base), totals


def _find_exact_quantiles(task: Task, pairs: PairTotals, kernel: native.Kernel | None) -> list[float] | None:
    if pairs.finite == 0:
        return None
    if task.keep == "errors":
        return statistic.find_quantiles(make_rank_chooser(pairs, kernel), pairs.finite, finish.QUANTILES)
    if pairs.histogram is not None and int(pairs.histogram.sum()) < _ENOUGH:
        choose = partial(statistic.select, partial(statistic.iterate_errors, task), pairs.finite)
        return statistic.find_quantiles(choose, pairs.finite, finish.QUANTILES)
    return None


def make_rank_chooser(pairs: PairTotals, kernel: native.Kernel | None) -> Callable[[Sequence[int]], list[float]]:
    """Return what gives the errors of some ranks, of pairs whose errors were all kept."""
    if kernel is not None and len(pairs.diffs) == 1:
        return partial(kernel.select, pairs.diffs[0])
    return partial(statistic.select, lambda: iter(pairs.diffs), pairs.finite)


def _compare_kinds_apart(base: Array, target: Array, threads: int, *, shapes_match: bool) -> Comparison:
    (base_stats, totals), (target_stats, _) = _describe(base, threads), _describe(target, threads)
    return Comparison(
        base=base_stats,
        target=target_stats,
        shapes_match=shapes_match,
        fp16_overflow=totals.fp16_overflow if totals else 0,
        fp16_subnormal=totals.fp16_subnormal if totals else 0,
    )


def _compare_by_equality(base: Array, target: Array, threads: int) -> Comparison:
    comparison = _compare_kinds_apart(base, target, threads, shapes_match=True)
    found = blocks.count_unequal(base, target)
    if found is None:
        return comparison
    count, at = found
    first = tuple(int(i) for i in np.unravel_index(at, base.shape)) if count else None
    same = count == 0 and base.dtype == target.dtype and base.size > 0
    return dataclasses.replace(comparison, mismatched=count, first_mismatch=first, identical=same)


def _check(tolerance: Tolerance) -> None:
    for name in ("atol", "rtol"):
        value = getattr(tolerance, name)
        if not (math.isfinite(value) and value >= 0):
            raise UsageError(f"{name} is {value}", hint="give a finite number that is not negative")
    if tolerance.rule not in _RULES:
        raise UsageError(f"no tolerance rule {tolerance.rule!r}", hint=f"use one of {', '.join(_RULES)}")
    if tolerance.check_error_stat not in _STATISTICS:
        raise UsageError(
            f"no error statistic {tolerance.check_error_stat!r}", hint=f"use one of {', '.join(_STATISTICS)}"
        )
    if not 0 <= tolerance.quantile <= 1:
        raise UsageError(f"quantile is {tolerance.quantile}", hint="give a number from 0 to 1")
