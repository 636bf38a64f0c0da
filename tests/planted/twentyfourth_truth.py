"""What is true of the twenty-fourth batch's files, without the tool: ``python tests/planted/twentyfourth_truth.py
[WORD …]``, as the twenty-first's does; sequences element by element."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import onnx

from planted import twentyfourth_onnx
from planted.fourteenth_truth import _lite
from planted.onnx_faults import Array
from planted.twelfth.case import Thread
from planted.twelfth.measure import openvino, stock
from planted.twentyfirst_truth import measure, rel


def _flat(found: Any) -> list[Array]:
    return [one for each in found for one in (each if isinstance(each, list) else [each])]


def run_in_float32(path: Path, feeds: Any) -> list[Array]:
    """OpenVINO with the hint that the mode gives: by default this processor takes bfloat16."""
    import openvino as ov

    compiled = ov.Core().compile_model(str(path), "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    found = compiled(dict(feeds))
    return [found[n] for n in range(len(compiled.outputs))]


def beside(one: Thread, folder: Path) -> list[str]:
    """A file in an engine beside its baseline's: how far each output is off."""
    path, base, feeds = one.make(folder)
    path, feeds = Path(path), feeds or {}
    if path.suffix == ".tflite":
        want = _lite(Path(str(base or path)), feeds, reference=True)
        got = run_in_float32(path, feeds) if one.mode.startswith("ov") else _lite(path, feeds, one.mode == "tflite_ref")
        return [f"off by {rel(got, want):.4g}"]
    want = _flat(stock(Path(str(base or path)), feeds))
    if one.mode == "ort_fp16":
        from onnxruntime.transformers.float16 import convert_float_to_float16

        half = convert_float_to_float16(onnx.load(path), keep_io_types=True).SerializeToString()
        return [f"off by {rel(stock(half, feeds), want):.4g}"]
    if one.mode.startswith("ov"):
        run = run_in_float32 if one.mode.endswith("fp32") else openvino
        return [f"off by {rel(run(path, feeds), want):.4g}"]
    return [f"off by {rel(_flat(stock(path, feeds, 99 if one.mode == 'ort_opt' else 0)), want):.4g}"]


def main() -> int:
    words = sys.argv[1:]
    for one in twentyfourth_onnx.CASES:
        if not words or any(word in one.name for word in words):
            with tempfile.TemporaryDirectory() as name:
                alone = one.mode in ("ort_opt", "ort_fp16", "ov_opt", "ov_opt_fp32") or one.mode.startswith("tflite")
                try:
                    told = (beside if alone or "sequence" in one.name else measure)(one, Path(name))
                    path = one.make(Path(name))[0]
                    if Path(path).suffix == ".onnx":
                        told.append(f"{len(onnx.load(path).graph.node)} operators")
                except Exception as error:
                    told = [f"{type(error).__name__}: {error}"[:400]]
            print(f"{one.name} ({one.mode}) who {' '.join(one.who) or '-'}", *told, sep="\n    ", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
