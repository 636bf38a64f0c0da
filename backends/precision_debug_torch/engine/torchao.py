"""torchao's quantisation, imported without what it says of kernels that this machine does not need."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from importlib import import_module
from typing import Any

from ..reasons import say

__all__ = ["float8", "quantization", "what_is_missing"]


def quantization() -> Any:
    """Return the module torchao.quantization. Raises what its import raises."""
    return _quietly("torchao.quantization")


def float8() -> Any:
    """Return the module torchao.float8, which trains. Raises what its import raises."""
    return _quietly("torchao.float8")


def _quietly(module: str) -> Any:
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # it warns of every compiled extension that does not fit
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            return import_module(module)
    finally:
        logging.disable(level)


def what_is_missing(*wanted: str, training: bool = False) -> str:
    """Return what a way to quantise needs and has not; "" where it has everything. wanted: torchao's names, of what
    trains or of what quantises. Never raises."""
    try:
        found = float8() if training else quantization()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "torchao":
            return "pip install torchao"
        return say("torchao_without", module=error.name or "")
    except Exception as error:
        return say("torchao_unfit", error=f"{type(error).__name__}: {error}")
    absent = [name for name in wanted if not hasattr(found, name)]
    return say("torchao_older", names=absent) if absent else ""
