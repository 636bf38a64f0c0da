"""The search on real TensorRT engines: from an overflow in FP16 to a verified engine, builds counted, layers inspected.

    . ENV/env.sh; cd CHECKOUT; OUT=/some/empty/folder python3.11 tests/gpu/search_tensorrt.py

For TensorRT 8.6 (weakly typed); with 10 and later the same cases run strongly typed. Each case prints what was kept,
the sets and engine builds that it took, errors and milliseconds of FP32, FP16 and mixed, what the inspector says of
each kept layer, what was handed over, and PASS or FAIL. The last line is the number of cases that fail.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "backends"), str(ROOT / "tests"), str(ROOT / "tests" / "gpu")]
OUT = Path(os.environ.get("OUT", ROOT / "output" / "gpu"))
SOURCES = os.environ.get("TACTICS", "EDGE_MASK_CONVOLUTIONS,JIT_CONVOLUTIONS")  # the packed environment's own limits


def searched(name: str, arguments: Sequence[str], *, states: Sequence[str], most_kept: int, most_builds: int) -> bool:
    """Search as it is typed. states: accepted answers. most_builds: engine builds that may be needed at most."""
    from precision_debug.cli import main
    from precision_debug.report.model import Report

    output = OUT / f"{name}.json"
    shutil.rmtree(OUT / f"{name}.search", ignore_errors=True)
    begun = time.monotonic()
    status = main(["search", "--output", str(output), "--output", str(output.with_suffix(".html")), *arguments])
    seconds = time.monotonic() - begun
    fix = Report.load(output).fix
    assert fix is not None
    told = {
        "case": name, "state": fix.state, "status": status, "seconds": round(seconds, 1), "builds": fix.builds,
        "sets": fix.evaluations, "on_engine": fix.on_engine, "before": fix.before, "after": fix.after,
        "kept": [unit.key for unit in fix.kept], "of": fix.units, "held_out": [fix.held, fix.held_out],
        "obeyed": fix.obeyed, "trade": [dataclasses.asdict(point) for point in fix.trade],
        "artefacts": [
            {"title": a.title, "verified": a.verified, "error": a.error, "ms": a.milliseconds, "note": a.note}
            for a in fix.artefacts
        ],
        "notes": fix.notes,
    }  # fmt: skip
    right = fix.state in states and len(fix.kept) <= most_kept and fix.builds <= most_builds
    if fix.state == "found":
        engine = [item for item in fix.artefacts if item.path.endswith(".engine")]
        right = right and bool(fix.obeyed) and bool(engine) and engine[0].verified is True
        right = right and not any("does NOT" in line for line in fix.obeyed) and status == 0
    print(f"{'PASS' if right else 'FAIL'}  {json.dumps(told, default=str)}", flush=True)
    return bool(right)


def written(name: str, model: Any, feeds: dict[str, Any]) -> list[str]:
    """The model and three sets of inputs as files, and the arguments that name them."""
    import numpy as np
    import onnx

    path, inputs = OUT / f"{name}.onnx", OUT / f"{name}_inputs"
    onnx.save(model, path)
    inputs.mkdir(exist_ok=True)
    dice = np.random.default_rng(5)
    for number in range(4):
        several = {
            key: value if number == 0 else (value * dice.uniform(0.8, 1.2, value.shape)).astype(value.dtype)
            for key, value in feeds.items()
        }
        np.savez(inputs / f"sample{number}.npz", **several)
    return ["--model_file", str(path), "--inputs", str(inputs)]


def encoder_files() -> list[str]:
    """An encoder whose layer 2's output dense exceeds FP16; the norm behind it brings everything back."""
    import explain_tensorrt
    import onnx

    path = OUT / "plain_encoder.onnx"
    feeds = explain_tensorrt.planted_encoder(int(os.environ.get("LAYERS", "4")), path)
    return written("encoder", onnx.load(path), feeds)


def constraints_files() -> list[str]:
    import importlib.util

    import numpy as np

    spec = importlib.util.spec_from_file_location("build", ROOT / "examples" / "needs_constraints" / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    feeds = {"x": np.random.default_rng(0).uniform(1, 2, (1, module.SIZE, module.SIZE)).astype(np.float32)}
    return written("needs_constraints", module.build(), feeds)


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    common = ["--option", f"tactic_sources={SOURCES}"] if SOURCES else []
    constraints, encoder = constraints_files(), encoder_files()
    cases = [
        # one kernel keeps the sum in a register, so that nothing need be kept (8.6); told apart it must be
        lambda: searched(
            "needs_constraints_fp16", [*constraints, *common, "--run_mode", "trt_fp16"],
            states=("not needed", "found"), most_kept=2, most_builds=8,
        ),
        # what overflows stays out of range until the norm behind it divides: a chain of ten operators
        lambda: searched(
            "encoder_overflow_fp16", [*encoder, *common, "--run_mode", "trt_fp16"], states=("found",), most_kept=12,
            most_builds=10,
        ),
        lambda: searched(
            "encoder_overflow_fp16_again", [*encoder, *common, "--run_mode", "trt_fp16", "--limit", "5e-3"],
            states=("found", "diffuse"), most_kept=40, most_builds=25,
        ),
        lambda: searched(
            "needs_constraints_int8", [*constraints, *common, "--run_mode", "trt_int8", "--limit", "50%"],
            states=("not needed", "found", "diffuse", "not possible"), most_kept=4, most_builds=12,
        ),
    ]  # fmt: skip
    wrong = 0
    for case in cases:
        try:
            wrong += not case()
        except Exception:
            traceback.print_exc()
            wrong += 1
    print(f"{wrong} of {len(cases)} fail", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
