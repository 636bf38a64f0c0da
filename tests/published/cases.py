"""Bugs that engines and tools really had, as models of a few operators, and models that were right (controls).

Each says where it was published, with which release it is seen, what is at fault, and which tensors a report may name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, shape_inference

__all__ = ["CASES", "Case"]

Array = np.ndarray[Any, Any]
node = helper.make_node


@dataclass(frozen=True, kw_only=True)
class Case:
    """make: the model and its inputs. needs: what pip installs beside the tool's own needs. tool: the Python code that
    makes the second file of the first, both onnx.ModelProto; "" where the engine itself is at fault. passes: those at
    fault, any of which is an answer. region: tensors, any of which may be named first. published: where, "" where it
    was only found while this bench was made. right: a control.
    """

    name: str
    make: Callable[[], tuple[ModelProto, Mapping[str, Array]]]
    needs: Sequence[str]
    tool: str = ""
    passes: Sequence[str] = ()
    region: Sequence[str] = ()
    published: str = ""
    right: bool = False
    options: Sequence[str] = field(default_factory=tuple)


def built(
    nodes: Sequence[NodeProto], feeds: Mapping[str, Array], constants: Mapping[str, Any], opset: int = 17
) -> tuple[ModelProto, Mapping[str, Array]]:
    """A model of these nodes that gives "y", in an IR version that old releases read."""
    graph = helper.make_graph(
        nodes, "published",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, list(one.shape)) for name, one in feeds.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(one), name) for name, one in constants.items()],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    inferred = shape_inference.infer_shapes(model)
    known = [value for value in inferred.graph.value_info if value.name == "y"]
    if known:
        inferred.graph.output[0].CopyFrom(known[0])
    return inferred, feeds


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng((seed, *shape)).normal(size=shape).astype(np.float32)


def norm(*, simple: bool = False, keepdims: int = 1, exponent: float = 2.0) -> Callable[[], Any]:
    """A layer norm, or one without a mean, of its parts."""

    def make() -> Any:
        x = "x" if simple else "d"
        nodes = [] if simple else [
            node("ReduceMean", ["x"], ["m"], axes=[-1], keepdims=keepdims), node("Sub", ["x", "m"], ["d"]),
        ]  # fmt: skip
        nodes += [
            node("Pow", [x, "e"], ["p"]), node("ReduceMean", ["p"], ["v"], axes=[-1], keepdims=keepdims),
            node("Add", ["v", "eps"], ["ve"]), node("Sqrt", ["ve"], ["s"]), node("Div", [x, "s"], ["n"]),
            node("Mul", ["n", "g"], ["y" if simple else "mg"]),
        ]  # fmt: skip
        if not simple:
            nodes.append(node("Add", ["mg", "b"], ["y"]))
        values = np.abs(normal(4, 4)) + np.arange(4, dtype=np.float32)  # odd powers of it have roots, too
        return built(
            nodes, {"x": values.astype(np.float32)},
            {"e": np.float32(exponent), "eps": np.float32(10.0), "g": normal(4), "b": normal(4, seed=1)},
        )  # fmt: skip

    return make


def pooled(kind: str, *, pad: Sequence[int] = (), value: float = 0.0, **attributes: Any) -> Callable[[], Any]:
    """A pool behind a Pad, or behind a Relu."""

    def make() -> Any:
        read = ["x", "p", "value"] if value else ["x", "p"]
        before = node("Pad", read, ["a"]) if pad else node("Relu", ["x"], ["a"])
        constants = {"p": np.array(pad, np.int64), "value": np.float32(value)} if pad else {}
        constants = {name: one for name, one in constants.items() if name in read}
        nodes = [before, node(kind, ["a"], ["y"], **attributes)]
        return built(nodes, {"x": -np.abs(normal(1, 16, 7, 9)) if pad else normal(1, 16, 7, 9)}, constants)

    return make


def two_readers_of_a_pad() -> Any:
    nodes = [
        node("Pad", ["x", "p"], ["q"]), node("Conv", ["q", "w1"], ["c1"]),
        node("Conv", ["q", "w2"], ["c2"], pads=[1, 1, 1, 1]),
        node("ReduceMean", ["c1"], ["r1"], axes=[2, 3]), node("ReduceMean", ["c2"], ["r2"], axes=[2, 3]),
        node("Add", ["r1", "r2"], ["y"]),
    ]  # fmt: skip
    constants = {"p": np.array([0, 0, 1, 1] * 2), "w1": normal(4, 3, 3, 3), "w2": normal(4, 3, 5, 5)}
    return built(nodes, {"x": normal(1, 3, 8, 8)}, constants)


def conv_then(kind: str) -> Callable[[], Any]:
    """A convolution, and a constant along its last axis, not along its channels."""

    def make() -> Any:
        nodes = [node("Conv", ["x", "w", "b"], ["c"]), node(kind, ["c", "z"], ["y"])]
        constants = {"w": normal(6, 3, 3, 1), "b": normal(6), "z": normal(6, seed=1)}
        return built(nodes, {"x": normal(1, 3, 8, 6)}, constants)

    return make


def conv_norm() -> Any:
    nodes = [
        node("Conv", ["x", "w"], ["c"]), node("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"], epsilon=0.1),
        node("Relu", ["n"], ["y"]),
    ]  # fmt: skip
    constants = {"w": normal(4, 3, 3, 3), "g": normal(4), "b": normal(4), "m": normal(4), "v": np.abs(normal(4)) + 0.5}
    return built(nodes, {"x": normal(1, 3, 8, 8)}, constants)


def two_products() -> Any:
    nodes = [
        node("Transpose", ["x"], ["t"], perm=[1, 0]), node("Gemm", ["t", "w", "z"], ["g"], alpha=2.0, beta=0.5),
        node("MatMul", ["g", "u"], ["m"]), node("Add", ["m", "z2"], ["y"]),
    ]  # fmt: skip
    return built(nodes, {"x": normal(5, 3)}, {"w": normal(5, 4), "z": normal(4), "u": normal(4, 4), "z2": normal(4)})


def attention() -> Any:
    nodes = [
        node("MatMul", ["x", "wq"], ["q"]), node("MatMul", ["x", "wk"], ["k"]), node("MatMul", ["x", "wv"], ["v"]),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]), node("MatMul", ["q", "kt"], ["s"]),
        node("Softmax", ["s"], ["p"]), node("MatMul", ["p", "v"], ["o"]), node("Add", ["o", "x"], ["y"]),
    ]  # fmt: skip
    return built(nodes, {"x": normal(2, 6, 8)}, {f"w{one}": normal(8, 8, seed=i) / 3 for i, one in enumerate("qkv")})


def ort(version: str) -> list[str]:
    return [f"onnxruntime=={version}", "onnx==1.17.0"]


def other(tool: str) -> list[str]:
    return [tool, *ort("1.20.1")]


SLIM = "import onnxslim; second = onnxslim.slim(first)"
SIMPLIFY = "import onnxsim; second = onnxsim.simplify(first)[0]"
OPTIMISE = "import onnxoptimizer as o; second = o.optimize(first, o.get_fuse_and_elimination_passes())"
_KEEPDIMS = "microsoft/onnxruntime#30513, #31144"
_SLIM_PAD = "tsingmicro-toolchain/OnnxSlim#29"
_LAYER_NORM = ("LayerNormFusion", "LayerNormFusionL1", "LayerNormFusionL2")
_NORM = ("y", "n", "mg", "v", "s", "m", "d", "p", "ve")

CASES = (
    Case(name="layer_norm_keepdims", make=norm(keepdims=0), needs=ort("1.20.1"), passes=_LAYER_NORM,
         region=_NORM, published=_KEEPDIMS),
    Case(name="layer_norm_keepdims_later", make=norm(keepdims=0), needs=ort("1.24.1"),
         passes=_LAYER_NORM, region=_NORM, published=_KEEPDIMS),
    Case(name="rms_norm_keepdims", make=norm(simple=True, keepdims=0), needs=ort("1.22.1"),
         passes=["SimplifiedLayerNormFusion"], region=_NORM, published=_KEEPDIMS),
    Case(name="layer_norm_exponent", make=norm(exponent=3.0), needs=ort("1.23.2"), passes=_LAYER_NORM,
         region=_NORM),
    Case(name="rms_norm_exponent", make=norm(simple=True, exponent=3.0), needs=ort("1.21.1"),
         passes=["SimplifiedLayerNormFusion"], region=_NORM),
    Case(name="pad_into_max_pool", needs=ort("1.20.1"), passes=["Pad_Fusion"], region=("y",),
         make=pooled("MaxPool", pad=(0, 0, 0, 0, 0, 0, 1, 1), kernel_shape=[2, 2], strides=[2, 1])),
    Case(name="pad_into_average_pool", needs=ort("1.20.1"), passes=["Pad_Fusion"], region=("y",),
         make=pooled("AveragePool", pad=(0, 0, 1, 1, 0, 0, 1, 1), ceil_mode=1, kernel_shape=[3, 3], strides=[2, 1]),
         published="microsoft/onnxruntime#22177"),
    Case(name="slim_pad_of_two_convolutions", make=two_readers_of_a_pad, needs=other("onnxslim==0.1.84"), tool=SLIM,
         region=("c2", "r2", "q"), published=_SLIM_PAD),
    Case(name="slim_add_along_the_last_axis", make=conv_then("Add"), needs=other("onnxslim==0.1.84"), tool=SLIM,
         region=("y", "c")),
    Case(name="slim_product_along_the_last_axis", make=conv_then("Mul"), needs=other("onnxslim==0.1.84"), tool=SLIM,
         region=("y", "c")),
    Case(name="simplified_pad_into_max_pool", needs=other("onnxsim==0.4.36"), tool=SIMPLIFY, region=("y",),
         make=pooled("MaxPool", pad=(0, 0, 1, 1, 0, 0, 1, 1), kernel_shape=[2, 2])),
    Case(name="optimised_pad_into_max_pool", needs=other("onnxoptimizer==0.3.13"), tool=OPTIMISE, region=("y",),
         make=pooled("MaxPool", pad=(0, 0, 1, 1, 0, 0, 1, 1), kernel_shape=[2, 2])),
    Case(name="right_layer_norm", make=norm(), needs=ort("1.24.1"), right=True),
    Case(name="right_rms_norm", make=norm(simple=True), needs=ort("1.20.1"), right=True),
    Case(name="right_max_pool", make=pooled("MaxPool", kernel_shape=[2, 2]), needs=ort("1.20.1"), right=True),
    Case(name="right_average_pool", make=pooled("AveragePool", kernel_shape=[3, 3]), needs=ort("1.22.1"), right=True),
    Case(name="right_convolution_and_norm", make=conv_norm, needs=ort("1.20.1"), right=True),
    Case(name="right_convolution_and_sum", make=conv_then("Add"), needs=ort("1.23.2"), right=True),
    Case(name="right_products", make=two_products, needs=ort("1.21.1"), right=True),
    Case(name="right_attention", make=attention, needs=ort("1.24.1"), right=True),
    Case(name="right_slimmed", make=conv_norm, needs=other("onnxslim==0.1.84"), tool=SLIM, right=True),
    Case(name="right_simplified", make=conv_norm, needs=other("onnxsim==0.4.36"), tool=SIMPLIFY, right=True),
)  # fmt: skip
