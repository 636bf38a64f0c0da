"""How the running graph holds a tensor, the other way round: from the model's own numbers to the engine's memory.

``model_layout`` shows what the engine holds in the model's layout and numbers. Here such numbers are written back:
rounded to the engine's type, quantised with its scale, transposed, put into blocks. What is beyond a type is held at
its limit: an operator is to be judged by what it makes of finite inputs, not by an overflow that happened before it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from precision_debug.numbers.narrowing import narrow_values
from precision_debug.numbers.narrowing import round_values as rounded_to
from precision_debug.onnx.file_operators import FileOperators
from precision_debug.onnx.scales import Scale, find_broken
from precision_debug.onnx.types import numpy_dtype

from .tensor_list import Entry

__all__ = ["round_as_engine", "write"]

Array = np.ndarray[Any, Any]

_BLOCKS = (16, 8, 4)
"""Channels in one block of ONNX Runtime's NCHWc layout: 16 with AVX-512, else 8; 4 on other processors."""


def round_as_engine(entry: Entry, values: Array, constants: FileOperators) -> Array | None:
    """Return what the engine holds of these values, in the model's own numbers; None where that is not known."""
    if values.dtype.kind not in "fV" and values.dtype.name != "bfloat16":
        return values
    if entry.rounds_to:
        return rounded_to(values, _dtype_of(entry.rounds_to))
    scale = entry.form.scale if entry.form is not None else None
    if scale is not None:
        grid = _find_grid(scale, constants, values.ndim)
        return None if grid is None else grid.held(values)
    if (held := _as_dequantised(entry, values, constants)) is not None:
        return held
    dtype = _dtype_of(entry.meta.dtype)
    if dtype is None or np.dtype(dtype).kind not in "fV":
        return None
    return values if np.dtype(dtype) == values.dtype else rounded_to(values, dtype)


def _as_dequantised(entry: Entry, values: Array, constants: FileOperators) -> Array | None:
    """Return the same of floats that codes of float8 were dequantised to, which hold no others; None elsewhere. Of
    integers the codes themselves are the tensor, and floats behind them what an engine makes of it once more."""
    by = entry.form.rounded_by if entry.form is not None and entry.form.scale is None else None
    grid = None if by is None else _find_grid(by, constants, values.ndim)
    return None if grid is None or grid.dtype.kind in "iu" else grid.held(values)


def write(entry: Entry, values: Array, memory: Array, constants: FileOperators, shown: Array) -> bool:
    """Put values (model's numbers and layout) into the engine's own memory of a tensor.

    memory: what the engine holds, writable. shown: the same tensor as its view showed it, which tells how blocks lie.
    Returns False where they cannot be written; the engine then goes on with its own.
    """
    form = entry.form
    if form is not None and form.blocked:
        return _write_blocks(values, memory, shown)
    if form is not None and form.perm is None:
        return False
    turned = values.transpose(form.perm) if form is not None and form.perm else values
    if turned.shape != memory.shape:
        return False
    if form is not None and form.scale is not None:
        grid = _find_grid(form.scale, constants, values.ndim, memory.dtype)
        if grid is None:
            return False
        steps = grid.round(values)
        memory[...] = (steps.transpose(form.perm) if form.perm else steps).astype(memory.dtype)
    elif memory.dtype.kind == "f" and (held := _as_dequantised(entry, values, constants)) is not None:
        memory[...] = held.transpose(form.perm) if form is not None and form.perm else held
    elif memory.dtype.kind in "fV":
        if entry.rounds_to and memory.dtype == turned.dtype == np.float32:
            rounded_to(turned, _dtype_of(entry.rounds_to), memory)
            return True
        exact = turned if not entry.rounds_to else narrow_values(turned, _dtype_of(entry.rounds_to))
        memory[...] = exact if exact.dtype == memory.dtype else narrow_values(exact.astype(np.float32), memory.dtype)
    else:
        memory[...] = turned.astype(memory.dtype)
    return True


def _dtype_of(name: str) -> Any:
    if name == "bfloat16":
        return numpy_dtype(16)
    try:
        return np.dtype(name)
    except TypeError:
        return None


@dataclass(frozen=True)
class _Grid:
    """What codes stand for: (code - zero) * step, shaped to the tensor. dtype: of integers, or a float of 8 bits."""

    step: Array
    zero: Array
    dtype: Any

    def round(self, values: Array) -> Array:
        """Return the nearest codes, as float64."""
        with np.errstate(invalid="ignore", over="ignore"):
            steps = values.astype(np.float64) / self.step
            if self.dtype.kind not in "iu":
                return rounded_to(steps, self.dtype)
            limits = np.iinfo(self.dtype)
            codes: Array = np.clip(np.rint(steps) + self.zero, float(limits.min), float(limits.max))
        return np.nan_to_num(codes, nan=0.0)

    def held(self, values: Array) -> Array:
        """Return what these stand for, in the values' own type."""
        return ((self.round(values) - self.zero) * self.step).astype(values.dtype)


def _find_grid(scale: Scale, constants: FileOperators, rank: int, dtype: Any = None) -> _Grid | None:
    """None where the scale is computed, or none of a tensor's numbers has a place on it."""
    step = constants.get(scale.scale)
    zero = constants.get(scale.zero_point) if scale.zero_point else None
    if step is None or (scale.zero_point and zero is None) or scale.block or find_broken(step).any():
        return None
    kind = np.dtype(dtype if dtype is not None else (zero.dtype if zero is not None else np.uint8))
    if kind.kind not in "iu" and not kind.name.startswith("float8"):
        return None
    shape = [1] * rank
    if step.size > 1:
        shape[(scale.axis if scale.axis is not None else 1) % max(rank, 1)] = -1
    zeros = np.zeros(1, np.float64) if zero is None else zero.astype(np.float64)
    return _Grid(
        step.astype(np.float64).reshape(shape), zeros.reshape(shape if zeros.size > 1 else [1] * rank), kind
    )  # fmt: skip


def _write_blocks(values: Array, memory: Array, shown: Array) -> bool:
    """NCHWc: [N, C / b, H, W, b] in memory, though its shape reads [N, C, H, W] with C padded to a whole block."""
    if values.ndim != 4 or memory.ndim != 4 or values.shape[2:] != memory.shape[2:]:
        return False
    count, channels, height, width = memory.shape
    real = values.shape[1]
    for size in _BLOCKS:
        if channels % size:
            continue
        blocks = memory.reshape(count, channels // size, height, width, size)
        plain = blocks.transpose(0, 1, 4, 2, 3).reshape(count, channels, height, width)[:, :real]
        if np.array_equal(plain, shown, equal_nan=True):
            padded = np.zeros((count, channels, height, width), memory.dtype)
            padded[:, :real] = values
            blocks[...] = padded.reshape(count, channels // size, size, height, width).transpose(0, 1, 3, 4, 2)
            return True
    return False
