"""Element types and shapes of a graph's values, as ONNX Runtime itself infers them, contrib operators included."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .flatbuffer import Table, root

__all__ = ["TypeInfo", "Types", "dtype_name", "elem_of", "numpy_dtype", "read_types"]

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

_NAMES = tuple(
    """
    undefined float32 uint8 int8 uint16 int16 int32 int64 str bool float16 float64 uint32 uint64 complex64 complex128
    bfloat16 float8_e4m3fn float8_e4m3fnuz float8_e5m2 float8_e5m2fnuz uint4 int4 float4_e2m1fn float8_e8m0fnu
    uint2 int2
    """.split()  # noqa: SIM905
)

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


def dtype_name(elem: int) -> str:
    """Numpy's or ml_dtypes' name of an ONNX element type."""
    return _NAMES[elem] if 0 <= elem < len(_NAMES) else f"onnx type {elem}"


def elem_of(text: str) -> int:
    """ONNX's element type of ONNX Runtime's "tensor(float)", or of a numpy name in its place; 0 where it is none."""
    name = text.removeprefix("tensor(").removesuffix(")").lower()
    short = {"float": "float32", "double": "float64", "string": "str"}.get(name, name)
    if short in _NAMES:
        return _NAMES.index(short)
    plain = [known.replace("_", "") for known in _NAMES]
    return plain.index(short) if short in plain else 0


def numpy_dtype(elem: int) -> Any:
    """The numpy or ml_dtypes dtype of an ONNX element type; None where neither has one."""
    import ml_dtypes
    import numpy as np

    name = dtype_name(elem)
    if hasattr(ml_dtypes, name):
        return np.dtype(getattr(ml_dtypes, name))
    return np.dtype(object) if name == "str" else np.dtype(name) if name in np.sctypeDict else None


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
