"""How ONNX Runtime's transpose optimiser turned the values that it renamed, told by their shapes."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from precision_debug.onnx.graph import attribute, scopes

from .source_tensors import Known
from .types import Types

__all__ = ["turned"]

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
    together = _combined(own | _turns(node for scope in scopes(running) for node in scope.graph.node))
    for scope in scopes(running):
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
    """The transposition of the model's that leads to a shape; None where there is none, or several that differ.

    Those that move only axes of size 1 otherwise give the same array and are one; a size that both shapes call alike is
    at the same place in both.
    """
    perms = [perm for perm in together if _fits(mine, theirs, perm)]
    if mine is None or theirs is None or not perms:
        return None
    perms = [perm for perm in perms if _alike(mine, theirs, perm)] or perms
    if len({tuple(axis for axis in perm if theirs[axis] != 1) for perm in perms}) > 1:
        return None
    return min((perm for perm in perms if perm in own), default=None)


def _alike(mine: _Shape, theirs: _Shape, perm: tuple[int, ...]) -> bool:
    """Whether each size that has one name in both shapes stays that one."""
    both = {size for size in mine if isinstance(size, str) and not _MADE_UP.match(size)} & set(theirs)
    return all(size not in both or size == theirs[axis] for size, axis in zip(mine, perm, strict=True))


def _turns(nodes: Iterable[Any]) -> set[tuple[int, ...]]:
    """The transpositions of a graph and their inverses, and for each rank none."""
    found: set[tuple[int, ...]] = set()
    for perm in {tuple(attribute(node, "perm") or ()) for node in nodes if node.op_type == "Transpose"} - {()}:
        found |= {perm, tuple(perm.index(axis) for axis in range(len(perm))), tuple(range(len(perm)))}
    return found


def _combined(turns: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """What these transpositions make one after the other, which moving them past a Squeeze or an Unsqueeze brings."""
    found = set(turns)
    new = steps = {perm for perm in found if len(perm) <= _MOST_AXES}
    while new:  # inverses are among them, so that steps lead everywhere
        pairs = ((one, two) for one in new for two in steps if len(one) == len(two))
        new = {tuple(one[axis] for axis in two) for one, two in pairs} - found
        found |= new
    return found


def _fits(mine: _Shape | None, theirs: _Shape | None, perm: tuple[int, ...]) -> bool:
    """Whether a transposition may lead from one shape to the other; a size that is not known may be any."""
    if mine is None or theirs is None or not len(mine) == len(theirs) == len(perm):
        return False
    pairs = ((size, theirs[axis]) for size, axis in zip(mine, perm, strict=True))
    return all(one == two for one, two in pairs if isinstance(one, int) and isinstance(two, int))
