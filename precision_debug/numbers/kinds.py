"""What a dtype holds: numbers, wide integers, complex numbers or text, and the name that reports show for it."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

__all__ = [
    "Array", "dtype_name", "is_numeric", "is_text", "is_wide_integer", "may_overflow", "plain_integers",
    "with_both_parts",
]  # fmt: skip

Array = np.ndarray[Any, Any]


@functools.lru_cache(maxsize=256)
def dtype_name(dtype: np.dtype[Any]) -> str:
    """numpy's or ml_dtypes' name; "str" for text of any storage (object, U, S or StringDType)."""
    return "str" if is_text(dtype) else dtype.name


def is_text(dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "OUST"


def is_numeric(dtype: np.dtype[Any]) -> bool:
    """bool, integers, floats and complex numbers, those of ml_dtypes (bfloat16, float8_*, int4, ...) included."""
    return dtype.kind in "biufc" or dtype.type.__module__.startswith("ml_dtypes")


def is_wide_integer(dtype: np.dtype[Any]) -> bool:
    """int64 and uint64: float64 does not hold all of their values."""
    return dtype.kind in "iu" and dtype.itemsize == 8


def plain_integers(array: Array) -> Array:
    """int8 or uint8 of ml_dtypes' narrower integers (int4, uint2), which numpy takes for no integers; anything else
    as it is."""
    if array.dtype.kind in "biufc" or not array.dtype.name.startswith(("int", "uint")):
        return array
    return array.astype(np.uint8 if array.dtype.name.startswith("uint") else np.int8)


def may_overflow(dtype: np.dtype[Any]) -> bool:
    """Whether squares of this type's values can leave the range of float64."""
    return dtype.kind in "fc" and dtype.itemsize // (2 if dtype.kind == "c" else 1) >= 8


def with_both_parts(array: Array) -> Array:
    """complex64 of ml_dtypes' complex numbers, which keep their imaginary part in no conversion to a real type; every
    value is kept. Anything else as it is."""
    if array.dtype.isbuiltin == 1:  # none of ml_dtypes'; a type's name takes longer to make than to look at
        return array
    return array.astype(np.complex64) if array.dtype.name in ("complex32", "bcomplex32") else array
