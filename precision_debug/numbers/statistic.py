"""The statistic that check_error_stat asks for, exact because it decides the verdict."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from .blocks import BLOCK
from .kinds import Array
from .select import quantiles, select
from .totals import Task, Totals
from .widen import widen_pair

__all__ = ["error_statistic", "errors"]


def error_statistic(task: Task, totals: Totals) -> tuple[float | None, float | None]:
    """The statistic of d and of d / |b| over the finite pairs; (None, None) for "elemwise" and where no pair is finite.

    d / |b| is 0 where d is 0 and inf where only b is. "max" is inf where one side is infinite and the other is not
    the same infinity. The "median" and a quantile are numpy's, with linear interpolation.
    """
    kind = task.tolerance.check_error_stat
    if kind == "elemwise" or (totals.pairs.finite == 0 and totals.pairs.max_abs < 0):
        return None, None

    def absolute() -> Iterator[Array]:
        return errors(task)

    def relative() -> Iterator[Array]:
        return errors(task, relative=True)

    count = totals.pairs.finite
    if kind == "max":
        if np.isinf(totals.pairs.max_abs):
            return np.inf, np.inf
        return totals.pairs.max_abs, max(float(block.max(initial=0.0)) for block in relative())
    if count == 0:
        return None, None
    if kind == "mean":
        return _mean(absolute, count), _mean(relative, count)
    at = (0.5 if kind == "median" else task.tolerance.quantile,)
    return (
        quantiles(partial(select, absolute, count), count, at)[0],
        quantiles(partial(select, relative, count), count, at)[0],
    )


def _mean(walk: Callable[[], Iterator[Array]], count: int) -> float:
    with np.errstate(over="ignore"):
        total = sum(float(block.sum()) for block in walk())
        if np.isinf(total):
            return sum(float((block / count).sum()) for block in walk())
    return total / count


def errors(task: Task, relative: bool = False) -> Iterator[Array]:
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
