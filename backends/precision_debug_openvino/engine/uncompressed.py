"""Weights that an IR holds in half of their bits, and the numbers that they were rounded from.

``openvino.save_model`` rounds weights to FP16 unless it is told not to (compress_to_fp16=False), and says nothing of
it; only those most of which FP16 cannot hold stay as they are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

__all__ = ["holds_halves", "restore"]

def holds_halves(model: Any) -> bool:
    """Return whether a model has weights that ``save_model`` rounded."""
    return next(_halves(model), None) is not None


def restore(model: Any, source: Any) -> int:
    """Put numbers of another model in place of rounded ones, where they round to just those; return how many weights.

    A weight may lie the other way round, and have further axes of one: OpenVINO writes products and shifts so."""
    from openvino import opset13

    known = {key: value for value in _iterate_constants(source) for key, value in _keys(value)}
    count = 0
    for convert, half in list(_halves(model)):
        value = known.get(_key(half))
        if value is not None:
            convert.output(0).replace(opset13.constant(value.reshape(half.shape)).output(0))
            count += 1
    return count


def _halves(model: Any) -> Iterator[tuple[Any, np.ndarray[Any, Any]]]:
    """Yield what makes float32 of a constant in FP16, with that."""
    for op in model.get_ordered_ops():
        if op.get_type_name() != "Convert" or op.get_output_element_type(0).get_type_name() != "f32":
            continue
        source = op.input_value(0).get_node()
        if source.get_type_name() == "Constant" and source.get_output_element_type(0).get_type_name() == "f16":
            yield op, source.data


def _iterate_constants(model: Any) -> Iterator[np.ndarray[Any, Any]]:
    for op in model.get_ordered_ops():
        if op.get_type_name() == "Constant" and op.get_output_element_type(0).get_type_name() == "f32":
            yield op.data


def _keys(value: np.ndarray[Any, Any]) -> Iterator[tuple[bytes, np.ndarray[Any, Any]]]:
    """Yield how a constant looks when it is rounded, as it lies and the other way round, with its numbers so."""
    for turned in (value, np.ascontiguousarray(value.T)) if value.ndim == 2 else (value,):
        with np.errstate(over="ignore"):
            half = turned.astype(np.float16)
        yield _key(half), turned
        largest = np.finfo(np.float16).max
        yield _key(np.clip(half, -largest, largest)), turned


def _key(half: np.ndarray[Any, Any]) -> bytes:
    return hashlib.sha256(np.ascontiguousarray(half).tobytes()).digest()
