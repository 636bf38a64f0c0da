# Triton has no types, and its functions are compiled, not called.
# mypy: ignore-errors
"""One reading of two float tensors in float64: what ``scan`` leaves, which float32 cannot hold.

NaN, infinities (a masked attention's -inf), magnitudes whose squares leave float32 (finfo.min in such a mask), norms
that are far apart, and float64 tensors. Every number is float64's, each place the first of its kind; sums differ from
those of ``compare._piece`` by their order of addition alone.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ...records import Tolerance
from ..totals import Scales
from .kernel import _processors

__all__ = ["FIELDS", "read_exactly"]

SUMS = (
    "base_nan", "base_inf", "base_sum", "base_squares", "target_nan", "target_inf", "target_sum", "target_squares",
    "finite", "mismatched", "special", "over_1pct", "overflow", "subnormal",
    "sum_abs", "sum_rel", "squares", "pair_base_squares", "pair_target_squares", "dot",
)  # fmt: skip
LEAST = ("base_min", "target_min", "first_mismatch", "first_infinite")
MOST = ("base_max", "target_max", "required_atol", "required_rtol")
PLACED = ("max_abs", "max_rel")
FIELDS = (*SUMS, *LEAST, *MOST, *PLACED, "max_abs_at", "max_rel_at")

NOWHERE = tl.constexpr((1 << 63) - 1)
"""An index that no element has."""

_LANES, _WIDE, _STEPS = 128, 2, 32
_PROGRAMS = 8


@triton.jit
def _scaled(x, factors_ptr):
    """x times two factors, whose product may lie beyond float64."""
    return x * tl.load(factors_ptr) * tl.load(factors_ptr + 1)


@triton.jit(do_not_specialize=["size", "rows"])
def _exact(
    base_ptr, target_ptr, out_ptr, tolerance_ptr, size, rows,
    EITHER: tl.constexpr, EQUAL_NAN: tl.constexpr, SCALED: tl.constexpr,  # noqa: N803
    LANES: tl.constexpr, WIDE: tl.constexpr, STEPS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    CHUNK: tl.constexpr = LANES * WIDE * STEPS  # noqa: N806
    program = tl.program_id(0).to(tl.int64)
    atol = tl.load(tolerance_ptr)
    rtol = tl.load(tolerance_ptr + 1)
    lane = tl.arange(0, LANES)[:, None] * WIDE + tl.arange(0, WIDE)[None, :]
    inf = float("inf")
    nowhere = tl.full((LANES,), NOWHERE, tl.int64)

    s_b = tl.zeros((LANES,), tl.float64)
    s_bb = tl.zeros((LANES,), tl.float64)
    s_t = tl.zeros((LANES,), tl.float64)
    s_tt = tl.zeros((LANES,), tl.float64)
    s_d = tl.zeros((LANES,), tl.float64)
    s_rel = tl.zeros((LANES,), tl.float64)
    s_dd = tl.zeros((LANES,), tl.float64)
    p_bb = tl.zeros((LANES,), tl.float64)
    p_tt = tl.zeros((LANES,), tl.float64)
    p_bt = tl.zeros((LANES,), tl.float64)
    n_b_nan = tl.zeros((LANES,), tl.int32)
    n_b_inf = tl.zeros((LANES,), tl.int32)
    n_t_nan = tl.zeros((LANES,), tl.int32)
    n_t_inf = tl.zeros((LANES,), tl.int32)
    n_finite = tl.zeros((LANES,), tl.int32)
    n_wrong = tl.zeros((LANES,), tl.int32)
    n_special = tl.zeros((LANES,), tl.int32)
    n_over = tl.zeros((LANES,), tl.int32)
    n_big = tl.zeros((LANES,), tl.int32)
    n_small = tl.zeros((LANES,), tl.int32)
    low_b = tl.full((LANES,), inf, tl.float64)
    low_t = tl.full((LANES,), inf, tl.float64)
    high_b = tl.full((LANES,), -inf, tl.float64)
    high_t = tl.full((LANES,), -inf, tl.float64)
    need_a = tl.zeros((LANES,), tl.float64)
    need_r = tl.zeros((LANES,), tl.float64)
    worst = tl.full((LANES,), -1.0, tl.float64)
    worst_rel = tl.full((LANES,), -1.0, tl.float64)
    worst_at, worst_rel_at, wrong_at, infinite_at = nowhere, nowhere, nowhere, nowhere

    for start in range(program * CHUNK, size, tl.num_programs(0).to(tl.int64) * CHUNK):
        for step in range(STEPS):
            at = start + step * (LANES * WIDE) + lane
            here = at < size
            b = tl.load(base_ptr + at, mask=here, other=0.0)
            t = tl.load(target_ptr + at, mask=here, other=0.0)
            if base_ptr.dtype.element_ty != tl.float64:
                b = b.to(tl.float32)
            if target_ptr.dtype.element_ty != tl.float64:
                t = t.to(tl.float32)
            b = b.to(tl.float64)
            t = t.to(tl.float64)
            a = tl.abs(b)
            b_nan = b != b  # noqa: PLR0124
            t_nan = t != t  # noqa: PLR0124
            b_inf = a == inf
            t_inf = tl.abs(t) == inf
            b_finite = here & (a < inf)
            t_finite = here & (tl.abs(t) < inf)
            finite = b_finite & t_finite
            fb = tl.where(b_finite, b, 0.0)
            ft = tl.where(t_finite, t, 0.0)
            if SCALED:
                fb = _scaled(fb, tolerance_ptr + 2)
                ft = _scaled(ft, tolerance_ptr + 4)
            s_b += tl.sum(fb, 1)
            s_bb += tl.sum(fb * fb, 1)
            s_t += tl.sum(ft, 1)
            s_tt += tl.sum(ft * ft, 1)
            low_b = tl.minimum(low_b, tl.min(tl.where(b_finite, b, inf), 1))
            high_b = tl.maximum(high_b, tl.max(tl.where(b_finite, b, -inf), 1))
            low_t = tl.minimum(low_t, tl.min(tl.where(t_finite, t, inf), 1))
            high_t = tl.maximum(high_t, tl.max(tl.where(t_finite, t, -inf), 1))

            fb = tl.where(finite, b, 0.0)
            ft = tl.where(finite, t, 0.0)
            m = tl.abs(fb)
            d = tl.abs(ft - fb)
            part = rtol * m
            rel = d / (m + 1e-7)
            s_rel += tl.sum(rel, 1)
            small_d = d
            if SCALED:
                small_d = _scaled(d, tolerance_ptr + 6)
                fb = _scaled(fb, tolerance_ptr + 2)
                ft = _scaled(ft, tolerance_ptr + 4)
            s_d += tl.sum(small_d, 1)
            s_dd += tl.sum(small_d * small_d, 1)
            p_bb += tl.sum(fb * fb, 1)
            p_tt += tl.sum(ft * ft, 1)
            p_bt += tl.sum(fb * ft, 1)
            if EITHER:
                wrong = (d > atol) & (d > part)
                need_a = tl.maximum(need_a, tl.max(tl.where(d > part, d, 0.0), 1))
                over = d
            else:
                wrong = d > atol + part
                need_a = tl.maximum(need_a, tl.max(tl.where(d > part, d - part, 0.0), 1))
                over = d - atol
            need_r = tl.maximum(need_r, tl.max(tl.where(d > atol, over / m, 0.0), 1))
            alike = (b == t) | (b_nan & t_nan) if EQUAL_NAN else b == t
            special = here & (finite == 0) & (alike == 0)
            wrong = wrong | special
            infinite = here & (b_inf | t_inf) & (b != t) & (b_nan == 0) & (t_nan == 0)
            n_b_nan += tl.sum((b_nan & here).to(tl.int32), 1)
            n_b_inf += tl.sum((b_inf & here).to(tl.int32), 1)
            n_t_nan += tl.sum((t_nan & here).to(tl.int32), 1)
            n_t_inf += tl.sum((t_inf & here).to(tl.int32), 1)
            n_finite += tl.sum(finite.to(tl.int32), 1)
            n_wrong += tl.sum(wrong.to(tl.int32), 1)
            n_special += tl.sum(special.to(tl.int32), 1)
            n_over += tl.sum((d > 0.01 * m).to(tl.int32), 1)
            n_big += tl.sum((a > 65504.0).to(tl.int32), 1)
            n_small += tl.sum(((a < 6.103515625e-05) & (a > 0)).to(tl.int32), 1)

            place = at.to(tl.int64)
            top = tl.max(tl.where(finite, d, -1.0), 1)
            found = tl.min(tl.where(finite & (d == top[:, None]), place, NOWHERE), 1)
            worst_at = tl.where(top > worst, found, worst_at)
            worst = tl.maximum(worst, top)
            top = tl.max(tl.where(finite, rel, -1.0), 1)
            found = tl.min(tl.where(finite & (rel == top[:, None]), place, NOWHERE), 1)
            worst_rel_at = tl.where(top > worst_rel, found, worst_rel_at)
            worst_rel = tl.maximum(worst_rel, top)
            wrong_at = tl.minimum(wrong_at, tl.min(tl.where(wrong, place, NOWHERE), 1))
            infinite_at = tl.minimum(infinite_at, tl.min(tl.where(infinite, place, NOWHERE), 1))

    out = out_ptr + program
    tl.store(out, tl.sum(n_b_nan.to(tl.int64)).to(tl.float64))
    tl.store(out + rows, tl.sum(n_b_inf.to(tl.int64)).to(tl.float64))
    tl.store(out + 2 * rows, tl.sum(s_b))
    tl.store(out + 3 * rows, tl.sum(s_bb))
    tl.store(out + 4 * rows, tl.sum(n_t_nan.to(tl.int64)).to(tl.float64))
    tl.store(out + 5 * rows, tl.sum(n_t_inf.to(tl.int64)).to(tl.float64))
    tl.store(out + 6 * rows, tl.sum(s_t))
    tl.store(out + 7 * rows, tl.sum(s_tt))
    tl.store(out + 8 * rows, tl.sum(n_finite.to(tl.int64)).to(tl.float64))
    tl.store(out + 9 * rows, tl.sum(n_wrong.to(tl.int64)).to(tl.float64))
    tl.store(out + 10 * rows, tl.sum(n_special.to(tl.int64)).to(tl.float64))
    tl.store(out + 11 * rows, tl.sum(n_over.to(tl.int64)).to(tl.float64))
    tl.store(out + 12 * rows, tl.sum(n_big.to(tl.int64)).to(tl.float64))
    tl.store(out + 13 * rows, tl.sum(n_small.to(tl.int64)).to(tl.float64))
    tl.store(out + 14 * rows, tl.sum(s_d))
    tl.store(out + 15 * rows, tl.sum(s_rel))
    tl.store(out + 16 * rows, tl.sum(s_dd))
    tl.store(out + 17 * rows, tl.sum(p_bb))
    tl.store(out + 18 * rows, tl.sum(p_tt))
    tl.store(out + 19 * rows, tl.sum(p_bt))
    tl.store(out + 20 * rows, tl.min(low_b))
    tl.store(out + 21 * rows, tl.min(low_t))
    tl.store(out + 22 * rows, tl.min(wrong_at).to(tl.float64))
    tl.store(out + 23 * rows, tl.min(infinite_at).to(tl.float64))
    tl.store(out + 24 * rows, tl.max(high_b))
    tl.store(out + 25 * rows, tl.max(high_t))
    tl.store(out + 26 * rows, tl.max(need_a))
    tl.store(out + 27 * rows, tl.max(need_r))
    top = tl.max(worst)
    tl.store(out + 28 * rows, top)
    tl.store(out + 30 * rows, tl.min(tl.where(worst == top, worst_at, nowhere)).to(tl.float64))
    top = tl.max(worst_rel)
    tl.store(out + 29 * rows, top)
    tl.store(out + 31 * rows, tl.min(tl.where(worst_rel == top, worst_rel_at, nowhere)).to(tl.float64))


def read_exactly(
    base: Any, target: Any, tolerance: Tolerance, scales: Scales = Scales()  # noqa: B008
) -> dict[str, float]:  # fmt: skip
    """FIELDS by name; waits for the device. Places are flat indices, and 2**63 where there is none.

    base, target: contiguous, of equal size (1 to 2**53) and of float16, bfloat16, float32 or float64. scales: what
    values and errors are divided by before they are summed, see Scales.
    """
    size = base.numel()
    rows = min(-(-size // (_LANES * _WIDE * _STEPS)), _processors(base.device) * _PROGRAMS)
    out = torch.empty((len(FIELDS), rows), dtype=torch.float64, device=base.device)
    halves = [part for scale in (scales.base, scales.target, scales.diff) for part in (scale // 2, scale - scale // 2)]
    numbers = [tolerance.atol, tolerance.rtol, *(2.0**-part for part in halves)]
    _exact[(rows,)](
        base, target, out, torch.tensor(numbers, dtype=torch.float64, device=base.device), size, rows,
        EITHER=tolerance.rule == "either", EQUAL_NAN=tolerance.equal_nan, SCALED=scales != Scales(),
        LANES=_LANES, WIDE=_WIDE, STEPS=_STEPS, num_warps=_LANES // 32,
    )  # fmt: skip
    sums, least, most, placed, at = out.split([len(SUMS), len(LEAST), len(MOST), len(PLACED), len(PLACED)])
    top = placed.amax(1)
    first = torch.where(placed == top[:, None], at, torch.inf).amin(1)
    found = torch.cat([sums.sum(1), least.amin(1), most.amax(1), top, first]).tolist()
    return dict(zip(FIELDS, found, strict=True))
