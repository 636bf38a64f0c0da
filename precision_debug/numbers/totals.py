"""What one pass over a pair of tensors adds up, whichever code makes it; ``finish`` turns it into a Comparison.

Only what adds up is kept (counts, sums, extremes, a histogram), so that totals of threads, samples and machines merge
into those of the whole bit for bit; ratios, means and quantiles are made of them once, at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from ..records import Tolerance
from .blocks import Array, FlatReader

__all__ = ["BUCKETS", "PairTotals", "Scales", "SideTotals", "Task", "Totals"]

BUCKETS = 1 << 14
"""Buckets of the log2 histogram: a float64's exponent and the 3 top bits of its mantissa, so 8 an octave."""


@dataclass(frozen=True, kw_only=True)
class Scales:
    """Values are divided by two to these powers before they are summed or squared, so that float64 holds the sums."""

    base: int = 0
    target: int = 0
    diff: int = 0


@dataclass(frozen=True, kw_only=True)
class Task:
    """One pair of tensors of equal shape and numeric types, and what is wanted of it.

    keep: every finite error, a histogram of a sample of them, or nothing. threads: at most so many; 0: one for a core.
    """

    base: FlatReader
    target: FlatReader
    size: int
    tolerance: Tolerance
    keep: Literal["errors", "histogram", "nothing"]
    scales: Scales = Scales()
    threads: int = 0

    @classmethod
    def of_one(cls, read: FlatReader, size: int, threads: int = 0) -> Task:
        """One tensor by itself, as both sides."""
        return cls(base=read, target=read, size=size, tolerance=Tolerance(), keep="nothing", threads=threads)


@dataclass(kw_only=True)
class SideTotals:
    """One tensor's finite elements, and how many are not. negative_inf: of ``inf``."""

    nan: int = 0
    inf: int = 0
    negative_inf: int = 0
    min: float = np.inf
    max: float = -np.inf
    sum: float = 0.0
    squares: float = 0.0

    def add(self, other: SideTotals) -> None:
        self.nan += other.nan
        self.inf += other.inf
        self.negative_inf += other.negative_inf
        self.min = min(self.min, other.min)
        self.max = max(self.max, other.max)
        self.sum += other.sum
        self.squares += other.squares

    @property
    def peak(self) -> float:
        """The largest magnitude; 0 where there is no finite element."""
        return max(self.max, -self.min, 0.0)


@dataclass(kw_only=True)
class PairTotals:
    """Pairs of elements; sums are over the pairs of which both are finite. Indices are flat, in C order; -1: none.

    base_squares, target_squares: of the elements in finite pairs.
    special: mismatched pairs with a NaN, or with an infinity that the other side does not have.
    required_atol, required_rtol: over the finite pairs, as they were rounded.
    declared: of each metric of metrics.h the count or the sum, where not 0.
    histogram: of d, by the top bits of float64; None where ``diffs`` holds all of them.
    """

    finite: int = 0
    mismatched: int = 0
    special: int = 0
    first_mismatch: int = -1
    max_abs: float = -1.0
    max_abs_at: int = -1
    max_rel: float = -1.0
    max_rel_at: int = -1
    sum_abs: float = 0.0
    sum_rel: float = 0.0
    squares: float = 0.0
    base_squares: float = 0.0
    target_squares: float = 0.0
    dot: float = 0.0
    required_atol: float = 0.0
    required_rtol: float = 0.0
    histogram: Array | None = None
    diffs: list[Array] = field(default_factory=list)
    declared: dict[str, float] = field(default_factory=dict)

    def add(self, other: PairTotals) -> None:
        """Take in the pairs that follow these in C order."""
        if self.first_mismatch < 0:
            self.first_mismatch = other.first_mismatch
        if other.max_abs > self.max_abs:
            self.max_abs, self.max_abs_at = other.max_abs, other.max_abs_at
        if other.max_rel > self.max_rel:
            self.max_rel, self.max_rel_at = other.max_rel, other.max_rel_at
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.required_atol = max(self.required_atol, other.required_atol)
        self.required_rtol = max(self.required_rtol, other.required_rtol)
        if other.histogram is not None:
            self.histogram = other.histogram if self.histogram is None else self.histogram + other.histogram
        self.diffs += other.diffs
        for name, value in other.declared.items():
            self.declared[name] = self.declared.get(name, 0) + value


_SUMS = (
    "finite",
    "mismatched",
    "special",
    "sum_abs",
    "sum_rel",
    "squares",
    "base_squares",
    "target_squares",
    "dot",
)


@dataclass(kw_only=True)
class Totals:
    """Both sides and their pairs. identical: every byte was equal."""

    base: SideTotals = field(default_factory=SideTotals)
    target: SideTotals = field(default_factory=SideTotals)
    pairs: PairTotals = field(default_factory=PairTotals)
    fp16_overflow: int = 0
    fp16_subnormal: int = 0
    identical: bool = True
    scales: Scales = field(default_factory=Scales)

    def add(self, other: Totals) -> None:
        """Take in the totals of the elements that follow these in C order."""
        self.base.add(other.base)
        self.target.add(other.target)
        self.pairs.add(other.pairs)
        self.fp16_overflow += other.fp16_overflow
        self.fp16_subnormal += other.fp16_subnormal
        self.identical = self.identical and other.identical
