"""Inherited error: what the baseline's operators make of the target's inputs, against the baseline's own results."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from .. import numbers
from ..numbers.arrays import as_array
from ..numbers.born import is_broken
from ..observe.lockstep import Meeting, run_both
from ..observe.store import Store
from .introduced import WAITING, relative_error, same_kind
from .subject import Subject

__all__ = ["inherited", "inherited_errors", "plain_results"]

Array = np.ndarray[Any, Any]

_NO_OPERATOR = frozenset({"Input", "Constant", "Output"})


def plain_results(subject: Subject, folder: Path) -> Store:
    """What an undisturbed run of the baseline computes, of all that was compared; the caller closes it.

    folder: for what waits on disk. Raises BackendError.
    """
    found = Store(folder=folder, memory_budget=subject.budget(WAITING))

    def keep(_op: str, name: str, value: Any) -> None:
        if name in wanted and name not in found:
            found.put(name, np.asarray(value))

    wanted = frozenset(subject.row_of)
    try:
        subject.operators()[0].run_replacing(subject.feeds, keep, wanted)
    except BaseException:
        found.close()
        raise
    return found


def inherited(subject: Subject, name: str, plain: Array | None, made: Array) -> float | None:
    """Relative L2 of what the baseline's operator made of the target's inputs; inf where that is NaN or Inf, None where
    it is not an error of floats.

    plain: what it makes of its own.
    """
    row = subject.row_of.get(name)
    if plain is None or row is None or row.op_type in _NO_OPERATOR or plain.shape != made.shape:
        return None
    if plain.dtype.kind != "f" or made.dtype.kind != "f":
        return None
    found = numbers.compare(plain, made)
    if is_broken(found):
        return math.inf
    return relative_error(plain, made, found.base, math.inf, found.sqnr_db)


def inherited_errors(subject: Subject, folder: Path) -> dict[str, float]:
    """Of every compared tensor for which it can be measured, by the baseline's name.

    The target runs as ever, and the baseline beside it on the target's values. Raises BackendError.
    """
    partner = subject.partner
    target_of = {base: target for target, base in partner.items()}
    found: dict[str, float] = {}
    with (
        plain_results(subject, folder) as plain,
        Store(folder=folder, memory_budget=subject.budget(WAITING)) as waiting,
    ):
        meeting = Meeting(waiting) if subject.together else None
        store = meeting or waiting
        shown: set[str] = set()

        def of_target(_op: str, name: str, value: Any, /) -> None:
            base = partner.get(name)
            if base is not None and base not in shown:
                shown.add(base)
                store.put(base, as_array(value, name=name))

        def of_baseline(_op: str, name: str, value: Any) -> Any:
            if name not in target_of:
                return None
            stored = store.get(name)
            if stored is None:
                return None
            made = np.asarray(value)
            error = inherited(subject, name, plain.get(name), made)
            if error is not None:
                found.setdefault(name, error)
            put = np.array(stored) if made.shape == stored.shape and same_kind(made, stored) else None
            store.drop(name)
            return put

        def target() -> Any:
            return subject.target.run(subject.feeds_of_target, of_target, frozenset(partner))

        def baseline() -> Any:
            return subject.operators()[0].run_replacing(subject.feeds, of_baseline, frozenset(target_of))

        if meeting is not None:
            run_both(meeting, target, baseline)  # here the target is whom the other one waits for
        else:
            target()
            baseline()
    return found
