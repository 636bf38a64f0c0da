"""Operators that give another result each time: random ones, and sums whose order changes from run to run."""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..numbers.arrays import as_array
from ..protocols import Workbench
from ..reasons.causes import CAUSES
from ..records import Culprit
from .effects import measure_error_at
from .introduced import WAITING
from .subject import Subject
from .workbench import HostWorkbench

__all__ = ["Unsteady", "blame_unsteady", "find_unsteady"]

_ORDINARY = 8.0
"""Units of rounding up to which an operator's own error makes it no culprit."""

_AS_MUCH = 0.3
"""Two runs of one side that differ by this part of the error between the sides differ as much."""


@dataclass(frozen=True, kw_only=True)
class Unsteady:
    """The first tensor, in execution order, that differs from itself. between: relative L2 of one run against the next.

    explains: the worst output differs as much between two runs as between the two sides.
    """

    name: str
    between: float
    explains: bool


def find_unsteady(
    subject: Subject, at: str, cumulative: float, folder: Path, only: Collection[str] | None = None,
    again: Any = None,
) -> Unsteady | None:  # fmt: skip
    """Run the target once more, and the baseline where the target is steady; None where both are. Where an output is
    not what the comparison's run gave, each twice, to find the first tensor that differs from itself.

    at: the output where errors are judged, whose relative L2 between the sides is ``cumulative``. only: look at these
    (None: at everything that was compared). again: what another run of the baseline gave there, where there was one.
    Raises BackendError.
    """
    names = frozenset(subject.row_of if only is None else set(only) & set(subject.row_of))
    target_of = {base: target for target, base in subject.partner.items()}
    for is_target in (True, False):
        if _is_same_again(subject, is_target, target_of.get(at, "") if is_target else at, cumulative, again):
            continue
        own = frozenset(target_of[name] for name in names) if is_target else names
        changes = _changes(subject, is_target, own, folder)
        by_base = {subject.partner.get(name, name) if is_target else name: error for name, error in changes.items()}
        if by_base:
            first = min(by_base, key=lambda name: subject.order.get(name, 0))
            return Unsteady(name=first, between=by_base[first], explains=by_base.get(at, 0.0) > _AS_MUCH * cumulative)
    return None


def blame_unsteady(
    subject: Subject, found: tuple[Culprit, ...], once: Unsteady | None, confidence: str, at: str
) -> tuple[Culprit, ...]:
    """Return the culprits, where the first unsteady operator takes the place of what follows from it."""
    if once is None or not once.explains or once.name not in subject.row_of:
        return found
    row = subject.row_of[once.name]
    after = subject.descendants(once.name)
    own = Culprit(
        name=once.name,
        node=subject.meta_of[once.name].node if once.name in subject.meta_of else "",
        op_types=tuple(meta.op_type for meta in subject.region_of.get(once.name, ())) or (row.op_type,),
        cause="random",
        evidence={"between": once.between},
        confidence=confidence,
        at=at,
        fails_first=once.name,
        keep=(once.name,),
    )
    others = (one for one in found if one.name != once.name and not _follows(one, after))
    return (own, *others)


def _follows(one: Culprit, after: Collection[str]) -> bool:
    """Return whether a culprit is none but for the random operator: it stands behind it, or what its rounding does,
    whoever enlarges that, was measured in runs that differ by themselves."""
    known = CAUSES[one.cause]
    ordinary = (known.unproven or known.enlarged) and (one.units or 0.0) < _ORDINARY
    return ordinary or (one.name in after and known.unproven)


def _is_same_again(subject: Subject, is_target: bool, at: str, cumulative: float, again: Any) -> bool:
    """Return whether another run of a side gives, at an output, what the comparison's run gave, or nearly so."""
    session, feeds = (subject.target, subject.feeds_of_target) if is_target else (subject.baseline, subject.feeds)
    outputs = subject.target_outputs if is_target else subject.outputs
    if at not in outputs:
        return False
    replacer = session.replacer if session.replacer is not None and session.replacer.replaces else None
    bench = subject.bench if replacer is not None else HostWorkbench()
    seen: list[Any] = [] if is_target or again is None else [again]

    def keep(_op: str, _name: str, value: Any) -> None:
        seen.append(bench.kept(value if replacer is not None else as_array(value)))

    if not seen and replacer is not None:
        replacer.run_replacing(feeds, subject.showing(keep), frozenset([at]))
    elif not seen:
        session.run(feeds, keep, frozenset([at]))
    before = bench.returned(outputs, at)
    if not seen or before.shape != seen[0].shape:
        return False
    return _measure_run_difference(bench, before, seen[0]) <= _AS_MUCH * cumulative


def _measure_run_difference(bench: Workbench, before: Any, now: Any) -> float:
    """Return the relative L2, or the share of differing elements where that is not a number."""
    numbers = bench.compare(before, now)
    if numbers.identical or not (numbers.mismatched or numbers.max_abs):
        return 0.0
    error = measure_error_at(bench, before, now)
    return error if error is not None else (numbers.mismatched or 0) / numbers.base.elements


def _changes(subject: Subject, is_target: bool, names: Collection[str], folder: Path) -> dict[str, float]:
    """Return the relative L2 of a side's second run against its first, of the tensors that are not the same."""
    session = subject.target if is_target else subject.baseline
    feeds = subject.feeds_of_target if is_target else subject.feeds
    replacer = session.replacer if session.replacer is not None and session.replacer.replaces else None
    bench = subject.bench if replacer is not None else HostWorkbench()
    found: dict[str, float] = {}
    with contextlib.closing(bench.waiting(folder, subject.budget(WAITING))) as first:

        def keep(_op: str, name: str, value: Any) -> None:
            if name not in seen:
                seen.add(name)
                first.put(name, value if replacer is not None else as_array(value, name=name))

        def hold_against(_op: str, name: str, value: Any) -> None:
            before, now = first.get(name), value if replacer is not None else as_array(value, name=name)
            if before is None or name in found:
                return
            difference = _measure_run_difference(bench, before, now)
            if difference:
                found[name] = difference

        seen: set[str] = set()
        for hook in (keep, hold_against):
            if replacer is not None:
                replacer.run_replacing(feeds, subject.showing(hook), names)  # the session that is open already
            else:
                session.run(feeds, hook, names)
    return found
