"""The search on real TensorRT engines: from an overflow in FP16 to a verified engine, builds counted, layers inspected.

    . ENV/env.sh; cd CHECKOUT; OUT=/some/empty/folder python3.11 tests/gpu/search_tensorrt.py

For TensorRT 8.6 (weakly typed); with 10 and later the same cases run strongly typed. Each case prints what was kept,
the sets and engine builds that it took, errors and milliseconds of FP32, FP16 and mixed, what the inspector says of
each kept layer, what was handed over, and PASS or FAIL. Names of cases may be given; LAYERS makes the encoder smaller.
The last line is the number of cases that fail.
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

from checkout import ROOT

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


def needed(name: str, arguments: Sequence[str], output: str, *, part: int) -> bool:
    """Which of the kept layers the engine itself cannot do without: one build for each, without it. part: 0 or 1, every
    second of them, since a build takes 20 to 70 s and all of them took over ten minutes."""
    from precision_debug.cli import main
    from precision_debug.report.model import Report

    spare, kept = [], _kept(name)
    for layer in kept[part::2]:
        rest = [one for one in kept if one != layer]
        path = OUT / f"{name}_without.json"
        main(["--output", str(path), "--quiet", "--explain", "off", "--mark", output, *arguments,
              "--option", f"target.timing_cache={OUT / 'timing.cache'}",
              "--option", f"keep_layers={json.dumps(rest)}", "--precision_constraints", "obey"])  # fmt: skip
        row = Report.load(path).outputs[0]
        error = None if row.non_finite else row.relative_l2
        print(f"  without {layer}: {'NaN or Inf' if error is None else f'Rel L2 {error:.3g}'}", flush=True)
        if error is not None and error <= 0.0117:
            spare.append(layer)
    print(f"{'PASS' if not spare else 'FAIL'}  {name}: the engine can do without {spare or 'none'}", flush=True)
    return not spare


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


def outlier_files() -> list[str]:
    """Two channels of one layer are 300 times the others, and cancel in the layer behind: INT8's grid is theirs."""
    import numpy as np
    from planted.onnx_faults import Graph

    g = Graph(seed=4)
    x = g.input("x", g.random.normal(size=(32, 64)).astype(np.float32))
    for block in range(4):
        up = g.op("Relu", [g.dense(x, 64, 128, f"up{block}")], f"act{block}")
        down = g.dense(up, 128, 64, f"down{block}")
        x = g.op("Add", [x, down], f"sum{block}")
    wide, back = g.weights["up2.w"], g.weights["down2.w"]
    wide[:, 5] *= 300
    wide[:, 6], g.weights["up2.b"][6] = wide[:, 5], g.weights["up2.b"][5]
    back[5] *= 3
    back[6] = -back[5]
    path = g.save(OUT / "plain_outlier.onnx", [g.dense(x, 64, 10, "y")])
    import onnx

    return written("outlier", onnx.load(path), g.feeds)


def _kept(name: str) -> list[str]:
    from precision_debug.report.model import Report

    fix = Report.load(OUT / f"{name}.json").fix
    assert fix is not None
    return [unit.key for unit in fix.kept]


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    common = ["--option", f"tactic_sources={SOURCES}"] if SOURCES else []
    common += ["--option", "optimization_level=1"]  # a third of the seconds of a build
    constraints, encoder, outlier = constraints_files(), encoder_files(), outlier_files()
    cases = {
        # what overflows stays out of range until the norm behind it divides: a chain of ten operators, each edge of
        # which needs both of its ends, so that ten are the least that casts allow
        "encoder": lambda: searched(
            "encoder_overflow_fp16", [*encoder, *common, "--run_mode", "trt_fp16"], states=("found",), most_kept=10,
            most_builds=8,
        ),
        "needed_first": lambda: needed(
            "encoder_overflow_fp16", [*encoder, *common, "--run_mode", "trt_fp16"], "encoded", part=0
        ),
        "needed_rest": lambda: needed(
            "encoder_overflow_fp16", [*encoder, *common, "--run_mode", "trt_fp16"], "encoded", part=1
        ),
        "int8": lambda: searched(
            "outlier_int8", [*outlier, *common, "--run_mode", "trt_int8", "--limit", "20%"],
            # 8.6 runs this network in FP32 and TF32, where there is nothing to mend
            states=("found", "not possible"), most_kept=3, most_builds=10,
        ),
        # one kernel keeps the sum in a register, so that nothing need be kept (8.6); told apart it must be
        "constraints": lambda: searched(
            "needs_constraints_fp16", [*constraints, *common, "--run_mode", "trt_fp16"],
            states=("not needed", "found"), most_kept=2, most_builds=8,
        ),
        "constraints_int8": lambda: searched(
            "needs_constraints_int8", [*constraints, *common, "--run_mode", "trt_int8", "--limit", "50%"],
            states=("not needed", "found", "diffuse", "not possible"), most_kept=4, most_builds=12,
        ),
    }  # fmt: skip
    chosen = sys.argv[1:] or list(cases)
    wrong = 0
    for name in chosen:
        try:
            wrong += not cases[name]()
        except Exception:
            traceback.print_exc()
            wrong += 1
    print(f"{wrong} of {len(chosen)} fail", flush=True)
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
