"""The CUDA kernels on a card, by the driver alone: their numbers beside the host's, and their speed.

    OUT=${OUT:-output} python tests/gpu/cuda_kernel.py [--seconds 60] [--only PART …]

Parts: "start" (what the driver takes to compile the kernels), "cases" (tests/test_cuda_kernel.py's, on the card),
"random" (pairs of all types, sizes, alignments, scales, tolerances, with NaN, infinities and subnormals planted, for so
many seconds), "large" (over 2^31 elements), "speed" (two tensors of 1 GiB: GB/s, and the share of what the card reads;
needs torch, as does "small": single comparisons, and a queue of them). One line of JSON a part; exit status 1 where a
number differs.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import checkout  # noqa: F401
import numpy as np
import test_cuda_kernel as known

from precision_debug import numbers
from precision_debug.numbers.cuda import Device, DeviceArray, open_device
from precision_debug.products.device.kernels import start
from precision_debug.products.device.ptx import load_kernel_code
from precision_debug.records import Tolerance

OUT = Path(os.environ.get("OUT", "output"))
GIB = 1 << 30
TOLERANCES = {
    "passing": Tolerance(atol=1e-3, rtol=1e-2), "some fail": Tolerance(atol=1e-3, rtol=1e-3),
    "all fail": Tolerance(atol=1e-6, rtol=1e-6), "either": Tolerance(atol=1e-3, rtol=1e-2, rule="either"),
}  # fmt: skip
QUEUE = 8


def put(gpu: Device, values: np.ndarray[Any, Any], skew: int = 0) -> DeviceArray:
    memory = gpu.allocate(values.nbytes + skew)
    flat = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    if flat.nbytes:
        gpu.upload(memory.pointer + skew, flat, 0)
        gpu.synchronise(0)
    return DeviceArray(gpu, memory.pointer + skew, values.shape, values.dtype, memory)


def compared(gpu: Device, base: Any, target: Any, tolerance: Tolerance, skew: int = 0) -> list[str]:
    got = start(put(gpu, base, skew), put(gpu, target), tolerance).finish()
    return known.differences(got, numbers.compare(base, target, tolerance), base.size)


def starting(gpu: Device) -> dict[str, Any]:
    found: dict[str, Any] = {"card": gpu.name, "capability": gpu.capability}
    for name in ("settle", "scan_f32_f32_isclose", "scan_f16_f16_isclose", "scan_f32_bf16_isclose"):
        begun = time.perf_counter()
        gpu.function(name, load_kernel_code)
        found[f"{name}_ms"] = round((time.perf_counter() - begun) * 1e3, 1)
    return found


def cases(gpu: Device) -> dict[str, Any]:
    done, wrong = 0, {}
    for types, rule in itertools.product(known.PAIRS, ("isclose", "either")):
        for kind, size in itertools.product(known.KINDS, (*known.SIZES, 1_300_001)):
            base, target, tolerance = known.pair(kind, size, *(known.FLOATS[name] for name in types))
            tolerance = dataclasses.replace(tolerance, rule=rule, equal_nan=size % 2 == 0)
            done += 1
            if differs := compared(gpu, base, target, tolerance):
                wrong[f"{types} {rule} {kind} {size}"] = differs
    return {"done": done, "wrong": wrong}


def by_chance(gpu: Device, seconds: float) -> dict[str, Any]:
    stop, number, wrong = time.perf_counter() + seconds, 0, {}
    kinds = [*itertools.product(known.FLOATS.values(), repeat=2), *(known.PAIRS_OF_WHOLE)]
    while time.perf_counter() < stop:
        random = np.random.default_rng(number)
        first, second = kinds[number % len(kinds)]
        size = int(10 ** random.uniform(0, 5.3))
        with np.errstate(all="ignore"):
            base = (random.standard_normal(size) * 10.0 ** random.uniform(-6, 4)).astype(first)
            noise = 1 + 10.0 ** random.uniform(-8, -1) * random.standard_normal(size)
            target = (base.astype(np.float64) * noise).astype(second)
            for _ in range(int(random.integers(0, 5))):
                value = random.choice([0.0, np.nan, np.inf, -np.inf, 1.0, 6e-5, 6e-8, 65504.0, 7e4, 1e30])
                if np.issubdtype(first, np.integer) and not abs(value) < 100:
                    continue
                (base if random.random() < 0.5 else target)[int(random.integers(size))] = value
        atol, rtol = (float(random.choice([0.0, 10.0 ** random.uniform(-7, 1)])) for _ in range(2))
        tolerance = Tolerance(
            atol=atol, rtol=rtol, rule=str(random.choice(["isclose", "either"])), equal_nan=bool(random.integers(2))
        )
        skew = int(random.choice([0, 0, 0, 8])) if base.dtype.itemsize <= 8 else 0
        if differs := compared(gpu, base, target, tolerance, skew):
            wrong[f"{number} {np.dtype(first)} {np.dtype(second)} {size} {tolerance} {skew}"] = differs
        number += 1
    return {"done": number, "wrong": dict(list(wrong.items())[:20]), "wrongs": len(wrong)}


def large(gpu: Device) -> dict[str, Any]:
    """2^31 + 5 elements of float16, 0 but for a few places behind 2^31."""
    size = 2**31 + 5
    memory = [gpu.allocate(2 * size) for _ in range(2)]
    one, two = (DeviceArray(gpu, each.pointer, (size,), np.dtype(np.float16), each) for each in memory)
    for each in memory:
        gpu.fill(each.pointer, size // 2, 0)
        tail = np.array([1.0, 2.0, 3.0], np.float16).view(np.uint8)
        gpu.upload(each.pointer + 2 * (size - 3), tail, 0)
    gpu.upload(memory[1].pointer + 2 * (size - 2), np.array([2.5], np.float16).view(np.uint8), 0)
    gpu.synchronise(0)
    begun = time.perf_counter()
    found = start(one, two, Tolerance(atol=1e-3)).finish()
    seconds = time.perf_counter() - begun
    gpu.upload(memory[0].pointer + 2 * (size - 3), np.array([np.nan], np.float16).view(np.uint8), 0)
    special = start(one, two, Tolerance(atol=1e-3)).finish()
    told = [found.mismatched, found.first_mismatch, found.max_abs, found.max_abs_index, special.mismatched,
            special.base.nan, special.first_mismatch, special.max_abs_index]  # fmt: skip
    wanted = [1, (size - 2,), 0.5, (size - 2,), 2, 1, (size - 3,), (size - 2,)]
    return {"ms": seconds * 1e3, "wrong": {} if told == wanted else {"large": [told, wanted]}}


def timed(call: Any, repeats: int = 11) -> float:
    """Median seconds of a call, by events on the stream."""
    import torch

    for _ in range(3):
        call()
    times = []
    for _ in range(repeats):
        torch.cuda._sleep(500_000)  # so that the host is ahead, as it is in a run
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def wall(call: Any, repeats: int = 11) -> float:
    import torch

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
    import torch
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


def made(first: Any, second: Any) -> tuple[Any, Any]:
    import torch

    elements = GIB // max(first.itemsize, second.itemsize)
    base = torch.randn(elements, device="cuda").to(first)
    target = torch.empty(elements, dtype=second, device="cuda")
    for at in range(0, elements, 1 << 26):
        piece = slice(at, at + (1 << 26))
        target[piece] = (base[piece].float() * (1 + 1e-3 * torch.randn_like(base[piece].float()))).to(second)
    return base, target


def speed(gpu: Device) -> dict[str, Any]:
    import torch

    from precision_debug.products.device.torch_tensors import to_device_array

    bandwidth = read_bandwidth()
    ceiling = bandwidth["read_GBps"]
    found: dict[str, Any] = {"card": gpu.name, **bandwidth}
    stream = torch.cuda.current_stream().cuda_stream
    half, brain, whole = torch.float16, torch.bfloat16, torch.float32
    for name, first, second in (
        ("float32", whole, whole), ("bfloat16 against float32", whole, brain), ("float16", half, half),
        ("bfloat16", brain, brain), ("float16 against float32", whole, half),
        ("float64 against float32", torch.float64, whole),
        ("float16, half of it -inf", half, half),
    ):  # fmt: skip
        base, target = made(first, second)
        if "-inf" in name:
            base.view(-1, 1024)[:, ::2] = target.view(-1, 1024)[:, ::2] = -float("inf")
        one, two = to_device_array(base), to_device_array(target)
        assert one is not None
        assert two is not None
        size, told = base.nbytes + target.nbytes, {}
        for label, tolerance in TOLERANCES.items():
            seconds = timed(lambda t=tolerance, a=one, b=two: start(a, b, t, stream))
            told[label] = [round(size / seconds / 1e9), round(size / seconds / 1e9 / ceiling, 3)]
        whole_call = wall(lambda a=one, b=two: start(a, b, TOLERANCES["passing"], stream).finish())
        told["one whole call"] = [round(size / whole_call / 1e9), round(size / whole_call / 1e9 / ceiling, 3)]

        def queue(a: Any = one, b: Any = two) -> None:
            for started in [start(a, b, TOLERANCES["passing"], stream) for _ in range(QUEUE)]:
                started.finish()

        told["queue"] = round(size * QUEUE / wall(queue, 5) / 1e9 / ceiling, 3)
        found[name] = told
        print(name, json.dumps(told), flush=True)
        del base, target, one, two
    return found


def small(gpu: Device) -> dict[str, Any]:
    import torch

    from precision_debug.products.device.torch_tensors import compare_on_device, start_on_device

    whole = torch.randn(2048, 4096, device="cuda")
    other = whole.bfloat16()
    found: dict[str, Any] = {}
    tolerance = TOLERANCES["passing"]
    for name, one, two in (("8M", whole, other), ("64K", whole[:16], other[:16]), ("4096", whole[0], other[0])):
        compare_on_device(one, two, tolerance)
        found[f"call_us_{name}"] = wall(lambda a=one, b=two: compare_on_device(a, b, tolerance), 200) * 1e6
        found[f"device_us_{name}"] = timed(lambda a=one, b=two: start_on_device(a, b, tolerance), 50) * 1e6
    rows = [(whole[i], other[i]) for i in range(1000)]
    for _ in range(2):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        started = [start_on_device(one, two, tolerance) for one, two in rows]
        found["start_us_4096_of_1000"] = (time.perf_counter() - begun) * 1e3
        for each in started:
            each.finish()
        found["queued_us_4096_of_1000"] = (time.perf_counter() - begun) * 1e3
    return {name: round(value, 1) for name, value in found.items()}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--only", nargs="*", default=())
    chosen = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    gpu, wrong, result = open_device(0), 0, {}
    parts = {
        "start": lambda: starting(gpu), "cases": lambda: cases(gpu), "random": lambda: by_chance(gpu, chosen.seconds),
        "large": lambda: large(gpu), "speed": lambda: speed(gpu), "small": lambda: small(gpu),
    }  # fmt: skip
    for name, part in parts.items():
        if chosen.only and name not in chosen.only:
            continue
        begun = time.perf_counter()
        try:
            result[name] = part()
        except Exception as error:
            import traceback

            result[name] = {"wrong": {"error": f"{type(error).__name__}: {error}"}, "trace": traceback.format_exc()}
        wrong += bool(result[name].get("wrong"))
        print(name, f"{time.perf_counter() - begun:.1f} s", json.dumps(result[name]), flush=True)
        (OUT / "cuda_kernel.json").write_text(json.dumps(result, indent=1))
    return bool(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
