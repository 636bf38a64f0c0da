"""What a .tflite file holds: `precision_debug inspect model FILE`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from precision_debug.protocols import DescribedLayer, DescribedWeight, Description
from precision_debug.records import InputMeta

from ..model import read_inputs, read_model
from ..naming import dtype_of
from .flat import Flat
from .graph import Graph, read_graph

__all__ = ["describe"]


def describe(path: str) -> Description:
    """Raises ModelError."""
    flat = read_model(path)
    graph = read_graph(flat)
    ends = [graph.values[index] for index in graph.outputs.values()]
    return Description(
        format=f"LiteRT model, schema version {flat.model.version}",
        inputs=read_inputs(graph, raw=True),
        outputs=[InputMeta(name=value.name, dtype=value.dtype, shape=value.shape) for value in ends],
        layers=list(_iterate_layers(graph)),
        weights=list(_iterate_weights(flat)),
    )


def _iterate_layers(graph: Graph) -> Iterator[DescribedLayer]:
    tensors = graph.flat.main.tensors
    for made in graph.made.values():
        first = made[0]
        yield DescribedLayer(
            op_type=first.op_type, name=first.name,
            inputs=tuple(tensors[index].name.decode() for index in (*first.reads, *first.constants)),
            outputs=tuple(value.name for value in made), precision=first.dtype,
            attributes={name: str(one) for name, one in graph.operator(first).attributes.items()},
        )  # fmt: skip


def _iterate_weights(flat: Flat) -> Iterator[DescribedWeight]:
    for tensor in flat.main.tensors:
        if not flat.is_constant(tensor):
            continue
        array = flat.array(tensor)
        low = high = None
        lost = 0
        if array is not None and array.size and array.dtype.kind in "fiu":
            finite = array[np.isfinite(array)]
            lost = array.size - finite.size
            low, high = (float(finite.min()), float(finite.max())) if finite.size else (None, None)
        yield DescribedWeight(
            name=tensor.name.decode(), dtype=dtype_of(tensor.type), low=low, high=high, non_finite=lost,
            shape=tuple(int(size) for size in (tensor.shape if tensor.shape is not None else ())),
        )  # fmt: skip
