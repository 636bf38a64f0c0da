"""Sets of kept operators that grow along the data, for engines that fuse operators: few of them, each worth a build.

Inside a region a precision counts only together with what lies around it. Seen in TensorRT 8.6, of an overflow in a
residual stream: keeping the adds that it goes through left NaN, so did all that writes to or reads from them, and the
adds with the norms between them left 0.00044. So the predicted set comes first, then the stream as one unit, then the
blocks around it, then everything from the culprit to the outputs; of the first that holds, halves.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Sequence

from ..explain.criteria import HALF
from ..explain.operators import plain_type, split_words
from ..protocols import TF32_OFF
from .oracle import JudgedSet, Oracle, Spent
from .ranking import Group
from .strategy import FoundSet
from .units import Units, find_reached

__all__ = ["find_smallest_along", "grow_along_data", "search_along_data"]

_MULTIPLIES = split_words("MatMul Gemm Conv ConvTranspose Einsum LSTM GRU RNN FusedMatMul MatMulInteger Attention")
"""Where a stream ends: their inputs may be rounded, and their sums are their own."""

ENGINES = 9
"""Sets of a search; what comes of the answer takes three builds more."""

_HALVINGS = 3
"""Builds that make smaller what holds."""

_FEW = 6
"""Units of a set that is small enough."""

_SAME = 0.1
"""Relative difference up to which nothing has changed."""


def grow_along_data(units: Units, culprits: Collection[int], start: frozenset[int]) -> list[frozenset[int]]:
    """Return larger and larger sets, each with all of those before it. start: what is predicted to be enough."""
    after = _map_readers(units)
    begin = frozenset(culprits or start)
    reached = find_reached(begin, after.__getitem__, lambda unit: not _multiplies(units, unit))
    stream = start.union(begin, (unit for unit in reached if not _multiplies(units, unit)))
    blocks = units.above(stream).union(*(after[unit] for unit in stream if unit in after))
    onward = blocks.union(begin, find_reached(begin, after.__getitem__, lambda _unit: True))
    return [step for step in dict.fromkeys((start, stream, blocks, onward)) if step]


def search_along_data(
    oracle: Oracle, units: Units, start: frozenset[int], culprits: Collection[int], groups: Sequence[Group] = ()
) -> FoundSet:  # fmt: skip
    """Return the smallest set that holds of those that grow along the data, in few builds.

    start: what is predicted to be enough. culprits: units that make what is wrong. groups: of the ranking that they
    come from."""
    if oracle.holds(()):
        return FoundSet(state="not needed", kept=frozenset(), minimal=True)
    ends = range(units.operators, len(units))
    rounding = tuple(unit for unit in ends if units.units[unit].key == TF32_OFF)
    always = tuple(unit for unit in ends if unit not in rounding)  # they leave out what the user's command asks for
    everything = oracle.all - set(rounding)
    kept = find_smallest_along(oracle.judge, grow_along_data(units, culprits, start), everything, always, rounding)
    if kept is not None:
        return FoundSet(state="found", kept=kept, groups=groups)
    whole = oracle.asked.get(oracle.all) or oracle.asked.get(everything)
    return FoundSet(state="unfinished" if whole is None or whole.passes else "not possible", groups=groups)


def find_smallest_along(
    judge: Callable[[frozenset[int]], JudgedSet], steps: Sequence[frozenset[int]], everything: frozenset[int],
    always: Sequence[int] = (), rounding: Sequence[int] = (),
) -> frozenset[int] | None:  # fmt: skip
    """Return the smallest set that was seen to hold; None where none was. judge may raise Spent, which ends it.

    always: switches that are tried by themselves first, and stay on where they help. rounding: those that can only
    lessen an error that is finite; they are tried with a set too that changes nothing without them.
    """
    holding: list[frozenset[int]] = []

    def holds(kept: frozenset[int]) -> bool:
        found = judge(kept).passes
        if found:
            holding.append(kept)
        return found

    with contextlib.suppress(Spent):
        _grow(judge, holds, steps, everything, always, rounding)
    return min(holding, key=len, default=None)


def _grow(
    judge: Callable[[frozenset[int]], JudgedSet], holds: Callable[[frozenset[int]], bool],
    steps: Sequence[frozenset[int]], everything: frozenset[int], always: Sequence[int], rounding: Sequence[int],
) -> None:  # fmt: skip
    base, on, more = judge(frozenset()).error, frozenset[int](), frozenset(rounding)
    for one in (*always, *(rounding if math.isfinite(base) else ())):
        if holds(on | {one}):
            return
        if judge(on | {one}).error <= HALF * base:
            base, on = judge(on | {one}).error, on | {one}
    below = on
    for step in [*steps, everything]:
        tried = step | on
        if tried == below:
            continue
        if holds(tried):
            _halve(holds, below, tried)
            return
        error = judge(tried).error
        unchanged = math.isfinite(base) and error >= (1 - _SAME) * base
        last = step == everything
        if more - on and (unchanged or last):
            if holds(tried | more):
                _halve(holds, below | more, tried | more)
                return
            on = on | more if judge(tried | more).error < error else on
        below = tried | on


def _halve(holds: Callable[[frozenset[int]], bool], low: frozenset[int], high: frozenset[int]) -> None:
    """Prefixes, along the data, of what the set that holds has beyond the one that does not."""
    rest = sorted(high - low)
    if len(high) <= _FEW:
        return  # a predicted edge: a half of it has one end
    for _ in range(_HALVINGS):
        if len(rest) < 2:
            return
        half = low | frozenset(rest[: len(rest) // 2])
        if holds(half):
            rest = rest[: len(rest) // 2]
        else:
            low, rest = half, rest[len(rest) // 2 :]


def _map_readers(units: Units) -> dict[int, frozenset[int]]:
    """For each unit those that read what it makes."""
    return {
        number: frozenset().union(*(units.readers.get(meta.name, frozenset()) for meta in unit.metas)) - {number}
        for number, unit in enumerate(units.units)
    }


def _multiplies(units: Units, unit: int) -> bool:
    return any(plain_type(kind) in _MULTIPLIES for kind in units.units[unit].op_types)
