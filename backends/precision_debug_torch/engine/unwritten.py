"""Memory that a model asked for and that nothing was written into yet: what it holds is nobody's result."""

from __future__ import annotations

from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _disable_current_modes

from .call_values import list_targets

__all__ = ["Unwritten"]

_COPIES = frozenset({"aten.clone", "aten._to_copy"})
_INDEXED = frozenset({"aten.index_put", "aten.index_copy", "aten.index_fill", "aten.scatter", "aten.masked_fill"})
"""Operators that write some elements of a tensor alone, by positions that come second and later."""


class _Memory:
    """left: True for each element of a storage that was not written yet. size: bytes of an element."""

    def __init__(self, storage: Any, left: Any, size: int) -> None:
        self.held, self.left, self.size = StorageWeakRef(storage), left, size


class Unwritten:
    """For one run; told of every operator in turn. An element of a strided tensor takes one byte while it is
    unwritten."""

    def __init__(self) -> None:
        # a storage's address is not given to another one while a weak reference is held
        self._known: dict[int, _Memory] = {}

    def clear(self) -> None:
        """Everything counts as written."""
        self._known.clear()

    def holds(self, tensor: Any) -> bool:
        """Return whether some element of a tensor was not written yet."""
        if not self._known or tensor.numel() == 0:
            return False
        left = self._left(tensor)
        with torch._C.DisableTorchFunction(), _disable_current_modes():
            return left is not None and bool(left.any())

    def follow(
        self, func: Any, kind: str, args: Any, kwargs: Any, result: Any, *, made: bool, writes: bool
    ) -> None:  # fmt: skip
        """An operator ran. kind: ``aten.name``. made: its result is new, unwritten memory."""
        if not (made or self._known):
            return
        with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
            if made:
                self._forget()
                self._put(result, None)
            elif writes:
                self._written(func, kind, args, kwargs)
            elif kind in _COPIES and (left := self._left(args[0])) is not None and bool(left.any()):
                self._put(result, left)

    def _written(self, func: Any, kind: str, args: Any, kwargs: Any) -> None:
        into = list_targets(func, args, kwargs) if hasattr(func, "_schema") else [
            one for one in pytree.tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor)
        ]  # fmt: skip
        plain = kind.rstrip("_")
        if plain == "aten.copy" and (source := self._left(args[1])) is not None and bool(source.any()):
            if self._left(args[0]) is None:
                self._put(args[0], torch.zeros((), dtype=torch.bool, device=args[0].device))
            there = self._left(args[0])
            if there is not None and there.shape == args[0].shape:
                there.copy_(source)
            return
        for tensor in into:
            left = self._left(tensor)
            if left is None:
                continue
            if plain in _INDEXED and left.shape == tensor.shape:
                _index(plain, left, args)
            else:
                left.fill_(False)
            memory = self._known.get(_address(tensor))
            if memory is not None and not bool(memory.left.any()):
                del self._known[_address(tensor)]

    def _left(self, tensor: Any) -> Any:
        """Return which elements of a tensor are unwritten, in its shape (flat, of all its memory, where that is seen as
        another type now); None where nothing is."""
        memory = self._known.get(_address(tensor))
        if memory is None or memory.held.expired():  # type: ignore[no-untyped-call]
            return None
        if tensor.element_size() != memory.size:
            return memory.left
        return memory.left.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def _put(self, tensor: Any, left: Any) -> None:
        """left: which elements are unwritten; None: all."""
        if not isinstance(tensor, torch.Tensor) or not (address := _address(tensor)):
            return
        storage, size = tensor.untyped_storage(), tensor.element_size()
        flat = torch.full((storage.nbytes() // size,), left is None, dtype=torch.bool, device=tensor.device)
        if left is not None:
            flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(left)
        self._known[address] = _Memory(storage, flat, size)

    def _forget(self) -> None:
        """What was freed."""
        for address in [key for key, memory in self._known.items()
                        if memory.held.expired()]:  # type: ignore[no-untyped-call]  # fmt: skip
            del self._known[address]


def _index(kind: str, left: Any, args: Any) -> None:
    if kind == "aten.index_put":
        left.index_put_(tuple(args[1]), torch.zeros((), dtype=torch.bool, device=left.device))
    elif kind == "aten.masked_fill":
        left.masked_fill_(args[1], False)
    elif kind == "aten.scatter":
        left.scatter_(args[1], args[2], False)
    else:
        left.index_fill_(args[1], args[2], False)


def _address(tensor: Any) -> int:
    """Of a strided tensor's storage; 0 of any other."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return 0
    try:
        return int(tensor.untyped_storage()._cdata)
    except RuntimeError:
        return 0
