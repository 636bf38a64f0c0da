"""Quantised probabilities that agree with the baseline's within half a step of their own scale."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import litert_files
import numpy as np
import pytest

import precision_debug

pytest.importorskip("onnx", reason="onnx is not installed")

import onnx
from onnx import TensorProto, helper, numpy_helper


def build(path: Path, bias: float, *, quantised: bool, scale: float = 1 / 256, end: str = "Sigmoid") -> Path:
    """x, a Gemm and its activation, whose result an 8-bit scale holds."""
    draw = np.random.default_rng(3)
    constants = {
        "w": draw.standard_normal((16, 8)).astype(np.float32) * 0.2, "b": np.full(8, bias, np.float32),
        "s": np.array(scale, np.float32), "z": np.array(0, np.uint8),
    }  # fmt: skip
    last = "f" if quantised else "y"
    nodes = [helper.make_node("Gemm", ["x", "w", "b"], ["h"]), helper.make_node(end, ["h"], [last])]
    if quantised:
        nodes += [
            helper.make_node("QuantizeLinear", ["f", "s", "z"], ["q"]),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["y"]),
        ]
    kept = constants if quantised else {name: constants[name] for name in "wb"}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 16))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (4, 8))],
        [numpy_helper.from_array(value, name) for name, value in kept.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def compare(folder: Path, mode: str, bias: float, **said: Any) -> Any:
    if mode.startswith("ov"):
        pytest.importorskip("openvino", reason="openvino is not installed")
    else:
        pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    theirs = build(folder / "q.onnx", bias, quantised=True, **said)
    ours = build(folder / "f.onnx", bias, quantised=False, end=said.get("end", "Sigmoid"))
    return precision_debug.compare(theirs, run_mode=mode, baseline_model=str(ours))


def logistic(folder: Path, bias: float, change: Any = None) -> Any:
    """The digits' file with a LOGISTIC for its SOFTMAX, and such logits."""
    pytest.importorskip("ai_edge_litert", reason="ai_edge_litert is not installed")
    from ai_edge_litert import schema_py_generated as schema

    def plant(flat: Any) -> None:
        code = flat.model.operatorCodes[flat.main.operators[-1].opcodeIndex]
        code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.LOGISTIC
        flat.main.operators[-1].builtinOptionsType, flat.main.operators[-1].builtinOptions = 0, None
        told = litert_files.tensor(flat, "logits").quantization
        told.zeroPoint = np.asarray([100])
        one = litert_files.tensor(flat, "fc_fc_bias")
        made = np.round(bias / np.asarray(one.quantization.scale)) + np.zeros(10)
        flat.model.buffers[one.buffer].data = made.astype(np.int32).view(np.uint8)
        if change is not None:
            change(flat)

    path = litert_files.changed(folder / "l.tflite", plant)
    return precision_debug.compare(path, run_mode="tflite_ref", inputs={"image": litert_files.images(8)})


@pytest.mark.parametrize("mode", ["tflite_ref", "ort_opt", "ov_opt_fp32"])
def test_a_silence_of_all_probabilities_accuses_nobody(tmp_path: Path, mode: str) -> None:
    """All are far below half a step, so that 0 is the nearest number, and so it would be of many a wrong model."""
    report = logistic(tmp_path, -11.0) if mode == "tflite_ref" else compare(tmp_path, mode, -12.0)
    assert report.verdict.value == "inconclusive"
    assert not report.explanation.culprits
    assert [row.relative_l2 for row in report.outputs] == [1.0]
    doubt = next(one.why for one in report.claims if one.code == "outputs_compared" and one.state.value == "open")
    assert doubt.code == "outputs_below_a_step"
    assert doubt.values["step"] == pytest.approx(1 / 256)


@pytest.mark.parametrize("mode", ["tflite_ref", "ort_opt", "ov_opt_fp32"])
def test_small_probabilities_within_half_a_step_pass(tmp_path: Path, mode: str) -> None:
    report = logistic(tmp_path, -8.0) if mode == "tflite_ref" else compare(tmp_path, mode, -5.8)
    (output,) = report.outputs
    assert output.relative_l2 > 0.1
    assert output.comparison.max_abs <= 0.5001 / 256
    assert (report.exit_status, report.explanation.culprits) == (0, ())


@pytest.mark.parametrize("said", [{"end": "Identity", "scale": 12.0}, {"scale": 1 / 25}])
def test_numbers_that_are_no_probabilities_and_wider_scales_are_too_coarse(
    tmp_path: Path, said: dict[str, Any]
) -> None:
    """What the scale makes 0 is lost of a number that may mean something, and of a scale that is wider than needed."""
    report = compare(tmp_path, "ort_opt", -4.0, **said)
    assert report.verdict.value == "out of tolerance"
    assert report.explanation.culprits


def test_what_is_off_by_more_than_half_a_step_is_named(tmp_path: Path) -> None:
    report = logistic(tmp_path, -8.0, litert_files.zero_point("gap_out", 40))
    assert report.exit_status == 1
    assert report.explanation.culprits
