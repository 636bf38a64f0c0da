"""OpenVINO's stages, and what its CPU plugin lets be switched off by properties: no pass by its name."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from precision_debug.protocols import Rung
from precision_debug.records import SessionSpec

from .. import modes
from ..settings import setting

__all__ = ["Transformations", "rungs", "switches"]

_OFF = {"SNIPPETS_MODE": "DISABLE", "LP_TRANSFORMS_MODE": "NO", "DYNAMIC_QUANTIZATION_GROUP_SIZE": "0"}
"""Code generated for chains of elementwise operators, low-precision transformations, and activations that are quantised
as they come: property to the value that switches each off (openvino/src/plugins/intel_cpu/src/config.cpp)."""


@dataclass(frozen=True, kw_only=True)
class Transformations:
    """Switched off by properties. before: the user's."""

    items: tuple[str, ...]
    before: tuple[tuple[str, str], ...] = ()
    name: str = "transformations"
    needs: str = ""
    quick: bool = True

    def options(self, off: Collection[str]) -> Mapping[str, Any]:
        pairs = {**dict(self.before), **{name: _OFF[name] for name in off}}
        return {"config": pairs}

    def snippet(self, off: Collection[str]) -> str:
        return f'core.compile_model(model, "CPU", { {name: _OFF[name] for name in off} })'


def rungs(spec: SessionSpec) -> tuple[Rung, ...]:
    """Return the stages up to ``spec.mode``."""
    found = [("everything off", "ov_fp32"), ("fusions", "ov_opt_fp32")]
    if spec.mode not in {mode for _, mode in found}:
        found.append((spec.mode, spec.mode))
    stages = tuple(Rung(name=name, mode=mode, needs=modes.availability(mode).needs) for name, mode in found)
    return stages[:1] if spec.mode == "ov_fp32" else stages


def switches(spec: SessionSpec) -> tuple[Transformations, ...]:
    """Return those that the user has not set already; none of a mode that does not fuse."""
    if not modes.recipe(spec.mode).fused or setting(spec.options, "device") != "CPU":
        return ()
    before = setting(spec.options, "config")
    items = tuple(name for name in _OFF if name not in before)
    return (Transformations(items=items, before=tuple(before.items())),) if items else ()
