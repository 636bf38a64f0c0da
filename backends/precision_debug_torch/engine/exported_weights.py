"""Whether an exported ONNX file holds a module's weights: the first thing to know before an operator is blamed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.errors import ModelError
from precision_debug.numbers.arrays import as_array
from precision_debug.pairing.weights import Weight, compare_weights, summarise_weights

from ..model import Model
from .layers import layers_of, layers_of_names

__all__ = ["Weight", "check_arrays", "check_weights", "summarise_weights", "weights_of"]

Array = np.ndarray[Any, Any]


def check_weights(model: Model, path: str | Path) -> tuple[Weight, ...]:
    """Compare a module's parameters and buffers with the weights that an ONNX file uses. Raises ModelError."""
    return compare_weights(weights_of(model), _used(path), layers_of(model.module).values())


def weights_of(model: Model) -> Mapping[str, Array]:
    """Return a module's parameters and buffers, each an array when it is asked for: a card's are copied to the host."""
    state = {**dict(model.module.named_parameters()), **dict(model.module.named_buffers())}
    return _Arrays({name: tensor for name, tensor in state.items() if tensor.numel()})


class _Arrays(Mapping[str, Array]):
    """Tensors by name, as arrays."""

    def __init__(self, tensors: Mapping[str, Any]) -> None:
        self._tensors = tensors

    def __getitem__(self, name: str) -> Array:
        return as_array(self._tensors[name], name=name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)


def check_arrays(weights: Mapping[str, Array], path: str | Path) -> tuple[Weight, ...]:
    """Return the same of weights that are arrays already; needs no torch."""
    return compare_weights(weights, _used(path), layers_of_names(weights).values())


def _used(path: str | Path) -> dict[str, Array]:
    """Return the weights of a file from which its outputs are computed; what lies in it unused says nothing."""
    import onnx
    from onnx import numpy_helper

    try:
        graph = onnx.load(str(path)).graph
        found = {item.name: numpy_helper.to_array(item) for item in graph.initializer}
    except Exception as error:
        raise ModelError(f"its weights cannot be read: {type(error).__name__}: {error}", where=str(path)) from error
    read = {item.name for item in graph.output}
    for node in reversed(graph.node):
        if node.op_type == "Constant":
            for item in node.attribute:
                if item.name == "value" and item.t.dims:
                    found[node.output[0]] = numpy_helper.to_array(item.t)
        elif read.intersection(node.output):
            read.update(node.input)
            read.update(_inner(node))
    return {name: value for name, value in found.items() if name in read}


def _inner(node: Any) -> set[str]:
    """Return what the graphs inside a node read."""
    return {
        name for item in node.attribute if item.HasField("g") for inside in item.g.node
        for name in (*inside.input, *_inner(inside))
    }  # fmt: skip
