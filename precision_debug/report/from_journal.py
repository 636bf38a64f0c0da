"""From a journal to a report.

A report is only ever made from what is on disk, so that a run that crashed or was killed gives the same rows, from the
same code, as one that ended.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import events
from ..explain import bound_of
from ..numbers import judge
from ..numbers.told import Portrait
from ..observe.sample_columns import ITERATIONS
from ..pairing.align import Alignment, strip_iteration
from ..reasons import Reason, say
from ..reasons.ways import read_way
from ..records import (
    Comparison,
    Introduced,
    ModelFiles,
    Repeated,
    Row,
    RunSpec,
    SamplesRead,
    Side,
    Status,
    TensorMeta,
    TensorStats,
)
from .complete_table import make_complete_table
from .decisions import add_decision_reason, explain_turned
from .doubts import error_sentence
from .model import Report

if TYPE_CHECKING:
    from ..observe.shard import Shard

_FIRST, _WORST = 8, 12
"""Rows that keep their picture."""

__all__ = ["report_of_events"]


def report_of_events(journal: Iterable[events.Event], *, failure: str = "") -> Report:
    """Return the report of a run from its journal, also of one that ended early.

    journal: see ``events``. failure: why it did, where the journal itself does not say.
    """
    found = _ReportState(failure=failure)
    for event in journal:
        found.take(event)
    return found.report()


@dataclass(kw_only=True)
class _ReportState:
    """What a journal has told so far."""

    failure: str
    spec: RunSpec = field(default_factory=lambda: RunSpec(model=ModelFiles(), run_mode=""))
    sides: dict[str, Side] = field(
        default_factory=lambda: {name: Side(mode="", backend="", model="") for name in ("baseline", "target")}
    )
    tensors: dict[str, tuple[TensorMeta, ...]] = field(default_factory=lambda: {"baseline": (), "target": ()})
    paired: events.Paired = field(default_factory=lambda: events.Paired(pairs={}))
    selected: set[str] | None = None
    stats: dict[str, TensorStats] = field(default_factory=dict)
    rows: list[Row] = field(default_factory=list)
    notes: list[Reason] = field(default_factory=list)
    introduced: dict[str, Introduced] = field(default_factory=dict)
    repeated: dict[str, Repeated] = field(default_factory=dict)
    portraits: dict[tuple[str, bool], Portrait] = field(default_factory=dict)
    whole: Shard | None = None
    ended: bool = False
    ran: set[str] = field(default_factory=set)
    sets: tuple[int, int] = (1, 1)
    values: dict[str, Any] = field(default_factory=dict)
    """Of the report, by its own names, as they are."""

    def take(self, event: events.Event) -> None:
        """One event."""
        self._of_the_sides(event)
        self._of_the_rows(event)
        self._of_the_whole(event)

    def _of_the_sides(self, event: events.Event) -> None:
        match event:
            case events.Start():
                self.spec = event.spec
                self.values |= {"machine": event.machine, "started": event.started}
            case events.SideOpened():
                self.sides[event.side] = event.info
            case events.Tensors():
                self.tensors[event.side] = event.tensors
            case events.Paired():
                self.paired = event
            case events.Selected():
                self.selected = set(event.names)
            case events.Inputs():
                self.values |= {"inputs": event.inputs, "inputs_source": event.source, "inputs_file": event.file}
                self.sets = (event.given, event.asked)
            case events.SideDone():
                self.ran.add(event.side)
            case events.Layers():
                self.values["layers"] = event.layers

    def _of_the_rows(self, event: events.Event) -> None:
        match event:
            case events.Saved() | events.Leftover() if event.stats is not None:
                self.stats[event.name] = event.stats
            case events.RowDone():
                self.rows.append(event.row)
            case events.ShardDone():
                from ..observe.shard import Shard  # needs numpy, as nothing else here does

                found = Shard.from_text(event.text)
                if self.whole is None:
                    self.whole = found
                else:
                    self.whole.merge(found)
            case events.IntroducedErrors():
                self.introduced = {one.name: one for one in event.tensors}
            case events.RepeatsFound():
                self.values["repeats"] = event.repeats
                self.repeated = {one.name: one for one in event.tensors}
            case events.PortraitMade():
                self.portraits[event.portrait.name, event.portrait.introduced] = event.portrait
            case events.Again():
                for collected in (self.rows, self.stats, self.portraits, self.ran):
                    collected.clear()
                self.whole = None

    def _of_the_whole(self, event: events.Event) -> None:
        match event:
            case events.TokensFound():
                self.values["tokens"] = event.tokens
            case events.TokenEffectsFound():
                self.values["token_effects"] = event.effects
            case events.Explained():
                self.values["explanation"] = event.explanation
            case events.KeepFound():
                self.values["to_keep"] = event.to_keep
            case events.FixFound():
                self.values["fix"] = event.fix
            case events.Note():
                self.notes.append(event.text)
            case events.Scores():
                self.values |= {"scores": event.scores, "scored": event.samples, "metric": event.metric}
            case events.Checked():
                self.values |= {"checks": event.shares, "checked": event.samples, "checked_by": event.function}
            case events.Failure():
                self.failure = self.failure or error_sentence(event)
            case events.End():
                self.ended = True
                self.values["seconds"] = event.seconds

    def report(self) -> Report:
        """Of all that was told."""
        if self.whole is not None:
            self.rows = self.whole.rows(self.spec.tolerance)
            self.stats |= self.whole.alone
        self.rows = _drop_single_iterations(self.rows)
        if not self.ended and not self.failure:
            self.failure = "the run ended early for an unknown reason"
        paired = self.paired
        pairs = {name: (base, read_way(how)) for name, (base, how) in paired.pairs.items()}
        alignment = Alignment.of(
            self.tensors["baseline"], self.tensors["target"], pairs, rivals=paired.rivals,
            refused=paired.refused, missing={**self._left_out_step(), **paired.missing},
        )  # fmt: skip
        if self.selected is not None:
            self.notes += _iterate_left_out(self.tensors["baseline"], self.selected, alignment)
        self.notes += _iterate_target_only(alignment)
        table = self._table(alignment)
        return Report(
            rows=table, spec=self.spec, baseline=self.sides["baseline"], target=self.sides["target"],
            notes=tuple(self.notes), failure=self.failure,
            portraits=_choose_portraits(self.portraits.values(), table), samples=self._samples(), **self.values,
        )  # fmt: skip

    def _samples(self) -> SamplesRead:
        """A report of one sample has no parts."""
        given, asked = self.sets
        read = len(self.whole.samples) if self.whole is not None else min(1, len(self.rows))
        return SamplesRead(given=given, asked=asked, read=read)

    def _left_out_step(self) -> dict[str, Reason]:
        """Return the reasons for gradients and updates that the target lacks where GradScaler left its step out.

        Why the target lacks a parameter's gradient, and what the baseline's optimiser made."""
        metas, there = self.tensors["baseline"], {meta.name for meta in self.tensors["target"]}
        none = say("step_no_gradient")
        found = {
            meta.name: none for meta in metas if meta.is_output and "gradient/" in meta.name and meta.name not in there
        }
        if any(note.code == "step_skipped" for note in self.sides["target"].notes):
            left = say("step_left_out")
            found |= {meta.name: left for meta in metas if meta.phase == "optimiser" or meta.name.startswith("state/")}
        return found if there else {}

    def _table(self, alignment: Alignment) -> tuple[Row, ...]:
        """Return every row, judged."""
        stopped = self.failure or next((str(note) for note in self.notes if note.code == "fail_fast"), "")
        table = make_complete_table(
            self.rows, alignment, selected=self.selected, stats=self.stats, failure=stopped, ran=len(self.ran) == 2
        )
        if self.introduced:
            table = tuple(dataclasses.replace(row, introduced=self.introduced.get(row.name)) for row in table)
        if self.repeated:
            table = tuple(dataclasses.replace(row, repeated=self.repeated.get(row.name)) for row in table)
        explained = self.values.get("explanation")
        allowed = bound_of(explained, self.sides["target"].precision)
        own, rounded = (explained.allowed_at, {*explained.rounded}) if explained is not None else ({}, set())
        tolerance, validate = self.spec.tolerance, self.spec.validate
        judged = (
            judge.judge_row(
                row, tolerance, allowed=own.get(row.name, allowed), validate=validate, rounded=row.name in rounded,
                turned=explain_turned(explained, row.name),
            )
            for row in table
        )  # fmt: skip
        return excuse_other_cuts(tuple(add_decision_reason(row, explained) for row in judged))


def excuse_other_cuts(rows: tuple[Row, ...]) -> tuple[Row, ...]:
    """Return the rows where inner tensors of another shape are no failure if every output, and every gradient, agrees.

    Who cuts the work into micro-batches, pads it or fuses what reads one tensor has other tensors inside."""
    ends = [row for row in rows if row.is_output and row.comparison is not None]
    if not ends or any(row.status is not Status.PASS for row in ends):
        return rows
    return tuple(_cut_otherwise(row, row.comparison) if row.reason.code == "shape" else row for row in rows)


def _cut_otherwise(row: Row, numbers: Comparison | None) -> Row:
    if row.is_output or numbers is None:
        return row
    base, target = ([*one.shape] for one in (numbers.base, numbers.target))
    return dataclasses.replace(
        row, status=Status.UNMATCHED, reason=say("cut_otherwise", base=str(base), target=str(target)),
        comparison=None, base=numbers.base, target=numbers.target,
    )  # fmt: skip


def _drop_single_iterations(rows: Sequence[Row]) -> list[Row]:
    """Return the rows without those of single iterations that merged rows are over, and of merged rows the last
    word."""
    merged = {(row.name, row.target_name): row for row in rows if ITERATIONS in row.extra}
    many = {row.target_name for row in merged.values()}
    if not many:
        return list(rows)
    worst = {
        strip_iteration(name): name for name, _ in merged if strip_iteration(name) != name
    }  # an earlier one was the worst till then
    alone = [row for row in rows if ITERATIONS not in row.extra and strip_iteration(row.target_name) not in many]
    return [
        *alone,
        *(
            row
            for (name, _), row in merged.items()
            if name in {strip_iteration(name), worst.get(strip_iteration(name))}
        ),
    ]


def _choose_portraits(portraits: Collection[Portrait], rows: Sequence[Row]) -> tuple[Portrait, ...]:
    """Of culprits, of the first rows that failed and of the worst: what was among the worst for a while is left out."""
    kept = [portrait for portrait in portraits if portrait.introduced]
    drawn = {portrait.name: portrait for portrait in portraits if not portrait.introduced}
    failed = [row for row in rows if row.status is Status.FAIL and row.name in drawn]
    blamed = {portrait.name for portrait in kept}
    first = [row.name for row in failed[:_FIRST]]
    worst = sorted(failed, key=lambda row: row.relative_l2 or 0.0, reverse=True)[:_WORST]
    wanted = {*blamed, *first, *(row.name for row in worst)}
    return (*kept, *(drawn[row.name] for row in rows if row.name in wanted & drawn.keys()))


def _iterate_left_out(
    baseline: Sequence[TensorMeta], selected: Collection[str], alignment: Alignment
) -> Iterator[Reason]:
    """Yield what the table lacks because only some tensors were asked for."""
    unmarked = sum(1 for meta in baseline if meta.name not in selected)
    alone = sum(1 for meta in alignment.target if meta.name not in alignment.pairs)
    if unmarked:
        every = len(baseline)
        yield (
            say("not_marked_nor", count=unmarked, all=every, alone=alone)
            if alone
            else say("not_marked", count=unmarked, all=every)
        )
    elif alone:
        yield say("only_target_left_out", alone=alone)


def _iterate_target_only(alignment: Alignment) -> Iterator[Reason]:
    """Yield what the table lacks because the baseline cannot have it."""
    own = [meta for meta in alignment.target if meta.own and meta.name not in alignment.pairs]
    if own:
        yield say("own_steps", count=len(own), some=", ".join(f"{meta.op_type} {meta.name}" for meta in own[:2]))
