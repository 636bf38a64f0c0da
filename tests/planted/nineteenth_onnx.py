"""A nineteenth batch, by somebody who built none of it: contributed operators beside what they stand for, opsets
moved by
onnx's own converter, scales of a quantised file that lie along another axis, preprocessing that a converter put into an
IR, formulas of maps, markets and chemistry in narrow types; LiteRT's bytes. Labelled before the tool was run on any;
what
a docstring states was measured in the stock engine or numpy (``python tests/planted/fourteenth_truth.py
nineteenth``)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, version_converter

from planted import fourteenth_onnx, shared
from planted.fifteenth_onnx import SEVEN, _bytes, _detail, _put
from planted.fourteenth_onnx import ROUNDS, _fed, _filters
from planted.onnx_faults import Array, Graph, _body, _info
from planted.onnx_further import ints, k
from planted.shared import two_graphs
from planted.twelfth.case import COARSE, DIFFER, Thread

# After the first run: price_of_an_option's own input is rounded, too, and may be named first.
CASES: list[Thread] = []
Made = tuple[Path, Path, Mapping[str, Array]]
case = functools.partial(fourteenth_onnx.case, cases=CASES)
MS = {"domain": "com.microsoft"}
TOO_COARSE = f"{COARSE} mask_range packed reads_rounded outlier_channel constant_scale found_by_repair saturation"
two = functools.partial(two_graphs, CASES, 1919)
add = functools.partial(shared.add, CASES)


def _halves(g: Graph, x: str, name: str, axis: int = -1) -> list[str]:
    g.nodes.append(helper.make_node("Split", [x], [f"{name}_1", f"{name}_2"], name=f"node_{name}", axis=axis))
    return [f"{name}_1", f"{name}_2"]


# --- contributed operators and what they stand for


def _silu(g: Graph, how: Any) -> Sequence[str]:
    up = g.dense(_fed(g, 6, 16), 16, 32, "up", 2)
    if how == "written":
        act = g.op("Mul", [up, g.op("Sigmoid", [up], "gate")], "act")
    else:
        act = g.op("QuickGelu", [up], "act", **MS, **how)
    return [g.dense(act, 32, 6, "y")]


two(_silu, "written", {}, "silu_fused_without_its_alpha",
    "x sigmoid(x) became QuickGelu without alpha 1: the operator's default of 1.702 runs.", "act", extra="act",
    facts=[r"alpha|1\.702|Sigmoid"])  # fmt: skip
two(_silu, "written", {"alpha": 1.0}, "silu_fused_with_its_alpha", "The same with alpha 1, which is right.")


def _heads(g: Graph, how: Any) -> Sequence[str]:
    x = _fed(g, 2, 6, 16)
    q, key, v = (g.dense(x, 16, 16, f"{one}_proj", 2) for one in "qkv")
    if how == "written":
        parts = []
        for one, to in ((q, (0, 2, 1, 3)), (key, (0, 2, 3, 1)), (v, (0, 2, 1, 3))):
            cut = g.op("Reshape", [one, ints(g, f"{one}.to", 2, 6, 4, 4)], f"{one}_cut")
            parts.append(g.op("Transpose", [cut], f"{one}_heads", perm=list(to)))
        score = g.op("Mul", [g.op("MatMul", parts[:2], "raw"), k(g, "half", 0.5)], "score")
        mixed = g.op("MatMul", [g.op("Softmax", [score], "share", axis=-1), parts[2]], "heads_out")
        back = g.op("Transpose", [mixed], "joined", perm=[0, 2, 1, 3])
        mixed = g.op("Reshape", [back, ints(g, "flat", 2, 6, 16)], "mixed")
    else:
        mixed = g.op("MultiHeadAttention", [q, key, v], "mixed", **MS, **how)
    return [g.dense(mixed, 16, 8, "y")]


two(_heads, {"num_heads": 4}, {"num_heads": 2}, "two_heads_in_place_of_four",
    "MultiHeadAttention was written with two heads of eight where four of four are.", "mixed", extra="mixed",
    facts=["num_heads"])  # fmt: skip
two(_heads, {"num_heads": 4, "unidirectional": 1}, {"num_heads": 4}, "attention_that_lost_its_direction",
    "unidirectional 1 was lost: each word sees the later ones.", "mixed", extra="mixed", facts=["unidirectional"])
two(_heads, "written", {"num_heads": 4}, "heads_by_the_contributed_operator",
    "Four heads written out beside MultiHeadAttention: the same numbers.", mode="ort_opt")
two(_heads, "written", {"num_heads": 4, "scale": 0.25}, "scale_of_all_channels_in_a_head",
    "A scale of 1/sqrt(16), of all channels, where a head's four ask for 1/sqrt(4).", "mixed", extra="mixed",
    facts=[r"scale|0\.25"])  # fmt: skip


def _scaled(g: Graph, how: Any) -> Sequence[str]:
    x = _fed(g, 2, 6, 16)
    score = g.op("FusedMatMul", [x, x], "score", **MS, transB=1, **how)
    return [g.dense(g.op("MatMul", [g.op("Softmax", [score], "share", axis=-1), x], "mixed"), 16, 8, "y")]


two(_scaled, {"alpha": 0.25}, {}, "product_that_lost_its_factor",
    "FusedMatMul lost its alpha of 0.25: scores are four times as large.", "score", extra="score", facts=["alpha"])


def _skipped(g: Graph, how: str) -> Sequence[str]:
    x = _fed(g, 2, 5, 16)
    a, gain = g.dense(x, 16, 16, "a"), k(g, "gain", g.random.uniform(0.5, 2, 16))
    if how == "fused":
        n = g.op("SkipSimplifiedLayerNormalization", [x, a, gain], "n", **MS, epsilon=1e-5)
    elif how == "centred":
        n = g.op("LayerNormalization", [g.op("Add", [x, a], "sum"), gain], "n", axis=-1, epsilon=1e-5)
    else:
        total = g.op("Add", [x, a], "sum")
        mean = g.op("ReduceMean", [g.op("Mul", [total, total], "square")], "mean", axes=[-1], keepdims=1)
        root = g.op("Sqrt", [g.op("Add", [mean, k(g, "eps", 1e-5)], "held")], "root")
        n = g.op("Mul", [g.op("Div", [total, root], "unit"), gain], "n")
    return [g.dense(n, 16, 4, "y")]


two(_skipped, "written", "fused", "skip_and_root_mean_square_in_one",
    "A sum and a root mean square norm written out beside SkipSimplifiedLayerNormalization.")
two(_skipped, "written", "centred", "root_mean_square_taken_for_a_layer_norm",
    "A root mean square norm became a LayerNormalization, which takes the mean away.", "n unit", f"{DIFFER} unfound",
    extra="n unit square mean held root")  # fmt: skip


def _skip_norm(g: Graph, how: Any) -> Sequence[str]:
    x = _fed(g, 2, 5, 16, scale=0.02)
    given = [x, g.op("Mul", [x, k(g, "half", 0.5)], "a"), k(g, "gain", np.ones(16)), k(g, "shift", np.zeros(16))]
    n = g.op("SkipLayerNormalization", given, "n", **MS, **how)
    return [g.dense(n, 16, 4, "y")]


two(_skip_norm, {"epsilon": 1e-3}, {}, "epsilon_that_a_contributed_norm_lost",
    "SkipLayerNormalization lost its epsilon of 1e-3: the default is 1e-12, beside variances of 9e-4.", "n", extra="n",
    facts=["epsilon"])  # fmt: skip


def _grouped(g: Graph, how: Any) -> Sequence[str]:
    x = _fed(g, 1, 12, 16)
    q, key, v = g.dense(x, 16, 32, "q", 2), g.dense(x, 16, 16, "k", 2), g.dense(x, 16, 16, "v")
    past = [k(g, f"past.{one}", np.zeros((1, 2, 0, 8))) for one in "kv"]
    told = [g.weight("seqlens", np.array([11], np.int32)), g.weight("total", np.array([12], np.int32))]
    g.nodes.append(helper.make_node("GroupQueryAttention", [q, key, v, *past, *told], ["mixed", "now_k", "now_v"],
                                    name="node_mixed", num_heads=4, kv_num_heads=2, **MS, **how))  # fmt: skip
    return [g.dense("mixed", 32, 6, "y")]


two(_grouped, {"local_window_size": 4}, {}, "window_that_grouped_heads_lost",
    "local_window_size 4 was lost: each word sees all before it.", "mixed", extra="mixed",
    facts=["local_window_size"])  # fmt: skip
two(_grouped, {"softcap": 2.0}, {}, "cap_of_scores_that_grouped_heads_lost",
    "softcap 2 was lost: scores are no longer held between -2 and 2.", "mixed", extra="mixed", facts=["softcap"])

# --- opsets


def converted(build: Any, opset: int, name: str, truth: str, who: str = "", **more: Any) -> None:
    """What onnx's own version converter makes of an older file, to opset 17."""

    def make(folder: Path) -> Made:
        g = Graph(seed=1919, opset=opset)
        base = g.save(folder / "base.onnx", build(g))
        moved = version_converter.convert_version(onnx.load(base), 17)
        moved.ir_version = 8
        onnx.save(moved, folder / f"{name}.onnx")
        return folder / f"{name}.onnx", base, g.feeds

    add(make, name, truth, who, DIFFER, mode="ort_fp32", kind="converter" if who else "healthy", baseline="ort_fp32",
        **more)  # fmt: skip


def _enlarged(mode: str) -> Any:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 1, 3, 8, 8), 3, 6, "a")], "r")
        up = g.op("Resize", [x, k(g, "scales", [1, 1, 2, 2])], "up", mode=mode)
        return [g.conv(up, 6, 3, "y")]

    return build


converted(_enlarged("linear"), 10, "picture_enlarged_by_the_next_opset",
          "Opset 10 enlarges from the corner (asymmetric); the converter leaves the mode out, and 11's default is "
          "half_pixel.",
          "up", extra="up", facts=["coordinate_transformation_mode|half_pixel|asymmetric|opset"])  # fmt: skip


def _older(g: Graph) -> Sequence[str]:
    x = g.op("Unsqueeze", [g.op("ReduceSum", [_fed(g, 2, 6, 16)], "sum", axes=[1], keepdims=0)], "row", axes=[1])
    x = g.op("Squeeze", [x], "flat", axes=[1])
    return [g.dense(g.op("Softmax", [g.dense(x, 16, 8, "a")], "share", axis=1), 8, 4, "y")]


converted(_older, 12, "axes_that_became_inputs",
          "Opset 12 to 17: axes of sums and squeezes are inputs now, and a softmax of two axes means the same.")


def _grid(g: Graph, how: Any) -> Sequence[str]:
    x = g.op("Relu", [g.conv(_fed(g, 2, 3, 8, 8), 3, 4, "a")], "r")
    theta = k(g, "theta", np.tile([[[0.8, 0.2, 0.1], [-0.2, 0.8, 0.0]]], (2, 1, 1)))
    grid = g.op("AffineGrid", [theta, ints(g, "size", 2, 4, 8, 8)], "grid", **how)
    return [g.conv(g.op("GridSample", [x, grid], "sampled", align_corners=1), 4, 3, "y")]


two(_grid, {"align_corners": 1}, {}, "affine_grid_without_its_corners",
    "AffineGrid lost align_corners 1: its corners are pixels' centres; GridSample kept its own.", "grid", opset=20,
    extra="grid", facts=["align_corners"])  # fmt: skip


def _normed(g: Graph, how: str) -> Sequence[str]:
    x = g.dense(_fed(g, 3, 4, 16), 16, 24, "a")
    gain = k(g, "gain", g.random.uniform(0.5, 2, 24))
    if how == "operator":
        n = g.op("RMSNormalization", [x, gain], "n", axis=-1, epsilon=1e-6)
    else:
        mean = g.op("ReduceMean", [g.op("Mul", [x, x], "square"), ints(g, "last", -1)], "mean", keepdims=1)
        scale = g.op("Reciprocal", [g.op("Sqrt", [g.op("Add", [mean, k(g, "eps", 1e-6)], "held")], "root")], "scale")
        n = g.op("Mul", [g.op("Mul", [x, scale], "unit"), gain], "n")
    return [g.dense(n, 24, 4, "y")]


two(_normed, "written", "operator", "norm_of_opset_23", "A root mean square norm beside opset 23's operator of it.",
    opset=23)  # fmt: skip

# --- attributes, orders, constants


def _merged(g: Graph, order: Sequence[int]) -> Sequence[str]:
    x = _fed(g, 1, 8, 8, 6)
    parts = []
    for n, (row, column) in enumerate(((0, 0), (1, 0), (0, 1), (1, 1))):
        at = [ints(g, f"p{n}.{one}", *value) for one, value in
              zip(("from", "to", "axes", "steps"), ((row, column), (8, 8), (1, 2), (2, 2)), strict=True)]  # fmt: skip
        parts.append(g.op("Slice", [x, *at], f"part{n}"))
    whole = g.op("Concat", [parts[n] for n in order], "merged", axis=-1)
    return [g.dense(g.norm(whole, 24, "n"), 24, 12, "y")]


two(_merged, (0, 1, 2, 3), (0, 2, 1, 3), "patches_merged_row_by_row",
    "Four neighbours are joined as (0,0), (0,1), (1,0), (1,1); the weights know (0,0), (1,0), (0,1), (1,1).", "merged",
    extra="merged part1 part2 n")  # fmt: skip


def _read(g: Graph, turned: bool) -> Sequence[str]:
    w = g.random.normal(size=(6, 3, 3, 3)) / 5
    x = g.op("Conv", [_fed(g, 1, 3, 10, 10), k(g, "stem.w", w.swapaxes(2, 3) if turned else w)], "stem")
    return [g.conv(g.op("Relu", [x], "r"), 6, 4, "y")]


two(_read, False, True, "filter_read_column_by_column", "Rows and columns of each filter of 3 by 3 changed places.",
    "stem",
    extra="stem", facts=[r"stem\.w"])  # fmt: skip


def _counted(g: Graph, steps: int) -> Sequence[str]:
    x = _fed(g, 3, 8)
    w = k(g, "step.w", np.eye(8) + g.random.normal(size=(8, 8)) / 6)
    body = _body([helper.make_node("MatMul", ["h", w], ["moved"]), helper.make_node("Tanh", ["moved"], ["h_next"]),
                  helper.make_node("Identity", ["go"], ["on"])],
                 [_info("i", [], TensorProto.INT64), _info("go", [], TensorProto.BOOL), _info("h", [3, 8])],
                 [_info("on", [], TensorProto.BOOL), _info("h_next", [3, 8])], {})  # fmt: skip
    h = g.op("Loop", [g.weight("steps", np.array(steps, np.int64)), "", x], "h_last", body=body)
    return [g.dense(h, 8, 4, "y")]


two(_counted, 8, 7, "seven_steps_of_eight", "A loop of eight steps was written with seven.", "h_last",
    extra="h_last", facts=[r"\bsteps\b"])  # fmt: skip


def _gemm(g: Graph, how: Any) -> Sequence[str]:
    x = g.op("Gemm", [_fed(g, 5, 12), _filters(g, "a.w", 16, 12), k(g, "a.b", g.random.normal(size=16))], "a", transB=1,
             **how)  # fmt: skip
    return [g.dense(g.op("Tanh", [x], "t"), 16, 4, "y")]


two(_gemm, {"beta": 0.5}, {}, "bias_that_lost_its_half", "Gemm lost its beta of 0.5: the bias counts whole.", "a",
    extra="a", facts=["beta"])  # fmt: skip


def _level(g: Graph, how: Any) -> Sequence[str]:
    x = g.conv(_fed(g, 3, 3, 8, 8), 3, 6, "a")
    x = g.op("MeanVarianceNormalization", [g.op("Mul", [x, k(g, "loud", [[[[1]]], [[[4]]], [[[9]]]])], "l")], "n",
        **how)
    return [g.conv(x, 6, 3, "y")]


two(_level, {"axes": [2, 3]}, {}, "norm_that_sees_the_whole_batch",
    "MeanVarianceNormalization lost axes [2, 3]: its default takes the batch along.", "n", extra="n", facts=["axes"])


def _shrunk(g: Graph, how: str) -> Sequence[str]:
    x = g.op("Relu", [g.conv(_fed(g, 2, 3, 8, 8), 3, 12, "a")], "r")
    x = g.op("Flatten", [g.op(how, [x], "pooled")], "flat")
    return [g.dense(x, 12, 5, "y")]


two(_shrunk, "GlobalAveragePool", "GlobalMaxPool", "largest_in_place_of_the_mean",
    "A global mean over the picture became a global maximum.", "pooled", f"{DIFFER} unfound", mode="ov_opt",
    extra="pooled", facts=["Max"])  # fmt: skip


def _replaced(g: Graph, turned: bool) -> Sequence[str]:
    x, pad = g.dense(_fed(g, 2, 6, 16), 16, 12, "a"), np.arange(6)[None, :, None] >= np.array([[[4]], [[3]]])
    g.weights["is_word"] = ~pad
    pair = [x, k(g, "nothing", g.random.normal(size=12))]
    chosen = g.op("Where", ["is_word", *(pair[::-1] if turned else pair)], "chosen")
    return [g.dense(g.op("Tanh", [chosen], "t"), 12, 4, "y")]


two(_replaced, False, True, "words_replaced_and_padding_kept", "Where's two choices changed places.", "chosen",
    f"{DIFFER} unfound", extra="chosen t")  # fmt: skip


def _near(g: Graph, how: str) -> Sequence[str]:
    x, at = _fed(g, 1, 9, 12), np.arange(9, dtype=np.float32)
    far = g.op("Abs", [k(g, "apart", at[:, None] - at)], "far")
    near = g.op(how, [far, k(g, "window", 2)], "near")
    bias = g.op("Where", [near, k(g, "seen", 0), k(g, "unseen", -1e4)], "bias")
    return [g.dense(g.attention(x, 12, "att", bias), 12, 5, "y")]


two(_near, "LessOrEqual", "Less", "window_that_is_one_narrower",
    "Words two places away are seen by <= and not by <.", "near", f"{DIFFER} unfound", extra="near bias att_masked",
    facts=["Less"])  # fmt: skip


def _apart(g: Graph, turned: bool) -> Sequence[str]:
    x = _fed(g, 4, 16)
    pair = [g.dense(x, 16, 12, "query"), g.dense(x, 16, 12, "prior")]
    return [g.dense(g.op("Sigmoid", [g.op("Sub", pair[::-1] if turned else pair, "less")], "s"), 12, 4, "y")]


two(_apart, False, True, "difference_the_other_way_round", "Sub's two inputs changed places.", "less",
    f"{DIFFER} unfound", mode="ort_opt", extra="less s")  # fmt: skip


def _decibels(g: Graph, factor: float) -> Sequence[str]:
    power = g.op("Add", [g.op("Mul", [_fed(g, 2, 20), "x"], "power"), k(g, "floor", 1e-3)], "held")
    level = g.op("Mul", [g.op("Log", [power], "log"), k(g, "factor", factor)], "decibels")
    return [g.dense(g.op("Mul", [level, k(g, "range", 1 / 40)], "part"), 20, 6, "y")]


two(_decibels, 10 / np.log(10), 10.0, "decibels_by_the_natural_logarithm",
    "10 log10 was written as 10 ln: levels are 2.303 times as large.", "decibels", extra="decibels",
    facts=[r"\bfactor\b"])  # fmt: skip


def _bins(g: Graph, rounded: bool) -> Sequence[str]:
    x = g.input("x", g.random.uniform(0, 15.49, (4, 9)).astype(np.float32))
    at = g.op("Round", [x], "whole") if rounded else g.op("Floor", [x], "whole")
    row = g.op("Gather", [k(g, "table", g.random.normal(size=(16, 8))), g.op("Cast", [at], "bin",
        to=TensorProto.INT64)],
               "row")  # fmt: skip
    return [g.dense(row, 8, 4, "y")]


two(_bins, True, False, "bins_cut_and_not_rounded", "Floor in place of Round: half of the bins are one less.", "whole",
    f"{DIFFER} unfound", extra="whole bin row", facts=["Floor"])  # fmt: skip

# --- quantised files


def _stored(g: Graph, how: str) -> Sequence[str]:
    w, blocks = g.random.normal(size=(16, 16)) * np.geomspace(0.05, 1, 16)[:, None], how in {"blocks", "rolled"}
    high = np.abs(w.reshape(16, 4, 4)).max(2) if blocks else np.abs(w).max(1, keepdims=True)
    scale = high / 127
    g.weights["w_q"] = np.clip(np.rint(w / np.repeat(scale, 16 // scale.shape[1], 1)), -127, 127).astype(np.int8)
    scale = {"first": np.full_like(scale, scale[0, 0]), "rolled": np.roll(scale, 1, 1)}.get(how, scale)
    told = {"axis": 1, "block_size": 4} if blocks else {"axis": 1 if how == "turned" else 0}
    held = g.op("DequantizeLinear", ["w_q", k(g, "w_scale", scale if blocks else scale[:, 0])], "w", **told)
    return [g.dense(g.op("Relu", [g.op("MatMul", [_fed(g, 5, 16), held], "h")], "r"), 16, 4, "y")]


_W = "w h"
two(_stored, "rows", "turned", "scales_of_rows_read_as_columns",
    "A square weight's sixteen scales are its rows'; DequantizeLinear reads them along axis 1.", _W, extra=_W,
    facts=[r"\baxis\b"])  # fmt: skip
two(_stored, "rows", "first", "first_scale_for_all_rows", "Every row got the first one's scale.", _W, extra=_W,
    facts=["w_scale"])  # fmt: skip
two(_stored, "blocks", "rolled", "scales_of_the_next_block",
    "Blocks of four have the scale of the block in front of them.", _W, opset=21, extra=_W, facts=["w_scale"])

# --- pairs that are one model


def _shaped(g: Graph, how: bool) -> Sequence[str]:
    x = g.conv(_fed(g, 2, 3, 6, 6), 3, 8, "a")
    if how:
        sizes = g.op("Shape", [x], "sizes")
        front = g.op("Gather", [sizes, ints(g, "at", 0, 1)], "front")
        to = g.op("Concat", [front, ints(g, "rest", -1)], "to", axis=0)
    else:
        to = ints(g, "to", 2, 8, 36)
    x = g.op("Transpose", [g.op("Reshape", [x, to], "rows")], "turned", perm=[0, 2, 1])
    if how:
        return [g.dense(g.op("Relu", [x], "r"), 8, 4, "y")]
    w, b = k(g, "y.w", g.random.normal(size=(8, 4)) / np.sqrt(8)), g.random.normal(size=4) * 0.1
    x = g.op("Reshape", [g.op("Relu", [x], "r"), ints(g, "two", 72, 8)], "flat")
    x = g.op("Gemm", [x, w, k(g, "y.b", b)], "gemm")
    return [g.op("Reshape", [x, ints(g, "three", 2, 36, 4)], "y")]


two(_shaped, True, False, "sizes_folded_and_a_product_flattened",
    "A shape that was computed is a constant, and a product with a bias a Gemm over flattened rows.", mode="ort_opt")


def _unrolled(g: Graph, loop: bool) -> Sequence[str]:
    if loop:
        return _counted(g, 4)
    h, w = _fed(g, 3, 8), k(g, "step.w", np.eye(8) + g.random.normal(size=(8, 8)) / 6)
    for n in range(4):
        h = g.op("Tanh", [g.op("MatMul", [h, w], f"moved{n}")], f"h{n}")
    return [g.dense(h, 8, 4, "y")]


two(_unrolled, True, False, "loop_of_four_steps_unrolled", "A loop of four steps, and its four bodies in a row.")


def _spare(g: Graph, tidy: bool) -> Sequence[str]:
    x = g.dense(_fed(g, 4, 16), 16, 24, "a")
    if not tidy:
        g.op("Exp", [g.op("Mul", [x, k(g, "huge", 1e6)], "debug")], "debug_out")
        x = g.op("Cast", [g.op("Identity", [x], "same")], "again", to=TensorProto.FLOAT)
    return [g.dense(g.op("Relu", [x], "r"), 24, 6, "y")]


two(_spare, False, True, "debugging_branch_taken_out",
    "A branch to infinity that nothing reads, an Identity and a cast to the own type were removed.")

# --- float16 and bfloat16


@case("formula", "ort_fp16_sim", "s_lat square_lat s_lon square_lon",
    f"underflow {COARSE} found_by_repair amplified amplifies",
      extra="s_lat square_lat s_lon square_lon hav root way y")  # fmt: skip
def way_between_two_near_places(g: Graph) -> Sequence[str]:
    """Haversine of places 0.0001 rad apart: squares of 6e-10 to 1e-8 are 0 in float16, and so is the way of a
    kilometre."""
    x = g.input("x", g.random.uniform(5e-5, 2e-4, (6, 2)).astype(np.float32))
    lat, lon = _halves(g, x, "step")
    squares = []
    for one, name in ((lat, "lat"), (lon, "lon")):
        sine = g.op("Sin", [g.op("Mul", [one, k(g, f"half_{name}", 0.5)], f"h_{name}")], f"s_{name}")
        squares.append(g.op("Mul", [sine, sine], f"square_{name}"))
    way = g.op("Asin", [g.op("Sqrt", [g.op("Add", squares, "hav")], "root")], "way")
    return [g.op("Mul", [way, k(g, "earth", 12742.0)], "y")]


@case("formula", "ort_fp16_sim", "x paid owed y chance_1 chance_2 d1 d2", f"{ROUNDS} {COARSE} found_by_repair",
      extra="paid owed y chance_1 chance_2 d1 d2 log_ratio e_1 e_2 o_1 o_2 up deep n_1 n_2")  # fmt: skip
def price_of_an_option(g: Graph) -> Sequence[str]:
    """Black and Scholes: 4500 N(d1) less 4500 N(d2) leaves prices of about 20, and float16's step at 2000 is 1 or 2."""
    share = g.input("x", g.random.uniform(4400, 4600, (12, 1)).astype(np.float32))
    log = g.op("Log", [g.op("Div", [share, k(g, "strike", 4500)], "ratio")], "log_ratio")
    spread = 0.01
    up = g.op("Div", [g.op("Add", [log, k(g, "half_var", spread**2 / 2)], "deep"), k(g, "spread", spread)], "d1")
    less = g.op("Sub", [up, k(g, "spread2", spread)], "d2")
    chances = []
    for n, one in ((1, up), (2, less)):
        e = g.op("Erf", [g.op("Mul", [one, k(g, f"root{n}", 2**-0.5)], f"n_{n}")], f"e_{n}")
        chances.append(g.op("Mul", [g.op("Add", [e, k(g, f"one{n}", 1)], f"o_{n}"), k(g, f"half{n}", 0.5)],
            f"chance_{n}"))
    paid = g.op("Mul", [share, chances[0]], "paid")
    return [g.op("Sub", [paid, g.op("Mul", [chances[1], k(g, "strike2", 4500)], "owed")], "y")]


@case("formula", "ort_fp16_sim", "colours chroma apart", f"{ROUNDS} {COARSE} stepped found_by_repair",
      extra="colours chroma apart most least hue part red green blue")  # fmt: skip
def hue_of_a_pale_picture(g: Graph) -> Sequence[str]:
    """(green - blue) / (largest - least) of colours near 0.8 that differ by 0.002: float16 knows every 2048th there."""
    x = g.op("Mul", [_fed(g, 8, 3), k(g, "pale", 1e-3)], "tint")
    x = g.op("Add", [x, k(g, "level", 0.8)], "colours")
    green, blue = (g.op("Gather", [x, ints(g, f"at{n}", n + 1)], name, axis=1) for n, name in enumerate(("green",
        "blue")))
    most = g.op("ReduceMax", [x], "most", axes=[1], keepdims=1)
    chroma = g.op("Sub", [most, g.op("ReduceMin", [x], "least", axes=[1], keepdims=1)], "chroma")
    return [g.op("Div", [g.op("Sub", [green, blue], "apart"), g.op("Add", [chroma, k(g, "tiny", 1e-6)], "part")],
        "hue")]


@case("overflow", "ort_fp16_sim", "volume", "overflow", extra="volume litres")
def volume_of_a_parcel_in_millimetres(g: Graph) -> Sequence[str]:
    """Sides of 30 to 60 mm: their product is 27,000 to 216,000, beyond 65504 in most rows; a factor of 1e-5 follows."""
    x = g.input("x", g.random.uniform(30, 60, (10, 3)).astype(np.float32))
    volume = g.op("ReduceProd", [x], "volume", axes=[1], keepdims=1)
    litres = g.op("Mul", [volume, k(g, "litre", 1e-5)], "litres")
    return [g.dense(g.op("Tanh", [litres], "t"), 1, 4, "y")]


@case("formula", "ort_fp16_sim", "held ions", "underflow coarse born found_by_repair amplified",
    extra="held ions log y")
def acidity_of_a_solution(g: Graph) -> Sequence[str]:
    """-log10 of 1e-9 to 1e-4 mol per litre: below 3e-8 there is 0 in float16, and the acidity is infinite."""
    x = g.input("x", g.random.uniform(4, 9, (6, 4)).astype(np.float32))
    ions = g.op("Exp", [g.op("Mul", [x, k(g, "ten", -np.log(10))], "power")], "ions")
    log = g.op("Log", [ions], "log")
    return [g.op("Mul", [log, k(g, "decade", -1 / np.log(10))], "y")]


@case("formula", "ort_bf16_sim", "nxy sxsy sxy above", f"{ROUNDS} {COARSE} stepped found_by_repair",
      extra="nxy sxsy above sy sxy product y")  # fmt: skip
def slope_of_a_fitted_line(g: Graph) -> Sequence[str]:
    """n sum(xy) - sum(x) sum(y) of places from 100 to 115 on a line of slope 3: two products of 9 million leave 16,000,
    and bfloat16 knows every 65536th there."""
    at = np.arange(100, 116)
    y = g.input("x", (3 * at + g.random.integers(-4, 5, (4, 16))).astype(np.float32))
    product = g.op("Mul", [y, k(g, "at", at)], "product")
    sums = [g.op("ReduceSum", [one, ints(g, f"ax_{name}", 1)], name, keepdims=1) for name, one in (
        ("sxy", product), ("sy", y))]  # fmt: skip
    whole = [g.op("Mul", [one, k(g, f"times_{name}", by)], name) for one, name, by in (
        (sums[0], "nxy", 16), (sums[1], "sxsy", 1720))]  # fmt: skip
    return [g.op("Div", [g.op("Sub", whole, "above"), k(g, "below", 5440)], "y")]


@case("healthy", "ort_fp16_sim")
def pitch_on_the_scale_of_mel(g: Graph) -> Sequence[str]:
    """2595 log10(1 + f / 700) of 20 to 8000 Hz, which float16 holds, before two layers."""
    x = g.input("x", g.random.uniform(20, 8000, (6, 8)).astype(np.float32))
    log = g.op("Log", [g.op("Add", [g.op("Mul", [x, k(g, "corner", 1 / 700)], "part"), k(g, "one", 1)], "more")], "log")
    mel = g.op("Mul", [log, k(g, "mel", 2595 / np.log(10))], "pitch")
    x = g.op("Mul", [mel, k(g, "unit", 1 / 2840)], "share")
    return [g.dense(g.op("Tanh", [g.dense(x, 8, 16, "a")], "t"), 16, 4, "y")]


@case("healthy", "ort_bf16_sim")
def two_pictures_blended(g: Graph) -> Sequence[str]:
    """a (1 - t) + b t by a gate, convolutions around it."""
    x = _fed(g, 1, 3, 12, 12)
    a, b = (g.op("Relu", [g.conv(x, 3, 8, name)], f"r_{name}") for name in "ab")
    gate = g.op("Sigmoid", [g.conv(x, 3, 8, "g")], "gate")
    rest = g.op("Sub", [k(g, "one", 1), gate], "rest")
    both = g.op("Add", [g.op("Mul", [a, rest], "first"), g.op("Mul", [b, gate], "second")], "blend")
    return [g.conv(both, 8, 4, "y")]


# --- 8 and 4 bits


@case("int8", "ort_int8", "y kelvin", f"{TOO_COARSE} held_narrower stepped", options=SEVEN, offered=None,
      extra="y kelvin head head_mm")  # fmt: skip
def temperature_in_kelvin(g: Graph) -> Sequence[str]:
    """A head of about 1 plus 293 in the same 8 bits: the step is 1.16, and what is told is the season's mean."""
    x = g.op("Relu", [g.dense(_fed(g, 24, 16), 16, 32, "a")], "r")
    kelvin = g.op("Add", [g.dense(x, 32, 4, "head"), k(g, "zero", 293.15)], "kelvin")
    w = k(g, "mix.w", np.eye(4) - 1 / 4)
    return [g.op("MatMul", [kelvin, w], "y")]


@case("int8", "ort_int8_dynamic", "up_mm up q_mm", f"{TOO_COARSE} outlier_token", options=SEVEN, offered=None,
      extra="up_mm up y_mm y")  # fmt: skip
def first_token_of_a_thousand(g: Graph) -> Sequence[str]:
    """The first word of each row is 400 times as large, as attention's sinks are; dynamic INT8 has one scale for all,
    so
    that the other words' step is 5."""
    x = g.input("x", (g.random.normal(size=(2, 10, 32)) * np.where(np.arange(10) == 0, 400, 1)[None, :, None]).astype(
        np.float32))  # fmt: skip
    up = g.op("Tanh", [g.dense(x, 32, 48, "up")], "act")
    return [g.dense(up, 48, 8, "y")]


@case("int4", "ort_int4", "h", f"{TOO_COARSE} weight_outlier few_bits", offered=None, extra="h")
def inputs_in_unlike_units_in_four_bits(g: Graph) -> Sequence[str]:
    """Of each block of weights a half is for inputs of 0.01 (and 100 times as large): the other half, which makes as
    much
    of the product, is less than a step of 4 bits."""
    size = np.where(np.arange(128) % 2 == 0, 1.0, 0.01)
    x = g.input("x", (g.random.normal(size=(6, 128)) * size).astype(np.float32))
    h = g.op("MatMul", [x, k(g, "h.w", g.random.normal(size=(128, 64)) / size[:, None] / 11)], "h")
    return [g.op("Tanh", [h], "y")]


@case("healthy", "ort_int8_dynamic", options=SEVEN)
def gated_mixer_in_dynamic_int8(g: Graph) -> Sequence[str]:
    """A norm, a gated layer and a skip, twice: what dynamic INT8 costs."""
    x = _fed(g, 2, 8, 32)
    for n in range(2):
        y = g.norm(x, 32, f"n{n}")
        gate = g.op("Sigmoid", [g.dense(y, 32, 48, f"gate{n}")], f"open{n}")
        x = g.op("Add", [x, g.dense(g.op("Mul", [g.dense(y, 32, 48, f"up{n}"), gate], f"gated{n}"), 48, 32,
            f"down{n}")],
                 f"x{n}")  # fmt: skip
    return [g.dense(x, 32, 8, "y")]


@case("healthy", "ort_int8", options=SEVEN)
def two_towers_in_static_int8(g: Graph) -> Sequence[str]:
    """Two towers of one width whose outputs are joined; what INT8 costs."""
    x = _fed(g, 32, 24)
    towers = [g.op("Relu", [g.dense(g.op("Relu", [g.dense(x, 24, 32, f"{n}1")], f"r{n}"), 32, 16, f"{n}2")], f"out_{n}")
              for n in "ab"]  # fmt: skip
    return [g.dense(g.op("Concat", towers, "joined", axis=1), 32, 6, "y")]


# --- graph optimisation, OpenVINO and its IR


@case("healthy", "ort_opt")
def constant_of_eight_bits_reshaped(g: Graph) -> Sequence[str]:
    """A weight that is dequantised and reshaped, which the optimiser folds; negative numbers are among it."""
    g.weights["w_q"] = g.random.integers(-127, 128, 96).astype(np.int8)
    held = g.op("DequantizeLinear", ["w_q", k(g, "w_scale", 0.01)], "w_flat")
    w = g.op("Reshape", [held, ints(g, "to", 12, 8)], "w")
    return [g.op("MatMul", [_fed(g, 5, 12), w], "y")]


def _classifier(g: Graph) -> Sequence[str]:
    x = g.op("Relu", [g.conv(_fed(g, 1, 3, 12, 12), 3, 8, "stem")], "r")
    x = g.op("Relu", [g.conv(x, 8, 8, "body")], "r2")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "pooled")], "flat"), 8, 5, "y")]


def ir(change: Callable[[Any, Graph], Any], name: str, truth: str, who: str = "", **more: Any) -> None:
    """The classifier as ONNX beside the IR that change(model, g) gives of it."""

    def make(folder: Path) -> Made:
        import openvino as ov

        g = Graph(seed=1919)
        base = g.save(folder / "base.onnx", _classifier(g))
        model = change(ov.Core().read_model(str(base)), g)
        ov.save_model(model, str(folder / f"{name}.xml"), compress_to_fp16=False)
        return folder / f"{name}.xml", base, g.feeds

    add(make, name, truth, who, f"{DIFFER} unfound", mode="ov_opt", kind="converter" if who else "healthy",
        baseline="ort_fp32", **more)  # fmt: skip


def _prepared(**how: Any) -> Any:
    def change(model: Any, g: Graph) -> Any:
        import openvino as ov
        from openvino.preprocess import PrePostProcessor

        made = PrePostProcessor(model)
        made.input().model().set_layout(ov.Layout("NCHW"))
        for step, value in how.items():
            getattr(made.input().preprocess(), step)(*([value] if value is not None else []))
        return made.build()

    return change


def _older_body(model: Any, g: Graph) -> Any:
    import openvino as ov

    for node in model.get_ops():
        if node.get_type_name() == "Constant" and node.get_output_shape(0) == ov.Shape([8, 8, 3, 3]):
            node.output(0).replace(ov.opset13.constant(g.weights["body.w"] * np.float32(0.9)).output(0))
    return model


ir(_prepared(mean=[0.485, 0.456, 0.406], scale=[0.229, 0.224, 0.225]), "mean_and_scale_put_into_the_ir",
   "The converter was told mean and scale values; the pipeline that feeds it has normalised already.", "stem r",
   extra="stem r")  # fmt: skip
ir(_prepared(reverse_channels=None), "channels_reversed_in_the_ir",
   "The converter was told to reverse the input's channels; they come in the order that was trained.", "stem r",
   extra="stem r")  # fmt: skip
ir(_older_body, "ir_of_an_earlier_body", "The IR was made before the last epoch: the second filter is 0.9 of it.",
    "body r2",
   extra="body r2", facts=[r"body\.w|0\.9"])  # fmt: skip
ir(lambda model, g: model, "ir_as_it_was_saved", "The IR that save_model writes, in float32.")


@case("healthy", "ov_opt", baseline="ort_fp32")
def gated_recurrence_with_a_late_reset(g: Graph) -> Sequence[str]:
    """A GRU with linear_before_reset 1 and a skip, in OpenVINO."""
    x = _fed(g, 9, 2, 12)
    given = [k(g, n, g.random.normal(size=(1, 36, 12)) / 4) for n in ("w", "r")]
    h = g.op("GRU", [x, *given, k(g, "b", g.random.normal(size=(1, 72)) / 4)], "h", hidden_size=12,
        linear_before_reset=1)
    h = g.op("Squeeze", [h, ints(g, "ax", 1)], "flat")
    return [g.dense(g.op("Add", [h, x], "skip"), 12, 5, "y")]


@case("healthy", "ov_int8")
def small_classifier_by_nncf(g: Graph) -> Sequence[str]:
    """Convolutions of plain weights, calibrated on what is judged."""
    x = g.op("Relu", [g.conv(_fed(g, 4, 3, 16, 16), 3, 16, "a")], "r")
    x = g.op("Relu", [g.conv(x, 16, 16, "b")], "r2")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "pooled")], "flat"), 16, 10, "y", 3)]


# --- LiteRT


def _turned(run: Any, blob: bytes) -> bytes:
    w = run.get_tensor(_detail(run, "conv2_conv_filter")["index"])
    return _put(blob, w, w.swapaxes(1, 2))


def _emptied(run: Any, blob: bytes) -> bytes:
    w = run.get_tensor(_detail(run, "conv3_conv_bias")["index"])
    return _put(blob, w, np.zeros_like(w))


def _reordered(run: Any, blob: bytes) -> bytes:
    order = np.random.default_rng(19).permutation(len(run.get_tensor(_detail(run, "conv3_conv_bias")["index"])))
    for name, axis in (("conv3_conv_filter", 0), ("conv3_conv_bias", 0), ("fc_fc_weights", 1)):
        w = run.get_tensor(_detail(run, name)["index"])
        blob = _put(blob, w, np.take(w, order, axis))
    return blob


for change, name, truth, who, facts in (
    (_turned, "filters_of_a_litert_file_turned", "Height and width of the second layer's filters changed places.",
     "pool_input_nhwc", ["conv2_conv_filter"]),
    (_emptied, "bias_of_a_litert_file_emptied", "The third layer's bias is 0.", "relu3_out", ["conv3_conv_bias"]),
    (_reordered, "channels_of_a_litert_file_in_another_order",
     "The third layer's channels, and their readers' columns, are in another order: nothing is wrong.", "", []),
):  # fmt: skip
    add(_bytes("digits_float32", change), name, truth, who, f"{DIFFER} unfound", mode="tflite_opt",
        kind="healthy" if change is _reordered else "converter", baseline="tflite_fp32", extra=who,
            facts=facts)  # fmt: skip
