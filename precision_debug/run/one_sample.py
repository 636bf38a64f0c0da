"""One sample through two open sessions: each tensor's row is told as it is finished."""

from __future__ import annotations

import contextlib
import dataclasses

from .. import events, explain
from ..observe.portraits import Portraits
from ..observe.shard import Shard
from ..reasons import say
from ..recording import RecordingWriter
from ..records import Row
from .answers import finish
from .comparing import Comparing
from .fail_fast import Enough, enough
from .open_pair_run import OpenPair, SampleResult
from .recorded import finish_recording
from .run_again import run_again
from .sample_numbers import chosen_samples
from .token_rows import tell_tokens, watching_tokens

__all__ = ["OneSample"]


class OneSample:
    """The sample that stands first among the feeds."""

    def __init__(self, work: Comparing, both: OpenPair) -> None:
        self._work, self._both = work, both
        self._ran: SampleResult | None = None
        self._watched = watching_tokens(work.feeds(0)[0])

    def compare(self) -> bool:
        """False where --fail_fast has seen enough."""
        work, both = self._work, self._both
        portraits = Portraits(
            None if work.spec.tolerance.given else explain.allowed_by(None, work.target.precision),
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
            first, _ = chosen_samples(work.spec.sample, len(work.feed_set.feeds))
            work.answers.add(found, first, ran.base_outputs, ran.paired_outputs)
            finish(work.spec, found, work.journal, work.answers.metric)
        run_again(work.spec, both, ran, *work.feeds(0))

    def worst(self) -> tuple[int, SampleResult]:
        """Its place among the feeds, and what it gave."""
        assert self._ran is not None, "compare() comes first"
        return 0, self._ran

    def _finished(self, row: Row) -> None:
        self._work.journal.write(events.RowDone(row=row))
        if enough(self._work.spec, row, self._work.target.precision):
            raise Enough(row)
