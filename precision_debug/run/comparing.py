"""What one comparison is made of, from the command to where its results go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from ..events import Note, PairKept
from ..feeds import FeedSet
from ..observe.worst_pairs import WorstPairs
from ..protocols import Feeds
from ..reasons import Reason
from ..records import RunSpec
from .answers import Answers
from .journal import Journal
from .plan import NONE, Opening
from .repetition import Repetition
from .sample_numbers import chosen_samples
from .saved_json import SavedOutputs

__all__ = ["Comparing"]


@dataclass(frozen=True, kw_only=True)
class Comparing:
    """What a comparison needs.

    folder: an existing one for temporary files. stored: waits until the inputs are kept, and raises its errors. parts:
    of many samples, the parts to compare, one at a time; None: all of them. fixes: try what mends the target. answers,
    saved: what evaluates and keeps the outputs; a comparison that is begun again has new ones."""

    spec: RunSpec
    baseline: Opening
    target: Opening
    feed_set: FeedSet
    journal: Journal
    folder: Path
    stored: Callable[[], None]
    repetition: Repetition
    parts: Iterable[list[int]] | None = None
    fixes: bool = True
    answers: Answers = field(init=False)
    saved: SavedOutputs | None = field(init=False)

    def __post_init__(self) -> None:
        first, _ = chosen_samples(self.spec.sample, len(self.feed_set.feeds))
        modes = self.baseline.label, self.target.label
        saved = SavedOutputs(self.spec.save_outputs, modes, self.folder) if self.spec.save_outputs else None
        object.__setattr__(self, "answers", Answers(self.spec, self.feed_set, first))
        object.__setattr__(self, "saved", saved)

    @property
    def alone(self) -> bool:
        """Whether there is no baseline: the target is only validated, held against itself."""
        return self.spec.baseline == NONE

    @property
    def explains(self) -> bool:
        """Whether who introduced the error is asked for, and there is an error to speak of."""
        return self.spec.explain != "off" and not self.alone

    def feeds(self, sample: int) -> tuple[Feeds, Feeds]:
        """What both sides are fed: the baseline's and the target's."""
        return self.feed_set.feeds[sample], self.feed_set.for_target().feeds[sample]

    def note(self, text: Reason) -> None:
        """Tell the journal a sentence for the report."""
        self.journal.write(Note(text=text))

    def keepers_of_pairs(self) -> list[WorstPairs]:
        """What saves the worst tensors of a run, where that is asked for."""
        most = self.spec.save_tensors
        if not most:
            return []
        return [WorstPairs(most, self.folder, lambda name, at: self.journal.write(PairKept(name=name, number=at)))]
