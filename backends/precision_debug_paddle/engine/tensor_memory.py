"""The memory of a tensor that a hook was given: what is written there is what the operators behind it read.

Seen in runs of Paddle 3.3.1 on the CPU, legacy and PIR programs: the tensor is the engine's own, not a copy.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from precision_debug.numbers.narrowing import narrowed

from .framework import paddle_module

__all__ = ["can_write", "memory_of", "sparse_values", "write"]

Array = np.ndarray[Any, Any]


def memory_of(tensor: Any) -> int:
    """Where a tensor's memory begins; 0: it has none, or is sparse."""
    return int(tensor.data_ptr() or 0) if tensor._is_initialized() else 0


def sparse_values(parameter: Any) -> Array:
    """A parameter's sparse gradient: the rows that it has, and 0 for the others."""
    gradient = parameter.grad
    rows = gradient._get_selected_rows() if hasattr(gradient, "_get_selected_rows") else gradient.get_selected_rows()
    values = np.array(rows.get_tensor())
    whole: Array = np.zeros(tuple(parameter.shape), values.dtype)
    np.add.at(whole, np.array(rows.rows()), values)
    return whole


def can_write() -> bool:
    """Whether this Paddle tells where a tensor lies."""
    return hasattr(paddle_module().Tensor, "data_ptr")


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
        new = narrowed(new, shown.dtype) if shown.dtype.kind in "fV" else new.astype(shown.dtype)
    new = np.ascontiguousarray(new)
    ctypes.memmove(tensor.data_ptr(), new.ctypes.data, new.nbytes)
    return True
