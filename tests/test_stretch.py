"""A stretch of operators between two tensors that are seen: it is named as one, and who in it makes the error too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("openvino", reason="openvino is not installed")

from planted.onnx_faults import Graph
from precision_debug_openvino import OpenVinoBackend

import precision_debug


def many_in_a_row(folder: Path) -> tuple[str, dict[str, Any]]:
    """What OpenVINO runs as one kernel, of which one number is rounded before it is taken away from."""
    graph = Graph(seed=2)
    x = graph.input("x", graph.random.normal(size=(4, 32)).astype(np.float32))
    value = graph.op("MatMul", [x, graph.weight("w", 0.2 * graph.random.normal(size=(32, 32)))], "product")
    for number, (kind, constant) in enumerate((("Mul", 0.7), ("Add", 1000.0), ("Mul", 1.5), ("Add", -1500.0))):
        weight = graph.weight(f"c{number}", np.float32(constant))
        value = graph.op(kind, [value, weight], f"step{number}")
    value = graph.op("Tanh", [value], "step4")
    value = graph.op("Mul", [value, graph.weight("c5", np.float32(3))], "step5")
    return str(graph.save(folder / "row.onnx", [graph.op("Floor", [value], "floored")])), graph.feeds


def test_a_stretch_that_rounds_as_it_must_is_not_accused_of_the_decision_behind_it(tmp_path: Path) -> None:
    """Before, the stretch was named, and one number inside it: all that is wrong is one of 128 steps of Floor."""
    if not (found := OpenVinoBackend().availability("ov_bf16")).ok:
        pytest.skip(f"ov_bf16: {found.needs}")
    path, feeds = many_in_a_row(tmp_path)
    report = precision_debug.compare(path, run_mode="ov_bf16", inputs=feeds)
    assert report.explanation is not None
    assert report.explanation.culprits == ()
    (decision,) = report.explanation.decisions
    assert (decision.name, decision.op_type, decision.expected) == ("floored", "Floor", True)
    assert 0 < decision.count < 4
