"""ONNX's element types by number, by ONNX Runtime's words, and as numpy has them."""

from __future__ import annotations

import functools
from typing import Any

__all__ = ["dtype_name", "elem_of", "numpy_dtype"]

_NAMES = tuple(
    """
    undefined float32 uint8 int8 uint16 int16 int32 int64 str bool float16 float64 uint32 uint64 complex64 complex128
    bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz uint4 int4 float4_e2m1fn float8_e8m0fnu
    uint2 int2
    """.split()  # noqa: SIM905
)


def dtype_name(elem: int) -> str:
    """Return numpy's or ml_dtypes' name of an ONNX element type."""
    return _NAMES[elem] if 0 <= elem < len(_NAMES) else f"onnx type {elem}"


def elem_of(text: str) -> int:
    """Return ONNX's element type of ONNX Runtime's "tensor(float)", or of a numpy name; 0 where it is none."""
    name = text.removeprefix("tensor(").removesuffix(")").lower()
    short = {"float": "float32", "double": "float64", "string": "str"}.get(name, name)
    if short in _NAMES:
        return _NAMES.index(short)
    plain = [known.replace("_", "") for known in _NAMES]
    return plain.index(short) if short in plain else 0


@functools.cache
def numpy_dtype(elem: int) -> Any:
    """Return the numpy or ml_dtypes dtype of an ONNX element type; None where neither has one."""
    import ml_dtypes
    import numpy as np

    name = dtype_name(elem)
    if hasattr(ml_dtypes, name):
        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(object) if name == "str" else np.dtype(name) if name in np.sctypeDict else None
