"""Whether what a report gives to paste brings what it says, on real models, by whole commands.

    python tests/benchmarks/pasted_wild.py DIR… [--models NAME…] [--modes MODE…] [--seconds 300]

Each DIR/NAME.onnx with its inputs beside it as NAME.npz, and each folder DIR/paddle/NAME with the inputs DIR/NAME.npz,
is compared by one command; the option that its report gives is pasted into a second one, in a process of its own. A
line a case: the error as it was, as the report promises it, as the second command measures it, and what still ran low.
"""

from __future__ import annotations

import argparse
import math
import shlex
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from precision_debug.numbers.born import is_broken
from precision_debug.report.model import Report

MODES = ("ort_int8_dynamic", "ort_int8", "ov_int8", "ov_bf16", "ort_fp16_sim")
PADDLE = ("onednn_bf16",)

_SAME = 0.05
"""Relative difference up to which two runs of an engine gave the same error."""


def ran(model: Path, inputs: Path, mode: str, more: list[str], folder: Path, seconds: float) -> Report | str:
    """The report, or why there is none."""
    report = folder / "report.json"
    which = "--model_dir" if model.is_dir() else "--model_file"
    command = [sys.executable, "-m", "precision_debug", which, str(model), "--inputs", str(inputs), "--run_mode", mode,
               "--quiet", "--output", str(report), *more]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds, cwd=folder)
    except subprocess.TimeoutExpired:
        return f"stopped after {seconds:.0f} s"
    if done.returncode > 1 or not report.exists():
        return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1][:120]
    found = Report.load(report)
    report.unlink()
    return found


def worst(report: Report) -> float:
    """Relative L2 error of the worst output; inf where NaN or Inf are born that the baseline does not have."""
    errors = [
        math.inf if row.relative_l2 is None or row.comparison is None or is_broken(row.comparison) else row.relative_l2
        for row in report.outputs
    ]  # fmt: skip
    return max(errors, default=math.inf)


def case(model: Path, inputs: Path, mode: str, seconds: float) -> tuple[str, str]:
    """A word for what came of it, and the numbers."""
    with tempfile.TemporaryDirectory() as home:
        first = ran(model, inputs, mode, [], Path(home), seconds)
        if isinstance(first, str):
            return "not run", first
        kept, before = first.to_keep, worst(first)
        if kept is None:
            return "nothing to keep", f"{first.verdict}, error {before:.4g}"
        if not kept.state or not kept.option:
            state, sets, why = ("no setting", 0, kept.why) if not kept.state else (
                kept.state, kept.runs, kept.why
            )  # fmt: skip
            more = "" if kept.whole is None else f", everything kept {kept.whole:.4g}"
            return "no fix found", f"error {before:.4g}, {state} {why}, {sets} sets{more}"
        tried = kept
        second = ran(model, inputs, mode, shlex.split(kept.option), Path(home), seconds)
        said = math.inf if tried.after is None else tried.after
        if isinstance(second, str):
            return "BROKEN PROMISE", f"{kept.option[:80]}: {second}"
        got, was, still = worst(second), tried.was, tried.still
        low = "" if was is None or still is None else f"{was.low}/{was.of} -> {still.low}/{still.of}"
        same, halved = abs(got - said) <= _SAME * max(said, 1e-6), got <= 0.5 * before
        true = same and halved and (still is None or was is None or still.low > 0 or not was.low)
        text = f"before {before:.4g} said {said:.4g} measured {got:.4g} low {low} kept {len(kept.keys)}/{kept.of}"
        if tried.others:
            text += f" others {tried.others}: {tried.others_before} -> {tried.others_after}"
        return (tried.state if true else "BROKEN PROMISE"), text


def main() -> int:
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("folders", nargs="+", type=Path)
    given.add_argument("--models", nargs="*", default=[])
    given.add_argument("--modes", nargs="*", default=[])
    given.add_argument("--seconds", type=float, default=300.0)
    asked = given.parse_args()
    found: Counter[str] = Counter()
    for folder in asked.folders:
        models = [*folder.glob("*.onnx"), *(folder / "paddle").glob("*/")]
        for model in sorted(models, key=lambda one: one.stat().st_size):
            inputs = folder / f"{model.stem}.npz"
            if not inputs.exists() or (asked.models and model.stem not in asked.models):
                continue
            for mode in PADDLE if model.is_dir() else MODES:
                if asked.modes and mode not in asked.modes:
                    continue
                word, text = case(model, inputs, mode, asked.seconds)
                found[word] += 1
                print(f"{word:15s} {model.stem:12s} {mode:18s} {text}", flush=True)
    print(", ".join(f"{number} {word}" for word, number in sorted(found.items())))
    return int(found["BROKEN PROMISE"] > 0)


if __name__ == "__main__":
    raise SystemExit(main())
