"""From finished rows to the whole table, and from a journal to a report.

The table has a row for every tensor of either side that was asked for: those that were compared, those that the
target's graph no longer has, those that only the target has, and those that could not be seen.

Events of a journal: start, side, tensors, matches, renames, selected, inputs, saved, row, ran, leftover, layers, note,
portrait, scores, shard, introduced, explanation, tried, fix, failure, end.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..codec import decode
from ..explain import usual_error
from ..inspector import EngineLayer
from ..numbers import judge
from ..numbers.portrait import Portrait
from ..observe.shard import Shard
from ..pairing.align import Alignment, Pair, align, stem
from ..protocols import Matches
from ..reasons import NOTHING, Reason, as_reason, say
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
from .machine import machine, now

if TYPE_CHECKING:
    from ..observe.hooks import AssertClose
    from .model import Report

_FIRST, _WORST = 8, 12
"""Rows that keep their picture."""

_NORM = re.compile(r"batch_?norm", re.IGNORECASE)

__all__ = ["complete_table", "report_of_events", "report_of_hooks"]


def complete_table(
    rows: Iterable[Row],
    alignment: Alignment,
    *,
    selected: Collection[str] | None = None,
    stats: Mapping[str, TensorStats] | None = None,
    failure: str = "",
    ran: bool = False,
) -> tuple[Row, ...]:
    """Order the rows as the baseline produced them, add what was not compared, and compute the error growth.

    selected: baseline names that were asked for; None: all. stats: of baseline tensors that met no partner.
    failure: why the run ended early; tensors that it kept from being compared say so. ran: it came after both sides
    had run to their ends. A tensor that lies before a compared one, in either side's order, was passed too.
    """
    stats = stats or {}
    base_meta = {meta.name: meta for meta in alignment.baseline}
    target_meta = {meta.name: meta for meta in alignment.target}
    order = {name: place for place, name in enumerate(base_meta)}
    partner = {pair.base.name: pair for pair in alignment.pairs.values()}
    fused = {name: meta for meta in alignment.target for name in meta.absorbs}
    done = {row.name: row for row in rows if row.status is not Status.UNMATCHED}
    iterated = {stem(name) for name in done if stem(name) in base_meta and name not in base_meta}
    alone = {row.target_name: row for row in rows if row.status is Status.UNMATCHED}

    places = {name: place for place, name in enumerate(target_meta)}
    last = max((order.get(stem(row.name), -1) for row in done.values()), default=-1)
    last_there = max((places.get(stem(row.target_name), -1) for row in done.values()), default=-1)

    def unreached(name: str, pair: Pair | None) -> bool:
        here = order[name] > last
        return bool(failure) and not ran and (here if pair is None else here or places[pair.target.name] > last_there)

    keyed: list[tuple[tuple[float, int], Row]] = []
    for name, meta in base_meta.items():
        if selected is not None and name not in selected:
            continue
        row = done.pop(name, None)
        if row is None and name in iterated:
            continue
        if row is None:
            pair = partner.get(name)
            status, reason = _why_not(meta, pair, failure, unreached(name, pair), alignment.missing.get(name, NOTHING))
            into = fused.get(stem(name))
            if status is Status.FUSED_AWAY and into is not None:
                reason = say("fused_into", operator=into.op_type, node=into.node)
            row = Row(
                index=0, op_type=meta.op_type, name=name, status=status, reason=reason, base=stats.get(name),
                target_name=pair.target.name if pair else "", target_op_type=pair.target.op_type if pair else "",
                paired_by=pair.how if pair else "",
            )  # fmt: skip
        keyed.append(((order[name], 0), _dressed(row, meta, target_meta.get(row.target_name))))
    for row in done.values():  # iterations, which no session announces
        name = stem(row.name)
        announced, other = base_meta.get(name), target_meta.get(stem(row.target_name))
        keyed.append(((order.get(name, len(order)), row.index), _dressed(row, announced, other)))

    place = -0.5
    for number, (name, meta) in enumerate(target_meta.items()):
        if name in alignment.pairs:
            place = order[alignment.pairs[name].base.name] + 0.5
            continue
        row = alone.pop(name, None)
        if meta.own or (row is None and selected is not None):
            continue
        if row is None:
            before = bool(failure) and not ran and places[name] > last_there
            reason = meta.unseen or (say("ended") if before else say("not_called"))
            row = Row(index=0, op_type=meta.op_type, name=name, status=Status.UNMATCHED, reason=reason,
                      target_name=name, target_op_type=meta.op_type)  # fmt: skip
        keyed.append(((place, number), _dressed(row, None, meta)))
    for row in alone.values():
        keyed.append(((len(order) + 0.5, row.index), row))

    keyed.sort(key=lambda item: item[0])
    ordered = [dataclasses.replace(row, index=index) for index, (_, row) in enumerate(keyed)]
    return _with_growth(ordered, base_meta)


def report_of_hooks(check: AssertClose) -> Report:
    """A report of two hooks that somebody else's script drove."""
    from .. import numbers
    from .model import Report

    base = check.baseline
    stats = dict(base.stats)
    shown = {row.name for row in check.rows}
    for name in base.store:
        array = base.store.get(name) if name not in shown else None
        if array is not None:
            stats[name] = numbers.describe(array)
    first, second = _known(base.announced, base.tensors), _known(check.announced, check.tensors)
    rows = complete_table(check.rows, align(first, second), stats=stats)
    spec = RunSpec(model=ModelFiles(), run_mode="hook", baseline="hook", tolerance=check.tolerance)
    notes = list(_raw_hooks(first, second)) if check.side is None else []
    if base.side is None or check.side is None:
        notes.append(say("hooks_only"))
    return Report(
        rows=rows,
        spec=spec,
        baseline=base.side or Side(mode="hook", backend="", model="", tensors=len(base.tensors)),
        target=check.side or Side(mode="hook", backend="", model="", tensors=len(check.tensors)),
        machine=machine(),
        started=now(),
        notes=tuple(notes),
    )


def _known(announced: Sequence[TensorMeta], seen: Sequence[TensorMeta]) -> tuple[TensorMeta, ...]:
    """What a run announced, and what its hook was shown beyond that."""
    names = {meta.name for meta in announced}
    return (*announced, *(meta for meta in seen if meta.name not in names))


def _raw_hooks(first: Sequence[TensorMeta], second: Sequence[TensorMeta]) -> Iterator[Reason]:
    """A warning where batch norms of one side are no operators of the other, as where they were folded into weights."""
    still = {meta.name for meta in second if _NORM.search(meta.op_type)}
    gone = [meta.name for meta in first if _NORM.search(meta.op_type) and meta.name not in still]
    if gone:
        yield say("norms_folded", count=len(gone), some=[*gone[:3], *("…" for _ in gone[3:4])])


def report_of_events(events: Iterable[Mapping[str, Any]], *, failure: str = "") -> Report:
    """The report of a run from its journal, also of one that ended early.

    failure: why it did, where the journal itself does not say. Raises KeyError or TypeError on a foreign journal.
    """
    from .model import Report

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


def _why_not(
    meta: TensorMeta, pair: Pair | None, failure: str, unreached: bool, missing: Reason = NOTHING
) -> tuple[Status, Reason]:
    if meta.unseen:
        return Status.NOT_COMPARED, say("of_baseline", why=meta.unseen)
    if pair is not None and pair.target.unseen:
        return Status.NOT_COMPARED, say("of_target", why=pair.target.unseen)
    if unreached:
        return Status.NOT_COMPARED, say("ended")
    if pair is not None and failure:
        return Status.NOT_COMPARED, say("ended_first")
    if pair is not None:
        return Status.NOT_COMPARED, say("not_on_both")
    if part := meta.extra.get("Part of"):
        return Status.FUSED_AWAY, say("target_does", part=part)
    if missing:
        return Status.NOT_COMPARED, missing
    return Status.FUSED_AWAY, say("gone")


def _dressed(row: Row, base: TensorMeta | None, target: TensorMeta | None) -> Row:
    extra = {**(base.extra if base else {}), **(target.extra if target else {})}
    meta = base or target
    return dataclasses.replace(
        row,
        node=row.node or (meta.node if meta else ""),
        inputs=meta.inputs if meta else (),
        is_output=bool(meta and meta.is_output),
        view=row.view or (target.view if target else ""),
        extra={**extra, **row.extra},
    )


def _with_growth(rows: Sequence[Row], base_meta: Mapping[str, TensorMeta]) -> tuple[Row, ...]:
    """The rows with the growth of their error; None where an input's error is not known."""
    if not any(meta.inputs for meta in base_meta.values()):
        return tuple(rows)  # a script's own hooks do not tell what reads what
    by_name = {row.name: row for row in rows}
    memo: dict[str, float | None] = {}

    def error_of(name: str) -> float | None:
        """Relative error of a tensor; of one that was fused away, the largest among the nearest that were compared.

        None: not known, as the tensor exists and was not compared. A model's input has none.
        """
        stack = [name]
        while stack:
            current = stack[-1]
            if current in memo:
                stack.pop()
                continue
            meta, row = base_meta.get(current), by_name.get(current)
            if meta is None or row is None or row.status is not Status.FUSED_AWAY:
                memo[current] = 0.0 if meta is None else _error(row)
                continue
            sources = [s for s in meta.inputs if s != current]
            waiting = [s for s in sources if s not in memo and s not in stack]
            if waiting:
                stack.extend(waiting)
            else:
                memo[current] = _largest(memo.get(s, 0.0) for s in sources)
        return memo[name]

    grown = []
    for row in rows:
        error = row.relative_l2
        given = _largest(error_of(name) for name in row.inputs)
        if error is None or given is None or row.name not in base_meta or math.isnan(error):
            grown.append(row)
            continue
        growth = 1.0 if error == given else (math.inf if given == 0 else error / given)
        grown.append(dataclasses.replace(row, error_growth=growth))
    return tuple(grown)


def _error(row: Row | None) -> float | None:
    error = row.relative_l2 if row is not None and row.comparison is not None else None
    return None if error is None or math.isnan(error) else error


def _largest(errors: Iterable[float | None]) -> float | None:
    """The largest one, 0 of none; None where one is not known."""
    known = list(errors)
    return None if None in known else max((error for error in known if error is not None), default=0.0)
