"""Writes a model's functions out, unless that would fill the memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from precision_debug.errors import ModelError
from precision_debug.reasons import say

__all__ = ["MOST", "inline_functions"]

MOST = 5_000_000
"""Nodes that a model may have when its functions are written out; a file of a few lines can ask for any number."""

Key = tuple[str, str, str]


def inline_functions(proto: Any, path: str) -> Any:
    """Return the model with its functions written out, so that every mode calls what is inside them the same.

    Raises ModelError, also where a function calls itself.
    """
    from onnx import inliner

    _refuse_bomb(proto, path)
    try:
        return inliner.inline_local_functions(proto)
    except Exception as error:
        raise ModelError(f"its functions cannot be inlined: {error}", where=path) from error


def _refuse_bomb(proto: Any, path: str) -> None:
    """Raise ModelError where more nodes would come out than anything can hold."""
    functions = {_key_of(one): one for one in proto.functions}
    sizes: dict[Key, int] = {}
    waiting = list(functions)
    under_way: set[Key] = set()
    while waiting:  # callees first; without recursion, as a chain may be long
        key = waiting[-1]
        called = [one for node in _iterate_nodes(functions[key].node) if (one := _key_of(node)) in functions]
        left = [one for one in called if one not in sizes]
        if key in sizes or not left:
            waiting.pop()
            sizes.setdefault(key, len(functions[key].node) + sum(sizes[one] for one in called))
        elif key in under_way:
            return  # they call each other, which the inliner refuses
        else:
            under_way.add(key)
            waiting += left
    total = sum(1 + sizes.get(_key_of(node), 0) for node in _iterate_nodes(proto.graph.node))
    if total > MOST:
        raise ModelError(say("too_many_nodes", count=total), where=path, hint=say("export_again"))


def _key_of(item: Any) -> Key:
    """Domain, name and overload of a function, or of the one that a node calls."""
    return item.domain, getattr(item, "op_type", "") or getattr(item, "name", ""), item.overload


def _iterate_nodes(nodes: Any) -> Iterator[Any]:
    for node in nodes:
        yield node
        for item in node.attribute:
            for graph in (*([item.g] if item.HasField("g") else ()), *item.graphs):
                yield from _iterate_nodes(graph.node)
