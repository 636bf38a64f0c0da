"""A twentieth batch, by somebody who built none of it: packed weights of GPTQ and AWQ, bytes of one float8 read as
another, integer operators that lost a zero point, attributes of operators that the batches before lack, formulas of
control, geometry and imaging in narrow types, 8 and 4 bits, OpenVINO. Labelled before the tool was run on any; what a
docstring states was measured in the stock engine or numpy (``python tests/planted/fourteenth_truth.py twentieth``)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from planted import fourteenth_onnx
from planted.fifteenth_onnx import SEVEN
from planted.fourteenth_onnx import ROUNDS, _fed, _filters
from planted.onnx_faults import Array, Graph
from planted.onnx_further import ints, k
from planted.shared import two_graphs
from planted.twelfth.case import COARSE, DIFFER, Thread

# After the first run: labels that took for granted what an engine rounds, or where a stretch ends, were put right
# (RESULTS, the twentieth batch).
CASES: list[Thread] = []
Made = tuple[Path, Path, Mapping[str, Array]]
case = functools.partial(fourteenth_onnx.case, cases=CASES)
MS = {"domain": "com.microsoft"}
OTHER = f"{DIFFER} unfound"
LOSES = f"{ROUNDS} stepped found_by_repair rounded_constant"
TOO_COARSE = f"{COARSE} mask_range packed reads_rounded outlier_channel constant_scale found_by_repair saturation"
two = functools.partial(two_graphs, CASES, 2020)


# --- packed weights


def _packed(g: Graph, how: str) -> Sequence[str]:
    """A weight of 32 inputs in groups of 16, in 4 bits with zero points, as an exporter unpacks it."""
    x = _fed(g, 6, 32)
    codes = g.random.integers(0, 16, (32, 24))
    zeros, scales = g.random.integers(5, 11, (2, 24)), g.random.uniform(0.02, 0.06, (2, 24))
    group = np.arange(32) // 16
    order = g.random.permutation(32)
    if how in ("ordered", "in_turn"):  # act-order: each input has a group of its own
        group = group[order] if how == "ordered" else group
    if how == "less_one":
        zeros = zeros - 1
    if how == "awq":
        codes = codes.reshape(32, 3, 8)[..., [0, 2, 4, 6, 1, 3, 5, 7]].reshape(32, 24)
    if how == "folded":
        w = k(g, "w", (codes - zeros[group]) * scales[group])
    else:
        name = [g.weight("w_q", codes.astype(np.int8)), g.weight("zeros", zeros.astype(np.int8)[group])]
        less = g.op("Sub", [g.op("Cast", [one], f"{one}_f", to=TensorProto.FLOAT) for one in name], "less")
        w = g.op("Mul", [less, k(g, "scales", scales[group])], "w")
    return [g.dense(g.op("Relu", [g.op("MatMul", [x, w], "h")], "r"), 24, 4, "y")]


_PACKED = "w less zeros_f w_q_f h"
two(_packed, "ordered", "in_turn", "groups_of_gptq_read_without_their_index",
    "g_idx was ignored: inputs take the scale and zero point of the group that stands at their place.", _PACKED,
    facts=[r"zeros|scales"])  # fmt: skip
two(_packed, "plain", "less_one", "zero_points_of_gptq_stored_one_less",
    "AutoGPTQ stores zero points less one; nothing adds it back: each weight is one step too large.", _PACKED,
    facts=[r"\bzeros\b"])  # fmt: skip
two(_packed, "plain", "awq", "nibbles_of_awq_read_in_turn",
    "AWQ packs eight columns in the order 0 2 4 6 1 3 5 7; they are read one after the other.", _PACKED,
    facts=["w_q"])  # fmt: skip
two(_packed, "plain", "folded", "packed_weight_folded_into_floats", "The same codes, folded into a float weight.")


def _bits(g: Graph, how: str) -> Sequence[str]:
    """MatMulNBits of 4 bits in blocks of 16, with zero points of 3 to 12."""
    x = _fed(g, 5, 32)
    codes = g.random.integers(0, 16, (16, 2, 16))
    scales, zeros = g.random.uniform(0.02, 0.05, (16, 2)), g.random.integers(3, 12, (16, 2))
    pack = codes[..., ::2] + 16 * codes[..., 1::2]
    told = [x, g.weight("B", pack.astype(np.uint8)), k(g, "scales", scales.reshape(-1))]
    zero = zeros[:, :1] + 16 * zeros[:, 1:]
    if how == "floats":
        w = (codes - zeros[..., None]) * scales[..., None]
        h = g.op("MatMul", [x, k(g, "w", w.reshape(16, 32).T)], "h")
    else:
        given = [] if how == "without" else [g.weight("zeros", zero.astype(np.uint8).reshape(-1))]
        h = g.op("MatMulNBits", told + given, "h", **MS, K=32, N=16, bits=4, block_size=16)
    return [g.dense(g.op("Tanh", [h], "t"), 16, 4, "y")]


two(_bits, "with", "without", "zero_points_that_matmulnbits_was_not_given",
    "The input with the blocks' zero points was left out: 8 is taken for each.", "h", facts=["zero"])  # fmt: skip
two(_bits, "floats", "with", "matmulnbits_beside_its_floats", "MatMulNBits beside a MatMul of what it stores.")


def _float8(g: Graph, how: str) -> Sequence[str]:
    import ml_dtypes

    w = g.random.normal(size=(16, 16)) / 4
    bytes_ = w.astype(ml_dtypes.float8_e4m3fn).view(np.uint8)
    kind = {"fn": ml_dtypes.float8_e4m3fn, "fnuz": ml_dtypes.float8_e4m3fnuz}[how]
    g.weights["w_8"] = bytes_.view(kind)
    w_f = g.op("Cast", ["w_8"], "w", to=TensorProto.FLOAT)
    return [g.dense(g.op("Relu", [g.op("MatMul", [_fed(g, 5, 16), w_f], "h")], "r"), 16, 4, "y")]


two(_float8, "fn", "fnuz", "bytes_of_float8_read_with_another_bias",
    "Bytes of float8 e4m3fn are declared e4m3fnuz, whose exponent has a bias of one more: weights are halved.", "w h",
    opset=19, facts=["w_8|fnuz"])  # fmt: skip

# --- integer operators


def _integers(g: Graph, how: str) -> Sequence[str]:
    x = _fed(g, 6, 16)
    g.nodes.append(helper.make_node("DynamicQuantizeLinear", [x], ["x_q", "x_s", "x_z"], name="node_x_q"))
    g.weights["w_q"] = g.random.integers(60, 200, (16, 12)).astype(np.uint8)
    zero = [g.weight("w_z", np.array(128, np.uint8))]
    given = {"both": ["x_z", *zero], "input": ["x_z"], "signed": ["x_z"]}[how]
    if how == "signed":
        g.weights["w_q"] = (g.weights["w_q"].astype(int) - 128).astype(np.int8)
    made = g.op("MatMulInteger", ["x_q", "w_q", *given], "whole")
    scale = g.op("Mul", ["x_s", k(g, "w_s", 0.004)], "scale")
    h = g.op("Mul", [g.op("Cast", [made], "float", to=TensorProto.FLOAT), scale], "h")
    return [g.dense(g.op("Relu", [h], "r"), 12, 4, "y")]


two(_integers, "both", "input", "integer_product_without_the_weights_zero_point",
    "MatMulInteger was written without b_zero_point: 128 is not taken off the weights' codes.", "whole float h",
    facts=["zero"])  # fmt: skip
two(_integers, "both", "signed", "weights_moved_from_unsigned_to_signed",
    "Weights of uint8 about 128 became int8 about 0: the same product.")


def _subtracted(g: Graph, late: bool) -> Sequence[str]:
    x = g.input("x", g.random.integers(0, 256, (2, 3, 8, 8)).astype(np.uint8))
    if late:
        x = g.op("Cast", [x], "wide", to=TensorProto.FLOAT)
        x = g.op("Sub", [x, k(g, "level", 128)], "less")
    else:
        x = g.op("Cast", [g.op("Sub", [x, g.weight("level", np.array(128, np.uint8))], "less_whole")], "less",
                 to=TensorProto.FLOAT)  # fmt: skip
    x = g.op("Mul", [x, k(g, "unit", 1 / 64)], "scaled")
    return [g.conv(g.op("Relu", [g.conv(x, 3, 6, "a")], "r"), 6, 4, "y")]


two(_subtracted, True, False, "level_taken_off_before_the_cast",
    "128 is subtracted from bytes before the cast: what is darker wraps to 128 to 255.", "less less_whole", OTHER,
    extra="less less_whole scaled")  # fmt: skip


def _convolved(g: Graph, rolled: bool) -> Sequence[str]:
    x = _fed(g, 1, 3, 8, 8)
    xq = g.op("QuantizeLinear", [x, k(g, "x_s", 0.03), g.weight("x_z", np.array(128, np.uint8))], "x_q")
    g.weights["w_q"] = g.random.integers(-90, 90, (6, 3, 3, 3)).astype(np.int8)
    w_s = np.geomspace(0.001, 0.01, 6)
    told = ["x_s", "x_z", "w_q", k(g, "w_s", w_s[::-1] if rolled else w_s), g.weight("w_z", np.zeros(6, np.int8)),
            k(g, "c_s", 0.03), g.weight("c_z", np.array(128, np.uint8))]  # fmt: skip
    c = g.op("QLinearConv", [xq, *told], "c_q", pads=[1, 1, 1, 1])
    c = g.op("DequantizeLinear", [c, "c_s", "c_z"], "c")
    return [g.conv(g.op("Relu", [c], "r"), 6, 4, "y")]


two(_convolved, False, True, "scales_of_filters_from_the_last",
    "QLinearConv's scales of its filters stand in the opposite order.", "c_q c", facts=["w_s"])  # fmt: skip

# --- attributes and inputs


def _act(g: Graph, how: Any) -> Sequence[str]:
    x = g.dense(_fed(g, 5, 12), 12, 16, "a", 3)
    return [g.dense(g.op(how[0], [x], "act", **how[1]), 16, 4, "y")]


two(_act, ("Celu", {"alpha": 2.0}), ("Elu", {"alpha": 2.0}), "celu_written_as_an_elu",
    "Celu divides by alpha in the exponent, Elu does not: both with alpha 2.", "act", OTHER, facts=["Elu|Celu"])
two(_act, ("ThresholdedRelu", {"alpha": 0.25}), ("ThresholdedRelu", {}), "threshold_of_a_relu_left_at_one",
    "alpha of 0.25 was lost; the operator's default is 1.", "act", facts=["alpha"])  # fmt: skip
two(_act, ("Softsign", {}), ("Tanh", {}), "softsign_mapped_to_tanh", "x / (1 + |x|) became a tanh.", "act", OTHER,
    facts=["Tanh"])  # fmt: skip
two(_act, ("Elu", {"alpha": 1.0}), ("Celu", {"alpha": 1.0}), "elu_as_a_celu_of_one", "Both are the same at alpha 1.")


def _pooled(g: Graph, how: Any) -> Sequence[str]:
    x = g.op("Relu", [g.conv(_fed(g, 1, 3, 13, 13), 3, 6, "a")], "r")
    x = g.op(how[0], [x], "pooled", **{"kernel_shape": [3, 3], "strides": [2, 2], **how[1]})
    x = g.op("GlobalAveragePool", [g.op("Tanh", [x], "t")], "mean")
    return [g.dense(g.op("Flatten", [x], "flat"), 6, 4, "y")]


two(_pooled, ("LpPool", {"p": 1}), ("LpPool", {}), "sum_of_a_window_taken_for_its_root",
    "LpPool lost p = 1: the default is the root of squares.", "pooled", opset=18, facts=[r"\bp\b"])  # fmt: skip
two(_pooled, ("MaxPool", {"pads": [1, 1, 1, 1]}), ("AveragePool", {"pads": [1, 1, 1, 1]}), "largest_became_the_mean",
    "A maximum over windows became a mean.", "pooled", OTHER, mode="ort_opt", facts=["AveragePool"])  # fmt: skip
two(_pooled, ("MaxPool", {"auto_pad": "SAME_UPPER"}), ("MaxPool", {"pads": [1, 1, 1, 1]}), "same_pads_told_in_numbers",
    "SAME_UPPER of 13 by a stride of 2 is 1 on each side: the same.")  # fmt: skip


def _recurrent(g: Graph, how: Any) -> Sequence[str]:
    x = _fed(g, 7, 2, 8)
    given = [k(g, n, g.random.normal(size=s) / 2) for n, s in (("w", (1, 48, 8)), ("rr", (1, 48, 12)))]
    given.append(k(g, "b", g.random.normal(size=(1, 96)) / 2))
    g.nodes.append(helper.make_node("LSTM", [x, *given], ["h4", "last"], name="node_h4", hidden_size=12, **how))
    return [g.dense(g.op("Squeeze", ["h4", ints(g, "ax", 1)], "h"), 12, 4, "y")]


two(_recurrent, {"clip": 0.5}, {}, "clip_of_an_lstm_lost", "LSTM lost its clip of 0.5 before the activations.", "h4",
    extra="h4 last h", facts=["clip"])  # fmt: skip


def _classes(g: Graph, how: Any) -> Sequence[str]:
    x = g.input("x", g.random.integers(0, 6, (6, 6)).astype(np.int64))
    hot = g.op("OneHot", [x, g.weight("depth", np.array(6, np.int64)), k(g, "values", how.get("values", [0, 1]))],
               "hot", axis=how.get("axis", -1))  # fmt: skip
    return [g.dense(g.dense(hot, 6, 16, "a"), 16, 4, "y")]


two(_classes, {}, {"axis": 1}, "classes_along_the_words", "OneHot's axis is 1 in place of the last, all 6 long.",
    "hot", facts=["axis"])  # fmt: skip
two(_classes, {}, {"values": [1, 0]}, "on_and_off_exchanged", "OneHot's two values changed places.", "hot",
    facts=["values"])  # fmt: skip


def _seen(g: Graph, at: int) -> Sequence[str]:
    x = _fed(g, 2, 8, 12)
    score = g.op("MatMul", [g.dense(x, 12, 12, "q", 2), g.op("Transpose", [g.dense(x, 12, 12, "kk", 2)], "kt",
                                                          perm=[0, 2, 1])], "score")  # fmt: skip
    seen = g.op("Trilu", [k(g, "full", np.ones((8, 8))), g.weight("diagonal", np.array(at, np.int64))], "seen",
                upper=0)  # fmt: skip
    away = g.op("Mul", [g.op("Sub", [k(g, "one", 1), seen], "unseen"), k(g, "low", -1e4)], "away")
    share = g.op("Softmax", [g.op("Add", [score, away], "masked")], "share", axis=-1)
    return [g.dense(g.op("MatMul", [share, x], "mixed"), 12, 4, "y")]


two(_seen, 0, 1, "triangle_that_sees_one_ahead", "Trilu's k is 1 in place of 0: each word sees the next one.", "seen",
    extra="seen unseen away masked", facts=["diagonal|seen"])  # fmt: skip


def _letters(g: Graph, how: str) -> Sequence[str]:
    x = _fed(g, 3, 8, 8)
    a, b = g.dense(x, 8, 8, "a"), g.dense(x, 8, 8, "b")
    y = g.op("Einsum", [a, b], "both", equation=how)
    return [g.dense(g.op("Tanh", [g.op("Mul", [y, k(g, "s", 0.3)], "less")], "t"), 8, 4, "y")]


two(_letters, "bij,bkj->bik", "bij,bjk->bik", "letters_of_an_einsum_exchanged",
    "The second operand is read by rows in place of columns, both 8 long.", "both", facts=["equation"])  # fmt: skip
two(_letters, "bij,bkj->bik", "nqd,nkd->nqk", "the_same_einsum_in_other_letters", "Other letters mean the same.")


def _normed(g: Graph, how: Any) -> Sequence[str]:
    x = g.op("Mul", [g.dense(_fed(g, 4, 6, 16), 16, 16, "a"), k(g, "loud", np.arange(1, 7)[:, None])], "grown")
    gain = k(g, "gain", np.ones((6, 16) if how else 16))
    n = g.op("LayerNormalization", [x, gain], "n", axis=how.get("axis", -1), epsilon=1e-5)
    return [g.dense(n, 16, 4, "y")]


two(_normed, {}, {"axis": 1}, "layer_norm_over_words_and_channels",
    "LayerNormalization's axis is 1: six words of unlike size are normed together.", "n", facts=["axis"])  # fmt: skip


def _cropped(g: Graph, how: Any) -> Sequence[str]:
    x = g.op("Relu", [g.conv(_fed(g, 1, 3, 10, 10), 3, 4, "a")], "r")
    roi = k(g, "roi", [0, 0, -0.3, -0.3, 1, 1, 1.2, 1.2])
    x = g.op("Resize", [x, roi, "", ints(g, "sizes", 1, 4, 12, 12)], "cut", mode="linear",
             coordinate_transformation_mode="tf_crop_and_resize", **how)  # fmt: skip
    return [g.conv(x, 4, 3, "y")]


two(_cropped, {"extrapolation_value": 1.0}, {}, "grey_beyond_a_crop_lost",
    "A crop that reaches beyond the picture lost extrapolation_value 1: it is filled with 0.", "cut",
    facts=["extrapolation_value"])  # fmt: skip


def _sampled(g: Graph, how: Any) -> Sequence[str]:
    x = g.op("Relu", [g.conv(_fed(g, 1, 3, 12, 12), 3, 4, "a")], "r")
    rois = k(g, "rois", [[0, 0, 11, 11], [2, 1, 9, 10], [4, 4, 11, 8]])
    x = g.op("RoiAlign", [x, rois, ints(g, "of", 0, 0, 0)], "regions", output_height=3, output_width=3,
             **{"sampling_ratio": 2, "spatial_scale": 1.0, **how})  # fmt: skip
    return [g.dense(g.op("Flatten", [x], "flat"), 36, 4, "y")]


two(_sampled, {}, {"mode": "max"}, "regions_by_their_largest", "RoiAlign's mode became max.", "regions",
    facts=["mode"])  # fmt: skip


def _rotated(g: Graph, how: Any) -> Sequence[str]:
    x = g.dense(_fed(g, 1, 6, 16), 16, 16, "a", 2)
    x = g.op("Transpose", [g.op("Reshape", [x, ints(g, "to", 1, 6, 2, 8)], "cut")], "heads", perm=[0, 2, 1, 3])
    at = np.arange(12)[:, None] * 10000.0 ** (-np.arange(4) / 4)
    place = g.weight("at", np.arange(6)[None] + how.pop("first", 0))
    x = g.op("RotaryEmbedding", [x, place, k(g, "cos", np.cos(at)), k(g, "sin", np.sin(at))], "turned", **MS, **how)
    x = g.op("Reshape", [g.op("Transpose", [x], "back", perm=[0, 2, 1, 3]), ints(g, "flat", 1, 6, 16)], "joined")
    return [g.dense(x, 16, 4, "y")]


two(lambda g, how: _rotated(g, dict(how)), {"interleaved": 1}, {}, "rotary_operator_that_lost_its_pairs",
    "RotaryEmbedding lost interleaved 1: halves are turned in place of neighbours.", "turned", facts=["interleaved"])
two(lambda g, how: _rotated(g, dict(how)), {"first": 4}, {}, "rotary_places_without_what_is_cached",
    "Four words are cached; the places begin at 0 in place of 4.", "turned", facts=[r"\bat\b"])  # fmt: skip


def _embedded(g: Graph, segments: bool) -> Sequence[str]:
    ids = g.input("ids", g.random.integers(0, 20, (2, 6)).astype(np.int32))
    kinds = g.weight("kinds", np.tile(np.arange(6) > 2, (2, 1)).astype(np.int32))
    g.weights["kinds"] = g.weights["kinds"] if segments else np.zeros_like(g.weights["kinds"])
    tables = [k(g, n, g.random.normal(size=(rows, 16))) for n, rows in (("words", 20), ("places", 8), ("segment", 2))]
    given = [ids, kinds, *tables, k(g, "gain", np.ones(16)), k(g, "shift", np.zeros(16))]
    g.nodes.append(helper.make_node("EmbedLayerNormalization", given, ["n", "m_index"], name="node_n", epsilon=1e-12,
                                    **MS))  # fmt: skip
    return [g.dense("n", 16, 4, "y")]


two(_embedded, True, False, "second_segment_taken_for_the_first",
    "The pair's second sentence has token type 0 in place of 1.", "n", facts=["kinds"])  # fmt: skip


def _last(g: Graph, how: str) -> Sequence[str]:
    x = g.op("Tanh", [g.dense(_fed(g, 3, 7, 12), 12, 16, "a")], "t")
    if how == "gather":
        x = g.op("Gather", [x, g.weight("at", np.array(-1, np.int64))], "last", axis=1)
    else:
        at = [ints(g, n, v) for n, v in (("from", 6), ("to", 7), ("axis", 1))]
        x = g.op("Squeeze", [g.op("Slice", [x, *at], "cut"), ints(g, "ax", 1)], "last")
    return [g.dense(x, 16, 4, "y")]


two(_last, "gather", "slice", "last_word_gathered_or_cut", "A Gather of -1 beside a slice and a squeeze.")


def _both(g: Graph, how: Any) -> Sequence[str]:
    """Two branches that meet, each with its own setting."""
    slope, sizes = how
    x = _fed(g, 4, 16)
    a = g.op("LeakyRelu", [g.dense(x, 16, 24, "a", 2)], "left", alpha=slope)
    b = g.op("LpNormalization", [g.dense(x, 16, 24, "b", 2)], "right", axis=-1, p=sizes)
    b = g.op("Mul", [b, k(g, "four", 5)], "wide")
    return [g.dense(g.op("Add", [a, b], "sum"), 24, 6, "y")]


two(_both, (0.2, 2), (0.01, 1), "slope_and_norm_both_lost",
    "Two faults: LeakyRelu's slope is 0.01 in place of 0.2, and LpNormalization's p is 1 in place of 2.", "left right",
    also="left right", facts=["alpha", r"\bp\b"])  # fmt: skip


def _stacked(g: Graph, how: Any) -> Sequence[str]:
    eps, bias = how
    x = _fed(g, 2, 5, 16, scale=0.03)
    n = g.norm(x, 16, "n", eps)
    up = g.op("Gelu", [g.dense(n, 16, 32, "up")], "act")
    if not bias:
        g.weights["up.b"] = np.zeros_like(g.weights["up.b"])
    return [g.dense(up, 32, 6, "y")]


two(_stacked, (1e-3, True), (1e-5, False), "epsilon_and_bias_both_lost",
    "Two faults in a row: epsilon 1e-5 in place of 1e-3 beside variances of 9e-4, and a bias of zeros behind it.",
    "n up", also="n up", opset=20, facts=["epsilon", r"up\.b"])  # fmt: skip


def _grouped(g: Graph, how: str) -> Sequence[str]:
    x = _fed(g, 1, 8, 6, 6)
    w = g.random.normal(size=(8, 4, 3, 3)) / 6
    if how == "two":
        x = g.op("Conv", [x, k(g, "w", w)], "c", group=2, pads=[1, 1, 1, 1])
    else:
        wide = np.zeros((8, 8, 3, 3))
        wide[:4, :4], wide[4:, 4:] = w[:4], w[4:]
        x = g.op("Conv", [x, k(g, "w", wide)], "c", pads=[1, 1, 1, 1])
    return [g.conv(g.op("Relu", [x], "r"), 8, 3, "y")]


two(_grouped, "two", "one", "groups_as_blocks_of_a_wide_filter", "Two groups as one filter with blocks of zeros.")


def _quotient(g: Graph, how: str) -> Sequence[str]:
    x = g.dense(_fed(g, 4, 12), 12, 16, "a")
    by = g.random.uniform(0.5, 3, 16)
    x = g.op("Div", [x, k(g, "by", by)], "d") if how == "div" else g.op("Mul", [x, k(g, "by", 1 / by)], "d")
    return [g.dense(g.op("Tanh", [x], "t"), 16, 4, "y")]


two(_quotient, "div", "mul", "quotient_as_a_product", "A division by constants became a product with their inverses.",
    mode="ort_opt")  # fmt: skip


def _axes(g: Graph, how: str) -> Sequence[str]:
    x = g.conv(_fed(g, 2, 3, 8, 8), 3, 6, "a")
    if how == "mean":
        x = g.op("ReduceMean", [x], "m", axes=[2, 3], keepdims=0)
    else:
        x = g.op("Flatten", [g.op("GlobalAveragePool", [x], "pool")], "m")
    return [g.dense(g.op("Relu", [x], "r"), 6, 4, "y")]


two(_axes, "mean", "pool", "mean_over_a_picture_as_a_pool", "A mean over height and width as a global pool.")


def _square(g: Graph, how: str) -> Sequence[str]:
    x = _fed(g, 8, 8)
    x = g.op("Add", [g.dense(x, 8, 8, "a"), k(g, "shift", g.random.normal(size=(8, 1) if how == "rows" else (1, 8)))],
             "moved")  # fmt: skip
    return [g.dense(g.op("Relu", [x], "r"), 8, 4, "y")]


two(_square, "columns", "rows", "shift_of_channels_laid_along_the_samples",
    "A bias of 8 channels has the shape (8, 1) in place of (1, 8), beside 8 samples.", "moved", OTHER,
    facts=["shift"])  # fmt: skip

# --- float16 and bfloat16


@case("formula", "ort_fp16_sim", "det main other ad bc", LOSES, extra="det main other ad bc y a b")  # fmt: skip
def inverse_of_a_matrix_that_is_nearly_singular(g: Graph) -> Sequence[str]:
    """ad - bc of a = d = 1 + e, b = c = 1: e of 0.001 to 0.004 leaves 0.002 to 0.008, where float16 steps by 0.001."""
    x = g.input("x", g.random.uniform(0.001, 0.004, (10, 2)).astype(np.float32))
    d = g.op("Add", [x, k(g, "one", 1)], "main")
    ad = g.op("ReduceProd", [d], "ad", axes=[1], keepdims=1)
    return [g.op("Reciprocal", [g.op("Sub", [ad, k(g, "bc", 1)], "det")], "y")]


@case("overflow", "ort_fp16_sim", "power7 power6", "overflow", extra="power7 power6 term7 y sum")  # fmt: skip
def calibration_polynomial_of_the_seventh_degree(g: Graph) -> Sequence[str]:
    """x^7 of x from 4 to 6 is 16,384 to 279,936: beyond 65504 from 4.88 on; its coefficient is 1e-5."""
    x = g.input("x", g.random.uniform(4, 6, (12, 3)).astype(np.float32))
    p, total = x, g.op("Mul", [x, k(g, "c1", 0.05)], "term1")
    for n in range(2, 8):
        p = g.op("Mul", [p, x], f"power{n}")
        if n == 7:
            total = g.op("Add", [total, g.op("Mul", [p, k(g, "c7", 1e-5)], "term7")], "sum")
    return [g.dense(g.op("Tanh", [total], "t"), 3, 4, "y")]


@case("formula", "ort_fp16_sim", "chance rest", f"{LOSES} born", extra="rest odds log chance y")  # fmt: skip
def odds_of_what_is_nearly_certain(g: Graph) -> Sequence[str]:
    """log(p / (1 - p)) of p from 0.998 to 0.9995: 1 - p is 5e-4 to 2e-3, and float16 steps by 4.9e-4 there."""
    x = g.input("x", g.random.uniform(6.2, 7.6, (8, 5)).astype(np.float32))
    p = g.op("Sigmoid", [x], "chance")
    odds = g.op("Div", [p, g.op("Sub", [k(g, "one", 1), p], "rest")], "odds")
    return [g.op("Log", [odds], "log")]


@case("overflow", "ort_fp16_sim", "depth", "overflow", extra="depth metres")  # fmt: skip
def depth_from_a_small_disparity(g: Graph) -> Sequence[str]:
    """1 / d of disparities from 5e-6 to 4e-5 is 25,000 to 200,000; the baseline of 1e-4 follows."""
    x = g.input("x", g.random.uniform(5e-6, 4e-5, (6, 8)).astype(np.float32))
    depth = g.op("Reciprocal", [x], "depth")
    return [g.dense(g.op("Mul", [depth, k(g, "baseline", 1e-4)], "metres"), 8, 3, "y")]


@case("formula", "ort_fp16_sim", "kernel less away", "underflow coarse_scale coarse overflow born found_by_repair",
      extra="kernel less away total y weight held square")  # fmt: skip
def weights_of_a_far_kernel(g: Graph) -> Sequence[str]:
    """exp(-d^2 / 2) of d from 5 to 6.5 is 3.7e-6 to 7e-10: of these most are 0 in float16 before they are divided by
    their sum."""
    x = g.input("x", g.random.uniform(5.8, 6.6, (6, 10)).astype(np.float32))
    square = g.op("Mul", [x, x], "square")
    w = g.op("Exp", [g.op("Mul", [square, k(g, "half", -0.5)], "away")], "kernel")
    total = g.op("Add", [g.op("ReduceSum", [w, ints(g, "ax", 1)], "total", keepdims=1), k(g, "tiny", 1e-30)], "held")
    return [g.dense(g.op("Div", [w, total], "weight"), 10, 4, "y")]


@case("formula", "ort_bf16_sim", "x pixels way", LOSES, extra="way y near pixels")  # fmt: skip
def place_between_two_pixels(g: Graph) -> Sequence[str]:
    """x less its floor of places from 100 to 900: bfloat16 steps by 0.5 to 4 there, and nothing of the rest is left."""
    x = g.input("x", g.random.uniform(0.1, 0.9, (8, 6)).astype(np.float32))
    way = g.op("Mul", [x, k(g, "width", 1000)], "pixels")
    rest = g.op("Sub", [way, g.op("Floor", [way], "near")], "way")
    return [g.dense(rest, 6, 4, "y")]


@case("formula", "ort_bf16_sim", "sum energy raw square mean mean2", f"{LOSES} long_reduction drift",
      extra="sum energy raw square mean mean2")  # fmt: skip
def level_of_a_signal_over_an_offset(g: Graph) -> Sequence[str]:
    """mean(x^2) - mean(x)^2 of a signal of 0.3 about 8: 64.09 less 64.0, and bfloat16 steps by 0.25 there."""
    x = g.op("Add", [_fed(g, 6, 64, scale=0.3), k(g, "offset", 8)], "raw")
    energy = g.op("ReduceMean", [g.op("Mul", [x, x], "square")], "energy", axes=[1], keepdims=1)
    mean = g.op("ReduceMean", [x], "mean", axes=[1], keepdims=1)
    return [g.op("Sub", [energy, g.op("Mul", [mean, mean], "mean2")], "sum")]


@case("overflow", "ort_fp16_sim", "square", "overflow", extra="square total root mean held")  # fmt: skip
def root_mean_square_of_a_loud_recording(g: Graph) -> Sequence[str]:
    """Samples of up to 32767 as whole numbers: their squares reach 1e9, beyond float16."""
    x = g.input("x", (g.random.normal(size=(4, 32)) * 5000).astype(np.float32))
    total = g.op("ReduceMean", [g.op("Mul", [x, x], "square")], "mean", axes=[1], keepdims=1)
    root = g.op("Sqrt", [g.op("Add", [total, k(g, "one", 1)], "held")], "root")
    return [g.dense(g.op("Div", [x, root], "level"), 32, 4, "y")]


@case("healthy", "ort_fp16_sim")
def quaternions_to_rotations(g: Graph) -> Sequence[str]:
    """q / |q|, 2 (q_i q_j) and a product: numbers of about one."""
    q = g.dense(_fed(g, 8, 12), 12, 4, "q", 2)
    q = g.op("LpNormalization", [q], "unit", axis=-1, p=2)
    both = g.op("Einsum", [q, q], "outer", equation="bi,bj->bij")
    return [g.dense(g.op("Flatten", [g.op("Mul", [both, k(g, "two", 2)], "double")], "flat"), 16, 6, "y")]


@case("healthy", "ort_fp16_sim")
def gamma_of_a_screen(g: Graph) -> Sequence[str]:
    """x^(1/2.2) of pictures from 0.01 to 1 between two convolutions."""
    x = g.input("x", g.random.uniform(0.01, 1, (1, 3, 10, 10)).astype(np.float32))
    x = g.op("Pow", [x, k(g, "gamma", 1 / 2.2)], "curve")
    return [g.conv(g.op("Relu", [g.conv(x, 3, 8, "a")], "r"), 8, 3, "y")]


@case("healthy", "ort_bf16_sim")
def mixer_of_tokens_and_channels(g: Graph) -> Sequence[str]:
    """A norm, a product over words, one over channels, two skips."""
    x = _fed(g, 2, 8, 16)
    n = g.op("Transpose", [g.norm(x, 16, "n1")], "turned", perm=[0, 2, 1])
    n = g.op("Transpose", [g.dense(n, 8, 8, "words")], "back", perm=[0, 2, 1])
    x = g.op("Add", [x, n], "skip")
    return [g.dense(g.mlp(g.norm(x, 16, "n2"), 16, "m"), 16, 4, "y")]


@case("healthy", "ort_fp16")
def attention_pooled_by_a_learned_query(g: Graph) -> Sequence[str]:
    """One learned query over twelve words, converted to float16."""
    x = _fed(g, 2, 12, 16)
    key = g.op("Transpose", [g.dense(x, 16, 16, "key")], "kt", perm=[0, 2, 1])
    score = g.op("MatMul", [k(g, "query", g.random.normal(size=(1, 1, 16)) / 4), key], "score")
    mixed = g.op("MatMul", [g.op("Softmax", [score], "share", axis=-1), x], "mixed")
    return [g.dense(mixed, 16, 5, "y")]


# --- 8 and 4 bits


@case("int8", "ort_int8", "row", TOO_COARSE, options=SEVEN, offered=None, extra="row h h_mm a a_mm q y")  # fmt: skip
def row_of_a_table_that_is_never_read(g: Graph) -> Sequence[str]:
    """An embedding's padding row is 60 times the others and never read; the table's one scale is the padding's."""
    table = g.random.normal(size=(40, 16))
    table[0] *= 60
    ids = g.input("ids", g.random.integers(1, 40, (4, 9)).astype(np.int64))
    row = g.op("Gather", [k(g, "table", table), ids], "row")
    return [g.dense(g.op("Relu", [g.dense(row, 16, 32, "a")], "r"), 32, 6, "y")]


@case("int8", "ort_int8", "energy held x log", TOO_COARSE, options=SEVEN,
      offered=None, extra="energy log held loud x y a a_mm")
def energy_of_a_sound_with_a_peak(g: Graph) -> Sequence[str]:
    """Squares of numbers of which one is 60: their step is 14, and all others are below a step; the logarithm
    follows."""
    x = g.random.normal(size=(16, 24))
    x[0, 0] = 60
    x = g.input("x", x.astype(np.float32))
    energy = g.op("Mul", [x, x], "energy")
    log = g.op("Log", [g.op("Add", [energy, k(g, "floor", 0.01)], "held")], "log")
    return [g.dense(log, 24, 6, "y")]


@case("int8", "ort_int8_dynamic", "h h_mm", TOO_COARSE + " outlier_token weight_outlier", options=SEVEN, offered=None,
      extra="h h_mm y y_mm")  # fmt: skip
def one_weight_of_a_hundred_in_dynamic_int8(g: Graph) -> Sequence[str]:
    """One weight of 2048 is 40 times the largest other: the tensor's one scale is its, and others have 3 steps."""
    x = _fed(g, 6, 32)
    h = g.dense(x, 32, 64, "h")
    g.weights["h.w"][3, 5] = 20.0
    return [g.dense(g.op("Tanh", [h], "t"), 64, 8, "y")]


@case("healthy", "ort_int8_dynamic", options=SEVEN)
def classifier_of_pooled_words_in_dynamic_int8(g: Graph) -> Sequence[str]:
    """Words pooled by their mean, three layers."""
    x = g.op("ReduceMean", [_fed(g, 6, 10, 32)], "pooled", axes=[1], keepdims=0)
    x = g.op("Relu", [g.dense(x, 32, 64, "a")], "r")
    return [g.dense(g.op("Relu", [g.dense(x, 64, 64, "b")], "r2"), 64, 8, "y")]


@case("healthy", "ort_int8", options=SEVEN)
def residual_blocks_in_static_int8(g: Graph) -> Sequence[str]:
    """Two residual blocks of plain convolutions and a pool."""
    x = g.op("Relu", [g.conv(_fed(g, 8, 3, 10, 10), 3, 12, "stem")], "s")
    for n in range(2):
        y = g.conv(g.op("Relu", [g.conv(x, 12, 12, f"a{n}")], f"ra{n}"), 12, 12, f"b{n}", 0.5)
        x = g.op("Relu", [g.op("Add", [x, y], f"sum{n}")], f"rb{n}")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "p")], "flat"), 12, 6, "y", 3)]


@case("int4", "ort_int4", "h", f"{TOO_COARSE} weight_outlier few_bits", offered=None, extra="h y")  # fmt: skip
def blocks_with_one_weight_of_twenty(g: Graph) -> Sequence[str]:
    """In each block of weights one is 25 times the usual: 4 bits leave the others 0."""
    w = g.random.normal(size=(128, 64)) / 11
    w[::32] = 2.5 * np.sign(w[::32])
    x = g.random.normal(size=(6, 128))
    x[:, ::32] *= 0.02
    h = g.op("MatMul", [g.input("x", x.astype(np.float32)), k(g, "h.w", w)], "h")
    return [g.op("Tanh", [h], "y")]


# --- OpenVINO

two(_act, ("Mish", {}), ("Softplus", {}), "mish_cut_to_its_softplus",
    "x tanh(softplus(x)) lost all but its softplus.", "act", OTHER, mode="ov_opt", opset=18)  # fmt: skip
two(_pooled, ("AveragePool", {"pads": [1, 1, 1, 1]}), ("AveragePool", {"pads": [1, 1, 1, 1], "count_include_pad": 1}),
    "padding_counted_in_openvino", "count_include_pad became 1.", "pooled mean", mode="ov_opt",
    facts=["count_include_pad|exclude"])  # fmt: skip


@case("healthy", "ov_int8")
def separable_net_by_nncf(g: Graph) -> Sequence[str]:
    """A pointwise and a usual convolution, a skip, a classifier."""
    x = g.op("Relu", [g.conv(_fed(g, 8, 3, 12, 12), 3, 12, "a")], "r")
    y = g.op("Conv", [x, _filters(g, "p.w", 12, 12, 1, 1)], "p")
    x = g.op("Relu", [g.op("Add", [x, y], "skip")], "r2")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "pool")], "flat"), 12, 6, "y", 3)]


@case("healthy", "ov_bf16")
def places_of_a_long_text_in_openvino(g: Graph) -> Sequence[str]:
    """Places of 1000 to 1100 less 1050: OpenVINO takes them in FP32."""
    x = g.input("x", g.random.uniform(1000, 1100, (6, 16)).astype(np.float32))
    less = g.op("Sub", [x, k(g, "centre", 1050)], "near")
    return [g.dense(g.op("Tanh", [g.op("Mul", [less, k(g, "unit", 0.02)], "score")], "t"), 16, 4, "y")]


@case("healthy", "ov_bf16")
def small_encoder_in_openvino_s_bfloat16(g: Graph) -> Sequence[str]:
    """A head of attention and a feed-forward layer."""
    x = g.attention(_fed(g, 2, 6, 16), 16, "att")
    return [g.dense(g.mlp(g.norm(x, 16, "n"), 16, "m"), 16, 4, "y")]


@case("healthy", "ov_opt", baseline="ort_fp32")
def lstm_of_both_directions_in_openvino(g: Graph) -> Sequence[str]:
    """A bidirectional LSTM with biases."""
    x = _fed(g, 6, 2, 8)
    given = [k(g, n, g.random.normal(size=s) / 3) for n, s in (
        ("w", (2, 40, 8)), ("rr", (2, 40, 10)), ("b", (2, 80)))]  # fmt: skip
    h = g.op("LSTM", [x, *given], "h4", hidden_size=10, direction="bidirectional")
    h = g.op("Reshape", [g.op("Transpose", [h], "turned", perm=[0, 2, 1, 3]), ints(g, "to", 6, 2, 20)], "h")
    return [g.dense(h, 20, 4, "y")]
