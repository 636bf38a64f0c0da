"""The oldest and the newest release of its engine that ran each mode: by tests/ends.py, or on a GPU machine
(tests/benchmarks/RESULTS.md). A mode that is not here never ran on hardware that it needs. doctor tells it."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["TRIED"]

_OLD = "tensorrt 8.6.1"
TRIED: Mapping[str, str] = {
    "trt_fp32": _OLD,
    "trt_tf32": _OLD,
    "trt_fp16": _OLD,
    "trt_int8": _OLD,
    "trt_best": _OLD,
    "trt_engine": _OLD,
}
