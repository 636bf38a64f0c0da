"""Many samples on a CUDA device: totals that were merged there are those of the host, and what they cost.

    python tests/gpu/many_samples.py [SAMPLES]

Runs the resnet of torch_models in torch_bf16 with compare_on device and host, over SAMPLES samples (default 200), and
prints for both the seconds a sample, and the largest difference between the two tables. With Ray installed the same
goes to two actors that share the GPU (gpus=0.5). Needs torch with CUDA; Triton where its kernels are to be used.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import checkout  # noqa: F401
import torch
import torch_models

from precision_debug.records import ModelFiles, RunSpec
from precision_debug.report.from_journal import report_of_events
from precision_debug.report.model import Report
from precision_debug.run import parallel_run, pipeline
from precision_debug.run.journal import Journal, read_events
from precision_debug.settings.options import Workers

DEVICE = os.environ.get("DEVICE", "cuda")
"""For a try without a card: DEVICE=cpu."""

SCRIPT = """
import numpy as np
def load_data():
    for number in range({count}):
        yield {{"x": np.random.default_rng(number).standard_normal((2, 3, 32, 32)).astype(np.float32)}}
"""


def compared(spec: RunSpec, spread: Workers | None = None) -> tuple[Report, float]:
    with tempfile.TemporaryDirectory() as name, Journal(Path(name, "journal.jsonl")) as journal:
        begun = time.perf_counter()
        if spread is None:
            pipeline.execute(spec, journal, folder=Path(name))
        else:
            parallel_run.execute(spec, spread, journal, folder=Path(name))
        seconds = time.perf_counter() - begun
        return report_of_events(read_events(Path(name, "journal.jsonl"))), seconds


def largest_difference(one: Report, other: Report) -> float:
    worst = 0.0
    for ours, theirs in zip(one.rows, other.rows, strict=True):
        a, b = ours.comparison, theirs.comparison
        assert (a is None) == (b is None), ours.name
        if a is None or b is None:
            continue
        assert (a.mismatched, a.max_abs) == (b.mismatched, b.max_abs), ours.name
        worst = max(worst, *(_apart(getattr(a, name), getattr(b, name)) for name in ("rmse", "mean_abs", "mean_rel")))
    return worst


def _apart(one: Any, other: Any) -> float:
    return abs(one - other) / max(abs(one), abs(other)) if one and other else 0.0


def main() -> int:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    assert DEVICE != "cuda" or torch.cuda.is_available(), "no CUDA device"
    models = Path(torch_models.__file__)
    with tempfile.TemporaryDirectory() as name:
        script = Path(name, "feeds.py")
        script.write_text(SCRIPT.format(count=count))
        made: dict[str, Report] = {}
        for place in ("device", "host"):
            spec = RunSpec(
                model=ModelFiles(model_file=f"{models}:resnet"), run_mode="torch_bf16", inputs=str(script),
                explain="off", options={"device": DEVICE, "compare_on": place},
            )  # fmt: skip
            made[place], seconds = compared(spec)
            print(f"{place}: {1e3 * seconds / count:.1f} ms a sample, {len(made[place].rows)} rows, start-up included")
        difference = largest_difference(made["device"], made["host"])
        print(f"largest relative difference of a sum between device and host: {difference:.1e}")
        try:
            import ray  # noqa: F401
        except ImportError:
            return int(difference > 1e-4)
        spread, seconds = compared(spec, Workers(engine="ray", jobs=2, gpus=0.5))
        same = [row.comparison for row in spread.rows] == [row.comparison for row in made["host"].rows]
        print(f"two Ray actors on one GPU: {1e3 * seconds / count:.1f} ms a sample, same table: {same}")
        return int(difference > 1e-4 or not same)


if __name__ == "__main__":
    sys.exit(main())
