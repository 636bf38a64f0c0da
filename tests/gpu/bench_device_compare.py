"""How fast two 1 GiB tensors are compared on a GPU, against the bandwidth that it reads with in the same run.

Start from the repository's root on the GPU machine (about 1 minute)::

    PYTHONPATH=.:backends OUT=${OUT:-output} python tests/gpu/bench_device_compare.py

Prints and writes $OUT/device_compare.json: for float32, float16 and bfloat16 against float32, the median time of the
kernel alone and of the whole ``compare_on_device``, GB/s, the share of the read bandwidth measured beside it, and how
far each number lies from float64 on the device. Last, the GB/s of a few kernel layouts.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
import traceback
from pathlib import Path

import torch

from precision_debug.records import Tolerance

OUT = Path(os.environ.get("OUT", "output"))
GIB = 1 << 30
TOLERANCE = Tolerance(atol=1e-3, rtol=1e-3)
LAYOUTS = {
    False: (
        (4, 128, 2, 1, 32, None), (4, 128, 1, 1, 20, None), (4, 128, 4, 1, 16, None), (4, 128, 2, 2, 8, None),
    ),
    True: (
        (8, 128, 1, 1, 16, None), (8, 128, 2, 1, 16, 128), (4, 128, 2, 1, 20, 96), (4, 128, 2, 1, 16, None),
        (8, 128, 1, 1, 32, None), (8, 128, 1, 4, 4, None),
    ),
}  # fmt: skip
"""Layouts that are tried, not all and all of 16 bits: wide, elements a thread and chunk, unroll, warps, programs,
registers."""


def timed(call, repeats: int = 20, warmup: int = 5) -> float:
    """Median seconds of a call, by events on the stream."""
    for _ in range(warmup):
        call()
    times = []
    for _ in range(repeats):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return statistics.median(times)


def wall(call, repeats: int = 20) -> float:
    """Median seconds of a call until the host has its result."""
    times = []
    for _ in range(repeats):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        call()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def read_bandwidth() -> dict[str, float]:
    """GB/s of reading: a Triton kernel that only adds up two 1 GiB tensors, and torch's own sum of one."""
    import triton
    import triton.language as tl

    @triton.jit
    def add_up(a_ptr, b_ptr, out_ptr, steps, BLOCK: tl.constexpr):
        lane = tl.arange(0, BLOCK)
        total = tl.zeros((BLOCK,), tl.float32)
        start = (tl.zeros((), tl.int64) + tl.program_id(0)) * steps * BLOCK
        for step in tl.range(0, steps, loop_unroll_factor=4):
            at = start + step * BLOCK + lane
            total += tl.load(a_ptr + at) + tl.load(b_ptr + at)
        tl.store(out_ptr + tl.program_id(0), tl.sum(total))

    a = torch.randn(GIB // 4, device="cuda")
    b = torch.randn(GIB // 4, device="cuda")
    best = 0.0
    for block, steps in ((1024, 16), (2048, 16), (4096, 8), (4096, 16)):
        programs = a.numel() // (block * steps)
        out = torch.empty(programs, device="cuda")
        seconds = timed(lambda p=programs, o=out, s=steps, k=block: add_up[(p,)](a, b, o, s, BLOCK=k, num_warps=8))
        best = max(best, 2 * GIB / seconds / 1e9)
    torch_sum = GIB / timed(a.sum) / 1e9
    copy = torch.empty_like(a)
    return {"read_GBps": best, "torch_sum_GBps": torch_sum, "copy_GBps": 2 * GIB / timed(lambda: copy.copy_(a)) / 1e9}


def checks(base, target, found, tolerance) -> dict[str, float]:
    """Relative distance of each number from float64's, a quarter of the tensors at a time."""
    n = base.numel()
    total = dict.fromkeys(("mismatched", "sum_abs", "squares", "base_squares", "target_squares", "over", "small"), 0.0)
    worst, worst_rel, need_a, first_wrong = 0.0, 0.0, 0.0, -1
    for first in range(0, n, n // 8):
        b, t = base[first : first + n // 8].double(), target[first : first + n // 8].double()
        d = (t - b).abs()
        bound = tolerance.atol + tolerance.rtol * b.abs()
        wrong = d > bound
        total["mismatched"] += wrong.sum().item()
        if first_wrong < 0 and wrong.any():
            first_wrong = first + int(wrong.to(torch.int8).argmax())
        total["small"] += ((b.abs() < 2.0**-14) & (b != 0)).sum().item()
        total["sum_abs"] += d.sum().item()
        total["squares"] += d.square().sum().item()
        total["base_squares"] += b.square().sum().item()
        total["target_squares"] += t.square().sum().item()
        total["over"] += (d > 0.01 * b.abs()).sum().item()
        worst = max(worst, d.max().item())
        worst_rel = max(worst_rel, (d / (b.abs() + 1e-7)).max().item())
        need_a = max(need_a, (d - tolerance.rtol * b.abs()).max().item())
        del b, t, d, bound
    norm_b, norm_t = total["base_squares"] ** 0.5, total["target_squares"] ** 0.5
    cosine = (total["squares"] - (norm_b - norm_t) ** 2) / (2 * norm_b * norm_t)
    wanted = {
        "mismatched": (found.mismatched, total["mismatched"]),
        "first_mismatch": (-1 if found.first_mismatch is None else found.first_mismatch[0], first_wrong),
        "fp16_subnormal": (found.fp16_subnormal, total["small"]),
        "mean_abs": (found.mean_abs, total["sum_abs"] / n),
        "rmse": (found.rmse, (total["squares"] / n) ** 0.5),
        "base_rms": (found.base.rms, norm_b / n**0.5),
        "target_rms": (found.target.rms, norm_t / n**0.5),
        "cosine_distance": (found.cosine_distance, cosine),
        "share_over_1pct": (found.share_rel_over_1pct, total["over"] / n),
        "max_abs": (found.max_abs, worst),
        "max_rel": (found.max_rel, worst_rel),
        "required_atol": (found.required_atol, max(need_a, 0.0)),
    }
    return {name: abs(got - want) / max(abs(want), 1e-300) for name, (got, want) in wanted.items()}


def made(first, second):
    elements = GIB // max(first.itemsize, second.itemsize)
    base = torch.randn(elements, device="cuda").to(first)
    target = torch.empty(elements, dtype=second, device="cuda")
    for at in range(0, elements, 1 << 26):
        piece = slice(at, at + (1 << 26))
        target[piece] = (base[piece].float() * (1 + 1e-3 * torch.randn_like(base[piece].float()))).to(second)
    return base, target


def one_pair(base, target, ceiling: float) -> dict:
    """Times and numbers of one pair of dtypes; 1 GiB of the wider one."""
    from precision_debug_torch.device_compare import compare_on_device
    from precision_debug_torch.device_kernel import FIELDS, reduced
    from precision_debug_torch.device_sample import BUCKETS, COPIES, sampled

    size = base.nbytes + target.nbytes
    row = torch.empty(len(FIELDS), dtype=torch.float64, device="cuda")
    kernel = timed(lambda: reduced(base, target, 1e-3, 1e-3, False, row))
    copies = torch.zeros((COPIES, BUCKETS), dtype=torch.int32, device="cuda")
    sample = timed(lambda: sampled(base, target, copies, torch.empty_like(copies[0])))
    whole = wall(lambda: compare_on_device(base, target, TOLERANCE))
    return {
        "bytes": size,
        "kernel_GBps": size / kernel / 1e9,
        "kernel_share": size / kernel / 1e9 / ceiling,
        "sample_us": sample * 1e6,
        "whole_GBps": size / whole / 1e9,
        "whole_share": size / whole / 1e9 / ceiling,
        "whole_ms": whole * 1e3,
        "relative_distance_from_float64": checks(base, target, compare_on_device(base, target, TOLERANCE), TOLERANCE),
    }


def layouts(base, target) -> dict:
    """GB/s of the kernel in each of LAYOUTS."""
    from precision_debug_torch.device_kernel import FIELDS, Shape, reduced

    row = torch.empty(len(FIELDS), dtype=torch.float64, device="cuda")
    found: dict = {}
    for wide, chunk, unroll, warps, programs, registers in LAYOUTS[max(base.itemsize, target.itemsize) == 2]:
        shape = Shape(
            wide=wide, inner=chunk // wide, unroll=unroll, warps=warps, programs=programs, registers=registers
        )
        name = f"wide={wide} chunk={chunk} unroll={unroll} warps={warps} programs={programs} registers={registers}"
        try:
            seconds = timed(lambda s=shape: reduced(base, target, 1e-3, 1e-3, False, row, s), repeats=7, warmup=2)
            found[name] = (base.nbytes + target.nbytes) / seconds / 1e9
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"[:200]
        print(name, found[name], flush=True)
    return found


PAIRS = (
    ("float32", torch.float32, torch.float32),
    ("float16", torch.float16, torch.float16),
    ("bfloat16-float32", torch.float32, torch.bfloat16),
)


def main() -> int:
    from precision_debug_torch.device_compare import compare_on_device

    OUT.mkdir(parents=True, exist_ok=True)
    result: dict = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "pairs": {}}

    def kept() -> None:
        (OUT / "device_compare.json").write_text(json.dumps(result, indent=1))

    result["bandwidth"] = read_bandwidth()
    print(result["device"], result["bandwidth"], flush=True)
    for label, first, second in PAIRS:
        try:
            row = one_pair(*made(first, second), result["bandwidth"]["read_GBps"])
        except Exception:
            row = {"error": traceback.format_exc()}
        result["pairs"][label] = row
        print(label, json.dumps(row, indent=1), flush=True)
        kept()
    small = torch.randn(2048, 4096, device="cuda")
    other = small.bfloat16()
    for name, one, two in (("8M", small, other), ("4096", small[0], other[0])):
        try:
            seconds = wall(lambda a=one, b=two: compare_on_device(a, b, TOLERANCE), 200)
            result[f"call_us_{name}_elements"] = seconds * 1e6
        except Exception:
            result[f"call_us_{name}_elements"] = traceback.format_exc()
        print(f"microseconds a call of {name} elements:", result[f"call_us_{name}_elements"], flush=True)
    kept()
    for label, first, second in PAIRS:
        print(label, flush=True)
        result["pairs"][label]["layouts"] = layouts(*made(first, second))
        kept()
    return 0


if __name__ == "__main__":
    sys.exit(main())
