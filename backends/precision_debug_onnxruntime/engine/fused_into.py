"""Into which operator of the running graph the source's tensors went that it does not have."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ..naming import Holding
from .source_tensors import Known
from .tensor_list import Entry

__all__ = ["with_absorbed"]


def with_absorbed(entries: Sequence[Entry], holdings: Mapping[tuple[Any, str], Holding], known: Known) -> list[Entry]:
    """The entries, each with the source tensors that lie between what its operator reads and what it gives."""
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
