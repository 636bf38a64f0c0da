"""A third batch of two files that should hold one model; written before any of it was run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from planted.onnx_faults import Graph, _attribute, image, tokens
from planted.onnx_further import _put, ints, k
from planted.unseen import Unseen
from planted.unseen_files import node, swapped, weight
from planted.unseen_files import pair as registered

CASES: list[Unseen] = []

OTHER = "files_differ other_arithmetic flips"


def pair(*words: Any, **more: Any) -> None:
    registered(*words, cases=CASES, **more)


# --- a decoder: group norm, transposed and depthwise convolutions, pixels from channels


def decoder(g: Graph) -> Sequence[str]:
    r = g.random
    x = g.conv(image(g), 3, 8, "stem")
    x = g.op("InstanceNormalization", [x, k(g, "in.g", r.uniform(0.5, 1.5, 8)), k(g, "in.b", r.normal(size=8))], "in",
             epsilon=1e-5)  # fmt: skip
    x = g.op("Softplus", [x], "sp")
    x = g.op("Conv", [x, g.weight("dw.w", r.normal(size=(8, 1, 3, 3)) / 3)], "dw", group=8, pads=[1, 1, 1, 1])
    x = g.op("LRN", [x], "lrn", size=3, alpha=0.5, beta=0.75, bias=1.0)
    up = g.weight("up.w", r.normal(size=(8, 8, 4, 4)) / 8)
    x = g.op("ConvTranspose", [x, up], "up", strides=[2, 2], pads=[1, 1, 1, 1])
    x = g.op("Selu", [x], "selu")
    x = g.op("DepthToSpace", [g.conv(x, 8, 12, "wide")], "pixels", blocksize=2, mode="CRD")
    x = g.op("Pad", [x, ints(g, "pads", 0, 0, 1, 1, 0, 0, 1, 1), k(g, "fill", 0.5)], "padded", mode="constant")
    x = g.op("LpPool", [x], "lp", kernel_shape=[2, 2], strides=[2, 2], p=2)
    x = g.op("MeanVarianceNormalization", [x], "mvn", axes=[0, 2, 3])
    return [g.op("ThresholdedRelu", [x], "y", alpha=0.3)]


pair("gains_in_reverse", decoder, weight("in.g", lambda w: w[::-1]), "in")
pair("one_channel_of_a_depthwise", decoder, weight("dw.w", lambda w: np.roll(w, 1, axis=0)), "dw")
pair("size_of_a_response_norm", decoder, _attribute("lrn", size=5), "lrn")
pair("bias_of_a_response_norm", decoder, _attribute("lrn", bias=2.0), "lrn")
pair("pads_of_a_transposed_convolution", decoder, _attribute("up", pads=[0, 0, 2, 2]), "up")
pair("transposed_convolution_mirrored", decoder, weight("up.w", lambda w: w.transpose(1, 0, 2, 3)[:, :, ::-1]), "up")
pair("columns_then_rows", decoder, _attribute("pixels", mode="DCR"), "pixels")
pair("fill_of_the_border", decoder, _put("fill", (), 0.0), "padded")
pair("slope_of_selu", decoder, _attribute("selu", alpha=1.0), "selu")
pair("power_of_a_pool", decoder, _attribute("lp", p=1), "lp")
pair("axes_of_a_normalisation", decoder, _attribute("mvn", axes=[2, 3]), "mvn")
pair("threshold_at_the_end", decoder, _attribute("y", alpha=0.4), "y")
pair("depthwise_in_a_fused_graph", decoder, weight("dw.w", lambda w: np.roll(w, 1, axis=0)), "dw", mode="ort_opt")
pair("fused_layers_of_two_files", decoder, _attribute("up", pads=[0, 0, 2, 2]), "up selu", mode="ort_opt",
     options=["--fused_only"])  # fmt: skip


# --- a reader of sequences: a recurrence in both directions, einsum, running sums, top k, pairs of indices


def reader(g: Graph) -> Sequence[str]:
    r = g.random
    ids = g.input("ids", r.integers(0, 30, size=(2, 9)))
    e = g.op("Gather", [k(g, "table", r.normal(size=(30, 12))), ids], "e")
    steps = g.op("Transpose", [e], "steps", perm=[1, 0, 2])
    w, u = r.normal(size=(2, 36, 12)) / 3, r.normal(size=(2, 36, 12)) / 3
    b = r.normal(size=(2, 72)) / 3
    g.nodes.append(helper.make_node("GRU", [steps, g.weight("gru.w", w), g.weight("gru.r", u), g.weight("gru.b", b)],
                                    ["gru"], name="node_gru", hidden_size=12, direction="bidirectional",
                                    linear_before_reset=1))  # fmt: skip
    both = g.op("Reshape", [g.op("Transpose", ["gru"], "turned", perm=[2, 0, 1, 3]), ints(g, "s", 2, 9, 24)], "both")
    total = g.op("CumSum", [both, g.weight("axis", np.int64(1))], "total")
    mean = g.op("Div", [total, k(g, "counts", np.arange(1, 10)[:, None])], "running")
    score = g.op("Einsum", [mean, both], "score", equation="bic,bjc->bij")
    low = g.op("Trilu", [score, g.weight("diagonal", np.int64(0))], "low", upper=0)
    g.nodes.append(helper.make_node("TopK", [low, ints(g, "k", 3)], ["best", "where"], name="node_topk", axis=-1))
    picked = g.op("GatherND", [both, g.op("Unsqueeze", ["where", ints(g, "last", -1)], "pick")], "picked", batch_dims=1)
    share = g.op("Softmax", ["best"], "share", axis=-1)
    mix = g.op("Einsum", [picked, share], "mix", equation="bikc,bik->bic")
    lse = g.op("ReduceLogSumExp", [mix], "lse", axes=[1], keepdims=0)
    return [g.op("LogSoftmax", [g.dense(lse, 24, 6, "head")], "y", axis=-1)]


def reset(g: Graph) -> None:
    _attribute("gru", linear_before_reset=0)(g)


def directions(w: Any) -> Any:
    return w[::-1]


pair("reset_before_the_product", reader, reset, "gru")
pair("directions_swapped", reader,
     lambda g: [weight(key, directions)(g) for key in ("gru.w", "gru.r", "gru.b")], "gru")  # fmt: skip
pair("recurrent_bias_left_out", reader, _put("gru.b", (slice(None), slice(36, 72)), 0.0), "gru")
pair("one_row_of_the_table", reader, weight("table", lambda t: np.roll(t, 1, axis=0)), "e")
pair("running_sum_without_itself", reader, _attribute("total", exclusive=1), "total")
pair("running_sum_from_the_end", reader, _attribute("total", reverse=1), "total")
pair("counts_from_zero", reader, weight("counts", lambda c: c + 1), "running")
pair("diagonal_left_out", reader, lambda g: g.weights.update(diagonal=np.int64(-1)), "low")
pair("smallest_in_place_of_largest", reader, _attribute("topk", largest=0), "where best")
pair("equation_transposed", reader, _attribute("score", equation="bjc,bic->bij"), "score")
pair("axis_of_the_last_softmax", reader, _attribute("y", axis=0), "y")


def keys_of_another_layer(g: Graph) -> Sequence[str]:
    """Rewired: the score reads the embeddings' running mean twice."""
    outputs = reader(g)
    node(g, "score").input[1] = "running"
    return outputs


pair("another_tensor_is_read", reader, keys_of_another_layer, "score", OTHER, other=True)


# --- pictures in another layout or range


def seen(target: bool, fault: str) -> Callable[[Graph], Sequence[str]]:
    """Channels last as they come; standardised, and convolved."""

    def build(g: Graph) -> Sequence[str]:
        x = g.input("x", g.random.uniform(0, 255, size=(2, 12, 12, 3)).astype(np.float32))
        if fault == "layout" and target:
            x = g.op("Reshape", [x, ints(g, "s", 2, 3, 12, 12)], "nchw")
        else:
            x = g.op("Transpose", [x], "nchw", perm=[0, 3, 1, 2])
        mean, std = np.array([123.7, 116.3, 103.5]), np.array([58.4, 57.1, 57.4])
        if fault == "order" and target:
            mean, std = mean[::-1], std[::-1]
        if fault == "scale" and target:
            std = np.ones(3)
        x = g.op("Sub", [x, k(g, "mean", mean[:, None, None])], "centred")
        x = g.op("Div", [x, k(g, "std", std[:, None, None])], "unit")
        x = g.op("Elu", [g.conv(x, 3, 8, "c")], "elu")
        return [g.dense(g.op("Flatten", [g.op("GlobalMaxPool", [x], "gmp")], "flat"), 8, 4, "y")]

    return build


pair("reshaped_in_place_of_transposed", seen(False, "layout"), seen(True, "layout"), "nchw", OTHER, other=True)
pair("standardised_by_the_channels_of_bgr", seen(False, "order"), seen(True, "order"), "centred", other=True,
     extra=("unit",))  # fmt: skip
pair("not_divided_by_the_deviation", seen(False, "scale"), seen(True, "scale"), "unit", other=True)


# --- integers, decisions, quantised products


def strides(whole: bool) -> Callable[[Graph], Sequence[str]]:
    """Which cell a place lies in: by whole numbers, or by rounding."""

    def build(g: Graph) -> Sequence[str]:
        at = g.input("at", g.random.integers(0, 500, size=(2, 20)))
        if whole:
            cell = g.op("Div", [at, ints(g, "d", 8)], "cell")
        else:
            near = g.op("Div", [g.op("Cast", [at], "atf", to=TensorProto.FLOAT), k(g, "d", 8)], "near")
            cell = g.op("Cast", [g.op("Round", [near], "rounded")], "cell", to=TensorProto.INT64)
        e = g.op("Gather", [k(g, "table", g.random.normal(size=(70, 8))), cell], "e")
        return [g.dense(e, 8, 4, "y")]

    return build


pair("rounded_in_place_of_cut", strides(True), strides(False), "cell", OTHER, other=True)


def shifted(g: Graph) -> Sequence[str]:
    x = g.dense(tokens(g), 32, 16, "a")
    g.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], ["q", "s", "z"], name="node_q"))
    w = g.weight("w", g.random.integers(0, 255, size=(16, 8)).astype(np.uint8))
    whole = g.op("MatMulInteger", ["q", w, "z", g.weight("wz", np.uint8(128))], "whole")
    x = g.op("Mul", [g.op("Cast", [whole], "wf", to=TensorProto.FLOAT), "s"], "real")
    return [g.op("Mul", [x, k(g, "ws", 0.01)], "y")]


pair("zero_point_of_a_weight", shifted, lambda g: g.weights.update(wz=np.uint8(127)), "whole")
pair("scale_of_a_weight", shifted, _put("ws", (), 0.011), "y")


def chosen(g: Graph) -> Sequence[str]:
    """Decisions, masks and one-hot codes."""
    x = g.norm(tokens(g), 32, "n")
    clipped = g.op("Clip", [x, k(g, "lo", -1.5), k(g, "hi", 1.5)], "clip")
    yes = g.op("Greater", [g.dense(clipped, 32, 16, "a"), k(g, "limit", 0.2)], "yes")
    one, two = g.dense(clipped, 32, 16, "b"), g.dense(clipped, 32, 16, "c")
    picked = g.op("Where", [yes, one, two], "picked")
    best = g.op("ArgMax", [picked], "best", axis=-1, keepdims=0)
    code = g.op("OneHot", [best, g.weight("depth", np.int64(16)), k(g, "values", [0.1, 0.9])], "code")
    both = g.op("Mul", [code, picked], "both")
    return [g.op("ReduceSum", [both, ints(g, "ax", 1)], "y", keepdims=0)]


pair("other_branch_of_a_where", chosen, lambda g: node(g, "picked").input.__setitem__(
    slice(1, 3), ["c", "b"]), "picked", OTHER)  # fmt: skip
pair("limit_of_a_comparison", chosen, _put("limit", (), 0.5), "yes", OTHER)
pair("limit_of_a_clip", chosen, _put("hi", (), 1.0), "clip")
pair("values_of_a_code", chosen, _put("values", 0, 0.0), "code")
pair("axis_of_a_sum", chosen, lambda g: g.weights.update(ax=np.array([2], np.int64)), "y", "files_differ")
pair("two_matrices_swapped", chosen, swapped("b.w", "c.w"), "b_mm c_mm", also=("b_mm", "c_mm"))


# --- a weight in three places, in a body; a missing scale; modes


def tied(g: Graph) -> Sequence[str]:
    """One matrix, used in three layers."""
    w = k(g, "w", g.random.normal(size=(32, 32)) / 6)
    x = tokens(g)
    for n in range(3):
        x = g.norm(g.op("Add", [x, g.op("Tanh", [g.op("MatMul", [x, w], f"mm{n}")], f"t{n}")], f"r{n}"), 32, f"n{n}")
    return [g.dense(x, 32, 6, "y")]


pair("tied_weight", tied, _put("w", (3, slice(0, 9)), 1.0), "mm0 mm1 mm2")


def untied(g: Graph) -> Sequence[str]:
    """The last layer has a copy of its own, of another training step."""
    outputs = tied(g)
    k(g, "w_copy", g.weights["w"] + g.random.normal(size=(32, 32)).astype(np.float32) * 0.03)
    node(g, "mm2").input[1] = "w_copy"
    return outputs


pair("weight_no_longer_tied", tied, untied, "mm2", other=True)


def guarded(g: Graph) -> Sequence[str]:
    from planted.onnx_faults import _body, _info

    x = g.dense(tokens(g), 32, 32, "a")
    branches = [
        _body([helper.make_node("MatMul", [x, f"{key}_w"], [f"{key}_mm"], name=f"{key}_mm"),
               helper.make_node("Tanh", [f"{key}_mm"], [f"{key}_out"], name=f"{key}_tanh")],
              [], [_info(f"{key}_out", [2, 8, 32])],
              {f"{key}_w": (g.random.normal(size=(32, 32)) / 6).astype(np.float32)})
        for key in ("then", "else")
    ]  # fmt: skip
    yes = g.op("Greater", [g.op("ReduceMean", [x], "mean", keepdims=0), k(g, "limit", -50)], "yes")
    g.nodes.append(helper.make_node("If", [yes], ["out"], name="node_if", then_branch=branches[0],
                                    else_branch=branches[1]))  # fmt: skip
    return [g.dense("out", 32, 6, "y")]


def in_a_branch(g: Graph) -> None:
    from onnx import numpy_helper

    body = next(a.g for a in node(g, "if").attribute if a.name == "then_branch")
    w = numpy_helper.to_array(body.initializer[0]).copy()
    w[4, :7] += 1
    body.initializer[0].CopyFrom(numpy_helper.from_array(w, body.initializer[0].name))


pair("weight_of_a_branch", guarded, in_a_branch, "then_mm")


def scaled(missing: bool) -> Callable[[Graph], Sequence[str]]:
    """The logit scale of a model of pictures and words, learned as a logarithm."""

    def build(g: Graph) -> Sequence[str]:
        a, b = g.dense(tokens(g), 32, 16, "a"), g.dense("x", 32, 16, "b")
        parts = [g.op("Div", [one, g.op("ReduceL2", [one], f"{one}_n", axes=[-1])], f"{one}_u") for one in (a, b)]
        dot = g.op("MatMul", [parts[0], g.op("Transpose", [parts[1]], "t", perm=[0, 2, 1])], "dot")
        scale = k(g, "log_scale", 2.66)
        scale = scale if missing else g.op("Exp", [scale], "scale")
        return [g.op("Mul", [dot, scale], "y")]

    return build


pair("exponential_of_a_scale_left_out", scaled(False), scaled(True), "y scale", OTHER, other=True)


def shaped(g: Graph) -> Sequence[str]:
    """A norm over the last axis of a picture whose sides are as long as its channels are many."""
    x = g.input("x", g.random.normal(size=(2, 8, 8, 8)).astype(np.float32))
    x = g.op("HardSwish", [g.conv(x, 8, 8, "c")], "hs")
    x = g.op("Transpose", [x], "last", perm=[0, 2, 3, 1])
    x = g.norm(x, 8, "n")
    return [g.op("Transpose", [x], "y", perm=[0, 3, 1, 2])]


pair("norm_of_another_axis", shaped, _attribute("last", perm=[0, 3, 2, 1]), "last")
pair("reduced_in_simulated_bf16", decoder, _attribute("up", pads=[0, 0, 2, 2]), "up", mode="ort_bf16_sim")
pair("reader_in_float16", reader, weight("table", lambda t: np.roll(t, 1, axis=0)), "e", mode="ort_fp16_sim")
pair("decoder_in_int8", decoder, weight("up.w", lambda w: w[:, ::-1]), "up", mode="ort_int8", extra=("selu",))

# --- the same twice, written another way


def by_parts(g: Graph) -> Sequence[str]:
    """Softplus, Selu and the mean and variance, each in operators of its own."""
    outputs = decoder(g)
    place = next(i for i, n in enumerate(g.nodes) if n.name == "node_sp")
    g.nodes[place : place + 1] = [
        helper.make_node("Exp", ["in"], ["sp_e"], name="node_sp_e"),
        helper.make_node("Add", ["sp_e", k(g, "sp_1", 1)], ["sp_p"], name="node_sp_p"),
        helper.make_node("Log", ["sp_p"], ["sp"], name="node_sp_l"),
    ]
    return outputs


pair("softplus_by_parts", decoder, by_parts, other=True, kind="files clean")


def one_matrix_of_three(fused: bool) -> Callable[[Graph], Sequence[str]]:
    """Queries, keys and values by one product, or by three."""

    def build(g: Graph) -> Sequence[str]:
        x = g.norm(tokens(g), 32, "n")
        parts = [g.random.normal(size=(32, 16)) / 6 for _ in range(3)]
        if fused:
            both = g.op("MatMul", [x, k(g, "qkv.w", np.concatenate(parts, 1))], "qkv")
            g.nodes.append(helper.make_node("Split", [both], ["q", "k", "v"], name="node_split", axis=-1))
        else:
            for name, w in zip("qkv", parts, strict=True):
                g.op("MatMul", [x, k(g, f"{name}.w", w)], name)
        raw = g.op("Einsum", ["q", "k"], "raw", equation="bic,bjc->bij")
        p = g.op("Softmax", [g.op("Mul", [raw, k(g, "d", 0.25)], "score")], "p", axis=-1)
        return [g.op("MatMul", [p, "v"], "y")]

    return build


pair("one_product_or_three", one_matrix_of_three(False), one_matrix_of_three(True), other=True, kind="files clean")
