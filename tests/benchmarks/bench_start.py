"""What a command costs before, beside and after the runs themselves: several versions by turns, small models.

    python tests/benchmarks/bench_start.py [--repeat 7] PYTHON...

Each PYTHON is an interpreter whose environment has one version installed. Prints the median of seconds of the
processor, child process included, and of the clock: ``--help``; a small convnet in ort_fp16 to .xlsx, explained not and
fast; three layers of PyTorch in torch_bf16 to .json.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]

LAYERS = """
import torch

def build():
    torch.manual_seed(0)
    layers = torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)
    return torch.nn.Sequential(*layers).eval(), torch.rand(2, 8)
"""


def cases(folder: Path) -> dict[str, list[str]]:
    """The commands, their models written."""
    import onnx

    sys.path[:0] = [str(TESTS)]
    import onnx_models

    onnx.save(onnx_models.convnet(), folder / "m.onnx")
    (folder / "layers.py").write_text(LAYERS)
    convnet = ["--model_file", str(folder / "m.onnx"), "--run_mode", "ort_fp16", "--quiet"]
    layers = ["--model_file", f"{folder / 'layers.py'}:build", "--run_mode", "torch_bf16", "--quiet"]
    return {
        "--help": ["--help"],
        "convnet, ort_fp16, --explain off": [*convnet, "--output", str(folder / "o.xlsx"), "--explain", "off"],
        "convnet, ort_fp16": [*convnet, "--output", str(folder / "o.xlsx")],
        "3 layers, torch_bf16": [*layers, "--output", str(folder / "o.json")],
    }


def spent(command: list[str], folder: Path) -> tuple[float, float]:
    """Seconds of the processor and of the clock."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    passed, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, passed


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("python", nargs="*", default=[sys.executable])
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        commands = cases(folder)
        for _ in range(chosen.repeat):
            for name, words in commands.items():
                for python in chosen.python:
                    took = spent([python, "-m", "precision_debug", *words], folder)
                    found.setdefault((name, python), []).append(took)
    print("| command | version | processor, s | clock, s |\n|---|---|---|---|")
    for (name, python), took in found.items():
        cpu, clock = (statistics.median(one) for one in zip(*took, strict=True))
        print(f"| {name} | {python} | {cpu:.3f} | {clock:.2f} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
