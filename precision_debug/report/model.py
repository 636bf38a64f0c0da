"""The finished report: rows plus everything a reader needs to trust them, and what follows from both."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..claims import ENDED, NEEDED, Claim, State, Verdict, claims_of, exit_status_of, fold_claims
from ..errors import UsageError
from ..inspector import EngineLayer
from ..numbers.number_types import QUANTISED
from ..numbers.told import Portrait, Repeats, TokenEffects, Tokens
from ..reasons import Reason, ReasonOrText
from ..records import Doubt, Explanation, InputInfo, MetricChange, Row, RunSpec, SamplesRead, Side, Status
from ..search.fix import Fix, ToKeep
from .formats import format_of, write
from .values import is_newly_broken
from .words import is_whole

if TYPE_CHECKING:
    import pandas

__all__ = ["FORMAT_VERSION", "Coverage", "InputInfo", "Report", "Side", "Verdict", "count_coverage"]


# How much of the model the comparison covers, and what of the rest is explained.

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
    def baselines(self) -> int:
        """All that the baseline has, or that neither side shows."""
        return self.total - self.unmatched

    @property
    def share(self) -> float:
        """Compared tensors over these and those that are missing without an explanation; 0 where none was compared."""
        return self.compared / (self.compared + self.lost + self.hidden) if self.compared else 0.0


def count_coverage(rows: Iterable[Row]) -> Coverage:
    """Count the rows of a report."""
    compared = fused = unmatched = unseen = vanished = free = hidden = 0
    for row in rows:
        kind = _kind_of_row(row)
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


def _kind_of_row(row: Row) -> Status:
    """Return the status, but for tensors without an element, and for what only fails because of its NaN or Inf."""
    if row.comparison is not None:
        empty = not (row.comparison.base.elements or row.comparison.target.elements)
        return Status.NOT_COMPARED if empty else row.status
    if row.status is Status.FAIL:
        return Status.FUSED_AWAY if row.target is None else Status.UNMATCHED
    return row.status


FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Report:
    """What was compared, how it was paired, and what came of it.

    failure: one line on why the run ended early; "" where it did not.
    scores: what the answer is worth ("top-1 agreement", "top-1 accuracy, baseline", …), shares from 0 to 1, of
    ``scored`` samples. metric: of these the user's own, which decides where it gets worse.
    checks: what a function of the user's, ``checked_by``, said of each output ("": of all at once): the share of
    ``checked`` samples that are good enough. It then decides in place of tolerances.
    explanation: who introduced the error, and why; None where that was not asked for.
    layers: of the engine that the target really ran, where an inspector told them.
    repeats: how far several builds of the target are apart, where that was asked for.
    tokens: of a language model, what it says token by token; token_effects: who moves the worst of them.
    to_keep: how the target's mode keeps the culprits that higher precision mends; None where there are none, or nobody
    can tell. fix: what to keep in higher precision, where that was searched for.
    portraits: pictures of values and errors, of culprits and of some rows that failed.
    asserted: claims of whoever asked for the comparison (a test's thresholds, its golden report); one that is about
    what the report itself judges takes its place. samples: how many were read; None: it does not say.
    inputs_file: where the feeds were stored, relative to the report. tensors_file: where both sides of the
    ``saved_tensors`` are, in that order: "1.baseline", "1.target", "2.baseline", …, and "names".
    """

    rows: tuple[Row, ...]
    spec: RunSpec
    baseline: Side
    target: Side
    inputs: tuple[InputInfo, ...] = ()
    inputs_file: str = ""
    inputs_source: ReasonOrText = ""
    machine: Mapping[str, str] = field(default_factory=dict)
    started: str = ""
    seconds: float = 0.0
    notes: tuple[Reason, ...] = ()
    scores: Mapping[str, float] = field(default_factory=dict)
    scored: int = 0
    metric: MetricChange | None = None
    checks: Mapping[str, float] = field(default_factory=dict)
    checked: int = 0
    checked_by: str = ""
    failure: ReasonOrText = ""
    explanation: Explanation | None = None
    layers: tuple[EngineLayer, ...] = ()
    to_keep: ToKeep | None = None
    fix: Fix | None = None
    portraits: tuple[Portrait, ...] = ()
    tensors_file: str = ""
    saved_tensors: tuple[str, ...] = ()
    repeats: Repeats | None = None
    tokens: Tokens | None = None
    token_effects: TokenEffects | None = None
    asserted: tuple[Claim, ...] = ()
    samples: SamplesRead | None = None
    format_version: int = FORMAT_VERSION

    @property
    def counts(self) -> dict[Status, int]:
        """Rows by status; every status is present."""
        counts = dict.fromkeys(Status, 0)
        for row in self.rows:
            counts[row.status] += 1
        return counts

    @property
    def compared(self) -> tuple[Row, ...]:
        """Rows that were compared, in table order."""
        return tuple(row for row in self.rows if row.comparison is not None)

    @property
    def outputs(self) -> tuple[Row, ...]:
        """Rows of the model's final outputs."""
        return tuple(row for row in self.rows if row.is_output)

    @property
    def first_mismatch(self) -> Row | None:
        """The first row, in the baseline's execution order, that is out of tolerance."""
        return next((row for row in self.rows if row.status is Status.FAIL), None)

    @property
    def first_non_finite(self) -> Row | None:
        """The first row, in the baseline's execution order, with a NaN or an infinity that is not the model's own.

        The same infinities on both sides (a causal mask's) are the model's own, and those of a tensor that only the
        baseline has, or only the target, before or behind a cast; ``--validate`` asks for them too.
        """
        found = [row for row in self.rows if row.non_finite]
        own = [] if self.spec.validate else [row for row in found if _has_own_infinities(row)]
        more = {row.index for row in own} | {row.index for row in found if own and _are_infinities_own(row, own)}
        return next((row for row in found if row.index not in more), None)

    @cached_property
    def claims(self) -> tuple[Claim, ...]:
        """What a pass says, each claim with its evidence or the reason why it is open, the weightiest first."""
        return claims_of(self)

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Why the report says less than it seems to: ``report.doubts.worded`` has the words, also in Chinese."""
        told = [claim for claim in self.claims if claim.state is not State.REFUTED and claim.code != ENDED]
        return tuple(claim.why for claim in told if claim.why is not None)

    @property
    def coverage(self) -> Coverage:
        """How many tensors were compared, fused away, unmatched and not seen."""
        return count_coverage(self.rows)

    @property
    def verdict(self) -> Verdict:
        """The fold of ``claims``: a pass is all of them held, and there is no other way to one."""
        return fold_claims(self.claims, NEEDED, asked=self._asked)

    @property
    def _asked(self) -> bool:
        """Whether a criterion of the user's decides."""
        of_metric = self.metric is not None and bool(self.spec.metric_drop)
        return bool(self.spec.tolerance.given or self.checks or self.asserted or of_metric)

    @property
    def exit_status(self) -> int:
        """0 within tolerance or as expected, 1 out of tolerance or inconclusive, 3 partial."""
        return exit_status_of([self.verdict])

    def worst(self, count: int = 5) -> tuple[Row, ...]:
        """Return the failed rows whose operator itself lost the most.

        By the relative L2 error that it introduced, as measured, or where that was not, by how much larger than its
        inputs' its error is. Of failed rows that only hand on what they were given, those rows whose operators
        introduced it."""
        failed = [row for row in self.rows if row.status is Status.FAIL]
        if failed and all(row.introduced is not None and row.introduced.rel_l2 == 0 for row in failed):
            failed = [row for row in self.compared if row.introduced is not None and row.introduced.rel_l2]
        return tuple(sorted(failed, key=_loss_of_row, reverse=True)[:count])

    def save(self, path: str | Path) -> Path:
        """Write the report in the format of the path's suffix (.xlsx .csv .json …). Raises OutputError."""
        return write(self, path)

    def to_excel(self, path: str | Path, *, demo_sheet: bool = False) -> Path:
        """``save`` to a path that ends in .xlsx. Raises UsageError where it does not, and OutputError.

        demo_sheet: with a sheet as Paddle-Inference-Demo's tool writes it, too (Sheet1, with an index column).
        """
        own = replace(self, spec=replace(self.spec, demo_sheet=True)) if demo_sheet else self
        return own._save_as(".xlsx", path)

    def to_csv(self, path: str | Path) -> Path:
        """``save`` to a path that ends in .csv. Raises UsageError where it does not, and OutputError."""
        return self._save_as(".csv", path)

    def to_json(self, path: str | Path) -> Path:
        """``save`` to a path that ends in .json. Raises UsageError where it does not, and OutputError."""
        return self._save_as(".json", path)

    def _save_as(self, suffix: str, path: str | Path) -> Path:
        if Path(path).suffix.lower() != suffix:
            raise UsageError(
                f"only writes {suffix} files", where=str(path),
                hint=f"end the name in {suffix}; save() takes the format of any ending",
            )  # fmt: skip
        return self.save(path)

    def to_pandas(self) -> pandas.DataFrame:
        """One line a row and one typed column a column of the table. Needs pandas."""
        from .layout import to_pandas

        return to_pandas(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the sentences, and the rows that are worst."""
        shown: str = format_of("html").as_html(self)
        return shown

    def to_dict(self) -> dict[str, Any]:
        """Everything, as plain values; ``from_dict`` is the inverse."""
        plain: dict[str, Any] = format_of("json").to_dict(self)
        return plain

    @classmethod
    def load(cls, path: str | Path) -> Report:
        """Read a .json report back. Raises OutputError where it is none."""
        found: Report = format_of("json").load(Path(path))
        return found


def _has_own_infinities(row: Row) -> bool:
    numbers = row.comparison
    if numbers is None:
        return row.target is None and row.base is not None and not row.base.nan
    nan = numbers.base.nan or numbers.target.nan
    return not nan and numbers.base.inf == numbers.target.inf and numbers.required_atol != math.inf


def _are_infinities_own(row: Row, own: Sequence[Row]) -> bool:
    """Return whether infinities that only the target shows are the model's own.

    Those that the same node makes, or that it reads: what a cast is between is a tensor of its own there."""
    there = row.target
    if row.comparison is not None or there is None or there.nan:
        return False
    both = (one for one in own if one.comparison is not None and there.inf <= one.comparison.target.inf)
    return any((row.node and row.node == one.node) or {one.name, one.target_name} & {*row.inputs} for one in both)


def _loss_of_row(row: Row) -> tuple[bool, float]:
    """Return whether the tensor is broken (shape, new NaN or Inf), and the relative error that its operator itself
    added."""
    comparison, error = row.comparison, row.relative_l2 or 0.0
    apart = comparison is not None and not comparison.shapes_match and row.status is Status.FAIL
    broken = apart or (comparison is not None and is_newly_broken(row))
    own = row.introduced
    if own is not None and (own.rel_l2 is not None or own.flips == 0):
        return broken, own.rel_l2 or 0.0
    growth = row.error_growth
    return broken, error if growth is None else max(0.0, error * (1 - 1 / growth)) if growth else 0.0
