"""The examples are real: their data are what they say, and every script does what its README promises."""

from __future__ import annotations

import gzip
import importlib.util
import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from approval import is_approved
from warm import run_python

ROOT = Path(__file__).parent.parent
EXAMPLES = ROOT / "examples"
DIGITS = EXAMPLES / "digits"


def run_script(script: Path, *arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run an example as its reader would, in a folder of its own with an empty output/."""
    (cwd / "output").mkdir(exist_ok=True)
    paths = [str(ROOT), str(ROOT / "backends"), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    return run_python(str(script), *map(str, arguments), cwd=cwd, env=environment)


def load_script(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"example_{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def unoptimised(model: onnx.ModelProto | Path) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    source = model.SerializeToString() if isinstance(model, onnx.ModelProto) else str(model)
    return ort.InferenceSession(source, options)


def test_every_example_has_a_readme_in_both_languages_and_a_script() -> None:
    folders = sorted(path for path in EXAMPLES.iterdir() if path.is_dir() and path.name != "__pycache__")
    assert {"api", "custom_marks", "digits", "hooks", "resnet"} <= {folder.name for folder in folders}
    for folder in folders:
        text = (folder / "README.md").read_text(encoding="utf-8")
        scripts = [*folder.glob("*.py"), *folder.glob("Dockerfile")]
        assert scripts, folder
        assert "\n## 中文说明\n" in text, folder
        for script in scripts:
            assert script.name in text, f"{script} is not in its README"


def test_digits_files_are_the_real_digits() -> None:
    # as load_digits() reads them: importing all of scikit-learn takes seconds
    spec = importlib.util.find_spec("sklearn")
    if spec is None or spec.origin is None:
        pytest.skip("scikit-learn is not installed")
    known = {}
    with gzip.open(Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz", "rt") as file:
        for line in np.loadtxt(file, delimiter=","):
            known[line[:-1].tobytes()] = int(line[-1])
    with np.load(DIGITS / "test_images.npz") as loaded:
        assert loaded.files == ["image"]
        images = loaded["image"]
    labels = np.load(DIGITS / "test_labels.npy")
    assert images.shape == (360, 1, 8, 8)
    assert images.dtype == np.float32
    assert labels.shape == (360,)
    assert labels.dtype == np.int64
    for image, label in zip(images[:, 0], labels, strict=True):
        assert known[(image * 16).astype(np.float64).tobytes()] == label


def test_digits_model_is_small_unfused_and_accurate() -> None:
    path = DIGITS / "digits.onnx"
    assert path.stat().st_size < 1_000_000
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    kinds = [node.op_type for node in model.graph.node]
    assert kinds.count("BatchNormalization") == kinds.count("Conv") == kinds.count("Relu") == 3
    assert {"MaxPool", "GlobalAveragePool", "Gemm", "Softmax"} <= set(kinds)
    assert all(node.name for node in model.graph.node)
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    with np.load(DIGITS / "test_images.npz") as loaded:
        probabilities = unoptimised(path).run(None, {model.graph.input[0].name: loaded["image"]})[0]
    right = int((probabilities.argmax(axis=1) == np.load(DIGITS / "test_labels.npy")).sum())
    readme = (DIGITS / "README.md").read_text(encoding="utf-8")
    assert re.search(r"(\d+) of (\d+) test", readme).groups() == (str(right), "360")  # type: ignore[union-attr]
    assert 0.97 <= right / 360 < 0.995


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="train.py needs torch, which is not installed")
def test_train_makes_the_committed_files(tmp_path: Path) -> None:
    done = run_script(DIGITS / "train.py", "-o", tmp_path / "made", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    ours, theirs = (onnx.load(folder / "digits.onnx") for folder in (DIGITS, tmp_path / "made"))
    assert [n.SerializeToString() for n in ours.graph.node] == [n.SerializeToString() for n in theirs.graph.node]
    assert [(w.name, w.dims) for w in ours.graph.initializer] == [(w.name, w.dims) for w in theirs.graph.initializer]
    with np.load(DIGITS / "test_images.npz") as one, np.load(tmp_path / "made" / "test_images.npz") as other:
        np.testing.assert_array_equal(one["image"], other["image"])
        images = one["image"]
    labels = np.load(tmp_path / "made" / "test_labels.npy")
    np.testing.assert_array_equal(np.load(DIGITS / "test_labels.npy"), labels)
    # weights may differ in their last bits with the torch version and the processor
    probabilities = unoptimised(theirs).run(None, {"image": images})[0]
    assert (probabilities.argmax(axis=1) == labels).mean() > 0.97


@pytest.mark.parametrize(("depth", "nodes"), [(18, 70), (50, 176)])
def test_resnet_activations_neither_explode_nor_vanish(depth: int, nodes: int) -> None:
    build = load_script(EXAMPLES / "resnet" / "build.py").build
    model = build(depth, batch="dynamic", image=64)
    assert len(model.graph.node) == nodes
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "N"
    names = [node.output[0] for node in model.graph.node]
    del model.graph.output[:]
    model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in names)
    image = np.random.default_rng(1).uniform(0, 1, (2, 3, 64, 64)).astype(np.float32)
    for name, value in zip(names, unoptimised(model).run(None, {"image": image}), strict=True):
        assert np.isfinite(value).all(), name
        if name == "probabilities":
            assert value.sum(axis=1) == pytest.approx(1, abs=1e-5)
            continue
        assert np.abs(value).max() < 20, name
        assert 0.1 < value.std() < 2, name


def test_resnet_is_repeatable_and_takes_its_options(tmp_path: Path) -> None:
    script = EXAMPLES / "resnet" / "build.py"
    options = ["--depth", "18", "--batch", "3", "--image", "32", "-o", tmp_path / "m" / "one.onnx"]
    done = run_script(script, *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    written = (tmp_path / "m" / "one.onnx").read_bytes()
    module = load_script(script)
    assert written == module.build(18, batch=3, image=32, seed=0).SerializeToString()
    assert written != module.build(18, batch=3, image=32, seed=1).SerializeToString()
    dims = onnx.load_from_string(written).graph.input[0].type.tensor_type.shape.dim
    assert [d.dim_value for d in dims] == [3, 3, 32, 32]


@pytest.mark.parametrize(
    ("options", "said"),
    [(["--batch", "x"], "--batch x"), (["--batch", "0"], "--batch 0"), (["--image", "16"], "--image 16")],
)
def test_resnet_refuses_what_it_cannot_build(options: list[str], said: str, tmp_path: Path) -> None:
    done = run_script(EXAMPLES / "resnet" / "build.py", *options, "-o", tmp_path / "no.onnx", cwd=tmp_path)
    assert done.returncode == 2
    assert said in done.stderr
    assert not (tmp_path / "no.onnx").exists()


def test_hooks_find_the_overflow_in_a_loop_of_ones_own(tmp_path: Path) -> None:
    script = EXAMPLES / "hooks" / "own_loop.py"
    assert len(script.read_text(encoding="utf-8").splitlines()) < 40
    done = run_script(script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert is_approved(done.stdout)
    import openpyxl

    rows = list(openpyxl.load_workbook(tmp_path / "output" / "hooks.xlsx").worksheets[0].values)
    names = [row[1] for row in rows]
    assert "norm" in names
    assert "relu_3" in names


def test_compare_from_python(tmp_path: Path) -> None:
    done = run_script(EXAMPLES / "api" / "compare_modes.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^ort_opt: .*within tolerance", done.stdout, re.MULTILINE), done.stdout
    assert re.search(r"^ort_int8: .*first mismatch: \w+", done.stdout, re.MULTILINE), done.stdout
    assert {path.name for path in (tmp_path / "output").glob("*.xlsx")} == {
        "digits_ort_opt.xlsx",
        "digits_ort_int8.xlsx",
    }


def test_marked_names_by_script(tmp_path: Path) -> None:
    done = run_script(EXAMPLES / "custom_marks" / "choose_marks.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(":", 1) for line in done.stdout.splitlines())
    assert lines["section"].split()[0] == "relu2_out"
    assert lines["section"].split()[-1] == "logits"
    assert lines["mine"].split() == ["relu2_out", "pool_out", "relu3_out", "gap_out", "flatten_out", "logits"]
    assert lines["compared"].split() == [*lines["mine"].split(), "probabilities"]
    (kept,) = (names for line, names in lines.items() if line.startswith("23 tensors survive"))
    assert kept.split() == [
        "relu_0.tmp_0", "pool2d_0.tmp_0", "relu_1.tmp_0", "relu_2.tmp_0", "...",
    ]  # fmt: skip


@pytest.mark.parametrize("script", ["examples/api/compare_modes.py", "docs/python.md"])  # python.zh.md has its block
def test_what_the_first_command_installs_is_enough(script: str, tmp_path: Path) -> None:
    """The README's first command installs [onnx], which has no pandas."""
    (tmp_path / "hidden").mkdir()
    for name in ("pandas", "torch", "paddle", "sklearn"):
        (tmp_path / "hidden" / f"{name}.py").write_text(f"raise ModuleNotFoundError('not installed', name='{name}')")
    text = (ROOT / script).read_text(encoding="utf-8")
    if script.endswith(".md"):
        text = next(block for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if ".compare(" in block)
        text = text.replace("examples/digits", str(EXAMPLES / "digits"))
    else:
        text = text.replace("__file__", repr(str(ROOT / script)))
    (tmp_path / "output").mkdir()
    paths = [str(tmp_path / "hidden"), str(ROOT), str(ROOT / "backends")]
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "out of tolerance" in done.stdout


def test_the_notebook_runs_from_top_to_bottom(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its cells in one namespace, as a kernel would; it is stored without results."""
    book = json.loads((EXAMPLES / "api" / "digits.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in book["cells"] if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] for cell in book["cells"] if cell["cell_type"] == "code")
    monkeypatch.chdir(EXAMPLES)
    space: dict[str, Any] = {}
    for cell in cells:
        exec(compile(cell, "digits.ipynb", "exec"), space)
    assert "probabilities" in capsys.readouterr().out
    assert space["report"]._repr_html_()
    assert space["strict"].verdict == "out of tolerance"
