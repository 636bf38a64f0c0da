"""From a journal to a report.

Events of a journal: start, side, tensors, matches, renames, selected, inputs, saved, row, ran, leftover, layers, note,
portrait, scores, shard, introduced, explanation, tried, fix, failure, end.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from ..codec import decode
from ..explain import usual_error
from ..inspector import EngineLayer
from ..numbers import judge
from ..numbers.portrait import Portrait
from ..observe.shard import Shard
from ..pairing.align import Alignment, align
from ..protocols import Matches
from ..reasons import Reason, as_reason, say
from ..records import (
    Explanation,
    InputInfo,
    Introduced,
    ModelFiles,
    Row,
    RunSpec,
    Side,
    Status,
    TensorMeta,
    TensorStats,
)
from ..search import Fix
from .complete_table import complete_table
from .model import Report

_FIRST, _WORST = 8, 12
"""Rows that keep their picture."""

__all__ = ["report_of_events"]


def report_of_events(events: Iterable[Mapping[str, Any]], *, failure: str = "") -> Report:
    """The report of a run from its journal, also of one that ended early.

    failure: why it did, where the journal itself does not say. Raises KeyError or TypeError on a foreign journal.
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
    portraits: dict[tuple[str, bool], Portrait] = {}
    values: dict[str, Any] = {}
    whole: Shard | None = None
    ended, ran = False, set[str]()
    for event in events:
        kind = event["event"]
        if kind == "start":
            spec = decode(RunSpec, event["spec"])
            values |= {"machine": event["machine"], "started": event["started"]}
        elif kind == "side":
            sides[event["side"]] = decode(Side, event["info"])
        elif kind == "tensors":
            tensors[event["side"]] = tuple(decode(TensorMeta, item) for item in event["tensors"])
        elif kind == "matches":
            matches = decode(Matches, event["matches"])
        elif kind == "renames":
            renamed = {str(new): str(old) for new, old in event["renames"].items()}
        elif kind == "selected":
            selected = set(event["names"])
        elif kind == "inputs":
            values |= {"inputs": tuple(decode(InputInfo, item) for item in event["inputs"])}
            values |= {"inputs_source": event["source"], "inputs_file": event["file"]}
        elif kind in ("saved", "leftover"):
            if event.get("stats") is not None:
                stats[event["name"]] = decode(TensorStats, event["stats"])
        elif kind == "row":
            rows.append(decode(Row, event["row"]))
        elif kind == "shard":
            found = Shard.from_plain({key: value for key, value in event.items() if key != "event"})
            if whole is None:
                whole = found
            else:
                whole.merge(found)
        elif kind == "introduced":
            introduced = {item["name"]: decode(Introduced, item) for item in event["tensors"]}
        elif kind == "explanation":
            values["explanation"] = decode(Explanation, event["explanation"])
        elif kind == "layers":
            values["layers"] = tuple(decode(EngineLayer, item) for item in event["layers"])
        elif kind == "fix":
            values["fix"] = decode(Fix, event["fix"])
        elif kind == "portrait":
            portrait = decode(Portrait, event["portrait"])
            portraits[portrait.name, portrait.introduced] = portrait
        elif kind == "note":
            notes.append(as_reason(event["text"]))
        elif kind == "scores":
            values["scores"] = {key: decode(float, value) for key, value in event["scores"].items()}
            values["scored"] = event["samples"]
        elif kind == "ran":
            ran.add(event["side"])
        elif kind == "failure":
            failure = failure or event["text"]
        elif kind == "end":
            ended = True
            values["seconds"] = event["seconds"]
    if whole is not None:
        rows = whole.rows(spec.tolerance)
    if not ended and not failure:
        failure = "the run ended before its time, and nothing says why"
    renames = {
        new: old for new, old in (spec.renames if renamed is None else renamed).items()
        if _has(tensors["target"], new) and _has(tensors["baseline"], old)
    }  # fmt: skip
    alignment = align(tensors["baseline"], tensors["target"], renames, matches)
    if selected is not None:
        notes += _left_out(tensors["baseline"], selected, alignment)
    notes += _own(alignment)
    table = complete_table(rows, alignment, selected=selected, stats=stats, failure=failure, ran=len(ran) == 2)
    if introduced:
        table = tuple(dataclasses.replace(row, introduced=introduced.get(row.name)) for row in table)
    if not spec.tolerance.given:
        explained: Explanation | None = values.get("explanation")
        known = explained is not None and explained.allowed is not None
        allowed = explained.allowed if explained is not None and known else usual_error(spec.run_mode)
        table = tuple(judge.as_expected(row, allowed or 0.0) for row in table)
    if spec.validate:
        table = tuple(map(judge.validated, table))
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


def _has(metas: Sequence[TensorMeta], name: str) -> bool:
    return any(meta.name == name for meta in metas)
