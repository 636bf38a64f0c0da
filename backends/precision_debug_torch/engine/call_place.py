"""Where in the user's Python an operator was called."""

from __future__ import annotations

import functools
import linecache
import os
import sys
from pathlib import Path
from types import FrameType

__all__ = ["source_line"]

_RUNS = {"_forward", "_trace"}
"""Methods of the sessions that call the model: who called them made no tensor."""

_OWN = str(Path(__file__).resolve().parent.parent) + os.sep


@functools.cache
def _skipped() -> tuple[str, ...]:
    import torch

    return (str(Path(torch.__file__).resolve().parent) + os.sep, _OWN)


@functools.lru_cache(maxsize=65536)
def _foreign(file: str) -> bool:
    return file.startswith("<") or file.startswith(_skipped()) or os.path.realpath(file).startswith(_skipped())


def source_line() -> str:
    """ "file.py:12 forward: x = self.conv(x)" of the nearest frame outside torch, up to ours; otherwise ""."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_OWN):
        frame = frame.f_back
    while frame is not None:
        code = frame.f_code
        if code.co_filename.startswith(_OWN) and code.co_name in _RUNS:
            return ""
        if not _foreign(code.co_filename):
            return _text(code.co_filename, frame.f_lineno, code.co_name)
        frame = frame.f_back
    return ""


@functools.lru_cache(maxsize=65536)
def _text(file: str, line: int, function: str) -> str:
    return f"{os.path.basename(file)}:{line} {function}: {linecache.getline(file, line).strip()}"
