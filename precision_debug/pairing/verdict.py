"""What the walk through an exported file says to the reader of a report: how much is paired, and what is wrong."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from pathlib import Path

from .agreement import agree, distance
from .repairs import Causes
from .walk import Fault, Found

__all__ = ["coverage", "fault_notes"]

_MOST = 8
_LIKELY = 1e-3


def coverage(found: Found, where: str, path: str, target: int, baseline: int) -> str:
    """One line. target, baseline: how many tensors each side showed."""
    kinds = collections.Counter(_kind(how) for _, how in found.pairs.values())
    parts = ", ".join(f"{kinds[kind]} by {kind}" for kind in ("value", "graph neighbours", "output") if kinds[kind])
    return (
        f"Paired by value and graph {where}: {len(found.pairs)} of the {target} tensors of {path}"
        + (f" ({parts})" if parts else "")
        + f"; {len(found.refused)} refused because values cannot tell them apart; "
        f"{len({base for base, _ in found.pairs.values()})} of the model's {baseline} tensors have a partner."
    )


def _kind(how: str) -> str:
    if how.startswith("outputs"):
        return "output"
    return "graph neighbours" if how.startswith("graph") else "value"


def fault_notes(causes: Causes, path: str) -> tuple[str, ...]:
    """One sentence on each wrong operator, the first one first; and where outputs differ and none was found, that."""
    file, faults = Path(path).name, causes.found.faults
    notes = [f"{file} is wrong at {_where(causes, fault)}{_why(causes, fault)}." for fault in faults[:_MOST]]
    if len(faults) > _MOST:
        more = ", ".join(fault.baseline for fault in faults[_MOST : 2 * _MOST])
        notes.append(f"{file} is wrong at {len(faults) - _MOST} more operators: {more}.")
    if not faults:
        notes += [
            f"The output {name} of {file} differs from the model's {base} (relative distance {apart:.3g}), and no "
            "operator could be found that is wrong: what lies between was not paired."
            for name, base, apart in _apart(causes)
        ]
    return tuple(notes)


def _where(causes: Causes, fault: Fault) -> str:
    made = causes.target.producer.get(fault.target)
    operator = f"{made.op_type} {made.name}" if made is not None else "its input"
    apart = "another shape" if fault.distance == float("inf") else f"relative distance {fault.distance:.3g}"
    return f"{fault.baseline} ({operator}): its inputs agree, the output {fault.target} does not ({apart})"


def _why(causes: Causes, fault: Fault) -> str:
    text = causes.of(fault)
    return f". Cause: {text}" if text else ""


def _apart(causes: Causes) -> Iterator[tuple[str, str, float]]:
    own, known = causes.target.own, causes.base.values
    for name, (base, _) in causes.found.pairs.items():
        meta = causes.base.metas.get(base)
        if meta is not None and meta.is_output and name in own and not agree(own[name], known[base], _LIKELY):
            yield name, base, distance(own[name], known[base])
