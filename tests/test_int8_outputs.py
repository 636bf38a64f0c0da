"""An output that the target makes as integers and hands out as floats is off by the rounding of those integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs onnxruntime")

from planted.onnx_faults import Graph

import precision_debug


def test_the_rounding_of_a_quantised_softmax_is_part_of_the_prediction(tmp_path: Path) -> None:
    """Sharp enough that nothing but the output's own rounding is left of the error."""
    g = Graph(seed=1)
    x = g.input("x", g.random.normal(size=(4, 16)).astype(np.float32))
    sharp = g.dense(x, 16, 2, "logits", 60.0)
    path = g.save(tmp_path / "m.onnx", [g.op("Identity", [g.op("Softmax", [sharp], "p", axis=-1)], "y")])
    report = precision_debug.compare(path, run_mode="ort_int8", inputs=g.feeds, explain="full")
    row = next(row for row in report.rows if row.name == "y")
    assert row.target_op_type == "QLinearSoftmax", "the output is no longer the dequantised result itself"
    told = report.explanation
    assert told is not None
    assert told.actual is not None
    assert told.expected is not None
    assert 1e-4 < float(told.actual) < 5 * float(told.expected), (told.actual, told.expected)
