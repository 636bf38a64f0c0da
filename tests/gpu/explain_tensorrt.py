"""Who did it, on real TensorRT engines: the operator that overflows, although a rebuilt engine shows it finite.

    . ENV/env.sh; cd CHECKOUT; OUT=/some/empty/folder python3.11 tests/gpu/explain_tensorrt.py

Each case prints its verdict, its culprits and its seconds with and without the explanation, and PASS or FAIL.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from checkout import ROOT

OUT = Path(os.environ.get("OUT", ROOT / "output" / "gpu"))
SOURCES = "EDGE_MASK_CONVOLUTIONS,JIT_CONVOLUTIONS"  # the packed environment's cuBLAS and cuDNN are stubs


def planted_encoder(layers: int, path: Path) -> dict[str, Any]:
    """An encoder whose layer 2's output dense exceeds FP16; the norm behind it brings everything back."""
    import numpy as np
    import onnx
    import tensorrt_models
    from onnx import numpy_helper

    model = tensorrt_models.encoder(layers=layers, length=64, width=256, heads=4)
    for tensor in model.graph.initializer:
        if tensor.name == "layer2_down_w":
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float32(3e5), tensor.name))
    onnx.save(model, path)
    rng = np.random.default_rng(11)
    return {"embeddings": rng.uniform(-1, 1, (1, 64, 256)).astype(np.float32)}


def case(name: str, model: Path, feeds: Any, who: tuple[str, ...], mode: str = "trt_fp16", **options: Any) -> bool:
    """Compare with and without explanation; who: accepted first culprits, () for none."""
    import precision_debug

    settings = {"tactic_sources": SOURCES, **options}
    begun = time.monotonic()
    report = precision_debug.compare(
        model, run_mode=mode, inputs=feeds, output=[OUT / f"{name}.json", OUT / f"{name}.html"], **settings
    )
    seconds = time.monotonic() - begun
    explanation = report.explanation
    assert explanation is not None
    found = [culprit.name for culprit in explanation.culprits]
    right = (found[:1] and found[0] in who) if who else not found
    told = {
        "case": name, "verdict": str(report.verdict), "state": explanation.state, "reason": explanation.reason,
        "method": explanation.method, "culprits": [dataclasses.asdict(c) for c in explanation.culprits[:4]],
        "number": len(found), "seconds": round(seconds, 1), "explaining": round(explanation.seconds, 2),
        "actual": explanation.actual, "expected": explanation.expected, "rows": len(report.rows),
    }  # fmt: skip
    print(f"{'PASS' if right else 'FAIL'}  {json.dumps(told, default=str)}", flush=True)
    return bool(right)


def main() -> int:
    import numpy as np

    OUT.mkdir(parents=True, exist_ok=True)
    constraints = OUT / "needs_constraints.onnx"
    os.system(f"{sys.executable} {ROOT / 'examples' / 'needs_constraints' / 'build.py'} -o {constraints}")
    import onnx

    shape = [d.dim_value or 1 for d in onnx.load(constraints).graph.input[0].type.tensor_type.shape.dim]
    feeds = {
        onnx.load(constraints).graph.input[0].name: np.random.default_rng(0).uniform(1, 2, shape).astype(np.float32)
    }
    obey = {"precision_constraints": "obey"}
    runs = [
        lambda: case("constraints_fp32", constraints, feeds, (), "trt_fp32"),
        # one kernel keeps the sum in a register, so the real engine's output is right, whatever a rebuilt one shows
        lambda: case("constraints_fp16", constraints, feeds, ()),
        lambda: case(
            "constraints_apart", constraints, feeds, ("added", "subtracted"),
            layer_precisions={"Add": "float16", "Sub": "float32"}, **obey,
        ),
        lambda: case(
            "constraints_obey_fp32", constraints, feeds, (),
            layer_precisions={"Add": "float32", "Sub": "float32"}, **obey,
        ),
    ]  # fmt: skip
    encoder = OUT / "encoder.onnx"
    wide = planted_encoder(int(os.environ.get("LAYERS", "4")), encoder)
    dense = ("layer2_down_matmul_out", "layer2_down_bias_out")
    runs.append(lambda: case("encoder_overflow", encoder, wide, dense))
    wrong = 0
    for run in runs:
        try:
            wrong += not run()
        except Exception:
            traceback.print_exc()
            wrong += 1
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
