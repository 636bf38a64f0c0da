"""Compare samples: one alone, tensor by tensor, or many that are merged and forgotten."""

from __future__ import annotations

import contextlib
import dataclasses
import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import events, explain
from ..errors import PrecisionDebugError
from ..events import Note, SamplesFound, ShardDone, Stage
from ..explain import bound_of
from ..numbers import judge
from ..numbers.arrays import as_array
from ..numbers.measure_tokens import Roles, change_middle_token, find_ids, find_roles, measure_tokens
from ..numbers.merged import WORST
from ..numbers.told import Tokens
from ..observe.portraits import Portraits
from ..observe.shard import Shard
from ..observe.token_errors import TokenErrors
from ..protocols import Feeds
from ..reasons import say
from ..recording import RecordingWriter
from ..records import Row, RunSpec, Status, TensorMeta
from .answers import UserMetric, finish
from .inputs import choose_samples
from .journal import Journal
from .open_pair import Comparing, finish_recording
from .open_pair_run import OpenPair, SampleResult
from .repetition import run_again
from .trials import run_outputs

__all__ = ["Enough", "OneSample", "Samples", "find_worst_sample", "finish_scores", "is_enough"]


# --fail_fast: a run that has shown its first failure need not go on.

class Enough(PrecisionDebugError):
    """Raised inside the hook of a target to end both runs; no error. row: the one that failed."""

    def __init__(self, row: Row) -> None:
        super().__init__(f"{row.name} failed")
        self.row = row


def is_enough(spec: RunSpec, row: Row, precision: str) -> bool:
    """Return whether the run may end with this row.

    Not with an input, which no operator made, as the target rounds it. Where no tolerance was given, by the error that
    the promised precision usually has."""
    if not spec.fail_fast or row.op_type == "Input":
        return False
    judged = judge.judge_row(row, spec.tolerance, allowed=bound_of(None, precision), validate=spec.validate)
    return judged.status is Status.FAIL


# A language model's tokens as rows: found among feeds and outputs, proved to be causal, measured on both sides.

_SAME = 1e-2
"""Relative L2 distance up to which logits count as unmoved by a later token: other tokens move them by about 1."""


def make_token_watchers(feeds: Feeds) -> list[TokenErrors]:
    """Return what keeps the error of each tensor at each token, where the feeds look like token ids."""
    name = find_ids(feeds)
    if name is None or np.shape(feeds[name])[-1] < 2:
        return []
    rows, length = np.atleast_2d(np.asarray(feeds[name])).shape
    return [TokenErrors(rows, length)]


def tell_tokens(
    work: Comparing, both: OpenPair, number: int | None, ran: SampleResult, feeds: Feeds,
    watched: list[TokenErrors],
) -> Tokens | None:  # fmt: skip
    """Measure the tokens of a sample, and tell the journal; None where this is no causal language model.

    number: of the sample, where there are several. watched: what was kept of each tensor.
    """
    if both.base is both.target or any(meta.phase for meta in both.base.announced):
        return None  # of a training step the outputs are gradients, which stay on their device
    names = {pair.base.name: name for name, pair in both.alignment.pairs.items() if not pair.target.view}
    roles = find_roles(feeds, ran.base_outputs, ran.target_outputs, names)
    if roles is None:
        return None
    try:
        base = as_array(ran.base_outputs[roles.logits])
        target = as_array(ran.target_outputs[roles.target_logits])
        order = tuple(meta.name for meta in both.base.announced)
        errors = watched[0].found(order) if watched else None
        if not _is_causal(both, feeds, roles, base):
            return None
        tokens = measure_tokens(feeds, base, target, roles, profiles=errors, sample=number)
    except PrecisionDebugError:
        return None
    work.journal.write(events.TokensFound(tokens=tokens))
    return tokens


def _is_causal(both: OpenPair, feeds: Feeds, roles: Roles, base: Any) -> bool:
    """Return whether another token in the middle leaves what the model says before it.

    One more run of the baseline tells. Where that is a recording, the names decide."""
    changed = change_middle_token(feeds, roles, base.shape[-1])
    if changed is None:
        return True
    fed, early = changed
    late = ~early
    lines = np.array(base).reshape(*early.shape, base.shape[-1])
    if not both.base.opening.recording:
        with contextlib.suppress(PrecisionDebugError):
            after = run_outputs(both.base.session, fed, both.base.opening.label)[roles.logits].reshape(lines.shape)
            return _measure_moved(lines[early], after[early]) <= _SAME < _measure_moved(lines[late], after[late])
    return "logits" in roles.logits.lower() and roles.ids.lower().endswith("ids")


def _measure_moved(before: Any, after: Any) -> float:
    """Return the relative L2 distance of what is finite, of lines of logits."""
    size = off = 0.0
    for line, there in zip(before, after, strict=True):
        one, other = np.asarray(line, np.float64), np.asarray(there, np.float64)
        fair = np.isfinite(one) & np.isfinite(other)
        size += float(np.sum(np.square(one[fair])))
        off += float(np.sum(np.square((other - one)[fair])))
    return math.sqrt(off / size) if size else 0.0


# One sample through two open sessions: each tensor's row is told as it is finished.

class OneSample:
    """The sample that stands first among the feeds."""

    def __init__(self, work: Comparing, both: OpenPair) -> None:
        self._work, self._both = work, both
        self._ran: SampleResult | None = None
        self._watched = make_token_watchers(work.feeds(0)[0])

    def compare(self) -> bool:
        """False where --fail_fast has seen enough."""
        work, both = self._work, self._both
        portraits = Portraits(
            None if work.spec.tolerance.given else explain.bound_of(None, work.target.precision),
            lambda portrait: work.journal.write(events.PortraitMade(portrait=portrait)),
        )
        feeds, target_feeds = work.feeds(0)
        with contextlib.ExitStack() as stack:
            writer = None
            if work.spec.record:
                writer = stack.enter_context(RecordingWriter(work.spec.record, overwrite=True))
            try:
                with portraits:
                    self._ran = both.run(
                        feeds, target_feeds, journal=work.journal, on_row=self._finished, also=writer,
                        observers=[portraits, *work.keepers_of_pairs(), *self._watched],
                    )  # fmt: skip
            except Enough as reason:
                work.note(say("fail_fast", name=reason.row.name))
                return False
            if writer is not None:
                finish_recording(writer, both.target, work.feed_set.for_target(), self._ran.target_outputs)
        return True

    def finish(self) -> None:
        """Tell the journal what is known beside the rows."""
        work, both, ran = self._work, self._both, self.worst()[1]
        tokens = tell_tokens(work, both, None, ran, work.feeds(0)[0], self._watched)
        self._ran = dataclasses.replace(ran, tokens=tokens)
        if work.saved is not None:
            work.saved.add((ran.base_outputs, ran.target_outputs), (both.base.seconds, both.target.seconds))
            work.saved.finish()
        for name, stats in ran.left.items():
            work.journal.write(events.Leftover(name=name, stats=stats))
        if ran.spilled_bytes:
            work.note(say("spilled", megabytes=ran.spilled_bytes / 1e6))
        if ran.moved_bytes:
            work.note(say("moved_to_the_host", megabytes=ran.moved_bytes / 1e6))
        if work.answers.asked:
            found = Shard()
            first, _ = choose_samples(work.spec.sample, len(work.feed_set.feeds))
            work.answers.add(found, first, ran.base_outputs, ran.paired_outputs)
            finish(work.spec, found, work.journal, work.answers.metric)
        run_again(work.spec, both, ran, *work.feeds(0))

    def worst(self) -> tuple[int, SampleResult]:
        """Return its place among the feeds, and what it gave."""
        assert self._ran is not None, "compare() comes first"
        return 0, self._ran

    def _finished(self, row: Row) -> None:
        self._work.journal.write(events.RowDone(row=row))
        if is_enough(self._work.spec, row, self._work.target.precision):
            raise Enough(row)


# Many samples through two open sessions: each is compared, merged and forgotten, so memory does not grow with them.

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
        """Return the worst sample's place among the feeds, and what it gives, as it is run again."""
        number = find_worst_sample(self._whole, self._both.base.tensors)
        return number, self.again(number)

    def again(self, number: int) -> SampleResult:
        """Return what a sample gives as it is run again, its worst tensors kept where that is asked for."""
        self._work.journal.write(Stage(text=say("stage_explaining_worst", sample=number)))
        pairs = self._work.keepers_of_pairs()
        feeds = self._work.feeds(number)
        watched = make_token_watchers(feeds[0])
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
        """Return whether it failed, and the first failure is enough."""
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
        return any(is_enough(work.spec, row, work.target.precision) for row in ran.rows)


def find_worst_sample(whole: Shard, tensors: Sequence[TensorMeta]) -> int:
    """Return the sample whose outputs are worst, or whose tensors where none of them was compared."""
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
