"""How the time grows: with the elements of one tensor, and with the number of tensors.

    python tests/benchmarks/bench_growth.py [--figure tests/benchmarks/growth.png] [--most_elements 100000000]

Elements: numbers.compare on two float32 arrays. Tensors: both hooks on tensors of 64 elements, then the table and the
workbook. Each point is the median of --repeat runs; the slope is fitted to the last three points in log-log
(1 is linear). The figure needs matplotlib.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT)]

from precision_debug import AssertClose, SaveBaseline, Tolerance, numbers  # noqa: E402


def elements(count: int) -> float:
    rng = np.random.default_rng(0)
    base = rng.random(count, np.float32)
    target = base + np.float32(1e-3) * rng.random(count, np.float32)
    begun = time.perf_counter()
    numbers.compare(base, target, Tolerance())
    return time.perf_counter() - begun


def tensors(count: int) -> float:
    value = np.linspace(0, 1, 64, dtype=np.float32)
    other = value + np.float32(1e-3)
    begun = time.perf_counter()
    base = SaveBaseline()
    for number in range(count):
        base("Add", f"t{number}", value)
    check = AssertClose(base, consume=True)
    for number in range(count):
        check("Add", f"t{number}", other)
    with tempfile.TemporaryDirectory() as folder:
        check.report().to_excel(Path(folder, "growth.xlsx"))
    return time.perf_counter() - begun


def slope(points: list[tuple[int, float]]) -> float:
    upper = points[-3:]
    x, y = (np.log([point[axis] for point in upper]) for axis in (0, 1))
    return float(np.polyfit(x, y, 1)[0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--figure", default="")
    parser.add_argument("--most_elements", type=int, default=100_000_000)
    parser.add_argument("--most_tensors", type=int, default=100_000)
    parser.add_argument("--repeat", type=int, default=3)
    given = parser.parse_args()
    curves: dict[str, list[tuple[int, float]]] = {}
    for name, measure, most in (("elements", elements, given.most_elements), ("tensors", tensors, given.most_tensors)):
        sizes = [10**power for power in range(12) if 10**power <= most and (name == "elements" or power >= 2)]
        measure(sizes[0])
        curves[name] = [(size, statistics.median(measure(size) for _ in range(given.repeat))) for size in sizes]
        print(f"| {name} | s |\n|---|---|")
        for size, seconds in curves[name]:
            print(f"| {size:,} | {seconds:.6f} |")
        print(f"\nslope of the last three points: {slope(curves[name]):.2f}\n", flush=True)
    if given.figure:
        import matplotlib as mpl

        mpl.use("Agg")
        from matplotlib import pyplot as plt

        figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), layout="constrained")
        for axis, (name, points) in zip(axes, curves.items(), strict=True):
            axis.loglog(*zip(*points, strict=True), marker="o")
            axis.set_xlabel(f"number of {name}")
            axis.set_ylabel("seconds")
            axis.set_title(f"slope {slope(points):.2f}")
            axis.grid(visible=True, which="major", alpha=0.3)
        figure.savefig(given.figure, dpi=110)


if __name__ == "__main__":
    main()
