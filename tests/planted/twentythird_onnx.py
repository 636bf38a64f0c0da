"""A twenty-third batch: what strangers ask in public, each rebuilt small with its mistake in it; the link is in the
docstring. Files of ONNX, OpenVINO, LiteRT, a folder of dumps. Labelled before the tool was run on any; who, cause and
fact of each were measured without it (``python tests/planted/twentythird_truth.py``)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from planted import fourteenth_onnx, twentyfirst_onnx
from planted.fourteenth_onnx import _fed
from planted.onnx_faults import Array, Graph
from planted.onnx_further import ints, k
from planted.twelfth.case import DIFFER, Thread, labelled
from planted.twentyfirst_narrow import _COARSE8, _lite

CASES: list[Thread] = []
Made = twentyfirst_onnx.Made
MS, OTHER = {"domain": "com.microsoft"}, f"{DIFFER} unfound"
ENGINE = f"{DIFFER} kernels_disagree wrong_kernel unfound"
_LOST = "coarse cancellation cancels amplified stepped found_by_repair rounded_constant constant_rounded reads_rounded"
two = functools.partial(twentyfirst_onnx.two, cases=CASES)
case = functools.partial(fourteenth_onnx.case, cases=CASES)
F32 = {"baseline": "ort_fp32"}
GH = "https://github.com/"

# --- exporters and converters: two files


def _gru(g: Graph, told: dict[str, int]) -> Sequence[str]:
    """A GRU with biases of some size."""
    x = g.dense(_fed(g, 6, 2, 12), 12, 8, "a")
    parts = [k(g, f"gru.{name}", g.random.normal(size=size) * 0.7) for name, size in (
        ("w", (1, 24, 8)), ("r", (1, 24, 8)), ("b", (1, 48)))]  # fmt: skip
    h = g.op("GRU", [x, *parts], "all", hidden_size=8, **told)
    return [g.dense(g.op("Squeeze", [h, ints(g, "ax", 1)], "flat"), 8, 4, "y")]


two(_gru, {"linear_before_reset": 1}, {}, "gru_exported_without_linear_before_reset", f"{GH}pytorch/pytorch/issues/"
    "189225, onnxscript 2852: the exporter's GRU lacks linear_before_reset = 1, which PyTorch's is.", "all",
    facts=["linear_before_reset"])  # fmt: skip


def _skip_norm(g: Graph, how: str) -> Sequence[str]:
    """Keras' norm with its epsilon of 1e-3, behind a skip, of small numbers."""
    x = g.op("Mul", [g.dense(_fed(g, 2, 6, 16), 16, 16, "a"), k(g, "unit", 0.03)], "small")
    other = g.op("Mul", [g.dense(x, 16, 16, "b"), k(g, "part", 0.5)], "branch")
    gain = [k(g, "gain", g.random.uniform(0.5, 1.5, 16)), k(g, "shift", g.random.normal(size=16) / 4)]
    if how == "plain":
        n = g.op("LayerNormalization", [g.op("Add", [x, other], "sum"), *gain], "n", axis=-1, epsilon=1e-3)
    else:
        n = g.op("SkipLayerNormalization", [x, other, *gain], "n", **MS)
    return [g.dense(n, 16, 4, "y")]


two(_skip_norm, "plain", "fused", "skip_norm_fused_with_its_default_epsilon", f"{GH}microsoft/onnxruntime/pull/3768: a "
    "skip and its norm were fused, and the fused operator has its default of 1e-12 in place of 1e-3.", "n",
    extra="n sum", facts=["epsilon"])  # fmt: skip


def _offsets(g: Graph, order: Sequence[int]) -> Sequence[str]:
    """YOLOX: cells less an offset."""
    x = g.op("Relu", [g.conv(_fed(g, 1, 3, 8, 8), 3, 8, "a")], "r")
    box = g.op("Reshape", [g.conv(x, 8, 2, "box"), ints(g, "as", 1, 2, 64)], "flat")
    cells = k(g, "cells", np.stack(np.meshgrid(np.arange(8), np.arange(8))).reshape(1, 2, 64))
    both = [box, cells]
    moved = g.op("Sub", [both[order[0]], both[order[1]]], "moved")
    return [g.op("Mul", [moved, k(g, "stride", 8)], "y")]


two(_offsets, [1, 0], [0, 1], "operands_of_a_difference_exchanged", f"{GH}PINTO0309/onnx2tf/issues/107: the converter "
    "exchanged the operands of a Sub.", "moved", OTHER)  # fmt: skip


def _flat(g: Graph, how: str) -> Sequence[str]:
    x = g.op("MaxPool", [g.op("Relu", [g.conv(_fed(g, 3, 3, 8, 8), 3, 6, "a", 2)], "r")], "pool", kernel_shape=[2, 2],
             strides=[2, 2])  # fmt: skip
    x = g.op("Transpose", [x], "turned", perm=[0, 2, 3, 1]) if how == "last" else x
    return [g.dense(g.op("Flatten", [x], "flat"), 96, 10, "y", 3)]


two(_flat, "first", "last", "flattened_with_its_channels_last", f"{GH}gzuidhof/nn-transfer/issues/16: Keras flattens "
    "with channels last what the matrix behind expects with channels first.", "turned flat", OTHER,
    extra="turned flat y_mm", facts=["perm|turned"])  # fmt: skip


def _statistics(g: Graph, how: str) -> Sequence[str]:
    x = g.conv(_fed(g, 2, 3, 8, 8), 3, 8, "a")
    told = {"gain": g.random.uniform(0.5, 1.5, 8), "shift": g.random.normal(size=8) / 2,
            "mean": g.random.uniform(0.1, 0.9, 8), "var": g.random.uniform(0.3, 2, 8)}  # fmt: skip
    if how == "exchanged":
        told["mean"], told["var"] = told["var"], told["mean"]
    x = g.op("BatchNormalization", [x, *(k(g, name, one) for name, one in told.items())], "n", epsilon=1e-5)
    return [g.conv(g.op("Relu", [x], "r"), 8, 4, "y")]


two(_statistics, "", "exchanged", "running_mean_and_variance_exchanged", f"{GH}gmalivenko/pytorch2keras/issues/120: "
    "set_weights was given variance and mean in place of mean and variance.", "n", facts=[r"\b(mean|var)\b"])


def _counted(g: Graph, how: str) -> Sequence[str]:
    """Rows counted from the end: size - 1 - index."""
    x = g.dense(_fed(g, 12, 8), 8, 8, "a")
    at = g.input("index", np.array([0, 3, 7, 11, 5], np.int64))
    if how == "shape":
        size = g.op("Gather", [g.op("Shape", [x], "shape"), g.weight("first", np.array(0, np.int64))], "size")
    else:
        size = g.weight("size_const", np.array(8, np.int64))
    back = g.op("Sub", [g.op("Sub", [size, g.weight("one", np.array(1, np.int64))], "last"), at], "back")
    return [g.dense(g.op("Gather", [x, back], "picked"), 8, 4, "y")]


two(_counted, "shape", "constant", "size_of_the_example_kept_as_a_constant", f"{GH}pytorch/pytorch/issues/69605: the "
    "tracer kept the example's 8 rows as a constant; 12 are fed.", "last back", OTHER,
    extra="last back picked size", facts=[r"\b8\b"])  # fmt: skip


def _pixels(g: Graph, how: str) -> Sequence[str]:
    x = g.input("x", g.random.uniform(0, 255, (1, 3, 8, 8)).astype(np.float32))
    x = g.op("Mul", [x, k(g, "unit", 1 / 255)], "unit_x") if how == "scaled" else x
    x = g.conv(g.op("Tanh", [g.conv(x, 3, 8, "a")], "t"), 8, 8, "b")
    return [g.conv(g.op("Relu", [x], "r"), 8, 4, "y")]


two(_pixels, "scaled", "raw", "pixels_that_are_not_divided_by_255", f"{GH}onnx/tensorflow-onnx/issues/1428: one side "
    "divides pixels by 255, the other does not.", "a", OTHER, extra="a unit_x")  # fmt: skip


def _colours(g: Graph, order: Sequence[int]) -> Sequence[str]:
    x = g.input("x", g.random.uniform(0, 1, (1, 3, 10, 10)).astype(np.float32))
    mean = np.array([0.485, 0.456, 0.406])[list(order)].reshape(3, 1, 1)
    std = np.array([0.229, 0.224, 0.225])[list(order)].reshape(3, 1, 1)
    x = g.op("Div", [g.op("Sub", [x, k(g, "mean", mean)], "less"), k(g, "std", std)], "n")
    x = g.op("Relu", [g.conv(x, 3, 8, "a")], "r")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [g.conv(x, 8, 8, "b")], "p")], "flat"), 8, 5, "y")]


two(_colours, [0, 1, 2], [2, 1, 0], "means_of_blue_green_red", "https://troubles-factory.com/cases/2026-06-18-01-rgb-"
    "bgr-normalization-train-inference-mismatch/: mean and deviation are in the order of BGR.", "less", extra="less n",
    facts=[r"\bmean\b"])  # fmt: skip


def _adapter(g: Graph, scale: float) -> Sequence[str]:
    """A matrix and its adapter of rank 4 beside it."""
    x = _fed(g, 2, 6, 24)
    down = g.op("MatMul", [x, k(g, "lora_a", g.random.normal(size=(24, 4)) / 5)], "down")
    up = g.op("MatMul", [down, k(g, "lora_b", g.random.normal(size=(4, 24)) / 4)], "up")
    delta = g.op("Mul", [up, k(g, "scaling", scale)], "delta")
    h = g.op("Add", [g.dense(x, 24, 24, "h0"), delta], "h")
    return [g.dense(g.op("Relu", [h], "r"), 24, 6, "y")]


two(_adapter, 2.0, 1.0, "adapter_without_alpha_over_rank", f"{GH}hao-ai-lab/FastVideo/pull/870: an adapter's product "
    "is not multiplied by alpha / rank = 2.", "delta", facts=["scaling"])  # fmt: skip


def _merged(g: Graph, factor: float) -> Sequence[str]:
    """Eight blocks; an adapter was merged into the fifth's second matrix."""
    x = _fed(g, 4, 24)
    for n in range(8):
        x = g.mlp(g.norm(x, 24, f"n{n}"), 24, f"m{n}")
    a, b = g.random.normal(size=(48, 4)) / 7, g.random.normal(size=(4, 24)) / 2
    g.weights["m4_down.w"] = (g.weights["m4_down.w"] + factor * a @ b).astype(np.float32)
    return [g.dense(g.norm(x, 24, "last"), 24, 6, "y")]


two(_merged, 2.0, 1.0, "adapter_merged_without_its_scale_in_one_of_eight", f"{GH}cloneofsimo/lora/issues/187: alpha "
    "was ignored as an adapter was merged: W + B A in place of W + 2 B A.", "m4_down_mm m4_down",
    extra="m4_down_mm m4_down m4", facts=[r"m4_down\.w"])  # fmt: skip


def _tokens(g: Graph) -> tuple[str, str]:
    ids, mask = g.random.integers(1, 40, (3, 8)), np.ones((3, 8), np.int64)
    mask[1, :3], mask[2, :5] = 0, 0
    return g.input("ids", ids * mask), g.input("mask", mask)


def _places(g: Graph, how: str) -> Sequence[str]:
    """Words and places, padded on the left."""
    ids, mask = _tokens(g)
    told = mask if how == "mask" else g.weight("ones", np.ones((3, 8), np.int64))
    count = g.op("CumSum", [told, g.weight("axis", np.array(1, np.int64))], "count")
    place = g.op("Max", [g.op("Sub", [count, ints(g, "one", 1)], "before"), ints(g, "least", 0)], "place")
    word = g.op("Gather", [k(g, "words", g.random.normal(size=(40, 16))), ids], "word")
    x = g.op("Add", [word, g.op("Gather", [k(g, "places", g.random.normal(size=(8, 16))), place], "placed")], "x")
    return [g.dense(g.mlp(x, 16, "m"), 16, 6, "y")]


two(_places, "mask", "ones", "places_that_count_the_padding_on_the_left", f"{GH}unslothai/unsloth/pull/4078, nnsight "
    "673: places are counted from the row's beginning in place of its first word.", "count before place", OTHER,
    extra="count before place placed", facts=["mask|ones"])  # fmt: skip


def _padding(g: Graph, masked: Sequence[int]) -> Sequence[str]:
    """Three layers of attention with a mask of padding."""
    ids, mask = _tokens(g)
    free = g.op("Sub", [k(g, "one", 1), g.op("Cast", [mask], "seen", to=TensorProto.FLOAT)], "hidden")
    free = g.op("Mul", [g.op("Unsqueeze", [free, ints(g, "ax", 1)], "wide"), k(g, "far", -10000)], "bias")
    x = g.op("Gather", [k(g, "words", g.random.normal(size=(40, 16))), ids], "word")
    for n in range(3):
        x = g.attention(g.norm(x, 16, f"n{n}"), 16, f"att{n}", free if n in masked else "")
    return [g.dense(x, 16, 6, "y")]


two(_padding, [0, 1, 2], [0, 2], "mask_of_padding_missing_in_one_of_three_layers", f"{GH}ml-explore/mlx-lm/issues/"
    "1906: the second layer's attention has no mask of the padding.", "att1_prob att1_masked att1_score", OTHER,
    extra="att1_prob att1_masked att1_score", facts=["att1_masked|bias"])  # fmt: skip


def _cast_index(g: Graph, kind: Any) -> Sequence[str]:
    at = g.weight("at", np.array([[3, 1, 0], [2, 2, 3]], kind))
    x = g.op("Gather", [g.dense(_fed(g, 4, 8), 8, 8, "a"), at], "picked", axis=0)
    return [g.dense(g.op("Relu", [x], "r"), 8, 4, "y")]


two(_cast_index, np.int64, np.int32, "indices_cast_down_to_32_bits", f"{GH}NVIDIA/TensorRT/issues/2331: indices of 64 "
    "bits were cast down to 32, which changes nothing.")  # fmt: skip

# --- quantised files: scales, zero points, axes


def _held(g: Graph, how: str) -> Sequence[str]:
    """A square matrix of int8 with a scale and a zero point for each column (or row)."""
    x = _fed(g, 8, 16)
    w = g.random.normal(size=(16, 16)) * np.geomspace(0.1, 2, 16) + g.random.normal(size=16) * 0.1
    low, high = w.min(0), w.max(0)
    scale = (high - low) / 255
    zero = np.rint(-128 - low / scale)
    q = np.clip(np.rint(w / scale + zero), -128, 127).astype(np.int8)
    scale = np.full(16, scale[0]) if how == "first" else scale
    zero = np.repeat(zero[::2], 2) if how == "stride" else zero
    axis = {} if how == "default" else {"axis": 1}
    if how in ("axis", "default"):
        q, axis = q.T.copy(), {"axis": 0} if how == "axis" else {}
    held = g.op("DequantizeLinear", [g.weight("w_q", q), k(g, "w_scale", scale), g.weight("w_zero", zero.astype(
        np.int8))], "w", **axis)  # fmt: skip
    if how in ("axis", "default"):
        held = g.op("Transpose", [held], "wt", perm=[1, 0])
    return [g.dense(g.op("Relu", [g.op("MatMul", [x, held], "h")], "r"), 16, 4, "y")]


two(_held, "axis", "default", "scales_of_rows_laid_along_the_columns", f"{GH}microsoft/onnxruntime/issues/17718: "
    "DequantizeLinear's axis is left out: 1 in place of 0.", "w", extra="w wt h", facts=["axis"])  # fmt: skip
two(_held, "", "first", "every_column_with_the_first_column_s_scale", f"{GH}sonos/tract/pull/2849: the scale of the "
    "first channel is used for all.", "w", extra="w h", facts=["w_scale"])  # fmt: skip
two(_held, "", "stride", "zero_points_read_at_twice_their_stride", f"{GH}pytorch/executorch/pull/21773: 32-bit zero "
    "points were read as of 64 bits; here each second one is the one before it.", "w", extra="w h",
    facts=["w_zero"])  # fmt: skip


def _levels(g: Graph, most: int) -> Sequence[str]:
    """Weights of 16 levels, groups of 32 rows, zero point 8."""
    x = _fed(g, 6, 64)
    w = g.random.normal(size=(64, 24)) / 8
    groups = w.reshape(2, 32, 24)
    scale = np.abs(groups).max(1, keepdims=True) / 7
    q = np.clip(np.rint(groups / scale) + 8, 0, most).astype(np.uint8).reshape(64, 24)
    told = g.op("Sub", [g.op("Cast", [g.weight("w_q", q)], "wide", to=TensorProto.FLOAT), k(g, "zero", 8)], "level")
    scale = np.repeat(scale, 32, 1).reshape(64, 24)
    w = g.op("Mul", [told, k(g, "w_scale", scale)], "w")
    return [g.dense(g.op("Relu", [g.op("MatMul", [x, w], "h")], "r"), 24, 6, "y")]


two(_levels, 15, 7, "upper_half_of_sixteen_levels_collapsed", f"{GH}intel/auto-round/pull/2273: the packer clamped "
    "levels of 0 to 15 at 7, as if they had a sign.", "wide level w h", extra="wide level w h", facts=["w_q"])


def _ones(g: Graph, one: float) -> Sequence[str]:
    x = g.dense(_fed(g, 4, 16), 16, 16, "a", 2)
    x = g.op("LayerNormalization", [x, k(g, "ones", np.full(16, one)), k(g, "zeros", np.zeros(16))], "n", axis=-1)
    x = g.op("Mul", [x, k(g, "gain", g.random.uniform(0.001, 0.005, 16))], "scaled")
    return [g.dense(g.op("Mul", [x, k(g, "back", 300)], "wide"), 16, 4, "y")]


two(_ones, 1.0, 0.005, "ones_quantised_in_the_range_of_a_small_gain", f"{GH}onnxruntime/onnxruntime-qnn/pull/417: the "
    "ones of a norm whose gain was moved behind it saturate at the gain's largest, 0.005.", "n", facts=["ones"])


def _filters(g: Graph, how: str) -> Sequence[str]:
    """A filter in 8 bits whose bias has a scale of its own, by its parts or by QLinearConv, which knows none."""
    x = _fed(g, 1, 3, 8, 8)
    xs, ws, ys, bs = 0.03, 0.004, 0.05, 0.001
    zero = g.weight("z", np.array(0, np.int8))
    w = g.random.integers(-127, 128, (4, 3, 3, 3)).astype(np.int8)
    b = g.random.integers(-900, 900, 4).astype(np.int32)
    xq = g.op("QuantizeLinear", [x, k(g, "xs", xs), zero], "xq")
    wide = [k(g, "ws", ws), zero]
    if how == "parts":
        xd = g.op("DequantizeLinear", [xq, "xs", zero], "xd")
        wd = g.op("DequantizeLinear", [g.weight("w", w), *wide], "wd")
        bd = g.op("Mul", [g.op("Cast", [g.weight("b", b)], "bw", to=TensorProto.FLOAT), k(g, "bs", bs)], "bd")
        c = g.op("Conv", [xd, wd, bd], "c", pads=[1] * 4)
        q = g.op("QuantizeLinear", [c, k(g, "ys", ys), zero], "q")
    else:
        q = g.op("QLinearConv", [xq, "xs", zero, g.weight("w", w), *wide, k(g, "ys", ys), zero, g.weight("b", b)], "q",
                 pads=[1] * 4)  # fmt: skip
    y = g.op("Relu", [g.op("DequantizeLinear", [q, "ys", zero], "d")], "r")
    return [g.conv(y, 4, 3, "y")]


two(_filters, "parts", "whole", "bias_whose_scale_a_fused_filter_does_not_know", f"{GH}microsoft/onnxruntime/issues/"
    "11532: QLinearConv takes the bias' scale to be that of input times filter, 0.00012, where it is 0.001.", "q d",
    OTHER, extra="q d c", facts=[r"\bb\b|bias|bs"])  # fmt: skip


@case("quantised", "ort_opt", "d2 q2 d1 q1 y y_mm", f"{ENGINE} {_COARSE8} flips", statuses=(0,), anyone=True,
      extra="d2 q2 d1 q1 y y_mm")  # fmt: skip
def two_pairs_of_scales_made_one(g: Graph) -> Sequence[str]:
    """https://github.com/microsoft/onnxruntime/issues/25259: two Q-DQ pairs in a row, steps of 0.02 and 0.05, which
    every fusion makes one: a value is rounded once in place of twice: rounding, no fault."""
    x = g.dense(_fed(g, 6, 16), 16, 16, "a")
    zero = g.weight("zero", np.array(128, np.uint8))
    for n, scale in ((1, 0.02), (2, 0.05)):
        k(g, f"s{n}", scale)
        x = g.op("DequantizeLinear", [g.op("QuantizeLinear", [x, f"s{n}", zero], f"q{n}"), f"s{n}", zero], f"d{n}")
    return [g.dense(x, 16, 4, "y")]


@case("int8", "ort_int8_dynamic", "m1_down_mm m1_down", f"{_COARSE8} packed outlier_sample outlier_token",
      offered=None, extra="m1_down_mm m1_down m1_up m1_up_mm m1_act")  # fmt: skip
def first_token_of_two_hundred_times_under_one_scale(g: Graph) -> Sequence[str]:
    """https://github.com/pytorch/executorch/pull/22432: one scale for all tokens of dynamic INT8, where the first
    token's activations are 200 times as large and a norm behind makes all alike."""
    x = _fed(g, 1, 12, 24)
    g.feeds["x"][:, 0] *= 200
    x = g.mlp(g.norm(g.mlp(g.norm(x, 24, "n0"), 24, "m0"), 24, "n1"), 24, "m0b")
    gate = k(g, "loud", np.where(np.arange(12) == 0, 200.0, 1.0)[:, None])
    up = g.op("Mul", [g.dense(x, 24, 48, "m1_up"), gate], "m1_act")
    return [g.dense(g.norm(g.dense(up, 48, 24, "m1_down"), 24, "n2"), 24, 6, "y")]


@case("healthy", "ort_int8_dynamic")
def words_in_dynamic_int8_without_reduced_range(g: Graph) -> Sequence[str]:
    """https://github.com/microsoft/onnxruntime/issues/5644, 6004: int8 weights by uint8 activations saturate on AVX2
    alone; here (VNNI) they are exact, and two layers of attention are as far off as 8 bits are."""
    x = _fed(g, 2, 10, 32)
    for n in range(2):
        x = g.mlp(g.norm(g.attention(g.norm(x, 32, f"n{n}"), 32, f"att{n}"), 32, f"o{n}"), 32, f"m{n}")
    return [g.dense(g.norm(x, 32, "last"), 32, 6, "y")]


@case("healthy", "ov_int8")
def answers_by_nncf_on_a_processor_with_vnni(g: Graph) -> Sequence[str]:
    """https://github.com/huggingface/optimum-intel/issues/258: NNCF's files were poor on processors without VNNI."""
    x = _fed(g, 4, 8, 24)
    x = g.norm(g.attention(x, 24, "att"), 24, "n")
    return [g.dense(g.norm(g.mlp(x, 24, "m"), 24, "last"), 24, 4, "y")]


# --- float16 and bfloat16


@case("overflow", "ort_fp16_sim", "sq", "overflow", extra="sq var")
def square_of_a_norm_written_out(g: Graph) -> Sequence[str]:
    """https://github.com/NVIDIA/TensorRT/issues/2564: a layer norm by its parts, of numbers of up to 620: the square
    is beyond 65504."""
    x = g.mlp(_fed(g, 4, 24), 24, "m", 260)
    mean = g.op("ReduceMean", [x], "mean", axes=[-1], keepdims=1)
    less = g.op("Sub", [x, mean], "less")
    var = g.op("ReduceMean", [g.op("Pow", [less, k(g, "two", 2)], "sq")], "var", axes=[-1], keepdims=1)
    n = g.op("Div", [less, g.op("Sqrt", [g.op("Add", [var, k(g, "eps", 1e-5)], "held")], "std")], "n")
    return [g.dense(g.mlp(n, 24, "m2"), 24, 6, "y")]


@case("overflow", "ort_fp16_sim", "m10", "overflow range_inside", extra="m10 m11")
def stream_that_grows_until_its_last_layers(g: Graph) -> Sequence[str]:
    """https://github.com/microsoft/onnxruntime/issues/32600: EmbeddingGemma's stream grows with each layer; of twelve
    here two numbers of the eleventh are below 65504 and their sum of 69,755 is not."""
    x = g.mlp(_fed(g, 4, 24), 24, "m0", 1)
    for n in range(1, 12):
        h = g.op("Relu", [g.dense(g.norm(x, 24, f"n{n}"), 24, 48, f"m{n}_up")], f"m{n}_act")
        x = g.op("Add", [x, g.dense(h, 48, 24, f"m{n}_down", 2.74**n if n < 11 else 1)], f"m{n}")
    return [g.dense(g.norm(x, 24, "last"), 24, 6, "y")]


@case("overflow", "ort_fp16_sim", "bias", "overflow infinite_constant weight_overflow held_narrower born",
      extra="bias far score2 share")  # fmt: skip
def mask_of_a_trillion_in_half(g: Graph) -> Sequence[str]:
    """https://github.com/NVIDIA/TensorRT/issues/2466: a mask (1 - m) * -999999995904 of bert4keras: the constant is
    -Inf in half, and 0 times it NaN. A Min with Infinity beside it is harmless."""
    mask = np.ones((2, 8), np.float32)
    mask[1, 5:] = 0
    x = g.op("Min", [_fed(g, 2, 8, 16), k(g, "infinity", np.inf)], "least")
    hidden = g.op("Sub", [k(g, "one", 1), g.input("mask", mask)], "hidden")
    hidden = g.op("Mul", [g.op("Unsqueeze", [hidden, ints(g, "ax", 1)], "wide"), k(g, "far", -999999995904)], "bias")
    score = g.op("MatMul", [g.dense(x, 16, 16, "q"), g.op("Transpose", [g.dense(x, 16, 16, "key")], "kt",
                                                          perm=[0, 2, 1])], "score")  # fmt: skip
    share = g.op("Softmax", [g.op("Add", [score, hidden], "score2")], "share", axis=-1)
    return [g.dense(g.op("MatMul", [share, x], "mixed"), 16, 4, "y")]


def _turned(g: Graph, first: int, dim: int, base: float) -> Sequence[str]:
    """A rotation whose angles are made at run time of whole places."""
    at = g.input("at", np.arange(first, first + 64, dtype=np.int64))
    x = g.dense(_fed(g, 64, dim), dim, dim, "a", 2)
    place = g.op("Unsqueeze", [g.op("Cast", [at], "place", to=TensorProto.FLOAT), ints(g, "ax", 1)], "column")
    freq = base ** (-np.arange(dim // 2) * 2 / dim)
    angle = g.op("Mul", [place, k(g, "freq", np.concatenate([freq, freq]))], "angle")
    half = [ints(g, f"{name}", value) for name, value in (("nought", 0), ("middle", dim // 2), ("end", dim))]
    x1, x2 = (g.op("Slice", [x, *part, ints(g, f"on{n}", 1)], f"x{n}") for n, part in enumerate(
        ((half[0], half[1]), (half[1], half[2]))))  # fmt: skip
    turned = g.op("Concat", [g.op("Neg", [x2], "minus"), x1], "half", axis=1)
    y = g.op("Add", [g.op("Mul", [x, g.op("Cos", [angle], "cos")], "xc"),
                     g.op("Mul", [turned, g.op("Sin", [angle], "sin")], "xs")], "q")  # fmt: skip
    return [g.dense(y, dim, 8, "y")]


_ANGLE = "place column angle cos sin xc xs q"


@case("formula", "ort_fp16_sim", "angle", f"{_LOST} drift periodic", extra=_ANGLE)
def angles_of_a_rotation_in_half(g: Graph) -> Sequence[str]:
    """https://github.com/EleutherAI/gpt-neox/issues/1003: place times frequency in half: at 1,857 the angle's step is
    1, a sixth of a turn."""
    return _turned(g, 1850, 32, 10000)


@case("formula", "ort_bf16_sim", "place column angle", f"{_LOST} drift periodic flips", extra=_ANGLE)
def places_of_a_long_text_in_bfloat16(g: Graph) -> Sequence[str]:
    """https://github.com/huggingface/candle/pull/3520: places about 15,962 in bfloat16, whose step there is 64."""
    return _turned(g, 15930, 16, 1000000)


@case("healthy", "ort_fp16", open=True)
def mean_of_a_large_picture_in_half(g: Graph) -> Sequence[str]:
    """https://github.com/microsoft/onnxconverter-common/issues/323: the sum of 512 by 512 numbers is beyond 65504 on a
    GPU; a CPU's ReduceMean runs in float32."""
    x = g.input("x", g.random.uniform(0, 1, (1, 3, 512, 512)).astype(np.float32))
    return [g.dense(g.op("ReduceMean", [x], "mean", axes=[2, 3], keepdims=0), 3, 4, "y")]


@case("healthy", "ort_fp16_sim")
def weights_below_the_smallest_normal_of_half(g: Graph) -> Sequence[str]:
    """https://github.com/NVIDIA/TensorRT/issues/3101: a warning of subnormal weights: a twentieth are of 1e-6 to 1e-8,
    and matter to nobody."""
    x = _fed(g, 4, 32)
    for n in range(4):
        x = g.mlp(g.norm(x, 32, f"n{n}"), 32, f"m{n}")
    for name in [one for one in g.weights if one.endswith(".w")]:
        small = g.random.uniform(size=g.weights[name].shape) < 0.05
        g.weights[name] = np.where(small, g.weights[name] * 1e-6, g.weights[name]).astype(np.float32)
    return [g.dense(g.norm(x, 32, "last"), 32, 6, "y")]


# --- engines


@case("engine", "ov_opt_fp32", "act", ENGINE, extra="act", **F32)
def slopes_of_the_last_axis_taken_for_channels(g: Graph) -> Sequence[str]:
    """https://github.com/openvinotoolkit/openvino/issues/33371: PRelu's slopes of four numbers belong to the last axis
    by ONNX's rule; OpenVINO gives one to each of four channels."""
    x = g.conv(_fed(g, 1, 3, 4, 4), 3, 4, "a")
    x = g.op("PRelu", [x, k(g, "slope", [-0.8, 0.1, 0.5, 0.9])], "act")
    return [g.conv(g.op("Tanh", [x], "t"), 4, 3, "y")]


@case("engine", "ov_opt_fp32", "pool", ENGINE, extra="pool", **F32)
def windows_beyond_the_padding_in_openvino(g: Graph) -> Sequence[str]:
    """https://github.com/pytorch/pytorch/issues/183528: AveragePool with ceil_mode and count_include_pad: the last
    windows reach beyond the padding, and what is beyond it is not to be counted. ONNX Runtime does as PyTorch now."""
    x = g.op("Relu", [g.conv(_fed(g, 1, 3, 10, 10), 3, 6, "a")], "r")
    x = g.op("AveragePool", [x], "pool", kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4, ceil_mode=1,
             count_include_pad=1)  # fmt: skip
    return [g.conv(x, 6, 3, "y")]


@case("engine", "ov_opt_fp32", "size", ENGINE, extra="size held n", **F32)
def sizes_of_all_axes_in_openvino(g: Graph) -> Sequence[str]:
    """https://github.com/openvinotoolkit/openvino/issues/30996 (every element is the same number): ReduceL1's axes, an
    attribute until opset 17, are overlooked: OpenVINO sums over everything."""
    x = g.conv(_fed(g, 1, 3, 8, 8), 3, 6, "a")
    held = g.op("Add", [g.op("ReduceL1", [x], "size", axes=[1], keepdims=1), k(g, "eps", 1e-3)], "held")
    return [g.conv(g.op("Div", [x, held], "n"), 6, 3, "y", 3)]


@case("healthy", "ov_opt_fp32", **F32)
def mean_of_a_picture_behind_a_filter(g: Graph) -> Sequence[str]:
    """https://github.com/microsoft/onnxruntime/issues/20357: a filter to one channel and its mean over channels and
    places; right on a CPU."""
    x = g.conv(g.op("Relu", [g.conv(_fed(g, 2, 3, 16, 16), 3, 16, "a")], "r"), 16, 1, "b")
    return [g.op("ReduceMean", [x], "y", axes=[1, 2, 3], keepdims=0)]


@case("healthy", "ov_opt_fp32", **F32)
def weighted_loss_in_openvino(g: Graph) -> Sequence[str]:
    """https://github.com/openvinotoolkit/openvino/issues/20977: SoftmaxCrossEntropyLoss with weights of classes; the
    engines agree now."""
    score = g.dense(_fed(g, 6, 12), 12, 5, "score", 2)
    told = [g.input("label", np.array([0, 1, 1, 4, 3, 2], np.int64)), k(g, "weight", g.random.uniform(0.2, 2, 5))]
    return [g.op("SoftmaxCrossEntropyLoss", [score, *told], "loss", reduction="mean")]


@case("healthy", "ov_opt_fp32", **F32)
def filters_that_differ_in_the_seventh_digit(g: Graph) -> Sequence[str]:
    """https://github.com/PINTO0309/onnx2tf/issues/605: another order of a filter's additions."""
    x = _fed(g, 1, 3, 24, 24)
    for n, (inside, outside) in enumerate(((3, 32), (32, 48), (48, 16))):
        x = g.op("Relu", [g.conv(x, inside, outside, f"c{n}")], f"r{n}")
    return [g.conv(x, 16, 4, "y")]


@case("healthy", "ort_opt")
def norm_written_out_with_one_gain_for_all(g: Graph) -> Sequence[str]:
    """https://github.com/microsoft/onnxruntime/issues/25855: a norm by its parts whose gain and shift are one number,
    which the fusion must leave alone or broadcast."""
    x = g.dense(_fed(g, 2, 6, 16), 16, 16, "a", 2)
    less = g.op("Sub", [x, g.op("ReduceMean", [x], "mean", axes=[-1])], "less")
    var = g.op("ReduceMean", [g.op("Pow", [less, k(g, "two", 2)], "sq")], "var", axes=[-1])
    n = g.op("Div", [less, g.op("Sqrt", [g.op("Add", [var, k(g, "eps", 1e-5)], "held")], "std")], "n")
    n = g.op("Add", [g.op("Mul", [n, k(g, "gain", [1.7])], "scaled"), k(g, "shift", [0.3])], "moved")
    return [g.dense(n, 16, 4, "y")]


@case("healthy", "ort_opt")
def scores_of_which_most_are_nearly_nought(g: Graph) -> Sequence[str]:
    """https://github.com/onnx/tensorflow-onnx/issues/2339: assert_allclose with a relative tolerance alone complains of
    71 % of numbers, those near 0."""
    x = _fed(g, 1, 3, 16, 16)
    for n in range(4):
        x = g.op("Relu", [g.conv(x, 3 if n == 0 else 12, 12, f"c{n}")], f"r{n}")
    score = g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "pool")], "flat"), 12, 40, "score", 30)
    return [g.op("Softmax", [score], "y", axis=-1)]


# --- LiteRT, a folder of dumps


def norm_folded_with_the_other_epsilon() -> None:
    """https://github.com/tensorflow/tensorflow/issues/42605: a batch norm folded with Keras' epsilon of 1e-3 in place
    of 1e-5: the second layer's filters are scaled by sqrt((v + 1e-5) / (v + 1e-3)), variances of 0.001 to 1."""


def first_filters_divided_by_255_twice() -> None:
    """https://github.com/onnx/tensorflow-onnx/issues/1428: pixels are fed from 0 to 1 and the first filters were
    divided by 255 as well."""


def detector_with_a_tolerance_of_its_own() -> None:
    """https://github.com/onnx/tensorflow-onnx/issues/2041, 2339: XNNPACK beside the reference kernels."""


def _other_epsilon(w: Array) -> Array:
    v = np.geomspace(0.001, 1, len(w))
    return (w * np.sqrt((v + 1e-5) / (v + 1e-3))[:, None, None, None]).astype(w.dtype)


CASES += [
    labelled(norm_folded_with_the_other_epsilon, "", "converter", "tflite_opt", "pool_input_nhwc", DIFFER,
             make=_lite("digits_float32", ("conv2_conv_filter", _other_epsilon)), baseline="tflite_fp32",
             extra="pool_input_nhwc", facts=["conv2_conv_filter"]),
    labelled(first_filters_divided_by_255_twice, "", "converter", "tflite_fp32", "conv2_input_nhwc", DIFFER,
             make=_lite("digits_float32", ("conv1_conv_filter", lambda w: (w / 255).astype(w.dtype))),
             baseline="tflite_fp32", extra="conv2_input_nhwc", facts=["conv1_conv_filter", "255"]),
    labelled(detector_with_a_tolerance_of_its_own, "", "healthy", "tflite_opt", "", "",
             make=_lite("digits_float32"), baseline="tflite_fp32"),
]  # fmt: skip


def _dumped(name: str, truth: str, build: Callable[[Graph, str], Sequence[str]], wrong: str, who: str) -> None:
    """The model beside a folder of its tensors as another engine computes them."""
    options: list[str] = []

    def make(folder: Path) -> Made:
        from planted.fourteenth_truth import _each

        made = []
        for file, how in ((f"{name}.onnx", ""), ("other.onnx", wrong)):
            g = twentyfirst_onnx.Typed(seed=2323)
            made.append(g.save(folder / file, build(g, how)))
        dump = folder / "other"
        dump.mkdir(exist_ok=True)
        for n, (tensor, value) in enumerate({**_each(made[1], g.feeds), **g.feeds}.items()):
            np.save(dump / f"{n:02d}_{tensor}.npy", value)
        options[:] = ["--baseline", str(dump)]
        return made[0], None, g.feeds

    def named() -> None: ...

    named.__name__, named.__doc__ = name, truth
    CASES.append(labelled(named, "", "dump", "ort_fp32", who, f"{OTHER} kernels_disagree", make=make,
                          options=options, extra=who, fix=False))  # fmt: skip


def _of_the_batch(g: Graph, how: str) -> Sequence[str]:
    """A batch norm by its running statistics, or by the batch's."""
    x = g.conv(_fed(g, 2, 3, 8, 8), 3, 6, "a", 2)
    told = [g.random.uniform(0.5, 1.5, 6), g.random.normal(size=6) / 2, g.random.normal(size=6), g.random.uniform(
        0.5, 3, 6)]  # fmt: skip
    if how == "batch":
        x = g.op("InstanceNormalization", [x, k(g, "gain", told[0]), k(g, "shift", told[1])], "n", epsilon=1e-5)
    else:
        held = [k(g, name, one) for name, one in zip(("gain", "shift", "mean", "var"), told, strict=True)]
        x = g.op("BatchNormalization", [x, *held], "n")
    return [g.conv(g.op("Relu", [x], "r"), 6, 3, "y")]


_dumped("norm_of_another_engine_by_its_own_statistics", "https://whosebug.com/question/5312112: an engine normed by "
        "the picture's own statistics in place of the running ones.", _of_the_batch, "batch", "n")
