"""Lists of marked names made by a script: a section of the model, a rule of one's own, an engine's fused layers."""

from __future__ import annotations

import sys
from pathlib import Path

import precision_debug
from precision_debug import assign_mark_names, get_mark_names_from_serialized_json

ROOT = Path(__file__).parent.parent.parent
DIGITS = ROOT / "examples" / "digits"
ENGINE = ROOT / "tests" / "data" / "inspector" / "paddle26_trt853_resnet18_fp16.json"


def main() -> None:
    def compare(marks: list[str]) -> precision_debug.Report:
        inputs = DIGITS / "test_images.npz"
        return precision_debug.compare(DIGITS / "digits.onnx", run_mode="ort_bf16_sim", inputs=inputs, marks=marks)

    every = [row.name for row in compare([]).rows]
    section = assign_mark_names("relu2_out", "logits", baseline=every)
    print("section:  ", *section)
    mine = [name for name in section if not name.startswith(("conv", "bn"))]
    print("mine:     ", *mine)
    print("compared: ", *(row.name for row in compare(mine).compared))

    engine = sys.argv[1] if len(sys.argv) > 1 else ENGINE
    fused = get_mark_names_from_serialized_json(engine)
    print(f"{len(fused)} tensors survive fusion in the engine:", *fused[:4], "...")


if __name__ == "__main__":
    main()
