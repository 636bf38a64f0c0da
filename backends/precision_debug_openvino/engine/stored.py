"""Weights that a model holds in few bits: with scales of channels or groups behind them, or behind a FakeQuantize."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from precision_debug.errors import PrecisionDebugError
from precision_debug.onnx.file_operators import FileOperators
from precision_debug.onnx.graph import iterate_graphs
from precision_debug.onnx.model import read_model
from precision_debug.onnx.scales import find_broken
from precision_debug.records import Stored

__all__ = [
    "dequantise", "has_bytes_alone", "holds_integers", "read_file_scales", "read_grid", "read_numbers", "read_stored",
]  # fmt: skip

Array = np.ndarray[Any, Any]

FEW_BITS: Mapping[str, str] = {
    "i8": "int8", "u8": "uint8", "i4": "int4", "u4": "uint4", "u2": "uint2", "f8e4m3": "float8_e4m3fn",
    "f8e5m2": "float8_e5m2", "nf4": "float32", "f4e2m1": "float32",
}  # fmt: skip
"""The types of 8 bits or fewer, with that of numpy or ml_dtypes in which their numbers are handed on: of 16 that are
spaced as a table says these numbers themselves."""

_BYTES = frozenset({"i4", "u4", "u2", "u1", "nf4", "f4e2m1", "f8e4m3", "f8e5m2", "f8e8m0"})
"""Types that numpy has not."""

_CENTRES = (127, 128)
"""Of 255 and 256 levels, the one that stands for 0 where a grid is as wide on both sides."""


def holds_integers(op: Any) -> bool:
    """Return whether an operator makes a weight of integers, or rounds one to such."""
    op = _skip_moves(op)
    if op.get_type_name() == "FakeQuantize":
        return bool(op.input_value(0).get_node().get_type_name() == "Constant")
    return _find_parts(op) is not None


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


def has_bytes_alone(port: Any) -> bool:
    """Return whether numpy is given no numbers of a port, but their bytes."""
    return port.get_element_type().get_type_name() in _BYTES


def read_numbers(constant: Any) -> Array:
    """Return a Constant's numbers: of a type of few bits, of which numpy knows bytes alone, in one of ml_dtypes or in
    float32."""
    if not has_bytes_alone(constant.output(0)):
        return np.asarray(constant.data)
    kind, numbers = constant.get_element_type().get_type_name(), np.asarray(constant.get_data(dtype=np.float32))
    named = FEW_BITS.get(kind, "float32")
    return numbers if named == "float32" else numbers.astype(getattr(importlib.import_module("ml_dtypes"), named))


def read_stored(op: Any) -> Stored | None:
    """Return the integers, or floats of 8 bits, and their scales, of which an operator makes a weight, in its shape;
    None where it does otherwise."""
    if not holds_integers(op):
        return None
    made = _skip_moves(op)
    if made.get_type_name() == "FakeQuantize":
        return _read_levels(made)
    if (parts := _find_parts(made)) is None:
        return None
    codes, zero, scale = parts
    offset = np.zeros((), np.float32) if zero is None else _read_constant(zero).astype(np.float32)
    held = Stored(integers=_read_constant(codes), scale=_read_constant(scale).astype(np.float32), zero_point=offset)
    return _move(op, held)


def _move(op: Any, held: Stored) -> Stored:
    """Return what an operator makes of integers and their scales by the moves behind these; of groups, which have an
    axis of their own before, each number has its scale."""
    moves = []
    while op.get_type_name() in _MOVES:
        moves.append(op)
        op = op.input_value(0).get_node()
    parts, shape = [held.integers, held.scale, held.zero_point], held.integers.shape
    for move in reversed(moves):
        wanted = tuple(move.get_output_shape(0))
        if move.get_type_name() == "Transpose":
            order = move.input_value(1).get_node().data.tolist() or range(len(shape))[::-1]
            parts = [np.broadcast_to(one, shape).transpose(order) for one in parts]
        elif wanted != shape:
            parts = [np.broadcast_to(one, shape).reshape(wanted) for one in parts]
        shape = wanted
    return Stored(integers=parts[0], scale=parts[1], zero_point=parts[2])


_CODES = {256: "uint8", 255: "uint8", 65536: "uint16", 65535: "uint16"}
"""By how many numbers a grid has: the type whose codes they may be."""


def read_grid(op: Any) -> tuple[Array, Array] | None:
    """Return scale and zero point of the grid, of all or of each channel, to which a FakeQuantize rounds what it reads;
    None where that is computed or its own zero is no code of a type of few bits."""
    ends = [port.get_node() for port in op.input_values()[1:3]] if op.get_type_name() == "FakeQuantize" else []
    if not ends or any(_find_held(one) is None for one in ends):
        return None
    low, high = (_read_constant(one).astype(np.float64) for one in ends)
    levels = int(op.get_attributes()["levels"])
    with np.errstate(all="ignore"):  # a range may be anything
        scale = (high - low) / (levels - 1)
        zero = np.rint(-low / scale)
    if levels not in _CODES or not ((zero >= 0) & (zero < levels)).all():
        return None
    return scale, zero.astype(np.dtype(_CODES[levels]))


def _skip_moves(op: Any) -> Any:
    """Return what makes a weight, where that is cast from the type of its scale (FP16) as it is read, or was made in
    groups, or lies in another order of its axes."""
    made = op
    while made.get_type_name() in _MOVES and made.get_output_partial_shape(0).is_static:
        if made.get_type_name() == "Transpose" and made.input_value(1).get_node().get_type_name() != "Constant":
            break
        made = made.input_value(0).get_node()
    return op if made.get_type_name() == "Constant" else made


_SHAPES = frozenset({"Convert", "Reshape", "Squeeze", "Unsqueeze"})
"""What leaves the order of numbers, as an ONNX file's scales have it."""

_MOVES = _SHAPES | {"Transpose"}


def _find_parts(op: Any) -> tuple[Any, Any, Any] | None:
    """Return what makes the codes, the zero points (None: there are none) and the scales of a weight, from constants
    alone."""
    if op.get_type_name() != "Multiply":
        return None
    first, second = (port.get_node() for port in op.input_values())
    for product, scale in ((first, second), (second, first)):
        less = product.get_type_name() == "Subtract"
        codes, zero = (port.get_node() for port in product.input_values()) if less else (product, None)
        if _is_converted(codes) and all(one is None or _find_held(one) is not None for one in (zero, scale)):
            return codes, zero, scale
    return None


def _find_held(op: Any) -> Any | None:
    """Return the constant that an operator gives, in whatever shape and type."""
    static = op.get_output_partial_shape(0).is_static
    while op.get_type_name() in _SHAPES:
        op = op.input_value(0).get_node()
    return op if static and op.get_type_name() == "Constant" else None


def _read_constant(op: Any) -> Array:
    """Return the numbers of the constant that an operator gives, in its shape."""
    return read_numbers(_find_held(op)).reshape(tuple(op.get_output_shape(0)))


def _is_converted(op: Any) -> bool:
    """Return whether an operator makes floats of a constant of few bits."""
    held = _find_held(op) if op.get_type_name() == "Convert" else None
    return held is not None and held.get_element_type().get_type_name() in FEW_BITS


def _read_levels(op: Any) -> Stored | None:
    """Return the levels to which a FakeQuantize rounds a constant, as integers of a type of 8 bits."""
    read = [port.get_node() for port in op.input_values()]
    steps = int(op.get_attributes()["levels"]) - 1
    if any(_find_held(one) is None for one in read) or not 0 < steps < 1 << 8:
        return None
    values, low, high, low_out, high_out = (_read_constant(one).astype(np.float64) for one in read)
    if not ((high > low) & (high_out > low_out)).all():
        return None
    levels = np.rint((np.clip(values, low, high) - low) / (high - low) * steps)
    scale = (high_out - low_out) / steps
    zero = np.rint(-low_out / scale)
    if np.isin(zero, _CENTRES).all():
        return Stored(integers=(levels - zero).astype(np.int8), scale=scale, zero_point=np.zeros_like(zero, np.int8))
    return Stored(integers=levels.astype(np.uint8), scale=scale, zero_point=zero)
