"""What an ONNX file holds, as lines to read: inputs and outputs, operators, attributes, weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from .graph import initializers_of, scopes
from .model import read_model, tensor_shape
from .types import dtype_name

__all__ = ["PARTS", "described"]

PARTS = ("layers", "attributes", "weights")
"""What can be asked for beyond the summary."""

_LONG = 80


def described(path: str, parts: Collection[str] = ()) -> Iterator[str]:
    """One line a thing; layers in the file's order, those of bodies indented. Raises ModelError."""
    model = read_model(path)
    graph = model.proto.graph
    constants = initializers_of(graph)
    opsets = ", ".join(f"{one.domain or 'ai.onnx'} {one.version}" for one in model.proto.opset_import)
    yield f"{path}: IR {model.proto.ir_version}, opset {opsets}, {model.proto.producer_name or 'unknown producer'}"
    for item in graph.input:
        if item.name not in constants:
            yield f"input   {item.name}  {_type(item)}"
    for item in graph.output:
        yield f"output  {item.name}  {_type(item)}"
    found = list(scopes(graph))
    counts = Counter(node.op_type for scope in found for node in scope.graph.node)
    yield f"{counts.total()} operators: " + ", ".join(f"{count} {name}" for name, count in counts.most_common())
    weights = [weight for scope in found for weight in scope.graph.initializer]
    elements = sum(_elements(weight) for weight in weights)
    types = Counter(dtype_name(weight.data_type) for weight in weights)
    yield f"{len(weights)} weights, {elements} elements: " + ", ".join(f"{n} {name}" for name, n in types.most_common())
    if "layers" in parts or "attributes" in parts:
        for scope in found:
            depth = len(scope.key)
            if scope.parent is not None:
                yield f"{'  ' * depth}in {scope.path}:"
            for node in scope.graph.node:
                yield f"{'  ' * depth}{node.op_type:18s} {node.name}: {_names(node.input)} -> {_names(node.output)}"
                for attribute in node.attribute if "attributes" in parts else ():
                    yield f"{'  ' * depth}    {attribute.name} = {_value(attribute)}"
    if "weights" in parts:
        for weight in weights:
            shape = f"{dtype_name(weight.data_type)} {list(weight.dims)}"
            yield f"{weight.name}  {shape}{_range(weight, model.folder)}"


def _type(item: Any) -> str:
    kind = item.type.WhichOneof("value")
    if kind != "tensor_type":
        return str(kind or "unknown type").removesuffix("_type")
    shape = tensor_shape(item.type.tensor_type)
    dims = "shape unknown" if shape is None else f"[{', '.join(map(str, shape))}]"
    return f"{dtype_name(item.type.tensor_type.elem_type)} {dims}"


def _names(names: Any) -> str:
    return ", ".join(name or "-" for name in names) or "nothing"


def _elements(weight: Any) -> int:
    count = 1
    for dim in weight.dims:
        count *= dim
    return count


def _range(weight: Any, folder: Path) -> str:
    """Smallest and largest value, and what is not finite."""
    from onnx import numpy_helper

    array = numpy_helper.to_array(weight, base_dir=str(folder))
    if array.dtype.kind not in "fiub" and array.dtype.isbuiltin != 2:
        return ""
    wide = array.astype(np.float64)
    finite = wide[np.isfinite(wide)]
    said = f"  {finite.min():.6g} to {finite.max():.6g}" if finite.size else ""
    return said + (f", {wide.size - finite.size} not finite" if finite.size < wide.size else "")


def _value(attribute: Any) -> str:
    from onnx import helper

    if attribute.HasField("g") or attribute.graphs:
        return f"a graph of {len(attribute.g.node)} operators" if attribute.HasField("g") else "graphs"
    if attribute.HasField("t"):
        return f"{dtype_name(attribute.t.data_type)} {list(attribute.t.dims)}"
    value = helper.get_attribute_value(attribute)
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
    return text if len(text) <= _LONG else f"{text[:_LONG]}…"
