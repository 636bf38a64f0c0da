"""The supplied Paddle model: its data are what they say, and its README's commands give what it promises."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from readme_blocks import blocks_of

from precision_debug.cli import main
from precision_debug.report import Report

pytest.importorskip("paddle", reason="the model is Paddle's", exc_type=ImportError)

pytestmark = pytest.mark.engine("paddle")
ROOT = Path(__file__).parent.parent
EXAMPLE, DIGITS = ROOT / "examples" / "paddle_digits", ROOT / "examples" / "digits"


def told(mode: str, *more: str) -> list[str]:
    """The README's command that has this run mode."""
    found = [line for block in blocks_of(EXAMPLE / "README.md") for line in block.text.splitlines() if mode in line]
    words = shlex.split(found[0])
    assert words[:3] == ["python", "-m", "precision_debug"]
    return [*words[3:], *more]


@pytest.fixture(autouse=True)
def _in_a_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)


def test_the_files_are_small_and_say_nothing_of_the_machine_that_made_them() -> None:
    files = [path for path in EXAMPLE.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 130_000
    for path in files:
        if path.suffix in (".json", ".pdmodel", ".onnx"):
            assert b"Traceback" not in path.read_bytes()
            assert os.fsencode(str(ROOT)) not in path.read_bytes()
            assert b'File "/' not in path.read_bytes(), "Paddle writes where an operator's code was"


@pytest.mark.hardware("avx512_bf16")
def test_the_first_command_compares_bf16_with_fp32() -> None:
    assert main([*told("onednn_bf16"), "--output", "output/r.json", "--quiet"]) == 0
    report = Report.load("output/r.json")
    assert Path("output/paddle.html").exists()
    assert Path("output/paddle.xlsx").exists()
    assert len(report.compared) == 9
    assert report.scores["top-1 accuracy, baseline"] == pytest.approx(351 / 360)
    error = report.outputs[0].relative_l2
    assert error is not None
    assert 1e-4 < error < 2e-2


@pytest.mark.parametrize("name", ["digits.json", "legacy.pdmodel"])
def test_fusion_in_fp32_changes_nothing(name: str) -> None:
    command = ["--model_file", f"examples/paddle_digits/{name}", "--run_mode", "cpu_opt"]
    command += ["--params_file", f"examples/paddle_digits/{name.split('.', maxsplit=1)[0]}.pdiparams"]
    command += ["--inputs", "examples/digits/test_images.npz", "--labels", "examples/digits/test_labels.npy"]
    assert main([*command, "--output", "output/r.json", "--quiet"]) == 0
    report = Report.load("output/r.json")
    assert report.scores["top-1 accuracy, target"] == pytest.approx(351 / 360)
    assert all(row.relative_l2 is not None and row.relative_l2 < 1e-5 for row in report.compared)


def test_the_exported_file_is_the_model_and_labels_are_scored_by_its_own_output() -> None:
    assert main([*told("ort_fp32"), "--output", "output/r.json", "--quiet"]) == 0
    report = Report.load("output/r.json")
    assert len(report.compared) == 19
    assert report.scores["top-1 accuracy, target"] == pytest.approx(351 / 360)
    session = onnxruntime.InferenceSession(EXAMPLE / "digits.onnx")
    with np.load(DIGITS / "test_images.npz") as images:
        given = session.run(None, {"image": images["image"]})[0]
    right = int((given.argmax(1) == np.load(DIGITS / "test_labels.npy")).sum())
    assert right == 351
    assert "19 of 19 weights" in json.dumps(json.loads(Path("output/r.json").read_text())["notes"])
