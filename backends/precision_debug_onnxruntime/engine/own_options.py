"""Session options that the user names in ONNX Runtime's own words."""

from __future__ import annotations

import functools
import mmap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from precision_debug.errors import UsageError
from precision_debug.reasons import suggest_nearest

from ..settings import ATTRIBUTES

__all__ = ["configure", "is_read"]

_WHERE = "--option config"

_FLAGS = {"1": True, "true": True, "0": False, "false": False}


def configure(options: Any, given: Mapping[str, str], *, optimise: str) -> None:
    """Set attributes and config entries of an ``onnxruntime.SessionOptions``.

    optimise: see ``Runtime.open``; a level of optimisation is read by sessions that optimise alone, and never raises
    what "basic" asks for. Raises UsageError for an entry that this ONNX Runtime does not read, which it would ignore
    without a word, and for a value that it refuses.
    """
    for name, text in given.items():
        if name == "graph_optimization_level":
            level = _find_member("GraphOptimizationLevel", "ORT_ENABLE_", name, text)
            if optimise == "all":
                options.graph_optimization_level = level
        elif name == "execution_mode":
            options.execution_mode = _find_member("ExecutionMode", "ORT_", name, text)
        elif name == "inter_op_num_threads":
            if not text.isdigit():
                raise _make_refusal(name, text, "write a whole number")
            options.inter_op_num_threads = int(text)
        elif name in ATTRIBUTES:
            if text.lower() not in _FLAGS:
                raise _make_refusal(name, text, "write 1 or 0")
            setattr(options, name, _FLAGS[text.lower()])
        else:
            if not name.startswith("ep.") and not is_read(name):
                known = suggest_nearest(name, ATTRIBUTES) or "onnxruntime_session_options_config_keys.h lists them"
                raise UsageError(f"this ONNX Runtime reads no '{name}'", where=_WHERE, hint=known)
            try:
                options.add_session_config_entry(name, text)
            except RuntimeError as error:
                raise _make_refusal(name, text, str(error)) from error


def _find_member(enumeration: str, prefix: str, name: str, text: str) -> Any:
    """Return a member of one of ONNX Runtime's enumerations, by its own name or by what follows the prefix."""
    import onnxruntime

    members = getattr(onnxruntime, enumeration).__members__
    wanted = text.strip().upper()
    found = members.get(wanted, members.get(f"{prefix}{wanted}"))
    if found is None:
        raise _make_refusal(name, text, f"write one of {', '.join(members)}")
    return found


def _make_refusal(name: str, text: str, hint: str) -> UsageError:
    return UsageError(f"{name} cannot be '{text}'", where=_WHERE, hint=hint)


@functools.lru_cache(maxsize=256)
def is_read(name: str) -> bool:
    """Return whether the name stands in ONNX Runtime's libraries: it takes any entry, and tells nobody which it
    reads."""
    from onnxruntime.capi import onnxruntime_pybind11_state

    own = Path(onnxruntime_pybind11_state.__file__)
    for path in {own, *own.parent.glob("libonnxruntime*"), *own.parent.glob("onnxruntime*.dll")}:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(name.encode() + b"\0") >= 0:
                return True
    return False
