"""The search for ONNX Runtime on CUDA: an encoder whose scores and norm overflow in FP16, from NaN to a mixed model.

    OUT=/some/empty/folder python tests/gpu/search_ort_cuda.py        (onnxruntime-gpu, CUDA and cuDNN)

Prints what was kept, errors and milliseconds of FP16, mixed and FP32, what was handed over, and PASS or FAIL.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "backends"), str(ROOT / "tests"), str(ROOT / "tests" / "benchmarks")]
OUT = Path(os.environ.get("OUT", ROOT / "output" / "gpu"))


def main() -> int:
    import numpy as np
    from bench_search import encoder

    from precision_debug.cli import main as command
    from precision_debug.report.model import Report

    OUT.mkdir(parents=True, exist_ok=True)
    path, feeds = encoder(OUT)
    folder = OUT / "inputs"
    folder.mkdir(exist_ok=True)
    for number in range(4):
        np.savez(folder / f"{number}.npz", **{name: value * (1 - 0.1 * number) for name, value in feeds.items()})
    output = OUT / "search.json"
    status = command(["search", "--model_file", str(path), "--run_mode", "ort_cuda_fp16", "--inputs", str(folder),
                      "--limit", "0.02", "--output", str(output)])  # fmt: skip
    fix = Report.load(output).fix
    assert fix is not None
    right = status == 0 and fix.state == "found" and all(item.verified is not False for item in fix.artefacts)
    told = {
        "state": fix.state, "kept": [unit.key for unit in fix.kept], "of": fix.units, "sets": fix.evaluations,
        "on_engine": fix.on_engine, "opened": fix.builds, "before": fix.before, "after": fix.after,
        "held_out": [fix.held, fix.held_out],
        "trade": [[p.what, p.kept, p.error, p.milliseconds, p.bytes] for p in fix.trade],
        "artefacts": [[a.title, a.verified, a.error, a.milliseconds] for a in fix.artefacts],
    }  # fmt: skip
    print(f"{'PASS' if right else 'FAIL'}  {json.dumps(told, default=str)}")
    return int(not right)


if __name__ == "__main__":
    raise SystemExit(main())
