"""Many samples through two open sessions: each is compared, merged and forgotten, so memory does not grow with them."""

from __future__ import annotations

import time
from collections.abc import Sequence

from ..errors import InputError
from ..events import Note, ShardDone
from ..feeds import FeedSet
from ..numbers.merged import WORST
from ..observe.shard import Shard
from ..reasons import say
from ..records import RunSpec, TensorMeta
from .answers import Answers, finish
from .both import Both
from .fail_fast import enough
from .journal import Journal
from .saved_json import SavedOutputs
from .user_metric import UserMetric

__all__ = ["Samples", "chosen_samples", "finish_scores", "worst_sample"]

_EVERY = 5.0
"""Seconds of samples after which what is finished goes into the journal: so much is lost at most."""


def chosen_samples(text: str | None, count: int) -> tuple[int, range | None]:
    """(the one to compare, or the first, and the range of many or None) of ``--sample``. Raises InputError."""
    if not text:
        return 0, range(count) if count > 1 else None
    low, colon, high = text.partition(":")
    try:
        first = int(low or 0)
        last = (int(high) if high else count) if colon else first + 1
    except ValueError:
        first, last = -1, -1
    if not 0 <= first < last <= count:
        raise InputError(
            say("no_sample", value=text), where="--sample", hint=say("samples_are", last=count - 1, count=count)
        )
    return first, range(first, last) if colon else None


class Samples:
    """Compares samples, one at a time."""

    def __init__(
        self, both: Both, given: FeedSet, journal: Journal, answers: Answers, saved: SavedOutputs | None = None
    ) -> None:
        self._saved = saved
        self._both, self._given, self._journal, self._answers = both, given, journal, answers
        self._comparer = both.with_totals()
        self._targets = given.for_target().feeds
        self._first = True

    def run(self, numbers: Sequence[int]) -> Shard:
        """Compare these, and tell the journal of what is finished from time to time; returns all of it."""
        whole, part = Shard(), Shard()
        begun = time.monotonic()
        for number in numbers:
            if self._one(number, part):
                self._journal.write(Note(text=say("fail_fast_sample", sample=number)))
                break
            if time.monotonic() - begun > _EVERY:
                begun = self._keep(part, begun)
                whole.merge(part)
                part = Shard()
        if part.samples:
            self._keep(part, begun)
            whole.merge(part)
        return whole

    def part(self, first: int, last: int) -> None:
        """Compare these, and tell the journal of all of them as one part."""
        part, begun = Shard(), time.monotonic()
        for number in range(first, last):
            self._one(number, part)
        self._keep(part, begun)

    def _keep(self, part: Shard, begun: float) -> float:
        now = time.monotonic()
        part.seconds = now - begun
        self._journal.write(ShardDone(text=part.to_text()))
        return now

    def _one(self, number: int, part: Shard) -> bool:
        """Whether it failed, and the first failure is enough."""
        feeds, theirs = self._given.feeds[number], self._targets[number]
        ran = self._both.run(feeds, theirs, journal=self._journal if self._first else None, comparer=self._comparer)
        self._first = False
        part.add(number, ran.rows)
        part.add_alone(number, ran.left)
        if self._saved is not None:
            took = self._both.base.seconds, self._both.target.seconds
            self._saved.add((ran.base_outputs, ran.target_outputs), took)
        self._answers.add(part, number, ran.base_outputs, ran.paired_outputs)
        return any(enough(self._both.spec, row, self._both.target.opening.precision) for row in ran.rows)


def worst_sample(whole: Shard, tensors: Sequence[TensorMeta]) -> int:
    """The sample whose outputs are worst, or whose tensors where none of them was compared."""
    outputs = [meta.name for meta in tensors if meta.is_output]
    found = (whole.worst(outputs) if outputs else []) or whole.worst()
    return found[0][1] if found else min(whole.samples)


def finish_scores(
    spec: RunSpec, whole: Shard, journal: Journal, tensors: Sequence[TensorMeta], metric: UserMetric | None = None
) -> None:  # fmt: skip
    """Tell the journal of the worst samples, and of the scores of all of them. tensors: the baseline's."""
    outputs = [meta.name for meta in tensors if meta.is_output]
    worst = [f"{sample} ({error:.2e})" for error, sample in (whole.worst(outputs) or whole.worst())[:WORST]]
    journal.write(Note(text=say("samples", count=len(whole.samples), worst=tuple(worst))))
    finish(spec, whole, journal, metric)
