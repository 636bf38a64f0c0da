"""Decide whether something that was tried helps: on a comparison's inputs, on ones that were held out, and in the
command that has it pasted."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from .. import events, registry
from ..errors import InputError, PrecisionDebugError
from ..explain import Subject, bound_of
from ..feeds import FeedSet
from ..numbers.arrays import as_array
from ..protocols import Feeds
from ..reasons import NOTHING, Reason, say
from ..records import Culprit, Explanation, ModelFiles, Row, RunSpec, Status
from ..search.fix import SearchRequest, ToKeep
from ..settings.options import parse_allowed_drop
from .criterion import Criterion, Sample, Verdict, list_lost, with_drop
from .inputs import load_feeds
from .journal import read_events
from .plan import Opening, RunPlan
from .side import OpenSide
from .trials import run_outputs

__all__ = [
    "CompareAgain", "Judging", "Pair", "Pasted", "as_pasted", "does_metric_ask", "find_step_fixes", "is_open",
    "is_random", "iterate_further_samples", "make_held_out_feeds", "make_judging", "read_pasted",
]  # fmt: skip


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
    """first: the comparison's own inputs. got: what the target gave there, copied; found: what it came to."""

    criterion: Criterion
    first: Sample
    got: Mapping[str, Any]
    found: Verdict


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
    return Judging(criterion=criterion, first=first, got=got, found=criterion.judge(first, got))


def iterate_further_samples(
    spec: RunSpec, base: OpenSide, target: OpenSide, criterion: Criterion, feed_set: FeedSet, sample: int,
    labels: Callable[[int], Any] = lambda _sample: None,
) -> Iterator[tuple[Sample, float]]:  # fmt: skip
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


# What comes of a comparison that is run once more with something kept, as its command would be with the option.

class CompareAgain(Protocol):
    """What comes of one more comparison."""

    def __call__(
        self, settings: Mapping[str, Any], model: ModelFiles | None = None, /, *, explained: bool = True
    ) -> Pasted:
        """settings: further ones of the target's. model: what the target runs, None: its own. Raises
        PrecisionDebugError."""


@dataclass(frozen=True, kw_only=True)
class Pasted:
    """explanation: None where nothing was explained. failing: the first tensor that fails by the given tolerance.
    errors: relative L2 of each tensor that was compared and is of one shape, by the baseline's name. introduced: what
    each operator added itself, as far as that was measured."""

    explanation: Explanation | None = None
    failing: str = ""
    errors: Mapping[str, float] = field(default_factory=dict)
    introduced: Mapping[str, float] = field(default_factory=dict)

    @property
    def culprits(self) -> Sequence[Culprit]:
        return () if self.explanation is None else self.explanation.culprits

    def passes(self, *, strict: bool) -> bool | None:
        """Return whether the command would end with status 0, as far as its numbers decide.

        By the tolerance of every tensor, or by what its outputs may be off, see ``Report.verdict``. None: that was not
        found out."""
        if strict:
            return not self.failing
        known = self.explanation
        return None if known is None or known.state == "unknown" else known.state == "healthy" or known.passes


def read_pasted(journal: Path) -> Pasted:
    """Of a comparison that has ended, from its journal."""
    explanation: Explanation | None = None
    rows: dict[int, Row] = {}
    introduced: dict[str, float] = {}
    for event in read_events(journal, events.Explained, events.RowDone, events.Again, events.IntroducedErrors):
        if isinstance(event, events.Explained):
            explanation = event.explanation
        elif isinstance(event, events.RowDone):
            rows[event.row.index] = event.row
        elif isinstance(event, events.IntroducedErrors):
            introduced = {one.name: one.size for one in event.tensors if one.size is not None}
        else:
            rows.clear()
    failing = (row.name for _, row in sorted(rows.items()) if row.status is Status.FAIL)
    errors = {row.name: row.relative_l2 for row in rows.values() if row.relative_l2 is not None}
    return Pasted(explanation=explanation, failing=next(failing, ""), errors=errors, introduced=introduced)


def is_open(tried: ToKeep, *, strict: bool, of_one: float, of_many: float) -> bool:
    """Return whether the error at the outputs leaves open what the verdict of the command with a fix is.

    What is left passes if nobody makes most of it, and a tolerance that was given holds for every tensor. of_one,
    of_many: up to which an error is as expected that one operator makes, or many."""
    if strict:
        return tried.state == "mended"
    return tried.judged is not None and of_one < tried.judged <= of_many


def as_pasted(tried: ToKeep, ran: Pasted, *, strict: bool) -> ToKeep:
    """With the verdict of the command that has the option."""
    passes, found = ran.passes(strict=strict), ran.explanation
    named = found.culprits[0].name if found is not None and found.culprits else ""
    state = tried.state if strict or passes is None else "mended" if passes else "lessened"
    return dataclasses.replace(
        tried, state=state, pasted=passes, blamed="" if passes else ran.failing if strict else named,
        bound=None if found is None else found.allowed,
    )  # fmt: skip
