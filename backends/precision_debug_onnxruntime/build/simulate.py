"""A float32 graph whose weights, inputs and node outputs are rounded to a narrower type and back.

What an engine that keeps every tensor in that type would lose, with sums in float32 as tensor cores have them.
Rounding is to nearest even and overflow gives infinity, in ONNX Runtime's Cast as in numpy's and ml_dtypes'.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..graph import Scope, all_graphs, external_data, scopes, words
from ..model import Model
from ..types import Types, numpy_dtype

__all__ = ["internal", "simulate"]

_FLOAT, _DOUBLE = 1, 11
_ELEMS = {"float16": 10, "bfloat16": 16}
_EXACT, _NARROW, _ROUNDED = "!exact", "!narrow", "!rounded"
# inputs that an engine keeps in float32 whatever the precision: scales, rois, thresholds
_KEPT = {
    "Resize": (1, 2), "Upsample": (1,), "QuantizeLinear": (1,), "DequantizeLinear": (1,),
    "NonMaxSuppression": (3, 4), "Range": (0, 1, 2),
}  # fmt: skip
_MOVERS = words("""
    Reshape Flatten Squeeze Unsqueeze Transpose Identity Slice Split Gather GatherElements GatherND Expand Tile Concat
    MaxPool Relu
""")


def simulate(plain: Model, types: Types, to: str, folder: Path) -> tuple[Model, tuple[str, ...]]:
    """A copy of the unoptimised graph that rounds, with its weights rounded in a file of its own; and notes.

    to: "float16" or "bfloat16".
    """
    import onnx

    proto = onnx.ModelProto()
    proto.CopyFrom(plain.proto)
    weights = _Weights(plain.folder, folder, _ELEMS[to])
    for graph in all_graphs(proto.graph):
        weights.round(graph)
    doubles = 0
    for scope in scopes(proto.graph):
        doubles += _round_values(scope, types, _ELEMS[to])
    notes = [
        f"a simulation: a float32 graph in which weights, inputs and every operator's output are rounded to {to}; an "
        "engine's own sums and fusions differ"
    ]
    if weights.infinite:
        names = ", ".join(weights.infinite[:3]) + (" and more" if len(weights.infinite) > 3 else "")
        notes.append(f"weights that overflow {to} to infinity: {names}")
    if doubles:
        notes.append(f"{doubles} float64 tensors are left as they are")
    return Model(proto=proto, folder=weights.folder, path=plain.path), tuple(notes)


def internal(name: str) -> bool:
    """Whether a value only exists because of the simulation: an operator's exact result, or its narrow form."""
    return name.endswith((_EXACT, _NARROW))


class _Weights:
    """Rounds constants in place: those in the graph there, those in files in a copy of the file."""

    def __init__(self, source: Path, folder: Path, elem: int) -> None:
        self.source, self.folder, self.dtype = source, folder / "rounded", numpy_dtype(elem)
        self.folder.mkdir(exist_ok=True)
        self.infinite: list[str] = []

    def round(self, graph: Any) -> None:
        kept = {
            node.input[place] for node in graph.node for place in _KEPT.get(node.op_type, ()) if place < len(node.input)
        }
        for tensor in graph.initializer:
            if tensor.external_data:
                self._bring(tensor)
            if tensor.data_type == _FLOAT and tensor.name not in kept:
                self._round(tensor)

    def _bring(self, tensor: Any) -> None:
        location = external_data(tensor).location
        copy = self.folder / location
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.source / location, copy)

    def _round(self, tensor: Any) -> None:
        from onnx import numpy_helper

        if tensor.external_data:
            place = external_data(tensor)
            count = int(np.prod(tensor.dims, dtype=np.int64))
            if not count:
                return
            array = np.memmap(self.folder / place.location, np.float32, "r+", place.offset, (count,))
            self._round_array(tensor.name, array)
            array.flush()
        else:
            array = numpy_helper.to_array(tensor).copy()
            self._round_array(tensor.name, array.reshape(-1))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))

    def _round_array(self, name: str, array: Any, block: int = 1 << 20) -> None:
        overflow = False
        with np.errstate(over="ignore"):
            for start in range(0, array.size, block):
                part = array[start : start + block]
                rounded = part.astype(self.dtype).astype(np.float32)
                overflow |= bool(np.any(np.isinf(rounded) & np.isfinite(part)))
                part[...] = rounded
        if overflow:
            self.infinite.append(name)


def _round_values(scope: Scope, types: Types, elem: int) -> int:
    """Put the rounding behind every float input and output of one graph; returns how many float64 it has."""
    graph = scope.graph
    nodes: list[Any] = []
    renamed: dict[str, str] = {}
    doubles = 0
    constants = {item.name for item in graph.initializer}
    for item in graph.input if not scope.key else ():
        info = types.of(scope.key, item.name)
        if item.name not in constants and info.kind == "tensor" and info.elem == _FLOAT:
            renamed[item.name] = item.name + _ROUNDED
            nodes += _pair(item.name, renamed[item.name], elem)
    for node in graph.node:
        copy = type(node)()
        copy.CopyFrom(node)
        nodes.append(copy)
        for place, name in enumerate(node.output):
            info = types.of(scope.key, name)
            doubles += bool(name) and info.kind == "tensor" and info.elem == _DOUBLE
            if name and info.kind == "tensor" and info.elem == _FLOAT and node.op_type not in _MOVERS:
                copy.output[place] = name + _EXACT
                nodes += _pair(name + _EXACT, name, elem)
    del graph.node[:]
    graph.node.extend(nodes)
    for inner in all_graphs(graph):
        _rename(inner, renamed)
    return doubles


def _rename(graph: Any, renamed: dict[str, str]) -> None:
    """Let every reader of a model input read its rounded copy."""
    for node in graph.node:
        if node.name.startswith("round:"):
            continue
        for place, name in enumerate(node.input):
            if name in renamed:
                node.input[place] = renamed[name]


def _pair(name: str, output: str, elem: int) -> Iterator[Any]:
    from onnx import helper

    narrow = output + _NARROW
    yield helper.make_node("Cast", [name], [narrow], name=f"round:{output}", to=elem)
    yield helper.make_node("Cast", [narrow], [output], name=f"round:{output}:back", to=_FLOAT)
