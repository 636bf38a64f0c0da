"""A sixth batch in ONNX: what people report of forward passes in float16, in integers and of two files, and healthy
models that look dangerous; written and labelled before any of it was run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from onnx import helper

from planted.fifth_onnx import perceptron_whole
from planted.fifth_onnx import quantised as _quantised
from planted.fourth_clean import block, residual
from planted.onnx_faults import Graph, _attribute, image, tokens
from planted.onnx_further import ints, k
from planted.unseen import Unseen
from planted.unseen_files import pair as two_files
from planted.unseen_files import weight
from planted.unseen_onnx import unseen as registered

CASES: list[Unseen] = []


def unseen(*words: Any, **more: Any) -> Callable[[Any], Any]:
    return registered(*words, cases=CASES, seed=83, **more)


def pair(*words: Any, **more: Any) -> None:
    two_files(*words, cases=CASES, **more)


HALF = "ort_fp16_sim"
CPU = "ort_fp16"
"""On a CPU that computes in float32 between casts: it is healthy where float16 is not."""
FLOATS = "ort_fp16_sim ort_bf16_sim"


# --- beyond the largest number of float16


@unseen("overflow", HALF, "raw", "overflow", extra=("score", "masked"))
def scores_overflow_before_their_mask(g: Graph) -> Sequence[str]:
    """Queries that nobody scaled: the product is beyond the type, and the mask comes too late."""
    x = block(g, tokens(g), 32, "l0")
    q, key, v = g.dense(x, 32, 32, "q", 220.0), g.dense(x, 32, 32, "k", 220.0), g.dense(x, 32, 32, "v")
    raw = g.op("MatMul", [q, g.op("Transpose", [key], "kt", perm=[0, 2, 1])], "raw")
    score = g.op("Mul", [raw, k(g, "s", 2e-5)], "score")
    masked = g.op("Add", [score, k(g, "mask", np.triu(np.full((8, 8), -1e4), 1)[None])], "masked")
    prob = g.op("Softmax", [masked], "prob", axis=-1)
    return [g.dense(g.op("MatMul", [prob, v], "mixed"), 32, 8, "y")]


@unseen("overflow", HALF, "total", "overflow")
def mean_by_hand_over_a_long_axis(g: Graph) -> Sequence[str]:
    x = g.input("x", g.random.uniform(0.5, 2.5, size=(2, 60000)).astype(np.float32))
    total = g.op("ReduceSum", [x, ints(g, "axes", -1)], "total")
    return [g.op("Sqrt", [g.op("Mul", [total, k(g, "n", 1 / 60000)], "mean")], "y")]


@unseen("overflow", HALF, "p", "overflow")
def power_of_a_loudness(g: Graph) -> Sequence[str]:
    x = g.op("Softplus", [g.dense(tokens(g), 32, 32, "a", 25.0)], "sp")
    p = g.op("Pow", [x, k(g, "gamma", 3.3)], "p")
    return [g.dense(g.op("Log", [g.op("Add", [p, k(g, "one", 1)], "p1")], "lg"), 32, 6, "y")]


@unseen("overflow", HALF, "e", "overflow", extra=("e1", "r"))
def softplus_by_hand(g: Graph) -> Sequence[str]:
    x = g.dense(tokens(g), 32, 32, "a", 9.0)
    e1 = g.op("Add", [g.op("Exp", [x], "e"), k(g, "one", 1)], "e1")
    return [g.dense(g.op("Log", [e1], "r"), 32, 6, "y")]


@unseen("nan", "ort_fp16_sim", "far bias masked", "overflow weight_overflow infinite_constant",
        extra=("far", "bias", "masked", "prob"))  # fmt: skip
def mask_times_a_billion(g: Graph) -> Sequence[str]:
    """(1 - mask) * -1e9: minus infinity in float16, and NaN where it is multiplied by 0."""
    x = block(g, tokens(g), 32, "l0")
    seen = g.input("seen", (np.arange(8) < 6).astype(np.float32)[None, None].repeat(2, 0))
    bias = g.op("Mul", [g.op("Sub", [k(g, "one", 1), seen], "hidden"), k(g, "huge", -1e9)], "bias")
    q, key = g.dense(x, 32, 32, "q"), g.dense(x, 32, 32, "k")
    raw = g.op("MatMul", [q, g.op("Transpose", [key], "kt", perm=[0, 2, 1])], "raw")
    masked = g.op("Add", [g.op("Mul", [raw, k(g, "s", 0.18)], "score"), bias], "masked")
    prob = g.op("Softmax", [masked], "prob", axis=-1)
    return [g.dense(g.op("MatMul", [prob, x], "mixed"), 32, 8, "y")]


# --- below the smallest, and lost digits


@unseen("underflow", HALF, "prob", "underflow coarse")
def softmax_over_a_long_row(g: Graph) -> Sequence[str]:
    """Each probability is a few steps of float16's smallest number."""
    x = g.input("x", (g.random.normal(size=(1, 2_000_000)) * 0.5).astype(np.float32))
    prob = g.op("Softmax", [x], "prob", axis=-1)
    return [g.op("Mul", [g.op("Mul", [prob, k(g, "n", 2e3)], "p1"), k(g, "m", 1e3)], "y")]


@unseen("underflow", "ort_fp16_sim", "var root n", "weight_underflow", extra=("var", "root", "n"))
def epsilon_of_padding_rows(g: Graph) -> Sequence[str]:
    """A norm by hand; rows of zeros are divided by the root of an epsilon that is gone."""
    x = tokens(g)
    g.feeds["x"][:, 6:] = 0
    sq = g.op("ReduceMean", [g.op("Mul", [x, x], "sq")], "ms", axes=[-1])
    var = g.op("Add", [sq, k(g, "eps", 1e-8)], "var")
    n = g.op("Div", [x, g.op("Sqrt", [var], "root")], "n")
    return [g.dense(n, 32, 8, "y")]


@unseen("cancellation", HALF, "ms mean sqm var moved sq", "cancellation cancels amplified",
        extra=("ms", "mean", "sqm", "var", "moved", "sq"))  # fmt: skip
def variance_of_an_image_as_a_difference(g: Graph) -> Sequence[str]:
    x = g.op("Add", [g.conv(image(g), 3, 8, "c"), k(g, "level", 25)], "moved")
    ms = g.op("ReduceMean", [g.op("Mul", [x, x], "sq")], "ms", axes=[2, 3])
    mean = g.op("ReduceMean", [x], "mean", axes=[2, 3])
    var = g.op("Sub", [ms, g.op("Mul", [mean, mean], "sqm")], "var")
    n = g.op("Div", [g.op("Sub", [x, mean], "centred"), g.op("Sqrt", [g.op("Abs", [var], "abs")], "sd")], "n")
    return [g.conv(n, 8, 4, "y")]


@unseen("weight_underflow", f"{HALF} {CPU}", "small_mm small again", "weight_underflow coarse amplified")
def weights_that_are_subnormal(g: Graph) -> Sequence[str]:
    """Weights of a few millionths, and a factor behind them that makes up for it."""
    x = block(g, tokens(g), 32, "l0")
    w = g.random.normal(size=(32, 32)) * 3e-7
    small = g.op("MatMul", [x, k(g, "small.w", w)], "small_mm")
    larger = g.op("Mul", [g.op("Mul", [small, k(g, "up", 6e3)], "scaled"), k(g, "up2", 100)], "again")
    return [g.dense(g.op("Relu", [larger], "r"), 32, 8, "y")]


@unseen("cancellation", HALF, "run", "cancellation amplified", extra=("run", "late", "early"))
def differences_of_a_running_sum(g: Graph) -> Sequence[str]:
    """A moving average as the difference of two cumulative sums."""
    x = g.input("x", g.random.uniform(0, 1, size=(2, 3000)).astype(np.float32))
    run = g.op("CumSum", [x, g.weight("axis", np.int64(1))], "run")
    late = g.op("Slice", [run, ints(g, "f1", 10), ints(g, "t1", 3000), ints(g, "a1", 1)], "late")
    early = g.op("Slice", [run, ints(g, "f2", 0), ints(g, "t2", 2990), ints(g, "a2", 1)], "early")
    return [g.op("Mul", [g.op("Sub", [late, early], "moving"), k(g, "tenth", 0.1)], "y")]


@unseen("cancellation", "ort_bf16_sim", "sure s", "cancellation amplified born",
        extra=("sure", "s", "rest", "lg"))  # fmt: skip
def log_of_what_a_sigmoid_leaves(g: Graph) -> Sequence[str]:
    """log(1 - sigmoid(x)) of a gate that is all but closed."""
    x = g.op("Add", [g.op("Tanh", [g.dense(tokens(g), 32, 16, "a")], "t"), k(g, "bias", 6.5)], "s")
    rest = g.op("Sub", [k(g, "one", 1), g.op("Sigmoid", [x], "sure")], "rest")
    return [g.op("Log", [g.op("Add", [rest, k(g, "tiny", 1e-4)], "lg")], "y")]


# --- integers


@unseen("int8", "ort_int8", "cat", "coarse saturation outlier_channel", extra=("cat", "y", "box", "wide"))
def boxes_and_scores_in_one_tensor(g: Graph) -> Sequence[str]:
    """Pixels and probabilities joined: one scale for both."""
    x = g.op("Relu", [g.conv(image(g), 3, 12, "stem")], "sr")
    x = residual(g, x, 12, "b0")
    box = g.op("Mul", [g.op("Sigmoid", [g.conv(x, 12, 4, "box")], "bs"), k(g, "pixels", 640)], "wide")
    cat = g.op("Concat", [box, g.op("Sigmoid", [g.conv(x, 12, 4, "cls")], "score")], "cat", axis=1)
    parts = ["boxes", "scores"]
    g.nodes.append(helper.make_node("Split", [cat], parts, name="node_split", axis=1))
    low = g.op("Mul", ["boxes", k(g, "unit", 1 / 640)], "low")
    return [g.op("Mul", [low, k(g, "b1", 1)], "where"), g.op("Mul", ["scores", k(g, "b2", 1)], "y")]


@unseen("int8", "ort_int8", "stream sum far_up far down", "coarse cancellation amplified outlier_channel cancels",
        extra=("stream", "sum", "far", "far_up", "down"))  # fmt: skip
def residual_of_another_size(g: Graph) -> Sequence[str]:
    """A stream of hundreds and a branch of one are added, and the stream is taken away again."""
    x = tokens(g)
    stream = g.op("Mul", [g.op("Tanh", [g.dense(x, 32, 32, "a")], "t"), k(g, "f", 300)], "stream")
    total = g.op("Add", [stream, g.op("Tanh", [g.dense(x, 32, 32, "b")], "branch")], "sum")
    return [g.dense(g.op("Sub", [total, stream], "down"), 32, 6, "y")]


def _one_channel(g: Graph) -> Sequence[str]:
    x = g.norm(tokens(g), 32, "n")
    h = g.dense(x, 32, 32, "wide")
    g.weights["wide.w"][:, 7] *= 400
    g.weights["wide.b"][7] *= 400
    factor = np.ones(32)
    factor[7] = 1 / 400
    h = g.op("Relu", [g.op("Mul", [h, k(g, "back", factor)], "even")], "r")
    return [g.dense(h, 32, 6, "y")]


@unseen("int8", "ort_int8", "wide wide_mm", "outlier_channel coarse", extra=("wide", "wide_mm", "even"))
def one_channel_of_a_weight(g: Graph) -> Sequence[str]:
    return _one_channel(g)


@unseen("int8", "ort_int8_dynamic", "wide_mm wide", "outlier_channel coarse", extra=("wide", "even"))
def one_channel_of_a_weight_at_run_time(g: Graph) -> Sequence[str]:
    return _one_channel(g)


class _OneZero:
    """A constant of which one channel is read with another zero point."""

    def __init__(self, name: str, channel: int, off: int) -> None:
        self.name, self.channel, self.off = name, channel, off

    def __call__(self, w: Any) -> Sequence[str]:
        made = perceptron_whole(w)
        zero = w.g.weights.get(f"{self.name}.z")
        if zero is not None and w.faults:
            zero[self.channel] = self.off
        return made


def quantised(*words: Any, **more: Any) -> None:
    _quantised(*words, cases=CASES, **more)


quantised("zero_point_of_one_channel", _OneZero("m2.w", 5, 40), "m2 h2 r2 q2", "zero_point files_differ",
          m2__w={"off": 0})  # fmt: skip
quantised("scale_of_one_layer_too_small", perceptron_whole, "m4 h4 r4 q4", "weight_clipped", m4__w={"clip": 0.2})
quantised("perceptron_that_is_right", perceptron_whole)


# --- two files


def sampled(g: Graph) -> Sequence[str]:
    """A classifier with what exporters get wrong: a resize, a pool, a gelu, a product, an index."""
    x = g.op("Relu", [g.conv(image(g), 3, 8, "c1")], "r1")
    x = g.op("Resize", [x, "", k(g, "sc", [1, 1, 1.5, 1.5])], "up", mode="linear",
             coordinate_transformation_mode="pytorch_half_pixel")  # fmt: skip
    x = g.op("AveragePool", [x], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], count_include_pad=0)
    x = g.op("Gelu", [g.conv(x, 8, 8, "c2", 2.0)], "gelu", approximate="none")
    x = g.op("Reshape", [x, ints(g, "s", 2, 8, -1)], "rows")
    x = g.op("Gather", [x, g.weight("last", np.array([-1, -12], np.int64))], "at", axis=2)
    x = g.op("Reshape", [x, ints(g, "s2", 2, 16)], "flat")
    w, b = g.weight("head.w", g.random.normal(size=(16, 16)) / 4), k(g, "head.b", g.random.normal(size=16))
    return [g.op("Gemm", [x, w, b], "y", transB=1)]


def _twenty(build: Callable[[Graph], Any]) -> Callable[[Graph], Any]:
    def made(g: Graph) -> Any:
        g.opset = 20
        return build(g)

    return made


sampled = _twenty(sampled)  # type: ignore[assignment]
pair("resize_asymmetric", sampled, _attribute("up", coordinate_transformation_mode="asymmetric"), "up")
pair("resize_asymmetric_fused", sampled, _attribute("up", coordinate_transformation_mode="asymmetric"), "up",
     mode="ort_opt")  # fmt: skip
pair("pool_counts_its_padding", sampled, _attribute("pool", count_include_pad=1), "pool")
pair("gelu_by_its_tanh", sampled, _attribute("gelu", approximate="tanh"), "gelu")
CASES[-1] = replace(CASES[-1], status=0)  # 6.7e-5 at the output: below what fails
pair("product_not_transposed", sampled, _attribute("y", transB=0), "y")
pair("one_index_off", sampled, weight("last", lambda i: i - 1), "at")


def folded(epsilon: float) -> Callable[[Graph], Sequence[str]]:
    """A convolution with its batch norm folded into it, of small variances."""

    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(image(g), 3, 8, "c1")], "r1")
        w = g.random.normal(size=(8, 8, 3, 3)) / np.sqrt(72)
        gain, variance = g.random.uniform(0.5, 1.5, 8), g.random.uniform(2e-3, 2e-2, 8)
        factor = 0.1 * gain / np.sqrt(variance + epsilon)
        x = g.op("Conv", [x, k(g, "c2.w", w * factor[:, None, None, None]), k(g, "c2.b", -0.3 * factor)], "c2",
                 pads=[1, 1, 1, 1])  # fmt: skip
        return [g.conv(g.op("Relu", [x], "r2"), 8, 4, "y")]

    return build


pair("folded_with_another_epsilon", folded(1e-3), folded(1e-5), "c2", other=True)
pair("folded_with_another_epsilon_fused", folded(1e-3), folded(1e-5), "c2 r2", other=True, mode="ort_opt")


def rounded(how: str) -> Callable[[Graph], Sequence[str]]:
    """Codes of a codebook: rounded, or cut off by the cast alone."""

    def build(g: Graph) -> Sequence[str]:
        x = g.op("Sigmoid", [g.dense(tokens(g), 32, 4, "a")], "s")
        code = g.op("Mul", [x, k(g, "levels", 30)], "code")
        if how:
            code = g.op(how, [code], "nearest")
        at = g.op("Cast", [code], "at", to=7)
        x = g.op("Gather", [k(g, "book", np.random.default_rng(4).normal(size=(31, 8))), at], "e")
        return [g.dense(g.op("ReduceMean", [x], "m", axes=[2], keepdims=0), 8, 5, "y")]

    return build


pair("cast_that_cuts_off", rounded("Round"), rounded(""), "at nearest code", "files_differ other_arithmetic flips",
     other=True)  # fmt: skip
pair("floor_in_place_of_round", rounded("Round"), rounded("Floor"), "nearest", "files_differ", other=True)


def indexed(kind: int) -> Callable[[Graph], Sequence[str]]:
    def build(g: Graph) -> Sequence[str]:
        value = g.input("ids", np.array([[3, 200, 17, 255], [129, 5, 1, 90]], np.int64))
        wide = g.op("Cast", [g.op("Cast", [value], "held", to=kind)], "wide", to=7)
        table = np.random.default_rng(8).normal(size=(300, 32))
        x = g.op("Gather", [k(g, "table", table), wide], "emb")
        return [g.dense(block(g, x, 32, "l0"), 32, 8, "y")]

    return build


pair("indices_held_in_int8", indexed(6), indexed(3), "held wide", other=True)


def gates(order: Sequence[int]) -> Callable[[Graph], Sequence[str]]:
    """An LSTM whose gates are stored in some order."""

    def build(g: Graph) -> Sequence[str]:
        x = g.op("Transpose", [tokens(g, 16, 6)], "steps", perm=[1, 0, 2])
        draw = np.random.default_rng(12)
        w, r = draw.normal(size=(1, 4, 16, 16)) / 4, draw.normal(size=(1, 4, 16, 16)) / 4
        w, r = (one[:, list(order)].reshape(1, 64, 16) for one in (w, r))
        g.nodes.append(helper.make_node("LSTM", [x, k(g, "w", w), k(g, "r", r)], ["lstm"], name="node_lstm",
                                        hidden_size=16))  # fmt: skip
        return [g.dense(g.op("Squeeze", ["lstm", ints(g, "one", 1)], "h"), 16, 4, "y")]

    return build


pair("gates_in_another_order", gates((0, 1, 2, 3)), gates((0, 2, 3, 1)), "lstm", other=True)


# --- healthy, and dangerous to look at


@unseen("healthy", f"{HALF} {CPU} ort_bf16_sim")
def just_below_the_largest(g: Graph) -> Sequence[str]:
    """Up to 50,000 in one place, and back."""
    x = g.op("Tanh", [g.dense(tokens(g), 32, 32, "a")], "t")
    x = g.op("Mul", [g.op("Mul", [x, k(g, "up", 50000)], "large"), k(g, "down", 1 / 50000)], "again")
    return [g.dense(x, 32, 6, "y")]


@unseen("healthy", f"{HALF} {CPU} ort_opt")
def mask_at_the_end_of_float16(g: Graph) -> Sequence[str]:
    mask = np.where(np.arange(8) < 6, 0, -65504).astype(np.float32)[None, None]
    x = g.attention(g.norm(tokens(g), 32, "n0"), 32, "a", g.weight("mask", mask))
    return [g.dense(g.norm(x, 32, "n"), 32, 8, "y")]


@unseen("healthy", FLOATS)
def minus_infinity_where_a_row_keeps_one(g: Graph) -> Sequence[str]:
    seen = g.input("seen", np.tril(np.ones((8, 8), bool))[None])
    x = g.norm(tokens(g), 32, "n")
    raw = g.op("MatMul", [g.dense(x, 32, 32, "q"), g.op("Transpose", [x], "t", perm=[0, 2, 1])], "raw")
    masked = g.op("Where", [seen, g.op("Mul", [raw, k(g, "d", 0.1)], "score"), k(g, "gone", -np.inf)], "masked")
    return [g.dense(g.op("MatMul", [g.op("Softmax", [masked], "p", axis=-1), x], "mix"), 32, 8, "y")]


@unseen("healthy", f"{HALF} {CPU} ort_bf16_sim")
def exponentials_up_to_e_ten(g: Graph) -> Sequence[str]:
    x = g.op("Mul", [g.op("Tanh", [g.dense(tokens(g), 32, 16, "a")], "t"), k(g, "ten", 4)], "large")
    e = g.op("Exp", [g.op("Add", [x, k(g, "six", 6)], "moved")], "e")
    return [g.op("Log", [g.op("Add", [e, k(g, "one", 1)], "e1")], "y")]


@unseen("healthy", FLOATS)
def epsilon_that_vanishes_beside_a_variance(g: Graph) -> Sequence[str]:
    """1e-12 is 0 in float16, and nothing beside a variance of one."""
    x = block(g, tokens(g), 32, "l0")
    ms = g.op("ReduceMean", [g.op("Mul", [x, x], "sq")], "ms", axes=[-1])
    n = g.op("Div", [x, g.op("Sqrt", [g.op("Add", [ms, k(g, "eps", 1e-12)], "var")], "root")], "n")
    return [g.dense(n, 32, 8, "y")]


@unseen("healthy", f"{HALF} {CPU} ort_bf16_sim")
def short_running_sum(g: Graph) -> Sequence[str]:
    x = g.op("Sigmoid", [g.dense(tokens(g, 32, 24), 32, 8, "a")], "s")
    run = g.op("CumSum", [x, g.weight("axis", np.int64(1))], "run")
    return [g.dense(g.op("Tanh", [g.op("Mul", [run, k(g, "m", 0.1)], "m1")], "t"), 8, 4, "y")]


@unseen("healthy", f"{FLOATS} ort_int8")
def gates_that_are_all_open(g: Graph) -> Sequence[str]:
    """A sigmoid at its end, in every channel: it passes all."""
    x = g.op("Relu", [g.conv(image(g), 3, 12, "stem")], "sr")
    for n in range(3):
        gate = g.op("Sigmoid", [g.op("Add", [g.conv(x, 12, 12, f"g{n}"), k(g, f"o{n}", 9)], f"far{n}")], f"gate{n}")
        x = g.op("Relu", [g.conv(g.op("Mul", [x, gate], f"m{n}"), 12, 12, f"c{n}")], f"r{n}")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "gap")], "flat"), 12, 5, "y")]


@unseen("healthy", "ort_fp16_sim ort_opt ort_int8_dynamic")
def dropout_that_is_off(g: Graph) -> Sequence[str]:
    x = tokens(g)
    for n in range(3):
        x = g.op("Dropout", [block(g, x, 32, f"l{n}"), k(g, f"r{n}", 0.5), g.weight(f"off{n}", np.bool_(False))],
                 f"d{n}")  # fmt: skip
    return [g.dense(x, 32, 8, "y")]


@unseen("healthy", "ort_int8")
def parts_of_one_size_joined(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(image(g), 3, 8, "stem")], "sr")
    a, b = (g.op("Relu", [g.conv(x, 8, 8, f"c{n}")], f"r{n}") for n in range(2))
    x = g.op("Concat", [a, b, x], "cat", axis=1)
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [g.conv(x, 24, 8, "last")], "gap")], "flat"), 8, 5, "y")]


@unseen("healthy", f"{HALF} ort_bf16_sim")  # ort_fp16 has no kernel in float16 for it: inconclusive
def long_mean(g: Graph) -> Sequence[str]:
    """The mean of 60,000 values, by the operator that is made for it."""
    x = g.input("x", g.random.normal(size=(4, 60000)).astype(np.float32) + 1)
    return [g.op("ReduceMean", [g.op("Tanh", [x], "t")], "y", axes=[-1])]


@unseen("healthy", "ort_fp16_sim ort_fp16")
def few_weights_that_are_subnormal(g: Graph) -> Sequence[str]:
    """Pruned weights, of which some are left at a millionth."""
    x = tokens(g)
    for n in range(3):
        x = g.mlp(x, 32, f"m{n}")
        g.weights[f"m{n}_up.w"][::3] *= 1e-6
    return [g.dense(g.norm(x, 32, "n"), 32, 6, "y")]


for on_cpu in (
    scores_overflow_before_their_mask, mean_by_hand_over_a_long_axis, power_of_a_loudness, softplus_by_hand,
    variance_of_an_image_as_a_difference, log_of_what_a_sigmoid_leaves,
):  # fmt: skip
    unseen("healthy", CPU)(on_cpu)


# --- dropout that is left on


@unseen("random", "ort_opt ort_fp16_sim", "drop y", "random")
def dropout_that_is_left_on(g: Graph) -> Sequence[str]:
    x = block(g, tokens(g), 32, "l0")
    x = g.op("Dropout", [x, k(g, "ratio", 0.2), g.weight("on", np.bool_(True))], "drop")
    return [g.dense(x, 32, 8, "y")]


CASES = [replace(one, baseline="ort_fp32", fix=False) if one.kind == "random" else one for one in CASES]
