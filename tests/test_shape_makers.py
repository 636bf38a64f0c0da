"""A float that decides a shape is not rounded at random: the model would then be another one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto
from planted.onnx_faults import Graph

import precision_debug
from precision_debug.explain.operators import find_shape_makers
from precision_debug.records import TensorMeta

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


def test_the_limit_of_a_range_stays_what_it_is(tmp_path: Path) -> None:
    """Anchors of a detector: as many as the map is wide, by a Range of floats (20.1 would make 21 of 20)."""
    g = Graph()
    x = g.input("x", g.random.normal(size=(4, 20)).astype(np.float32))
    h = g.op("Tanh", [g.dense(x, 20, 20, "l0")], "t0")
    off = h
    for n in range(6):  # of six that are off by their rounding, some are larger
        width = g.op("Gather", [g.op("Shape", [off], f"shape{n}"), g.weight(f"one{n}", np.int64(1))], f"width{n}")
        limit = g.op("Cast", [width], f"limit{n}", to=TensorProto.FLOAT)
        ends = g.weight(f"zero{n}", np.float32(0)), limit, g.weight(f"step{n}", np.float32(1))
        steps = g.op("Range", ends, f"steps{n}")
        off = g.op("Sub", [off, g.op("Mul", [steps, g.weight(f"small{n}", np.float32(0.01))], f"by{n}")], f"off{n}")
    path = g.save(tmp_path / "anchors.onnx", [g.dense(off, 20, 8, "y")])
    report = precision_debug.compare(path, run_mode="ort_bf16_sim", inputs=g.feeds, explain="full")
    assert report.explanation is not None
    assert report.explanation.state != "not measured", report.explanation.reason
    assert report.explanation.expected


def test_what_is_large_or_read_for_its_numbers_is_left_out() -> None:
    metas = [
        TensorMeta(name="x", op_type="Input", dtype="float32", shape=(4, 64)),
        TensorMeta(name="count", op_type="Cast", dtype="float32", shape=(), inputs=("width",)),
        TensorMeta(name="width", op_type="Gather", dtype="int64", shape=(), inputs=("shape",)),
        TensorMeta(name="shape", op_type="Shape", dtype="int64", shape=(2,), inputs=("x",)),
        TensorMeta(name="r", op_type="Range", dtype="float32", shape=("n",), inputs=("count",)),
        TensorMeta(name="scale", op_type="Mul", dtype="float32", shape=(1,), inputs=("x",)),
        TensorMeta(name="y", op_type="Add", dtype="float32", shape=(4, 64), inputs=("x", "r", "scale")),
    ]
    assert find_shape_makers(metas, {}) == {"count", "width", "shape"}
