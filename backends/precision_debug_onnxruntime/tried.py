"""The oldest and the newest release of its engine that ran each mode: by tests/ends.py, or on a GPU machine
(tests/benchmarks/RESULTS.md). A mode that is not here never ran on hardware that it needs. doctor tells it."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["TRIED"]

_CPU = "onnxruntime 1.16.3 to 1.32.0"
_GPU = "onnxruntime-gpu 1.31.1"
TRIED: Mapping[str, str] = {
    "ort_fp32": _CPU,
    "ort_opt": _CPU,
    "ort_fp16": _CPU,
    "ort_int8": _CPU,
    "ort_int8_dynamic": _CPU,
    "ort_int4": "onnxruntime 1.32.0",
    "ort_fp16_sim": _CPU,
    "ort_bf16_sim": _CPU,
    "ort_cuda_fp32": _GPU,
    "ort_cuda_fp16": _GPU,
    "ort_ep_qnn": "onnxruntime-qnn 2.7.0",
    "onnx_ref": "onnx 1.16.0 to 1.23.2",
}
