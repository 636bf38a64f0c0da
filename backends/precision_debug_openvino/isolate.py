"""How OpenVINO holds a tensor, the other way round: numbers as the engine would have them in its memory."""

from __future__ import annotations

from typing import Any

import numpy as np

from precision_debug.numbers import narrowing
from precision_debug.numbers.narrowing import narrow_type, narrow_values

__all__ = ["fit_to_memory", "round_as_held"]

_FLOATS = frozenset({"float64", "float32", "float16", "bfloat16"})


def round_as_held(value: Any, dtype: str) -> Any:
    """Return floats rounded to the type in which the engine holds them, in their own type; None where that is not
    known."""
    array = np.asarray(value)
    if array.dtype.kind != "f":
        return array
    if dtype not in _FLOATS:
        return None
    narrow = narrow_type(dtype)
    return array if narrow == array.dtype else narrowing.round_values(array, narrow)


def fit_to_memory(new: Any, memory: np.ndarray[Any, Any]) -> np.ndarray[Any, Any] | None:
    """Return a value in the type and shape of the engine's own memory; None where it does not fit."""
    array = np.asarray(new)
    if array.shape != memory.shape:
        return None
    if array.dtype == memory.dtype:
        return array
    return narrow_values(array, memory.dtype) if memory.dtype.kind == "f" else array.astype(memory.dtype)
