"""How much of the model the comparison covers, and what of the rest is explained."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ..numbers.precisions import QUANTISED
from ..records import Row, Status
from .words import is_whole

__all__ = ["Coverage", "coverage"]

_CARRIES = re.compile(r"cast|reorder|transfer_layout|^memcpy|^input$", re.IGNORECASE)
"""Types of operators that an engine puts in: they compute nothing, and the baseline misses nothing for them."""


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """Rows of a report by what became of them: whole numbers whose first four add up to ``total``.

    compared: on both sides, with at least one element. fused: the target has no such tensor. unmatched: only the target
    has it. unseen: not compared, or without an element.
    lost: of fused, as many as the target has tensors of its own that may be them: a pairing that was not found looks
    like that, and not like fusion. hidden: of unseen, those whose reason does not say that nothing is missing.
    """

    compared: int
    fused: int
    unmatched: int
    unseen: int
    lost: int
    hidden: int

    @property
    def total(self) -> int:
        """All rows."""
        return self.compared + self.fused + self.unmatched + self.unseen

    @property
    def share(self) -> float:
        """Compared tensors over these and those that are missing without an explanation; 0 where none was compared."""
        return self.compared / (self.compared + self.lost + self.hidden) if self.compared else 0.0


def coverage(rows: Iterable[Row]) -> Coverage:
    """Count the rows of a report."""
    compared = fused = unmatched = unseen = vanished = free = hidden = 0
    for row in rows:
        kind = _kind(row)
        explained = is_whole(row.reason)
        if row.comparison is not None and kind is not Status.NOT_COMPARED:
            compared += 1
        elif kind is Status.UNMATCHED:
            unmatched += 1
            free += not (explained or QUANTISED.search(row.op_type) or _CARRIES.search(row.op_type))
        elif kind is Status.FUSED_AWAY:
            fused += 1
            vanished += not explained
        else:
            unseen += 1
            hidden += not explained
    return Coverage(
        compared=compared, fused=fused, unmatched=unmatched, unseen=unseen, lost=min(vanished, free), hidden=hidden
    )


def _kind(row: Row) -> Status:
    """The status, but for tensors without an element, and for what only fails because of its NaN or Inf."""
    if row.comparison is not None:
        empty = not (row.comparison.base.elements or row.comparison.target.elements)
        return Status.NOT_COMPARED if empty else row.status
    if row.status is Status.FAIL:
        return Status.FUSED_AWAY if row.target is None else Status.UNMATCHED
    return row.status
