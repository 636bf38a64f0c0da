"""The span of an array's finite values, and how many are not finite."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["span_of"]


def span_of(array: np.ndarray[Any, Any]) -> tuple[float | None, float | None, int]:
    """(smallest, largest, how many are NaN or infinite); None where there is no finite number, or no numbers at all."""
    if array.dtype.kind not in "fiub" and not array.dtype.name.startswith(("bfloat16", "float8", "int4", "uint4")):
        return None, None, 0
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    lost = int(wide.size - finite.size)
    return (float(finite.min()), float(finite.max()), lost) if finite.size else (None, None, lost)
