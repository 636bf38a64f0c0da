"""Judges whether a set of kept units holds: asked once for each set, and only as often as the budget allows."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence

from ..explain.criteria import LITTLE
from .offer import JudgedSet, choose_best_trade

__all__ = ["JudgedSet", "Oracle", "Spent"]


_APART = 2.0
"""Times that two errors of one set may be apart."""


class Spent(Exception):
    """The runs or the seconds are used up."""


class Oracle:
    """Sets of units 0 to count - 1.

    evaluate: runs one set; it may raise Spent. limit: the error up to which a set passes, where that is what decides.
    ahead: told which sets will be asked for next, the likeliest first, where several may be run at once. exact: of a
    rough one, which it judges the first set of, too, and the first that holds: one that misleads there says no more.
    """

    def __init__(
        self, count: int, evaluate: Callable[[frozenset[int]], JudgedSet], *, runs: int = 10_000,
        limit: float | None = None, ahead: Callable[[Sequence[frozenset[int]]], None] | None = None,
        exact: Oracle | None = None,
    ) -> None:  # fmt: skip
        self.count, self.limit = count, limit
        self.all, self.left_out = frozenset(range(count)), frozenset[int]()
        self.asked: dict[frozenset[int], JudgedSet] = {}
        self._evaluate, self._runs, self._ahead, self._exact = evaluate, runs, ahead, exact
        self._checked = False
        self._aim: float | None = None

    @property
    def left(self) -> int:
        """How many sets may still be run."""
        return self._runs - len(self.asked)

    def allow(self, more: int) -> None:
        """Let at least so many sets be run from here on."""
        self._runs = max(self._runs, len(self.asked) + more)

    def end_after(self, more: int) -> None:
        """Let at most so many sets be run from here on."""
        self._runs = min(self._runs, len(self.asked) + more)

    def aiming_at(self, best: frozenset[int]) -> Oracle:
        """Return one by which a part of a set that was judged holds where it does as well.

        Of one that does not pass it knows what this one does, and every set holds that helps and leaves no more than
        about that: so a set that does not reach the aim is made smaller as one that does."""
        judged = self.asked[best]
        if judged.passes:
            return self
        other = copy.copy(self)
        other.limit = other._aim = LITTLE * judged.error
        return other

    def judge(self, kept: Iterable[int]) -> JudgedSet:
        """Raises Spent."""
        key = frozenset(kept) - self.left_out
        if key not in self.asked:
            if len(self.asked) >= self._runs:
                raise Spent
            self.asked[key] = self._evaluate(key)
            if self._exact is not None and 0 < len(key) < self.count and self._misleads(key, self._exact):
                del self.asked[key]
                raise Spent
        return self.asked[key]

    def _misleads(self, key: frozenset[int], exact: Oracle) -> bool:
        """Return whether the exact oracle says something else of a set, if this is one that it is asked of."""
        rough = self.asked[key]
        if self._checked and not rough.passes:
            return False
        self._checked = True
        truth = exact.judge(key)
        if rough.passes:
            self._exact = None
        apart = max(truth.error, rough.error) > _APART * min(truth.error, rough.error)
        return apart or (rough.passes and not truth.passes)

    def leave_out(self, tried: Iterable[int]) -> None:
        """Keep no unit from here on with which, by itself, the engine does not run. Raises Spent.

        tried: a few of a set that does not run."""
        refused = frozenset(unit for unit in tried if not self.judge({unit}).ran)
        self.left_out |= refused
        self.all -= refused

    def holds(self, kept: Iterable[int]) -> bool:
        """Raises Spent."""
        return self._is_held(self.judge(kept))

    def _is_held(self, found: JudgedSet) -> bool:
        return found.passes if self._aim is None else found.helps and found.error <= self._aim

    def expect(self, sets: Iterable[Iterable[int]]) -> None:
        """These are asked for next, as long as those before them fail; asks for nothing itself."""
        if self._ahead is not None:
            fresh = dict.fromkeys(frozenset(kept) for kept in sets)
            self._ahead([kept for kept in fresh if kept not in self.asked])

    def best_trade(self, allowed: float = 0.0) -> frozenset[int]:
        """Return the set that gives most for what it keeps, of those that help; none where none does.

        allowed: the error that is as expected."""
        useful = {kept: judged.error for kept, judged in self.helping.items() if kept and kept != self.all}
        wide = [kept for kept in useful if self.asked[kept].gives_up]
        before = self.asked[frozenset()].error if frozenset() in self.asked else math.inf
        return choose_best_trade(useful, before, self.count, allowed, wide) or frozenset()

    @property
    def helping(self) -> dict[frozenset[int], JudgedSet]:
        """What came of the sets that help."""
        return {kept: judged for kept, judged in self.asked.items() if judged.helps}

    def list_larger(self, than: frozenset[int]) -> list[frozenset[int]]:
        """Return sets that were seen to hold and keep more than this one, the smallest first, fewer the larger they
        are."""
        sizes: dict[int, frozenset[int]] = {}
        for kept in sorted(self.asked, key=lambda kept: (len(kept), self.asked[kept].error)):
            if len(kept) > len(than) and kept != self.all and self._is_held(self.asked[kept]):
                sizes.setdefault(len(kept), kept)
        held = list(sizes.values())
        return [held[2**power - 1] for power in range(len(held).bit_length())]

    def smallest(self) -> frozenset[int] | None:
        """Return the smallest set that was seen to hold, the one with the least error among equals."""
        held = [kept for kept, found in self.asked.items() if self._is_held(found)]
        return min(held, key=lambda kept: (len(kept), self.asked[kept].error), default=None)
