"""A fourteenth batch, by somebody who built none of it: what a converter changed, as threads report it (an axis, a gate
order, a default of another opset, statistics that were stale), formulas in float16 and bfloat16 that the batches before
lack, scales and zero points of quantised files; 13 are healthy or only look wrong. ONNX Runtime, OpenVINO, LiteRT.
Labelled before the tool was run on any; what a docstring states was measured in the stock engine or numpy
(``python tests/planted/fourteenth_truth.py``)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto

from planted.onnx_faults import Array, Graph
from planted.onnx_further import ints, k
from planted.twelfth.case import COARSE, DIFFER, Build, Thread, graph, labelled, one_file, two_files

CASES: list[Thread] = []
ROUNDS = f"{COARSE} cancellation cancels amplified amplifies"


def case(kind: str, mode: str, who: str = "", why: str = "", *, cases: list[Thread] = CASES,
         **more: Any) -> Callable[[Build], Build]:  # fmt: skip
    """One file in a mode. cases: of which batch."""

    def register(build: Build) -> Build:
        cases.append(labelled(build, more.pop("thread", ""), kind, mode, who, why, make=one_file(build), **more))
        return build

    return register


def pair(target: Build, who: str = "", why: str = DIFFER, *, kind: str = "converter", mode: str = "ort_fp32",
         opset: int = 17, cases: list[Thread] = CASES, **more: Any) -> Callable[[Build], Build]:  # fmt: skip
    """The function builds the baseline, ``target`` what was made of it; opset: the baseline's, where it is older.
    cases: of which batch."""

    def register(build: Build) -> Build:
        def make(folder: Path) -> tuple[Path, Path, Mapping[str, Array]]:
            made, base, feeds = two_files(build, target)(folder)
            if opset != 17:
                g, outputs = graph(build, opset=opset)
                g.save(base, outputs)
            return made, base, feeds

        thread = more.pop("thread", "")
        why_not = why if who else ""
        cases.append(labelled(build, thread, kind, mode, who, why_not, make=make, baseline="ort_fp32", **more))
        return build

    return register


def _fed(g: Graph, *shape: int, scale: float = 1) -> str:
    return g.input("x", (scale * g.random.normal(size=shape)).astype(np.float32))


def _filters(g: Graph, name: str, *shape: int, scale: float = 1) -> str:
    return k(g, name, scale * g.random.normal(size=shape) / np.sqrt(np.prod(shape[1:])))


# --- an attribute, an order, a default


def _weighed(axis: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 2, 16, 16)
        score = g.op("MatMul", [x, g.op("Transpose", [x], "turned", perm=[0, 2, 1])], "score")
        share = g.op("Softmax", [g.op("Mul", [score, k(g, "s", 0.25)], "scaled")], "share", axis=axis)
        return [g.dense(g.op("MatMul", [share, x], "mixed"), 16, 8, "y")]

    return build


@pair(_weighed(1), "share")
def shares_over_the_queries(g: Graph) -> Sequence[str]:
    """Softmax over axis 1 in place of the last, both 16 long."""
    return _weighed(-1)(g)


def _opset(g: Graph) -> Sequence[str]:
    x = _fed(g, 2, 4, 6, 8)
    score = g.op("Conv", [x, _filters(g, "c.w", 4, 4, 3, 3, scale=2)], "score", pads=[1, 1, 1, 1])
    share = g.op("Softmax", [score], "share")
    return [g.op("Mul", [share, x], "y")]


@pair(_opset, "share", opset=12)
def softmax_whose_default_became_another(g: Graph) -> Sequence[str]:
    """Opset 12 to 17 by the number alone: without an axis Softmax meant all axes from 1 on together, and now means the
    last."""
    return _opset(g)


def _exchanged(first: str, second: str) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 2, 12, 16)
        for name in "abc":
            x = g.op("Tanh", [g.dense(x, 16, 16, name, scale=1.5)], f"{name}_act")
        g.weights["a.w"], g.weights["b.w"] = g.weights[f"{first}.w"], g.weights[f"{second}.w"]
        return [g.dense(x, 16, 4, "y")]

    return build


@pair(_exchanged("b", "a"), "a_mm a b_mm b", facts=[r"\ba\.w\b"], extra="a_mm a b_mm b")
def weights_of_two_layers_exchanged(g: Graph) -> Sequence[str]:
    """``a.w`` and ``b.w``, of one shape, changed places."""
    return _exchanged("a", "b")(g)


def _folded(epoch: int) -> Build:
    """epoch 0: a BatchNormalization; 1: folded into its convolution; 2: folded with older statistics."""

    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 1, 4, 12, 12)
        w = g.random.normal(size=(8, 4, 3, 3)) / 6
        gain, shift = g.random.uniform(0.5, 1.5, 8), g.random.normal(size=8) * 0.1
        mean, var = g.random.normal(size=8), g.random.uniform(0.5, 2, 8)
        old = g.random.normal(size=8) * 0.3
        last = _filters(g, "y.w", 4, 8, 3, 3)
        if epoch:
            factor = gain / np.sqrt(var + 1e-5)
            mean = mean - old if epoch == 2 else mean
            x = g.op("Conv", [x, k(g, "w", w * factor[:, None, None, None]), k(g, "b", shift - mean * factor)], "bn",
                     pads=[1, 1, 1, 1])  # fmt: skip
        else:
            x = g.op("Conv", [x, k(g, "w", w)], "c", pads=[1, 1, 1, 1])
            told = [k(g, name, one) for name, one in zip(("g", "z", "m", "v"), (gain, shift, mean, var), strict=True)]
            x = g.op("BatchNormalization", [x, *told], "bn", epsilon=1e-5)
        return [g.op("Conv", [g.op("Relu", [x], "r"), last], "y", pads=[1, 1, 1, 1])]

    return build


@pair(_folded(2), "bn c", extra="bn c")
def statistics_of_an_earlier_epoch_folded(g: Graph) -> Sequence[str]:
    """The BatchNormalization was folded with the means of an earlier epoch: each channel is shifted."""
    return _folded(0)(g)


@pair(_folded(1), kind="healthy")
def statistics_folded_as_they_are(g: Graph) -> Sequence[str]:
    """The same, folded with the right ones: equal to float32's last digits."""
    return _folded(0)(g)


def _conv(**attributes: Any) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 1, 3, 16, 16), 3, 8, "a")], "r")
        x = g.op("Conv", [x, _filters(g, "c.w", 8, 8, 3, 3)], "c", **attributes)
        return [g.op("Conv", [g.op("Relu", [x], "s"), _filters(g, "y.w", 4, 8, 1, 1)], "y")]

    return build


@pair(_conv(auto_pad="SAME_LOWER", strides=[2, 2]), "c")
def border_on_the_other_side(g: Graph) -> Sequence[str]:
    """SAME_UPPER became SAME_LOWER: of the one row of padding that stride 2 needs the other side has it."""
    return _conv(auto_pad="SAME_UPPER", strides=[2, 2])(g)


@pair(_conv(pads=[1, 1, 1, 1]), "c")
def holes_of_a_filter_forgotten(g: Graph) -> Sequence[str]:
    """A filter with dilation 2 and padding 2 became one with 1 and 1."""
    return _conv(pads=[2, 2, 2, 2], dilations=[2, 2])(g)


def _pooled(op_type: str, **attributes: Any) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 1, 3, 15, 15), 3, 8, "a")], "r")
        x = g.op("Relu", [g.conv(g.op(op_type, [x], "pool", **attributes), 8, 8, "c")], "s")
        return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "mean")], "flat"), 8, 4, "y")]

    return build


@pair(_pooled("MaxPool", kernel_shape=[2, 2], strides=[2, 2]), "mean", facts=["ceil_mode.*pool"])
def pool_that_no_longer_rounds_up(g: Graph) -> Sequence[str]:
    """ceil_mode was dropped: 8 rows became 7, and a global mean behind it hides that the shapes differ. The row that is
    named is the first whose numbers can be compared; labelled ``pool`` before the first run."""
    return _pooled("MaxPool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)(g)


@pair(_pooled("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1), "pool")
def mean_that_counts_its_padding(g: Graph) -> Sequence[str]:
    """count_include_pad changed from 0 to 1: places at the border are a third or more smaller."""
    return _pooled("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1])(g)


def _resized(**attributes: Any) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 1, 3, 9, 9), 3, 8, "a")], "r")
        x = g.op("Resize", [x, "", "", ints(g, "sizes", 1, 8, 15, 15)], "up", mode="nearest", **attributes)
        return [g.op("Conv", [x, _filters(g, "y.w", 4, 8, 3, 3)], "y", pads=[1, 1, 1, 1])]

    return build


@pair(_resized(coordinate_transformation_mode="half_pixel"), "up")
def neighbour_that_is_rounded_otherwise(g: Graph) -> Sequence[str]:
    """asymmetric with floor, as PyTorch takes the nearest, became the defaults: half_pixel, round_prefer_floor."""
    return _resized(coordinate_transformation_mode="asymmetric", nearest_mode="floor")(g)


def _quiet_norm(epsilon: float) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.conv(_fed(g, 1, 3, 12, 12), 3, 8, "c", scale=0.05)
        told = [k(g, name, one) for name, one in zip("gzmv", ([1] * 8, [0] * 8, [0] * 8, [0.0025] * 8), strict=True)]
        return [g.conv(g.op("Relu", [g.op("BatchNormalization", [x, *told], "bn", epsilon=epsilon)], "r"), 8, 4, "y")]

    return build


@pair(_quiet_norm(1e-5), "bn", facts=["epsilon"])
def epsilon_of_keras(g: Graph) -> Sequence[str]:
    """Variances of 0.0025 and an epsilon of 1e-3 that became 1e-5: everything is 1.18 times as large."""
    return _quiet_norm(1e-3)(g)


def _lstm(order: Sequence[int]) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 10, 2, 8)
        w, r = (g.random.normal(size=(1, 4, 12, n)) / np.sqrt(n) for n in (8, 12))
        w, r = (one[:, [*order]].reshape(1, 48, -1) for one in (w, r))
        g.op("LSTM", [x, k(g, "w", w), k(g, "r", r)], "h", hidden_size=12)
        return [g.dense(g.op("Squeeze", ["h", ints(g, "one", 1)], "flat"), 12, 4, "y")]

    return build


@pair(_lstm([0, 1, 2, 3]), "h", facts=[r"\b[wr]\b"])
def gates_in_the_order_of_another_framework(g: Graph) -> Sequence[str]:
    """Gates i f g o, as PyTorch holds them, were copied into an LSTM that reads i o f c."""
    return _lstm([0, 3, 1, 2])(g)


def _gru(before: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 10, 2, 8)
        told = [_filters(g, name, 1, 36, n, scale=6) for name, n in (("w", 8), ("r", 12))]
        g.op("GRU", [x, *told, k(g, "b", g.random.normal(size=(1, 72)))], "h", hidden_size=12,
             linear_before_reset=before)  # fmt: skip
        return [g.dense(g.op("Squeeze", ["h", ints(g, "one", 1)], "flat"), 12, 4, "y")]

    return build


@pair(_gru(0), "h", facts=["linear_before_reset"])
def reset_before_its_product(g: Graph) -> Sequence[str]:
    """linear_before_reset, which PyTorch's GRU needs, was left out."""
    return _gru(1)(g)


def _activated(after: str) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.dense(_fed(g, 8, 16), 16, 32, "a")
        x = g.op("Relu", [x], "r") if after else x
        return [g.dense(g.op("Tanh", [g.dense(x, 32, 32, "b")], "t"), 32, 4, "y")]

    return build


@pair(_activated(""), "b_mm b r", extra="b_mm b r")
def activation_that_was_lost(g: Graph) -> Sequence[str]:
    """The target lacks the Relu: ``b`` reads what stands before it."""
    return _activated("Relu")(g)


def _clipped(*bounds: str) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.conv(_fed(g, 1, 3, 12, 12), 3, 8, "a", scale=5)
        k(g, "zero", 0), k(g, "six", 6)
        return [g.conv(g.op("Clip", [x, *bounds], "c"), 8, 4, "y")]

    return build


@pair(_clipped("zero"), "c")
def upper_bound_that_was_lost(g: Graph) -> Sequence[str]:
    """Clip at 0 and 6 lost the 6 on its way from attributes to inputs: results up to 20 pass."""
    return _clipped("zero", "six")(g)


def _bucket(whole: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        away = g.input("x", g.random.integers(-60, 60, size=(2, 20)))
        if whole:
            bucket = g.op("Div", [away, ints(g, "eight", 8)], "bucket")
        else:
            share = g.op("Div", [g.op("Cast", [away], "f", to=TensorProto.FLOAT), k(g, "eight", 8)], "share")
            bucket = g.op("Cast", [g.op("Floor", [share], "low")], "bucket", to=TensorProto.INT64)
        place = g.op("Add", [bucket, ints(g, "middle", 8)], "place")
        return [g.dense(g.op("Gather", [k(g, "table", g.random.normal(size=(16, 8))), place], "rows"), 8, 4, "y")]

    return build


@pair(_bucket(True), "bucket place low", extra="bucket place rows")
def quotient_towards_nought(g: Graph) -> Sequence[str]:
    """Relative places, divided by 8 and rounded down, became a division of whole numbers, which rounds -1/8 to 0."""
    return _bucket(False)(g)


def _shuffled(groups: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.conv(_fed(g, 1, 3, 8, 8), 3, 24, "a")
        x = g.op("Reshape", [x, ints(g, "to", 1, groups, 24 // groups, 8, 8)], "grouped")
        x = g.op("Transpose", [x], "turned", perm=[0, 2, 1, 3, 4])
        x = g.op("Reshape", [x, ints(g, "back", 1, 24, 8, 8)], "shuffled")
        return [g.op("Conv", [x, _filters(g, "y.w", 6, 4, 1, 1)], "y", group=6)]

    return build


@pair(_shuffled(6), "grouped turned shuffled", extra="grouped turned shuffled")
def channels_shuffled_by_the_other_count(g: Graph) -> Sequence[str]:
    """A shuffle of 4 groups of 6 became one of 6 groups of 4."""
    return _shuffled(4)(g)


def _scattered(order: Sequence[int]) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.dense(_fed(g, 40, 8), 8, 6, "a")
        cells = g.random.permutation(144)[:40]
        at = np.stack([cells // 12, cells % 12], 1)[:, [*order]].astype(np.int64)
        x = g.op("ScatterND", [k(g, "empty", np.zeros((12, 12, 6))), g.weight("at", at), x], "canvas")
        x = g.op("Transpose", [g.op("Unsqueeze", [x, ints(g, "first", 0)], "one")], "image", perm=[0, 3, 1, 2])
        return [g.conv(x, 6, 4, "y")]

    return build


@pair(_scattered([1, 0]), "canvas", facts=[r"\bat\b"])
def pillars_put_at_x_and_y(g: Graph) -> Sequence[str]:
    """A detector's pillars are scattered by (x, y) in place of (row, column)."""
    return _scattered([0, 1])(g)


def _squared(turned: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        w = k(g, "w", g.random.normal(size=(16, 16)) / 4)
        x = g.op("Gemm", [_fed(g, 6, 16), w, k(g, "b", g.random.normal(size=16))], "h", transB=turned)
        return [g.dense(g.op("Relu", [x], "r"), 16, 4, "y")]

    return build


@pair(_squared(0), "h", facts=["transB"])
def square_weight_read_by_rows(g: Graph) -> Sequence[str]:
    """transB of a square weight was left out."""
    return _squared(1)(g)


def _lifted(pads: Sequence[int]) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 1, 3, 6, 6), 3, 8, "a")], "r")
        w = k(g, "up.w", g.random.normal(size=(8, 4, 3, 3)) / 6)
        return [g.conv(g.op("ConvTranspose", [x, w], "up", strides=[2, 2], pads=[*pads]), 4, 4, "y")]

    return build


@pair(_lifted([1, 1, 0, 0]), "up up_o y", mode="ov_opt", extra="up y")
def transposed_filter_cut_at_the_other_end(g: Graph) -> Sequence[str]:
    """The row and column that are cut off stand at the beginning in place of the end: all is moved by one."""
    return _lifted([0, 0, 1, 1])(g)


def _summed(**attributes: Any) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Sigmoid", [g.dense(_fed(g, 2, 16, 8), 8, 8, "a")], "rate")
        x = g.op("CumSum", [x, g.weight("axis", np.array(1, np.int64))], "until", **attributes)
        return [g.dense(g.op("Exp", [g.op("Neg", [x], "minus")], "left"), 8, 4, "y")]

    return build


@pair(_summed(), "until", mode="ort_opt", facts=["exclusive"])
def running_sum_with_its_own_term(g: Graph) -> Sequence[str]:
    """exclusive was dropped: the survival until a step holds the step itself."""
    return _summed(exclusive=1)(g)


# --- two files that only look different


def _chosen(sort: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.dense(_fed(g, 4, 16), 16, 64, "score")
        g.nodes.append(_top(x, k_of(g, 24), sort))
        return [g.op("ReduceMean", ["best"], "mean", axes=[-1]), g.op("ReduceMax", ["best"], "most", axes=[-1])]

    return build


def k_of(g: Graph, count: int) -> str:
    return ints(g, "count", count)


def _top(x: str, count: str, sort: int) -> Any:
    from onnx import helper

    return helper.make_node("TopK", [x, count], ["best", "place"], name="node_best", axis=-1, sorted=sort)


@pair(_chosen(0), kind="healthy")
def best_that_come_unsorted(g: Graph) -> Sequence[str]:
    """TopK gives the 24 best in any order; their mean and largest are the same."""
    return _chosen(1)(g)


def _written(out: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.dense(_fed(g, 2, 12, 16), 16, 16, "a")
        if out:
            mean = g.op("ReduceMean", [x], "mean", axes=[-1])
            away = g.op("Sub", [x, mean], "away")
            var = g.op("ReduceMean", [g.op("Mul", [away, away], "sq")], "var", axes=[-1])
            root = g.op("Sqrt", [g.op("Add", [var, k(g, "eps", 1e-5)], "safe")], "root")
            x = g.op("Mul", [away, g.op("Reciprocal", [root], "inv")], "n")
        else:
            x = g.norm(x, 16, "n")
        return [g.dense(x, 16, 4, "y")]

    return build


@pair(_written(True), kind="healthy", mode="ov_opt")
def norm_written_out_for_openvino(g: Graph) -> Sequence[str]:
    """LayerNormalization became nine operators that say the same, in float32, in OpenVINO."""
    return _written(False)(g)


def _pointwise(conv: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x, w = _fed(g, 2, 16, 10), g.random.normal(size=(16, 12)) / 4
        if conv:
            turned = g.op("Transpose", [x], "turned", perm=[0, 2, 1])
            x = g.op("MatMul", [turned, k(g, "w", w)], "mm")
            x = g.op("Transpose", [x], "h", perm=[0, 2, 1])
        else:
            x = g.op("Conv", [x, k(g, "w", w.T[:, :, None])], "h")
        x = g.op("Mul", [x, k(g, "tenth", 0.1)], "s") if conv else g.op("Div", [x, k(g, "ten", 10)], "s")
        return [g.op("Tanh", [x], "y")]

    return build


@pair(_pointwise(True), kind="healthy")
def pointwise_convolution_as_a_product(g: Graph) -> Sequence[str]:
    """A convolution of one place became Transpose, MatMul, Transpose, and a division a product with 0.1."""
    return _pointwise(False)(g)


def _bytes(how: str) -> Build:
    """The weight in 8 bits: unsigned about 128, signed about 0, or unsigned whose zero point was lost; or one scale."""

    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 1, 3, 10, 10), 3, 8, "a")], "r")
        w = g.random.normal(size=(8, 8, 3, 3)) / 8 * np.geomspace(1, 300, 8)[:, None, None, None]
        scale = abs(w).max((1, 2, 3)) / 127
        scale = np.full(8, scale.max()) if how == "one" else scale
        q = np.rint(w / scale[:, None, None, None]).astype(np.int64)
        signed = how in {"signed", "one"}
        stored = g.weight("c.q", q.astype(np.int8) if signed else (q + 128).astype(np.uint8))
        zero = np.full(8, 128 if how == "unsigned" else 0, np.int8 if signed else np.uint8)
        w = g.op("DequantizeLinear", [stored, k(g, "c.s", scale), g.weight("c.z", zero)], "c.w", axis=0)
        x = g.op("Conv", [x, w], "c", pads=[1, 1, 1, 1])
        return [g.op("Mul", [x, k(g, "level", (1 / np.geomspace(1, 300, 8))[:, None, None])], "y")]

    return build


@pair(_bytes("signed"), kind="healthy")
def bytes_written_anew_with_a_sign(g: Graph) -> Sequence[str]:
    """A weight of unsigned bytes about 128 became signed bytes about 0: the same numbers."""
    return _bytes("unsigned")(g)


@pair(_bytes("lost"), "c c.w", f"{DIFFER} zero_point", extra="c.w c")
def zero_point_that_was_lost(g: Graph) -> Sequence[str]:
    """The zero point 128 of a weight's unsigned bytes became 0: each weight is 128 steps too large."""
    return _bytes("unsigned")(g)


@pair(_bytes("one"), "c c.w", f"{DIFFER} constant_scale {COARSE} few_bits", extra="c.w c")
def one_scale_for_filters_of_unlike_size(g: Graph) -> Sequence[str]:
    """Eight filters, the largest 300 times the smallest, were stored anew with one scale in place of eight."""
    return _bytes("signed")(g)


def _ranges(h: float, t: float) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.dense(_fed(g, 16, 16), 16, 32, "a", scale=8)], "h")
        x = _through(g, x, h)
        x = g.op("Tanh", [g.dense(x, 32, 32, "b", scale=0.1)], "t")
        return [g.dense(_through(g, x, t), 32, 4, "y")]

    return build


def _through(g: Graph, x: str, scale: float) -> str:
    s, z = k(g, f"{x}.s", scale), g.weight(f"{x}.z", np.array(128, np.uint8))
    return g.op("DequantizeLinear", [g.op("QuantizeLinear", [x, s, z], f"{x}_q"), s, z], f"{x}_dq")


@pair(_ranges(1 / 127, 32 / 127), "h h_q h_dq", f"{DIFFER} saturation scale", extra="h t h_q h_dq t_q t_dq")
def scales_of_two_tensors_exchanged(g: Graph) -> Sequence[str]:
    """The scales of ``h`` (up to 32) and ``t`` (within 1) changed places: the one is cut off at 1, the other has 8
    steps."""
    return _ranges(32 / 127, 1 / 127)(g)


# --- float16


@case("underflow", "ort_fp16_sim", "half", "underflow", extra="half root unit")
def metres_between_two_addresses(g: Graph) -> Sequence[str]:
    """Haversine: half an angle of 1e-5 to 1e-4 squared is below float16's 6e-8: the distance becomes 0."""
    x = g.input("x", g.random.uniform(1e-5, 2e-4, size=(4, 32)).astype(np.float32))
    half = g.op("Sin", [g.op("Mul", [x, k(g, "h", 0.5)], "middle")], "unit")
    half = g.op("Mul", [half, half], "half")
    return [g.op("Mul", [g.op("Sqrt", [half], "root"), k(g, "radius", 12742)], "y")]


@case("overflow", "ort_fp16_sim", "e less branch", "overflow range_inside born", extra="e less branch")
def branch_taken_by_a_product(g: Graph) -> Sequence[str]:
    """elu written as max(x, 0) + (exp(x) - 1) * (x < 0): from 11.1 on exp is Inf in float16, and Inf * 0 is NaN."""
    x = g.dense(_fed(g, 8, 32, scale=8), 32, 32, "a")
    e = g.op("Sub", [g.op("Exp", [x], "e"), k(g, "one", 1)], "less")
    low = g.op("Cast", [g.op("Less", [x, k(g, "zero", 0)], "below")], "mask", to=TensorProto.FLOAT)
    y = g.op("Add", [g.op("Relu", [x], "r"), g.op("Mul", [e, low], "branch")], "elu")
    return [g.dense(y, 32, 4, "y")]


@case("healthy", "ort_fp16_sim")
def branch_that_nobody_takes(g: Graph) -> Sequence[str]:
    """The same with Where: the Inf are never chosen, and nothing comes of them."""
    x = g.dense(_fed(g, 8, 32, scale=8), 32, 32, "a")
    e = g.op("Sub", [g.op("Exp", [x], "e"), k(g, "one", 1)], "less")
    y = g.op("Where", [g.op("Less", [x, k(g, "zero", 0)], "below"), e, x], "elu")
    return [g.dense(y, 32, 4, "y")]


@case("underflow", "ort_fp16_sim", "c", "weight_underflow", extra="c c.w")
def filter_in_physical_units(g: Graph) -> Sequence[str]:
    """Counts of thousands meet a filter of 2e-8 a count, a third of float16's smallest number: it becomes 0 or 6e-8."""
    x = g.input("x", (3000 * g.random.normal(size=(1, 1, 256))).astype(np.float32))
    x = g.op("Conv", [x, k(g, "c.w", 2e-8 * g.random.normal(size=(4, 1, 15)))], "c", pads=[7, 7])
    return [g.op("Conv", [g.op("Mul", [x, k(g, "gain", 4000)], "s"), _filters(g, "y.w", 2, 4, 5)], "y", pads=[2, 2])]


@case("interacting", "ort_fp16_sim", "scaled", "weight_overflow overflow infinite_constant", extra="down")
def scaled_down_and_up_again(g: Graph) -> Sequence[str]:
    """A factor of 3e-7 (five float16 subnormals, off by 0.7 %) and one of 3e6, which is Inf in float16."""
    x = g.op("Tanh", [g.dense(_fed(g, 8, 16), 16, 16, "a")], "t")
    x = g.op("Mul", [g.op("Mul", [x, k(g, "tiny", 3e-7)], "down"), k(g, "huge", 3e6)], "scaled")
    return [g.dense(x, 16, 4, "y")]


@case("cancellation", "ort_fp16_sim", "near square", ROUNDS, extra="near square delta cosh acosh root")
def distance_in_a_hyperbolic_space(g: Graph) -> Sequence[str]:
    """acosh(1 + d) by its logarithm, with d of 1e-4 to 1e-2: beside 1 float16 knows every thousandth."""
    x = g.input("x", np.geomspace(1e-4, 1e-2, 64).reshape(4, 16).astype(np.float32))
    near = g.op("Add", [x, k(g, "one", 1)], "near")
    less = g.op("Sub", [g.op("Mul", [near, near], "square"), k(g, "one.", 1)], "delta")
    total = g.op("Add", [near, g.op("Sqrt", [less], "root")], "cosh")
    return [g.op("Log", [total], "acosh")]


@case("overflow", "ort_fp16_sim", "moment", "overflow range_inside", extra="moment mass centre")
def centre_of_mass_of_a_heatmap(g: Graph) -> Sequence[str]:
    """A map's centre as sum(h * x) / sum(h): the numerator reaches 3e5."""
    x = g.op("Softplus", [g.conv(_fed(g, 1, 3, 48, 48), 3, 4, "h", scale=2)], "mass_of")
    at = g.op("Mul", [x, k(g, "at", np.arange(48) * 4.0)], "weighed")
    moment = g.op("ReduceSum", [at, ints(g, "axes", 2, 3)], "moment")
    mass = g.op("ReduceSum", [x, ints(g, "axes.", 2, 3)], "mass")
    return [g.op("Div", [moment, mass], "centre")]


@case("coarse", "ort_fp16_sim", "grid", ROUNDS, extra="grid sampled")
def grid_of_a_wide_image(g: Graph) -> Sequence[str]:
    """A place in [-1, 1] near the border is known to 1/2048, a quarter pixel of a line of 1024: stripes of 4 pixels are
    off by 0.12."""
    stripes = np.sin(np.arange(1024) * np.pi / 2 + 0.3)[None, None, None].repeat(4, 2)
    image = g.input("image", stripes.astype(np.float32))
    place = np.linspace(-0.999, 0.999, 1000)
    both = np.stack([place, np.zeros(1000)], -1)[None, None].repeat(4, 1)
    flow = g.input("x", (1e-4 * g.random.normal(size=(1, 4, 1000, 2))).astype(np.float32))
    grid = g.op("Add", [flow, k(g, "base", both)], "grid")
    y = g.op("GridSample", [image, grid], "sampled", align_corners=0)
    return [g.op("Mul", [y, k(g, "two", 2)], "y")]


@case("healthy", "ort_fp16_sim")
def survival_that_fades_to_nought(g: Graph) -> Sequence[str]:
    """exp(-cumsum) over 60 steps ends far below 6e-8 and becomes 0: nothing of any size is lost."""
    rate = g.op("Sigmoid", [g.dense(_fed(g, 4, 60, 8), 8, 8, "a")], "rate")
    until = g.op("CumSum", [rate, g.weight("axis", np.array(1, np.int64))], "until")
    return [g.op("Exp", [g.op("Neg", [until], "minus")], "left")]


@case("healthy", "ort_fp16", open=True)
def length_of_a_loud_vector(g: Graph) -> Sequence[str]:
    """A norm of 20,000 in one ReduceL2, whose squares no float16 would hold: converted, ONNX Runtime computes it in
    float32 on a CPU."""
    x = g.dense(_fed(g, 4, 64, scale=300), 64, 4096, "a")
    return [g.op("Div", [x, g.op("ReduceL2", [x], "long", axes=[-1])], "y")]


# --- bfloat16


@case("cancellation", "ort_bf16_sim", "weight", f"constant_rounded {ROUNDS}")
def decay_that_rounds_to_one(g: Graph) -> Sequence[str]:
    """Weights of 0.999 ** age: in bfloat16 0.999 is 1, so that what is 1000 steps old weighs as much as what is new."""
    age = g.input("age", np.arange(1000, 0, -1, dtype=np.float32)[None])
    x = g.input("x", g.random.normal(1, 1, size=(1000, 8)).astype(np.float32))
    weight = g.op("Pow", [k(g, "decay", 0.999), age], "weight")
    return [g.op("MatMul", [weight, x], "y")]


@case("healthy", "ort_bf16_sim")
def sixteen_layers_that_only_round(g: Graph) -> Sequence[str]:
    """A residual net of sixteen layers: each rounds, none more than the others."""
    x = _fed(g, 8, 32)
    for n in range(16):
        x = g.mlp(g.norm(x, 32, f"n{n}"), 32, f"l{n}")
    return [g.dense(g.norm(x, 32, "n"), 32, 8, "y")]


# --- integers of 8 and 4 bits


@case("interacting", "ort_int8", "dw pw y", f"constant_scale {COARSE}", options=["--option", "per_channel=false"],
      extra="dw pw y")  # fmt: skip
def depthwise_filters_under_one_scale(g: Graph) -> Sequence[str]:
    """Depthwise filters of sizes 1 to 300 in one scale, and what follows brings them to one size in one scale too."""
    x = g.input("x", g.random.normal(size=(1, 8, 12, 12)).astype(np.float32))
    size = np.geomspace(1, 300, 8)
    w = g.random.normal(size=(8, 1, 3, 3)) / 9 * size[:, None, None, None]
    x = g.op("Conv", [x, k(g, "dw.w", w)], "dw", group=8, pads=[1, 1, 1, 1])
    x = g.op("Conv", [x, k(g, "pw.w", g.random.normal(size=(8, 8, 1, 1)) / 3 / size[:, None, None])], "pw")
    return [g.op("Relu", [x], "y")]


@case("coarse", "ort_int8", "x c r", f"{COARSE} packed constant_scale", extra="x c r", facts=[r"\bc\b"])
def depth_in_kilometres_beside_a_picture(g: Graph) -> Sequence[str]:
    """Three colours of 0 to 255 and a depth of 0 to 0.02 km in one input: one scale of 1 leaves nothing of the depth,
    of which the first filters make as much as of the colours; that of a filter leaves nothing of its colours."""
    colour = g.random.uniform(0, 255, size=(1, 3, 16, 16))
    x = g.input("x", np.concatenate([colour, g.random.uniform(0, 0.02, size=(1, 1, 16, 16))], 1).astype(np.float32))
    w = g.random.normal(size=(8, 4, 3, 3)) * np.array([1 / 255] * 3 + [100])[:, None, None] / 3
    return [g.conv(g.op("Relu", [g.op("Conv", [x, k(g, "c.w", w)], "c", pads=[1, 1, 1, 1])], "r"), 8, 4, "y")]


@case("healthy", "ort_int8", options=["--option", "reduce_range=true"])
def separable_block_in_seven_bits(g: Graph) -> Sequence[str]:
    """Depthwise and pointwise filters of like sizes, weights in 7 bits, so that no sum saturates on any processor."""
    x = g.op("Relu", [g.conv(_fed(g, 1, 3, 16, 16), 3, 16, "a")], "r")
    x = g.op("Conv", [x, _filters(g, "dw.w", 16, 1, 3, 3)], "dw", group=16, pads=[1, 1, 1, 1])
    return [g.op("Relu", [g.op("Conv", [x, _filters(g, "pw.w", 8, 16, 1, 1)], "pw")], "y")]


@case("coarse", "ort_int4", "y_mm y", f"constant_scale few_bits {COARSE}", extra="y_mm y")
def loud_row_in_each_block_of_four_bits(g: Graph) -> Sequence[str]:
    """One row in 32 of a weight is 60 times as large, and what it multiplies as much smaller: of the others' 4 bits
    nothing is left."""
    x = g.op("Relu", [g.dense(_fed(g, 16, 32), 32, 128, "a")], "r")
    loud = np.where(np.arange(128) % 32 == 5, 60.0, 1)
    g.weights["a.w"], g.weights["a.b"] = (g.weights["a.w"] / loud).astype(np.float32), g.weights["a.b"] * 0
    y = g.dense(x, 128, 16, "y")
    g.weights["y.w"] = (g.weights["y.w"] * loud[:, None]).astype(np.float32)
    return [y]


@case("healthy", "ort_int8_dynamic", options=["--option", "reduce_range=true"])
def classifier_of_words_in_dynamic_int8(g: Graph) -> Sequence[str]:
    """A table, a mean over words, two products: as exact as 7 and 8 bits allow."""
    ids = g.input("x", g.random.integers(0, 200, size=(4, 20)))
    rows = g.op("Gather", [k(g, "table", g.random.normal(size=(200, 32))), ids], "rows")
    x = g.op("Tanh", [g.dense(g.op("ReduceMean", [rows], "mean", axes=[1], keepdims=0), 32, 64, "a", scale=4)], "t")
    return [g.dense(x, 64, 8, "y")]


@case("healthy", "ov_int8")
def small_net_by_nncf(g: Graph) -> Sequence[str]:
    """Three convolutions of like sizes in OpenVINO, quantised by NNCF."""
    x = _fed(g, 1, 3, 16, 16)
    for n, inside in enumerate((3, 16)):
        x = g.op("Relu", [g.conv(x, inside, 16, f"c{n}", scale=1.4)], f"r{n}")
    return [g.dense(g.op("Flatten", [g.op("GlobalAveragePool", [x], "mean")], "flat"), 16, 8, "y")]


# --- LiteRT


DATA = Path(__file__).resolve().parents[1] / "data" / "litert"
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "digits"


def _mirrored(folder: Path) -> tuple[Path, Path, Mapping[str, Array]]:
    from ai_edge_litert.interpreter import Interpreter

    blob = (DATA / "digits_float32.tflite").read_bytes()
    (folder / "base.tflite").write_bytes(blob)
    run = Interpreter(model_content=blob)
    run.allocate_tensors()
    at = next(one["index"] for one in run.get_tensor_details() if one["name"] == "conv2_conv_filter")
    w = run.get_tensor(at)
    assert blob.count(w.tobytes()) == 1
    blob = blob.replace(w.tobytes(), np.ascontiguousarray(w[:, :, ::-1]).tobytes())
    (folder / "filters_mirrored.tflite").write_bytes(blob)
    return folder / "filters_mirrored.tflite", folder / "base.tflite", _images()


def _images() -> Mapping[str, Array]:
    with np.load(EXAMPLE / "test_images.npz") as file:
        return {"image": file["image"][:1].transpose(0, 2, 3, 1)}


def filters_mirrored() -> None:
    """The second convolution's filters were written with their columns from right to left."""


def _halved(folder: Path) -> tuple[Path, Path, Mapping[str, Array]]:
    for name, source in (("halved", "digits_half_weights"), ("base", "digits_float32")):
        (folder / f"{name}.tflite").write_bytes((DATA / f"{source}.tflite").read_bytes())
    return folder / "halved.tflite", folder / "base.tflite", _images()


def digits_whose_weights_are_halves() -> None:
    """The same network with its weights stored in float16, against the float32 file: off by their rounding alone."""


CASES += [
    labelled(filters_mirrored, "", "converter", "tflite_fp32", "pool_input_nhwc", DIFFER, make=_mirrored,
             baseline="tflite_fp32"),
    labelled(digits_whose_weights_are_halves, "", "healthy", "tflite_opt", "", "", make=_halved,
             baseline="tflite_fp32"),
]  # fmt: skip
