"""What two files prove of each other, without a run: which constant, attribute or folded norm is not the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from ..reasons import Reason, say
from .constants import Constants
from .graph import iterate_scopes, read_attribute
from .model import Model
from .removed_activations import find_wrongly_removed
from .types import default_of, shortest_float

__all__ = ["PairedGraph", "pair_graphs", "prove_differences"]

Array = np.ndarray[Any, Any]

_ROUNDED = 1e-3
"""Relative difference up to which a constant is the same one, rounded: a file may hold its weights in float16."""

_MOST = 8
_SHOWN = 16
"""Numbers of a constant that a sentence shows."""

_LEFT_OUT = frozenset({
    "alpha", "auto_pad", "beta", "ceil_mode", "count_include_pad", "epsilon", "group", "keepdims", "storage_order",
    "training_mode", "transA", "transB",
})  # fmt: skip
"""Attributes that many a file leaves out: they are what the operator's own standard says of them."""
_OWN_PADDING = frozenset({"MaxPool", "AveragePool", "LpPool"})
"""Their own pads are not numbers: a Pad by 0 that is taken into them gives other results at the border."""
_OTHER_SHAPES = frozenset({"DepthToSpace", "Reshape", "SpaceToDepth", "Squeeze", "Unsqueeze"})
_NOT_COMPARED = frozenset({"momentum", "spatial"})


def prove_differences(first: Model, second: Model, *, most: int = _MOST) -> list[Reason]:
    """Return what is proven to differ between operators that both files have.

    One sentence each, in the first graph's order, branches and bodies too. Both files have an operator that makes the
    same output, or for products with weights one at the same place among those with weights of that shape. most: that
    are told one by one."""
    found = []
    for ours, theirs in pair_graphs(first, second):
        found += [reason for mine, other in ours.pairs(theirs) for reason in _compare_nodes(ours, mine, theirs, other)]
    for name, why in find_wrongly_removed(first, second).items():
        op = next(node.op_type for node in first.proto.graph.node if node.name == name)
        found.append(say("proven_removed", op=op, name=name, why=why))
    if len(found) > most:
        return [*found[:most], say("proven_more", count=len(found) - most)]
    return found


def pair_graphs(first: Model, second: Model) -> Iterator[tuple[PairedGraph, PairedGraph]]:
    """Yield the main graphs, and those that stand at the same operator and attribute of both files."""
    there = dict(_iterate_graphs(second))
    for key, ours in _iterate_graphs(first):
        if key in there:
            yield ours, there[key]


def _iterate_graphs(model: Model) -> Iterator[tuple[Any, PairedGraph]]:
    made: dict[int, PairedGraph] = {}
    for scope in iterate_scopes(model.proto.graph):
        outer = made[id(scope.parent.graph)].constants if scope.parent is not None else None
        made[id(scope.graph)] = PairedGraph(model, scope.graph, outer)
        yield scope.key, made[id(scope.graph)]


class PairedGraph:
    """A graph of a file with its constants, and how its operators stand for those of another file's."""

    def __init__(self, model: Model, graph: Any, outer: Constants | None = None) -> None:
        self.graph, self.nodes = graph, list(graph.node)
        self.opsets = {one.domain if one.domain != "ai.onnx" else "": one.version for one in model.proto.opset_import}
        self.constants = Constants(model, graph, outer)
        self.by_output = {node.output[0]: node for node in self.nodes if node.output}
        self.readers: dict[str, list[Any]] = {}
        for node in self.nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)

    def value(self, node: Any, place: int) -> Array | None:
        """Return a constant that a node reads, also where it is stored in another type and cast there."""
        name = node.input[place] if len(node.input) > place else ""
        maker = self.by_output.get(name)
        name = maker.input[0] if maker is not None and maker.op_type == "Cast" else name
        return self.constants.get(name) if name else None

    def norm_after(self, node: Any, other: PairedGraph | None = None) -> Any:
        """Return the BatchNormalization that alone reads a convolution, or None. other: a graph that no longer has it,
        neither by its name nor by its statistics."""
        readers = self.readers.get(node.output[0], [])
        alone = len(readers) == 1 and readers[0].op_type == "BatchNormalization"
        norm = readers[0] if alone and readers[0].input[0] == node.output[0] else None
        return None if norm is not None and other is not None and other._holds(self, norm) else norm

    def _holds(self, theirs: PairedGraph, norm: Any) -> bool:
        """Return whether another file's BatchNormalization stands here too, wherever that is."""
        variance = theirs.value(norm, 4)
        for node in self.nodes:
            if node.op_type == "BatchNormalization":
                own = self.value(node, 4)
                if node.output[0] == norm.output[0] or (
                    own is not None and variance is not None and np.array_equal(own, variance)
                ):
                    return True
        return False

    def read(self, node: Any, key: str, other: Any) -> Any:
        """Return an attribute as a plain value, also where the node leaves it out and another node says it."""
        if key in ("pads", "strides", "dilations"):
            default: Any = _default_of_length(key, node, other)
        else:
            default = default_of(node, key, self.opsets.get(node.domain, 1)) if key in _LEFT_OUT else None
        return _to_plain_value(read_attribute(node, key, default))

    def is_cut_before(self, node: Any) -> bool:
        """Return whether what a node reads was cut or joined into another shape right before it."""
        maker = self.by_output.get(node.input[0]) if node.input else None
        return maker is not None and maker.op_type in _OTHER_SHAPES

    def pad_before(self, node: Any) -> list[int] | None:
        """Return what a Pad by constants adds to a window's own pads, begins then ends; None where no Pad comes before
        it."""
        pad = self.by_output.get(node.input[0]) if node.input else None
        if pad is None or pad.op_type != "Pad":
            return None
        amounts = read_attribute(pad, "pads") if len(pad.input) < 2 else self.value(pad, 1)
        if amounts is None or read_attribute(pad, "mode", b"constant") not in (b"constant", "constant"):
            return None
        pads = [int(one) for one in amounts]
        half = len(pads) // 2
        return pads[2:half] + pads[half + 2 :] if not any((*pads[:2], *pads[half : half + 2])) else None

    def pairs(self, other: PairedGraph) -> Iterator[tuple[Any, Any]]:
        """Yield nodes of the same operator that stand for one another."""
        weighted = {kind: (self._weighted(kind), other._weighted(kind)) for kind in ("Conv", "ConvTranspose", "Gemm")}
        for node in self.nodes:
            there = other.by_output.get(node.output[0]) if node.output else None
            if node.op_type in weighted:
                ours, theirs = weighted[node.op_type]
                norm = self.norm_after(node, other)
                there = other.by_output.get(norm.output[0]) if norm is not None else there
                if there is None or there.op_type != node.op_type:
                    shapes = [self.constants.shape(one.input[1]) for one in ours]
                    same = shapes == [other.constants.shape(one.input[1]) for one in theirs]
                    there = theirs[_find_place(ours, node)] if same and _find_place(ours, node) is not None else None  # type: ignore[index]
                    if there is not None and self.is_cut_before(node) != other.is_cut_before(there):
                        continue  # holes of a filter may stand in how its input is cut, as TensorFlow writes them
            if there is not None and there.op_type == node.op_type and there.domain == node.domain:
                yield node, there

    def _weighted(self, kind: str) -> list[Any]:
        return [node for node in self.nodes if node.op_type == kind and self.constants.shape(node.input[1]) is not None]


def _find_place(nodes: Sequence[Any], node: Any) -> int | None:
    return next((place for place, one in enumerate(nodes) if one is node), None)


def _compare_nodes(ours: PairedGraph, mine: Any, theirs: PairedGraph, other: Any) -> Iterator[Reason]:
    name = mine.output[0]
    kind = mine.op_type
    if kind == "Constant" and not _differs_in_sight(ours.constants.get(name), theirs.constants.get(name)):
        return
    folded = ours.pad_before(mine), theirs.pad_before(other)
    keys = {item.name for item in (*mine.attribute, *other.attribute)} | ({"pads"} if any(folded) else set())
    if any(folded) and None in folded and kind in _OWN_PADDING:
        yield say("proven_pad_in_pool", op=kind, name=name)
    for key in sorted(keys - _NOT_COMPARED):
        one, two = ours.read(mine, key, other), theirs.read(other, key, mine)
        if key == "pads":
            one, two = _with_pad(ours, mine, one), _with_pad(theirs, other, two)
        unlike = one is not None and two is not None and one != two and not _close(one, two)
        if unlike and not _may_mean_one(key, one, two):
            yield say("proven_attribute", what=key, base=str(one), target=str(two), op=kind, name=name)
    norm = ours.norm_after(mine, theirs) if mine.op_type in ("Conv", "ConvTranspose") else None
    if norm is not None and theirs.norm_after(other) is None:
        yield from _compare_folded_norm(ours, mine, norm, theirs, other)
        return
    for place, input_name in enumerate(mine.input):
        one, two = ours.value(mine, place), theirs.value(other, place)
        if one is None or two is None or one.dtype.kind != two.dtype.kind:
            continue
        if (difference := _measure_distance(one, two)) is not None:
            there = other.input[place]
            read = input_name if there == input_name else say("read_as", name=input_name, other=there)
            yield say("proven_constant", constant=read, off=difference, op=kind, name=name)


def _differs_in_sight(one: Array | None, two: Array | None) -> bool:
    """Return whether two constants are told as they are: others are told by who reads them, by how far they are off."""
    if one is None or two is None or one.shape != two.shape or one.dtype.kind != two.dtype.kind:
        return True
    return one.size <= _SHOWN and _measure_distance(one, two) is not None


def _default_of_length(key: str, *nodes: Any) -> list[int] | None:
    """Return what an attribute that is left out stands for: as long as the other node's."""
    sizes = next((found for node in nodes if (found := read_attribute(node, key)) is not None), ())
    return [0 if key == "pads" else 1] * len(sizes)


def _with_pad(graph: PairedGraph, node: Any, pads: Any) -> Any:
    """Return a window's pads together with those of a Pad before it, which the other file may have taken into the
    window."""
    before = graph.pad_before(node)
    if not before:
        return pads
    return [one + two for one, two in zip(pads or [0] * len(before), before, strict=False)]


def _to_plain_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, (int, float, str)):
        return shortest_float(value) if isinstance(value, float) else value
    if hasattr(value, "data_type"):  # a tensor
        from onnx import numpy_helper

        return np.asarray(numpy_helper.to_array(value)).tolist() if not value.external_data else None
    try:
        items = [item.decode("utf-8", "replace") if isinstance(item, bytes) else item for item in value]
    except TypeError:
        return None
    items = [shortest_float(item) if isinstance(item, float) else item for item in items]
    return items if all(isinstance(item, (int, float, str)) for item in items) else None


def _may_mean_one(key: str, one: Any, two: Any) -> bool:
    """Return whether two axes may be the same one, counted from either end: how many there are is not in the file."""
    if key not in ("axis", "axes"):
        return False
    first, second = (list(value) if isinstance(value, list) else [value] for value in (one, two))
    return len(first) == len(second) and all(a == b or (a < 0) != (b < 0) for a, b in zip(first, second, strict=True))


def _close(one: Any, two: Any) -> bool:
    return isinstance(one, float) and isinstance(two, float) and abs(one - two) <= 1e-6 * max(abs(one), abs(two))


def _measure_distance(one: Array, two: Array) -> float | None:
    """Return the relative L2 difference of two constants; None where they are the same one, or cannot be compared."""
    if one.size != two.size or one.dtype.kind not in "fiu":
        return None
    first, second = one.astype(np.float64).reshape(-1), two.astype(np.float64).reshape(-1)
    finite = np.isfinite(first) & np.isfinite(second)
    size = float(np.linalg.norm(first[finite]))
    error = float(np.linalg.norm(second[finite] - first[finite]))
    if error <= _ROUNDED * size:
        return None
    return error / size if size else float("inf")


def _compare_folded_norm(ours: PairedGraph, conv: Any, norm: Any, theirs: PairedGraph, other: Any) -> Iterator[Reason]:
    """Fold scale, bias, mean and variance by hand, and say which constant of the other file is not what comes out.

    y = (conv(x, w) + b - mean) * scale / sqrt(variance + epsilon) + bias
    """
    scale, bias, mean, variance = (ours.value(norm, place) for place in (1, 2, 3, 4))
    weight, there = ours.value(conv, 1), theirs.value(other, 1)
    if any(one is None for one in (scale, bias, mean, variance, weight, there)):
        return
    assert scale is not None and bias is not None and mean is not None and variance is not None  # noqa: PT018
    assert weight is not None and there is not None  # noqa: PT018
    factor = scale.astype(np.float64) / np.sqrt(
        variance.astype(np.float64) + float(read_attribute(norm, "epsilon", 1e-5))
    )
    own = ours.value(conv, 2)
    before = np.zeros_like(factor) if own is None else own.astype(np.float64)
    axis = 0 if conv.op_type == "Conv" else 1
    if weight.shape[axis] != factor.size:
        return
    shape = [-1 if place == axis else 1 for place in range(weight.ndim)]
    wanted = weight.astype(np.float64) * factor.reshape(shape)
    shift = (before - mean.astype(np.float64)) * factor + bias.astype(np.float64)
    stored = theirs.value(other, 2)
    kind, name, by = conv.op_type, other.output[0], norm.output[0]
    if wanted.shape == there.shape and (off := _measure_distance(wanted, there)) is not None:
        yield say("proven_folded_weight", constant=other.input[1], off=off, op=kind, name=name, norm=by)
    held = np.zeros_like(shift) if stored is None else stored
    if held.size == shift.size and (off := _measure_distance(shift, held)) is not None:
        held_as = other.input[2] if stored is not None else "(none)"
        yield say("proven_folded_bias", constant=held_as, off=off, op=kind, name=name, norm=by)
