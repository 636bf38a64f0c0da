"""Comparison of two whole model files: what differs, what has no counterpart, and how much was looked at."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from ...onnx.constants import Constants
from ...onnx.graph import iterate_scopes
from ...onnx.model import Model
from ...onnx.provable_apart import PairedGraph, pair_graphs, prove_differences
from ...reasons import Reason, list_some, say

__all__ = ["Looked", "compare_files", "count_looked_at"]

_THROUGH = frozenset({"QuantizeLinear", "DequantizeLinear", "Cast", "Identity", "Dropout", "Transpose", "Reshape"})
"""Behind these a value is looked for that has another name in the other file."""

_ADDED = frozenset({"QuantizeLinear", "DequantizeLinear", "Cast", "Identity", "Dropout", "Constant"})
"""What a converter adds or takes away and what changes no more than the precision."""

_COMMUTE = frozenset({"Add", "Mul", "Max", "Min", "Sum", "Mean", "And", "Or", "Xor", "Equal"})
_MOST = 1 << 20


@dataclass(frozen=True, kw_only=True)
class Looked:
    """What of a file, or of two, was looked at. unread: constants that are too large, or of no type of numbers."""

    constants: int
    unread: tuple[str, ...]
    operators: int
    graphs: int


def count_looked_at(model: Model) -> Looked:
    """Count what ``provable`` looks at."""
    constants, operators, graphs = 0, 0, 0
    unread: list[str] = []
    made: dict[int, Constants] = {}
    for scope in iterate_scopes(model.proto.graph):
        outer = made[id(scope.parent.graph)] if scope.parent is not None else None
        own = made[id(scope.graph)] = Constants(model, scope.graph, outer)
        missing = [name for name in own if own.get(name) is None]
        unread += missing
        constants += len(own) - len(missing)
        operators += len(scope.graph.node)
        graphs += 1
    return Looked(constants=constants, unread=tuple(unread), operators=operators, graphs=graphs)


def compare_files(first: Model, second: Model) -> list[Reason]:
    """Return every difference between two model files that is proven without a run.

    Also what of either file has no counterpart in the other, so that nothing is proven of it. The second is thought to
    come from the first; where only the other order fits, that is said."""
    found = _find_differences(first, second)
    if found and not _find_differences(second, first):
        return [say("proven_other_order"), *found]
    return found


def _find_differences(first: Model, second: Model) -> list[Reason]:
    found = [*prove_differences(first, second, most=_MOST)]
    pairs = list(pair_graphs(first, second))
    there = {id(other.graph) for _, other in pairs}
    for ours, theirs in pairs:
        found += _compare_graphs(ours, theirs)
    inner = [scope for scope in iterate_scopes(second.proto.graph) if id(scope.graph) not in there]
    here = {id(mine.graph) for mine, _ in pairs}
    inner += [scope for scope in iterate_scopes(first.proto.graph) if id(scope.graph) not in here]
    if inner:
        found.append(say("unproven_graphs", count=len(inner), names=list_some([scope.path for scope in inner])))
    return found


def _compare_graphs(ours: PairedGraph, theirs: PairedGraph) -> Iterator[Reason]:
    yield from _ends(ours.graph, theirs.graph)
    paired = [*ours.pairs(theirs)]
    mine, others = {id(one) for one, _ in paired}, {id(one) for _, one in paired}
    for one, _ in paired:
        norm = ours.norm_after(one) if one.op_type in ("Conv", "ConvTranspose") else None
        if norm is not None and theirs.by_output.get(norm.output[0]) is not None:
            mine.add(id(norm))
    for node in ours.nodes:
        there = theirs.by_output.get(node.output[0]) if node.output else None
        if there is None or id(node) in mine or id(there) in others:
            continue
        if (node.domain, node.op_type) != (there.domain, there.op_type):
            yield say("proven_kind", name=node.output[0], base=node.op_type, target=there.op_type)
        mine.add(id(node))
        others.add(id(there))
    for one, other in paired:
        yield from _compare_inputs(ours, one, theirs, other)
    if alone := _list_unpaired(ours, mine):
        yield say("unproven_first", count=len(alone), names=list_some(alone))
    if alone := _list_unpaired(theirs, others):
        yield say("unproven_second", count=len(alone), names=list_some(alone))


def _list_unpaired(graph: PairedGraph, known: Collection[int]) -> list[str]:
    """Return the name the nodes without a counterpart that compute something."""
    alone = [one for one in graph.nodes if id(one) not in known and not _is_harmless(graph, one)]
    return [f"{one.op_type} {next(filter(None, one.output), one.name)}" for one in alone]


def _is_harmless(graph: PairedGraph, node: Any) -> bool:
    """Return what adds nothing to the values of its inputs, or makes a constant of constants."""
    if node.op_type in _ADDED:
        return True
    given = [name for name in node.input if name]
    return bool(given) and all(_find_origin(graph, name)[1] for name in given)


def _ends(one: Any, other: Any) -> Iterator[Reason]:
    for what, ours, theirs in (("output", one.output, other.output), ("input", _list_fed(one), _list_fed(other))):
        names = [item.name for item in ours], [item.name for item in theirs]
        if names[0] != names[1]:
            yield say("proven_ends", what=what, base=list_some(names[0]), target=list_some(names[1]))
            continue
        for mine, there in zip(ours, theirs, strict=True):
            shapes = [_shape_of(item) for item in (mine, there)]
            if shapes[0] is not None and shapes[1] is not None and shapes[0] != shapes[1]:
                yield say("proven_attribute", what="shape", base=str(shapes[0]), target=str(shapes[1]), op=what,
                          name=mine.name)  # fmt: skip


def _list_fed(graph: Any) -> list[Any]:
    held = {tensor.name for tensor in graph.initializer}
    return [item for item in graph.input if item.name not in held]


def _shape_of(item: Any) -> list[int] | None:
    shape = item.type.tensor_type
    if not shape.HasField("shape") or any(not dim.HasField("dim_value") for dim in shape.shape.dim):
        return None
    return [dim.dim_value for dim in shape.shape.dim]


def _compare_inputs(ours: PairedGraph, mine: Any, theirs: PairedGraph, other: Any) -> Iterator[Reason]:
    """Yield values that two operators read, in their order."""
    one, two = _read(ours, mine), _read(theirs, other)
    if mine.op_type in _COMMUTE:
        one, two = _sort_reads(one), _sort_reads(two)
    length = max(len(one), len(two))
    for place in range(length):
        first, second = (part[place] if place < len(part) else ("", False) for part in (one, two))
        if first == second or (not first[0] and mine.op_type in ("Conv", "ConvTranspose", "Gemm") and second[1]):
            continue  # a folded norm gives a product a bias
        known = first[1] != second[1] or (first[0] in _list_names(theirs) and second[0] in _list_names(ours))
        if (not first[1] and known) or first[1] != second[1]:
            yield say(
                "proven_reads", op=mine.op_type, name=mine.output[0], base=first[0] or "(none)",
                target=second[0] or "(none)",
            )  # fmt: skip
            return


def _sort_reads(read: Sequence[tuple[str, bool]]) -> list[tuple[str, bool]]:
    return sorted(read, key=lambda one: (one[1], one[0]))


def _list_names(graph: PairedGraph) -> set[str]:
    return {*graph.by_output, *(item.name for item in graph.graph.input)}


def _read(graph: PairedGraph, node: Any) -> list[tuple[str, bool]]:
    """Return each input: where its value comes from, and whether it is a constant, whose name does not count."""
    found = [_find_origin(graph, name) if name else ("", False) for name in node.input]
    while found and not found[-1][0]:
        found.pop()
    return [("", True) if constant else (name, False) for name, constant in found]


def _find_origin(graph: PairedGraph, name: str) -> tuple[str, bool]:
    """Return the value that a name stands for, and whether it is a constant."""
    for _ in range(len(graph.nodes) + 1):
        maker = graph.by_output.get(name)
        if maker is None or maker.op_type not in _THROUGH or not maker.input:
            break
        if maker.op_type in ("Transpose", "Reshape") and graph.constants.shape(maker.input[0]) is None:
            break
        name = maker.input[0]
    return name, graph.constants.shape(name) is not None
