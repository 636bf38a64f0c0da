"""Import Paddle once and quietly, with its custom operators and its tensors' memory."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.errors import BackendUnavailable, UsageError, shorten
from precision_debug.numbers.narrowing import narrow_values

__all__ = [
    "can_write",
    "custom_operators",
    "import_inference",
    "import_paddle",
    "keep_kernels_loaded",
    "memory_of",
    "register_libraries",
    "sparse_values",
    "write",
]  # fmt: skip


# Imports Paddle, once and quietly.

@functools.cache
def import_paddle() -> Any:
    """Return the paddle package. Its import warns of tools that only its extension builder needs; that is kept quiet.

    CUDA loads a kernel when it is first launched, unless CUDA_MODULE_LOADING says otherwise: the default from CUDA
    12.2 on (CUDA programming guide, "Lazy Loading"), and what TensorRT's own log asks for before. Where it is imported
    here first, SIGTERM ends the process as before: Paddle's own handler takes locks that the thread below it may hold.
    """
    os.environ.setdefault("CUDA_MODULE_LOADING", "LAZY")
    first, handler = "paddle" not in sys.modules, signal.getsignal(signal.SIGTERM)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        paddle = importlib.import_module("paddle")
    if first and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, signal.SIG_DFL if handler is None else handler)
    elif first:  # which takes all of its handlers away
        paddle.disable_signal_handler()
    return paddle


def keep_kernels_loaded() -> None:
    """Let Paddle hold a builder of TensorRT's, so that each further engine finds its kernels loaded.

    Must come before the first engine. FLAGS_trt_ibuilder_cache in the environment says otherwise.
    """
    name = "FLAGS_trt_ibuilder_cache"
    if name not in os.environ:
        with contextlib.suppress(ValueError):  # a Paddle that does not know it
            import_paddle().set_flags({name: True})


def import_inference() -> Any:
    """paddle.inference."""
    import_paddle()
    return importlib.import_module("paddle.inference")


# Libraries of custom operators, and the operators of a program that need one.

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
        import_paddle()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a compiler's tools, which nothing here needs
            from paddle.utils.cpp_extension import load_op_meta_info_and_register_op
        try:
            load_op_meta_info_and_register_op(path)
        except Exception as error:
            raise BackendUnavailable(
                f"this Paddle cannot load it: {_first_sentence(str(error) or type(error).__name__)}", where=given,
                hint="build it against the Paddle that is installed here",
            ) from error
        _registered.add(path)


def _first_sentence(text: str) -> str:
    return shorten(text.partition(" Suggestions:")[0].strip())


def custom_operators(program: str) -> list[str]:
    """Return the custom operators of a PIR program (.json), by name; [] of any other file."""
    if not program.lower().endswith(".json"):
        return []
    try:
        return sorted({found.decode() for found in _IN_PIR.findall(Path(program).read_bytes())})
    except OSError:
        return []


# The memory of a tensor that a hook was given: what is written there is what the operators behind it read.
#
# Seen in runs of Paddle 3.3.1 on the CPU, legacy and PIR programs: the tensor is the engine's own, not a copy.

Array = np.ndarray[Any, Any]


def memory_of(tensor: Any) -> int:
    """Where a tensor's memory begins; 0: it has none, or is sparse."""
    return int(tensor.data_ptr() or 0) if tensor._is_initialized() else 0


def sparse_values(parameter: Any) -> Array:
    """Return a parameter's sparse gradient: the rows that it has, and 0 for the others."""
    gradient = parameter.grad
    rows = gradient._get_selected_rows() if hasattr(gradient, "_get_selected_rows") else gradient.get_selected_rows()
    values = np.array(rows.get_tensor())
    whole: Array = np.zeros(tuple(parameter.shape), values.dtype)
    np.add.at(whole, np.array(rows.rows()), values)
    return whole


def can_write() -> bool:
    """Return whether this Paddle tells where a tensor lies."""
    return hasattr(import_paddle().Tensor, "data_ptr")


def write(tensor: Any, shown: Array, values: Any) -> bool:
    """Put values in place of a tensor's own; False where that cannot be, and the tensor is as it was.

    shown: the tensor as an array of the type in which it is held. values: of the same shape; what is beyond the held
    type is written as its largest number.
    """
    new = np.asarray(values)
    if new.shape != shown.shape or not shown.size or not tensor.place.is_cpu_place() or not tensor.is_contiguous():
        return False
    if new.dtype != shown.dtype:
        if (new.dtype.kind == "f") != (shown.dtype.kind in "fV"):
            return False
        new = narrow_values(new, shown.dtype) if shown.dtype.kind in "fV" else new.astype(shown.dtype)
    new = np.ascontiguousarray(new)
    ctypes.memmove(tensor.data_ptr(), new.ctypes.data, new.nbytes)
    return True
