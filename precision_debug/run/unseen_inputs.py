"""The error on inputs that did not calibrate: on the very one that did, a quantised model is at its best.

Ranges that are taken from one input fit that input. So where a mode calibrates on what it is then judged on, both sides
run on a few others: the user's that calibrated nothing, other random ones where the inputs are random, else the user's
own, varied within their own statistics.
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
from ..numbers.precisions import QUANTISED
from ..protocols import Feeds
from ..reasons import Reason, say
from ..records import Doubt, Explanation, RunSpec
from ..search.request import SearchRequest
from .judging import judging_of
from .searching.criterion import Sample
from .searching.held_out import held_out_feeds, is_random
from .searching.trials import outputs_of
from .side import CALIBRATE, OpenSide

__all__ = ["UnseenErrors", "unseen_errors"]

_OTHERS = 2
"""Inputs that are run: each costs a run of both sides."""

_NOISE, _SMALLER = 0.05, 0.9
"""Of an input's own standard deviation, what is added; and what another one is multiplied by."""

_TIMES = 3.0
"""Times the error on what calibrated, up to which another one's is the same error."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class UnseenErrors:
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


def unseen_errors(
    spec: RunSpec, subject: Subject, explanation: Explanation, base: OpenSide, target: OpenSide, feed_set: FeedSet
) -> UnseenErrors | None:
    """None where nothing calibrated on what was compared, or nothing else can be run."""
    mode = target.opening.mode
    if mode is None or not mode.calibrates or subject.is_step or subject.two_files:
        return None
    if any(QUANTISED.search(meta.op_type) for meta in base.tensors):
        return None  # the file brings its own ranges
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
    return UnseenErrors(here=judging.error, there=errors, passes=passes) if errors else None


def _others(
    spec: RunSpec, base: OpenSide, target: OpenSide, feed_set: FeedSet, feeds: Feeds
) -> Sequence[tuple[Feeds, Feeds]]:
    count = len(feed_set.feeds)
    if count > CALIBRATE:
        theirs = feed_set.for_target().feeds
        return [(feed_set.feeds[number], theirs[number]) for number in range(CALIBRATE, count)[:_OTHERS]]
    if is_random(spec, SearchRequest(), feed_set):
        return held_out_feeds(spec, SearchRequest(), base.opening, target.opening, feed_set)[0][:_OTHERS]
    if feed_set.target is not None or feed_set.names:
        return []
    return [(varied, varied) for varied in _variations(feeds)]


def _variations(feeds: Feeds) -> Iterator[Mapping[str, Any]]:
    """The same input with some noise, and a little smaller; what is no measured quantity (ids, masks) as it is."""
    for number in range(_OTHERS):
        random = np.random.default_rng(number)
        varied = {name: _varied(value, random, noised=number == 0) for name, value in feeds.items()}
        if any(varied[name] is not feeds[name] for name in feeds):
            yield varied


def _varied(value: Any, random: np.random.Generator, *, noised: bool) -> Any:
    if not isinstance(value, np.ndarray) or value.dtype.kind != "f" or value.size < 4 or not np.isfinite(value).all():
        return value
    low, high = value.min(), value.max()
    if np.isin(value, (low, high)).all():  # a mask, or a constant
        return value
    if not noised:
        return (value * _SMALLER).astype(value.dtype)
    largest = max(abs(float(low)), abs(float(high)))  # in parts of it, no square and no sum leaves float64
    parts = value.astype(np.float64) / largest
    noise = _NOISE * parts.std() * random.standard_normal(value.shape)
    return (np.clip(parts + noise, parts.min(), parts.max()) * largest).astype(value.dtype)
