"""Whole commands over TensorRT's options, on a stand-in for TensorRT and for its GPU (see tensorrt_fake)."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import onnx
import pytest
import tensorrt_models as models
from warm import command

from precision_debug import Report

pytest.importorskip("onnxruntime", reason="the stand-in computes with it")
openpyxl = pytest.importorskip("openpyxl", reason="reads the workbook back")

TENSORRT = (
    "from tensorrt_fake import HostGpu, fake_tensorrt\nglobals().update(vars(fake_tensorrt()))\n"
    "from precision_debug.numbers import cuda\ncuda._devices[0] = HostGpu(limit=10**9, free=10**9)\n"
)


@pytest.fixture
def run(root: Path, tmp_path: Path) -> Any:
    """A command in the test's own folder, where m.onnx is a residual network."""
    files = {"tensorrt.py": TENSORRT, "torch.py": "raise ImportError"}
    for name, text in files.items():
        file = tmp_path / "stand_in" / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(text)
    onnx.save(models.residual(), tmp_path / "m.onnx")
    paths = [str(tmp_path / "stand_in"), str(root / "tests"), os.environ["PYTHONPATH"]]

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return command(*words, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})

    return run


PLAIN = ["--model_file", "m.onnx", "--run_mode", "trt_fp16", "--atol", "1e-2", "--rtol", "1e-2"]


def test_layer_precisions_as_polygraphy_writes_them(run: Any) -> None:
    done = run(*PLAIN, "--layer_precisions", "fc:float32", "conv?:float16", "--precision_constraints", "prefer",
               "--output", "o.xlsx", "--output", "o.json", "--save_inspector", "engine.json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = {row.node: row.extra for row in Report.load("o.json").rows}
    assert (rows["fc"]["Asked Precision"], rows["fc"]["Obeyed"]) == ("FP32", "no")
    assert (rows["conv1"]["Asked Precision"], rows["conv1"]["Obeyed"]) == ("FP16", "yes")
    assert rows["relu1"]["Fused Nodes"] == "conv1, conv1_bn, relu1"
    assert Path("engine.json").exists()
    sheet = openpyxl.load_workbook("o.xlsx")["Layers"]
    assert sheet.max_row == 12
    assert "conv1 + conv1_bn + relu1" in [sheet.cell(line, 1).value for line in range(2, 13)]


def test_a_network_script_and_files_of_the_build(run: Any) -> None:
    Path("post.py").write_text(
        "def postprocess(network):\n"
        "    layer = network.get_layer(0)\n"
        "    layer.precision = type(layer.precision).HALF\n"
    )
    done = run(*PLAIN, "--network_script", "post.py", "--precision_constraints", "obey", "--save_engine", "m.engine",
               "--timing_cache", "t.cache", "--output", "o.json")  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = {row.node: row.extra for row in Report.load("o.json").rows}
    assert (rows["conv1"]["Asked Precision"], rows["conv1"]["Obeyed"]) == ("FP16", "yes")
    assert Path("t.cache").read_bytes() == b"times"
    again = run("--model_file", "m.engine", "--run_mode", "trt_engine", "--baseline_model", "m.onnx", "--atol", "1e-2",
                "--output", "e.json")  # fmt: skip
    assert again.returncode == 0, again.stderr
    assert [row.name for row in Report.load("e.json").outputs] == ["probabilities"]
    wrong = run("--model_file", "m.engine", "--run_mode", "trt_engine", "--baseline_model", "m.onnx",
                "--network_script", "post.py")  # fmt: skip
    assert wrong.returncode == 2
    assert "--network_script" in wrong.stderr


def test_fused_only_leaves_out_what_fusion_removed(run: Any) -> None:
    done = run(*PLAIN, "--fused_only", "--memory_budget", "300K", "--output", "o.json")
    assert done.returncode == 0, done.stderr
    report = Report.load("o.json")
    assert "conv1_out" not in {row.name for row in report.rows}
    assert sum("rebuilt to show" in note for note in report.target.notes) > 1
    assert all("fusion kept" in note for note in report.target.notes if "rebuilt to show" in note)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--layer_precisions", "fcc:float16"], "no layer 'fcc'; did you mean 'fc'"),
        (["--layer_precisions", "fc:int8"], "trt_fp16 does not let TensorRT use it"),
        (["--typing", "strong"], "has no strongly typed networks"),
        (["--tactic_sources", "CUBLASS"], "no tactic source 'CUBLASS'"),
        (["--min_shapes", "image:[4,3,32,32]", "--max_shapes", "image:[1,3,32,32]"], "min, opt and max do not rise"),
    ],
)
def test_wrong_options_are_one_line_and_build_nothing(run: Any, words: list[str], said: str) -> None:
    done = run(*PLAIN, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr
