"""The oldest and the newest release of its engine that ran each mode: by tests/ends.py, or on a GPU machine
(tests/benchmarks/RESULTS.md). A mode that is not here never ran on hardware that it needs. doctor tells it."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["TRIED"]

_CPU = "paddlepaddle 2.6.2 to 3.3.1"
_TENSORRT = "paddlepaddle-gpu 2.6.2"  # with TensorRT 8.5.3; gpu_* and trt_bf16: no card for which that wheel has code
TRIED: Mapping[str, str] = {
    "paddle_fp32": _CPU,
    "cpu_fp32": _CPU,
    "cpu_opt": _CPU,
    "onednn_fp32": _CPU,
    "onednn_bf16": _CPU,
    "onednn_int8": _CPU,
    "dygraph_fp32": _CPU,
    "dygraph_fp64": _CPU,
    "dygraph_bf16": _CPU,
    "dygraph_amp_o1_bf16": _CPU,
    "dygraph_amp_o2_bf16": _CPU,
    "trt_fp32": _TENSORRT,
    "trt_fp16": _TENSORRT,
    "trt_int8": _TENSORRT,
}
