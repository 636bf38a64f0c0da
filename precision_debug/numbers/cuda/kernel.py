# Triton has no types, and its functions are compiled, not called.
# mypy: ignore-errors
"""The Triton kernels of ``compare``: every sum, extreme and count of two float tensors in one reading.

A thread reads ``wide`` neighbouring elements at a time, and ``INNER`` times, before its float32 sums are added to its
float64 ones: a chunk. No thread waits for another but for one vote a chunk: a chunk is read once more, from the cache
and in float64, where float32 cannot decide an element against the tolerance or where something lies beyond float16.
Of extremes only the chunk is remembered. A second, small kernel adds the programs up and looks for the places of the
extremes in those chunks, in float64. NaN and infinity show in the sums.

Bandwidth leaves a 16-bit pair some 40 instructions an element, hence the saturated products that count, the sign bits,
and two 16-bit numbers at a time.
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
FIELDS = (
    *SUMS, "mismatched", "over_1pct", "overflow", "subnormal", "base_min", "target_min", "first_mismatch", "base_max",
    "target_max", "required_atol", "required_rtol", "max_abs", "max_abs_at", "max_rel", "max_rel_at",
)  # fmt: skip

DOUBT = tl.constexpr(4e-7)
LESS = tl.constexpr(1 - 6e-7)
NOWHERE = tl.constexpr(2147483647)
TINY = tl.constexpr(1e-30)


@triton.jit
def _inverse(x, FAST: tl.constexpr):  # noqa: N803
    if FAST:
        return tl.inline_asm_elementwise(
            "rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return 1.0 / x


@triton.jit
def _negative(x):
    """1 where x < 0, else 0: the sign bit."""
    return (x.to(tl.uint32, bitcast=True) >> 31).to(tl.int32)


@triton.jit
def _over_1pct(x, FAST: tl.constexpr):  # noqa: N803
    """1.0 where x > 0.01: (x - 0.01) * 2**100, saturated."""
    if FAST:
        return tl.inline_asm_elementwise(
            "fma.rn.ftz.sat.f32 $0, $1, 0f71800000, 0fEE23D70A;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.where(x > 0.01, 1.0, 0.0)


@triton.jit
def _below_normal(x, FAST: tl.constexpr):  # noqa: N803
    """1.0 where x < 2**-14: (2**-14 - x) * 2**100, saturated."""
    if FAST:
        return tl.inline_asm_elementwise(
            "fma.rn.ftz.sat.f32 $0, $1, 0fF1800000, 0f6A800000;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.where(x < 6.103515625e-05, 1.0, 0.0)


@triton.jit
def _not_tiny(x, FAST: tl.constexpr):  # noqa: N803
    """1.0 where x > 1e-30, of a sum with 1e-30: (x - 1e-30) * 2**120, saturated."""
    if FAST:
        return tl.inline_asm_elementwise(
            "fma.rn.ftz.sat.f32 $0, $1, 0f7B800000, 0fC9A24260;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
        )
    return tl.where(x > 1e-30, 1.0, 0.0)


@triton.jit
def _lower(x, y, FAST: tl.constexpr):  # noqa: N803
    """The smaller of each; two 16-bit numbers at a time."""
    if FAST and x.dtype == tl.float16:
        return tl.inline_asm_elementwise(
            "min.f16x2 $0, $1, $2;", "=r,r,r", [x, y], dtype=tl.float16, is_pure=True, pack=2
        )
    elif FAST and x.dtype == tl.bfloat16:  # noqa: RET505
        return tl.inline_asm_elementwise(
            "min.bf16x2 $0, $1, $2;", "=r,r,r", [x, y], dtype=tl.bfloat16, is_pure=True, pack=2
        )
    else:
        return tl.minimum(x, y)


@triton.jit
def _higher(x, y, FAST: tl.constexpr):  # noqa: N803
    if FAST and x.dtype == tl.float16:
        return tl.inline_asm_elementwise(
            "max.f16x2 $0, $1, $2;", "=r,r,r", [x, y], dtype=tl.float16, is_pure=True, pack=2
        )
    elif FAST and x.dtype == tl.bfloat16:  # noqa: RET505
        return tl.inline_asm_elementwise(
            "max.bf16x2 $0, $1, $2;", "=r,r,r", [x, y], dtype=tl.bfloat16, is_pure=True, pack=2
        )
    else:
        return tl.maximum(x, y)


@triton.jit
def _subnormal_halves(x, count):
    """count + 1 where x, of float16, is subnormal; two at a time."""
    return tl.inline_asm_elementwise(
        """
        {
            .reg .b32 size, below, not_zero, limit, zero;
            mov.b32 limit, 0x04000400;
            mov.b32 zero, 0;
            abs.f16x2 size, $1;
            set.lt.f16x2.f16x2 below, size, limit;
            set.ne.f16x2.f16x2 not_zero, $1, zero;
            fma.rn.f16x2 $0, below, not_zero, $2;
        }
        """,
        "=r,r,r", [x, count], dtype=tl.float16, is_pure=True, pack=2,
    )  # fmt: skip


@triton.jit
def _wrong(b64, t64, atol64, rtol64, EITHER: tl.constexpr):  # noqa: N803
    part = rtol64 * tl.abs(b64)
    bound = tl.maximum(atol64, part) if EITHER else atol64 + part
    return tl.abs(t64 - b64) > bound


@triton.jit(do_not_specialize=["size", "from_chunk", "to_chunk", "row", "rows"])
def _kernel(
    base_ptr, target_ptr, out_ptr, tolerance_ptr, size, from_chunk, to_chunk, row, rows,
    MASKED: tl.constexpr, EITHER: tl.constexpr, STRICT: tl.constexpr, FAST: tl.constexpr,  # noqa: N803
    LANES: tl.constexpr, WIDE: tl.constexpr, INNER: tl.constexpr, UNROLL: tl.constexpr,  # noqa: N803
):  # fmt: skip
    HALVES: tl.constexpr = FAST and base_ptr.dtype.element_ty == tl.float16  # noqa: N806
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    atol64 = tl.load(tolerance_ptr)
    rtol64 = tl.load(tolerance_ptr + 1)
    atol = atol64.to(tl.float32)
    rtol = rtol64.to(tl.float32)
    slack = rtol * (4 * TINY) + 1e-37  # what TINY adds to a magnitude, and denormal numbers
    place = tl.arange(0, LANES)[:, None] * WIDE + tl.arange(0, WIDE)[None, :]

    all_b = tl.zeros((LANES,), tl.float64)
    all_t = tl.zeros((LANES,), tl.float64)
    all_bb = tl.zeros((LANES,), tl.float64)
    all_tt = tl.zeros((LANES,), tl.float64)
    all_d = tl.zeros((LANES,), tl.float64)
    all_dd = tl.zeros((LANES,), tl.float64)
    all_rel = tl.zeros((LANES,), tl.float64)
    all_wrong = tl.zeros((LANES,), tl.int32)
    all_over = tl.zeros((LANES,), tl.int32)
    all_big = tl.zeros((LANES,), tl.int32)
    all_small = tl.zeros((LANES,), tl.int32)
    low_b = tl.full((LANES,), float("inf"), tl.float32)
    low_t = tl.full((LANES,), float("inf"), tl.float32)
    high_b = tl.full((LANES,), float("-inf"), tl.float32)
    high_t = tl.full((LANES,), float("-inf"), tl.float32)
    need_a = tl.zeros((LANES,), tl.float32)
    need_r = tl.zeros((LANES,), tl.float32)
    worst = tl.full((LANES,), -1.0, tl.float32)
    worst_rel = tl.full((LANES,), -1.0, tl.float32)
    worst_chunk = tl.zeros((LANES,), tl.int32)
    worst_rel_chunk = tl.zeros((LANES,), tl.int32)
    first_chunk = tl.full((LANES,), NOWHERE, tl.int32)

    for chunk in range(from_chunk + program, to_chunk, programs):
        start = (tl.zeros((), tl.int64) + chunk) * (LANES * WIDE * INNER)
        left = tl.minimum(size - start, LANES * WIDE * INNER).to(tl.int32)
        s_b = tl.zeros((LANES,), tl.float32)
        s_t = tl.zeros((LANES,), tl.float32)
        s_d = tl.zeros((LANES,), tl.float32)
        s_rel = tl.zeros((LANES,), tl.float32)
        n_wrong = tl.zeros((LANES,), tl.int32)
        n_over = tl.zeros((LANES,), tl.float32)
        s_bb = tl.zeros((LANES, WIDE), tl.float32)
        s_tt = tl.zeros((LANES, WIDE), tl.float32)
        s_dd = tl.zeros((LANES, WIDE), tl.float32)
        n_small = tl.zeros((LANES, WIDE), tl.float16 if HALVES else tl.float32)
        m_b = tl.full((LANES, WIDE), float("inf"), base_ptr.dtype.element_ty)
        m_t = tl.full((LANES, WIDE), float("inf"), target_ptr.dtype.element_ty)
        x_b = tl.full((LANES, WIDE), float("-inf"), base_ptr.dtype.element_ty)
        x_t = tl.full((LANES, WIDE), float("-inf"), target_ptr.dtype.element_ty)
        if not FAST:  # the interpreter takes bfloat16 for whole numbers
            m_b, m_t, x_b, x_t = m_b.to(tl.float32), m_t.to(tl.float32), x_b.to(tl.float32), x_t.to(tl.float32)
        near = tl.full((LANES,), float("inf"), tl.float32)
        w = tl.zeros((LANES,), tl.float32)
        v = tl.zeros((LANES,), tl.float32)
        for step in tl.range(0, INNER, loop_unroll_factor=UNROLL):
            at = step * (LANES * WIDE) + place
            if MASKED:
                here = at < left
                raw_b = tl.load(base_ptr + start + at, mask=here, other=0.0)
                raw_t = tl.load(target_ptr + start + at, mask=here, other=0.0)
                if not FAST:
                    raw_b, raw_t = raw_b.to(tl.float32), raw_t.to(tl.float32)
                m_b = _lower(m_b, tl.where(here, raw_b, float("inf")).to(raw_b.dtype), FAST)
                m_t = _lower(m_t, tl.where(here, raw_t, float("inf")).to(raw_t.dtype), FAST)
                x_b = _higher(x_b, tl.where(here, raw_b, float("-inf")).to(raw_b.dtype), FAST)
                x_t = _higher(x_t, tl.where(here, raw_t, float("-inf")).to(raw_t.dtype), FAST)
            else:
                raw_b = tl.load(base_ptr + start + at)
                raw_t = tl.load(target_ptr + start + at)
                if not FAST:
                    raw_b, raw_t = raw_b.to(tl.float32), raw_t.to(tl.float32)
                m_b = _lower(m_b, raw_b, FAST)
                m_t = _lower(m_t, raw_t, FAST)
                x_b = _higher(x_b, raw_b, FAST)
                x_t = _higher(x_t, raw_t, FAST)
            b = raw_b.to(tl.float32)
            t = raw_t.to(tl.float32)
            d = tl.abs(t - b)
            a = tl.abs(b) + TINY
            rel = d * _inverse(a + 1e-7, FAST)
            inverse = _inverse(a, FAST)
            share = d * inverse
            # negated: Triton would turn a sum of what was just loaded into one accumulator an element
            s_b -= tl.sum(-b, 1)
            s_t -= tl.sum(-t, 1)
            s_bb += b * b
            s_tt += t * t
            s_d += tl.sum(d, 1)
            s_dd += d * d
            s_rel += tl.sum(rel, 1)
            if EITHER:
                part = rtol * a
                room = tl.maximum(atol, part) - d
                need_a = tl.maximum(need_a, tl.max(tl.where(d > part, d, 0.0), 1))
                need_r = tl.maximum(need_r, tl.max(tl.where(d > atol, share, 0.0), 1))
            else:
                excess = d - rtol * a
                room = atol - excess
                need_a = tl.maximum(need_a, tl.max(excess, 1))
                need_r = tl.maximum(need_r, tl.max(share - atol * inverse, 1))
            n_wrong += tl.sum(_negative(room), 1)
            gap = tl.abs(room)
            if STRICT:
                gap = tl.where(d > 0, gap, float("inf"))
            near = tl.minimum(near, tl.min(gap, 1))
            n_over += tl.sum(_over_1pct(share, FAST), 1)
            if HALVES:
                n_small = _subnormal_halves(raw_b, n_small)
            else:
                n_small += _below_normal(a, FAST) * _not_tiny(a, FAST)
            w = tl.maximum(w, tl.max(d, 1))
            v = tl.maximum(v, tl.max(rel, 1))

        all_b += s_b.to(tl.float64)
        all_t += s_t.to(tl.float64)
        all_bb += tl.sum(s_bb, 1).to(tl.float64)
        all_tt += tl.sum(s_tt, 1).to(tl.float64)
        all_d += s_d.to(tl.float64)
        all_dd += tl.sum(s_dd, 1).to(tl.float64)
        all_rel += s_rel.to(tl.float64)
        all_over += n_over.to(tl.int32)
        all_small += tl.sum(n_small.to(tl.float32), 1).to(tl.int32)
        least_b = tl.min(m_b.to(tl.float32), 1)
        most_b = tl.max(x_b.to(tl.float32), 1)
        low_b = tl.minimum(low_b, least_b)
        high_b = tl.maximum(high_b, most_b)
        low_t = tl.minimum(low_t, tl.min(m_t.to(tl.float32), 1))
        high_t = tl.maximum(high_t, tl.max(x_t.to(tl.float32), 1))
        worst_chunk = tl.where(w > worst, chunk, worst_chunk)
        worst = tl.maximum(worst, w)
        worst_rel_chunk = tl.where(v > worst_rel, chunk, worst_rel_chunk)
        worst_rel = tl.maximum(worst_rel, v)

        wrong_here = n_wrong
        careful = (near < DOUBT * w + slack) | (tl.maximum(most_b, -least_b) > 65504.0)
        if tl.max(careful.to(tl.int32)) > 0:
            wrong_here = tl.zeros((LANES,), tl.int32)
            for step in range(INNER):
                at = step * (LANES * WIDE) + place
                here = at < left
                b64 = tl.load(base_ptr + start + at, mask=here, other=0.0).to(tl.float64)
                t64 = tl.load(target_ptr + start + at, mask=here, other=0.0).to(tl.float64)
                wrong = _wrong(b64, t64, atol64, rtol64, EITHER) & here
                wrong_here += tl.sum(wrong.to(tl.int32), 1)
                all_big += tl.sum((tl.abs(b64) > 65504.0).to(tl.int32), 1)
        all_wrong += wrong_here
        first_chunk = tl.where(wrong_here > 0, tl.minimum(first_chunk, chunk), first_chunk)

    out = out_ptr + row + program
    tl.store(out, tl.sum(all_b))
    tl.store(out + rows, tl.sum(all_t))
    tl.store(out + 2 * rows, tl.sum(all_bb))
    tl.store(out + 3 * rows, tl.sum(all_tt))
    tl.store(out + 4 * rows, tl.sum(all_d))
    tl.store(out + 5 * rows, tl.sum(all_dd))
    tl.store(out + 6 * rows, tl.sum(all_rel))
    tl.store(out + 7 * rows, tl.sum(all_wrong.to(tl.int64)).to(tl.float64))
    tl.store(out + 8 * rows, tl.sum(all_over.to(tl.int64)).to(tl.float64))
    tl.store(out + 9 * rows, tl.sum(all_big.to(tl.int64)).to(tl.float64))
    tl.store(out + 10 * rows, tl.sum(all_small.to(tl.int64)).to(tl.float64))
    tl.store(out + 11 * rows, tl.min(low_b).to(tl.float64))
    tl.store(out + 12 * rows, tl.min(low_t).to(tl.float64))
    tl.store(out + 13 * rows, tl.min(first_chunk).to(tl.float64))
    tl.store(out + 14 * rows, tl.max(high_b).to(tl.float64))
    tl.store(out + 15 * rows, tl.max(high_t).to(tl.float64))
    tl.store(out + 16 * rows, tl.max(need_a).to(tl.float64))
    tl.store(out + 17 * rows, tl.max(need_r).to(tl.float64))
    top = tl.max(worst)
    tl.store(out + 18 * rows, top.to(tl.float64))
    tl.store(out + 19 * rows, tl.min(tl.where(worst == top, worst_chunk, NOWHERE)).to(tl.float64))
    top = tl.max(worst_rel)
    tl.store(out + 20 * rows, top.to(tl.float64))
    tl.store(out + 21 * rows, tl.min(tl.where(worst_rel == top, worst_rel_chunk, NOWHERE)).to(tl.float64))


@triton.jit(do_not_specialize=["size", "rows"])
def _combine(
    base_ptr, target_ptr, out_ptr, tolerance_ptr, row_ptr, size, rows,
    CHUNK: tl.constexpr, EITHER: tl.constexpr, FAST: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """Program f makes field f of the one row; those of places look them up in the chunk that the programs name."""
    field = tl.program_id(0)
    lane = tl.arange(0, BLOCK)
    column = out_ptr + field * rows
    total = tl.zeros((BLOCK,), tl.float64)
    low = tl.full((BLOCK,), float("inf"), tl.float64)
    high = tl.full((BLOCK,), float("-inf"), tl.float64)
    for first in range(0, rows, BLOCK):
        here = first + lane < rows
        value = tl.load(column + first + lane, mask=here, other=0.0)
        total += value
        low = tl.minimum(low, tl.where(here, value, float("inf")))
        high = tl.maximum(high, tl.where(here, value, float("-inf")))
    result = tl.sum(total)
    least = tl.min(low)
    most = tl.max(high)
    if (field == 11) | (field == 12):
        result = least
    if (field >= 14) & (field <= 17):
        result = most
    place = result
    if (field == 13) | (field == 18) | (field == 20):
        chunk = least
        if field != 13:
            low = tl.full((BLOCK,), float("inf"), tl.float64)
            for first in range(0, rows, BLOCK):
                here = first + lane < rows
                value = tl.load(column + first + lane, mask=here, other=-2.0)
                number = tl.load(column + rows + first + lane, mask=here, other=0.0)
                low = tl.minimum(low, tl.where(value == most, number, float("inf")))
            chunk = tl.min(low)
        result = least * 0 - 1
        place = result
        if chunk < NOWHERE:
            start = chunk.to(tl.int64) * CHUNK
            found = tl.full((BLOCK,), NOWHERE, tl.int32)
            top = most.to(tl.float32)
            atol64 = tl.load(tolerance_ptr)
            rtol64 = tl.load(tolerance_ptr + 1)
            for first in range(0, CHUNK, BLOCK):
                at = first + lane
                here = at < size - start
                b = tl.load(base_ptr + start + at, mask=here, other=0.0).to(tl.float32)
                t = tl.load(target_ptr + start + at, mask=here, other=0.0).to(tl.float32)
                d = tl.abs(t - b)
                hit = _wrong(b.to(tl.float64), t.to(tl.float64), atol64, rtol64, EITHER)
                if field == 18:
                    hit = d >= top
                if field == 20:
                    hit = d * _inverse(tl.abs(b) + TINY + 1e-7, FAST) >= top * LESS
                found = tl.minimum(found, tl.where(here & hit, at, NOWHERE))
            index = tl.minimum(start + tl.min(found), size - 1)  # nothing is found among NaNs
            place = index.to(tl.float64)
            result = place
            if field != 13:
                b64 = tl.load(base_ptr + index).to(tl.float64)
                t64 = tl.load(target_ptr + index).to(tl.float64)
                result = tl.abs(t64 - b64)
                if field == 20:
                    result = result / (tl.abs(b64) + 1e-7)
    if (field != 19) & (field != 21):
        tl.store(row_ptr + field, result)
    if (field == 18) | (field == 20):
        tl.store(row_ptr + field + 1, place)


@functools.lru_cache(maxsize=16)
def _bounds(device: torch.device, atol: float, rtol: float) -> Any:
    return torch.tensor([atol, rtol], dtype=torch.float64, device=device)


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 4


@dataclass(frozen=True, kw_only=True)
class Shape:
    """How the kernel is laid out: neighbours a thread reads at once, how often in a chunk and how often unrolled; warps
    a program, programs a processor, and at most how many registers a thread."""

    wide: int
    inner: int = 32
    unroll: int = 2
    warps: int = 1
    programs: int = 16
    registers: int | None = None


def reduced(
    base: Any, target: Any, atol: float, rtol: float, either: bool, row: Any, shape: Shape | None = None
) -> None:  # fmt: skip
    """Write FIELDS into row: float64 [len(FIELDS)] on the device. first_mismatch is -1 where there is none.

    base, target: contiguous, of equal size (at least 1) and of float16, bfloat16 or float32. The values hold only where
    the SUMS are finite.
    """
    size = base.numel()
    wide = 8 if max(base.element_size(), target.element_size()) == 2 else 4
    shape = shape or Shape(wide=wide, inner=128 // wide, programs=12 if wide == 8 else 16)
    chunk = shape.warps * 32 * shape.wide * shape.inner
    whole, rest = divmod(size, chunk)
    programs = min(whole, _processors(base.device) * shape.programs)
    rows = programs + (rest > 0)
    partial = torch.empty((len(FIELDS), rows), dtype=torch.float64, device=base.device)
    bounds = _bounds(base.device, atol, rtol)
    # chunks that are full need no mask, and are read in wider loads for it; the last one follows by itself
    for grid, offset, first, last in ((programs, 0, 0, whole), (int(rest > 0), programs, whole, whole + 1)):
        if grid:
            _kernel[(grid,)](
                base, target, partial, bounds, size, first, last, offset, rows, MASKED=first == whole, EITHER=either,
                STRICT=atol == 0, FAST=base.is_cuda, LANES=32 * shape.warps, WIDE=shape.wide, INNER=shape.inner,
                UNROLL=shape.unroll, num_warps=shape.warps, maxnreg=shape.registers,
            )  # fmt: skip
    _combine[(len(FIELDS),)](
        base, target, partial, bounds, row, size, rows, CHUNK=chunk, EITHER=either, FAST=base.is_cuda, BLOCK=1024,
        num_warps=8,
    )  # fmt: skip
