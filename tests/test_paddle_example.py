"""The example and the command line, with oneDNN in TensorRT's place."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import paddle_models
import pytest
from warm import run_python

pytest.importorskip("paddle", reason="paddlepaddle is not installed")

pytestmark = pytest.mark.engine("paddle")

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "examples" / "paddle_trt" / "debug_engine.py"
ENGINE = ROOT / "tests" / "data" / "inspector" / "paddle26_trt853_resnet18_fp16.json"


def run(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    paths = [str(ROOT), str(ROOT / "backends"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "COLUMNS": "200"}
    return run_python(*map(str, arguments), cwd=cwd, env=environment)


def test_the_demos_workflow_in_under_forty_lines(tmp_path: Path) -> None:
    assert len(SCRIPT.read_text(encoding="utf-8").splitlines()) < 40
    path = paddle_models.legacy("resnet18", tmp_path)
    done = run(SCRIPT, path, path.with_suffix(".pdiparams"), "onednn_fp32", ENGINE, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if "compared, first mismatch" in line}
    assert list(lines) == ["all", "section", "fused"]
    counts = {name: int(line.split()[1]) for name, line in lines.items()}
    assert counts["all"] > counts["fused"] > counts["section"] > 3
    assert {path.name for path in (tmp_path / "output").glob("*.xlsx")} == {"all.xlsx", "section.xlsx", "fused.xlsx"}


@pytest.mark.parametrize("kind", ["model_file", "model_dir", "json"])
def test_the_command_that_people_type(kind: str, tmp_path: Path) -> None:
    path = paddle_models.pir("cnn") if kind == "json" else paddle_models.legacy("cnn", tmp_path)
    model = ["--model_dir", path.parent] if kind == "model_dir" else [
        "--model_file", path, "--params_file", path.with_suffix(".pdiparams")
    ]  # fmt: skip
    done = run(
        "-m", "precision_debug", *model, "--run_mode", "onednn_fp32", "--input_shapes", "x:[2,3,16,16]",
        "--output", "output/output.xlsx", "--output", "output/output.json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "output" / "output.json").read_text())
    compared = [row for row in report["rows"] if row.get("comparison")]
    assert len(compared) >= 6
    assert {row["paired_by"] for row in compared} == {"exact"}
    assert report["baseline"]["mode"] == "paddle_fp32"
    assert any("baseline ran on" in note for note in report["baseline"]["notes"])
    import openpyxl

    sheet = openpyxl.load_workbook(tmp_path / "output" / "output.xlsx")
    assert sheet.sheetnames


def test_a_planted_overflow_in_the_report(tmp_path: Path) -> None:
    """One weight scaled: the baseline leaves FP16's range in that layer and nowhere before, and the report says so."""

    def plant(weights: dict[str, np.ndarray]) -> None:
        weights["linear_1.w_0"] *= 1e5

    path = paddle_models.legacy("mlp", tmp_path, change=plant)
    done = run(
        "-m", "precision_debug", "--model_file", path, "--run_mode", "cpu_fp32", "--input_shapes", "x:[2,16]",
        "--output", "output.json", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "output.json").read_text())["rows"]
    over = [row["name"] for row in rows if (row.get("comparison") or {}).get("fp16_overflow")]
    assert over
    assert over[0] == "linear_1.tmp_0"
