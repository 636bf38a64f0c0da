"""Name ONNX's element types, and the defaults of its attributes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

__all__ = [
    "FLATTENS", "Schemas", "add_schemas", "default_of", "dtype_name", "elem_of", "numpy_dtype", "says_nothing",
    "shorten_floats", "shortest_float", "with_defaults",
]  # fmt: skip


# ONNX's element types by number, by ONNX Runtime's words, and as numpy has them.

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


# What an operator's attributes are where its node does not say them.

_WINDOWED = {"Conv", "ConvTranspose", "ConvInteger", "QLinearConv"}
"""Operators whose window is as large as their weight, where they say nothing of it."""

_EACH_SIDE = {"strides": 1, "dilations": 1, "pads": 0}
"""Attributes that the schema knows and gives no default, since they are as long as the window: one number each."""

FLATTENS = "flattens"
"""What operators of shares did before opset 13, said as an attribute of theirs: their axis is the first of several."""

_SHARES, _SINCE = {"Softmax", "LogSoftmax", "Hardmax"}, 13
"""Operators of one name and one attribute that compute something else from an opset on."""

_NO_MATTER = frozenset({"momentum", "spatial", "consumed_inputs"})
"""Attributes that change nothing of what a forward pass computes, or that newer operators no longer have."""


def with_defaults(
    op_type: str, attributes: Mapping[str, Any], *, domain: str, opset: int, weight: Sequence[int] | None = None
) -> dict[str, Any]:
    """Return a node's attributes with those that its file leaves out: exporters differ in what they write of them.

    attributes: plain values. weight: the shape of the weight of a convolution, where it is known. An operator that
    this version of ONNX does not know is as its node says.
    """
    found = dict(attributes)
    known, names = _read_schema(op_type, domain, opset)
    for key, value in known.items():
        found.setdefault(key, list(value) if isinstance(value, list) else value)
    if op_type in _SHARES and not domain and opset < _SINCE:
        found[FLATTENS] = 1
    window = found.get("kernel_shape") or (weight[2:] if weight is not None and op_type in _WINDOWED else ())
    if window and "kernel_shape" in names:
        found.setdefault("kernel_shape", [int(size) for size in window])
        for key, value in _EACH_SIDE.items():
            if key in names and (key != "pads" or found.get("auto_pad", "NOTSET") == "NOTSET"):
                found.setdefault(key, [value] * (len(window) * (2 if key == "pads" else 1)))
    return found


def default_of(node: Any, key: str, opset: int) -> Any:
    """Return what an attribute is where a node does not say it; None where that is unknown, or there is no default."""
    return _read_schema(node.op_type, node.domain, opset)[0].get(key)


def says_nothing(key: str, value: Any) -> bool:
    """Return whether an attribute of a window says what holds where a file leaves it out: of a weight that is computed
    nobody knows the window."""
    each = _EACH_SIDE.get(key)
    return key == "kernel_shape" or (each is not None and isinstance(value, list) and {*value} <= {each})


Schemas = Mapping[tuple[str, str], Mapping[str, Any]]
"""By domain and type, each attribute's default as an AttributeProto: of type UNDEFINED where it has none."""

_ENGINES: list[Callable[[], Schemas]] = []


def add_schemas(read: Callable[[], Schemas]) -> None:
    """Take what an engine states of operators that the standard does not have. read: called once, when needed."""
    _ENGINES.append(functools.cache(read))
    _read_schema.cache_clear()


@functools.lru_cache(maxsize=512)
def _read_schema(op_type: str, domain: str, opset: int) -> tuple[Mapping[str, Any], frozenset[str]]:
    """Return an operator's defaults, and the names of all its attributes."""
    from onnx import AttributeProto, defs, helper

    try:
        schema = defs.get_schema(op_type, opset, domain)
        stated: Mapping[str, Any] = {key: one.default_value for key, one in schema.attributes.items()}
    except (defs.SchemaError, TypeError):
        stated = next((one[domain, op_type] for one in (read() for read in _ENGINES) if (domain, op_type) in one), {})
    found: dict[str, Any] = {}
    for key, one in stated.items():
        if key in _NO_MATTER or one.type == AttributeProto.UNDEFINED:
            continue
        value = helper.get_attribute_value(one)
        found[key] = value.decode(errors="replace") if isinstance(value, bytes) else value
    return found, frozenset(stated)


def shortest_float(value: float) -> float:
    """Return the number of fewest digits that is this one in float32, which an attribute is held in: as its author
    wrote it. What float32 does not hold comes back as it is."""
    import numpy as np

    with np.errstate(over="ignore"):
        held = np.float32(value)
    return float(str(held)) if float(held) == value else value


def shorten_floats(value: Any) -> Any:
    """Return an attribute's value, a list of them too, with its floats as their author wrote them."""
    if isinstance(value, (list, tuple)):
        return [shorten_floats(one) for one in value]
    return shortest_float(value) if isinstance(value, float) else value
