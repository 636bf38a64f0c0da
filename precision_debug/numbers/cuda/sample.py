# Triton has no types, and its functions are compiled, not called.
# mypy: ignore-errors
"""A histogram of the errors of a sample of two float tensors, on their device."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl

__all__ = ["BUCKETS", "BUCKET_BITS", "COPIES", "RUN", "RUNS", "sampled"]

BUCKET_BITS = 18
BUCKETS = 1 << (31 - BUCKET_BITS)
COPIES = 16
RUN = 32
RUNS = 8192
"""The sample: in each of so many equal stretches one run of RUN elements, its place in it by the golden ratio."""


@triton.jit(do_not_specialize=["size", "runs"])
def _sample(
    base_ptr, target_ptr, copies_ptr, size, runs,
    RUN: tl.constexpr, AT_ONCE: tl.constexpr, BITS: tl.constexpr, COPIES: tl.constexpr, BUCKETS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """A program adds to one of the histograms, since many errors have the same few buckets."""
    number = tl.program_id(0) * AT_ONCE + tl.arange(0, AT_ONCE)
    stretch = size.to(tl.float64) / runs
    golden = number.to(tl.float64) * 0.6180339887498949
    inside = (golden - tl.floor(golden)) * tl.maximum(stretch - RUN, 0.0)
    start = (number.to(tl.float64) * stretch + inside).to(tl.int64)
    at = tl.minimum(start[:, None] + tl.arange(0, RUN)[None, :], size - 1)
    b = tl.load(base_ptr + at).to(tl.float32)
    t = tl.load(target_ptr + at).to(tl.float32)
    bucket = tl.abs(t - b).to(tl.int32, bitcast=True) >> BITS
    copy = copies_ptr + (tl.program_id(0) % COPIES) * BUCKETS
    inside = tl.broadcast_to((number < runs)[:, None], (AT_ONCE, RUN))
    tl.atomic_add(copy + bucket, 1, mask=inside, sem="relaxed")


@triton.jit
def _add_copies(copies_ptr, counts_ptr, COPIES: tl.constexpr, BUCKETS: tl.constexpr, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.int32)
    for copy in tl.static_range(COPIES):
        total += tl.load(copies_ptr + copy * BUCKETS + at)
    tl.store(counts_ptr + at, total)


def sampled(base: Any, target: Any, copies: Any, counts: Any) -> None:
    """Write the histogram of a sample's errors, by the top bits of the error as a float32, into counts.

    copies: zeros, int32 [COPIES, BUCKETS]; counts: int32 [BUCKETS].
    """
    size = base.numel()
    runs = min(RUNS, size // RUN)
    _sample[(-(-runs // 32),)](
        base, target, copies, size, runs, RUN=RUN, AT_ONCE=32, BITS=BUCKET_BITS, COPIES=COPIES, BUCKETS=BUCKETS,
        num_warps=4,
    )  # fmt: skip
    _add_copies[(BUCKETS // 256,)](copies, counts, COPIES=COPIES, BUCKETS=BUCKETS, BLOCK=256, num_warps=4)
