"""Numbers that an operator reads and gives as integers, by the scale and the zero point that its file has for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..numbers.number_types import number_type
from .operators import TURNS
from .subject import Subject

__all__ = ["ends_of", "list_integer_grids", "read_integers", "write_integers"]

Array = np.ndarray[Any, Any]


def ends_of(dtype: Any) -> tuple[float, float]:
    """Return the least and the largest number of a type of few bits, integers or floats."""
    import ml_dtypes

    if (held := number_type(dtype.name)) is not None and held.bits:
        return -held.largest, held.largest
    limits = ml_dtypes.iinfo(dtype)
    return limits.min, limits.max


def list_integer_grids(subject: Subject, name: str) -> Mapping[str, tuple[Array, Array]]:
    """Return scale and zero point of what operators of a region read and give that compute in integers, where each has
    one: what is compared are the numbers that these stand for."""
    found: dict[str, tuple[Array, Array]] = {}
    for meta in subject.region_of.get(name, ()):
        operator = subject.operators()[0].operator(meta.name)
        for one, (scale, zero) in operator.scales.items() if operator is not None else ():
            if operator is not None and operator.op_type not in TURNS and np.size(scale) == np.size(zero) == 1:
                found[one] = np.asarray(scale).reshape(()), np.asarray(zero).reshape(())
    return found


def write_integers(values: Array, scale: Array, zero: Array) -> Array:
    """Return numbers as integers of the zero point's type hold them."""
    low, high = ends_of(zero.dtype)
    whole = np.rint(values / scale.astype(np.float64)) + zero.astype(np.float64)
    return np.asarray(np.clip(whole, low, high).astype(zero.dtype))


def read_integers(integers: Array, scale: Array, zero: Array) -> Array:
    """Return the numbers that integers stand for."""
    return np.asarray((integers.astype(np.float64) - zero.astype(np.float64)) * scale.astype(np.float64))
