"""Exports the keypoint network, cuts it before its NonZero, and compares what is left in float16."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import onnx
import torch

import precision_debug

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import network  # noqa: E402


def main() -> None:
    whole, cut = Path("output/keypoints.onnx"), Path("output/keypoints_cut.onnx")
    whole.parent.mkdir(exist_ok=True)
    module, image = network.build()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (image,), dynamo=True, verbose=False).save(str(whole))

    graph = onnx.load(whole).graph
    tail = [node for node in graph.node if node.op_type == "NonZero"]
    print(f"{whole} has {len(tail)} NonZero: its number of rows depends on the image.")
    onnx.utils.extract_model(str(whole), str(cut), [graph.input[0].name], [graph.output[0].name])
    left = [node.op_type for node in onnx.load(cut).graph.node]
    print(f"{cut} ends with the scores '{graph.output[0].name}': {len(left)} nodes, NonZero: {'NonZero' in left}")

    report = precision_debug.compare(
        cut, run_mode="ort_fp16", inputs={graph.input[0].name: image.numpy()}, atol=1e-4, rtol=1e-3,
        output="output/keypoints.xlsx",
    )  # fmt: skip
    print(f"{report.verdict}; the report is output/keypoints.xlsx")
    for row in report.worst(3):
        error, growth = row.comparison.max_abs, row.error_growth
        print(f"{row.op_type:12} {row.name:20} max abs {error:.2e}, {growth:.2f} times its inputs' error")


if __name__ == "__main__":
    main()
