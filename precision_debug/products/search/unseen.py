"""The samples of a search: those that it sees, and portions of others, which are unseen until it has learnt from them.

What a found set misses is searched for too, so that the portion it comes from checks nothing any more: the next set is
checked on the next portion. Of random inputs there are ever more; of the user's there are two halves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...feeds import FeedSet
from ...reasons import NOTHING, Reason
from ...records import RunSpec, TensorMeta
from ...run.answers import load_labels
from ...run.criterion import Criterion, Sample
from ...run.judging import Pair, is_random, make_held_out_feeds
from ...run.plan import Opening
from ...run.side import guard_call
from ...run.trials import run_outputs
from ...search.fix import Evaluation, SearchRequest

__all__ = ["Unseen"]

_NEARLY = 2.0
"""Times its limit that an error on an unseen sample may be, for a set that may only have to keep a little more."""


class Unseen:
    """Samples that a search did not see, on which its answers are checked.

    tensors: the baseline's. seen: samples of the search. now: those that check its next answer; used: of earlier ones
    what it was checked on, and did not come to be searched for. note: why there are none, where there are none."""

    def __init__(
        self, spec: RunSpec, asked: SearchRequest, baseline: Opening, target: Opening, feed_set: FeedSet, *,
        halves: bool,
    ) -> None:  # fmt: skip
        """Runs the baseline on what is seen and on the first portion. halves: of the user's inputs, a second one waits.

        Raises PrecisionDebugError.
        """
        self._spec, self._asked, self._baseline, self._target, self._feed_set = spec, asked, baseline, target, feed_set
        self.note: Reason = NOTHING
        self.used: list[Sample] = []
        self.portion = 0
        self._random = is_random(spec, asked, feed_set)
        fed: list[Pair] = list(zip(feed_set.feeds, feed_set.for_target().feeds, strict=True))
        self._labels: dict[int, Any] = {}
        if asked.drop and spec.labels:
            each = load_labels(spec.labels, len(fed))
            size = len(each) // len(fed)
            for place, (mine, _) in enumerate(fed):
                self._labels[id(mine)] = each[place] if size == 1 else each[place * size : (place + 1) * size]
        count = len(fed) if len(fed) < 2 or asked.held_out else max(1, len(fed) // 2)
        seen, rest = fed[:count], fed[count:]
        if asked.check:  # which has inputs of its own
            seen, rest = fed, []
        elif not self._labels:  # other inputs have no labels
            more, note = make_held_out_feeds(spec, asked, baseline, target, feed_set)
            rest += more
            if not rest:
                self.note = note
        first = (len(rest) + 1) // 2 if halves and not self._random else len(rest)
        self._waiting = rest[first:]
        made, self.tensors = self._sampled([*seen, *rest[:first]])
        self.seen, self.now = made[: len(seen)], made[len(seen) :]

    def checks(self, state: str) -> bool:
        """Return whether an answer of this kind is checked on what is unseen; that nothing is needed, on the user's
        own."""
        known = state in ("found", "diffuse") or (state == "not needed" and not self._random)
        return known and bool(self.now or self.used)

    def is_far_from(self, missed: Sequence[Sample], found: Evaluation | None, criterion: Criterion) -> bool:
        """Return whether a set misses every unseen sample, of several, and none of them nearly. found: its run on
        these, where one is known.

        A set that was made as small as its limit allows just misses it on many another input: with that one searched
        for too, a little more is kept."""
        if len(missed) < max(2, len(self.now) + len(self.used)):
            return False
        limits = [criterion.limit(sample) for sample in self.now]
        sizes = found.judged if found is not None else ()
        near = (limit is not None and size <= _NEARLY * limit for limit, size in zip(limits, sizes, strict=False))
        return not any(near)

    def learn(self, missed: Sample) -> None:
        """One of those now is searched for from here on: the others have told what they could, and new ones come."""
        self.used = [sample for sample in (*self.used, *self.now) if sample is not missed]
        self.seen = [*self.seen, missed]
        self.portion += 1
        fresh, self._waiting = self._waiting, []
        if self._random and not self._labels:
            asked = (self._spec, self._asked, self._baseline, self._target, self._feed_set)
            fresh = make_held_out_feeds(*asked, portion=self.portion)[0]
        self.now = self._sampled(fresh)[0] if fresh else []

    def widen(self) -> list[Sample]:
        """Return the rest of the user's inputs, for a set that holds on the first ones."""
        more = self._sampled(self._waiting)[0] if self._waiting else []
        self._waiting = []
        self.now = [*self.now, *more]
        return more

    def _sampled(self, fed: Sequence[Pair]) -> tuple[list[Sample], Sequence[TensorMeta]]:
        """With what the baseline gives."""
        label, inside = self._baseline.label, None if self._asked.on == "all" else frozenset[str]()
        session = guard_call(label, lambda: self._baseline.open(self._feed_set.feeds))
        try:
            made = [
                Sample(
                    feeds=mine, target_feeds=theirs, values=run_outputs(session, mine, label, inside),
                    labels=self._labels.get(id(mine)),
                ) for mine, theirs in fed
            ]  # fmt: skip
            return made, tuple(session.tensors)
        finally:
            session.close()
