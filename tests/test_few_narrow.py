"""One float16 tensor in a model of float32: the bound is what its rounding comes to, and not that of a float16 run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime", reason="needs onnxruntime")

import onnx
import onnxruntime
from onnx import TensorProto, helper

import precision_debug
from precision_debug.report import Verdict


def chain(path: Path, part: float, kind: str) -> str:
    """Six layers; behind the third, ``part`` of the tensor goes through a cast of kind "float16", or through none."""
    random = np.random.default_rng(1)
    nodes, weights, x = [], [], "x"
    for layer in range(6):
        weights.append(onnx.numpy_helper.from_array((random.normal(size=(16, 16)) / 4).astype(np.float32), f"w{layer}"))
        nodes.append(helper.make_node("MatMul", [x, f"w{layer}"], [f"m{layer}"], name=f"m{layer}"))
        nodes.append(helper.make_node("Tanh", [f"m{layer}"], [f"t{layer}"], name=f"t{layer}"))
        x = f"t{layer}"
        if layer == 2:
            to = TensorProto.FLOAT16 if kind == "float16" else TensorProto.FLOAT
            nodes.append(helper.make_node("Cast", [x], ["h"], to=to, name="h"))
            nodes.append(helper.make_node("Cast", ["h"], ["wide"], to=TensorProto.FLOAT, name="wide"))
            nodes.append(helper.make_node("Mul", ["wide", "part"], ["less"], name="less"))
            nodes.append(helper.make_node("Add", ["m2", "less"], ["sum"], name="sum"))
            x = "sum"
    weights.append(onnx.numpy_helper.from_array(np.array(part, np.float32), "part"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [32, 16]) for name in ("x", "t5")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.save(model, path)
    return str(path)


FEEDS = {"x": np.random.default_rng(0).normal(size=(32, 16)).astype(np.float32)}


def run(path: str) -> np.ndarray:
    return np.asarray(onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, FEEDS)[0])


@pytest.mark.parametrize("part", [0.02, 0.2, 1.0])
def test_the_bound_follows_what_the_one_tensor_costs(tmp_path: Path, part: float) -> None:
    """What it really costs is measured against the same model without the cast."""
    narrow, plain = (chain(tmp_path / f"{kind}.onnx", part, kind) for kind in ("float16", "float"))
    exact = run(plain)
    cost = float(np.linalg.norm(run(narrow) - exact) / np.linalg.norm(exact))
    told = precision_debug.compare(narrow, run_mode="ort_opt", inputs=FEEDS, explain="full").explanation
    assert told is not None
    assert told.expected is not None
    assert told.allowed is not None
    assert cost / 4 < float(told.expected) < cost * 4, (cost, told.expected)
    assert float(told.allowed) == pytest.approx(max(1e-4, 8 * float(told.expected)))


def test_an_error_far_beyond_it_fails(tmp_path: Path) -> None:
    """A weight that is off by 1 %, far behind: within the bound of a run in float16, not of this one."""
    plain, changed = (chain(tmp_path / f"{kind}.onnx", 0.02, "float16") for kind in ("plain", "changed"))
    model = onnx.load(changed)
    tensor = next(one for one in model.graph.initializer if one.name == "w4")
    array = onnx.numpy_helper.to_array(tensor).copy()
    array[3, 5] *= 1.05
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, "w4"))
    onnx.save(model, changed)
    report = precision_debug.compare(changed, run_mode="ort_fp32", baseline_model=plain, inputs=FEEDS)
    assert report.explanation is not None
    assert report.outputs[0].relative_l2 is not None
    assert float(report.explanation.allowed or 0) <= 1e-4 < report.outputs[0].relative_l2
    assert report.verdict is Verdict.FAIL
