"""Whether two tensors are equal but for the rounding of one operator in float32."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["SLACK", "agree", "distance", "informative", "is_float"]

Array = np.ndarray[Any, Any]

SLACK = 1e-4
"""Of the element and of the tensor's root mean square together: far above float32's rounding in one operator (about
1e-6), far below what another weight or a missing bias does."""

_DISTINCT = 8
"""Different values below which a float tensor (a mask, a flag, a padding) may equal another by chance."""


def agree(one: Array, other: Array, slack: float = SLACK) -> bool:
    """Every element within ``slack`` of its own size and of the tensor's; text, integers and truth values equal."""
    if one.shape != other.shape:
        return False
    if not (is_float(one) and is_float(other)):
        return bool(np.array_equal(one, other))
    with np.errstate(all="ignore"):
        a, b = one.astype(np.float64), other.astype(np.float64)
        finite = np.isfinite(b)
        if not finite.all():
            same = (a == b) | (np.isnan(a) & np.isnan(b))
            if not same[~finite].all():
                return False
            a, b = a[finite], b[finite]
        scale = float(np.sqrt(np.mean(np.square(b)))) if b.size else 0.0
        return bool((np.abs(a - b) <= slack * (np.abs(b) + scale)).all())


def distance(one: Array, other: Array) -> float:
    """Relative L2 distance of ``one`` from ``other``; inf where the shapes differ or a number is not finite."""
    if one.shape != other.shape:
        return float("inf")
    with np.errstate(all="ignore"):
        a, b = one.astype(np.float64), other.astype(np.float64)
        norm = float(np.linalg.norm(b))
        apart = float(np.linalg.norm(a - b))
    return apart / norm if norm else (0.0 if apart == 0 else float("inf"))


def informative(array: Array) -> bool:
    """Whether equal values mean something: a float tensor with at least 8 different values among the first 4096."""
    return is_float(array) and np.unique(array.ravel()[:4096]).size >= _DISTINCT


def is_float(array: Array) -> bool:
    """Floats, bfloat16 and the like included."""
    return bool(array.dtype.kind == "f") or array.dtype.name.startswith(("bfloat", "float"))
