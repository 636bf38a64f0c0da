# Triton has no types, and its functions are compiled, not called.
# mypy: ignore-errors
"""The Triton kernel of ``device_compare``: every sum, extreme and count of two float tensors in one reading.

Each program walks over chunks of ``BLOCK * INNER`` elements. Inside a chunk every lane keeps float32 accumulators over
``INNER`` elements; a chunk's totals are added up in float64. What is rare is not counted on the way: a chunk is read
once more, from the cache and in float64, where float32 cannot decide an element against the tolerance, where the first
mismatch is in it, or where something lies beyond float16; and so are the two chunks with the largest errors, for the
place. NaN and infinity show in the sums.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

__all__ = ["FIELDS", "SUMS", "Shape", "reduced"]

SUMS = ("base_sum", "target_sum", "base_squares", "target_squares", "sum_abs", "squares", "sum_rel")
COUNTS = ("mismatched", "over_1pct", "overflow", "subnormal")
LOWEST = ("base_min", "target_min", "first_mismatch")
HIGHEST = ("base_max", "target_max", "required_atol", "required_rtol")
WORST = ("max_abs", "max_abs_at", "max_rel", "max_rel_at")
FIELDS = (*SUMS, *COUNTS, *LOWEST, *HIGHEST, *WORST)

INNER = 16
LESS = tl.constexpr(1 - 6e-7)
MORE = tl.constexpr(1 + 6e-7)
NOWHERE = tl.constexpr(2147483647)
FAR = tl.constexpr(9.0e15)


@triton.jit
def _inverse(x, FAST: tl.constexpr):  # noqa: N803
    if FAST:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return 1.0 / x


@triton.jit(do_not_specialize=["size", "from_chunk", "to_chunk"])
def _kernel(
    base_ptr, target_ptr, out_ptr, tolerance_ptr, size, from_chunk, to_chunk,
    MASKED: tl.constexpr, EITHER: tl.constexpr, FAST: tl.constexpr,  # noqa: N803
    BLOCK: tl.constexpr, INNER: tl.constexpr, UNROLL: tl.constexpr, FIELDS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    atol64 = tl.load(tolerance_ptr)
    rtol64 = tl.load(tolerance_ptr + 1)
    atol = atol64.to(tl.float32)
    rtol = rtol64.to(tl.float32)
    atol_less, atol_more = atol * LESS, atol * MORE
    rtol_less, rtol_more = rtol * LESS, rtol * MORE
    lane = tl.arange(0, BLOCK)

    all_b = tl.zeros((), tl.float64)
    all_t = tl.zeros((), tl.float64)
    all_bb = tl.zeros((), tl.float64)
    all_tt = tl.zeros((), tl.float64)
    all_d = tl.zeros((), tl.float64)
    all_dd = tl.zeros((), tl.float64)
    all_rel = tl.zeros((), tl.float64)
    all_wrong = tl.zeros((), tl.int64)
    all_over = tl.zeros((), tl.int64)
    all_big = tl.zeros((), tl.int64)
    all_small = tl.zeros((), tl.int64)
    all_first = tl.full((), FAR, tl.float64)
    low_b = tl.full((), float("inf"), tl.float32)
    low_t = tl.full((), float("inf"), tl.float32)
    high_b = tl.full((), float("-inf"), tl.float32)
    high_t = tl.full((), float("-inf"), tl.float32)
    need_a = tl.zeros((), tl.float32)
    need_r = tl.zeros((), tl.float32)
    worst = tl.full((), -1.0, tl.float32)
    worst_rel = tl.full((), -1.0, tl.float32)
    worst_start = tl.zeros((), tl.int64)
    worst_rel_start = tl.zeros((), tl.int64)

    for chunk in range(from_chunk + program, to_chunk, programs):
        start = (tl.zeros((), tl.int64) + chunk) * (BLOCK * INNER)
        left = tl.minimum(size - start, BLOCK * INNER).to(tl.int32)
        s_b = tl.zeros((BLOCK,), tl.float32)
        s_t = tl.zeros((BLOCK,), tl.float32)
        s_bb = tl.zeros((BLOCK,), tl.float32)
        s_tt = tl.zeros((BLOCK,), tl.float32)
        s_d = tl.zeros((BLOCK,), tl.float32)
        s_dd = tl.zeros((BLOCK,), tl.float32)
        s_rel = tl.zeros((BLOCK,), tl.float32)
        packed = tl.zeros((BLOCK,), tl.int32)
        m_b = tl.full((BLOCK,), float("inf"), tl.float32)
        m_t = tl.full((BLOCK,), float("inf"), tl.float32)
        x_b = tl.full((BLOCK,), float("-inf"), tl.float32)
        x_t = tl.full((BLOCK,), float("-inf"), tl.float32)
        n_a = tl.zeros((BLOCK,), tl.float32)
        n_r = tl.zeros((BLOCK,), tl.float32)
        w = tl.zeros((BLOCK,), tl.float32)
        v = tl.zeros((BLOCK,), tl.float32)
        for step in tl.range(0, INNER, loop_unroll_factor=UNROLL):
            at = step * BLOCK + lane
            here = (at < left) if MASKED else tl.full((BLOCK,), 1, tl.int1)
            b = tl.load(base_ptr + start + at, mask=here, other=0.0).to(tl.float32)
            t = tl.load(target_ptr + start + at, mask=here, other=0.0).to(tl.float32)
            d = tl.abs(t - b)
            a = tl.abs(b)
            rel = d * _inverse(a + 1e-7, FAST)
            s_b += b
            s_t += t
            s_bb += b * b
            s_tt += t * t
            s_d += d
            s_dd += d * d
            s_rel += rel
            if EITHER:
                surely = d > tl.maximum(atol_more, rtol_more * a)
                perhaps = d > tl.maximum(atol_less, rtol_less * a)
                n_a = tl.maximum(n_a, tl.where(d > rtol * a, d, 0.0))
                n_r = tl.maximum(n_r, tl.where(d > atol, d * _inverse(a, FAST), 0.0))
            else:
                surely = d > atol_more + rtol_more * a
                perhaps = d > atol_less + rtol_less * a
                n_a = tl.maximum(n_a, d - rtol * a)
                n_r = tl.maximum(n_r, tl.where(d > atol, (d - atol) * _inverse(a, FAST), 0.0))
            small = (a < 6.103515625e-05) & (a > 0)
            packed += (
                tl.where(surely, 1, 0) + tl.where(perhaps, 32, 0)
                + tl.where(d > 0.01 * a, 1024, 0) + tl.where(small, 32768, 0)
            )  # fmt: skip
            if MASKED:
                m_b = tl.minimum(m_b, tl.where(here, b, float("inf")))
                m_t = tl.minimum(m_t, tl.where(here, t, float("inf")))
                x_b = tl.maximum(x_b, tl.where(here, b, float("-inf")))
                x_t = tl.maximum(x_t, tl.where(here, t, float("-inf")))
            else:
                m_b = tl.minimum(m_b, b)
                m_t = tl.minimum(m_t, t)
                x_b = tl.maximum(x_b, b)
                x_t = tl.maximum(x_t, t)
            w = tl.maximum(w, d)
            v = tl.maximum(v, rel)

        all_b += tl.sum(s_b).to(tl.float64)
        all_t += tl.sum(s_t).to(tl.float64)
        all_bb += tl.sum(s_bb).to(tl.float64)
        all_tt += tl.sum(s_tt).to(tl.float64)
        all_d += tl.sum(s_d).to(tl.float64)
        all_dd += tl.sum(s_dd).to(tl.float64)
        all_rel += tl.sum(s_rel).to(tl.float64)
        all_over += tl.sum((packed >> 10) & 31).to(tl.int64)
        all_small += tl.sum(packed >> 15).to(tl.int64)
        least_b = tl.min(m_b)
        most_b = tl.max(x_b)
        low_b = tl.minimum(low_b, least_b)
        low_t = tl.minimum(low_t, tl.min(m_t))
        high_b = tl.maximum(high_b, most_b)
        high_t = tl.maximum(high_t, tl.max(x_t))
        need_a = tl.maximum(need_a, tl.max(n_a))
        need_r = tl.maximum(need_r, tl.max(n_r))
        top = tl.max(w)
        worst_start = tl.where(top > worst, start, worst_start)
        worst = tl.maximum(worst, top)
        top = tl.max(v)
        worst_rel_start = tl.where(top > worst_rel, start, worst_rel_start)
        worst_rel = tl.maximum(worst_rel, top)

        wrong_here = tl.sum(packed & 31)
        perhaps_here = tl.sum((packed >> 5) & 31)
        first_here = tl.full((), 2147483647, tl.int32)
        big_here = tl.zeros((), tl.int32)
        unknown = (perhaps_here != wrong_here) | ((perhaps_here > 0) & (all_first == FAR))
        if unknown | (tl.maximum(most_b, -least_b) > 65504.0):
            count = tl.zeros((BLOCK,), tl.int32)
            big = tl.zeros((BLOCK,), tl.int32)
            first = tl.full((BLOCK,), NOWHERE, tl.int32)
            for step in range(INNER):
                at = step * BLOCK + lane
                here = at < left
                b64 = tl.load(base_ptr + start + at, mask=here, other=0.0).to(tl.float64)
                t64 = tl.load(target_ptr + start + at, mask=here, other=0.0).to(tl.float64)
                part = rtol64 * tl.abs(b64)
                bound = tl.maximum(atol64, part) if EITHER else atol64 + part
                wrong = (tl.abs(t64 - b64) > bound) & here
                count += tl.where(wrong, 1, 0)
                big += tl.where(tl.abs(b64) > 65504.0, 1, 0)
                first = tl.minimum(first, tl.where(wrong, at, NOWHERE))
            wrong_here = tl.sum(count)
            big_here = tl.sum(big)
            first_here = tl.min(first)
        all_wrong += wrong_here.to(tl.int64)
        all_big += big_here.to(tl.int64)
        place = start.to(tl.float64) + first_here.to(tl.float64)
        all_first = tl.where((first_here < NOWHERE) & (place < all_first), place, all_first)

    first_abs = tl.full((BLOCK,), NOWHERE, tl.int32)
    first_rel = tl.full((BLOCK,), NOWHERE, tl.int32)
    for step in range(INNER):
        at = step * BLOCK + lane
        here = at < size - worst_start
        b = tl.load(base_ptr + worst_start + at, mask=here, other=0.0).to(tl.float32)
        t = tl.load(target_ptr + worst_start + at, mask=here, other=0.0).to(tl.float32)
        first_abs = tl.minimum(first_abs, tl.where(here & (tl.abs(t - b) >= worst), at, NOWHERE))
        here = at < size - worst_rel_start
        b = tl.load(base_ptr + worst_rel_start + at, mask=here, other=0.0).to(tl.float32)
        t = tl.load(target_ptr + worst_rel_start + at, mask=here, other=0.0).to(tl.float32)
        rel = tl.abs(t - b) * _inverse(tl.abs(b) + 1e-7, FAST)
        first_rel = tl.minimum(first_rel, tl.where(here & (rel >= worst_rel * LESS), at, NOWHERE))
    worst_at = worst_start.to(tl.float64) + tl.min(first_abs).to(tl.float64)
    worst_rel_at = worst_rel_start.to(tl.float64) + tl.min(first_rel).to(tl.float64)

    out = out_ptr + program * FIELDS
    tl.store(out + 0, all_b)
    tl.store(out + 1, all_t)
    tl.store(out + 2, all_bb)
    tl.store(out + 3, all_tt)
    tl.store(out + 4, all_d)
    tl.store(out + 5, all_dd)
    tl.store(out + 6, all_rel)
    tl.store(out + 7, all_wrong.to(tl.float64))
    tl.store(out + 8, all_over.to(tl.float64))
    tl.store(out + 9, all_big.to(tl.float64))
    tl.store(out + 10, all_small.to(tl.float64))
    tl.store(out + 11, low_b.to(tl.float64))
    tl.store(out + 12, low_t.to(tl.float64))
    tl.store(out + 13, all_first)
    tl.store(out + 14, high_b.to(tl.float64))
    tl.store(out + 15, high_t.to(tl.float64))
    tl.store(out + 16, need_a.to(tl.float64))
    tl.store(out + 17, need_r.to(tl.float64))
    tl.store(out + 18, worst.to(tl.float64))
    tl.store(out + 19, worst_at)
    tl.store(out + 20, worst_rel.to(tl.float64))
    tl.store(out + 21, worst_rel_at)


@functools.lru_cache(maxsize=16)
def _bounds(device: torch.device, atol: float, rtol: float) -> Any:
    return torch.tensor([atol, rtol], dtype=torch.float64, device=device)


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How the kernel is laid out: elements a step, steps that are unrolled, warps and programs a processor."""

    block: int
    unroll: int = 2
    warps: int = 8
    programs: int = 8


def reduced(base: Any, target: Any, atol: float, rtol: float, either: bool, shape: Shape | None = None) -> Any:
    """One row of FIELDS a program, float64 on the device: shape [programs, len(FIELDS)], not yet combined.

    base, target: contiguous, of equal size (at least 1) and of float16, bfloat16 or float32. The values hold only where
    the SUMS of every row are finite.
    """
    size = base.numel()
    narrow = max(base.element_size(), target.element_size()) == 2
    shape = shape or (Shape(block=1024, warps=16) if narrow else Shape(block=512, warps=8))
    whole, rest = divmod(size, shape.block * INNER)
    programs = min(whole, _processors(base.device) * shape.programs)
    out = torch.empty((programs + (rest > 0), len(FIELDS)), dtype=torch.float64, device=base.device)
    bounds = _bounds(base.device, atol, rtol)
    # chunks that are full need no mask, and are read in wider loads for it; the last one follows by itself
    for grid, row, first, last in ((programs, 0, 0, whole), (int(rest > 0), programs, whole, whole + 1)):
        if grid:
            _kernel[(grid,)](
                base, target, out[row:], bounds, size, first, last, MASKED=row > 0 or whole == 0, EITHER=either,
                FAST=base.is_cuda, BLOCK=shape.block, INNER=INNER, UNROLL=shape.unroll, FIELDS=len(FIELDS),
                num_warps=shape.warps,
            )  # fmt: skip
    return out
