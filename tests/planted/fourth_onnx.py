"""A fourth batch of faults in ONNX, many of them small in larger models; written and labelled before it was run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from planted.fourth_clean import block, residual
from planted.onnx_faults import Graph, image, tokens
from planted.onnx_further import ints, k
from planted.unseen import Unseen
from planted.unseen_onnx import llama_layer, rms
from planted.unseen_onnx import unseen as registered

CASES: list[Unseen] = []


def unseen(*words: Any, **more: Any) -> Callable[[Any], Any]:
    return registered(*words, cases=CASES, seed=43, **more)


def extra(*names: str, cases: int = 1) -> None:
    """Of the last cases, who may be accused besides."""
    for place in range(-cases, 0):
        CASES[place] = replace(CASES[place], extra=names)


# --- small faults: below what the type's allowance was


@unseen("cancellation", "ort_bf16_sim", "far", "cancellation amplified coarse")
def large_mean_before_a_norm(g: Graph) -> Sequence[str]:
    """One of four branches is moved by 60 before its norm."""
    x = block(g, tokens(g), 32, "l0")
    n = g.norm(g.op("Add", [x, k(g, "o", 60)], "far"), 32, "near")
    x = g.op("Add", [g.mlp(x, 32, "m"), n], "both")
    return [g.dense(x, 32, 8, "y")]


@unseen("cancellation", "ort_fp16_sim", "far", "cancellation amplified coarse")
def mean_of_a_thousand_before_a_norm(g: Graph) -> Sequence[str]:
    x = block(g, block(g, tokens(g), 32, "l0"), 32, "l1")
    n = g.norm(g.op("Add", [x, k(g, "o", 1500)], "far"), 32, "near")
    return [g.dense(g.mlp(n, 32, "m"), 32, 8, "y")]


@unseen("cancellation", "ort_bf16_sim ort_fp16_sim", "px1 px2 cx w half", "cancellation amplified coarse")
def widths_of_decoded_boxes(g: Graph) -> Sequence[str]:
    """Corners in pixels, and widths from their difference."""
    x = g.op("Relu", [g.conv(g.op("Relu", [g.conv(image(g), 3, 8, "stem")], "sr"), 8, 8, "c")], "r")
    cx = g.op("Mul", [g.op("Sigmoid", [g.conv(x, 8, 2, "at")], "as"), k(g, "px", 640)], "cx")
    w = g.op("Exp", [g.conv(x, 8, 2, "size")], "w")
    half = g.op("Mul", [w, k(g, "h", 0.5)], "half")
    x1, x2 = g.op("Sub", [cx, half], "px1"), g.op("Add", [cx, half], "px2")
    return [g.op("Sub", [x2, x1], "y")]


extra("px1", "px2", "cx", "half", cases=2)


@unseen("cancellation", "ort_bf16_sim", "total", "cancellation amplified coarse long_reduction")
def moving_average_of_a_running_sum(g: Graph) -> Sequence[str]:
    x = g.op("Sigmoid", [g.dense(tokens(g, 16, 200), 16, 16, "a")], "s")
    total = g.op("CumSum", [x, g.weight("axis", np.int64(1))], "total")
    late = g.op("Slice", [total, ints(g, "f", 8), ints(g, "t", 200), ints(g, "x1", 1)], "late")
    soon = g.op("Slice", [total, ints(g, "f2", 0), ints(g, "t2", 192), ints(g, "x2", 1)], "soon")
    mean = g.op("Mul", [g.op("Sub", [late, soon], "window"), k(g, "n", 1 / 8)], "mean")
    return [g.dense(mean, 16, 4, "y")]


@unseen("amplified", "ort_fp16_sim ort_bf16_sim", "phase", "amplified cancellation coarse")
def time_embedding_of_a_late_step(g: Graph) -> Sequence[str]:
    """sin of up to 900 in one branch of two."""
    t = g.input("t", np.array([[831.3], [412.7]], np.float32))
    phase = g.op("Mul", [t, k(g, "f", np.linspace(0.5, 1, 16))], "phase")
    emb = g.dense(g.op("Sin", [phase], "emb"), 16, 32, "te")
    emb = g.op("Reshape", [emb, ints(g, "s", 2, 1, 32)], "emb3")
    x = block(g, g.op("Add", [tokens(g), emb], "x0"), 32, "l0")
    return [g.dense(g.norm(x, 32, "n"), 32, 8, "y")]


extra("te", "te_mm", "t", cases=2)
for place in (-2, -1):  # the step itself is rounded as much as the phase that is made of it
    CASES[place] = replace(CASES[place], who=("phase", "t"))


@unseen("underflow", "ort_fp16_sim", "tiny", "underflow weight_underflow")
def one_branch_of_squares_that_vanish(g: Graph) -> Sequence[str]:
    x = block(g, tokens(g), 32, "l0")
    small = g.op("Mul", [x, k(g, "s", 2e-5)], "small")
    tiny = g.op("Mul", [small, small], "tiny")
    back = g.op("Mul", [tiny, k(g, "b", 2.5e9)], "back")
    return [g.dense(g.op("Add", [x, g.op("Mul", [back, k(g, "q", 0.05)], "part")], "both"), 32, 8, "y")]


CASES[-1] = replace(CASES[-1], why=("underflow", "weight_underflow", "weight_overflow", "overflow"),
                    who=("tiny", "back"), extra=("tiny", "back"))  # fmt: skip


@unseen("overflow", "ort_fp16_sim", "l2_a_raw", "overflow")
def logits_of_one_layer_overflow(g: Graph) -> Sequence[str]:
    x = tokens(g)
    for n in range(4):
        x = block(g, x, 32, f"l{n}")
    g.weights["l2_a_q.w"] *= 400
    g.weights["l2_a_k.w"] *= 400
    g.weights["l2_a_d"] = g.weights.get("l2_a_d", np.float32(1)) * 1.0
    g.weights["l2_a.d"] = np.float32(np.sqrt(32) * 160000)
    del g.weights["l2_a_d"]
    return [g.dense(g.norm(x, 32, "n"), 32, 8, "y")]


@unseen("overflow", "ort_fp16_sim", "b3_c1", "overflow weight_overflow")
def one_convolution_of_twelve(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(image(g), 3, 8, "stem")], "sr")
    for n in range(6):
        x = residual(g, x, 8, f"b{n}")
    g.weights["b3_c1.w"] *= 60000
    g.weights["b3_c2.w"] /= 60000
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "gap")], "flat"), 8, 4, "y")]


@unseen("overflow", "ort_fp16_sim", "l1_n2_sq", "overflow")
def square_in_a_root_mean_square(g: Graph) -> Sequence[str]:
    x = llama_layer(g, tokens(g), 32, "l0")
    g.weights["l0_o.w"] *= 1
    x = g.op("Mul", [x, k(g, "up", 90)], "scaled")
    x = llama_layer(g, x, 32, "l1")
    return [rms(g, x, 32, "y")]


# the last of three that overflow is the one that takes whole lines of the output away
CASES[-1] = replace(CASES[-1], who=("l1_n1_sq", "y_sq"), extra=("l1_n2_sq", "y_sq", "l1_n1_sq"), also=())


# --- INT8


@unseen("int8", "ort_int8", "n", "outlier_channel coarse")
def outlier_channel_of_sixty(g: Graph) -> Sequence[str]:
    """A norm's gain is 60 in one channel, which its reader hardly weighs."""
    x = g.mlp(tokens(g), 32, "a")
    n = g.norm(x, 32, "n")
    g.weights["n.g"][5] = 60
    y = g.dense(g.op("Relu", [g.dense(n, 32, 64, "up")], "act"), 64, 8, "y")
    g.weights["up.w"][5] /= 60
    return [y]


CASES[-1] = replace(CASES[-1], who=("n", "up_mm", "up"), extra=("n", "up_mm", "up", "act"))


@unseen("int8", "ort_int8", "l1_n2", "outlier_channel coarse")
def outlier_channel_in_one_layer_of_three(g: Graph) -> Sequence[str]:
    x = tokens(g)
    for n in range(3):
        x = block(g, x, 32, f"l{n}")
    g.weights["l1_n2.g"][7] = 80
    g.weights["l1_m_up.w"][7] /= 80
    return [g.dense(g.norm(x, 32, "n"), 32, 8, "y")]


CASES[-1] = replace(CASES[-1], who=("l1_n2", "l1_m_up_mm", "l1_m_up", "l1_m"), extra=("l1_n2", "l1_m_up_mm", "l1_m"))


@unseen("int8", "ort_int8_dynamic", "m1_up_mm m1_up gained", "outlier_channel coarse")
def dynamic_range_of_one_channel(g: Graph) -> Sequence[str]:
    x = g.mlp(g.norm(tokens(g), 32, "n"), 32, "m0")
    gain = np.ones(32)
    gain[3] = 200
    x = g.op("Mul", [x, k(g, "gain", gain)], "gained")
    y = g.mlp(x, 32, "m1")
    g.weights["m1_up.w"][3] /= 200
    return [g.dense(g.op("Div", [y, k(g, "gain2", gain)], "back"), 32, 8, "y")]


extra("m1_up_mm", "m1_up", "gained", "m1_down_mm")


@unseen("int8", "ort_int8", "a_masked", "mask_range outlier_channel")
def mask_of_a_billion(g: Graph) -> Sequence[str]:
    mask = np.zeros((2, 1, 8), np.float32)
    mask[:, :, 6:] = -1e9
    x = g.attention(g.norm(tokens(g), 32, "n"), 32, "a", g.weight("mask", mask))
    return [g.dense(g.mlp(x, 32, "m"), 32, 8, "y")]


CASES[-1] = replace(CASES[-1], who=("a_masked", "a_prob"), extra=("a_masked", "a_prob"))


@unseen("int8", "ort_int8", "b1_h", "coarse outlier_channel")
def one_pixel_makes_the_range(g: Graph) -> Sequence[str]:
    """One corner of a feature map is 300 times the rest, and is cut off afterwards."""
    x = g.op("Relu", [g.conv(image(g), 3, 8, "stem")], "sr")
    x = residual(g, x, 8, "b0")
    loud = np.ones((1, 1, 16, 16))
    loud[..., 0, 0] = 300
    x = g.op("Mul", [x, k(g, "loud", loud)], "shone")
    x = g.op("Slice", [x, ints(g, "f", 1), ints(g, "t", 16), ints(g, "ax", 2)], "cut")
    return [g.conv(x, 8, 4, "y")]


CASES[-1] = replace(CASES[-1], who=("shone", "cut"), extra=("shone", "cut"))


# --- errors that are not felt, and errors that are, side by side


@unseen("cancellation", "ort_bf16_sim", "far2", "cancellation amplified coarse")
def two_offsets_of_which_one_matters(g: Graph) -> Sequence[str]:
    x = g.mlp(tokens(g), 32, "a")
    one = g.op("Sub", [g.op("Add", [x, k(g, "o1", 500)], "far1"), k(g, "p1", 500)], "near1")
    two = g.op("Sub", [g.op("Add", [x, k(g, "o2", 80)], "far2"), k(g, "p2", 80)], "near2")
    both = g.op("Add", [g.op("Mul", [one, k(g, "t", 1e-6)], "little"), two], "both")
    return [g.dense(g.mlp(both, 32, "m"), 32, 8, "y")]


@unseen("nan", "ort_fp16_sim", "big", "overflow")
def infinity_times_zero(g: Graph) -> Sequence[str]:
    x = block(g, tokens(g), 32, "l0")
    big = g.op("Mul", [g.op("Abs", [x], "abs"), k(g, "k", 3e5)], "big")
    gate = g.op("Relu", [g.dense(x, 32, 32, "gd")], "gate")
    return [g.dense(g.op("Mul", [g.op("Mul", [big, gate], "prod"), k(g, "s", 1e-6)], "sc"), 32, 8, "y")]


CASES[-1] = replace(CASES[-1], why=("overflow", "weight_overflow"), extra=("prod",))


@unseen("nan", "ort_fp16_sim", "y", "overflow weight_overflow")
def two_elements_of_the_output_overflow(g: Graph) -> Sequence[str]:
    x = g.dense(tokens(g), 32, 8, "a")
    scale = np.ones(8)
    scale[[2, 5]] = 3e5
    return [g.op("Mul", [g.op("Add", [g.op("Abs", [x], "abs"), k(g, "one", 1)], "more"), k(g, "sc", scale)], "y")]


@unseen("nan", "ort_fp16_sim", "root", "underflow weight_underflow born")
def root_of_what_became_zero(g: Graph) -> Sequence[str]:
    x = block(g, tokens(g), 32, "l0")
    small = g.op("Mul", [x, k(g, "s", 1e-5)], "small")
    var = g.op("ReduceMean", [g.op("Mul", [small, small], "sq")], "var", axes=[-1])
    root = g.op("Sqrt", [var], "root")
    return [g.dense(g.op("Div", [small, root], "y0"), 32, 8, "y")]


CASES[-1] = replace(CASES[-1], who=("sq", "var"), why=("underflow",), extra=("var", "sq", "y0", "root"))
