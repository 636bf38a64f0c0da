"""A mapping by tensors themselves, not by their values, that forgets those that nobody else holds.

torch's WeakIdKeyDictionary makes a weak reference for each look; every operator takes a dozen of them.
"""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

__all__ = ["ByTensor"]

T = TypeVar("T")


class ByTensor(Generic[T]):
    """Used by the thread of one run; a tensor may be freed in any thread."""

    def __init__(self) -> None:
        self._held: dict[int, tuple[Any, T]] = {}

    def __contains__(self, tensor: Any) -> bool:
        return id(tensor) in self._held

    def __getitem__(self, tensor: Any) -> T:
        return self._held[id(tensor)][1]

    def __setitem__(self, tensor: Any, value: T) -> None:
        key, held = id(tensor), self._held
        known = held.get(key)
        # the reference goes with its entry, so that a tensor that gets a freed one's id starts afresh
        held[key] = known[0] if known is not None else weakref.ref(tensor, lambda _: held.pop(key, None)), value

    def get(self, tensor: Any, otherwise: Any = None) -> Any:
        """Its value."""
        known = self._held.get(id(tensor))
        return otherwise if known is None else known[1]

    def pop(self, tensor: Any, otherwise: Any = None) -> Any:
        """Its value, which is forgotten."""
        known = self._held.pop(id(tensor), None)
        return otherwise if known is None else known[1]

    def clear(self) -> None:
        """Forget all."""
        self._held.clear()
