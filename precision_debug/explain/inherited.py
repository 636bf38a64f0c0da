"""Inherited error: what the baseline's operators make of the target's inputs, against the baseline's own results."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from ..numbers.arrays import as_array
from ..numbers.born import is_broken
from ..records import Comparison
from .introduced import WAITING, Kept, Passing, relative_error, seen
from .subject import Subject

__all__ = ["inherited_errors", "plain_results"]

_NO_OPERATOR = frozenset({"Input", "Constant", "Output"})


def plain_results(subject: Subject, folder: Path) -> Kept:
    """What an undisturbed run of the baseline computes, of all that was compared; the caller closes it.

    folder: for what waits on disk. Raises BackendError.
    """
    found = cast("Kept", subject.bench.waiting(folder, subject.budget(WAITING)))

    def keep(_op: str, name: str, value: Any) -> None:
        if name in wanted and name not in found:
            found.put(name, seen(value))

    wanted = frozenset(subject.row_of)
    try:
        subject.operators()[0].run_replacing(subject.feeds, subject.showing(keep), wanted)
    except BaseException:
        found.close()
        raise
    return found


def _start(subject: Subject, name: str, plain: Any, made: Any, then: Callable[[float], Any]) -> None:
    """Tell the relative L2 of what the baseline's operator made of the target's inputs, at once or later.

    It is inf where that is NaN or Inf, and nothing is told where it is not an error of floats.

    plain: what it makes of its own.
    """
    row, bench = subject.row_of.get(name), subject.bench
    if plain is None or row is None or row.op_type in _NO_OPERATOR or plain.shape != made.shape:
        return
    if not (bench.is_float(plain) and bench.is_float(made)):
        return

    def compared(found: Comparison) -> None:
        error = math.inf
        if not is_broken(found):
            measured = relative_error(plain, made, found.base, math.inf, found.sqnr_db, bench)
            if measured is None:
                return
            error = measured
        then(error)

    bench.start(plain, made, compared)


def inherited_errors(subject: Subject, folder: Path) -> dict[str, float]:
    """Of every compared tensor for which it can be measured, by the baseline's name.

    The target runs as ever, and the baseline beside it on the target's values. Raises BackendError.
    """
    partner = subject.partner
    target_of = {base: target for target, base in partner.items()}
    bench = subject.bench
    found: dict[str, float] = {}
    with (
        contextlib.closing(plain_results(subject, folder)) as plain,
        contextlib.closing(cast("Kept", bench.waiting(folder, subject.budget(WAITING)))) as waiting,
    ):
        passing = Passing(subject, waiting)
        shown: set[str] = set()

        def of_target(_op: str, name: str, value: Any) -> None:
            base = partner.get(name)
            if base is not None and base not in shown:
                shown.add(base)
                passing.put(base, value if bench.on_device else as_array(value, name=name))

        def of_baseline(_op: str, name: str, value: Any) -> Any:
            stored = passing.get(name) if name in target_of else None
            if stored is None:
                return None
            made = bench.lasting(seen(value))
            _start(subject, name, plain.get(name), made, functools.partial(found.setdefault, name))
            return passing.taken(name, stored, made)

        def target() -> Any:
            outputs = subject.target.run(subject.feeds_of_target, of_target, frozenset(partner))
            passing.end()
            return outputs

        def baseline() -> Any:
            return subject.operators()[0].run_replacing(
                subject.feeds, subject.showing(of_baseline), frozenset(target_of)
            )

        passing.run(target, baseline)  # here the target is whom the other one waits for
        bench.settle()
    return {name: found[name] for name in target_of if name in found}
