"""A twenty-second batch, second part: narrow types, 8 and 4 bits, float8, OpenVINO, LiteRT. Who, cause and fact of each
were measured without the tool (``python tests/planted/twentysecond_truth.py``)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from planted import fourteenth_onnx, twentyfirst_narrow
from planted.fifteenth_onnx import SEVEN
from planted.fourteenth_onnx import _fed
from planted.onnx_faults import Array, Graph
from planted.onnx_further import ints, k
from planted.twelfth.case import DIFFER, Thread, labelled
from planted.twentyfirst_narrow import _COARSE8, _lite
from planted.twentysecond_onnx import WILD, Made, _deep, two

CASES: list[Thread] = []
case = functools.partial(fourteenth_onnx.case, cases=CASES)
two = functools.partial(two, cases=CASES)
_ir = functools.partial(twentyfirst_narrow._ir, cases=CASES)
_LOST = "coarse cancellation cancels amplified stepped found_by_repair rounded_constant constant_rounded reads_rounded"

# --- float16 and bfloat16


@case("formula", "ort_fp16_sim", "t8 t6 t4 x4 x2 s1", f"{_LOST} drift", extra="s3 x8 x6 x4 x2 t8 t6 t4 t2 s1 s2 s3 s4")
def legendre_of_the_eighth_degree(g: Graph) -> Sequence[str]:
    """6435 x^8 - 12012 x^6 + 6930 x^4 - 1260 x^2 + 35 over 128, of x up to 0.95: terms of up to 8,800 whose sum is up
    to 128."""
    x = g.input("x", g.random.uniform(0.6, 0.95, (6, 8)).astype(np.float32))
    x2 = g.op("Mul", [x, x], "x2")
    x4 = g.op("Mul", [x2, x2], "x4")
    x6, x8 = g.op("Mul", [x4, x2], "x6"), g.op("Mul", [x4, x4], "x8")
    terms = [g.op("Mul", [one, k(g, f"c{n}", c)], f"t{n}") for n, one, c in ((8, x8, 6435), (6, x6, -12012),
                                                                            (4, x4, 6930), (2, x2, -1260))]  # fmt: skip
    s = g.op("Add", terms[:2], "s1")
    s = g.op("Add", [g.op("Add", [s, terms[2]], "s2"), terms[3]], "s3")
    return [g.op("Mul", [g.op("Add", [s, k(g, "c0", 35)], "s4"), k(g, "unit", 1 / 128)], "y")]


@case("formula", "ort_bf16_sim", "less call", f"{_LOST} drift", extra="call less strike put spot n1 n2 s_n1 k_n2")
def price_of_a_put_by_parity(g: Graph) -> Sequence[str]:
    """call - spot + strike of prices about 100: what is left is about 1, where bfloat16 steps by 0.5."""
    spot = g.input("spot", g.random.uniform(95, 125, (8, 6)).astype(np.float32))
    n1 = g.op("Sigmoid", [g.op("Mul", [g.op("Sub", [spot, k(g, "at", 100)], "d"), k(g, "steep", 0.1)], "d1")], "n1")
    call = g.op("Mul", [g.op("Sub", [spot, k(g, "owed", 97)], "s0"), n1], "call")
    less = g.op("Sub", [call, spot], "less")
    return [g.op("Add", [less, k(g, "strike", 97)], "put")]


@case("overflow", "ort_fp16_sim", "raised", "overflow", extra="raised mean gem", facts=[])
def mean_of_the_eighth_power(g: Graph) -> Sequence[str]:
    """A generalised mean of the eighth power of numbers of up to 9: 9^8 is 4.3e7."""
    x = g.op("Clip", [g.conv(_fed(g, 2, 3, 8, 8), 3, 8, "a", 4), k(g, "eps", 0.01), k(g, "most", 9)], "held")
    x = g.op("GlobalAveragePool", [g.op("Pow", [x, k(g, "p", 8)], "raised")], "mean")
    x = g.op("Flatten", [g.op("Pow", [x, k(g, "root", 1 / 8)], "gem")], "flat")
    return [g.dense(x, 8, 4, "y")]


@case("underflow", "ort_fp16_sim", "var", "underflow underflow_inside born", extra="var off2 off far half")
def likelihood_of_a_sharp_gaussian(g: Graph) -> Sequence[str]:
    """(x - m)^2 / exp(log variance) of log variances of -18 to -21: the variance, 1e-9 to 1.5e-8, becomes 0."""
    x, m = g.input("x", g.random.normal(size=(6, 8)).astype(np.float32)), _fed_m(g)
    var = g.op("Exp", [k(g, "log_var", g.random.uniform(-21, -18, 8))], "var")
    off = g.op("Mul", [g.op("Sub", [x, m], "less"), k(g, "unit", 1e-4)], "off")
    far = g.op("Div", [g.op("Mul", [off, off], "off2"), var], "far")
    return [g.dense(g.op("Mul", [far, k(g, "half", 0.5)], "half_far"), 8, 4, "y")]


def _fed_m(g: Graph) -> str:
    return g.input("m", g.random.normal(size=(6, 8)).astype(np.float32))


@case("overflow", "ort_fp16_sim", "area_a area_b total both", "overflow range_inside", extra="area_a area_b total both "
      "twice dice")  # fmt: skip
def overlap_of_two_masks_of_a_large_picture(g: Graph) -> Sequence[str]:
    """2 |A B| / (|A| + |B|) of masks of 420 by 420 that are all but full: sums of 1.5e5."""
    a, b = (g.input(one, g.random.uniform(0.8, 1, (2, 420, 420)).astype(np.float32)) for one in "ab")
    axes = ints(g, "axes", 1, 2)
    both = g.op("ReduceSum", [g.op("Mul", [a, b], "ab"), axes], "both", keepdims=0)
    sizes = [g.op("ReduceSum", [one, axes], f"area_{one}", keepdims=0) for one in (a, b)]
    twice = g.op("Mul", [both, k(g, "two", 2)], "twice")
    return [g.op("Div", [twice, g.op("Add", sizes, "total")], "dice")]


def _gated(g: Graph, loud: int) -> Sequence[str]:
    """Ten blocks of a norm and a gated unit."""
    x = _fed(g, 4, 24)
    for n in range(10):
        h = g.norm(x, 24, f"n{n}")
        size = 300.0 if n == loud else 1.0
        gate, up = g.dense(h, 24, 32, f"gate{n}", size), g.dense(h, 24, 32, f"up{n}", size)
        h = g.op("Mul", [g.op("Mul", [gate, g.op("Sigmoid", [gate], f"s{n}")], f"act{n}"), up], f"p{n}")
        x = g.op("Add", [x, g.dense(h, 32, 24, f"down{n}", 1 / size**2)], f"x{n}")
    return [g.dense(g.norm(x, 24, "last"), 24, 6, "y")]


@case("overflow", "ort_fp16_sim", "p6", "overflow", extra="p6 down6_mm down6")
def gated_unit_of_the_seventh_of_ten_blocks(g: Graph) -> Sequence[str]:
    """Of ten gated units the seventh multiplies two numbers of 300: beyond 65504, and its down projection's weights
    are a 90,000th."""
    return _gated(g, 6)


@case("healthy", "ort_fp16_sim")
def ten_gated_units_of_usual_size(g: Graph) -> Sequence[str]:
    """The same ten blocks without the loud one."""
    return _gated(g, -1)


@case("healthy", "ort_bf16_sim")
def eight_layers_of_attention_in_bfloat16(g: Graph) -> Sequence[str]:
    """Eight layers of attention and of two matrices: 180 operators that only round."""
    return _deep(g, "")


@case("healthy", "ort_fp16_sim")
def levels_just_below_the_end_of_the_type(g: Graph) -> Sequence[str]:
    """Numbers of up to 64,000, which float16 still holds, divided by 1000."""
    x = g.op("Mul", [g.op("Tanh", [g.dense(_fed(g, 6, 16), 16, 16, "a", 3)], "t"), k(g, "level", 64000)], "loud")
    return [g.dense(g.op("Mul", [x, k(g, "unit", 1e-3)], "less"), 16, 4, "y", 0.1)]


@case("healthy", "ort_fp16_sim")
def picture_by_the_curve_of_srgb(g: Graph) -> Sequence[str]:
    """((x + 0.055) / 1.055)^2.4, and x / 12.92 below 0.04, then a filter."""
    x = g.input("x", g.random.uniform(0, 1, (1, 3, 8, 8)).astype(np.float32))
    high = g.op("Div", [g.op("Add", [x, k(g, "a", 0.055)], "xa"), k(g, "b", 1.055)], "xb")
    low = g.op("Div", [x, k(g, "c", 12.92)], "low")
    high = g.op("Pow", [high, k(g, "gamma", 2.4)], "high")
    y = g.op("Where", [g.op("Less", [x, k(g, "edge", 0.04045)], "dark"), low, high], "linear")
    return [g.conv(y, 3, 4, "y")]


@case("healthy", "ort_fp16_sim")
def shares_whose_tail_becomes_nought(g: Graph) -> Sequence[str]:
    """A softmax of scores of 0 to -60: most shares become 0 in float16, as they may."""
    x = g.dense(_fed(g, 4, 12), 12, 24, "score", 20)
    return [g.dense(g.op("Softmax", [x], "share", axis=-1), 24, 6, "y")]


# --- 8 and 4 bits


@case("int8", "ort_int8_dynamic", "a", f"{_COARSE8} packed outlier_sample outlier_token", options=SEVEN, offered=None,
      extra="a r n")  # fmt: skip
def one_bright_picture_in_a_batch_of_eight(g: Graph) -> Sequence[str]:
    """One of eight pictures is 300 times as bright; each is divided by its own size behind the first filter."""
    g.input("x", g.random.normal(size=(8, 3, 8, 8)).astype(np.float32))
    g.feeds["x"][2] *= 300
    x = g.op("Relu", [g.conv("x", 3, 8, "a")], "r")
    size = g.op("ReduceL2", [x], "size", axes=[1, 2, 3], keepdims=1)
    size = g.op("Add", [size, k(g, "eps", 1e-3)], "held")
    x = g.op("Mul", [g.op("Div", [x, size], "n"), k(g, "unit", 10)], "scaled")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "pool")], "flat"), 8, 4, "y", 3)]


@case("int8", "ort_int8_dynamic", "q_mm q", f"{_COARSE8} packed", options=SEVEN, offered=None,
      extra="q k q_mm k_mm raw")  # fmt: skip
def queries_and_keys_of_unequal_channels(g: Graph) -> Sequence[str]:
    """Every eighth channel of the queries' matrix is 200 times, of the keys' a 200th: the scores are the same, and one
    scale a matrix leaves the queries' other channels and the keys' eighth ones nothing."""
    x = _fed(g, 2, 12, 48)
    factor = np.where(np.arange(48) % 8 == 0, 200.0, 1.0).astype(np.float32)
    for name, f in (("q", factor), ("k", 1 / factor)):
        g.dense(x, 48, 48, name, 2)
        g.weights[f"{name}.w"], g.weights[f"{name}.b"] = g.weights[f"{name}.w"] * f, g.weights[f"{name}.b"] * f
    score = g.op("MatMul", ["q", g.op("Transpose", ["k"], "kt", perm=[0, 2, 1])], "raw")
    share = g.op("Softmax", [g.op("Mul", [score, k(g, "scale", 48**-0.5)], "score")], "share", axis=-1)
    return [g.dense(g.op("MatMul", [share, x], "mixed"), 48, 8, "y")]


def _mobile(g: Graph) -> Sequence[str]:
    """A hard swish, a depthwise filter, a squeeze by a hard sigmoid, a skip."""
    x = g.conv(_fed(g, 4, 3, 10, 10), 3, 12, "a")
    x = g.op("Mul", [x, g.op("HardSigmoid", [x], "hs", alpha=1 / 6, beta=0.5)], "hsw")
    w = k(g, "dw.w", g.random.normal(size=(12, 1, 3, 3)) / 3)
    d = g.op("Relu", [g.op("Conv", [x, w], "dw", group=12, pads=[1] * 4)], "rd")
    s = g.op("GlobalAveragePool", [d], "s")
    gate = g.op("HardSigmoid", [g.op("Conv", [s, k(g, "se.w", g.random.normal(size=(12, 12, 1, 1)) / 3)], "se")], "g",
                alpha=0.2, beta=0.5)  # fmt: skip
    x = g.op("Add", [x, g.conv(g.op("Mul", [d, gate], "gated"), 12, 12, "p")], "skip")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "pool")], "flat"), 12, 6, "y", 3)]


@case("healthy", "ort_int8", options=SEVEN)
def mobile_block_in_static_int8(g: Graph) -> Sequence[str]:
    """A block of a MobileNetV3 in static INT8."""
    return _mobile(g)


@case("healthy", "ov_int8")
def mobile_block_by_nncf(g: Graph) -> Sequence[str]:
    """The same block by NNCF."""
    return _mobile(g)


@case("int4", "ort_int4", "h", f"{_COARSE8} few_bits packed", offered=None, extra="h r")
def input_of_fifty_times_in_four_bits(g: Graph) -> Sequence[str]:
    """One row of 128 of a matrix is 50 times the others, of an input that is all but 0: every block of 128 is coarse,
    and the other 127 rows become 0."""
    x = _fed(g, 8, 128)
    g.feeds["x"][:, 40] *= 1e-3
    w = g.random.normal(size=(128, 48)) / 11
    w[40] *= 50
    h = g.op("MatMul", [x, k(g, "h.w", w)], "h")
    return [g.op("MatMul", [g.op("Relu", [h], "r"), k(g, "y.w", g.random.normal(size=(48, 16)) / 7)], "y")]


@case("healthy", "ort_int4")
def matrices_of_a_hundred_rows_in_four_bits(g: Graph) -> Sequence[str]:
    """Three matrices of 100 and 60 rows, no whole number of blocks, in 4 bits."""
    x = g.op("MatMul", [_fed(g, 6, 100), k(g, "a", g.random.normal(size=(100, 60)) / 10)], "xa")
    x = g.op("MatMul", [g.op("Relu", [x], "r"), k(g, "b", g.random.normal(size=(60, 60)) / 8)], "xb")
    return [g.op("MatMul", [g.op("Relu", [x], "q"), k(g, "c", g.random.normal(size=(60, 16)) / 8)], "y")]


def _float8(g: Graph, kind: str) -> Sequence[str]:
    """Weights held in float8."""
    import ml_dtypes

    x = _fed(g, 8, 32)
    w = (g.random.normal(size=(32, 24)) / 6).astype(np.float32).astype(getattr(ml_dtypes, kind))
    w = g.op("Cast", [g.weight("w8", w)], "w", to=TensorProto.FLOAT)
    return [g.dense(g.op("Relu", [g.op("MatMul", [x, w], "h")], "r"), 24, 6, "y")]


two(_float8, "float8_e4m3fn", "float8_e5m2", "weights_in_e5m2_in_place_of_e4m3",
    "Weights are held in e5m2, of two bits, "
    "in place of e4m3, of three.", "w h", f"{DIFFER} held_narrower",
    opset=19, extra="w h", facts=["w8|5m2"])  # fmt: skip


def _real(name: str, truth: str, source: str, mode: str, who: str = "", why: str = "", **more: Any) -> None:
    """A real model in a mode beside its own float32."""

    def make(folder: Path) -> Made:
        onnx.save(onnx.load(WILD / f"{source}.onnx"), folder / f"{name}.onnx")
        return folder / f"{name}.onnx", None, dict(np.load(WILD / f"{source}.npz"))

    def named() -> None: ...

    named.__name__, named.__doc__ = name, truth
    CASES.append(labelled(named, "", "overflow" if who else "healthy", mode, who, why, make=make, **more))


_real("classifier_of_text_lines_in_half", "A MobileNetV3 in float16.", "cls", "ort_fp16", open=True)
_real("kinds_of_files_in_openvino", "Magika, with every fusion of OpenVINO, in float32.", "magika", "ov_opt_fp32")
_MASK = "/model/model.0/auto_model/Mul_1_output_0 /model/model.0/auto_model/Constant_13_output_0"
_real("mask_of_a_sentence_model_in_bfloat16",
      "MiniLM's mask of -3.4028e38, float32's lowest, rounds to -Inf in bfloat16, "
      "and 0 times it is NaN.", "minilm", "ort_bf16_sim", _MASK, "overflow infinite_constant weight_overflow "
      "rounded_constant constant_rounded held_narrower", extra=_MASK)

# --- OpenVINO


def _enlarged(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(_fed(g, 1, 3, 8, 8), 3, 8, "a", 2)], "r")
    x = g.op("Resize", [x, "", k(g, "scales", [1, 1, 2, 2])], "up", mode="linear",
             coordinate_transformation_mode="half_pixel")  # fmt: skip
    return [g.conv(g.op("LeakyRelu", [x], "leak", alpha=0.125), 8, 4, "y")]


_ir("corners_of_an_upsample_in_the_ir", "Interpolate's coordinates are asymmetric in the IR in place of half_pixel.",
    _enlarged, lambda text: text.replace('coordinate_transformation_mode="half_pixel"',
                                         'coordinate_transformation_mode="asymmetric"'), "up leak",
    facts=["coordinate_transformation_mode|asymmetric"])  # fmt: skip


def _leaky(g: Graph, alpha: float) -> Sequence[str]:
    x = g.op("LeakyRelu", [g.conv(_fed(g, 2, 3, 8, 8), 3, 8, "a", 2)], "act", alpha=alpha)
    x = g.op("LeakyRelu", [g.conv(x, 8, 8, "b", 2)], "act2", alpha=0.1)
    return [g.conv(x, 8, 4, "y")]


two(_leaky, 0.1, 0.3, "slope_of_a_leak_in_openvino_s_bfloat16", "A LeakyRelu's slope is 0.3 in place of 0.1, and the "
    "target in OpenVINO's bfloat16.", "act", extra="act a b", mode="ov_bf16", facts=["alpha"])  # fmt: skip
two(_leaky, 0.1, 0.3, "slope_of_a_leak_by_nncf", "The same file pair, the target in 8 bits by NNCF.", "act",
    extra="act a b", mode="ov_int8", facts=["alpha"])  # fmt: skip


@case("healthy", "ov_bf16")
def eight_layers_in_openvino_s_bfloat16(g: Graph) -> Sequence[str]:
    """Eight layers of attention in OpenVINO's bfloat16."""
    return _deep(g, "")


# --- LiteRT


def filter_three_of_the_other_sign() -> None:
    """The second layer's filter 3 of LiteRT's file has the other sign."""


def two_classes_of_the_head_exchanged() -> None:
    """The last matrix' rows 2 and 7 of the file in float32 are exchanged; their biases are not."""


def filters_of_the_second_layer_in_another_order() -> None:
    """The second layer's filters and biases in another order, and the third's inputs with them: nothing is wrong."""


def _negative(w: Array) -> Array:
    return np.where(np.arange(len(w)) == 3, -1, 1).astype(w.dtype)[:, None, None, None] * w


def _exchanged(w: Array) -> Array:
    return w[[0, 1, 7, 3, 4, 5, 6, 2, 8, 9]]


_ORDER: Callable[[int], Array] = lambda size: np.random.default_rng(22).permutation(size)  # noqa: E731
CASES += [
    labelled(filter_three_of_the_other_sign, "", "converter", "tflite_opt", "pool_input_nhwc", DIFFER,
             make=_lite("digits_float32", ("conv2_conv_filter", _negative)), baseline="tflite_fp32",
             extra="pool_input_nhwc", facts=["conv2_conv_filter"]),
    labelled(two_classes_of_the_head_exchanged, "", "converter", "tflite_ref", "logits", DIFFER,
             make=_lite("digits_float32", ("fc_fc_weights", _exchanged)), baseline="tflite_fp32", extra="logits",
             facts=["fc_fc_weights"]),
    labelled(filters_of_the_second_layer_in_another_order, "", "healthy", "tflite_opt", "", "", baseline="tflite_fp32",
             make=_lite("digits_float32", ("conv2_conv_filter", lambda w: w[_ORDER(len(w))]),
                        ("conv2_conv_bias", lambda w: w[_ORDER(len(w))]),
                        ("conv3_conv_filter", lambda w: w[..., _ORDER(w.shape[-1])]))),
]  # fmt: skip
