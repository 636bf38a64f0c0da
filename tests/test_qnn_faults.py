"""Faults planted into a quantised file that Qualcomm's HTP runs, as its wheel emulates it: culprit and cause."""


from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import precision_debug

pytest.importorskip("onnxruntime_qnn", reason="needs onnxruntime-qnn")

import onnxruntime
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

ROOT = Path(__file__).parents[1]
DIGITS = ROOT / "examples" / "digits"
IMAGES = np.load(DIGITS / "test_images.npz")["image"]
COUNT = 16


class Reader(CalibrationDataReader):
    def __init__(self) -> None:
        self._left: Iterator[Any] = iter([{"image": IMAGES[at : at + COUNT]} for at in range(0, 320, COUNT)])

    def get_next(self) -> Any:
        return next(self._left, None)


def outlier() -> onnx.ModelProto:
    """One channel of the second block 200 times as large, and what reads it as much smaller."""
    spec = importlib.util.spec_from_file_location("rknn_make", ROOT / "tests" / "data" / "rknn" / "make.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    model: onnx.ModelProto = made.outlier()
    return model


def quantised(folder: Path, fault: str) -> tuple[Path, Path]:
    """The float model of a fixed batch, which the provider wants, and its QDQ file of ONNX Runtime's quantiser."""
    model = outlier() if fault == "outlier" else onnx.load(DIGITS / "digits.onnx")
    for one in (*model.graph.input, *model.graph.output):
        one.type.tensor_type.shape.dim[0].dim_value = COUNT
    onnx.save(model, folder / "whole.onnx")
    options = onnxruntime.SessionOptions()  # folds the batch norms, which the provider does not quantise by themselves
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(folder / "float.onnx")
    onnxruntime.InferenceSession(folder / "whole.onnx", options, providers=["CPUExecutionProvider"])
    quantize_static(
        folder / "float.onnx", folder / "qdq.onnx", Reader(), quant_format=QuantFormat.QDQ,
        activation_type=QuantType.QUInt8, weight_type=QuantType.QUInt8,
    )  # fmt: skip
    made = onnx.load(folder / "qdq.onnx")
    for one in made.graph.initializer:
        value = numpy_helper.to_array(one)
        if fault == "range" and one.name == "relu3_out_scale":
            one.CopyFrom(numpy_helper.from_array(np.asarray(value / 8, value.dtype), one.name))
        if fault == "zero point" and one.name == "relu3_out_zero_point":
            moved = np.clip(value.astype(int) + 100, 0, 255).astype(value.dtype)
            one.CopyFrom(numpy_helper.from_array(moved, one.name))
    onnx.save(made, folder / "qdq.onnx")
    return folder / "float.onnx", folder / "qdq.onnx"


def compare(folder: Path, fault: str) -> Any:
    base, file = quantised(folder, fault)
    return precision_debug.compare(
        file, run_mode="ort_ep_qnn", baseline="ort_fp32", baseline_model=base, inputs={"image": IMAGES[:COUNT]}
    )  # fmt: skip


def test_a_healthy_file_blames_nobody(tmp_path: Path) -> None:
    report = compare(tmp_path, "")
    took = "QNNExecutionProvider took 38 of 40 nodes"  # all but what turns the input and the output
    assert any(took in note for note in report.target.notes)
    assert str(report.verdict) == "as expected"
    assert not report.explanation.culprits


@pytest.mark.parametrize(
    ("fault", "culprit", "cause"),
    [("outlier", "bn2_out", "outlier_channel"), ("range", "relu3_out", "saturation"),
     ("zero point", "relu3_out", "")],
)  # fmt: skip
def test_a_planted_fault_is_found(tmp_path: Path, fault: str, culprit: str, cause: str) -> None:
    report = compare(tmp_path, fault)
    assert str(report.verdict) == "out of tolerance"
    first = report.explanation.culprits[0]
    assert first.name == culprit
    assert cause in ("", first.cause)  # of the zero point the cause is only told where ONNX Runtime itself cuts off
