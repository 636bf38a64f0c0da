"""Tensors inside nested values (tuples, dicts, dataclasses, caches), with names, and the way back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["leaves", "replaced"]

_DEEP = 4
"""Objects inside objects that are looked into: a cache holds layers, which hold tensors."""


def leaves(value: Any, name: str, *, deep: int = _DEEP) -> Iterator[tuple[str, Any]]:
    """(name, tensor) of every tensor in a nested value, in order: ``name``, ``name[0]``, ``name.key``.

    Walks what torch's pytree knows (containers, transformers' outputs) and the attributes of other plain objects
    (dataclasses, caches).
    """
    import torch
    from torch.utils import _pytree as pytree

    if isinstance(value, torch.Tensor):
        yield name, value
        return
    for path, leaf in pytree.tree_flatten_with_path(value)[0]:
        full = name + "".join(_step(key) for key in path)
        if isinstance(leaf, torch.Tensor):
            yield full, leaf
        elif deep:
            for key, item in _attributes(leaf).items():
                yield from leaves(item, f"{full}.{key}", deep=deep - 1)


def replaced(value: Any, name: str, change: Callable[[str, Any], Any], *, deep: int = _DEEP) -> Any:
    """The same structure with each tensor exchanged for ``change(its name, it)``; objects are copied, never written."""
    import torch
    from torch.utils import _pytree as pytree

    if isinstance(value, torch.Tensor):
        return change(name, value)
    found, structure = pytree.tree_flatten_with_path(value)
    new = []
    for path, leaf in found:
        full = name + "".join(_step(key) for key in path)
        members = _attributes(leaf) if deep else {}
        if isinstance(leaf, torch.Tensor):
            new.append(change(full, leaf))
        elif members:
            fresh = copy.copy(leaf)
            for key, item in members.items():
                object.__setattr__(fresh, key, replaced(item, f"{full}.{key}", change, deep=deep - 1))
            new.append(fresh)
        else:
            new.append(leaf)
    return pytree.tree_unflatten(new, structure)


def _attributes(leaf: Any) -> Mapping[str, Any]:
    """What a plain object holds; nothing of modules, types, functions, and objects without attributes."""
    import torch

    if isinstance(leaf, (torch.nn.Module, type)) or callable(leaf):
        return {}
    return dict(getattr(leaf, "__dict__", {}))


def _step(key: Any) -> str:
    if hasattr(key, "idx"):
        return f"[{key.idx}]"
    return f".{getattr(key, 'key', getattr(key, 'name', key))}"
