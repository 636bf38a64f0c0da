"""Each operator by itself: both runs once more, with every tensor put back to common values as soon as it was compared.

Where the target's run can go on with other values (protocols.Replacer), it goes on with the baseline's, so that each
operator or fused region computes from the baseline's inputs: *isolated*. The baseline goes on with its own values as
the target holds them (rounded, quantised), so that the rounding of an input is charged to whoever made the input.
Where only the baseline's run can, it goes on with the target's values: *replayed*.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from ..numbers.arrays import as_array
from ..observe.lockstep import Meeting, run_both
from ..protocols import BaselineStore
from ..records import Introduced, TensorStats
from .subject import Subject
from .units import largest_of

__all__ = ["MASK", "WAITING", "Alone", "nothing_alone", "relative_error", "run_alone", "same_kind"]

Array = np.ndarray[Any, Any]

MASK = 1e18
"""Beyond this a float32 is no number but a mask ("minus infinity"), and would drown every other element in a norm."""

KEPT_IN_MEMORY = 256 << 20
"""Bytes of suspects' tensors that stay in memory; what comes over it waits on disk."""

WAITING = 1 << 30
"""Bytes of tensors that wait for their partners in memory, where the user named no budget."""


class Kept(BaselineStore, Protocol):
    """A store that can be asked whether it has something."""

    def __contains__(self, key: object) -> bool: ...


@dataclass(kw_only=True)
class Alone:
    """What each operator added, in execution order, and the tensors of those that are suspected.

    exact, wrong: the operator's result in the baseline's and in the target's arithmetic, of the same inputs.
    """

    method: str
    found: dict[str, Introduced] = field(default_factory=dict)
    exact: Kept
    wrong: Kept
    host: Callable[[Any], Array] = np.asarray

    def exact_of(self, name: str) -> Array | None:
        """In the host's memory; None where it was not kept."""
        return None if (value := self.exact.get(name)) is None else self.host(value)

    def wrong_of(self, name: str) -> Array | None:
        """See ``exact_of``."""
        return None if (value := self.wrong.get(name)) is None else self.host(value)

    def close(self) -> None:
        self.exact.close()
        self.wrong.close()


def nothing_alone(subject: Subject, folder: Path) -> Alone:
    """Before anything was run."""
    return Alone(
        method="isolated" if subject.target_replaces else "replayed",
        exact=cast("Kept", subject.bench.store(folder, KEPT_IN_MEMORY // 2)),
        wrong=cast("Kept", subject.bench.store(folder, KEPT_IN_MEMORY // 2)),
        host=subject.bench.host,
    )


def run_alone(subject: Subject, suspects: Callable[[str, float | None], bool], folder: Path) -> Alone:
    """Run both sides once more and say what each operator added.

    suspects: asked with a tensor's name and its error in units of rounding; the tensors of those it says yes to are
    kept. Raises BackendError.
    """
    alone = nothing_alone(subject, folder)

    def note(name: str, exact: Any, wrong: Any) -> None:
        if name in alone.found:
            return
        introduced = measure(subject, name, exact, wrong, alone.method)
        alone.found[name] = introduced
        if suspects(name, introduced.units) or introduced.born_nan or introduced.born_inf or introduced.flips:
            alone.exact.put(name, exact)
            alone.wrong.put(name, wrong)

    try:
        with contextlib.closing(subject.bench.waiting(folder, subject.budget(WAITING))) as waiting:
            (_isolated if subject.target_replaces else _replayed)(subject, note, cast("Kept", waiting))
    except BaseException:
        alone.close()
        raise
    return alone


def _isolated(subject: Subject, note: Callable[[str, Any, Any], None], waiting: Kept) -> None:
    bench = subject.bench
    partner = subject.partner  # target name to baseline name
    target_of = {base: target for target, base in partner.items()}
    wanted = frozenset(target_of)
    meeting = Meeting(waiting) if subject.together else None

    def of_baseline(_op: str, name: str, value: Any) -> Any:
        target = target_of.get(name)
        if target is None:
            return None
        exact = _seen(value)
        (meeting or waiting).put(name, exact)  # returns when it may be overwritten, as it is now
        return subject.held(target, exact)

    def of_target(_op: str, name: str, value: Any) -> Any:
        base = partner.get(name)
        if base is None:
            return None
        store = meeting or waiting
        exact = store.get(base)
        if exact is None:
            return None
        wrong = _seen(value)
        note(base, exact, wrong)
        put = (
            bench.kept(exact) if exact.shape == wrong.shape and bench.is_float(exact) == bench.is_float(wrong) else None
        )
        store.drop(base)
        return put

    def baseline() -> Any:
        return subject.operators()[0].run_replacing(subject.feeds, subject.showing(of_baseline), wanted)

    def target() -> Any:
        replacer = subject.operators()[1]
        showing = subject.showing(of_target)
        return None if replacer is None else replacer.run_replacing(subject.given, showing, frozenset(partner))

    if meeting is not None:
        run_both(meeting, baseline, target)
    else:
        baseline()
        target()


def _replayed(subject: Subject, note: Callable[[str, Any, Any], None], waiting: Kept) -> None:
    partner = subject.partner
    target_of = {base: target for target, base in partner.items()}

    def of_target(_op: str, name: str, value: Any, /) -> None:
        base = partner.get(name)
        if base is not None and base not in waiting:
            waiting.put(base, as_array(value, name=name))

    def of_baseline(_op: str, name: str, value: Any) -> Any:
        if name not in target_of:
            return None
        wrong = waiting.get(name)
        if wrong is None:
            return None
        exact = np.asarray(value)
        note(name, exact, wrong)
        put = np.array(wrong) if exact.shape == wrong.shape and same_kind(exact, wrong) else None
        waiting.drop(name)
        return put

    subject.target.run(subject.given, of_target, frozenset(partner))
    subject.operators()[0].run_replacing(subject.feeds, of_baseline, frozenset(target_of))


def _seen(value: Any) -> Any:
    """What a run shows, as an array where it is not a tensor of a device."""
    return value if isinstance(value, np.ndarray) or hasattr(value, "device") else np.asarray(value)


def same_kind(first: Array, second: Array) -> bool:
    """Whether one side's values may stand in the other's place."""
    return _floats(first) == _floats(second)


def _floats(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype.name in {"bfloat16", "float8_e4m3fn", "float8_e5m2"}


def measure(subject: Subject, name: str, exact: Any, wrong: Any, method: str) -> Introduced:
    """The numbers of one operator's two results."""
    bench = subject.bench
    if exact.shape != wrong.shape:
        size = math.prod(exact.shape)
        return Introduced(name=name, method=method, elements=size, flips=size)
    found = bench.compare(exact, wrong)
    size = found.base.elements
    if not bench.is_float(exact):
        return Introduced(name=name, method=method, elements=size, flips=found.mismatched)
    held_as = subject.held_as.get(name, "")
    error = relative_error(exact, wrong, found.base, largest_of(held_as), found.sqnr_db, bench.host)
    unit = subject.unit(name, found.base)
    typical = max(unit, subject.typical_unit)
    non_finite = found.target.nan > found.base.nan or found.target.inf > found.base.inf
    if method == "replayed" and any(map(subject.broken, subject.sources(name))):
        non_finite = False  # it was given NaN or Inf: what an operator makes of those is no loss of its own
    return Introduced(
        name=name,
        method=method,
        elements=size,
        rel_l2=error,
        max_abs=found.max_abs,
        unit=unit,
        units=None if error is None or not typical else error / typical,
        born_nan=max(0, found.target.nan - found.base.nan) if non_finite else 0,
        born_inf=max(0, found.target.inf - found.base.inf) if non_finite else 0,
    )


def relative_error(
    exact: Any,
    wrong: Any,
    stats: TensorStats,
    largest: float,
    sqnr_db: float | None,
    host: Callable[[Any], Array] = np.asarray,
) -> float | None:
    """L2 of the error over L2 of the exact result, where neither a mask nor an overflow stands; None where nothing is.

    stats: of ``exact``. largest: beyond it the target's type has no number. sqnr_db: of all finite pairs.
    """
    bound = min(largest, MASK)
    extreme = max(abs(stats.min or 0.0), abs(stats.max or 0.0))
    if extreme <= bound and not stats.inf and sqnr_db is not None:
        return math.inf if sqnr_db < -6165 else float(10 ** (-sqnr_db / 20))
    with np.errstate(all="ignore"):
        b, t = host(exact).astype(np.float64), host(wrong).astype(np.float64)
        fair = np.isfinite(b) & np.isfinite(t) & (np.abs(b) <= bound)
        size = float(np.sum(np.square(b[fair])))
        error = float(np.sum(np.square((t - b)[fair])))
    if not fair.any():
        return None
    if size == 0.0:
        return 0.0 if error == 0.0 else math.inf
    return math.sqrt(error / size)
