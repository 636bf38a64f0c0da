"""What one operator's error does by itself: put into the baseline's run, alone, and carried to where it is judged."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..records import Effect
from .introduced import MASK, Alone
from .subject import Subject

__all__ = ["Sink", "carried", "error_at", "plain_sinks", "sinks_of"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Sink:
    """A tensor where effects are judged. squared: the squared error that the comparison found there.

    size: the baseline's squared L2. elements: all of them. non_finite: those that are NaN or Inf in the target alone.
    is_output: of the model. flips: differing elements of a tensor without floats.
    """

    name: str
    squared: float
    size: float
    elements: int = 0
    non_finite: int = 0
    is_output: bool = False
    flips: int | None = None

    @property
    def rel_l2(self) -> float:
        """Relative L2 error that the comparison found; inf where the baseline is 0 everywhere."""
        if self.squared == 0:
            return 0.0
        return math.sqrt(self.squared / self.size) if self.size else math.inf

    @property
    def lost(self) -> float:
        """The squared error with what is not finite: each such element is wrong by its own size, about."""
        return self.squared + (self.size * self.non_finite / self.elements if self.elements else 0.0)


def sinks_of(subject: Subject, first_failing: str) -> tuple[Sink, ...]:
    """The model's outputs, and the first tensor that is out of bounds ("" where none is)."""
    found = []
    for row in subject.row_of.values():
        numbers = row.comparison
        if numbers is None or not (row.is_output or row.name == first_failing):
            continue
        count = numbers.base.elements
        is_float = numbers.base.rms is not None and numbers.rmse is not None and "float" in numbers.base.dtype
        found.append(
            Sink(
                name=row.name,
                squared=(numbers.rmse or 0.0) ** 2 * count if is_float else 0.0,
                size=(numbers.base.rms or 0.0) ** 2 * count if is_float else 0.0,
                elements=count,
                non_finite=max(0, numbers.target.nan - numbers.base.nan)
                + max(0, numbers.target.inf - numbers.base.inf),
                is_output=row.is_output,
                flips=None if is_float else numbers.mismatched,
            )
        )
    return tuple(found)


def _more(base: int, target: int) -> int:
    return max(0, target - base)


def plain_sinks(subject: Subject, candidates: Sequence[str], sinks: Sequence[Sink]) -> dict[str, Array]:
    """The sinks' values in an undisturbed run of the baseline."""
    return _run(subject, {}, candidates, sinks)


def carried(
    subject: Subject, alone: Alone, candidates: Sequence[str], sinks: Sequence[Sink], plain: Mapping[str, Array],
    seconds: float,
) -> dict[str, tuple[Effect, ...]]:  # fmt: skip
    """For each candidate, in order, its effect at each sink; those that ``seconds`` do not suffice for are left out.

    plain: the sinks in an undisturbed run. At least the first four are tried. Each costs a run of the baseline.
    """
    found: dict[str, tuple[Effect, ...]] = {}
    begun = time.monotonic()
    for number, name in enumerate(candidates):
        if number >= 4 and time.monotonic() - begun > seconds:
            break
        exact, wrong = alone.exact.get(name), alone.wrong.get(name)
        if exact is None or wrong is None or exact.shape != wrong.shape:
            continue
        got = _run(subject, {name: (exact, wrong)}, candidates, sinks)
        found[name] = tuple(_effect(sink, plain.get(sink.name), got.get(sink.name)) for sink in sinks)
    return found


def _run(
    subject: Subject, errors: Mapping[str, tuple[Array, Array]], candidates: Iterable[str], sinks: Sequence[Sink]
) -> dict[str, Array]:
    """The sinks of a baseline run in which some operators' errors are added to their results."""
    wanted = {sink.name for sink in sinks}
    seen: dict[str, Array] = {}

    def replace(_op: str, name: str, value: Any) -> Any:
        new = None
        if name in errors:
            new = _with_error(np.asarray(value), *errors[name])
        if name in wanted:
            seen[name] = np.array(value if new is None else new)
        return new

    # the same names each time, so that a session that is built for its taps is built once
    subject.operators()[0].run_replacing(subject.feeds, replace, frozenset(candidates) | wanted)
    return seen


def _with_error(value: Array, exact: Array, wrong: Array) -> Array | None:
    if value.shape != exact.shape:
        return None
    if value.dtype.kind != "f":
        if wrong.dtype.kind != value.dtype.kind:
            return None
        return np.where(wrong != exact, wrong, value).astype(value.dtype)  # only what this operator itself decided
    with np.errstate(all="ignore"):
        error = wrong.astype(value.dtype) - exact.astype(value.dtype)
        added: Array = value + np.where(np.isfinite(exact), error, 0)
    lost = ~np.isfinite(wrong) & np.isfinite(exact)
    # 0 is 0: what vanished leaves nothing of a value that is not quite the one that was measured
    lost |= (wrong == 0) & (exact != 0) & (np.abs(value) / 4 <= np.abs(exact))
    if lost.any():
        added = np.where(lost, wrong.astype(value.dtype), added)
    return np.ascontiguousarray(added, dtype=value.dtype)


def _effect(sink: Sink, plain: Array | None, got: Array | None) -> Effect:
    if plain is None or got is None or plain.shape != got.shape:
        return Effect(at=sink.name, share=0.0 if plain is not None and got is None else 1.0)
    if plain.dtype.kind != "f":
        flips = int(np.sum(plain != got))
        return Effect(at=sink.name, share=min(1.0, flips / sink.flips) if sink.flips else 0.0, non_finite=0)
    with np.errstate(all="ignore"):
        b, t = plain.astype(np.float64), got.astype(np.float64)
        born = int(np.sum(~np.isfinite(t) & np.isfinite(b)))
        fair = np.isfinite(b) & np.isfinite(t)
        squared = float(np.sum(np.square((t - b)[fair])))
        size = float(np.sum(np.square(b[np.isfinite(b)])))
        if not sink.non_finite:  # what is lost here, and only off in the target, counts as wrong by its own size
            squared += float(np.sum(np.square(b[~np.isfinite(t) & np.isfinite(b)])))
    if born and sink.non_finite:
        return Effect(at=sink.name, share=min(1.0, born / sink.non_finite), non_finite=born)
    rel = math.sqrt(squared / size) if size else (0.0 if squared == 0 else math.inf)
    share = min(1.0, squared / sink.lost) if sink.lost > 0 else 0.0
    return Effect(at=sink.name, share=share, rel_l2=rel, non_finite=born)


def error_at(plain: Array, got: Array) -> float | None:
    """Relative L2 error over the elements that are finite on both sides, masks left out; None where there is none."""
    if plain.shape != got.shape or plain.dtype.kind != "f":
        return None
    with np.errstate(all="ignore"):
        b, t = plain.astype(np.float64), got.astype(np.float64)
        fair = np.isfinite(b) & np.isfinite(t) & (np.abs(b) < MASK)
        squared, size = float(np.sum(np.square((t - b)[fair]))), float(np.sum(np.square(b[fair])))
    return math.sqrt(squared / size) if size else None
