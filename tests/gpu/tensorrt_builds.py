"""How many engines a report costs, and how long they take beside the real one, by model and mode.

    . ENV/env.sh; cd CHECKOUT; OUT=/some/empty/folder python3.11 tests/gpu/tensorrt_builds.py [CASE …]

Each case runs in a process of its own: what the first build of a process loads is part of its real build. Prints a line
a case: real build, rebuilt engines with their seconds and marks, the whole command, and the ratio of all builds to the
real one, which is to be 3 at most: PASS or FAIL. LAYERS (12) and IMAGE (224, height and width in pixels) make the
models of all cases but "encoder of 4" smaller.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from checkout import ROOT

OUT = Path(os.environ.get("OUT", ROOT / "output" / "gpu"))
LAYERS, IMAGE = int(os.environ.get("LAYERS", "12")), int(os.environ.get("IMAGE", "224"))
_AIM = 3.0
"""All builds together, times the real engine's, at most."""
SOURCES = os.environ.get("SOURCES", "EDGE_MASK_CONVOLUTIONS,JIT_CONVOLUTIONS")  # others may be stubs


def _encoder(layers: int) -> tuple[Any, dict[str, Any]]:
    import numpy as np
    import tensorrt_models

    model = tensorrt_models.encoder(layers=layers, length=64, width=256, heads=4)
    return model, {"embeddings": np.random.default_rng(0).uniform(-1, 1, (1, 64, 256)).astype(np.float32)}


def _transformer(layers: int, **options: Any) -> tuple[Any, dict[str, Any]]:
    """2 x 64 tokens of width 256, opset 17."""
    import numpy as np
    import tensorrt_models

    model = tensorrt_models.encoder(2, 64, layers=layers, width=256, heads=4, decomposed=False, **options)
    rng = np.random.default_rng(0)
    feeds = {"embeddings": rng.uniform(-1, 1, (2, 64, 256)).astype(np.float32)}
    if options.get("mask") == "padding":
        feeds["mask"] = np.array([[1.0] * 64, [1.0] * 40 + [0.0] * 24], np.float32)
    return model, feeds


def _resnet(depth: int, batch: str = "1") -> tuple[Any, dict[str, Any]]:
    import numpy as np
    import onnx

    path = OUT / f"resnet{depth}_{batch}_{os.getpid()}.onnx"
    build = [sys.executable, str(ROOT / "examples" / "resnet" / "build.py"), "--depth", str(depth), "--batch", batch]
    subprocess.run([*build, "--image", str(IMAGE), "-o", str(path)], check=True, capture_output=True)
    model = onnx.load(path)
    path.unlink()
    size = 2 if batch == "dynamic" else int(batch)
    feed = np.random.default_rng(0).normal(size=(size, 3, IMAGE, IMAGE)).astype(np.float32)
    return model, {model.graph.input[0].name: feed}


CASES: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "resnet18 fp16": (lambda: _resnet(18), "trt_fp16", {}),
    "resnet50 fp16": (lambda: _resnet(50), "trt_fp16", {}),
    "encoder of 4 fp16": (lambda: _encoder(4), "trt_fp16", {}),
    "encoder fp16": (lambda: _encoder(LAYERS), "trt_fp16", {}),
    "pre-LN encoder fp16": (lambda: _transformer(LAYERS, pre_norm=True), "trt_fp16", {}),
    "post-LN encoder with padding fp16": (lambda: _transformer(LAYERS, mask="padding"), "trt_fp16", {}),
    "decoder fp16": (lambda: _transformer(LAYERS, pre_norm=True, mask="causal"), "trt_fp16", {}),
    "resnet18 dynamic batch fp16": (lambda: _resnet(18, "dynamic"), "trt_fp16", {}),
    "resnet18 int8": (lambda: _resnet(18), "trt_int8", {}),
    "resnet18 fp32": (lambda: _resnet(18), "trt_fp32", {}),
}


def one(name: str) -> int:
    """Run a case; its figures as one line of JSON."""
    import onnx
    from precision_debug_tensorrt.make import Maker

    import precision_debug

    make, mode, options = CASES[name]
    model, feeds = make()
    path = OUT / f"{name.replace(' ', '_')}.onnx"
    onnx.save(model, path)
    builds: list[tuple[int, float]] = []
    plain = Maker._build

    def counted(self: Any, marks: Any, *rest: Any) -> Any:
        begun = time.monotonic()
        try:
            return plain(self, marks, *rest)
        finally:
            builds.append((len(marks), round(time.monotonic() - begun, 1)))

    Maker._build = counted  # type: ignore[method-assign]
    begun = time.monotonic()
    settings = {"tactic_sources": SOURCES, **options} if SOURCES else options
    report = precision_debug.compare(path, run_mode=mode, inputs=feeds, output=[OUT / f"{path.stem}.json"], **settings)
    path.unlink()
    real = builds[0][1]
    told = {
        "case": name, "real": real, "rebuilt": builds[1:], "ratio": round(sum(s for _, s in builds) / real, 2),
        "whole": round(time.monotonic() - begun, 1), "verdict": str(report.verdict),
        "rows": {str(status): count for status, count in report.counts.items() if count},
        "notes": [note for note in map(str, report.target.notes) if "rebuilt" in note or "another" in note],
    }  # fmt: skip
    print(json.dumps(told), flush=True)
    return 0


def main(names: list[str]) -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in names or CASES:
        done = subprocess.run([sys.executable, __file__, "--one", name], capture_output=True, text=True, check=False)
        line = next((line for line in reversed(done.stdout.splitlines()) if line.startswith("{")), "")
        good = bool(line) and json.loads(line)["ratio"] <= _AIM
        told = line or f"{name}: status {done.returncode} {done.stderr[-1500:]}"
        print(f"{'PASS' if good else 'FAIL'}  {told}", flush=True)
        failed += not good
    return int(failed > 0)


if __name__ == "__main__":
    raise SystemExit(one(sys.argv[2]) if sys.argv[1:2] == ["--one"] else main(sys.argv[1:]))
