"""Judges whether a set of kept units holds: asked once for each set, and only as often as the budget allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from .offer import HALF, best_trade

__all__ = ["Judged", "Oracle", "Spent"]


@dataclass(frozen=True)
class Judged:
    """What came of one set. error: inf where it is not finite. ran: False where the engine does not run with it."""

    passes: bool
    error: float = math.inf
    ran: bool = True


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
        self,
        count: int,
        evaluate: Callable[[frozenset[int]], Judged],
        *,
        runs: int = 10_000,
        limit: float | None = None,
        ahead: Callable[[Sequence[frozenset[int]]], None] | None = None,
        exact: Oracle | None = None,
    ) -> None:
        self.count, self.limit = count, limit
        self.all, self.left_out = frozenset(range(count)), frozenset[int]()
        self.asked: dict[frozenset[int], Judged] = {}
        self._evaluate, self._runs, self._ahead, self._exact = evaluate, runs, ahead, exact
        self._checked = False

    def judge(self, kept: Iterable[int]) -> Judged:
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
        return self.judge(kept).passes

    def expect(self, sets: Iterable[Iterable[int]]) -> None:
        """These are asked for next, as long as those before them fail; asks for nothing itself."""
        if self._ahead is not None:
            fresh = dict.fromkeys(frozenset(kept) for kept in sets)
            self._ahead([kept for kept in fresh if kept not in self.asked])

    def best_trade(self, stays_low: Callable[[frozenset[int]], bool], allowed: float = 0.0) -> frozenset[int]:
        """Return the set that gives most for what it keeps, of those that were run; none where none halves the error.

        stays_low: whether what is not kept of a set still runs in the low precision. allowed: the error that is as
        expected."""
        before = self.asked[frozenset()].error if frozenset() in self.asked else math.inf
        useful = {
            kept: judged.error for kept, judged in self.asked.items()
            if 0 < len(kept) < self.count and math.isfinite(judged.error) and judged.error <= HALF * before
            and stays_low(kept)
        }  # fmt: skip
        return best_trade(useful, before, self.count, allowed) or frozenset()

    @property
    def evaluations(self) -> int:
        return len(self.asked)

    def smallest(self) -> frozenset[int] | None:
        """Return the smallest set that was seen to hold, the one with the least error among equals."""
        held = [kept for kept, judged in self.asked.items() if judged.passes]
        return min(held, key=lambda kept: (len(kept), self.asked[kept].error), default=None)
