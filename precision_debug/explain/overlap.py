"""Errors that do not add up: behind a threshold, a sigmoid or a normalisation one operator's error may do what all do.

Then an operator alone makes the whole error, and without it the others make as much: nobody is the cause, and mending
that one operator mends nothing. How many have to be left out together says how far from one operator's fault it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..records import Overlap
from .criteria import HALF
from .effects import Carried, Sink, error_without
from .introduced import Alone
from .subject import Subject
from .work import Work

__all__ = ["overlapping"]


def overlapping(
    subject: Subject, alone: Alone, tried: Carried, sinks: Sequence[Sink], at: str, plain: Mapping[str, Any], work: Work
) -> Overlap | None:
    """Of an error that nobody is named for: the operator that makes most of it alone, where that is over half; None
    where none does, or where it could not be measured. Takes a few runs of the baseline. Raises work.Ended."""
    sink = next((one for one in sinks if one.name == at), None)
    if sink is None or sink.non_finite or not sink.squared:
        return None
    found = {name: effect for name, carried in tried.effects.items() for effect in carried if effect.at == at}
    ranked = sorted(found, key=lambda name: -float(found[name].rel_l2 or 0.0))
    first = found[ranked[0]] if ranked else None
    if first is None or first.share < HALF or not first.rel_l2:
        return None
    names = list(alone.found)

    def left(count: int) -> float | None:
        work.go_on()
        return error_without(subject, alone, names, ranked[:count], sink, plain)

    whole, without = left(0), left(1)
    if not whole or without is None:
        return None
    low, high = 1, 2
    while high < len(ranked) and not _is_half(left(high), whole):
        low, high = high, 2 * high
    if high >= len(ranked):
        high = len(ranked)
        if not _is_half(left(high), whole):
            return Overlap(name=ranked[0], alone=first.rel_l2, without=without, whole=whole, tried=len(ranked))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _is_half(left(middle), whole) else (middle, high)
    return Overlap(
        name=ranked[0], alone=first.rel_l2, without=without, whole=whole, fewest=high, tried=len(ranked)
    )


def _is_half(error: float | None, whole: float) -> bool:
    return error is not None and error <= HALF * whole
