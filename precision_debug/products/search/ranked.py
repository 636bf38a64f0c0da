"""Rankings of a search: one more comparison with some units kept, explained, and remembered in its journal."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ... import events
from ...codec import decode
from ...errors import BackendError, BackendUnavailable, UsageError
from ...protocols import Feeds, Keep
from ...reasons import say
from ...records import RunSpec
from ...report.from_journal import report_of_events
from ...report.model import Report
from ...run import pipeline
from ...run.criterion import Sample
from ...run.journal import Journal, read_events
from ...run.plan import Opening, make_plan, make_stage_spec
from ...search.ranking import Group, rank_groups
from ...search.units import Units
from .attribution import attribute_error
from .evaluations import Evaluations

__all__ = ["Ranker"]


@dataclasses.dataclass(kw_only=True)
class Ranker:
    """Called with the kept units, it ranks the others.

    spec: of the search. mode, keep: the target's, or a simulation's.
    first: the comparison with nothing kept, where that was explained. level: of the explanations. calibrating: all the
    target's feeds. count: of comparisons that were run for rankings.
    """

    spec: RunSpec
    mode: str
    keep: Keep
    units: Units
    known: Evaluations
    journal: Journal
    folder: Path
    baseline: Opening
    sample: Sample
    calibrating: Sequence[Feeds]
    level: str
    marks: tuple[str, ...] = ()
    first: Report | None = None
    count: int = 0

    def __call__(self, kept: frozenset[int]) -> Sequence[Group]:
        """Raises PrecisionDebugError."""
        keys = self.units.keys(kept)
        recalled = self.known.recall(f"ranking in {self.mode}", keys)
        if recalled is not None:
            try:
                return [_group(item, len(self.units)) for item in recalled]
            except (AttributeError, KeyError, TypeError, ValueError) as error:
                raise self.known.damaged("a ranking is none") from error
        options = {f"target.{name}": value for name, value in self.keep.options(keys).items()}
        there = make_stage_spec(self.spec, self.mode, {}) if self.mode != self.spec.run_mode else self.spec
        there = dataclasses.replace(
            there, options={**there.options, **options}, top1=False, labels="", marks=self.marks, explain=self.level
        )
        try:
            report = self.first if self.first is not None and not kept else self._explained(there)
        except (BackendError, BackendUnavailable, UsageError):
            if not kept:
                raise
            return self(frozenset())  # that it does not run with these kept says nothing of the order of the others
        explained = report.explanation
        shares: Mapping[str, float] = {}
        if explained is None or not explained.culprits:
            shares = self._shares(there, report)
        groups = rank_groups(self.units, report.rows, explained, shares, kept)
        self.known.keep(f"ranking in {self.mode}", groups, keys)
        return groups

    def _explained(self, spec: RunSpec) -> Report:
        self.count += 1
        room = self._room(f"ranking-{self.mode}-{self.count}")
        with Journal(room / "journal.jsonl") as journal:
            pipeline.execute(spec, journal, folder=room, fixes=False)
        report = report_of_events(read_events(room / "journal.jsonl"))
        shutil.rmtree(room, ignore_errors=True)
        return report

    def _shares(self, spec: RunSpec, report: Report) -> Mapping[str, float]:
        """See attribution."""
        self.journal.write(events.Stage(text=say("stage_attributing")))
        room = self._room("attribution")
        target = make_plan(spec, work_dir=str(room)).target
        at = report.explanation.at if report.explanation is not None else ""
        feeds = (self.sample.feeds, self.sample.target_feeds)
        return attribute_error(self.baseline, target, feeds, self.calibrating, report.rows, at, room)

    def _room(self, name: str) -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        return folder


def _group(plain: Mapping[str, Any], count: int) -> Group:
    """Raises ValueError, TypeError, KeyError or AttributeError on what was not a group of so many
    units."""
    group = decode(Group, dict(plain))
    if not all(0 <= unit < count for unit in group.units | group.makers):
        raise ValueError("a unit that the model does not have")
    return group
