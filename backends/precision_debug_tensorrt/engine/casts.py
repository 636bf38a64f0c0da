"""Writes a precision into an ONNX graph as Cast nodes, node by node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.onnx.graph import iterate_graphs, iterate_subgraphs, list_outer_reads

__all__ = [
    "CAST",
    "Written",
    "find_carriers",
    "fits",
    "float_tensors",
    "is_silent_node",
    "narrow_constant",
    "write_casts",
]


# FP32 constants in a lower type: which of them fit, and what stands for one that does not.
#
# TensorRT's own builder writes the closest finite number of the type where it narrows weights, and so does this. For a
# mask's "minus infinity" that is what was meant; a variance of 1e8 or an epsilon that divides would be another number,
# so the operators that read one stay in FP32.

Array = np.ndarray[Any, Any]

_MOVES = frozenset(
    "Clip Concat Expand Max Min Pad Reshape ScatterElements ScatterND Slice Tile Where".split()  # noqa: SIM905
)
"""They choose among numbers: the end of the type's range is to the others what the constant was."""

_SUMS = frozenset(["Add", "Sub"])
_ENDLESS = 1e30
"""From here on a constant stands for infinity: float32's lowest number in a mask."""


def fits(op_type: str, value: Array, kind: Any) -> bool:
    """Return whether an operator computes the same with a constant in a type (``kind``: a dtype) as with the FP32 one,
    up to rounding."""
    if value.dtype != np.float32 or not value.size or op_type in _MOVES:
        return True
    largest = max(float(value.max()), -float(value.min()))
    if not np.isfinite(largest):
        finite = np.abs(value[np.isfinite(value)])
        largest = float(finite.max(initial=0.0))
    low = _cast(np.asarray([largest], np.float32), kind)[0]
    if np.isinf(low):
        return op_type in _SUMS | {"Mul"} and largest >= _ENDLESS
    return not (value.size == 1 and largest > 0 and low == 0) or op_type in _SUMS


def narrow_constant(value: Array, kind: Any) -> Array:
    """Return a constant in the type: finite numbers stay finite, and a single one that is not 0 stays so."""
    low = _cast(value, kind)
    over = np.isinf(low) & np.isfinite(value)
    if over.any():
        import ml_dtypes

        low[over] = np.sign(value[over]).astype(low.dtype) * ml_dtypes.finfo(kind).max
    if value.size == 1 and (value != 0).all() and (low == 0).all():
        import ml_dtypes

        low = (np.sign(value) * float(ml_dtypes.finfo(kind).smallest_subnormal)).astype(low.dtype)
    return low


def _cast(value: Array, kind: Any) -> Array:
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        return value.astype(kind)


CAST = "precision_debug_cast:"
"""Name of every node that is written here starts so."""

_FLOAT, _FLOAT16, _BFLOAT16 = 1, 10, 16
_TYPES = {"FP32": _FLOAT, "FP16": _FLOAT16, "BF16": _BFLOAT16}
_NAMES = {kind: name for name, kind in _TYPES.items()}
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
    "BF16". regardless: nodes that stay in FP32 because they have no lower precision, or a body with tensors of unknown
    type. unfit: those whose constants the lower type does not hold."""

    proto: Any
    types: Mapping[str, str]
    regardless: tuple[str, ...] = ()
    unfit: tuple[str, ...] = ()


def find_carriers(graph: Any) -> dict[str, str]:
    """Return tensors that only carry another one in another type, and which one that is."""
    return {
        node.output[0]: node.input[0]
        for inner in iterate_graphs(graph)
        for node in inner.node
        if node.name.startswith(CAST)
    }


def write_casts(proto: Any, base: str, layers: Mapping[str, str], *, folder: Path) -> Written:
    """Return a copy of the model in which each node computes in its precision.

    base: "FP32", "FP16" or "BF16", for every node that ``layers`` (node name to precision) does not name. Only
    tensors that are FP32 in the model are changed. folder: where external weights lie; those that are converted move
    into the model.
    """
    import onnx

    inferred = onnx.shape_inference.infer_shapes(proto)
    result = onnx.ModelProto()
    result.CopyFrom(proto)
    taken = {
        name for graph in iterate_graphs(result.graph) for node in graph.node for name in (*node.input, *node.output)
    }
    taken |= {item.name for graph in iterate_graphs(result.graph) for item in (*graph.initializer, *graph.input)}
    work = _Work(base=base, layers=layers, folder=folder, taken=taken)
    work.write(result.graph, inferred.graph, None)
    return Written(proto=result, types=work.types, regardless=tuple(work.regardless), unfit=tuple(work.unfit))


@dataclass(kw_only=True)
class _Work:
    """A model that is being written. taken: names of tensors. The rest: see ``Written`` and ``write_casts``."""

    base: str
    layers: Mapping[str, str]
    folder: Path
    taken: set[str]
    types: dict[str, str] = field(default_factory=dict)
    regardless: list[str] = field(default_factory=list)
    unfit: list[str] = field(default_factory=list)

    def write(self, graph: Any, inferred: Any, outer: _Writer | None) -> None:
        """Rewrite one graph. inferred: the same with the types of its tensors. outer: of the graph around it."""
        _lift_constants(graph)
        floats = _floats_of(inferred)
        writer = _Writer(graph, floats if outer is None else floats | outer.floats, self.folder, self.taken, outer)
        known = {tuple(node.output): node for node in inferred.node}
        for node in list(graph.node):
            kind = self._kind(node, writer)
            if any(True for _ in iterate_subgraphs(node)):
                self._write_bodies(node, known[tuple(node.output)], writer)
            elif not is_silent_node(node) and not writer.floats.isdisjoint((*node.input, *node.output)):
                self.types[node.name] = _NAMES[kind]
            writer.add(node, kind)
        writer.finish()

    def _kind(self, node: Any, writer: _Writer) -> int:
        kind = _TYPES[self.layers.get(node.name, self.base)]
        if _does_stay(node):
            if node.op_type not in _SILENT:
                self.regardless.append(node.name)
            return _FLOAT
        if any(
            True for _ in iterate_subgraphs(node)
        ):  # what goes in and what comes out; its bodies have types of their own
            return _FLOAT
        if kind != _FLOAT and node.name not in self.layers and writer.loses_constants(node, kind):
            self.unfit.append(node.name)
            return _FLOAT
        return kind

    def _write_bodies(self, node: Any, inferred: Any, writer: _Writer) -> None:
        """Write the types into the bodies of an If, Loop or Scan, which read and produce FP32. A node stays as it is
        where the type of a tensor inside is unknown."""
        bodies = [*zip(iterate_subgraphs(node), iterate_subgraphs(inferred), strict=True)]
        kept = self.layers.get(node.name) == "FP32" or _does_stay(node)
        if kept or not all(_are_all_typed(known) for _, (_, known) in bodies):
            if node.name not in self.regardless and not kept:
                self.regardless.append(node.name)
            return
        for (_, body), (_, known) in bodies:
            self.write(body, known, writer)


def is_silent_node(node: Any) -> bool:
    """Return whether it has no precision to speak of: its output's type is an attribute, or it moves integers and
    shapes."""
    return node.op_type in _SILENT


def _lift_constants(graph: Any) -> None:
    """Weights in Constant nodes become initializers, which are converted; a cast of them would run with the model."""
    rest = []
    for node in graph.node:
        value = _held_constant(node) if node.op_type == "Constant" else None
        if value is not None and value.data_type == _FLOAT:
            value.name = node.output[0]
            graph.initializer.append(value)
        else:
            rest.append(type(node).FromString(node.SerializeToString()))
    if len(rest) < len(graph.node):
        del graph.node[:]
        graph.node.extend(rest)


def _held_constant(node: Any) -> Any:
    """Return the tensor of a Constant node; None of one that holds something else."""
    from onnx import helper

    for item in node.attribute:
        if item.name == "value":
            return item.t
        if item.name == "value_float":
            return helper.make_tensor("", _FLOAT, [], [item.f])
        if item.name == "value_floats":
            return helper.make_tensor("", _FLOAT, [len(item.floats)], list(item.floats))
    return None


def _does_stay(node: Any) -> bool:
    return node.op_type in _KEPT or node.domain not in {"", "ai.onnx"}


def float_tensors(proto: Any) -> frozenset[str]:
    """Return tensors of the main graph that are FP32."""
    import onnx

    return _floats_of(onnx.shape_inference.infer_shapes(proto).graph)


def _floats_of(inferred: Any) -> frozenset[str]:
    typed = {
        item.name
        for item in (*inferred.input, *inferred.value_info, *inferred.output)
        if item.type.tensor_type.elem_type == _FLOAT
    }
    return frozenset(typed | {item.name for item in inferred.initializer if item.data_type == _FLOAT})


def _are_all_typed(graph: Any) -> bool:
    """Return whether the type of every tensor that a body makes is known."""
    known = {item.name for item in (*graph.value_info, *graph.output) if item.type.WhichOneof("value")}
    return all(name in known for node in graph.node for name in node.output if name) and all(
        _are_all_typed(inner) for node in graph.node for _, inner in iterate_subgraphs(node)
    )


class _Writer:
    """Rewrites one graph. ``now``: the type that a tensor, FP32 in the model, has after rewriting; what comes from the
    graph around it (``outer``) is FP32."""

    def __init__(
        self, graph: Any, floats: frozenset[str], folder: Path, taken: set[str], outer: _Writer | None
    ) -> None:
        self.graph, self.floats, self.folder, self.taken, self.outer = graph, floats, folder, taken, outer
        self.now = dict.fromkeys(floats, _FLOAT)
        self.weights = {item.name: item for item in graph.initializer}
        self.graph_inputs = {item.name for item in graph.input}
        self.outputs = {item.name for item in graph.output}
        self.own = self.graph_inputs | {name for node in graph.node for name in node.output}
        self.made: dict[tuple[str, int], str] = {}
        self.arrays: dict[str, np.ndarray[Any, Any]] = {}
        self.renamed: dict[str, str] = {}
        self.nodes: list[Any] = []

    def loses_constants(self, node: Any, kind: int) -> bool:
        """Return whether a constant that a node reads is another one in the type."""
        kept = _FP32_INPUTS.get(node.op_type, set())
        read = [name for place, name in enumerate(node.input) if place not in kept and name in self.floats]
        homes = [(name, self._home(name)) for name in read]
        return any(not fits(node.op_type, home.array(name), _dtype(kind)) for name, home in homes if home is not None)

    def _home(self, name: str) -> _Writer | None:
        """Whose constant a tensor is: this graph's, or one's around it; None where it is computed or fed."""
        if name in self.weights:
            return self if name not in self.graph_inputs else None
        if self.outer is None or name in self.own:
            return None
        return self.outer._home(name)

    def add(self, node: Any, kind: int) -> None:
        for name in list_outer_reads(node):  # a body reads FP32
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
        used = {name for node in self.graph.node for name in (*node.input, *list_outer_reads(node))} | self.outputs
        weights = [item for item in self.weights.values() if item.name in used or item.name in self.graph_inputs]
        del self.graph.initializer[:]
        self.graph.initializer.extend(weights)
        del self.graph.value_info[:]

    def _as(self, name: str, kind: int) -> str:
        """Return the tensor in a type, cast once."""
        if self.now[name] == kind:
            return self.renamed.get(name, name)
        if name in self.renamed and kind == _FLOAT:
            return name  # the model's own output, which was cast back
        made = self.made.get((name, kind))
        home = self._home(name)
        if made is None and home is not None and home is not self:
            return home._as(name, kind)
        if made is None:
            made = self.made[name, kind] = self._new(name, kind)
            if home is self:
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

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """Return an initializer; small ones are read once, as several nodes may read them."""
        from onnx import numpy_helper

        if name in self.arrays:
            return self.arrays[name]
        array: np.ndarray[Any, Any] = numpy_helper.to_array(self.weights[name], base_dir=str(self.folder))
        if array.size <= _SMALL:
            self.arrays[name] = array
        return array

    def _convert(self, name: str, made: str, kind: int) -> None:
        from onnx import helper

        low = narrow_constant(self.array(name), _dtype(kind))
        self.weights[made] = helper.make_tensor(made, kind, list(low.shape), low.tobytes(), raw=True)


def _dtype(kind: int) -> Any:
    import ml_dtypes

    return np.dtype(np.float16 if kind == _FLOAT16 else ml_dtypes.bfloat16)
