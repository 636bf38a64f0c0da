"""Record PyTorch runs, to be the baseline where there is no torch: a residual network and a transformer encoder.

Where torch and onnx are (any machine), the exported files first; then the recordings where torch and the GPU are::

    OUT=output/record python tests/gpu/torch_record.py export
    OUT=output/record python3.12 tests/gpu/torch_record.py record [--device cuda]

and in the environment with TensorRT, for each model (one table each)::

    OUT=output/record python3.11 tests/gpu/torch_record.py compare [--mode trt_fp16 …]

$OUT/MODEL/ then holds model.onnx, recording/, and MODE.json, MODE.xlsx of each comparison; $OUT/record.json the sums.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

from checkout import ROOT

OUT = Path(os.environ.get("OUT", "output/record")).resolve()
MODELS = ("resnet", "encoder")
FACTORIES = ROOT / "tests" / "torch_models.py"


def export() -> dict:
    """By the older exporter, in the newest opset that TensorRT 8.6 reads."""
    import torch
    import torch_models

    for name in MODELS:
        module, given = getattr(torch_models, name)()
        inputs = given if isinstance(given, dict) else {"x": given}
        folder = OUT / name
        folder.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(
                module, tuple(inputs.values()), str(folder / "model.onnx"), dynamo=False, opset_version=17,
                input_names=list(inputs), output_names=["output"],
            )  # fmt: skip
    return {name: str(OUT / name / "model.onnx") for name in MODELS}


def command(*words: str) -> dict:
    """One ``python -m precision_debug …`` in the environment that runs this script."""
    paths = [str(ROOT), str(ROOT / "backends"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "precision_debug", *words], capture_output=True, text=True, check=False, timeout=280,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
    )  # fmt: skip
    print(*words, "-> status", done.returncode, flush=True)
    return {"status": done.returncode, "words": words, "out": done.stdout[-3000:], "err": done.stderr[-2000:]}


def record(device: str) -> dict:
    """Both models at the level of operators, in float32 with TF32 off."""
    return {
        name: command("--model_file", f"{FACTORIES}:{name}", "--run_mode", "torch_fp32", "--device", device, "--record",
                      str(OUT / name / "recording"))
        for name in MODELS
    }  # fmt: skip


def compare(modes: list[str]) -> dict:
    """One table for each model and mode."""
    from precision_debug import Report

    result: dict = {}
    for name in MODELS:
        folder = OUT / name
        for mode in modes:
            options = ["--tactic_sources", "EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS"] if "trt" in mode else []
            done = command(
                "--model_file", str(folder / "model.onnx"), "--run_mode", mode, "--baseline", str(folder / "recording"),
                "--atol", "1e-2", "--rtol", "1e-2", "--output", str(folder / f"{mode}.xlsx"), "--output",
                str(folder / f"{mode}.json"), *options,
            )  # fmt: skip
            file = folder / f"{mode}.json"
            if file.exists():
                report = Report.load(file)
                done |= {
                    "statuses": collections.Counter(str(row.status) for row in report.rows),
                    "paired_by": collections.Counter(row.paired_by.partition(",")[0] for row in report.rows),
                    "target": dict(report.target.versions), "baseline": dict(report.baseline.versions),
                    "notes": [*report.notes, *report.target.notes],
                    "outputs": {row.name: str(row.status) for row in report.outputs},
                    "rows": {
                        row.name: [row.target_name, str(row.status), row.comparison.max_abs, row.paired_by]
                        for row in report.compared if row.comparison
                    },
                }  # fmt: skip
                print(name, mode, done["statuses"], done["outputs"], flush=True)
            result[f"{name} {mode}"] = done
    result["torch"] = "torch" in sys.modules or None
    return result


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("step", choices=("export", "record", "compare"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--mode", nargs="+", default=["trt_fp32", "trt_fp16"])
    given = parser.parse_args()
    OUT.mkdir(parents=True, exist_ok=True)
    steps = {"export": export, "record": lambda: record(given.device), "compare": lambda: compare(given.mode)}
    found = steps[given.step]()
    file = OUT / "record.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps({**known, given.step: found}, indent=1))
    bad = [key for key, value in found.items() if isinstance(value, dict) and value["status"] not in (0, 1)]
    print("failed:", bad or "nothing")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
