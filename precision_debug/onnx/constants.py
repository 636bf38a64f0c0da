"""The constants of a graph as arrays, read when they are asked for."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..errors import PrecisionDebugError
from .graph import attribute, external_data
from .model import Model, opened
from .types import dtype_name

__all__ = ["Constants"]

Array = np.ndarray[Any, Any]

_READ = 64 << 20
"""Bytes of one constant up to which it is read."""

_MAPPED = frozenset(
    ["float16", "float32", "float64", *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64))]
)
"""Types that lie in a file as numpy has them."""


class Constants(Mapping[str, Array]):
    """Initializers and outputs of Constant nodes of a model's main graph, by name; those of other types than numbers,
    and very large ones, are left out."""

    def __init__(self, model: Model) -> None:
        graph = model.proto.graph
        self._folder = model.folder
        self._files: dict[str, memoryview] = {}
        self._tensors = {tensor.name: tensor for tensor in graph.initializer}
        for node in graph.node:
            value = attribute(node, "value") if node.op_type == "Constant" else None
            if value is not None:
                self._tensors[node.output[0]] = value
        self._read: dict[str, Array | None] = {}

    def __getitem__(self, name: str) -> Array:
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
        """Without reading it; None where it is not a constant."""
        tensor = self._tensors.get(name)
        return None if tensor is None else tuple(tensor.dims)

    def _array(self, tensor: Any) -> Array | None:
        from onnx import numpy_helper

        if 8 * int(np.prod(tensor.dims, dtype=np.int64)) > 8 * _READ:
            return None
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

    def _mapped(self, tensor: Any) -> Array | None:
        """A weight where it lies in its file, of which nothing is copied; None where it is to be read otherwise."""
        name, count = dtype_name(tensor.data_type), math.prod(tensor.dims)
        try:
            place = external_data(tensor)
            if name not in _MAPPED or not count or place.length != count * np.dtype(name).itemsize:
                return None
            if place.location not in self._files:
                self._files[place.location] = opened(self._folder / place.location)
            data = self._files[place.location][place.offset : place.offset + place.length]
            found: Array = np.frombuffer(data, name).reshape(tensor.dims)
            return found
        except (PrecisionDebugError, ValueError):
            return None
