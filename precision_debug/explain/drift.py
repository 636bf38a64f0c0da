"""A loop whose rounding is ordinary in each iteration, and always to one side: of its own state, not of the baseline's.

A sum that a narrow type stops is the example: of the baseline's state an iteration's rounding is off to either side, of
the target's own, which no longer moves, each is off by the whole step. So each operator of the body is replayed on what
the target gave it, and what all of its iterations add is carried through the baseline together.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from ..pairing.align import stem
from ..records import Culprit
from .bounds import BEYOND
from .criteria import HALF
from .effects import Sink, squares_of
from .introduced import WAITING, Kept, replayed
from .operators import BODIES, plain_type
from .subject import Subject

__all__ = ["drifting"]

_ITERATIONS = 16
"""Iterations below which ordinary roundings do not add up to more than rounding everywhere does. Set on the loops of
tests/planted/third_onnx.py."""

_APART = 3
"""Operators from one state of a loop that is written out to the next."""

_SIDED = 0.25
"""Part of the squared sum that errors of one side would have; of random ones it is one over their number."""

_MOST_BYTES = 64 << 20
"""Of all tensors of bodies, up to which they are looked at: two of each are held in memory."""

_OPERATORS = 6
"""Of bodies that are tried, those off the most first: each costs a run of the baseline."""


def drifting(subject: Subject, sinks: Sequence[Sink], plain: dict[str, Any], folder: Path) -> tuple[Culprit, ...]:
    """The operator of a body that makes over half of the squared error at an output, all its iterations together; none
    where there is no such one. plain: the sinks in an undisturbed run of the baseline. Raises BackendError."""
    groups = _groups(subject)
    size = sum(row.comparison.base.elements * 8 for names in groups.values() for name in names
               if (row := subject.row_of[name]).comparison is not None)  # fmt: skip
    outputs = [sink for sink in sinks if sink.is_output and sink.squared and not sink.non_finite]
    if not groups or not outputs or size > _MOST_BYTES or subject.bench.on_device:
        return ()
    worst = max(outputs, key=lambda sink: sink.rel_l2)
    kept: dict[str, tuple[Any, Any]] = {}
    wanted = {name for names in groups.values() for name in names}

    def note(name: str, exact: Any, wrong: Any) -> None:
        if name in wanted and exact.shape == wrong.shape:
            kept[name] = np.array(exact), np.array(wrong)

    with contextlib.closing(subject.bench.waiting(folder, subject.budget(WAITING))) as waiting:
        replayed(subject, note, cast("Kept", waiting))
    worst_first = sorted(groups.values(), key=lambda names: -sum(_off(*kept[name]) for name in names if name in kept))
    for names in worst_first[:_OPERATORS]:
        errors = {name: kept[name] for name in names if name in kept}
        if stem(names[0]) == names[0] and not _one_sided(list(errors.values())):
            continue
        share = _share(subject, errors, worst, plain.get(worst.name))
        if share >= HALF:
            return (_culprit(subject, names, share, worst.name),)
    return ()


def _groups(subject: Subject) -> dict[str, list[str]]:
    """Tensors of floats that a body gives in many iterations, by the name that they share, and those of a chain, by
    that of its last."""
    found: dict[str, list[str]] = {}
    chains: dict[str, list[str]] = {}
    for name in sorted(subject.row_of, key=lambda one: subject.order.get(one, 0)):
        numbers = subject.row_of[name].comparison
        if numbers is None or "float" not in numbers.base.dtype or subject.only_moves(name):
            continue
        if stem(name) != name:
            found.setdefault(stem(name), []).append(name)
        else:
            before = _state_before(subject, name)
            chains[name] = [*chains.pop(before, [before]), name] if before else [name]
    return {key: names for key, names in {**found, **chains}.items() if len(names) >= _ITERATIONS}


def _state_before(subject: Subject, name: str) -> str:
    """The tensor of the same kind and shape that one is made of, in a few operators at most; "" where there is none."""
    def kind(one: str) -> tuple[Any, ...]:
        row = subject.row_of[one]
        return row.op_type, row.comparison.base.shape if row.comparison is not None else ()

    near = [name]
    for _ in range(_APART):
        near = [source for one in near for source in subject.sources(one)]
        if found := [one for one in near if kind(one) == kind(name)]:
            return max(found, key=lambda one: subject.order.get(one, 0))
    return ""


def _one_sided(errors: Sequence[tuple[Any, Any]]) -> bool:
    """Whether most iterations are off to the same side, element by element; what only rounds is so by chance."""
    with np.errstate(all="ignore"):
        off = [np.asarray(wrong, np.float64) - np.asarray(exact, np.float64) for exact, wrong in errors]
        together = float(np.sum(np.square(np.sum(off, axis=0))))
        apart = sum(float(np.sum(np.square(one))) for one in off)
    return bool(apart) and together >= _SIDED * len(off) * apart


def _off(exact: Any, wrong: Any) -> float:
    with np.errstate(all="ignore"):
        error = np.square(wrong.astype(np.float64) - exact)
    return float(error[np.isfinite(error)].sum())


def _share(subject: Subject, errors: dict[str, tuple[Any, Any]], sink: Sink, plain: Any) -> float:
    bench = subject.bench
    seen: list[Any] = []

    def replace(_op: str, name: str, value: Any) -> Any:
        new = bench.with_error(value, *errors[name]) if name in errors else None
        if name == sink.name:
            seen.append(bench.kept(value if new is None else new))
        return new

    subject.operators()[0].run_replacing(subject.feeds, replace, frozenset(errors) | {sink.name})
    if not seen or plain is None or seen[0].shape != plain.shape:
        return 0.0
    return squares_of(bench.compare(plain, seen[0]))[0] / sink.squared


def _culprit(subject: Subject, names: Sequence[str], share: float, at: str) -> Culprit:
    ordered = sorted(names, key=lambda name: subject.order.get(name, 0))
    out = [name for name in ordered if subject.far(_error(subject, name), _units(subject, name), BEYOND)]
    first = out[0] if out else ordered[-1]
    place = ordered.index(first)
    before, after = (ordered[place - 1], first) if place else (first, ordered[1])
    state = subject.descendants(before) & subject.ancestors(after)
    turn = first.rpartition("@")[2]
    meta = subject.meta_of.get(first)
    return Culprit(
        name=first,
        node=meta.node if meta is not None else "",
        op_types=(subject.row_of[first].op_type,),
        cause="drift",
        evidence={"depth": len(names), "share": share},
        confidence="simulated" if subject.simulation else "replayed",
        share=share,
        at=at,
        fails_first=first,
        keep=(first, *sorted({f"{stem(name)}@{turn}" for name in state} - {first}), *_handed_on(subject, ordered[-1])),
    )


def _handed_on(subject: Subject, last: str) -> list[str]:
    """What the loop gives of its state: rounded there, the sum would still be what it should be, and coarse."""
    after = subject.descendants(last)
    bodies = [name for name in after if plain_type(subject.row_of[name].op_type) in BODIES]
    return sorted(bodies, key=lambda name: subject.order.get(name, 0))[:1]


def _error(subject: Subject, name: str) -> float | None:
    return subject.row_of[name].relative_l2


def _units(subject: Subject, name: str) -> float | None:
    return subject.error_units(subject.row_of[name])
