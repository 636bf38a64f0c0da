"""ONNX models that TensorRT 8.6 parses (IR 8, opset 13 to 17), built with onnx.helper and seeded weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["branch", "custom_operator", "encoder", "loop", "non_zero", "quantised", "residual"]


class Graph:
    """Collects nodes and weights; ``node`` returns the name of its output."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[TensorProto] = []

    def weight(self, name: str, value: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def normal(self, name: str, shape: tuple[int, ...], scale: float) -> str:
        return self.weight(name, self.rng.normal(0.0, scale, shape).astype(np.float32))

    def node(self, op_type: str, name: str, inputs: list[str], output: str = "", **attributes: Any) -> str:
        output = output or f"{name}_out"
        self.nodes.append(helper.make_node(op_type, inputs, [output], name=name, **attributes))
        return output

    def model(self, inputs: dict[str, list[Any]], outputs: dict[str, list[Any]], *, opset: int = 17,
              types: dict[str, int] | None = None, domains: tuple[str, ...] = ()) -> onnx.ModelProto:  # fmt: skip
        kinds = types or {}

        def info(name: str, shape: list[Any]) -> onnx.ValueInfoProto:
            return helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), shape)

        ends = ([info(*item) for item in part.items()] for part in (inputs, outputs))
        graph = helper.make_graph(self.nodes, "g", *ends, self.weights)
        opsets = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def residual(batch: int | str = 2, *, width: int = 32, image: int = 32, seed: int = 0) -> onnx.ModelProto:
    """A small residual CNN: conv, batch norm, ReLU, one residual block, pooling, Gemm, Softmax."""
    g = Graph(seed)

    def conv_bn(name: str, x: str, inside: int, stride: int = 1) -> str:
        w = g.normal(f"{name}_w", (width, inside, 3, 3), float(np.sqrt(2 / (9 * inside))))
        x = g.node("Conv", name, [x, w], kernel_shape=[3, 3], strides=[stride] * 2, pads=[1] * 4)
        parts = [
            g.weight(f"{name}_scale", g.rng.uniform(0.8, 1.2, width).astype(np.float32)),
            g.normal(f"{name}_shift", (width,), 0.1),
            g.normal(f"{name}_mean", (width,), 0.2),
            g.weight(f"{name}_var", g.rng.uniform(0.5, 1.5, width).astype(np.float32)),
        ]
        return g.node("BatchNormalization", f"{name}_bn", [x, *parts], epsilon=1e-5)

    x = g.node("Relu", "relu1", [conv_bn("conv1", "image", 3, 2)])
    y = g.node("Relu", "relu2", [conv_bn("conv2", x, width)])
    y = conv_bn("conv3", y, width)
    x = g.node("Relu", "relu3", [g.node("Add", "add", [y, x])])
    x = g.node("MaxPool", "pool", [x], kernel_shape=[2, 2], strides=[2, 2])
    x = g.node("Relu", "relu4", [conv_bn("conv4", x, width)])
    x = g.node("Flatten", "flatten", [g.node("GlobalAveragePool", "gap", [x])])
    x = g.node("Gemm", "fc", [x, g.normal("fc_w", (10, width), 0.3), g.normal("fc_b", (10,), 0.1)], "logits", transB=1)
    g.node("Softmax", "softmax", [x], "probabilities", axis=1)
    return g.model({"image": [batch, 3, image, image]}, {"probabilities": [batch, 10]})


def encoder(
    batch: int | str = 1, length: int | str = 32, *, layers: int = 2, width: int = 64, heads: int = 4,
    decomposed: bool = True, pre_norm: bool = False, mask: str = "", seed: int = 0,
) -> onnx.ModelProto:  # fmt: skip
    """A transformer on embeddings: attention with softmax, GELU, LayerNorm as basic operators or as one.

    pre_norm: normalise what a block reads, not its sum. mask: "padding" adds an input "mask" of ones and zeros
    [batch, length], "causal" lets a place see only what stands before it, as a decoder does.
    """
    g = Graph(seed)
    depth = width // heads
    scale = g.weight("sqrt_depth", np.array(np.sqrt(depth), np.float32))
    split = g.weight("split", np.array([0, 0, heads, depth], np.int64))
    merge = g.weight("merge", np.array([0, 0, width], np.int64))

    def dense(name: str, x: str, inside: int, outside: int) -> str:
        w = g.normal(f"{name}_w", (inside, outside), float(1 / np.sqrt(inside)))
        x = g.node("MatMul", f"{name}_matmul", [x, w])
        return g.node("Add", f"{name}_bias", [x, g.normal(f"{name}_b", (outside,), 0.05)])

    def norm(name: str, x: str) -> str:
        gain = g.weight(f"{name}_gain", g.rng.uniform(0.8, 1.2, width).astype(np.float32))
        shift = g.normal(f"{name}_shift", (width,), 0.1)
        if not decomposed:
            return g.node("LayerNormalization", name, [x, gain, shift], axis=-1, epsilon=1e-5)
        two = g.weight(f"{name}_two", np.array(2.0, np.float32))
        tiny = g.weight(f"{name}_eps", np.array(1e-5, np.float32))
        mean = g.node("ReduceMean", f"{name}_mean", [x], axes=[-1], keepdims=1)
        centred = g.node("Sub", f"{name}_sub", [x, mean])
        square = g.node("Pow", f"{name}_pow", [centred, two])
        var = g.node("ReduceMean", f"{name}_var", [square], axes=[-1], keepdims=1)
        root = g.node("Sqrt", f"{name}_sqrt", [g.node("Add", f"{name}_add_eps", [var, tiny])])
        scaled = g.node("Mul", f"{name}_mul", [g.node("Div", f"{name}_div", [centred, root]), gain])
        return g.node("Add", f"{name}_add", [scaled, shift])

    def heads_of(name: str, x: str, perm: list[int]) -> str:
        x = g.node("Reshape", f"{name}_split", [dense(name, x, width, width), split])
        return g.node("Transpose", f"{name}_perm", [x], perm=perm)

    def gelu(name: str, x: str) -> str:
        root = g.weight(f"{name}_root", np.array(np.sqrt(2), np.float32))
        one = g.weight(f"{name}_one", np.array(1, np.float32))
        half = g.weight(f"{name}_half", np.array(0.5, np.float32))
        erf = g.node("Erf", f"{name}_erf", [g.node("Div", f"{name}_div", [x, root])])
        both = g.node("Mul", f"{name}_mul", [x, g.node("Add", f"{name}_plus", [erf, one])])
        return g.node("Mul", f"{name}_halved", [both, half])

    hidden = ""
    if mask == "padding":
        wide = g.node("Unsqueeze", "mask_wide", ["mask", g.weight("mask_axes", np.array([1, 2], np.int64))])
        inverse = g.node("Sub", "mask_inverse", [g.weight("mask_one", np.array(1, np.float32)), wide])
        hidden = g.node("Mul", "mask_hidden", [inverse, g.weight("mask_low", np.array(-1e4, np.float32))])
    elif mask == "causal":
        assert isinstance(length, int)
        hidden = g.weight("causal", np.triu(np.full((1, 1, length, length), -1e4, np.float32), 1))
    x = "embeddings"
    for number in range(1, layers + 1):
        name = f"layer{number}"
        before = norm(f"{name}_norm1", x) if pre_norm else x
        q, v = (heads_of(f"{name}_{part}", before, [0, 2, 1, 3]) for part in "qv")
        k = heads_of(f"{name}_k", before, [0, 2, 3, 1])
        scores = g.node("Div", f"{name}_scaled", [g.node("MatMul", f"{name}_qk", [q, k]), scale])
        if hidden:
            scores = g.node("Add", f"{name}_masked", [scores, hidden])
        weights = g.node("Softmax", f"{name}_softmax", [scores], axis=-1)
        mixed = g.node("Transpose", f"{name}_back", [g.node("MatMul", f"{name}_av", [weights, v])], perm=[0, 2, 1, 3])
        mixed = dense(f"{name}_proj", g.node("Reshape", f"{name}_merge", [mixed, merge]), width, width)
        x = g.node("Add", f"{name}_res1", [x, mixed])
        x = x if pre_norm else norm(f"{name}_norm1", x)
        before = norm(f"{name}_norm2", x) if pre_norm else x
        y = gelu(f"{name}_gelu", dense(f"{name}_up", before, width, 4 * width))
        last = number == layers
        x = g.node("Add", f"{name}_res2", [x, dense(f"{name}_down", y, 4 * width, width)])
        x = x if pre_norm else norm(f"{name}_norm2", x)
        if last:
            g.node("Identity", "encoded", [x], "encoded")
    shape = [batch, length, width]
    inputs: dict[str, list[Any]] = {"embeddings": shape, **({"mask": [batch, length]} if mask == "padding" else {})}
    return g.model(inputs, {"encoded": shape}, opset=13 if decomposed else 17)


def quantised(batch: int = 2) -> onnx.ModelProto:
    """Conv and Relu between QuantizeLinear and DequantizeLinear, INT8 per tensor."""
    g = Graph(1)

    def qdq(name: str, x: str, scale: float) -> str:
        s, z = g.weight(f"{name}_s", np.array(scale, np.float32)), g.weight(f"{name}_z", np.array(0, np.int8))
        return g.node("DequantizeLinear", f"{name}_dq", [g.node("QuantizeLinear", f"{name}_q", [x, s, z]), s, z])

    w = g.normal("w", (16, 3, 3, 3), 0.2)
    x = g.node("Conv", "conv", [qdq("x", "image", 0.01), qdq("w", w, 0.005)], kernel_shape=[3, 3], pads=[1] * 4)
    x = g.node("Relu", "relu", [x])
    x = g.node("Conv", "conv2", [qdq("y", x, 0.02), qdq("v", g.normal("v", (8, 16, 1, 1), 0.2), 0.005)], "y",
               kernel_shape=[1, 1])  # fmt: skip
    return g.model({"image": [batch, 3, 16, 16]}, {"y": [batch, 8, 16, 16]}, opset=13)


def non_zero() -> onnx.ModelProto:
    """A Relu and a NonZero, whose output's size depends on the data."""
    g = Graph()
    x = g.node("Relu", "relu", ["x"])
    g.node("NonZero", "where", [x], "places")
    return g.model({"x": [4, 8]}, {"places": [2, "count"]}, opset=13, types={"places": TensorProto.INT64})


def custom_operator() -> onnx.ModelProto:
    """A node of a domain that TensorRT does not know."""
    g = Graph()
    x = g.node("Relu", "relu", ["x"])
    g.nodes.append(helper.make_node("Sparkle", [x], ["y"], name="sparkle", domain="com.example"))
    return g.model({"x": [4, 8]}, {"y": [4, 8]}, opset=13, domains=("com.example",))


def loop(count: int = 3) -> onnx.ModelProto:
    """A Loop that multiplies by 2 and adds 1, ``count`` times, with a Relu before and after it."""
    g = Graph()
    x = g.node("Relu", "before", ["x"])
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go_in"], ["go_out"], name="body_go"),
            helper.make_node("Mul", ["state", "two"], ["doubled"], name="body_mul"),
            helper.make_node("Add", ["doubled", "one"], ["next"], name="body_add"),
        ],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("go_in", TensorProto.BOOL, []),
            helper.make_tensor_value_info("state", TensorProto.FLOAT, [4, 8]),
        ],
        [
            helper.make_tensor_value_info("go_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, [4, 8]),
        ],
    )
    g.weight("two", np.array(2, np.float32)), g.weight("one", np.array(1, np.float32))
    times, go = g.weight("times", np.array(count, np.int64)), g.weight("go", np.array(True))
    g.nodes.append(helper.make_node("Loop", [times, go, x], ["looped"], name="loop", body=body))
    g.node("Relu", "after", ["looped"], "y")
    return g.model({"x": [4, 8]}, {"y": [4, 8]}, opset=13)


def branch() -> onnx.ModelProto:
    """An If on a fed boolean; both branches give a tensor of one shape."""
    g = Graph()
    x = g.node("Relu", "before", ["x"])
    shape = helper.make_tensor_value_info

    def side(name: str, op_type: str) -> onnx.GraphProto:
        node = helper.make_node(op_type, [x], [f"{name}_y"], name=f"{name}_node")
        return helper.make_graph([node], name, [], [shape(f"{name}_y", TensorProto.FLOAT, [4, 8])])

    branches = {"then_branch": side("then", "Exp"), "else_branch": side("else", "Neg")}
    g.nodes.append(helper.make_node("If", ["yes"], ["chosen"], name="if", **branches))
    g.node("Relu", "after", ["chosen"], "y")
    return g.model({"x": [4, 8], "yes": []}, {"y": [4, 8]}, opset=13, types={"yes": TensorProto.BOOL})
