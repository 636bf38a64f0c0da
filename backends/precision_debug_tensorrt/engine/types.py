"""TensorRT's element types and numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["dtype_name", "numpy_dtype", "type_name"]

_NUMPY = {
    "FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16", "FP8": "float8_e4m3fn", "INT8": "int8",
    "UINT8": "uint8", "INT32": "int32", "INT64": "int64", "BOOL": "bool",
}  # fmt: skip


def type_name(data_type: Any) -> str:
    """Return the member's name: "FLOAT", "HALF" and so on."""
    return str(data_type).rpartition(".")[2]


def dtype_name(data_type: Any) -> str:
    """Numpy's or ml_dtypes' name; "" for packed types (INT4, FP4) and those that neither has."""
    return _NUMPY.get(type_name(data_type), "")


def numpy_dtype(data_type: Any) -> np.dtype[Any] | None:
    """Return the dtype of one element; None for packed types."""
    name = dtype_name(data_type)
    if name in {"bfloat16", "float8_e4m3fn"}:
        import ml_dtypes

        extended: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
        return extended
    return np.dtype(name) if name else None
