"""FP32 constants in a lower type: which of them fit, and what stands for one that does not.

TensorRT's own builder writes the closest finite number of the type where it narrows weights, and so does this. For a
mask's "minus infinity" that is what was meant; a variance of 1e8 or an epsilon that divides would be another number, so
the operators that read one stay in FP32.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["fits", "narrowed"]

Array = np.ndarray[Any, Any]

_MOVES = frozenset(
    "Clip Concat Expand Max Min Pad Reshape ScatterElements ScatterND Slice Tile Where".split()  # noqa: SIM905
)
"""They choose among numbers: the end of the type's range is to the others what the constant was."""

_SUMS = frozenset(["Add", "Sub"])
_ENDLESS = 1e30
"""From here on a constant stands for infinity: float32's lowest number in a mask."""


def fits(op_type: str, value: Array, kind: Any) -> bool:
    """Whether an operator computes the same with a constant in a type (``kind``: a dtype) as with the FP32 one, up to
    rounding."""
    if value.dtype != np.float32 or not value.size or op_type in _MOVES:
        return True
    largest = max(float(value.max()), -float(value.min()))
    if not np.isfinite(largest):
        finite = np.abs(value[np.isfinite(value)])
        largest = float(finite.max(initial=0.0))
    low = _cast(np.asarray([largest], np.float32), kind)[0]
    if np.isinf(low):
        return op_type in _SUMS | {"Mul"} and largest >= _ENDLESS
    return not (value.size == 1 and largest > 0 and low == 0) or op_type in _SUMS


def narrowed(value: Array, kind: Any) -> Array:
    """A constant in the type: finite numbers stay finite, and a single one that is not 0 stays so."""
    low = _cast(value, kind)
    over = np.isinf(low) & np.isfinite(value)
    if over.any():
        import ml_dtypes

        low[over] = np.sign(value[over]).astype(low.dtype) * ml_dtypes.finfo(kind).max
    if value.size == 1 and (value != 0).all() and (low == 0).all():
        import ml_dtypes

        low = (np.sign(value) * float(ml_dtypes.finfo(kind).smallest_subnormal)).astype(low.dtype)
    return low


def _cast(value: Array, kind: Any) -> Array:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return value.astype(kind)
