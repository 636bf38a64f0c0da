"""A twenty-fourth batch: engines and files as strangers bring them, each small with its mistake in it, ten of them of
60 operators or more. Files of ONNX, of whole numbers, of four bits and float8, bodies, external data, OpenVINO, LiteRT.
Labelled before the tool was run on any; who, cause and fact of each were measured without it (``python
tests/planted/twentyfourth_truth.py``)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from planted import fourteenth_onnx, twentyfirst_narrow, twentyfirst_onnx
from planted.fourteenth_onnx import _fed
from planted.onnx_faults import Graph, _body, _info
from planted.onnx_further import ints, k
from planted.shared import add
from planted.twelfth.case import DIFFER, Thread, labelled
from planted.twentyfirst_narrow import _COARSE8, _lite

CASES: list[Thread] = []
Made = twentyfirst_onnx.Made
MS, OTHER = {"domain": "com.microsoft"}, f"{DIFFER} unfound"
COARSE = "coarse coarse_scale outlier_channel outlier_sample outlier_token clipped saturation zero_point"
_LOST = "coarse cancellation cancels amplified stepped found_by_repair rounded_constant constant_rounded reads_rounded"
two = functools.partial(twentyfirst_onnx.two, cases=CASES)
case = functools.partial(fourteenth_onnx.case, cases=CASES)
F32 = {"baseline": "ort_fp32"}


# --- five layers of attention (110 operators) with something in the third


def _layers(g: Graph, how: str = "", many: int = 5, size: int = 16, at: int = 2) -> Sequence[str]:
    """how: what is otherwise in layer ``at``."""
    x = _fed(g, 2, 6, size)
    for n in range(many):
        here = how if n == at else ""
        h = g.norm(x, size, f"n{n}", 1e-5)
        x = g.attention(h, size, f"att{n}")
        x = _feed_forward(g, g.norm(x, size, f"o{n}"), size, f"m{n}", here)
    if how == "queries":
        for end in "wb":
            q, key = f"att{at}_q.{end}", f"att{at}_k.{end}"
            g.weights[q], g.weights[key] = g.weights[key], g.weights[q]
    return [g.dense(g.norm(x, size, "last"), size, 6, "y")]


def _feed_forward(g: Graph, x: str, size: int, name: str, how: str = "") -> str:
    """With a GELU by erf, or, in opset 20, by the operator."""
    up = g.dense(x, size, 2 * size, f"{name}_up", 2)
    if g.opset >= 20:
        act = g.op("Gelu", [up], f"{name}_act", approximate="tanh" if how == "tanh" else "none")
    else:
        erf = g.op("Erf", [g.op("Div", [up, k(g, "root", 2**0.5)], f"{name}_div")], f"{name}_erf")
        half = g.op("Mul", [up, k(g, "half", 0.5)], f"{name}_half")
        act = g.op("Mul", [half, g.op("Add", [erf, k(g, "unit", 1)], f"{name}_one")], f"{name}_act")
    return g.op("Add", [x, g.dense(act, 2 * size, size, f"{name}_down")], name)


two(_layers, "", "queries", "queries_and_keys_exchanged_in_the_third_of_five_layers", "The third layer's queries are "
    "made with the keys' matrix and bias, and the keys with the queries'.", "att2_q_mm att2_k_mm att2_q att2_k",
    f"{DIFFER} exchanged unfound", extra="att2_q_mm att2_k_mm att2_q att2_k", facts=[r"att2_[qk]\.w"])  # fmt: skip
two(_layers, "", "tanh", "gelu_by_tanh_in_the_third_of_five_layers", "The third layer's Gelu is the approximation by "
    "tanh.", "m2_act", opset=20, facts=["approximate"])  # fmt: skip
two(_layers, "", "", "gelu_as_one_operator_or_in_five", "Five layers whose Gelu is one operator of opset 20 beside its "
    "parts by erf: rounding.", opset=20, base_opset=17)  # fmt: skip


def _causal(g: Graph, how: Mapping[str, Any]) -> Sequence[str]:
    """Four layers whose scores are as large as ``loud``, masked by ``far``; one with a stale matrix."""
    x = _fed(g, 2, 6, 16)
    mask = k(g, "mask", np.where(np.triu(np.ones((6, 6)), 1) > 0, how["far"], 0.0))
    for n in range(4):
        h = g.norm(x, 16, f"n{n}")
        if n == 1 and how["loud"] != 1:
            h = g.op("Mul", [h, k(g, "loud", how["loud"])], "loud_x")
        x = g.op("Add", [x, g.norm(g.attention(h, 16, f"att{n}", mask), 16, f"s{n}")], f"x{n}")
        x = g.mlp(g.norm(x, 16, f"o{n}"), 16, f"m{n}")
    if how.get("stale"):
        drawn = 0.03 * np.random.default_rng(9).normal(size=(16, 32))
        g.weights["m2_up.w"] = (g.weights["m2_up.w"] * 0.8 + drawn).astype(np.float32)
    return [g.dense(g.norm(x, 16, "last"), 16, 6, "y")]


_M1 = "att1_masked att1_prob att1_score"
two(_causal, {"far": -np.inf, "loud": 100}, {"far": -1e4, "loud": 100}, "mask_of_ten_thousand_below_scores_of_as_many",
    "The causal mask is -10000 in place of -Infinity; the second layer's scores are of up to 30,000, and look ahead.",
    _M1, OTHER, extra=_M1, facts=["mask"])  # fmt: skip
two(_causal, {"far": -np.inf, "loud": 1}, {"far": -1e4, "loud": 1}, "mask_of_ten_thousand_where_scores_are_small",
    "The causal mask is -10000 in place of -Infinity, and no score is larger than 10: nothing changes.")
two(_causal, {"far": -np.inf, "loud": 100}, {"far": -1e4, "loud": 100, "stale": True},
    "mask_that_leaks_and_a_matrix_of_an_earlier_epoch", "The mask leaks in the second layer, and the third layer's "
    "m2_up.w is of an earlier epoch; each alone is seen.", f"{_M1} m2_up_mm m2_up", OTHER,
    extra=f"{_M1} m2_up_mm m2_up", facts=["m2_up.w", r"\bmask\b"])  # fmt: skip


def _words(g: Graph, how: str) -> Sequence[str]:
    """Six texts of six words each; what is behind a text's end is silenced."""
    x = _fed(g, 6, 6, 16)
    mask = (np.arange(6)[None] < np.array([6, 2, 5, 3, 4, 1])[:, None]).astype(np.float32)
    at = ints(g, "ax", 2) if how == "words" else ints(g, "ax", 0)
    mask = g.op("Unsqueeze", [g.input("seen", mask), at], "wide")
    for n in range(5):
        h = g.mlp(g.norm(x, 16, f"n{n}"), 16, f"m{n}")
        x = g.op("Add", [x, h], f"x{n}")
        x = g.op("Mul", [x, mask], "silent") if n == 2 else x
    if how == "lengths":
        turned = next(node for node in g.nodes if node.output[0] == "wide")
        turned.CopyFrom(helper.make_node("Unsqueeze", ["turned", "ax"], ["wide"], name="node_wide"))
        del g.weights["ax"]
        ints(g, "ax", 2)
        g.nodes.insert(0, helper.make_node("Transpose", ["seen"], ["turned"], name="node_turned", perm=[1, 0]))
    return [g.dense(g.norm(x, 16, "last"), 16, 4, "y")]


two(_words, "words", "lengths", "lengths_of_texts_laid_along_the_words", "Six texts of six words: the mask is turned, "
    "so that a text's length silences words of the others.", "wide turned silent", OTHER, extra="wide turned silent",
    facts=["turned|perm"])  # fmt: skip


def _rotated(g: Graph, how: str) -> Sequence[str]:
    """Four layers with a rotation of halves; in the third, by even and odd."""
    x = _fed(g, 2, 8, 16)
    angle = np.arange(8)[:, None] * 100.0 ** (-np.arange(8) / 8)
    for n in range(4):
        pairs = how == "pairs" and n == 2
        full = np.repeat(angle, 2, 1) if pairs else np.concatenate([angle, angle], 1)
        h = g.norm(x, 16, f"n{n}")
        turned = []
        for part in "qk":
            z = g.dense(h, 16, 16, f"{part}{n}", 1.5)
            order = np.arange(16).reshape(8, 2)[:, ::-1].reshape(-1) if pairs else np.roll(np.arange(16), 8)
            sign = np.where(np.arange(16) % 2 == 0, -1, 1) if pairs else np.where(np.arange(16) < 8, -1, 1)
            other = g.op("Gather", [z, ints(g, f"order{n}{part}", *order)], f"other_{part}{n}", axis=-1)
            other = g.op("Mul", [other, k(g, f"sin{n}{part}", np.sin(full) * sign)], f"s_{part}{n}")
            turned.append(g.op("Add", [g.op("Mul", [z, k(g, f"cos{n}{part}", np.cos(full))], f"c_{part}{n}"), other],
                               f"rot_{part}{n}"))  # fmt: skip
        turned[1] = g.op("Transpose", [turned[1]], f"kt{n}", perm=[0, 2, 1])
        score = g.op("Mul", [g.op("MatMul", turned, f"raw{n}"), k(g, "quarter", 0.25)], f"score{n}")
        mixed = g.op("MatMul", [g.op("Softmax", [score], f"prob{n}", axis=-1), g.dense(h, 16, 16, f"v{n}")], f"mix{n}")
        x = g.op("Add", [x, g.dense(mixed, 16, 16, f"out{n}")], f"x{n}")
    return [g.dense(g.norm(x, 16, "last"), 16, 6, "y")]


_ROT = " ".join(f"{one}_{part}2" for one in ("other", "s", "c", "rot") for part in "qk")
two(_rotated, "", "pairs", "rotation_of_neighbours_in_the_third_of_four_layers", "The third layer turns even with odd "
    "places in place of halves: order, cosines and sines of queries and keys differ.", _ROT, OTHER, extra=_ROT,
    facts=["order2|sin2|cos2"])  # fmt: skip


# --- whole numbers, four bits, float8


def _whole(g: Graph, how: str) -> Sequence[str]:
    """Eighteen QLinearConvs of eight filters with scales of their own, each with a slope and a QLinearAdd."""
    s, zero = k(g, "s", 0.04), g.weight("z", np.array(3, np.uint8))
    zero8 = g.weight("z8", np.zeros(8, np.int8))
    x = g.op("QuantizeLinear", [_fed(g, 1, 8, 8, 8), s, zero], "x_q")
    for n in range(18):
        w = g.random.normal(size=(8, 8, 3, 3)) * np.geomspace(0.03, 0.3, 8)[g.random.permutation(8), None, None, None]
        w /= 3
        scale = np.abs(w).max((1, 2, 3)) / 127
        q = np.clip(np.rint(w / scale[:, None, None, None]), -127, 127).astype(np.int8)
        scale = np.roll(scale, 1) if how == "rolled" and n == 8 else scale
        b = g.random.integers(-300, 300, 8).astype(np.int32)
        out = g.weight(f"z_out{n}", np.array(9 if how == "zero" and n == 7 else 3, np.uint8))
        y = g.op("QLinearConv", [x, s, zero, g.weight(f"w{n}", q), k(g, f"ws{n}", scale), zero8, s, out,
                                 g.weight(f"b{n}", b)], f"c{n}", pads=[1] * 4)  # fmt: skip
        y = g.op("QLinearLeakyRelu", [y, s, zero, s, zero], f"l{n}", alpha=0.3, **MS)
        x = g.op("QLinearAdd", [x, s, zero, y, s, zero, s, zero], f"x{n}", **MS)
        if n % 4 == 3:
            x = g.op("QLinearSigmoid", [x, s, zero, s, zero], f"g{n}", **MS)
    return [g.dense(g.op("GlobalAveragePool", [g.op("DequantizeLinear", [x, s, zero], "x_f")], "p"), 1, 1, "y")]


two(_whole, "", "rolled", "scales_of_filters_rolled_in_the_ninth_of_eighteen_whole_filters", "QLinearConv's scales of "
    "the ninth layer's eight filters are moved by one.", "c8", f"{OTHER} {COARSE}", extra="c8",
    facts=["ws8"])  # fmt: skip
two(_whole, "", "zero", "zero_point_of_the_eighth_of_eighteen_whole_filters", "The eighth QLinearConv writes with a "
    "zero point of 9 what its reader takes with 3.", "c7 l7", f"{OTHER} {COARSE}", extra="c7 l7",
    facts=["z_out7|zero point"])  # fmt: skip


def _nibbles(g: Graph, how: str) -> Sequence[str]:
    """Ten layers of a norm, MatMulNBits, and a gate (71 operators)."""
    x = _fed(g, 4, 32)
    for n in range(10):
        codes = g.random.integers(0, 16, (32, 1, 32))
        if how == "signed" and n == 5:
            codes ^= 8
        scales = g.random.uniform(0.02, 0.04, (32, 1))
        pack = (codes[..., ::2] + 16 * codes[..., 1::2]).astype(np.uint8)
        h = g.norm(x, 32, f"n{n}")
        h = g.op("MatMulNBits", [h, g.weight(f"B{n}", pack), k(g, f"scales{n}", scales.reshape(-1))], f"h{n}", **MS,
                 K=32, N=32, bits=4, block_size=32)  # fmt: skip
        h = g.op("Mul", [h, g.op("Sigmoid", [h], f"sig{n}")], f"act{n}")
        x = g.op("Add", [x, g.dense(h, 32, 32, f"d{n}")], f"x{n}")
    return [g.dense(x, 32, 4, "y")]


two(_nibbles, "", "signed", "four_bits_with_a_sign_in_the_sixth_of_ten_layers", "The sixth layer's four-bit codes were "
    "written with a sign (two's complement); MatMulNBits takes 8 off.", "h5", OTHER, facts=["B5"])  # fmt: skip


def _sixteen(g: Graph, how: str) -> Sequence[str]:
    """Ten layers; as 16-bit QDQ of activations, one with a scale of its 8-bit sibling, 512 times too large."""
    x = _fed(g, 6, 16)
    for n in range(10):
        h = g.norm(x, 16, f"n{n}")
        if how:
            scale = 8 / 32767 * (512 if how == "wide" and n == 5 else 1)
            told = [k(g, f"s{n}", scale), g.weight("zero", np.array(0, np.int16))]
            h = g.op("DequantizeLinear", [g.op("QuantizeLinear", [h, *told], f"q{n}", **MS), *told], f"dq{n}", **MS)
        x = g.mlp(h, 16, f"m{n}")
    return [g.dense(x, 16, 4, "y")]


# After the first run: the baseline has neither q5 nor dq5; n5, which is told to be quantised so, is right.
two(_sixteen, "", "wide", "sixteen_bits_with_a_scale_512_times_too_large", "QDQ of 16 bits beside the float file: the "
    "sixth layer's scale is 0.125 in place of 0.000244.", "q5 dq5 n5", f"{OTHER} {COARSE}", extra="q5 dq5 n5",
    facts=["s5|0.125"])  # fmt: skip
two(_sixteen, "", "right", "sixteen_bits_beside_the_float_file", "QDQ of 16 bits for each activation beside the float "
    "file: off by 1e-4, what 16 bits cost.", " ".join(f"q{n} dq{n} n{n}" for n in range(10)), f"{OTHER} {COARSE}",
    kind="quantised", statuses=(0, 1), anyone=True)  # fmt: skip
two(_sixteen, "right", "right", "sixteen_bits_optimised", "A file of 16-bit QDQ with all optimisations beside itself "
    "without.", mode="ort_opt")  # fmt: skip


def _eighth(g: Graph, how: str) -> Sequence[str]:
    """Activations in float8 E4M3 (up to 448), by a scale or as they are."""
    import ml_dtypes

    x = _fed(g, 6, 24)
    for n in range(4):
        x = g.op("Relu", [g.dense(x, 24, 24, f"d{n}", 30 if n == 1 else 2)], f"r{n}")
        if how:
            scale = 1.0 if how == "one" and n == 1 else {0: 0.02, 1: 1.0, 2: 2.0, 3: 4.0}[n]
            scale = 0.05 if how == "small" and n == 1 else scale
            told = [k(g, f"s{n}", scale), g.weight("zero", np.array(0, ml_dtypes.float8_e4m3fn))]
            x = g.op("DequantizeLinear", [g.op("QuantizeLinear", [x, *told], f"q{n}"), *told], f"dq{n}")
    return [g.dense(x, 24, 4, "y", 0.1)]


two(_eighth, "right", "small", "float8_that_ends_at_22_where_there_are_200", "The second of four float8 scales is "
    "0.05: 448 times it is 22, and the activations reach 150 and more.", "q1 dq1", f"{OTHER} {COARSE}", opset=19,
    extra="q1 dq1", facts=[r"\bs1\b"])  # fmt: skip


def _up_filter(g: Graph, axis: int) -> Sequence[str]:
    """A ConvTranspose whose int8 filter (8 inputs, 8 outputs) has scales along its outputs."""
    x = g.op("Relu", [g.conv(_fed(g, 1, 3, 6, 6), 3, 8, "a")], "r")
    w = g.random.normal(size=(8, 8, 3, 3)) * np.geomspace(0.02, 0.5, 8)[:, None, None]
    scale = np.abs(w).max((0, 2, 3)) / 127
    q = np.rint(w / scale[:, None, None]).astype(np.int8)
    w = g.op("DequantizeLinear", [g.weight("w_q", q), k(g, "w_scale", scale)], "w", axis=axis)
    x = g.op("ConvTranspose", [x, w], "up", strides=[2, 2], pads=[1] * 4, output_padding=[1, 1])
    return [g.conv(g.op("Tanh", [x], "t"), 8, 4, "y")]


two(_up_filter, 1, 0, "scales_of_a_transposed_filter_along_its_inputs", "A ConvTranspose's int8 filter has its scales "
    "along the outputs, axis 1; the quantiser's default for filters, 0, was written.", "w", extra="w up",
    facts=["axis"])  # fmt: skip


# --- old opsets, bodies, external data, sequences


def _old(g: Graph, how: str) -> Sequence[str]:
    """A net of twelve blocks (62 operators), as opset 8 or 11 writes it."""
    x = g.conv(_fed(g, 1, 3, 8, 8), 3, 6, "first")
    for n in range(12):
        drawn = {"g": g.random.uniform(0.5, 1.5, 6), "z": g.random.normal(size=6) / 4,
                 "m": g.random.normal(size=6) / 4, "v": g.random.uniform(0.5, 1.5, 6)}  # fmt: skip
        told = [k(g, f"{name}{n}", value) for name, value in drawn.items()]
        h = g.op("BatchNormalization", [x, *told], f"n{n}")
        limits = {} if g.opset >= 11 else {"min": 0.0, "max": 1.0 if how == "low" and n == 6 else 6.0}
        ends = [k(g, "low", 0), k(g, "high", 6)] if g.opset >= 11 else []
        h = g.op("Clip", [h, *ends], f"c{n}", **limits)
        h = g.conv(h, 6, 6, f"f{n}")
        x = g.op("Add", [x, h], f"x{n}")
        x = g.op("Identity", [x], f"i{n}")
    return [g.op("Softmax", [x], "y", axis=1)]


two(_old, "", "low", "limit_of_six_as_one_in_the_seventh_of_twelve_blocks", "A file of opset 8: the seventh block's "
    "Clip ends at 1 in place of 6.", "c6", opset=8, facts=[r"\bmax\b"])  # fmt: skip
two(_old, "", "", "file_of_opset_8_beside_opset_11", "One net, as opset 8 and as opset 11 write it.", opset=8,
    base_opset=11)  # fmt: skip


def _hard(g: Graph, how: str) -> Sequence[str]:
    x = g.op("Tanh", [g.dense(_fed(g, 2, 5, 12), 12, 12, "a", 2)], "t")
    return [g.dense(g.op("Mul", [g.op("Hardmax", [x], "best"), x], "kept"), 12, 4, "y")]


two(_hard, "", "", "hardmax_of_an_early_opset", "Opset 11 to 13 by the number alone: without an axis Hardmax meant one "
    "best of all words and features together, and now one for each word.", "best", OTHER, opset=13, base_opset=11,
    facts=["axis|opset"])  # fmt: skip


def _looped(g: Graph, keep: float) -> Sequence[str]:
    """Six turns of a body: h = keep * h + tanh(h W)."""
    x = g.dense(_fed(g, 3, 8), 8, 8, "a")
    nodes = [helper.make_node(*one, name=f"body_{one[2][0]}") for one in (
        ("Identity", ["go"], ["go_on"]), ("MatMul", ["h", "turn"], ["h_mm"]), ("Tanh", ["h_mm"], ["h_t"]),
        ("Mul", ["h", "keep"], ["kept"]), ("Add", ["kept", "h_t"], ["h_next"]), ("Identity", ["h_next"], ["h_told"]))]
    held = {"turn": g.random.normal(size=(8, 8)).astype(np.float32) / 3, "keep": np.float32(keep)}
    body = _body(nodes, [_info("i", [], TensorProto.INT64), _info("go", [], TensorProto.BOOL), _info("h", [3, 8])],
                 [_info("go_on", [], TensorProto.BOOL), _info("h_next", [3, 8]), _info("h_told", [3, 8])], held)
    g.nodes.append(helper.make_node("Loop", [g.weight("turns", np.array(6, np.int64)), "", x], ["h_last", "h_all"],
                                    name="node_loop", body=body))  # fmt: skip
    return [g.dense("h_last", 8, 4, "y"), g.op("Mul", ["h_all", k(g, "tenth", 0.1)], "all")]


_KEPT = " ".join(f"{one}{end}" for one in ("kept", "h_next", "h_told") for end in ("", *(f"@{n}" for n in range(7))))
two(_looped, 0.9, 0.95, "rate_of_forgetting_in_a_body", "The Loop's body keeps 0.95 of its state in place of 0.9.",
    _KEPT, OTHER, extra=f"{_KEPT} h_last h_all", facts=["keep|0.95"])  # fmt: skip


def _scanned(g: Graph, how: str) -> Sequence[str]:
    """A Scan that tells its state behind each step, or before it."""
    x = g.dense(_fed(g, 7, 8), 8, 8, "a")
    told = "h" if how == "before" else "h_new"
    nodes = [helper.make_node(*one, name=f"body_{one[2][0]}") for one in (
        ("MatMul", ["h", "turn"], ["h_mm"]), ("Add", ["h_mm", "x_t"], ["h_sum"]), ("Tanh", ["h_sum"], ["h_new"]),
        ("Mul", [told, "two"], ["told"]))]  # fmt: skip
    held = {"turn": g.random.normal(size=(8, 8)).astype(np.float32) / 2, "two": np.float32(2)}
    body = _body(nodes, [_info("h", [8]), _info("x_t", [8])], [_info("h_new", [8]), _info("told", [8])], held)
    g.nodes.append(helper.make_node("Scan", [k(g, "h0", np.zeros(8)), x], ["h_end", "h_all"], name="node_scan",
                                    body=body, num_scan_inputs=1))  # fmt: skip
    return [g.dense("h_all", 8, 4, "y")]


def _branched(g: Graph, how: str) -> Sequence[str]:
    """A branch that is taken, with a square matrix in it."""
    x = g.dense(_fed(g, 3, 8), 8, 8, "a")
    go, w = g.input("go", np.array(True)), g.random.normal(size=(8, 8)).astype(np.float32) / 3
    made = []
    for name in ("then", "else"):
        nodes = [helper.make_node("MatMul", [x, f"{name}.w"], [f"{name}_mm"], name=f"node_{name}_mm"),
                 helper.make_node("Tanh", [f"{name}_mm"], [f"{name}_t"], name=f"node_{name}_t")]  # fmt: skip
        held = w if name == "else" or how != "turned" else w.T.copy()
        made.append(_body(nodes, [], [_info(f"{name}_t", [3, 8])], {f"{name}.w": held}))
    g.nodes.append(helper.make_node("If", [go], ["chosen"], name="node_chosen", then_branch=made[0],
                                    else_branch=made[1]))  # fmt: skip
    return [g.dense("chosen", 8, 4, "y")]


two(_branched, "", "turned", "square_matrix_turned_in_a_branch_that_is_taken", "The then-branch's 8 by 8 matrix is "
    "transposed; the other branch, which holds the right one, is not taken.", "then_mm then_mm@0 then_mm@1", OTHER,
    extra="then_mm then_mm@0 then_mm@1 chosen then_t then_t@0", facts=[r"then\.w"])  # fmt: skip


_TOLD = "told h_all " + " ".join(f"told@{n}" for n in range(8))
two(_scanned, "", "before", "state_told_before_its_step", "The Scan's body tells the state that it was given in "
    "place of the one that it made.", _TOLD, OTHER, extra=_TOLD, facts=[r"\bh\b|h_new"])  # fmt: skip


def _outside(name: str, truth: str, edit: Any, who: str = "", **more: Any) -> None:
    """Five layers whose constants lie in a file beside the model; edit: what became of that file's bytes."""

    def make(folder: Path) -> Made:
        g = twentyfirst_onnx.Typed(seed=2424)
        base = g.save(folder / "base.onnx", _layers(g))
        model, path = onnx.load(base), folder / f"{name}.onnx"
        onnx.save(model, path, save_as_external_data=True, location=f"{name}.bin", size_threshold=0)
        if edit is not None:
            data = bytearray((folder / f"{name}.bin").read_bytes())
            for one in onnx.load(path, load_external_data=False).graph.initializer:
                told = {item.key: item.value for item in one.external_data}
                if one.name == edit[0]:
                    at, many = int(told.get("offset", 0)), int(told["length"])
                    w = np.frombuffer(bytes(data[at : at + many]), np.float32).reshape(one.dims)
                    data[at : at + many] = edit[1](w).astype(np.float32).tobytes()
            (folder / f"{name}.bin").write_bytes(bytes(data))
        return path, base, g.feeds

    add(CASES, make, name, truth, who, DIFFER, mode="ort_fp32", kind="converter" if who else "healthy",
        baseline="ort_fp32", extra=who, **more)  # fmt: skip


_outside("external_data_as_they_were_written", "Five layers with their constants beside the file.", None)
_outside("external_data_of_which_one_matrix_is_half_old", "The fourth layer's m3_down.w: the second half of its rows "
         "is of an earlier file (0.7 of it).", ("m3_down.w", lambda w: np.concatenate([w[:16], w[16:] * 0.7])),
         "m3_down_mm m3_down", facts=[r"m3_down\.w"])  # fmt: skip


def _sequence(name: str, truth: str, how: str, who: str = "", mode: str = "ort_fp32", **more: Any) -> None:
    """Two parts that are returned as a sequence."""

    def make(folder: Path) -> Made:
        made = []
        for file, bad in ((f"{name}.onnx", how), ("base.onnx", "")):
            g = twentyfirst_onnx.Typed(seed=2425)
            x = g.norm(g.mlp(_fed(g, 4, 16), 16, "m"), 16, "n")
            boxes = g.op("Mul", [g.op("Sigmoid", [g.dense(x, 16, 4, "box")], "unit_box"),
                                 k(g, "size", 640 if bad != "size" else 600)], "boxes")  # fmt: skip
            score = g.op("Softmax", [g.dense(x, 16, 5, "class", 2)], "scores", axis=-1)
            path = g.save(folder / file, [boxes, score])
            model = onnx.load(path)
            model.graph.node.append(helper.make_node("SequenceConstruct", [boxes, score], ["found"], name="node_found"))
            del model.graph.output[:]
            model.graph.output.append(helper.make_tensor_sequence_value_info("found", TensorProto.FLOAT, None))
            onnx.save(model, path)
            made.append((path, g.feeds))
        return made[0][0], made[1][0] if mode == "ort_fp32" else None, made[0][1]

    add(CASES, make, name, truth, who, DIFFER, mode=mode, kind="converter" if who else "healthy",
        baseline="ort_fp32" if mode == "ort_fp32" else "", extra=who, **more)  # fmt: skip


_sequence("boxes_of_another_picture_size_in_a_sequence", "Boxes and scores are returned as a sequence; boxes are "
          "multiplied by 600 in place of 640.", "size", "boxes", facts=["600", "640"])  # fmt: skip
_sequence("boxes_and_scores_in_a_sequence_optimised", "Boxes and scores as a sequence, optimised.", "", mode="ort_opt")


# --- narrow types of one file


def _tall(g: Graph, many: int, size: int, special: Any, at: int) -> Sequence[str]:
    """Layers of attention and feed-forward; ``special`` takes the place of one's feed-forward."""
    x = _fed(g, 2, 6, size)
    for n in range(many):
        x = g.op("Add", [x, g.attention(g.norm(x, size, f"n{n}"), size, f"att{n}")], f"x{n}")
        h = g.norm(x, size, f"o{n}")
        x = special(h) if n == at else g.mlp(h, size, f"m{n}")
    return [g.dense(g.norm(x, size, "last"), size, 6, "y")]


@case("healthy", "ort_fp16_sim")
def cube_of_a_gelu_in_the_third_of_five_layers(g: Graph) -> Sequence[str]:
    """GELU by tanh, written out; the third layer's units reach 60, and their cube 196,000: an
    Infinity that tanh makes 1, and nothing is lost."""

    def special(h: str) -> str:
        up = g.dense(h, 16, 32, "up", 22)
        cube = g.op("Mul", [g.op("Pow", [up, k(g, "three", 3)], "cube"), k(g, "c", 0.044715)], "cube_part")
        inner = g.op("Mul", [g.op("Add", [up, cube], "inner"), k(g, "root", 0.7978846)], "scaled")
        act = g.op("Mul", [up, g.op("Add", [g.op("Tanh", [inner], "t"), k(g, "one", 1)], "t1")], "act2")
        act = g.op("Mul", [act, k(g, "half", 0.5)], "act")
        return g.op("Add", [h, g.dense(act, 32, 16, "down")], "out")

    return _tall(g, 5, 16, special, 2)


@case("overflow", "ort_fp16_sim", "raw", "overflow range_inside", extra="raw")
def scores_before_their_scale_in_the_fourth_of_six_layers(g: Graph) -> Sequence[str]:
    """Queries times keys reach 143,000 before they are divided by 4,096; half ends at 65,504."""

    def special(h: str) -> str:
        q, key = g.dense(h, 16, 16, "q", 90), g.dense(h, 16, 16, "key", 90)
        raw = g.op("MatMul", [q, g.op("Transpose", [key], "kt", perm=[0, 2, 1])], "raw")
        share = g.op("Softmax", [g.op("Mul", [raw, k(g, "d", 1 / 4096)], "score")], "share", axis=-1)
        return g.op("Add", [h, g.op("MatMul", [share, g.dense(h, 16, 16, "v")], "mixed")], "out")

    return _tall(g, 6, 16, special, 3)


@case("cancellation", "ort_fp16_sim", "moved", f"{_LOST}", extra="moved mean less n")
def norm_of_a_large_offset_in_the_third_of_four_layers(g: Graph) -> Sequence[str]:
    """The third layer's features lie about 1,500 (half's step there is 1) and vary by 1; a norm behind takes the offset
    away."""

    def special(h: str) -> str:
        moved = g.op("Add", [g.dense(h, 16, 16, "up"), k(g, "offset", 1500)], "moved")
        return g.mlp(g.norm(moved, 16, "n"), 16, "m")

    return _tall(g, 4, 16, special, 2)


@case("underflow", "ort_fp16_sim", "sq", "underflow underflow_inside born constant_rounded weight_underflow",
      extra="sq size held root n unit")  # fmt: skip
def cosine_of_vectors_of_a_ten_thousandth(g: Graph) -> Sequence[str]:
    """Vectors of 1e-4 are squared to 1e-8, below half's smallest number; their root is 0 but for an epsilon of 1e-12,
    which is 0, too."""
    x = g.op("Mul", [g.norm(g.mlp(_fed(g, 4, 16), 16, "m"), 16, "o"), k(g, "small", 1e-4)], "v")
    sq = g.op("Mul", [x, x], "sq")
    size = g.op("ReduceSum", [sq, ints(g, "ax", -1)], "size", keepdims=1)
    root = g.op("Sqrt", [g.op("Add", [size, k(g, "eps", 1e-12)], "held")], "root")
    return [g.dense(g.op("Div", [x, root], "n"), 16, 4, "y")]


@case("cancellation", "ort_bf16_sim", "sums", f"{_LOST} drift flips", extra="sums late early window")
def window_means_of_a_sum_that_grows(g: Graph) -> Sequence[str]:
    """Means of eight numbers by a running sum of 256: it reaches 512, where bfloat16's step is 4 (2 below 512), and the
    windows' sums are of 16."""
    x = g.input("x", (2 + 0.5 * g.random.normal(size=(4, 256))).astype(np.float32))
    sums = g.op("CumSum", [x, g.weight("axis", np.array(1, np.int64))], "sums")
    late = g.op("Slice", [sums, ints(g, "b8", 8), ints(g, "e8", 256), ints(g, "on", 1)], "late")
    early = g.op("Slice", [sums, ints(g, "b0", 0), ints(g, "e0", 248), ints(g, "on2", 1)], "early")
    mean = g.op("Mul", [g.op("Sub", [late, early], "window"), k(g, "eighth", 1 / 8)], "mean")
    return [g.dense(mean, 248, 6, "y")]


_LOGITS = "logits logits_mm share"


@case("formula", "ort_bf16_sim", "logits logits_mm", f"{_LOST} amplifies ill_conditioned", extra=_LOGITS)
def softmax_of_logits_of_two_hundred(g: Graph) -> Sequence[str]:
    """Logits of up to 200 in bfloat16, whose step there is 1, before a softmax over 12 classes with near rivals."""
    x = g.norm(g.mlp(_fed(g, 12, 32), 32, "m"), 32, "n")
    base = g.dense(x, 32, 12, "logits", 1.5)
    g.weights["logits.b"] = (g.weights["logits.b"] + 200).astype(np.float32)
    return [g.op("Softmax", [base], "share", axis=-1)]


@case("cancellation", "ort_fp16_sim", "far up2", f"{_LOST}", also="", extra="far near up2 e_less e less one")
def two_branches_that_both_lose(g: Graph) -> Sequence[str]:
    """One branch adds 700 and takes it off again; the other takes 1 from an exponential of small numbers (exp(x) - 1
    with x of 0.003) and multiplies by 300: each is off by about as much, and the sum by both."""
    x = g.norm(g.mlp(_fed(g, 6, 16), 16, "m"), 16, "o")
    near = g.op("Sub", [g.op("Add", [g.dense(x, 16, 16, "a"), k(g, "offset", 700)], "far"), "offset"], "near")
    small = g.op("Mul", [g.dense(x, 16, 16, "b"), k(g, "small", 0.003)], "small_x")
    e = g.op("Sub", [g.op("Exp", [small], "e"), k(g, "one", 1)], "less")
    up = g.op("Mul", [e, k(g, "back", 300)], "up2")
    return [g.dense(g.op("Add", [near, up], "both"), 16, 4, "y")]


@case("healthy", "ort_fp16_sim")
def six_layers_in_half(g: Graph) -> Sequence[str]:
    """Six layers of attention (130 operators) with nothing the matter."""
    return _tall(g, 6, 16, lambda h: g.mlp(h, 16, "m3"), 3)


@case("healthy", "ort_bf16_sim")
def six_layers_in_bfloat16(g: Graph) -> Sequence[str]:
    """The same in bfloat16: off by a hundredth, as eight bits of mantissa are."""
    return _tall(g, 6, 16, lambda h: g.mlp(h, 16, "m3"), 3)


def _loud(g: Graph, x: str, gain: float, name: str) -> str:
    """One of 32 channels is ``gain`` times as loud, and its row of the matrix behind as small."""
    size = np.ones(32)
    size[5] = gain
    x = g.op("Mul", [x, k(g, f"{name}_size", size)], f"{name}_loud")
    h = g.dense(x, 32, 32, name)
    g.weights[f"{name}.w"] = (g.weights[f"{name}.w"] / size[:, None]).astype(np.float32)
    return h


@case("int8", "ort_int8_dynamic", "mid_mm mid", f"{_COARSE8} {COARSE} packed", offered=None,
      extra="mid_mm mid mid_loud")  # fmt: skip
def one_loud_channel_in_the_third_of_five_layers(g: Graph) -> Sequence[str]:
    """Dynamic INT8 of five layers: before one matrix one channel of 32 is 100 times as loud as all others."""

    def special(h: str) -> str:
        return g.op("Add", [h, _loud(g, h, 100, "mid")], "out")

    return _tall(g, 5, 32, special, 2)


@case("int8", "ort_int8", "mid_mm mid mid_loud", f"{_COARSE8} {COARSE} packed", offered=None,
      extra="mid_mm mid mid_loud")  # fmt: skip
def matrix_and_its_input_both_too_coarse(g: Graph) -> Sequence[str]:
    """Static INT8: before one matrix a channel is 40 times as loud and its row as small, another nearly nought and its
    row 50 times as large: input and weights are both coarse."""
    x = g.norm(g.mlp(_fed(g, 24, 32), 32, "m0"), 32, "n0")
    size = np.ones(32)
    size[5], size[17] = 40, 1 / 50
    h = g.dense(g.op("Mul", [x, k(g, "mid_size", size)], "mid_loud"), 32, 32, "mid")
    g.weights["mid.w"] = (g.weights["mid.w"] / size[:, None]).astype(np.float32)
    return [g.dense(g.norm(g.mlp(h, 32, "m1"), 32, "n1"), 32, 6, "y")]


@case("healthy", "ort_int8")
def sixteen_filters_in_int8(g: Graph) -> Sequence[str]:
    """Sixteen filters with skips (65 operators), quantised as the guide says: some percent off, as 8 bits are."""
    x = g.conv(_fed(g, 2, 3, 12, 12), 3, 12, "first")
    for n in range(16):
        h = g.op("Relu", [g.conv(x, 12, 12, f"c{n}")], f"r{n}")
        x = g.op("Add", [x, g.op("Mul", [h, k(g, f"part{n}", 0.5)], f"p{n}")], f"x{n}")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "pool")], "flat"), 12, 6, "y")]


@case("int4", "ort_int4", "bad_mm bad", f"{_COARSE8} {COARSE} few_bits", offered=None, extra="bad_mm bad")
def one_weight_of_forty_in_each_block_of_four_bits(g: Graph) -> Sequence[str]:
    """Weights of four bits in blocks of 128: in one of six matrices each block has one weight 40 times as large, which
    reads an input that is nearly nought."""
    x = _fed(g, 8, 128)
    x = g.op("Mul", [x, k(g, "dim", np.where(np.arange(128) == 17, 1e-3, 1))], "x_dim")
    x = g.op("Relu", [g.dense(x, 128, 128, "bad")], "r")
    g.weights["bad.w"][17] *= 40
    for n in range(5):
        x = g.op("Add", [x, g.op("Tanh", [g.dense(x, 128, 128, f"d{n}")], f"t{n}")], f"x{n}")
    return [g.dense(x, 128, 8, "y")]


@case("formula", "ov_bf16", "angle wave", f"{_LOST} periodic drift", extra="angle wave place", offered=None)
def sine_of_an_angle_of_three_hundred(g: Graph) -> Sequence[str]:
    """OpenVINO in bfloat16: sines of angles about 300, whose step in bfloat16 is 2."""
    x = g.dense(_fed(g, 8, 16), 16, 16, "a")
    angle = g.op("Add", [g.op("Mul", [x, k(g, "freq", 40)], "place"), k(g, "offset", 300)], "angle")
    return [g.dense(g.op("Sin", [angle], "wave"), 16, 6, "y")]


@case("healthy", "ov_int8")
def filters_with_skips_by_nncf(g: Graph) -> Sequence[str]:
    """Five filters with skips, quantised by NNCF."""
    x = g.conv(_fed(g, 2, 3, 12, 12), 3, 12, "first")
    for n in range(5):
        x = g.op("Add", [x, g.op("Relu", [g.conv(x, 12, 12, f"c{n}")], f"r{n}")], f"x{n}")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "pool")], "flat"), 12, 6, "y")]


@case("engine", "ov_opt_fp32", "turned wave y_mm", f"{_LOST} kernels_disagree other_arithmetic periodic "
      "ill_conditioned wrong_kernel unfound", statuses=(0, 1), anyone=True, extra="a a_mm turned wave n less_x y_mm y",
      **F32)  # fmt: skip
def sine_of_a_million_in_float32(g: Graph) -> Sequence[str]:
    """Sines of angles of a million in float32, whose step there is 0.06: what comes before differs in its last digit
    between engines; ill-conditioned, nobody's fault."""
    x = g.dense(_fed(g, 8, 16), 16, 16, "a")
    return [g.dense(g.op("Sin", [g.op("Mul", [x, k(g, "freq", 1e6)], "turned")], "wave"), 16, 4, "y")]


@case("healthy", "ort_fp16", open=True)
def epsilon_that_the_converter_raises(g: Graph) -> Sequence[str]:
    """x / (sum of |x| + 1e-8) with a row of noughts: the half converter makes 1e-8 its smallest number, 5.96e-8, and
    the row stays nought."""
    x = _fed(g, 4, 16)
    g.feeds["x"][2] = 0
    size = g.op("ReduceSum", [g.op("Abs", [x], "abs"), ints(g, "ax", -1)], "size", keepdims=1)
    n = g.op("Div", [x, g.op("Add", [size, k(g, "eps", 1e-8)], "held")], "n")
    return [g.dense(g.op("Mul", [n, k(g, "back", 10)], "wide"), 16, 4, "y")]


def _half_file(name: str, truth: str, mode: str, **more: Any) -> None:
    """A file whose every number is float16, as it is served."""

    def make(folder: Path) -> Made:
        g = twentyfirst_onnx.Typed(seed=2426)
        x = g.op("Cast", [_fed(g, 2, 6, 16)], "x_16", to=TensorProto.FLOAT16)
        for n in range(3):
            x = g.norm(g.attention(x, 16, f"att{n}"), 16, f"n{n}")
        y = g.op("Cast", [g.dense(x, 16, 4, "y_16")], "y", to=TensorProto.FLOAT)
        for one, value in g.weights.items():
            g.weights[one] = value.astype(np.float16)
        return g.save(folder / f"{name}.onnx", [y]), None, g.feeds

    add(CASES, make, name, truth, mode=mode, kind="healthy", **more)


_half_file("file_of_halves_optimised", "A float16 file with all optimisations beside itself without: rounding.",
           "ort_opt")
_half_file("file_of_halves_in_openvino", "A float16 file in OpenVINO, which computes it in float32, beside ONNX "
           "Runtime, which rounds: as far off as half is.", "ov_opt")


# --- IR, LiteRT


_ir = functools.partial(twentyfirst_narrow._ir, cases=CASES)


def _resized(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(_fed(g, 1, 3, 6, 6), 3, 8, "a")], "r")
    x = g.op("AveragePool", [x], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, count_include_pad=0)
    return [g.conv(g.op("Tanh", [x], "t"), 8, 4, "y")]


_ir("pool_of_an_ir_that_counts_its_padding", "The IR's AvgPool counts the padding; the ONNX file's does not.", _resized,
    lambda text: text.replace('exclude-pad="true"', 'exclude-pad="false"'), "pool", facts=["exclude.pad|pad"])


def third_filter_mirrored_in_openvino() -> None:
    """A LiteRT file through OpenVINO beside LiteRT: the third layer's filters are turned by half a circle."""


def digits_by_openvino() -> None:
    """A LiteRT file through OpenVINO beside LiteRT: another order of additions."""


def scales_of_the_third_filter_rolled_in_8_bits() -> None:
    """A LiteRT file of 8 bits: the scales of the third layer's filters and biases are moved by one."""


def digits_in_8_bits_by_xnnpack() -> None:
    """A LiteRT file of 8 bits by XNNPACK beside the reference kernels: a step now and then."""


CASES += [
    labelled(third_filter_mirrored_in_openvino, "", "converter", "ov_opt_fp32", "relu3_out", OTHER,
             make=_lite("digits_float32", ("conv3_conv_filter", lambda w: w[:, ::-1, ::-1])), baseline="tflite_fp32",
             extra="relu3_out", facts=["conv3_conv_filter"]),
    labelled(digits_by_openvino, "", "healthy", "ov_opt_fp32", "", "", make=_lite("digits_float32"),
             baseline="tflite_fp32"),
    labelled(scales_of_the_third_filter_rolled_in_8_bits, "", "converter", "tflite_ref", "relu3_out", OTHER,
             make=_lite("digits_int8", scales=np.roll(np.arange(16), 1)), baseline="tflite_ref", extra="relu3_out",
             facts=["conv3_conv_filter|scale"]),
    labelled(digits_in_8_bits_by_xnnpack, "", "healthy", "tflite_opt", "", "", make=_lite("digits_int8"),
             baseline="tflite_ref"),
]  # fmt: skip
