"""What ONNX Runtime inserts and fuses belongs to the tensor behind it, and nobody in front of it is blamed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_models
import pytest
from approval import begins_approved
from onnx import helper

import precision_debug
from precision_debug.records import Status

RANDOM = np.random.default_rng(3)


def quantised(moved: str, *, zero_point: bool) -> onnx.ModelProto:
    """d = x @ w + b is quantised, moved about and read again. zero_point: the DequantizeLinear names it; without one
    ONNX Runtime 1.23 to 1.32 quantise what moved it once more, as uint8, and what is negative is lost."""
    node = helper.make_node
    weights = {
        "w": RANDOM.standard_normal((16, 16)).astype(np.float32), "b": RANDOM.standard_normal(16).astype(np.float32),
        "s": np.float32(0.12), "z": np.int8(0), "shape": np.int64([4, 4, 16]),
        "last": RANDOM.standard_normal((16, 8)).astype(np.float32),
    }  # fmt: skip
    mover = {"Reshape": (["dd", "shape"], {}), "Transpose": (["dd"], {"perm": [1, 0]})}[moved]
    nodes = [
        node("MatMul", ["x", "w"], ["mm"], name="mm"),
        node("Add", ["mm", "b"], ["d"], name="add"),
        node("QuantizeLinear", ["d", "s", "z"], ["dq"], name="q"),
        node("DequantizeLinear", ["dq", "s", *(["z"] if zero_point else [])], ["dd"], name="dq"),
        node(moved, mover[0], ["r"], name="move", **mover[1]),
        node("MatMul", ["r", "last"], ["y"], name="yy"),
    ]
    return onnx_models.model(nodes, [onnx_models.value("x", [16, 16])], [onnx_models.value("y")], weights)


def small(*shape: int) -> np.ndarray:
    return (RANDOM.standard_normal(shape) * 0.5).astype(np.float32)


@pytest.mark.parametrize("moved", ["Reshape", "Transpose"])
def test_what_is_quantised_once_more_is_the_movers(moved: str, tmp_path: Path) -> None:
    onnx.save(quantised(moved, zero_point=False), tmp_path / "m.onnx")
    report = precision_debug.compare(tmp_path / "m.onnx", run_mode="ort_opt", inputs={"x": small(16, 16)})
    assert report.explanation is not None
    assert [culprit.name for culprit in report.explanation.culprits] == ["r"]
    assert [culprit.cause for culprit in report.explanation.culprits] == ["faulty_pass"]  # no rounding: values are gone
    rows = {row.name: row for row in report.rows}
    assert rows["r"].introduced is not None
    assert rows["r"].introduced.rel_l2 > 0.3  # type: ignore[operator]
    told = {name: row.extra["Inserted by ONNX Runtime"] for name, row in rows.items() if row.extra}
    assert {*told} == {"r"}
    assert begins_approved(told["r"])
    same = {name for name, row in rows.items() if row.comparison is not None and row.comparison.identical}
    assert "d" in same
    assert not same & {culprit.name for culprit in report.explanation.culprits}


@pytest.mark.parametrize("moved", ["Reshape", "Transpose"])
@pytest.mark.parametrize("before", [False, True])
def test_a_healthy_file_has_no_row_out_of_tolerance(moved: str, before: bool, tmp_path: Path) -> None:
    """before: x is quantised too, so that ONNX Runtime makes a QGemm of MatMul and Add, called after the MatMul."""
    model = quantised(moved, zero_point=True)
    if before:
        model.graph.node[0].input[0] = "xd"
        model.graph.node.insert(0, helper.make_node("DequantizeLinear", ["xq", "s", "z"], ["xd"], name="xd"))
        model.graph.node.insert(0, helper.make_node("QuantizeLinear", ["x", "s", "z"], ["xq"], name="xq"))
    onnx.save(model, tmp_path / "m.onnx")
    report = precision_debug.compare(tmp_path / "m.onnx", run_mode="ort_opt", inputs={"x": small(16, 16)})
    assert not [(row.name, row.relative_l2) for row in report.rows if row.status is Status.FAIL]
    assert report.explanation is not None
    assert not report.explanation.culprits


def test_another_engine_on_the_same_file_is_no_coarse_type(tmp_path: Path) -> None:
    """Both engines hold the file's integers: what one loses is said of neither as its type's rounding."""
    pytest.importorskip("openvino")
    onnx.save(quantised("Reshape", zero_point=False), tmp_path / "m.onnx")
    for mode, baseline in (("ov_opt_fp32", "ort_opt"), ("ov_fp32", "ort_opt")):
        report = precision_debug.compare(
            tmp_path / "m.onnx", run_mode=mode, baseline=baseline, inputs={"x": small(16, 16)}
        )
        assert report.explanation is not None
        assert [culprit.cause for culprit in report.explanation.culprits] == ["other_arithmetic"]
