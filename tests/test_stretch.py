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
from precision_debug.report.blame import blame
from precision_debug.report.lead import lead


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


def test_a_stretch_is_named_as_one_and_bisected(tmp_path: Path) -> None:
    if not (found := OpenVinoBackend().availability("ov_bf16")).ok:
        pytest.skip(f"ov_bf16: {found.needs}")
    path, feeds = many_in_a_row(tmp_path)
    report = precision_debug.compare(path, run_mode="ov_bf16", inputs=feeds)
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert len(first.inside) == len(first.op_types) > 4
    assert first.inside[-1] == first.name
    assert first.inner in {"step1", "step2"}
    assert first.inner_part is not None
    assert first.inner_part >= 0.5
    said = lead(report)[0]
    assert said.en.startswith(f"The stretch of {len(first.inside)} operators from {first.op_types[0]} `")
    assert said.zh.startswith(f"精度在由 {first.op_types[0]} `")
    assert f"rounding `{first.inner}` alone" in " ".join(line[-1].text.en for line in blame(report).lines)
