"""How ONNX Runtime's transpose optimiser turned the values that it renamed, told by their shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from precision_debug.onnx.graph import attribute, scopes

from .source_tensors import Known
from .types import Types

__all__ = ["turned"]

_Shape = tuple[int | str, ...]


def turned(
    running: Any, types: Types, known: Known, sizes: Callable[[], Mapping[str, _Shape | None]]
) -> dict[str, tuple[int, ...]]:
    """Of each value that is called after a node: how it is transposed against the tensor that the node gives.

    Those that more than one transposition of the model would explain, or none, are left out. sizes: shapes of the
    source's tensors, asked for only where there is such a value.
    """
    found: dict[str, tuple[int, ...]] = {}
    turns: set[tuple[int, ...]] | None = None
    for scope in scopes(running):
        for node in scope.graph.node:
            for name in node.output:
                tensor = known.named_after(name) if name else ""
                if not tensor:
                    continue
                turns = _turns(known) if turns is None else turns
                mine, theirs = types.of(scope.key, name).shape, sizes().get(tensor)
                perms = [perm for perm in turns if _fits(mine, theirs, perm)]
                if len(perms) == 1:
                    found[name] = perms[0] if perms[0] != tuple(range(len(perms[0]))) else ()
    return found


def _turns(known: Known) -> set[tuple[int, ...]]:
    """The transpositions of the model and their inverses, and for each rank none."""
    found: set[tuple[int, ...]] = set()
    for node in {id(node): node for node in known.source.producer.values()}.values():
        if node.op_type == "Transpose" and (perm := attribute(node, "perm")):
            found.add(tuple(perm))
            found.add(tuple(list(perm).index(axis) for axis in range(len(perm))))
            found.add(tuple(range(len(perm))))
    return found


def _fits(mine: _Shape | None, theirs: _Shape | None, perm: tuple[int, ...]) -> bool:
    """Whether a transposition may lead from one shape to the other; a size that is not known may be any."""
    if mine is None or theirs is None or not len(mine) == len(theirs) == len(perm):
        return False
    pairs = ((size, theirs[axis]) for size, axis in zip(mine, perm, strict=True))
    return all(one == two for one, two in pairs if isinstance(one, int) and isinstance(two, int))
