"""One table from PyTorch to the engine: the trained module in torch_fp32 beside its deployed ONNX file in ort_fp16."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch
from precision_debug_torch.export_pairs import pair_export, renames_in
from precision_debug_torch.model import from_module
from precision_debug_torch.weights import check_weights, summary

import precision_debug

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import model  # noqa: E402


def main() -> None:
    exported = Path("output/deployed.onnx")
    exported.parent.mkdir(exist_ok=True)
    deployed, image = model.build_deployed()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(deployed, (image,), dynamo=True, verbose=False).save(str(exported))

    for line in summary(check_weights(from_module(deployed, image), exported), exported):
        print(line)

    trained = f"{HERE / 'model.py'}:build"
    pairing = pair_export(trained, str(exported))
    for name, match in pairing.matches.items():
        print(f"{name:12} = {match.baseline:28} {match.how}, confidence {match.confidence:.6f}")
    for name, why in pairing.refused.items():
        print(f"{name:12}   not paired: {why}")

    feeds = {"image": image.numpy()}
    report = precision_debug.compare(
        exported,
        run_mode="ort_fp16",
        baseline="torch_fp32",
        baseline_model=trained,
        inputs=feeds,
        renames=renames_in(pairing, str(exported), "ort_fp16", feeds=feeds),
        atol=1e-2,
        rtol=1e-2,
        output="output/torch_onnx.xlsx",
    )
    print(f"{report.verdict}; the report is output/torch_onnx.xlsx")
    for row in report.rows:
        numbers = f"max abs {row.comparison.max_abs:.2e}" if row.comparison else row.reason
        print(f"{row.status!s:12} {row.op_type:24} {row.name:28} {row.target_name:14} {numbers}")


if __name__ == "__main__":
    main()
