"""A scale or a zero point with which one operator writes what another reads with its own, and who is off alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

from planted.onnx_faults import Graph
from planted.onnx_further import k

import precision_debug
from precision_debug.explain.grid import _tell_which


def _whole(g: Graph, scale: float, zero: int) -> Sequence[str]:
    """A QLinearConv, a slope and a QLinearAdd in integers; scale, zero: with which the convolution writes."""
    x, s = g.input("x", g.random.normal(size=(1, 4, 8, 8)).astype(np.float32)), k(g, "s", 0.04)
    z = g.weight("z", np.array(20, np.uint8))
    q = g.op("QuantizeLinear", [x, s, z], "x_q")
    w = g.weight("w", g.random.integers(-99, 99, (4, 4, 3, 3)).astype(np.int8))
    written = [k(g, "s_out", scale), g.weight("z_out", np.array(zero, np.uint8))]
    zero8 = g.weight("z8", np.zeros(4, np.int8))
    c = g.op("QLinearConv", [q, s, z, w, k(g, "ws", np.full(4, 0.002)), zero8, *written], "c", pads=[1] * 4)
    h = g.op("QLinearLeakyRelu", [c, s, z, s, z], "h", alpha=0.3, domain="com.microsoft")
    a = g.op("QLinearAdd", [q, s, z, h, s, z, s, z], "a", domain="com.microsoft")
    return [g.op("DequantizeLinear", [a, s, z], "y")]


@pytest.mark.parametrize(
    ("scale", "zero", "code", "told"),
    [(0.04, 26, "zero_point", ("z_out", "26", "20")), (0.08, 20, "scale", ("s_out", "0.08", "0.04"))],
)
def test_the_constant_that_writes_otherwise_is_named(
    scale: float, zero: int, code: str, told: tuple[str, ...], tmp_path: Path
) -> None:
    files = []
    for name, given in (("base", (0.04, 20)), ("target", (scale, zero))):
        g = Graph(seed=5)
        files.append(g.save(tmp_path / f"{name}.onnx", list(_whole(g, *given))))
    report = precision_debug.compare(
        files[1], run_mode="ort_fp32", baseline="ort_fp32", baseline_model=files[0], inputs=dict(g.feeds)
    )
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.name, first.cause) == ("h", code)
    assert [first.evidence.get(key) for key in ("from", "constant", "written", "read", "base")] == [
        "c", told[0], told[1], told[2], told[2],
    ]  # fmt: skip
    assert first.evidence["left"] < 1e-4


@pytest.mark.parametrize(
    ("alike", "ended", "word"),
    [([1, 1, 1], [0, 0, 1], "all its results"), ([1, 1, 0], [0, 0, 1], "not at an end"),
     ([1, 0, 1], [0, 0, 1], "2 of its 3")],
)
def test_all_is_said_of_all(alike: list[int], ended: list[int], word: str) -> None:
    told = str(_tell_which(np.array(alike, bool), np.array(ended, bool)))
    assert word in told
    assert told.startswith("all its") is ("its 3" not in word)
    assert ("2 of" in told) is (0 in alike)
