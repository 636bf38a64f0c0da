"""The demo's folder with this as its dependency: its command, its arguments, its table, on a CPU."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import paddle_models
import pytest
from warm import run_python

FOLDER = Path(__file__).parent.parent / "examples" / "paddle_trt" / "upstream"
SCRIPT = FOLDER / "tensorrt_precision_debug.py"
DEMO = ["--model_file", "--params_file", "--model_dir", "--run_mode", "--use_dynamic_shape"]
"""The arguments of the demo's script."""


def run(*arguments: str, root: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "backends")])}
    return run_python(str(SCRIPT), *arguments, cwd=cwd, env=environment)


def test_it_takes_the_demos_arguments_and_those_that_its_readmes_name(root: Path, tmp_path: Path) -> None:
    done = run("--help", root=root, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for page in ("README.md", "README_CN.md"):
        named = set(re.findall(r"(?<![\w-])--\w+", (FOLDER / page).read_text(encoding="utf-8")))
        assert {*DEMO, *named} - {"--model_dir"} <= set(re.findall(r"--\w+", done.stdout)), page
    lines = len(SCRIPT.read_text(encoding="utf-8").splitlines())
    assert lines < 40
    assert f"{lines} lines" in (FOLDER / "README.md").read_text(encoding="utf-8")


def test_both_languages_have_the_same_commands_and_headings() -> None:
    english, chinese = ((FOLDER / page).read_text(encoding="utf-8") for page in ("README.md", "README_CN.md"))
    for pattern in (r"```bash\n(.*?)```", r"`(--\w+)", r"^(#+) "):
        flags = re.DOTALL | re.MULTILINE
        assert re.findall(pattern, english, flags) == re.findall(pattern, chinese, flags)


def test_the_demos_command_writes_the_demos_table(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("paddle", reason="paddlepaddle is not installed")
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed")
    paddle_models.legacy("cnn", tmp_path)
    model = ["--model_file=./cnn.pdmodel", "--params_file=./cnn.pdiparams", "--input_shapes", "x:[2,3,16,16]"]
    done = run(*model, "--run_mode=cpu_opt", root=root, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = re.search(r"^within tolerance: (\d+) compared, first mismatch: none$", done.stdout, re.MULTILINE)
    assert told is not None, done.stdout
    lines = [[cell.value for cell in line] for line in openpyxl.load_workbook(tmp_path / "output.xlsx")["Sheet1"]]
    assert lines[0][:4] == [0, "Operator Type", "Tensor Name", "Shape"]
    assert len(lines) == 1 + int(told[1]) > 6
    assert {line[3].partition(",")[0] for line in lines[1:]} == {"match"}


def test_what_cannot_run_here_is_one_line(root: Path, tmp_path: Path) -> None:
    paddle = pytest.importorskip("paddle", reason="paddlepaddle is not installed")
    if paddle.is_compiled_with_cuda():
        pytest.skip("this Paddle may have TensorRT")
    paddle_models.legacy("cnn", tmp_path)
    done = run(
        "--model_file=./cnn.pdmodel", "--params_file=./cnn.pdiparams", "--run_mode=trt_fp16", "--use_dynamic_shape=1",
        "--min_shapes", "x:[1,3,16,16]", "--opt_shapes", "x:[2,3,16,16]", "--max_shapes", "x:[4,3,16,16]",
        root=root, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "trt_fp16" in done.stderr
    assert "TensorRT" in done.stderr
