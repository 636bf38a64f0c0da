"""A sixteenth batch, by somebody who built none of it: attributes, constants and orders that exporters lose (of Resize,
Pad, GridSample, LSTM, Einsum, TopK, ScatterND, GatherElements, Scan, LRN, PRelu), a picture normalised twice, signs
that undo each other, weights of an average beside the last ones, formulas of geometry in float16 and bfloat16, 8 and 4
bits, float8, LiteRT's bytes, ``onnx_ref``; 14 are healthy. Labelled before the tool was run on any; what a docstring
states was measured in the stock engine or numpy (``python tests/planted/fourteenth_truth.py sixteenth``)."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
from onnx import TensorProto, helper

from planted import fourteenth_onnx
from planted.fifteenth_onnx import SEVEN, _bytes, _detail, _put
from planted.fourteenth_onnx import DATA, ROUNDS, _fed, _filters, _images
from planted.onnx_faults import Array, Graph, _body, _info
from planted.onnx_further import ints, k
from planted.twelfth.case import COARSE, DIFFER, Build, Thread, graph, labelled

# After the first run: what is rounded or runs before what a label named (a ray's inputs, a Scan's first step, what
# OpenVINO joins an LSTM with), and the next layer's bias, whose scale is that of what it reads.
CASES: list[Thread] = []

case, pair = (functools.partial(one, cases=CASES) for one in (fourteenth_onnx.case, fourteenth_onnx.pair))


def newer(target: Build, who: str, opset: int, why: str = DIFFER, *, mode: str = "ort_fp32", **more: Any) -> Any:
    """Like ``pair``, with both files of one opset that is later than 17."""

    def register(build: Build) -> Build:
        def make(folder: Path) -> tuple[Path, Path, Mapping[str, Array]]:
            (g, outputs), (other, others) = graph(build, opset=opset), graph(target, opset=opset)
            made = other.save(folder / f"{build.__name__}.onnx", others)
            return made, g.save(folder / "base.onnx", outputs), g.feeds

        CASES.append(labelled(build, "", "converter", mode, who, why, make=make, baseline="ort_fp32", **more))
        return build

    return register


def _pixels(g: Graph, *shape: int) -> str:
    return g.input("x", g.random.uniform(0, 1, size=shape).astype(np.float32))


# --- resizing, padding, sampling


def _enlarged(to: int = 21, **told: Any) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 1, 3, 12, 12), 3, 8, "a")], "r")
        up = g.op("Resize", [x, "", "", ints(g, "sizes", 1, 8, to, to)], "up", **told)
        x = g.op("Relu", [g.conv(up, 8, 8, "c")], "s")
        return [g.conv(x, 8, 4, "y"), g.op("Sigmoid", [g.conv(x, 8, 1, "mask")], "z")]

    return build


@pair(_enlarged(mode="linear", coordinate_transformation_mode="half_pixel"), "up", mode="ov_opt",
      facts=["coordinate_transformation_mode"])  # fmt: skip
def corners_no_longer_aligned(g: Graph) -> Sequence[str]:
    """align_corners of a segmentation head was lost on the way: half_pixel, in OpenVINO."""
    return _enlarged(mode="linear", coordinate_transformation_mode="align_corners")(g)


@pair(_enlarged(mode="cubic", cubic_coeff_a=-0.5), "up", facts=["cubic_coeff_a"])
def cubic_of_another_library(g: Graph) -> Sequence[str]:
    """PyTorch's cubic has a coefficient of -0.75; the file has TensorFlow's -0.5."""
    return _enlarged(mode="cubic", cubic_coeff_a=-0.75)(g)


@newer(_enlarged(5, mode="linear"), "up", 18, facts=["antialias"])
def picture_shrunk_without_a_filter(g: Graph) -> Sequence[str]:
    """12 rows become 5: the trainer smoothed before (antialias 1), the file does not."""
    return _enlarged(5, mode="linear", antialias=1)(g)


def _padded(how: str, *around: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 1, 3, 10, 10), 3, 8, "a")], "r")
        wide = g.op("Pad", [x, ints(g, "around", *around)], "wide", mode=how)
        x = g.op("Relu", [g.op("Conv", [wide, _filters(g, "c.w", 8, 8, 3, 3)], "c")], "s")
        return [g.conv(x, 8, 4, "y")]

    return build


@pair(_padded("edge", 0, 0, 2, 2, 0, 0, 2, 2), "wide", mode="ort_opt", facts=["mode"])
def border_that_was_mirrored(g: Graph) -> Sequence[str]:
    """A style net's reflecting border became a repeated edge."""
    return _padded("reflect", 0, 0, 2, 2, 0, 0, 2, 2)(g)


@pair(_padded("constant", 0, 0, 0, 0, 0, 0, 2, 2), "wide", facts=[r"\baround\b"])
def causal_border_at_the_other_end(g: Graph) -> Sequence[str]:
    """Two rows and columns of padding, all in front, stand all behind: begins and ends were exchanged."""
    return _padded("constant", 0, 0, 2, 2, 0, 0, 0, 0)(g)


def _warped(corners: int, outside: str) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 1, 3, 9, 9), 3, 8, "a")], "r")
        ys, xs = np.meshgrid(np.linspace(-1, 1, 9), np.linspace(-1, 1, 9), indexing="ij")
        flow = g.op("Transpose", [g.op("Tanh", [g.conv(x, 8, 2, "f", scale=0.4)], "flow")], "moved", perm=[0, 2, 3, 1])
        at = g.op("Add", [g.op("Mul", [flow, k(g, "pace", 0.3)], "short"), k(g, "grid", np.stack([xs, ys], -1)[None])],
                  "at")  # fmt: skip
        sampled = g.op("GridSample", [x, at], "sampled", align_corners=corners, padding_mode=outside)
        return [g.conv(sampled, 8, 4, "y")]

    return build


@pair(_warped(0, "zeros"), "sampled", facts=["align_corners"])
def grid_that_ends_at_centres(g: Graph) -> Sequence[str]:
    """GridSample's align_corners 1, for which the grid was made, became 0."""
    return _warped(1, "zeros")(g)


@pair(_warped(1, "zeros"), "sampled", mode="ort_opt", facts=["padding_mode"])
def nought_beyond_the_border(g: Graph) -> Sequence[str]:
    """padding_mode border became zeros: only places that the flow moves out of the picture differ."""
    return _warped(1, "border")(g)


# --- recurrences, bodies


def _tagged(direction: str, again: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 9, 2, 8)
        told = [k(g, name, g.random.normal(size=(1, 48, n)) / np.sqrt(n)) for name, n in (("w", 8), ("r", 12))]
        bias = g.random.normal(size=(1, 48)) * 0.5
        both = np.concatenate([bias, bias if again else np.zeros((1, 48))], 1)
        g.op("LSTM", [x, *told, k(g, "b", both)], "h", hidden_size=12, direction=direction)
        x = g.dense(g.op("Squeeze", ["h", ints(g, "one", 1)], "flat"), 12, 12, "p")
        return [g.dense(g.op("Relu", [x], "act"), 12, 5, "y")]

    return build


@pair(_tagged("forward", False), "h", facts=["direction"])
def direction_that_was_dropped(g: Graph) -> Sequence[str]:
    """An LSTM that reads from the end reads from the beginning."""
    return _tagged("reverse", False)(g)


@pair(_tagged("forward", True), "h flat", mode="ov_opt", facts=[r"\bb\b"])
def bias_of_keras_in_both_halves(g: Graph) -> Sequence[str]:
    """Keras has one bias of 4 x 12; the converter put it into both halves of ONNX's B: it is added twice."""
    return _tagged("forward", False)(g)


def _scanned(backwards: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.dense(_fed(g, 7, 12), 12, 8, "a")
        body = _body(
            [
                helper.make_node("MatMul", ["state", "turn"], ["kept"], name="body_mm"),
                helper.make_node("Add", ["kept", "now"], ["sum"], name="body_add"),
                helper.make_node("Tanh", ["sum"], ["next"], name="body_tanh"),
                helper.make_node("Identity", ["next"], ["seen"], name="body_seen"),
            ],
            [_info("state", [8]), _info("now", [8])],
            [_info("next", [8]), _info("seen", [8])],
            {"turn": (g.random.normal(size=(8, 8)) / 3).astype(np.float32)},
        )
        g.nodes.append(helper.make_node("Scan", [k(g, "start", np.zeros(8)), x], ["last", "states"], name="node_states",
                                        body=body, num_scan_inputs=1, scan_input_directions=[backwards]))  # fmt: skip
        return [g.dense("states", 8, 4, "y")]

    return build


@pair(_scanned(0), "last states sum@0 next@0", facts=["scan_input_directions"],
      extra="last states next@0 sum@0 kept@0 seen@0 next sum kept seen")  # fmt: skip
def scan_from_the_other_end(g: Graph) -> Sequence[str]:
    """A Scan over the steps from the last one on begins at the first."""
    return _scanned(1)(g)


# --- products, gathers, choices


def _compared(equation: str) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.norm(_fed(g, 2, 8, 8), 8, "n")
        for name in "qkv":
            g.dense(x, 8, 8, name, scale=1.5)
        score = g.op("Mul", [g.op("Einsum", ["q", "k"], "score", equation=equation), k(g, "s", 8**-0.5)], "scaled")
        share = g.op("Softmax", [score], "share", axis=-1)
        return [g.dense(g.op("MatMul", [share, "v"], "mixed"), 8, 8, "y")]

    return build


@pair(_compared("bid,bdj->bij"), "score", facts=["equation"])
def keys_that_were_not_transposed(g: Graph) -> Sequence[str]:
    """Eight tokens of eight features: an Einsum sums keys over the tokens in place of the features, and all fits."""
    return _compared("bid,bjd->bij")(g)


@pair(_compared("bid,bjd->bij"), kind="healthy")
def attention_by_letters_and_by_products(g: Graph) -> Sequence[str]:
    """Transpose and MatMul became an Einsum: equal to the last digits."""
    x = g.norm(_fed(g, 2, 8, 8), 8, "n")
    for name in "qkv":
        g.dense(x, 8, 8, name, scale=1.5)
    score = g.op("MatMul", ["q", g.op("Transpose", ["k"], "kt", perm=[0, 2, 1])], "score")
    share = g.op("Softmax", [g.op("Mul", [score, k(g, "s", 8**-0.5)], "scaled")], "share", axis=-1)
    return [g.dense(g.op("MatMul", [share, "v"], "mixed"), 8, 8, "y")]


def _group_gains(tiled: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.conv(_fed(g, 1, 3, 8, 8), 3, 16, "a")
        x = g.op("Reshape", [x, ints(g, "to", 1, 4, -1)], "groups")
        x = g.op("InstanceNormalization", [x, k(g, "ones", [1] * 4), k(g, "noughts", [0] * 4)], "even")
        x = g.op("Reshape", [x, ints(g, "back", 1, 16, 8, 8)], "channels")
        gain = g.random.uniform(0.3, 2, 4)
        gain = np.tile(gain, 4) if tiled else np.repeat(gain, 4)
        x = g.op("Mul", [x, k(g, "gain", gain[:, None, None])], "gained")
        return [g.conv(g.op("Relu", [x], "r"), 16, 4, "y")]

    return build


@pair(_group_gains(True), "gained", facts=[r"\bgain\b"])
def gains_of_groups_tiled(g: Graph) -> Sequence[str]:
    """Opset 18 has a gain for each group, 21 for each channel: they were tiled (1 2 3 4 1 2 …) in place of repeated."""
    return _group_gains(False)(g)


def _neighbours(largest: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 1, 20, 3)
        turned = g.op("Transpose", [x], "turned", perm=[0, 2, 1])
        square = g.op("ReduceSum", [g.op("Mul", [x, x], "sq"), ints(g, "axis", 2)], "square", keepdims=1)
        both = g.op("Add", [square, g.op("Transpose", [square], "across", perm=[0, 2, 1])], "both")
        cross = g.op("Mul", [g.op("MatMul", [x, turned], "cross"), k(g, "two", 2)], "twice")
        away = g.op("Sub", [both, cross], "away")
        g.nodes.append(helper.make_node("TopK", [away, ints(g, "count", 5)], ["near", "who"], name="node_near", axis=-1,
                                        largest=largest))  # fmt: skip
        rows = g.op("Gather", [g.dense(x, 3, 8, "p"), "who"], "rows", axis=1)
        rows = g.op("Squeeze", [rows, ints(g, "first", 0)], "plain")
        return [g.dense(g.op("ReduceMax", [rows], "pooled", axes=[2], keepdims=0), 8, 4, "y"), "near"]

    return build


@pair(_neighbours(1), "near who", extra="near who rows", facts=["largest"])
def nearest_that_became_the_farthest(g: Graph) -> Sequence[str]:
    """A net on points takes five neighbours by TopK with largest 0, which was lost."""
    return _neighbours(0)(g)


def _counted(reduction: str) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.dense(_fed(g, 60, 8), 8, 6, "a")], "r")
        at = g.random.integers(0, 5, size=(60, 2))
        more = {"reduction": reduction} if reduction else {}
        x = g.op("ScatterND", [k(g, "empty", np.zeros((5, 5, 6))), g.weight("at", at), x], "cells", **more)
        x = g.op("Transpose", [g.op("Unsqueeze", [x, ints(g, "first", 0)], "one")], "image", perm=[0, 3, 1, 2])
        return [g.conv(x, 6, 4, "y")]

    return build


@pair(_counted(""), "cells", facts=["reduction"])
def votes_that_overwrite_each_other(g: Graph) -> Sequence[str]:
    """60 rows are added up in 25 cells; without ScatterND's reduction the last row of a cell stays."""
    return _counted("add")(g)


def _relative(axis: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.norm(_fed(g, 12, 16), 16, "n")
        q, key = g.dense(x, 16, 16, "q"), g.dense(x, 16, 16, "k")
        score = g.op("MatMul", [q, g.op("Transpose", [key], "kt", perm=[1, 0])], "score")
        place = g.dense(q, 16, 12, "place")
        at = g.weight("at", (np.arange(12)[:, None] - np.arange(12)) % 12)
        bias = g.op("GatherElements", [place, at], "bias", axis=axis)
        share = g.op("Softmax", [g.op("Add", [score, bias], "sum")], "share", axis=-1)
        return [g.dense(g.op("MatMul", [share, x], "mixed"), 16, 4, "y")]

    return build


@pair(_relative(0), "bias", facts=["axis"])
def places_taken_along_the_rows(g: Graph) -> Sequence[str]:
    """Relative places are gathered along axis 0 in place of 1 of a square."""
    return _relative(1)(g)


def _focus(*order: str) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x, axes, steps = _pixels(g, 1, 3, 16, 16), ints(g, "axes", 2, 3), ints(g, "steps", 2, 2)
        end = ints(g, "end", 16, 16)
        for row in (0, 1):
            for column in (0, 1):
                name = f"s{row}{column}"
                g.op("Slice", [x, ints(g, f"{name}.at", row, column), end, axes, steps], name)
        x = g.op("Concat", list(order), "focus", axis=1)
        x = g.op("Relu", [g.conv(x, 12, 8, "a")], "r")
        return [g.conv(x, 8, 4, "y")]

    return build


@pair(_focus("s00", "s01", "s10", "s11"), "focus", extra="focus s01 s10")
def focus_in_another_order(g: Graph) -> Sequence[str]:
    """The four quarters of YOLOv5's first layer are joined row by row in place of column by column."""
    return _focus("s00", "s10", "s01", "s11")(g)


def _levels(rounded: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Sigmoid", [g.conv(_fed(g, 1, 3, 8, 8), 3, 8, "a", scale=2)], "s")
        x = g.op("Mul", [x, k(g, "fifteen", 15)], "level")
        x = g.op("Round", [x], "nearest") if rounded else x
        x = g.op("Cast", [g.op("Cast", [x], "bytes", to=TensorProto.UINT8)], "back", to=TensorProto.FLOAT)
        return [g.conv(g.op("Div", [x, "fifteen"], "share"), 8, 4, "y")]

    return build


@pair(_levels(False), "bytes", extra="bytes nearest level back")
def levels_cut_off_in_place_of_rounded(g: Graph) -> Sequence[str]:
    """Sixteen levels were rounded before their cast to bytes; the cast alone cuts off."""
    return _levels(True)(g)


def _deviation(inside: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.dense(_fed(g, 6, 16), 16, 16, "a", scale=0.03)
        g.weights["a.b"] *= 0.1
        x = g.op("Sub", [x, g.op("ReduceMean", [x], "mean", axes=[-1])], "away")
        var = g.op("ReduceMean", [g.op("Mul", [x, x], "sq")], "var", axes=[-1])
        eps = k(g, "eps", 1e-3)
        if inside:
            root = g.op("Sqrt", [g.op("Add", [var, eps], "safe")], "root")
        else:
            root = g.op("Add", [g.op("Sqrt", [var], "long"), eps], "root")
        return [g.dense(g.op("Div", [x, root], "unit"), 16, 4, "y")]

    return build


@pair(_deviation(False), "root long", extra="root long unit")
def epsilon_outside_of_the_root(g: Graph) -> Sequence[str]:
    """sqrt(var) + 0.001 in place of sqrt(var + 0.001), of variances of about 0.001."""
    return _deviation(True)(g)


def _prepared(mean: Sequence[float], times: int = 1) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x, spread = _pixels(g, 1, 3, 12, 12), k(g, "spread", np.array([0.229, 0.224, 0.225])[:, None, None])
        k(g, "mean", np.array(mean)[:, None, None])
        for n in range(times, 0, -1):
            end = str(n) if n > 1 else ""
            x = g.op("Div", [g.op("Sub", [x, "mean"], f"less{end}"), spread], f"n{end}")
        for n, inside in enumerate((3, 8)):
            x = g.op("Relu", [g.conv(x, inside, 8, f"c{n}", scale=1.4)], f"r{n}")
        return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "pooled")], "flat"), 8, 5, "y")]

    return build


RGB = (0.485, 0.456, 0.406)


@pair(_prepared(RGB[::-1]), "less c0", mode="ort_opt", extra="less n c0 r0", facts=[r"\bmean\b"])
def means_in_the_order_of_bgr(g: Graph) -> Sequence[str]:
    """The means of red and blue are exchanged; the spreads are not."""
    return _prepared(RGB)(g)


@pair(_prepared(RGB, 2), "less n n2 less2", extra="less n n2 less2")
def picture_normalised_twice(g: Graph) -> Sequence[str]:
    """The served file normalises a picture that the graph normalises again."""
    return _prepared(RGB)(g)


def _gated(yes: str, no: str) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.dense(_fed(g, 6, 16), 16, 16, "a")
        g.op("Mul", [g.op("Exp", [g.op("Min", [x, k(g, "zero", 0)], "low")], "e"), k(g, "half", 0.5)], "small")
        chosen = g.op("Where", [g.op("Greater", [x, "zero"], "up"), yes, no], "chosen")
        return [g.dense(chosen, 16, 4, "y")]

    return build


@pair(_gated("small", "a"), "chosen")
def choice_the_other_way_round(g: Graph) -> Sequence[str]:
    """Where takes the branch for positive numbers where they are negative."""
    return _gated("a", "small")(g)


def _swish(hard: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.conv(_fed(g, 1, 3, 10, 10), 3, 8, "a", scale=2)
        x = g.op("HardSwish", [x], "act") if hard else g.op("Mul", [x, g.op("Sigmoid", [x], "gate")], "act")
        return [g.conv(x, 8, 4, "y")]

    return build


@pair(_swish(True), "act", extra="act gate", facts=["HardSwish|HardSigmoid"])
def swish_by_its_hard_form(g: Graph) -> Sequence[str]:
    """A converter for phones took HardSwish for x sigmoid(x): off by a twentieth."""
    return _swish(False)(g)


def _responses(alpha: float) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 1, 3, 12, 12), 3, 16, "a", scale=4)], "r")
        x = g.op("LRN", [x], "even", size=5, alpha=alpha, beta=0.75, bias=1.0)
        return [g.conv(g.op("MaxPool", [x], "pool", kernel_shape=[2, 2], strides=[2, 2]), 16, 4, "y")]

    return build


@pair(_responses(0.02), "even", mode="ov_opt", facts=["alpha"])
def response_norm_divided_once_more(g: Graph) -> Sequence[str]:
    """ONNX divides alpha by the size, as Caffe does; a converter had divided it already: 0.1 became 0.02."""
    return _responses(0.1)(g)


def _sloped(*shape: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.conv(_fed(g, 1, 3, 8, 8), 3, 8, "a")
        slope = g.random.uniform(-0.5, 1, 8).reshape(shape)
        return [g.conv(g.op("PRelu", [x, k(g, "slope", slope)], "act"), 8, 4, "y")]

    return build


@pair(_sloped(8), "act", facts=[r"\bslope\b"])
def slopes_along_the_width(g: Graph) -> Sequence[str]:
    """Eight channels' slopes lost their trailing axes, and are taken along a width of eight."""
    return _sloped(8, 1, 1)(g)


# --- several weights at once


def _turned(stale: bool, noise: float = 0) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 8, 16)
        for name in "abcde":
            x = g.op("Tanh", [g.dense(x, 16, 16, name, scale=1.3)], f"{name}_t")
        y = g.dense(x, 16, 4, "y")
        if stale:
            drawn = np.random.default_rng(5)
            for name in ("a.w", "a.b", "b.w"):
                g.weights[name] = -g.weights[name]
            c = g.weights["d.w"]
            g.weights["d.w"] = (c * (1 + 0.1 * drawn.normal(size=c.shape))).astype(np.float32)
        if noise:
            drawn = np.random.default_rng(6)
            for name in "abcdey":
                w = g.weights[f"{name}.w"]
                g.weights[f"{name}.w"] = (w * (1 + noise * drawn.normal(size=w.shape))).astype(np.float32)
        return [y]

    return build


@pair(_turned(True), "d_mm d", extra="d_mm d", facts=[r"\bd\.w\b"])
def signs_that_undo_each_other_beside_a_stale_weight(g: Graph) -> Sequence[str]:
    """a.w, a.b and b.w are negated, which Tanh carries through and which is right; d.w is of an earlier epoch."""
    return _turned(False)(g)


EVERY = " ".join(f"{name}_mm {name}" for name in "abcdey")


@pair(_turned(False, 0.02), EVERY, extra=EVERY, anyone=True)
def averaged_weights_beside_the_last_ones(g: Graph) -> Sequence[str]:
    """The file has the weights' average, all six 2 % off: none makes half of it."""
    return _turned(False)(g)


# --- the same in another form


def _packed(one: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.norm(_fed(g, 2, 6, 16), 16, "n")
        ws = [g.random.normal(size=(16, 16)) / 4 for _ in "qkv"]
        bs = [g.random.normal(size=16) / 9 for _ in "qkv"]
        if one:
            both = g.op("MatMul", [x, k(g, "w", np.concatenate(ws, 1))], "packed_mm")
            both = g.op("Add", [both, k(g, "b", np.concatenate(bs))], "packed")
            g.nodes.append(helper.make_node("Split", [both], ["q", "k", "v"], name="node_split", axis=-1))
        else:
            for name, w, b in zip("qkv", ws, bs, strict=True):
                g.op("Add", [g.op("MatMul", [x, k(g, f"{name}.w", w)], f"{name}_mm"), k(g, f"{name}.b", b)], name)
        score = g.op("MatMul", ["q", g.op("Transpose", ["k"], "kt", perm=[0, 2, 1])], "score")
        share = g.op("Softmax", [g.op("Mul", [score, k(g, "s", 0.25)], "scaled")], "share", axis=-1)
        return [g.dense(g.op("MatMul", [share, "v"], "mixed"), 16, 8, "y")]

    return build


@pair(_packed(True), kind="healthy", mode="ort_opt")
def three_products_packed_into_one(g: Graph) -> Sequence[str]:
    """q, k and v in one product and a Split."""
    return _packed(False)(g)


def _sound(flat: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 1, 4, 40)
        for n, inside in enumerate((4, 8, 8)):
            w = g.random.normal(size=(8, inside, 5)) / np.sqrt(5 * inside)
            if flat:
                x = g.op("Conv", [x, k(g, f"c{n}.w", w)], f"c{n}", pads=[2, 2], strides=[2 if n else 1])
            else:
                x = g.op("Unsqueeze", [x, ints(g, f"two{n}", 2)], f"u{n}")
                x = g.op("Conv", [x, k(g, f"c{n}.w", w[:, :, None])], f"c{n}_2d", pads=[0, 2, 0, 2],
                         strides=[1, 2 if n else 1])  # fmt: skip
                x = g.op("Squeeze", [x, f"two{n}"], f"c{n}")
            x = g.op("Relu", [x], f"r{n}")
        return [g.dense(g.op("ReduceMean", [x], "mean", axes=[2], keepdims=0), 8, 4, "y")]

    return build


@pair(_sound(False), kind="healthy", mode="ov_opt")
def filters_of_one_dimension_as_two(g: Graph) -> Sequence[str]:
    """Convolutions over time, written with a height of 1 between Unsqueeze and Squeeze, in OpenVINO."""
    return _sound(True)(g)


def _doubled(filtered: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 1, 3, 7, 7), 3, 6, "a")], "r")
        if filtered:
            x = g.op("ConvTranspose", [x, k(g, "ones", np.ones((6, 1, 2, 2)))], "up", group=6, strides=[2, 2])
        else:
            x = g.op("Resize", [x, "", k(g, "scales", [1, 1, 2, 2])], "up", mode="nearest", nearest_mode="floor",
                     coordinate_transformation_mode="asymmetric")  # fmt: skip
        return [g.conv(x, 6, 4, "y")]

    return build


@pair(_doubled(True), kind="healthy")
def neighbours_by_a_transposed_filter(g: Graph) -> Sequence[str]:
    """Each place taken twice, by a grouped transposed convolution with ones."""
    return _doubled(False)(g)


def _unrolled(apart: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 4, 2, 6)
        w, r = g.random.normal(size=(1, 32, 6)) / 3, g.random.normal(size=(1, 32, 8)) / 3
        b = g.random.normal(size=(1, 64)) / 3
        if not apart:
            g.op("LSTM", [x, k(g, "w", w), k(g, "r", r), k(g, "b", b)], "h4", hidden_size=8)
            states = g.op("Squeeze", ["h4", ints(g, "one", 1)], "states")
        else:
            k(g, "w", w[0].T), k(g, "r", r[0].T), k(g, "b", b[0, :32] + b[0, 32:]), ints(g, "first", 0)
            h, c, seen = k(g, "h0", np.zeros((2, 8))), k(g, "c0", np.zeros((2, 8))), []
            for t in range(4):
                now = g.op("Gather", [x, g.weight(f"t{t}", np.array(t, np.int64))], f"x{t}", axis=0)
                both = g.op("Add", [g.op("MatMul", [now, "w"], f"xw{t}"), g.op("MatMul", [h, "r"], f"hr{t}")], f"s{t}")
                gates = [f"{name}{t}" for name in ("i", "o", "f", "g")]
                g.nodes.append(helper.make_node("Split", [g.op("Add", [both, "b"], f"sb{t}")], gates,
                                                name=f"node_gates{t}", axis=-1))  # fmt: skip
                i, o, f = (g.op("Sigmoid", [one], f"{one}_s") for one in gates[:3])
                kept = g.op("Mul", [f, c], f"kept{t}")
                c = g.op("Add", [kept, g.op("Mul", [i, g.op("Tanh", [gates[3]], f"g{t}_t")], f"new{t}")], f"cell{t}")
                h = g.op("Mul", [o, g.op("Tanh", [c], f"cell{t}_t")], f"h_{t}")
                seen.append(g.op("Unsqueeze", [h, "first"], f"h_{t}_1"))
            states = g.op("Concat", seen, "states", axis=0)
        return [g.dense(states, 8, 4, "y")]

    return build


@pair(_unrolled(True), kind="healthy")
def recurrence_taken_apart(g: Graph) -> Sequence[str]:
    """An LSTM of four steps as 62 plain operators."""
    return _unrolled(False)(g)


# --- float16 and bfloat16


@case("cancellation", "ort_fp16_sim", "inside square x c", ROUNDS, extra="inside square across root near y x c")
def ray_that_grazes_a_sphere(g: Graph) -> Sequence[str]:
    """b ** 2 - c of rays that nearly miss: 30 ** 2 less 899.5, both rounded to 0.5, of which the root is taken. With
    the square and its difference in float32 0.251 becomes 0.0003, with the square alone 0.103."""
    b = g.input("x", g.random.uniform(28, 32, size=(8, 16)).astype(np.float32))
    gap = g.random.uniform(0.2, 2, size=(8, 16))
    c = g.input("c", (g.feeds["x"].astype(np.float64) ** 2 - gap).astype(np.float32))
    inside = g.op("Sub", [g.op("Mul", [b, b], "square"), c], "inside")
    root = g.op("Sqrt", [g.op("Max", [inside, k(g, "zero", 0)], "across")], "root")
    return [g.dense(root, 16, 4, "y"), g.op("Sub", [b, root], "near")]


@case("amplified", "ort_fp16_sim", "slant", ROUNDS, extra="w slant x column")
def perspective_of_a_far_plane(g: Graph) -> Sequence[str]:
    """A road's rows up to the horizon: w = 1 - 0.00052 y falls to 0.012. The product is rounded to 0.0005 there, which
    makes 0.02; w itself is exact."""
    y = g.input("x", np.linspace(1000, 1900, 64).astype(np.float32).reshape(4, 16))
    x = g.input("column", g.random.uniform(-600, 600, size=(4, 16)).astype(np.float32))
    w = g.op("Sub", [k(g, "one", 1), g.op("Mul", [y, k(g, "h32", 0.00052)], "slant")], "w")
    high = g.op("Mul", [y, k(g, "h22", 0.01)], "high")
    wide = g.op("Mul", [x, k(g, "h11", 0.02)], "wide")
    return [g.op("Div", [high, w], "v"), g.op("Div", [wide, w], "u")]


@case("underflow", "ort_fp16_sim", "product", "underflow", extra="product mean")
def chance_of_a_whole_sentence(g: Graph) -> Sequence[str]:
    """The product of 16 words' chances is about 1e-9, of which the 16th root is taken: 0 in float16."""
    x = g.op("Sigmoid", [g.dense(_fed(g, 6, 16), 16, 16, "a")], "s")
    chance = g.op("Mul", [x, k(g, "most", 0.5)], "chance")
    product = g.op("ReduceProd", [chance], "product", axes=[-1], keepdims=1)
    mean = g.op("Pow", [product, k(g, "share", 1 / 16)], "mean")
    return [g.op("Concat", [mean, g.op("ReduceMax", [chance], "best", axes=[-1], keepdims=1)], "y", axis=-1)]


@case("healthy", "ort_fp16_sim")
def pixels_through_the_curve_of_a_screen(g: Graph) -> Sequence[str]:
    """sRGB to light by ((x + 0.055) / 1.055) ** 2.4 above 0.04045, a line below; two convolutions; and back."""
    x = _pixels(g, 1, 3, 16, 16)
    curve = g.op("Div", [g.op("Add", [x, k(g, "a", 0.055)], "up"), k(g, "b", 1.055)], "even")
    curve = g.op("Pow", [curve, k(g, "gamma", 2.4)], "curve")
    line = g.op("Div", [x, k(g, "slope", 12.92)], "line")
    light = g.op("Where", [g.op("Greater", [x, k(g, "knee", 0.04045)], "above"), curve, line], "light")
    y = g.op("Sigmoid", [g.conv(g.op("Relu", [g.conv(light, 3, 8, "c")], "r"), 8, 3, "d")], "back")
    return [g.op("Pow", [y, k(g, "inverse", 1 / 2.4)], "y")]


@case("healthy", "ort_fp16_sim")
def splines_of_a_kan(g: Graph) -> Sequence[str]:
    """Two layers of Kolmogorov and Arnold: cubic splines on a grid by Cox and de Boor, and a plain part."""
    x = g.op("Tanh", [_fed(g, 6, 8)], "in")
    for n in range(2):
        u = g.op("Unsqueeze", [x, ints(g, f"last{n}", -1)], f"u{n}")
        away = g.op("Abs", [g.op("Sub", [u, k(g, f"knots{n}", np.linspace(-1.2, 1.2, 9))], f"d{n}")], f"away{n}")
        t = g.op("Div", [away, k(g, f"step{n}", 0.3)], f"t{n}")
        far = g.op("Relu", [g.op("Sub", [k(g, f"two{n}", 2), t], f"f{n}")], f"far{n}")
        near = g.op("Relu", [g.op("Sub", [k(g, f"one{n}", 1), t], f"e{n}")], f"near{n}")
        three = k(g, f"three{n}", 3)
        outer = g.op("Mul", [g.op("Pow", [far, three], f"far3{n}"), k(g, f"sixth{n}", 1 / 6)], f"outer{n}")
        inner = g.op("Mul", [g.op("Pow", [near, three], f"near3{n}"), k(g, f"four{n}", 4 / 6)], f"inner{n}")
        basis = g.op("Reshape", [g.op("Sub", [outer, inner], f"basis{n}"), ints(g, f"to{n}", 6, 72)], f"flat{n}")
        spline = g.op("MatMul", [basis, k(g, f"w{n}", g.random.normal(size=(72, 8)) / 3)], f"spline{n}")
        x = g.op("Add", [spline, g.dense(g.op("Relu", [x], f"r{n}"), 8, 8, f"p{n}")], f"h{n}")
    return [g.dense(x, 8, 4, "y")]


@case("healthy", "ort_fp16")
def small_vision_transformer_in_half(g: Graph) -> Sequence[str]:
    """Patches, places, two blocks of attention, a mean and a head, converted."""
    x = g.op("Conv", [_pixels(g, 1, 3, 16, 16), _filters(g, "patch.w", 16, 3, 4, 4)], "patch", strides=[4, 4])
    x = g.op("Transpose", [g.op("Reshape", [x, ints(g, "to", 1, 16, 16)], "flat")], "words", perm=[0, 2, 1])
    x = g.op("Add", [x, k(g, "places", g.random.normal(size=(1, 16, 16)) * 0.2)], "placed")
    for n in "ab":
        x = g.attention(g.norm(x, 16, f"{n}_n"), 16, f"{n}_at")
        x = g.mlp(g.norm(x, 16, f"{n}_m"), 16, f"{n}_ff")
    mean = g.op("ReduceMean", [g.norm(x, 16, "last")], "mean", axes=[1], keepdims=0)
    return [g.dense(mean, 16, 10, "y"), mean]


@case("amplified", "ort_bf16_sim", "gap p t steep", ROUNDS, extra="gap p t steep y p_map t_map in mask")
def binarised_map_of_a_text_detector(g: Graph) -> Sequence[str]:
    """DB's 1 / (1 + exp(-50 (p - t))) and a mask of it: p and t are about 0.7 and known to 1/512, of which 50 times is
    a tenth."""
    x = g.op("Relu", [g.conv(_pixels(g, 1, 3, 16, 16), 3, 8, "a")], "r")
    for name in ("p_map", "t_map"):
        g.op("Conv", [x, k(g, f"{name}.w", g.random.normal(size=(1, 8, 1, 1)) * 0.05), k(g, f"{name}.b", [0.85])], name)
    gap = g.op("Sub", [g.op("Sigmoid", ["p_map"], "p"), g.op("Sigmoid", ["t_map"], "t")], "gap")
    y = g.op("Sigmoid", [g.op("Mul", [gap, k(g, "fifty", 50)], "steep")], "y")
    return [y, g.op("Cast", [g.op("Greater", [y, k(g, "half", 0.5)], "in")], "mask", to=TensorProto.FLOAT)]


@case("healthy", "ort_bf16_sim")
def boxes_of_a_grid_of_eighty(g: Graph) -> Sequence[str]:
    """YOLO's (2 s - 0.5 + cell) 8 and (2 s) ** 2 anchor: centres up to 640 are known to 2, and may be."""
    x = g.op("Sigmoid", [g.dense(_fed(g, 80, 16), 16, 4, "head")], "s")
    cells = k(g, "cells", np.stack([np.arange(80), np.arange(80)[::-1]], 1))
    twice = g.op("Mul", [x, k(g, "two", 2)], "twice")
    g.nodes.append(helper.make_node("Split", [twice], ["xy", "wh"], name="node_split", axis=-1))
    place = g.op("Add", [g.op("Sub", ["xy", k(g, "half", 0.5)], "off"), cells], "place")
    centre = g.op("Mul", [place, k(g, "stride", 8)], "centre")
    size = g.op("Mul", [g.op("Mul", ["wh", "wh"], "sq"), k(g, "anchor", [[30, 61]])], "size")
    return [g.op("Concat", [centre, size], "y", axis=-1)]


# --- 8, 4 and float 8 bits


@case("healthy", "ort_int8", options=SEVEN)
def sizes_by_an_exponential(g: Graph) -> Sequence[str]:
    """A head's logarithms of sizes reach from -4 to 4: in steps of 0.03 each size is known to two hundredths."""
    x = g.op("Relu", [g.conv(_fed(g, 1, 3, 10, 10), 3, 16, "a")], "r")
    y = g.op("Conv", [x, _filters(g, "t.w", 4, 16, 1, 1, scale=2)], "t")
    return [g.op("Exp", [y], "y")]


BOTH = "c1 c2 p1 p2 r1 r2 x1 x2 gap"


@case("diffuse", "ort_int8", BOTH, f"{COARSE} cancellation cancels amplified constant_scale", options=SEVEN, extra=BOTH,
      anyone=True)  # fmt: skip
def change_between_two_pictures(g: Graph) -> Sequence[str]:
    """A Siamese net subtracts the features of two pictures that differ by 2 %: of steps of 1/127 little is left. All
    four convolutions take part: with one of them left out 0.721 becomes 0.65, with two 0.55, with all 0.008."""
    first = g.random.normal(size=(1, 3, 12, 12))
    g.input("x1", first.astype(np.float32))
    g.input("x2", (first + 0.02 * g.random.normal(size=first.shape)).astype(np.float32))
    w, v = _filters(g, "c.w", 8, 3, 3, 3), _filters(g, "p.w", 8, 8, 3, 3)
    for n in (1, 2):
        x = g.op("Relu", [g.op("Conv", [f"x{n}", w], f"c{n}", pads=[1, 1, 1, 1])], f"r{n}")
        g.op("Conv", [x, v], f"p{n}", pads=[1, 1, 1, 1])
    gap = g.op("Mul", [g.op("Sub", ["p1", "p2"], "gap"), k(g, "gain", 50)], "loud")
    return [g.op("Tanh", [gap], "y")]


@case("coarse", "ort_int8_dynamic", "a_mm", f"{COARSE} outlier_row outlier_sample", options=SEVEN,
      extra="a_mm x a", facts=["sample|row|axis 0"])  # fmt: skip
def quiet_speaker_in_a_batch(g: Graph) -> Sequence[str]:
    """One of four utterances is 400 times as loud as the others: one scale for all of them leaves the quiet ones at 0,
    and a norm behind makes them as large as the loud one."""
    x = g.random.normal(size=(4, 6, 16)).astype(np.float32)
    x[2] *= 400
    y = g.op("MatMul", [g.input("x", x), k(g, "a.w", g.random.normal(size=(16, 16)) / 4)], "a_mm")
    return [g.dense(g.op("Relu", [g.norm(y, 16, "n")], "r"), 16, 4, "y")]


@case("healthy", "ort_int4")
def weights_that_were_trained_for_four_bits(g: Graph) -> Sequence[str]:
    """Each block's weights are whole numbers from -8 to 7 times one number: 4 bits lose nothing of them."""
    def grid(inside: int, outside: int) -> Array:
        whole = g.random.integers(-7, 8, size=(inside, outside)).astype(np.float64)
        whole[0] = -8
        return whole / 8 * g.random.uniform(0.2, 0.6, size=outside)

    x = g.op("MatMul", [_fed(g, 8, 64), k(g, "a.w", grid(64, 128))], "a")
    x = g.op("MatMul", [g.op("Relu", [x], "r"), k(g, "b.w", grid(128, 64))], "b")
    return [g.op("Tanh", [x], "y")]


@case("healthy", "ort_int8", options=[*SEVEN, "--option", "activation_type=uint8"])
def codes_without_a_sign(g: Graph) -> Sequence[str]:
    """Activations from 0 to 255, a residual block and a pool."""
    x = g.op("Relu", [g.conv(_pixels(g, 1, 3, 12, 12), 3, 8, "stem")], "r0")
    y = g.op("Relu", [g.conv(x, 8, 8, "c1", scale=1.4)], "r1")
    x = g.op("Relu", [g.op("Add", [x, g.conv(y, 8, 8, "c2", scale=1.4)], "sum")], "r2")
    x = g.op("Flatten", [g.op("GlobalAveragePool", [x], "pool")], "flat")
    w = k(g, "y.w", g.random.normal(size=(8, 5)) / 2)
    return [g.op("Gemm", [x, w, k(g, "y.b", g.random.normal(size=5) / 5)], "y")]


@case("coarse", "ov_int8", "r b_mm b", f"packed {COARSE} outlier_row outlier_token", extra="r a a_mm b_mm b x")
def loud_token_by_nncf(g: Graph) -> Sequence[str]:
    """One of eight tokens is 300 times as large in front of a product, behind which each is brought to one size."""
    x = g.random.normal(size=(1, 8, 16)).astype(np.float32)
    x[:, 3] *= 300
    x = g.op("Relu", [g.dense(g.input("x", x), 16, 32, "a")], "r")
    return [g.norm(g.dense(x, 32, 16, "b"), 16, "y")]


def _eight(scale: float | None) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.dense(_fed(g, 6, 16), 16, 32, "a")], "r")
        w = g.random.normal(size=(32, 16)) * 2e-3
        if scale is None:
            k(g, "w", w)
        else:
            step = w.std() / 40 if scale == 0 else scale
            q = g.weight("w.q", (w / step).astype(ml_dtypes.float8_e4m3fn))
            g.op("DequantizeLinear", [q, k(g, "w.s", step)], "w")
        level = g.op("Mul", [g.op("MatMul", [x, "w"], "h"), k(g, "level", 200)], "loud")
        return [g.dense(g.op("Tanh", [level], "t"), 16, 4, "y")]

    return build


@newer(_eight(1), "w h", 19, f"{DIFFER} {COARSE} constant_scale underflow weight_underflow held_narrower",
       extra="w h", facts=[r"\bw(\.[qs])?\b"])  # fmt: skip
def small_weights_in_float8_without_a_scale(g: Graph) -> Sequence[str]:
    """Weights of 0.002 were cast to float8 as they are (scale 1): the type steps by 0.002 there."""
    return _eight(None)(g)


# --- LiteRT


def _bare(run: Any, blob: bytes) -> bytes:
    b = run.get_tensor(_detail(run, "fc_fc_bias")["index"])
    return _put(blob, b, b * 0)


def bias_of_the_head_left_out() -> None:
    """The last layer's bias is 0."""


def _input_scale(run: Any, blob: bytes) -> bytes:
    scale = _detail(run, "conv2_input_nhwc")["quantization_parameters"]["scales"].astype(np.float32)
    return _put(blob, scale, scale / 3)


def scale_of_one_layer_a_third() -> None:
    """In 8 bits: what the first convolution makes has a third of its scale: all above a third is cut off."""


def _hybrid(folder: Path) -> tuple[Path, None, Mapping[str, Array]]:
    (folder / "hybrid.tflite").write_bytes((DATA / "digits_hybrid.tflite").read_bytes())
    return folder / "hybrid.tflite", None, _images()


def digits_with_weights_in_eight_bits() -> None:
    """Weights in 8 bits, activations at run time, against dequantised weights."""


CASES += [
    labelled(bias_of_the_head_left_out, "", "converter", "tflite_opt", "logits", DIFFER,
             make=_bytes("digits_float32", _bare), baseline="tflite_fp32", facts=["fc_fc_bias"]),
    labelled(scale_of_one_layer_a_third, "", "converter", "tflite_ref", "conv2_input_nhwc",
             f"{DIFFER} {COARSE} saturation scale", make=_bytes("digits_int8", _input_scale), baseline="tflite_ref",
             facts=["conv2_input_nhwc"], extra="pool_input_nhwc"),
    labelled(digits_with_weights_in_eight_bits, "", "healthy", "tflite_opt", "", "", make=_hybrid),
]  # fmt: skip


# --- a second opinion


@case("healthy", "onnx_ref")
def recurrent_net_by_the_reference(g: Graph) -> Sequence[str]:
    """Convolution, norm, a pool that rounds up, a GRU and a head in onnx.reference."""
    x = g.conv(_pixels(g, 1, 1, 9, 16), 1, 4, "a")
    told = [k(g, name, g.random.uniform(0.5, 1.5, 4)) for name in "gzmv"]
    x = g.op("Relu", [g.op("BatchNormalization", [x, *told], "bn")], "r")
    x = g.op("MaxPool", [x], "pool", kernel_shape=[2, 1], strides=[2, 1], ceil_mode=1)
    x = g.op("Reshape", [g.op("Transpose", [x], "turned", perm=[3, 0, 1, 2]), ints(g, "to", 16, 1, 20)], "steps")
    told = [k(g, name, g.random.normal(size=(1, 24, n)) / 4) for name, n in (("w", 20), ("R", 8))]
    g.op("GRU", [x, *told, k(g, "B", g.random.normal(size=(1, 48)) / 3)], "h", hidden_size=8, linear_before_reset=1)
    return [g.dense(g.op("Squeeze", ["h", ints(g, "one", 1)], "flat"), 8, 4, "y")]
