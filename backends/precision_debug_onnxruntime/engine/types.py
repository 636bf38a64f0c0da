"""Element types and shapes of a graph's values, as ONNX Runtime itself infers them, contrib operators included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from precision_debug.onnx.types import dtype_name

from .flatbuffer import Table, root

__all__ = ["TypeInfo", "Types", "read_types"]

# fields of the tables in onnxruntime/core/flatbuffers/schema/ort.fbs, whose numbers never change
_SESSION_MODEL, _MODEL_GRAPH = 1, 7
_GRAPH_ARGS, _GRAPH_NODES = 1, 2
_ARG_NAME, _ARG_TYPE = 0, 2
_NODE_NAME, _NODE_OUTPUTS, _NODE_ATTRIBUTES = 0, 9, 10
_ATTRIBUTE_NAME, _ATTRIBUTE_GRAPH = 0, 7
_TYPE_KIND, _TYPE_VALUE = 1, 2
_TENSOR_ELEM, _TENSOR_SHAPE = 0, 1
_DIM_KIND, _DIM_VALUE, _DIM_PARAM = 0, 1, 2
_TENSOR, _SEQUENCE, _MAP = 1, 2, 3
_UNKNOWN, _VALUE = 0, 1

Key = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class TypeInfo:
    """kind: "tensor", "sequence", "map", "optional", ... or "" where unknown. elem: ONNX's element type of a tensor."""

    kind: str = ""
    elem: int = 0
    shape: tuple[int | str, ...] | None = None

    @property
    def dtype(self) -> str:
        return dtype_name(self.elem) if self.kind == "tensor" else self.kind


@dataclass(frozen=True, kw_only=True)
class Types:
    """Types by scope and name; a name of an outer scope is found from the inner ones."""

    known: Mapping[tuple[Key, str], TypeInfo]

    def of(self, key: Key, name: str) -> TypeInfo:
        for depth in range(len(key), -1, -1):
            found = self.known.get((key[:depth], name))
            if found is not None and found.kind:
                return found
        return TypeInfo()


def read_types(data: bytes) -> Types:
    """Read the types out of a model that ONNX Runtime saved in its own format."""
    known: dict[tuple[Key, str], TypeInfo] = {}
    model = root(data).table(_SESSION_MODEL)
    graph = None if model is None else model.table(_MODEL_GRAPH)
    if graph is not None:
        _read_graph(graph, (), known)
    return Types(known=known)


def _read_graph(graph: Table, key: Key, known: dict[tuple[Key, str], TypeInfo]) -> None:
    for arg in graph.tables(_GRAPH_ARGS):
        known[key, arg.text(_ARG_NAME)] = _read_type(arg.table(_ARG_TYPE))
    for node in graph.tables(_GRAPH_NODES):
        for item in node.tables(_NODE_ATTRIBUTES):
            inner = item.table(_ATTRIBUTE_GRAPH)
            if inner is not None:
                step = next((name for name in node.texts(_NODE_OUTPUTS) if name), node.text(_NODE_NAME))
                _read_graph(inner, (*key, (step, item.text(_ATTRIBUTE_NAME))), known)


def _read_type(info: Table | None) -> TypeInfo:
    if info is None:
        return TypeInfo()
    kind = info.byte(_TYPE_KIND)
    tensor = info.table(_TYPE_VALUE)
    if kind != _TENSOR or tensor is None:
        return TypeInfo(kind={_SEQUENCE: "sequence", _MAP: "map"}.get(kind, "optional"))
    shape = tensor.table(_TENSOR_SHAPE)
    dims = None if shape is None else tuple(_dim(dim.table(0), i) for i, dim in enumerate(shape.tables(0)))
    return TypeInfo(kind="tensor", elem=tensor.int32(_TENSOR_ELEM), shape=dims)


def _dim(value: Table | None, place: int) -> int | str:
    kind = _UNKNOWN if value is None else value.byte(_DIM_KIND)
    if value is None or kind == _UNKNOWN:
        return f"dim{place}"
    return value.int64(_DIM_VALUE) if kind == _VALUE else value.text(_DIM_PARAM) or f"dim{place}"
