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
    fault, any of which is an answer. region: tensors, any of which may be named first. causes: codes, any of which is
    right; () where any but a wrong one was asked for. published: where, "" where it was only found while this bench was
    made. right: a control. stops: the optimised session cannot be made or run at all: the command must end with status
    3 and name the pass. other: the run mode of another engine that is right, the baseline; the engine's own kernel is
    wrong, with and without optimisers.
    """

    name: str
    make: Callable[[], tuple[ModelProto, Mapping[str, Array]]]
    needs: Sequence[str]
    tool: str = ""
    passes: Sequence[str] = ()
    region: Sequence[str] = ()
    causes: Sequence[str] = ()
    published: str = ""
    right: bool = False
    stops: bool = False
    mode: str = "ort_opt"
    other: str = ""
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


def norm_of(shape: Sequence[int], scale: Sequence[int]) -> Callable[[], Any]:
    """A layer norm of its parts without a bias, whose scale has a shape of its own."""

    def make() -> Any:
        nodes = [
            node("ReduceMean", ["x"], ["m"], axes=[-1], keepdims=1), node("Sub", ["x", "m"], ["d"]),
            node("Pow", ["d", "two"], ["p"]), node("ReduceMean", ["p"], ["v"], axes=[-1], keepdims=1),
            node("Add", ["v", "eps"], ["ve"]), node("Sqrt", ["ve"], ["s"]), node("Div", ["d", "s"], ["n"]),
            node("Mul", ["n", "g"], ["y"]),
        ]  # fmt: skip
        constants = {"two": np.float32(2), "eps": np.float32(1e-5), "g": normal(*scale)}
        return built(nodes, {"x": normal(*shape)}, constants)

    return make


def residual_norm() -> Any:
    nodes = [node("Add", ["x", "r"], ["a"]), node("LayerNormalization", ["a", "g", "b"], ["y"], axis=-1)]
    feeds = {"x": normal(2, 3, 8), "r": normal(2, 3, 8, seed=1)}
    return built(nodes, feeds, {"g": normal(1, 1, 8), "b": normal(1, 1, 8, seed=2)})


def turned(kind: str) -> Callable[[], Any]:
    """A Transpose that moves nothing, before a product: of the first input, of the first input of a Gemm, or of its
    weight."""

    def make() -> Any:
        if kind == "product":
            nodes = [
                node("Transpose", ["x"], ["t"], perm=[0, 1]), node("MatMul", ["t", "w"], ["m"]),
                node("Add", ["m", "b"], ["y"]),
            ]  # fmt: skip
            return built(nodes, {"x": normal(4, 4)}, {"w": normal(4, 4, seed=3), "b": normal(4)})
        if kind == "input":
            nodes = [node("Transpose", ["x"], ["t"], perm=[0, 1]), node("Gemm", ["t", "w", "b"], ["y"])]
            return built(nodes, {"x": normal(3, 4)}, {"w": normal(4, 5), "b": normal(5)})
        nodes = [node("Transpose", ["w"], ["t"], perm=[0, 1]), node("Gemm", ["x", "t", "b"], ["y"])]
        return built(nodes, {"x": normal(3, 4), "w": normal(4, 5)}, {"b": normal(5)})

    return make


def product_norm() -> Any:
    """A product of three dimensions behind which BatchNormalization follows: not what one Gemm can be."""
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("BatchNormalization", ["p", "g", "b", "m", "v"], ["y"])]
    constants = {"w": normal(8, 5), "g": normal(5), "b": normal(5, seed=1), "m": normal(5, seed=2)}
    return built(nodes, {"x": normal(2, 5, 8)}, {**constants, "v": np.abs(normal(5, seed=3)) + 0.5})


def pooled_integers() -> Any:
    """Q, DQ, MaxPool, Q, DQ with a negative scale, which turns the order of the integers round."""
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("MaxPool", ["d"], ["p"], kernel_shape=[2, 2]), node("QuantizeLinear", ["p", "s", "z"], ["q2"]),
        node("DequantizeLinear", ["q2", "s", "z"], ["y"]),
    ]  # fmt: skip
    return built(nodes, {"x": normal(1, 3, 6, 6)}, {"s": np.float32(-0.02), "z": np.int8(0)})


def integers(*shape: int, dtype: Any, top: int) -> Array:
    return np.random.default_rng(0).integers(-top, top, size=shape).astype(dtype)


def weight_reshaped() -> Any:
    """An int8 weight without a zero point, dequantised and reshaped."""
    nodes = [
        node("DequantizeLinear", ["w", "s"], ["d"]), node("Reshape", ["d", "shape"], ["r"]),
        node("MatMul", ["x", "r"], ["y"]),
    ]  # fmt: skip
    constants = {"w": integers(4, dtype=np.int8, top=100), "s": np.float32(0.01), "shape": np.array([4, 1])}
    return built(nodes, {"x": normal(3, 4)}, constants, opset=21)


def bias_reshaped() -> Any:
    """An int32 tensor with its zero point, dequantised and reshaped, as an int32 bias is."""
    nodes = [
        node("DequantizeLinear", ["w", "s", "z"], ["d"]), node("Reshape", ["d", "shape"], ["r"]),
        node("Add", ["r", "x"], ["y"]),
    ]  # fmt: skip
    constants = {"w": integers(4, 3, dtype=np.int32, top=1000), "s": np.float32(0.001), "z": np.int32(0)}
    return built(nodes, {"x": normal(3, 4)}, {**constants, "shape": np.array([3, 4])})


def gemm_of_integers() -> Any:
    """A quantised Gemm whose alpha is not 1."""
    nodes = [
        node("QuantizeLinear", ["x", "sx", "zx"], ["xq"]), node("DequantizeLinear", ["xq", "sx", "zx"], ["xd"]),
        node("DequantizeLinear", ["w", "sw", "zw"], ["wd"]), node("DequantizeLinear", ["b", "sb", "zb"], ["bd"]),
        node("Gemm", ["xd", "wd", "bd"], ["g"], alpha=2.0), node("QuantizeLinear", ["g", "sy", "zy"], ["gq"]),
        node("DequantizeLinear", ["gq", "sy", "zy"], ["y"]),
    ]  # fmt: skip
    weights = np.random.default_rng(0)
    return built(
        nodes, {"x": normal(4, 8)},
        {
            "sx": np.float32(0.02), "zx": np.uint8(128), "sw": np.float32(0.01), "zw": np.int8(0),
            "w": weights.integers(-100, 100, size=(8, 3)).astype(np.int8), "sb": np.float32(0.0002), "zb": np.int32(0),
            "b": weights.integers(-8000, 8000, size=3).astype(np.int32), "sy": np.float32(0.1), "zy": np.uint8(128),
        },
    )  # fmt: skip


def cast_times_one() -> Any:
    """A Cast to the type that its input has, times a one that is computed."""
    nodes = [
        node("Cast", ["x"], ["c"], to=1), node("Div", ["one", "one"], ["q"]), node("Mul", ["q", "c"], ["y"]),
    ]  # fmt: skip
    return built(nodes, {"x": normal(3, 4)}, {"one": np.float32(1)})


def clipped_doubles() -> Any:
    nodes = [
        node("Cast", ["x"], ["a"], to=11), node("Relu", ["a"], ["r"]), node("Clip", ["r", "lo", "hi"], ["c"]),
        node("Cast", ["c"], ["y"], to=1),
    ]  # fmt: skip
    return built(nodes, {"x": normal(3, 4)}, {"lo": np.float64(-1), "hi": np.float64(1)})


def transposed_convolution(shape: Sequence[int], weight: Sequence[int], **attributes: Any) -> Callable[[], Any]:
    return lambda: built(
        [node("ConvTranspose", ["x", "w"], ["t"], **attributes), node("Relu", ["t"], ["y"])],
        {"x": normal(*shape)}, {"w": normal(*weight)},
    )  # fmt: skip


def space_to_depth() -> Any:
    """Every second row and column, four times, side by side: what YOLO's Focus layer exports as."""
    bounds = ("zero", "one")
    nodes = [node("Slice", ["x", a, "end", "rows", "two"], [f"r{i}"], name=f"row{i}") for i, a in enumerate(bounds)]
    nodes += [
        node("Slice", [f"r{i}", b, "end", "columns", "two"], [f"p{i}{j}"], name=f"part{i}{j}")
        for i in range(2) for j, b in enumerate(bounds)
    ]  # fmt: skip
    nodes += [
        node("Concat", ["p00", "p01", "p10", "p11"], ["c"], axis=1, name="concat"),
        node("Conv", ["c", "w"], ["y"], pads=[1] * 4, name="conv"),
    ]
    numbers = {"zero": 0, "one": 1, "end": 2**31 - 1, "rows": 2, "columns": 3, "two": 2}
    constants = {name: np.array([one]) for name, one in numbers.items()}
    return built(nodes, {"x": normal(1, 3, 8, 8)}, {**constants, "w": normal(4, 12, 3, 3)})


def gemm_reshaped() -> Any:
    """A Gemm with a bias, reshaped to three dimensions, and a second bias of three."""
    nodes = [
        node("Gemm", ["x", "w", "b"], ["g"], name="gemm"), node("Reshape", ["g", "shape"], ["r"], name="reshape"),
        node("Add", ["r", "c"], ["y"], name="add"),
    ]  # fmt: skip
    constants = {"w": normal(4, 5), "b": normal(5), "shape": np.array([2, 3, 5]), "c": normal(1, 3, 5)}
    return built(nodes, {"x": normal(6, 4)}, constants)


def gemm_norm() -> Any:
    """A Gemm whose beta is 2, and BatchNormalization."""
    nodes = [
        node("Gemm", ["x", "w", "c"], ["p"], beta=2.0, name="gemm"),
        node("BatchNormalization", ["p", "g", "b", "m", "v"], ["y"], name="norm"),
    ]
    constants = {"w": normal(8, 5), "c": normal(5, seed=9), "g": normal(5), "b": normal(5, seed=1)}
    constants.update(m=normal(5, seed=2), v=np.abs(normal(5, seed=3)) + 0.5)
    return built(nodes, {"x": normal(4, 8)}, constants)


def ort(version: str, onnx: str = "1.17.0") -> list[str]:
    return [f"onnxruntime=={version}", f"onnx=={onnx}"]


def other(tool: str) -> list[str]:
    return [tool, *ort("1.20.1")]


SLIM = "import onnxslim; second = onnxslim.slim(first)"
REWRITE = "import onnxscript.rewriter as rewriter; second = rewriter.rewrite(first)"
SIMPLIFY = "import onnxsim; second = onnxsim.simplify(first)[0]"
OPTIMISE = "import onnxoptimizer as o; second = o.optimize(first, o.get_fuse_and_elimination_passes())"
_TWO_ENGINES = ["openvino==2025.1.0", *ort("1.20.1")]
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
    Case(name="norm_of_one_dimension", make=norm_of((4,), ()), needs=ort("1.24.1"), stops=True,
         passes=(*_LAYER_NORM, "SimplifiedLayerNormFusion"), region=_NORM, published="microsoft/onnxruntime#31147"),
    Case(name="norm_with_a_wide_scale", make=norm_of((1, 1), (2,)), needs=ort("1.20.1"), stops=True,
         passes=["SimplifiedLayerNormFusion"], region=_NORM, published="microsoft/onnxruntime#31980"),
    Case(name="skip_norm_with_gamma_of_three_dimensions", make=residual_norm, needs=ort("1.24.1"), stops=True,
         passes=["SkipLayerNormFusion"], region=("y", "a"), published="microsoft/onnxruntime#27455"),
    Case(name="identity_transpose_into_gemm", make=turned("product"), needs=ort("1.23.2"), causes=["faulty_pass"],
         passes=["GemmTransposeFusion"], region=("y", "m", "t"), published="microsoft/onnxruntime#32228"),
    Case(name="identity_transpose_of_an_input", make=turned("input"), needs=ort("1.23.2"), stops=True,
         passes=["GemmTransposeFusion"], region=("y", "t"), published="microsoft/onnxruntime#32417"),
    Case(name="identity_transpose_of_a_weight", make=turned("weight"), needs=ort("1.23.2"), stops=True,
         passes=["GemmTransposeFusion"], region=("y", "t"), published="microsoft/onnxruntime#32418"),
    Case(name="product_and_norm_of_three_dimensions", make=product_norm, needs=ort("1.18.1"), stops=True,
         passes=["MatMul_BatchNormalization_Fusion"], region=("y", "p"),
         published="microsoft/onnxruntime#22512, #22762"),
    Case(name="max_pool_of_a_negative_scale", make=pooled_integers, needs=ort("1.18.1"), causes=["faulty_pass"],
         passes=["QDQSelectorActionTransformer"], region=("p", "q2", "y"), published="microsoft/onnxruntime#21176"),
    Case(name="int8_weight_quantised_again_as_uint8", make=weight_reshaped, needs=ort("1.24.1"),
         passes=["QDQPropagationTransformer"], region=("r", "d"), causes=["faulty_pass"],
         published="microsoft/onnxruntime#27845"),
    Case(name="int32_bias_quantised_again", make=bias_reshaped, needs=ort("1.22.1"), stops=True,
         passes=["QDQPropagationTransformer"], region=("r", "d"), published="microsoft/onnxruntime#25001"),
    Case(name="quantised_gemm_with_alpha", make=gemm_of_integers, needs=ort("1.24.1"), causes=["faulty_pass"],
         passes=["QDQSelectorActionTransformer"], region=("g", "gq", "y"), published="microsoft/onnxruntime#28130"),
    Case(name="cast_times_one", make=cast_times_one, needs=ort("1.24.1"), stops=True,
         passes=["CastElimination", "DivMulFusion"], region=("c", "y"), published="microsoft/onnxruntime#32416"),
    Case(name="clip_of_doubles", make=clipped_doubles, needs=ort("1.20.1"), stops=True, passes=["FuseReluClip"],
         region=("c", "r"), published="microsoft/onnxruntime#23116, #10936, #11836"),
    Case(name="transposed_convolution_dilated", needs=_TWO_ENGINES, region=("t",), mode="ort_fp32", other="ov_fp32",
         make=transposed_convolution((1, 1, 8, 8), (1, 3, 2, 2), dilations=[2, 2], pads=[3] * 4,
                                     output_padding=[1, 1], kernel_shape=[2, 2]),
         causes=["wrong_kernel", "kernels_disagree", "other_arithmetic"], published="microsoft/onnxruntime#14208"),
    Case(name="transposed_convolution_padded_by_itself", needs=_TWO_ENGINES, region=("t",), mode="ov_fp32",
         other="ort_fp32",
         make=transposed_convolution((1, 2, 5, 5), (2, 3, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]),
         causes=["wrong_kernel", "kernels_disagree", "other_arithmetic"],
         published="openvinotoolkit/openvino#31007, #20848"),
    Case(name="slim_slices_share_their_starts", make=space_to_depth, needs=other("onnxslim==0.1.82"), tool=SLIM,
         region=("p00", "p01", "p10", "p11", "r0", "r1", "c"), causes=["files_differ", "other_arithmetic"],
         published="inisis/OnnxSlim#277"),
    Case(name="slim_bias_behind_a_reshape", make=gemm_reshaped, needs=other("onnxslim==0.1.70"), tool=SLIM, stops=True,
         region=("g", "r", "y"), published="inisis/OnnxSlim#210"),
    Case(name="rewritten_gemm_with_beta", make=gemm_norm, needs=["onnxscript==0.7.0", *ort("1.23.2", "1.19.1")],
         tool=REWRITE, region=("p", "y"), causes=["files_differ", "other_arithmetic"],
         published="microsoft/onnxscript#3027"),
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
