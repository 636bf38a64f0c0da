"""How far two arrays are apart."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

__all__ = ["apart"]


def apart(base: Any, target: Any) -> float:
    """Relative L2 of the difference; inf where shapes, NaN or Inf do not agree; 0 of what are not numbers."""
    try:
        first, second = (np.asarray(one).astype(np.float64) for one in (base, target))
    except (TypeError, ValueError):  # texts, sequences
        return 0.0
    if first.shape != second.shape:
        return math.inf
    finite = np.isfinite(first)
    if not np.array_equal(finite, np.isfinite(second)):
        return math.inf
    size = float(np.linalg.norm(first[finite]))
    error = float(np.linalg.norm(second[finite] - first[finite]))
    return error / size if size else (math.inf if error else 0.0)
