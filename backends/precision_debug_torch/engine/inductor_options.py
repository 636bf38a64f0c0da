"""What of inductor can be switched off: torch.compile's options by name, in the order in which it works."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Inductor", "InductorParts", "options_of", "parts"]

_OFF: Mapping[str, Any] = {
    "joint_graph_constant_folding": False, "pattern_matcher": False, "cpp.weight_prepack": False,
    "emulate_precision_casts": True, "layout_optimization": False, "comprehensive_padding": False,
    "split_reductions": False, "epilogue_fusion": False, "loop_ordering_after_fusion": False, "max_fusion_size": 1,
    "reorder_for_peak_memory": False, "inplace_buffers": False, "allow_buffer_reuse": False,
    "cpp.enable_tiling_heuristics": False, "cpp.enable_loop_tail_vec": False, "cpp.simdlen": 1,
}  # fmt: skip
"""Option to the value that switches its part off (torch/_inductor/config.py of 2.13): rewriting of patterns,
float32 that is kept between narrow operators (emulate_precision_casts), layouts, fusion (max_fusion_size=1: a kernel an
operator), memory that is used again, vectorised C++ (cpp.simdlen=1)."""


@dataclass(frozen=True, kw_only=True)
class InductorParts:
    """Parts of inductor. before: options of the user's."""

    items: tuple[str, ...]
    before: tuple[tuple[str, str], ...] = ()
    name: str = "inductor's parts"
    needs: str = ""
    quick: bool = False

    def options(self, off: Collection[str]) -> Mapping[str, Any]:
        return {"inductor": [f"{name}={value}" for name, value in self._pairs(off).items()]}

    def snippet(self, off: Collection[str]) -> str:
        return f"torch.compile(model, options={options_of(self._pairs(off))})"

    def _pairs(self, off: Collection[str]) -> dict[str, str]:
        return {**dict(self.before), **{name: str(_OFF[name]) for name in off}}


@dataclass(frozen=True, kw_only=True)
class Inductor:
    """Inductor as a whole: the graph that it is given runs operator by operator."""

    items: tuple[str, ...] = ("inductor",)
    name: str = "inductor"
    needs: str = ""
    quick: bool = False

    def options(self, off: Collection[str]) -> Mapping[str, Any]:
        return {"compile_backend": "aot_eager" if off else "inductor"}

    def snippet(self, off: Collection[str]) -> str:
        return f'torch.compile(model, backend="{self.options(off)["compile_backend"]}")'


def parts(before: Mapping[str, str]) -> tuple[str, ...]:
    """Return those that this release of PyTorch has, and that the user has not set."""
    from torch import _inductor

    known = set(_inductor.list_options())
    return tuple(name for name in _OFF if name in known and name not in before)


def options_of(given: Mapping[str, str]) -> dict[str, Any]:
    """As torch.compile takes them: numbers, truth values and None for what reads as such, else text."""
    return {name: _literal(text) for name, text in given.items()}


def _literal(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
