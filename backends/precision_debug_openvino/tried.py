"""The oldest and the newest release of its engine that ran each mode: by tests/ends.py, or on a GPU machine
(tests/benchmarks/RESULTS.md). A mode that is not here never ran on hardware that it needs. doctor tells it."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["TRIED"]

_CPU = "openvino 2025.3.0 to 2026.4.1"
TRIED: Mapping[str, str] = dict.fromkeys(("ov_fp32", "ov_opt", "ov_opt_fp32", "ov_bf16", "ov_fp16", "ov_int8"), _CPU)
