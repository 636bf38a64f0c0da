"""TF32: FP32 with a mantissa of 10 bits, which NVIDIA's libraries take for FP32 unless they are told not to.

A mode that is called fp32 means FP32, so TF32 is off there: Paddle-TRT has no setting for it, but TensorRT, cuBLAS and
cuDNN obey NVIDIA_TF32_OVERRIDE=0 in the environment (TensorRT's developer guide, "TF32"), if it is there when they are
loaded.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from precision_debug.reasons import NOTHING, Reason

from ..modes import Recipe
from ..reasons import say
from ..settings import setting
from .framework import import_paddle

__all__ = ["VARIABLE", "settle", "tensorrt_note", "turn_off_tf32"]

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


def tensorrt_note(recipe: Recipe, options: Mapping[str, Any]) -> Reason:
    """Return what the reader must know of it; "" where there is nothing to say."""
    if recipe.precision == "float32" and setting(options, "tf32"):
        return say("tf32_left_on")
    if recipe.precision == "float32":
        return say("tf32_off", variable=VARIABLE)
    if os.environ.get(VARIABLE) == "0":
        return say("tf32_was_off", variable=VARIABLE)
    return NOTHING


def turn_off_tf32(options: Mapping[str, Any]) -> Reason:
    """TF32 off in the matrix products and convolutions that Paddle runs itself; returns what to tell the reader."""
    core = import_paddle().base.core
    if setting(options, "tf32") or not all(hasattr(core, name) for name in _SWITCHES):
        return NOTHING
    for name in _SWITCHES:
        getattr(core, name)(False)
    return say("tf32_off_own")
