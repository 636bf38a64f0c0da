"""ONNX Runtime's plugin execution providers: Qualcomm's HTP, which its wheel emulates on a PC."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
import tensorrt_models
from onnx import helper
from precision_debug_onnxruntime import OnnxRuntimeBackend

import precision_debug
from precision_debug.cli import main
from precision_debug.errors import BackendUnavailable
from precision_debug.records import ModelFiles, SessionSpec
from precision_debug.testing.backend_contract import *  # noqa: F403
from precision_debug.testing.backend_contract import Subject

pytest.importorskip("onnxruntime_qnn", reason="needs onnxruntime-qnn")
FEEDS = {"image": np.random.default_rng(5).uniform(-1, 1, (2, 3, 32, 32)).astype(np.float32)}


@pytest.fixture
def subject(tmp_path: Path) -> Subject:
    path = tmp_path / "residual.onnx"
    onnx.save(tensorrt_models.residual(), path)
    return Subject(
        backend=OnnxRuntimeBackend(), mode="ort_ep_qnn", model=ModelFiles(model_file=str(path)), feeds=[FEEDS],
        work_dir=str(tmp_path), import_name="precision_debug_onnxruntime",
    )  # fmt: skip


def session_of(proto: onnx.ModelProto, folder: Path, feeds: Any = FEEDS, **options: Any) -> Any:
    onnx.save(proto, folder / "m.onnx")
    spec = SessionSpec(
        model=ModelFiles(model_file=str(folder / "m.onnx")), mode="ort_ep_qnn", options=options, work_dir=str(folder)
    )
    return OnnxRuntimeBackend().open(spec, [feeds])


def test_an_open_batch_is_fixed_and_the_provider_takes_all(tmp_path: Path) -> None:
    """With an open shape the provider takes nothing, and ONNX Runtime would run all of it on the CPU in silence."""
    session = session_of(tensorrt_models.residual("N"), tmp_path)
    notes = [note.code for note in session.notes]
    assert "onnxruntime.shapes_fixed" in notes
    assert any("QNNExecutionProvider took" in note and "100.00 %" in note for note in session.notes)
    fixed = session_of(tensorrt_models.residual(), tmp_path)
    assert "onnxruntime.shapes_fixed" not in [note.code for note in fixed.notes]


def test_it_computes_as_the_chip_does(tmp_path: Path) -> None:
    """In FP16, and not in the FP32 that the emulator takes where no chip is named."""
    chip = session_of(tensorrt_models.residual(), tmp_path).run(FEEDS)["probabilities"]
    spec = SessionSpec(model=ModelFiles(model_file=str(tmp_path / "m.onnx")), mode="ort_fp32", work_dir=str(tmp_path))
    truth = OnnxRuntimeBackend().open(spec, [FEEDS]).run(FEEDS)["probabilities"]
    assert 1e-4 < float(np.linalg.norm(chip - truth) / np.linalg.norm(truth)) < 1e-2


def test_outputs_come_from_the_unmarked_session(tmp_path: Path) -> None:
    session = session_of(tensorrt_models.residual(), tmp_path)
    plain = session.run(FEEDS)["probabilities"]
    seen: dict[str, Any] = {}
    marked = session.run(FEEDS, lambda op, name, value: seen.update({name: np.array(value)}))["probabilities"]
    np.testing.assert_array_equal(plain, marked)
    np.testing.assert_array_equal(seen["probabilities"], plain)
    assert {"image", "conv1_out", "relu2_out", "logits"} <= set(seen)
    assert any(note.code == "onnxruntime.marked_beside" for note in session.notes)


def test_a_provider_that_takes_nothing_is_refused(tmp_path: Path) -> None:
    x, y = (onnx_models.value(name, [4], onnx.TensorProto.DOUBLE) for name in "xy")
    proto = onnx_models.model([helper.make_node("Mul", ["x", "x"], ["y"], name="only")], [x], [y], {})
    with pytest.raises(BackendUnavailable, match="QNNExecutionProvider took none"):
        session_of(proto, tmp_path, {"x": np.zeros(4)})


def test_a_report_names_the_operator_that_overflows(tmp_path: Path) -> None:
    """Squares of 300 leave float16 on the chip: 90,000 is above 65,504."""
    g = tensorrt_models.Graph()
    x = g.node("MatMul", "dense", ["x", g.normal("w", (16, 16), 1.0)])
    square = g.node("Mul", "square", [x, x])
    g.node("Mul", "scaled", [square, g.weight("tiny", np.array(1e-4, np.float32))], "y")
    onnx.save(g.model({"x": [4, 16]}, {"y": [4, 16]}), tmp_path / "m.onnx")
    feeds = {"x": np.random.default_rng(0).normal(0, 150, (4, 16)).astype(np.float32)}
    report = precision_debug.compare(tmp_path / "m.onnx", run_mode="ort_ep_qnn", inputs=feeds)
    assert report.explanation.culprits[0].name == "square_out", report.explanation.culprits
    assert str(report.verdict) == "out of tolerance"


def test_the_mode_for_any_library_wants_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    assert main(["--model_file", str(tmp_path / "m.onnx"), "--run_mode", "ort_ep"]) == 2
    assert "ep_library=LIB.so" in capsys.readouterr().err
    import onnxruntime_qnn

    chip = f"backend_path={onnxruntime_qnn.get_qnn_htp_path()},htp_arch=75,soc_model=60"
    settings = {
        "ep_library": onnxruntime_qnn.get_library_path(), "ep_name": "QNNExecutionProvider", "ep_options": chip
    }  # fmt: skip
    report = precision_debug.compare(tmp_path / "m.onnx", run_mode="ort_ep", explain="off", **settings)
    assert any("QNNExecutionProvider took 9 of 9 nodes" in note for note in report.target.notes)


def test_what_is_missing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from precision_debug_onnxruntime.engine import plugin_providers as plugins

    monkeypatch.setitem(plugins.KNOWN, "openvino", dataclasses.replace(plugins.KNOWN["openvino"], module="nowhere_ep"))
    monkeypatch.setattr(plugins, "_registered", set())
    told = OnnxRuntimeBackend().availability("ort_ep_openvino")
    assert not told.ok
    assert "pip install onnxruntime-ep-openvino" in told.needs
