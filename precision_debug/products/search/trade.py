"""What each kept set costs: operators against error, speed and size, from nothing kept to everything."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Mapping

from ...errors import PrecisionDebugError
from ...search import Found, Oracle, TradePoint
from ...search.oracle import Spent

__all__ = ["best_trade", "run_prefixes", "traded"]

_POINTS = 6
"""Set sizes that are run between nothing kept and everything kept, for the curve of error against the number kept."""

_HALF, _LEAST = 0.5, 1e-12
"""Of the error with nothing kept, what the best trade may leave; and what is as good as no error."""

Kept = frozenset[int]


def best_trade(oracle: Oracle, stays_low: Callable[[Kept], bool], allowed: float = 0.0) -> Kept:
    """Of the sets that were run, the one that gives most for what it keeps; none where none halves the error.

    Each tenth of the operators that is kept counts as much as a tenth of the way, in decades of the error, from nothing
    kept to the least that was seen. stays_low: whether what is not kept of a set still runs in the low precision.
    allowed: the error that is as expected, below which less is worth no further operator.
    """
    finite = [judged.error for judged in oracle.asked.values() if math.isfinite(judged.error)]
    before = oracle.asked[frozenset()].error if frozenset() in oracle.asked else math.inf
    useful = {
        kept: judged.error for kept, judged in oracle.asked.items()
        if 0 < len(kept) < oracle.count and math.isfinite(judged.error) and judged.error <= _HALF * before
        and stays_low(kept)
    }  # fmt: skip
    if not useful:
        return frozenset()
    least = max(allowed, min(useful.values()), _LEAST)
    most = max(before if math.isfinite(before) else max(finite), 2 * least)

    def left(kept: Kept) -> float:
        decades = math.log(max(useful[kept], least) / least) / math.log(most / least)
        return decades + len(kept) / oracle.count

    return min(useful, key=lambda kept: (left(kept), len(kept), useful[kept]))


def run_prefixes(oracle: Oracle, found: Found, held: Callable[[Kept], object]) -> None:
    """Where the answer is diffuse, the ranking's prefixes are its curve. held: runs one on unseen samples."""
    if found.state == "diffuse":
        with contextlib.suppress(Spent):
            for kept in _prefixes(found):
                oracle.judge(kept)
                held(kept)


def traded(
    oracle: Oracle, found: Found, cost: Callable[[Kept], tuple[float, int | None]],
    held: Callable[[Kept], int | None], best: Kept = frozenset(),
) -> tuple[TradePoint, ...]:  # fmt: skip
    """Points in the order of how many are kept.

    cost: milliseconds and bytes of a set. held: how many held-out samples hold with it, where that is known. best: the
    best trade, where there is no answer.
    """
    diffuse = found.state == "diffuse"
    points = []
    for kept, what in sorted(_chosen(oracle, found, best).items(), key=lambda pair: len(pair[0])):
        judged = oracle.asked.get(kept)
        speed: float | None = None
        size: int | None = None
        if what != "curve" or diffuse:
            with contextlib.suppress(PrecisionDebugError):
                speed, size = cost(kept)
        points.append(
            TradePoint(
                what=what, kept=len(kept), passes=judged is not None and judged.passes,
                error=judged.error if judged is not None and math.isfinite(judged.error) else None,
                held_out=held(kept), milliseconds=speed, bytes=size,
            )
        )  # fmt: skip
    return tuple(points)


def _chosen(oracle: Oracle, found: Found, best: Kept) -> Mapping[Kept, str]:
    """The ends, the answer or the best trade, and some of the sets between that nothing smaller betters."""
    least = math.inf
    between: list[Kept] = []
    for kept in sorted(oracle.asked, key=lambda kept: (len(kept), oracle.asked[kept].error)):
        if oracle.asked[kept].error < least:
            least = oracle.asked[kept].error
            between.append(kept)
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


def _prefixes(found: Found) -> list[Kept]:
    """1, 2, 4, … groups of the ranking."""
    kept: Kept = frozenset()
    prefixes = []
    for count, group in enumerate(found.groups, 1):
        kept |= group.units
        if count & (count - 1) == 0:
            prefixes.append(kept)
    return prefixes
