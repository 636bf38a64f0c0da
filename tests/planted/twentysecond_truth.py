"""What is true of the twenty-second batch's ONNX cases, without the tool: ``python tests/planted/twentysecond_truth.py
[WORD …]``, as the twenty-first's does."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import onnx

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from planted import twentysecond_narrow, twentysecond_onnx
from planted.twelfth.case import Thread
from planted.twelfth.measure import in_half, stock
from planted.twentyfirst_truth import measure, rel


def real(one: Thread, folder: Path) -> list[str]:
    """A real model in one mode: its error."""
    import ml_dtypes

    path, _, feeds = one.make(folder)
    path, feeds = Path(path), feeds or {}
    want = stock(path, feeds)
    if one.mode == "ort_fp16":
        from onnxruntime.transformers.float16 import convert_float_to_float16

        half = convert_float_to_float16(onnx.load(path), keep_io_types=True).SerializeToString()
        return [f"off by {rel(stock(half, feeds), want):.4g}"]
    if one.mode == "ort_bf16_sim":
        told = [rel(in_half(path, feeds, one.who if kept else (), ml_dtypes.bfloat16), want) for kept in (False, True)]
        return [f"off by {told[0]:.4g}, with who in FP32 {told[1]:.4g}"]
    import openvino as ov

    compiled = ov.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found = compiled(feeds)
    return [f"off by {rel([found[n] for n in range(len(compiled.outputs))], want):.4g}"]


REAL = ("classifier_of_text_lines_in_half", "kinds_of_files_in_openvino",
        "mask_of_a_sentence_model_in_bfloat16")  # fmt: skip


def main() -> int:
    words = sys.argv[1:]
    for one in (*twentysecond_onnx.CASES, *twentysecond_narrow.CASES):
        if not words or any(word in one.name for word in words):
            with tempfile.TemporaryDirectory() as name:
                try:
                    told = (real if one.name in REAL else measure)(one, Path(name))
                except Exception as error:
                    told = [f"{type(error).__name__}: {error}"[:400]]
            print(f"{one.name} ({one.mode}) who {' '.join(one.who) or '-'}", *told, sep="\n    ", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
