"""Element types and shapes of a graph's values, as ONNX Runtime itself infers them, contrib operators included."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .lean import lean_import

__all__ = ["TypeInfo", "Types", "dtype_name", "elem_of", "numpy_dtype", "read_types"]

_FBS = "onnxruntime.tools.ort_format_model.ort_flatbuffers_py.fbs"

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


@functools.cache
def _fbs(name: str) -> Any:
    """A class of the format's own schema."""
    return getattr(lean_import(f"{_FBS}.{name}"), name)


def read_types(data: bytes) -> Types:
    """Read the types out of a model that ONNX Runtime saved in its own format."""
    known: dict[tuple[Key, str], TypeInfo] = {}
    _read_graph(_fbs("InferenceSession").GetRootAsInferenceSession(bytearray(data), 0).Model().Graph(), (), known)
    return Types(known=known)


def _read_graph(graph: Any, key: Key, known: dict[tuple[Key, str], TypeInfo]) -> None:
    for place in range(graph.NodeArgsLength()):
        arg = graph.NodeArgs(place)
        known[key, arg.Name().decode()] = _read_type(arg.Type())
    for place in range(graph.NodesLength()):
        node = graph.Nodes(place)
        outputs = [node.Outputs(i).decode() for i in range(node.OutputsLength())]
        step = next((name for name in outputs if name), (node.Name() or b"").decode())
        for item in (node.Attributes(i) for i in range(node.AttributesLength())):
            if item.G() is not None:
                _read_graph(item.G(), (*key, (step, item.Name().decode())), known)


def _read_type(info: Any) -> TypeInfo:
    if info is None:
        return TypeInfo()
    kind = info.ValueType()
    if kind != _fbs("TypeInfoValue").tensor_type:
        names = {_fbs("TypeInfoValue").sequence_type: "sequence", _fbs("TypeInfoValue").map_type: "map"}
        return TypeInfo(kind=names.get(kind, "optional"))
    tensor = _fbs("TensorTypeAndShape")()
    tensor.Init(info.Value().Bytes, info.Value().Pos)
    shape = tensor.Shape()
    if shape is None:
        return TypeInfo(kind="tensor", elem=tensor.ElemType())
    dims = (shape.Dim(i).Value() for i in range(shape.DimLength()))
    return TypeInfo(kind="tensor", elem=tensor.ElemType(), shape=tuple(_dim(dim, i) for i, dim in enumerate(dims)))


def _dim(value: Any, place: int) -> int | str:
    if value is None or value.DimType() == _fbs("DimensionValueType").UNKNOWN:
        return f"dim{place}"
    if value.DimType() == _fbs("DimensionValueType").VALUE:
        return int(value.DimValue())
    return (value.DimParam() or b"").decode() or f"dim{place}"
