"""One tensor of a loop's body over all iterations: their totals, and the numbers of the worst of them.

A pair is measured once, while it lives. What is added up is what ``totals`` adds up of the parts of one tensor, so the
numbers are those of all iterations' elements laid one after the other; quantiles come from the histogram of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..records import Comparison, Shape, Tolerance
from . import finish, measuring, native
from . import statistic as select
from .blocks import Array, make_flat_reader, may_overflow
from .histogram import choose_sample_positions, count_buckets
from .merged import Measured, Merged, rank_badness
from .numpy_pass import count_negative_infinities
from .totals import BUCKETS, Scales, Task, Totals

__all__ = ["Iterations"]

_Types = tuple[np.dtype[Any], np.dtype[Any]]


class Iterations:
    """Adds up pairs, one an iteration. tolerance: whose mismatches are counted. keep: how many of the last iterations'
    numbers are there besides."""

    def __init__(self, tolerance: Tolerance) -> None:
        self._tolerance = tolerance
        self.keep = 0
        self._last: deque[tuple[str, Comparison | _Kept]] = deque()
        self.count = 0
        self._whole: _Sum | None = None
        self._rest: Merged | None = None
        self._worst: tuple[float, str, Comparison | _Kept] | None = None

    def add(self, turn: str, base: Array, target: Array, threads: int = 0) -> None:
        """Take in an iteration, called ``turn``. Both arrays may be overwritten afterwards."""
        kernel = native.load()
        plain = self._tolerance.check_error_stat == "elemwise" and base.shape == target.shape
        if kernel is None or not plain or not kernel.supports(base.dtype, target.dtype):
            self.add_in_full(turn, base, target, threads)
            return
        if not self._tolerance.given and base.dtype.kind in "iub":
            self.add_in_full(turn, base, target, threads)  # which counts what differs at all
            return
        small = base.size < measuring.EXACT_BELOW
        task = Task(
            base=make_flat_reader(base), target=make_flat_reader(target), size=base.size, tolerance=self._tolerance,
            keep="errors" if small else "histogram", threads=threads,
        )  # fmt: skip
        types = base.dtype, target.dtype
        if self._whole is None:
            self._whole = _Sum(base.shape, types)
        totals = kernel.measure(task, *types, self._whole.counts if small else None)
        if finish.choose_scales(totals) != task.scales and (may_overflow(base.dtype) or may_overflow(target.dtype)):
            self.add_in_full(turn, base, target, threads)
            return
        count_negative_infinities(task, totals)
        self.count += 1
        self._take(turn, _Kept(totals=totals, shape=base.shape, types=types))

    def add_in_full(self, turn: str, base: Array, target: Array, threads: int = 0) -> Measured:
        """Return the same, and the iteration's own numbers."""
        self.count += 1
        found = measuring.measure(base, target, self._tolerance, threads=threads)
        if found.totals is not None and found.totals.scales == Scales():
            types, stat = (base.dtype, target.dtype), (found.stat_abs, found.stat_rel)
            if self._whole is None:
                self._whole = _Sum(base.shape, types)
            self._whole.count_errors(found.totals.pairs.diffs)
            self._take(turn, _Kept(totals=found.totals, shape=base.shape, types=types, statistic=stat))
        else:
            one = Merged.of(found, self.count)
            self._rest = one if self._rest is None else Merged.merge(self._rest, one)
            self._consider(rank_badness(found), turn, found)
        return found

    def _take(self, turn: str, found: _Kept) -> None:
        assert self._whole is not None
        self._whole.add(found)
        self._consider(found.badness, turn, found)

    def _consider(self, bad: float, turn: str, found: Comparison | _Kept) -> None:
        self._last.append((turn, found))
        while len(self._last) > self.keep:
            self._last.popleft()
        if self._worst is None or bad > self._worst[0]:
            passed = self._worst[2] if self._worst is not None else None
            self._worst = bad, turn, found
        else:
            passed = found
        if isinstance(passed, _Kept):
            passed.totals.pairs.diffs = []

    def whole(self) -> Comparison:
        """Return the numbers of all iterations together, with their totals where one pass gives them; shape, and
        indices, are those of one of them."""
        summed = None if self._whole is None or not self._whole.count else self._whole.measured(self._tolerance)
        if self._rest is None:
            assert summed is not None, "nothing was added"
            return summed
        return (self._rest if summed is None else Merged.merge(Merged.of(summed, 0), self._rest)).comparison()

    def last(self) -> Iterator[tuple[str, Comparison]]:
        """Yield the last iterations, each with its numbers; quantiles are there for the worst alone."""
        for turn, found in self._last:
            yield turn, found.comparison(self._tolerance) if isinstance(found, _Kept) else found

    def worst(self) -> tuple[str, float, Comparison]:
        """Return the iteration that is worst, the first of equal ones: how it is called, its relative L2 error (inf
        where it is not a number on one side alone), and its numbers."""
        assert self._worst is not None, "nothing was added"
        bad, turn, found = self._worst
        return turn, bad, found.comparison(self._tolerance) if isinstance(found, _Kept) else found


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Kept:
    """What is kept of one iteration."""

    totals: Totals
    shape: Shape
    types: _Types
    statistic: tuple[float | None, float | None] = (None, None)

    @property
    def badness(self) -> float:
        """See merged.badness."""
        pairs = self.totals.pairs
        if pairs.special:
            return math.inf
        if not pairs.finite:
            return float(pairs.mismatched)
        if pairs.squares == 0:
            return 0.0
        return math.sqrt(pairs.squares / pairs.base_squares) if pairs.base_squares else math.inf

    def comparison(self, tolerance: Tolerance) -> Comparison:
        pairs = self.totals.pairs
        quantiles: list[float] | None = None
        if pairs.diffs and pairs.finite:
            choose = measuring.make_rank_chooser(pairs, native.load())
            quantiles = select.find_quantiles(choose, pairs.finite, finish.QUANTILES)
        base, target = (_make_empty_like(dtype, self.shape) for dtype in self.types)
        return finish.finish_comparison(
            base, target, self.totals, tolerance, quantiles=quantiles, statistic=self.statistic
        )  # fmt: skip


class _Sum:
    """The totals of several iterations. shape: of the first. counts: the histogram of errors that were kept."""

    def __init__(self, shape: Shape, types: _Types) -> None:
        self.count = 0
        self._totals, self._types, self._shape, self._size = Totals(), types, shape, 0
        self.counts = np.zeros(2 * BUCKETS, np.uint32)
        self._shapes: dict[str, Shape] = {}
        self._statistic: tuple[float | None, float | None] = (None, None)

    def add(self, one: _Kept) -> None:
        self.count += 1
        self._size += math.prod(one.shape)
        mine, pairs = self._totals.pairs, one.totals.pairs
        if mine.first_mismatch < 0 <= pairs.first_mismatch:
            self._shapes["first_mismatch"] = one.shape
        if pairs.max_abs > mine.max_abs:
            self._shapes["max_abs_index"] = one.shape
        if pairs.max_rel > mine.max_rel:
            self._shapes["max_rel_index"] = one.shape
        errors, pairs.diffs = pairs.diffs, []  # they stay the iteration's own
        self._totals.add(one.totals)
        pairs.diffs = errors
        was, now = self._statistic, one.statistic
        self._statistic = _larger_of(was[0], now[0]), _larger_of(was[1], now[1])

    def count_errors(self, diffs: Sequence[Array]) -> None:
        """Add what no kernel has counted to the histogram."""
        for errors in diffs:
            picked = errors[choose_sample_positions(0, errors.size)]
            self.counts[:BUCKETS] += count_buckets(picked).astype(np.uint32)

    def measured(self, tolerance: Tolerance) -> Measured:
        totals = dataclasses.replace(self._totals, pairs=dataclasses.replace(self._totals.pairs))
        pairs = totals.pairs
        counts = self.counts.astype(np.int64).reshape(2, BUCKETS).sum(axis=0)
        pairs.histogram = counts if pairs.histogram is None else pairs.histogram + counts
        one, other = (_make_empty_like(dtype, (self._size,)) for dtype in self._types)
        found = finish.finish_comparison(one, other, totals, tolerance, quantiles=None, statistic=self._statistic)
        flat = {"first_mismatch": pairs.first_mismatch, "max_abs_index": pairs.max_abs_at,
                "max_rel_index": pairs.max_rel_at}  # fmt: skip
        places: dict[str, Any] = {key: finish.unravel_index(flat[key], shape) for key, shape in self._shapes.items()}
        base, target = (dataclasses.replace(side, shape=self._shape) for side in (found.base, found.target))
        return measuring.attach_totals(dataclasses.replace(found, base=base, target=target, **places), totals)


def _larger_of(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else max(one, other)


def _make_empty_like(dtype: np.dtype[Any], shape: Shape) -> Array:
    """Return an array of that type and shape, of no memory: ``finish`` asks of one no more."""
    return np.broadcast_to(np.zeros((), dtype), shape)
