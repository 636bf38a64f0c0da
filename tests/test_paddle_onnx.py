"""A Paddle model beside the file that paddle2onnx makes of it."""

# ruff: noqa: E402

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx", reason="needs onnx")
paddle = pytest.importorskip("paddle", reason="needs paddle")
pytest.importorskip("onnxruntime", reason="needs onnxruntime")

import export_faults
import paddle_models

from precision_debug import registry
from precision_debug.products.dumps.across_frameworks import match_values
from precision_debug.protocols import Matches
from precision_debug.reasons.reason import as_reason
from precision_debug.records import ModelFiles, SessionSpec
from precision_debug.run.plan import Opening

if not paddle.__version__.startswith("3"):
    pytest.skip("paddle2onnx 2.1 reads the programs of Paddle 3", allow_module_level=True)
ARCHITECTURES = [
    "cnn", "mlp", pytest.param("conv_norm", marks=pytest.mark.slow), pytest.param("encoder", marks=pytest.mark.slow),
]  # fmt: skip
STORED = Path(__file__).parent / "data" / "paddle_onnx"
WHY = "needs paddle2onnx 2.1, which asks for an onnx older than torch's exporter takes"


def converted(name: str, folder: Path) -> tuple[Path, Path, Any]:
    """The program, the ONNX file and feeds; no parameter has its start value.

    Small ones lie in tests/data as this function made them with paddlepaddle 3.3.1 and paddle2onnx 2.1.0.
    """
    make, shape = paddle_models.MODELS[name]
    if (STORED / f"{name}.onnx").exists():
        for ending in ("json", "pdiparams", "onnx"):
            (folder / f"inference.{ending}").write_bytes((STORED / f"{name}.{ending}").read_bytes())
        feeds = {"x": np.random.default_rng(4).normal(size=(2, *shape)).astype(np.float32)}
        return folder / "inference.json", folder / "inference.onnx", feeds
    paddle2onnx = pytest.importorskip("paddle2onnx", reason=WHY)
    paddle.seed(0)
    network: Any = make()
    network.eval()
    random = np.random.default_rng(3)
    for key, value in network.state_dict().items():
        if value.ndim == 1:
            positive = "weight" in key or "var" in key
            new = random.random(value.shape) + 0.5 if positive else random.normal(size=value.shape) * 0.2
            value.set_value(new.astype(np.float32))
    saved = str(folder / "inference")
    paddle.jit.save(network, saved, input_spec=[paddle.static.InputSpec([2, *shape], "float32", "x")])
    paddle2onnx.export(
        f"{saved}.json", f"{saved}.pdiparams", f"{saved}.onnx", opset_version=17, auto_upgrade_opset=False,
        verbose=False, enable_optimize=False,
    )  # fmt: skip
    return Path(f"{saved}.json"), Path(f"{saved}.onnx"), {"x": random.normal(size=(2, *shape)).astype(np.float32)}


def opening(path: Path, mode: str, work: Path) -> Opening:
    files = ModelFiles(model_file=str(path))
    backend, found = registry.find(files, mode)
    work.mkdir(exist_ok=True)
    return Opening(spec=SessionSpec(model=files, mode=mode, work_dir=str(work)), mode=found, backend=backend)


def matched(program: Path, path: Path, feeds: Any, work: Path) -> tuple[Matches, list[str]]:
    found, notes = match_values(opening(program, "cpu_fp32", work), opening(path, "ort_fp32", work), feeds)
    return found, list(notes)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_faults_in_what_paddle2onnx_made_are_found_and_named_and_a_right_file_is_accused_of_nothing(
    name: str, tmp_path: Path
) -> None:
    program, path, feeds = converted(name, tmp_path)
    right, notes = matched(program, path, feeds, tmp_path / "work")
    assert not [note for note in notes if "is wrong" in note or "differ" in note or "other values" in note]
    side = opening(program, "cpu_fp32", tmp_path / "work")
    values: dict[str, np.ndarray] = {}
    session = side.open([feeds])
    session.run(feeds, lambda kind, tensor, value: values.__setitem__(tensor, np.array(value)))
    session.close()
    assert {base for base, _ in right.found.values()} == set(values), "every tensor of Paddle's has a partner"
    own: Any = side.backend
    weights = own.weights(side.spec)
    assert any(f"{len(weights)} of {len(weights)} weights" in note for note in notes)
    planted = 0
    for kind, plant in export_faults.FAULTS.items():
        fault = plant(onnx.load(path), weights)
        if fault is None:
            continue
        planted += 1
        onnx.save(fault.model, tmp_path / "wrong.onnx")
        found, notes = matched(program, tmp_path / "wrong.onnx", feeds, tmp_path / "work")
        wrong = [note for note in notes if as_reason(note).code.startswith(("wrong_at", "exchanged"))]
        named = [note for note in wrong if any(weight in note for weight in fault.weights)]
        assert any(fault.cause in note for note in named), (kind, fault.weights, wrong)
        if kind not in ("old checkpoint", "swapped"):
            assert len(wrong) == 1, (kind, wrong)
        partners = {target: base for target, (base, _) in found.found.items()}
        known = {target: base for target, (base, _) in right.found.items()}
        assert not [target for target in partners if target in known and partners[target] != known[target]], kind
    assert planted >= 3


def test_an_epsilon_that_moves_no_value_is_found_by_reading_the_attributes(tmp_path: Path) -> None:
    program, path, feeds = converted("cnn", tmp_path)
    assert not [note for note in matched(program, path, feeds, tmp_path / "work")[1] if "differ" in note]
    model, named = export_faults.slight_epsilon(onnx.load(path))
    onnx.save(model, tmp_path / "other.onnx")
    _, notes = matched(program, tmp_path / "other.onnx", feeds, tmp_path / "work")
    differ = [note for note in notes if "the attributes differ" in note]
    assert len(differ) == len(named) >= 2
    assert all("is 1e-06" in note.replace(",", "") and "batch_norm" in note for note in differ), differ
    assert not [note for note in notes if as_reason(note).code.startswith(("wrong_at", "exchanged"))], "no value tells"


def test_the_weights_of_a_program_are_read_without_paddle(tmp_path: Path) -> None:
    program, _, _ = converted("cnn", tmp_path)
    side = opening(program, "cpu_fp32", tmp_path / "work")
    own: Any = side.backend
    found = own.weights(side.spec)
    known = paddle.jit.load(str(program.with_suffix(""))).state_dict()
    assert len(found) == len(known) == 14
    assert sorted(value.tobytes() for value in found.values()) == sorted(
        value.numpy().tobytes() for value in known.values()
    )
    shapes = {"conv2d_0.w_0": (8, 3, 3, 3), "linear_0.w_0": (8, 10), "batch_norm2d_1.w_2": (8,)}
    assert {name: found[name].shape for name in shapes} == shapes


def test_the_example_runs(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("paddle2onnx", reason=WHY)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "backends")])}
    done = subprocess.run(
        [sys.executable, str(root / "examples/paddle_onnx/compare_export.py")], check=False, cwd=tmp_path,
        env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    right, _, wrong = done.stdout.partition("without_a_bias.onnx:")
    assert "is wrong" not in right
    assert "departs from" not in right
    assert "without_a_bias.onnx is wrong at" in wrong
    assert "conv2d_0.b_0 is missing" in wrong
