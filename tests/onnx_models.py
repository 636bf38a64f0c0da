"""Builders of small ONNX models for the tests. Each returns a ModelProto; weights are seeded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = [
    "attention",
    "convnet",
    "exotic_types",
    "functions",
    "if_model",
    "loop_model",
    "mlp",
    "mobile",
    "model",
    "nested_model",
    "odd_outputs",
    "save_operators",
    "scan_model",
    "strings_and_sequences",
    "value",
]

FLOAT = TensorProto.FLOAT


def value(name: str, shape: Sequence[int | str] | None = None, elem: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, elem, shape)


def save_operators(
    path: Path, ops: Sequence[tuple[Any, ...]], weights: Mapping[str, Any], shape: Sequence[int], opset: int = 20
) -> str:
    """Save a file from one input x to one output y.

    ops: operator, inputs, results, and attributes where it has any. weights: the numbers that may be read by name.
    """
    nodes = []
    for kind, inputs, outputs, *rest in ops:
        read, made = inputs.split(" ") if inputs else [], outputs.split()
        nodes.append(helper.make_node(kind, read, made, f"node_{made[0]}", **dict(*rest)))
    used = {name for node in nodes for name in node.input}
    kinds = {name: np.float32 if held.dtype.kind == "f" else np.int64 for name, held in weights.items()}
    kept = [numpy_helper.from_array(held.astype(kinds[name]), name) for name, held in weights.items() if name in used]
    graph = helper.make_graph(nodes, "g", [value("x", shape)], [value("y")], kept)
    versions = [helper.make_opsetid("", opset)]
    ir_version = helper.find_min_ir_version_for(versions)
    versions += [helper.make_opsetid(domain, 1) for domain in sorted({node.domain for node in nodes} - {""})]
    onnx.save(helper.make_model(graph, ir_version=ir_version, opset_imports=versions), str(path))
    return str(path)


def model(
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[onnx.ValueInfoProto],
    weights: dict[str, np.ndarray] | None = None,
    *,
    opset: int = 17,
    ir: int = 8,
    functions: Sequence[onnx.FunctionProto] = (),
    domains: Sequence[str] = (),
) -> onnx.ModelProto:
    constants = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, constants)
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=ir, functions=functions)


def convnet(channels: int = 16, *, seed: int = 0, named: bool = True, opset: int = 17) -> onnx.ModelProto:
    """Conv, BatchNormalization, a residual Add, pools, Sigmoid, Gemm and Softmax.

    Input x [n,3,16,16]; outputs prob [n,10] and r3, which also feeds another node. s4 has channels + 3 channels, so
    that the last NCHWc block is padded.
    """
    random = np.random.default_rng(seed)
    weights: dict[str, np.ndarray] = {}
    nodes: list[onnx.NodeProto] = []
    label = {"Conv": "n_", "Gemm": "n_"}

    def weight(name: str, *shape: int, scale: float = 0.1) -> str:
        weights[name] = (random.standard_normal(shape) * scale).astype(np.float32)
        return name

    def add(op: str, inputs: list[str], output: str, **attributes: object) -> None:
        name = f"{label.get(op, 'n_')}{output}" if named and op != "MaxPool" else ""
        nodes.append(helper.make_node(op, inputs, [output], name=name, **attributes))

    add("Conv", ["x", weight("w1", channels, 3, 3, 3, scale=0.3)], "c1", pads=[1, 1, 1, 1])
    weights["s"] = np.abs(random.standard_normal(channels)).astype(np.float32) + 0.5
    weights["v"] = np.abs(random.standard_normal(channels)).astype(np.float32) + 0.5
    add("BatchNormalization", ["c1", "s", weight("b", channels), weight("m", channels), "v"], "b1")
    add("Relu", ["b1"], "r1")
    add("MaxPool", ["r1"], "p1", kernel_shape=[2, 2], strides=[2, 2])
    add("Conv", ["p1", weight("w2", channels, channels, 3, 3), weight("bias2", channels)], "c2", pads=[1, 1, 1, 1])
    add("Relu", ["c2"], "r2")
    add("Conv", ["r2", weight("w3", channels, channels, 3, 3)], "c3", pads=[1, 1, 1, 1])
    add("Add", ["c3", "p1"], "a3")
    add("Relu", ["a3"], "r3")
    add("Conv", ["r3", weight("w4", channels + 3, channels, 1, 1)], "c4")
    add("Sigmoid", ["c4"], "s4")
    add("GlobalAveragePool", ["s4"], "g")
    add("Flatten", ["g"], "f")
    add("Gemm", ["f", weight("w5", channels + 3, 10, scale=0.3), weight("bias5", 10)], "logits")
    add("Softmax", ["logits"], "prob")
    return model(
        nodes, [value("x", ["n", 3, 16, 16])], [value("prob", ["n", 10]), value("r3", ["n", channels, 8, 8])], weights,
        opset=opset,
    )  # fmt: skip


def mlp(width: int = 8, *, seed: int = 0) -> onnx.ModelProto:
    """MatMul, Add, Gelu's pieces, LayerNormalization: what ONNX Runtime fuses in transformers. x [n,width] to y."""
    random = np.random.default_rng(seed)
    weights = {
        "w1": random.standard_normal((width, width)).astype(np.float32),
        "b1": random.standard_normal(width).astype(np.float32),
        "half": np.float32(0.5).reshape(()),
        "one": np.float32(1).reshape(()),
        "root2": np.float32(np.sqrt(2)).reshape(()),
        "scale": np.ones(width, np.float32),
        "bias": np.zeros(width, np.float32),
        "w2": random.standard_normal((width, 4)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["mm"]),
        helper.make_node("Add", ["mm", "b1"], ["pre"]),
        helper.make_node("Div", ["pre", "root2"], ["d"]),
        helper.make_node("Erf", ["d"], ["e"]),
        helper.make_node("Add", ["e", "one"], ["e1"]),
        helper.make_node("Mul", ["pre", "e1"], ["pe"]),
        helper.make_node("Mul", ["pe", "half"], ["gelu"]),
        helper.make_node("Add", ["gelu", "x"], ["skip"]),
        helper.make_node("LayerNormalization", ["skip", "scale", "bias"], ["ln"]),
        helper.make_node("MatMul", ["ln", "w2"], ["y"]),
    ]
    return model(nodes, [value("x", ["n", width])], [value("y", ["n", 4])], weights)


def attention(width: int = 32, heads: int = 4, *, seed: int = 0) -> onnx.ModelProto:
    """Self-attention with a residual sum and a LayerNormalization. x [n,10,width] to y."""
    random = np.random.default_rng(seed)
    weights: dict[str, np.ndarray] = {
        "split": np.array([0, 10, heads, width // heads], np.int64),
        "join": np.array([0, 10, width], np.int64),
        "root": np.float32(np.sqrt(width // heads)).reshape(()),
        "scale": np.ones(width, np.float32),
        "shift": np.zeros(width, np.float32),
    }
    nodes = []
    for name in ("q", "k", "v"):
        weights[f"w{name}"] = (random.standard_normal((width, width)) * 0.2).astype(np.float32)
        weights[f"b{name}"] = random.standard_normal(width).astype(np.float32)
        perm = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes += [
            helper.make_node("MatMul", ["x", f"w{name}"], [f"{name}_mm"], name=f"{name}_mm"),
            helper.make_node("Add", [f"{name}_mm", f"b{name}"], [f"{name}_sum"], name=f"{name}_sum"),
            helper.make_node("Reshape", [f"{name}_sum", "split"], [f"{name}_split"], name=f"{name}_split"),
            helper.make_node("Transpose", [f"{name}_split"], [f"{name}_heads"], name=f"{name}_heads", perm=perm),
        ]
    weights["wo"] = (random.standard_normal((width, width)) * 0.2).astype(np.float32)
    nodes += [
        helper.make_node("MatMul", ["q_heads", "k_heads"], ["scores"], name="scores"),
        helper.make_node("Div", ["scores", "root"], ["scaled"], name="scaled"),
        helper.make_node("Softmax", ["scaled"], ["weights"], name="weights", axis=-1),
        helper.make_node("MatMul", ["weights", "v_heads"], ["mixed"], name="mixed"),
        helper.make_node("Transpose", ["mixed"], ["mixed_t"], name="mixed_t", perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["mixed_t", "join"], ["joined"], name="joined"),
        helper.make_node("MatMul", ["joined", "wo"], ["projected"], name="projected"),
        helper.make_node("Add", ["projected", "x"], ["residual"], name="residual"),
        helper.make_node("LayerNormalization", ["residual", "scale", "shift"], ["y"], name="norm"),
    ]
    return model(nodes, [value("x", ["n", 10, width])], [value("y", ["n", 10, width])], weights)


def mobile(*, seed: int = 0) -> onnx.ModelProto:
    """Depthwise and transposed convolutions, squeeze-and-excitation, Concat, Resize, Slice. x [n,3,16,16] to y, z."""
    random = np.random.default_rng(seed)
    weights: dict[str, np.ndarray] = {
        "low": np.float32(0).reshape(()), "high": np.float32(6).reshape(()), "double": np.float32([1, 1, 2, 2]),
        "first": np.array([0], np.int64), "second": np.array([2], np.int64), "last": np.array([5], np.int64),
        "channel": np.array([1], np.int64),
    }  # fmt: skip
    nodes = []

    def add(op: str, inputs: list[str], output: str, **attributes: object) -> None:
        nodes.append(helper.make_node(op, inputs, [output], name=f"n_{output}", **attributes))

    def conv(x: str, output: str, shape: tuple[int, ...], op: str = "Conv", **attributes: object) -> None:
        fan_in = shape[1] * shape[2] * shape[3]
        weights[f"w_{output}"] = (random.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32)
        weights[f"b_{output}"] = random.standard_normal(shape[1 if op == "ConvTranspose" else 0]).astype(np.float32)
        add(op, [x, f"w_{output}", f"b_{output}"], output, **attributes)

    conv("x", "stem", (16, 3, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2])
    add("HardSwish", ["stem"], "hard")
    conv("hard", "depth", (16, 1, 3, 3), pads=[1, 1, 1, 1], group=16)
    add("Clip", ["depth", "low", "high"], "clipped")
    add("ReduceMean", ["clipped"], "mean", axes=[2, 3])
    conv("mean", "squeeze", (8, 16, 1, 1))
    add("Relu", ["squeeze"], "squeezed")
    conv("squeezed", "excite", (16, 8, 1, 1))
    add("Sigmoid", ["excite"], "gate")
    add("Mul", ["clipped", "gate"], "gated")
    conv("gated", "point", (24, 16, 1, 1))
    conv("point", "up", (24, 8, 2, 2), "ConvTranspose", strides=[2, 2])
    add("Concat", ["up", "x"], "both", axis=1)
    conv("both", "mix", (5, 11, 1, 1))
    add("Resize", ["mix", "", "double"], "large", mode="nearest")
    add("Slice", ["large", "first", "second", "channel"], "front")
    add("Slice", ["large", "second", "last", "channel"], "back")
    add("LeakyRelu", ["front"], "y", alpha=0.1)
    add("Softmax", ["back"], "soft", axis=1)
    add("Transpose", ["soft"], "z", perm=[0, 2, 3, 1])
    outputs = [value("y", ["n", 2, 32, 32]), value("z", ["n", 32, 32, 3])]
    return model(nodes, [value("x", ["n", 3, 16, 16])], outputs, weights)


def if_model() -> onnx.ModelProto:
    """If with a tensor inside each branch; x [2], condition c []."""
    then = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["t1"]), helper.make_node("Neg", ["t1"], ["t2"])], "then", [], [value("t2")]
    )
    other = helper.make_graph(
        [helper.make_node("Abs", ["x"], ["e1"]), helper.make_node("Sqrt", ["e1"], ["e2"])], "else", [], [value("e2")]
    )
    nodes = [
        helper.make_node("If", ["c"], ["picked"], name="choose", then_branch=then, else_branch=other),
        helper.make_node("Add", ["picked", "x"], ["y"], name="add"),
    ]
    return model(nodes, [value("x", [2]), value("c", [], TensorProto.BOOL)], [value("y", [2])])


def _loop_body(name: str = "body", prefix: str = "") -> onnx.GraphProto:
    nodes = [
        helper.make_node("Mul", [f"{prefix}v", "x"], [f"{prefix}scaled"], name=f"{prefix}mul"),
        helper.make_node("Sigmoid", [f"{prefix}scaled"], [f"{prefix}v_out"], name=f"{prefix}sigmoid"),
        helper.make_node("Identity", [f"{prefix}go"], [f"{prefix}go_out"], name=f"{prefix}keep"),
    ]
    return helper.make_graph(
        nodes, name,
        [
            value(f"{prefix}i", [], TensorProto.INT64),
            value(f"{prefix}go", [], TensorProto.BOOL),
            value(f"{prefix}v", [2]),
        ],
        [value(f"{prefix}go_out", [], TensorProto.BOOL), value(f"{prefix}v_out", [2])],
    )  # fmt: skip


def loop_model() -> onnx.ModelProto:
    """A Loop of k [] turns over x [2]."""
    nodes = [
        helper.make_node("Loop", ["k", "", "x"], ["last"], name="loop", body=_loop_body()),
        helper.make_node("Neg", ["last"], ["y"], name="neg"),
    ]
    return model(nodes, [value("x", [2]), value("k", [], TensorProto.INT64)], [value("y", [2])])


def nested_model() -> onnx.ModelProto:
    """A Loop of k turns, in each of which an If on the turn's parity runs an inner Loop of two turns or a Neg."""
    two = np.array(2, np.int64)
    body = _loop_body("inner_body", "in_")
    inner = helper.make_graph(
        [helper.make_node("Loop", ["two", "", "v"], ["from_inner"], name="inner", body=body)],
        "then", [], [value("from_inner", [2])],
    )  # fmt: skip
    other = helper.make_graph([helper.make_node("Neg", ["v"], ["turned"])], "else", [], [value("turned", [2])])
    body = helper.make_graph(
        [
            helper.make_node("Mod", ["i", "two"], ["parity"]),
            helper.make_node("Cast", ["parity"], ["odd"], to=TensorProto.BOOL),
            helper.make_node("If", ["odd"], ["v_out"], name="choose", then_branch=inner, else_branch=other),
            helper.make_node("Identity", ["go"], ["go_out"]),
        ],
        "body",
        [value("i", [], TensorProto.INT64), value("go", [], TensorProto.BOOL), value("v", [2])],
        [value("go_out", [], TensorProto.BOOL), value("v_out", [2])],
    )
    nodes = [helper.make_node("Loop", ["k", "", "x"], ["y"], name="outer", body=body)]
    return model(nodes, [value("x", [2]), value("k", [], TensorProto.INT64)], [value("y", [2])], {"two": two})


def scan_model() -> onnx.ModelProto:
    """A running sum by Scan over x [5,2]; outputs the last sum [2] and all of them [5,2]."""
    body = helper.make_graph(
        [
            helper.make_node("Add", ["state", "row"], ["sum"], name="add"),
            helper.make_node("Tanh", ["sum"], ["soft"], name="tanh"),
            helper.make_node("Identity", ["sum"], ["sum_out"], name="keep"),
        ],
        "body", [value("state", [2]), value("row", [2])], [value("sum_out", [2]), value("soft", [2])],
    )  # fmt: skip
    start = np.zeros(2, np.float32)
    nodes = [helper.make_node("Scan", ["start", "x"], ["total", "rows"], name="scan", body=body, num_scan_inputs=1)]
    return model(nodes, [value("x", [5, 2])], [value("total", [2]), value("rows", [5, 2])], {"start": start})


def odd_outputs() -> onnx.ModelProto:
    """x [2,3] is itself an output, so is a constant; a feeds nodes and is an output; one constant is also an input."""
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Add", ["a", "default"], ["b"]),
        helper.make_node("Identity", ["b"], ["c"]),
    ]
    weights = {"default": np.float32([1, 2, 3]), "fixed": np.float32([4, 5])}
    inputs = [value("x", [2, 3]), value("default", [3])]
    outputs = [value("c", [2, 3]), value("a", [2, 3]), value("x", [2, 3]), value("fixed", [2])]
    return model(nodes, inputs, outputs, weights)


def functions() -> onnx.ModelProto:
    """A model-local function, called twice. x [2,3] to y."""
    body = helper.make_function(
        "local", "Softplus2", ["a"], ["b"],
        [helper.make_node("Exp", ["a"], ["e"]), helper.make_node("Add", ["e", "a"], ["b"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    nodes = [
        helper.make_node("Softplus2", ["x"], ["h"], domain="local"),
        helper.make_node("Neg", ["h"], ["n"]),
        helper.make_node("Softplus2", ["n"], ["y"], domain="local"),
    ]
    return model(nodes, [value("x", [2, 3])], [value("y", [2, 3])], functions=[body], domains=["local"])


def exotic_types() -> onnx.ModelProto:
    """Every element type that ONNX Runtime can cast a float to; x [4] to y."""
    names = """
        DOUBLE FLOAT16 BFLOAT16 INT8 UINT8 INT16 UINT16 INT32 UINT32 INT64 UINT64 BOOL
        FLOAT8E4M3FN FLOAT8E5M2 FLOAT8E4M3FNUZ FLOAT8E5M2FNUZ INT4 UINT4
    """.split()  # noqa: SIM905
    nodes = []
    for name in names:
        nodes.append(helper.make_node("Cast", ["x"], [f"as_{name}"], to=getattr(TensorProto, name)))
        nodes.append(helper.make_node("Cast", [f"as_{name}"], [f"back_{name}"], to=FLOAT))
    nodes.append(helper.make_node("Sum", [f"back_{name}" for name in names], ["y"]))
    return model(nodes, [value("x", [4])], [value("y", [4])], opset=21, ir=10)


def strings_and_sequences() -> onnx.ModelProto:
    """A string output, a string in between, and a sequence output. x [3] to words, parts, back."""
    nodes = [
        helper.make_node("Cast", ["x"], ["words"], to=TensorProto.STRING),
        helper.make_node("Identity", ["words"], ["inner"]),
        helper.make_node("Cast", ["inner"], ["back"], to=FLOAT),
        helper.make_node("SequenceConstruct", ["x", "back"], ["parts"]),
        helper.make_node("SequenceLength", ["parts"], ["length"]),
    ]
    outputs = [
        value("words", [3], TensorProto.STRING),
        helper.make_tensor_sequence_value_info("parts", FLOAT, None),
        value("back", [3]),
        value("length", [], TensorProto.INT64),
    ]
    return model(nodes, [value("x", [3])], outputs)
