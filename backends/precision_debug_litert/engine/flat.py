"""A .tflite file as its flatbuffer has it, and its constants as numpy arrays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.errors import ModelError
from precision_debug.onnx.real_numbers import RealNumbers
from precision_debug.onnx.scales import find_broken
from precision_debug.records import Stored

from ..failures import reading
from ..naming import dtype_of, tensor_names

__all__ = ["WHOLE", "Flat", "scale_of"]

Array = np.ndarray[Any, Any]

_MARK = b"TFL3"
_PACKED = {"int4": (4, True), "uint4": (4, False), "int2": (2, True)}

WHOLE = frozenset({"int8", "uint8", "int16", *_PACKED})
"""Types of integers that are multiplied."""

_SUMS = frozenset({"int32", "int64"})
"""Types in which the products are added up."""


@dataclass(frozen=True, kw_only=True)
class Flat:
    """model: a ``ModelT`` of LiteRT's schema, whose tensors of the main subgraph all have names of their own.

    content: the file's bytes, which large files keep their weights in behind the flatbuffer.
    """

    path: str
    model: Any
    content: bytes

    @classmethod
    def read(cls, path: str) -> Flat:
        """Raises ModelError."""
        hint = "give a .tflite file"
        try:
            content = Path(path).read_bytes()
        except OSError as error:
            raise ModelError(f"cannot be read ({error.strerror or error})", where=path or "model", hint=hint) from error
        if content[4:8] != _MARK:
            raise ModelError("is not a .tflite file: it lacks the mark TFL3", where=path, hint=hint)
        return cls.of(content, path)

    @classmethod
    def of(cls, content: bytes, path: str) -> Flat:
        """Raises ModelError where the flatbuffer is damaged."""
        from ai_edge_litert import schema_py_generated as schema

        with reading(path):
            model = schema.ModelT.InitFromPackedBuf(content, 0)
            if not model.subgraphs:
                raise ModelError("has no graph", where=path, hint="convert it again")
            main = model.subgraphs[0]
            main.operators = list(main.operators or ())
            main.inputs, main.outputs = (
                [] if ends is None else [int(one) for one in ends] for ends in (main.inputs, main.outputs)
            )
            for tensor, name in zip(main.tensors, tensor_names(main.tensors), strict=True):
                tensor.name = name.encode()
        return cls(path=path, model=model, content=content)

    @property
    def main(self) -> Any:
        """The main subgraph."""
        return self.model.subgraphs[0]

    def packed(self) -> bytes:
        """Return the flatbuffer of the model as it is now, with every weight inside."""
        import flatbuffers

        for buffer in self.model.buffers:
            if buffer.offset:
                buffer.data = self.stored(buffer)
                buffer.offset = buffer.size = 0
        builder = flatbuffers.Builder(1024)
        builder.Finish(self.model.Pack(builder), _MARK)
        return bytes(builder.Output())

    def is_constant(self, tensor: Any) -> bool:
        """Return whether the file holds its value."""
        buffer = self.model.buffers[tensor.buffer]
        return bool(tensor.buffer) and (bool(buffer.size) or (buffer.data is not None and len(buffer.data) > 0))

    def array(self, tensor: Any) -> Array | None:
        """Return a constant as it is stored; None of one that is sparse, text, or of a type that numpy does not
        have."""
        if not self.is_constant(tensor) or tensor.sparsity is not None:
            return None
        kind, raw = dtype_of(tensor.type), self.stored(self.model.buffers[tensor.buffer])
        shape = tuple(int(size) for size in (tensor.shape if tensor.shape is not None else ()))
        if kind in _PACKED:
            return _unpack_codes(raw, *_PACKED[kind], shape)
        dtype = _numpy_type(kind)
        size = int(np.prod(shape, dtype=np.int64))
        if dtype is None or raw.nbytes < size * dtype.itemsize:
            return None
        return raw[: size * dtype.itemsize].view(dtype).reshape(shape)

    def real(self, tensor: Any) -> Array | None:
        """Return a quantised constant, or one of halves, as float32; None where it is neither or cannot be undone."""
        array = self.array(tensor)
        if array is not None and array.dtype.name in {"float16", "bfloat16"}:
            return array.astype(np.float32)
        held = self.held(tensor)
        if held is None:
            return None
        with np.errstate(all="ignore"):  # a scale may be anything
            return np.asarray((held.integers.astype(np.float64) - held.zero_point) * held.scale, np.float32)

    def held(self, tensor: Any, read_on: Array | None = None) -> Stored | None:
        """Return a quantised constant in integers; None where it is none, or is quantised by blocks. read_on: the scale
        of the sums of its operator, which a bias is read on whatever its own is."""
        integers, scale = self.array(tensor), scale_of(tensor)
        if integers is None or scale is None:
            return None
        factor, zero, axis = scale
        shape = [1] * integers.ndim
        if axis is not None:
            if axis >= integers.ndim or factor.size != integers.shape[axis]:
                return None
            shape[axis] = factor.size
        factor, zero = (one.reshape(shape if axis is not None else ()) for one in (factor, zero))
        added = read_on if integers.dtype.name in _SUMS and read_on is not None else None
        fits = added is not None and added.size in (1, integers.size) and integers.ndim == 1
        fits = fits and not find_broken(added).any()  # else that is told of the grids which make it
        return Stored(integers=integers, scale=factor, zero_point=zero, read_on=added if fits else None)

    def real_numbers(self) -> RealNumbers:
        """Return what the quantised tensors of the main subgraph stand for, by name."""
        found = {
            tensor.name.decode(): scale for tensor in self.main.tensors
            if dtype_of(tensor.type) in {"int8", "uint8", "int16"} and (scale := scale_of(tensor)) is not None
        }  # fmt: skip
        return RealNumbers(by_name=found)

    def file_scales(self) -> dict[str, tuple[Array, Array]]:
        """Return scale and zero point, in the type of its integers, of each quantised tensor of the main subgraph."""
        found = {}
        for tensor in self.main.tensors:
            if dtype_of(tensor.type) in WHOLE and (scale := scale_of(tensor)) is not None:
                found[tensor.name.decode()] = scale[0], scale[1].astype(_numpy_type(dtype_of(tensor.type)) or np.int8)
        return found

    def stored(self, buffer: Any) -> Array:
        """Return a buffer's bytes."""
        if buffer.size:
            return np.frombuffer(self.content, np.uint8, int(buffer.size), int(buffer.offset))
        return np.asarray(buffer.data, np.uint8)


def scale_of(tensor: Any) -> tuple[Array, Array, int | None] | None:
    """Scales, zero points and axis (None: one scale for all) of a quantised tensor: real = (code - zero) * scale.

    None of a tensor that is not quantised, or is so by blocks.
    """
    held = tensor.quantization
    if held is None or held.scale is None or len(held.scale) == 0 or held.detailsType:
        return None
    scale = np.asarray(held.scale, np.float32)
    if not np.all(scale) and dtype_of(tensor.type) not in WHOLE:
        return None  # a converter's mark of a tensor that it only measured
    zero = np.zeros(scale.size, np.int64) if held.zeroPoint is None else np.asarray(held.zeroPoint, np.int64)
    zero = np.broadcast_to(zero, scale.shape) if zero.size == 1 else zero
    if zero.size != scale.size or dtype_of(tensor.type).startswith("float"):
        return None
    if scale.size == 1:
        return scale.reshape(()), zero.reshape(()).astype(np.int64), None
    return scale, zero.astype(np.int64), int(held.quantizedDimension)


def _numpy_type(kind: str) -> np.dtype[Any] | None:
    if kind == "bfloat16":
        import ml_dtypes

        return np.dtype(ml_dtypes.bfloat16)  # type: ignore[no-any-return]
    try:
        found: np.dtype[Any] = np.dtype(kind)
        return found
    except TypeError:
        return None


def _unpack_codes(raw: Array, bits: int, signed: bool, shape: tuple[int, ...]) -> Array:
    """Codes that share bytes, the lowest bits first, as int8."""
    each = 8 // bits
    parts = np.stack([(raw >> (bits * place)) & ((1 << bits) - 1) for place in range(each)], axis=-1).reshape(-1)
    codes = parts.astype(np.int8)
    if signed:
        codes = np.where(codes >= 1 << (bits - 1), codes - (1 << bits), codes).astype(np.int8)
    return codes[: int(np.prod(shape, dtype=np.int64))].reshape(shape)
