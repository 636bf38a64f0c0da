"""The statistic that check_error_stat asks for, exact because it decides the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from .blocks import BLOCK, Array, widen_pair
from .totals import Task, Totals

__all__ = ["compute_error_statistic", "find_quantiles", "iterate_errors", "select"]


# Exact order statistics of more values than memory should hold.

COLLECT = 1 << 20
"""Values that are collected and partitioned at once: 8 MiB of float64."""

_DIGITS = (48, 32, 16, 0)
"""Shifts of the 16-bit digits of a float64's bits, highest first: each pass over the values fixes one."""


def find_quantiles(choose: Callable[[Sequence[int]], list[float]], count: int, at: Sequence[float]) -> list[float]:
    """Return numpy's quantiles (linear interpolation) of ``count`` non-negative float64 values, inf allowed.

    choose: ranks, from 0, to the values that have them.
    """
    places = [_find_quantile_place(count, q) for q in at]
    values = choose([rank for low, high, _ in places for rank in (low, high)])
    return [_interpolate(values[2 * i], values[2 * i + 1], part) for i, (_, _, part) in enumerate(places)]


def _find_quantile_place(count: int, q: float) -> tuple[int, int, float]:
    place = q * (count - 1)
    low = min(int(place), count - 1)
    return low, min(low + 1, count - 1), place - low


def _interpolate(low: float, high: float, fraction: float) -> float:
    return low if low == high or fraction == 0 else low + (high - low) * fraction


def select(blocks: Callable[[], Iterator[Array]], count: int, ranks: Sequence[int]) -> list[float]:
    """The values of these ranks, from 0, among ``count`` non-negative float64 values.

    blocks: starts a fresh walk over the values each time it is called.
    Non-negative float64 values order like their bits. 16 bits a walk are counted, which narrows each rank down to
    the values that share its leading bits, until those are few enough to be collected.
    """
    return [_select_one(blocks, count, rank) for rank in ranks] if count > COLLECT else _collect(blocks, ranks)


def _collect(blocks: Callable[[], Iterator[Array]], ranks: Sequence[int]) -> list[float]:
    values = np.concatenate([np.empty(0), *blocks()])
    if len(ranks) > 2:
        values.sort()  # faster than a partition around many ranks
    else:
        values.partition(sorted(set(ranks)))
    return [float(values[rank]) for rank in ranks]


def _select_one(blocks: Callable[[], Iterator[Array]], count: int, rank: int) -> float:
    prefix = 0
    for shift in _DIGITS:
        if count <= COLLECT:
            return _collect(partial(_select_by_prefix, blocks, shift + 16, prefix), [rank])[0]
        counts = np.zeros(1 << 16, dtype=np.int64)
        for values in _select_by_prefix(blocks, shift + 16, prefix):
            digits = (values.view(np.uint64) >> np.uint64(shift)) & np.uint64(0xFFFF)
            counts += np.bincount(digits.astype(np.int64), minlength=1 << 16)
        ends = np.cumsum(counts)
        digit = int(np.searchsorted(ends, rank, side="right"))
        rank -= int(ends[digit - 1]) if digit else 0
        count = int(counts[digit])
        prefix = prefix << 16 | digit
    return float(np.array([prefix], dtype=np.uint64).view(np.float64)[0])


def _select_by_prefix(blocks: Callable[[], Iterator[Array]], shift: int, prefix: int) -> Iterator[Array]:
    for values in blocks():
        yield values if shift == 64 else values[(values.view(np.uint64) >> np.uint64(shift)) == prefix]


def compute_error_statistic(task: Task, totals: Totals) -> tuple[float | None, float | None]:
    """Return the statistic of d and of d / |b| over the finite pairs; (None, None) for "elemwise" and where no pair is
    finite.

    d / |b| is 0 where d is 0 and inf where only b is. "max" is inf where one side is infinite and the other is not
    the same infinity. The "median" and a quantile are numpy's, with linear interpolation.
    """
    kind = task.tolerance.check_error_stat
    if kind == "elemwise" or (totals.pairs.finite == 0 and totals.pairs.max_abs < 0):
        return None, None

    def absolute() -> Iterator[Array]:
        return iterate_errors(task)

    def relative() -> Iterator[Array]:
        return iterate_errors(task, relative=True)

    count = totals.pairs.finite
    if kind == "max":
        if np.isinf(totals.pairs.max_abs):
            return np.inf, np.inf
        return totals.pairs.max_abs, max(float(block.max(initial=0.0)) for block in relative())
    if count == 0:
        return None, None
    if kind == "mean":
        return _compute_mean(absolute, count), _compute_mean(relative, count)
    at = (0.5 if kind == "median" else task.tolerance.quantile,)
    return (
        find_quantiles(partial(select, absolute, count), count, at)[0],
        find_quantiles(partial(select, relative, count), count, at)[0],
    )


def _compute_mean(walk: Callable[[], Iterator[Array]], count: int) -> float:
    with np.errstate(over="ignore"):
        total = sum(float(block.sum()) for block in walk())
        if np.isinf(total):
            return sum(float((block / count).sum()) for block in walk())
    return total / count


def iterate_errors(task: Task, relative: bool = False) -> Iterator[Array]:
    """d, or d / |b|, of the finite pairs, in blocks."""
    for first in range(0, task.size, BLOCK):
        last = min(first + BLOCK, task.size)
        with np.errstate(all="ignore"):
            pair = widen_pair(task.base(first, last), task.target(first, last))
            finite = np.isfinite(pair.base) & np.isfinite(pair.target)
            values = pair.diff[finite]
            if relative:
                values = np.where(values == 0, 0.0, values / pair.magnitude[finite])
        yield values
