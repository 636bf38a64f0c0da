"""What the default command costs beside the bare process: seconds of the processor and of the clock, by turns.

    python tests/benchmarks/bench_command.py [--batch 8] [--repeat 7] [--run_mode ort_opt] [CHECKOUT...]

ResNet-50 as ONNX, a process each: "bare" loads both sessions and runs both inferences; the command compares every
tensor and writes output.xlsx, with --explain off and as by default. CHECKOUT: other versions beside this one, compiled
(python hatch_build.py). Prints medians and their ratios as a markdown table; the first turn, which warms up, is left
out. Aims: explained under 1.25 times unexplained where nothing is wrong, unexplained under twice the bare process.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

BARE = """
import sys
import numpy as np
import onnxruntime as ort

feeds = {"image": np.random.default_rng(0).random((int(sys.argv[2]), 3, 224, 224), np.float32)}
for level in (ort.GraphOptimizationLevel.ORT_DISABLE_ALL, ort.GraphOptimizationLevel.ORT_ENABLE_ALL):
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"]).run(None, feeds)
"""


def spent(command: list[str], root: Path, folder: Path) -> tuple[float, float]:
    """Seconds of the processor, child processes included, and of the clock."""
    # not in the checkout's folder: python -m would take the package from there
    paths = os.pathsep.join([str(root), str(root / "backends")])
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": paths}
    )
    passed, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise SystemExit(f"{' '.join(command)}: {done.stderr[-2000:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, passed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--run_mode", default="ort_opt")
    parser.add_argument("checkouts", nargs="*", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        model = str(folder / "resnet50.onnx")
        build = ROOT / "examples" / "resnet" / "build.py"
        subprocess.run([sys.executable, build, "--depth", "50", "--batch", str(given.batch), "-o", model], check=True)
        (folder / "bare.py").write_text(BARE)
        ours = [sys.executable, "-m", "precision_debug", "--model_file", model, "--run_mode", given.run_mode, "--quiet",
                "--output", str(folder / "output.xlsx")]  # fmt: skip
        cases = {("bare", ROOT): [sys.executable, str(folder / "bare.py"), model, str(given.batch)]}
        for root in (*(path.resolve() for path in given.checkouts), ROOT):
            cases["--explain off", root] = [*ours, "--explain", "off"]
            cases["as by default", root] = ours
        found: dict[tuple[str, Path], list[tuple[float, float]]] = {case: [] for case in cases}
        for turn in range(given.repeat + 1):
            for case, command in cases.items():
                took = spent(command, case[1], folder)
                if turn:
                    found[case].append(took)
    medians = {case: [statistics.median(one) for one in zip(*took, strict=True)] for case, took in found.items()}
    bare = medians["bare", ROOT]
    load = f", load average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"ResNet-50, batch {given.batch}, {given.run_mode}, medians of {given.repeat}{load}\n")
    print("| process | checkout | processor, s | x bare | clock, s | x bare | x unexplained |")
    print("|---|---|---|---|---|---|---|")
    for (name, root), (processor, clock) in medians.items():
        off = medians.get(("--explain off", root))
        more = f"{clock / off[1]:.2f}" if off and name == "as by default" else ""
        shown = "" if name == "bare" else "this one" if root == ROOT else root.name
        print(
            f"| {name} | {shown} | {processor:.2f} | {processor / bare[0]:.2f} | {clock:.2f} | {clock / bare[1]:.2f} "
            f"| {more} |"
        )


if __name__ == "__main__":
    main()
