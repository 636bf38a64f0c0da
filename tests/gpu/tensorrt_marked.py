"""What the rebuilt engines cost and show when they are built in other ways: each way in a process of its own.

    . ENV/env.sh; cd CHECKOUT; OUT=/some/empty/folder python3.11 tests/gpu/tensorrt_marked.py NAME:WAY …

NAME: a model of tensorrt_fixes.py. WAY: ``now``, as the tool builds them; ``level0`` to ``level2``, with this builder
optimisation level for the engines that are only looked at. Rows and explanation alone: no fix is tried. A line of JSON
each, with seconds and marks of each build, and what is told otherwise than by the first way of the same model; FAIL
where a way does not end. $OUT/NAME_WAY.json is its report.
"""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from checkout import ROOT

OUT = Path(os.environ.get("OUT", ROOT / "output" / "gpu")).resolve()


def build_at(level: int) -> None:
    """Take another optimisation level for engines with marks."""
    from precision_debug_tensorrt.make import Maker

    plain = Maker.plan

    def plan(self: Any, marks: Any = (), *rest: Any) -> Any:
        options = self.options
        try:
            if marks:
                self.options = dataclasses.replace(options, optimization_level=level)
            return plain(self, marks, *rest)
        finally:
            self.options = options

    Maker.plan = plan  # type: ignore[method-assign]


def time_builds() -> list[tuple[int, float, str]]:
    """Return the list that each build is added to: marks, seconds of the build alone, "refused" where it was."""
    from precision_debug_tensorrt.make import Maker

    builds: list[tuple[int, float, str]] = []
    plain: Callable[..., Any] = Maker._build

    def counted(self: Any, marks: Any, *rest: Any) -> Any:
        begun = time.monotonic()
        try:
            built = plain(self, marks, *rest)
        except Exception:
            builds.append((len(marks), round(time.monotonic() - begun, 1), "refused"))
            raise
        builds.append((len(marks), round(built.seconds, 1), ""))
        return built

    Maker._build = counted  # type: ignore[method-assign]
    return builds


def one(name: str, way: str) -> None:
    """Run one way; its figures as one line of JSON."""
    import onnx
    import tensorrt_fixes

    import precision_debug

    model, feeds, words = tensorrt_fixes.MODELS[name]()
    if words:
        raise SystemExit(f"{name} asks for {words}, which this script does not type")
    path = OUT / f"{name}_{way}.onnx"
    onnx.save(model, path)
    if way.startswith("level"):
        build_at(int(way.removeprefix("level")))
    elif way != "now":
        raise SystemExit(f"no way is called {way}")
    from precision_debug.run import explaining

    explaining.try_fix = lambda *_, **__: None  # type: ignore[assignment]
    builds, begun = time_builds(), time.monotonic()
    report = precision_debug.compare(
        path, run_mode="trt_fp16", inputs=feeds, output=[OUT / f"{name}_{way}.json"], explain="fast",
        tactic_sources=tensorrt_fixes.SOURCES,
    )  # fmt: skip
    whole = round(time.monotonic() - begun, 1)
    path.unlink()
    explained = report.explanation
    told = {
        "model": name, "way": way, "whole": whole, "real": builds[0][1], "rebuilt": builds[1:],
        "verdict": str(report.verdict), "culprits": [one.name for one in explained.culprits] if explained else [],
        "rows": {str(status): count for status, count in report.counts.items() if count},
        "statuses": {row.name: str(row.status) for row in report.rows},
        "errors": {row.name: row.relative_l2 for row in report.rows if row.comparison is not None},
        "ran in": sorted({str(row.extra.get("Precision There", "")) for row in report.rows} - {""}),
        "notes": [str(note) for note in report.target.notes if "ebuilt" in str(note) or "precision" in str(note)],
    }  # fmt: skip
    print(json.dumps(told, default=str), flush=True)


def beside(first: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return what two ways tell differently: rows with another status, and the largest ratio of two errors."""
    turned = {
        name: [status, other["statuses"].get(name)]
        for name, status in first["statuses"].items()
        if other["statuses"].get(name) != status
    }
    pairs = [(first["errors"][name], other["errors"].get(name)) for name in first["errors"]]
    ratios = [max(a, b) / min(a, b) for a, b in pairs if a and b and 0 < a < float("inf") and 0 < b < float("inf")]
    return {
        "turned": len(turned), "first turned": dict(list(turned.items())[:6]),
        "largest ratio": round(max(ratios, default=1.0), 2), "same culprits": first["culprits"] == other["culprits"],
        "same verdict": first["verdict"] == other["verdict"],
    }  # fmt: skip


def main(asked: list[str]) -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    firsts: dict[str, dict[str, Any]] = {}
    failed = 0
    for word in asked:
        name, _, way = word.partition(":")
        command = [sys.executable, __file__, "--one", name, way or "now"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=OUT)
        (OUT / f"{name}_{way or 'now'}.txt").write_text(done.stdout + done.stderr)
        line = next((line for line in reversed(done.stdout.splitlines()) if line.startswith("{")), "")
        failed += not line
        if not line:
            print(f"FAIL  {word}: status {done.returncode} {done.stderr[-1500:]}", flush=True)
            continue
        found = json.loads(line)
        first = firsts.setdefault(name, found)
        short = {key: value for key, value in found.items() if key not in ("statuses", "errors")}
        print(f"PASS  {json.dumps({**short, **({} if found is first else beside(first, found))})}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        one(sys.argv[2], sys.argv[3])
        raise SystemExit(0)
    raise SystemExit(main(sys.argv[1:] or ["encoder:now", "encoder:level2", "points:now", "points:level2"]))
