"""The samples of a search: those that it sees, and others, which are unseen until it has learnt from them.

What a found set misses is searched for too, so that it checks nothing any more: the next set is checked on the others,
and of random inputs on as many new ones.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from ...feeds import FeedSet
from ...reasons import NOTHING, Reason
from ...records import RunSpec, TensorMeta
from ...run.answers import labels_by_sample
from ...run.criterion import Sample
from ...run.judging import Pair, is_random, make_held_out_feeds
from ...run.plan import Opening
from ...run.side import guard_call
from ...run.trials import run_outputs
from ...search.fix import SearchRequest

__all__ = ["Unseen"]

class Unseen:
    """Samples that a search did not see, on which its answers are checked.

    tensors: the baseline's. seen: samples of the search. now: those that check its next answer. note: why there are
    none, where there are none."""

    def __init__(
        self, spec: RunSpec, asked: SearchRequest, baseline: Opening, target: Opening, feed_set: FeedSet
    ) -> None:  # fmt: skip
        """Run the baseline on what is seen and on what is not. Raises PrecisionDebugError."""
        self._asked, self._baseline, self._feed_set = asked, baseline, feed_set
        self._list_others = functools.partial(make_held_out_feeds, spec, asked, baseline, target, feed_set)
        self.note: Reason = NOTHING
        self.portion = 0
        self._random = is_random(spec, asked, feed_set)
        fed: list[Pair] = list(zip(feed_set.feeds, feed_set.for_target().feeds, strict=True))
        self._labels: dict[int, Any] = {}
        if asked.drop and spec.labels:
            labels = labels_by_sample(spec, len(fed))
            self._labels = {id(mine): labels(place) for place, (mine, _) in enumerate(fed)}
        count = len(fed) if len(fed) < 2 or asked.held_out else max(1, len(fed) // 2)
        seen, rest = fed[:count], fed[count:]
        if asked.check:  # which has inputs of its own
            seen, rest = fed, []
        elif not self._labels:  # other inputs have no labels
            more, note = self._list_others()
            rest += more
            if not rest:
                self.note = note
        made, self.tensors = self._sampled([*seen, *rest])
        self.seen, self.now = made[: len(seen)], made[len(seen) :]

    def checks(self, state: str) -> bool:
        """Return whether an answer of this kind is checked on what is unseen; that nothing is needed, on the user's
        own."""
        known = state in ("found", "diffuse") or (state == "not needed" and not self._random)
        return known and bool(self.now)

    def learn(self, missed: Sample) -> None:
        """Search for one of those now, too, from here on; of random ones new ones come."""
        self.seen = [*self.seen, missed]
        self.now = [sample for sample in self.now if sample is not missed]
        self.portion += 1
        if self._random and not self._labels:
            self.now += self._sampled(self._list_others(portion=self.portion)[0])[0]

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
