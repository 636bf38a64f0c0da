"""An eighth batch of two files: folds into the wrong side, pairs of Q and DQ that do not fit, opsets that read one
attribute differently, and equal models in unlike forms; written and labelled before any of it was run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper

from planted.eighth_onnx import late
from planted.fourth_files import weights_in_int8, whole_net
from planted.onnx_faults import Array, Graph, _attribute, _body, _info, image, tokens
from planted.onnx_further import _put, ints, k
from planted.unseen import Unseen
from planted.unseen_files import node, weight
from planted.unseen_files import pair as registered

CASES: list[Unseen] = []

OTHER = "files_differ other_arithmetic"


def pair(*words: Any, **more: Any) -> None:
    registered(*words, cases=CASES, **more)


def turned(neighbours: bool) -> Callable[[Graph], Sequence[str]]:
    """Rotated positions: a channel with its other half, or with its neighbour."""

    def build(g: Graph) -> Sequence[str]:
        x = g.norm(tokens(g, 32), 32, "n")
        both = []
        angle = np.outer(np.arange(8), 10000.0 ** -(np.arange(16) / 16))
        cos, sin = k(g, "cos", np.cos(angle)), k(g, "sin", np.sin(angle))
        for one in "qk":
            h = g.dense(x, 32, 32, one)
            steps = ints(g, f"{one}.st", 2 if neighbours else 1)
            ends = ((0, 32), (1, 32)) if neighbours else ((0, 16), (16, 32))
            a, b = (g.op("Slice", [h, ints(g, f"{one}.{n}0", start), ints(g, f"{one}.{n}1", end), ints(
                g, f"{one}.ax", 2), steps], f"{one}_{n}") for n, (start, end) in zip(
                    "ab", ends, strict=True))  # fmt: skip
            first = g.op(
                "Sub", [g.op("Mul", [a, cos], f"{one}_ac"), g.op("Mul", [b, sin], f"{one}_bs")], f"{one}_first"
            )
            last = g.op("Add", [g.op("Mul", [a, sin], f"{one}_as"), g.op("Mul", [b, cos], f"{one}_bc")], f"{one}_last")
            both.append(g.op("Concat", [first, last], f"{one}_r", axis=-1))
        raw = g.op("MatMul", [both[0], g.op("Transpose", [both[1]], "kt", perm=[0, 2, 1])], "raw")
        prob = g.op("Softmax", [g.op("Mul", [raw, k(g, "d", 32**-0.5)], "score")], "prob", axis=-1)
        return [g.dense(g.op("MatMul", [prob, g.dense(x, 32, 32, "v")], "mixed"), 32, 6, "y")]

    return build


pair("neighbours_in_place_of_halves", turned(False), turned(True), "q_a q_b k_a k_b", OTHER, other=True,
     also=("q_b", "k_b"), extra=("q_a", "k_a"))  # fmt: skip


def normed_conv(how: str) -> Callable[[Graph], Sequence[str]]:
    """A convolution and its batch norm, folded into it rightly, along the other axis, or with the other sign."""

    def build(g: Graph) -> Sequence[str]:
        x = g.op("Relu", [g.conv(image(g), 3, 8, "c1")], "r1")
        r = g.random
        w = r.normal(size=(8, 8, 3, 3)) / np.sqrt(72)
        gain, beta, mean, var = r.uniform(0.4, 1.6, 8), r.normal(size=8), r.normal(size=8) / 2, r.uniform(0.5, 2, 8)
        factor = gain / np.sqrt(var + 1e-5)
        if how:
            along = factor[None, :, None, None] if how == "inside" else factor[:, None, None, None]
            shift = beta + (mean if how == "sign" else -mean) * factor
            x = g.op("Conv", [x, k(g, "c2.w", w * along), k(g, "c2.b", shift)], "bn", pads=[1, 1, 1, 1])
        else:
            x = g.op("Conv", [x, k(g, "c2.w", w)], "c2", pads=[1, 1, 1, 1])
            x = g.op("BatchNormalization", [x, k(g, "s", gain), k(g, "b", beta), k(g, "m", mean), k(g, "v", var)], "bn",
                     epsilon=1e-5)  # fmt: skip
        return [g.conv(g.op("Relu", [x], "r2"), 8, 4, "y")]

    return build


pair("fold_along_the_inside", normed_conv(""), normed_conv("inside"), "bn", OTHER, other=True, extra=("c2",))
pair("fold_with_the_sign_of_the_mean", normed_conv(""), normed_conv("sign"), "bn", OTHER, other=True, extra=("c2",))
pair("fold_beside_its_batch_norm", normed_conv(""), normed_conv("right"), other=True, kind="equal")


def deviation(how: str) -> Callable[[Graph], Sequence[str]]:
    """Small activations by their deviation; the epsilon lies inside of the root, or outside."""

    def build(g: Graph) -> Sequence[str]:
        x = g.op("Mul", [g.dense(tokens(g), 32, 32, "a"), k(g, "few", 0.02)], "small")
        c = g.op("Sub", [x, g.op("ReduceMean", [x], "mean", axes=[-1])], "c")
        var = g.op("ReduceMean", [g.op("Mul", [c, c], "sq")], "var", axes=[-1])
        eps = k(g, "eps", 1e-3)
        if how == "outside":
            root = g.op("Add", [g.op("Sqrt", [var], "bare"), eps], "root")
        else:
            root = g.op("Sqrt", [g.op("Add", [var, eps], "floor")], "root")
        return [g.dense(g.op("Div", [c, root], "n"), 32, 6, "y")]

    return build


pair("epsilon_outside_of_its_root", deviation("inside"), deviation("outside"), "root", OTHER, other=True,
     extra=("bare", "floor"))  # fmt: skip


def by_samples(g: Graph) -> Sequence[str]:
    """A variance over 8 numbers, by their count."""
    x = g.dense(tokens(g), 32, 8, "a")
    c = g.op("Sub", [x, g.op("ReduceMean", [x], "mean", axes=[-1])], "c")
    ss = g.op("ReduceSum", [g.op("Mul", [c, c], "sq"), ints(g, "axes", -1)], "ss")
    var = g.op("Div", [ss, k(g, "count", 8)], "var")
    return [g.dense(g.op("Div", [c, g.op("Sqrt", [var], "root")], "n"), 8, 6, "y")]


pair("variance_of_one_less", by_samples, _put("count", (), 7.0), "var")


def shares(opset: int) -> Callable[[Graph], Sequence[str]]:
    """Softmax over axis 1: up to opset 12 over all that follows, too."""

    def build(g: Graph) -> Sequence[str]:
        g.opset = opset
        x = g.dense(tokens(g), 32, 16, "a")
        p = g.op("Softmax", [x], "p", axis=1)
        return [g.dense(g.op("Mul", [x, p], "gated"), 16, 6, "y")]

    return build


pair("softmax_of_an_early_opset", shares(17), shares(11), "p", OTHER, other=True)


def picture(g: Graph) -> Sequence[str]:
    g.opset = 18
    x = g.op("Pad", [image(g), ints(g, "pads", 0, 0, 1, 1, 0, 0, 1, 1)], "padded", mode="reflect")
    x = g.op("Conv", [x, k(g, "c.w", g.random.normal(size=(8, 3, 3, 3)) / 4)], "c")
    x = g.op("Resize", [g.op("Relu", [x], "r"), "", k(g, "sc", [1, 1, 2, 2])], "up", mode="cubic", cubic_coeff_a=-0.75)
    x = g.op("Resize", [x, "", k(g, "sd", [1, 1, 0.25, 0.25])], "down", mode="linear", antialias=1)
    return [g.conv(x, 8, 4, "y")]


pair("coefficient_of_a_cubic", picture, _attribute("up", cubic_coeff_a=-0.5), "up")
pair("antialias_left_out", picture, _attribute("down", antialias=0), "down")
pair("edge_in_place_of_reflection", picture, _attribute("padded", mode="edge"), "padded")


def chained(g: Graph) -> Sequence[str]:
    """Integers are wrapped by a remainder into a table; a recurrence with a state of its own, scanned; a loop."""
    x = g.norm(tokens(g, 16), 16, "n")
    far = np.arange(8)[:, None] - np.arange(8)
    wrapped = g.op("Mod", [g.input("far", far), g.weight("period", np.int64(5))], "wrapped", fmod=0)
    bias = g.op("Gather", [k(g, "table", np.concatenate([g.random.normal(size=(5,)), np.zeros(4)])), wrapped], "bias")
    x = g.op("MatMul", [bias, x], "moved")
    h0, c0 = k(g, "h0", g.random.normal(size=(1, 2, 16))), k(g, "c0", g.random.normal(size=(1, 2, 16)))
    w, r = g.random.normal(size=(1, 64, 16)) / 4, g.random.normal(size=(1, 64, 16)) / 4
    steps = g.op("Transpose", [x], "steps", perm=[1, 0, 2])
    g.nodes.append(helper.make_node("LSTM", [steps, k(g, "w", w), k(g, "r", r), "", "", h0, c0], ["lstm"],
                                    name="node_lstm", hidden_size=16))  # fmt: skip
    h = g.op("Squeeze", ["lstm", ints(g, "one", 1)], "h")
    body = helper.make_graph(
        [helper.make_node("Mul", ["s_in", "half"], ["kept"], name="node_kept"),
         helper.make_node("Add", ["kept", "b_in"], ["s_out"], name="node_s_out"),
         helper.make_node("Identity", ["s_out"], ["seen"], name="node_seen")],
        "step",
        [_info(one, [2, 16]) for one in ("s_in", "b_in")], [_info(one, [2, 16]) for one in ("s_out", "seen")],
    )  # fmt: skip
    k(g, "half", 0.7)
    g.nodes.append(helper.make_node("Scan", [k(g, "s0", np.zeros((2, 16))), h], ["last", "states"], name="node_scan",
                                    body=body, num_scan_inputs=1))  # fmt: skip
    loop = _body(
        [helper.make_node("Identity", ["go"], ["go_on"], name="body_go"),
         helper.make_node("MatMul", ["state", "turn"], ["spun"], name="body_mul"),
         helper.make_node("Tanh", ["spun"], ["next"], name="body_tanh")],
        [_info("i", [], TensorProto.INT64), _info("go", [], TensorProto.BOOL), _info("state", [2, 16])],
        [_info("go_on", [], TensorProto.BOOL), _info("next", [2, 16])], {},
    )  # fmt: skip
    k(g, "turn", g.random.normal(size=(16, 16)) / 3)
    g.nodes.append(helper.make_node("Loop", [g.weight("turns", np.int64(5)), "", "last"], ["looped"], name="node_loop",
                                    body=loop))  # fmt: skip
    return [g.dense("looped", 16, 4, "y"), g.op("Identity", ["states"], "all_states")]


pair("remainder_of_the_other_sign", chained, _attribute("wrapped", fmod=1), "wrapped bias")
pair("state_and_cell_swapped", chained, lambda g: g.weights.update(h0=g.weights["c0"], c0=g.weights["h0"]), "lstm")
pair("scan_from_the_end", chained, _attribute("scan", scan_input_directions=[1]),
     "scan states last s_out@0 kept@1 s_out",
     extra=("states", "last", "scan"))  # fmt: skip
pair("one_turn_more_of_a_loop", chained, lambda g: g.weights.update(turns=np.int64(6)), "looped",
     extra=("next@5", "spun@5"))  # fmt: skip
CASES[-1] = Unseen(**{**CASES[-1].__dict__, "who": ("looped", "next@5", "spun@5")})


def first_of_equals(g: Graph) -> Sequence[str]:
    """Which of equal numbers is the best."""
    x = g.op("Round", [g.dense(tokens(g), 32, 16, "a")], "whole")
    best = g.op("ArgMax", [x], "best", axis=-1, keepdims=0)
    return [g.dense(g.op("Gather", [k(g, "table", g.random.normal(size=(16, 8))), best], "rows"), 8, 4, "y")]


pair("last_of_equals", first_of_equals, _attribute("best", select_last_index=1), "best")


def in_int4(change: Callable[[Array, Array], tuple[Array, Array]] | None = None) -> Callable[[Graph], Sequence[str]]:
    """A weight in blocks of 16 of four bits, with a scale for each block and column."""

    def build(g: Graph) -> Sequence[str]:
        g.opset = 21
        x = g.norm(tokens(g), 32, "n")
        codes = g.random.integers(-7, 8, size=(32, 32))
        scale = g.random.uniform(0.01, 0.06, size=(2, 32))
        if change is not None:
            codes, scale = change(codes, scale)
        import ml_dtypes

        g.weight("d.q", codes.astype(ml_dtypes.int4))
        w = g.op("DequantizeLinear", ["d.q", k(g, "d.s", scale)], "d.w", axis=0, block_size=16)
        x = g.op("MatMul", [x, w], "d")
        return [g.dense(g.op("Tanh", [x], "t"), 32, 4, "y")]

    return build


pair("nibbles_in_the_other_order", in_int4(), in_int4(
    lambda q, s: (q.reshape(32, 16, 2)[:, :, ::-1].reshape(32, 32), s)), "d.w d", other=True)  # fmt: skip
pair("blocks_with_each_other_s_scales", in_int4(), in_int4(lambda q, s: (q, s[::-1])), "d.w d", other=True)


def rows_in_int8(axis: int) -> Callable[[Graph], Sequence[str]]:
    """A square weight with a scale for each column; or taken as one for each row."""

    def build(g: Graph) -> Sequence[str]:
        x = g.norm(tokens(g), 32, "n")
        w = g.random.normal(size=(32, 32)) / 6 * np.geomspace(0.3, 3, 32)
        scale = np.abs(w).max(0) / 127
        g.weight("d.q", np.round(w / scale).astype(np.int8))
        g.weight("d.z", np.zeros(32, np.int8))
        w = g.op("DequantizeLinear", ["d.q", k(g, "d.s", scale), "d.z"], "d.w", axis=axis)
        return [g.dense(g.op("Tanh", [g.op("MatMul", [x, w], "d")], "t"), 32, 4, "y")]

    return build


pair("scales_along_the_other_axis", rows_in_int8(1), rows_in_int8(0), "d.w d", other=True)


# --- a quantised file beside the float one


def one_side(place: str, key: str, value: Any) -> Callable[[Graph], None]:
    """The DequantizeLinear of a pair has a scale or a zero point of its own."""

    def change(g: Graph) -> None:
        dq = next(n for n in g.nodes if n.output[0] == place)
        name = f"{place}.{key}2"
        g.weight(name, value(g.weights[dq.input[1 if key == "s" else 2]]))
        dq.input[1 if key == "s" else 2] = name

    return change


def beside(name: str, change: Callable[[Graph], None] | None, who: str = "", why: str = "", *, mode: str = "ort_fp32",
           also: tuple[str, ...] = (), extra: tuple[str, ...] = ()) -> None:  # fmt: skip
    def make(folder: Path) -> tuple[Path, Path, dict[str, Array]]:
        plain, made = Graph(seed=9), Graph(seed=9)
        base = plain.save(folder / "base.onnx", whole_net(plain, whole=False))
        outputs = whole_net(made)
        if change is not None:
            change(made)
        return made.save(folder / f"{name}.onnx", outputs), base, plain.feeds

    CASES.append(Unseen(name=name, kind="quantised", mode=mode, make=make, who=tuple(who.split()), fix=False,
                        why=tuple(why.split()), status=int(bool(who)), baseline="ort_fp32", also=also,
                        extra=extra))  # fmt: skip


PAIR = "zero_point scale files_differ"  # the label had saturation, too, which it is not
beside("zero_point_of_one_side", one_side("d2", "zp", lambda z: np.uint8(118)), "d2 d2_q", PAIR)
beside(
    "zero_point_of_one_side_fused", one_side("d2", "zp", lambda z: np.uint8(118)), "d2 d2_q r2", PAIR, mode="ort_opt"
)
beside("scale_of_one_side", one_side("d3", "s", lambda s: s * np.float32(1.25)), "d3 d3_q", PAIR)


def two_pairs(g: Graph) -> None:
    """Two faults: a zero point of one side early, a scale of one side late."""
    one_side("d1", "zp", lambda z: np.uint8(120))(g)
    one_side("d4", "s", lambda s: s * np.float32(0.7))(g)


beside("two_pairs_that_do_not_fit", two_pairs, "d1 d4 d1_q d4_q", PAIR, extra=("d1", "d4", "d1_q", "d4_q"))


def one_weight_for_all(g: Graph) -> None:
    """A kernel whose scale is for half of its range: its large weights were cut off."""
    q = g.weights["c3.w.q"].astype(np.float32)
    g.weights["c3.w.q"] = np.clip(np.round(q * 3), -127, 127).astype(np.int8)
    g.weights["c3.w.s"] = np.asarray(g.weights["c3.w.s"] / 3, np.float32)


beside("kernel_whose_scale_is_a_third", one_weight_for_all, "c3.w c3 r3 d3", "weight_clipped saturation files_differ",
       extra=("c3.w", "c3"))  # fmt: skip


def in_operators(g: Graph) -> Sequence[str]:
    """One convolution as QLinearConv, of what QuantizeLinear made."""
    return _one_conv(g, True)


def in_pairs(g: Graph) -> Sequence[str]:
    return _one_conv(g, False)


def _one_conv(g: Graph, operators: bool) -> Sequence[str]:
    """The same quantisation of a convolution as one operator, or between Q and DQ."""
    r = np.random.default_rng(3)
    x = image(g)
    s, z, t, u = (k(g, "x.s", 4 / 127), g.weight("x.z", np.uint8(128)), k(g, "y.s", 6 / 255), g.weight("y.z", np.uint8(
        110)))  # fmt: skip
    g.op("QuantizeLinear", [x, s, z], "x_q")
    w = r.normal(size=(8, 3, 3, 3)).astype(np.float32) / 5
    w_s = np.float32(np.abs(w).max() / 127)
    if operators:
        g.weight("w.q", np.round(w / w_s).astype(np.int8))
        y = g.op("QLinearConv", ["x_q", s, z, "w.q", k(g, "w.s", w_s), g.weight("w.z", np.int8(0)), t, u], "c_q",
                 pads=[1, 1, 1, 1])  # fmt: skip
    else:
        g.op("DequantizeLinear", ["x_q", s, z], "x_d")
        g.op("Conv", ["x_d", weights_in_int8(g, "w", w)], "c", pads=[1, 1, 1, 1])
        y = g.op("QuantizeLinear", ["c", t, u], "c_q")
    y = g.op("DequantizeLinear", [y, t, u], "c_d")
    last = g.weight("last.w", (r.normal(size=(4, 8, 1, 1)) / 3).astype(np.float32))
    return [g.op("Conv", [g.op("Relu", [y], "r"), last], "y")]


def other_zero(g: Graph) -> Sequence[str]:
    """The product's zero point is the input's."""
    made = in_operators(g)
    place = next(n for n in g.nodes if n.op_type == "QLinearConv")
    place.input[7] = "x.z"
    return made


pair("one_operator_or_three", in_pairs, in_operators, other=True, kind="equal")
pair("zero_point_of_another_tensor", in_operators, other_zero, "c_q c_d", "files_differ zero_point", other=True,
     extra=("c_q", "c_d"))  # fmt: skip

# --- equal models in unlike forms


def by_hand(g: Graph) -> Sequence[str]:
    """``late`` in operators of opset 17."""
    made = late(g)
    g.opset = 17
    for name in ("n", "n2"):
        place = g.nodes.index(node(g, name))
        x = g.nodes[place].input[0]
        g.nodes[place : place + 1] = [
            helper.make_node("Mul", [x, x], [f"{name}_sq"], name=f"node_{name}_sq"),
            helper.make_node("ReduceMean", [f"{name}_sq"], [f"{name}_ms"], name=f"node_{name}_ms", axes=[-1]),
            helper.make_node("Add", [f"{name}_ms", k(g, "eps", 1e-6)], [f"{name}_var"], name=f"node_{name}_var"),
            helper.make_node("Sqrt", [f"{name}_var"], [f"{name}_root"], name=f"node_{name}_root"),
            helper.make_node("Div", [x, f"{name}_root"], [f"{name}_n"], name=f"node_{name}_n"),
            helper.make_node("Mul", [f"{name}_n", f"{name}.g"], [name], name=f"node_{name}"),
        ]
    for name in ("q_r", "k_r"):
        place = g.nodes.index(node(g, name))
        x = g.nodes[place].input[0]
        cos, sin = (k(g, f"{one}4", g.weights[one][:, :, None]) for one in ("cos", "sin"))
        g.weight("heads", np.array([2, 8, 4, 8], np.int64)), g.weight("flat", np.array([2, 8, 32], np.int64))

        def op(kind: str, inputs: Sequence[str], to: Sequence[str], n: str = name, **more: Any) -> Any:
            return helper.make_node(kind, inputs, [f"{n}_{one}" if one else n for one in to],
                                    name=f"node_{n}_{to[0] or 'flat'}", **more)  # fmt: skip

        g.nodes[place : place + 1] = [
            op("Reshape", [x, "heads"], ["h"]), op("Split", [f"{name}_h"], ["a", "b"], axis=-1),
            op("Mul", [f"{name}_a", cos], ["ac"]), op("Mul", [f"{name}_b", sin], ["bs"]),
            op("Mul", [f"{name}_a", sin], ["as"]), op("Mul", [f"{name}_b", cos], ["bc"]),
            op("Sub", [f"{name}_ac", f"{name}_bs"], ["first"]), op("Add", [f"{name}_as", f"{name}_bc"], ["last"]),
            op("Concat", [f"{name}_first", f"{name}_last"], ["turned"], axis=-1),
            op("Reshape", [f"{name}_turned", "flat"], [""]),
        ]  # fmt: skip
    place = g.nodes.index(node(g, "mixed"))
    score = [
        node_ for one in ("q_r", "k_r", "v") for node_ in (
            helper.make_node("Reshape", [one, "heads"], [f"{one}4"], name=f"node_{one}4"),
            helper.make_node("Transpose", [f"{one}4"], [f"{one}h"], name=f"node_{one}h",
                             perm=[0, 2, 3, 1] if one == "k_r" else [0, 2, 1, 3]))
    ]  # fmt: skip
    causal = k(g, "causal", np.triu(np.full((8, 8), -np.inf), 1))
    score += [
        helper.make_node("MatMul", ["q_rh", "k_rh"], ["raw"], name="node_raw"),
        helper.make_node("Mul", ["raw", k(g, "d", 8**-0.5 / 30)], ["scaled"], name="node_scaled"),
        helper.make_node("Tanh", ["scaled"], ["bent"], name="node_bent"),
        helper.make_node("Mul", ["bent", k(g, "cap", 30)], ["capped"], name="node_capped"),
        helper.make_node("Add", ["capped", causal], ["masked"], name="node_masked"),
        helper.make_node("Softmax", ["masked"], ["prob"], name="node_prob", axis=-1),
        helper.make_node("MatMul", ["prob", "vh"], ["mixedh"], name="node_mixedh"),
        helper.make_node("Transpose", ["mixedh"], ["mixedt"], name="node_mixedt", perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["mixedt", "flat"], ["mixed"], name="node_mixed"),
    ]
    g.nodes[place : place + 1] = score
    return made


def wider_cap(g: Graph) -> None:
    next(a for a in node(g, "mixed").attribute if a.name == "softcap").f = 1.0


pair("late_opset_beside_its_parts", by_hand, late, other=True, kind="equal")
pair("cap_of_an_attention", late, wider_cap, "mixed")
pair("attention_that_is_not_causal", late, _attribute("mixed", is_causal=0), "mixed")
pair("cap_of_an_attention_fused", late, wider_cap, "mixed", mode="ort_opt")
pair("gain_of_a_late_norm_in_float16", late, weight("n2.g", lambda w: w * 1.1), "n2", mode="ort_fp16_sim")
