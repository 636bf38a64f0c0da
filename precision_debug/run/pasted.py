"""What comes of a comparison that is run once more with something kept, as its command would be with the option."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from .. import events
from ..records import Culprit, Explanation, ModelFiles, Row, Status
from ..search.fix import ToKeep
from .journal import read_events

__all__ = ["CompareAgain", "Pasted", "as_pasted", "is_open", "read_pasted"]


class CompareAgain(Protocol):
    """What comes of one more comparison."""

    def __call__(
        self, settings: Mapping[str, Any], model: ModelFiles | None = None, /, *, explained: bool = True
    ) -> Pasted:
        """settings: further ones of the target's. model: what the target runs, None: its own. Raises
        PrecisionDebugError."""


@dataclass(frozen=True, kw_only=True)
class Pasted:
    """explanation: None where nothing was explained. failing: the first tensor that fails by the given tolerance.
    errors: relative L2 of each tensor that was compared and is of one shape, by the baseline's name. introduced: what
    each operator added itself, as far as that was measured."""

    explanation: Explanation | None = None
    failing: str = ""
    errors: Mapping[str, float] = field(default_factory=dict)
    introduced: Mapping[str, float] = field(default_factory=dict)

    @property
    def culprits(self) -> Sequence[Culprit]:
        return () if self.explanation is None else self.explanation.culprits

    def passes(self, *, strict: bool) -> bool | None:
        """Return whether the command would end with status 0, as far as its numbers decide.

        By the tolerance of every tensor, or by what its outputs may be off, see ``Report.verdict``. None: that was not
        found out."""
        if strict:
            return not self.failing
        known = self.explanation
        return None if known is None or known.state == "unknown" else known.state == "healthy" or known.passes


def read_pasted(journal: Path) -> Pasted:
    """Of a comparison that has ended, from its journal."""
    explanation: Explanation | None = None
    rows: dict[int, Row] = {}
    introduced: dict[str, float] = {}
    for event in read_events(journal, events.Explained, events.RowDone, events.Again, events.IntroducedErrors):
        if isinstance(event, events.Explained):
            explanation = event.explanation
        elif isinstance(event, events.RowDone):
            rows[event.row.index] = event.row
        elif isinstance(event, events.IntroducedErrors):
            introduced = {one.name: one.size for one in event.tensors if one.size is not None}
        else:
            rows.clear()
    failing = (row.name for _, row in sorted(rows.items()) if row.status is Status.FAIL)
    errors = {row.name: row.relative_l2 for row in rows.values() if row.relative_l2 is not None}
    return Pasted(explanation=explanation, failing=next(failing, ""), errors=errors, introduced=introduced)


def is_open(tried: ToKeep, *, strict: bool, of_one: float, of_many: float) -> bool:
    """Return whether the error at the outputs leaves open what the verdict of the command with a fix is.

    What is left passes if nobody makes most of it, and a tolerance that was given holds for every tensor. of_one,
    of_many: up to which an error is as expected that one operator makes, or many."""
    if strict:
        return tried.state == "mended"
    return tried.judged is not None and of_one < tried.judged <= of_many


def as_pasted(tried: ToKeep, ran: Pasted, *, strict: bool) -> ToKeep:
    """With the verdict of the command that has the option."""
    passes, found = ran.passes(strict=strict), ran.explanation
    named = found.culprits[0].name if found is not None and found.culprits else ""
    state = tried.state if strict or passes is None else "mended" if passes else "lessened"
    return replace(
        tried, state=state, pasted=passes, blamed="" if passes else ran.failing if strict else named,
        bound=None if found is None else found.allowed,
    )  # fmt: skip
