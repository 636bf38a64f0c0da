"""A fifth batch in ONNX: quantised files that are wrong in one place, constants that a cast rounds, layouts with equal
sides, and healthy models of other kinds; written and labelled before any of it was run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from planted.fourth_clean import block, residual
from planted.fourth_files import conv_net, encoder
from planted.onnx_faults import Array, Graph, _attribute, image, tokens
from planted.onnx_further import _put, ints, k
from planted.unseen import Unseen
from planted.unseen_files import pair as two_files
from planted.unseen_files import weight
from planted.unseen_onnx import llama_layer, rms, silu
from planted.unseen_onnx import unseen as registered

CASES: list[Unseen] = []


def unseen(*words: Any, **more: Any) -> Callable[[Any], Any]:
    return registered(*words, cases=CASES, seed=59, **more)


def pair(*words: Any, **more: Any) -> None:
    two_files(*words, cases=CASES, **more)


FLOATS = "ort_fp16_sim ort_bf16_sim"


# --- quantised files by hand, beside the float model that they were made of


class Whole:
    """A perceptron with a norm or a small residual net, in INT8 as a quantiser writes it, or in float."""

    def __init__(self, g: Graph, *, whole: bool, faults: dict[str, dict[str, Any]]) -> None:
        self.g, self.whole, self.faults = g, whole, faults
        self.random = np.random.default_rng(71)

    def held(self, x: str, out: str, low: float, high: float) -> str:
        """A tensor in uint8 of a range."""
        if not self.whole:
            return self.g.op("Identity", [x], out)
        fault = self.faults.get(out, {})
        scale = (high - low) / 255 * fault.get("times", 1.0)
        zero = fault.get("zero", round(-low / scale))
        s, z = k(self.g, f"{out}.s", scale), self.g.weight(f"{out}.z", np.uint8(zero))
        read = self.g.weight(f"{out}.z2", np.uint8(zero + fault["off"])) if "off" in fault else z
        self.g.op("QuantizeLinear", [x, s, z], f"{out}_q")
        return self.g.op("DequantizeLinear", [f"{out}_q", s, read], out)

    def constant(self, name: str, value: Array, axis: int | None = None) -> str:
        """A weight in int8, of one scale or one for each channel."""
        if not self.whole:
            return self.g.weight(name, value.astype(np.float32))
        fault = self.faults.get(name, {})
        others = tuple(n for n in range(value.ndim) if n != axis)
        scale = np.abs(value).max(axis=others if axis is not None else None) / 127 * fault.get("clip", 1.0)
        scale = scale.astype(np.float32)
        shape = [-1 if n == axis else 1 for n in range(value.ndim)] if axis is not None else []
        stored = np.clip(np.round(value / scale.reshape(shape)), -127, 127).astype(np.int8)
        if "rolled" in fault:
            stored = np.roll(stored, 1, axis=0)
        zero = np.full(scale.shape, fault.get("off", 0), np.int8)
        self.g.weight(f"{name}.q", stored)
        more = {} if axis is None else {"axis": axis}
        made = [f"{name}.q", self.g.weight(f"{name}.s", scale), self.g.weight(f"{name}.z", zero)]
        return self.g.op("DequantizeLinear", made, name, **more)

    def bias(self, name: str, size: int, unit: float) -> str:
        value = (self.random.normal(size=size) * 0.1).astype(np.float32)
        if not self.whole:
            return self.g.weight(name, value)
        fault = self.faults.get(name, {})
        steps = np.clip(np.round(value / np.float32(unit)) * fault.get("times", 1.0), -(2**31), 2**31 - 1)
        if fault.get("zeroed"):
            steps *= 0
        self.g.weight(f"{name}.q", steps.astype(np.int64).clip(-(2**31), 2**31 - 1).astype(np.int32))
        return self.g.op("DequantizeLinear", [f"{name}.q", k(self.g, f"{name}.s", unit)], name)


def residual_whole(w: Whole) -> Sequence[str]:
    """A stem and three blocks of two convolutions, each with a bias, and a classifier."""
    g = w.g
    x, step = w.held(image(g), "xq", -4.0, 4.0), 8 / 255

    def conv(x: str, inside: int, out: str, step: float) -> str:
        value = w.random.normal(size=(8, inside, 3, 3)) / np.sqrt(9 * inside) * 1.2
        kernel = w.constant(f"{out}.w", value, None)
        unit = step * float(np.abs(value).max()) / 127
        return g.op("Conv", [x, kernel, w.bias(f"{out}.b", 8, unit)], out, pads=[1, 1, 1, 1])

    x = w.held(g.op("Relu", [conv(x, 3, "c0", step)], "r0"), "q0", 0.0, 8.0)
    step = 8 / 255
    for n in range(1, 4):
        h = w.held(g.op("Relu", [conv(x, 8, f"a{n}", step)], f"ar{n}"), f"aq{n}", 0.0, 8.0)
        h = w.held(conv(h, 8, f"b{n}", step), f"bq{n}", -8.0, 8.0)
        x = w.held(g.op("Relu", [g.op("Add", [x, h], f"s{n}")], f"r{n}"), f"q{n}", 0.0, 8.0)
    flat = g.op("Flatten", [g.op("GlobalAveragePool", [x], "gap")], "flat")
    return [g.dense(flat, 8, 5, "y")]


def perceptron_whole(w: Whole) -> Sequence[str]:
    """Six dense layers, weights quantised for each channel."""
    g = w.g
    x = w.held(tokens(g), "xq", -4.0, 4.0)
    for n in range(6):
        value = w.random.normal(size=(32, 32)) / np.sqrt(32) * 1.3
        h = g.op("MatMul", [x, w.constant(f"m{n}.w", value, 1)], f"m{n}")
        h = g.op("Relu", [g.op("Add", [h, k(g, f"m{n}.b", w.random.normal(size=32) * 0.1)], f"h{n}")], f"r{n}")
        x = w.held(h, f"q{n}", 0.0, 6.0)
    return [g.dense(x, 32, 6, "y")]


def quantised(name: str, build: Any, who: str = "", why: str = "", *, modes: str = "ort_fp32 ort_opt",
              cases: list[Unseen] = CASES, **faults: dict[str, Any]) -> None:  # fmt: skip
    """A quantised file with a fault, beside the float model. faults: by tensor, ``__`` for a dot in its name."""
    wrong = {key.replace("__", "."): fault for key, fault in faults.items()}
    for mode in modes.split():

        def make(folder: Path) -> tuple[Path, Path, dict[str, Array]]:
            plain, made = Graph(seed=9), Graph(seed=9)
            base = plain.save(folder / "base.onnx", build(Whole(plain, whole=False, faults={})))
            return made.save(folder / f"{name}.onnx", build(Whole(made, whole=True, faults=wrong))), base, plain.feeds

        cases.append(Unseen(name=name, kind="quantised" if who else "healthy", mode=mode, make=make, fix=False,
                            who=tuple(who.split()), why=tuple(why.split()), status=int(bool(who)),
                            baseline="ort_fp32"))  # fmt: skip


quantised("residual_net_in_integers", residual_whole)
quantised("perceptron_in_integers", perceptron_whole)
quantised("weights_clipped_in_a_block", residual_whole, "a2 ar2 aq2", "weight_clipped", a2__w={"clip": 0.25})
quantised("weights_clipped_for_each_channel", perceptron_whole, "m3 h3 r3 q3", "weight_clipped", m3__w={"clip": 0.3})
quantised("weights_read_with_another_zero", residual_whole, "b1", "zero_point", b1__w={"off": 30})
quantised("weights_of_the_next_channel", residual_whole, "a3 ar3 aq3", "files_differ", a3__w={"rolled": True})
quantised("tensor_read_with_another_zero", residual_whole, "aq2 ar2", "zero_point", aq2={"off": 25})
# fused, the convolution that reads it does it: its own zero point of its input is no constant that is looked at
CASES[-1] = replace(CASES[-1], who=("b2",), why=("other_arithmetic",))
quantised("tensor_of_a_small_range", perceptron_whole, "q2 r2 h2", "saturation", q2={"times": 0.1})
quantised("tensor_of_a_wide_range", residual_whole, "q2", "coarse", q2={"times": 24.0})
for place in (-2, -1):  # under 3 units at the output: it is named, and the run passes
    CASES[place] = replace(CASES[place], status=0)
CASES[-1] = replace(CASES[-1], who=(), why=())  # fused, less than the prediction reaches the output
quantised("bias_at_its_end", residual_whole, "a1 ar1 aq1", "bias_clipped", a1__b={"times": 1e9})
quantised("bias_three_times_too_large", residual_whole, "b2", "files_differ", b2__b={"times": 12.0})


# --- constants that a cast rounds


@unseen("amplified", "ort_fp16_sim", "late", "amplified")
def positions_of_a_long_context(g: Graph) -> Sequence[str]:
    """Angles of late positions: the inverse frequencies are rounded."""
    x = block(g, tokens(g, 32, 128), 32, "l0")
    at = g.input("at", np.arange(1024, 1152, dtype=np.float32)[:, None])
    late = g.op("Mul", [at, g.weight("inv_freq", (1 / 500 ** (np.arange(0, 32, 2) / 32))[None])], "late")
    turn = g.op("Concat", [g.op("Cos", [late], "cos"), g.op("Sin", [late], "sin")], "turn", axis=1)
    return [g.dense(g.op("Mul", [x, turn], "rotated"), 32, 8, "y")]


CASES[-1] = replace(CASES[-1], says="inv_freq")


@unseen("weight_underflow", "ort_fp16_sim", "bn", "weight_underflow")
def variance_of_dead_channels(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(image(g), 3, 8, "stem")], "sr")
    stats = {"s": np.ones(8), "b": np.full(8, 0.1), "m": np.zeros(8), "v": np.array([1, 1, 2e-9, 1, 1, 1, 3e-9, 1])}
    x = g.op("Mul", [x, k(g, "dead", np.array([1, 1, 3e-5, 1, 1, 1, 3e-5, 1])[None, :, None, None])], "gated")
    names = [g.weight(f"bn.{key}", value.astype(np.float32)) for key, value in stats.items()]
    x = g.op("BatchNormalization", [x, *names], "bn", epsilon=1e-10)
    return [g.conv(g.op("Tanh", [x], "t"), 8, 4, "y")]


@unseen("overflow", "ort_fp16_sim", "far_raw", "overflow")
def scores_without_a_scale(g: Graph) -> Sequence[str]:
    x = block(g, tokens(g), 32, "l0")
    q, kk = g.dense(x, 32, 32, "q", 90.0), g.dense(x, 32, 32, "k", 90.0)
    raw = g.op("MatMul", [q, g.op("Transpose", [kk], "kt", perm=[0, 2, 1])], "far_raw")
    prob = g.op("Softmax", [g.op("Mul", [raw, k(g, "s", 1e-5)], "score")], "prob", axis=-1)
    return [g.dense(g.op("MatMul", [prob, x], "mixed"), 32, 8, "y")]


@unseen("cancellation", FLOATS, "sum_of_squares square_of_mean squared", "cancellation amplified coarse")
def variance_as_a_difference(g: Graph) -> Sequence[str]:
    """E[x^2] - E[x]^2 with a mean of 20."""
    x = g.op("Add", [g.dense(tokens(g), 32, 32, "a"), k(g, "far", 20)], "moved")
    squared = g.op("Mul", [x, x], "squared")
    first = g.op("ReduceMean", [squared], "sum_of_squares", axes=[-1])
    mean = g.op("ReduceMean", [x], "mean", axes=[-1])
    second = g.op("Mul", [mean, mean], "square_of_mean")
    return [g.op("Sub", [first, second], "y")]


for place in (-2, -1):
    CASES[place] = replace(
        CASES[place], who=("sum_of_squares", "square_of_mean", "squared", "mean", "moved"),
        extra=("sum_of_squares", "square_of_mean", "squared", "mean", "moved", "a"), fix=False,
    )


@unseen("underflow", "ort_fp16_sim", "tail", "underflow")
def probabilities_that_vanish_before_a_root(g: Graph) -> Sequence[str]:
    x = g.op("Mul", [g.op("Sigmoid", [g.dense(tokens(g), 32, 16, "a")], "s"), k(g, "tiny", 3e-5)], "low")
    tail = g.op("Mul", [x, x], "tail")
    return [g.dense(g.op("Mul", [g.op("Sqrt", [tail], "root"), k(g, "back", 4e4)], "again"), 16, 4, "y")]


@unseen("int8", "ort_int8", "masked", "mask_range")
def padding_mask_in_int8(g: Graph) -> Sequence[str]:
    x = g.norm(tokens(g), 32, "n")
    q, kk = g.dense(x, 32, 32, "q"), g.dense(x, 32, 32, "k")
    raw = g.op("MatMul", [q, g.op("Transpose", [kk], "kt", perm=[0, 2, 1])], "raw")
    mask = np.where(np.arange(8) < 6, 0, -1e9).astype(np.float32)[None, None]
    score = g.op("Add", [g.op("Mul", [raw, k(g, "s", 0.18)], "score"), g.weight("mask", mask)], "masked")
    prob = g.op("Softmax", [score], "prob", axis=-1)
    return [g.dense(g.op("MatMul", [prob, x], "mixed"), 32, 8, "y")]


CASES[-1] = replace(CASES[-1], extra=("masked", "prob"), who=("masked", "prob"))


@unseen("int8", "ort_int8", "x m", "outlier_channel")
def channel_of_the_residual_stream(g: Graph) -> Sequence[str]:
    x = tokens(g)
    g.feeds["x"][..., 11] *= 80
    return [g.dense(g.norm(g.mlp(x, 32, "m"), 32, "n"), 32, 8, "y")]


# under 3 units, which an outlier makes large itself: it is named, and the run passes
CASES[-1] = replace(CASES[-1], extra=("x", "m", "m_up"), fix=False, status=0)


@unseen("int8", "ort_int8", "grown", "outlier_channel coarse")
def channel_in_front_of_equal_sides(g: Graph) -> Sequence[str]:
    """As many channels as lines and columns."""
    x = g.input("x", g.random.normal(size=(1, 16, 16, 16)).astype(np.float32))
    x = g.op("Relu", [g.conv(x, 16, 16, "c0")], "r0")
    factor = np.ones((1, 16, 1, 1))
    factor[0, 3] = 2500
    grown = g.op("Mul", [x, k(g, "f", factor)], "grown")
    x = g.op("Mul", [grown, k(g, "back", 1 / factor)], "shrunk")
    x = g.op("Relu", [g.conv(x, 16, 16, "c1")], "r1")
    return [g.op("GlobalAveragePool", [g.conv(x, 16, 16, "c2")], "y")]


CASES[-1] = replace(CASES[-1], extra=("grown", "shrunk"), fix=False)


@unseen("nan", "ort_fp16_sim", "e", "overflow")
def log_of_a_sum_of_exponentials(g: Graph) -> Sequence[str]:
    e = g.op("Exp", [g.dense(tokens(g), 32, 16, "a", 6.0)], "e")
    s = g.op("ReduceSum", [e, g.weight("axes", np.array([-1]))], "s")
    return [g.op("Log", [s], "y")]


CASES[-1] = replace(CASES[-1], extra=("e", "s"))


# --- two files

pair("value_projection_transposed", encoder, weight("l1_a_v.w", lambda w: w.T), "l1_a_v_mm")
CASES[-1] = replace(CASES[-1], says="transposed")
pair("kernel_transposed_in_its_plane", conv_net, weight("b2_c1.w", lambda w: w.transpose(0, 1, 3, 2)), "b2_c1")
CASES[-1] = replace(CASES[-1], says="transposed")
pair("down_projection_of_another_layer", encoder, lambda g: g.weights.update({"l2_m_down.w": g.weights["l0_m_down.w"]}),
     "l2_m_down_mm")  # fmt: skip
pair("gain_left_out", encoder, lambda g: g.weights.update({"l1_n2.g": g.weights["l1_n2.g"] * 0.8}), "l1_n2")
pair("bias_of_the_classifier", conv_net, _put("y.b", slice(0, 2), 0.7), "y")
pair("epsilon_of_a_norm_is_large", encoder, _attribute("l1_n1", epsilon=0.1), "l1_n1")
for mode in FLOATS.split():
    pair(f"transposed_and_narrow_{mode}", encoder, weight("l0_a_q.w", lambda w: w.T), "l0_a_q_mm", mode=mode, fix=False)


def ids(kind: int) -> Callable[[Graph], Sequence[str]]:
    def build(g: Graph) -> Sequence[str]:
        value = g.input("ids", np.array([[7, 2**31 + 11, 3, 2**34 + 1], [5, 1, 2**32 + 9, 2]], np.int64))
        wide = g.op("Cast", [g.op("Cast", [value], "held", to=kind)], "wide", to=7)
        slot = g.op("Mod", [wide, g.weight("buckets", np.int64(97))], "slot")
        table = np.random.default_rng(8).normal(size=(97, 32)).astype(np.float32)
        x = g.op("Gather", [g.weight("table", table), slot], "emb")
        return [g.dense(block(g, x, 32, "l0"), 32, 8, "y")]

    return build


pair("ids_beyond_int32", ids(7), ids(6), "slot held", "files_differ", other=True)


# --- healthy, of other kinds


@unseen("healthy", f"{FLOATS} ort_int8")
def unet_with_gates(g: Graph) -> Sequence[str]:
    """Equal sides everywhere: 16 channels, 16 lines, 16 columns."""
    x = g.input("x", g.random.normal(size=(1, 16, 16, 16)).astype(np.float32))
    a = g.op("Relu", [g.conv(x, 16, 16, "c0")], "r0")
    d = g.op("Relu", [g.conv(g.op("MaxPool", [a], "mp", kernel_shape=[2, 2], strides=[2, 2]), 16, 16, "c1")], "r1")
    u = g.op("Resize", [d, "", k(g, "sc", [1, 1, 2, 2])], "up", mode="nearest")
    gate = g.op("Mul", [u, g.op("Sigmoid", [g.conv(a, 16, 16, "gate")], "sg")], "gated")
    z = g.op("Relu", [g.conv(g.op("Concat", [gate, a], "cat", axis=1), 32, 16, "c2")], "r2")
    return [g.conv(g.op("Add", [z, a], "sum"), 16, 16, "y")]


@unseen("healthy", f"{FLOATS} ort_int8 ort_opt")
def resnet_with_casts(g: Graph) -> Sequence[str]:
    x = image(g)
    for n in range(5):
        h = g.conv(x, 8 if n else 3, 8, f"c{n}")
        h = g.op("Cast", [g.op("Cast", [h], f"c{n}_16", to=10)], f"c{n}_32", to=1)
        x = g.op("Relu", [h if not n else g.op("Add", [h, x], f"s{n}")], f"r{n}")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "gap")], "flat"), 8, 5, "y")]


@unseen("healthy", f"{FLOATS} ort_int8_dynamic")
def llama_of_five_layers(g: Graph) -> Sequence[str]:
    x = tokens(g, 32, 10)
    for n in range(5):
        x = llama_layer(g, x, 32, f"l{n}", length=10)
    return [g.dense(rms(g, x, 32, "n"), 32, 40, "y")]


@unseen("healthy", f"{FLOATS} ort_int8 ort_int8_dynamic")
def tokens_and_channels(g: Graph) -> Sequence[str]:
    """ConvNeXt: a depthwise convolution, a norm over channels last, two dense layers."""
    x = g.conv(image(g), 3, 16, "stem")
    for n in range(4):
        deep = g.weight(f"d{n}.w", g.random.normal(size=(16, 1, 3, 3)) / 3)
        h = g.op("Conv", [x, deep], f"d{n}", group=16, pads=[1, 1, 1, 1])
        h = g.norm(g.op("Transpose", [h], f"t{n}", perm=[0, 2, 3, 1]), 16, f"n{n}")
        h = g.dense(silu(g, g.dense(h, 16, 32, f"u{n}"), f"a{n}"), 32, 16, f"w{n}")
        x = g.op("Add", [x, g.op("Transpose", [h], f"b{n}", perm=[0, 3, 1, 2])], f"x{n}")
    return [g.dense(g.op("ReduceMean", [x], "mean", axes=[2, 3], keepdims=0), 16, 6, "y")]


@unseen("healthy", FLOATS)
def exponential_average_of_many_steps(g: Graph) -> Sequence[str]:
    """A recurrence that is written out: each state is most of the one before."""
    x = g.op("Tanh", [g.dense(tokens(g, 32, 24), 32, 32, "a")], "t")
    state = g.op("Slice", [x, ints(g, "f", 0), ints(g, "e", 1), ints(g, "ax", 1)], "s0")
    for n in range(1, 24):
        now = g.op("Slice", [x, ints(g, f"f{n}", n), ints(g, f"e{n}", n + 1), ints(g, f"x{n}", 1)], f"i{n}")
        kept = g.op("Mul", [state, k(g, f"k{n}", 0.7)], f"k{n}o")
        state = g.op("Add", [kept, g.op("Mul", [now, k(g, f"g{n}", 0.3)], f"g{n}o")], f"s{n}")
    return [g.dense(state, 32, 6, "y")]


@unseen("healthy", f"{FLOATS} ov_bf16")
def detector_with_anchors(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(image(g), 3, 12, "stem")], "sr")
    for n in range(3):
        x = residual(g, x, 12, f"b{n}")
    size = g.op("Exp", [g.op("Mul", [g.op("Tanh", [g.conv(x, 12, 4, "box")], "bt"), k(g, "h", 0.7)], "bh")], "size")
    score = g.op("Sigmoid", [g.conv(x, 12, 4, "cls")], "score")
    return [g.op("Concat", [g.op("Mul", [size, k(g, "anchor", 16)], "wide"), score], "y", axis=1)]


@unseen("benign", f"{FLOATS} ort_int8_dynamic")
def mask_of_the_largest_number(g: Graph) -> Sequence[str]:
    """-3.4e38 in a weight, as exporters write it."""
    x = tokens(g)
    mask = np.where(np.arange(8) < 5, 0, np.finfo(np.float32).min)[None, None]
    x = g.attention(g.norm(x, 32, "n0"), 32, "a", g.weight("mask", mask.astype(np.float32)))
    return [g.dense(g.norm(x, 32, "n"), 32, 8, "y")]


@unseen("benign", FLOATS)
def tiny_branch_that_is_added(g: Graph) -> Sequence[str]:
    """A branch that underflows and is nothing beside the other one."""
    x = block(g, tokens(g), 32, "l0")
    low = g.op("Mul", [g.op("Sigmoid", [g.dense(x, 32, 32, "b")], "bs"), k(g, "t", 1e-7)], "low")
    return [g.dense(g.op("Add", [x, g.op("Mul", [low, low], "lower")], "both"), 32, 8, "y")]
