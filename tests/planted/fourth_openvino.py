"""A fourth batch that OpenVINO runs; written and labelled before any of it was run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planted.fourth_clean import block, inverted_residuals, llama_of_three_layers, segmenter_with_skips
from planted.fourth_files import conv_net, encoder
from planted.onnx_faults import Graph, _attribute, tokens
from planted.onnx_further import k
from planted.unseen import Unseen
from planted.unseen_files import pair, weight
from planted.unseen_onnx import unseen

CASES: list[Unseen] = []

unseen("healthy", "ov_bf16 ov_opt_fp32", cases=CASES)(llama_of_three_layers)
unseen("healthy", "ov_bf16 ov_int8", cases=CASES)(inverted_residuals)
unseen("healthy", "ov_bf16", cases=CASES)(segmenter_with_skips)


@unseen("cancellation", "ov_bf16", "far near l0 x0", "cancellation amplified coarse", cases=CASES, fix=False)
def large_mean_before_a_norm_in_openvino(g: Graph) -> Sequence[str]:
    x = block(g, tokens(g), 32, "l0")
    n = g.norm(g.op("Add", [x, k(g, "o", 200)], "far"), 32, "near")
    return [g.dense(g.mlp(n, 32, "m"), 32, 8, "y")]


pair("roll_in_openvino_bf16", encoder, weight("l2_m_down.w", lambda w: np.roll(w, 1, axis=0)),
     "l2_m_down_mm l2_m_down l2_m", mode="ov_bf16", cases=CASES, fix=False)  # fmt: skip
pair("kernel_mirrored_in_openvino", conv_net, weight("b2_c1.w", lambda w: w[:, :, ::-1]), "b2_c1 b2_r1",
     mode="ov_fp32", cases=CASES)  # fmt: skip
pair("epsilon_in_openvino", encoder, _attribute("l0_n2", epsilon=1e-2), "l0_n2", mode="ov_fp32", cases=CASES)
