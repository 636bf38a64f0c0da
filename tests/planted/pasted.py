"""Whether what a report gives to paste brings what it says: ``python tests/planted/pasted.py [WORD …] [FILE.onnx …]``.

Each planted fault, or model with FILE.npz beside it, is compared, and compared again with the option. ONNX models also
run in OpenVINO's and ONNX Runtime's other modes. One line each: error as said and as measured, and what still ran low.
"all needed": with any single unit left in the low precision the error stays, and with everything kept it goes.
"""

from __future__ import annotations

import math
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np

import precision_debug
from planted.run import Fault, cases
from planted.unseen import runs_here
from precision_debug.errors import PrecisionDebugError
from precision_debug.explain import is_mended
from precision_debug.numbers.born import is_broken
from precision_debug.report.model import Report

OPENVINO = {"ort_fp16_sim": "ov_fp16", "ort_bf16_sim": "ov_bf16", "ort_int8": "ov_int8"}

OF_FILES = ("ort_fp16_sim", "ort_int8", "ort_int8_dynamic", "ov_bf16", "ov_int8")

_SAME = 0.05
"""Relative difference up to which two runs of an engine gave the same error."""


def modes_of(one: Fault) -> Iterator[str]:
    """The case's own mode, and OpenVINO's of its precision."""
    yield one.mode
    if runs_here(OPENVINO.get(one.mode, "")):
        yield OPENVINO[one.mode]


def worst(report: Report) -> float:
    """Relative L2 error of the worst output; inf where NaN or Inf are born that the baseline does not have."""
    errors = [
        math.inf if row.relative_l2 is None or row.comparison is None or is_broken(row.comparison) else row.relative_l2
        for row in report.outputs
    ]  # fmt: skip
    return max(errors, default=math.inf)


def outcome(model: Any, common: dict[str, Any]) -> tuple[str, str]:
    """A word for what came of it, and the raw numbers; "" where there was nobody to keep."""
    before = precision_debug.compare(model, **common)
    explanation, kept = before.explanation, before.to_keep
    precision = before.target.precision
    if explanation is None or not any(is_mended(one.cause, precision) for one in explanation.culprits):
        return "", ""
    if kept is None or not kept.state:
        return "no setting", str(kept.why if kept is not None else "")
    tried = kept
    if not kept.option:
        still = tried.whole_still
        more = f"everything kept {tried.whole}, low {still.low}/{still.of}" if still is not None else str(tried.why)
        mends = tried.whole is not None and tried.allowed is not None and tried.whole <= tried.allowed
        word = "all needed" if tried.state == "none" and tried.each and mends else tried.state
        return word, f"before {tried.before} least {tried.after} runs {tried.runs} {more}"
    after = precision_debug.compare(model, **{**common, **kept.settings})
    said, found = tried.after if tried.after is not None else math.inf, worst(after)
    ran = "" if tried.still is None or tried.was is None else (
        f"low {tried.was.low}/{tried.was.of} -> {tried.still.low}/{tried.still.of}"
    )  # fmt: skip
    text = f"before {tried.before} said {said:.4g} measured {found:.4g} {ran} kept {len(kept.keys)}/{kept.of}"
    if tried.others:
        text += f" others {tried.others}: {tried.others_before} -> {tried.others_after}"
    low = tried.still is None or tried.was is None or tried.still.low > 0 or not tried.was.low
    true = abs(found - said) <= _SAME * max(said, 1e-6) and low
    halved = tried.before is None or found <= 0.5 * tried.before
    return (tried.state if true and halved else "BROKEN PROMISE"), text


def of_faults(words: list[str], folder: Path) -> Iterator[tuple[str, str, Any, dict[str, Any]]]:
    for number, one in enumerate(cases()):
        for mode in modes_of(one) if one.who else ():
            if words and not any(word in f"{one.name} {mode}" for word in words):
                continue
            place = folder / str(number)
            place.mkdir(exist_ok=True)
            model, base, feeds = one.make(place)
            if base is None or mode == one.mode:
                yield one.name, mode, model, {
                    "run_mode": mode, "inputs": feeds, "baseline": one.baseline if base is not None else "",
                    "baseline_model": base, **one.options,
                }  # fmt: skip


def of_files(paths: list[str], modes: list[str]) -> Iterator[tuple[str, str, Any, dict[str, Any]]]:
    for path in paths:
        with np.load(Path(path).with_suffix(".npz")) as file:
            feeds = {name: file[name] for name in file.files}
        for mode in modes or OF_FILES:
            yield Path(path).stem, mode, path, {"run_mode": mode, "inputs": feeds}


def main(words: list[str]) -> int:
    """One line a case, and how many there are of each kind, by mode; 1 where a promise was broken."""
    found: Counter[tuple[str, str]] = Counter()
    files = [word for word in words if word.endswith(".onnx")]
    rest = [word for word in words if word not in files]
    with tempfile.TemporaryDirectory() as home:
        for name, mode, model, common in of_files(files, rest) if files else of_faults(rest, Path(home)):
            try:
                what, said = outcome(model, common)
            except PrecisionDebugError as error:
                what, said = "refused", str(error)[:150]
            if what:
                found[mode, what] += 1
                print(f"{what:14s} {name:40s} {mode:18s} {said}", flush=True)
    for (mode, what), number in sorted(found.items()):
        print(f"{mode:22s} {what:14s} {number}")
    return int(any(what == "BROKEN PROMISE" for _, what in found))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
