"""A Paddle model's ONNX file on TensorRT: each tensor of the engine beside ONNX Runtime, and beside Paddle's recording.

    . ENV/env.sh; cd CHECKOUT; OUT=/some/empty/folder python3.11 tests/gpu/paddle_export_tensorrt.py

tests/data/paddle_onnx holds what paddle2onnx 2.1.0 made of two PIR programs of Paddle 3.3.1, and recordings of
those programs in cpu_fp32, so that no Paddle is needed here. Of each: trt_fp16 against ort_fp32 of the same file, and
trt_fp16 against the recording, whose tensors are paired across the frameworks. Prints one line a case, PASS or FAIL.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from checkout import ROOT

OUT = Path(os.environ.get("OUT", ROOT / "output" / "gpu"))
STORED = ROOT / "tests" / "data" / "paddle_onnx"
SHAPES = {"cnn": (2, 3, 16, 16), "mlp": (2, 16)}
MODES = (("trt_fp32", 1e-3), ("trt_fp16", 2e-2))
if sys.argv[1:] == ["--without-tensorrt"]:  # the same on the CPU, to see that the script itself works
    MODES = (("ort_opt", 1e-3), ("ort_fp16", 2e-2))
SOURCES = "EDGE_MASK_CONVOLUTIONS,JIT_CONVOLUTIONS"  # a packed environment's cuBLAS and cuDNN may be stubs


def case(name: str, mode: str, baseline: dict[str, Any], feeds: Any, tolerance: float) -> bool:
    import precision_debug

    settings = {"tactic_sources": SOURCES} if mode.startswith("trt") else {}
    report = precision_debug.compare(
        STORED / f"{name}.onnx", run_mode=mode, **settings, **baseline, **feeds,
        output=OUT / f"{name}_{mode}_{len(baseline)}.json",
    )  # fmt: skip
    outputs = [row for row in report.outputs if row.comparison is not None]
    worst = max((float(row.comparison.max_abs or 0.0) for row in outputs if row.comparison), default=float("nan"))
    accusing = ("departs from the model", "is wrong at", "the attributes differ")
    wrong = [note for note in report.notes if any(one in note for one in accusing)]
    right = bool(outputs) and worst <= tolerance and not wrong
    told = {
        "case": name, "mode": mode, "against": "the recording" if len(baseline) == 1 else "ort_fp32",
        "verdict": str(report.verdict), "compared": len(report.compared), "rows": len(report.rows),
        "outputs": len(outputs), "worst output Max Atol": worst, "accused": wrong,
    }  # fmt: skip
    print("PASS" if right else "FAIL", json.dumps(told), flush=True)
    return right


def main() -> int:
    import numpy as np

    OUT.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name, shape in SHAPES.items():
        feeds = {"x": np.random.default_rng(4).normal(size=shape).astype(np.float32)}
        against: list[dict[str, Any]] = [{"baseline": "ort_fp32", "baseline_model": STORED / f"{name}.onnx"}]
        against.append({"baseline": str(STORED / f"{name}.recording")})
        for baseline in against:
            for mode, tolerance in MODES:
                try:
                    given = {} if len(baseline) == 1 else {"inputs": feeds}  # a recording brings its own, the same
                    failed += not case(name, mode, baseline, given, tolerance)
                except Exception:
                    failed += 1
                    print("FAIL", name, mode, baseline, flush=True)
                    traceback.print_exc()
    print(f"{failed} failed", flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
