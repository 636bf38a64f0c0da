"""The scripts of tests/gpu start from any folder, with nothing set; that much can be held where there is no card."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

GPU = Path(__file__).parent / "gpu"
PARTS = {"all.py", "checkout.py", "phases.py", "shown_at_once.py", "tensorrt_cases.py", "tensorrt_truth.py"}
"""What needs nothing of the project, or is imported by a script that did ask."""
SCRIPTS = sorted(path for path in GPU.glob("*.py") if path.name not in PARTS)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_asks_for_its_checkout_before_it_imports_of_it(script: Path) -> None:
    here = {path.stem for path in [*GPU.parent.glob("*.py"), *GPU.glob("*.py")]} - {"checkout"}
    for node in ast.parse(script.read_text("utf-8")).body:
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in names:
            if name == "checkout":
                return
            assert not name.startswith("precision_debug"), f"{script.name} imports {name} before checkout"
            assert name not in here, f"{script.name} imports {name} before checkout"
    pytest.fail(f"{script.name} does not import checkout")


def test_what_a_script_starts_finds_the_project_too(tmp_path: Path) -> None:
    child = "import precision_debug_onnxruntime, onnx_models, precision_debug; print(precision_debug.__file__)"
    script = f"import checkout, subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], check=True)"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = [{str(GPU)!r}]\n{script}"],
        check=False, cwd=tmp_path, env={"PATH": "/usr/bin"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_relative_to(GPU.parent.parent)


def test_what_the_phases_time_is_there() -> None:
    pytest.importorskip("torch", reason="needs PyTorch")
    tree = ast.parse((GPU / "phases.py").read_text("utf-8"))
    values = [node.value for node in tree.body if isinstance(node, ast.Assign)]
    (value,) = (value for value in values if isinstance(value, ast.Dict))
    for place, names in ast.literal_eval(value).items():
        module, _, kind = place.partition(":")
        owner = importlib.import_module(module)
        owner = getattr(owner, kind) if kind else owner
        assert [name for name in names if not hasattr(owner, name)] == [], place


def test_a_dry_run_needs_no_card(tmp_path: Path) -> None:
    """Steps that pass settings of TensorRT's, or wait for a refusal, with modes of the CPU."""
    pytest.importorskip("paddle", reason="needs Paddle")
    steps = ("unmarked", "dynamic", "bf16_refused")
    done = subprocess.run(
        [sys.executable, str(GPU / "paddle_trt.py"), "--dry", *steps], check=False, cwd=tmp_path,
        env={**os.environ, "OUT": str(tmp_path)}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert [done.stdout.count(f"== {step}: ") for step in steps] == [1] * len(steps)
