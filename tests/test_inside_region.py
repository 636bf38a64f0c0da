"""A fused region that subtracts nearly equal numbers between two tensors that are seen."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("openvino", reason="openvino is not installed")

from planted.onnx_faults import Graph
from planted.sixth_onnx import residual_of_another_size
from planted.sixth_openvino import variance_as_a_difference_in_openvino
from planted.unseen import runs_here

import precision_debug


def test_what_cancels_inside_a_fused_region_is_named(tmp_path: Path) -> None:
    """Before: "this type is too coarse", of a variance that OpenVINO computes as a difference inside one layer."""
    graph = Graph(seed=5)
    model = graph.save(tmp_path / "m.onnx", variance_as_a_difference_in_openvino(graph))
    if not runs_here("ov_bf16"):
        pytest.skip("this CPU has no bfloat16")
    culprit = precision_debug.compare(model, run_mode="ov_bf16", inputs=graph.feeds).explanation.culprits[0]
    assert (culprit.name, culprit.cause) == ("n", "cancellation")
    assert (culprit.amplifier, culprit.evidence["amplifier"]) == ("", "var")
    assert culprit.evidence["input_size"] > 600
    assert culprit.evidence["output_size"] < 2
    assert "Subtract" in culprit.op_types



def test_what_is_subtracted_in_integers_is_no_other_computation(tmp_path: Path) -> None:
    """Before, of a difference of two tensors of hundreds, each in INT8: "the target computes something else"."""
    graph = Graph(seed=83 + 7 * len("residual_of_another_size"))
    model = graph.save(tmp_path / "m.onnx", residual_of_another_size(graph))
    culprits = precision_debug.compare(model, run_mode="ort_int8", inputs=graph.feeds).explanation.culprits
    assert culprits[0].name in {"down", "sum"}
    assert culprits[0].cause in {"cancels", "cancellation", "found_by_repair"}
    if culprits[0].cause == "cancellation":
        assert (culprits[0].name, culprits[0].amplifier) == ("sum", "down")
    if culprits[0].cause == "found_by_repair":
        assert culprits[0].evidence["after"] < 0.1 * culprits[0].evidence["before"]
