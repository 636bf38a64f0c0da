"""Unseen faults and clean models that OpenVINO runs: the graphs are ONNX's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from planted.onnx_faults import Graph, image, tokens
from planted.onnx_further import k
from planted.unseen import Unseen
from planted.unseen_clean import diffusion_block, mobile_net, vision_transformer
from planted.unseen_files import classifier, pair, weight
from planted.unseen_onnx import llama_layer, rms, unseen

CASES: list[Unseen] = []


@unseen("clean", "ov_bf16 ov_opt_fp32", cases=CASES)
def llama(g: Graph) -> Sequence[str]:
    return [rms(g, llama_layer(g, llama_layer(g, tokens(g), 32, "l0"), 32, "l1"), 32, "y")]


unseen("clean", "ov_bf16 ov_opt", opset=14, cases=CASES)(mobile_net)
unseen("clean", "ov_bf16", cases=CASES)(diffusion_block)
unseen("clean", "ov_opt", cases=CASES)(vision_transformer)


@unseen("cancellation", "ov_bf16", "c c_far far", "cancellation amplified", cases=CASES)
def convolution_far_away(g: Graph) -> Sequence[str]:
    x = g.conv(image(g), 3, 8, "c")
    far = g.op("Add", [x, k(g, "o", np.full((8, 1, 1), 700.0))], "far")
    x = g.conv(g.op("Relu", [far], "r"), 8, 8, "d")
    g.weights["d.w"] -= g.weights["d.w"].mean(axis=(1, 2, 3), keepdims=True)
    return [g.conv(g.op("Tanh", [x], "t"), 8, 4, "y")]


CASES[-1] = CASES[-1].__class__(**{**CASES[-1].__dict__, "who": ("c", "far", "r", "d", "t")})


pair("bgr_in_openvino", classifier, weight("c1.w", lambda w: w[:, ::-1]), "c1", mode="ov_fp32", cases=CASES)
pair(
    "statistics_in_openvino",
    classifier,
    lambda g: g.weights.update({"bn.m": np.zeros(8, np.float32)}),
    "bn c1 hs",
    mode="ov_fp32",
    cases=CASES,
)
