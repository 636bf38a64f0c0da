"""A seventh batch that OpenVINO runs; written and labelled before any of it was run."""

from __future__ import annotations

import numpy as np

from planted.onnx_faults import _attribute
from planted.onnx_further import _put
from planted.seventh_onnx import (
    OTHER,
    experts,
    extremes_before_a_clip,
    grouped,
    grouped_heads_with_capped_scores,
    listener,
    log_mel_with_a_floor_below_its_largest,
    next_generation,
    pixels_of_a_shuffle,
    quick,
    scan_of_a_state_space,
    small_rms,
    spike_of_a_gated_unit,
    state_space,
)
from planted.unseen import Unseen
from planted.unseen_files import pair, weight
from planted.unseen_onnx import unseen

__all__ = ["CASES"]

CASES: list[Unseen] = []

# Regions are called after their last tensor: three labels had the tensor inside of them.

unseen("int8", "ov_int8", "gu t", "outlier_channel coarse", cases=CASES, seed=97,
       extra=("gu", "up", "gate", "down", "down_mm", "t"), fix=False)(spike_of_a_gated_unit)  # fmt: skip
unseen("healthy", "ov_int8", cases=CASES, seed=97)(extremes_before_a_clip)  # NNCF quantises what the clip leaves
pair("experts_off_by_one_in_openvino", experts, weight("down.w", lambda w: np.roll(w, 1, axis=0)), "down",
     mode="ov_fp32", cases=CASES)  # fmt: skip
pair("forget_bias_left_out_in_openvino", listener, _put("lstm.b", (0, slice(32, 48)), 0.0), "lstm h",
     mode="ov_opt_fp32", cases=CASES)  # fmt: skip
pair("epsilon_of_a_root_mean_square_in_openvino", small_rms, _put("n.eps", (), 1e-5), "n_var n_root n_inv n_n n",
     mode="ov_opt_fp32", cases=CASES)  # fmt: skip
pair("quick_gelu_in_openvino", next_generation, quick, "gelu1", OTHER, mode="ov_opt_fp32", cases=CASES)
pair("softplus_of_a_step_left_out_in_openvino", state_space(True), state_space(False), "dt", OTHER, other=True,
     mode="ov_fp32", cases=CASES)  # fmt: skip
pair("axis_of_log_probabilities_in_openvino", listener, _attribute("y", axis=0), "y", mode="ov_fp32", cases=CASES)
pair("scale_of_two_digits_in_openvino", grouped, _put("d", (), 0.35), "score raw joined", mode="ov_opt_fp32",
     cases=CASES, extra=("prob", "m", "mix"))  # fmt: skip

for build, modes in (
    (grouped_heads_with_capped_scores, "ov_opt_fp32 ov_int8"), (next_generation, "ov_int8 ov_opt_fp32"),
    (pixels_of_a_shuffle, "ov_int8"), (log_mel_with_a_floor_below_its_largest, "ov_opt_fp32"),
    (scan_of_a_state_space, "ov_opt_fp32"), (experts, "ov_int8"),
):  # fmt: skip
    unseen("healthy", modes, cases=CASES, seed=97)(build)
