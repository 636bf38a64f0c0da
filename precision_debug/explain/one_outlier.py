"""One channel that takes the quantised range of several tensors, as it goes through a residual stream: one cause, and
so one culprit, where it is lost most, with all the others kept with it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ..reasons.causes import CAUSES
from ..records import Culprit
from .effects import Carried, Sink, carried_together
from .grid import of_whom, outlier_of
from .introduced import Alone
from .subject import Subject
from .work import Work

__all__ = ["as_one_outlier"]

_CAUSE = "outlier_channel"

_Place = tuple[int, int]
"""Of a channel: its number, and its axis counted from the last one."""


def as_one_outlier(
    subject: Subject, alone: Alone, culprits: tuple[Culprit, ...], tried: Carried, sinks: Sequence[Sink],
    plain: Mapping[str, Any], work: Work,
) -> tuple[Culprit, ...]:  # fmt: skip
    """The culprits, worst first, those of one outlier channel as the worst of them, with the others in its evidence and
    the share of all of them, which takes a run of the baseline for each such group. Raises work.Ended."""
    found: list[Culprit] = []
    waiting = list(culprits)
    while waiting:
        first = waiting.pop(0)
        place = _place(alone, first)
        same = [
            one for one in waiting
            if place is not None and _place(alone, one) == place and _one_behind_the_other(subject, first, one)
            and one.at == first.at
        ]  # fmt: skip
        proven = any(one.cause == _CAUSE for one in (first, *same))
        same = same if proven else []
        waiting = [one for one in waiting if one not in same]
        if same:
            first = _told(subject, alone, first)
            work.go_on()
            first = _merged(subject, first, same, _share(subject, alone, [first, *same], tried, sinks, plain))
        found.append(first)
    return tuple(found)


def _place(alone: Alone, culprit: Culprit) -> _Place | None:
    """Where the outlier of a culprit is, or of one of ordinary rounding that has one in its result; None of another
    cause, and of one that lies in a constant."""
    if culprit.cause != _CAUSE and not (CAUSES[culprit.cause].unproven or CAUSES[culprit.cause].enlarged):
        return None
    values = alone.exact_of(culprit.evidence.get("from") or culprit.name)
    found = outlier_of(values) if values is not None else None
    return None if found is None or values is None else (found["channel"], values.ndim - found["axis"])


def _told(subject: Subject, alone: Alone, culprit: Culprit) -> Culprit:
    """The first of a group, some of which lose the range to the outlier, with the one that its own result has."""
    values = alone.exact_of(culprit.name)
    found = outlier_of(values) if culprit.cause != _CAUSE and values is not None else None
    if found is None or values is None:
        return culprit
    evidence = {"from": "", "who": of_whom(subject, culprit.name, values, found), **found}
    return dataclasses.replace(culprit, cause=_CAUSE, evidence=evidence)


def _one_behind_the_other(subject: Subject, one: Culprit, other: Culprit) -> bool:
    return other.name in subject.descendants(one.name) or one.name in subject.descendants(other.name)


def _share(
    subject: Subject, alone: Alone, group: Sequence[Culprit], tried: Carried, sinks: Sequence[Sink],
    plain: Mapping[str, Any],
) -> float | None:  # fmt: skip
    effects = carried_together(subject, alone, [one.name for one in group], list(tried.effects), sinks, plain)
    return next((effect.share for effect in effects if effect.at == group[0].at), None)


def _merged(subject: Subject, first: Culprit, same: Sequence[Culprit], share: float | None) -> Culprit:
    where = {one.evidence.get("from") or one.name for one in same} - {first.evidence.get("from") or first.name}
    others = sorted(where, key=lambda name: subject.order.get(name, 0)) or [one.name for one in same]
    kept = dict.fromkeys(first.keep) | {name: None for one in same for name in one.keep if name != one.amplifier}
    evidence = {**first.evidence, "too": ", ".join(f"`{name}`" for name in others)}
    return dataclasses.replace(first, evidence=evidence, share=share, keep=tuple(kept))
