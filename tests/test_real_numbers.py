"""Quantised tensors of a QDQ file are compared in real numbers, whichever engine shows them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import onnx
import onnx_models
import pytest
from onnx import TensorProto, helper

import precision_debug
from precision_debug.onnx.model import read_model
from precision_debug.onnx.real_numbers import RealNumbers
from precision_debug.records import Status

RANDOM = np.random.default_rng(9)


def quantised() -> onnx.ModelProto:
    """An int8 input beside a float one; a tensor with one scale, and one with a scale a channel."""
    node = helper.make_node
    weights = {
        "s": np.float32(0.03), "z": np.int8(3), "su": np.float32(0.02), "zu": np.uint8(120),
        "sc": np.float32([0.01, 0.02, 0.03, 0.05]), "zc": np.int8([0, 0, 0, 0]),
        "w": RANDOM.standard_normal((4, 4)).astype(np.float32),
    }  # fmt: skip
    nodes = [
        node("DequantizeLinear", ["codes", "s", "z"], ["given"], name="given"),
        node("QuantizeLinear", ["x", "su", "zu"], ["xq"], name="xq"),
        node("DequantizeLinear", ["xq", "su", "zu"], ["xd"], name="xd"),
        node("Add", ["given", "xd"], ["sum"], name="sum"),
        node("MatMul", ["sum", "w"], ["m"], name="m"),
        node("QuantizeLinear", ["m", "sc", "zc"], ["mq"], name="mq", axis=1),
        node("DequantizeLinear", ["mq", "sc", "zc"], ["md"], name="md", axis=1),
        node("Tanh", ["md"], ["y"], name="y"),
    ]
    inputs = [onnx_models.value("codes", [3, 4], TensorProto.INT8), onnx_models.value("x", [3, 4])]
    return onnx_models.model(nodes, inputs, [onnx_models.value("y")], weights)


FEEDS = {
    "codes": RANDOM.integers(-100, 100, (3, 4)).astype(np.int8),
    "x": RANDOM.standard_normal((3, 4)).astype(np.float32),
}


@pytest.mark.parametrize(
    ("baseline", "mode"), [("ort_fp32", "onnx_ref"), ("onnx_ref", "ort_opt"), ("ort_fp32", "ov_fp32"),
                           ("onnx_ref", "ov_opt"), ("ov_fp32", "ort_opt")],
)  # fmt: skip
def test_a_healthy_file_has_no_mismatch_across_engines(baseline: str, mode: str, tmp_path: Path) -> None:
    if "ov" in baseline + mode and importlib.util.find_spec("openvino") is None:
        pytest.skip("openvino is not installed")
    onnx.save(quantised(), tmp_path / "m.onnx")
    report = precision_debug.compare(tmp_path / "m.onnx", run_mode=mode, baseline=baseline, inputs=FEEDS)
    assert not [(row.name, row.relative_l2) for row in report.rows if row.status is Status.FAIL]
    assert report.explanation is not None
    assert not report.explanation.culprits
    told = {row.name: row.comparison for row in report.rows if row.comparison is not None}
    assert told["y"].base.elements == 12
    for name in {"xq", "mq", "codes"} & set(told):
        assert told[name].base.max == pytest.approx(told[name].target.max), name
        assert told[name].base.max < 20, "no codes"  # type: ignore[operator]


def test_codes_and_real_numbers_are_each_others_inverse(tmp_path: Path) -> None:
    onnx.save(quantised(), tmp_path / "m.onnx")
    real = RealNumbers.of(read_model(str(tmp_path / "m.onnx")))
    assert {"codes", "xq", "mq"} <= set(real.by_name)
    codes = RANDOM.integers(-128, 128, (3, 4)).astype(np.int8)
    shown = real.shown("mq", codes)
    assert np.array_equal(shown, codes * np.float32([0.01, 0.02, 0.03, 0.05]))
    assert np.array_equal(real.codes("mq", shown, codes), codes)
    assert real.shown("codes", codes)[0, 0] == pytest.approx((int(codes[0, 0]) - 3) * 0.03)
    assert real.codes("xq", np.float32([[1e9, -np.inf, np.nan, 0]]), np.zeros((1, 4), np.uint8)).tolist() == [
        [255, 0, 120, 120]
    ]
    floats = np.ones((3, 4), np.float32)
    assert real.shown("m", floats) is floats
