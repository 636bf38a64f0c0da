"""A fifteenth batch, by somebody who built none of it: files that a tool smoothed, equalised, merged or folded (some
are right, though every constant differs), two faults in one file, a harmless oddity beside a fault, formulas in
float16 and bfloat16, 8 and 4 bits, OpenVINO's IR, LiteRT's bytes. Labelled before the tool was run on any; what a
docstring states was measured in the stock engine or numpy (``python tests/planted/fourteenth_truth.py fifteenth``)."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from planted import fourteenth_onnx
from planted.fourteenth_onnx import DATA, ROUNDS, _fed, _filters, _images
from planted.onnx_faults import Array, Graph, _body, _info
from planted.onnx_further import ints, k
from planted.twelfth.case import COARSE, DIFFER, Build, Thread, graph, labelled

CASES: list[Thread] = []
Make = Callable[[Path], tuple[Path, Path, Mapping[str, Array]]]
SEVEN = ["--option", "reduce_range=true"]
INFINITE = "weight_overflow infinite_constant overflow"


case, pair = (functools.partial(one, cases=CASES) for one in (fourteenth_onnx.case, fourteenth_onnx.pair))


# --- smoothed, equalised, merged, folded


def _smoothed(missed: str) -> Build:
    """missed: "" nothing was smoothed; "none" all readers got the factor; "v" one did not."""

    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 2, 6, 16)
        s = np.geomspace(1, 20, 16) if missed else np.ones(16)
        g.norm(x, 16, "n")
        g.weights["n.g"], g.weights["n.z"] = (np.ones(16) / s).astype(np.float32), (0.3 / s).astype(np.float32)
        for name in "qkv":
            g.dense("n", 16, 16, name)
            if name != missed:
                g.weights[f"{name}.w"] = (g.weights[f"{name}.w"] * s[:, None]).astype(np.float32)
        score = g.op("MatMul", ["q", g.op("Transpose", ["k"], "kt", perm=[0, 2, 1])], "score")
        share = g.op("Softmax", [g.op("Mul", [score, k(g, "quarter", 0.25)], "scaled")], "share", axis=-1)
        return [g.dense(g.op("MatMul", [share, "v"], "mixed"), 16, 8, "y")]

    return build


ABOUT_N = "n q_mm k_mm v_mm q k v"


@pair(_smoothed("v"), "v_mm v n", extra=ABOUT_N)
def gains_smoothed_and_one_reader_missed(g: Graph) -> Sequence[str]:
    """A norm's gain was divided by s, and q.w and k.w multiplied; v.w, which stayed as it was, lacks the factor. n.g
    exchanged alone mends v and ruins q and k: not "0 % left" of it alone. The right end is v."""
    return _smoothed("")(g)


@pair(_smoothed("none"), kind="healthy")
def gains_smoothed_in_all_readers(g: Graph) -> Sequence[str]:
    """The same done right: the norm and three weights differ in every number, and no output does."""
    return _smoothed("")(g)


def _equalised(yes: bool, cap: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x, s = _fed(g, 1, 3, 12, 12), np.geomspace(0.25, 1, 8) if yes else np.ones(8)
        w, v = g.random.normal(size=(8, 3, 3, 3)), g.random.normal(size=(4, 8, 3, 3)) / 8
        x = g.op("Conv", [x, k(g, "c1.w", w / s[:, None, None, None])], "c1", pads=[1, 1, 1, 1])
        x = g.op("Clip", [x, k(g, "low", 0), k(g, "six", 6)], "r") if cap else g.op("Relu", [x], "r")
        return [g.op("Conv", [x, k(g, "c2.w", v * s[:, None, None])], "c2", pads=[1, 1, 1, 1])]

    return build


@pair(_equalised(True, True), "r c1 c2", extra="c1 c2 r")
def filters_equalised_across_a_cap(g: Graph) -> Sequence[str]:
    """Filters made equal across a ReLU6, whose 6 now cuts earlier in seven of eight channels. c1.w or c2.w alone
    put back makes it worse; both together mend it."""
    return _equalised(False, True)(g)


@pair(_equalised(True, False), kind="healthy")
def filters_equalised_across_a_relu(g: Graph) -> Sequence[str]:
    """The same across a plain ReLU: equal to float32's last digits."""
    return _equalised(False, False)(g)


def _forward(fold: bool, pads: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 1, 3, 12, 12)
        w, v = g.random.normal(size=(8, 3, 3, 3)) / 5, g.random.normal(size=(4, 8, 1, 1)) / 3
        gain, shift = g.random.uniform(0.5, 2, 3), g.random.normal(size=3) * 2
        around = [pads] * 4
        if fold:
            made = [k(g, "w", w * gain[:, None, None]), k(g, "b", (w * shift[:, None, None]).sum((1, 2, 3)))]
            x = g.op("Conv", [x, *made], "c", pads=around)
        else:
            x = g.op("Add", [g.op("Mul", [x, k(g, "gain", gain[:, None, None])], "times"),
                             k(g, "shift", shift[:, None, None])], "n")  # fmt: skip
            x = g.op("Conv", [x, k(g, "w", w)], "c", pads=around)
        return [g.op("Conv", [g.op("Relu", [x], "r"), k(g, "y.w", v)], "y")]

    return build


@pair(_forward(True, 1), "c")
def shift_folded_into_a_padded_filter(g: Graph) -> Sequence[str]:
    """A norm in front of a padded convolution was folded into it: right inside, and wrong in the outermost places: the
    padding is 0 behind the norm, not before it. The filter's numbers are right."""
    return _forward(False, 1)(g)


@pair(_forward(True, 0), kind="healthy")
def shift_folded_into_a_filter(g: Graph) -> Sequence[str]:
    """Without padding the same fold is right."""
    return _forward(False, 0)(g)


def _adapted(scale: float | None) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Tanh", [g.dense(_fed(g, 6, 16), 16, 16, "a")], "t")
        w, a, b = (g.random.normal(size=size) / 4 for size in ((16, 16), (16, 4), (4, 16)))
        last = g.random.normal(size=(16, 4)) / 4
        if scale is None:
            low = g.op("MatMul", [g.op("MatMul", [x, k(g, "A", a)], "down"), k(g, "B", b)], "up")
            low = g.op("Mul", [low, k(g, "alpha", 2.0)], "scaled")
            x = g.op("Add", [g.op("MatMul", [x, k(g, "w", w)], "plain"), low], "h")
        else:
            x = g.op("MatMul", [x, k(g, "w", w + scale * a @ b)], "h")
        return [g.op("MatMul", [g.op("Relu", [x], "r"), k(g, "y.w", last)], "y")]

    return build


@pair(_adapted(1.0), "h", extra="h plain")
def adapter_merged_without_its_factor(g: Graph) -> Sequence[str]:
    """An adapter of rank 4 with the factor 2 was added to the weight with a factor of 1."""
    return _adapted(None)(g)


@pair(_adapted(2.0), kind="healthy", mode="ort_opt")
def adapter_merged_as_it_is(g: Graph) -> Sequence[str]:
    """The same with its factor."""
    return _adapted(None)(g)


def _reparametrised(how: str) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 1, 3, 10, 10), 3, 8, "a")], "r")
        w, p = g.random.normal(size=(8, 8, 3, 3)) / 9, g.random.normal(size=(8, 8, 1, 1)) / 4
        last = g.random.normal(size=(4, 8, 1, 1)) / 3
        if how:
            w[:, :, 1, 1] += p[:, :, 0, 0] + (np.eye(8) if how == "whole" else 0)
            x = g.op("Conv", [x, k(g, "w", w)], "sum", pads=[1, 1, 1, 1])
        else:
            wide = g.op("Conv", [x, k(g, "w3", w)], "wide", pads=[1, 1, 1, 1])
            both = g.op("Add", [wide, g.op("Conv", [x, k(g, "w1", p)], "narrow")], "both")
            x = g.op("Add", [both, x], "sum")
        return [g.op("Conv", [g.op("Relu", [x], "s"), k(g, "y.w", last)], "y")]

    return build


@pair(_reparametrised("part"), "sum")
def block_merged_without_its_identity(g: Graph) -> Sequence[str]:
    """Three branches became one filter, of which the identity was forgotten."""
    return _reparametrised("")(g)


@pair(_reparametrised("whole"), kind="healthy", mode="ov_opt")
def block_merged_with_its_identity(g: Graph) -> Sequence[str]:
    """The same with all three, in OpenVINO."""
    return _reparametrised("")(g)


def _unit(axes: tuple[int, ...] | None) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x, v = _fed(g, 1, 4, 10, 10), g.random.normal(size=(8, 4, 3, 3)) * np.geomspace(1, 3, 4)[:, None, None]
        gain, last = g.random.uniform(1, 2, (8, 1, 1, 1)), g.random.normal(size=(4, 8, 1, 1)) / 3
        if axes:
            x = g.op("Conv", [x, k(g, "w", gain * v / np.sqrt((v**2).sum(axes, keepdims=True)))], "c")
        else:
            long = g.op("ReduceL2", [k(g, "v", v)], "long", axes=[1, 2, 3], keepdims=1)
            w = g.op("Mul", [g.op("Div", ["v", long], "unit"), k(g, "gain", gain)], "weight")
            x = g.op("Conv", [x, w], "c")
        return [g.op("Conv", [g.op("Relu", [x], "r"), k(g, "y.w", last)], "y")]

    return build


@pair(_unit((0, 2, 3)), "c weight", extra="c")
def weight_norm_folded_over_the_other_axis(g: Graph) -> Sequence[str]:
    """v / |v| * g was folded with the length over outputs in place of inputs."""
    return _unit(None)(g)


# --- an index, a form, a count


def _heads(first: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.dense(_fed(g, 2, 6, 32), 32, 96, "qkv")
        shape, perm = ((2, 6, 3, 4, 8), [2, 0, 3, 1, 4]) if first else ((2, 6, 4, 3, 8), [3, 0, 2, 1, 4])
        x = g.op("Transpose", [g.op("Reshape", [x, ints(g, "to", *shape)], "parts")], "turned", perm=perm)
        for n, name in enumerate("qkv"):
            g.op("Gather", [x, g.weight(f"{name}.at", np.array(n, np.int64))], f"{name}_part", axis=0)
        turned = g.op("Transpose", ["k_part"], "kt", perm=[0, 1, 3, 2])
        share = g.op("Softmax", [g.op("MatMul", ["q_part", turned], "score")], "share", axis=-1)
        x = g.op("Transpose", [g.op("MatMul", [share, "v_part"], "mixed")], "back", perm=[0, 2, 1, 3])
        return [g.dense(g.op("Reshape", [x, ints(g, "flat.to", 2, 6, 32)], "flat"), 32, 4, "y")]

    return build


@pair(_heads(True), "parts turned", extra="parts turned q_part k_part v_part")
def heads_in_the_order_of_another_model(g: Graph) -> Sequence[str]:
    """A packed product was written (head, 3, size) and is read (3, head, size)."""
    return _heads(False)(g)


def _centred(keep: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.dense(_fed(g, 16, 16), 16, 16, "a")
        x = g.op("Sub", [x, g.op("ReduceMean", [x], "mean", axes=[1], keepdims=keep)], "away")
        return [g.dense(g.op("Tanh", [x], "t"), 16, 4, "y")]

    return build


@pair(_centred(0), "away mean", extra="away mean", facts=["keepdims|away"])
def mean_taken_from_the_columns(g: Graph) -> Sequence[str]:
    """keepdims 0 on a square: the means of the rows, all right, are taken from the columns."""
    return _centred(1)(g)


def _last_word(at: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.mlp(g.norm(_fed(g, 2, 7, 16), 16, "n"), 16, "h")
        x = g.op("Gather", [x, g.weight("at", np.array(at, np.int64))], "last", axis=1)
        return [g.dense(x, 16, 4, "y")]

    return build


@pair(_last_word(0), "last", mode="ov_opt", facts=[r"\bat\b"])
def last_word_that_became_the_first(g: Graph) -> Sequence[str]:
    """Index -1 was cut off at 0, in OpenVINO."""
    return _last_word(-1)(g)


@pair(_last_word(6), kind="healthy", mode="ov_opt")
def last_word_by_its_number(g: Graph) -> Sequence[str]:
    """Index -1 of seven became 6: the same."""
    return _last_word(-1)(g)


def _looped(steps: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x, w = g.dense(_fed(g, 4, 8), 8, 8, "a"), (g.random.normal(size=(8, 8)) / 2).astype(np.float32)
        body = _body(
            [
                helper.make_node("Identity", ["go"], ["go_on"], name="body_go"),
                helper.make_node("MatMul", ["state", "turn"], ["moved"], name="body_mm"),
                helper.make_node("Tanh", ["moved"], ["next"], name="body_tanh"),
            ],
            [_info("i", [], TensorProto.INT64), _info("go", [], TensorProto.BOOL), _info("state", [4, 8])],
            [_info("go_on", [], TensorProto.BOOL), _info("next", [4, 8])],
            {"turn": w},
        )
        told = [g.weight("count", np.array(steps, np.int64)), g.weight("yes", np.array(True))]
        return [g.dense(g.op("Loop", [*told, x], "h", body=body), 8, 4, "y")]

    return build


@pair(_looped(5), "h moved@5 next@5 moved next", extra="h moved@5 next@5", facts=["count"])
def loop_that_ends_a_step_early(g: Graph) -> Sequence[str]:
    """Six steps became five; each step that runs is right."""
    return _looped(6)(g)


def _begun(known: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 6, 2, 8)
        told = [k(g, name, g.random.normal(size=(1, 36, n)) / 3) for name, n in (("w", 8), ("r", 12))]
        seen = g.input("seen", g.random.normal(size=(2, 8)).astype(np.float32))
        state = g.op("Unsqueeze", [g.dense(seen, 8, 12, "s"), ints(g, "first", 0)], "start")
        g.op("GRU", [x, *told, k(g, "b", g.random.normal(size=(1, 72)) / 3), "", state if known else ""], "h",
             hidden_size=12, linear_before_reset=1)  # fmt: skip
        y = g.dense(g.op("Squeeze", ["h", ints(g, "one", 1)], "flat"), 12, 4, "y")
        return [y, g.op("Tanh", [state], "z")]

    return build


@pair(_begun(False), "h", facts=["start|initial"])
def state_that_a_decoder_forgets(g: Graph) -> Sequence[str]:
    """A GRU's first state, which an encoder gives, was dropped: it begins at 0."""
    return _begun(True)(g)


def _gated(alpha: float, epsilon: float) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.conv(_fed(g, 1, 3, 12, 12), 3, 8, "a", scale=2)
        told = [k(g, name, one) for name, one in zip("gzmv", ([1] * 8, [0] * 8, [0] * 8, [1] * 8), strict=True)]
        x = g.op("BatchNormalization", [x, *told], "bn", epsilon=epsilon)
        gate = g.op("HardSigmoid", [x], "gate", alpha=alpha, beta=0.5)
        return [g.conv(g.op("Mul", [x, gate], "swish"), 8, 4, "y")]

    return build


@pair(_gated(0.2, 1.00001e-5), "gate", facts=["alpha"])
def slope_of_keras_beside_another_epsilon(g: Graph) -> Sequence[str]:
    """HardSigmoid's slope of 1/6 became the default 0.2; a norm's epsilon differs too, by nothing that matters."""
    return _gated(1 / 6, 1e-5)(g)


def _probable(twice: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.dense(g.mlp(_fed(g, 6, 16), 16, "a"), 16, 5, "logits")
        x = g.op("Sigmoid", [x], "chance") if twice else x
        return [g.op("Sigmoid", [x], "y")]

    return build


@pair(_probable(True), "y chance", extra="y chance logits", facts=["Sigmoid"])
def chance_of_a_chance(g: Graph) -> Sequence[str]:
    """A second Sigmoid was put behind the head's own."""
    return _probable(False)(g)


def _suppressed(turned: bool, centre: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        low = g.random.uniform(0, 8, size=(1, 40, 2))
        x = g.input("x", np.concatenate([low, low + g.random.uniform(1, 4, size=(1, 40, 2))], 2).astype(np.float32))
        score = g.input("score", g.random.permutation(40).astype(np.float32).reshape(1, 1, 40) / 40)
        boxes = g.op("Gather", [x, ints(g, "turn", 1, 0, 3, 2)], "boxes", axis=2) if turned else x
        limits = [ints(g, "most", 20), k(g, "overlap", [0.3]), k(g, "least", [0.1])]
        g.op("NonMaxSuppression", [boxes, score, *limits], "kept", center_point_box=centre)
        column = g.op("Gather", ["kept", ints(g, "two", 2)], "column", axis=1)
        place = g.op("Squeeze", [column, ints(g, "one", 1)], "place")
        return [g.op("Gather", [x, place], "y", axis=1)]

    return build


@pair(_suppressed(True, 0), kind="healthy")
def corners_told_as_y_and_x(g: Graph) -> Sequence[str]:
    """Boxes with x and y exchanged overlap as before: the same are kept."""
    return _suppressed(False, 0)(g)


@pair(_suppressed(False, 1), "kept", extra="kept column place y", facts=["center_point_box"])
def corners_read_as_centres(g: Graph) -> Sequence[str]:
    """center_point_box became 1: other boxes, and another number of them, are kept."""
    return _suppressed(False, 0)(g)


def _two_heads(mode: str, axis: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(_fed(g, 1, 3, 8, 8), 3, 8, "a")], "r")
        up = g.op("DepthToSpace", [g.conv(x, 8, 8, "p")], "up", blocksize=2, mode=mode)
        share = g.op("Softmax", [g.conv(x, 8, 8, "l")], "share", axis=axis)
        return [g.conv(up, 2, 2, "y"), g.op("ReduceMax", [share], "z", axes=[2], keepdims=0)]

    return build


@pair(_two_heads("DCR", -1), "up share", also="up share")
def two_heads_each_with_its_own_fault(g: Graph) -> Sequence[str]:
    """Of two outputs one lost DepthToSpace's order, the other Softmax's axis: both have to be named."""
    return _two_heads("CRD", 1)(g)


def _scored(folded: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = _fed(g, 2, 6, 16)
        for name in "qkv":
            g.dense(x, 16, 16, name, scale=2)
        if folded:
            g.weights["q.w"], g.weights["q.b"] = g.weights["q.w"] / 4, g.weights["q.b"] / 4
        score = g.op("MatMul", ["q", g.op("Transpose", ["k"], "kt", perm=[0, 2, 1])], "score")
        share = g.op("Softmax", [g.op("Mul", [score, k(g, "quarter", 0.25)], "scaled")], "share", axis=-1)
        return [g.dense(g.op("MatMul", [share, "v"], "mixed"), 16, 8, "y")]

    return build


@pair(_scored(True), "q_mm q", extra="q_mm q", facts=[r"\bq\.[wb]\b"])
def scale_of_scores_taken_twice(g: Graph) -> Sequence[str]:
    """The scale of the scores was folded into q's weight and bias, and stands behind the product as before."""
    return _scored(False)(g)


def _placed(begin: int) -> Build:
    def build(g: Graph) -> Sequence[str]:
        ids = g.input("x", g.random.integers(0, 50, size=(2, 9)))
        rows = g.op("Gather", [k(g, "words", g.random.normal(size=(50, 16))), ids], "rows")
        table = k(g, "table", g.random.normal(size=(16, 16)))
        told = [ints(g, name, one) for name, one in (("begin", begin), ("end", begin + 9), ("axis", 0))]
        x = g.op("Add", [rows, g.op("Slice", [table, *told], "places")], "sum")
        return [g.dense(g.norm(x, 16, "n"), 16, 4, "y")]

    return build


@pair(_placed(0), "places", facts=["begin"])
def places_counted_from_nought(g: Graph) -> Sequence[str]:
    """A model whose places begin at row 2 of their table was given rows 0 to 8."""
    return _placed(2)(g)


def _mish(written: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.conv(_fed(g, 1, 3, 10, 10), 3, 8, "a", scale=3)
        if written:
            x = g.op("Mul", [x, g.op("Tanh", [g.op("Softplus", [x], "soft")], "t")], "act")
        else:
            x = g.op("Mish", [x], "act")
        return [g.conv(x, 8, 4, "y")]

    return build


@pair(_mish(True), kind="healthy", opset=18)
def mish_in_three_operators(g: Graph) -> Sequence[str]:
    """Opset 18's Mish became Softplus, Tanh and Mul of opset 17."""
    return _mish(False)(g)


def _biased(right: bool) -> Build:
    def build(g: Graph) -> Sequence[str]:
        x = g.input("x", g.random.uniform(0, 1, size=(1, 3, 10, 10)).astype(np.float32))
        sx = k(g, "x.s", 1 / 255)
        x = g.op("QuantizeLinear", [x, sx, g.weight("x.z", np.array(0, np.uint8))], "x_q")
        x = g.op("DequantizeLinear", [x, sx, "x.z"], "x_dq")
        w, b = g.random.normal(size=(8, 3, 3, 3)), g.random.normal(size=8)
        scale = abs(w).max((1, 2, 3)) / 127
        q = g.weight("w.q", np.rint(w / scale[:, None, None, None]).astype(np.int8))
        g.op("DequantizeLinear", [q, k(g, "w.s", scale)], "w", axis=0)
        stored = g.weight("b.q", np.rint(b / (scale / 255)).astype(np.int32))
        g.op("DequantizeLinear", [stored, k(g, "b.s", scale / 255 if right else scale)], "b", axis=0)
        return [g.op("Relu", [g.op("Conv", [x, "w", "b"], "c", pads=[1, 1, 1, 1])], "y")]

    return build


@pair(_biased(False), "c b", f"{DIFFER} {COARSE}", extra="b c", facts=[r"\bb\b|b\.s"])
def bias_in_the_scale_of_its_weights(g: Graph) -> Sequence[str]:
    """A bias of 32 bits stands in the scale of the weights in place of weights times input: 255 times too large."""
    return _biased(True)(g)


# --- float16 and bfloat16


def _rotary(g: Graph) -> Sequence[str]:
    x = _fed(g, 1, 12, 16)
    share = k(g, "share", -np.arange(8) / 8)
    slow = g.op("Pow", [k(g, "base", 500000), share], "slow")
    angle = g.op("Mul", [k(g, "at", np.arange(12)[:, None]), slow], "angle")
    half = g.op("Concat", [angle, angle], "both", axis=-1)
    turned = g.op("Mul", [x, g.op("Cos", [half], "cos")], "straight")
    across = g.op("Mul", [g.dense(x, 16, 16, "r"), g.op("Sin", [half], "sin")], "across")
    return [g.dense(g.op("Add", [turned, across], "h"), 16, 8, "y")]


@case("overflow", "ort_fp16_sim", "slow", INFINITE, extra="slow angle", facts=[r"\bbase\b"])
def rotary_base_beyond_half(g: Graph) -> Sequence[str]:
    """500000 is Inf in float16: Inf ** -k is 0, finite, and all places but the first pair's are turned by nothing."""
    return _rotary(g)


@case("overflow", "ort_fp16", "slow", f"{INFINITE} constant_rounded {COARSE}", extra="slow angle", facts=[r"\bbase\b"])
def rotary_base_in_a_converted_file(g: Graph) -> Sequence[str]:
    """The converter cuts 500000 off at 65504, and every frequency is larger."""
    return _rotary(g)


@case("born", "ort_fp16_sim", "inner outer less u", f"slope_infinite born overflow underflow {ROUNDS} neighbours",
      extra="inner outer less u y")  # fmt: skip
def noise_by_two_logarithms(g: Graph) -> Sequence[str]:
    """-log(-log(u)): 0.99985 is 1 in float16, whose logarithm is 0, whose logarithm is minus infinity."""
    u = g.random.uniform(0.05, 0.95, size=(4, 16))
    u[1, 3] = 0.99985
    u = g.input("u", u.astype(np.float32))
    inner = g.op("Neg", [g.op("Log", [u], "inner")], "less")
    noise = g.op("Neg", [g.op("Log", [inner], "outer")], "noise")
    return [g.op("Softmax", [g.op("Add", [g.dense(_fed(g, 4, 16), 16, 16, "a"), noise], "sum")], "y", axis=-1)]


@case("healthy", "ort_fp16_sim")
def mean_of_cells_of_which_some_are_empty(g: Graph) -> Sequence[str]:
    """sum / count is 0 / 0 in the empty cells on both sides, and Where takes 0 there."""
    x = _fed(g, 20, 8)
    place = np.eye(6)[g.random.integers(0, 4, 20)].T
    total = g.op("MatMul", [k(g, "place", place), g.dense(x, 8, 8, "a")], "total")
    count = g.op("MatMul", ["place", k(g, "ones", np.ones((20, 1)))], "count")
    mean = g.op("Div", [total, count], "mean")
    y = g.op("Where", [g.op("Greater", [count, k(g, "zero", 0)], "any"), mean, "zero"], "cells")
    return [g.dense(y, 8, 4, "y")]


@case("overflow", "ort_fp16_sim", "s3", "overflow", extra="s2 s3 c2 c3 last_flat last_in last")
def decoder_whose_stream_grows(g: Graph) -> Sequence[str]:
    """Blocks add 40, 40000 and 40000 times what a norm gives to a stream, which no block but their sum overflows."""
    x = g.conv(_fed(g, 1, 4, 8, 8), 4, 16, "stem")
    for n, size in enumerate((40, 40000, 40000), 1):
        x = g.op("Add", [x, g.conv(g.op("Sigmoid", [_grouped(g, x, f"n{n}")], f"a{n}"), 16, 16, f"c{n}", scale=size)],
                 f"s{n}")  # fmt: skip
    return [g.conv(g.op("Relu", [_grouped(g, x, "last")], "r"), 16, 3, "y")]


def _grouped(g: Graph, x: str, name: str) -> str:
    x = g.op("Reshape", [x, ints(g, f"{name}.to", 1, 4, -1)], f"{name}_flat")
    x = g.op("InstanceNormalization", [x, k(g, f"{name}.g", [1] * 4), k(g, f"{name}.z", [0] * 4)], f"{name}_in")
    return g.op("Reshape", [x, ints(g, f"{name}.back", 1, 16, 8, 8)], name)


def _next_block(g: Graph, x: str, response: bool, size: float = 1) -> str:
    """ConvNeXt: depthwise, norm, two products, a layer scale of 1e-6; V2: a global response in between."""
    y = g.op("Conv", [x, k(g, "dw.w", g.random.normal(size=(8, 1, 3, 3)) / 3)], "dw", group=8, pads=[1, 1, 1, 1])
    y = g.norm(g.op("Transpose", [y], "last", perm=[0, 2, 3, 1]), 8, "n")
    y = g.op("Relu", [g.dense(y, 8, 32, "up", scale=size)], "act")
    if response:
        energy = g.op("ReduceSum", [g.op("Mul", [y, y], "sq"), ints(g, "both", 1, 2)], "energy", keepdims=1)
        long = g.op("Sqrt", [energy], "long")
        mean = g.op("ReduceMean", [long], "mean", axes=[-1])
        y = g.op("Mul", [y, g.op("Div", [long, mean], "share")], "told")
    gamma = g.random.uniform(0.5, 2, 8) * (1e-2 if response else 1e-6)
    y = g.op("Mul", [g.dense(y, 32, 8, "down"), k(g, "gamma", gamma)], "scaled")
    return g.op("Add", [x, g.op("Transpose", [y], "first", perm=[0, 3, 1, 2])], "block")


@case("healthy", "ort_fp16_sim")
def layer_scale_of_a_millionth(g: Graph) -> Sequence[str]:
    """A fresh ConvNeXt block: its gains of 1e-6 have four bits in float16, and what they make is as small."""
    return [g.conv(_next_block(g, g.conv(_fed(g, 1, 3, 8, 8), 3, 8, "stem"), False), 8, 4, "y")]


@case("overflow", "ort_fp16_sim", "energy", "overflow", extra="energy long")
def response_over_a_whole_map(g: Graph) -> Sequence[str]:
    """ConvNeXt V2's response sums the squares of 32 x 32 places: 1024 times 10 ** 2 is beyond 65504; no square is."""
    return [g.conv(_next_block(g, g.conv(_fed(g, 1, 3, 32, 32), 3, 8, "stem"), True, 12), 8, 4, "y")]


@case("amplified", "ort_bf16_sim", "level db y", ROUNDS, extra="db shifted log y level")
def decibels_back_to_pressure(g: Graph) -> Sequence[str]:
    """20 log10(a) + 94 and 10 ** (dB / 20): a level of 100 dB is known to half a decibel, which is up to 3 % of a."""
    x = g.op("Softplus", [g.dense(_fed(g, 4, 16), 16, 32, "a", scale=2)], "loud")
    level = g.op("Mul", [g.op("Log", [x], "log"), k(g, "twenty", 20 / np.log(10))], "db")
    level = g.op("Div", [g.op("Add", [level, k(g, "reference", 94)], "shifted"), k(g, "twice", 20)], "level")
    return [g.op("Pow", [k(g, "ten", 10), level], "y")]


@case("healthy", "ort_bf16_sim")
def raw_pixels_in_bfloat16(g: Graph) -> Sequence[str]:
    """Whole numbers up to 255, less a mean, over a spread, and three convolutions."""
    x = g.input("x", g.random.integers(0, 256, size=(1, 3, 16, 16)).astype(np.float32))
    x = g.op("Div", [g.op("Sub", [x, k(g, "mean", np.array([123.7, 116.3, 103.5])[:, None, None])], "less"),
                     k(g, "spread", np.array([58.4, 57.1, 57.4])[:, None, None])], "n")  # fmt: skip
    for n, inside in enumerate((3, 8)):
        x = g.op("Relu", [g.conv(x, inside, 8, f"c{n}", scale=1.4)], f"r{n}")
    return [g.conv(x, 8, 4, "y")]


@case("cancellation", "ort_bf16_sim", "now next later", ROUNDS, extra="next later step now")
def derivative_of_a_field_by_differences(g: Graph) -> Sequence[str]:
    """(f(x + h) - f(x)) / h with h = 1/64 of a field about 1: bfloat16 steps there by 1/128, half the difference."""
    x = g.input("x", g.random.uniform(0.5, 1.5, size=(1, 1, 64)).astype(np.float32))
    now = g.op("Sin", [x], "now")
    later = g.op("Sin", [g.op("Add", [x, k(g, "h", 1 / 64)], "later")], "next")
    slope = g.op("Div", [g.op("Sub", [later, now], "step"), k(g, "h.", 1 / 64)], "slope")
    return [g.op("Mul", [slope, k(g, "gain", 2)], "y")]


# --- 8 and 4 bits


@case("coarse", "ort_int8", "rows table", f"constant_scale {COARSE}", options=SEVEN, extra="rows table")
def rows_that_nobody_reads(g: Graph) -> Sequence[str]:
    """Four rows of a table of words, never read, are 200 times as large: on their scale all others have one bit."""
    ids = g.input("x", g.random.integers(4, 100, size=(4, 12)))
    table = g.random.normal(size=(100, 16))
    table[:4] *= 200
    rows = g.op("Gather", [k(g, "table", table), ids], "rows")
    x = g.op("Tanh", [g.dense(g.op("ReduceMean", [rows], "mean", axes=[1], keepdims=0), 16, 32, "a", scale=3)], "t")
    return [g.dense(x, 32, 4, "y")]


@case("coarse", "ort_int4", "y_mm y", f"constant_scale few_bits amplified {COARSE}", extra="y_mm y n")
def weights_about_one_in_four_bits(g: Graph) -> Sequence[str]:
    """Weights of 1 +- 0.03 in steps of 1/8 are all alike, and a norm behind asks for what sets them apart."""
    x = g.op("Relu", [g.dense(_fed(g, 16, 32), 32, 128, "a")], "r")
    y = g.dense(x, 128, 32, "y")
    g.weights["y.w"] = (1 + 0.03 * g.random.normal(size=(128, 32))).astype(np.float32)
    return [g.op("Tanh", [g.norm(y, 32, "n")], "z")]


@case("noise", "ort_int4", status=1)
def head_in_four_bits(g: Graph) -> Sequence[str]:
    """Two products of plain weights, as exact as 4 bits allow: off by 0.134, beyond the 0.1 that a mode may be off."""
    return [g.dense(g.op("Relu", [g.dense(_fed(g, 16, 64), 64, 128, "a")], "r"), 128, 32, "y")]


@case("healthy", "ort_int8_dynamic", options=SEVEN)
def tagger_with_an_lstm_in_dynamic_int8(g: Graph) -> Sequence[str]:
    """An LSTM of 16 and a product, in 7 and 8 bits."""
    told = [k(g, name, g.random.normal(size=(1, 64, n)) / 4) for name, n in (("w", 16), ("r", 16))]
    g.op("LSTM", [_fed(g, 8, 2, 16), *told], "h", hidden_size=16)
    return [g.dense(g.op("Squeeze", ["h", ints(g, "one", 1)], "flat"), 16, 4, "y")]


@case("healthy", "ort_int8", options=SEVEN)
def upsampler_by_transposed_filters_in_int8(g: Graph) -> Sequence[str]:
    """A convolution, a transposed one, a convolution, of like sizes."""
    x = g.op("Relu", [g.conv(_fed(g, 1, 3, 8, 8), 3, 8, "a")], "r")
    w = k(g, "up.w", g.random.normal(size=(8, 8, 2, 2)) / 3)
    return [g.conv(g.op("Relu", [g.op("ConvTranspose", [x, w], "up", strides=[2, 2])], "s"), 8, 4, "y")]


@case("healthy", "ort_int8", options=[*SEVEN, "--option", "calibration=entropy"])
def peaks_that_entropy_keeps(g: Graph) -> Sequence[str]:
    """A map near 0 in all but 6 of 4096 places. Entropy has as many bins as steps by default and cuts nothing off: the
    peaks are as exact as all else."""
    x = np.abs(g.random.normal(size=(1, 1, 64, 64))) * 0.3
    x.reshape(-1)[g.random.permutation(4096)[:6]] = 12
    x = g.input("x", x.astype(np.float32))
    w = np.zeros((4, 1, 3, 3))
    w[:, 0, 1, 1] = g.random.uniform(0.8, 1.2, 4)
    heat = g.op("Relu", [g.op("Conv", [x, k(g, "c.w", w)], "heat", pads=[1, 1, 1, 1])], "r")
    return [g.op("Conv", [heat, k(g, "y.w", g.random.uniform(0.1, 0.3, size=(2, 4, 1, 1)))], "y")]


@case("coarse", "ov_int8", "r h", f"packed constant_scale {COARSE}", extra="h r a y")
def one_loud_channel_by_nncf(g: Graph) -> Sequence[str]:
    """One channel of sixteen is 300 times as loud and read 300 times as softly: a scale leaves little of the others."""
    x = g.conv(_fed(g, 1, 3, 12, 12), 3, 16, "a")
    g.weights["a.w"][5] *= 300
    y = g.conv(g.op("Relu", [x], "r"), 16, 8, "h")
    g.weights["h.w"][:, 5] /= 300
    return [g.op("Relu", [y], "y")]


@case("healthy", "ort_opt")
def mobile_block_as_it_ships(g: Graph) -> Sequence[str]:
    """Convolution, BatchNormalization, hard swish, a squeeze and its gate, with every fusion."""
    x = g.conv(_fed(g, 1, 3, 16, 16), 3, 16, "a")
    told = [k(g, name, g.random.uniform(0.5, 1.5, 16)) for name in "gzmv"]
    x = g.op("HardSwish", [g.op("BatchNormalization", [x, *told], "bn")], "hs")
    s = g.op("Conv", [g.op("GlobalAveragePool", [x], "mean"), _filters(g, "s1.w", 4, 16, 1, 1)], "s1")
    s = g.op("HardSigmoid", [g.op("Conv", [g.op("Relu", [s], "sr"), _filters(g, "s2.w", 16, 4, 1, 1)], "s2")], "gate")
    return [g.conv(g.op("Mul", [x, s], "told"), 16, 8, "y")]


# --- OpenVINO's IR, LiteRT


def _saved(small: bool) -> Make:
    def make(folder: Path) -> tuple[Path, Path, Mapping[str, Array]]:
        import openvino as ov

        def build(g: Graph) -> Sequence[str]:
            x = g.op("Relu", [g.conv(_fed(g, 1, 3, 10, 10), 3, 8, "a")], "r")
            g.conv(x, 8, 8, "c")
            if small:
                g.weights["c.w"][:3] *= 5e-8
            level = np.where(np.arange(8) < 3, 2e7, 1)[:, None, None] if small else np.ones((8, 1, 1))
            return [g.conv(g.op("Mul", ["c", k(g, "level", level)], "even"), 8, 4, "y")]

        g, outputs = graph(build)
        base = g.save(folder / "base.onnx", outputs)
        path = folder / "saved.xml"
        ov.save_model(ov.Core().read_model(str(base)), str(path), compress_to_fp16=True)
        return path, base, g.feeds

    return make


def ir_whose_small_filters_became_nought() -> None:
    """save_model's halves: three of eight filters of 1e-8 become 0 or 6e-8, and what lifts them 65504, not 2e7."""


def ir_in_halves() -> None:
    """The same with filters of plain sizes: off by their rounding alone, which is told, as of any converted file."""


def _bytes(name: str, change: Callable[[Any, bytes], bytes]) -> Make:
    def make(folder: Path) -> tuple[Path, Path, Mapping[str, Array]]:
        from ai_edge_litert.interpreter import Interpreter

        blob = (DATA / f"{name}.tflite").read_bytes()
        (folder / "base.tflite").write_bytes(blob)
        run = Interpreter(model_content=blob)
        run.allocate_tensors()
        (folder / "target.tflite").write_bytes(change(run, blob))
        return folder / "target.tflite", folder / "base.tflite", _images()

    return make


def _detail(run: Any, name: str) -> Any:
    return next(one for one in run.get_tensor_details() if one["name"] == name)


def _put(blob: bytes, old: Array, new: Array) -> bytes:
    assert blob.count(old.tobytes()) == 1
    return blob.replace(old.tobytes(), np.ascontiguousarray(new, old.dtype).tobytes())


def _bias(run: Any, blob: bytes) -> bytes:
    two, three = (run.get_tensor(_detail(run, f"conv{n}_conv_bias")["index"]) for n in (2, 3))
    return _put(blob, two, three)


def _rolled(run: Any, blob: bytes) -> bytes:
    w = run.get_tensor(_detail(run, "fc_fc_weights")["index"])
    return _put(blob, w, np.roll(w, 1, 0))


def _scale(run: Any, blob: bytes) -> bytes:
    scales = _detail(run, "conv2_conv_filter")["quantization_parameters"]["scales"].astype(np.float32)
    return _put(blob, scales, scales * np.where(np.arange(16) == 5, 4, 1))


def bias_of_the_third_layer_in_the_second() -> None:
    """The second convolution has the third's bias, of the same length."""


def classes_moved_by_one() -> None:
    """The rows of the last weight moved on by one class; its bias did not."""


def one_filter_with_four_times_its_scale() -> None:
    """In 8 bits: the scale of one of sixteen filters is four times what it was."""


def _sixteen(folder: Path) -> tuple[Path, Path, Mapping[str, Array]]:
    for name, source in (("sixteen", "digits_int16"), ("base", "digits_float32")):
        (folder / f"{name}.tflite").write_bytes((DATA / f"{source}.tflite").read_bytes())
    return folder / "sixteen.tflite", folder / "base.tflite", _images()


def digits_with_activations_in_sixteen_bits() -> None:
    """Weights in 8 bits, activations in 16, against the float file."""


CASES += [
    labelled(ir_whose_small_filters_became_nought, "", "converter", "ov_opt", "even c",
             f"held_narrower weight_underflow {DIFFER}", make=_saved(True), baseline="ort_fp32", extra="c even"),
    labelled(ir_in_halves, "", "converter", "ov_opt", "y c r", "held_narrower", make=_saved(False), baseline="ort_fp32",
             extra="y c r"),
    labelled(bias_of_the_third_layer_in_the_second, "", "converter", "tflite_fp32", "pool_input_nhwc", DIFFER,
             make=_bytes("digits_float32", _bias), baseline="tflite_fp32", facts=["conv2_conv_bias"]),
    labelled(classes_moved_by_one, "", "converter", "tflite_opt", "logits", DIFFER,
             make=_bytes("digits_float32", _rolled), baseline="tflite_fp32", facts=["fc_fc_weights"]),
    labelled(one_filter_with_four_times_its_scale, "", "converter", "tflite_ref", "pool_input_nhwc",
             f"{DIFFER} {COARSE}", make=_bytes("digits_int8", _scale), baseline="tflite_ref",
             facts=["conv2_conv_filter"]),
    labelled(digits_with_activations_in_sixteen_bits, "", "healthy", "tflite_opt", "", "", make=_sixteen,
             baseline="tflite_fp32"),
]  # fmt: skip
