"""--gen_script: the script gives what the command gives."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import mlp

import precision_debug
from precision_debug.cli import main
from precision_debug.errors import UsageError
from precision_debug.products.tools.script import make_script
from precision_debug.records import ModelFiles, RunSpec, Tolerance


def test_the_script_does_what_the_command_does(tmp_path: Path, python: str) -> None:
    onnx.save(mlp(), "m.onnx")
    np.savez("in.npz", **{onnx.load("m.onnx").graph.input[0].name: np.ones((2, 8), np.float32)})
    command = [
        "--model_file", "m.onnx", "--run_mode", "ort_fp16_sim", "--inputs", "in.npz", "--atol", "1e-6", "--rtol", "0",
        "--explain", "off", "--output", "r.json", "--quiet",
    ]  # fmt: skip
    assert main([*command, "--gen_script", "again.py"]) == 0
    assert not Path("r.json").exists()
    text = Path("again.py").read_text(encoding="utf-8")
    assert "run_mode='ort_fp16_sim'" in text
    done = subprocess.run([python, "again.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    ours = precision_debug.Report.load("r.json")
    Path("r.json").unlink()
    assert main(command) == 1
    theirs = precision_debug.Report.load("r.json")
    assert [(row.name, row.status, row.comparison) for row in ours.rows] == [
        (row.name, row.status, row.comparison) for row in theirs.rows
    ]


def test_odd_words_stay_text() -> None:
    """Every part of a command comes back as the value that it was."""
    spec = RunSpec(
        model=ModelFiles(model_file='a"""b\\.onnx'), run_mode="ort_fp16_sim", baseline="x'\"\n",
        val_range={"": (0.0, 2.0)}, input_shapes={"x": (1, 2)}, renames={"a\u202e": "b"},
        tolerance=Tolerance(atol=1.0, rule="either"), options={"baseline.threads": 2}, sample="3",
        command='precision_debug """ \\ \u202e',
    )  # fmt: skip
    text = make_script(spec, [Path("r.json")])
    called: dict[str, object] = {}

    class Fake:
        ModelFiles, Tolerance, Status = ModelFiles, Tolerance, precision_debug.Status

        @staticmethod
        def compare(model: ModelFiles, **given: object) -> None:
            called.update(given, model=model)
            raise KeyboardInterrupt

    names: dict[str, object] = {"__name__": "script"}
    exec(compile(text, "script", "exec"), names)
    names["precision_debug"] = Fake
    with pytest.raises(KeyboardInterrupt):
        names["main"]()  # type: ignore[operator]
    assert called == {
        "model": spec.model, "run_mode": spec.run_mode, "baseline": spec.baseline, "val_range": dict(spec.val_range),
        "input_shapes": dict(spec.input_shapes), "renames": dict(spec.renames), "tolerance": spec.tolerance,
        "baseline.threads": 2, "sample": "3", "output": ["r.json"],
    }  # fmt: skip


def test_what_compare_cannot_do_is_refused() -> None:
    with pytest.raises(UsageError, match="--record"):
        make_script(RunSpec(model=ModelFiles(model_file="m.onnx"), run_mode="ort_fp32", record="d"), [])
