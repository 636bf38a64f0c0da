"""The run modes of this backend, and whether each can run on this machine."""

from __future__ import annotations

from dataclasses import dataclass, replace

from precision_debug.reasons import say as core
from precision_debug.records import Availability, RunMode

from .tried import TRIED

__all__ = ["RUN_MODES", "Recipe", "availability", "recipe"]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a mode comes about.

    widened: every weight is dequantised to float32, keys and values are kept in float32, attention is computed operator
    by operator, and no weight is laid out anew for faster kernels.
    """

    mode: RunMode
    widened: bool = False


def _mode(name: str, precision: str, summary: str, zh: str) -> RunMode:
    return RunMode(
        name=name, summary=summary, zh=zh, suffixes=(".gguf",), baseline="gguf_fp32", precision=precision,
        concurrent=True,
    )  # fmt: skip


_RECIPES = {
    recipe.mode.name: recipe
    for recipe in (
        Recipe(mode=_mode("gguf_fp32", "float32",
                          "llama.cpp in float32: weights dequantised, keys and values in F32, no flash attention",
                          "llama.cpp，float32：权重反量化，K、V 缓存为 F32，不用 flash attention"), widened=True),
        Recipe(mode=_mode("gguf_cpu", "model", "llama.cpp on the CPU as deployed, in the file's own types",
                          "llama.cpp 在 CPU 上按默认方式运行，按文件自身的类型")),
    )
}  # fmt: skip

RUN_MODES = tuple(replace(recipe.mode, tried=TRIED.get(recipe.mode.name, "")) for recipe in _RECIPES.values())
_NEEDS = "pip install 'precision_debug[gguf]'"


def recipe(mode: str) -> Recipe:
    """Return the recipe of a mode; KeyError where this backend has no such mode."""
    return _RECIPES[mode]


def availability(mode: str) -> Availability:
    """Return whether ``mode`` can run here; ``needs`` names what is missing. Never raises."""
    if mode not in _RECIPES:
        return Availability(ok=False, needs=core("no_such_mode", backend="llamacpp", mode=mode))
    try:
        from .engine.library import load_library

        load_library()
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())
        return Availability(ok=False, needs=f"{_NEEDS} ({why})")
    return Availability(ok=True)
