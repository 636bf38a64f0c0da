"""A float32 graph whose weights, inputs and node outputs are rounded to a narrower type and back.

What an engine that keeps every tensor in that type would lose, with sums in float32 as tensor cores have them.
Rounding is to nearest even and overflow gives infinity, in ONNX Runtime's Cast as in numpy's and ml_dtypes'.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.numbers.number_types import NUMBER_TYPES
from precision_debug.onnx.graph import Scope, iterate_scopes, read_external_data, split_words
from precision_debug.onnx.model import Model
from precision_debug.onnx.types import numpy_dtype
from precision_debug.reasons import Reason

from ..engine.types import Types
from ..keep import Blocked
from ..reasons import say
from .kept import separate_constants
from .narrowing import Trouble, constant_tensor, count_trouble, trouble_notes

__all__ = ["behind_operator", "is_internal", "is_rounded", "simulate"]

_FLOAT, _DOUBLE = 1, 11


def _say_trouble(name: str) -> Trouble:
    """Return what is said of weights that a type does not hold well."""
    limit = f"{NUMBER_TYPES[name].largest:.5g}"
    return Trouble(
        beyond=lambda count, names: say("weights_overflow", count=count, type=name, limit=limit, names=names),
        below=lambda count, names: say("weights_below", count=count, type=name, names=names),
        subnormal=lambda count, names: say("weights_subnormal", count=count, type=name, names=names),
    )


_EXACT, _NARROW, _ROUNDED, _COPY = "!exact", "!narrow", "!rounded", "!copy"
_BEHIND, _BESIDE = "round:", "Cast:round:"  # the second is not a form of the value before it, but a value of its own
# inputs that an engine keeps in float32 whatever the precision: scales, rois, thresholds
_KEPT = {
    "Resize": (1, 2), "Upsample": (1,), "QuantizeLinear": (1,), "DequantizeLinear": (1,),
    "NonMaxSuppression": (3, 4), "Range": (0, 1, 2),
}  # fmt: skip
_MOVERS = split_words("""
    Reshape Flatten Squeeze Unsqueeze Transpose Identity Slice Split Gather GatherElements GatherND Expand Tile Concat
    MaxPool Relu
""")


def simulate(plain: Model, types: Types, to: str, folder: Path, blocked: Blocked) -> tuple[Model, tuple[Reason, ...]]:
    """Return a copy of the unoptimised graph that rounds, with its weights rounded in a file of its own; and notes.

    to: a name in NUMBER_TYPES. blocked: what computes in float32; between two such operators nothing is rounded, nor
    are the weights that they read.
    """
    import onnx

    proto = onnx.ModelProto()
    proto.CopyFrom(plain.proto)
    before = len(proto.graph.initializer)
    separate_constants(proto, blocked)
    for tensor in list(proto.graph.initializer)[before:]:
        _put_numbers_inside(tensor, plain.folder)
    weights = _Weights(plain.folder, folder, to)
    found = list(iterate_scopes(proto.graph))
    for scope in found:
        weights.round(scope.graph, blocked, blocked.covers_scope(scope))
    doubles = 0
    for scope in reversed(found):  # those inside first: a graph's nodes are copied, and their names change
        if not blocked.covers_scope(scope):
            doubles += _round_values(scope, types, NUMBER_TYPES[to].onnx, blocked)
    notes = [say("simulated", type=to)]
    notes += trouble_notes(weights.trouble, _say_trouble(to))
    if doubles:
        notes.append(say("doubles_left", count=doubles))
    return Model(proto=proto, folder=weights.folder, path=plain.path), tuple(notes)


def _put_numbers_inside(tensor: Any, folder: Path) -> None:
    """Put a copy's numbers into the graph: those in the file are rounded, for whoever else reads them."""
    from onnx import numpy_helper

    if tensor.external_data:
        array = numpy_helper.to_array(tensor, base_dir=str(folder))
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def is_rounded(node: Any, scope: Scope, blocked: Blocked) -> bool:
    """Return whether what a node of the simulating graph gives is rounded: by it, or before it."""
    if node is None or behind_operator(node):
        return True
    return node.op_type in _MOVERS and not blocked.covers(node) and not blocked.covers_scope(scope)


def behind_operator(node: Any) -> bool:
    """Return whether a node of the simulating graph is the rounding behind an operator, which gives float32."""
    return node is not None and node.name.startswith(_BEHIND)


def is_internal(name: str) -> bool:
    """Return whether a value only exists because of the simulation: an operator's exact result, its narrow form, or a
    rounded copy of what is kept."""
    return name.endswith((_EXACT, _NARROW, _COPY))


class _Weights:
    """Rounds constants in place: those in the graph there, those in files in a copy of the file.

    trouble: what the type does to each, see narrowing.
    """

    def __init__(self, source: Path, folder: Path, to: str) -> None:
        self.source, self.folder, self.to = source, folder / "rounded", to
        self.dtype = numpy_dtype(NUMBER_TYPES[to].onnx)
        self.folder.mkdir(exist_ok=True)
        self.trouble: dict[str, tuple[int, int, int]] = {}

    def round(self, graph: Any, blocked: Blocked, inside: bool) -> None:
        """inside: the graph itself lies in a blocked node."""
        narrow: set[str] = set()
        read: set[str] = set()
        kept: set[str] = set()
        for node, is_blocked in blocked.nodes_of(graph, inside):
            read.update(node.input)
            narrow.update(() if is_blocked else node.input)
            kept.update(node.input[i] for i in _KEPT.get(node.op_type, ()) if i < len(node.input))
        for tensor in graph.initializer:
            if tensor.external_data:
                self._bring(tensor)
            if tensor.data_type == _FLOAT and self._goes(tensor.name, kept, read, narrow):
                self._round(tensor.name, tensor)
        for node in graph.node:
            held = constant_tensor(node)
            if held is not None and held.data_type == _FLOAT and self._goes(node.output[0], kept, read, narrow):
                self._round(node.output[0], held)
                node.name = _BEHIND + node.name

    @staticmethod
    def _goes(name: str, kept: set[str], read: set[str], narrow: set[str]) -> bool:
        return name not in kept and (name in narrow or name not in read)

    def _bring(self, tensor: Any) -> None:
        location = read_external_data(tensor).location
        copy = self.folder / location
        if not copy.exists():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.source / location, copy)

    def _round(self, name: str, tensor: Any) -> None:
        from onnx import numpy_helper

        if tensor.external_data:
            place = read_external_data(tensor)
            count = int(np.prod(tensor.dims, dtype=np.int64))
            if not count:
                return
            array = np.memmap(self.folder / place.location, np.float32, "r+", place.offset, (count,))
            self._round_array(name, array)
            array.flush()
        else:
            array = numpy_helper.to_array(tensor).copy()
            self._round_array(name, array.reshape(-1))
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))

    def _round_array(self, name: str, array: Any, block: int = 1 << 20) -> None:
        counts = [0, 0, 0]
        with np.errstate(over="ignore"):
            for start in range(0, array.size, block):
                part = array[start : start + block]
                counts = [have + more for have, more in zip(counts, count_trouble(part, self.to), strict=True)]
                part[...] = part.astype(self.dtype).astype(np.float32)
        if any(counts):
            self.trouble[name] = (counts[0], counts[1], counts[2])


def _round_values(scope: Scope, types: Types, elem: int, blocked: Blocked) -> int:
    """Put the rounding behind every float input and output of one graph; returns how many float64 it has.

    What a blocked operator gives is rounded too, but for readers that are blocked as well, and where it is an output
    of the model.
    """
    graph = scope.graph
    nodes: list[Any] = []
    narrow: dict[str, str] = {}
    exact: dict[str, str] = {}
    read_exactly = {name for node, is_blocked in blocked.nodes_of(graph) if is_blocked for name in node.input}
    outputs = {item.name for item in graph.output}
    doubles = 0
    constants = {item.name for item in graph.initializer}
    for item in graph.input if not scope.key else ():
        info = types.of(scope.key, item.name)
        if item.name not in constants and info.kind == "tensor" and info.elem == _FLOAT:
            narrow[item.name] = item.name + _ROUNDED
            nodes += _pair(item.name, narrow[item.name], elem)
    for node in graph.node:
        copy = type(node)()
        copy.CopyFrom(node)
        nodes.append(copy)
        is_blocked = blocked.covers(node)
        for place, name in enumerate(node.output):
            info = types.of(scope.key, name)
            doubles += bool(name) and info.kind == "tensor" and info.elem == _DOUBLE
            if not name or info.kind != "tensor" or info.elem != _FLOAT or constant_tensor(node) is not None:
                continue
            is_output = name in outputs
            if is_blocked and ((name in read_exactly and not is_output) or (is_output and not scope.key)):
                narrow[name] = name + _COPY
                nodes += _pair(name, narrow[name], elem, prefix=_BESIDE)
            elif is_blocked or node.op_type not in _MOVERS:
                copy.output[place] = name + _EXACT
                if is_blocked:
                    exact[name] = name + _EXACT
                nodes += _pair(name + _EXACT, name, elem)
    del graph.node[:]
    graph.node.extend(nodes)
    _rename(graph, narrow, exact, blocked)
    return doubles


def _rename(graph: Any, narrow: Mapping[str, str], exact: Mapping[str, str], blocked: Blocked) -> None:
    """Let every reader read the form that is its own. exact: of values that a blocked operator gave."""
    for node, is_blocked in blocked.nodes_of(graph):
        if node.name.startswith((_BEHIND, _BESIDE)):
            continue
        names = exact if is_blocked else narrow
        for place, name in enumerate(node.input):
            if name in names:
                node.input[place] = names[name]


def _pair(name: str, output: str, elem: int, prefix: str = _BEHIND) -> Iterator[Any]:
    from onnx import helper

    narrow = output + _NARROW
    yield helper.make_node("Cast", [name], [narrow], name=f"{prefix}{output}", to=elem)
    yield helper.make_node("Cast", [narrow], [output], name=f"{prefix}{output}:back", to=_FLOAT)
