"""A run's tensors that a hook may use while the run goes on: it need not stop at each for its partner.

What is lent is kept from being freed, and is given back before an operator writes into any tensor. Memory that a model
has handed out (as a numpy array, by its address) may be written by anybody: from then on nothing is lent any more.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

__all__ = ["HANDS_OUT", "Loans"]

HANDS_OUT = frozenset({"__array__", "__dlpack__", "data_ptr", "numpy", "storage", "untyped_storage"})
"""torch's functions that give away a tensor's memory."""

_ON_DEVICE = 1 << 30
_ON_HOST = 64 << 20
"""Bytes of tensors that may be lent at a time."""


class Loans:
    """For one run. borrow: see protocols.Borrower; None: the hook is called, and nothing is lent."""

    def __init__(self, borrow: Callable[[str, str, Any], Callable[[], None]] | None) -> None:
        self._borrow = borrow
        self._lent: collections.deque[tuple[Callable[[], None], int]] = collections.deque()
        self._bytes = 0

    @property
    def goes_on(self) -> bool:
        """Whether the next tensor may be lent."""
        return self._borrow is not None

    def lend(self, op_type: str, name: str, tensor: Any, shown: Any) -> None:
        """Show a tensor to the hook as ``shown``; returns when its own memory may hold so many more."""
        assert self._borrow is not None
        self._lent.append((self._borrow(op_type, name, shown), tensor.nbytes))
        self._bytes += tensor.nbytes
        most = _ON_HOST if tensor.device.type == "cpu" else _ON_DEVICE
        if self._bytes > most:  # then down to half of it, so that both runs take longer turns
            while self._lent and self._bytes > most // 2:
                self._end_one()

    def end(self) -> None:
        """Everything is given back."""
        if self._lent:
            with torch._C.DisableTorchFunction(), _disable_current_modes():  # what a hook does is no call of the model
                while self._lent:
                    self._end_one()

    def hand_out(self) -> None:
        """Memory is given to somebody who may write into it at any time."""
        self.end()
        self._borrow = None

    def _end_one(self) -> None:
        give_back, size = self._lent.popleft()
        self._bytes -= size
        give_back()
