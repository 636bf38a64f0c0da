"""A fifth batch that OpenVINO runs; written and labelled before any of it was run."""

from __future__ import annotations

from planted.fifth_onnx import detector_with_anchors, resnet_with_casts, tokens_and_channels, unet_with_gates
from planted.fifth_onnx import log_of_a_sum_of_exponentials as _exponentials
from planted.fourth_files import conv_net, encoder
from planted.onnx_faults import _attribute
from planted.unseen import Unseen
from planted.unseen_files import pair, weight
from planted.unseen_onnx import unseen

__all__ = ["CASES"]

CASES: list[Unseen] = []

unseen("healthy", "ov_bf16 ov_opt_fp32 ov_int8", cases=CASES)(unet_with_gates)
unseen("healthy", "ov_opt_fp32", cases=CASES)(resnet_with_casts)
unseen("healthy", "ov_bf16 ov_opt_fp32", cases=CASES)(tokens_and_channels)
unseen("healthy", "ov_int8", cases=CASES)(detector_with_anchors)
unseen("healthy", "ov_opt_fp32", cases=CASES)(_exponentials)
pair("projection_transposed_in_openvino", encoder, weight("l1_a_v.w", lambda w: w.T), "l1_a_v_mm l1_a_v",
     mode="ov_fp32", cases=CASES)  # fmt: skip
pair("kernel_transposed_in_openvino", conv_net, weight("b2_c1.w", lambda w: w.transpose(0, 1, 3, 2)), "b2_c1 b2_r1",
     mode="ov_fp32", cases=CASES)  # fmt: skip
pair("epsilon_of_a_norm_in_openvino", encoder, _attribute("l1_n1", epsilon=0.1), "l1_n1 l1_n1/MVN", mode="ov_fp32",
     cases=CASES)  # fmt: skip
