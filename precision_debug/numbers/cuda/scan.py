# Triton has no types, and its functions are compiled, not called.
# mypy: ignore-errors
"""The scan of ``compare``: as ``kernel``'s, but what is rare is found out by a second look.

An element costs some 27 instructions: the next elements are loaded before the present ones are added up, and of the
tolerance a chunk knows its largest excess alone. Where that comes near the tolerance, where the chunk raises the
relative tolerance that the tensors need, or where it leaves float16, the chunk is read once more from the cache and
counted in float32, and then in float64 where float32 cannot decide an element. A program in whose last chunk something
failed counts at the first look; what one finds of the tolerance needed is known to all. A program also counts its share
of the sample's errors (``sample``). The sums are read, and the places found, by ``_gather``.
"""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl

from .kernel import (
    DOUBT,
    FIELDS,
    NOWHERE,
    TINY,
    _bounds,
    _combine,
    _inverse,
    _negative,
    _processors,
    _wrong,
)  # fmt: skip
from .launch import Launch
from .look import _excess, _first_look, _group, _look
from .sample import BUCKET_BITS, BUCKETS, COPIES, RUN, RUNS

__all__ = ["LAYOUTS", "Layout", "forget", "layout_of", "scanned"]

RISE = tl.constexpr(1 + 3e-7)
"""A chunk raises the required relative tolerance by more than its rounding."""


@triton.jit(do_not_specialize=["size", "from_chunk", "to_chunk", "row", "rows", "runs"])
def _scan(
    base_ptr, target_ptr, out_ptr, tolerance_ptr, copies_ptr, size, from_chunk, to_chunk, row, rows, runs,
    MASKED: tl.constexpr, EITHER: tl.constexpr, STRICT: tl.constexpr, FAST: tl.constexpr,  # noqa: N803
    LANES: tl.constexpr, WIDE: tl.constexpr, INNER: tl.constexpr, UNROLL: tl.constexpr,  # noqa: N803
    AHEAD: tl.constexpr, ADAPTS: tl.constexpr,  # noqa: N803
    RUN: tl.constexpr, BITS: tl.constexpr, COPIES: tl.constexpr, BUCKETS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    HALVES: tl.constexpr = FAST and base_ptr.dtype.element_ty == tl.float16  # noqa: N806
    STEP: tl.constexpr = LANES * WIDE  # noqa: N806
    CHUNK: tl.constexpr = STEP * INNER  # noqa: N806
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    known_ptr = copies_ptr + COPIES * BUCKETS
    atol64 = tl.load(tolerance_ptr)
    rtol64 = tl.load(tolerance_ptr + 1)
    atol = atol64.to(tl.float32)
    rtol = rtol64.to(tl.float32)
    slack = rtol * (4 * TINY) + 1e-37  # denormal numbers
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
    m_b = tl.full((LANES, WIDE), float("inf"), base_ptr.dtype.element_ty)
    m_t = tl.full((LANES, WIDE), float("inf"), target_ptr.dtype.element_ty)
    x_b = tl.full((LANES, WIDE), float("-inf"), base_ptr.dtype.element_ty)
    x_t = tl.full((LANES, WIDE), float("-inf"), target_ptr.dtype.element_ty)
    if not FAST:
        m_b, m_t, x_b, x_t = m_b.to(tl.float32), m_t.to(tl.float32), x_b.to(tl.float32), x_t.to(tl.float32)
    need_a = tl.zeros((LANES,), tl.float32)
    need_r = tl.zeros((), tl.float32)
    worst = tl.full((LANES,), -1.0, tl.float32)
    worst_rel = tl.full((LANES,), -1.0, tl.float32)
    worst_chunk = tl.zeros((LANES,), tl.int32)
    worst_rel_chunk = tl.zeros((LANES,), tl.int32)
    first_chunk = tl.full((LANES,), NOWHERE, tl.int32)
    counting = tl.zeros((), tl.int32)

    next0_b, next0_t, next1_b, next1_t = m_b, m_t, m_b, m_t
    next2_b, next2_t, next3_b, next3_t = m_b, m_t, m_b, m_t
    start = (tl.zeros((), tl.int64) + from_chunk + program) * CHUNK
    if AHEAD > 1:
        next0_b, next0_t, next1_b, next1_t, next2_b, next2_t, next3_b, next3_t = _group(
            base_ptr + start, target_ptr + start, place, size, MASKED, FAST, STEP, UNROLL
        )
    elif AHEAD:
        next0_b, next0_t = _look(base_ptr + start, target_ptr + start, place, size, MASKED, FAST)
    if runs > 0:
        lane = tl.arange(0, LANES)
        stretch = size.to(tl.float64) / runs
        copy = copies_ptr + (program % COPIES) * BUCKETS
        for first in range(program * (LANES // RUN), runs, programs * (LANES // RUN)):
            number = first + lane // RUN
            golden = number.to(tl.float64) * 0.6180339887498949
            inside = (golden - tl.floor(golden)) * tl.maximum(stretch - RUN, 0.0)
            at = tl.minimum((number.to(tl.float64) * stretch + inside).to(tl.int64) + lane % RUN, size - 1)
            b = tl.load(base_ptr + at).to(tl.float32)
            t = tl.load(target_ptr + at).to(tl.float32)
            bucket = tl.abs(t - b).to(tl.int32, bitcast=True) >> BITS
            tl.atomic_add(copy + bucket, 1, mask=number < runs, sem="relaxed")

    for chunk in range(from_chunk + program, to_chunk, programs):
        start = (tl.zeros((), tl.int64) + chunk) * CHUNK
        left = tl.minimum(size - start, CHUNK).to(tl.int32)
        after = tl.where(chunk + programs < to_chunk, start + (tl.zeros((), tl.int64) + programs) * CHUNK, start)
        known = tl.load(known_ptr, volatile=True)  # what other programs have found needed
        need_r = tl.maximum(need_r, known.to(tl.float32, bitcast=True))
        raised = need_r * RISE
        if not ADAPTS or counting > 0:
            (
                s_b, s_t, s_bb, s_tt, s_d, s_dd, s_rel, n_over, n_small, w, v, n_wrong, again, doubtful, fails, need_a,
                m_b, m_t, x_b, x_t, next0_b, next0_t, next1_b, next1_t, next2_b, next2_t, next3_b, next3_t,
            ) = _first_look(
                base_ptr, target_ptr, start, after, place, left, size, atol, rtol, slack, raised, need_a, m_b, m_t,
                x_b, x_t, next0_b, next0_t, next1_b, next1_t, next2_b, next2_t, next3_b, next3_t,
                MASKED=MASKED, EITHER=EITHER, STRICT=STRICT, FAST=FAST,
                LANES=LANES, WIDE=WIDE, INNER=INNER, UNROLL=UNROLL, AHEAD=AHEAD, COUNT=True,
            )  # fmt: skip
        else:
            (
                s_b, s_t, s_bb, s_tt, s_d, s_dd, s_rel, n_over, n_small, w, v, n_wrong, again, doubtful, fails, need_a,
                m_b, m_t, x_b, x_t, next0_b, next0_t, next1_b, next1_t, next2_b, next2_t, next3_b, next3_t,
            ) = _first_look(
                base_ptr, target_ptr, start, after, place, left, size, atol, rtol, slack, raised, need_a, m_b, m_t,
                x_b, x_t, next0_b, next0_t, next1_b, next1_t, next2_b, next2_t, next3_b, next3_t,
                MASKED=MASKED, EITHER=EITHER, STRICT=STRICT, FAST=FAST,
                LANES=LANES, WIDE=WIDE, INNER=INNER, UNROLL=UNROLL, AHEAD=AHEAD, COUNT=False,
            )  # fmt: skip
        if ADAPTS:
            counting = tl.max(fails)
        all_b += s_b.to(tl.float64)
        all_t += s_t.to(tl.float64)
        all_bb += s_bb.to(tl.float64)
        all_tt += s_tt.to(tl.float64)
        all_d += s_d.to(tl.float64)
        all_dd += s_dd.to(tl.float64)
        all_rel += s_rel.to(tl.float64)
        all_over += n_over
        all_small += n_small
        worst_chunk = tl.where(w > worst, chunk, worst_chunk)
        worst = tl.maximum(worst, w)
        worst_rel_chunk = tl.where(v > worst_rel, chunk, worst_rel_chunk)
        worst_rel = tl.maximum(worst_rel, v)
        if not HALVES:  # beyond float16, in this chunk or an earlier one
            beyond = tl.maximum(tl.max(x_b.to(tl.float32), 1), -tl.min(m_b.to(tl.float32), 1)) > 65504.0
            again |= beyond.to(tl.int32)

        if tl.max(again) > 0:
            n_wrong = tl.zeros((LANES,), tl.int32)
            near = tl.full((LANES,), float("inf"), tl.float32)
            need = tl.zeros((LANES,), tl.float32)
            for step in tl.range(0, INNER, loop_unroll_factor=UNROLL):
                at = step * STEP + place
                raw_b, raw_t = _look(base_ptr + start, target_ptr + start, at, left, MASKED, FAST)
                b = raw_b.to(tl.float32)
                d = tl.abs(raw_t.to(tl.float32) - b)
                a = tl.abs(b)
                excess = _excess(d, a, atol, rtol, EITHER, STRICT)
                inverse = _inverse(a + TINY, FAST)
                if EITHER:
                    room = -excess
                    need = tl.maximum(need, tl.max(tl.where(d > atol, d * inverse, 0.0), 1))
                else:
                    room = atol - excess
                    need = tl.maximum(need, tl.max(d * inverse - atol * inverse, 1))
                n_wrong += tl.sum(_negative(room), 1)
                near = tl.minimum(near, tl.min(tl.abs(room), 1))
                all_big += tl.sum((a > 65504.0).to(tl.int32), 1)
            found = tl.minimum(tl.max(need), 1e30)
            if found > need_r:
                tl.atomic_max(known_ptr, found.to(tl.int32, bitcast=True), sem="relaxed")
            need_r = tl.maximum(need_r, found)
            doubtful = (near < DOUBT * w + slack).to(tl.int32)
        if tl.max(doubtful) > 0:
            n_wrong = tl.zeros((LANES,), tl.int32)
            for step in range(INNER):
                at = step * STEP + place
                raw_b, raw_t = _look(base_ptr + start, target_ptr + start, at, left, MASKED, FAST)
                wrong = _wrong(raw_b.to(tl.float64), raw_t.to(tl.float64), atol64, rtol64, EITHER)
                if MASKED:
                    wrong &= at < left
                n_wrong += tl.sum(wrong.to(tl.int32), 1)
        all_wrong += n_wrong
        first_chunk = tl.where(n_wrong > 0, tl.minimum(first_chunk, chunk), first_chunk)

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
    tl.store(out + 11 * rows, tl.min(tl.min(m_b.to(tl.float32), 1)).to(tl.float64))
    tl.store(out + 12 * rows, tl.min(tl.min(m_t.to(tl.float32), 1)).to(tl.float64))
    tl.store(out + 13 * rows, tl.min(first_chunk).to(tl.float64))
    tl.store(out + 14 * rows, tl.max(tl.max(x_b.to(tl.float32), 1)).to(tl.float64))
    tl.store(out + 15 * rows, tl.max(tl.max(x_t.to(tl.float32), 1)).to(tl.float64))
    tl.store(out + 16 * rows, tl.max(need_a).to(tl.float64))
    tl.store(out + 17 * rows, need_r.to(tl.float64))
    top = tl.max(worst)
    tl.store(out + 18 * rows, top.to(tl.float64))
    tl.store(out + 19 * rows, tl.min(tl.where(worst == top, worst_chunk, NOWHERE)).to(tl.float64))
    top = tl.max(worst_rel)
    tl.store(out + 20 * rows, top.to(tl.float64))
    tl.store(out + 21 * rows, tl.min(tl.where(worst_rel == top, worst_rel_chunk, NOWHERE)).to(tl.float64))


@triton.jit(do_not_specialize=["size", "rows"])
def _gather(
    base_ptr, target_ptr, out_ptr, tolerance_ptr, copies_ptr, row_ptr, extra_ptr, size, rows,
    CHUNK: tl.constexpr, EITHER: tl.constexpr, FAST: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
    WIDTH: tl.constexpr, ERRORS: tl.constexpr, COPIES: tl.constexpr, BUCKETS: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """The row, by its first programs; by the others every error, or the copies' sum, and zeros in their place."""
    program = tl.program_id(0)
    if program < WIDTH:
        _combine(
            base_ptr, target_ptr, out_ptr, tolerance_ptr, row_ptr, size, rows, CHUNK=CHUNK, EITHER=EITHER, FAST=FAST,
            BLOCK=BLOCK,
        )  # fmt: skip
    else:
        at = (program - WIDTH) * BLOCK + tl.arange(0, BLOCK)
        if program == WIDTH:
            tl.store(copies_ptr + COPIES * BUCKETS, 0)
        if ERRORS:
            b = tl.load(base_ptr + at, mask=at < size, other=0.0).to(tl.float32)
            t = tl.load(target_ptr + at, mask=at < size, other=0.0).to(tl.float32)
            tl.store(extra_ptr + at, tl.abs(t - b), mask=at < size)
        else:
            total = tl.zeros((BLOCK,), tl.int32)
            for copy in tl.static_range(COPIES):
                total += tl.load(copies_ptr + copy * BUCKETS + at)
                tl.store(copies_ptr + copy * BUCKETS + at, tl.zeros((BLOCK,), tl.int32))
            tl.store(extra_ptr + at, total)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Neighbours a thread reads at once, how often in a chunk (a multiple of ``unroll``) and how often unrolled (2 or
    4); what is loaded before it is needed (0: nothing, 1: a step, 2: as many as are unrolled); warps a program,
    programs a processor, registers a thread at most.
    """

    wide: int
    inner: int
    unroll: int = 2
    ahead: int = 1
    warps: int = 1
    programs: int = 16
    registers: int | None = None


_NARROW = Layout(wide=8, inner=16, unroll=2, ahead=1, programs=16, registers=128)
_WIDER = Layout(wide=4, inner=32, unroll=4, ahead=2, programs=12, registers=168)

LAYOUTS = {
    (torch.float16, torch.float16): _NARROW,
    (torch.float32, torch.float32): _WIDER,
    (torch.float32, torch.bfloat16): _WIDER,
    "narrow": _NARROW,
    "mixed": _WIDER,
    "small": Layout(wide=4, inner=8, ahead=0, programs=8),
}
"""Of pairs of types, then of others of 16 bits and of others: the fastest on an H200 over tensors that pass and tensors
some of which fails, as tests/gpu/bench_device_compare.py tries them. "small": below WHOLE elements."""

WHOLE = 1 << 19
_BLOCK = 1024


def layout_of(base: Any, target: Any) -> Layout:
    narrow = max(base.element_size(), target.element_size()) == 2
    kind = (base.dtype, target.dtype)
    return LAYOUTS["small" if base.numel() < WHOLE else kind if kind in LAYOUTS else "narrow" if narrow else "mixed"]


@functools.lru_cache(maxsize=1024)
def _launches(
    kind: tuple[Any, ...], either: bool, strict: bool, fast: bool, layout: Layout  # noqa: ARG001
) -> tuple[Launch, ...]:  # fmt: skip
    """The scans of full chunks and of others, and the two ways to gather. kind: what else Triton compiles anew for."""
    chunk = layout.warps * 32 * layout.wide * layout.inner
    scans = (
        Launch(
            _scan,
            {
                "MASKED": masked, "EITHER": either, "STRICT": strict, "FAST": fast, "LANES": 32 * layout.warps,
                "WIDE": layout.wide, "INNER": layout.inner, "UNROLL": layout.unroll,
                "AHEAD": 0 if masked else layout.ahead, "ADAPTS": layout.ahead > 0 and not masked, "RUN": RUN,
                "BITS": BUCKET_BITS, "COPIES": COPIES, "BUCKETS": BUCKETS,
            },
            num_warps=layout.warps, maxnreg=layout.registers,
        )
        for masked in (False, True)
    )  # fmt: skip
    gathers = (
        Launch(
            _gather,
            {
                "CHUNK": chunk, "EITHER": either, "FAST": fast, "BLOCK": _BLOCK, "WIDTH": len(FIELDS),
                "ERRORS": errors, "COPIES": COPIES, "BUCKETS": BUCKETS,
            },
            num_warps=8,
        )
        for errors in (False, True)
    )  # fmt: skip
    return (*scans, *gathers)


@functools.lru_cache(maxsize=64)
def _room(device: torch.device, stream: int) -> tuple[Any, Any]:  # noqa: ARG001
    """What the programs write, at most 32 a processor and one, and the copies of the histogram; one pair a stream."""
    partial = torch.empty(len(FIELDS) * (_processors(device) * 32 + 1), dtype=torch.float64, device=device)
    return partial, torch.zeros(COPIES * BUCKETS + 1, dtype=torch.int32, device=device)


_one_at_a_time = threading.Lock()


def forget() -> None:
    """Drop the memory between the kernels, after a launch that failed."""
    _room.cache_clear()


def scanned(
    base: Any, target: Any, atol: float, rtol: float, either: bool, row: Any, extra: Any, *,
    layout: Layout | None = None,
) -> None:  # fmt: skip
    """Write FIELDS into row, float64 [len(FIELDS)], as ``kernel.reduced`` does.

    extra: float32 [size] for every error, or int32 [BUCKETS] for the histogram of the sample's. Both may be pinned
    memory of the host. base, target: as ``reduced`` takes them.
    """
    size, device, fast = base.numel(), base.device, base.is_cuda
    layout = layout or layout_of(base, target)
    kind = (
        device, base.dtype, target.dtype, base.data_ptr() % 16 == 0, target.data_ptr() % 16 == 0, size >> 31 > 0,
        extra.dtype,
    )  # fmt: skip
    full, rest_of, of_sample, of_errors = _launches(kind, either, atol == 0, fast, layout)
    errors = extra.dtype == torch.float32
    chunk = layout.warps * 32 * layout.wide * layout.inner
    whole, rest = divmod(size, chunk)
    if size < WHOLE and rest:
        whole, last = 0, whole + 1
    else:
        last = whole + (rest > 0)
    most = _processors(device) * min(layout.programs, 32)
    programs = min(whole, most)
    tail = min(last - whole, most)
    rows = programs + tail
    runs = 0 if errors else min(RUNS, size // RUN)
    bounds = _bounds(device, atol, rtol)
    stream = torch.cuda.current_stream(device).cuda_stream if fast else 0
    with _one_at_a_time:
        partial, copies = _room(device, stream)
        tensors = base, target, partial, bounds, copies
        if programs:
            full(programs, stream, tensors, (size, 0, whole, 0, rows, runs))
        if tail:
            rest_of(tail, stream, tensors, (size, whole, last, programs, rows, 0 if programs else runs))
        more = -(-size // _BLOCK) if errors else BUCKETS // _BLOCK
        gather = of_errors if errors else of_sample
        gather(len(FIELDS) + more, stream, (*tensors, row, extra), (size, rows))
