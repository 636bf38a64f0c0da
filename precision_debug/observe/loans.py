"""What a run has lent, oldest first: it goes on meanwhile, up to so many bytes."""

from __future__ import annotations

import collections
from collections.abc import Callable

__all__ = ["Loans"]


class Loans:
    """Buffers that a run has lent; used by the thread of that run."""

    def __init__(self) -> None:
        self._lent: collections.deque[tuple[Callable[[], None], int]] = collections.deque()
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._lent)

    def add(self, give_back: Callable[[], None], size: int, most: int) -> None:
        """Add a buffer that is lent.

        Where that makes more than ``most`` bytes, half of them are waited for, so that two runs that take turns take
        long ones.

        give_back: waits until it may be overwritten.
        """
        self._lent.append((give_back, size))
        self.bytes += size
        if self.bytes > most:
            self.end(most // 2)

    def end(self, down_to: int = 0) -> None:
        """Wait until no more than so many bytes are lent, and with 0 nothing at all."""
        while self._lent and (not down_to or self.bytes > down_to):
            give_back, size = self._lent.popleft()
            self.bytes -= size
            give_back()
