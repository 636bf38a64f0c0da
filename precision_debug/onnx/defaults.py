"""What an operator's attributes are where its node does not say them."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["FLATTENS", "with_defaults"]

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
    known, names = _schema(op_type, domain, opset)
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


@functools.lru_cache(maxsize=512)
def _schema(op_type: str, domain: str, opset: int) -> tuple[Mapping[str, Any], frozenset[str]]:
    """Return an operator's defaults, and the names of all its attributes."""
    from onnx import AttributeProto, defs, helper

    try:
        schema = defs.get_schema(op_type, opset, domain)
    except (defs.SchemaError, TypeError):
        return {}, frozenset()
    found: dict[str, Any] = {}
    for key, one in schema.attributes.items():
        if key in _NO_MATTER or one.default_value.type == AttributeProto.UNDEFINED:
            continue
        value = helper.get_attribute_value(one.default_value)
        found[key] = value.decode(errors="replace") if isinstance(value, bytes) else value
    return found, frozenset(schema.attributes)
