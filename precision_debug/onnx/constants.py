"""The constants of a graph as arrays, read when they are asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..errors import PrecisionDebugError
from .graph import read_external_data
from .model import Model, map_file
from .types import dtype_name

__all__ = ["Constants", "read_held"]

Array = np.ndarray[Any, Any]

_READ = 64 << 20
"""Bytes of one constant up to which it is read."""

_MAPPED = frozenset(
    ["float16", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))]
)
"""Types that lie in a file as numpy has them."""


class Constants(Mapping[str, Array]):
    """Initializers, sparse ones too, and outputs of Constant nodes of a graph, by name, in whatever way they are held.

    Those of other types than numbers, and very large ones, have no array. graph: None: the model's main graph. outer:
    of the graph around it, whose constants it sees too, though they are not among its own.
    """

    def __init__(self, model: Model, graph: Any = None, outer: Constants | None = None) -> None:
        graph = model.proto.graph if graph is None else graph
        self._folder, self._outer = model.folder, outer
        self._files: dict[str, memoryview] = {}
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        self._tensors |= {tensor.values.name: tensor for tensor in graph.sparse_initializer}
        for node in graph.node:
            value = read_held(node) if node.op_type == "Constant" else None
            if value is not None:
                self._tensors[node.output[0]] = value
        self._read: dict[str, Array | None] = {}

    def __getitem__(self, name: str) -> Array:
        if name not in self._tensors and self._outer is not None:
            return self._outer[name]
        if name not in self._read:
            self._read[name] = self._array(self._tensors[name])
        found = self._read[name]
        if found is None:
            raise KeyError(name)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Return a shape without reading the constant; None where it is not a constant."""
        tensor = self._tensors.get(name)
        if tensor is None:
            return None if self._outer is None else self._outer.shape(name)
        return tensor.shape if isinstance(tensor, np.ndarray) else tuple(tensor.dims)

    def _array(self, tensor: Any) -> Array | None:
        """Read a constant's numbers; None where they are too many, no numbers, or cannot be read."""
        from onnx import numpy_helper

        if isinstance(tensor, np.ndarray):
            return tensor
        if 8 * int(np.prod(tensor.dims, dtype=np.int64)) > 8 * _READ:
            return None
        if hasattr(tensor, "values"):
            return self._dense(tensor)
        mapped = self._mapped(tensor) if tensor.external_data else None
        if mapped is not None:
            return mapped
        try:
            found: Array = np.asarray(numpy_helper.to_array(tensor, str(self._folder)))
        except (TypeError, ValueError, KeyError, OSError):
            return None
        if found.dtype.kind in "OUS":
            return None
        return found

    def _dense(self, sparse: Any) -> Array | None:
        """Return a sparse tensor with its zeros; its indices count elements, or name a place by all axes."""
        values, indices = self._array(sparse.values), self._array(sparse.indices)
        if values is None or indices is None:
            return None
        found = np.zeros(tuple(sparse.dims), values.dtype)
        try:
            if indices.ndim == 2:
                found[tuple(indices.T)] = values
            else:
                found.reshape(-1)[indices] = values
        except IndexError:
            return None
        return found

    def _mapped(self, tensor: Any) -> Array | None:
        """Return a weight where it lies in its file, of which nothing is copied; None where it is to be read
        otherwise."""
        name, count = dtype_name(tensor.data_type), math.prod(tensor.dims)
        try:
            place = read_external_data(tensor)
            if name not in _MAPPED or not count or place.length != count * np.dtype(name).itemsize:
                return None
            if place.location not in self._files:
                self._files[place.location] = map_file(self._folder / place.location)
            data = self._files[place.location][place.offset : place.offset + place.length]
            found: Array = np.frombuffer(data, name).reshape(tensor.dims)
            return found
        except (PrecisionDebugError, ValueError):
            return None


def read_held(node: Any) -> Any:
    """Return what a Constant node holds: a tensor, or the numbers of value_float(s) and value_int(s) as an array."""
    for item in node.attribute:
        if item.name == "value":
            return item.t
        if item.name == "sparse_value":
            return item.sparse_tensor
        if item.name in ("value_float", "value_floats"):
            return np.asarray(item.f if item.name == "value_float" else list(item.floats), np.float32)
        if item.name in ("value_int", "value_ints"):
            return np.asarray(item.i if item.name == "value_int" else list(item.ints), np.int64)
    return None
