"""What decides whether something that was tried helps: the outputs of a comparison's inputs, and of other ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .. import registry
from ..errors import PrecisionDebugError
from ..explain import Subject, allowed_by
from ..feeds import FeedSet
from ..numbers.arrays import as_array
from ..protocols import Feeds
from ..records import Explanation, RunSpec
from ..search import ToKeep
from ..search.request import SearchRequest
from .searching.criterion import Criterion, Sample, parts_among
from .searching.held_out import held_out_feeds
from .searching.trials import outputs_of
from .side import OpenSide

__all__ = ["Judging", "StepFixes", "fixes_of_step", "further_samples", "judging_of"]


class StepFixes(Protocol):
    """What mends something else than a forward pass, and which of its outputs tell; behind the door "fixes"."""

    def tried_on_step(self, subject: Subject, explanation: Explanation, target: OpenSide) -> ToKeep | None:
        """What came of the setting that the first culprit asks for; None where it asks for none."""

    def wrong_outputs(self, subject: Subject, explanation: Explanation) -> Sequence[str]:
        """The outputs that are beyond their own bounds."""

    def tight(self, bounds: Iterable[float], otherwise: float) -> float:
        """The largest bound of the outputs whose error tells something; otherwise: where there are none."""


def fixes_of_step(subject: Subject) -> StepFixes | None:
    """What mends a training step; None of a forward pass, and where no product does."""
    if not subject.is_step or "step" not in registry.behind("fixes"):
        return None
    found: StepFixes = registry.opened("fixes", "step")
    return found


_OTHERS = 2
"""Other inputs that a fix is run on: more than one, so that it is not one lucky input."""


@dataclass(frozen=True, kw_only=True)
class Judging:
    """first: the comparison's own inputs. got: what the target gave there, copied; passes, error: what it came to."""

    criterion: Criterion
    first: Sample
    got: Mapping[str, Any]
    passes: bool
    error: float


def judging_of(spec: RunSpec, subject: Subject, explanation: Explanation | None, precision: str) -> Judging | None:
    """None where not every output is there on both sides. precision: the target's."""
    pairs = {row.name: row.target_name or row.name for row in subject.rows if row.is_output and row.comparison}
    allowed, bounds = allowed_by(explanation, precision), {}
    step = fixes_of_step(subject)
    if step is not None and explanation is not None:  # the others have bounds of their own, which they keep
        pairs = {name: pairs[name] for name in step.wrong_outputs(subject, explanation)}
        bounds = {name: explanation.allowed_at.get(name, allowed) for name in pairs}
        allowed = step.tight(bounds.values(), allowed)
    criterion = Criterion.of(SearchRequest(), spec.tolerance, pairs, allowed, bounds, parts_among(subject.rows))
    first = Sample(feeds=subject.feeds, target_feeds=subject.feeds_of_target, values=_copied(subject.outputs, pairs))
    got = _copied(subject.target_outputs, pairs.values())
    if not pairs or not set(pairs.values()) <= got.keys() or not set(pairs) <= first.values.keys():
        return None
    passes, error, _ = criterion.judge(first, got)
    return Judging(criterion=criterion, first=first, got=got, passes=passes, error=error)


def further_samples(
    spec: RunSpec, base: OpenSide, target: OpenSide, criterion: Criterion, feed_set: FeedSet, sample: int
) -> Iterator[tuple[Sample, float | None]]:
    """Further samples, each with its error where nothing is kept; up to the first that a session refuses."""
    with contextlib.suppress(PrecisionDebugError):
        for fed in _others(spec, base, target, feed_set, sample):
            values = outputs_of(base.session, fed[0], base.opening.label)
            other = Sample(feeds=fed[0], target_feeds=fed[1], values=values)
            yield other, criterion.judge(other, outputs_of(target.session, fed[1], target.opening.label))[1]


def _others(
    spec: RunSpec, base: OpenSide, target: OpenSide, feed_set: FeedSet, sample: int
) -> Sequence[tuple[Feeds, Feeds]]:
    """Further inputs, for both sides: the user's own, or other random ones where they are random."""
    if len(feed_set.feeds) > 1:
        theirs = feed_set.for_target().feeds
        numbers = [number for number in range(min(len(feed_set.feeds), _OTHERS + 1)) if number != sample][:_OTHERS]
        return [(feed_set.feeds[number], theirs[number]) for number in numbers]
    return held_out_feeds(spec, SearchRequest(), base.opening, target.opening, feed_set)[0][:_OTHERS]


def _copied(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Of outputs, those with these names: the others may lie on a device, and are many in a training step."""
    return {name: np.array(as_array(values[name], name=name)) for name in names if name in values}
