"""Names of element types to numpy types and back, and plain carriers for those that .npy files cannot hold.

A .npy file loses the type of a bfloat16 or fp8 array (it comes back as raw bytes, or not at all), so such an array is
stored as unsigned integers of its bits beside the name of its type.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["Array", "as_dtype", "cast_exactly", "dtype_name", "from_plain", "is_float", "is_integer", "to_plain"]


Array = np.ndarray[Any, np.dtype[Any]]

_TEXT = ("str", "string", "object")
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def as_dtype(name: str) -> np.dtype[Any] | None:
    """Return the numpy type of a name such as ``InputMeta.dtype``; None where it is not an array type ("seq(float)",
    "")."""
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


# Conversions between element types that keep every value.

def cast_exactly(array: Array, wanted: np.dtype[Any]) -> Array | None:
    """Return the array in the wanted type, or None where a value would change or one of them is text."""
    have = array.dtype
    if "U" in (have.kind, wanted.kind) or not (have.kind in "biufc" or have.isbuiltin == 2):
        return None
    if have.isbuiltin == 2:  # ml_dtypes casts among its own types only here and there
        array = array.astype(np.float32 if is_float(have) else np.int64)
    if array.size == 0:
        return array.astype(wanted)
    with np.errstate(all="ignore"):
        if "c" in (have.kind, wanted.kind):
            return _cast_to_complex(array, wanted)
        if is_float(array.dtype):
            return _cast_float_to_float(array, wanted) if is_float(wanted) else _cast_float_to_integer(array, wanted)
        return _cast_integer_to_float(array, wanted) if is_float(wanted) else _cast_integer_to_integer(array, wanted)


def _cast_to_complex(array: Array, wanted: np.dtype[Any]) -> Array | None:
    if wanted.kind != "c":
        return None
    converted = array.astype(wanted)
    same = np.array_equal(converted.astype(np.complex128), array.astype(np.complex128), equal_nan=True)
    return converted if same else None


def _cast_float_to_float(array: Array, wanted: np.dtype[Any]) -> Array | None:
    converted = array.astype(wanted)
    wide: Any = np.longdouble if max(array.dtype.itemsize, wanted.itemsize) > 8 else np.float64
    return converted if np.array_equal(array.astype(wide), converted.astype(wide), equal_nan=True) else None


def _cast_float_to_integer(array: Array, wanted: np.dtype[Any]) -> Array | None:
    wide = array.astype(np.float64) if array.dtype.itemsize <= 8 else array
    if not np.isfinite(wide).all() or not np.array_equal(wide, np.trunc(wide)):
        return None
    bottom, top = _limits_of(wanted)
    return wide.astype(wanted) if bottom <= int(wide.min()) and int(wide.max()) <= top else None


def _cast_integer_to_float(array: Array, wanted: np.dtype[Any]) -> Array | None:
    converted = array.astype(wanted)
    back = converted.astype(np.float64)
    if not np.isfinite(back).all():
        return None
    low, high = int(array.min()), int(array.max())
    if max(abs(low), abs(high)) <= 2**53:
        return converted if np.array_equal(back, array.astype(np.float64)) else None
    pairs = zip(array.ravel().tolist(), back.ravel().tolist(), strict=True)
    return converted if all(int(one) == int(other) for one, other in pairs) else None


def _cast_integer_to_integer(array: Array, wanted: np.dtype[Any]) -> Array | None:
    bottom, top = _limits_of(wanted)
    low, high = int(array.min()), int(array.max())
    return array.astype(wanted) if bottom <= low and high <= top else None


def _limits_of(wanted: np.dtype[Any]) -> tuple[int, int]:
    if wanted.kind == "b":
        return 0, 1
    import ml_dtypes

    info = ml_dtypes.iinfo(wanted)
    return int(info.min), int(info.max)
