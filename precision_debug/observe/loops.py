"""Loops of many iterations: which of these have a row of their own, and what becomes of the others.

Up to KEPT iterations of a tensor have a row each. Where there are more, the tensor has one row, of all of its
iterations together, and a second one of the iteration that is worst.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from ..numbers.iterations import Iterations
from ..numbers.merged import MergedSide
from ..pairing.align import strip_iteration
from ..records import Row, Status, TensorMeta, TensorStats, Tolerance
from .sample_columns import ITERATIONS, WORST_ITERATION

__all__ = ["ENDS", "KEPT", "MergedRows", "MergedStats", "Turns", "merge_iterations"]

KEPT = 16
"""Iterations of a tensor that have a row each; of more of them the rows are merged."""

ENDS = 8
"""Of so many iterations, at least, there are rows at the begin and at the end of a longer loop, for an explanation."""

_EXPLAINED = 4096
"""Rows of loops' iterations up to which an explanation has all of them."""

_EVERY = 20.0
"""Seconds after which what is merged so far is told: so much is lost at most, where an engine ends the process."""


class Turns:
    """Counts the iterations of each tensor."""

    def __init__(self) -> None:
        self._count: Counter[str] = Counter()

    def of(self, key: str) -> tuple[str, int]:
        """Return a tensor's name without its iteration, and how many it had before; ("", 0) for one of no loop."""
        name = strip_iteration(key) if "@" in key else key
        if name == key:
            return "", 0
        before = self._count[name]
        self._count[name] = before + 1
        return name, before


class MergedStats:
    """Numbers over all iterations of tensors that one side shows alone."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, str, MergedSide]] = {}

    def add(self, name: str, op_type: str, stats: TensorStats) -> None:
        """One more iteration of a tensor."""
        side = MergedSide.of(stats, None, 0)
        count, op_type, before = self._found.get(name, (0, op_type, None))
        self._found[name] = count + 1, op_type, side if before is None else before.merged(side)

    def __iter__(self) -> Iterator[tuple[str, int, str, TensorStats]]:
        """(name, iterations, operator, numbers) of those that had too many for a row each."""
        for name, (count, op_type, side) in self._found.items():
            if count > KEPT:
                yield name, count, op_type, side.stats


class MergedRows:
    """The rows of tensors that had too many iterations for a row each."""

    def __init__(self, tolerance: Tolerance) -> None:
        self._tolerance = tolerance
        self._pairs: dict[str, tuple[Row, Iterations]] = {}
        self._partner: dict[str, str] = {}
        self._told = time.monotonic()
        self.alone = MergedStats()

    def of(self, name: str, row: Callable[[], Row]) -> Iterations:
        """Return what adds up a tensor's iterations. row: of the first one, what is known beside its numbers."""
        if name not in self._pairs:
            first = row()
            self._pairs[name] = first, Iterations(self._tolerance)
            self._partner[name] = strip_iteration(first.name)
        over = self._pairs[name][1]
        over.keep = max(ENDS + 1, _EXPLAINED // len(self._pairs))
        return over

    def get(self, name: str) -> tuple[str, Iterations] | None:
        """Return the baseline's name of a tensor of the target's, without an iteration, and what adds them up."""
        partner = self._partner.get(name)
        if partner is None:
            return None
        over = self._pairs[name][1]
        over.keep = max(ENDS + 1, _EXPLAINED // len(self._pairs))
        return partner, over

    def last(self) -> Iterator[Row]:
        """Of tensors that had too many iterations a row of each of the last ones, not judged."""
        for row, over in self._pairs.values():
            for turn, found in over.last() if over.count > KEPT else ():
                name, target_name = f"{strip_iteration(row.name)}@{turn}", f"{strip_iteration(row.target_name)}@{turn}"
                yield dataclasses.replace(row, name=name, target_name=target_name, comparison=found)

    @property
    def gaps(self) -> dict[str, int]:
        """Iterations of each tensor that had more than ``last`` and the first ENDS give, by the baseline's name."""
        return {
            strip_iteration(row.name): over.count for row, over in self._pairs.values() if over.count > over.keep + ENDS
        }

    @property
    def due(self) -> bool:
        """Whether it is time to tell what is merged so far."""
        return time.monotonic() - self._told > _EVERY

    def rows(self) -> Iterator[Row]:
        """Two of each tensor, not judged: of all iterations, and of the worst one, if they are not all equal."""
        for row, over in self._pairs.values():
            if over.count <= KEPT:
                continue
            turn, error, worst = over.worst()
            name, target_name = strip_iteration(row.name), strip_iteration(row.target_name)
            extra = {ITERATIONS: str(over.count), WORST_ITERATION: f"{turn} ({error:.2e})" if error else ""}
            yield dataclasses.replace(row, name=name, target_name=target_name, comparison=over.whole(), extra=extra)
            if error:
                yield dataclasses.replace(
                    row, name=f"{name}@{turn}", target_name=f"{target_name}@{turn}", comparison=worst,
                    extra={ITERATIONS: f"{turn} of {over.count}"},
                )  # fmt: skip
        for name, count, op_type, stats in self.alone:
            yield Row(
                index=0, op_type=op_type, name=name, status=Status.UNMATCHED, target_name=name, target_op_type=op_type,
                target=stats, extra={ITERATIONS: str(count)},
            )  # fmt: skip
        self._told = time.monotonic()


def merge_iterations(tensors: Iterable[TensorMeta]) -> tuple[TensorMeta, ...]:
    """Return a side's tensors with one entry, that of the first iteration, for each that has too many."""
    given = tuple(tensors)
    count: Counter[str] = Counter(strip_iteration(meta.name) for meta in given if "@" in meta.name)
    many = {name for name, times in count.items() if times > KEPT}
    if not many:
        return given
    found: dict[str, TensorMeta] = {}
    for meta in given:
        name = strip_iteration(meta.name) if "@" in meta.name else meta.name
        if name not in many:
            found.setdefault(meta.name, _without_iteration(meta, many))
        elif name not in found:
            found[name] = dataclasses.replace(
                _without_iteration(meta, many), name=name, origin=strip_iteration(meta.origin)
            )
    return tuple(found.values())


def _without_iteration(meta: TensorMeta, many: Collection[str]) -> TensorMeta:
    if not any("@" in name for name in meta.inputs):
        return meta
    named: Sequence[str] = [strip_iteration(name) if strip_iteration(name) in many else name for name in meta.inputs]
    return dataclasses.replace(
        meta, inputs=tuple(dict.fromkeys(name for name in named if name != strip_iteration(meta.name)))
    )
