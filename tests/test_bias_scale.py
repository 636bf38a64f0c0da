"""A bias in integers that QLinearConv or QGemm reads on the scale of input times weight, made on another."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import precision_debug

onnx = pytest.importorskip("onnx", reason="needs onnx")
pytest.importorskip("onnxruntime", reason="needs onnxruntime")

READ, WEIGHT, RESULT = (np.float32(one) for one in (0.03, 0.004, 0.05))
MADE = {"another": np.float32(0.001), "the right one": READ * WEIGHT}
RANDOM = np.random.default_rng(3)
CODES = {"Conv": RANDOM.integers(-127, 128, (4, 3, 3, 3)), "Gemm": RANDOM.integers(-127, 128, (3, 4))}
BIAS = RANDOM.integers(-900, 900, 4).astype(np.int32)
FED = {"Conv": (1, 3, 8, 8), "Gemm": (16, 3)}


def save(path: Path, kind: str, how: str, made: Any) -> str:
    """how: in float, by DequantizeLinear, with the bias by its parts, or as one operator of integers."""
    from onnx import helper, numpy_helper

    node, weight = helper.make_node, CODES[kind].astype(np.int8)
    held = {"xs": READ, "ws": WEIGHT, "ys": RESULT, "z": np.int8(0), "w": weight, "b": BIAS, "bs": np.float32(made)}
    if how == "float":
        held = {"w": weight.astype(np.float32) * WEIGHT, "b": BIAS.astype(np.float32) * made}
        nodes = [node(kind, ["x", "w", "b"], ["d"])]
    elif how == "whole":
        reads = ["xq", "xs", "z", "w", "ws", "z"]
        more = ["ys", "z", "b"] if kind == "Conv" else ["b", "ys", "z"]
        named = ("QLinearConv", "") if kind == "Conv" else ("QGemm", "com.microsoft")
        nodes = [node(named[0], [*reads, *more], ["q"], domain=named[1])]
    else:
        nodes = [node("DequantizeLinear", [one, step, "z"], [to]) for one, step, to in
                 (("xq", "xs", "xd"), ("w", "ws", "wd"))]  # fmt: skip
        nodes += [node("DequantizeLinear", ["b", "bs"], ["bd"])] if how == "QDQ" else [
            node("Cast", ["b"], ["bw"], to=1), node("Mul", ["bw", "bs"], ["bd"])]  # fmt: skip
        nodes += [node(kind, ["xd", "wd", "bd"], ["c"]), node("QuantizeLinear", ["c", "ys", "z"], ["q"])]
    if how != "float":
        ends = [node(f"{one}Linear", [name, step, "z"], [to]) for one, name, step, to in
                (("Quantize", "x", "xs", "xq"), ("Dequantize", "q", "ys", "d"))]  # fmt: skip
        nodes = [ends[0], *nodes, ends[1]]
    nodes.append(node("Relu", ["d"], ["y"]))
    used = {name for one in nodes for name in one.input}
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", 1, FED[kind])], [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in held.items() if name in used],
    )  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return str(path)


def compare(tmp_path: Path, kind: str, base: str, made: Any) -> Any:
    return precision_debug.compare(
        save(tmp_path / "whole.onnx", kind, "whole", made), run_mode="ort_fp32",
        baseline_model=save(tmp_path / "base.onnx", kind, base, made),
        inputs={"x": np.random.default_rng(4).normal(size=FED[kind]).astype(np.float32)},
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["Conv", "Gemm"])
@pytest.mark.parametrize("base", ["float", "QDQ", "parts"])
def test_both_scales_are_told(tmp_path: Path, base: str, kind: str) -> None:
    """That of input times weight is written nowhere, nor is that of the bias in the file that runs. Before: another
    operator, or "computes something else"."""
    (culprit,) = compare(tmp_path, kind, base, MADE["another"]).explanation.culprits
    told = culprit.evidence
    assert culprit.cause == "scale"
    assert (told["scale"], told["read_on"]) == (pytest.approx(0.001), pytest.approx(0.00012))
    assert (told["count"], told["elements"], told["weight"]) == (4, 4, "b" if base == "float" else "bd")
    assert told["left"] < 0.1


@pytest.mark.parametrize("kind", ["Conv", "Gemm"])
@pytest.mark.parametrize("base", ["float", "QDQ", "parts"])
def test_a_bias_on_the_scale_that_is_meant(tmp_path: Path, base: str, kind: str) -> None:
    report = compare(tmp_path, kind, base, MADE["the right one"])
    causes = {one.cause for one in report.explanation.culprits}
    assert causes <= ({"coarse"} if base == "float" else set())  # a float file's numbers are not on these grids
