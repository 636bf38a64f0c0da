"""One table from PyTorch to the engine: the trained module in torch_fp32 beside its deployed ONNX file in ort_fp16."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import torch

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

    report = precision_debug.compare(
        exported,
        run_mode="ort_fp16",
        baseline="torch_fp32",
        baseline_model=f"{HERE / 'model.py'}:build",
        atol=1e-2,
        rtol=1e-2,
        output="output/torch_onnx.xlsx",
    )
    for note in report.notes:
        print(note)
    print(f"{report.verdict}; the report is output/torch_onnx.xlsx")
    for row in report.rows:
        numbers = f"max abs {row.comparison.max_abs:.2e}, {row.paired_by}" if row.comparison else row.reason
        print(f"{row.status!s:12} {row.op_type:24} {row.name:28} {row.target_name:24} {numbers}")


if __name__ == "__main__":
    main()
