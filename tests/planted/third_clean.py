"""A third batch of models that accuse nobody, or are not numbers themselves; written before any of it was run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import helper

from planted.onnx_faults import Graph, image, tokens
from planted.onnx_further import ints, k
from planted.third_onnx import samples
from planted.unseen import Unseen
from planted.unseen_onnx import rms, rope, silu
from planted.unseen_onnx import unseen as registered

CASES: list[Unseen] = []


def unseen(*words: Any, **more: Any) -> Callable[[Any], Any]:
    return registered(*words, cases=CASES, seed=23, **more)


FLOATS = "ort_fp16_sim ort_bf16_sim ort_opt"


@unseen("clean", f"{FLOATS} ort_int8_dynamic")
def recurrent_in_both_directions(g: Graph) -> Sequence[str]:
    x = g.op("Transpose", [tokens(g, 16, 12)], "steps", perm=[1, 0, 2])
    w, r = g.random.normal(size=(2, 48, 16)) / 4, g.random.normal(size=(2, 48, 16)) / 4
    g.nodes.append(helper.make_node("GRU", [x, g.weight("w", w), g.weight("r", r)], ["gru"], name="node_gru",
                                    hidden_size=16, direction="bidirectional", linear_before_reset=1))  # fmt: skip
    both = g.op("Reshape", [g.op("Transpose", ["gru"], "back", perm=[2, 0, 1, 3]), ints(g, "s", 2, 12, 32)], "both")
    return [g.dense(both, 32, 8, "y")]


@unseen("clean", f"{FLOATS} ort_int8 ort_fp16")
def super_resolution(g: Graph) -> Sequence[str]:
    x = g.op("PRelu", [g.conv(image(g), 3, 12, "a"), k(g, "slope", np.full((12, 1, 1), 0.2))], "act")
    for n in range(2):
        h = g.op("PRelu", [g.conv(x, 12, 12, f"b{n}"), k(g, f"slope{n}", np.full((12, 1, 1), 0.1))], f"h{n}")
        x = g.op("Add", [x, g.conv(h, 12, 12, f"c{n}")], f"r{n}")
    up = g.op("DepthToSpace", [g.conv(x, 12, 12, "d")], "up", blocksize=2, mode="CRD")
    big = g.op("Resize", ["x", "", k(g, "sc", [1, 1, 2, 2])], "big", mode="cubic")
    return [g.op("Add", [up, big], "y")]


@unseen("clean", FLOATS)
def speech_front_end(g: Graph) -> Sequence[str]:
    x = g.input("x", (g.random.normal(size=(2, 1, 640)) * 0.2).astype(np.float32))
    for n, (inside, outside) in enumerate(((1, 16), (16, 16), (16, 32))):
        w = g.weight(f"w{n}", g.random.normal(size=(outside, inside, 5)) / np.sqrt(5 * inside))
        x = g.op("Conv", [x, w], f"c{n}", strides=[3])
        x = g.op("InstanceNormalization", [x, k(g, f"g{n}", np.ones(outside)), k(g, f"b{n}", np.zeros(outside))],
                 f"n{n}", epsilon=1e-5)  # fmt: skip
        half = g.op("Mul", [x, g.op("Erf", [g.op("Mul", [x, k(g, f"q{n}", 0.5**0.5)], f"s{n}")], f"e{n}")], f"p{n}")
        x = g.op("Mul", [g.op("Add", [x, half], f"t{n}"), k(g, f"h{n}", 0.5)], f"gelu{n}")
    return [g.op("LogSoftmax", [g.dense(g.op("Transpose", [x], "time", perm=[0, 2, 1]), 32, 12, "l")], "y", axis=-1)]


@unseen("clean", f"{FLOATS} ort_int8")
def one_step_with_a_cache(g: Graph) -> Sequence[str]:
    """Keys and values of the past are inputs, and outputs with one more."""
    x = tokens(g, 32, 1)
    past = [g.input(n, g.random.normal(size=(2, 9, 32)).astype(np.float32)) for n in ("past_k", "past_v")]
    q, key, v = (g.dense(x, 32, 32, one) for one in "qkv")
    q, key = rope(g, q, 1, 16, "rq", start=9), rope(g, key, 1, 16, "rk", start=9)
    keys = g.op("Concat", [past[0], key], "keys", axis=1)
    values = g.op("Concat", [past[1], v], "values", axis=1)
    raw = g.op("MatMul", [q, g.op("Transpose", [keys], "kt", perm=[0, 2, 1])], "raw")
    prob = g.op("Softmax", [g.op("Mul", [raw, k(g, "d", 32**-0.5)], "score")], "prob", axis=-1)
    x = g.op("Add", [x, g.dense(g.op("MatMul", [prob, values], "mix"), 32, 32, "o")], "res")
    return [rms(g, x, 32, "y"), keys, values]


@unseen("clean", FLOATS)
def sums_of_embeddings(g: Graph) -> Sequence[str]:
    parts = []
    for name, size in (("word", 40), ("place", 8), ("kind", 2)):
        ids = g.input(name, g.random.integers(0, size, size=(2, 8)))
        parts.append(g.op("Gather", [k(g, f"{name}.t", g.random.normal(size=(size, 32)) * 0.02), ids], f"{name}_e"))
    x = g.norm(g.op("Sum", parts, "sum"), 32, "n", epsilon=1e-12)
    return [g.op("Tanh", [g.dense(x, 32, 32, "pool")], "y")]


@unseen("clean", "ort_opt ort_fp16_sim")
def softmax_that_minds_empty_rows(g: Graph) -> Sequence[str]:
    """Whole rows are masked by -inf, and what is not a number then becomes 0, in both."""
    x = tokens(g)
    mask = np.triu(np.full((8, 8), -np.inf, np.float32), 1)[None]
    mask[0, 5] = -np.inf
    score = g.op("MatMul", [g.dense(x, 32, 32, "q"), g.op("Transpose", [x], "t", perm=[0, 2, 1])], "raw")
    score = g.op("Add", [g.op("Mul", [score, k(g, "d", 0.1)], "score"), g.weight("mask", mask)], "masked")
    p = g.op("Softmax", [score], "p", axis=-1)
    safe = g.op("Where", [g.op("IsNaN", [p], "nan"), k(g, "zero", 0), p], "safe")
    return [g.dense(g.op("MatMul", [safe, x], "mix"), 32, 8, "y")]


@unseen("clean", "ort_opt ort_fp16_sim ort_bf16_sim")
def ties_that_both_sides_have(g: Graph) -> Sequence[str]:
    """Scores in steps of a quarter: many are equal, in every type."""
    score = g.input("score", (g.random.integers(0, 12, size=(4, 50)) / 4).astype(np.float32))
    g.nodes.append(helper.make_node("TopK", [score, ints(g, "k", 7)], ["top", "where"], name="node_topk", axis=-1))
    best = g.op("ArgMax", [score], "best", axis=-1, keepdims=0)
    chosen = g.op("Gather", [k(g, "table", g.random.normal(size=(50, 6))), "where"], "chosen")
    return [g.op("Mul", [chosen, k(g, "two", 2)], "y"), best]


@unseen("clean", "ort_opt ort_fp16_sim")
def what_contributed_operators_compute(g: Graph) -> Sequence[str]:
    """As another tool fused it: operators of ONNX Runtime's own domain."""
    x = tokens(g)
    x = g.op("BiasGelu", [g.op("MatMul", [x, k(g, "w", g.random.normal(size=(32, 32)) / 6)], "mm"),
                          k(g, "b", g.random.normal(size=32) * 0.1)], "bg", domain="com.microsoft")  # fmt: skip
    x = g.op("FusedMatMul", [x, k(g, "w2", g.random.normal(size=(32, 32)) / 6)], "fm", domain="com.microsoft",
             alpha=0.7, transB=1)  # fmt: skip
    x = g.op("SkipLayerNormalization", [x, "x", k(g, "g", np.ones(32)), k(g, "z", np.zeros(32))], "sln",
             domain="com.microsoft", epsilon=1e-5)  # fmt: skip
    x = g.op("QuickGelu", [x], "qg", domain="com.microsoft", alpha=1.702)
    return [g.op("Reshape", [x, ints(g, "s", 2, 8, 32)], "y")]


@unseen("clean", FLOATS)
def only_whole_numbers(g: Graph) -> Sequence[str]:
    """Numbers beyond 2^24 and 2^53, that no float type may touch."""
    ids = g.input("ids", g.random.integers(2**40, 2**62, size=(4, 8)))
    low = g.op("Mod", [ids, ints(g, "n", 2**31 - 1)], "low")
    x = g.op("Gather", [k(g, "table", g.random.normal(size=(16, 4))), g.op("Mod", [low, ints(g, "m", 16)], "row")], "e")
    return [low, g.op("Tanh", [x], "y")]


@unseen("clean", "ort_opt ort_bf16_sim ort_int8")
def input_that_is_an_output(g: Graph) -> Sequence[str]:
    x = tokens(g)
    return [g.op("Identity", [x], "same"), g.op("Sigmoid", [g.dense(x, 32, 8, "a")], "y"), "a"]


@unseen("clean", FLOATS)
def parts_in_a_sequence(g: Graph) -> Sequence[str]:
    x = g.mlp(tokens(g), 32, "a")
    g.op("SplitToSequence", [x, g.weight("by", np.int64(4))], "parts", axis=1)
    first = g.op("SequenceAt", ["parts", g.weight("at", np.int64(1))], "part")
    both = g.op("Reshape", [first, ints(g, "s", 2, 4, 32)], "whole")
    return [g.norm(g.dense(both, 32, 32, "b"), 32, "y")]


@unseen("clean", "ort_fp16_sim ort_opt")
def experts_of_which_two_are_taken(g: Graph) -> Sequence[str]:
    """The router is sure of itself: codes of one hot inputs, so that nothing ties."""
    at = g.random.integers(0, 8, size=(2, 8))
    x = g.input("x", np.eye(8, 32, dtype=np.float32)[at] * 2)
    router = np.zeros((32, 4), np.float32)
    router[:8] = g.random.permutation(32).reshape(8, 4) / 4
    logits = g.op("MatMul", [x, g.weight("router", router)], "logits")
    g.nodes.append(helper.make_node("TopK", [logits, ints(g, "k", 2)], ["top", "who"], name="node_topk", axis=-1))
    share = g.op("Softmax", ["top"], "share", axis=-1)
    w = g.op("Gather", [k(g, "experts", g.random.normal(size=(4, 32, 16)) / 3), "who"], "chosen")
    each = g.op("Einsum", [x, w], "each", equation="bsc,bskcd->bskd")
    return [g.op("Einsum", [each, share], "y", equation="bskd,bsk->bsd")]


@unseen("clean", "ort_fp16_sim ort_bf16_sim ort_int8")
def autoencoder_of_transposed_convolutions(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(image(g), 3, 8, "a")], "r")
    x = g.op("AveragePool", [x], "down", kernel_shape=[2, 2], strides=[2, 2])
    w = g.weight("up.w", g.random.normal(size=(8, 8, 2, 2)) / 4)
    x = g.op("Celu", [g.op("ConvTranspose", [x, w], "up", strides=[2, 2])], "celu", alpha=0.8)
    return [g.op("Sigmoid", [g.conv(x, 8, 3, "c")], "y")]


@unseen("clean", "ort_fp32", baseline="onnx_ref")
def float32_beside_float64(g: Graph) -> Sequence[str]:
    x = g.attention(g.norm(tokens(g), 32, "n"), 32, "a")
    return [g.op("LogSoftmax", [g.dense(silu(g, x, "s"), 32, 9, "l")], "y", axis=-1)]


@unseen("clean", "ort_opt", options=["--fused_only"])
def fused_layers_alone(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(image(g), 3, 8, "a")], "r")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [g.conv(x, 8, 8, "b")], "gap")], "flat"), 8, 4, "y")]


@unseen("clean", "ort_fp16_sim", options=["--marks_between", "n", "m_act"])
def part_of_a_clean_model(g: Graph) -> Sequence[str]:
    return [g.norm(g.mlp(g.norm(tokens(g), 32, "n"), 32, "m"), 32, "y")]


@samples(1, 0, 1, 2, cases=CASES)
@unseen("clean", "ort_opt ort_bf16_sim")
def one_sample_of_zeros(g: Graph) -> Sequence[str]:
    return [g.norm(g.mlp(tokens(g), 32, "m"), 32, "y")]


# --- a fault that nobody sees


@unseen("benign", "ort_fp16_sim")
def saturated_gates_of_a_recurrence(g: Graph) -> Sequence[str]:
    """Both biases fit, their sum does not, and the gate is 1 or 0 either way."""
    x = g.op("Transpose", [tokens(g, 16, 6)], "steps", perm=[1, 0, 2])
    w, r = g.random.normal(size=(1, 64, 16)) / 4, g.random.normal(size=(1, 64, 16)) / 4
    b = np.tile(np.repeat([4e4, 4e4, -4e4, 0.1], 16), 2)[None]
    g.op("LSTM", [x, g.weight("w", w), g.weight("r", r), g.weight("b", b)], "lstm", hidden_size=16)
    return [g.op("Tanh", ["lstm"], "y")]


@unseen("benign", "ort_fp16_sim")
def score_of_what_is_masked_overflows(g: Graph) -> Sequence[str]:
    x = tokens(g)
    x2 = g.op("Mul", [x, k(g, "loud", np.where(np.arange(8) > 5, 1e4, 1.0)[:, None])], "louder")
    raw = g.op("MatMul", [g.dense(x, 32, 32, "q", 3.0), g.op("Transpose", [x2], "t", perm=[0, 2, 1])], "raw")
    keep = g.weight("keep", np.arange(8) < 6)
    score = g.op("Where", [keep, g.op("Mul", [raw, k(g, "d", 0.05)], "score"), k(g, "low", -1e4)], "m")
    return [g.op("MatMul", [g.op("Softmax", [score], "p", axis=-1), x], "y")]


@unseen("benign", "ort_fp16_sim ort_bf16_sim")
def index_of_a_far_winner(g: Graph) -> Sequence[str]:
    scores = np.zeros((6, 20), np.float32)
    scores[np.arange(6), np.arange(6) * 3] = 50
    x = g.op("Add", [g.input("x", scores), k(g, "o", 900)], "moved")
    g.nodes.append(helper.make_node("TopK", [x, ints(g, "k", 1)], ["top", "who"], name="node_topk", axis=-1))
    return [g.op("Gather", [k(g, "table", g.random.normal(size=(20, 4))), "who"], "y")]


@unseen("benign", "ort_bf16_sim")
def offset_into_a_sigmoid(g: Graph) -> Sequence[str]:
    """Rounded by half of one at 300, and one to the last digit behind the gate."""
    x = g.op("Add", [g.dense(tokens(g), 32, 16, "a"), k(g, "o", 300)], "moved")
    return [g.dense(g.op("Mul", [g.op("Sigmoid", [x], "gate"), "a"], "gated"), 16, 4, "y")]


# --- the baseline is not a number itself


@unseen("baseline", "ort_opt ort_fp16_sim", says="nan")
def rows_that_are_wholly_masked(g: Graph) -> Sequence[str]:
    mask = np.zeros((2, 1, 8), np.float32)
    mask[1] = -np.inf
    x = g.attention(tokens(g), 32, "a", g.input("mask", mask))
    return [g.op("ReduceMax", [g.norm(x, 32, "n")], "y", axes=[1])]


@unseen("baseline", "ort_bf16_sim", status=1, says="nan")
def logarithm_of_nothing(g: Graph) -> Sequence[str]:
    share = g.op("Relu", [g.op("Sub", [g.op("Softmax", [g.dense(tokens(g), 32, 20, "a", 4.0)], "p", axis=-1),
                                       k(g, "least", 0.02)], "over")], "share")  # fmt: skip
    return [g.op("ReduceSum", [g.op("Mul", [share, g.op("Log", [share], "log")], "plogp"), ints(g, "ax", -1)], "y")]
