"""Numbers as a narrower floating-point type holds them, where an overflow is not to be its own fault."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["narrow_type", "narrowed"]

Array = np.ndarray[Any, Any]


def narrowed(values: Array, dtype: Any) -> Array:
    """Floats in a narrower type, to nearest even; finite ones that overflow it stay finite, at its largest.

    dtype: numpy's or ml_dtypes' own.
    """
    from ml_dtypes import finfo

    with np.errstate(over="ignore", invalid="ignore"):
        narrow: Array = values.astype(dtype)
        beyond = ~np.isfinite(narrow)
    if beyond.any() and (lost := beyond & np.isfinite(values)).any():
        largest = finfo(dtype).max
        narrow = np.where(lost, np.where(values < 0, -largest, largest).astype(dtype), narrow)
    return narrow


def narrow_type(name: str) -> Any:
    """The type of a name, as numpy or ml_dtypes have it ("float16", "bfloat16", "float8_e4m3fn"); None: no such."""
    import ml_dtypes

    try:
        return np.dtype(getattr(ml_dtypes, name, name))
    except TypeError:
        return None
