"""Comparisons of a search, with nothing kept and for its rankings, each of which its folder remembers as a journal."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

from ...errors import BackendError, BackendUnavailable, UsageError
from ...protocols import Keep
from ...records import RunSpec
from ...report.model import Report
from ...run import pipeline
from ...run.content import report_of_journal
from ...run.journal import Journal
from ...run.plan import make_stage_spec
from ...search.ranking import Group, rank_groups
from ...search.units import Units
from .evaluations import BEGIN_ANEW, Evaluations

__all__ = ["Ranker", "compare_once"]


def compare_once(spec: RunSpec, path: Path, room: Path, *, shown: bool = True) -> Report:
    """Return a comparison; of an earlier search its journal, in ``path``. room: a folder for temporary files.
    shown: see ``pipeline.execute``.

    Raises PrecisionDebugError."""
    if not path.exists():
        room.mkdir(exist_ok=True)
        fresh = room / path.name  # which goes with the run's folder, however that ends
        with Journal(fresh) as journal:
            pipeline.execute(spec, journal, folder=room, fixes=False, shown=shown)
        shutil.move(fresh, path)
    return report_of_journal(path, hint=BEGIN_ANEW)


@dataclasses.dataclass(kw_only=True)
class Ranker:
    """Called with the kept units, it ranks the others.

    spec: of the search. mode, keep: the target's, or a simulation's. folder: an existing one for temporary files.
    first: the comparison with nothing kept, where that was explained. level: of the explanations. count: of comparisons
    that were run for rankings.
    """

    spec: RunSpec
    mode: str
    keep: Keep
    units: Units
    known: Evaluations
    folder: Path
    level: str
    marks: tuple[str, ...] = ()
    first: Report | None = None
    count: int = 0

    def __call__(self, kept: frozenset[int]) -> Sequence[Group]:
        """Raises PrecisionDebugError."""
        try:
            report = self.first if self.first is not None and not kept else self._explained(self.units.keys(kept))
        except (BackendError, BackendUnavailable, UsageError):
            if not kept:
                raise
            return self(frozenset())  # that it does not run with these kept says nothing of the order of the others
        return rank_groups(self.units, report.rows, report.explanation, kept, follows=True)

    def _explained(self, keys: Sequence[str]) -> Report:
        options = {f"target.{name}": value for name, value in self.keep.options(keys).items()}
        there = make_stage_spec(self.spec, self.mode, {}) if self.mode != self.spec.run_mode else self.spec
        there = dataclasses.replace(
            there, options={**there.options, **options}, top1=False, labels="", marks=self.marks, explain=self.level
        )
        path = self.known.path_of_comparison(self.mode, keys)
        self.count += not path.exists()
        room = self.folder / f"ranking-{self.mode}-{self.count}"
        try:
            return compare_once(there, path, room, shown=False)
        finally:
            shutil.rmtree(room, ignore_errors=True)
