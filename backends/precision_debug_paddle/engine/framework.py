"""Imports Paddle, once and quietly."""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import signal
import sys
import threading
import warnings
from typing import Any

__all__ = ["inference_module", "keep_kernels_loaded", "paddle_module"]


@functools.cache
def paddle_module() -> Any:
    """The paddle package. Its import warns of tools that only its extension builder needs; that is kept quiet.

    CUDA loads a kernel when it is first launched, unless CUDA_MODULE_LOADING says otherwise: the default from CUDA
    12.2 on (CUDA programming guide, "Lazy Loading"), and what TensorRT's own log asks for before. Where it is imported
    here first, SIGTERM ends the process as before: Paddle's own handler takes locks that the thread below it may hold.
    """
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    first, handler = "paddle" not in sys.modules, signal.getsignal(signal.SIGTERM)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paddle = importlib.import_module("paddle")
    if first and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL if handler is None else handler)
    elif first:  # which takes all of its handlers away
        paddle.disable_signal_handler()
    return paddle


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
