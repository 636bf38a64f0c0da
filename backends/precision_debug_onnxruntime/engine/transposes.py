"""How ONNX Runtime's transpose optimiser turned the values that it renamed, told by their shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from precision_debug.onnx.graph import attribute, scopes

from .source_tensors import Known
from .types import Types

__all__ = ["turned"]

_MOST_AXES = 5
"""Axes up to which transpositions are combined: there are 120 of five."""

_Shape = tuple[int | str, ...]


def turned(
    running: Any, types: Types, known: Known, sizes: Callable[[], Mapping[str, _Shape | None]]
) -> dict[str, tuple[int, ...]]:
    """Of each value that is called after a node: how it is transposed against the tensor that the node gives.

    Those that more than one transposition would explain, or none of the model's, are left out. sizes: shapes of the
    source's tensors, asked for only where there is such a value.
    """
    found: dict[str, tuple[int, ...]] = {}
    own = _turns(known.source.producer.values())
    if not own:
        return found
    together = _combined(own | _turns(node for scope in scopes(running) for node in scope.graph.node))
    for scope in scopes(running):
        for node in scope.graph.node:
            for name in node.output:
                tensor = known.named_after(name) if name else ""
                if not tensor:
                    continue
                mine, theirs = types.of(scope.key, name).shape, sizes().get(tensor)
                perms = [perm for perm in together if _fits(mine, theirs, perm)]
                if len(perms) == 1 and perms[0] in own:
                    found[name] = perms[0] if perms[0] != tuple(range(len(perms[0]))) else ()
    return found


def _turns(nodes: Iterable[Any]) -> set[tuple[int, ...]]:
    """The transpositions of a graph and their inverses, and for each rank none."""
    found: set[tuple[int, ...]] = set()
    for perm in {tuple(attribute(node, "perm") or ()) for node in nodes if node.op_type == "Transpose"} - {()}:
        found |= {perm, tuple(perm.index(axis) for axis in range(len(perm))), tuple(range(len(perm)))}
    return found


def _combined(turns: set[tuple[int, ...]]) -> set[tuple[int, ...]]:
    """What these transpositions make one after the other, which moving them past a Squeeze or an Unsqueeze brings."""
    found = set(turns)
    new = {perm for perm in found if len(perm) <= _MOST_AXES}
    while new:
        pairs = ((one, two) for one in new for two in found if len(one) == len(two))
        new = {tuple(one[axis] for axis in two) for one, two in pairs} - found
        found |= new
    return found


def _fits(mine: _Shape | None, theirs: _Shape | None, perm: tuple[int, ...]) -> bool:
    """Whether a transposition may lead from one shape to the other; a size that is not known may be any."""
    if mine is None or theirs is None or not len(mine) == len(theirs) == len(perm):
        return False
    pairs = ((size, theirs[axis]) for size, axis in zip(mine, perm, strict=True))
    return all(one == two for one, two in pairs if isinstance(one, int) and isinstance(two, int))
