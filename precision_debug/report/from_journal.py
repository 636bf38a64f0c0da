"""From a journal to a report."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import events
from ..explain import allowed_by
from ..numbers import judge
from ..numbers.portrait import Portrait
from ..pairing.align import Alignment, align
from ..protocols import Matches
from ..reasons import Reason, say
from ..records import (
    Introduced,
    ModelFiles,
    Repeated,
    Row,
    RunSpec,
    Side,
    Status,
    TensorMeta,
    TensorStats,
)
from .complete_table import complete_table
from .failure import sentence_of
from .model import Report

if TYPE_CHECKING:
    from ..observe.shard import Shard

_FIRST, _WORST = 8, 12
"""Rows that keep their picture."""

__all__ = ["report_of_events"]


def report_of_events(told: Iterable[events.Event], *, failure: str = "") -> Report:
    """The report of a run from its journal, also of one that ended early.

    told: see ``events``. failure: why it did, where the journal itself does not say.
    """
    spec = RunSpec(model=ModelFiles(), run_mode="")
    sides = {name: Side(mode="", backend="", model="") for name in ("baseline", "target")}
    tensors: dict[str, tuple[TensorMeta, ...]] = {"baseline": (), "target": ()}
    selected: set[str] | None = None
    renamed: Mapping[str, str] | None = None
    matches: Matches | None = None
    stats: dict[str, TensorStats] = {}
    rows: list[Row] = []
    notes: list[Reason] = []
    introduced: dict[str, Introduced] = {}
    repeated: dict[str, Repeated] = {}
    portraits: dict[tuple[str, bool], Portrait] = {}
    values: dict[str, Any] = {}
    whole: Shard | None = None
    ended, ran, two_files = False, set[str](), False
    for event in told:
        match event:
            case events.Start():
                spec = event.spec
                values |= {"machine": event.machine, "started": event.started}
            case events.SideTold():
                sides[event.side] = event.info
            case events.Tensors():
                tensors[event.side] = event.tensors
            case events.Matched():
                matches = event.matches
            case events.Renames():
                renamed, two_files = event.renames, event.two_files
            case events.Selected():
                selected = set(event.names)
            case events.Inputs():
                values |= {"inputs": event.inputs, "inputs_source": event.source, "inputs_file": event.file}
            case events.Saved() | events.Leftover() if event.stats is not None:
                stats[event.name] = event.stats
            case events.RowDone():
                rows.append(event.row)
            case events.ShardDone():
                from ..observe.shard import Shard  # needs numpy, as nothing else here does

                found = Shard.from_text(event.text)
                if whole is None:
                    whole = found
                else:
                    whole.merge(found)
            case events.IntroducedErrors():
                introduced = {one.name: one for one in event.tensors}
            case events.Explained():
                values["explanation"] = event.explanation
            case events.Layers():
                values["layers"] = event.layers
            case events.KeepTold():
                values["to_keep"] = event.to_keep
            case events.FixFound():
                values["fix"] = event.fix
            case events.PortraitMade():
                portraits[event.portrait.name, event.portrait.introduced] = event.portrait
            case events.Note():
                notes.append(event.text)
            case events.Scores():
                values |= {"scores": event.scores, "scored": event.samples}
            case events.RepeatsFound():
                values["repeats"] = event.repeats
                repeated = {one.name: one for one in event.tensors}
            case events.Checked():
                values |= {"checks": event.shares, "checked": event.samples, "checked_by": event.function}
            case events.SideDone():
                ran.add(event.side)
            case events.Again():
                for collected in (rows, stats, portraits, ran):
                    collected.clear()
                whole = None
            case events.Failure():
                failure = failure or sentence_of(event)
            case events.End():
                ended = True
                values["seconds"] = event.seconds
    if whole is not None:
        rows = whole.rows(spec.tolerance)
        stats |= whole.alone
    if not ended and not failure:
        failure = "the run ended before its time, and nothing says why"
    here, there = ({meta.name for meta in tensors[side]} for side in ("target", "baseline"))
    given = spec.renames if renamed is None else renamed
    renames = {new: old for new, old in given.items() if new in here and old in there}
    alignment = align(tensors["baseline"], tensors["target"], renames, matches, two_files=two_files)
    if selected is not None:
        notes += _left_out(tensors["baseline"], selected, alignment)
    notes += _own(alignment)
    stopped = failure or next((str(note) for note in notes if note.code == "fail_fast"), "")
    table = complete_table(rows, alignment, selected=selected, stats=stats, failure=stopped, ran=len(ran) == 2)
    if introduced:
        table = tuple(dataclasses.replace(row, introduced=introduced.get(row.name)) for row in table)
    if repeated:
        table = tuple(dataclasses.replace(row, repeated=repeated.get(row.name)) for row in table)
    allowed = allowed_by(values.get("explanation"), sides["target"].precision)
    table = tuple(judge.judged(row, spec.tolerance, allowed=allowed, validate=spec.validate) for row in table)
    return Report(
        rows=table, spec=spec, baseline=sides["baseline"], target=sides["target"], notes=tuple(notes), failure=failure,
        portraits=_worth_keeping(portraits.values(), table), **values,
    )  # fmt: skip


def _worth_keeping(portraits: Collection[Portrait], rows: Sequence[Row]) -> tuple[Portrait, ...]:
    """Of culprits, of the first rows that failed and of the worst: what was among the worst for a while is left out."""
    kept = [portrait for portrait in portraits if portrait.introduced]
    drawn = {portrait.name: portrait for portrait in portraits if not portrait.introduced}
    failed = [row for row in rows if row.status is Status.FAIL and row.name in drawn]
    blamed = {portrait.name for portrait in kept}
    first = [row.name for row in failed[:_FIRST]]
    worst = sorted(failed, key=lambda row: row.relative_l2 or 0.0, reverse=True)[:_WORST]
    wanted = {*blamed, *first, *(row.name for row in worst)}
    return (*kept, *(drawn[row.name] for row in rows if row.name in wanted & drawn.keys()))


def _left_out(baseline: Sequence[TensorMeta], selected: Collection[str], alignment: Alignment) -> Iterator[Reason]:
    """What the table lacks because only some tensors were asked for."""
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


def _own(alignment: Alignment) -> Iterator[Reason]:
    """What the table lacks because the baseline cannot have it."""
    own = [meta for meta in alignment.target if meta.own and meta.name not in alignment.pairs]
    if own:
        yield say("own_steps", count=len(own), some=", ".join(f"{meta.op_type} {meta.name}" for meta in own[:2]))
