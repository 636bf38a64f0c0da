"""Repeated layers of a model: the tensors of every layer that have the place of a given one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from ..records import TensorMeta

__all__ = ["list_repeats"]

_NUMBER = re.compile(r"\d+")

_ROUNDS = 2
"""How far around a tensor two places have to look alike: types of the operators so many edges before and behind."""

_MOST = 512
"""Tensors beyond which a family is not a layer's any more, but an operator that is everywhere."""


def list_repeats(tensors: Sequence[TensorMeta], names: Collection[str]) -> tuple[str, ...]:
    """Return the given tensors and all that look like one of them, in the order of ``tensors``.

    Alike are tensors of one operator type whose surroundings have the same types (two rounds of B. Weisfeiler's and
    A. Leman's refinement, both ways), or whose names differ in their numbers alone.
    """
    wanted = frozenset(names)
    known = [meta for meta in tensors if meta.name in wanted]
    if not known:
        return tuple(names)
    around = _number_surroundings(tensors)
    places = {around[meta.name] for meta in known}
    named = {(_NUMBER.sub("#", meta.name), meta.op_type) for meta in known if _NUMBER.search(meta.name)}
    found = [
        meta.name for meta in tensors
        if meta.name in wanted or around[meta.name] in places or (_NUMBER.sub("#", meta.name), meta.op_type) in named
    ]  # fmt: skip
    return tuple(found) if len(found) <= _MOST else tuple(meta.name for meta in known)


def _number_surroundings(tensors: Sequence[TensorMeta]) -> Mapping[str, int]:
    """Return a number for each tensor; the same for those that look alike."""
    readers: dict[str, list[str]] = defaultdict(list)
    known = {meta.name for meta in tensors}
    for meta in tensors:
        for source in meta.inputs:
            readers[source].append(meta.name)
    seen = {meta.name: hash((meta.op_type, meta.is_output)) for meta in tensors}
    for _ in range(_ROUNDS):
        seen = {
            meta.name: hash((
                seen[meta.name], tuple(sorted(seen[one] for one in meta.inputs if one in known)),
                tuple(sorted(seen[one] for one in readers[meta.name])),
            ))
            for meta in tensors
        }  # fmt: skip
    return seen
