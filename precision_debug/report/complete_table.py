"""From finished rows to the whole table.

It has a row for every tensor of either side that was asked for: those that were compared, those that the target's graph
no longer has, those that only the target has, and those that could not be seen.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from ..pairing.align import Alignment, Pair, stem
from ..reasons import NOTHING, Reason, as_reason, say
from ..records import (
    Row,
    Status,
    TensorMeta,
    TensorStats,
)
from .values import newly_broken

__all__ = ["complete_table"]


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
            reason = as_reason(meta.unseen) or (say("ended") if before else say("not_called"))
            row = Row(index=0, op_type=meta.op_type, name=name, status=Status.UNMATCHED, reason=reason,
                      target_name=name, target_op_type=meta.op_type)  # fmt: skip
        keyed.append(((place, number), _dressed(row, None, meta)))
    for row in alone.values():
        keyed.append(((len(order) + 0.5, row.index), row))

    keyed.sort(key=lambda item: item[0])
    ordered = [dataclasses.replace(row, index=index) for index, (_, row) in enumerate(keyed)]
    return _with_growth(ordered, base_meta)


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
        if error is None or given is None or row.name not in base_meta or math.isnan(error) or newly_broken(row):
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
