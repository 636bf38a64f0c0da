"""A twenty-second batch, by somebody who built none of it: what a converter changed in two files of ONNX, small ones,
ones of 60 operators and more, and real models with one thing broken. Labelled before the tool was run on any; who,
cause and fact of each were measured without it (``python tests/planted/twentysecond_truth.py``)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from planted import twentyfirst_onnx
from planted.fourteenth_onnx import _fed
from planted.onnx_faults import Array, Graph
from planted.onnx_further import ints, k
from planted.twelfth.case import DIFFER, Thread, labelled

CASES: list[Thread] = []
Made = tuple[Path, Path | None, Mapping[str, Array]]
MS, OTHER = {"domain": "com.microsoft"}, f"{DIFFER} unfound"
two = functools.partial(twentyfirst_onnx.two, cases=CASES)


def _cut(g: Graph, x: str, name: str, start: int, end: int, axis: int, step: int = 1) -> str:
    at = [ints(g, f"{name}_{part}", value) for part, value in (("from", start), ("to", end), ("axis", axis),
                                                               ("step", step))]  # fmt: skip
    return g.op("Slice", [x, *at], name)


def _to(g: Graph, x: str, name: str, *shape: int) -> str:
    return g.op("Reshape", [x, ints(g, f"{name}_shape", *shape)], name)


# --- rotations, heads, norms of language models


def _sections(g: Graph, sizes: Sequence[int]) -> Sequence[str]:
    """A rotation whose eight frequencies are of time, height and width (Qwen2-VL)."""
    x = g.dense(_fed(g, 1, 12, 16), 16, 16, "a", 2)
    at = np.stack([np.full(12, 5), np.arange(12) // 4, np.arange(12) % 4])
    which = np.repeat(np.arange(3), sizes)
    place = g.op("Gather", [k(g, "at", at.T), ints(g, "sections", *which)], "place", axis=1)
    angle = g.op("Mul", [place, k(g, "freq", 100.0 ** (-np.arange(8) / 8))], "angle")
    c, s = g.op("Cos", [angle], "cos"), g.op("Sin", [angle], "sin")
    x1, x2 = _cut(g, x, "x1", 0, 8, 2), _cut(g, x, "x2", 8, 16, 2)
    one = g.op("Sub", [g.op("Mul", [x1, c], "x1c"), g.op("Mul", [x2, s], "x2s")], "t1")
    other = g.op("Add", [g.op("Mul", [x2, c], "x2c"), g.op("Mul", [x1, s], "x1s")], "t2")
    return [g.dense(g.op("Concat", [one, other], "turned", axis=-1), 16, 4, "y")]


two(_sections, [2, 3, 3], [3, 3, 2], "sections_of_a_rotation_in_another_order", "The frequencies of time, height and "
    "width are 3, 3, 2 in place of 2, 3, 3.", "place", facts=["sections"])  # fmt: skip


def _latent_heads(g: Graph, how: str) -> Sequence[str]:
    """Queries of a part without places and one with (MLA), and keys whose part with places all heads share."""
    x = _fed(g, 1, 8, 24)
    q, key = g.dense(x, 24, 12, "q", 2), g.dense(x, 24, 12, "key", 2)
    plain, turned = ((0, 8), (8, 12)) if how != "swapped" else ((4, 12), (0, 4))
    parts = []
    for name, one, (p, t) in (("q", q, (plain, turned)), ("k", key, ((0, 8), (8, 12)))):
        angle = np.arange(8)[:, None] * 10000.0 ** (-np.array([0, 1, 0, 1]) / 2)
        still, moved = _cut(g, one, f"{name}_still", *p, 2), _cut(g, one, f"{name}_moved", *t, 2)
        half = g.op("Concat", [g.op("Neg", [_cut(g, moved, f"{name}_2", 2, 4, 2)], f"{name}_n"),
                               _cut(g, moved, f"{name}_1", 0, 2, 2)], f"{name}_half", axis=2)  # fmt: skip
        c, s = k(g, f"{name}_cos", np.cos(angle)), k(g, f"{name}_sin", np.sin(angle))
        rot = g.op("Add", [g.op("Mul", [moved, c], f"{name}_c"), g.op("Mul", [half, s], f"{name}_s")], f"{name}_rot")
        parts.append(g.op("Concat", [still, rot], f"{name}_all", axis=2))
    kt = g.op("Transpose", [parts[1]], "kt", perm=[0, 2, 1])
    score = g.op("Mul", [g.op("MatMul", [parts[0], kt], "raw"), k(g, "scale", 12**-0.5)], "score")
    return [g.dense(g.op("MatMul", [g.op("Softmax", [score], "share", axis=-1), x], "mixed"), 24, 6, "y")]


two(_latent_heads, "", "swapped", "part_with_places_taken_from_the_front_of_the_queries",
    "The queries' part that is turned is taken from their first 4 numbers in place of the last (MLA).",
    "q_still q_moved", extra="q_still q_moved q_all q_rot q_half q_1 q_2 q_c q_s",
    facts=["q_(still|moved)"])  # fmt: skip


def _stretched(g: Graph, factor: float) -> Sequence[str]:
    x = g.dense(_fed(g, 1, 10, 8), 8, 8, "a", 3)
    angle = np.arange(10)[:, None] * 10000.0 ** (-np.arange(8) % 4 / 4) / 4
    c = g.op("Mul", [k(g, "cos", np.cos(angle)), k(g, "attention_factor", factor)], "c")
    s = g.op("Mul", [k(g, "sin", np.sin(angle)), "attention_factor"], "s")
    half = g.op("Concat", [g.op("Neg", [_cut(g, x, "x2", 4, 8, 2)], "n"), _cut(g, x, "x1", 0, 4, 2)], "half", axis=2)
    q = g.op("Add", [g.op("Mul", [x, c], "xc"), g.op("Mul", [half, s], "xs")], "q")
    score = g.op("MatMul", [q, g.op("Transpose", [q], "qt", perm=[0, 2, 1])], "score")
    return [g.dense(g.op("MatMul", [g.op("Softmax", [score], "share", axis=-1), x], "mixed"), 8, 4, "y")]


two(_stretched, 1.1386, 1.0, "attention_factor_of_yarn_left_at_one", "YaRN's factor 0.1 ln 4 + 1 = 1.1386 of cosines "
    "and sines is 1.", "c s", extra="c s xc xs q", facts=["attention_factor"])  # fmt: skip


def _headed(g: Graph, how: str) -> Sequence[str]:
    """A root mean square of each head, or of all heads together."""
    x = g.dense(_fed(g, 2, 6, 16), 16, 24, "a", 2)
    by_head = how == "head"
    x = _to(g, x, "heads", 2, 6, 4, 6) if by_head else x
    square = g.op("ReduceMean", [g.op("Mul", [x, x], "sq")], "ms", axes=[-1], keepdims=1)
    x = g.op("Div", [x, g.op("Sqrt", [g.op("Add", [square, k(g, "eps", 1e-6)], "held")], "rms")], "n")
    x = _to(g, x, "flat", 2, 6, 24)
    return [g.dense(g.op("Mul", [x, k(g, "gain", g.random.uniform(0.5, 1.5, 24))], "scaled"), 24, 4, "y")]


two(_headed, "head", "all", "norm_of_queries_over_all_heads", "The queries' root mean square is over all four heads, "
    "not of each.", "sq ms n flat", OTHER, extra="heads sq ms held rms n flat a")  # fmt: skip


def _clamped(g: Graph, plus: float) -> Sequence[str]:
    """gpt-oss: (up + 1) gate sigmoid(1.702 gate), both clipped at 7."""
    x = _fed(g, 4, 16)
    gate = g.op("Clip", [g.dense(x, 16, 24, "gate0", 4), "", k(g, "limit", 7)], "gate")
    up = g.op("Clip", [g.dense(x, 16, 24, "up0", 4), k(g, "least", -7), "limit"], "up")
    up = g.op("Add", [up, k(g, "plus", plus)], "up1")
    act = g.op("Mul", [gate, g.op("Sigmoid", [g.op("Mul", [gate, k(g, "alpha", 1.702)], "steep")], "open")], "act")
    return [g.dense(g.op("Mul", [up, act], "gated"), 24, 6, "y")]


two(_clamped, 1.0, 0.0, "gated_unit_without_its_one", "(up + 1) of a gated unit (gpt-oss) became up + 0.", "up1 y",
    extra="up1 up0 gated y", mode="ov_opt", facts=[r"\bplus\b"])  # fmt: skip


def _grouped(g: Graph, how: str) -> Sequence[str]:
    """Six heads of queries, two of keys."""
    x = _fed(g, 1, 7, 12)
    q = g.op("Transpose", [_to(g, g.dense(x, 12, 24, "q", 2), "qs", 1, 7, 6, 4)], "qh", perm=[0, 2, 1, 3])
    key = g.op("Transpose", [_to(g, g.dense(x, 12, 8, "key", 2), "ks", 1, 7, 2, 4)], "kh", perm=[0, 2, 3, 1])
    if how == "expand":
        wide = g.op("Expand", [g.op("Unsqueeze", [key, ints(g, "ax", 2)], "one"), ints(g, "more", 1, 2, 3, 4, 7)], "e")
        key = _to(g, wide, "wide", 1, 6, 4, 7)
    else:
        key = g.op("Gather", [key, ints(g, "of", 0, 0, 0, 1, 1, 1)], "wide", axis=1)
    share = g.op("Softmax", [g.op("MatMul", [q, key], "score")], "share", axis=-1)
    mean = g.op("ReduceMean", [share], "mean", axes=[1], keepdims=0)
    return [g.dense(g.op("MatMul", [mean, x], "mixed"), 12, 4, "y")]


two(_grouped, "expand", "gather", "keys_of_groups_by_expand_or_by_gather", "Two heads of keys for six of queries, by "
    "Expand and Reshape, or by Gather of 0 0 0 1 1 1.")  # fmt: skip


def _asked(g: Graph, how: str) -> Sequence[str]:
    """MultiHeadAttention of com.microsoft with its scale, or without."""
    x = _fed(g, 1, 8, 16)
    told = {"scale": 0.1} if how == "scale" else {}
    parts = [g.dense(x, 16, 16, one, 3) for one in ("q", "key", "v")]
    return [g.dense(g.op("MultiHeadAttention", parts, "att", num_heads=2, **told, **MS), 16, 4, "y")]


two(_asked, "scale", "", "scale_of_an_attention_operator_lost", "MultiHeadAttention lost scale = 0.1: 1 / sqrt(8) is "
    "0.354.", "att", facts=["scale"])  # fmt: skip

# --- pictures: patches, windows, pools


def _patches(g: Graph, perm: Sequence[int]) -> Sequence[str]:
    """Patches of 4 by 4 of 3 channels, cut by hand for a matrix."""
    x = _to(g, _fed(g, 1, 3, 16, 16), "cut", 1, 3, 4, 4, 4, 4)
    x = _to(g, g.op("Transpose", [x], "turned", perm=perm), "patches", 1, 16, 48)
    x = g.op("Add", [g.dense(x, 48, 16, "embed"), k(g, "places", g.random.normal(size=(16, 16)))], "placed")
    return [g.dense(g.op("Relu", [x], "r"), 16, 4, "y")]


two(_patches, [0, 2, 4, 1, 3, 5], [0, 2, 4, 3, 5, 1], "numbers_of_a_patch_with_channels_last",
    "Each patch is laid out as rows, columns, channels in place of channels, rows, columns.", "turned patches",
    facts=["perm"])  # fmt: skip
two(_patches, [0, 2, 4, 1, 3, 5], [0, 4, 2, 1, 3, 5], "patches_read_column_by_column",
    "The patches of a picture are read column by column, the places row by row.", "turned", facts=["perm"])  # fmt: skip


def _merged(g: Graph, order: Sequence[tuple[int, int]]) -> Sequence[str]:
    """Swin joins every second row and column."""
    x = g.op("Relu", [_fed(g, 1, 8, 8, 6)], "r")
    parts = []
    for n, (row, column) in enumerate(order):
        rows = _cut(g, x, f"r{n}", row, 8, 1, 2)
        parts.append(_cut(g, rows, f"p{n}", column, 8, 2, 2))
    x = g.norm(g.op("Concat", parts, "joined", axis=3), 24, "n")
    return [g.dense(x, 24, 12, "y")]


two(_merged, [(0, 0), (1, 0), (0, 1), (1, 1)], [(0, 0), (0, 1), (1, 0), (1, 1)], "quarters_of_a_merging_in_rows",
    "The four quarters of a patch merging are joined row by row, not column by column.", "p1 p2 r1 r2 joined", OTHER,
    extra="p1 p2 r1 r2 joined")  # fmt: skip


def _relative(g: Graph, turned: bool) -> Sequence[str]:
    """Swin's table of biases of a window of three by three."""
    at = np.stack(np.meshgrid(np.arange(3), np.arange(3), indexing="ij")).reshape(2, 9)
    away = at[:, :, None] - at[:, None] + 2
    index = away[1] * 5 + away[0] if turned else away[0] * 5 + away[1]
    x = _fed(g, 2, 9, 12)
    bias = g.op("Gather", [k(g, "table", g.random.normal(size=25) * 1.5), ints(g, "index", *index.ravel())], "bias0")
    kt = g.op("Transpose", [g.dense(x, 12, 12, "key")], "kt", perm=[0, 2, 1])
    score = g.op("Add", [g.op("MatMul", [g.dense(x, 12, 12, "q"), kt], "raw"), _to(g, bias, "bias", 9, 9)], "score")
    return [g.dense(g.op("MatMul", [g.op("Softmax", [score], "share", axis=-1), x], "mixed"), 12, 4, "y")]


two(_relative, False, True, "index_of_a_window_of_columns_and_rows", "A window's relative index counts columns first "
    "where the table has rows first.", "bias0 bias score", extra="bias0 bias score raw share", mode="ort_opt",
    facts=[r"\bindex\b"])  # fmt: skip


def _power_mean(g: Graph, p: float) -> Sequence[str]:
    x = g.op("Relu", [g.conv(_fed(g, 2, 3, 8, 8), 3, 8, "a", 2)], "r")
    x = g.op("Pow", [g.op("Clip", [x, k(g, "eps", 1e-6)], "held"), k(g, "p", p)], "raised")
    x = g.op("Pow", [g.op("GlobalAveragePool", [x], "mean"), k(g, "root", 1 / 3)], "gem")
    return [g.dense(g.op("Flatten", [x], "flat"), 8, 4, "y", 2)]


two(_power_mean, 3.0, 2.5, "generalised_mean_of_another_power", "A generalised mean raises to 2.5 in place of 3, and "
    "takes the third root.", "raised", facts=[r"\bp\b"])  # fmt: skip


def _nearest(g: Graph, mode: str) -> Sequence[str]:
    x = g.conv(_fed(g, 1, 3, 10, 10), 3, 4, "a")
    x = g.op("Resize", [x, "", k(g, "scales", [1, 1, 1.3, 1.3])], "up", mode="nearest", nearest_mode=mode,
             coordinate_transformation_mode="asymmetric")  # fmt: skip
    return [g.conv(x, 4, 3, "y")]


two(_nearest, "floor", "round_prefer_ceil", "nearest_pixel_by_rounding_up",
    "nearest_mode is round_prefer_ceil in place "
    "of floor, at a scale of 1.3.", "up", facts=["nearest_mode"])  # fmt: skip


def _unpooled(g: Graph, how: str) -> Sequence[str]:
    """A pool, and its way back by the places that it took (SegNet)."""
    x = g.conv(_fed(g, 1, 3, 8, 8), 3, 4, "a")
    g.nodes.append(helper.make_node("MaxPool", [x], ["small", "where"], name="node_small", kernel_shape=[2, 2],
                                    strides=[2, 2], storage_order=int(how == "columns")))  # fmt: skip
    x = g.op("MaxUnpool", [g.op("Tanh", ["small"], "t"), "where"], "wide", kernel_shape=[2, 2], strides=[2, 2])
    return [g.conv(x, 4, 3, "y")]


two(_unpooled, "rows", "columns", "places_of_a_pool_counted_by_columns", "MaxPool's storage_order is 1: its places are "
    "counted by columns, and MaxUnpool reads rows.", "where wide small", f"{OTHER} flips", extra="where wide small",
    facts=["storage_order"])  # fmt: skip


def _grid(g: Graph, how: Mapping[str, Any]) -> Sequence[str]:
    x = g.conv(_fed(g, 1, 3, 8, 8), 3, 4, "a")
    at = np.stack(np.meshgrid(np.linspace(-1.3, 1.3, 8), np.linspace(-1.3, 1.3, 8)), -1)[None]
    at = at + 0.02 * g.random.normal(size=at.shape)
    x = g.op("GridSample", [x, k(g, "flow", at)], "warped", **{"mode": "bilinear", "padding_mode": "border", **how})
    return [g.conv(x, 4, 3, "y")]


two(_grid, {}, {"padding_mode": "zeros"}, "warp_that_reads_nought_outside",
    "GridSample's padding_mode is zeros in place "
    "of border.", "warped", facts=["padding_mode"])  # fmt: skip
two(_grid, {}, {"align_corners": 0}, "warp_with_a_default_written_out", "align_corners 0, which is the default, is "
    "written in one file alone.")  # fmt: skip


def _levels(g: Graph, half: float) -> Sequence[str]:
    """Boxes of two levels of a detector, (cell + 0.5) times the stride (YOLOv8)."""
    x = _fed(g, 1, 3, 16, 16)
    told = []
    for n, side in ((0, 16), (1, 8)):
        x = g.conv(x, 3 if n == 0 else 8, 8, f"c{n}")
        if n:
            g.nodes[-1].attribute.append(helper.make_attribute("strides", [2, 2]))
        x = g.op("Relu", [x], f"r{n}")
        cells = np.stack(np.meshgrid(np.arange(side), np.arange(side))).reshape(1, 2, side * side)
        box = _to(g, g.conv(x, 8, 2, f"box{n}"), f"flat{n}", 1, 2, side * side)
        middle = g.op("Add", [k(g, f"cells{n}", cells), k(g, f"half{n}", half if n else 0.5)], f"middle{n}")
        told.append(g.op("Mul", [g.op("Add", [box, middle], f"at{n}"), k(g, f"stride{n}", 8 * 2**n)], f"moved{n}"))
    return [g.op("Concat", told, "y", axis=2)]


two(_levels, 0.5, 0.0, "cells_of_one_level_at_their_corners", "The half of a cell is missing at the second of two "
    "levels.", "middle1 at1 y", extra="middle1 at1 moved1 y", mode="ov_opt", facts=["half1"])  # fmt: skip


def _token(g: Graph, start: int) -> Sequence[str]:
    x = _fed(g, 2, 10, 12)
    x = g.norm(g.attention(x, 12, "att"), 12, "n")
    x = g.op("ReduceMean", [_cut(g, x, "places", start, 10, 1)], "mean", axes=[1], keepdims=0)
    return [g.dense(x, 12, 4, "y", 3)]


two(_token, 1, 0, "mean_that_counts_the_token_of_the_class", "The mean over places counts the class's token.",
    "places mean", extra="places mean", facts=["places_from"])  # fmt: skip

# --- sound


def _mel(scale: str) -> Array:
    """Sixteen triangles up to 4000 Hz on the scale of HTK or of Slaney (librosa)."""
    def to(f: Any) -> Any:
        if scale == "htk":
            return 2595 * np.log10(1 + f / 700)
        return np.where(f < 1000, 3 * f / 200, 15 + 27 * np.log(np.maximum(f, 1) / 1000) / np.log(6.4))

    f = np.linspace(0, 4000, 4001)
    edges = np.interp(np.linspace(0, to(np.array(4000.0)), 18), to(f), f)
    at = np.linspace(0, 4000, 33)[:, None]
    up, down = (at - edges[:-2]) / np.diff(edges)[:-1], (edges[2:] - at) / np.diff(edges)[1:]
    return np.maximum(0, np.minimum(up, down))


def _voice(g: Graph, how: Mapping[str, Any]) -> Sequence[str]:
    x = _fed(g, 2, 6, 33)
    power = g.op("Mul", [x, x], "power")
    mel = g.op("MatMul", [power, k(g, "bank", _mel(how.get("bank", "slaney")))], "mel")
    log = g.op("Log", [g.op("Max", [mel, k(g, "floor", how.get("floor", 1e-5))], "held")], "log")
    if how.get("whisper"):
        log = g.op("Mul", [log, k(g, "base", 1 / np.log(10))], "log10")
        most = g.op("ReduceMax", [log], "most", axes=[1, 2] if how["whisper"] == "all" else [2], keepdims=1)
        log = g.op("Max", [log, g.op("Sub", [most, k(g, "span", 1.0)], "least")], "cut")
    return [g.dense(log, 16, 4, "y")]


two(_voice, {}, {"bank": "htk"}, "mel_bank_of_htk_in_place_of_slaney", "The mel bank is HTK's scale, not Slaney's.",
    "mel", mode="ort_opt", extra="mel log held", facts=["bank"])  # fmt: skip
two(_voice, {"whisper": "all"}, {"whisper": "frame"}, "loudest_of_each_frame_in_place_of_all", "The floor of a log mel "
    "lies below the largest of each frame, not of the whole sound.", "most cut", facts=["axes"])  # fmt: skip


def _frames(g: Graph, how: str) -> Sequence[str]:
    """The operator STFT, or slices times a window and a matrix."""
    x = g.input("x", g.random.normal(size=(1, 40)).astype(np.float32))
    w = np.hanning(17)[:16]
    if how == "operator":
        signal = g.op("Unsqueeze", [x, ints(g, "ax", 2)], "signal")
        parts = [signal, g.weight("hop", np.array(8, np.int64)), k(g, "window", w)]
        f = g.op("STFT", parts, "f", onesided=1)
    else:
        at = np.arange(16)[:, None] + 8 * np.arange(4)
        cut = g.op("Gather", [x, g.weight("at", at.T.astype(np.int64))], "cut", axis=1)
        phase = 2 * np.pi * np.outer(np.arange(16), np.arange(9)) / 16
        told = g.op("Mul", [cut, k(g, "window", w)], "windowed")
        both = ("re", np.cos(phase)), ("im", -np.sin(phase))
        pair = [g.op("MatMul", [told, k(g, name, one)], f"{name}_part") for name, one in both]
        f = g.op("Concat", [g.op("Unsqueeze", [one, ints(g, f"ax{n}", 3)], f"u{n}") for n, one in enumerate(pair)],
                 "f", axis=3)  # fmt: skip
    return [g.dense(_to(g, f, "flat", 1, 4, 18), 18, 4, "y")]


two(_frames, "operator", "matrix", "frames_by_stft_or_by_a_matrix", "STFT, and its frames by Gather, a window and two "
    "matrices.")  # fmt: skip

# --- arithmetic that a converter approximates


def _erf(g: Graph, how: str) -> Sequence[str]:
    """GELU whose erf is written out by Abramowitz and Stegun's 7.1.26 or 7.1.25, for x of either sign."""
    x = g.dense(_fed(g, 6, 16), 16, 16, "a", 2)
    h = g.op("Mul", [x, k(g, "unit", 0.5**0.5)], "h")
    if how == "erf":
        erf = g.op("Erf", [h], "erf")
    else:
        p, a = (0.3275911, [0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429]) if how == "five" else (
            0.47047, [0.3480242, -0.0958798, 0.7478556])  # fmt: skip
        size = g.op("Abs", [h], "size")
        t = g.op("Div", [k(g, "one", 1), g.op("Add", [g.op("Mul", [size, k(g, "p", p)], "ps"), "one"], "ps1")], "t")
        total = k(g, f"a{len(a)}", a[-1])
        for n in range(len(a) - 1, 0, -1):
            total = g.op("Add", [g.op("Mul", [total, t], f"m{n}"), k(g, f"a{n}", a[n - 1])], f"s{n}")
        tail = g.op("Mul", [total, t], "poly")
        down = g.op("Exp", [g.op("Neg", [g.op("Mul", [h, h], "h2")], "nh2")], "e")
        erf = g.op("Mul", [g.op("Sign", [h], "sign"), g.op("Sub", ["one", g.op("Mul", [tail, down], "tail")], "rest")],
                   "erf")  # fmt: skip
    act = g.op("Mul", [x, g.op("Mul", [g.op("Add", [erf, k(g, "eins", 1)], "plus"), k(g, "half", 0.5)], "gate")], "act")
    return [g.dense(act, 16, 4, "y")]


two(_erf, "erf", "five", "erf_by_five_terms", "erf by 7.1.26 of Abramowitz and Stegun, which is right to 1.5e-7.")


def _power(g: Graph, how: str) -> Sequence[str]:
    x = g.dense(_fed(g, 6, 16), 16, 12, "a", 2)
    if how == "exp":
        e = g.op("Exp", [x], "e")
    else:
        e = g.op("Add", [g.op("Mul", [x, k(g, "part", 1 / 64)], "small"), k(g, "one", 1)], "e0")
        for n in range(6):
            e = g.op("Mul", [e, e], "e" if n == 5 else f"e{n + 1}")
    total = g.op("ReduceSum", [e, ints(g, "ax", 1)], "total", keepdims=1)
    return [g.dense(g.op("Div", [e, total], "share"), 12, 4, "y")]


two(_power, "exp", "power", "exponential_by_six_squarings", "exp(x) became (1 + x/64)^64 by six squarings: 3 % off at "
    "x = 2.", "e", OTHER, extra="e e0 e1 e2 e3 e4 e5 small share total")  # fmt: skip


def _remainder(g: Graph, fmod: int) -> Sequence[str]:
    x = g.op("Mod", [g.dense(_fed(g, 6, 8), 8, 8, "a", 4), k(g, "turn", 3)], "rest", fmod=1)
    if not fmod:
        x = g.op("Mod", [g.op("Add", [x, "turn"], "again"), "turn"], "whole", fmod=1)
    return [g.dense(x, 8, 4, "y")]


two(_remainder, 0, 1, "remainder_with_the_sign_of_its_dividend",
    "A remainder as Python's became C's: below nought it is "
    "3 less.", "rest whole y_mm", OTHER, extra="rest whole again y_mm")  # fmt: skip


def _spread(g: Graph, how: str) -> Sequence[str]:
    """A square of scores less each row's mean."""
    x = g.dense(_fed(g, 6, 10), 10, 6, "a", 2)
    mean = g.op("ReduceMean", [x], "mean", axes=[1], keepdims=int(how == "kept"))
    return [g.dense(g.op("Tanh", [g.op("Sub", [x, mean], "less")], "t"), 6, 4, "y")]


two(_spread, "kept", "flat", "mean_of_rows_laid_along_the_columns",
    "keepdims was lost: 6 means of 6 rows are taken from "
    "the columns.", "mean less", extra="mean less", facts=["keepdims"])  # fmt: skip


def _picked(g: Graph, batch: int) -> Sequence[str]:
    x = g.dense(_fed(g, 4, 4, 8), 8, 8, "a")
    at = g.weight("at", g.random.integers(0, 4, (4, 3, 1)).astype(np.int64))
    if batch:
        x = g.op("GatherND", [x, at], "picked", batch_dims=1)
    else:
        x = g.op("GatherND", [x, at], "rows")
        x = g.op("ReduceMean", [x], "picked", axes=[2], keepdims=0)
    return [g.dense(x, 8, 4, "y")]


two(_picked, 1, 0, "rows_picked_without_their_batch", "GatherND lost batch_dims = 1, and a mean makes its shape fit.",
    "rows picked", OTHER, extra="rows picked", facts=["batch_dims"])  # fmt: skip


def _scanned(g: Graph, how: Mapping[str, Any]) -> Sequence[str]:
    """h = 0.8 h + x by Scan."""
    body = helper.make_graph(
        [helper.make_node("Mul", ["h_in", "keep"], ["kept"], name="node_kept"),
         helper.make_node("Add", ["kept", "x_in"], ["h_out"], name="node_h_out"),
         helper.make_node("Identity", ["h_out"], ["told"], name="node_told")], "body",
        [helper.make_tensor_value_info(one, TensorProto.FLOAT, [8]) for one in ("h_in", "x_in")],
        [helper.make_tensor_value_info(one, TensorProto.FLOAT, [8]) for one in ("h_out", "told")],
        [numpy_helper.from_array(np.array(0.8, np.float32), "keep")])  # fmt: skip
    x = g.dense(_fed(g, 7, 8), 8, 8, "a")
    g.nodes.append(helper.make_node("Scan", [k(g, "h0", np.zeros(8)), x], ["last", "all"], name="node_all", body=body,
                                    num_scan_inputs=1, **how))  # fmt: skip
    return [g.dense("all", 8, 4, "y")]


two(_scanned, {"scan_input_directions": [1], "scan_output_directions": [1]}, {"scan_output_directions": [1]},
    "scan_that_runs_forward_and_writes_backward", "Scan lost scan_input_directions = 1.", "all last h_out@0",
    extra="all last h_out@0 body/kept body/h_out body/told kept h_out told h_in x_in",
    facts=["scan_input_directions"])  # fmt: skip

# --- quantised files


def _integers(g: Graph, how: str) -> Sequence[str]:
    """ConvInteger with a zero point of each side."""
    x = g.input("x", g.random.integers(0, 255, (1, 3, 8, 8)).astype(np.uint8))
    w = g.weight("w", g.random.integers(90, 190, (4, 3, 3, 3)).astype(np.uint8))
    zeros = [g.weight("x_zero", np.array(120, np.uint8)), g.weight("w_zero", np.array(140, np.uint8))]
    y = g.op("ConvInteger", [x, w, zeros[0], *(() if how == "lost" else zeros[1:])], "sum", pads=[1, 1, 1, 1])
    y = g.op("Mul", [g.op("Cast", [y], "wide", to=TensorProto.FLOAT), k(g, "scale", 2e-5)], "real")
    return [g.conv(g.op("Relu", [y], "r"), 4, 3, "y")]


two(_integers, "", "lost", "integer_filters_without_their_zero_point", "ConvInteger was not given the filters' zero "
    "point.", "sum", OTHER, facts=["w_zero"])  # fmt: skip


def _bits(g: Graph, how: str) -> Sequence[str]:
    """Per-channel INT8 weights of a DequantizeLinear; one channel's scale is not its own."""
    x = _fed(g, 8, 24)
    w = g.random.normal(size=(24, 12)) * np.geomspace(0.2, 2, 12)
    scale = np.abs(w).max(0) / 127
    q = np.rint(w / scale).astype(np.int8)
    if how == "one":
        scale[7] *= 2
    zero = g.weight("w_zero", np.zeros(12, np.int8))
    w = g.op("DequantizeLinear", [g.weight("w_q", q), k(g, "w_scale", scale), zero], "w", axis=1)
    return [g.dense(g.op("Relu", [g.op("MatMul", [x, w], "h")], "r"), 12, 4, "y")]


two(_bits, "", "one", "scale_of_one_column_of_twelve_doubled", "The scale of column 7 of twelve is twice its own.", "w",
    extra="w h", facts=["w_scale"])  # fmt: skip


def _requantised(g: Graph, how: str) -> Sequence[str]:
    """Symmetric and shifted integers of the same numbers."""
    x = _fed(g, 8, 16)
    told = (0.05, 0, np.int8) if how == "signed" else (0.05, 128, np.uint8)
    held = [k(g, "s", told[0]), g.weight("z", np.array(told[1], told[2]))]
    x = g.op("DequantizeLinear", [g.op("QuantizeLinear", [g.dense(x, 16, 16, "a"), *held], "q"), *held], "d")
    return [g.dense(x, 16, 4, "y")]


two(_requantised, "signed", "unsigned", "bytes_with_a_sign_or_moved_by_128", "int8 with zero point 0, and uint8 with "
    "128: the same numbers.")  # fmt: skip


def _clipped(g: Graph, most: float) -> Sequence[str]:
    """Six layers of dense, a norm and a Relu6: one has the wrong bound. 60 operators and more."""
    x = _fed(g, 4, 24)
    for n in range(12):
        h = g.norm(g.dense(x, 24, 24, f"l{n}", 1.5), 24, f"n{n}")
        h = g.op("Clip", [h, k(g, f"least{n}", 0), k(g, f"most{n}", most if n == 8 else 6)], f"c{n}")
        x = g.op("Add", [x, g.dense(h, 24, 24, f"d{n}")], f"x{n}")
    return [g.dense(g.norm(x, 24, "last"), 24, 6, "y")]


two(_clipped, 6.0, 1.0, "ninth_of_twelve_blocks_clipped_at_one", "Of twelve blocks the ninth's Relu6 ends at 1.", "c8",
    facts=["most8"])  # fmt: skip


def _deep(g: Graph, how: str) -> Sequence[str]:
    """Eight layers of attention and a net of two layers: 180 operators."""
    x = _fed(g, 1, 8, 16)
    for n in range(8):
        h = g.norm(x, 16, f"n{n}")
        h = g.attention(h, 16, f"att{n}")
        x = g.mlp(h, 16, f"m{n}")
    if how == "value":
        g.weights["att5_v.w"] = g.weights["att5_v.w"][:, ::-1].copy()
    if how == "scale":
        g.weights["att3.d"] = np.float32(1.0)
    return [g.dense(g.norm(x, 16, "last"), 16, 6, "y")]


two(_deep, "", "value", "columns_of_the_values_of_the_sixth_of_eight_layers_in_reverse",
    "Of eight layers the sixth's values have their columns in reverse.", "att5_v_mm att5_v", extra="att5_v_mm att5_v",
    facts=[r"att5_v\.w"])  # fmt: skip
two(_deep, "", "scale", "scores_of_the_fourth_of_eight_layers_not_divided", "Of eight layers the fourth divides its "
    "scores by 1 in place of 4.", "att3_score", facts=[r"att3\.d"])  # fmt: skip


def _residual(g: Graph, how: str) -> Sequence[str]:
    """Ten blocks of two convolutions, each with its batch norm; how: folded, or one folded without its shift."""
    x = g.op("Relu", [g.conv(_fed(g, 1, 3, 8, 8), 3, 8, "stem")], "r")
    for n in range(10):
        h = x
        for part in "ab":
            w = g.random.normal(size=(8, 8, 3, 3)) / 9
            gain, shift = g.random.uniform(0.5, 1.5, 8), g.random.normal(size=8) * 0.2
            mean = g.random.normal(size=8) * 0.2
            var, name = g.random.uniform(0.2, 1, 8), f"{part}{n}"
            if how:
                f = gain / np.sqrt(var + 1e-5)
                b = shift - mean * (f if how != "half" or name != "b6" else 1)
                h = g.op("Conv", [h, k(g, f"{name}.w", w * f[:, None, None, None]), k(g, f"{name}.b", b)], name,
                         pads=[1] * 4)  # fmt: skip
            else:
                h = g.op("Conv", [h, k(g, f"{name}.w", w)], f"{name}_c", pads=[1] * 4)
                h = g.op("BatchNormalization", [h, *(k(g, f"{name}.{one}", v) for one, v in zip("gzmv", (
                    gain, shift, mean, var), strict=True))], name, epsilon=1e-5)  # fmt: skip
            h = g.op("Relu", [h], f"r{name}") if part == "a" else h
        x = g.op("Relu", [g.op("Add", [x, h], f"x{n}")], f"rx{n}")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "p")], "flat"), 8, 4, "y")]


two(_residual, "", "half", "mean_folded_without_its_gain_in_one_of_twenty",
    "Twenty batch norms were folded, one with a "
    "mean that is not multiplied by its gain.", "b6", extra="b6 b6_c")  # fmt: skip
two(_residual, "", "folded", "twenty_batch_norms_folded", "Twenty batch norms folded into their convolutions.")

# --- real models with one thing broken

WILD = Path("/work/wild_where")


def _changed(name: str, truth: str, source: str, change: Any, who: str = "", *, mode: str = "ort_fp32",
             **more: Any) -> None:  # fmt: skip
    """A real model beside the same with one thing changed: change(nodes by output, initializers by name, graph)."""

    def make(folder: Path) -> Made:
        model = onnx.load(WILD / f"{source}.onnx")
        onnx.save(model, folder / "base.onnx")
        held = {one.name: one for one in model.graph.initializer}
        change({one.output[0]: one for one in model.graph.node}, held, model.graph)
        onnx.save(model, folder / f"{name}.onnx")
        return folder / f"{name}.onnx", folder / "base.onnx", dict(np.load(WILD / f"{source}.npz"))

    def named() -> None: ...

    named.__name__, named.__doc__ = name, truth
    more.setdefault("extra", who)
    CASES.append(labelled(named, "", "converter" if who else "healthy", mode, who, DIFFER if who else "", make=make,
                          baseline="ort_fp32", **more))  # fmt: skip


def put(held: Any, edit: Any) -> None:
    held.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(edit(numpy_helper.to_array(held).copy())), held.name))


_LAYER = "/model/model.0/auto_model/encoder/layer"


def _turned(nodes: Any, held: Any, graph: Any) -> None:
    put(held["onnx::MatMul_487"], lambda w: w.T)


def _later(nodes: Any, held: Any, graph: Any) -> None:
    name = "model.0.auto_model.embeddings.position_embeddings.weight"
    put(held[name], lambda w: np.roll(w, -2, 0))


def _linear(nodes: Any, held: Any, graph: Any) -> None:
    for one in nodes["/model.10/Resize_output_0"].attribute:
        if one.name == "mode":
            one.s = b"linear"


def _reordered(nodes: Any, held: Any, graph: Any) -> None:
    order = np.random.default_rng(22).permutation(32)
    for part in ("weight", "bias"):
        put(held[f"model.4.m.1.cv1.conv.{part}"], lambda w: w[order])
    put(held["model.4.m.1.cv2.conv.weight"], lambda w: w[:, order])


def _at_the_end(nodes: Any, held: Any, graph: Any) -> None:
    for one in nodes["depthwise_conv2d_2.tmp_0"].attribute:
        if one.name == "pads":
            size = one.ints[0]
            one.ints[:] = [0, 0, 2 * size, 2 * size]


def _one_bias(nodes: Any, held: Any, graph: Any) -> None:
    put(held["model.22.cv2.1.2.bias"], lambda b: b * 0)


_changed("values_of_a_sentence_model_turned", "MiniLM's second layer: the square matrix of the values is transposed.",
         "minilm", _turned, f"{_LAYER}.1/attention/self/value/MatMul_output_0", facts=["MatMul_487"],
         extra=f"{_LAYER}.1/attention/self/value/MatMul_output_0 {_LAYER}.1/attention/self/value/Add_output_0")
_changed("places_of_a_sentence_model_two_later", "MiniLM's places begin at row 2 of their table, as RoBERTa's do.",
         "minilm", _later, "/model/model.0/auto_model/embeddings/position_embeddings/Gather_output_0",
         facts=["position_embeddings"],
         extra="/model/model.0/auto_model/embeddings/position_embeddings/Gather_output_0 "
         "/model/model.0/auto_model/embeddings/Add_1_output_0 /model/model.0/auto_model/embeddings/Add_output_0")
_changed("detector_whose_first_upsample_is_linear", "A YOLOv8's first Resize is linear in place of nearest.", "nude",
         _linear, "/model.10/Resize_output_0", facts=[r"\bmode\b"])  # fmt: skip
_changed("detector_with_channels_in_another_order", "A YOLOv8: 32 channels between two convolutions in another order, "
         "consistently.", "nude", _reordered)  # fmt: skip
_changed("detector_with_channels_in_another_order_fused", "The same, every fusion on.", "nude", _reordered,
         mode="ort_opt")  # fmt: skip
_changed("depthwise_of_a_classifier_padded_at_the_end", "One depthwise filter of a MobileNetV3 is padded at the end "
         "alone.", "cls", _at_the_end, "depthwise_conv2d_2.tmp_0", facts=["pads"])  # fmt: skip
_changed("bias_of_one_level_of_a_detector_lost", "A YOLOv8: the boxes' last bias of the second level is 0.", "nude",
         _one_bias, "/model.22/cv2.1/cv2.1.2/Conv_output_0", facts=[r"cv2\.1\.2\.bias"], mode="ort_opt",
         extra="/model.22/cv2.1/cv2.1.2/Conv_output_0 /model.22/Concat_1_output_0")  # fmt: skip
