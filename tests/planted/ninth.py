"""A ninth batch, of kinds that the others lack; written and labelled before any of it was run: reductions, sequences,
normalisations and tables in ONNX, two files, a PyTorch model in bfloat16, OpenVINO, with healthy ones. Where a label
was wrong a comment says what it was."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from planted.onnx_faults import Graph, _attribute, image, tokens
from planted.onnx_further import ints, k
from planted.torch_faults import Net, linear
from planted.torch_faults import tokens as torch_tokens
from planted.unseen import Unseen
from planted.unseen_files import pair, weight
from planted.unseen_onnx import unseen as registered
from planted.unseen_torch import unseen as of_torch

CASES: list[Unseen] = []

HALF, OTHER = "ort_fp16_sim", "files_differ other_arithmetic"


def unseen(*words: Any, **more: Any) -> Any:
    return registered(*words, cases=CASES, seed=211, **more)


# --- float16: reductions, products and tables


@unseen("overflow", HALF, "energy", "overflow")
def energy_of_a_frame(g: Graph) -> Sequence[str]:
    """A sum of squares over 400 samples of a loud frame, then its decibels."""
    x = g.input("x", (30 * g.random.normal(size=(12, 400))).astype(np.float32))
    energy = g.op("ReduceSumSquare", [x], "energy", axes=[1], keepdims=1)
    level = g.op("Log", [g.op("Mul", [energy, k(g, "per", 1 / 400)], "mean")], "level")
    return [g.dense(level, 1, 6, "y")]


@unseen("underflow", HALF, "joint", "underflow", extra=("joint", "log"))
def product_of_probabilities(g: Graph) -> Sequence[str]:
    """Twelve chances of a tenth are multiplied before their logarithm is taken."""
    x = g.input("x", g.random.uniform(0.05, 0.2, size=(16, 12)).astype(np.float32))
    joint = g.op("ReduceProd", [x], "joint", axes=[1], keepdims=1)
    return [g.op("Log", [joint], "log")]


@unseen("overflow", HALF, "mixed", "overflow")
def contraction_of_large_factors(g: Graph) -> Sequence[str]:
    a = g.input("x", (90 * g.random.normal(size=(2, 8, 64))).astype(np.float32))
    b = k(g, "b", 60 * g.random.normal(size=(2, 64, 8)))
    mixed = g.op("Einsum", [a, b], "mixed", equation="bij,bjk->bik")
    return [g.dense(g.op("Mul", [mixed, k(g, "down", 1e-4)], "even"), 8, 6, "y")]


@unseen("coarse", HALF, "ahead minutes", "coarse cancellation amplified cancels rounded_constant",
        extra=("ahead", "minutes", "phase", "x"))  # fmt: skip
def minutes_since_an_epoch(g: Graph) -> Sequence[str]:
    """A time of some 3000.4 is made in the model and taken away again: what is left is the minute."""
    x = g.input("x", g.random.uniform(0, 1, size=(8, 16)).astype(np.float32))
    ahead = g.op("Add", [x, k(g, "epoch", 3000.4)], "ahead")
    minutes = g.op("Sub", [ahead, k(g, "start", 3000.0)], "minutes")
    return [g.dense(g.op("Sin", [g.op("Mul", [minutes, k(g, "turn", 6.2832)], "phase")], "wave"), 16, 6, "y")]


@unseen("underflow", HALF, "scaled", "underflow weight_underflow weight_subnormal", extra=("scaled", "back"))
def decay_of_a_billionth(g: Graph) -> Sequence[str]:
    x = g.dense(tokens(g), 32, 32, "a")
    scaled = g.op("Mul", [x, k(g, "nano", 2e-9)], "scaled")
    back = g.op("Mul", [scaled, k(g, "most", 6e4)], "back")
    return [g.dense(g.op("Mul", [back, k(g, "rest", 8000.0)], "even"), 32, 6, "y")]


@unseen("overflow", HALF, "heat", "overflow")
def fourth_power_of_a_temperature(g: Graph) -> Sequence[str]:
    x = g.input("x", g.random.uniform(14, 22, size=(8, 16)).astype(np.float32))
    heat = g.op("Pow", [x, k(g, "four", 4)], "heat")
    return [g.dense(g.op("Mul", [heat, k(g, "sigma", 5e-6)], "flux"), 16, 6, "y")]


@unseen("healthy", HALF)
def weighted_attention_over_a_triangle(g: Graph) -> Sequence[str]:
    x = g.norm(tokens(g), 32, "n")
    q, key, v = (g.dense(x, 32, 32, one) for one in "qkv")
    raw = g.op("Einsum", [q, key], "raw", equation="bid,bjd->bij")
    low = g.op("Trilu", [g.op("Mul", [raw, k(g, "d", 32**-0.5)], "score")], "low", upper=0)
    total = g.op("ReduceL1", [low], "total", axes=[2], keepdims=1)
    return [g.dense(g.op("MatMul", [g.op("Div", [low, total], "share"), v], "mixed"), 32, 6, "y")]


@unseen("healthy", HALF)
def largest_of_a_window(g: Graph) -> Sequence[str]:
    x = g.conv(image(g), 3, 8, "c1")
    x = g.op("LpPool", [g.op("Celu", [x], "act")], "pool", kernel_shape=[2, 2], strides=[2, 2])
    x = g.op("ReduceLogSumExp", [g.conv(x, 8, 8, "c2")], "soft", axes=[2, 3], keepdims=0)
    return [g.dense(x, 8, 6, "y")]


# --- float16 as it is deployed on a CPU: weights alone


# labelled far_mm: the activation behind it ends the region
@unseen("weights", "ort_fp16", "far_mm t", "weight_overflow rounded_constant", extra=("far_mm", "far", "t"))
def weight_of_a_rare_feature(g: Graph) -> Sequence[str]:
    """A feature of a millionth has a weight of 2e5, which the converter cuts to 65504."""
    x = g.random.normal(size=(8, 16)).astype(np.float32)
    x[:, 3] *= 1e-5
    h = g.dense(g.input("x", x), 16, 16, "far")
    g.weights["far.w"][3] = 2e5 * np.abs(g.weights["far.w"][3]) / np.abs(g.weights["far.w"][3]).max() + 1e5
    return [g.dense(g.op("Tanh", [h], "t"), 16, 6, "y")]


@unseen("healthy", "ort_fp16")
def gated_convolutions(g: Graph) -> Sequence[str]:
    x = g.conv(image(g), 3, 8, "c1")
    x = g.op("Mul", [x, g.op("HardSigmoid", [g.conv(x, 8, 8, "gate")], "open")], "gated")
    x = g.op("GlobalAveragePool", [g.op("Elu", [x], "act")], "pool")
    return [g.dense(g.op("Flatten", [x], "flat"), 8, 6, "y")]


# --- INT8


@unseen("int8", "ort_int8", "emb x_rows", "outlier_channel", extra=("emb", "n", "first_mm", "first"))
def row_of_an_embedding(g: Graph) -> Sequence[str]:
    """One token's row is 300 times as long as any other, and every sentence has it."""
    table = g.random.normal(size=(50, 32))
    table[7] *= 300
    rows = np.concatenate([np.full((4, 1), 7), g.random.integers(8, 50, size=(4, 7))], 1)
    ids = g.input("ids", rows.astype(np.int64))
    emb = g.op("Gather", [k(g, "table", table), ids], "emb")
    h = g.op("Tanh", [g.dense(emb, 32, 32, "first")], "t")
    return [g.dense(h, 32, 6, "y")]


# labelled a constant with one scale: ONNX Runtime folds the gain behind it into the filters, which are even then
@unseen("healthy", "ort_int8", options=["--option", "per_channel=false"])
def depthwise_filters_of_unlike_size(g: Graph) -> Sequence[str]:
    x = g.conv(image(g), 3, 8, "c1")
    filters = g.random.normal(size=(8, 1, 3, 3)) / 3 * 10.0 ** -np.linspace(0, 4, 8)[:, None, None, None]
    x = g.op("Conv", [x, k(g, "deep.w", filters)], "deep", pads=[1, 1, 1, 1], group=8)
    gain = k(g, "gain", 10.0 ** np.linspace(0, 4, 8)[None, :, None, None])
    x = g.op("Mul", [x, gain], "even")
    pool = g.op("Flatten", [g.op("GlobalMaxPool", [g.op("Tanh", [x], "t")], "pool")], "flat")
    return [g.dense(pool, 8, 6, "y")]


# labelled coarse: the quantiser leaves Exp and what it gives in float
@unseen("healthy", "ort_int8")
def odds_of_near_certainty(g: Graph) -> Sequence[str]:
    """p / (1 - p) of chances up to 0.9999: the logarithm of a range of 10,000 in 256 steps."""
    x = g.dense(tokens(g), 32, 32, "a", scale=3.0)
    e = g.op("Exp", [x], "odds")
    return [g.dense(g.op("Log", [e], "level"), 32, 6, "y")]


@unseen("int8", "ort_int8", "x bright c1", "outlier_channel", extra=("x", "bright", "c1", "r"))
def pixel_of_a_reflection(g: Graph) -> Sequence[str]:
    pixels = g.random.normal(size=(2, 3, 16, 16)).astype(np.float32)
    pixels[:, :, 4, 9] = 400.0
    x = g.op("Mul", [g.input("x", pixels), k(g, "g", 1.3)], "bright")
    x = g.op("Relu", [g.conv(x, 3, 8, "c1")], "r")
    x = g.op("Clip", [x, k(g, "low", 0.0), k(g, "high", 6.0)], "six")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "pool")], "flat"), 8, 6, "y")]


@unseen("healthy", "ort_int8")
def decoder_of_transposed_convolutions(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(image(g), 3, 8, "c1")], "r1")
    w = k(g, "up.w", g.random.normal(size=(8, 8, 2, 2)) / 4)
    x = g.op("ConvTranspose", [x, w], "up", strides=[2, 2])
    return [g.conv(g.op("HardSwish", [x], "act"), 8, 4, "y")]


@unseen("healthy", "ort_int8")
def pyramid_that_is_added(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(image(g), 3, 8, "c1")], "r1")
    small = g.op("MaxPool", [x], "small", kernel_shape=[2, 2], strides=[2, 2])
    scales = k(g, "scales", [1, 1, 2, 2])
    big = g.op("Resize", [g.conv(small, 8, 8, "c2"), "", scales], "big", mode="nearest")
    return [g.conv(g.op("Add", [x, big], "sum"), 8, 4, "y")]


@unseen("healthy", "ort_int8_dynamic")
def words_in_both_directions(g: Graph) -> Sequence[str]:
    x = g.op("Transpose", [tokens(g)], "turned", perm=[1, 0, 2])
    w, r = (k(g, name, g.random.normal(size=(2, 24, size)) / 6) for name, size in (("gru.w", 32), ("gru.r", 8)))
    x = g.op("GRU", [x, w, r], "gru", hidden_size=8, direction="bidirectional")
    return [g.dense(g.op("ReduceMax", [x], "best", axes=[0, 1], keepdims=0), 8, 6, "y")]


# --- two files that ONNX Runtime optimises


def normed(g: Graph) -> Sequence[str]:
    x = g.op("Mul", [g.conv(image(g), 3, 8, "c1"), k(g, "dim", 0.1)], "faint")
    x = g.op("InstanceNormalization", [x, k(g, "s", np.ones(8)), k(g, "b", np.zeros(8))], "n", epsilon=1e-5)
    x = g.op("LeakyRelu", [x], "act", alpha=0.01)
    x = g.op("AveragePool", [x], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    return [g.conv(x, 8, 4, "y")]


def attending(g: Graph) -> Sequence[str]:
    x = g.op("LayerNormalization", [tokens(g), k(g, "s", np.ones(32)), k(g, "b", np.zeros(32))], "n", axis=-1)
    x = g.attention(x, 32, "att")
    return [g.dense(g.op("Tanh", [x], "t"), 32, 6, "y")]


def resized(g: Graph) -> Sequence[str]:
    x = g.conv(image(g), 3, 8, "c1")
    scales = k(g, "scales", [1, 1, 1.5, 1.5])
    x = g.op("Resize", [x, "", scales], "up", mode="linear", coordinate_transformation_mode="half_pixel")
    return [g.conv(g.op("Softplus", [x], "act"), 8, 4, "y")]


def of_files(name: str, build: Any, change: Any, who: str = "", why: str = OTHER, **more: Any) -> None:
    pair(name, build, change, who, why, mode="ort_opt", cases=CASES, **more)


of_files("epsilon_of_an_instance_norm", normed, _attribute("n", epsilon=1e-2), "n")
of_files("slope_of_a_leak", normed, _attribute("act", alpha=0.1), "act")
of_files("padding_that_is_counted", normed, _attribute("pool", count_include_pad=1), "pool")
of_files("corners_that_are_aligned", resized, _attribute("up", coordinate_transformation_mode="align_corners"), "up")
of_files("head_whose_columns_are_turned", attending, weight("att_v.w", lambda w: np.roll(w, 8, axis=1)),
         "att_v_mm att_v", "files_differ")  # fmt: skip
of_files("bias_of_one_channel", attending, weight("att_q.b", lambda b: b + np.float32(4) * (np.arange(32) == 5)),
         "att_q", "files_differ", extra=("att_q_mm",))  # fmt: skip


def scaled_before(g: Graph) -> Sequence[str]:
    return _scaled(g, folded=False)


def scaled_inside(g: Graph) -> Sequence[str]:
    return _scaled(g, folded=True)


def _scaled(g: Graph, *, folded: bool) -> Sequence[str]:
    """A factor of four, by itself or in the weights: a power of two, which changes no digit."""
    x = g.dense(tokens(g), 32, 32, "a")
    if folded:
        g.weights["a.w"] *= 4
        g.weights["a.b"] *= 4
    else:
        x = g.op("Mul", [x, k(g, "four", 4.0)], "scaled")
    return [g.dense(g.op("Tanh", [x], "t"), 32, 6, "y")]


of_files("factor_that_is_folded", scaled_before, scaled_inside, other=True)


# --- PyTorch in bfloat16


def torch_case(*words: Any, **more: Any) -> Any:
    return of_torch(*words, cases=CASES, **more)


@torch_case("coarse", "torch_bf16", "add sub", "coarse cancellation amplified cancels", extra=("add", "sub", "mul"))
def seconds_of_a_day() -> Any:
    """A time of day in seconds is formed, and midday taken away, in bfloat16."""

    def body(m: Any, x: Any) -> Any:
        return m.head(torch.sin((x * 60 + 43200.0) - 43200.0))

    torch.manual_seed(3)
    return Net(body, head=linear(16, 4)), torch.rand(8, 16)


@torch_case("cancellation", "torch_bf16", "logsumexp logsumexp#2", "cancellation amplified coarse cancels",
            extra=("logsumexp", "logsumexp#2", "sub"))  # fmt: skip
def evidence_between_two_models() -> Any:
    """The difference of two log-likelihoods of some 60 that differ by hundredths."""

    def body(m: Any, x: Any) -> Any:
        near = torch.logsumexp(x, -1) - torch.logsumexp(x + m.little, -1)
        return m.head(near)

    torch.manual_seed(4)
    return Net(body, little=0.05 * torch.randn(1, 16, 64), head=linear(16, 4, 8.0)), 60 + torch.randn(8, 16, 64)


@torch_case("healthy", "torch_bf16")
def convolution_beside_attention() -> Any:
    def body(m: Any, x: Any) -> Any:
        x = x + m.conv(x.transpose(1, 2)).transpose(1, 2)
        prob = torch.softmax(m.q(x) @ m.k(x).transpose(1, 2) / 32**0.5, -1)
        return m.head(nn.functional.gelu(x + prob @ m.v(x)))

    torch.manual_seed(5)
    parts = {one: linear(32, 32) for one in "qkv"}
    return Net(body, conv=nn.Conv1d(32, 32, 3, padding=1), head=linear(32, 4), **parts), torch_tokens()


# --- OpenVINO


registered("healthy", "ov_fp32", cases=CASES, seed=211)(fourth_power_of_a_temperature)
registered("healthy", "ov_opt_fp32", cases=CASES, seed=211)(pyramid_that_is_added)


# without a baseline of another engine OpenVINO is held against itself
@unseen("integers", "ov_fp32", "scaled", "wrapped", baseline="ort_fp32", extra=("scaled", "y"), fix=False)
def hash_of_an_id(g: Graph) -> Sequence[str]:
    """A multiplicative hash of 64-bit ids, which OpenVINO computes in 32."""
    ids = g.input("ids", g.random.integers(10**5, 10**6, size=(4, 16)).astype(np.int64))
    scaled = g.op("Mul", [ids, ints(g, "prime", 2654435761)], "scaled")
    return [g.op("Mod", [scaled, ints(g, "slots", 1021)], "y")]
