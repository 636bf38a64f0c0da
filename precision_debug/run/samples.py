"""Many samples through two open sessions: each is compared, merged and forgotten, so memory does not grow with them."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence

from ..events import Note, SamplesFound, ShardDone, Stage
from ..numbers.merged import WORST
from ..observe.shard import Shard
from ..reasons import say
from ..records import RunSpec, TensorMeta
from .answers import finish
from .comparing import Comparing
from .fail_fast import enough
from .journal import Journal
from .open_pair_run import OpenPair, SampleResult
from .run_again import run_again
from .token_rows import tell_tokens, watching_tokens
from .user_metric import UserMetric

__all__ = ["Samples", "finish_scores", "worst_sample"]

_EVERY = 5.0
"""Seconds of samples after which what is finished goes into the journal: so much is lost at most."""


class Samples:
    """Compares samples, one at a time; what OneSample is for one."""

    def __init__(self, work: Comparing, both: OpenPair) -> None:
        self._work, self._both = work, both
        self._comparer = both.with_totals()
        self._first = True
        self._whole = Shard()
        many = work.feed_set.many
        self._numbers = range(0) if many is None else many
        work.journal.write(SamplesFound(first=self._numbers.start, last=self._numbers.stop))

    def compare(self) -> bool:
        """Compare all samples, and tell the journal of what is finished from time to time.

        Always True: one that fails ends the samples, and what was compared till then is all the same finished."""
        part, begun = Shard(), time.monotonic()
        for number in self._numbers:
            if self._one(number, part):
                self._work.note(say("fail_fast_sample", sample=number))
                break
            if time.monotonic() - begun > _EVERY:
                begun = self._keep(part, begun)
                self._whole.merge(part)
                part = Shard()
        if part.samples:
            self._keep(part, begun)
            self._whole.merge(part)
        return True

    def finish(self) -> None:
        """Tell the journal what is known beside the rows."""
        work = self._work
        if work.saved is not None:
            work.saved.finish()
        finish_scores(work.spec, self._whole, work.journal, self._both.base.tensors, work.answers.metric)

    def worst(self) -> tuple[int, SampleResult]:
        """The worst sample's place among the feeds, and what it gives, as it is run again."""
        number = worst_sample(self._whole, self._both.base.tensors)
        return number, self.again(number)

    def again(self, number: int) -> SampleResult:
        """What a sample gives as it is run again, its worst tensors kept where that is asked for."""
        self._work.journal.write(Stage(text=say("stage_explaining_worst", sample=number)))
        pairs = self._work.keepers_of_pairs()
        feeds = self._work.feeds(number)
        watched = watching_tokens(feeds[0])
        ran = self._both.run(*feeds, observers=[*pairs, *watched])
        if pairs:
            self._work.note(say("saved_of_sample", sample=number))
        tokens = tell_tokens(self._work, self._both, number, ran, feeds[0], watched)
        return dataclasses.replace(ran, tokens=tokens)

    def part(self, first: int, last: int) -> None:
        """Compare these, and tell the journal of all of them as one part."""
        part, begun = Shard(), time.monotonic()
        for number in range(first, last):
            self._one(number, part)
        self._keep(part, begun)

    def _keep(self, part: Shard, begun: float) -> float:
        now = time.monotonic()
        part.seconds = now - begun
        self._work.journal.write(ShardDone(text=part.to_text()))
        return now

    def _one(self, number: int, part: Shard) -> bool:
        """Whether it failed, and the first failure is enough."""
        work, both = self._work, self._both
        feeds, target_feeds = work.feeds(number)
        ran = both.run(feeds, target_feeds, journal=work.journal if self._first else None, comparer=self._comparer)
        first, self._first = self._first, False
        part.add(number, ran.rows)
        part.add_alone(number, ran.left)
        if work.saved is not None:
            work.saved.add((ran.base_outputs, ran.target_outputs), (both.base.seconds, both.target.seconds))
        work.answers.add(part, number, ran.base_outputs, ran.paired_outputs)
        if first:
            run_again(work.spec, both, ran, feeds, target_feeds)
        return any(enough(work.spec, row, work.target.precision) for row in ran.rows)


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
