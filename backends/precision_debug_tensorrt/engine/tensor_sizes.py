"""How large each tensor of a network will be for given inputs, before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .network import LayerFacts

__all__ = ["Sizes"]


class Sizes:
    """Bytes by tensor name, as TensorRT's network tells them; dynamic ones by ONNX's shape inference for the feeds.

    An output that is marked takes at most four bytes an element (eight for INT64).
    """

    def __init__(self, layers: Sequence[LayerFacts], proto: Any, feeds: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._known: dict[str, int] = {}
        open_ = []
        for layer in layers:
            for output in layer.outputs:
                if all(dim >= 0 for dim in output.shape):
                    self._known[output.name] = _bytes(output.shape, output.dtype)
                else:
                    open_.append(output)
        inferred = _infer_shapes(proto, feeds) if open_ and proto is not None else {}
        largest = max((int(np.max(np.shape(value), initial=1)) for value in feeds.values()), default=1)
        for output in open_:
            shape = inferred.get(output.name) or tuple(dim if dim >= 0 else largest for dim in output.shape)
            self._known[output.name] = _bytes(shape, output.dtype)

    def __call__(self, name: str) -> int:
        return self._known.get(name, 0)


def _bytes(shape: Sequence[int], dtype: str) -> int:
    return int(np.prod(shape, dtype=np.int64)) * (8 if dtype == "int64" else 4)


def _infer_shapes(proto: Any, feeds: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, tuple[int, ...]]:
    import onnx

    light = onnx.ModelProto()
    light.CopyFrom(proto)
    for item in light.graph.input:
        if item.name in feeds:
            dims = item.type.tensor_type.shape
            dims.ClearField("dim")
            for size in np.shape(feeds[item.name]):
                dims.dim.add().dim_value = size
    del light.graph.value_info[:]
    try:
        graph = onnx.shape_inference.infer_shapes(light, data_prop=True).graph
    except Exception:  # over 2 GB, or an operator that ONNX does not know: the estimate stays coarse
        return {}
    found = {}
    for item in (*graph.value_info, *graph.output):
        dims = item.type.tensor_type.shape.dim
        if item.type.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims):
            found[item.name] = tuple(dim.dim_value for dim in dims)
    return found
