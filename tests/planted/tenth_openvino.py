"""A tenth batch that OpenVINO runs; written and labelled before any of it was compared. How far bfloat16 is off was
computed with OpenVINO's own precision hint, and which operator it is by rounding every result to bfloat16."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from planted.onnx_faults import Graph, _attribute, image, tokens
from planted.onnx_further import ints, k
from planted.tenth_files import clock, encoder, picture, pointwise, recurrent
from planted.tenth_onnx import (
    CANCELS,
    gates_of_one_size,
    mobile_block_of_plain_features,
    step_of_a_diffusion,
    unet_of_group_norms,
    window_from_a_running_sum,
)
from planted.unseen import Unseen
from planted.unseen_files import pair, weight
from planted.unseen_onnx import unseen as registered

__all__ = ["CASES"]

CASES: list[Unseen] = []
OTHER = "files_differ other_arithmetic"


def unseen(*words: Any, **more: Any) -> Any:
    return registered(*words, cases=CASES, seed=307, **more)


@unseen("healthy", "ov_bf16")
def best_word_behind_a_smaller_offset(g: Graph) -> Sequence[str]:
    """Scores of one and an offset of 300, where bfloat16 knows every second number: fused into one sum they are
    healthy; where each result is rounded they are off by a half."""
    x = g.norm(tokens(g, 32, 16), 32, "n")
    late = g.op("Add", [g.dense(x, 32, 64, "a"), k(g, "up", 300)], "late")
    near = g.op("Sub", [g.op("Mul", [late, k(g, "two", 2)], "wide"), k(g, "down", 600)], "near")
    return [g.dense(g.op("Softmax", [near], "share", axis=-1), 64, 4, "y")]


@unseen("coarse", "ov_bf16", "moved far", CANCELS, extra=("moved", "far", "left", "right", "w", "x"), fix=False)
def boxes_moved_apart_in_openvino(g: Graph) -> Sequence[str]:
    """Boxes of 60 pixels, moved by 512 times their class: bfloat16 keeps every 16th to 64th place there."""
    corner = g.random.uniform(0, 300, size=(32, 2))
    boxes = np.concatenate([corner, corner + g.random.uniform(30, 90, size=(32, 2))], 1).astype(np.float32)
    of = g.input("of", g.random.integers(4, 16, size=(32, 1)).astype(np.float32))
    moved = g.op("Add", [g.input("x", boxes), g.op("Mul", [of, k(g, "apart", 512)], "far")], "moved")
    left, right = (
        g.op("Slice", [moved, ints(g, f"{n}.a", a), ints(g, f"{n}.z", a + 2), ints(g, f"{n}.x", 1)], n)
        for n, a in (("left", 0), ("right", 2))
    )
    size = g.op("Mul", [g.op("Sub", [right, left], "w"), k(g, "per", 1 / 60)], "size")
    return [g.dense(g.op("Tanh", [size], "t"), 2, 4, "y")]


@unseen("cancellation", "ov_bf16", "c1", CANCELS, extra=("c1",), most=3)
def filters_far_from_zero_before_a_norm(g: Graph) -> Sequence[str]:
    """A convolution's bias is 250, where bfloat16 knows whole numbers; the norm takes it away."""
    x = image(g)
    w = k(g, "c1.w", g.random.normal(size=(8, 3, 3, 3)) / 3)
    x = g.op("Conv", [x, w, k(g, "c1.b", 250 + 40 * g.random.normal(size=8))], "c1", pads=[1, 1, 1, 1])
    x = g.op("InstanceNormalization", [x, k(g, "n.g", np.ones(8)), k(g, "n.z", np.zeros(8))], "n", epsilon=1e-5)
    return [g.conv(g.op("Relu", [x], "r"), 8, 4, "y")]


unseen("coarse", "ov_bf16", "when angle", CANCELS, extra=("when", "column", "angle", "cos", "sin"), fix=False)(
    step_of_a_diffusion
)
# nothing of it is computed in bfloat16, which is no pass
unseen("healthy", "ov_bf16", status=1)(window_from_a_running_sum)

pair(
    "reset_before_the_product_in_openvino",
    recurrent,
    _attribute("gru", linear_before_reset=0),
    "gru h",
    OTHER,
    mode="ov_fp32",
    extra=("gru", "h"),
    cases=CASES,
)
pair(
    "operands_exchanged_in_openvino",
    clock(),
    clock(exchanged=True),
    "rest",
    OTHER,
    other=True,
    mode="ov_fp32",
    cases=CASES,
)
pair(
    "earlier_statistics_in_openvino",
    picture,
    lambda g: g.weights.update(
        {"bn.m": g.weights["bn.m"] * np.float32(0.4), "bn.v": g.weights["bn.v"] * np.float32(0.4) + np.float32(0.6)}
    ),
    "bn elu c1",
    OTHER,
    mode="ov_opt_fp32",
    extra=("bn", "elu", "c1"),
    cases=CASES,
)
pair(
    "middle_layer_in_openvino",
    encoder,
    weight("l1_v.w", lambda w: w * np.float32(1.2)),
    "l1_v_mm l1_v",
    OTHER,
    mode="ov_opt_fp32",
    extra=("l1_v_mm", "l1_v", "l1_mixed"),
    cases=CASES,
)
pair(
    "product_in_place_of_a_convolution_in_openvino",
    pointwise("conv"),
    pointwise("product"),
    other=True,
    kind="equal",
    mode="ov_opt_fp32",
    cases=CASES,
)

for build, modes in (
    (unet_of_group_norms, "ov_bf16"),
    (mobile_block_of_plain_features, "ov_bf16 ov_opt_fp32"),
    (gates_of_one_size, "ov_bf16"),
):
    unseen("healthy", modes)(build)
