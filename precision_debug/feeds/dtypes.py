"""Names of element types to numpy types and back, and plain carriers for those that .npy files cannot hold.

A .npy file loses the type of a bfloat16 or fp8 array (it comes back as raw bytes, or not at all), so such an array is
stored as unsigned integers of its bits beside the name of its type.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Array", "as_dtype", "dtype_name", "from_plain", "is_float", "is_integer", "to_plain"]

Array = np.ndarray[Any, np.dtype[Any]]

_TEXT = ("str", "string", "object")
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def as_dtype(name: str) -> np.dtype[Any] | None:
    """The numpy type of a name such as ``InputMeta.dtype``; None where it is not an array type ("seq(float)", "")."""
    if not name:
        return None
    if name in _TEXT:
        return np.dtype(np.str_)
    import ml_dtypes

    try:
        found = np.dtype(getattr(ml_dtypes, name, name))
    except (TypeError, ValueError, SyntaxError):
        return None
    return found if found.kind in "biufcU" or _is_extended(found) else None


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the inverse of ``as_dtype``: numpy's name, and "str" for text of any width."""
    return "str" if dtype.kind in "OSTU" else str(dtype.name)


def is_float(dtype: np.dtype[Any]) -> bool:
    """Return whether a type is floating point, those of ml_dtypes included."""
    return dtype.kind == "f" or (_is_extended(dtype) and "float" in dtype.name)


def is_integer(dtype: np.dtype[Any]) -> bool:
    """Return whether a type is a signed or unsigned integer, those of ml_dtypes included."""
    return dtype.kind in "iu" or (_is_extended(dtype) and "int" in dtype.name)


def to_plain(array: Array) -> Array:
    """Return the array itself, or its bits as unsigned integers where its type is one of ml_dtypes."""
    return array.view(_BITS[array.dtype.itemsize]) if _is_extended(array.dtype) else array


def from_plain(array: Array, name: str) -> Array:
    """Return the inverse of ``to_plain``. Raises ValueError where the array cannot hold that type."""
    dtype = as_dtype(name)
    if dtype is None:
        raise ValueError(f"unknown element type '{name}'")
    if _is_extended(dtype):
        if array.dtype.kind != "u" or array.dtype.itemsize != dtype.itemsize:
            raise ValueError(f"{name} is stored as {array.dtype}")
        return array.view(dtype)
    if dtype_name(array.dtype) != name:
        raise ValueError(f"{name} is stored as {array.dtype}")
    return array


def _is_extended(dtype: np.dtype[Any]) -> bool:
    return dtype.isbuiltin == 2
