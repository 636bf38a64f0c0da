"""Writes a precision into an ONNX graph as Cast nodes, node by node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.onnx.graph import outer_reads, subgraphs

from .narrow_constants import fits, narrowed

__all__ = ["CAST", "Written", "carriers", "float_tensors", "is_silent_node", "write_casts"]

CAST = "precision_debug_cast:"
"""Name of every node that is written here starts so."""

_FLOAT, _FLOAT16, _BFLOAT16 = 1, 10, 16
_TYPES = {"FP32": _FLOAT, "FP16": _FLOAT16, "BF16": _BFLOAT16}
_SUFFIX = {_FLOAT: "fp32", _FLOAT16: "fp16", _BFLOAT16: "bf16"}
# their output's type is an attribute, or they move integers and shapes: no precision of their own to speak of
_SILENT = frozenset(
    ["Cast", "CastLike", "Constant", "ConstantOfShape", "Shape", "Size", "NonZero", "QuantizeLinear"]
) | {"DequantizeLinear"}
_KEPT = (
    _SILENT
    | frozenset(
        ["EyeLike", "Range", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"]
    )
    | {"Bernoulli", "DynamicQuantizeLinear", "NonMaxSuppression"}
)
_SMALL = 1 << 16
"""Elements of a constant up to which it is kept in memory."""

_FP32_INPUTS = {"Resize": {1, 2}, "Upsample": {1}}


@dataclass(frozen=True, kw_only=True)
class Written:
    """A model whose types are its precisions. types: of each node that reads or produces floats, "FP32", "FP16" or
    "BF16". regardless: nodes that stay in FP32 because they have no lower precision, or contain a subgraph.
    unfit: those whose constants the lower type does not hold."""

    proto: Any
    types: Mapping[str, str]
    regardless: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()


def carriers(graph: Any) -> dict[str, str]:
    """Tensors that only carry another one in another type, and which one that is."""
    return {node.output[0]: node.input[0] for node in graph.node if node.name.startswith(CAST)}


def write_casts(proto: Any, base: str, layers: Mapping[str, str], *, folder: Path) -> Written:
    """A copy of the model in which each node computes in its precision.

    base: "FP32", "FP16" or "BF16", for every node that ``layers`` (node name to precision) does not name. Only
    tensors that are FP32 in the model are changed. folder: where external weights lie; those that are converted move
    into the model.
    """
    import onnx

    result = onnx.ModelProto()
    result.CopyFrom(proto)
    _lift_constants(result.graph)
    floats = float_tensors(proto)
    writer = _Writer(result.graph, floats, folder)
    names, types = {kind: name for name, kind in _TYPES.items()}, {}
    regardless, unfit = [], []
    for node in list(result.graph.node):
        kind = _TYPES[layers.get(node.name, base)]
        if _stays(node):
            kind = _FLOAT
            if node.op_type not in _SILENT:
                regardless.append(node.name)
        elif kind != _FLOAT and node.name not in layers and writer.loses_constants(node, kind):
            kind = _FLOAT
            unfit.append(node.name)
        if not is_silent_node(node) and not floats.isdisjoint((*node.input, *node.output)):
            types[node.name] = names[kind]
        writer.add(node, kind)
    writer.finish()
    return Written(proto=result, types=types, regardless=tuple(regardless), unfit=tuple(unfit))


def is_silent_node(node: Any) -> bool:
    """Whether it has no precision to speak of: its output's type is an attribute, or it moves integers and shapes."""
    return node.op_type in _SILENT


def _lift_constants(graph: Any) -> None:
    """Weights in Constant nodes become initializers, which are converted; a cast of them would run with the model."""
    rest = []
    for node in graph.node:
        value = next((item.t for item in node.attribute if item.name == "value"), None)
        if node.op_type == "Constant" and value is not None and value.data_type == _FLOAT:
            value.name = node.output[0]
            graph.initializer.append(value)
        else:
            rest.append(type(node).FromString(node.SerializeToString()))
    if len(rest) < len(graph.node):
        del graph.node[:]
        graph.node.extend(rest)


def _stays(node: Any) -> bool:
    return node.op_type in _KEPT or node.domain not in {"", "ai.onnx"} or any(True for _ in subgraphs(node))


def float_tensors(proto: Any) -> frozenset[str]:
    """Tensors of the main graph that are FP32."""
    import onnx

    inferred = onnx.shape_inference.infer_shapes(proto).graph
    typed = {
        item.name
        for item in (*inferred.input, *inferred.value_info, *inferred.output)
        if item.type.tensor_type.elem_type == _FLOAT
    }
    return frozenset(typed | {item.name for item in inferred.initializer if item.data_type == _FLOAT})


class _Writer:
    """Rewrites one graph. ``now``: the type that a tensor, FP32 in the model, has after rewriting."""

    def __init__(self, graph: Any, floats: frozenset[str], folder: Path) -> None:
        self.graph, self.floats, self.folder = graph, floats, folder
        self.now = dict.fromkeys(floats, _FLOAT)
        self.weights = {item.name: item for item in graph.initializer}
        self.graph_inputs = {item.name for item in graph.input}
        self.outputs = {item.name for item in graph.output}
        self.taken = {name for node in graph.node for name in (*node.input, *node.output)} | set(self.weights)
        self.made: dict[tuple[str, int], str] = {}
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self.renamed: dict[str, str] = {}
        self.nodes: list[Any] = []

    def loses_constants(self, node: Any, kind: int) -> bool:
        """Whether a constant that a node reads is another one in the type."""
        kept = _FP32_INPUTS.get(node.op_type, set())
        read = [name for place, name in enumerate(node.input) if place not in kept and name in self.floats]
        return any(
            not fits(node.op_type, self._array(name), _dtype(kind))
            for name in read
            if name in self.weights and name not in self.graph_inputs
        )

    def add(self, node: Any, kind: int) -> None:
        for name in outer_reads(node):  # inside a subgraph everything is as it was
            if name in self.floats and self.now[name] != _FLOAT and name not in self.outputs:
                self._restore(name)
        for place, name in enumerate(node.input):
            if name in self.floats:
                wanted = _FLOAT if place in _FP32_INPUTS.get(node.op_type, ()) else kind
                node.input[place] = self._as(name, wanted)
        for place, name in enumerate(node.output):
            if name not in self.floats or kind == _FLOAT:
                continue
            self.now[name] = kind
            if name in self.outputs:
                node.output[place] = self.renamed[name] = self._new(name, kind)
        self.nodes.append(node)
        for name in node.output:
            plain = next((key for key, value in self.renamed.items() if value == name), "")
            if plain:
                self._cast(name, plain, _FLOAT)

    def finish(self) -> None:
        del self.graph.node[:]
        self.graph.node.extend(self.nodes)
        used = {name for node in self.graph.node for name in (*node.input, *outer_reads(node))} | self.outputs
        weights = [item for item in self.weights.values() if item.name in used or item.name in self.graph_inputs]
        del self.graph.initializer[:]
        self.graph.initializer.extend(weights)
        del self.graph.value_info[:]

    def _as(self, name: str, kind: int) -> str:
        """The tensor in a type, cast once."""
        if self.now[name] == kind:
            return self.renamed.get(name, name)
        if name in self.renamed and kind == _FLOAT:
            return name  # the model's own output, which was cast back
        made = self.made.get((name, kind))
        if made is None:
            made = self.made[name, kind] = self._new(name, kind)
            if name in self.weights and name not in self.graph_inputs:
                self._convert(name, made, kind)
            else:
                self._cast(self.renamed.get(name, name), made, kind)
        return made

    def _restore(self, name: str) -> None:
        """Give a tensor that a subgraph reads by name its FP32 back under that name."""
        other = self._new(name, self.now[name])
        for node in self.nodes:
            for place, output in enumerate(node.output):
                if output == name:
                    node.output[place] = other
            for place, read in enumerate(node.input):
                if read == name:
                    node.input[place] = other
        self.renamed[name] = other
        self.outputs.add(name)
        self._cast(other, name, _FLOAT)

    def _new(self, name: str, kind: int) -> str:
        new, count = f"{name}_{_SUFFIX[kind]}", 1
        while new in self.taken:
            count += 1
            new = f"{name}_{_SUFFIX[kind]}{count}"
        self.taken.add(new)
        return new

    def _cast(self, source: str, target: str, kind: int) -> None:
        from onnx import helper

        self.nodes.append(helper.make_node("Cast", [source], [target], name=f"{CAST}{target}", to=kind))

    def _array(self, name: str) -> np.ndarray[Any, Any]:
        """An initializer; small ones are read once, as several nodes may read them."""
        from onnx import numpy_helper

        if name in self.arrays:
            return self.arrays[name]
        array: np.ndarray[Any, Any] = numpy_helper.to_array(self.weights[name], base_dir=str(self.folder))
        if array.size <= _SMALL:
            self.arrays[name] = array
        return array

    def _convert(self, name: str, made: str, kind: int) -> None:
        from onnx import helper

        low = narrowed(self._array(name), _dtype(kind))
        self.weights[made] = helper.make_tensor(made, kind, list(low.shape), low.tobytes(), raw=True)


def _dtype(kind: int) -> Any:
    import ml_dtypes

    return np.dtype(np.float16 if kind == _FLOAT16 else ml_dtypes.bfloat16)
