"""Keeps ONNX Runtime's Python tools from setting up the process's logging.

Some of its modules call ``logging.basicConfig`` when they are imported, and its quantiser logs through the root logger,
which does so too: from then on every library of the process would log to standard error.
"""

from __future__ import annotations

import contextlib
import io
import logging
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

__all__ = ["logging_left_alone", "quietly"]


@contextlib.contextmanager
def logging_left_alone() -> Iterator[None]:
    """Inside, nothing installs a handler on a root logger that has none."""
    root, silent = logging.getLogger(), logging.NullHandler()
    root.addHandler(silent)
    try:
        yield
    finally:
        root.removeHandler(silent)


@contextlib.contextmanager
def quietly(folder: Path) -> Iterator[None]:
    """The same, without prints, warnings and ONNX Runtime's own log, and with temporary files in ``folder``."""
    import onnxruntime as ort

    before = tempfile.tempdir
    tempfile.tempdir = str(folder)
    ort.set_default_logger_severity(4)
    try:
        with logging_left_alone(), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        ort.set_default_logger_severity(2)
        tempfile.tempdir = before
