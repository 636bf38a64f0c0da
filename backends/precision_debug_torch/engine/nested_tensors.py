"""Tensors inside nested values (tuples, dicts, dataclasses, caches), with names, and the way back."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from precision_debug.feeds.training_step import StepOutputs

__all__ = ["iterate_leaves", "replace_tensors"]

_DEEP = 4
"""Objects inside objects that are looked into: a cache holds layers, which hold tensors."""


def iterate_leaves(value: Any, name: str, *, deep: int = _DEEP) -> Iterator[tuple[str, Any]]:
    """(name, tensor) of every tensor in a nested value, in order: ``name``, ``name[0]``, ``name.key``.

    Walks what torch's pytree knows (containers, transformers' outputs) and the attributes of other plain objects
    (dataclasses, caches).
    """
    import torch

    if isinstance(value, torch.Tensor):
        yield name, value
        return
    if isinstance(value, StepOutputs):
        yield from value.items()
        return
    for full, leaf in _flatten(value, name)[0]:
        if isinstance(leaf, torch.Tensor):
            yield full, leaf
        elif deep:
            for key, item in _attributes(leaf).items():
                yield from iterate_leaves(item, f"{full}.{key}", deep=deep - 1)


def replace_tensors(value: Any, name: str, change: Callable[[str, Any], Any], *, deep: int = _DEEP) -> Any:
    """Return the same structure with each tensor exchanged for ``change(its name, it)``; objects are copied, never
    written."""
    import torch
    from torch.utils import _pytree as pytree

    if isinstance(value, torch.Tensor):
        return change(name, value)
    found, structure = _flatten(value, name)
    new = []
    for full, leaf in found:
        members = _attributes(leaf) if deep else {}
        if isinstance(leaf, torch.Tensor):
            new.append(change(full, leaf))
        elif members:
            fresh = copy.copy(leaf)
            for key, item in members.items():
                object.__setattr__(fresh, key, replace_tensors(item, f"{full}.{key}", change, deep=deep - 1))
            new.append(fresh)
        else:
            new.append(leaf)
    return pytree.tree_unflatten(new, structure)


def _flatten(value: Any, name: str) -> tuple[list[tuple[str, Any]], Any]:
    """Return what pytree knows of a value: (name, leaf) of each leaf, and the structure."""
    from torch.utils import _pytree as pytree

    try:
        found, structure = pytree.tree_flatten_with_path(value)
        return [(name + "".join(_step(key) for key in path), leaf) for path, leaf in found], structure
    except ValueError:  # a class somewhere inside was registered without names for its parts (transformers' outputs)
        plain, structure = pytree.tree_flatten(value)
        return [*zip(_names(structure, name), plain, strict=True)], structure


def _names(structure: Any, name: str) -> Iterator[str]:
    """Of the leaves of pytree's structure, in order: by keys where a part has them, and by numbers."""
    if structure.is_leaf():
        yield name
        return
    context = structure.context
    if isinstance(context, (list, tuple)) and context and isinstance(context[-1], (list, tuple)):
        context = context[-1]  # (class, keys)
    keys = [*context] if isinstance(context, (list, tuple)) else []
    children = structure.children() if hasattr(structure, "children") else structure.children_specs
    known = len(keys) == len(children) and all(isinstance(key, (str, int)) for key in keys)
    for place, child in enumerate(children):
        yield from _names(child, f"{name}.{keys[place]}" if known else f"{name}[{place}]")


def _attributes(leaf: Any) -> Mapping[str, Any]:
    """Return what a plain object holds; nothing of modules, types, functions, and objects without attributes."""
    import torch

    if isinstance(leaf, (torch.nn.Module, type)) or callable(leaf):
        return {}
    return dict(getattr(leaf, "__dict__", {}))


def _step(key: Any) -> str:
    if hasattr(key, "idx"):
        return f"[{key.idx}]"
    return f".{getattr(key, 'key', getattr(key, 'name', key))}"
