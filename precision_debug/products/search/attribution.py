"""Whose error it is that the outputs have: the squared error, followed backwards along measured parts, adds up to 1.

Each operator is run in float32 with one of its inputs as the target had it, the others the baseline's; what that
changes, and what the operator introduced itself, share the error of its result. Effects of single operators, measured
alone, overlap where everything is a little wrong, and say less there.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import PrecisionDebugError
from ...numbers.arrays import as_array
from ...numbers.exact_sum import sum_of_squares
from ...observe.store import Store
from ...protocols import Feeds, Operator, Operators
from ...records import Row
from ...run.plan import Opening
from ...run.side import guard_call

__all__ = ["attribute_error"]

Array = np.ndarray[Any, Any]

_HELD = 512 << 20
"""Bytes of one run's tensors that stay in memory; what comes over it waits on disk."""


def attribute_error(
    baseline: Opening, target: Opening, feeds: tuple[Feeds, Feeds], calibrating: Sequence[Feeds], rows: Sequence[Row],
    at: str, folder: Path,
) -> Mapping[str, float]:  # fmt: skip
    """Return the share of the squared error at one output ("": of all) that each tensor's operator introduced itself.

    feeds: the baseline's and the target's. {} where the baseline's operators cannot be run one by one.
    """
    runner = baseline.capabilities.operator_runner
    if runner is None:
        return {}
    outputs = [row.name for row in rows if row.is_output and row.comparison is not None]
    with contextlib.suppress(PrecisionDebugError), contextlib.ExitStack() as stack:
        operators = runner.operators(baseline.spec)
        exact = stack.enter_context(Store(folder=folder, memory_budget=_HELD))
        wrong = stack.enter_context(Store(folder=folder, memory_budget=_HELD))
        partner = {row.target_name: row.name for row in rows if row.comparison is not None}
        _fill(exact, baseline, feeds[0], calibrating, None)
        _fill(wrong, target, feeds[1], calibrating, partner)
        return _follow_backwards(operators, exact, wrong, rows, [at] if at in outputs else outputs)
    return {}


def _fill(
    store: Store, opening: Opening, feeds: Feeds, calibrating: Sequence[Feeds], names: Mapping[str, str] | None
) -> None:
    def hook(_op: str, name: str, tensor: Any, /) -> None:
        own = name if names is None else names.get(name)
        if own is not None and own not in store:
            store.put(own, as_array(tensor, name=name))

    session = guard_call(opening.label, lambda: opening.open(calibrating))
    try:
        guard_call(opening.label, lambda: session.run(feeds, hook, None if names is None else frozenset(names)))
    finally:
        session.close()


@dataclass(frozen=True, kw_only=True)
class _Part:
    """The sources of the squared error of an operator's results.

    own: what it introduced itself; flows: what came with each of its inputs, by name."""

    results: tuple[str, ...]
    own: float
    flows: Mapping[str, float]


def _follow_backwards(
    operators: Operators, exact: Store, wrong: Store, rows: Sequence[Row], outputs: Sequence[str]
) -> dict[str, float]:
    """Backwards from the outputs: each part takes its share of what its results have."""
    row_of = {row.name: row for row in rows}
    parts = [_split_error(operator, operators, exact, wrong, row_of) for operator in operators.operators]
    carried = {name: 1.0 / len(outputs) for name in outputs}
    shares: dict[str, float] = {}
    for part in reversed(parts):
        left = sum(carried.get(name, 0.0) for name in part.results) if part is not None else 0.0
        total = part.own + sum(part.flows.values()) if part is not None else 0.0
        if part is None or left == 0 or total == 0:
            continue
        if part.own:
            first = part.results[0]
            shares[first] = shares.get(first, 0.0) + left * part.own / total
        for name, flow in part.flows.items():
            carried[name] = carried.get(name, 0.0) + left * flow / total
    return shares


def _split_error(
    operator: Operator, operators: Operators, exact: Store, wrong: Store, row_of: Mapping[str, Row]
) -> _Part | None:
    """Split the error of an operator's results by its sources; None without floats, or where an input is not there.

    What the target fused away is put into ``wrong``, as the operator makes it of what it was given: later ones read
    it."""
    made = [name for name in operator.outputs if name and exact.get(name) is not None]
    floats = [name for name in made if _kind_of(exact.get(name)) == "f"]
    if not floats:
        return None
    right: dict[str, Any] = {}
    theirs: dict[str, Any] = {}
    for name in operator.inputs:
        if name:
            right[name] = operators.constants[name] if name in operators.constants else exact.get(name)
            there = None if name in operators.constants else wrong.get(name)
            theirs[name] = right[name] if there is None else there
    if any(value is None for value in right.values()):
        return None
    measured = [_introduced_energy(row_of.get(name)) for name in floats]
    flows: dict[str, float] = {}
    for name, value in right.items():
        there = theirs[name]
        if there is value or value.dtype.kind != "f" or there.shape != value.shape:
            continue
        found = operators.run(operator, {**right, name: there.astype(value.dtype)})
        if found is not None:
            flows[name] = sum(_squared_error(exact.get(one), found.get(one)) for one in floats)
    own = sum(one for one in measured if one is not None)
    if all(one is None for one in measured):
        # nobody ran it alone: what is wrong with its results beyond what came from its inputs
        actual = sum(_squared_error(exact.get(name), wrong.get(name)) for name in floats)
        own = max(0.0, actual - sum(flows.values()))
    if any(wrong.get(name) is None for name in floats):
        found = operators.run(operator, {n: v.astype(right[n].dtype) for n, v in theirs.items()})
        for name in floats:
            if found is not None and name in found and wrong.get(name) is None:
                wrong.put(name, np.asarray(found[name]))
    return _Part(results=tuple(floats), own=own, flows=flows)


def _introduced_energy(row: Row | None) -> float | None:
    """Return the squared error that an operator added itself; None where that was not measured."""
    if row is None or row.introduced is None or row.comparison is None:
        return None
    rel, rms = row.introduced.rel_l2, row.comparison.base.rms
    if rel is None or rms is None or not math.isfinite(rel):
        return None
    return sum_of_squares(rel * rms, row.comparison.base.elements)


def _squared_error(right: Array | None, got: Any) -> float:
    if right is None or got is None or np.shape(got) != right.shape:
        return 0.0
    with np.errstate(all="ignore"):
        gap = np.asarray(got).astype(np.float64) - right.astype(np.float64)
        return float(np.sum(np.square(gap[np.isfinite(gap)])))


def _kind_of(value: Array | None) -> str:
    return "" if value is None else value.dtype.kind
