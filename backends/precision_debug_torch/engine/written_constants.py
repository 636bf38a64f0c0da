"""Parameters that a forward writes into (an optimiser's step): put aside before, and put back when the run has ended.

A run's twin shares the memory of its parameters with the model and so with every other run of the process.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

from .storage import start_of

__all__ = ["WrittenConstants", "put_back", "targets"]


class WrittenConstants:
    """For one run. constants: (name, tensor) of what it shares with others. refuse: called with a name before it is
    written into, and raises; None: what is written is put aside. ``written``: names of what it wrote into, in order."""

    def __init__(self, constants: Iterable[tuple[str, Any]], refuse: Callable[[str], None] | None = None) -> None:
        self._refuse = refuse
        self._at: dict[int, list[tuple[str, Any, int]]] = {}  # start of memory to whose it is, and its version then
        for name, tensor in constants:
            start = start_of(tensor)
            if start:
                self._at.setdefault(start, []).append((name, tensor, tensor._version))
        self._aside: list[tuple[Any, Any]] = []
        self._there: set[int] = set()
        self.written: dict[str, None] = {}

    def before(self, func: Any, args: Any, kwargs: Any) -> None:
        """An operator is about to run that writes."""
        for tensor in targets(func, args, kwargs):
            start = start_of(tensor)
            if start is None or start in self._there or start not in self._at:
                continue
            if self._refuse is not None:
                self._refuse(self._at[start][0][0])
            self._there.add(start)
            with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
                for name, constant, _ in self._at[start]:
                    held = constant.data
                    self.written[name] = None
                    self._aside.append((held, held.clone()))

    def restore(self) -> None:
        """The run has ended."""
        with torch._C.DisableTorchFunction(), _disable_current_modes(), torch.no_grad():
            for held, before in reversed(self._aside):
                held.copy_(before)
        self._aside.clear()

    def unseen(self) -> str:
        """A constant that was written without an operator that was seen; "" where there is none."""
        there = (one for start, found in self._at.items() if start not in self._there for one in found)
        return next((name for name, tensor, version in there if tensor._version != version), "")


@contextlib.contextmanager
def put_back(module: Any, original: Any, names: Collection[str]) -> Iterator[None]:
    """Around a run whose operators nobody sees: the parameters of these names, whose memory ``module`` shares with
    ``original``, and every gradient of ``module`` are afterwards what they were before."""
    with torch.no_grad():
        held = [one.data for name, one in original.named_parameters() if name in names]
        before = [one.clone() for one in held]
        grads = [(one, None if one.grad is None else one.grad.clone()) for one in module.parameters()]
    try:
        yield
    finally:
        with torch.no_grad():
            for one, values in zip(held, before, strict=True):
                one.copy_(values)
            for one, grad in grads:
                one.grad = grad


@functools.lru_cache(maxsize=1024)
def _written_arguments(func: Any) -> tuple[tuple[int, str], ...]:
    schema = getattr(func, "_schema", None)
    return () if schema is None else tuple(
        (place, argument.name) for place, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    )  # fmt: skip


def targets(func: Any, args: Any, kwargs: Any) -> list[Any]:
    """The tensors that an ATen operator writes into."""
    found: list[Any] = []
    for place, name in _written_arguments(func):
        value = args[place] if place < len(args) else kwargs.get(name)
        found += value if isinstance(value, (list, tuple)) else [value]
    return [value for value in found if isinstance(value, torch.Tensor)]
