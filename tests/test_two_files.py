"""Two files of one model: what a tool changed between them is what the report says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx_models
from onnx import helper

import precision_debug


def quarters(read: list[str]) -> onnx.ModelProto:
    """Four quarters of x side by side, as a Focus layer has them; read: which of them the Concat reads."""
    names = {name for name in read if name.startswith("p")}
    nodes = []
    for place in range(4):
        if f"p{place}" in names:
            begin, end = [place // 2 * 4, place % 2 * 4], [place // 2 * 4 + 4, place % 2 * 4 + 4]
            given = [("begin", begin), ("end", end), ("axes", [2, 3])]
            nodes += [
                helper.make_node("Constant", [], [f"{kind}{place}"], value_ints=numbers) for kind, numbers in given
            ]
            bounds = [f"{kind}{place}" for kind, _ in given]
            nodes.append(helper.make_node("Slice", ["x", *bounds], [f"p{place}"], name=f"slice{place}"))
    nodes.append(helper.make_node("Concat", read, ["c"], axis=1, name="concat"))
    nodes.append(helper.make_node("ReduceMean", ["c"], ["y"], axes=[2, 3], keepdims=0, name="mean"))
    return onnx_models.model(nodes, [onnx_models.value("x", [1, 3, 8, 8])], [onnx_models.value("y")], {})


def test_an_operator_that_reads_some_of_its_inputs_twice_is_named_with_them(tmp_path: Path) -> None:
    """As OnnxSlim 0.1.82 leaves it (inisis/OnnxSlim#277)."""
    onnx.save(quarters(["p0", "p1", "p2", "p3"]), tmp_path / "first.onnx")
    onnx.save(quarters(["p0", "p1", "p0", "p1"]), tmp_path / "second.onnx")
    x = np.random.default_rng(0).normal(size=(1, 3, 8, 8)).astype(np.float32)
    report = precision_debug.compare(
        tmp_path / "second.onnx", baseline_model=str(tmp_path / "first.onnx"), run_mode="ort_fp32", baseline="ort_fp32",
        inputs={"x": x},
    )  # fmt: skip
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.name, first.cause) == ("c", "files_differ")
    assert first.evidence["base"] == "p0, p1, p2, p3"
    assert first.evidence["target"] == "p0, p1"
