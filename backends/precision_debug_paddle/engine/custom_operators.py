"""Libraries of custom operators, and the operators of a program that need one."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable
from pathlib import Path

from precision_debug.errors import BackendUnavailable, UsageError, shortened

from .framework import paddle_module

__all__ = ["custom_operators", "register_libraries"]

_IN_PIR = re.compile(rb'"3\.([A-Za-z_][\w.]*)"')
"""A PIR file writes its dialects as numbers: 0 builtin, 1 pd_op, 2 cf, 3 custom_op."""

_registered: set[str] = set()


def register_libraries(paths: Iterable[str]) -> None:
    """Make their operators known to this process; each library once, as a second time is an error of Paddle's.

    Raises UsageError for a file that is none, and BackendUnavailable for one that this Paddle does not take.
    """
    for given in paths:
        path = str(Path(given).resolve())
        if path in _registered:
            continue
        if not Path(path).is_file():
            hint = "give the .so that paddle.utils.cpp_extension built"
            raise UsageError(f"no such library: {given}", where="--option custom_ops_library", hint=hint)
        paddle_module()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a compiler's tools, which nothing here needs
            from paddle.utils.cpp_extension import load_op_meta_info_and_register_op
        try:
            load_op_meta_info_and_register_op(path)
        except Exception as error:
            raise BackendUnavailable(
                f"this Paddle cannot load it: {_first(str(error) or type(error).__name__)}", where=given,
                hint="build it against the Paddle that is installed here",
            ) from error
        _registered.add(path)


def _first(text: str) -> str:
    return shortened(text.partition(" Suggestions:")[0].strip())


def custom_operators(program: str) -> list[str]:
    """The custom operators of a PIR program (.json), by name; [] of any other file."""
    if not program.lower().endswith(".json"):
        return []
    try:
        return sorted({found.decode() for found in _IN_PIR.findall(Path(program).read_bytes())})
    except OSError:
        return []
