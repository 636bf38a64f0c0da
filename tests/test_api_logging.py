"""The Python API prints nothing; it logs under "precision_debug", to whoever listens."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import onnx_models
import pytest

import precision_debug

pytest.importorskip("onnxruntime", reason="onnxruntime runs the model")


@pytest.fixture
def model(tmp_path: Path) -> Path:
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def test_stages_notes_and_rows_are_logged_to_who_listens(model: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="precision_debug"):
        report = precision_debug.compare(model, run_mode="ort_opt")
    said = [one for one in caplog.records if one.name == "precision_debug.compare"]
    rows = [one.getMessage() for one in said if one.levelno == logging.DEBUG]
    told = [one.getMessage() for one in said if one.levelno == logging.INFO]
    compared = [row.name for row in report.rows if row.comparison is not None]
    assert compared
    assert all(any(f" {name}: " in line for line in rows) for name in compared)
    assert any("ort_fp32" in line for line in told), told
    assert any("ort_opt" in line for line in told), told


@pytest.mark.parametrize("isolated", [False, True])
def test_nothing_is_printed_where_nobody_listens(isolated: bool, model: Path, tmp_path: Path) -> None:
    code = f"""
    import precision_debug
    report = precision_debug.compare({str(model)!r}, run_mode="ort_fp16", isolated={isolated}, output="r.json")
    assert report.rows
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_hooks_print_nothing(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    base = precision_debug.SaveBaseline()
    base("scale", "y", np.ones(8, np.float32))
    check = precision_debug.AssertClose(base)
    check("scale", "y", np.full(8, 1.5, np.float32))
    check("scale", "z", np.full(8, np.nan, np.float32))
    check.report().save(tmp_path / "r.json")
    assert capfd.readouterr() == ("", "")
