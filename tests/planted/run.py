"""Runs the planted cases and prints how often culprit, cause and fix are right: ``python tests/planted/run.py``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import precision_debug
from precision_debug.report.model import Report

ENGINES = {
    "onnx_faults": "onnxruntime", "onnx_further": "onnxruntime", "torch_faults": "torch", "torch_further": "torch",
    "paddle_faults": "paddle",
}  # fmt: skip
"""Modules with a list CASES, and what each needs."""


class Fault(Protocol):
    """A planted fault, or a clean model (``who`` is empty then). See the modules' own Case."""

    name: str
    kind: str
    mode: str
    who: tuple[str, ...]
    why: tuple[str, ...]
    baseline: str
    options: Mapping[str, Any]

    def make(self, folder: Path, /) -> tuple[Any, Any, Any]:
        """The target's model, the baseline's (None: the same), and feeds ("": the model's own)."""


def report_of(one: Fault, folder: Path) -> Report:
    """One case's report, in this process."""
    model, base, feeds = one.make(folder)
    return precision_debug.compare(
        model, run_mode=one.mode, baseline=one.baseline if base is not None else "",
        baseline_model=base, inputs=feeds, **one.options,
    )  # fmt: skip


def quick_ones(faults: Sequence[Fault]) -> list[Any]:
    """For a test's parameters: the first case of each kind and mode runs always, the others are slow."""
    import pytest

    seen: set[tuple[str, str]] = set()
    found = []
    for one in faults:
        again = (one.kind, one.mode) in seen
        seen.add((one.kind, one.mode))
        found.append(pytest.param(one, id=one.name, marks=[pytest.mark.slow] if again else []))
    return found


def cases() -> list[Fault]:
    """Of every engine that is installed."""
    found: list[Fault] = []
    for module, needs in ENGINES.items():
        if importlib.util.find_spec(needs) is None:
            print(f"{module} left out: {needs} is not installed")
        else:
            found += importlib.import_module(f"planted.{module}").CASES
    return found


def judged(one: Fault, report: Report) -> tuple[bool, bool, str]:
    """Whether the culprit comes first, whether the cause is right, and what was said."""
    explanation = report.explanation
    assert explanation is not None
    said = f"{explanation.state} {explanation.reason}"
    if not one.who:
        return not explanation.culprits, True, said + " ".join(f"{c.name}: {c.cause}" for c in explanation.culprits)
    if not explanation.culprits:
        return False, False, said
    first = explanation.culprits[0]
    said = f"{first.name}: {first.cause} {dict(first.evidence)} units {first.units} share {first.share}"
    return first.name in one.who, first.cause in one.why, said


def fixed(report: Report) -> tuple[bool, str]:
    """Whether a fix was run and helps, and what became of it. Right also where higher precision mends nothing, and
    where each unit was left in the low precision alone, and nothing but all of them helped."""
    kept = report.to_keep
    if kept is None or "random" in {one.cause for one in report.explanation.culprits if report.explanation}:
        return True, ""
    if not kept.state:
        return False, f"no fix was run: {kept.why} {kept.modes}"
    said = f"{kept.state} {kept.before} -> {kept.after} of {kept.allowed}, {len(kept.keys)} kept {kept.why}"
    return kept.state in {"mended", "lessened"} or kept.each, said


def main() -> int:
    begun = time.monotonic()
    table: dict[str, Counter[str]] = {}
    for one in cases():
        if len(sys.argv) > 1 and not any(word in f"{one.name} {one.mode}" for word in sys.argv[1:]):
            continue
        with tempfile.TemporaryDirectory() as folder:
            report = report_of(one, Path(folder))
        who, why, said = judged(one, report)
        fix, came = fixed(report) if one.who else (True, "")
        count = table.setdefault(one.kind, Counter())
        count["cases"] += 1
        count["who"] += who
        count["why"] += why
        count["fix"] += fix
        if not (who and why and fix):
            marks = (word if bad else "ok " for word, bad in (("WHO", not who), ("WHY", not why), ("FIX", not fix)))
            print(f"{' '.join(marks)} {one.name} ({one.mode}): {said}; {came}", flush=True)
    for kind, count in table.items():
        print(f"{kind:16s} {count['cases']:3d} cases, culprit right {count['who']:3d}, cause right {count['why']:3d},"
              f" fix helps {count['fix']:3d}")
    print(f"{time.monotonic() - begun:.0f} s")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
