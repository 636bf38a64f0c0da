"""An eighteenth batch, by somebody who built none of it: colour and sound before the model, guidance, windows that are
shifted, recurrences whose clip or activation an exporter lost, transforms and transposed filters, formulas in float16,
bfloat16 and 8 bits, LiteRT's bytes; 10 are healthy, of which most look as if they were not. Labelled before the tool
was run on any; what a docstring states was measured in the stock engine or numpy
(``python tests/planted/fourteenth_truth.py eighteenth``)."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from planted import fourteenth_onnx
from planted.fifteenth_onnx import SEVEN, _bytes, _detail, _put
from planted.fourteenth_onnx import ROUNDS, _fed, _filters
from planted.onnx_faults import Graph
from planted.onnx_further import ints, k
from planted.twelfth.case import COARSE, DIFFER, Build, Thread, labelled

# After the first run: either of a law's two constants may come first; 0.9999999 becomes 1 by ordinary rounding.
CASES: list[Thread] = []

case, pair = (functools.partial(one, cases=CASES) for one in (fourteenth_onnx.case, fourteenth_onnx.pair))
TOO_COARSE = f"{COARSE} mask_range packed reads_rounded outlier_channel constant_scale found_by_repair"


def _pixels(g: Graph, *shape: int) -> str:
    return g.input("x", g.random.uniform(0, 1, size=shape).astype(np.float32))


# --- colour and sound in front of a model


def _grey(weights: Sequence[float]) -> Build:
    def build(g: Graph) -> Sequence[str]:
        luma = k(g, "luma", np.array(weights)[None, :, None, None])
        grey = g.op("Conv", [_pixels(g, 1, 3, 16, 16), luma], "grey")
        x = g.op("Relu", [g.conv(grey, 1, 8, "a", 3)], "r")
        return [g.conv(x, 8, 4, "y")]

    return build


@pair(_grey([0.2126, 0.7152, 0.0722]), "grey", extra="grey", facts=[r"\bluma\b"])
def grey_by_another_standard(g: Graph) -> Sequence[str]:
    """Luma by BT.709 in place of BT.601: the weight of blue is 0.0722 in place of 0.114."""
    return _grey([0.299, 0.587, 0.114])(g)


def _cosines(first: float) -> Build:
    def build(g: Graph) -> Sequence[str]:
        mel = g.op("Log", [g.op("Add", [_pixels(g, 2, 20, 24), k(g, "floor", 1e-2)], "held")], "log")
        n, f = np.arange(24), np.arange(13)
        dct = np.cos(np.pi / 24 * np.outer(n + 0.5, f)) * np.sqrt(2 / 24)
        dct[:, 0] *= first
        x = g.op("MatMul", [mel, k(g, "dct", dct)], "cepstrum")
        return [g.dense(g.op("Tanh", [g.dense(x, 13, 16, "a", 0.3)], "t"), 16, 5, "y")]

    return build


@pair(_cosines(1.0), "cepstrum", extra="cepstrum", facts=[r"\bdct\b"])
def first_coefficient_of_a_cepstrum_not_divided_by_root_two(g: Graph) -> Sequence[str]:
    """The first column of the orthonormal DCT lost its factor 0.7071; the other twelve are equal."""
    return _cosines(float(np.sqrt(0.5)))(g)


def _mu(mu: float) -> Build:
    def build(g: Graph) -> Sequence[str]:
        code = g.input("x", g.random.uniform(-1, 1, size=(2, 1, 256)).astype(np.float32))
        power = g.op("Pow", [k(g, "one_and_mu", 1 + mu), g.op("Abs", [code], "size")], "power")
        less = g.op("Sub", [power, k(g, "one", 1)], "less")
        sound = g.op("Mul", [g.op("Sign", [code], "sign"), g.op("Div", [less, k(g, "mu", mu)], "loud")], "sound")
        w = k(g, "c.w", g.random.normal(size=(6, 1, 9)) / 3)
        x = g.op("Conv", [sound, w], "c", strides=[4])
        return [g.op("Tanh", [x], "y")]

    return build


@pair(_mu(127), "power loud", mode="ort_opt", extra="power loud less", facts=["one_and_mu"])
def sound_expanded_by_another_law(g: Graph) -> Sequence[str]:
    """A mu-law of 127 in place of 255 in both of its places."""
    return _mu(255)(g)


def _studio(full: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        levels = g.input("x", g.random.integers(16, 236, size=(1, 1, 16, 16)).astype(np.float32))
        if full:
            light = g.op("Div", [levels, k(g, "range", 255)], "light")
        else:
            light = g.op("Div", [g.op("Sub", [levels, k(g, "black", 16)], "less"), k(g, "range", 219)], "light")
        x = g.op("Relu", [g.conv(light, 1, 8, "a", 3)], "r")
        return [g.conv(x, 8, 4, "y")]

    return build


@pair(_studio(True), "light", extra="light less", facts=[r"\brange\b|\bless\b|\bblack\b|Sub"])
def studio_levels_taken_for_full_ones(g: Graph) -> Sequence[str]:
    """Levels of 16 to 235 are divided by 255 where 16 was to be taken off first, and the rest divided by 219."""
    return _studio(False)(g)


# --- an attribute or an order that was lost


def _recurrent(op: str, **told: Any) -> Build:
    gates = {"RNN": 1, "GRU": 3, "LSTM": 4}[op]

    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 8, 2, 6, scale=2)
        given = [k(g, n, g.random.normal(size=(1, gates * 10, m)) / np.sqrt(m)) for n, m in (("w", 6), ("r", 10))]
        given.append(k(g, "b", g.random.normal(size=(1, gates * 20)) / 3))
        h = g.op(op, [x, *given], "h", hidden_size=10, **told)
        flat = g.op("Squeeze", [h, ints(g, "ax", 1)], "flat")
        return [g.dense(flat, 10, 4, "y")]

    return build


@pair(_recurrent("RNN"), "h", extra="h", facts=["activations|[Rr]elu"])
def recurrence_that_forgot_its_relu(g: Graph) -> Sequence[str]:
    """A plain recurrence with Relu was written without its activations: the standard's Tanh runs."""
    return _recurrent("RNN", activations=["Relu"])(g)


@pair(_recurrent("LSTM"), "h", extra="h", facts=[r"\bclip\b"])
def gates_that_are_no_longer_clipped(g: Graph) -> Sequence[str]:
    """The clip of 1 in front of an LSTM's gates was dropped."""
    return _recurrent("LSTM", clip=1.0)(g)


def _cubic(outside: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 1, 3, 8, 8), 3, 6, "a")], "r")
        up = g.op("Resize", [x, "", k(g, "scales", [1, 1, 2, 2])], "up", mode="cubic", exclude_outside=outside)
        return [g.conv(up, 6, 3, "y")]

    return build


@pair(_cubic(0), "up", extra="up", facts=["exclude_outside"])
def cubic_weights_that_reach_beyond_the_border(g: Graph) -> Sequence[str]:
    """exclude_outside 1 was lost: near the border the cubic's weights repeat the edge, and are not normalised anew."""
    return _cubic(1)(g)


def _regions(scale: float) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 1, 3, 16, 16), 3, 8, "a")], "r")
        rois = k(g, "rois", [[8, 8, 60, 40], [16, 24, 100, 110], [2, 2, 30, 90]])
        g.weights["at"] = np.zeros(3, np.int64)
        cut = g.op("RoiAlign", [x, rois, "at"], "cut", output_height=4, output_width=4, sampling_ratio=2,
                   spatial_scale=scale)  # fmt: skip
        flat = g.op("Flatten", [cut], "flat")
        return [g.dense(flat, 128, 5, "y")]

    return build


@pair(_regions(1 / 16), "cut", extra="cut", facts=["spatial_scale"])
def regions_of_the_next_level(g: Graph) -> Sequence[str]:
    """Regions in pixels are read with a stride of 16 where this level's is 8."""
    return _regions(1 / 8)(g)


def _units(p: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.dense(_fed(g, 6, 16), 16, 12, "a")
        unit = g.op("LpNormalization", [x], "unit", axis=-1, p=p)
        return [g.op("MatMul", [unit, k(g, "names", g.random.normal(size=(12, 7)))], "y")]

    return build


@pair(_units(1), "unit", mode="ov_opt", extra="unit", facts=[r"\bp\b"])
def vectors_of_unit_sum_in_place_of_unit_length(g: Graph) -> Sequence[str]:
    """LpNormalization with p 1 in place of 2, in OpenVINO."""
    return _units(2)(g)


def _shrunk(bias: float) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.dense(_fed(g, 4, 16), 16, 24, "code")
        x = g.op("Shrink", [x], "sparse", lambd=0.4, bias=bias)
        return [g.dense(x, 24, 16, "y")]

    return build


@pair(_shrunk(0.0), "sparse", extra="sparse", facts=[r"\bbias\b"])
def threshold_that_no_longer_shrinks(g: Graph) -> Sequence[str]:
    """A soft threshold of 0.4 became a hard one: Shrink's bias is 0, so that what passes keeps its whole size."""
    return _shrunk(0.4)(g)


def _windows(back: int) -> Build:
    def rolled(g: Graph, x: str, by: int, name: str) -> str:
        for axis, letter in ((1, "h"), (2, "w")):
            at = [ints(g, f"{name}.{letter}{n}", v) for n, v in enumerate((by % 8, 8, 0, axis))]
            tail = g.op("Slice", [x, at[0], at[1], at[3]], f"{name}_{letter}_tail")
            head = g.op("Slice", [x, at[2], at[0], at[3]], f"{name}_{letter}_head")
            x = g.op("Concat", [tail, head], f"{name}_{letter}", axis=axis)
        return x

    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 1, 8, 8, 12)
        moved = rolled(g, x, 2, "there")
        cut = g.op("Reshape", [moved, ints(g, "cut", 2, 4, 2, 4, 12)], "cut_up")
        cut = g.op("Reshape", [g.op("Transpose", [cut], "windows", perm=[0, 2, 1, 3, 4]), ints(g, "rows", 4, 16, 12)],
                   "rowed")  # fmt: skip
        y = g.attention(cut, 12, "att")
        y = g.op("Reshape", [y, ints(g, "uncut", 2, 2, 4, 4, 12)], "uncut_up")
        y = g.op("Reshape", [g.op("Transpose", [y], "joined", perm=[0, 2, 1, 3, 4]), ints(g, "map", 1, 8, 8, 12)],
                 "mapped")  # fmt: skip
        back_again = rolled(g, y, back, "back")
        return [g.op("Add", [x, g.dense(back_again, 12, 12, "head")], "y")]

    return build


_BACK = "back_h_tail back_h_head back_h back_w_tail back_w_head back_w"


@pair(_windows(2), _BACK, extra=_BACK, facts=[r"back\.[hw]\d"])
def windows_shifted_further_in_place_of_back(g: Graph) -> Sequence[str]:
    """After attention in windows the map is rolled by another two places in place of back by two."""
    return _windows(-2)(g)


def _guided(names: Sequence[str]) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 2, 4, 8, 8), 4, 8, "a")], "r")
        noise = g.conv(x, 8, 4, "noise")
        g.nodes.append(helper.make_node("Split", [noise], list(names), name="node_halves", axis=0))
        step = g.op("Mul", [g.op("Sub", ["prompted", "empty"], "towards"), k(g, "guidance", 3.0)], "times")
        return [g.op("Add", ["empty", step], "y")]

    return build


@pair(_guided(["prompted", "empty"]), "prompted empty", extra="prompted empty towards y", kind="converter")
def guidance_away_from_the_prompt(g: Graph) -> Sequence[str]:
    """The halves of a batch (without and with a prompt) are taken for each other behind a Split."""
    return _guided(["empty", "prompted"])(g)


def _biased(turned: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 2, 9, 12)
        at = np.stack(np.meshgrid(np.arange(3), np.arange(3), indexing="ij")).reshape(2, 9)
        index = (at[0][:, None] - at[0] + 2) * 5 + at[1][:, None] - at[1] + 2
        g.weights["index"] = (index.T if turned else index).reshape(-1).astype(np.int64)
        told = g.op("Gather", [k(g, "table", 2 * g.random.normal(size=25)), "index"], "told")
        bias = g.op("Reshape", [told, ints(g, "nine", 1, 9, 9)], "bias")
        return [g.dense(g.attention(x, 12, "att", bias), 12, 5, "y")]

    return build


@pair(_biased(True), "told", extra="told bias", facts=[r"\bindex\b"])
def relative_places_counted_backwards(g: Graph) -> Sequence[str]:
    """The index of a relative bias in windows was made with queries and keys exchanged: it is the transposed one."""
    return _biased(False)(g)


def _normed(first: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.conv(_fed(g, 2, 3, 10, 10), 3, 8, "a")
        sizes = (g.random.uniform(0.5, 2, 8), g.random.normal(size=8), g.random.normal(size=8) / 3,
                 g.random.uniform(0.5, 2, 8))  # fmt: skip
        stats = [k(g, f"n.{name}", value) for name, value in zip("gbmv", sizes, strict=True)]
        if first:
            x = g.op("Relu", [g.op("BatchNormalization", [x, *stats], "normed")], "active")
        else:
            x = g.op("BatchNormalization", [g.op("Relu", [x], "active"), *stats], "normed")
        return [g.conv(x, 8, 4, "y")]

    return build


@pair(_normed(False), "active normed", f"{DIFFER} unfound", extra="active normed y")
def norm_that_came_behind_its_relu(g: Graph) -> Sequence[str]:
    """Relu and a batch norm changed places: the norm's shift and negative values are no longer cut off."""
    return _normed(True)(g)


def _upward(halves: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 1, 3, 8, 8), 3, 8, "a")], "r")
        w = g.random.normal(size=(8, 3, 3, 3)) / 4
        w = np.concatenate([w[4:], w[:4]]) if halves else w
        up = g.op("ConvTranspose", [x, k(g, "up.w", w)], "up", group=2, strides=[2, 2], pads=[1, 1, 1, 1],
                  output_padding=[1, 1])  # fmt: skip
        return [g.conv(up, 6, 3, "y")]

    return build


@pair(_upward(True), "up", mode="ov_opt", extra="up", facts=[r"up\.w"])
def groups_of_a_transposed_filter_exchanged(g: Graph) -> Sequence[str]:
    """A transposed convolution of two groups has each group's filters in the other's place, in OpenVINO."""
    return _upward(False)(g)


def _times(count: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        t = g.input("t", np.array([[3], [250], [999]], np.float32))
        freq = k(g, "freq", np.exp(-np.log(10000) * np.arange(16) / count)[None])
        angle = g.op("MatMul", [t, freq], "angle")
        both = g.op("Concat", [g.op("Sin", [angle], "sin"), g.op("Cos", [angle], "cos")], "both", axis=-1)
        return [g.dense(g.op("Tanh", [g.dense(both, 32, 16, "a")], "act"), 16, 8, "y")]

    return build


@pair(_times(15), "angle", extra="angle", facts=[r"\bfreq\b"])
def frequencies_that_end_one_later(g: Graph) -> Sequence[str]:
    """The frequencies of a step are divided by 15 in place of 16, so that the last is 1e-4 in place of 1.78e-4."""
    return _times(16)(g)


# --- pairs that are one model


def _spread(apart: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 1, 4, 16, 16)
        w = _filters(g, "d.w", 6, 4, 3, 3)
        if not apart:
            y = g.op("Conv", [x, w], "d", pads=[2, 2, 2, 2], dilations=[2, 2])
        else:
            y = g.op("Reshape", [x, ints(g, "to", 4, 8, 2, 8, 2)], "split")
            y = g.op("Reshape", [g.op("Transpose", [y], "batched", perm=[2, 4, 0, 1, 3]), ints(g, "as4", 4, 4, 8, 8)],
                     "in_batch")  # fmt: skip
            y = g.op("Conv", [y, w], "small", pads=[1, 1, 1, 1])
            y = g.op("Reshape", [y, ints(g, "as6", 2, 2, 6, 8, 8)], "unbatched")
            y = g.op("Reshape", [g.op("Transpose", [y], "woven", perm=[2, 3, 0, 4, 1]), ints(g, "out", 1, 6, 16, 16)],
                     "d")  # fmt: skip
        return [g.conv(g.op("Relu", [y], "r"), 6, 4, "y")]

    return build


@pair(_spread(True), kind="healthy")
def holes_of_a_filter_by_space_to_batch(g: Graph) -> Sequence[str]:
    """A convolution with holes as TensorFlow writes it: four small pictures in a batch, each with a plain filter."""
    return _spread(False)(g)


def _sigmoid(half: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        a, b = (g.dense("x", 16, 24, name) for name in "ab")
        if half:
            y = g.op("Tanh", [g.op("Mul", [b, k(g, "half", 0.5)], "halved")], "tanh")
            y = g.op("Add", [g.op("Mul", [y, k(g, "half2", 0.5)], "halved2"), k(g, "half3", 0.5)], "gate")
        else:
            y = g.op("Sigmoid", [b], "gate")
        return [g.dense(g.op("Mul", [a, y], "gated"), 24, 6, "y")]

    def fed(g: Graph) -> Sequence[str]:
        _fed(g, 5, 16)
        return build(g)

    return fed


@pair(_sigmoid(True), kind="healthy", mode="ov_opt")
def sigmoid_by_half_a_tanh(g: Graph) -> Sequence[str]:
    """A gate as 0.5 tanh(x / 2) + 0.5 in place of a sigmoid, in OpenVINO."""
    return _sigmoid(False)(g)


def _sorted(turned: bool) -> Build:
    order = np.random.default_rng(18).permutation(24)

    def build(g: Graph) -> Sequence[str]:
        y = g.dense(g.op("Relu", [g.dense(_fed(g, 5, 16), 16, 24, "up")], "act"), 24, 6, "y")
        g.weights["y.b"] = g.weights["y.b"] + np.float32(300)
        if turned:
            g.weights["up.w"], g.weights["up.b"] = g.weights["up.w"][:, order], g.weights["up.b"][order]
            g.weights["y.w"] = g.weights["y.w"][order]
        return [g.op("Sub", [y, k(g, "level", 300)], "z")]

    return build


@pair(_sorted(True), kind="healthy", mode="ort_opt")
def hidden_units_in_another_order_and_a_level(g: Graph) -> Sequence[str]:
    """Hidden units in another order on both of their sides; and 300 is added and taken off again."""
    return _sorted(False)(g)


# --- float16 and bfloat16


@case("formula", "ort_fp16_sim", "kept",
      "constant_rounded amplified born weight_underflow rounded_constant coarse overflow",
      extra="kept upper other unlike y")  # fmt: skip
def certainty_clipped_just_below_one(g: Graph) -> Sequence[str]:
    """A chance is clipped to 1e-7 and 1 - 1e-7, which is 1 in float16: where the model is sure, the logarithm of the
    other chance is -inf in place of -15.94."""
    sure = g.random.uniform(size=(16, 4)) < 0.3
    x = g.input("x", np.where(sure, 20.0, g.random.uniform(-2, 2, (16, 4))).astype(np.float32))
    chance = g.op("Sigmoid", [x], "chance")
    kept = g.op("Clip", [chance, k(g, "lower", 1e-7), k(g, "upper", 1 - 1e-7)], "kept")
    other = g.op("Sub", [k(g, "one", 1), kept], "other")
    return [g.op("Neg", [g.op("Log", [other], "unlike")], "y")]


@case("formula", "ort_fp16_sim", "power", f"underflow {COARSE}", extra="power field")
def field_of_a_quadrupole(g: Graph) -> Sequence[str]:
    """Distances of 50 to 75 to the power of -4: 3.2e-8 to 1.6e-7, of which float16 knows multiples of 6e-8; a charge of
    50000 follows."""
    r = g.op("Add", [g.op("Mul", [_pixels(g, 8, 12), k(g, "span", 25)], "part"), k(g, "near", 50)], "r")
    power = g.op("Pow", [r, k(g, "four", -4)], "power")
    return [g.op("Mul", [power, k(g, "charge", 5e4)], "field")]


@case("formula", "ort_fp16_sim", "grown", f"{ROUNDS} constant_rounded found_by_repair",
      extra="daily grown held y")  # fmt: skip
def interest_of_ten_years_by_the_day(g: Graph) -> Sequence[str]:
    """(1 + rate / 365) to the power of 3650: 1 + 0.0001 has steps of 0.001 in float16."""
    rate = g.op("Mul", [_pixels(g, 8, 4), k(g, "most", 0.08)], "rate")
    daily = g.op("Div", [rate, k(g, "days", 365)], "daily")
    grown = g.op("Add", [daily, k(g, "one", 1)], "grown")
    return [g.op("Pow", [grown, k(g, "ten_years", 3650)], "y")]


@case("overflow", "ort_fp16_sim", "metres", "overflow", extra="metres away")
def degrees_in_metres(g: Graph) -> Sequence[str]:
    """Places up to 3 degrees away times 60000 metres: above 1.09 degrees float16 has Inf, and the next factor, 1e-5,
    would have brought it back to 0.65 to 1.8."""
    there = g.op("Sub", [g.input("x", g.random.uniform(8, 11, (6, 4)).astype(np.float32)), k(g, "home", 8)], "away")
    metres = g.op("Mul", [there, k(g, "degree", 60000)], "metres")
    near = g.op("Mul", [metres, k(g, "kilo", 1e-5)], "near")
    return [g.dense(g.op("Tanh", [near], "t"), 4, 3, "y")]


@case("formula", "ort_bf16_sim", "log log_mean weighed less half wanted mean", f"{ROUNDS} found_by_repair",
      extra="log log_mean weighed less half wanted mean y")  # fmt: skip
def likelihood_of_counts_by_stirling(g: Graph) -> Sequence[str]:
    """k log k - k - k log m + m with counts near 400: terms of 2400 leave about 1, and bfloat16 knows every 16th."""
    count = g.input("x", g.random.integers(380, 420, (8, 6)).astype(np.float32))
    mean = g.op("Add", [count, k(g, "off", g.random.normal(size=6) * 25)], "mean")
    weighed = g.op("Mul", [count, g.op("Log", [count], "log")], "weighed")
    less = g.op("Sub", [weighed, count], "less")
    wanted = g.op("Mul", [count, g.op("Log", [mean], "log_mean")], "wanted")
    half = g.op("Sub", [less, wanted], "half")
    return [g.op("Add", [half, mean], "y")]


@case("formula", "ort_bf16_sim", "sum sum2 half_way s_a s_b s_c", f"{ROUNDS} found_by_repair",
      extra="sum sum2 half_way s_a s_b s_c area2 m1 m2")  # fmt: skip
def needle_of_a_triangle_by_heron(g: Graph) -> Sequence[str]:
    """Two sides of 64 and more, and one of 1.25: half the sum less a long side is 0.9 and 0.4, and bfloat16 knows
    every whole number of the sum."""
    u = g.random.integers(0, 8, (6, 8))
    a = g.input("x", (64 + u / 2).astype(np.float32))
    b = g.op("Add", [a, k(g, "longer", 0.5)], "b")
    c = k(g, "c", 1.25)
    total = g.op("Add", [g.op("Add", [a, b], "sum"), c], "sum2")
    s = g.op("Mul", [total, k(g, "half", 0.5)], "half_way")
    rest = [g.op("Sub", [s, side], f"s_{name}") for name, side in (("a", a), ("b", b), ("c", c))]
    y = g.op("Mul", [g.op("Mul", [g.op("Mul", [s, rest[0]], "m1"), rest[1]], "m2"), rest[2]], "area2")
    return [g.op("Sqrt", [g.op("Relu", [y], "no_less")], "y")]


@case("healthy", "ort_fp16_sim")
def fill_of_a_nonillion_under_a_minimum(g: Graph) -> Sequence[str]:
    """What is not allowed is filled with 1e30, which is Inf in float16, under a minimum that always finds something
    less: no output feels it."""
    x = _fed(g, 6, 12)
    allowed = g.random.uniform(size=(6, 12)) < 0.6
    allowed[:, 0] = True
    g.weights["allowed"] = allowed
    cost = g.op("Exp", [g.dense(x, 12, 12, "cost", 0.5)], "cost_of")
    held = g.op("Where", ["allowed", cost, k(g, "never", 1e30)], "held")
    return [g.op("ReduceMin", [held], "y", axes=[1], keepdims=0)]


@case("healthy", "ort_bf16_sim")
def numbers_of_a_quintillion(g: Graph) -> Sequence[str]:
    """Energies of 1e18 to 1e20 in bfloat16, whose range holds them: huge outputs, and relative errors as usual."""
    x = g.op("Relu", [g.dense(_fed(g, 4, 16), 16, 32, "a")], "r")
    return [g.op("Mul", [g.dense(x, 32, 6, "b"), k(g, "joule", 1e19)], "y")]


@case("healthy", "ort_fp16_sim")
def channels_of_which_half_are_dead(g: Graph) -> Sequence[str]:
    """Half of the filters are 1e-20, which is 0 in float16, and what reads them is about 1: nothing is lost by it."""
    x = g.conv(_fed(g, 1, 3, 12, 12), 3, 8, "a")
    g.weights["a.w"][::2] *= 1e-20
    return [g.conv(g.op("Relu", [x], "r"), 8, 4, "y")]


# --- 8 bits


@case("int8", "ort_int8", "share", f"{TOO_COARSE} saturation underflow", options=SEVEN, offered=True,
      extra="share mixed score")  # fmt: skip
def attention_over_many_beside_one_sharp_head(g: Graph) -> Sequence[str]:
    """Shares of 1/700 each in seven of eight heads, beside one head whose largest is 1: a step of 8 bits is 1/255, so
    that the flat heads' shares are 0."""
    q = g.input("x", g.random.normal(size=(1, 8, 4, 16)).astype(np.float32))
    keys = k(g, "keys", g.random.normal(size=(1, 8, 16, 700)))
    score = g.op("Mul", [g.op("MatMul", [q, keys], "raw"), k(g, "sharp", np.array([9] + 7 * [0.05])[:, None, None])],
                 "score")  # fmt: skip
    share = g.op("Softmax", [score], "share", axis=-1)
    values = k(g, "values", 1 + g.random.normal(size=(1, 8, 700, 6)))
    return [g.op("MatMul", [share, values], "mixed")]


@case("int8", "ort_int8", "square summed root", f"{TOO_COARSE} amplifies amplified", options=SEVEN,
      extra="square summed root y away y_mm")  # fmt: skip
def square_of_a_distance_before_its_root(g: Graph) -> Sequence[str]:
    """Distances of 0.3 to 20: the squares' step of 8 bits is 1.6, so that all below 0.9 are 0."""
    far = np.where(g.random.uniform(size=(40, 1)) < 0.15, 12.0, 0.3)
    x = g.input("x", (far * g.random.normal(size=(40, 3))).astype(np.float32))
    away = g.op("MatMul", [x, k(g, "turn", np.linalg.qr(g.random.normal(size=(3, 3)))[0])], "away")
    summed = g.op("MatMul", [g.op("Mul", [away, away], "square"), k(g, "ones", np.ones((3, 4)))], "summed")
    return [g.op("Log", [g.op("Add", [g.op("Sqrt", [summed], "root"), k(g, "floor", 0.1)], "held")], "y")]


@case("healthy", "ort_int8", options=SEVEN)
def gated_block_in_seven_bits(g: Graph) -> Sequence[str]:
    """A convolution, a gate by its channels' means, a head: what INT8 costs and no more."""
    x = g.op("Relu", [g.conv(_fed(g, 4, 3, 16, 16), 3, 16, "a", 2)], "r")
    mean = g.op("ReduceMean", [x], "mean", axes=[2, 3], keepdims=1)
    gate = g.op("Sigmoid", [g.op("Conv", [mean, _filters(g, "g.w", 16, 16, 1, 1)], "gate_of")], "gate")
    x = g.op("Relu", [g.conv(g.op("Mul", [x, gate], "gated"), 16, 16, "b", 2)], "r2")
    flat = g.op("Flatten", [g.op("GlobalAveragePool", [x], "pooled")], "flat")
    return [g.dense(flat, 16, 10, "y", 3)]


@case("healthy", "ort_int8_dynamic", options=SEVEN)
def words_pooled_by_their_mask(g: Graph) -> Sequence[str]:
    """Words beside padding of which the mask is added as -1e9 in a softmax; products in dynamic INT8."""
    x = _fed(g, 2, 10, 32)
    mask = np.zeros((2, 1, 10), np.float32)
    mask[0, :, 7:] = mask[1, :, 4:] = -1e9
    x = g.norm(g.attention(x, 32, "att", k(g, "mask", mask)), 32, "n")
    return [g.dense(g.op("Relu", [g.dense(x, 32, 64, "up")], "r"), 64, 8, "y")]


@case("healthy", "ort_opt")
def maxima_put_back_where_they_were(g: Graph) -> Sequence[str]:
    """A pool's places put its maxima back; some maxima come twice, and both sides take the first."""
    x = g.op("Relu", [g.conv(_fed(g, 1, 3, 8, 8), 3, 4, "a")], "r")
    whole = g.op("Round", [x], "whole")
    g.nodes.append(helper.make_node("MaxPool", [whole], ["top", "at"], name="node_top", kernel_shape=[2, 2],
                                    strides=[2, 2]))  # fmt: skip
    back = g.op("MaxUnpool", ["top", "at"], "back", kernel_shape=[2, 2], strides=[2, 2])
    return [g.conv(back, 4, 4, "y")]


# --- OpenVINO and LiteRT


@case("int8", "ov_int8", "quiet both y", f"{TOO_COARSE} unfound", extra="loud quiet both y a b")  # fmt: skip
def quiet_branch_joined_in_front_by_nncf(g: Graph) -> Sequence[str]:
    """Two branches of 200 and of 0.5 are joined and read by one convolution whose filters undo it: the quiet one has a
    step of 1.6 where NNCF gives what is joined one range."""
    x = _fed(g, 1, 3, 12, 12)
    loud = g.op("Relu", [g.conv(x, 3, 4, "a", 200)], "loud")
    quiet = g.op("Relu", [g.conv(x, 3, 4, "b", 0.5)], "quiet")
    both = g.op("Concat", [loud, quiet], "both", axis=1)
    w = g.random.normal(size=(4, 8, 1, 1)) * np.array([0.0025] * 4 + [1.0] * 4)[None, :, None, None]
    return [g.op("Conv", [both, k(g, "y.w", w)], "y")]


@case("healthy", "ov_opt", baseline="ort_fp32")
def reader_of_lines_in_openvino(g: Graph) -> Sequence[str]:
    """A small reader of lines: convolutions, a recurrence in both directions, logarithms of shares."""
    x = g.op("Relu", [g.conv(_fed(g, 1, 1, 8, 24), 1, 8, "a")], "r")
    x = g.op("MaxPool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2])
    x = g.op("Reshape", [g.op("Transpose", [x], "t", perm=[3, 0, 1, 2]), ints(g, "seq", 12, 1, 32)], "seq_of")
    given = [k(g, n, g.random.normal(size=(2, 48, m)) / np.sqrt(m)) for n, m in (("w", 32), ("r2", 12))]
    h = g.op("LSTM", [x, *given, k(g, "b", np.zeros((2, 96)))], "h", hidden_size=12, direction="bidirectional")
    h = g.op("Reshape", [g.op("Transpose", [h], "t2", perm=[0, 2, 1, 3]), ints(g, "flat", 12, 24)], "flat_of")
    return [g.op("LogSoftmax", [g.dense(h, 24, 20, "head")], "y", axis=-1)]


def _negated(run: Any, blob: bytes) -> bytes:
    w = run.get_tensor(_detail(run, "conv2_conv_filter")["index"]).copy()
    turned = w.copy()
    turned[3] = np.clip(-turned[3].astype(np.int64), -127, 127)
    return _put(blob, w, turned)


def one_filter_of_the_other_sign() -> None:
    """In 8 bits: the fourth filter of the second convolution has the other sign."""


def _doubled(run: Any, blob: bytes) -> bytes:
    for name, factor in (("conv3_conv_filter", 2), ("conv3_conv_bias", 2), ("fc_fc_weights", 0.5)):
        w = run.get_tensor(_detail(run, name)["index"]).copy()
        blob = _put(blob, w, w * np.float32(factor))
    return blob


def layer_twice_as_large_before_half_its_reader() -> None:
    """In float32: filters and biases of a layer are doubled and the weights behind its Relu halved, which is exact."""


CASES += [
    labelled(one_filter_of_the_other_sign, "", "converter", "tflite_opt", "pool_input_nhwc", f"{DIFFER} {COARSE}",
             make=_bytes("digits_int8", _negated), baseline="tflite_ref", facts=["conv2_conv_filter"],
             extra="pool_input_nhwc"),
    labelled(layer_twice_as_large_before_half_its_reader, "", "healthy", "tflite_opt", "", "",
             make=_bytes("digits_float32", _doubled), baseline="tflite_fp32"),
]  # fmt: skip


def _seconds(wide: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        at = g.input("x", (1_764_000_000 + g.random.integers(0, 86400, (4, 8))).astype(np.int64))
        seen = g.op("Cast", [at], "seen", to=TensorProto.DOUBLE if wide else TensorProto.FLOAT)
        start = g.weight("start", np.array(1_764_000_000, np.float64 if wide else np.float32))
        if wide:
            g.weights["start"] = np.array(1_764_000_000, np.float64)
        past = g.op("Sub", [seen, start], "past")
        past = g.op("Cast", [past], "past32", to=TensorProto.FLOAT) if wide else past
        hour = g.op("Mul", [past, k(g, "turn", 2 * np.pi / 3600)], "hour")
        return [g.dense(g.op("Sin", [hour], "wave"), 8, 4, "y")]

    return build


@pair(_seconds(False), "seen past", f"{DIFFER} held_narrower coarse cancellation stepped amplified cancels",
      extra="seen past hour wave")  # fmt: skip
def seconds_cast_to_float32_before_the_difference(g: Graph) -> Sequence[str]:
    """Unix seconds are cast to float32 (steps of 128 s) where the other file casts to double and takes the start off
    first; the phase is of an hour."""
    return _seconds(True)(g)
