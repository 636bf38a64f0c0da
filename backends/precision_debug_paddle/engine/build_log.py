"""What Paddle and TensorRT print while an engine is built: let them, and understand a line of it.

A predictor that was opened quietly leaves Paddle's log off for the whole process (AnalysisPredictor sets glog's
minloglevel and never sets it back), so it is set back here, in glog's own variable. TensorRT's messages come through
the logger in Paddle's tensorrt/helper.h: INFO at level 2 of that file's VLOG, VERBOSE at level 3. glog:
https://github.com/google/glog, "Verbose Logging"
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from precision_debug.reasons import Reason

from ..reasons import say
from .framework import import_paddle

__all__ = ["make_audible", "read_progress"]

_LEVEL = "_ZN3fLI17FLAGS_minloglevelE"
_SET_VLOG = "_ZN6google12SetVLOGLevelEPKci"
_TENSORRT = b"helper"
_SILENT, _INFO, _VERBOSE = 0, 2, 3


@contextlib.contextmanager
def make_audible() -> Iterator[None]:
    """Paddle's log on, and TensorRT's with it; where it goes into a file (not to a terminal), each layer it times."""
    libraries = _libraries()
    before = [level.value for level, _ in libraries]
    for level, set_vlog in libraries:
        level.value = 0
        set_vlog(_TENSORRT, _VERBOSE if _into_a_file() else _INFO)
    try:
        yield
    finally:
        for (level, set_vlog), value in zip(libraries, before, strict=True):
            level.value = value
            set_vlog(_TENSORRT, _SILENT)


@functools.cache
def _libraries() -> tuple[tuple[Any, Any], ...]:
    """Return glog's variable and function in each of Paddle's libraries that has a glog of its own: two in GPU
    wheels."""
    home = Path(import_paddle().__file__).parent
    found = []
    for path in (home / "base" / "libpaddle.so", home / "libs" / "libphi.so"):
        try:
            library = ctypes.CDLL(str(path))
            set_vlog = library[_SET_VLOG]
            level = ctypes.c_int.in_dll(library, _LEVEL)
        except (OSError, AttributeError, ValueError):
            continue
        set_vlog.argtypes, set_vlog.restype = (ctypes.c_char_p, ctypes.c_int), ctypes.c_int
        found.append((level, set_vlog))
    return tuple(found)


def _into_a_file() -> bool:
    try:
        return stat.S_ISREG(os.fstat(2).st_mode)
    except OSError:
        return False


_SUBGRAPH = re.compile(r"detect a sub-graph with (\d+) nodes")
_PREPARE = re.compile(r"Prepare TRT engine")
_AGAIN = re.compile(r"rebuild trt engine", re.IGNORECASE)
_LOADING = re.compile(r"Init builder kernel library")
_OUTPUTS = re.compile(r"Detected (\d+) inputs? and (\d+) output")
_TIMING = re.compile(r"Timing Runner: (.+?) \((?!Output)[^()]*\)$")
_PASS = re.compile(r"Running IR pass \[(\w+)\]")
_DONE = re.compile(r"Engine generation completed in ([0-9.]+) seconds")


def read_progress(line: str) -> Reason | None:
    """See ``protocols.ProgressReader``."""
    if found := _TIMING.search(line):
        return say("heard_timing", layer=found[1])
    if found := _SUBGRAPH.search(line):
        return say("heard_subgraph", count=int(found[1]))
    if _AGAIN.search(line):
        return say("heard_again")
    if _PREPARE.search(line):
        return say("heard_preparing")
    if found := _OUTPUTS.search(line):
        return say("heard_outputs", count=int(found[2]))
    if found := _DONE.search(line):
        return say("heard_done", seconds=float(found[1]))
    if found := _PASS.search(line):
        return say("heard_pass", name=found[1])
    return say("heard_loading") if _LOADING.search(line) else None
