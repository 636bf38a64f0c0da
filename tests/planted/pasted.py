"""Whether what a report gives to paste keeps its culprits: ``python tests/planted/pasted.py [WORD …]``.

Each planted fault is compared, and compared again with the option. ONNX models also run in OpenVINO's modes of the same
precision, where this CPU has them. One line for each that is not as promised.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import precision_debug
from planted.run import Fault, cases
from precision_debug import registry
from precision_debug.errors import PrecisionDebugError
from precision_debug.explain import is_mended

OPENVINO = {"ort_fp16_sim": "ov_fp16", "ort_bf16_sim": "ov_bf16"}


def modes_of(one: Fault) -> Iterator[str]:
    """The case's own mode, and OpenVINO's of its precision."""
    yield one.mode
    other = OPENVINO.get(one.mode, "")
    if any(mode.name == other and backend.availability(other).ok for backend in registry.backends()
           for mode in backend.run_modes):  # fmt: skip
        yield other


def outcome(one: Fault, mode: str, folder: Path) -> tuple[str, str]:
    """A word for what came of it, and what to say; "" where there was nobody to keep."""
    model, base, feeds = one.make(folder)
    if base is not None and mode != one.mode:
        return "", ""
    common: dict[str, Any] = {
        "run_mode": mode, "inputs": feeds, "baseline": one.baseline if base is not None else "",
        "baseline_model": base, **one.options,
    }  # fmt: skip
    before = precision_debug.compare(model, **common)
    explanation, kept = before.explanation, before.to_keep
    precision = before.target.precision
    named = {one.name for one in explanation.culprits if is_mended(one.cause, precision)} if explanation else set()
    if not named:
        return "", ""
    if kept is None or not kept.option:
        return "no option", ""
    after = precision_debug.compare(model, **{**common, **kept.settings}).explanation
    assert explanation is not None
    assert after is not None
    still = named & {culprit.name for culprit in after.culprits}
    said = f"{kept.option}: error {explanation.actual} -> {after.actual}, still {sorted(still)}"
    return ("named again", said) if still else ("kept", "")


def main(words: list[str]) -> int:
    """One line a case that is not as promised, and how many there are of each kind, by mode."""
    found: Counter[tuple[str, str]] = Counter()
    for one in cases():
        for mode in modes_of(one) if one.who else ():
            if words and not any(word in f"{one.name} {mode}" for word in words):
                continue
            with tempfile.TemporaryDirectory() as folder:
                try:
                    what, said = outcome(one, mode, Path(folder))
                except PrecisionDebugError as error:
                    what, said = "refused", str(error)
            if what:
                found[mode, what] += 1
            if said:
                print(f"{what:12s} {one.name} ({mode}): {said}", flush=True)
    for (mode, what), number in sorted(found.items()):
        print(f"{mode:22s} {what:12s} {number}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
