"""The log2 histogram of errors: which elements enter it, which bucket each falls into, and how quantiles are read.

One definition for all kernels and for what is merged of them: buckets by exponent and the top 3 bits of the mantissa.
Histograms of any parts of the same elements add up to that of the whole, count by count.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from .blocks import Array
from .totals import BUCKETS

__all__ = [
    "SAMPLE",
    "choose_sample_positions",
    "count_buckets",
    "estimate_quantiles",
    "from_float32",
    "make_sketch",
    "sketch_errors",
]

SAMPLE = 8
"""One element of every 8 enters."""

_SHIFT = np.uint64(49)
"""Of a float64's bits: what is left are its exponent and the 3 top bits of its mantissa."""
_MANTISSA, _MANTISSA_32 = 3, 5
"""Bits of the mantissa that choose a bucket: 8 buckets to an octave, so a quantile is read to within 12.5 %. Of
float32 errors two more bits are counted first, and then put together."""

_HASH = np.uint64(0x9E3779B1)
"""2^32 over the golden ratio: Knuth's multiplicative hash, so that no stride of a tensor is sampled alone."""


def choose_sample_positions(start: int, stop: int) -> Array:
    """Flat indices in [start, stop) that enter the histogram; start is a multiple of 8.

    Element ``8 k + h(k)`` of each eight, with ``h(k) = floor(8 * frac(k * 0x9E3779B1 / 2^32))``: multiples of the
    golden ratio spread evenly over every stride, so that no channel layout is missed.
    """
    group = np.arange(start // SAMPLE, -(-stop // SAMPLE), dtype=np.uint64)
    lane = ((group * _HASH) & np.uint64(0xFFFFFFFF)) >> np.uint64(29)
    position: Array = (group * np.uint64(SAMPLE) + lane).astype(np.int64)
    return position[position < stop]


def count_buckets(diff: Array) -> Array:
    """Counts of non-negative float64 values by exponent and 3 bits of mantissa: BUCKETS of int64."""
    counts: Array = np.bincount((diff.view(np.uint64) >> _SHIFT).astype(np.int64), minlength=BUCKETS)
    return counts


def make_sketch(counts: Array, weight: int = 1) -> dict[int, int]:
    """Return the sketch: counts of the buckets that hold something, by bucket. weight: elements that each one stands
    for."""
    filled = np.flatnonzero(counts)
    return dict(zip(filled.tolist(), (counts[filled].astype(np.int64) * weight).tolist(), strict=True))


def sketch_errors(errors: Array) -> dict[int, int]:
    """Return the sketch of some non-negative float64 values."""
    if errors.size >= BUCKETS:
        return make_sketch(count_buckets(errors))
    found, counts = np.unique(errors.view(np.uint64) >> _SHIFT, return_counts=True)
    return dict(zip(found.tolist(), counts.tolist(), strict=True))


def from_float32(counts: Array) -> Array:
    """Counts by the top 13 bits of float32 (32 buckets an octave, as a device counts), by those of float64.

    Errors below 2^-126, which float32 holds with fewer bits, count as 0.
    """
    filled = np.flatnonzero(counts)
    octave, step = filled >> _MANTISSA_32, (filled & (1 << _MANTISSA_32) - 1) >> _MANTISSA_32 - _MANTISSA
    bucket = np.where(octave == 0, 0, (octave - 127 + 1023 << _MANTISSA) + step)
    return np.bincount(bucket, weights=counts[filled], minlength=BUCKETS).astype(np.int64)


def estimate_quantiles(counts: Mapping[int, int], at: Sequence[float], largest: float) -> list[float]:
    """Quantiles of what a sketch has counted; linear inside a bucket, which is 1/8 of its octave's lower end.

    So each is within 12.5 % of a value between which and the next one the true quantile lies, on the host and on a
    device alike, and however many sketches were merged. Never above ``largest``; 0 for the bucket of zero.
    """
    filled = sorted(counts)
    below = list(itertools.accumulate(counts[bucket] for bucket in filled))
    edges = (np.array([filled, [bucket + 1 for bucket in filled]], dtype=np.uint64) << _SHIFT).view(np.float64).tolist()
    found = []
    for q in at:
        place = q * (below[-1] - 1)
        number = min(bisect.bisect_right(below, place), len(filled) - 1)
        if filled[number] == 0:
            found.append(0.0)
            continue
        low, high = edges[0][number], min(edges[1][number], largest)
        before = below[number - 1] if number else 0
        found.append(min(low + (high - low) * (place - before) / (below[number] - before), largest))
    return found
