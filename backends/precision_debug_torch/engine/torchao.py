"""torchao's quantisation, imported without what it says of kernels that this machine does not need."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from importlib import import_module
from typing import Any

__all__ = ["quantization", "what_is_missing"]


def quantization() -> Any:
    """The module torchao.quantization. Raises what its import raises."""
    level = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # it warns of every compiled extension that does not fit
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            return import_module("torchao.quantization")
    finally:
        logging.disable(level)


def what_is_missing(config: str) -> str:
    """What a way to quantise needs and has not; "" where it has everything. config: torchao's name of it. Never
    raises."""
    try:
        found = quantization()
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "torchao":
            return "pip install torchao"
        return f"torchao cannot be imported: no module {error.name}; pip install -U torchao"
    except Exception as error:
        return f"torchao does not fit this torch ({type(error).__name__}: {error}); pip install -U torchao"
    absent = [name for name in ("quantize_", config) if not hasattr(found, name)]
    return f"a newer torchao, with {' and '.join(absent)}: pip install -U torchao" if absent else ""
