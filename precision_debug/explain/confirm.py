"""The second question: how much is left when one small change is made? It decides where an error alone accuses nobody.

Every operator's own error is put into the baseline's run, which gives about what the target gives; then all but the
culprit's, and those of what is to be kept with it. An error that becomes a third of what it was has an author, however
small it is; one that does not has many.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..records import Culprit
from .culprits import FAR, is_far_off
from .effects import Carried, Sink, error_without
from .introduced import Alone
from .subject import Subject
from .work import Work

__all__ = ["confirmed"]

_SMALLER = 1.5
"""Times that a small error must become smaller, whatever its author's share alone is: errors may cancel. Set on
tests/planted/fourth_*.py."""

_REPLAYED = 0.5
"""Part of the measured error that all operators' errors together must make in the baseline's run, or leaving some of
them out of it says nothing."""


def confirmed(
    subject: Subject, alone: Alone, culprits: tuple[Culprit, ...], tried: Carried, sinks: Sequence[Sink],
    plain: Mapping[str, Any], work: Work,
) -> tuple[Culprit, ...]:  # fmt: skip
    """The culprits with what is left without the first of them; none where the error was small and most of it is left.

    Takes two runs of the baseline. Where not every operator's error is known, or the replay is not the error that was
    measured, nothing is left out and nothing refuted. Raises work.Ended.
    """
    sink = next((one for one in sinks if culprits and one.name == culprits[0].at), None)
    if sink is None or sink.non_finite or not sink.squared or tried.untried or not tried.effects:
        return culprits
    work.go_on()
    first, names = culprits[0], list(alone.found)
    whole = error_without(subject, alone, names, (), sink, plain)
    if whole is None or not math.isfinite(whole) or not _REPLAYED * sink.rel_l2 <= whole <= sink.rel_l2 / _REPLAYED:
        return culprits
    together = [one for one in culprits if one is first or (first.amplifier and one.amplifier == first.amplifier)]
    family = {part for one in together for part in (one.name, *one.keep)} - {first.amplifier}
    left = error_without(subject, alone, names, family, sink, plain)
    if left is None:
        return culprits
    left = left * sink.rel_l2 / whole
    small = not is_far_off(subject, sink)
    ordinary = not subject.far(first.introduced, first.units, FAR)
    if small and ordinary and left * _SMALLER > sink.rel_l2:
        others = tuple(one for one in culprits if one not in together)
        return confirmed(subject, alone, others, tried, sinks, plain, work)
    told = sorted(family & alone.found.keys(), key=lambda name: (name != first.name, subject.order.get(name, 0)))
    return (dataclasses.replace(first, without=left, left_out=tuple(told)), *culprits[1:])
