"""Sample sets that are read when they are asked for, one at a time: a thousand of them need no memory for two."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, overload

__all__ = ["SampleSets"]

Feeds = dict[str, Any]


class SampleSets(Sequence[Feeds]):
    """A sequence of ``count`` sample sets; load: from a number, from 0, to the set, whose arrays the caller may keep.

    cheap: to go through all of them costs little. The last one that was asked for is kept. Safe to use from several
    threads.
    """

    def __init__(self, count: int, load: Callable[[int], Feeds], *, cheap: bool = False) -> None:
        self._count, self._load, self.cheap = count, load, cheap
        self._lock = threading.Lock()
        self._last: tuple[int, Feeds] | None = None

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, number: int) -> Feeds: ...
    @overload
    def __getitem__(self, number: slice) -> SampleSets: ...
    def __getitem__(self, number: int | slice) -> Feeds | SampleSets:
        if isinstance(number, slice):
            chosen = range(self._count)[number]
            return SampleSets(len(chosen), lambda place: self[chosen[place]], cheap=self.cheap)
        place = range(self._count)[number]
        with self._lock:
            if self._last is None or self._last[0] != place:
                self._last = None  # two at a time would take twice the memory
                self._last = place, self._load(place)
            return self._last[1]

    def __iter__(self) -> Iterator[Feeds]:
        return (self[number] for number in range(self._count))

    def each(self, change: Callable[[Feeds], Feeds]) -> SampleSets:
        """Return the same sample sets, each one changed when it is asked for."""
        return SampleSets(self._count, lambda number: change(self[number]), cheap=self.cheap)
