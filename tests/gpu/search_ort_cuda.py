"""The search for ONNX Runtime on CUDA: an encoder whose scores and norm overflow in FP16, from NaN to a mixed model.

    OUT=/some/empty/folder python tests/gpu/search_ort_cuda.py        (onnxruntime-gpu, CUDA and cuDNN)

One command searches; then FP32, FP16 and the mixed model that was handed over run in plain sessions, without this tool,
inputs and outputs on the device: error against FP32 on four inputs, and the median of 100 runs. PASS or FAIL at the
end. MODE=ort_fp16 runs the same on the CPU; LAYERS, SIZE and LENGTH make it smaller.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from checkout import ROOT

sys.path[:0] = [str(ROOT / "tests" / "benchmarks")]
OUT = Path(os.environ.get("OUT", ROOT / "output" / "gpu"))
MODE = os.environ.get("MODE", "ort_cuda_fp16")
RUNS = 100 if "cuda" in MODE else 5


def session(path: Path) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    providers = (["CUDAExecutionProvider"] if "cuda" in MODE else []) + ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(str(path), options, providers=providers)


def measured(path: Path, inputs: list[dict[str, Any]], exact: list[Any]) -> tuple[float, float, int, list[Any]]:
    """Worst relative L2 error (nan: not finite), median milliseconds, bytes, and the outputs."""
    import numpy as np

    engine = session(path)
    got = [engine.run(None, feeds)[0].astype(np.float64) for feeds in inputs]
    binding = engine.io_binding()
    device = "cuda" if "cuda" in MODE else "cpu"
    import onnxruntime

    for name, value in inputs[0].items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(value, device, 0))
    binding.bind_output(engine.get_outputs()[0].name, device, 0)
    times = []
    for number in range(RUNS + 10):
        begun = time.perf_counter()
        engine.run_with_iobinding(binding)
        binding.synchronize_outputs()
        if number >= 10:
            times.append(time.perf_counter() - begun)
    errors = [float(np.linalg.norm(one - base) / np.linalg.norm(base)) for one, base in zip(got, exact, strict=False)]
    return max(errors, default=0.0), 1000 * statistics.median(times), path.stat().st_size, got


def main() -> int:
    import numpy as np
    from bench_search import encoder

    from precision_debug.cli import main as command
    from precision_debug.report.model import Report

    OUT.mkdir(parents=True, exist_ok=True)
    layers, size, length = (int(os.environ.get(name, usual)) for name, usual in
                            (("LAYERS", "8"), ("SIZE", "1024"), ("LENGTH", "512")))  # fmt: skip
    path, feeds = encoder(OUT, layers, size, length)
    folder = OUT / "inputs"
    folder.mkdir(exist_ok=True)
    inputs = [{name: value * np.float32(1 - 0.1 * number) for name, value in feeds.items()} for number in range(4)]
    for number, several in enumerate(inputs):
        np.savez(folder / f"{number}.npz", **several)
    output = OUT / "search.json"
    begun = time.monotonic()
    status = command(["search", "--model_file", str(path), "--run_mode", MODE, "--inputs", str(folder),
                      "--limit", "0.02", "--output", str(output)])  # fmt: skip
    seconds = time.monotonic() - begun
    fix = Report.load(output).fix
    assert fix is not None
    right = status == 0 and fix.state == "found" and all(item.verified is not False for item in fix.artefacts)
    told = {
        "state": fix.state, "kept": [unit.key for unit in fix.kept], "of": fix.units, "sets": fix.evaluations,
        "on_engine": fix.on_engine, "opened": fix.builds, "before": fix.before, "after": fix.after,
        "held_out": [fix.held, fix.held_out], "seconds": round(seconds, 1),
        "trade": [[p.what, p.kept, p.error, p.milliseconds, p.bytes] for p in fix.trade],
        "artefacts": [[a.title, a.verified, a.error, a.milliseconds] for a in fix.artefacts],
    }  # fmt: skip
    print(json.dumps(told, default=str), flush=True)
    low = OUT / "fp16.onnx"
    command(["--model_file", str(path), "--run_mode", MODE, "--inputs", str(folder / "0.npz"), "--explain", "off",
             "--save_model", str(low), "--quiet", "--output", str(OUT / "low.json")])  # fmt: skip
    mixed = next((Path(item.path) for item in fix.artefacts if item.path), None)
    assert mixed is not None
    _, speed, bytes_, exact = measured(path, inputs, [])
    table = [("FP32", 0.0, speed, bytes_)]
    for name, file in (("FP16", low), ("mixed", mixed)):
        error, speed, bytes_, _ = measured(file, inputs, exact)
        table.append((name, error, speed, bytes_))
    print("| model | worst Rel L2 of 4 inputs | ms a run | MB |")
    print("|---|---|---|---|")
    for name, error, speed, bytes_ in table:
        print(f"| {name} | {error:.3g} | {speed:.3g} | {bytes_ / 1e6:.3g} |", flush=True)
    right = right and not table[1][1] < 0.02 and table[2][1] < 0.02
    print("PASS" if right else "FAIL", flush=True)
    return int(not right)


if __name__ == "__main__":
    raise SystemExit(main())
