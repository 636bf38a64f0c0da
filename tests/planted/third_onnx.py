"""A third batch in ONNX, of other operators, causes and places; written before any of it was run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from planted.onnx_faults import Graph, _body, _info, image, tokens
from planted.onnx_further import ints, k
from planted.unseen import Unseen
from planted.unseen_onnx import silu
from planted.unseen_onnx import unseen as registered

CASES: list[Unseen] = []


def unseen(*words: Any, **more: Any) -> Callable[[Any], Any]:
    return registered(*words, cases=CASES, seed=11, **more)


# --- overflow: in a recurrence, a scatter, a spectrum, the last operator, and such as comes back finite


@unseen("overflow", "ort_fp16_sim", "rnn", "overflow range_inside")
def recurrence_without_a_bound(g: Graph) -> Sequence[str]:
    x = g.op("Transpose", [tokens(g, 16, 14)], "steps", perm=[1, 0, 2])
    w = g.weight("w", g.random.uniform(0.1, 1, size=(1, 16, 16)))
    r = g.weight("r", np.eye(16)[None] * 3.1)
    g.nodes.append(helper.make_node("RNN", [x, w, r], ["rnn"], name="node_rnn", hidden_size=16, activations=["Relu"]))
    return [g.op("Log", [g.op("Add", ["rnn", k(g, "one", 1)], "more")], "y")]


@unseen("overflow", "ort_fp16_sim", "counted", "overflow", opset=18)
def votes_that_are_scattered(g: Graph) -> Sequence[str]:
    x = g.op("Abs", [g.dense(tokens(g, 32, 30), 32, 40, "a", 9000.0)], "votes")
    rows = g.weight("where", g.random.integers(0, 3, size=(2, 30, 40)))
    zero = k(g, "empty", np.zeros((2, 4, 40)))
    g.op("ScatterElements", [zero, rows, x], "counted", axis=1, reduction="add")
    return [g.op("Log", [g.op("Add", ["counted", k(g, "one", 1)], "more")], "y")]


@unseen("overflow", "ort_fp16_sim", "spectrum", "overflow")
def spectrum_by_its_operator(g: Graph) -> Sequence[str]:
    x = g.input("x", (g.random.normal(size=(2, 256, 1)) * 9000).round().astype(np.float32))
    g.nodes.append(helper.make_node("DFT", [x], ["spectrum"], name="node_dft", axis=1, onesided=1))
    size = g.op("ReduceL1", ["spectrum"], "size", axes=[-1], keepdims=0)
    return [g.op("Log", [g.op("Add", [size, k(g, "one", 1)], "more")], "y")]


CASES[-1] = CASES[-1].__class__(**{**CASES[-1].__dict__, "extra": ("size",)})


@unseen("overflow", "ort_fp16_sim ort_fp16", "y", "overflow weight_overflow")
def last_operator_of_all(g: Graph) -> Sequence[str]:
    x = g.norm(g.mlp(tokens(g), 32, "a"), 32, "n")
    return [g.op("Mul", [g.op("Abs", [x], "abs"), k(g, "units", 9e4)], "y")]


@unseen("overflow", "ort_fp16_sim", "total", "overflow")
def shares_of_a_long_sum(g: Graph) -> Sequence[str]:
    """An infinity that a division turns into zeros."""
    x = g.op("Softplus", [g.dense(tokens(g, 8, 3), 8, 4000, "a")], "soft")
    x = g.op("Mul", [x, k(g, "unit", 40)], "amount")
    total = g.op("ReduceSum", [x, ints(g, "ax", -1)], "total")
    return [g.op("Mul", [g.op("Div", [x, total], "share"), k(g, "many", 4000)], "y")]


@unseen("overflow", "ort_fp16_sim", "stiff", "overflow weight_overflow", extra=("y",))
def softplus_of_a_steep_slope(g: Graph) -> Sequence[str]:
    stiff = g.op("Mul", [g.dense(tokens(g), 32, 16, "a"), k(g, "beta", 1e5)], "stiff")
    return [g.op("Div", [g.op("Softplus", [stiff], "soft"), k(g, "beta2", 1e5)], "y")]


@unseen("overflow", "ort_fp16_sim", "big", "overflow")
def denominator_beyond_the_type(g: Graph) -> Sequence[str]:
    """What comes out is finite, and wrong: a constant over an infinity."""
    x = g.op("Add", [g.op("Sigmoid", [g.dense(tokens(g), 32, 16, "a")], "p"), k(g, "least", 0.2)], "q")
    big = g.op("Mul", [x, k(g, "k", 4e5)], "big")
    y = g.op("Div", [k(g, "top", 6e4), big], "ratio")
    return [g.dense(g.op("Tanh", [y], "t"), 16, 4, "y")]


@unseen("overflow", "ort_fp16_sim", "idf", "overflow")
def identifiers_as_numbers(g: Graph) -> Sequence[str]:
    ids = g.input("ids", g.random.integers(100, 300000, size=(4, 16)))
    x = g.op("Div", [g.op("Cast", [ids], "idf", to=TensorProto.FLOAT), k(g, "n", 3000)], "part")
    x = g.op("Div", [x, k(g, "n2", 100)], "unit")
    return [g.dense(g.op("Sin", [x], "s"), 16, 4, "y")]


@unseen("overflow", "ort_fp16_sim", "ein", "overflow", extra=("ein2",))
def bilinear_form_by_einsum(g: Graph) -> Sequence[str]:
    a, b = g.dense(tokens(g), 32, 32, "a", 200.0), g.dense("x", 32, 32, "b", 200.0)
    g.op("Einsum", [a, b], "ein", equation="bic,bjc->bij")
    small = g.op("Mul", ["ein", k(g, "d", 2e-6)], "score")
    return [g.op("Einsum", [g.op("Softmax", [small], "p", axis=-1), "x"], "y", equation="bij,bjc->bic")]


@unseen("overflow", "ort_fp16_sim", "wide", "overflow weight_overflow")
def branch_of_a_depthwise_net(g: Graph) -> Sequence[str]:
    x = g.op("HardSwish", [g.conv(image(g), 3, 8, "stem")], "hs")
    w = g.random.normal(size=(8, 1, 3, 3)) * 6e4
    wide = g.op("Conv", [x, g.weight("dw.w", w)], "wide", group=8, pads=[1, 1, 1, 1])
    gate = g.op("HardSigmoid", [g.op("Mul", [wide, k(g, "down", 2e-5)], "back")], "gate")
    return [g.conv(g.op("Mul", [x, gate], "gated"), 8, 4, "y")]


@unseen("overflow", "ort_fp16_sim", "deconv", "overflow weight_overflow")
def upsampler_by_a_transposed_convolution(g: Graph) -> Sequence[str]:
    x = g.op("LeakyRelu", [g.conv(image(g), 3, 8, "stem")], "lr", alpha=0.1)
    w = g.weight("deconv.w", g.random.normal(size=(8, 8, 4, 4)) * 3e4)
    g.op("ConvTranspose", [x, w], "deconv", strides=[2, 2], pads=[1, 1, 1, 1])
    return [g.op("Tanh", [g.conv(g.op("Mul", ["deconv", k(g, "s", 1e-5)], "scaled"), 8, 3, "c")], "y")]


# --- constants: a tied weight, a half-lost table


@unseen("weight_overflow", "ort_fp16_sim", "tied logits", "weight_overflow overflow")
def embedding_that_is_the_head_too(g: Graph) -> Sequence[str]:
    """No word of the input has the row that overflows; the head reads all of them."""
    table = g.random.normal(size=(50, 32)) * 0.3
    table[41, 3] = 8e4
    ids = g.input("ids", g.random.integers(0, 40, size=(2, 8)))
    e = g.op("Gather", [k(g, "table", table), ids], "e")
    x = g.norm(g.mlp(e, 32, "m"), 32, "n")
    g.weights["m_down.w"][:, 3] = 0
    tied = g.op("Transpose", ["table"], "tied", perm=[1, 0])
    return [g.op("Mul", [g.op("MatMul", [x, tied], "logits"), k(g, "t", 1e-3)], "y")]


@unseen("weight_underflow", "ort_fp16_sim", "rate", "weight_underflow underflow")
def decay_rates_of_a_table(g: Graph) -> Sequence[str]:
    t = g.input("t", g.random.uniform(1, 5e4, size=(6, 1)).astype(np.float32))
    rate = g.op("Mul", [t, k(g, "rates", np.logspace(-9.5, -8, 16))], "rate")
    return [g.dense(g.op("Mul", [rate, k(g, "scale", 2e4)], "angle"), 16, 4, "y")]


# --- underflow and subnormals


@unseen("underflow", "ort_fp16_sim", "pdf", "underflow")
def mixture_density(g: Graph) -> Sequence[str]:
    share = g.op("Softmax", [g.dense(tokens(g), 32, 5, "s")], "share", axis=-1)
    d = g.op("Add", [g.op("Sigmoid", [g.dense("x", 32, 5, "m")], "mean"), k(g, "far", 5.6)], "d")
    pdf = g.op("Exp", [g.op("Mul", [g.op("Mul", [d, d], "d2"), k(g, "half", -0.5)], "power")], "pdf")
    both = g.op("Mul", [share, pdf], "both")
    return [g.op("Log", [g.op("ReduceSum", [both, ints(g, "ax", -1)], "density")], "y")]


CASES[-1] = CASES[-1].__class__(**{**CASES[-1].__dict__, "extra": ("both", "density")})


@unseen("underflow", "ort_fp16_sim", "micro", "underflow coarse amplified weight_underflow")
def subnormals_keep_two_bits(g: Graph) -> Sequence[str]:
    x = g.dense(tokens(g), 32, 16, "a")
    micro = g.op("Mul", [x, k(g, "to_micro", 2.0**-21)], "micro")
    return [g.dense(g.op("Mul", [micro, k(g, "back", 2.0**15)], "milli"), 16, 4, "y", 64.0)]


@unseen("underflow", "ort_fp16_sim", "shrunk@1 shrunk@2", "underflow", extra=("shrunk@1", "shrunk@2"))
def body_that_shrinks(g: Graph) -> Sequence[str]:
    body = _body(
        [
            helper.make_node("Identity", ["go"], ["go_on"], name="b_go"),
            helper.make_node("Mul", ["state", "little"], ["shrunk"], name="b_mul"),
            helper.make_node("Relu", ["shrunk"], ["next"], name="b_relu"),
        ],
        [_info("i", [], TensorProto.INT64), _info("go", [], TensorProto.BOOL), _info("state", [2, 8, 32])],
        [_info("go_on", [], TensorProto.BOOL), _info("next", [2, 8, 32])],
        {"little": np.float32(1e-3)},
    )  # fmt: skip
    x = g.dense(tokens(g), 32, 32, "a")
    g.nodes.append(helper.make_node("Loop", [g.weight("n", np.int64(3)), "", x], ["lo"], name="node_lo", body=body))
    return [g.op("Mul", [g.op("Mul", ["lo", k(g, "k1", 3e4)], "up1"), k(g, "k2", 3e4)], "y")]


# --- cancellation and amplification


@unseen("cancellation", "ort_fp16_sim", "plus", "cancellation amplified")
def logarithm_of_nearly_one(g: Graph) -> Sequence[str]:
    small = g.op("Mul", [g.op("Softplus", [g.dense(tokens(g), 32, 16, "a")], "sp"), k(g, "s", 2e-3)], "small")
    return [g.op("Log", [g.op("Add", [small, k(g, "one", 1)], "plus")], "y")]


@unseen("cancellation", "ort_fp16_sim", "e", "cancellation amplified")
def exponential_minus_one(g: Graph) -> Sequence[str]:
    small = g.op("Mul", [g.op("Erf", [g.dense(tokens(g), 32, 16, "a")], "erf"), k(g, "s", 3e-3)], "small")
    return [g.op("Sub", [g.op("Exp", [small], "e"), k(g, "one", 1)], "y")]


@unseen("amplified", "ort_bf16_sim", "cosine", "amplified cancellation")
def angle_between_near_vectors(g: Graph) -> Sequence[str]:
    a = g.dense(tokens(g), 32, 32, "a")
    b = g.op("Add", [a, g.op("Mul", ["x", k(g, "s", 0.12)], "off")], "b")
    na, nb = g.op("ReduceL2", [a], "na", axes=[-1]), g.op("ReduceL2", [b], "nb", axes=[-1])
    dot = g.op("ReduceSum", [g.op("Mul", [a, b], "ab"), ints(g, "ax", -1)], "dot")
    cosine = g.op("Div", [dot, g.op("Mul", [na, nb], "size")], "cosine")
    return [g.op("Acos", [g.op("Clip", [cosine, k(g, "lo", -1), k(g, "hi", 1)], "kept")], "y")]


CASES[-1] = CASES[-1].__class__(
    **{
        **CASES[-1].__dict__,
        "who": ("cosine", "dot", "size", "na", "nb", "a", "b", "ab"),
        "extra": ("dot", "size", "na", "nb", "a", "b", "ab"),
    }
)


@unseen("amplified", "ort_bf16_sim", "at", "amplified cancellation", opset=16)
def sampled_at_moved_places(g: Graph) -> Sequence[str]:
    """Coordinates from -1 to 1 of a picture of 256 pixels, whose steps are finer than the type."""
    x = g.input("x", g.random.normal(size=(1, 2, 256, 256)).astype(np.float32))
    step = (np.arange(24) - 12) / 128
    base = np.stack(np.meshgrid(step + 0.7, step - 0.6), -1)[None]
    move = g.op("Mul", [g.op("Tanh", [g.dense(g.input("z", np.ones((1, 4), np.float32)), 4, 2, "m")], "t"),
                        k(g, "px", 0.01)], "move")  # fmt: skip
    at = g.op("Add", [k(g, "base", base), g.op("Reshape", [move, ints(g, "ms", 1, 1, 1, 2)], "moves")], "at")
    return [g.conv(g.op("GridSample", [x, at], "sampled", align_corners=0), 2, 4, "y")]


CASES[-1] = CASES[-1].__class__(**{**CASES[-1].__dict__, "who": ("at", "base")})


@unseen("cancellation", "ort_bf16_sim", "moved", "cancellation amplified", opset=21)
def offset_before_a_group_norm(g: Graph) -> Sequence[str]:
    x = g.op("Add", [g.conv(image(g), 3, 8, "c"), k(g, "o", np.full((8, 1, 1), 300.0))], "moved")
    n = g.op("GroupNormalization", [x, k(g, "g", np.ones(8)), k(g, "b", np.zeros(8))], "gn", num_groups=4)
    return [g.conv(silu(g, n, "s"), 8, 4, "y")]


@unseen("amplified", "ort_bf16_sim", "gram", "amplified cancellation")
def determinant_of_a_gram_matrix(g: Graph) -> Sequence[str]:
    x = g.op("Add", [g.op("Mul", [g.dense(tokens(g), 32, 4, "a"), k(g, "s", 0.1)], "small"), k(g, "o", 1.0)], "f")
    gram = g.op("MatMul", [g.op("Transpose", [x], "t", perm=[0, 2, 1]), x], "gram")
    return [g.op("Det", [gram], "y")]


CASES[-1] = CASES[-1].__class__(**{**CASES[-1].__dict__, "who": ("gram", "f"), "extra": ("gram", "f")})


@unseen("amplified", "ort_bf16_sim", "logits", "amplified cancellation coarse")
def softmax_of_hundreds(g: Graph) -> Sequence[str]:
    """Queries and keys without a scale: the best two are some hundreds, and a part of one apart."""
    q = g.op("Mul", [g.norm(tokens(g), 32, "n"), k(g, "loud", 25)], "q")
    key = g.random.normal(size=(32, 1)) + g.random.normal(size=(32, 12)) * 0.02
    logits = g.op("MatMul", [q, k(g, "keys", key)], "logits")
    return [g.dense(g.op("Softmax", [logits], "p", axis=-1), 12, 4, "y")]


CASES[-1] = CASES[-1].__class__(**{**CASES[-1].__dict__, "who": ("logits", "q", "n", "keys", "x"), "extra": ("q", "n")})


@unseen("cancellation", "ort_bf16_sim", "after", "cancellation amplified")
def difference_of_two_steps_of_a_gru(g: Graph) -> Sequence[str]:
    x = g.op("Transpose", [tokens(g, 16, 6)], "steps", perm=[1, 0, 2])
    w, r = g.random.normal(size=(1, 48, 16)) * 0.02, g.random.normal(size=(1, 48, 16)) * 0.02
    b = np.zeros((1, 96))
    b[:, :16] = 9.0  # keeps nearly all of the state
    first = g.weight("h0", g.random.normal(size=(1, 2, 16)) * 2)
    g.nodes.append(helper.make_node("GRU", [x, g.weight("w", w), g.weight("r", r), g.weight("b", b), "", first],
                                    ["after"], name="node_gru", hidden_size=16))  # fmt: skip
    one, two = (g.op("Gather", ["after", g.weight(f"i{i}", np.int64(i))], f"step{i}", axis=0) for i in (1, 5))
    return [g.op("Mul", [g.op("Sub", [two, one], "drift"), k(g, "k", 400)], "y")]


CASES[-1] = CASES[-1].__class__(**{**CASES[-1].__dict__, "extra": ("step1", "step5")})


@unseen("cancellation", "ort_fp32", "far", "cancellation amplified", baseline="onnx_ref")
def float32_beside_float64(g: Graph) -> Sequence[str]:
    """Whole numbers beyond 2^24: float32 is the narrow type."""
    x = g.dense(tokens(g), 32, 16, "a")
    far = g.op("Add", [x, k(g, "o", 2.0**25)], "far")
    return [g.op("Sub", [far, k(g, "o2", 2.0**25)], "y")]


@unseen("long_reduction", "ort_bf16_sim", " ".join(f"more@{i}" for i in range(600)),
        "long_reduction cancellation amplified coarse drift",
        extra=tuple(f"more@{i}" for i in range(600)))  # fmt: skip
def sum_that_stands_still(g: Graph) -> Sequence[str]:
    """A little is added until a sum of 128 no longer takes notice."""
    body = _body(
        [
            helper.make_node("Identity", ["go"], ["go_on"], name="b_go"),
            helper.make_node("Add", ["state", "step"], ["more"], name="b_add"),
            helper.make_node("Relu", ["more"], ["next"], name="b_relu"),
        ],
        [_info("i", [], TensorProto.INT64), _info("go", [], TensorProto.BOOL), _info("state", [2, 4])],
        [_info("go_on", [], TensorProto.BOOL), _info("next", [2, 4])],
    {"step": np.linspace(0.4, 0.48, 8, dtype=np.float32).reshape(2, 4)})  # fmt: skip
    x = g.op("Abs", [g.dense(g.input("x", g.random.normal(size=(2, 8)).astype(np.float32)), 8, 4, "a")], "abs")
    g.nodes.append(helper.make_node("Loop", [g.weight("n", np.int64(600)), "", x], ["lo"], name="node_lo", body=body))
    return [g.op("Mul", ["lo", k(g, "k1", 0.01)], "y")]


# --- decisions


@unseen("decision", "ort_bf16_sim", "idf", "amplified cancellation coarse flips")
def row_looked_up_by_a_float(g: Graph) -> Sequence[str]:
    ids = g.input("ids", g.random.integers(600, 1000, size=(2, 8)))
    idf = g.op("Cast", [ids], "idf", to=TensorProto.FLOAT)
    row = g.op("Cast", [g.op("Add", [idf, k(g, "first", 3)], "moved")], "row", to=TensorProto.INT64)
    return [g.op("Gather", [k(g, "table", g.random.normal(size=(1020, 8))), row], "y")]


CASES[-1] = CASES[-1].__class__(**{**CASES[-1].__dict__, "extra": ("moved",), "who": ("idf", "moved")})


@unseen("decision", "ort_bf16_sim", "boxes", "amplified cancellation coarse flips", extra=("area", "wide"))
def suppression_far_from_the_origin(g: Graph) -> Sequence[str]:
    """Small boxes of a large page: corners are rounded by more than the boxes are apart."""
    at = g.random.uniform(0, 30, size=(1, 40, 2))
    small = g.input("small", np.concatenate([at, at + 12], -1).astype(np.float32))
    boxes = g.op("Add", [small, k(g, "page", 3000)], "boxes")
    score = g.input("score", (g.random.permutation(40).astype(np.float32) / 64)[None, None])
    g.op("NonMaxSuppression", [boxes, score, g.weight("most", np.int64(12)), k(g, "iou", 0.5)], "chosen")
    return ["chosen", g.op("Mul", [boxes, k(g, "unit", 1e-3)], "y")]


@unseen("decision", "ort_fp16_sim", "logits logits_mm", "amplified cancellation coarse flips")
def experts_that_nearly_tie(g: Graph) -> Sequence[str]:
    """The best two of eight, by scores that a common part makes coarse; gathered by pairs of indices."""
    x = g.norm(tokens(g), 32, "n")
    logits = g.dense(x, 32, 8, "logits")
    g.weights["logits.b"] += np.float32(1500)
    g.nodes.append(helper.make_node("TopK", [logits, ints(g, "k", 2)], ["top", "who"], name="node_topk", axis=-1))
    share = g.op("Softmax", ["top"], "share", axis=-1)
    pick = g.op("Unsqueeze", ["who", ints(g, "ax", 3)], "pick")
    w = g.op("GatherND", [k(g, "experts", g.random.normal(size=(8, 32, 16)) / 6), pick], "chosen")
    each = g.op("Einsum", [x, w], "each", equation="bsc,bskcd->bskd")
    return [g.op("Einsum", [each, share], "y", equation="bskd,bsk->bsd")]


# --- int8


@unseen("int8", "ort_int8", "squares", "coarse outlier_channel amplified cancellation underflow")
def denominators_of_a_wide_range(g: Graph) -> Sequence[str]:
    """Most denominators are below one step of the range that the largest sets."""
    size = np.array([0.02, 0.05, 0.1, 20.0])[:, None]
    x = g.input("x", (g.random.normal(size=(2, 4, 16)) * size).astype(np.float32))
    squares = g.op("Add", [g.op("Mul", [x, x], "square"), k(g, "eps", 1e-3)], "squares")
    return [g.dense(g.op("Div", [x, squares], "ratio"), 16, 4, "y")]


CASES[-1] = CASES[-1].__class__(
    **{**CASES[-1].__dict__, "who": ("squares", "square", "x", "ratio"), "extra": ("x", "square", "ratio")}
)


@unseen("int8", "ort_int8", "moved", "coarse cancellation amplified")
def brightness_added_and_taken_away(g: Graph) -> Sequence[str]:
    x = g.op("Tanh", [g.conv(image(g), 3, 8, "c")], "t")
    x = g.op("Add", [x, k(g, "o", np.full((8, 1, 1), 60.0))], "moved")
    x = g.op("Add", [x, k(g, "o2", np.full((8, 1, 1), -60.0))], "back")
    return [g.conv(x, 8, 4, "y")]


CASES[-1] = CASES[-1].__class__(**{**CASES[-1].__dict__, "extra": ("back",)})


@unseen("int8", "ort_int8_dynamic", "scaled", "coarse outlier_channel", extra=("y_mm", "y"))
def one_loud_token(g: Graph) -> Sequence[str]:
    """One row of the batch is 3000 times the others, and dynamic int8 has one scale for all."""
    loud = np.ones((1, 8, 1))
    loud[0, 0] = 3000
    x = g.op("Mul", [g.norm(tokens(g), 32, "n"), k(g, "loud", loud)], "scaled")
    y = g.dense(x, 32, 8, "y")
    return [g.op("Slice", [y, ints(g, "from", 1), ints(g, "to", 8), ints(g, "axis", 1)], "rest")]


CASES[-1] = CASES[-1].__class__(**{**CASES[-1].__dict__, "who": ("scaled", "y_mm", "y")})


@unseen("int8", "ort_int8", "cat", "coarse outlier_channel", extra=("px",))
def boxes_and_scores_in_one_tensor(g: Graph) -> Sequence[str]:
    """A detector's head: places of 640 pixels and scores of one in one concatenation."""
    x = g.op("Relu", [g.conv(image(g), 3, 8, "c")], "r")
    px = g.op("Mul", [g.op("Sigmoid", [g.conv(x, 8, 4, "loc")], "at"), k(g, "size", 640)], "px")
    score = g.op("Sigmoid", [g.conv(x, 8, 3, "cls")], "score")
    cat = g.op("Concat", [px, score], "cat", axis=1)
    part = g.op("Slice", [cat, ints(g, "from", 4), ints(g, "to", 7), ints(g, "axis", 1)], "scores")
    return [g.conv(part, 3, 2, "y")]


# --- random


@unseen("random", "ort_opt", "noise@0 noise@1 noise@2 noisy@0 noisy@1 noisy@2 lo", "random",
        extra=tuple(f"{name}@{i}" for name in ("noise", "noisy") for i in range(3)), fix=False)  # fmt: skip
def noise_in_a_body(g: Graph) -> Sequence[str]:
    body = _body(
        [
            helper.make_node("Identity", ["go"], ["go_on"], name="b_go"),
            helper.make_node("RandomUniformLike", ["state"], ["noise"], name="b_noise", low=-0.5, high=0.5),
            helper.make_node("Add", ["state", "noise"], ["noisy"], name="b_add"),
            helper.make_node("Tanh", ["noisy"], ["next"], name="b_tanh"),
        ],
        [_info("i", [], TensorProto.INT64), _info("go", [], TensorProto.BOOL), _info("state", [2, 8, 32])],
        [_info("go_on", [], TensorProto.BOOL), _info("next", [2, 8, 32])], {},
    )  # fmt: skip
    x = g.dense(tokens(g), 32, 32, "a")
    g.nodes.append(helper.make_node("Loop", [g.weight("n", np.int64(3)), "", x], ["lo"], name="node_lo", body=body))
    return [g.dense("lo", 32, 8, "y")]


# --- in two places, several samples, marks


@unseen("two", "ort_fp16_sim", "tiny big", "underflow overflow", also=("tiny", "big"))
def underflow_feeds_one_branch_overflow_the_other(g: Graph) -> Sequence[str]:
    x = g.op("Softplus", [g.dense(tokens(g), 32, 16, "a")], "sp")
    tiny = g.op("Mul", [x, k(g, "down", 2e-9)], "tiny")
    big = g.op("Mul", [g.op("Add", [x, k(g, "one", 1)], "x1"), k(g, "up", 7e4)], "big")
    left = g.op("Mul", [g.op("Mul", [tiny, k(g, "u1", 2e4)], "half"), k(g, "u2", 2e4)], "left")
    right = g.op("Mul", [big, k(g, "d1", 1e-5)], "right")
    return [g.op("Concat", [left, right], "y", axis=-1)]


def samples(*sizes: float, cases: list[Unseen] = CASES) -> Callable[[Any], Any]:
    """The cases of a name are fed with as many samples, each of another size."""

    def change(build: Any) -> Any:
        for at, one in enumerate(cases):
            if one.name == build.__name__:
                cases[at] = replace(one, make=_stacked(one.make, sizes), options=["--samples_axis", "0"])
        return build

    return change


def _stacked(make: Any, sizes: Sequence[float]) -> Any:
    def made(folder: Path) -> Any:
        path, base, feeds = make(folder)
        stacked = {key: np.stack([np.roll(value, n) * size for n, size in enumerate(sizes)]).astype(value.dtype)
                   for key, value in feeds.items()}  # fmt: skip
        return path, base, stacked

    return made


@samples(1, 1, 1, 300, 1)
@unseen("samples", "ort_fp16_sim", "sq", "overflow")
def one_sample_of_five_overflows(g: Graph) -> Sequence[str]:
    sq = g.op("Mul", [g.dense(tokens(g), 32, 16, "a"), "a"], "sq")
    return [g.op("Sqrt", [g.op("ReduceMean", [sq], "ms", axes=[-1])], "y")]


@samples(1, 3, 9, 27, 81)
@unseen("samples", "ort_fp16_sim")
def five_samples_of_other_sizes(g: Graph) -> Sequence[str]:
    return [g.norm(g.mlp(g.norm(tokens(g), 32, "n"), 32, "m"), 32, "y")]


@samples(1, 3, 9, 27, 81)
@unseen("samples", "ort_int8", "x", "coarse outlier_channel", fix=False)  # the largest sample makes the range of all
def samples_that_share_a_range(g: Graph) -> Sequence[str]:
    return five_samples_of_other_sizes(g)


@unseen("marks", "ort_fp16_sim", "big", "overflow weight_overflow", options=["--mark", "a", "big", "y"])
def overflow_among_three_marks(g: Graph) -> Sequence[str]:
    x = g.dense(tokens(g), 32, 16, "a")
    big = g.op("Mul", [x, k(g, "up", 3e5)], "big")
    return [g.op("Tanh", [g.op("Mul", [big, k(g, "down", 1e-5)], "small")], "y")]


@unseen("marks", "ort_bf16_sim", "y", "cancellation amplified", options=["--mark", "y"])  # all that is seen
def culprit_that_is_not_marked(g: Graph) -> Sequence[str]:
    x = g.op("Add", [g.dense(tokens(g), 32, 16, "a"), k(g, "o", 700)], "moved")
    return [g.op("Tanh", [g.op("Sub", [x, k(g, "o2", 700)], "back")], "y")]
