"""A third batch that OpenVINO runs: the graphs are ONNX's; written before any of it was run."""

from __future__ import annotations

from collections.abc import Sequence

from planted.onnx_faults import Graph, _attribute, tokens
from planted.onnx_further import _put
from planted.third_clean import autoencoder_of_transposed_convolutions, speech_front_end, super_resolution
from planted.third_files import decoder, reader
from planted.unseen import Unseen
from planted.unseen_files import node, pair
from planted.unseen_onnx import unseen

CASES: list[Unseen] = []


def mean_of_reader(g: Graph) -> Sequence[str]:
    """OpenVINO takes ReduceLogSumExp's axes for all of them."""
    outputs = reader(g)
    node(g, "lse").op_type = "ReduceMean"
    return outputs


unseen("clean", "ov_bf16 ov_opt", cases=CASES)(super_resolution)
unseen("clean", "ov_bf16 ov_opt_fp32", cases=CASES)(speech_front_end)
unseen("clean", "ov_bf16", cases=CASES)(autoencoder_of_transposed_convolutions)


@unseen("clean", "ov_bf16 ov_opt", cases=CASES)
def recurrent_reader(g: Graph) -> Sequence[str]:
    return mean_of_reader(g)


@unseen("amplified", "ov_bf16", "steep steep_mm fast", "amplified cancellation", cases=CASES, fix=False)
def sine_of_a_steep_layer(g: Graph) -> Sequence[str]:
    steep = g.dense(tokens(g), 32, 32, "steep", 150.0)
    return [g.dense(g.op("Sin", [steep], "sin"), 32, 4, "y")]


pair("pads_in_openvino", decoder, _attribute("up", pads=[0, 0, 2, 2]), "up", mode="ov_fp32", cases=CASES)
pair("running_sum_in_openvino", mean_of_reader, _attribute("total", exclusive=1), "total", mode="ov_fp32", cases=CASES)
pair("fill_in_openvino", decoder, _put("fill", (), 0.0), "padded", mode="ov_opt_fp32", cases=CASES,
     extra=("lp",))  # fmt: skip
