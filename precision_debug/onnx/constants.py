"""The constants of a graph as arrays, read when they are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .graph import attribute
from .model import Model

__all__ = ["Constants"]

Array = np.ndarray[Any, Any]

_READ = 64 << 20
"""Bytes of one constant up to which it is read."""


class Constants(Mapping[str, Array]):
    """Initializers and outputs of Constant nodes of a model's main graph, by name; those of other types than numbers,
    and very large ones, are left out."""

    def __init__(self, model: Model) -> None:
        graph = model.proto.graph
        self._folder = str(model.folder)
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
        try:
            found: Array = np.asarray(numpy_helper.to_array(tensor, self._folder))
        except (TypeError, ValueError, KeyError, OSError):
            return None
        if found.dtype.kind in "OUS":
            return None
        return found
