# Triton has no types, and its functions are compiled, not called.
# mypy: ignore-errors
"""The first look of ``scan``: one chunk's sums, extremes and, where something has failed before, counts."""

from __future__ import annotations

import triton
import triton.language as tl

from .kernel import (
    DOUBT,
    TINY,
    _below_normal,
    _higher,
    _inverse,
    _lower,
    _negative,
    _not_tiny,
    _subnormal_halves,
)  # fmt: skip

__all__: list[str] = []


@triton.jit
def _hidden(x, FAST: tl.constexpr):  # noqa: N803
    """x as float32. Triton rewrites a loop that sums what it has just loaded, and fails where it loads ahead."""
    if FAST and x.dtype == tl.float32:
        return tl.inline_asm_elementwise("mov.b32 $0, $1;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1)
    else:  # noqa: RET505
        return x.to(tl.float32)


@triton.jit
def _look(base_ptr, target_ptr, at, left, MASKED: tl.constexpr, FAST: tl.constexpr):  # noqa: N803
    if MASKED:
        b = tl.load(base_ptr + at, mask=at < left, other=0.0)
        t = tl.load(target_ptr + at, mask=at < left, other=0.0)
    else:
        b = tl.load(base_ptr + at)
        t = tl.load(target_ptr + at)
    if not FAST:  # the interpreter takes bfloat16 for whole numbers
        b, t = b.to(tl.float32), t.to(tl.float32)
    return b, t


@triton.jit
def _group(
    base_ptr, target_ptr, place, size, MASKED: tl.constexpr, FAST: tl.constexpr, STEP: tl.constexpr,  # noqa: N803
    MANY: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """2 or 4 steps; of 2, the first two again."""
    b0, t0 = _look(base_ptr, target_ptr, place, size, MASKED, FAST)
    b1, t1 = _look(base_ptr, target_ptr, STEP + place, size, MASKED, FAST)
    if MANY == 4:
        b2, t2 = _look(base_ptr, target_ptr, 2 * STEP + place, size, MASKED, FAST)
        b3, t3 = _look(base_ptr, target_ptr, 3 * STEP + place, size, MASKED, FAST)
    else:
        b2, t2, b3, t3 = b0, t0, b1, t1
    return b0, t0, b1, t1, b2, t2, b3, t3


@triton.jit
def _excess(d, a, atol, rtol, EITHER: tl.constexpr, STRICT: tl.constexpr):  # noqa: N803
    """What the tolerance would have to be larger by is ``excess - atol``, or ``excess`` of "either"."""
    excess = d - rtol * a
    if EITHER:
        excess = tl.minimum(excess, d - atol)
    if STRICT:
        excess = tl.where(d > 0, excess, float("-inf"))
    return excess


@triton.jit
def _first_look(
    base_ptr, target_ptr, start, after, place, left, size, atol, rtol, slack, raised, need_a, m_b, m_t, x_b, x_t,
    next0_b, next0_t, next1_b, next1_t, next2_b, next2_t, next3_b, next3_t,
    MASKED: tl.constexpr, EITHER: tl.constexpr, STRICT: tl.constexpr, FAST: tl.constexpr,  # noqa: N803
    LANES: tl.constexpr, WIDE: tl.constexpr, INNER: tl.constexpr, UNROLL: tl.constexpr,  # noqa: N803
    AHEAD: tl.constexpr, COUNT: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """One chunk's sums and extremes; where it is to be counted anew, and where something fails or nearly does."""
    HALVES: tl.constexpr = FAST and base_ptr.dtype.element_ty == tl.float16  # noqa: N806
    STEP: tl.constexpr = LANES * WIDE  # noqa: N806
    s_b = tl.zeros((LANES,), tl.float32)
    s_t = tl.zeros((LANES,), tl.float32)
    s_d = tl.zeros((LANES,), tl.float32)
    s_bb = tl.zeros((LANES,), tl.float32)
    s_tt = tl.zeros((LANES,), tl.float32)
    s_dd = tl.zeros((LANES,), tl.float32)
    s_rel = tl.zeros((LANES,), tl.float32)
    n_over = tl.zeros((LANES,), tl.int32)
    n_small = tl.zeros((LANES, WIDE), tl.float16 if HALVES else tl.float32)
    w = tl.zeros((LANES,), tl.float32)
    v = tl.zeros((LANES,), tl.float32)
    x = tl.full((LANES,), float("-inf"), tl.float32)
    y = tl.full((LANES,), float("-inf"), tl.float32)
    n_wrong = tl.zeros((LANES,), tl.int32)
    near = tl.full((LANES,), float("inf"), tl.float32)
    for turn in tl.range(0, INNER // UNROLL, loop_unroll_factor=1):
        if AHEAD > 1:
            now0_b, now0_t, now1_b, now1_t = next0_b, next0_t, next1_b, next1_t
            now2_b, now2_t, now3_b, now3_t = next2_b, next2_t, next3_b, next3_t
            ahead = tl.where(turn + 1 < INNER // UNROLL, start + (turn + 1) * (UNROLL * STEP), after)
            next0_b, next0_t, next1_b, next1_t, next2_b, next2_t, next3_b, next3_t = _group(
                base_ptr + ahead, target_ptr + ahead, place, size, MASKED, FAST, STEP, UNROLL
            )
        for part in tl.static_range(UNROLL):
            step = turn * UNROLL + part
            if AHEAD > 1:
                if part == 0:
                    raw_b, raw_t = now0_b, now0_t
                elif part == 1:
                    raw_b, raw_t = now1_b, now1_t
                elif part == 2:
                    raw_b, raw_t = now2_b, now2_t
                else:
                    raw_b, raw_t = now3_b, now3_t
            elif AHEAD:
                raw_b, raw_t = next0_b, next0_t
                ahead = tl.where(step + 1 < INNER, start + (step + 1) * STEP, after)
                next0_b, next0_t = _look(base_ptr + ahead, target_ptr + ahead, place, size, MASKED, FAST)
            else:
                raw_b, raw_t = _look(base_ptr + start, target_ptr + start, step * STEP + place, left, MASKED, FAST)
            if MASKED:
                here = step * STEP + place < left
                m_b = _lower(m_b, tl.where(here, raw_b, float("inf")).to(raw_b.dtype), FAST)
                m_t = _lower(m_t, tl.where(here, raw_t, float("inf")).to(raw_t.dtype), FAST)
                x_b = _higher(x_b, tl.where(here, raw_b, float("-inf")).to(raw_b.dtype), FAST)
                x_t = _higher(x_t, tl.where(here, raw_t, float("-inf")).to(raw_t.dtype), FAST)
            else:
                m_b = _lower(m_b, raw_b, FAST)
                m_t = _lower(m_t, raw_t, FAST)
                x_b = _higher(x_b, raw_b, FAST)
                x_t = _higher(x_t, raw_t, FAST)
            b = raw_b.to(tl.float32)
            t = raw_t.to(tl.float32)
            d = tl.abs(t - b)
            a = tl.abs(b)
            rel = d * _inverse(a + 1e-7, FAST)
            s_b += tl.sum(_hidden(raw_b, FAST), 1)
            s_t += tl.sum(_hidden(raw_t, FAST), 1)
            s_bb += tl.sum(b * b, 1)
            s_tt += tl.sum(t * t, 1)
            s_d += tl.sum(d, 1)
            s_dd += tl.sum(d * d, 1)
            s_rel += tl.sum(rel, 1)
            excess = _excess(d, a, atol, rtol, EITHER, STRICT)
            if COUNT:
                room = -excess if EITHER else atol - excess
                n_wrong += tl.sum(_negative(room), 1)
                near = tl.minimum(near, tl.min(tl.abs(room), 1))
            if not COUNT or not EITHER:
                x = tl.maximum(x, tl.max(excess, 1))
            rise = d - raised * a
            if EITHER:
                need_a = tl.maximum(need_a, tl.max(tl.where(d > rtol * a, d, 0.0), 1))
                rise = tl.minimum(rise, d - atol)
            y = tl.maximum(y, tl.max(rise, 1))
            n_over += tl.sum(_negative(0.01 * a - d), 1)
            if HALVES:
                n_small = _subnormal_halves(raw_b, n_small)
            else:
                n_small += _below_normal(a, FAST) * _not_tiny(a + TINY, FAST)
            w = tl.maximum(w, tl.max(d, 1))
            v = tl.maximum(v, tl.max(rel, 1))
    need = tl.zeros((LANES,), tl.float32) if EITHER else atol + tl.zeros((LANES,), tl.float32)
    again = y > need
    if COUNT:
        doubtful = near < DOUBT * w + slack
        fails = doubtful | (n_wrong > 0)
    else:
        doubtful = x > need - (DOUBT * w + slack)
        fails = doubtful
        again |= fails
    if not EITHER:
        need_a = tl.maximum(need_a, x)
    small = tl.sum(n_small.to(tl.float32), 1).to(tl.int32)
    return (
        s_b, s_t, s_bb, s_tt, s_d, s_dd, s_rel, n_over, small, w, v, n_wrong, again.to(tl.int32), doubtful.to(tl.int32),
        fails.to(tl.int32),
        need_a, m_b, m_t, x_b, x_t, next0_b, next0_t, next1_b, next1_t, next2_b, next2_t, next3_b, next3_t,
    )  # fmt: skip
