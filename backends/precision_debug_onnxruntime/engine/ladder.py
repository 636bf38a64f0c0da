"""ONNX Runtime's stages: everything off, its fusions, the device, the mode's own conversion or quantisation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precision_debug.protocols import Rung
from precision_debug.records import SessionSpec

from .. import modes

__all__ = ["rungs"]


def rungs(spec: SessionSpec) -> tuple[Rung, ...]:
    """Return the stages up to ``spec.mode``."""
    target = modes.recipe(spec.mode)
    found = [_rung("everything off", "ort_fp32")]
    if target.optimise:
        found.append(_rung("fusions", "ort_opt"))
    if target.engine in ("cuda", "tensorrt"):
        found.append(_rung("CUDA", "ort_cuda_fp32", {"use_tf32": False}))
        found.append(_rung("TF32", "ort_cuda_fp32"))
    names = {"float16": "float16", "int8": "int8", "int8_dynamic": "int8", "int4": "int4",
             "float16_sim": "float16 (a simulation)", "bfloat16_sim": "bfloat16 (a simulation)"}  # fmt: skip
    if spec.mode not in {rung.mode for rung in found}:
        found.append(_rung(names.get(target.change, spec.mode), spec.mode))
    return tuple(found)


def _rung(name: str, mode: str, options: Mapping[str, Any] | None = None) -> Rung:
    return Rung(name=name, mode=mode, options=options or {}, needs=modes.availability(mode).needs)
