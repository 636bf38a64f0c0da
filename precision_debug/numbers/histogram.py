"""The log2 histogram of errors: which elements enter it, which bucket each falls into, and how quantiles are read."""

from __future__ import annotations

import numpy as np

from .kinds import Array
from .totals import BUCKETS

__all__ = ["SAMPLE", "bucket_counts", "quantiles", "sample_positions"]

SAMPLE = 8
"""One element of every 8 enters."""

_SHIFT = np.uint64(49)
_HASH = np.uint64(0x9E3779B1)


def sample_positions(start: int, stop: int) -> Array:
    """Flat indices in [start, stop) that enter the histogram; start is a multiple of 8.

    Element ``8 k + h(k)`` of each eight, with ``h(k) = floor(8 * frac(k * 0x9E3779B1 / 2^32))``: multiples of the
    golden ratio spread evenly over every stride, so that no channel layout is missed.
    """
    group = np.arange(start // SAMPLE, -(-stop // SAMPLE), dtype=np.uint64)
    lane = ((group * _HASH) & np.uint64(0xFFFFFFFF)) >> np.uint64(29)
    position: Array = (group * np.uint64(SAMPLE) + lane).astype(np.int64)
    return position[position < stop]


def bucket_counts(diff: Array) -> Array:
    """Counts of non-negative float64 values by exponent and 3 bits of mantissa: BUCKETS of int64."""
    counts: Array = np.bincount((diff.view(np.uint64) >> _SHIFT).astype(np.int64), minlength=BUCKETS)
    return counts


def quantiles(counts: Array, at: tuple[float, ...], largest: float) -> list[float]:
    """The middle of the bucket that holds each quantile, never above ``largest``; 0 for the bucket of zero."""
    ends = np.cumsum(counts)
    ranks = [int(q * (int(ends[-1]) - 1) + 0.5) for q in at]
    buckets = np.searchsorted(ends, ranks, side="right")
    edges = (np.stack([buckets, buckets + 1]).astype(np.uint64) << _SHIFT).view(np.float64)
    return [
        0.0 if b == 0 else min(float(low) + (float(high) - float(low)) / 2, largest)
        for b, low, high in zip(buckets, edges[0], edges[1], strict=True)
    ]
