"""Tensors inside nested values (tuples, dicts, dataclasses, caches), with names, and the way back."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["leaves", "replaced"]


def leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """(name, tensor) of every tensor in a nested value, in order: ``name``, ``name[0]``, ``name.key``.

    Walks what torch's pytree knows (containers, transformers' outputs and caches) and plain dataclasses.
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
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            for field in dataclasses.fields(leaf):
                yield from leaves(getattr(leaf, field.name, None), f"{full}.{field.name}")


def replaced(value: Any, name: str, change: Callable[[str, Any], Any]) -> Any:
    """The same structure with each tensor exchanged for ``change(its name, it)``; other leaves stay."""
    import torch
    from torch.utils import _pytree as pytree

    if isinstance(value, torch.Tensor):
        return change(name, value)
    found, structure = pytree.tree_flatten_with_path(value)
    new = [
        change(name + "".join(_step(key) for key in path), leaf) if isinstance(leaf, torch.Tensor) else leaf
        for path, leaf in found
    ]
    return pytree.tree_unflatten(new, structure)


def _step(key: Any) -> str:
    if hasattr(key, "idx"):
        return f"[{key.idx}]"
    return f".{getattr(key, 'key', getattr(key, 'name', key))}"
