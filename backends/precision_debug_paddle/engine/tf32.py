"""TF32: FP32 with a mantissa of 10 bits, which NVIDIA's libraries take for FP32 unless they are told not to.

A mode that is called fp32 means FP32, so TF32 is off there: Paddle-TRT has no setting for it, but TensorRT, cuBLAS and
cuDNN obey NVIDIA_TF32_OVERRIDE=0 in the environment (TensorRT's developer guide, "TF32"), if it is there when they are
loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..modes import Recipe
from ..settings import setting
from .framework import paddle_module

__all__ = ["VARIABLE", "own_kernels", "settle", "tensorrt_note"]

VARIABLE = "NVIDIA_TF32_OVERRIDE"
_SWITCHES = ("set_cublas_switch", "set_cudnn_switch")


def settle(recipe: Recipe, options: Mapping[str, Any]) -> None:
    """Before TensorRT is loaded: TF32 off in trt_fp32, on where ``tf32`` asks for it. Other modes are left alone."""
    if not recipe.tensorrt:
        return
    if setting(options, "tf32"):
        os.environ.pop(VARIABLE, None)
    elif recipe.precision == "float32":
        os.environ[VARIABLE] = "0"


def tensorrt_note(recipe: Recipe, options: Mapping[str, Any]) -> str:
    """What the reader must know of it; "" where there is nothing to say."""
    if recipe.precision == "float32" and setting(options, "tf32"):
        return "TF32 was left on, TensorRT's default: layers of trt_fp32 may run in it (Real Precision says which)."
    if recipe.precision == "float32":
        return f"TF32 was switched off ({VARIABLE}=0); an engine that ships has it on: --option tf32=True."
    if os.environ.get(VARIABLE) == "0":
        return f"{VARIABLE}=0 was set, so FP32 layers did not run in TF32."
    return ""


def own_kernels(options: Mapping[str, Any]) -> str:
    """TF32 off in the matrix products and convolutions that Paddle runs itself; returns what to tell the reader."""
    core = paddle_module().base.core
    if setting(options, "tf32") or not all(hasattr(core, name) for name in _SWITCHES):
        return ""
    for name in _SWITCHES:
        getattr(core, name)(False)
    return "TF32 was switched off in Paddle's own kernels (--option tf32=True leaves it on)."
