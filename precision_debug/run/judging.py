"""Decide whether something that was tried helps: on a comparison's inputs, and on ones that were held out."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from .. import registry
from ..errors import InputError, PrecisionDebugError
from ..explain import Subject, bound_of
from ..feeds import FeedSet
from ..numbers.arrays import as_array
from ..protocols import Feeds
from ..reasons import NOTHING, Reason, say
from ..records import Explanation, RunSpec
from ..search.fix import ToKeep
from ..search.request import SearchRequest
from ..settings.options import parse_allowed_drop
from .criterion import Criterion, Sample, list_lost, with_drop
from .inputs import load_feeds
from .plan import Opening, RunPlan
from .side import OpenSide
from .trials import run_outputs

__all__ = [
    "Judging",
    "Pair",
    "does_metric_ask",
    "find_step_fixes",
    "is_random",
    "iterate_further_samples",
    "make_held_out_feeds",
    "make_judging",
]


# Inputs that a search does not see, so that what it finds is no accident of those that it does.

_SEEDS = 5
"""Random inputs of a portion, where there is no unseen sample."""

Pair = tuple[dict[str, Any], dict[str, Any]]


def is_random(spec: RunSpec, asked: SearchRequest, feed_set: FeedSet) -> bool:
    """Return whether further inputs are made as the ones given were."""
    return not asked.held_out and not spec.inputs and feed_set.source.startswith("seeded random")


def make_held_out_feeds(
    spec: RunSpec, asked: SearchRequest, baseline: Opening, target: Opening, feed_set: FeedSet, *, portion: int = 0
) -> tuple[list[Pair], Reason]:
    """For both sides: the user's own, or other random ones where the inputs are random; and why there are none.

    portion: of random ones, which of ever more.

    Raises InputError or ModelError.
    """
    plan = RunPlan(baseline=baseline, target=target)
    if asked.held_out:
        more = load_feeds(dataclasses.replace(spec, inputs=asked.held_out), plan, ())
        return list(zip(more.feeds, more.for_target().feeds, strict=True)), NOTHING
    if not is_random(spec, asked, feed_set):
        return [], say("not_held_out")
    found: list[Pair] = []
    for step in range(1 + portion * _SEEDS, 1 + (portion + 1) * _SEEDS):
        other = dataclasses.replace(spec, seed=(spec.seed + step) % 2**63)
        fresh = load_feeds(other, plan, ())
        if any(fresh.feeds[0].keys() != feeds.keys() for feeds in feed_set.feeds):
            raise InputError("other random inputs have other names", where="--held_out")
        found.append((fresh.feeds[0], fresh.for_target().feeds[0]))
    return found, NOTHING


# What decides whether something that was tried helps: the outputs of a comparison's inputs, and of other ones.

class StepFixes(Protocol):
    """What mends something else than a forward pass, and which of its outputs tell; behind the door "fixes"."""

    def try_on_step(self, subject: Subject, explanation: Explanation, target: OpenSide) -> ToKeep | None:
        """Return what came of the setting that the first culprit asks for; None where it asks for none."""

    def list_wrong_outputs(self, subject: Subject, explanation: Explanation) -> Sequence[str]:
        """Return the outputs that are beyond their own bounds."""

    def largest_telling_bound(self, bounds: Iterable[float], otherwise: float) -> float:
        """Return the largest bound of the outputs whose error tells something; otherwise: where there are none."""


def find_step_fixes(subject: Subject) -> StepFixes | None:
    """Return what mends a training step; None of a forward pass, and where no product does."""
    if not subject.is_step or "step" not in registry.list_behind_door("fixes"):
        return None
    found: StepFixes = registry.import_from_door("fixes", "step")
    return found


_OTHERS = 2
"""Other inputs that a fix is run on: more than one, so that it is not one lucky input."""


@dataclass(frozen=True, kw_only=True)
class Judging:
    """first: the comparison's own inputs. got: what the target gave there, copied; passes, error, outputs: what it
    came to (see Verdict)."""

    criterion: Criterion
    first: Sample
    got: Mapping[str, Any]
    passes: bool
    error: float
    outputs: float | None = None


def does_metric_ask(spec: RunSpec, explanation: Explanation | None) -> bool:
    """Return whether a metric of the user's is to say who is named: it has a bound, and nobody's error names anyone."""
    nobody = explanation is None or not explanation.culprits
    return bool(spec.metric and spec.metric_drop) and not spec.tolerance.given and nobody


def make_judging(
    spec: RunSpec, subject: Subject, explanation: Explanation | None, precision: str, labels: Any = None
) -> Judging | None:
    """None where not every output is there on both sides. precision: the target's. labels: of the sample, for the
    user's metric, where that asks. Raises UsageError of a metric that needs all samples at once."""
    pairs = {row.name: row.target_name or row.name for row in subject.rows if row.is_output and row.comparison}
    allowed, bounds = bound_of(explanation, precision), {}
    step = find_step_fixes(subject)
    if step is not None and explanation is not None:  # the others have bounds of their own, which they keep
        pairs = {name: pairs[name] for name in step.list_wrong_outputs(subject, explanation)}
        bounds = {name: explanation.allowed_at.get(name, allowed) for name in pairs}
        allowed = step.largest_telling_bound(bounds.values(), allowed)
    first = Sample(
        feeds=subject.feeds, target_feeds=subject.feeds_of_target, values=_copy_values(subject.outputs, pairs),
        labels=labels,
    )  # fmt: skip
    asked = SearchRequest()
    if does_metric_ask(spec, explanation):
        asked = with_drop(SearchRequest(on=spec.metric, drop=spec.metric_drop), [*pairs], [first])
        allowed = parse_allowed_drop(asked.drop)[0]
    criterion = Criterion.of(asked, spec.tolerance, pairs, allowed, bounds, list_lost(subject.rows))
    got = _copy_values(subject.target_outputs, pairs.values())
    if not pairs or not set(pairs.values()) <= got.keys() or not set(pairs) <= first.values.keys():
        return None
    found = criterion.judge(first, got)
    return Judging(
        criterion=criterion, first=first, got=got, passes=found.passes, error=found.error, outputs=found.outputs
    )


def iterate_further_samples(
    spec: RunSpec, base: OpenSide, target: OpenSide, criterion: Criterion, feed_set: FeedSet, sample: int,
    labels: Callable[[int], Any] = lambda _sample: None,
) -> Iterator[tuple[Sample, float | None]]:  # fmt: skip
    """Further samples, each with its error where nothing is kept; up to the first that a session refuses. labels: of a
    sample of the feeds, where a metric judges: then inputs that have none are left out."""
    if criterion.metric is not None and len(feed_set.feeds) < 2:
        return
    with contextlib.suppress(PrecisionDebugError):
        for number, fed in _make_other_inputs(spec, base, target, feed_set, sample):
            values = run_outputs(base.session, fed[0], base.opening.label)
            got = run_outputs(target.session, fed[1], target.opening.label)
            other = Sample(feeds=fed[0], target_feeds=fed[1], values=values, labels=labels(number))
            other = criterion.with_lost(other, got)
            yield other, criterion.judge(other, got).error


def _make_other_inputs(
    spec: RunSpec, base: OpenSide, target: OpenSide, feed_set: FeedSet, sample: int
) -> Sequence[tuple[int, tuple[Feeds, Feeds]]]:
    """Further inputs, for both sides: the user's own, or other random ones where they are random; each numbered."""
    if len(feed_set.feeds) > 1:
        theirs = feed_set.for_target().feeds
        numbers = [number for number in range(min(len(feed_set.feeds), _OTHERS + 1)) if number != sample][:_OTHERS]
        return [(number, (feed_set.feeds[number], theirs[number])) for number in numbers]
    made = make_held_out_feeds(spec, SearchRequest(), base.opening, target.opening, feed_set)[0]
    return list(enumerate(made[:_OTHERS]))


def _copy_values(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Of outputs, those with these names: the others may lie on a device, and are many in a training step."""
    return {name: np.array(as_array(values[name], name=name)) for name in names if name in values}
