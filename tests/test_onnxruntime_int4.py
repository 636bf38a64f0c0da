"""Weights of 4 bits by ONNX Runtime's own quantiser: the file that is judged is the quantiser's, and what is kept."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import onnxruntime as ort
import pytest
from onnx import helper

import precision_debug
from precision_debug.errors import ModelError, NothingToQuantise
from precision_debug.records import Status

TOOL = "onnxruntime.quantization.matmul_nbits_quantizer"
pytest.importorskip(TOOL, reason="onnxruntime before 1.22 has no such tool")

RANDOM = np.random.default_rng(3)
X = RANDOM.standard_normal((8, 64)).astype(np.float32)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Two products of weights that 4 bits hold badly: one column of each is far larger than the others."""
    weights = {name: RANDOM.standard_normal((64, 64)).astype(np.float32) for name in ("w1", "w2")}
    weights["w2"][::16] *= 50
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"], name="first"),
        helper.make_node("Tanh", ["a"], ["t"], name="tanh"),
        helper.make_node("MatMul", ["t", "w2"], ["y"], name="second"),
    ]  # fmt: skip
    model = onnx_models.model(nodes, [onnx_models.value("x", [8, 64])], [onnx_models.value("y", [8, 64])], weights)
    onnx.save(model, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


def compared(path: Path, **options: Any) -> Any:
    return precision_debug.compare(str(path), run_mode="ort_int4", inputs={"x": X}, explain="off", **options)


def by_the_stock_tool(path: Path, **more: Any) -> Any:
    from onnxruntime.quantization.matmul_nbits_quantizer import MatMulNBitsQuantizer

    made = MatMulNBitsQuantizer(onnx.load(path), bits=4, **more)
    made.process()
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    session = ort.InferenceSession(made.model.model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"x": X})[0]


@pytest.mark.parametrize("block", [16, 64])
def test_the_error_is_that_of_the_stock_quantisers_file(path: Path, block: int) -> None:
    report = compared(path, block_size=block)
    (row,) = report.outputs
    weights = {one.name: onnx.numpy_helper.to_array(one) for one in onnx.load(path).graph.initializer}
    truth = np.tanh(X.astype(np.float64) @ weights["w1"]) @ weights["w2"]
    stock = by_the_stock_tool(path, block_size=block, is_symmetric=True)
    expected = np.linalg.norm(stock - truth) / np.linalg.norm(truth)
    assert row.comparison.relative_l2 == pytest.approx(expected, rel=1e-3)
    assert 0.01 < expected < 0.2
    assert {one.name for one in report.rows if one.status in (Status.PASS, Status.FAIL)} >= {"a", "t", "y"}


def test_a_node_that_is_kept_stays_in_float_and_the_file_is_saved(path: Path, tmp_path: Path) -> None:
    made = tmp_path / "made.onnx"
    report = compared(path, block_size=16, nodes_to_exclude=["first"], save_model=str(made))
    kinds = [node.op_type for node in onnx.load(made, load_external_data=False).graph.node]
    assert sorted(kinds) == ["MatMul", "MatMulNBits", "Tanh"]
    first = next(row for row in report.rows if row.name == "a")
    assert first.comparison.relative_l2 < 1e-6


def test_a_model_without_a_product_is_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("Tanh", ["x"], ["y"])]
    model = onnx_models.model(nodes, [onnx_models.value("x", [8, 64])], [onnx_models.value("y", [8, 64])], {})
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(ModelError, match="leaves every operator of it in float"):
        compared(tmp_path / "m.onnx")


def test_a_quantiser_that_finds_nothing_is_stopped_by_no_pass(tmp_path: Path) -> None:
    """Of a weight in a Constant node it makes nothing, and folded, the product is a Gemm. Without folding it would find
    one, which makes no pass of the engine's faulty."""
    weight = onnx.numpy_helper.from_array(np.random.default_rng(0).normal(size=(64, 8)).astype(np.float32))
    nodes = [
        helper.make_node("Constant", [], ["w"], value=weight),
        helper.make_node("MatMul", ["x", "w"], ["product"]), helper.make_node("Add", ["product", "b"], ["y"]),
    ]  # fmt: skip
    values = [onnx_models.value("x", [8, 64])], [onnx_models.value("y", [8, 8])]
    onnx.save(onnx_models.model(nodes, *values, {"b": np.ones(8, np.float32)}), tmp_path / "m.onnx")
    with pytest.raises(NothingToQuantise) as refused:
        compared(tmp_path / "m.onnx")
    assert refused.value.exit_status == 2
