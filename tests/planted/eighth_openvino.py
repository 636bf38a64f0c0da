"""An eighth batch that OpenVINO runs; written and labelled before any of it was run."""

from __future__ import annotations

from planted.eighth_files import OTHER, deviation, picture, shares, turned
from planted.eighth_onnx import (
    channel_of_no_variance_and_no_gain,
    difference_of_two_frames,
    images_beside_texts,
    odds_by_a_division,
    paths_through_a_lattice,
    rows_of_their_own_and_one_range_of_what_they_make,
    rows_of_their_own_behind_a_slope,
    windows_that_are_shifted,
    zeros_and_ones_in_int8,
)
from planted.onnx_faults import _attribute
from planted.unseen import Unseen
from planted.unseen_files import pair
from planted.unseen_onnx import unseen

__all__ = ["CASES"]

CASES: list[Unseen] = []

unseen("healthy", "ov_int8", cases=CASES, seed=131)(rows_of_their_own_and_one_range_of_what_they_make)
# labelled an outlier: NNCF quantises what the next kernel reads, which is even again
unseen("healthy", "ov_int8", cases=CASES, seed=131)(rows_of_their_own_behind_a_slope)
unseen("int8", "ov_int8", "y", "cancellation", cases=CASES, seed=131, fix=False)(difference_of_two_frames)  # fmt: skip
pair("neighbours_in_place_of_halves_in_openvino", turned(False), turned(True), "q_a q_b k_a k_b", OTHER, other=True,
     also=("q_b", "k_b"), extra=("q_a", "k_a"), mode="ov_fp32", cases=CASES)  # fmt: skip
# OpenVINO reads a Softmax of before opset 13 as one after it: the two files agree there
pair("softmax_of_an_early_opset_in_openvino", shares(17), shares(11), other=True, mode="ov_fp32", cases=CASES)
pair("epsilon_outside_of_its_root_in_openvino", deviation("inside"), deviation("outside"), "root n", OTHER, other=True,
     extra=("bare", "floor"), mode="ov_opt_fp32", cases=CASES)  # fmt: skip
# OpenVINO leaves the antialiasing out, which is 30 times as much as the coefficient
pair("coefficient_of_a_cubic_in_openvino", picture, _attribute("up", cubic_coeff_a=-0.5), "down", "other_arithmetic",
     mode="ov_fp32", extra=("up",), cases=CASES)  # fmt: skip

# NNCF quantises what convolutions and products read, not what a sigmoid gives a division: healthy
for build, modes in (
    (odds_by_a_division, "ov_int8"), (windows_that_are_shifted, "ov_int8"), (images_beside_texts, "ov_opt_fp32"),
    (channel_of_no_variance_and_no_gain, "ov_int8"), (paths_through_a_lattice, "ov_opt_fp32"),
    (zeros_and_ones_in_int8, "ov_int8"),
):  # fmt: skip
    unseen("healthy", modes, cases=CASES, seed=131)(build)
