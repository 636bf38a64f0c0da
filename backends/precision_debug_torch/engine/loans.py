"""A run's tensors that a hook may use while the run goes on: it need not stop at each for its partner.

What is lent is kept from being freed, and is given back before an operator writes into any tensor. Memory that a model
has handed out (as a numpy array, by its address) may be written by anybody: from then on nothing is lent any more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from precision_debug.observe import store

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
        self.lent = store.Loans()

    @property
    def goes_on(self) -> bool:
        """Whether the next tensor may be lent."""
        return self._borrow is not None

    def lend(self, op_type: str, name: str, tensor: Any, shown: Any) -> None:
        """Show a tensor to the hook as ``shown``; returns when its own memory may hold so many more."""
        assert self._borrow is not None
        most = _ON_HOST if tensor.device.type == "cpu" else _ON_DEVICE
        self.lent.add(self._borrow(op_type, name, shown), tensor.nbytes, most)

    def end(self) -> None:
        """Everything is given back."""
        if self.lent:
            with (
                torch._C.DisableTorchFunction(),
                _disable_current_modes(),
            ):  # what a hook does is not a call of the model
                self.lent.end()

    def hand_out(self) -> None:
        """Memory is given to somebody who may write into it at any time."""
        self.end()
        self._borrow = None
