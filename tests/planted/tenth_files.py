"""A tenth batch of two files: what an export, a port or an edit changed in one place, two changes at once, a change
that no output feels, and equal models in unlike forms; written and labelled before any of it was compared. How far the
outputs are apart was computed in float64 by onnx.reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper

from planted.onnx_faults import Array, Graph, _attribute, image, tokens
from planted.onnx_further import ints, k
from planted.unseen import Unseen
from planted.unseen_files import pair as registered
from planted.unseen_files import weight

CASES: list[Unseen] = []

OTHER = "files_differ other_arithmetic"


def pair(*words: Any, **more: Any) -> None:
    registered(*words, cases=CASES, **more)


# --- three layers of attention


def encoder(g: Graph) -> Sequence[str]:
    x = tokens(g, 24, 8)
    for n in range(3):
        x = g.attention(g.norm(x, 24, f"n{n}"), 24, f"l{n}")
        x = g.mlp(x, 24, f"m{n}")
    return [g.dense(g.norm(x, 24, "n"), 24, 6, "y")]


pair(
    "middle_layer_of_another_checkpoint",
    encoder,
    weight("l1_q.w", lambda w: w + 0.05 * np.cos(np.arange(w.size)).reshape(w.shape).astype(np.float32)),
    "l1_q_mm",
    "files_differ",
    extra=("l1_q",),
)
pair(
    "square_weight_transposed",
    encoder,
    weight("l2_out.w", lambda w: w.T),
    "l2_out_mm",
    "files_differ",
    extra=("l2_out",),
)
pair(
    "two_layers_changed_at_once",
    encoder,
    lambda g: (weight("m0_up.b", lambda b: b + np.float32(0.5))(g), weight("l2_v.w", lambda w: w * np.float32(1.5))(g)),
    "m0_up l2_v_mm",
    "files_differ",
    also=("m0_up", "l2_v_mm"),
    extra=("m0_up_mm", "l2_v"),
)


# --- a picture's way through a mobile net


def picture(g: Graph) -> Sequence[str]:
    g.opset = 18
    r = g.random
    x = g.op(
        "Conv", [image(g), k(g, "c1.w", r.normal(size=(8, 3, 3, 3)) / 4)], "c1", auto_pad="SAME_UPPER", strides=[2, 2]
    )
    x = g.op(
        "BatchNormalization",
        [
            x,
            k(g, "bn.s", r.uniform(0.5, 1.5, 8)),
            k(g, "bn.b", r.normal(size=8) / 3),
            k(g, "bn.m", r.normal(size=8) / 3),
            k(g, "bn.v", r.uniform(0.3, 1.5, 8)),
        ],
        "bn",
        epsilon=1e-5,
    )
    x = g.op("Elu", [x], "elu", alpha=1.0)
    gate = g.op("HardSigmoid", [g.op("GlobalAveragePool", [x], "pool")], "gate", alpha=1 / 6, beta=0.5)
    x = g.op("Mul", [x, gate], "excited")
    x = g.op("DepthToSpace", [x], "shuffle", blocksize=2, mode="CRD")
    x = g.op(
        "Resize",
        [x, "", k(g, "sc", [1, 1, 1.25, 1.25])],
        "up",
        mode="nearest",
        nearest_mode="floor",
        coordinate_transformation_mode="asymmetric",
    )
    return [g.conv(x, 2, 4, "y")]


pair("padding_before_in_place_of_behind", picture, _attribute("c1", auto_pad="SAME_LOWER"), "c1")
pair("alpha_of_an_elu", picture, _attribute("elu", alpha=0.7), "elu")
pair("slope_of_a_hard_gate", picture, _attribute("gate", alpha=0.2), "gate", mode="ort_opt")
pair("blocks_before_channels", picture, _attribute("shuffle", mode="DCR"), "shuffle")
pair("nearest_that_rounds_up", picture, _attribute("up", nearest_mode="ceil"), "up")
pair(
    "statistics_of_an_earlier_epoch",
    picture,
    lambda g: g.weights.update(
        {"bn.m": g.weights["bn.m"] * np.float32(0.4), "bn.v": g.weights["bn.v"] * np.float32(0.4) + np.float32(0.6)}
    ),
    "bn",
    "files_differ",
)


# --- sequences, tables, and arithmetic between


def clock(exchanged: bool = False, axis: int = -1, rounded: bool = True) -> Callable[[Graph], Sequence[str]]:
    """A clock's phase, what is left of it, and shares along an axis."""

    def build(g: Graph) -> Sequence[str]:
        x = g.dense(tokens(g, 16, 16), 16, 16, "a", scale=3.0)
        whole = (
            g.op("Round", [x], "whole")
            if rounded
            else g.op("Floor", [g.op("Add", [x, k(g, "quarter", 0.25)], "later")], "whole")
        )
        rest = g.op("Sub", [whole, x] if exchanged else [x, whole], "rest")
        share = g.op("Softmax", [g.op("Mul", [rest, k(g, "hot", 4)], "scores")], "share", axis=axis)
        return [g.dense(g.op("Add", [share, rest], "both"), 16, 6, "y")]

    return build


pair("operands_of_a_difference_exchanged", clock(), clock(exchanged=True), "rest", OTHER, other=True, mode="ort_opt")
pair("shares_over_the_other_axis", clock(), clock(axis=1), "share", OTHER, other=True)
pair("floor_in_place_of_rounding", clock(), clock(rounded=False), "whole", OTHER, other=True, extra=("later",))


def recurrent(g: Graph) -> Sequence[str]:
    steps = g.op("Transpose", [tokens(g, 16, 8)], "steps", perm=[1, 0, 2])
    w, r, b = (
        k(g, f"gru.{n}", g.random.normal(size=size) / 3)
        for n, size in (("w", (1, 36, 16)), ("r", (1, 36, 12)), ("b", (1, 72)))
    )
    g.nodes.append(
        helper.make_node("GRU", [steps, w, r, b], ["gru"], name="node_gru", hidden_size=12, linear_before_reset=1)
    )
    h = g.op("Squeeze", ["gru", ints(g, "one", 1)], "h")
    total = g.op("CumSum", [h, ints(g, "axis", 0)], "total", exclusive=0)
    return [g.dense(g.op("Tanh", [g.op("Mul", [total, k(g, "few", 0.3)], "less")], "t"), 12, 4, "y")]


pair(
    "reset_before_the_product",
    recurrent,
    _attribute("gru", linear_before_reset=0),
    "gru",
    OTHER,
    extra=("h",),
    mode="ort_opt",
)
pair("sum_that_leaves_its_own_out", recurrent, _attribute("total", exclusive=1), "total", OTHER)


# --- a change that no output feels, and equal models in unlike forms


def closed_gate(g: Graph) -> Sequence[str]:
    """Channels 20 to 31 are multiplied by 0."""
    x = g.dense(tokens(g), 32, 32, "a")
    x = g.op("Mul", [x, k(g, "open", np.arange(32) < 20)], "gated")
    return [g.dense(g.op("Tanh", [x], "t"), 32, 6, "y")]


pair(
    "weights_that_a_closed_gate_hides",
    closed_gate,
    weight("a.w", lambda w: np.where(np.arange(32) < 20, w, w * np.float32(3))),
    mode="ort_fp32",
)


def pointwise(form: str) -> Callable[[Graph], Sequence[str]]:
    """A convolution of one place, or a product over channels; a difference, or the sum with what is negated."""

    def build(g: Graph) -> Sequence[str]:
        x = g.conv(image(g), 3, 8, "c1")
        w = g.random.normal(size=(8, 8)) / 3
        if form == "conv":
            x = g.op("Conv", [x, k(g, "p.w", w[:, :, None, None])], "p")
        else:
            turned = g.op("MatMul", [g.op("Transpose", [x], "last", perm=[0, 2, 3, 1]), k(g, "p.w", w.T)], "rows")
            x = g.op("Transpose", [turned], "p", perm=[0, 3, 1, 2])
        mean = g.op("ReduceMean", [x], "mean", axes=[2, 3])
        c = g.op("Sub", [x, mean], "c") if form == "conv" else g.op("Add", [x, g.op("Neg", [mean], "minus")], "c")
        return [g.conv(g.op("Relu", [c], "r"), 8, 4, "y")]

    return build


pair(
    "product_in_place_of_a_convolution_of_one_place", pointwise("conv"), pointwise("product"), other=True, kind="equal"
)
pair(
    "product_in_place_of_a_convolution_fused",
    pointwise("conv"),
    pointwise("product"),
    other=True,
    kind="equal",
    mode="ort_opt",
)


# --- a board's tensors, in a folder


def dumped(name: str, build: Any, change: Any, who: str, why: str, **more: Any) -> None:
    """What a board wrote, whose file was changed, is the reference of the file as it is."""
    options: list[str] = []

    def make(folder: Path) -> tuple[Path, None, dict[str, Array]]:
        board, own = Graph(seed=78), Graph(seed=78)
        outputs = build(board)
        if change is not None:
            change(board)
        path = own.save(folder / f"{name}.onnx", build(own))
        model = onnx.load(board.save(folder / "board.onnx", outputs))
        known = {one.name for one in model.graph.output}
        made = [one for n in model.graph.node for one in n.output]
        model.graph.output.extend(onnx.helper.make_empty_tensor_value_info(one) for one in made if one not in known)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        (folder / "board").mkdir(exist_ok=True)
        for one, value in zip(session.get_outputs(), session.run(None, own.feeds), strict=True):
            np.save(folder / "board" / f"{one.name}.npy", value)
        options[:] = ["--baseline", str(folder / "board")]
        return path, None, own.feeds

    CASES.append(
        Unseen(
            name=name,
            kind="dump",
            mode="ort_fp32",
            make=make,
            who=tuple(who.split()),
            why=tuple(why.split()),
            status=int(bool(who)),
            options=options,
            fix=False,
            **more,
        )
    )


FOUND = "other_arithmetic files_differ kernels_disagree unfound"
dumped("board_whose_elu_is_less_steep", picture, _attribute("elu", alpha=0.7), "elu", FOUND)
dumped("board_that_agrees", picture, None, "", "")
