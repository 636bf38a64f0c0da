"""ONNX Runtime on CUDA: whole commands beside the bare process that does the same two inferences.

    PYTHONPATH=WHEEL LD_LIBRARY_PATH=<torch nvidia/*/lib, by colons> python tests/gpu/ort_cuda.py

ResNet-50 of batch 8, every tensor. The bare process imports, opens the baseline's and the target's session and runs
both once. Medians of three, one line of JSON a mode; aim: at most 1.6 times the bare process. ``--bare MODE FILE`` is
that process.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from checkout import ROOT

OUT = Path(os.environ.get("OUT", ROOT / "output" / "gpu"))
TIMES = int(os.environ.get("TIMES", "3"))
LABELS = {"not explained": ["--explain", "off"], "command": [], "one after the other": ["--lockstep", "off"]}
MODES = {
    "ort_cuda_fp32": ["--option", "use_tf32=0"],
    "ort_cuda_fp32 with TF32": [],
    "ort_cuda_fp16": [],
}


def bare(mode: str, file: str, converted: str) -> None:
    import numpy as np
    import onnxruntime as ort

    feeds = {"image": np.random.default_rng(0).normal(size=(8, 3, 224, 224)).astype(np.float32)}
    base = ort.InferenceSession(file, providers=["CPUExecutionProvider"])
    target = ort.InferenceSession(
        converted, providers=[("CUDAExecutionProvider", {"use_tf32": str(int(mode.endswith("TF32")))})]
    )
    feeds = {base.get_inputs()[0].name: feeds["image"]}
    base.run(None, feeds)
    target.run(None, feeds)


def seconds(words: list[str]) -> tuple[float, str]:
    taken, said = [], ""
    for _ in range(TIMES):
        begun = time.perf_counter()
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        taken.append(time.perf_counter() - begun)
        if done.returncode not in (0, 1):
            said = f"status {done.returncode}: {(done.stdout + done.stderr)[-600:]}"
    return round(statistics.median(taken), 2), said


def converted(model: Path, mode: str) -> Path:
    """What the target's session loads in the bare process."""
    if mode != "ort_cuda_fp16":
        return model
    import onnx
    from onnxruntime.transformers.float16 import convert_float_to_float16

    path = OUT / "resnet50.float16.onnx"
    if not path.exists():
        onnx.save(convert_float_to_float16(onnx.load(model), keep_io_types=True), path)
    return path


def peak(words: list[str]) -> int:
    """MB of the card's memory that a process takes at most, as nvidia-smi's list of the card says every 20 ms."""
    ask = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]

    def used() -> int:
        return int(subprocess.run(ask, capture_output=True, text=True, check=True).stdout.split()[0])

    before = most = used()
    running = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while running.poll() is None:
        most = max(most, used())
        time.sleep(0.02)
    return most - before


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    failed = 0
    model = OUT / "resnet50.onnx"
    build = [sys.executable, str(ROOT / "examples" / "resnet" / "build.py"), "--depth", "50", "--batch", "8"]
    subprocess.run([*build, "-o", str(model)], check=True, capture_output=True)
    for name, options in MODES.items():
        mode = name.split()[0]
        report = OUT / f"{mode}.json"
        plain = [sys.executable, "-m", "precision_debug", "--model_file", str(model), "--run_mode", mode, "--output",
                 str(report), "--quiet", *options]  # fmt: skip
        told: dict[str, Any] = {"mode": name}
        bare_words = [sys.executable, __file__, "--bare", name, str(model), str(converted(model, mode))]
        told["bare"], said = seconds(bare_words)
        for label, more in LABELS.items():
            told[label], problem = seconds([*plain, *more])
            said = said or problem
        told["times the bare"] = {name: round(told[name] / told["bare"], 2) for name in LABELS}
        if report.exists():
            found = json.loads(report.read_text())
            told["verdict"] = found["summary"].get("verdict")
        told["peak MB of the card"] = {"bare": peak(bare_words), "command": peak(plain)}
        print(json.dumps({**told, "problem": said}), flush=True)
        failed += bool(said)
    model.unlink()
    return int(failed > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--bare"]:
        bare(*sys.argv[2:5])
    else:
        raise SystemExit(main())
