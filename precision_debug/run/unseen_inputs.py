"""The error on inputs that did not calibrate: on the very one that did, a quantised model is at its best.

Ranges that are taken from one input fit that input. Of several samples, or of a batch, part calibrates (see
``run.inputs``). Where all that is judged calibrated, both sides run on a few others: other random ones where the inputs
are random, else the user's own, varied within their own statistics. Where nothing can be run, nothing is proved.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import PrecisionDebugError
from ..explain import Subject
from ..feeds import FeedSet
from ..feeds.dtypes import is_float
from ..numbers.precisions import QUANTISED
from ..protocols import Feeds
from ..reasons import Reason, say
from ..records import Doubt, Explanation, RunSpec
from ..search.request import SearchRequest
from .comparing import Comparing
from .judging import judging_of
from .open_pair_run import OpenPair
from .searching.criterion import Sample
from .searching.held_out import held_out_feeds, is_random
from .searching.trials import outputs_of
from .side import OpenSide

__all__ = ["calibrates_on_compared", "tell_unseen", "variations"]

_OTHERS = 2
"""Inputs that are run: each costs a run of both sides."""

_NOISE, _SMALLER = 0.05, 0.9
"""Of an input's own standard deviation, what is added; and what another one is multiplied by."""

_TIMES = 3.0
"""Times the error on what calibrated, up to which another one's is the same error."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Unseen:
    """here: the error on the input that calibrated; there: on the others. passes: whether all do."""

    here: float
    there: Sequence[float]
    passes: bool

    @property
    def note(self) -> Reason:
        """For the first screen."""
        return say("calibrated_here", here=self.here, count=len(self.there), there=max(self.there))

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Why a pass on what calibrated proves little."""
        if self.passes or max(self.there) <= _TIMES * self.here:
            return ()
        values = {"here": self.here, "count": len(self.there), "there": max(self.there)}
        return (Doubt(code="off_on_others", values=values),)


def tell_unseen(work: Comparing, both: OpenPair, subject: Subject, explanation: Explanation | None) -> None:
    """Tell the error on inputs that did not calibrate, and what a pass lacks: where there are none, its proof."""
    base, target, feed_set = both.base, both.target, work.feed_set
    if subject.is_step or not (feed_set.halved or calibrates_on_compared(base, target, feed_set)):
        return
    found = _unseen_errors(work.spec, subject, explanation, base, target, feed_set)
    if found is not None:
        work.note(found.note)
        target.doubt(found.doubts)
    elif not feed_set.has_unseen:
        target.doubt((Doubt(code="only_calibrated"),))


def calibrates_on_compared(base: OpenSide, target: OpenSide, feed_set: FeedSet) -> bool:
    """Whether the ranges of the target were taken from the very inputs that it is judged on."""
    mode = target.opening.mode
    if mode is None or not mode.calibrates or feed_set.has_unseen:
        return False
    return not any(QUANTISED.search(meta.op_type) for meta in base.tensors)  # else the file brings its own ranges


def _unseen_errors(
    spec: RunSpec, subject: Subject, explanation: Explanation | None, base: OpenSide, target: OpenSide,
    feed_set: FeedSet,
) -> _Unseen | None:  # fmt: skip
    """None where nothing else can be run."""
    judging = judging_of(spec, subject, explanation, target.opening.precision)
    if judging is None:
        return None
    errors, passes = [], True
    with contextlib.suppress(PrecisionDebugError):
        for feeds, target_feeds in _others(spec, base, target, feed_set, subject.feeds):
            values = outputs_of(base.session, feeds, base.opening.label)
            other = Sample(feeds=feeds, target_feeds=target_feeds, values=values)
            got = outputs_of(target.session, target_feeds, target.opening.label)
            good, error, _ = judging.criterion.judge(other, got)
            errors.append(error)
            passes &= good
    return _Unseen(here=judging.error, there=errors, passes=passes) if errors else None


def _others(
    spec: RunSpec, base: OpenSide, target: OpenSide, feed_set: FeedSet, feeds: Feeds
) -> Sequence[tuple[Feeds, Feeds]]:
    if is_random(spec, SearchRequest(), feed_set):
        return held_out_feeds(spec, SearchRequest(), base.opening, target.opening, feed_set)[0][:_OTHERS]
    if feed_set.target is None:
        return [(varied, varied) for varied in variations(feeds)]
    found = [(varied, _as_fed(varied, feed_set)) for varied in variations(feeds)]
    return [(varied, theirs) for varied, theirs in found if theirs is not None]


def _as_fed(varied: Mapping[str, Any], feed_set: FeedSet) -> Mapping[str, Any] | None:
    """The target's own names and types; None where it is fed other shapes."""
    theirs = {}
    for name, value in feed_set.for_target().feeds[0].items():
        ours = varied.get(feed_set.names.get(name, name))
        if not isinstance(ours, np.ndarray) or ours.shape != np.shape(value):
            return None
        theirs[name] = ours.astype(value.dtype)
    return theirs


def variations(feeds: Feeds) -> Iterator[Mapping[str, Any]]:
    """The same input with some noise, and a little smaller; ids moved on by one; masks as they are."""
    for number in range(_OTHERS):
        random = np.random.default_rng(number)
        varied = {name: _varied(value, random, noised=number == 0) for name, value in feeds.items()}
        if any(varied[name] is not feeds[name] for name in feeds):
            yield varied


def _varied(value: Any, random: np.random.Generator, *, noised: bool) -> Any:
    if not isinstance(value, np.ndarray) or value.size < 4:
        return value
    if value.dtype.kind in "iu" and value.dtype.itemsize > 1:
        return _moved(value, 1 if noised else -1)
    if not (is_float(value.dtype) or value.dtype.kind in "iu") or not np.isfinite(value).all():
        return value
    low, high = value.min(), value.max()
    if np.isin(value, (low, high)).all():  # a mask, or a constant
        return value
    whole = value.dtype.kind in "iu"  # eight bits of a picture, say
    if not noised:
        smaller = value * _SMALLER
        return (smaller.round() if whole else smaller).astype(value.dtype)
    largest = max(abs(float(low)), abs(float(high)))  # in parts of it, no square and no sum leaves float64
    parts = value.astype(np.float64) / largest
    noise = _NOISE * parts.std() * random.standard_normal(value.shape)
    noisy = np.clip(parts + noise, parts.min(), parts.max()) * largest
    return (noisy.round() if whole else noisy).astype(value.dtype)


def _moved(ids: Any, places: int) -> Any:
    """Move the ids of each row on, in their order, so that they stay like those in use.

    Padding, counters and masks stay where they are."""
    values, counts = np.unique(ids, return_counts=True)
    rows = ids.reshape(-1, ids.shape[-1])
    if len(values) <= 2 or (np.diff(rows, axis=1) >= 0).all():
        return ids
    padding = values[counts.argmax()] if counts.max() > 1 else None
    moved = rows.copy()
    for row in moved:
        own = np.flatnonzero(row != padding) if padding is not None else np.arange(row.size)
        row[own] = np.roll(row[own], places)
    return moved.reshape(ids.shape)
