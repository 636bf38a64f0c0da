"""TensorRT's stages: true FP32, TF32, the precision that the mode allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precision_debug.protocols import Rung
from precision_debug.records import SessionSpec

from .. import modes

__all__ = ["rungs"]


def rungs(spec: SessionSpec) -> tuple[Rung, ...]:
    """Return the stages up to ``spec.mode``."""
    found = [_rung("TensorRT in FP32", "trt_fp32")]
    if spec.mode != "trt_fp32":
        found.append(_rung("TF32", "trt_tf32"))
    if spec.mode not in {rung.mode for rung in found}:
        found.append(_rung(" and ".join(modes.recipe(spec.mode).precisions) or spec.mode, spec.mode))
    return tuple(found)


def _rung(name: str, mode: str, options: Mapping[str, Any] | None = None) -> Rung:
    return Rung(name=name, mode=mode, options=options or {}, needs=modes.availability(mode).needs)
