"""PyTorch's stages: float32, TF32 on a GPU, autocast, the whole module in the mode's type; of torch.compile its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precision_debug.protocols import Rung, Switch
from precision_debug.records import SessionSpec

from .. import modes
from ..settings import setting
from .inductor_options import Inductor, InductorParts, parts

__all__ = ["rungs", "switches"]

_COMPILED = ("eager", "aot_eager")
"""torch.compile's backends before inductor: the graph that was captured, and that of its decomposed operators."""


def rungs(spec: SessionSpec) -> tuple[Rung, ...]:
    """Return the stages up to ``spec.mode``."""
    target = modes.recipe(spec.mode)
    found = [_rung("float32", "torch_fp32")]
    if target.change == "compile":
        wanted = setting(spec.options, "compile_backend")
        before = _COMPILED[: _COMPILED.index(wanted)] if wanted in _COMPILED else _COMPILED
        found += [_rung(name, spec.mode, {"compile_backend": name}) for name in before]
        return (*found, _rung(wanted, spec.mode))
    if spec.mode not in ("torch_fp32", "torch_fp64"):
        found.append(_rung("TF32", "torch_tf32"))
    if target.dtype in ("float16", "bfloat16"):
        short = {"float16": "fp16", "bfloat16": "bf16"}[target.dtype]
        found.append(_rung(f"autocast to {target.dtype}", f"torch_autocast_{short}"))
    if spec.mode not in {rung.mode for rung in found}:
        found.append(_rung(target.change or target.autocast or target.dtype or spec.mode, spec.mode))
    return tuple(found)


def _rung(name: str, mode: str, options: Mapping[str, Any] | None = None) -> Rung:
    return Rung(name=name, mode=mode, options=options or {}, needs=modes.availability(mode).needs)


def switches(spec: SessionSpec) -> tuple[Switch, ...]:
    """Inductor's parts, then inductor itself; operators are left to ``precision_debug search``."""
    if modes.recipe(spec.mode).change != "compile" or setting(spec.options, "compile_backend") != "inductor":
        return ()
    before = setting(spec.options, "inductor")
    return (InductorParts(items=parts(before), before=tuple(before.items())), Inductor())
