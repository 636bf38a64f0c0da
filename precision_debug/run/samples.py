"""Many samples through two open sessions: each is compared, merged and forgotten, so memory does not grow with them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from ..events import Note, Scores, ShardDone
from ..feeds import FeedSet
from ..numbers import scores
from ..numbers.merged import WORST
from ..observe.shard import Shard
from ..reasons import say
from ..records import RunSpec, TensorMeta
from ..safety.special_file import refuse_special
from ..settings import CORE, value
from .both import Both, Ran
from .fail_fast import enough
from .journal import Journal
from .saved_json import SavedOutputs
from .user_metric import UserMetric

__all__ = ["Samples", "chosen_samples", "finish_scores", "labels_of", "worst_sample"]

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
            f"there is no sample {text}", where="--sample", hint=f"0 to {count - 1}, or FROM:TO up to {count}"
        )
    return first, range(first, last) if colon else None


def labels_of(path: str, count: int) -> Any:
    """Labels of ``count`` samples or of all of their rows: a .npy or .npz array of any type, by its first axis.

    Raises InputError.
    """
    refuse_special(path, InputError)
    try:
        with Path(path).open("rb") as file:
            loaded = np.load(file, allow_pickle=False)
            labels = loaded if isinstance(loaded, np.ndarray) else loaded[loaded.files[0]]
    except Exception as error:  # numpy and zipfile raise many kinds on a damaged file
        raise InputError(f"no labels can be read ({error})", where=path, hint="write them with numpy.save") from error
    if not labels.ndim or len(labels) % count or not len(labels):
        raise InputError(f"{len(labels) if labels.ndim else 'no'} labels for {count} samples", where=path)
    return labels


class Samples:
    """Compares samples, one at a time. labels: see labels_of; None where there are none."""

    def __init__(self, both: Both, given: FeedSet, journal: Journal, saved: SavedOutputs | None = None) -> None:
        spec = both.spec
        self._saved = saved
        self._both, self._given, self._journal = both, given, journal
        self._comparer = both.with_totals()
        self._labels = labels_of(spec.labels, len(given.feeds)) if spec.labels else None
        source = value(CORE, spec.options, "metric")
        self.metric = UserMetric(source) if source else None
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
        self._score(number, ran, part)
        return any(enough(self._both.spec, row) for row in ran.rows)

    def _score(self, number: int, ran: Ran, part: Shard) -> None:
        spec, labels = self._both.spec, None
        if self._labels is not None:
            each = len(self._labels) // len(self._given.feeds)
            labels = self._labels[number * each : (number + 1) * each]
        if self.metric is not None:
            one = labels[0] if labels is not None and len(labels) == 1 else labels
            self.metric.add(part, number, (ran.base_outputs, ran.target_outputs), one)
        elif spec.labels or spec.top1:
            found = scores.score(ran.base_outputs, ran.target_outputs, labels)
            for name, share in found.shares.items() if found is not None else ():
                part.score(name, round(share * found.samples), found.samples)  # type: ignore[union-attr]


def worst_sample(whole: Shard, tensors: Sequence[TensorMeta]) -> int:
    """The sample whose outputs are worst, or whose tensors where none of them was compared."""
    outputs = [meta.name for meta in tensors if meta.is_output]
    found = (whole.worst(outputs) if outputs else []) or whole.worst()
    return found[0][1] if found else min(whole.samples)


def finish_scores(
    spec: RunSpec, whole: Shard, journal: Journal, tensors: Sequence[TensorMeta], metric: UserMetric | None = None
) -> None:  # fmt: skip
    """Tell the journal of the worst samples, and of the scores of all of them. tensors: the baseline's."""
    source = value(CORE, spec.options, "metric")
    if metric is None and source and whole.parts:
        metric = UserMetric(source)
    outputs = [meta.name for meta in tensors if meta.is_output]
    worst = [f"{sample} ({error:.2e})" for error, sample in (whole.worst(outputs) or whole.worst())[:WORST]]
    journal.write(Note(text=say("samples", count=len(whole.samples), worst=tuple(worst))))
    found = {**whole.means, **(metric.finish(whole) if metric is not None else {})}
    if found:
        journal.write(Scores(scores=found, samples=len(whole.samples)))
