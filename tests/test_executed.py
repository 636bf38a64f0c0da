"""How many operators ran in the low precision: those that compute in it, and not those that round to it and back."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from planted.onnx_faults import Graph

import precision_debug
from precision_debug import registry
from precision_debug.protocols import Executed
from precision_debug.records import ModelFiles, RunMode, SessionSpec
from precision_debug.report.sections import make_precision_section
from precision_debug.run.plan import Opening
from precision_debug.run.side import count_executed


def counted(graph: Graph, folder: Path, mode: str) -> tuple[Executed | None, Counter[str]]:
    """What is counted, and the operators of the graph that really runs."""
    path = str(graph.save(folder / "m.onnx", ["y"]))
    backend = next(one for one in registry.backends() if one.name == "onnxruntime")
    known: RunMode = next(one for one in backend.run_modes if one.name == mode)
    spec = SessionSpec(model=ModelFiles(model_file=path), mode=mode)
    session = backend.open(spec, [graph.feeds])
    try:
        session.run(graph.feeds)
        kinds = Counter(node.op_type for node in session._model.proto.graph.node)  # type: ignore[attr-defined]
        return count_executed(Opening(spec=spec, mode=known, backend=backend), session), kinds
    finally:
        session.close()


def test_operators_that_round_to_integers_and_back_are_not_counted(tmp_path: Path) -> None:
    """They were: PP-OCRv5's classifier, of whose 32 convolutions ONNX Runtime computes 28 in float32, was told to run
    187 of 247 operators in INT8."""
    g = Graph(seed=2)
    g.opset = 13
    x = g.conv(g.input("x", g.random.normal(size=(1, 8, 12, 12)).astype(np.float32)), 8, 8, "first")
    x = g.op("HardSigmoid", [x], "gate", alpha=0.2)  # in float32: the engine has no such kernel of integers
    x = g.op("Elu", [g.conv(x, 8, 8, "second")], "bent")
    g.op("Relu", [g.conv(x, 8, 8, "third")], "y")
    executed, kinds = counted(g, tmp_path, "ort_int8")
    assert executed is not None
    assert kinds["QLinearConv"] == 3
    assert (executed.low, executed.of) == (3, 5), kinds


def test_of_dynamic_quantisation_the_products_count(tmp_path: Path) -> None:
    g = Graph(seed=3)
    g.opset = 13
    x = g.input("x", g.random.normal(size=(4, 32)).astype(np.float32))
    x = g.op("Relu", [g.dense(x, 32, 32, "first")], "bent")
    g.op("Tanh", [g.dense(x, 32, 32, "second")], "y")
    executed, kinds = counted(g, tmp_path, "ort_int8_dynamic")
    assert executed is not None
    whole = sum(number for kind, number in kinds.items() if "Integer" in kind or kind == "DynamicQuantizeMatMul")
    assert executed.low == whole == 2, kinds


def test_what_really_ran_counts_products_of_integers_whose_result_is_another_operators(tmp_path: Path) -> None:
    """The table of real precisions had FP32 alone in dynamic quantisation: its products are the target's own."""
    g = Graph(seed=3)
    g.opset = 13
    x = g.conv(g.input("x", g.random.normal(size=(1, 4, 8, 8)).astype(np.float32)), 4, 4, "first")
    g.op("Tanh", [g.conv(x, 4, 4, "y_before")], "y")
    report = precision_debug.compare(g.save(tmp_path / "m.onnx", ["y"]), run_mode="ort_int8_dynamic", inputs=g.feeds)
    found = {line[0].text.en: line[1].text.en for line in make_precision_section(report).lines}
    assert found["INT8"] == "2"
    assert "FP32" in found
