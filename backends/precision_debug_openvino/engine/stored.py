"""Weights that a model holds as integers: with a scale of each channel behind them, or behind a FakeQuantize."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from precision_debug.errors import PrecisionDebugError
from precision_debug.onnx.file_operators import FileOperators
from precision_debug.onnx.graph import iterate_graphs
from precision_debug.onnx.model import read_model
from precision_debug.onnx.scales import find_broken
from precision_debug.records import Stored

__all__ = ["dequantise", "holds_integers", "read_file_scales", "read_stored"]

Array = np.ndarray[Any, Any]

_WHOLE = frozenset({"i8", "u8"})

_CENTRES = (127, 128)
"""Of 255 and 256 levels, the one that stands for 0 where a grid is as wide on both sides."""


def holds_integers(op: Any) -> bool:
    """Return whether an operator makes a weight of integers, or rounds one to such."""
    op = _skip_cast(op)
    sources = [port.get_node() for port in op.input_values()]
    if op.get_type_name() == "FakeQuantize":
        return bool(sources[0].get_type_name() == "Constant")
    return op.get_type_name() == "Multiply" and any(
        _is_converted(one.input_value(0).get_node() if one.get_type_name() == "Subtract" else one) for one in sources
    )  # fmt: skip


def dequantise(held: Stored) -> Array:
    """Return the numbers that a weight's integers stand for."""
    with np.errstate(all="ignore"):  # a scale may be anything
        return np.asarray((held.integers.astype(np.float32) - held.zero_point) * held.scale, np.float32)


def read_file_scales(path: str) -> Mapping[str, tuple[Any, Any]]:
    """Return scale and zero point of what an ONNX file holds in few bits, by the names that OpenVINO keeps: of the
    codes, of the floats that they become, and of those that they are made of, which alone may be left of what is fused;
    {} of other files."""
    if not path.endswith(".onnx"):
        return {}
    try:
        model = read_model(path)
        scales = dict(FileOperators(model).scales)
    except (ImportError, PrecisionDebugError):  # OpenVINO reads it without onnx
        return {}
    for node in (node for graph in iterate_graphs(model.proto.graph) for node in graph.node):
        if node.op_type == "QuantizeLinear" and node.output[0] in scales:
            own, read = (scales.get(name) for name in (node.input[0], node.output[0]))
            if read is not None and (own is None or not find_broken(own[0]).any()):
                scales[node.input[0]] = read
    return scales


def read_stored(op: Any) -> Stored | None:
    """Return the integers, and their scales, of which an operator makes a weight; None where it does otherwise."""
    if not holds_integers(op):
        return None
    op = _skip_cast(op)
    if op.get_type_name() == "FakeQuantize":
        return _read_levels(op)
    for product, scale in _iterate_both_ways(op):
        parts = [product]
        if product.get_type_name() == "Subtract":
            parts = [port.get_node() for port in product.input_values()]
        integers = _read_constant(parts[0], whole=True)
        zero = _read_constant(parts[1]) if parts[1:] else np.zeros((), np.float32)
        if integers is not None and zero is not None and scale is not None:
            return Stored(integers=integers, scale=scale, zero_point=zero)
    return None


def _skip_cast(op: Any) -> Any:
    """Return what makes a weight, where that is cast from the type of its scale (FP16) as it is read."""
    made = op.input_value(0).get_node() if op.get_type_name() == "Convert" else op
    return op if made.get_type_name() == "Constant" else made


def _iterate_both_ways(op: Any) -> Iterator[tuple[Any, Array | None]]:
    first, second = (port.get_node() for port in op.input_values())
    yield first, _read_constant(second)
    yield second, _read_constant(first)


def _read_constant(op: Any, *, whole: bool = False) -> Array | None:
    """Return a constant, converted or not; whole: one of 8-bit integers, which is converted."""
    if whole and not _is_converted(op):
        return None
    shape, held = tuple(op.get_output_shape(0)) if op.get_output_partial_shape(0).is_static else None, op
    while held.get_type_name() in ("Convert", "Reshape"):  # an ONNX file's scales of channels are reshaped
        held = held.input_value(0).get_node()
    if held.get_type_name() != "Constant" or shape is None:
        return None
    return np.array(held.data).astype(held.data.dtype if whole else np.float32).reshape(shape)


def _is_converted(op: Any) -> bool:
    """Return whether an operator makes floats of a constant of 8-bit integers."""
    held = op.input_value(0).get_node() if op.get_type_name() == "Convert" else op
    return held is not op and held.get_type_name() == "Constant" and held.get_element_type().get_type_name() in _WHOLE


def _read_levels(op: Any) -> Stored | None:
    """Return the levels to which a FakeQuantize rounds a constant, as integers of a type of 8 bits."""
    read = [_read_constant(port.get_node()) for port in op.input_values()]
    steps = int(op.get_attributes()["levels"]) - 1
    if any(one is None for one in read) or not 0 < steps < 1 << 8:
        return None
    values, low, high, low_out, high_out = (np.asarray(one, np.float64) for one in read)
    if not ((high > low) & (high_out > low_out)).all():
        return None
    levels = np.rint((np.clip(values, low, high) - low) / (high - low) * steps)
    scale = (high_out - low_out) / steps
    zero = np.rint(-low_out / scale)
    if np.isin(zero, _CENTRES).all():
        return Stored(integers=(levels - zero).astype(np.int8), scale=scale, zero_point=np.zeros_like(zero, np.int8))
    return Stored(integers=levels.astype(np.uint8), scale=scale, zero_point=zero)
