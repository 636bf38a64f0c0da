"""A body whose operators an engine does not show: many roundings, which are no fault of the operator that holds it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from approval import holds_approved

pytest.importorskip("onnx", reason="the model is ONNX's")
pytest.importorskip("openvino", reason="it does not show the operators of an If")

from onnx import helper, numpy_helper
from planted.onnx_faults import Graph, _info, tokens
from planted.onnx_further import k
from precision_debug_openvino import OpenVinoBackend

import precision_debug
from precision_debug.numbers.number_types import PRECISIONS
from precision_debug.report.blame import blame
from precision_debug.report.model import Verdict


def branch(name: str, layers: int, seed: int, size: float) -> object:
    """A perceptron; size: of its weights."""
    random = np.random.default_rng(seed)
    nodes, weights, x = [], [], "x"
    for n in range(layers):
        weight = (random.normal(size=(32, 32)) / np.sqrt(32) * size).astype(np.float32)
        weights.append(numpy_helper.from_array(weight, f"{name}{n}.w"))
        nodes += [helper.make_node("MatMul", [x, f"{name}{n}.w"], [f"{name}{n}_mm"], name=f"{name}{n}_m"),
                  helper.make_node("Tanh", [f"{name}{n}_mm"], [f"{name}{n}"], name=f"{name}{n}_t")]  # fmt: skip
        x = f"{name}{n}"
    return helper.make_graph(nodes, name, [], [_info(x, [2, 8, 32])], weights)


@pytest.mark.skipif(not OpenVinoBackend().availability("ov_bf16").ok, reason="this CPU has no BF16")
def test_a_whole_network_in_a_branch_is_not_called_too_coarse(tmp_path: Path) -> None:
    g = Graph(seed=5)
    tokens(g)
    go = g.op("Greater", [g.op("ReduceMax", ["x"], "top", keepdims=0), k(g, "nothing", 0.0)], "go")
    then, other = branch("t", 24, 1, 1.6), branch("e", 2, 2, 1.0)
    g.nodes.append(helper.make_node("If", [go], ["y"], name="node_if", then_branch=then, else_branch=other))
    report = precision_debug.compare(g.save(tmp_path / "m.onnx", ["y"]), run_mode="ov_bf16", inputs=g.feeds)
    said = report.explanation
    assert said is not None
    assert said.actual is not None
    assert 3 * PRECISIONS["bfloat16"].rounding < said.actual < 0.1, "as a healthy network of this depth"
    assert report.verdict is not Verdict.FAIL
    for culprit in said.culprits:
        assert culprit.cause == "inside_body"
        assert holds_approved(blame(report).lines[0][1].text.en)
