"""The backend's modes on a GPU: names, bit-identical outputs with and without hooks, TF32, and the device comparison.

Start from the repository's root on the GPU machine (under 200 s)::

    OUT=${OUT:-output} python tests/gpu/torch_cuda.py

Each case runs in a worker process. One that takes over LIMIT seconds says where each of its threads is, ends with its
worker, and the next case starts in a new one; all ends within WHOLE seconds.
Writes $OUT/torch_cuda.json after each case; the exit status is 1 where a check failed or did not end.
"""

from __future__ import annotations

import collections
import faulthandler
import json
import math
import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import checkout  # noqa: F401
import numpy as np
import torch
import torch_models

OUT = Path(os.environ.get("OUT", "output"))
MODES = (
    "torch_fp32", "torch_fp64", "torch_fp16", "torch_bf16", "torch_autocast_fp16", "torch_autocast_bf16", "torch_tf32",
    "torch_compile",
)  # fmt: skip


LIMIT = 90.0
"""Seconds of one case."""

WHOLE = 190.0
"""Seconds of all cases."""

PIPELINES = (("recurrent", "torch_fp64"), ("recurrent", "torch_bf16"), ("recurrent", "torch_fp16"),
             ("recurrent", "torch_autocast_bf16"), ("decoder", "torch_fp64"), ("resnet", "torch_bf16"),
             ("encoder", "torch_autocast_fp16"), ("odd", "torch_bf16"), ("resnet", "torch_tf32"))  # fmt: skip


def session(factory: str, mode: str, level: str) -> dict:
    """One mode's names, and its outputs with and without hooks."""
    from precision_debug_torch import TorchBackend

    from precision_debug.records import ModelFiles, SessionSpec

    backend = TorchBackend()
    available = backend.availability(mode)
    if not available.ok:
        return {"needs": available.needs}
    spec = SessionSpec(
        model=ModelFiles(model_file=f"{torch_models.__file__}:{factory}"), mode=mode,
        options={"level": level, "device": "cuda"},
    )  # fmt: skip
    feeds = backend.examples(spec)
    opened = backend.open(spec, [feeds])
    seen: list[str] = []
    plain = opened.run(feeds)
    shown = opened.run(feeds, lambda kind, name, tensor: seen.append(name))
    names = {meta.name for meta in opened.tensors}
    same = all(np.asarray(plain[n]).tobytes() == np.asarray(shown[n]).tobytes() for n in plain)
    opened.close()
    return {"names": sorted(names), "seen": len(seen), "identical": same}


def pipeline(factory: str, mode: str, level: str) -> dict:
    """The whole command on the GPU: comparisons on the device say what the host's say, row by row."""
    import dataclasses

    import precision_debug

    tables, seconds = [], []
    for where in ("device", "host"):
        began = time.monotonic()
        tables.append(
            precision_debug.compare(
                f"{torch_models.__file__}:{factory}", run_mode=mode, device="cuda", level=level, lockstep=True,
                compare_on=where, atol=1e-2, rtol=1e-2,
            ).rows
        )  # fmt: skip
        seconds.append(round(time.monotonic() - began, 2))
        print(where, seconds[-1], flush=True)
    wrong = {}
    for one, other in zip(*tables, strict=True):
        bare = {"comparison": None, "base": None, "target": None, "error_growth": None}
        differ = [
            f"{field.name}: {getattr(one, field.name)!r} | {getattr(other, field.name)!r}"
            for field in dataclasses.fields(one)
            if field.name not in bare and not _alike(getattr(one, field.name), getattr(other, field.name))
        ]
        for name in ("mismatched", "max_abs", "rmse", "max_abs_index"):
            pair = [getattr(row.comparison, name) if row.comparison else None for row in (one, other)]
            near = all(isinstance(n, float) for n in pair) and (
                math.isclose(*pair, rel_tol=1e-5, abs_tol=1e-12) or all(map(math.isnan, pair))
            )
            if pair[0] != pair[1] and not near:
                differ.append(f"{name}: {pair[0]!r} | {pair[1]!r}")
        if differ:
            wrong[one.name] = differ
    counted = collections.Counter(f"{row.status} {row.paired_by}" for row in tables[0])
    return {
        "rows": len(tables[0]), "identical": not wrong, "wrong": dict(list(wrong.items())[:8]), "rows_by": counted,
        "seconds_device_host": seconds,
    }  # fmt: skip


def _alike(one: object, other: object) -> bool:
    """Equal; what operators added to a relative 1e-6, since sums on the device have an order of their own."""
    import dataclasses

    if not dataclasses.is_dataclass(one) or type(one) is not type(other):
        return one == other
    pairs = [(getattr(one, f.name), getattr(other, f.name)) for f in dataclasses.fields(one)]
    return all(
        math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-12) if isinstance(a, float) and isinstance(b, float) else a == b
        for a, b in pairs
    )


def comparisons() -> dict:
    """Comparisons on the device next to those of the host."""
    from precision_debug import numbers
    from precision_debug.numbers.arrays import as_array
    from precision_debug.products.device.torch_tensors import compare_on_device
    from precision_debug.records import Tolerance

    worst: dict[str, float] = collections.defaultdict(float)
    wrong: list[str] = []
    for size in (1, 100, 4097, 70001, 3_000_001):
        for first, second in (("float32", "float32"), ("float16", "float16"), ("float32", "bfloat16")):
            for kind in ("near", "edge", "bad", "scaled", "equal"):
                base = torch.randn(size, device="cuda").to(getattr(torch, first))
                target = (base.float() * (1 + 1e-3 * torch.randn(size, device="cuda"))).to(getattr(torch, second))
                tolerance = Tolerance(atol=1e-3, rtol=1e-3)
                if kind == "edge":
                    base, target = torch.ones_like(base), torch.ones_like(target) + 2**-7
                    tolerance = Tolerance(atol=0.0, rtol=2**-7)
                elif kind == "bad":
                    base[::11], target[::7] = math.nan, math.inf
                elif kind == "scaled":
                    target *= 5
                elif kind == "equal":
                    target = base.clone()
                got = compare_on_device(base, target, tolerance)
                want = numbers.compare(as_array(base), as_array(target), tolerance)
                for name in ("mismatched", "first_mismatch", "fp16_overflow", "fp16_subnormal", "identical"):
                    pair = getattr(got, name), getattr(want, name)
                    if pair[0] != pair[1]:
                        wrong.append(f"{size} {first} {second} {kind} {name}: {pair[0]} {pair[1]}")
                for name in ("max_abs", "max_rel", "mean_abs", "rmse", "sqnr_db", "required_atol", "required_rtol"):
                    one, two = getattr(got, name), getattr(want, name)
                    if one == two:
                        continue
                    worst[name] = max(worst[name], abs(one - two) / abs(two) if two else math.inf)
    return {"identical": not wrong, "wrong": wrong, "largest relative distance": dict(worst)}


def cases() -> Iterator[tuple[str, Callable[..., dict], tuple[str, ...]]]:
    for mode in MODES:
        for factory in ("resnet", "encoder", "decoder", "odd"):
            for level in ("op", "module"):
                if mode != "torch_compile":
                    yield f"{factory} {level} {mode}", session, (factory, mode, level)
    for factory, mode in PIPELINES:
        for level in ("op", "module"):
            yield f"pipeline {factory} {mode} {level}", pipeline, (factory, mode, level)
    yield "comparison", comparisons, ()
    for factory in ("resnet", "encoder", "decoder", "odd"):
        for level in ("op", "module"):
            yield f"{factory} {level} torch_compile", session, (factory, "torch_compile", level)


def work(pipe: Connection, first: int) -> None:
    """The cases from ``first`` on, one after the other; an answer each."""
    for _key, function, arguments in list(cases())[first:]:
        faulthandler.dump_traceback_later(LIMIT - 4, exit=False)
        began = time.monotonic()
        try:
            found = function(*arguments)
        except Exception as error:
            found = {"error": f"{type(error).__name__}: {error}", "identical": False}
            print(traceback.format_exc(), flush=True)
        faulthandler.cancel_dump_traceback_later()
        pipe.send({"seconds": round(time.monotonic() - began, 2), **found})
    pipe.close()


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    result: dict = {"torch": torch.__version__}
    fork = multiprocessing.get_context("fork")  # CUDA starts in the workers only
    known: dict[str, set[str]] = {}
    worker = pipe = None
    for number, (key, _function, arguments) in enumerate(cases()):
        left = WHOLE - (time.monotonic() - began)
        if left <= 0:
            result[key] = {"error": f"not started: {WHOLE:.0f} s are over", "identical": False}
            continue
        if worker is None:
            pipe, theirs = fork.Pipe()
            worker = fork.Process(target=work, args=(theirs, number), daemon=True)
            worker.start()
            theirs.close()
        limit = min(LIMIT, left)
        try:
            found = pipe.recv() if pipe.poll(limit) else {"error": f"did not end in {limit:.0f} s", "identical": False}
        except EOFError:
            worker.join()
            found = {"error": f"the process ended with exit status {worker.exitcode}", "identical": False}
        if "error" in found and "seconds" not in found:
            worker.kill()
            worker.join()
            worker = None
        if "names" in found:
            names = set(found.pop("names"))
            base = known.setdefault(f"{arguments[0]} {arguments[2]}", names)
            found |= {
                "tensors": len(names), "shared_with_fp32": len(base & names), "only_in_fp32": sorted(base - names)[:8],
            }  # fmt: skip
        result[key] = found
        print(key, json.dumps(found), flush=True)
        (OUT / "torch_cuda.json").write_text(json.dumps(result, indent=1))
    result["seconds"] = round(time.monotonic() - began, 1)
    (OUT / "torch_cuda.json").write_text(json.dumps(result, indent=1))
    broken = [key for key, value in result.items() if isinstance(value, dict) and value.get("identical") is False]
    print("seconds:", result["seconds"], "failed:", broken or "nothing", flush=True)
    if worker is not None:
        worker.kill()
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
