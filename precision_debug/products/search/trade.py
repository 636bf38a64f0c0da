"""What each kept set costs: operators against error, speed and size, from nothing kept to everything."""

from __future__ import annotations

import contextlib
import itertools
import math
import operator
from collections.abc import Callable, Mapping

from ...errors import PrecisionDebugError
from ...search.fix import TradePoint
from ...search.offer import finite_or_none, list_unbettered
from ...search.oracle import Oracle, Spent
from ...search.strategy import FoundSet

__all__ = ["find_trade_points", "run_prefixes"]

_POINTS = 6
"""Set sizes that are run between nothing kept and everything kept, for the curve of error against the number kept."""

Kept = frozenset[int]


def run_prefixes(oracle: Oracle, found: FoundSet, held: Callable[[Kept], object]) -> None:
    """Where the answer is diffuse, the ranking's prefixes are its curve. held: runs one on unseen samples."""
    if found.state == "diffuse":
        with contextlib.suppress(Spent):
            for kept in _list_prefixes(found):
                oracle.judge(kept)
                held(kept)


def find_trade_points(
    oracle: Oracle, found: FoundSet, cost: Callable[[Kept], tuple[float, int | None]],
    held: Callable[[Kept], int | None], best: Kept = frozenset(),
) -> tuple[TradePoint, ...]:  # fmt: skip
    """Points in the order of how many are kept.

    cost: milliseconds and bytes of a set. held: how many held-out samples hold with it, where that is known. best: the
    best trade, where there is no answer.
    """
    diffuse = found.state == "diffuse"
    points = []
    for kept, what in sorted(_choose_sets(oracle, found, best).items(), key=lambda pair: len(pair[0])):
        judged = oracle.asked.get(kept)
        speed: float | None = None
        size: int | None = None
        if what != "curve" or diffuse:
            with contextlib.suppress(PrecisionDebugError):
                speed, size = cost(kept)
        points.append(
            TradePoint(
                what=what, kept=len(kept), passes=judged is not None and judged.passes,
                error=finite_or_none(judged.error) if judged is not None else None,
                held_out=held(kept), milliseconds=speed, bytes=size,
            )
        )  # fmt: skip
    return tuple(points)


def _choose_sets(oracle: Oracle, found: FoundSet, best: Kept) -> Mapping[Kept, str]:
    """The ends, the answer or the best trade, and some of the sets between that nothing smaller betters."""
    between = list_unbettered({kept: judged.error for kept, judged in oracle.asked.items()})
    step = max(1, math.ceil(len(between) / _POINTS))
    chosen = dict.fromkeys(between[::step], "curve")
    if found.kept is not None:
        chosen[found.kept] = "answer" if found.state == "found" else "curve"
    if best:
        chosen[best] = "best trade"
    chosen[frozenset()] = "all low"
    if oracle.all in oracle.asked:
        chosen[oracle.all] = "all high"
    return chosen


def _list_prefixes(found: FoundSet) -> list[Kept]:
    """1, 2, 4, … groups of the ranking."""
    prefixes: list[Kept] = list(itertools.accumulate((group.units for group in found.groups), operator.or_))
    return [prefixes[2**power - 1] for power in range(len(prefixes).bit_length())]
