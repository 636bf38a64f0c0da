"""Imports without what they drag in.

onnxruntime-extensions and onnxruntime.tools import torch and transformers where these are installed: seconds and
130 MB, for converters that are not used here. The first also switches protobuf to pure Python in the environment.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import logging
import os
import sys
import tempfile
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from precision_debug.errors import BackendUnavailable

__all__ = ["import_extensions", "import_lean", "import_quantisation", "leave_logging_alone", "run_quietly"]


# Keeps ONNX Runtime's Python tools from setting up the process's logging.
#
# Some of its modules call ``logging.basicConfig`` when they are imported, and its quantiser logs through the root
# logger, which does so too: from then on every library of the process would log to standard error.

@contextlib.contextmanager
def leave_logging_alone() -> Iterator[None]:
    """Inside, nothing installs a handler on a root logger that has none."""
    root, silent = logging.getLogger(), logging.NullHandler()
    root.addHandler(silent)
    try:
        yield
    finally:
        root.removeHandler(silent)


@contextlib.contextmanager
def run_quietly(folder: Path) -> Iterator[None]:
    """The same, without prints, warnings and ONNX Runtime's own log, and with temporary files in ``folder``."""
    import onnxruntime as ort

    before = tempfile.tempdir
    tempfile.tempdir = str(folder)
    ort.set_default_logger_severity(4)
    try:
        with leave_logging_alone(), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        ort.set_default_logger_severity(2)
        tempfile.tempdir = before


_lock = threading.Lock()
_UNUSED = ("torch", "transformers")
_PROTOBUF = "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"


def import_lean(name: str) -> Any:
    """Return a module by its full name, with torch and transformers hidden from it. Raises ImportError."""
    if name in sys.modules:
        return sys.modules[name]
    with _lock:
        hidden = [unused for unused in _UNUSED if unused not in sys.modules]
        before = os.environ.get(_PROTOBUF)
        for unused in hidden:
            sys.modules[unused] = None  # type: ignore[assignment]
        try:
            with leave_logging_alone():
                return importlib.import_module(name)
        finally:
            for unused in hidden:
                sys.modules.pop(unused, None)
            if before is None:
                os.environ.pop(_PROTOBUF, None)
            else:
                os.environ[_PROTOBUF] = before


def import_extensions() -> Any:
    """Return the module ``onnxruntime_extensions``. Raises ImportError where it is not installed."""
    return import_lean("onnxruntime_extensions")


def import_quantisation() -> Any:
    """Return the module ``onnxruntime.quantization``. Raises BackendUnavailable where a package that it imports is
    missing."""
    try:
        return importlib.import_module("onnxruntime.quantization")
    except ImportError as error:
        missing = (error.name or "onnxruntime").partition(".")[0]
        raise BackendUnavailable(
            f"onnxruntime.quantization cannot be imported ({type(error).__name__}: {error})",
            hint=f"pip install {missing}",
        ) from error
