"""Imports Paddle, once and quietly."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import warnings
from typing import Any

__all__ = ["inference_module", "keep_kernels_loaded", "paddle_module"]


@functools.cache
def paddle_module() -> Any:
    """The paddle package. Its import warns of tools that only its extension builder needs; that is kept quiet.

    CUDA loads a kernel when it is first launched, unless CUDA_MODULE_LOADING says otherwise: the default from CUDA
    12.2 on (CUDA programming guide, "Lazy Loading"), and what TensorRT's own log asks for before.
    """
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("paddle")


def keep_kernels_loaded() -> None:
    """Let Paddle hold a builder of TensorRT's, so that each further engine finds its kernels loaded.

    Must come before the first engine. FLAGS_trt_ibuilder_cache in the environment says otherwise.
    """
    name = "FLAGS_trt_ibuilder_cache"
    if name not in os.environ:
        with contextlib.suppress(ValueError):  # a Paddle that does not know it
            paddle_module().set_flags({name: True})


def inference_module() -> Any:
    """paddle.inference."""
    paddle_module()
    return importlib.import_module("paddle.inference")
