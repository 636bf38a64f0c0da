"""NaN and Inf at an output that no operator's own error makes alone: where the target's numbers begin to make them.

An epsilon that a type holds as 0 is such a one: with the baseline's input it does no harm, and what became 0 before it
does none without it. So from the first tensor that is not finite, the target's values are put into the baseline's run,
one tensor at a time and further and further back, as long as those of an input break the output by themselves.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..numbers.arrays import as_array
from ..reasons.causes import CAUSES
from ..records import Culprit
from .causes import cause_of
from .effects import Sink
from .introduced import WAITING, Alone, same_kind
from .kept import kept_through
from .operator_facts import operators_of
from .subject import Subject
from .work import Work

__all__ = ["breaks_outputs"]

_RUNS = 64
"""Runs of the baseline that the way back may take; a bound on its work, not measured."""

_CONFIDENCE = "substituted"


def breaks_outputs(
    subject: Subject, alone: Alone, culprits: tuple[Culprit, ...], sinks: Sequence[Sink], first_non_finite: str,
    folder: Path, work: Work,
) -> tuple[Culprit, ...]:  # fmt: skip
    """The operator from which on the target's values break an output, in place of culprits that break none.

    The culprits as they are where one of them does, where all outputs are finite, and where it could not be measured.
    Raises work.Ended and BackendError.
    """
    broken = [sink.name for sink in sinks if sink.is_output and sink.non_finite]
    known = {culprit.at for culprit in culprits} & {*broken}
    row = subject.row_of.get(first_non_finite)
    if not broken or known or row is None or subject.bench.on_device or not subject.partner:
        return culprits
    about = {first_non_finite} | subject.ancestors(first_non_finite)
    with contextlib.closing(subject.bench.waiting(folder, subject.budget(WAITING))) as values:
        _hold_target(subject, about, values)
        name, runs = first_non_finite, 0
        at = _broken(subject, name, values.get(name), broken)
        while at and runs < _RUNS:
            there = name
            for source in subject.sources(name):
                runs += 1
                work.go_on()
                if reached := _broken(subject, source, values.get(source), broken):
                    there, at = source, reached
                    break
            if there == name:
                break
            name = there
    return (_culprit(subject, alone, name, at, first_non_finite),) if at else culprits


def _hold_target(subject: Subject, names: Collection[str], values: Any) -> None:
    """Keep what the target gives for these tensors, by the baseline's names."""
    partner = {target: base for target, base in subject.partner.items() if base in names}

    def keep(_op: str, name: str, value: Any, /) -> None:
        base = partner.get(name)
        if base is not None and base not in values:
            values.put(base, as_array(value, name=name))

    subject.target.run(subject.feeds_of_target, keep, frozenset(partner))


def _broken(subject: Subject, name: str, value: Any, outputs: Sequence[str]) -> str:
    """The first of the outputs that has NaN or Inf where the baseline goes on with the target's value of one tensor; ""
    where none has, or it cannot."""
    if value is None:
        return ""
    seen: dict[str, Any] = {}
    taken: list[str] = []

    def replace(_op: str, shown: str, own: Any) -> Any:
        new = None
        if shown == name and np.shape(own) == value.shape and same_kind(np.asarray(own), value):
            taken.append(name)
            new = np.ascontiguousarray(value.astype(np.asarray(own).dtype)).reshape(value.shape)
        if shown in outputs:
            seen[shown] = np.array(own if new is None else new)
        return new

    subject.operators()[0].run_replacing(subject.feeds, subject.showing(replace), frozenset({name, *outputs}))
    before: Mapping[str, int] = {
        one: (numbers.base.nan or 0) + (numbers.base.inf or 0)
        for one in outputs if (numbers := subject.row_of[one].comparison) is not None
    }  # fmt: skip
    lost = (one for one, found in seen.items() if int((~np.isfinite(found)).sum()) > before.get(one, 0))
    return next(lost, "") if taken else ""


def _culprit(subject: Subject, alone: Alone, name: str, at: str, first: str) -> Culprit:
    row = subject.row_of[name]
    told = cause_of(subject, alone, name, "", poisons=True) if name in alone.found else ("coarse", {"units": None}, ())
    cause, evidence, keep = told
    numbers = row.comparison
    if name == first and numbers is not None and (CAUSES[cause].unproven or CAUSES[cause].enlarged):
        nan, inf = (max(0, a - b) for a, b in (
            (numbers.target.nan, numbers.base.nan), (numbers.target.inf, numbers.base.inf),
        ))  # fmt: skip
        what = " and ".join(word for word, count in (("NaN", nan), ("Inf", inf)) if count)
        cause, evidence = "born", {"what": what, "count": nan + inf}
    made = Culprit(
        name=name,
        node=subject.meta_of[name].node if name in subject.meta_of else "",
        op_types=tuple(meta.op_type for meta in operators_of(subject, name)) or (row.op_type,),
        cause=cause,
        evidence=evidence,
        confidence=_CONFIDENCE,
        at=at,
        fails_first=first,
        keep=(name,),
    )
    return dataclasses.replace(made, keep=kept_through(subject, keep or (name,), made.cause, ""))
