"""The run modes of this backend, and whether each can run on this machine."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

from precision_debug.reasons import say as core
from precision_debug.records import Availability, RunMode

from .tried import TRIED

__all__ = ["RUN_MODES", "Recipe", "availability", "recipe"]

_SUFFIXES = (".tflite",)


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a mode comes about.

    widened: every quantised operator of the file computes in float32, with its weights as they are dequantised.
    reference: LiteRT's reference kernels, one an operator; otherwise what it ships with, XNNPACK for what that takes.
    """

    mode: RunMode
    widened: bool = False
    reference: bool = True


def _mode(name: str, precision: str, summary: str, zh: str) -> RunMode:
    return RunMode(
        name=name, summary=summary, zh=zh, suffixes=_SUFFIXES, baseline="tflite_fp32", precision=precision,
        concurrent=True,
    )  # fmt: skip


_RECIPES = {
    recipe.mode.name: recipe
    for recipe in (
        Recipe(mode=_mode("tflite_fp32", "float32",
                          "LiteRT's reference kernels in float32, what is quantised dequantised",
                          "LiteRT 参考内核，float32；量化的文件按反量化后的权重计算"), widened=True),
        Recipe(mode=_mode("tflite_ref", "model", "LiteRT's reference kernels in the file's own types",
                          "LiteRT 参考内核，按文件自身的类型")),
        Recipe(mode=_mode("tflite_opt", "model", "LiteRT as it ships: XNNPACK and its optimised kernels",
                          "LiteRT 默认方式：XNNPACK 与优化内核"), reference=False),
    )
}  # fmt: skip

RUN_MODES = tuple(replace(recipe.mode, tried=TRIED.get(recipe.mode.name, "")) for recipe in _RECIPES.values())
_NEEDS = "pip install 'precision_debug[litert]'"


def recipe(mode: str) -> Recipe:
    """Return the recipe of a mode; KeyError where this backend has no such mode."""
    return _RECIPES[mode]


def availability(mode: str) -> Availability:
    """Return whether ``mode`` can run here; ``needs`` names what is missing. Never raises."""
    if mode not in _RECIPES:
        return Availability(ok=False, needs=core("no_such_mode", backend="litert", mode=mode))
    try:
        _imported()
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        return Availability(ok=False, needs=f"{_NEEDS} ({why})")
    return Availability(ok=True)


@functools.cache
def _imported() -> None:
    """Raises what importing LiteRT raises."""
    import ai_edge_litert.interpreter
    import ai_edge_litert.schema_py_generated  # noqa: F401
