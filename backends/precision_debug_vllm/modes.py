"""The run modes of this backend, and whether each can run on this machine."""

from __future__ import annotations

import importlib.util
import os
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from precision_debug.reasons import say as core
from precision_debug.records import Availability, RunMode

from .tried import TRIED

__all__ = ["PYTHON", "RUN_MODES", "Recipe", "availability", "python_with_vllm", "recipe"]

PYTHON = "PRECISION_DEBUG_VLLM_PYTHON"
"""The environment's variable that names the Python which has vLLM: it wants a torch and a transformers of its own."""


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a mode comes about: the type in which the engine holds weights and activations."""

    mode: RunMode
    dtype: str


def _mode(name: str, precision: str, summary: str, zh: str) -> RunMode:
    return RunMode(
        name=name, summary=summary, zh=zh, suffixes=("",), baseline="vllm_fp32", precision=precision, concurrent=True,
        builds=True, accumulates="float32",
    )  # fmt: skip


_RECIPES = {
    recipe.mode.name: recipe
    for recipe in (
        Recipe(mode=_mode("vllm_fp32", "float32", "vLLM in float32, token by token as it serves a model",
                          "vLLM，float32，按其提供服务的方式运行"), dtype="float32"),
        Recipe(mode=_mode("vllm_bf16", "bfloat16", "vLLM in bfloat16, as a rollout engine runs a model",
                          "vLLM，bfloat16，与 rollout 引擎运行模型的方式相同"), dtype="bfloat16"),
    )
}  # fmt: skip

RUN_MODES = tuple(replace(recipe.mode, tried=TRIED.get(recipe.mode.name, "")) for recipe in _RECIPES.values())
_NEEDS = f"a Python that has vLLM: {PYTHON}=/path/to/its/environment/bin/python"


def recipe(mode: str) -> Recipe:
    """Return the recipe of a mode; KeyError where this backend has no such mode."""
    return _RECIPES[mode]


def python_with_vllm() -> str:
    """Return the Python that runs the engine: the one that the environment's variable names, or this one; "" where
    neither."""
    named = os.environ.get(PYTHON, "")
    if named:
        return named if Path(named).is_file() else ""
    return sys.executable if importlib.util.find_spec("vllm") is not None else ""


def availability(mode: str) -> Availability:
    """Return whether ``mode`` can run here; ``needs`` names what is missing. Never raises."""
    if mode not in _RECIPES:
        return Availability(ok=False, needs=core("no_such_mode", backend="vllm", mode=mode))
    return Availability(ok=True) if python_with_vllm() else Availability(ok=False, needs=_NEEDS)
