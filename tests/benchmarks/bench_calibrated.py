"""Sets chosen among by one calibration, and each calibrated anew: ``python bench_calibrated.py MODE MODEL.onnx …``.

MODEL.onnx has its inputs beside it as MODEL.npz; "planted" is two of our own. Every set that a comparison runs to
choose among is run both ways, by turns: its error with the ranges of one calibration, and as pasted, and the
processor's seconds of both. After the word "search" the command ``search`` is run both ways instead, each in a process
of its own, by turns and twice: half of the error with nothing kept is asked for.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import precision_debug
from precision_debug.events import FixFound
from precision_debug.products.search.search_run import search
from precision_debug.records import ModelFiles, RunSpec, Tolerance
from precision_debug.run.journal import Journal, read_events
from precision_debug.run.trials import Trials
from precision_debug.search.fix import SearchRequest


def search_here(way: str, mode: str, model: str, folder: Path) -> None:
    """One search in this process, whose answer is left in the folder."""
    if way == "anew":
        Trials.calibrates = False  # type: ignore[assignment, method-assign]
    spec = RunSpec(
        model=ModelFiles(model_file=model), run_mode=mode, inputs=str(Path(model).with_suffix(".npz")),
        tolerance=Tolerance(given=False),
    )  # fmt: skip
    asked = SearchRequest(limit="50%", runs=60, folder=str(folder / "search"), artefacts=str(folder / "fix"))
    (folder / "work").mkdir()
    with Journal(folder / "journal.jsonl") as journal:
        search(spec, asked, journal, folder / "work")


def main(mode: str, models: list[str]) -> int:
    plain, told = Trials.run, dict[str, list[tuple[int, float | None, float | None, float, float]]]()

    def run(self: Trials, keys: Any, samples: Any, others: Any = (), *, rough: bool = False, **more: Any) -> Any:
        if not rough:
            return plain(self, keys, samples, others, **more)
        seconds, found = {}, {}
        for once in (True, False) if len(told[name]) % 2 else (False, True):
            begun = time.process_time()
            found[once] = plain(self, keys, samples, others, rough=once, **more)
            seconds[once] = time.process_time() - begun
        told[name].append((len(keys), found[True].error, found[False].error, seconds[True], seconds[False]))
        return found[True]

    Trials.run = run  # type: ignore[assignment, method-assign]
    print("| model | kept | error from one calibration | calibrated anew | CPU s | CPU s anew |")
    print("|---|---:|---:|---:|---:|---:|")
    for model in models:
        name = Path(model).stem
        told[name] = []
        kept = precision_debug.compare(model, run_mode=mode, inputs=str(Path(model).with_suffix(".npz"))).to_keep
        for count, rough, anew, quick, slow in told[name]:
            print(f"| {name} | {count} | {rough} | {anew} | {quick:.2f} | {slow:.2f} |", flush=True)
        after = kept.after if kept is not None else None
        quick, slow = (sum(one[place] for one in told[name]) for place in (3, 4))
        print(f"| {name} | all; chosen {len(kept.keys) if kept else 0} | | {after} | {quick:.2f} | {slow:.2f} |")
    return 0


def searched(mode: str, models: list[str]) -> int:
    """The command search, both ways."""
    print("| model | mode | way | state, kept | error before | error kept | verified | sets | opened | CPU s |")
    print("|---|---|---|---|---:|---:|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as home:
        for model in models:
            for turn, way in enumerate(("once", "anew", "anew", "once")):
                folder = Path(home, f"{Path(model).stem}-{turn}")
                folder.mkdir()
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run([sys.executable, __file__, "here", way, mode, model, str(folder)], check=True)
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
                seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
                events = read_events(folder / "journal.jsonl", FixFound)
                fix = next(event.fix for event in events if isinstance(event, FixFound))
                verified = [one.verified for one in fix.artefacts]
                print(f"| {Path(model).stem} | {mode} | {way} | {fix.state}, {len(fix.kept)}/{fix.units} | "
                      f"{fix.before} | {fix.after} | {verified} | {fix.evaluations} | {fix.builds} | {seconds:.0f} |",
                      flush=True)  # fmt: skip
    return 0


def planted(folder: Path) -> list[str]:
    """mask_in_int8 and outlier_activation."""
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from planted.onnx_faults import CASES

    found = []
    for name in ("mask_in_int8", "outlier_activation"):
        model, _, feeds = next(case for case in CASES if case.name == name).make(folder)
        np.savez(Path(model).with_suffix(".npz"), **feeds)
        found.append(str(model))
    return found


if __name__ == "__main__":
    words = sys.argv[1:]
    if words[0] == "here":
        search_here(*words[1:4], folder=Path(words[4]))
        raise SystemExit(0)
    with tempfile.TemporaryDirectory() as made:
        work = searched if "search" in words else main
        words = [word for word in words if word != "search"]
        paths = [path for word in words[1:] for path in (planted(Path(made)) if word == "planted" else [word])]
        raise SystemExit(work(words[0], paths))
