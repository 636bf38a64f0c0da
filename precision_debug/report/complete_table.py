"""From finished rows to the whole table.

It has a row for every tensor of either side that was asked for: those that were compared, those that the target's graph
no longer has, those that only the target has, and those that could not be seen.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from ..pairing.align import Alignment, Pair, strip_iteration
from ..reasons import NOTHING, Reason, as_reason, say
from ..reasons.ways import NO_WAY
from ..records import Row, Status, TensorMeta, TensorStats
from .values import is_newly_broken

__all__ = ["make_complete_table"]

Placed = tuple[tuple[float, int], Row]
"""A row, and the key that puts it into the table's order."""


def make_complete_table(
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
    finished = list(rows)
    table = _Table(alignment, finished, selected, failure, ran)
    placed = [*table.of_baseline(stats or {}), *table.of_iterations(), *table.of_target_alone()]
    placed.sort(key=lambda item: item[0])
    ordered = [row.replace(index=index) for index, (_, row) in enumerate(placed)]
    return _with_growth(ordered, table.base_meta)


class _Table:
    """The tensors that both sides list, beside the rows that are finished.

    Each method gives rows with the key that they are sorted by: the tensor's place in the baseline's order, and among
    those of one place the order of the rows themselves."""

    def __init__(
        self, alignment: Alignment, rows: Sequence[Row], selected: Collection[str] | None, failure: str, ran: bool
    ) -> None:
        self.alignment, self.selected, self.failure, self.ran = alignment, selected, failure, ran
        self.base_meta = {meta.name: meta for meta in alignment.baseline}
        self.target_meta = {meta.name: meta for meta in alignment.target}
        self.order = {name: place for place, name in enumerate(self.base_meta)}
        self.target_order = {name: place for place, name in enumerate(self.target_meta)}
        self.done = {row.name: row for row in rows if row.status is not Status.UNMATCHED}
        self.alone = {row.target_name: row for row in rows if row.status is Status.UNMATCHED}
        self.last = max((self.order.get(strip_iteration(row.name), -1) for row in self.done.values()), default=-1)
        ends = (self.target_order.get(strip_iteration(row.target_name), -1) for row in self.done.values())
        self.target_last = max(ends, default=-1)

    def asked(self, name: str) -> bool:
        return self.selected is None or name in self.selected

    def ended_before(self, name: str, pair: Pair | None) -> bool:
        """Return whether the run failed before a tensor of the baseline; of a pair either side may have passed it."""
        beyond = self.order[name] > self.last
        if pair is not None:
            beyond = beyond or self.ended_before_target(pair.target.name)
        return bool(self.failure) and not self.ran and beyond

    def ended_before_target(self, name: str) -> bool:
        return bool(self.failure) and not self.ran and self.target_order[name] > self.target_last

    def of_baseline(self, stats: Mapping[str, TensorStats]) -> Iterator[Placed]:
        """Yield every tensor that the baseline lists and that was asked for."""
        partner = {pair.base.name: pair for pair in self.alignment.pairs.values()}
        fused = {name: meta for meta in self.alignment.target for name in meta.absorbs}
        iterated = {strip_iteration(name) for name in self.done if name not in self.base_meta}
        for name, meta in self.base_meta.items():
            row = self.done.get(name)
            if not self.asked(name) or (row is None and name in iterated):
                continue
            if row is None:
                row = self._not_compared(meta, partner.get(name), fused.get(strip_iteration(name)), stats.get(name))
            yield (self.order[name], 0), _add_metadata(row, meta, self.target_meta.get(row.target_name))

    def _not_compared(
        self, meta: TensorMeta, pair: Pair | None, into: TensorMeta | None, stats: TensorStats | None
    ) -> Row:
        missing = self.alignment.missing.get(meta.name, NOTHING)
        status, reason = _explain_not_compared(meta, pair, self.failure, self.ended_before(meta.name, pair), missing)
        if status is Status.FUSED_AWAY and into is not None:
            reason = say("fused_into", operator=into.op_type, node=into.node or into.name)
        return Row(
            index=0, op_type=meta.op_type, name=meta.name, status=status, reason=reason, base=stats,
            target_name=pair.target.name if pair else "", target_op_type=pair.target.op_type if pair else "",
            paired_by=pair.how if pair else NO_WAY,
        )  # fmt: skip

    def of_iterations(self) -> Iterator[Placed]:
        """Finished rows of no such tensor: a loop's iterations, which no session announces, lie where the loop does."""
        for row in self.done.values():
            if row.name in self.base_meta and self.asked(row.name):
                continue
            name = strip_iteration(row.name)
            announced, other = self.base_meta.get(name), self.target_meta.get(strip_iteration(row.target_name))
            yield (self.order.get(name, len(self.order)), row.index), _add_metadata(row, announced, other)

    def of_target_alone(self) -> Iterator[Placed]:
        """Yield what only the target has, behind the pair that came before it in the target's own order."""
        place = -0.5
        for number, (name, meta) in enumerate(self.target_meta.items()):
            if name in self.alignment.pairs:
                place = self.order[self.alignment.pairs[name].base.name] + 0.5
                continue
            row = self.alone.get(name)
            if meta.own or (row is None and self.selected is not None and not meta.is_output):
                continue
            if row is None:
                why_not = say("ended") if self.ended_before_target(name) else say("not_called")
                row = Row(
                    index=0, op_type=meta.op_type, name=name, status=Status.UNMATCHED,
                    reason=as_reason(meta.unseen) or why_not, target_name=name, target_op_type=meta.op_type,
                )  # fmt: skip
            yield (place, number), _add_metadata(row, None, meta)
        for row in self.alone.values():
            if row.target_name not in self.target_meta or row.target_name in self.alignment.pairs:
                yield (len(self.order) + 0.5, row.index), row


def _explain_not_compared(
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


def _add_metadata(row: Row, base: TensorMeta | None, target: TensorMeta | None) -> Row:
    extra = {**(base.extra if base else {}), **(target.extra if target else {})}
    meta = base or target
    return row.replace(
        node=row.node or (meta.node if meta else ""),
        inputs=meta.inputs if meta else (),
        is_output=bool(meta and meta.is_output),
        view=row.view or (target.view if target else ""),
        extra={**extra, **row.extra},
    )


def _with_growth(rows: Sequence[Row], base_meta: Mapping[str, TensorMeta]) -> tuple[Row, ...]:
    """Return the rows with the growth of their error; None where an input's error is not known."""
    if not any(meta.inputs for meta in base_meta.values()):
        return tuple(rows)  # a script's own hooks do not tell what reads what
    by_name = {row.name: row for row in rows}
    memo: dict[str, float | None] = {}

    def error_of(name: str) -> float | None:
        """Return the relative error of a tensor; of one that was fused away, the largest among the nearest that were
        compared.

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
                memo[current] = 0.0 if meta is None else _error_of_row(row)
                continue
            sources = [s for s in meta.inputs if s != current]
            waiting = [s for s in sources if s not in memo and s not in stack]
            if waiting:
                stack.extend(waiting)
            else:
                memo[current] = _largest_error(memo.get(s, 0.0) for s in sources)
        return memo[name]

    grown = []
    for row in rows:
        error = row.relative_l2
        inherited = _largest_error(error_of(name) for name in row.inputs)
        if error is None or inherited is None or row.name not in base_meta or math.isnan(error) or is_newly_broken(row):
            grown.append(row)
            continue
        growth = 1.0 if error == inherited else (math.inf if inherited == 0 else error / inherited)
        grown.append(row.replace(error_growth=growth))
    return tuple(grown)


def _error_of_row(row: Row | None) -> float | None:
    error = row.relative_l2 if row is not None and row.comparison is not None else None
    return None if error is None or math.isnan(error) else error


def _largest_error(errors: Iterable[float | None]) -> float | None:
    """Return the largest one, 0 of none; None where one is not known."""
    known = list(errors)
    return None if None in known else max((error for error in known if error is not None), default=0.0)
