"""A sixth batch that OpenVINO runs; written and labelled before any of it was run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from planted.fourth_clean import block
from planted.onnx_faults import Graph, _attribute, image, tokens
from planted.onnx_further import k
from planted.sixth_onnx import (
    boxes_and_scores_in_one_tensor,
    folded,
    gates,
    gates_that_are_all_open,
    minus_infinity_where_a_row_keeps_one,
    one_channel_of_a_weight,
    parts_of_one_size_joined,
    sampled,
    short_running_sum,
)
from planted.unseen import Unseen
from planted.unseen_files import pair
from planted.unseen_onnx import unseen

__all__ = ["CASES"]

CASES: list[Unseen] = []


@unseen("cancellation", "ov_bf16", "n", "cancellation cancels amplified", cases=CASES, fix=False)  # one layer
def variance_as_a_difference_in_openvino(g: Graph) -> Sequence[str]:
    x = g.op("Add", [g.conv(image(g), 3, 8, "c"), k(g, "level", 25)], "moved")
    ms = g.op("ReduceMean", [g.op("Mul", [x, x], "sq")], "ms", axes=[2, 3])
    mean = g.op("ReduceMean", [x], "mean", axes=[2, 3])
    var = g.op("Sub", [ms, g.op("Mul", [mean, mean], "sqm")], "var")
    n = g.op("Div", [g.op("Sub", [x, mean], "centred"), g.op("Sqrt", [g.op("Abs", [var], "abs")], "sd")], "n")
    return [g.conv(n, 8, 4, "y")]


@unseen("amplified", "ov_bf16", "late a a_mm", "amplified cancellation coarse", cases=CASES,
        extra=("late", "a", "a_mm", "l0", "l0_n1/MVN"))  # fmt: skip
def angle_of_a_large_product(g: Graph) -> Sequence[str]:
    x = block(g, tokens(g), 32, "l0")
    late = g.op("Mul", [g.dense(x, 32, 32, "a"), k(g, "f", 150)], "late")
    return [g.dense(g.op("Sin", [late], "s"), 32, 8, "y")]


@unseen("cancellation", "ov_bf16", "far", "cancellation cancels amplified", cases=CASES,
        extra=("far", "l0", "down"))  # fmt: skip
def stream_that_is_taken_away_in_openvino(g: Graph) -> Sequence[str]:
    x = block(g, tokens(g), 32, "l0")
    far = g.op("Add", [x, g.op("Mul", ["x", k(g, "f", 800)], "large")], "far")
    return [g.dense(g.op("Sub", [far, g.op("Mul", ["x", k(g, "f2", 799)], "large2")], "down"), 32, 8, "y")]


# fused into one layer, which computes in float32 inside
CASES[-1] = replace(CASES[-1], who=(), why=(), status=0)

unseen("healthy", "ov_int8", cases=CASES)(boxes_and_scores_in_one_tensor)  # NNCF leaves the Concat
unseen("int8", "ov_int8", "wide wide_mm even r", "outlier_channel coarse", cases=CASES,
       extra=("wide", "wide_mm", "even", "r"), status=0)(one_channel_of_a_weight)  # fmt: skip
pair("pool_counts_its_padding_in_openvino", sampled, _attribute("pool", count_include_pad=1), "pool", mode="ov_fp32",
     cases=CASES)  # fmt: skip
pair("resize_asymmetric_in_openvino", sampled, _attribute("up", coordinate_transformation_mode="asymmetric"), "up",
     mode="ov_opt_fp32", cases=CASES)  # fmt: skip
pair("gates_in_another_order_in_openvino", gates((0, 1, 2, 3)), gates((0, 2, 3, 1)), "lstm", mode="ov_fp32", other=True,
     cases=CASES)  # fmt: skip
pair("folded_with_another_epsilon_in_openvino", folded(1e-3), folded(1e-5), "c2 r2", mode="ov_opt_fp32", other=True,
     cases=CASES)  # fmt: skip

unseen("healthy", "ov_bf16 ov_opt_fp32", cases=CASES)(minus_infinity_where_a_row_keeps_one)
unseen("healthy", "ov_bf16 ov_int8", cases=CASES)(gates_that_are_all_open)
unseen("healthy", "ov_int8", cases=CASES)(parts_of_one_size_joined)
unseen("healthy", "ov_bf16", cases=CASES)(short_running_sum)
