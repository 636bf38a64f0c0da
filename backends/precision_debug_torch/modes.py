"""The run modes of this backend, and whether each can run on this machine."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from precision_debug import registry
from precision_debug.reasons import say as core
from precision_debug.records import Availability, RunMode

from .reasons import say
from .tried import TRIED

__all__ = ["ROADS", "RUN_MODES", "Recipe", "availability", "recipe"]

ROADS = ("whole", "decode", "chunks", "alone", "padded_left", "padded_right", "eager", "sdpa", "head_fp32")
"""Ways of a language model's tokens through it; "whole" is the batch at once, as it was given."""

_FACTORY = (".py", "")  # "": a folder
_MODULES = (".py", ".pt2", "")
_ALL = (".py", ".pt2", ".pt", ".ts", "")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a mode comes about.

    dtype: parameters, buffers and floating inputs are cast to it; "" leaves them. autocast: torch.autocast's dtype.
    tf32: TensorFloat-32 in matrix products and convolutions on CUDA. change: "", "compile", or how linear layers are
    quantised: "int8", "fp8", "fp8_weights", "int4_weights".
    """

    mode: RunMode
    dtype: str = ""
    autocast: str = ""
    tf32: bool = False
    change: str = ""

    @property
    def promotes(self) -> bool:
        """Whether casts inside the model to a lower precision are kept in this mode's own."""
        return self.dtype == "float64"

    @property
    def same_draws(self) -> bool:
        """Whether random operators are drawn in float32, so that this mode sees the baseline's numbers."""
        return bool(self.dtype not in ("", "float32") or self.autocast)


def _mode(
    name: str, precision: str, summary: str, zh: str, suffixes: tuple[str, ...] = _ALL, wide: str = ""
) -> RunMode:
    return RunMode(
        name=name,
        summary=summary,
        zh=zh,
        suffixes=suffixes,
        baseline="torch_fp32",
        precision=precision,
        concurrent=name != "torch_compile",
        wide_parameters=wide,
        accumulates="float32",  # at::opmath_type of the narrow types
    )


_RECIPES = {
    recipe.mode.name: recipe
    for recipe in (
        Recipe(mode=_mode("torch_fp32", "float32", "PyTorch in float32, TF32 off: the usual baseline",
                          "PyTorch float32，关闭 TF32：通常的基线"), dtype="float32"),
        Recipe(mode=_mode("torch_fp64", "float64", "PyTorch in float64: the truth",
                          "PyTorch float64：作为真值", _MODULES), dtype="float64"),
        Recipe(mode=_mode("torch_fp16", "float16", "module.half(), inputs too",
                          "module.half()，输入也转换", _MODULES, "torch_autocast_fp16"), dtype="float16"),
        Recipe(mode=_mode("torch_bf16", "bfloat16", "module.bfloat16(), inputs too",
                          "module.bfloat16()，输入也转换", _MODULES, "torch_autocast_bf16"), dtype="bfloat16"),
        Recipe(mode=_mode("torch_autocast_fp16", "float16", "torch.autocast to float16",
                          "torch.autocast 到 float16", _MODULES), autocast="float16"),
        Recipe(mode=_mode("torch_autocast_bf16", "bfloat16", "torch.autocast to bfloat16",
                          "torch.autocast 到 bfloat16", _MODULES), autocast="bfloat16"),
        Recipe(mode=_mode("torch_tf32", "tf32", "float32 with TensorFloat-32 products, CUDA only",
                          "float32，乘积用 TensorFloat-32，仅 CUDA"), dtype="float32", tf32=True),
        Recipe(mode=_mode("torch_compile", "model", "torch.compile with inductor",
                          "torch.compile，使用 inductor", _MODULES), change="compile"),
        Recipe(
            mode=_mode("torch_int8", "int8", "linear layers in int8 by torchao, activations quantised as they come",
                       "torchao 的 int8 线性层，激活值运行时量化", _FACTORY),
            dtype="float32",
            change="int8",
        ),
        Recipe(
            mode=_mode(
                "torch_fp8",
                "float8_e4m3fn",
                "bfloat16, linear layers in float8 by torchao, activations quantised as they come; of a training step"
                " the gradients too",
                "bfloat16，torchao 的 float8 线性层，激活值运行时量化；训练步中梯度也量化",
                _FACTORY,
            ),
            dtype="bfloat16",
            change="fp8",
        ),
        Recipe(
            mode=_mode("torch_fp8_weights", "float8_e4m3fn", "bfloat16, linear layers' weights in float8 by torchao",
                       "bfloat16，线性层权重由 torchao 存为 float8", _FACTORY),
            dtype="bfloat16",
            change="fp8_weights",
        ),
        Recipe(
            mode=_mode("torch_int4_weights", "int4", "bfloat16, linear layers' weights in int4 by torchao",
                       "bfloat16，线性层权重由 torchao 存为 int4", _FACTORY),
            dtype="bfloat16",
            change="int4_weights",
        ),
    )
}

RUN_MODES = tuple(replace(recipe.mode, tried=TRIED.get(recipe.mode.name, "")) for recipe in _RECIPES.values())
_NEEDS = "pip install 'precision_debug[torch]'"


_CONFIGS = {
    "int8": "Int8DynamicActivationInt8WeightConfig",
    "fp8": "Float8DynamicActivationFloat8WeightConfig",
    "fp8_weights": "Float8WeightOnlyConfig",
    "int4_weights": "Int4WeightOnlyConfig",
}
"""What each way to quantise needs of torchao."""


def recipe(mode: str) -> Recipe:
    """Return the recipe of a mode; KeyError where this backend has no such mode."""
    return _RECIPES[mode]


def availability(mode: str, *, step: bool = True) -> Availability:
    """Return whether ``mode`` can run here; ``needs`` names the package or device that is missing. Never raises.

    step: a training step is enough; else a forward pass is asked for.
    """
    if mode not in _RECIPES:
        return Availability(ok=False, needs=core("no_such_mode", backend="torch", mode=mode))
    try:
        import torch
    except Exception as error:
        return Availability(ok=False, needs=f"{_NEEDS} ({type(error).__name__}: {error})")
    chosen = _RECIPES[mode]
    if not hasattr(torch.utils, "_python_dispatch") or not hasattr(torch, "export"):
        return Availability(ok=False, needs=say("needs_torch", version=torch.__version__))
    if chosen.tf32:
        if not torch.cuda.is_available():
            return Availability(ok=False, needs=say("needs_cuda"))
        if torch.cuda.get_device_capability()[0] < 8:
            return Availability(ok=False, needs=say("needs_tf32"))
    if chosen.change in _CONFIGS:
        from .engine.torchao import what_is_missing

        missing = what_is_missing("quantize_", _CONFIGS[chosen.change])
        if not missing and chosen.change == "fp8" and not _multiplies_float8(torch):
            # a training step is emulated then
            missing = what_is_missing("convert_to_float8_training", "Float8LinearConfig", training=True)
        if not missing and chosen.change == "fp8" and not step and not _multiplies_float8(torch):
            missing = say("needs_fp8")
        if missing:
            return Availability(ok=False, needs=missing)
    return Availability(ok=True, slower=(torch.cuda.is_available() and registry.explain_host_only("torch")) or "")


def _multiplies_float8(torch: Any) -> bool:
    return bool(torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 9))
