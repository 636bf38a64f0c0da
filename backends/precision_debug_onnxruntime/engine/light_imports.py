"""Imports without what they drag in.

onnxruntime-extensions and onnxruntime.tools import torch and transformers where these are installed: seconds and
130 MB, for converters that are not used here. The first also switches protobuf to pure Python in the environment.
"""

from __future__ import annotations

import importlib
import os
import sys
import threading
from typing import Any

from precision_debug.errors import BackendUnavailable

from .quiet_logging import logging_left_alone

__all__ = ["extensions", "lean_import", "quantisation"]

_lock = threading.Lock()
_UNUSED = ("torch", "transformers")
_PROTOBUF = "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"


def lean_import(name: str) -> Any:
    """A module by its full name, with torch and transformers hidden from it. Raises ImportError."""
    if name in sys.modules:
        return sys.modules[name]
    with _lock:
        hidden = [unused for unused in _UNUSED if unused not in sys.modules]
        before = os.environ.get(_PROTOBUF)
        for unused in hidden:
            sys.modules[unused] = None  # type: ignore[assignment]
        try:
            with logging_left_alone():
                return importlib.import_module(name)
        finally:
            for unused in hidden:
                sys.modules.pop(unused, None)
            if before is None:
                os.environ.pop(_PROTOBUF, None)
            else:
                os.environ[_PROTOBUF] = before


def extensions() -> Any:
    """The module ``onnxruntime_extensions``. Raises ImportError where it is not installed."""
    return lean_import("onnxruntime_extensions")


def quantisation() -> Any:
    """The module ``onnxruntime.quantization``. Raises BackendUnavailable where a package that it imports is missing."""
    try:
        return importlib.import_module("onnxruntime.quantization")
    except ImportError as error:
        missing = (error.name or "onnxruntime").partition(".")[0]
        raise BackendUnavailable(
            f"onnxruntime.quantization cannot be imported ({type(error).__name__}: {error})",
            hint=f"pip install {missing}",
        ) from error
