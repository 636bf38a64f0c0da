"""The tensors of a model as its file has them, for sessions that run the file and not a graph that was rewritten."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from precision_debug.onnx.model import read_tensor_shape
from precision_debug.onnx.types import dtype_name
from precision_debug.reasons import NOTHING
from precision_debug.records import TensorMeta

from ..reasons import say
from .model_layout import View
from .tensor_list import Entry, Labels, list_values, op_type

__all__ = ["inferred_types", "list_of_source"]


def list_of_source(
    proto: Any, types: Mapping[str, tuple[int, tuple[int | str, ...] | None]], *, floats: str = ""
) -> list[Entry]:
    """Return every tensor of a model as its file has it, in execution order. floats: the type that all floats are held
    in."""
    found = list_values(proto.graph)
    names = Labels(found)
    outputs = {item.name for item in proto.graph.output}
    entries = []
    for value in found:
        elem, shape = types.get(value.name, (0, None))
        is_output = not value.scope.key and value.name in outputs
        unseen = say("no_tensor") if value.name in types and not elem and not is_output else NOTHING
        dtype = dtype_name(elem) if elem else ""
        inputs, later = names.inputs(value)
        meta = TensorMeta(
            name=names.by_key[value.key],
            op_type=op_type(value),
            node="" if value.node is None else value.node.name,
            dtype=floats if floats and dtype in {"float32", "float16", "bfloat16"} else dtype,
            shape=shape,
            inputs=inputs,
            is_output=is_output,
            unseen=unseen,
        )
        entries.append(Entry(value=value, meta=meta, view=View(unseen=unseen), later=later))
    return entries


def inferred_types(proto: Any) -> dict[str, tuple[int, tuple[int | str, ...] | None]]:
    """Element type (0: not a tensor) and shape of what onnx can infer; what the file says of it may be wrong."""
    import onnx

    plain = onnx.ModelProto()
    plain.CopyFrom(proto)
    del plain.graph.value_info[:]
    for item in plain.graph.output:
        if item.type.HasField("tensor_type"):
            item.type.tensor_type.ClearField("shape")
    try:
        graph = onnx.shape_inference.infer_shapes(plain).graph
    except Exception:  # it is only for information, and over 2 GB it is refused
        graph = proto.graph
    return {
        item.name: (item.type.tensor_type.elem_type, read_tensor_shape(item.type.tensor_type))
        for item in (*graph.input, *graph.value_info, *graph.output)
        if item.type.WhichOneof("value")
    }
