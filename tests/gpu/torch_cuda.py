"""The backend's modes on a GPU: names, bit-identical outputs with and without hooks, TF32, and the device comparison.

Start from the repository's root on the GPU machine (under a minute)::

    PYTHONPATH=.:backends:tests OUT=${OUT:-output} python tests/gpu/torch_cuda.py

Writes $OUT/torch_cuda.json; the exit status is 1 where a check failed.
"""

from __future__ import annotations

import collections
import json
import math
import os
import sys
import traceback
from pathlib import Path

import numpy as np
import torch
import torch_models

OUT = Path(os.environ.get("OUT", "output"))
MODES = (
    "torch_fp32", "torch_fp64", "torch_fp16", "torch_bf16", "torch_autocast_fp16", "torch_autocast_bf16", "torch_tf32",
    "torch_compile",
)  # fmt: skip


def sessions(result: dict) -> None:
    from precision_debug_torch import TorchBackend

    from precision_debug.records import ModelFiles, SessionSpec

    backend = TorchBackend()
    for factory in ("resnet", "encoder", "decoder", "odd"):
        known: dict[str, set[str]] = {}
        for level in ("op", "module"):
            for mode in MODES:
                key = f"{factory} {level} {mode}"
                try:
                    available = backend.availability(mode)
                    if not available.ok:
                        result[key] = available.needs
                        continue
                    spec = SessionSpec(
                        model=ModelFiles(model_file=f"{torch_models.__file__}:{factory}"), mode=mode,
                        options={"level": level, "device": "cuda"},
                    )  # fmt: skip
                    feeds = backend.examples(spec)
                    session = backend.open(spec, [feeds])
                    seen: list[str] = []
                    plain = session.run(feeds)
                    shown = session.run(feeds, lambda kind, name, tensor, seen=seen: seen.append(name))
                    names = {meta.name for meta in session.tensors}
                    base = known.setdefault(level, names)
                    same = all(np.asarray(plain[n]).tobytes() == np.asarray(shown[n]).tobytes() for n in plain)
                    result[key] = {
                        "tensors": len(names),
                        "seen": len(seen),
                        "identical": same,
                        "shared_with_fp32": len(base & names),
                        "only_in_fp32": sorted(base - names)[:8],
                    }
                    session.close()
                except Exception as error:
                    result[key] = {"error": f"{type(error).__name__}: {error}", "identical": False}
                print(key, result[key], flush=True)


def pipeline(result: dict) -> None:
    """The whole command on the GPU: comparisons on the device say what the host's say, row by row."""
    import dataclasses

    import precision_debug

    for factory, mode in (("resnet", "torch_bf16"), ("encoder", "torch_autocast_fp16"), ("decoder", "torch_fp64"),
                          ("odd", "torch_bf16"), ("recurrent", "torch_fp64"), ("resnet", "torch_tf32")):  # fmt: skip
        for level in ("op", "module"):
            key = f"pipeline {factory} {mode} {level}"
            try:
                tables = [
                    precision_debug.compare(
                        f"{torch_models.__file__}:{factory}", run_mode=mode, device="cuda", level=level, lockstep=True,
                        compare_on=where, atol=1e-2, rtol=1e-2,
                    ).rows
                    for where in ("device", "host")
                ]  # fmt: skip
                wrong = []
                for one, other in zip(*tables, strict=True):
                    bare = {"comparison": None, "base": None, "target": None, "error_growth": None}
                    same = dataclasses.replace(one, **bare) == dataclasses.replace(other, **bare)
                    for name in ("mismatched", "max_abs", "rmse", "max_abs_index") if one.comparison else ():
                        pair = getattr(one.comparison, name), getattr(other.comparison, name)
                        near = isinstance(pair[0], float) and math.isclose(*pair, rel_tol=1e-5, abs_tol=1e-12)
                        same &= pair[0] == pair[1] or near
                    if not same:
                        wrong.append(one.name)
                counted = collections.Counter(f"{row.status} {row.paired_by}" for row in tables[0])
                result[key] = {"rows": len(tables[0]), "identical": not wrong, "wrong": wrong[:8], "rows_by": counted}
            except Exception as error:
                result[key] = {"error": f"{type(error).__name__}: {error}", "identical": False}
            print(key, result[key], flush=True)


def comparisons(result: dict) -> None:
    from precision_debug_torch.device_compare import compare_on_device

    from precision_debug import metrics
    from precision_debug.arrays import as_array
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
                want = metrics.compare(as_array(base), as_array(target), tolerance)
                for name in ("mismatched", "first_mismatch", "fp16_overflow", "fp16_subnormal", "identical"):
                    pair = getattr(got, name), getattr(want, name)
                    if pair[0] != pair[1]:
                        wrong.append(f"{size} {first} {second} {kind} {name}: {pair[0]} {pair[1]}")
                for name in ("max_abs", "max_rel", "mean_abs", "rmse", "sqnr_db", "required_atol", "required_rtol"):
                    one, two = getattr(got, name), getattr(want, name)
                    if one == two:
                        continue
                    worst[name] = max(worst[name], abs(one - two) / abs(two) if two else math.inf)
    result["comparison"] = {"wrong": wrong, "largest relative distance": worst}
    print(json.dumps(result["comparison"], indent=1), flush=True)


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    result: dict = {"torch": torch.__version__, "device": torch.cuda.get_device_name()}
    for step in (comparisons, pipeline, sessions):
        try:
            step(result)
        except Exception:
            result[step.__name__] = {"error": traceback.format_exc(), "identical": False}
            print(traceback.format_exc(), flush=True)
        (OUT / "torch_cuda.json").write_text(json.dumps(result, indent=1))
    broken = [key for key, value in result.items() if isinstance(value, dict) and value.get("identical") is False]
    print("failed:", broken or "nothing")
    return 1 if broken or result.get("comparison", {}).get("wrong") else 0


if __name__ == "__main__":
    sys.exit(main())
