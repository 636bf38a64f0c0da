"""Whether what became 0 is what an error comes from: ordinary rounding nearly always makes some zeros beside it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from ..records import Culprit
from .causes import cause_of
from .effects import Sink, carried_errors
from .introduced import Alone
from .subject import Subject
from .work import Work

__all__ = ["by_zeros_that_count"]

_TRIED = 3
"""Culprits whose zeros are put into the baseline's run, which takes one run each."""

_MOST_OF_IT = 0.5
"""Part of a culprit's share that its zeros alone must make."""


def by_zeros_that_count(
    subject: Subject, alone: Alone, culprits: tuple[Culprit, ...], sinks: Sequence[Sink], plain: Mapping[str, Any],
    work: Work,
) -> tuple[Culprit, ...]:  # fmt: skip
    """The culprits; of those that are ordinary rounding called underflow, where the zeros alone do not make the error,
    with the cause that is left without them. Raises work.Ended."""
    found = list(culprits)
    for place, culprit in enumerate(culprits[:_TRIED]):
        if culprit.cause != "underflow" or not (culprit.amplifier or (culprit.units or 0.0) <= 1.0):
            continue
        exact, wrong = (part.get(culprit.name) for part in (alone.exact, alone.wrong))
        sink = next((sink for sink in sinks if sink.name == culprit.at), None)
        if exact is None or wrong is None or sink is None or exact.shape != wrong.shape:
            continue
        work.go_on()
        zeros = exact * (wrong != 0)  # numpy's or the device's own, where they are
        effect, = carried_errors(subject, {culprit.name: (exact, zeros)}, [sink], plain)
        if effect.non_finite or effect.share >= _MOST_OF_IT * (culprit.share or 0.0):
            continue
        poisons = bool(sink.non_finite)
        cause, evidence, keep = cause_of(
            subject, alone, culprit.name, culprit.amplifier, poisons=poisons, zeros_count=False
        )  # fmt: skip
        more = tuple(name for name in culprit.keep if name not in keep)
        found[place] = dataclasses.replace(culprit, cause=cause, evidence=evidence, keep=(*keep, *more))
    return tuple(found)
