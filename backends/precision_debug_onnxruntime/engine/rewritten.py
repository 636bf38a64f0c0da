"""Find what ONNX Runtime made of the file's tensors: fused, quantised again, transposed."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from precision_debug.onnx.graph import iterate_graphs, iterate_scopes, read_attribute

from ..naming import Holding
from .source_tensors import Known
from .tensor_list import Entry
from .types import Types

__all__ = ["turned", "with_absorbed", "with_quantised_again"]


# Into which operator of the running graph the source's tensors went that it does not have.

def with_absorbed(entries: Sequence[Entry], holdings: Mapping[tuple[Any, str], Holding], known: Known) -> list[Entry]:
    """Return the entries, each with the source tensors that lie between what its operator reads and what it gives."""
    stands: dict[tuple[Any, str], set[str]] = {}
    for (key, name), holding in holdings.items():
        own = {holding.origin or name} & known.source.tensors.keys()
        stands.setdefault((key, holding.root), set()).update(own)
    there = set().union(*stands.values())

    def held(key: Any, name: str) -> set[str]:
        for depth in range(len(key), -1, -1):
            seen = holdings.get((key[:depth], name))
            if seen is not None:
                return stands.get((key[:depth], seen.root), set()) or ({seen.repeats} - {""})
        return set()

    taken: set[str] = set()
    found: list[Entry] = []
    for entry in entries:
        node, key = entry.value.node, entry.value.scope.key
        own_holding = holdings.get(entry.value.key)
        gives = held(key, entry.value.name)
        if node is None or own_holding is None or own_holding.root != entry.value.name or not gives:
            found.append(entry)
            continue
        reads = set().union(*(held(key, name) for name in node.input if name)) - gives
        inside: dict[str, None] = {}
        for tensor in gives:
            inside.update(dict.fromkeys(known.between(reads, tensor) or ()))
        gone = [name for name in inside if name not in there and name not in taken]
        taken.update(gone)
        meta = dataclasses.replace(entry.meta, absorbs=tuple(gone))
        found.append(dataclasses.replace(entry, meta=meta) if gone else entry)
    return found


# Where ONNX Runtime's optimisers put a QuantizeLinear and a DequantizeLinear that the model does not have.
#
# QDQPropagationTransformer quantises what moves a quantised tensor (a Reshape, a Transpose) once more, so that integer
# kernels may take it; where the new pair's type or scale does not fit, values are lost there.

COLUMN = "Inserted by ONNX Runtime"


def with_quantised_again(entries: Sequence[Entry], running: Any, given: Any, types: Types) -> list[Entry]:
    """Return the entries; those that ONNX Runtime quantises though the model does not, with a column that says so.

    running: the graph that it runs. given: the one that it was given, with the quantisers that the mode wrote into it.
    """
    told = _inserted(running, given)
    return [
        dataclasses.replace(entry, meta=dataclasses.replace(
            entry.meta, extra={**entry.meta.extra, COLUMN: _said(entry, told[entry.value.name], types)}
        ))
        if entry.value.name in told else entry
        for entry in entries
    ]  # fmt: skip


def _inserted(running: Any, given: Any) -> Mapping[str, Any]:
    """Return outputs of pairs that were not there, and that stand at no tensor which was quantised, each with the
    pair's QuantizeLinear."""
    had = {name for node in _quantisers(given, "QuantizeLinear") for name in (node.input[0], node.output[0])}
    made = {node.output[0]: node for node in _quantisers(running, "QuantizeLinear")}
    found: dict[str, Any] = {}
    for node in _quantisers(running, "DequantizeLinear"):
        quantiser = made.get(node.input[0])
        if quantiser is None or {node.output[0], quantiser.output[0], quantiser.input[0]} & had:
            continue
        found[node.output[0]] = quantiser
    return found


def _quantisers(graph: Any, kind: str) -> list[Any]:
    return [node for one in iterate_graphs(graph) for node in one.node if node.op_type == kind]


def _said(entry: Entry, quantiser: Any, types: Types) -> str:
    dtype = types.of(entry.value.scope.key, quantiser.output[0]).dtype
    return f"ONNX Runtime quantises this tensor again here ({dtype or 'integers'}, by {quantiser.output[0]})"


# How ONNX Runtime's transpose optimiser turned the values that it renamed, told by their shapes.

_MOST_AXES = 6
"""Axes up to which transpositions are combined: there are 720 of six."""

_MADE_UP = re.compile(r"(dim|unk__)\d+$")
"""Names of sizes that mean nothing: every graph has its own."""

_Shape = tuple[int | str, ...]


def turned(
    running: Any, types: Types, known: Known, sizes: Callable[[], Mapping[str, _Shape | None]]
) -> dict[str, tuple[int, ...] | None]:
    """Of each value that is called after a node: how it is transposed against the tensor that the node gives.

    None where several transpositions would explain it in several ways, or none of the model's does. sizes: shapes of
    the source's tensors, asked for only where there is such a value.
    """
    found: dict[str, tuple[int, ...] | None] = {}
    own = _turns(known.source.producer.values())
    if not own:
        return found
    together = _combined(own | _turns(node for scope in iterate_scopes(running) for node in scope.graph.node))
    for scope in iterate_scopes(running):
        for node in scope.graph.node:
            for name in node.output:
                tensor = (known.named_after(name) or known.copied(name)) if name else ""
                if not tensor:
                    continue
                mine, theirs = types.of(scope.key, name).shape, sizes().get(tensor)
                perm = _only(mine, theirs, own, together)
                found[name] = () if perm is not None and perm == tuple(range(len(perm))) else perm
    return found


def _only(
    mine: _Shape | None, theirs: _Shape | None, own: set[tuple[int, ...]], together: set[tuple[int, ...]]
) -> tuple[int, ...] | None:
    """Return the transposition of the model's that leads to a shape; None where there is none, or several that differ.

    Those that move only axes of size 1 otherwise give the same array and are one; a size that both shapes call alike is
    at the same place in both. So is a size that both know as a number: what lets one of the graphs tell an axis (the
    channels of a weight) lets the other one, too.
    """
    perms = [perm for perm in together if _fits(mine, theirs, perm)]
    if mine is None or theirs is None or not perms:
        return None
    perms = [perm for perm in perms if _alike(mine, theirs, perm)] or perms
    perms = [perm for perm in perms if _known_alike(mine, theirs, perm)] or perms
    if len({tuple(axis for axis in perm if theirs[axis] != 1) for perm in perms}) > 1:
        return None
    return min((perm for perm in perms if perm in own), default=None)


def _alike(mine: _Shape, theirs: _Shape, perm: tuple[int, ...]) -> bool:
    """Return whether each size that has one name in both shapes stays that one."""
    both = {size for size in mine if isinstance(size, str) and not _MADE_UP.match(size)} & set(theirs)
    return all(size not in both or size == theirs[axis] for size, axis in zip(mine, perm, strict=True))


def _known_alike(mine: _Shape, theirs: _Shape, perm: tuple[int, ...]) -> bool:
    """Return whether the same axes of both shapes are numbers, one at least."""
    pairs = [(isinstance(size, int), isinstance(theirs[axis], int)) for size, axis in zip(mine, perm, strict=True)]
    return any(one for one, _ in pairs) and all(one == two for one, two in pairs)


def _turns(nodes: Iterable[Any]) -> set[tuple[int, ...]]:
    """Return the transpositions of a graph and their inverses, and for each rank none."""
    found: set[tuple[int, ...]] = set()
    for perm in {tuple(read_attribute(node, "perm") or ()) for node in nodes if node.op_type == "Transpose"} - {()}:
        found |= {perm, tuple(perm.index(axis) for axis in range(len(perm))), tuple(range(len(perm)))}
    return found


def _combined(turns: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """Return what these transpositions make one after the other, which moving them past a Squeeze or an Unsqueeze
    brings."""
    found = set(turns)
    new = steps = {perm for perm in found if len(perm) <= _MOST_AXES}
    while new:  # inverses are among them, so that steps lead everywhere
        pairs = ((one, two) for one in new for two in steps if len(one) == len(two))
        new = {tuple(one[axis] for axis in two) for one, two in pairs} - found
        found |= new
    return found


def _fits(mine: _Shape | None, theirs: _Shape | None, perm: tuple[int, ...]) -> bool:
    """Return whether a transposition may lead from one shape to the other; a size that is not known may be any."""
    if mine is None or theirs is None or not len(mine) == len(theirs) == len(perm):
        return False
    pairs = ((size, theirs[axis]) for size, axis in zip(mine, perm, strict=True))
    return all(one == two for one, two in pairs if isinstance(one, int) and isinstance(two, int))
