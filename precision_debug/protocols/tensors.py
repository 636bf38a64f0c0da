"""Tensors as they pass by: what a hook is shown, what compares them, and where a baseline's wait for their partners."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

from ..records import Comparison, TensorStats, Tolerance

__all__ = ["BaselineStore", "Borrower", "Comparer", "Feeds", "Hook", "Tensor"]

Tensor = Any
"""Anything with ``__array__`` or ``__dlpack__``. A backend decodes bfloat16 that arrives as raw bits itself."""

Feeds = Mapping[str, Any]
"""Input name to numpy array."""


class Hook(Protocol):
    """Paddle's own signature. The tensor lives only during the call: copy or compare inside.

    One that does so may say it with an attribute ``borrows``, True: some backends then lend the engine's own memory
    in place of a copy.
    """

    def __call__(self, op_type: str, tensor_name: str, tensor: Tensor, /) -> None: ...


@runtime_checkable
class Borrower(Hook, Protocol):
    """A hook that can use a tensor while the run goes on; a session that cannot lend so long calls it as any hook."""

    def borrow(self, op_type: str, tensor_name: str, tensor: Tensor, /) -> Callable[[], None]:
        """In place of a call: the tensor stays as it is until what this returns was called, and has returned.

        The session calls that from the thread of the run, in the order in which it lent.
        """


class Comparer(Protocol):
    """Numbers of tensors where they are. Results are given to ``then``, at once or later, in the order of the calls.

    One that says ``keeps_pairs = True`` promises that a pair still holds what was compared when ``then`` is called, so
    that it can be drawn or saved; of any other one no tensor is looked at again.
    Both runs' threads call it. ``then`` is called by the thread that asked, or where results come later by either of
    them, never by two at a time.
    """

    def take(self, tensor: Tensor, name: str) -> Any:
        """What a hook got, as the other methods want it: with ``shape``, and without a copy where that is possible."""

    def dtype(self, value: Any) -> str:
        """Return the name that numpy has for a tensor's type."""

    def compare(self, base: Any, target: Any, tolerance: Tolerance, then: Callable[[Comparison], None]) -> None:
        """The numbers of a pair. Both may be dropped, and overwritten by their own run, as soon as this returns."""

    def describe(self, value: Any, then: Callable[[TensorStats], None]) -> None:
        """Tell ``then`` the numbers of one tensor."""

    def settle(self) -> None:
        """Wait for everything that is under way; every ``then`` was called."""


class BaselineStore(Protocol):
    """What the hooks need of a store: ``Store``, or a ``Meeting`` of two runs side by side.

    Tensors are numpy arrays, or what a backend's own comparer takes.
    """

    def put(self, key: str, array: Any) -> None:
        """Take a tensor; the caller may overwrite it afterwards."""

    def get(self, key: str) -> Any:
        """Return the tensor of a key, None where there is none."""

    def drop(self, key: str) -> None:
        """The tensor of a key is no longer needed."""

    def __iter__(self) -> Iterator[str]:
        """Yield the keys that are kept."""

    def close(self) -> None:
        """Free everything."""
