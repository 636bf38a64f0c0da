"""An ONNX file whose tensors are bfloat16, in OpenVINO: its numbers are shown, and not their bits as another type."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import precision_debug
from precision_debug.report.model import Report

pytest.importorskip("openvino", reason="needs OpenVINO")
pytestmark = pytest.mark.engine("openvino")


def save(path: Path, factor: float = 1.0) -> str:
    weight = (np.random.default_rng(0).normal(size=(32, 16)) / 4 * factor).astype(ml_dtypes.bfloat16)
    held = helper.make_tensor("w", TensorProto.BFLOAT16, (32, 16), weight.tobytes(), raw=True)
    nodes = [
        helper.make_node("Cast", ["x"], ["narrow"], to=TensorProto.BFLOAT16),
        helper.make_node("MatMul", ["narrow", "w"], ["product"]),
        helper.make_node("Relu", ["product"], ["above"]),
        helper.make_node("Cast", ["above"], ["y"], to=TensorProto.FLOAT),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, (8, size)) for n, size in (("x", 32), ("y", 16))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [held])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return str(path)


def compare(target: str, base: str) -> Report:
    feeds = {"x": np.random.default_rng(1).normal(size=(8, 32)).astype(np.float32)}
    return precision_debug.compare(
        target, baseline_model=base, run_mode="ov_fp32", baseline="ov_fp32", inputs=feeds
    )


def test_bfloat16_is_shown_as_its_numbers(tmp_path: Path) -> None:
    report = compare(save(tmp_path / "one.onnx"), save(tmp_path / "two.onnx", 1.5))
    shown = {row.name: row.comparison for row in report.rows if row.comparison is not None}
    assert {"narrow", "product", "above", "y"} <= shown.keys()
    x = np.random.default_rng(1).normal(size=(8, 32)).astype(ml_dtypes.bfloat16).astype(np.float32)
    assert shown["narrow"].base.max == x.max()
    assert shown["narrow"].base.min == x.min()
    assert shown["above"].base.max == shown["y"].base.max
    assert report.explanation is not None
    assert [one.name for one in report.explanation.culprits] == ["product"]
