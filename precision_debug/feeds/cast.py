"""Conversions between element types that keep every value."""

from __future__ import annotations

from typing import Any

import numpy as np

from .dtypes import Array, is_float

__all__ = ["exact_cast"]


def exact_cast(array: Array, wanted: np.dtype[Any]) -> Array | None:
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
            return _complex(array, wanted)
        if is_float(array.dtype):
            return _float_to_float(array, wanted) if is_float(wanted) else _float_to_whole(array, wanted)
        return _whole_to_float(array, wanted) if is_float(wanted) else _whole_to_whole(array, wanted)


def _complex(array: Array, wanted: np.dtype[Any]) -> Array | None:
    if wanted.kind != "c":
        return None
    converted = array.astype(wanted)
    same = np.array_equal(converted.astype(np.complex128), array.astype(np.complex128), equal_nan=True)
    return converted if same else None


def _float_to_float(array: Array, wanted: np.dtype[Any]) -> Array | None:
    converted = array.astype(wanted)
    wide: Any = np.longdouble if max(array.dtype.itemsize, wanted.itemsize) > 8 else np.float64
    return converted if np.array_equal(array.astype(wide), converted.astype(wide), equal_nan=True) else None


def _float_to_whole(array: Array, wanted: np.dtype[Any]) -> Array | None:
    wide = array.astype(np.float64) if array.dtype.itemsize <= 8 else array
    if not np.isfinite(wide).all() or not np.array_equal(wide, np.trunc(wide)):
        return None
    bottom, top = _limits(wanted)
    return wide.astype(wanted) if bottom <= int(wide.min()) and int(wide.max()) <= top else None


def _whole_to_float(array: Array, wanted: np.dtype[Any]) -> Array | None:
    converted = array.astype(wanted)
    back = converted.astype(np.float64)
    if not np.isfinite(back).all():
        return None
    low, high = int(array.min()), int(array.max())
    if max(abs(low), abs(high)) <= 2**53:
        return converted if np.array_equal(back, array.astype(np.float64)) else None
    pairs = zip(array.ravel().tolist(), back.ravel().tolist(), strict=True)
    return converted if all(int(one) == int(other) for one, other in pairs) else None


def _whole_to_whole(array: Array, wanted: np.dtype[Any]) -> Array | None:
    bottom, top = _limits(wanted)
    low, high = int(array.min()), int(array.max())
    return array.astype(wanted) if bottom <= low and high <= top else None


def _limits(wanted: np.dtype[Any]) -> tuple[int, int]:
    if wanted.kind == "b":
        return 0, 1
    import ml_dtypes

    info = ml_dtypes.iinfo(wanted)
    return int(info.min), int(info.max)
