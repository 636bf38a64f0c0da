"""Sets of a fix from one calibrated model, and each calibrated anew: ``python bench_calibrated.py MODE MODEL.onnx …``.

MODEL.onnx has its inputs beside it as MODEL.npz. Every set that a comparison runs to choose among is run both ways,
by turns: its error with the ranges of one calibration, and as it is when pasted, and the processor's seconds of both.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import precision_debug
from precision_debug.run.searching.trials import Trials


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
        after = kept.tried.after if kept is not None and kept.tried is not None else None
        quick, slow = (sum(one[place] for one in told[name]) for place in (3, 4))
        print(f"| {name} | all; chosen {len(kept.keys) if kept else 0} | | {after} | {quick:.2f} | {slow:.2f} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], sys.argv[2:]))
