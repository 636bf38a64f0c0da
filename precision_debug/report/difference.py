"""Two reports side by side: which tensors got better or worse, before and after a fix, a release or another card."""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..claims import ENDED, Claim, Verdict, fold_claims, hold_claim, leave_claim_open, refute_claim
from ..records import Culprit, Doubt, Row, Status
from .blame import named_culprits
from .model import Report

__all__ = ["NOISE", "TIMES", "Change", "Difference", "Tensor", "compare_reports"]

TIMES = 2.0
"""An error has to grow or shrink by more than this: engines of two builds differ by less in most tensors."""

NOISE = 1e-6
"""Relative L2 errors below this are rounding of FP32 itself, whatever their ratio."""

_BAD = {Status.FAIL: 2, Status.INCONCLUSIVE: 1, Status.PASS: 0}


class Change(str, enum.Enum):
    """What became of a tensor."""

    WORSE = "worse"
    BETTER = "better"
    SAME = "same"
    LOST = "no longer compared"
    NEW = "newly compared"
    GONE = "gone"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, kw_only=True)
class Tensor:
    """One tensor in both reports; a side is None where it has no such row.

    ratio: the later relative L2 error over the earlier one; None where one was not compared, inf where the earlier one
    was none.
    """

    name: str
    op_type: str
    change: Change
    before: Row | None
    after: Row | None
    ratio: float | None = None


@dataclass(frozen=True, kw_only=True)
class Difference:
    """tensors: every one, in the order of the later report, then those that only the earlier one has.

    gone, fresh: culprits of the earlier report only, and of the later one only.
    """

    before: Report
    after: Report
    tensors: tuple[Tensor, ...]
    gone: tuple[Culprit, ...] = ()
    fresh: tuple[Culprit, ...] = ()

    def of(self, *changes: Change) -> tuple[Tensor, ...]:
        """Return tensors with one of these changes, the largest change first."""
        found = [tensor for tensor in self.tensors if tensor.change in changes]
        return tuple(sorted(found, key=_size_of_change, reverse=True))

    @property
    def counts(self) -> Mapping[Change, int]:
        """Tensors by change; every change is present."""
        return {change: sum(tensor.change is change for tensor in self.tensors) for change in Change}

    @property
    def regressed(self) -> bool:
        """Something is worse, is no longer compared, or a culprit is new."""
        return bool(self.fresh) or any(t.change in (Change.WORSE, Change.LOST, Change.GONE) for t in self.tensors)


    @property
    def claims(self) -> tuple[Claim, ...]:
        """What it says where nothing got worse."""
        bad = self.of(Change.WORSE, Change.LOST, Change.GONE)
        names = tuple(tensor.name for tensor in bad[:_NAMED])
        fresh = tuple(culprit.name for culprit in self.fresh)
        both = sum(_was_compared(tensor.before) and _was_compared(tensor.after) for tensor in self.tensors)
        then, now = self.before.exit_status, self.after.exit_status
        ended = Doubt(code="ended_early", values={"why": self.after.failure})
        return (
            refute_claim("nothing_worse", tensors=names,
            culprits=fresh) if self.regressed else hold_claim("nothing_worse"),
            refute_claim("verdict_no_worse", before=str(self.before.verdict), after=str(self.after.verdict))
            if now > then else hold_claim("verdict_no_worse", after=str(self.after.verdict)),
            hold_claim("tensors_in_common", tensors=both) if both
            else leave_claim_open("tensors_in_common", Doubt(code="nothing_compared")),
            leave_claim_open(ENDED, ended) if self.after.failure else hold_claim(ENDED),
            *[claim for claim in self.after.claims if claim.code == "unchanged"],
        )  # fmt: skip

    @property
    def verdict(self) -> Verdict:
        """The fold of ``claims``."""
        return fold_claims(self.claims, _NEEDED, asked=True)


_NEEDED = ("nothing_worse", "verdict_no_worse", "tensors_in_common", "unchanged", ENDED)
_NAMED = 20


def _was_compared(row: Row | None) -> bool:
    return row is not None and row.comparison is not None


def compare_reports(before: Report, after: Report, *, times: float = TIMES, noise: float = NOISE) -> Difference:
    """Match the rows of two reports by tensor name and say what changed.

    times: the factor by which a relative L2 error must change to count. noise: errors below it do not count. A status
    that changes always counts.
    """
    earlier = {row.name: row for row in before.rows}
    later = {row.name: row for row in after.rows}
    tensors = [_match_tensor(name, earlier.get(name), row, times, noise) for name, row in later.items()]
    tensors += [_match_tensor(name, row, None, times, noise) for name, row in earlier.items() if name not in later]
    old, new = named_culprits(before), named_culprits(after)
    return Difference(
        before=before,
        after=after,
        tensors=tuple(tensors),
        gone=_without(old, new),
        fresh=_without(new, old),
    )


def _match_tensor(name: str, before: Row | None, after: Row | None, times: float, noise: float) -> Tensor:
    change, ratio = _classify_change(before, after, times, noise)
    row = after or before
    assert row is not None
    return Tensor(name=name, op_type=row.op_type, change=change, before=before, after=after, ratio=ratio)


def _classify_change(before: Row | None, after: Row | None, times: float, noise: float) -> tuple[Change, float | None]:
    had = before is not None and before.comparison is not None
    has = after is not None and after.comparison is not None
    if before is None or after is None:
        return Change.GONE if had else Change.NEW if has else Change.SAME, None
    if not had or not has:
        return Change.LOST if had else Change.NEW if has else Change.SAME, None
    old, new = _error_of_row(before), _error_of_row(after)
    ratio = 1.0 if new == old else new / old if old else math.inf
    badness = _BAD.get(after.status, 0) - _BAD.get(before.status, 0)
    if badness:
        return Change.WORSE if badness > 0 else Change.BETTER, ratio
    if new > noise and (not math.isfinite(ratio) or ratio > times):
        return Change.WORSE, ratio
    if old > noise and ratio < 1 / times:
        return Change.BETTER, ratio
    return Change.SAME, ratio


def _error_of_row(row: Row) -> float:
    """Return the relative L2; inf where it cannot be told, as for shapes or NaN that differ."""
    error = row.relative_l2
    if error is None or math.isnan(error):
        return math.inf if row.status is Status.FAIL else 0.0
    return float(error)


def _size_of_change(tensor: Tensor) -> tuple[bool, float]:
    """Return tensors that became NaN or Inf, or no longer are, go before all others."""
    ratio, sides = tensor.ratio, [row for row in (tensor.before, tensor.after) if row is not None]
    wild = len({row.relative_l2 == math.inf for row in sides}) > 1
    if ratio is None or not math.isfinite(ratio):
        return wild, math.inf
    return wild, ratio if ratio >= 1 else 1 / ratio if ratio else math.inf


def _without(some: Sequence[Culprit], others: Sequence[Culprit]) -> tuple[Culprit, ...]:
    known = {(culprit.name, culprit.cause) for culprit in others}
    return tuple(culprit for culprit in some if (culprit.name, culprit.cause) not in known)
