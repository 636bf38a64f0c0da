"""Cases of tensorrt_issue.py that run whole commands, or look inside Myelin regions."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ["--tactic_sources", "EDGE_MASK_CONVOLUTIONS", "JIT_CONVOLUTIONS"]

Case = Callable[[], dict[str, Any]]


def command(out: Path, *words: str) -> dict[str, Any]:
    """One ``python -m precision_debug …`` as a user types it, in ``out``."""
    paths = [str(ROOT), str(ROOT / "backends"), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, "-m", "precision_debug", *words], cwd=out, capture_output=True, text=True, check=False,
        timeout=400, env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in paths if path)},
    )  # fmt: skip
    said = [line for line in done.stderr.splitlines() if "[TensorRT]" not in line]
    return {"status": done.returncode, "out": done.stdout[-6000:], "err": "\n".join(said)[-3000:], "words": words,
            "summary": f"status {done.returncode}"}  # fmt: skip


def judged(found: dict[str, Any], right: dict[str, bool]) -> dict[str, Any]:
    """What a case found, with an error where a command of it did not end as it should, or with a traceback."""
    traced = [name for name, entry in found.items() if isinstance(entry, dict) and "Traceback" in entry.get("err", "")]
    wrong = [*(f"a traceback: {name}" for name in traced), *(name for name, good in right.items() if not good)]
    return {**found, "error": f"not so: {'; '.join(wrong)} ({found['summary']})"} if wrong else found


def rows_of(file: Path) -> dict[str, Any]:
    """What a JSON report says, short."""
    from precision_debug import Report

    if not file.exists():
        return {}
    report = Report.load(file)
    return {
        "verdict": str(report.verdict), "counts": {str(key): value for key, value in report.counts.items()},
        "paired": sorted({row.paired_by for row in report.rows})[:20],
        "rows": {row.name: [str(row.status), row.comparison.max_abs if row.comparison else None, row.paired_by,
                            row.reason, dict(row.extra)] for row in report.rows},
        "notes": [*report.notes, *report.target.notes],
    }  # fmt: skip


def built_engine(out: Path, save: Callable[[str, Path], None]) -> dict[str, Any]:
    """Save an engine, then run it against its model: the issue's two forms of the command."""
    save("resnet18", out / "engine.onnx")
    shape = ["--input_shapes", "image:[1,3,112,112]"]
    both = [*SOURCES, *shape, "--optimization_level", "1", "--atol", "1e-3", "--rtol", "1e-3"]
    built = command(out, "--model_file", "engine.onnx", "--run_mode", "trt_fp16", "--fused_only", "--save_engine",
                    "saved.engine", "--output", "built.xlsx", "--output", "built.json", *both)  # fmt: skip
    ran = command(out, "--model_file", "saved.engine", "--run_mode", "trt_engine", "--baseline_model", "engine.onnx",
                  *shape, "--output", "ran.xlsx", "--output", "ran.json")  # fmt: skip
    bare = command(out, "--model_file", "saved.engine", "--run_mode", "trt_engine")
    mode = command(out, "--model_file", "saved.engine", "--run_mode", "trt_fp16", "--baseline_model", "engine.onnx",
                   *shape, "--output", "mode.json")  # fmt: skip
    for name in ("saved.engine", "engine.onnx"):
        (out / name).unlink(missing_ok=True)
    report = rows_of(out / "ran.json")
    found = {
        "built": built, "ran": ran, "without_model": bare, "by_mode": mode, "report": report,
        "summary": f"{built['summary']}, {ran['summary']}, {bare['summary']}, {mode['summary']}",
    }  # fmt: skip
    return judged(
        found,
        {
            "the engine is built and compared": built["status"] in (0, 1),
            "the saved engine is compared": ran["status"] in (0, 1) and any(row[1] is not None for row in
                                                                             report.get("rows", {}).values()),
            "without a model it ends with 0, 1 or 2": bare["status"] in (0, 1, 2),
            "by a mode that builds it ends with 0, 1 or 2": mode["status"] in (0, 1, 2),
        },
    )  # fmt: skip


def validated(out: Path, save: Callable[[str, Path], None]) -> dict[str, Any]:
    """--validate on div_zero: the node that makes the first NaN or Inf, in TensorRT and in ONNX Runtime."""
    save("div_zero", out / "div_zero.onnx")
    found = {
        mode: command(out, "--model_file", "div_zero.onnx", "--run_mode", mode, "--validate", "--val_range", "1,2",
                      "--output", f"div_zero_{mode}.json", "--output", f"div_zero_{mode}.xlsx",
                      *(SOURCES if mode.startswith("trt") else []))
        for mode in ("trt_fp16", "trt_fp32", "ort_opt")
    }  # fmt: skip
    named = {
        mode: next((line.strip() for line in entry["out"].splitlines() if "NaN" in line or "Inf" in line), "")
        for mode, entry in found.items()
    }
    summary = "; ".join(
        f"{mode}: status {entry['status']}, {named[mode] or 'nothing'}" for mode, entry in found.items()
    )
    right = {f"{mode} names NaN or Inf, with status 1": bool(named[mode]) and entry["status"] == 1
             for mode, entry in found.items()}  # fmt: skip
    return judged({**found, "summary": summary}, right)


def refused(out: Path) -> dict[str, Any]:
    """Operators that TensorRT does not take, and precisions that this one does not have, as a user sees them."""
    import onnx
    import tensorrt_models as models

    found = {}
    for name in ("custom_operator", "non_zero"):
        onnx.save(getattr(models, name)(), out / f"{name}.onnx")
        found[name] = command(out, "--model_file", f"{name}.onnx", "--run_mode", "trt_fp16", *SOURCES,
                              "--output", f"{name}.json")  # fmt: skip
        (out / f"{name}.onnx").unlink()
    onnx.save(models.residual(), out / "residual.onnx")
    for mode, more in (("trt_bf16", []), ("trt_fp8", []), ("trt_fp16", ["--typing", "strong"])):
        found[f"{mode} {' '.join(more)}".strip()] = command(
            out, "--model_file", "residual.onnx", "--run_mode", mode, *more, *SOURCES
        )
    (out / "residual.onnx").unlink()
    summary = "; ".join(f"{name}: {entry['status']} {entry['err'].splitlines()[-1:]}" for name, entry in found.items())
    right = {f"{name} is refused with status 2": entry["status"] == 2
             for name, entry in found.items() if name != "non_zero"}  # fmt: skip
    return judged({**found, "summary": summary}, right)


def logged(out: Path, label: str, case: Case) -> dict[str, Any]:
    """Run a case and keep what the builder says while it times the Myelin regions."""
    from precision_debug_tensorrt.engine import messages

    lines: list[str] = []
    take, near = messages.Messages.take, [0]

    def keep(self: Any, severity: str, text: str) -> None:
        if "Autotuning format" in text or "Computing costs" in text or "Myelin" in text or "ForeignNode" in text:
            near[0] = 6
        if near[0] > 0 and len(lines) < 600:
            near[0] -= 1
            lines.append(f"{severity}: {text[:400]}\n")
        take(self, severity, text)

    messages.Messages.take = keep  # type: ignore[method-assign]
    try:
        return case()
    finally:
        messages.Messages.take = take  # type: ignore[method-assign]
        (out / f"{label}_regions.txt").write_text("".join(lines))
