"""How fast two 1 GiB tensors are compared on a GPU, against the bandwidth that it reads with in the same run.

Start from the repository's root on the GPU machine (under 3 minutes)::

    PYTHONPATH=.:backends:tests OUT=${OUT:-output} python tests/gpu/bench_device_compare.py

Prints and writes $OUT/device_compare.json: for float32, float16 and bfloat16 against float32, GB/s and the share of the
read bandwidth measured beside it, of the kernels alone (also of the older ones, and where every element fails), of one
``compare_on_device``, and of QUEUE pairs that are started one after the other and then finished; how far each number
lies from float64 on the device. Then small tensors, the GB/s of kernel layouts with the best of each pair of types, the
same numbers again in that layout, and the cases of ``test_cuda_compare`` on the GPU while there is time.
Last, 1 GiB of what float32 cannot hold: the float64 kernel beside torch's own operators. "--only NAME …" does a part.
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
TOLERANCE = Tolerance(atol=1e-3, rtol=1e-2)
"""Of the usual case: nothing fails, or little."""

SOME_FAIL = Tolerance(atol=1e-3, rtol=1e-3)
FAILING = Tolerance(atol=1e-6, rtol=1e-6)
QUEUE = 8
SMALL = 1000
TIME = 170.0
"""Seconds after which no more cases are started."""

NARROW = (
    (8, 128, 2, 1, 1, 16, 128), (8, 64, 2, 1, 1, 16, 128), (8, 128, 2, 2, 1, 12, 168), (8, 128, 2, 1, 1, 12, 168),
    (4, 128, 4, 2, 1, 12, 168), (4, 128, 4, 1, 1, 16, 128),
)  # fmt: skip
WIDER = (
    (4, 128, 4, 2, 1, 12, 168), (4, 64, 4, 2, 1, 12, 168), (4, 128, 4, 1, 1, 12, 168), (4, 128, 4, 1, 1, 16, 128),
    (4, 128, 4, 2, 1, 8, 255), (8, 128, 2, 2, 1, 12, 168),
)  # fmt: skip
"""Layouts that are tried: wide, elements a thread and chunk, unroll, ahead, warps, programs, registers."""


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


def kernels(base, target, tolerance: Tolerance, layout=None) -> float:
    """Seconds of the scan and what gathers its numbers."""
    from precision_debug.numbers.cuda.answer import taken
    from precision_debug.numbers.cuda.kernel import FIELDS
    from precision_debug.numbers.cuda.sample import BUCKETS
    from precision_debug.numbers.cuda.scan import scanned

    answer = taken(len(FIELDS), BUCKETS, False, base.device)
    rules = tolerance.atol, tolerance.rtol, tolerance.rule == "either"
    return timed(lambda: scanned(base, target, *rules, answer.row, answer.extra, layout=layout), 11, 3)


def queued(pairs) -> float:
    """Seconds a pair, of pairs that are started one after the other and then finished."""
    from precision_debug.numbers.cuda.compare import start_on_device

    def call() -> None:
        for started in [start_on_device(base, target, TOLERANCE) for base, target in pairs]:
            started.finish()

    call()
    return wall(call, 7) / len(pairs)


def speeds(base, target, ceiling: float) -> dict:
    """GB/s of one pair, and the share of the read bandwidth."""
    from precision_debug.numbers.cuda.compare import compare_on_device

    size = base.nbytes + target.nbytes
    found = {}
    compare_on_device(base, target, TOLERANCE)
    pairs = [(base, target), *((base.clone(), target.clone()) for _ in range(QUEUE - 1))]
    for name, seconds in (
        ("kernel", kernels(base, target, TOLERANCE)),
        ("kernel_some_fail", kernels(base, target, SOME_FAIL)),
        ("kernel_all_fail", kernels(base, target, FAILING)),
        ("whole", wall(lambda: compare_on_device(base, target, TOLERANCE))),
        ("queued", queued(pairs)),
    ):
        found[f"{name}_GBps"] = size / seconds / 1e9
        found[f"{name}_share"] = size / seconds / 1e9 / ceiling
        found[f"{name}_ms"] = seconds * 1e3
    return found


def one_pair(base, target, ceiling: float) -> dict:
    """Times and numbers of one pair of dtypes; 1 GiB of the wider one."""
    from precision_debug.numbers.cuda.compare import compare_on_device
    from precision_debug.numbers.cuda.kernel import FIELDS, reduced

    size = base.nbytes + target.nbytes
    row = torch.empty(len(FIELDS), dtype=torch.float64, device="cuda")
    found: dict = {"bytes": size}
    try:
        found |= speeds(base, target, ceiling)
    except Exception:
        found["error"] = traceback.format_exc()
    found["older_kernel_GBps"] = size / timed(lambda: reduced(base, target, 1e-3, 1e-3, False, row), 7, 2) / 1e9
    for name, tolerance in (("far_from_float64", TOLERANCE), ("far_from_float64_some_fail", SOME_FAIL)):
        found[name] = checks(base, target, compare_on_device(base, target, tolerance), tolerance)
    return found


def swept(base, target) -> tuple[dict, object]:
    """GB/s of the kernel in each layout, where nothing and where some of each chunk fails; the best of both."""
    from precision_debug.numbers.cuda.scan import Layout

    size = base.nbytes + target.nbytes
    found: dict = {}
    best, fastest = None, 0.0
    for wide, chunk, unroll, ahead, warps, programs, registers in (
        NARROW if max(base.itemsize, target.itemsize) == 2 else WIDER
    ):
        layout = Layout(
            wide=wide, inner=chunk // wide, unroll=unroll, ahead=ahead, warps=warps, programs=programs,
            registers=registers,
        )  # fmt: skip
        name = str(layout).removeprefix("Layout")
        try:
            seconds = [kernels(base, target, tolerance, layout) for tolerance in (TOLERANCE, SOME_FAIL)]
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"[:200]
        else:
            found[name] = [size / each / 1e9 for each in seconds]
            speed = 2 * size / sum(seconds) / 1e9
            if speed > fastest:
                best, fastest = layout, speed
        print(name, found[name], flush=True)
    return found, best


def small_tensors() -> dict:
    """Microseconds of single comparisons, and of SMALL that are started, then finished."""
    from precision_debug.numbers.cuda.compare import compare_on_device, start_on_device

    whole = torch.randn(2048, 4096, device="cuda")
    other = whole.bfloat16()
    found: dict = {}
    for name, one, two in (("8M", whole, other), ("64K", whole[:16], other[:16]), ("4096", whole[0], other[0])):
        compare_on_device(one, two, TOLERANCE)
        found[f"call_us_{name}"] = wall(lambda a=one, b=two: compare_on_device(a, b, TOLERANCE), 200) * 1e6
    rows = [(whole[i], other[i]) for i in range(SMALL)]
    for _ in range(2):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        started = [start_on_device(one, two, TOLERANCE) for one, two in rows]
        found["start_us_4096_of_1000"] = (time.perf_counter() - begun) / SMALL * 1e6
        for each in started:
            each.finish()
        found["queued_us_4096_of_1000"] = (time.perf_counter() - begun) / SMALL * 1e6
    found["device_us"] = kernel_times(lambda: compare_on_device(whole[0], other[0], TOLERANCE))
    return found


def kernel_times(call) -> dict[str, float]:
    """Mean microseconds of each kernel that ``call`` starts, without what lies between them."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(20):
            call()
    return {event.key: event.device_time for event in seen.key_averages()}


def cases(stop: float) -> dict:
    """The test's cases on the GPU: what differs from the core, by case; one shape more, that is read in full chunks."""
    import dataclasses

    import test_cuda_compare as known

    from precision_debug import numbers
    from precision_debug.numbers.arrays import as_array
    from precision_debug.numbers.cuda.compare import compare_on_device

    found: dict = {"done": 0, "wrong": {}}
    for rule in ("isclose", "either"):
        for dtype in ("float16", "float32", "bfloat16", "float64"):
            for kind in known.KINDS if rule == "isclose" else ("near", "bad", "equal"):
                for shape in (*known.SHAPES, (1300, 700), (3000, 1700)):
                    if time.perf_counter() > stop:
                        return found
                    base, target, tolerance = known.pair(kind, shape, getattr(torch, dtype))
                    tolerance = dataclasses.replace(tolerance, rule=rule)
                    got = compare_on_device(base.cuda(), target.cuda(), tolerance)
                    want = numbers.compare(as_array(base), as_array(target), tolerance)
                    differs = known.differences(got, want, base.numel())
                    found["done"] += 1
                    if differs:
                        found["wrong"][f"{rule} {dtype} {kind} {shape}"] = differs
    return found


def special(ceiling: float) -> dict:
    """Whole calls over 1 GiB that need float64, GB/s, beside the same by torch's operators; the kernel's layouts."""
    from precision_debug.numbers.cuda import compare as device_compare
    from precision_debug.numbers.cuda import exact as device_exact

    found: dict = {}
    for name, first, second, lowest in (
        ("float32-bfloat16, half masked by -inf", torch.float32, torch.bfloat16, -float("inf")),
        ("float32-bfloat16, half masked by finfo.min", torch.float32, torch.bfloat16, torch.finfo(torch.bfloat16).min),
        ("float16, half masked by -inf", torch.float16, torch.float16, -float("inf")),
        ("float64-float32", torch.float64, torch.float32, None),
    ):
        base, target = made(first, second)
        if lowest is not None:
            base.view(-1, 1024)[:, ::2] = target.view(-1, 1024)[:, ::2] = lowest
        size = base.nbytes + target.nbytes
        one: dict = {}
        for way in ("kernel", "torch"):
            device_compare._refused.discard((base.device, "exact"))
            if way == "torch":
                device_compare._refused.add((base.device, "exact"))
            device_compare.compare_on_device(base, target, TOLERANCE)
            torch.cuda.reset_peak_memory_stats()
            held = torch.cuda.memory_allocated()
            seconds = wall(lambda a=base, b=target: device_compare.compare_on_device(a, b, TOLERANCE), 5)
            one[way] = {
                "ms": seconds * 1e3, "GBps": size / seconds / 1e9, "share": size / seconds / 1e9 / ceiling,
                "extra_MB": (torch.cuda.max_memory_allocated() - held) / 1e6,
            }  # fmt: skip
        one["times_faster"] = one["torch"]["ms"] / one["kernel"]["ms"]
        for lanes, wide, steps, programs in LAYOUTS:
            device_exact._LANES, device_exact._WIDE, device_exact._STEPS = lanes, wide, steps
            device_exact._PROGRAMS = programs
            one[f"{lanes} x {wide} x {steps}, {programs}"] = (
                size / 1e9 / wall(lambda a=base, b=target: device_exact.read_exactly(a, b, TOLERANCE), 5)
            )
        device_exact._LANES, device_exact._WIDE, device_exact._STEPS, device_exact._PROGRAMS = LAYOUTS[0]
        found[name] = one
        print(name, json.dumps(one), flush=True)
    device_compare._refused.discard((base.device, "exact"))
    return found


LAYOUTS = ((128, 2, 32, 8), (128, 1, 32, 16), (128, 4, 32, 4), (128, 2, 32, 4), (256, 2, 32, 4), (64, 2, 64, 16))
"""Of the float64 kernel: lanes, elements of each, steps, programs a processor."""

PAIRS = (
    ("float32", torch.float32, torch.float32),
    ("float16", torch.float16, torch.float16),
    ("bfloat16-float32", torch.float32, torch.bfloat16),
)


def main() -> int:
    from precision_debug.numbers.cuda import scan as device_scan

    begun = time.perf_counter()
    OUT.mkdir(parents=True, exist_ok=True)
    result: dict = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "pairs": {}}

    only = sys.argv[sys.argv.index("--only") + 1 :] if "--only" in sys.argv else []

    def kept(name: str, call) -> None:
        if only and name not in (*only, "bandwidth"):
            return
        try:
            result[name] = call()
        except Exception:
            result[name] = {"error": traceback.format_exc()}
        print(f"[{time.perf_counter() - begun:.0f} s]", name, json.dumps(result[name], indent=1), flush=True)
        (OUT / "device_compare.json").write_text(json.dumps(result, indent=1))

    kept("bandwidth", read_bandwidth)
    ceiling = result["bandwidth"].get("read_GBps", 4457.0)
    for label, first, second in PAIRS:
        kept(label, lambda a=first, b=second: one_pair(*made(a, b), ceiling))
    kept("small", small_tensors)
    for label, first, second in PAIRS:

        def sweep(a=first, b=second) -> dict:
            base, target = made(a, b)
            found, best = swept(base, target)
            print("BEST", a, b, best, flush=True)
            if best is None:
                return {"layouts": found}
            device_scan.LAYOUTS[a, b] = best
            device_scan.LAYOUTS["narrow" if b == torch.float16 else "mixed"] = best
            return {"layouts": found, "best": str(best), **speeds(base, target, ceiling)}

        kept(f"{label} swept", sweep)
    kept("cases", lambda: cases(begun + TIME))
    kept("special", lambda: special(ceiling))
    return 0


if __name__ == "__main__":
    sys.exit(main())
