"""Imports Paddle, once and quietly."""

from __future__ import annotations

import functools
import importlib
import warnings
from typing import Any

__all__ = ["inference_module", "paddle_module"]


@functools.cache
def paddle_module() -> Any:
    """The paddle package. Its import warns of tools that only its extension builder needs; that is kept quiet."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("paddle")


def inference_module() -> Any:
    """paddle.inference."""
    paddle_module()
    return importlib.import_module("paddle.inference")
