"""Which pass of an engine brings an error: ONNX Runtime's optimisers, switched off by bisection."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from approval import holds_approved
from onnx import TensorProto, helper, numpy_helper

from precision_debug import compare
from precision_debug.report.lead import lead_sentences


@pytest.fixture
def offset(tmp_path: Path) -> str:
    """Inputs and a batch norm's mean share an offset of 1e4: folding the mean into the weights rounds elsewhere."""
    random = np.random.default_rng(0)

    def normal(*shape: int) -> Any:
        return random.normal(size=shape).astype(np.float32)

    weights = normal(4, 3, 3, 3)
    given = {
        "w": weights, "scale": normal(4), "bias": normal(4), "mean": 1e4 * weights.sum((1, 2, 3)),
        "variance": np.ones(4, np.float32),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["conv"]),
        helper.make_node("BatchNormalization", ["conv", "scale", "bias", "mean", "variance"], ["normed"]),
        helper.make_node("Relu", ["normed"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "offset", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in given.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, tmp_path / "offset.onnx")
    np.savez(tmp_path / "x.npz", x=normal(1, 3, 8, 8) + np.float32(1e4))
    return str(tmp_path)


def _compared(folder: str, **options: Any) -> Any:
    return compare(f"{folder}/offset.onnx", run_mode="ort_opt", inputs=f"{folder}/x.npz", **options)


def test_the_optimiser_that_rounds_elsewhere_is_named_unasked(offset: str) -> None:
    report = _compared(offset)
    first = report.explanation.culprits[0]
    assert first.cause == "pass_rounding"  # as much as rounding everywhere makes of this model: no fault of the pass
    assert "ConvBNFusion" in first.evidence["passes"].split(" and ")
    assert first.evidence["after"] < 1e-6 < first.evidence["before"]
    assert first.evidence["runs"] <= 2 * (np.ceil(np.log2(first.evidence["of"])) + 3)
    assert "BatchNormalization" in first.evidence["replaced"]
    said = lead_sentences(report)[0]
    assert "disabled_optimizers=['ConvBNFusion'" in said.en
    assert "disabled_optimizers=['ConvBNFusion'" in said.zh
    assert "BatchNormalization" in said.en


def test_what_is_pasted_mends_it(offset: str) -> None:
    passes = _compared(offset).explanation.culprits[0].evidence["passes"].split(" and ")
    mended = _compared(offset, disabled_optimizers=passes)
    assert mended.exit_status == 0
    assert mended.outputs[0].comparison.identical


def test_nobody_looks_for_a_pass_where_that_is_switched_off(offset: str) -> None:
    assert {one.cause for one in _compared(offset, find_pass=False).explanation.culprits} == {"other_arithmetic"}


@pytest.mark.fresh
def test_only_the_optimisers_that_change_the_model_are_tried_first(offset: str) -> None:
    from precision_debug_onnxruntime.engine.passes import passes_of, switches

    from precision_debug.records import ModelFiles, SessionSpec

    spec = SessionSpec(model=ModelFiles(model_file=f"{offset}/offset.onnx"), mode="ort_opt")
    known = dict(passes_of(spec))
    assert known["Level1_RuleBasedTransformer"]
    assert known["MatMulAddFusion"] is False
    first, rest = switches(spec)
    assert {"ConvBNFusion", "Level1_RuleBasedTransformer"} <= {*first.items}
    assert "MatMulAddFusion" not in first.items
    assert {"MatMulAddFusion", *first.items} <= {*rest.items}


def test_the_ladder_names_the_pass(offset: str, capsys: pytest.CaptureFixture[str]) -> None:
    from precision_debug.cli import main

    command = ["ladder", "--model_file", f"{offset}/offset.onnx", "--run_mode", "ort_opt", "--inputs"]
    assert main([*command, f"{offset}/x.npz"]) == 1
    said = capsys.readouterr().out
    assert holds_approved(said)
    assert "disabled_optimizers=['ConvBNFusion'" in said


def _norm_over_dropped_axes(path: Path) -> dict[str, Any]:
    """A norm of its parts whose mean drops the axis: what is divided broadcasts along another one. ONNX Runtime up to
    1.32 at least makes an ordinary norm of it (published as its issue 30513)."""
    x = (np.abs(np.random.default_rng(0).normal(size=(4, 4))) + np.arange(4)).astype(np.float32)
    nodes = [
        helper.make_node("Pow", ["x", "two"], ["p"]),
        helper.make_node("ReduceMean", ["p"], ["v"], axes=[-1], keepdims=0),
        helper.make_node("Add", ["v", "eps"], ["ve"]), helper.make_node("Sqrt", ["ve"], ["s"]),
        helper.make_node("Div", ["x", "s"], ["n"]), helper.make_node("Mul", ["n", "g"], ["y"]),
    ]  # fmt: skip
    constants = {"two": np.float32(2), "eps": np.float32(10), "g": np.arange(1, 5, dtype=np.float32)}
    graph = helper.make_graph(
        nodes, "norm", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 4])],
        [numpy_helper.from_array(np.asarray(one), name) for name, one in constants.items()],
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return {"x": x}


def test_a_pass_that_computes_something_else_is_at_fault(tmp_path: Path) -> None:
    path = tmp_path / "norm.onnx"
    feeds = _norm_over_dropped_axes(path)
    report = compare(str(path), run_mode="ort_opt", inputs=feeds)
    if report.exit_status == 0:
        pytest.skip("this ONNX Runtime does not fuse it any more")
    first = report.explanation.culprits[0]
    assert first.cause == "faulty_pass"
    assert "SimplifiedLayerNormFusion" in first.evidence["passes"]
    assert first.evidence["instead"] == "SimplifiedLayerNormalization y"
    assert "Pow p" in first.evidence["replaced"]
    assert "report it" in lead_sentences(report)[0].en
    assert compare(
        str(path), run_mode="ort_opt", inputs=feeds, disabled_optimizers=first.evidence["passes"].split(" and ")
    ).exit_status == 0  # fmt: skip
