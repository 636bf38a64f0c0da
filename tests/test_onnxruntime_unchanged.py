"""A mode that changes nothing in a model is refused, and an FP32 mode of a model that is not FP32 says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from approval import begins_approved, raises_approved
from onnxruntime import quantization
from planted.onnx_faults import Graph

from precision_debug import compare
from precision_debug.errors import ModelError
from precision_debug.report.doubts import describe_doubt
from precision_debug.report.model import Verdict

X: dict[str, Any] = {"x": np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)}


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    onnx.save(onnx_models.mlp(), tmp_path / "plain.onnx")
    return tmp_path / "plain.onnx"


@pytest.fixture
def dynamic(plain: Path) -> Path:
    path = plain.with_name("dynamic.onnx")
    quantization.quantize_dynamic(str(plain), str(path))
    return path


@pytest.fixture
def static(plain: Path) -> Path:
    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left = [X]

        def get_next(self) -> Any:
            return self.left.pop() if self.left else None

    path = plain.with_name("static.onnx")
    quantization.quantize_static(str(plain), str(path), Reader(), quant_format=quantization.QuantFormat.QOperator)
    return path


@pytest.fixture
def half(plain: Path) -> Path:
    from onnxruntime.transformers.float16 import convert_float_to_float16

    path = plain.with_name("half.onnx")
    onnx.save(convert_float_to_float16(onnx.load(plain), keep_io_types=False), path)
    return path


@pytest.mark.parametrize("made", ["dynamic", "static"])
def test_what_is_quantised_already_is_not_quantised_again(made: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(made)
    with raises_approved(ModelError) as raised:
        compare(path, run_mode="ort_int8_dynamic", inputs=X)
    assert "it is quantised already" in str(raised.value)


def test_a_file_whose_own_scales_the_quantiser_would_give_again_runs_with_other_names(tmp_path: Path) -> None:
    """Both call the scale of ``h`` "h_scale": the one that the file computes and the quantiser's constant."""
    g = Graph(seed=0)
    held = g.op("Add", [g.input("x", X["x"]), g.weight("b", g.random.normal(size=8))], "h")
    plain = g.save(tmp_path / "plain.onnx", [g.op("MatMul", [held, g.weight("w", g.random.normal(size=(8, 4)))], "y")])
    path = tmp_path / "dynamic.onnx"
    quantization.quantize_dynamic(str(plain), str(path), op_types_to_quantize=["MatMul"])
    report = compare(path, run_mode="ort_int8", inputs=X)
    assert report.exit_status == 0
    told = [note for note in report.target.notes if note.code == "onnxruntime.names_twice"]
    assert "h_scale" in told[0].args["names"]


def test_a_quantiser_that_would_never_end_is_stopped(tmp_path: Path) -> None:
    """It waits for the range of the file's own DequantizeLinear, for ever where nobody stops it."""
    g = Graph(seed=0)
    x = g.random.standard_normal((1, 3, 8, 8)).astype(np.float32)
    scale, zero = g.weight("scale", np.float32(0.03)), g.weight("zero", np.int8(0))
    held = g.op("QuantizeLinear", [g.input("x", x), scale, zero], "held")
    real = g.op("DequantizeLinear", [held, scale, zero], "real")
    padded = g.op("Pad", [real, g.weight("pads", np.int64([0, 0, 1, 1, 0, 0, 1, 1]))], "padded", mode="reflect")
    weight = g.weight("w", g.random.normal(size=(4, 3, 3, 3)).astype(np.float32))
    path = g.save(tmp_path / "padded.onnx", [g.op("Conv", [padded, weight], "y")])
    with pytest.raises(ModelError) as raised:
        compare(path, run_mode="ort_int8", inputs={"x": x})
    assert "padded waits" in str(raised.value)
    assert "op_types=Conv" in raised.value.hint  # tried: the rest of it is quantised so
    report = compare(path, run_mode="ort_int8", inputs={"x": x}, op_types="Conv")
    assert report.verdict is Verdict.EXPECTED


def test_the_rest_of_a_model_is_quantised_beside_what_is_already(plain: Path) -> None:
    path = plain.with_name("part.onnx")
    first = next(node.name for node in onnx.load(plain).graph.node if node.op_type in ("Gemm", "MatMul"))
    quantization.quantize_dynamic(str(plain), str(path), nodes_to_exclude=[first])
    report = compare(path, run_mode="ort_int8_dynamic", inputs=X)
    assert report.verdict is Verdict.EXPECTED  # what dynamic int8 must lose
    assert any((row.relative_l2 or 0.0) > 1e-3 for row in report.compared)


def test_what_is_float16_already_is_not_converted(half: Path) -> None:
    with raises_approved(ModelError):
        compare(half, run_mode="ort_fp16", inputs={"x": X["x"].astype(np.float16)})


@pytest.mark.parametrize(("made", "named"), [("dynamic", "DynamicQuantizeLinear"), ("half", "float16")])
def test_an_fp32_baseline_that_is_none_says_so(made: str, named: str, request: pytest.FixtureRequest) -> None:
    path = request.getfixturevalue(made)
    feeds = {"x": X["x"].astype(np.float16)} if made == "half" else X
    exact = {"session.x64quantprecision": "1"}  # else 8-bit sums of the target saturate on some processors
    report = compare(path, run_mode="ort_opt", inputs=feeds, atol=0.1, rtol=0.1, config=exact)
    said = [describe_doubt(doubt).en for doubt in report.doubts]
    assert len(said) == 1
    assert begins_approved(said[0])
    assert named in said[0]
    assert report.verdict is Verdict.PASS


def test_a_float16_model_is_compared_tensor_by_tensor(half: Path) -> None:
    """ONNX Runtime computes it in float32 on the CPU, under names of its own, fused or not."""
    report = compare(half, run_mode="ort_opt", inputs={"x": X["x"].astype(np.float16)}, atol=0.1, rtol=0.1)
    assert report.coverage.compared >= 10
    assert report.coverage.unmatched == 0


@pytest.mark.parametrize("mode", ["ort_fp16_sim", "ort_bf16_sim"])
def test_a_simulation_that_rounds_nothing_is_inconclusive(tmp_path: Path, mode: str) -> None:
    integers = onnx.TensorProto.INT64
    x, y = (onnx_models.value(name, (4,), integers) for name in ("x", "y"))
    nodes = [onnx.helper.make_node("Add", ["x", "x"], ["two"]), onnx.helper.make_node("Mul", ["two", "x"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "g", [x], [y])
    proto = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(proto, tmp_path / "m.onnx")
    report = compare(tmp_path / "m.onnx", run_mode=mode, inputs={"x": np.arange(4)})
    assert [doubt.code for doubt in report.doubts] == ["precision_unseen"]
    assert report.verdict is Verdict.INCONCLUSIVE


@pytest.mark.parametrize("mode", ["ort_fp16", "ort_int8", "ort_int8_dynamic", "ort_fp16_sim", "ort_bf16_sim"])
def test_a_mode_that_does_change_the_model_leaves_its_trace(plain: Path, mode: str) -> None:
    report = compare(plain, run_mode=mode, inputs=X, atol=1, rtol=1)
    assert not [doubt for doubt in report.doubts if doubt.code == "precision_unseen"]
