"""The oldest and the newest release of its engine that ran each mode: by tests/ends.py, or on a GPU machine
(tests/benchmarks/RESULTS.md). A mode that is not here never ran on hardware that it needs. doctor tells it."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["TRIED"]

_BOTH = "torch 2.11.0 to 2.13.0"
_CUDA = "torch 2.11.0"
TRIED: Mapping[str, str] = {
    "torch_fp32": _BOTH,
    "torch_fp64": _BOTH,
    "torch_fp16": _BOTH,
    "torch_bf16": _BOTH,
    "torch_autocast_fp16": _BOTH,
    "torch_autocast_bf16": _BOTH,
    "torch_compile": _BOTH,
    "torch_int8": _BOTH,
    "torch_fp8": _CUDA,
    "torch_fp8_weights": _CUDA,
    "torch_int4_weights": _CUDA,
}
