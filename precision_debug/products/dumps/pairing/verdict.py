"""What the walk through an exported file says to the reader of a report: how much is paired, and what is wrong."""

from __future__ import annotations

import collections
from collections.abc import Iterator
from pathlib import Path

from ....reasons import Reason, say
from .agreement import agree, distance
from .repairs import Causes
from .walk import Fault, Found

__all__ = ["coverage", "fault_notes"]

_MOST = 8
"""Faults that get a sentence each; as many more are named."""
_LIKELY = 1e-3
"""How far an output may be off before the export is called wrong: ten times agreement.SLACK."""


def coverage(found: Found, modes: tuple[str, str], path: str, target: int, baseline: int) -> Reason:
    """One line. modes: in which they were run. target, baseline: how many tensors each side showed."""
    kinds = collections.Counter(_kind(how) for _, how in found.pairs.values())
    ways = [
        say("by_value", count=kinds["value"]), say("by_neighbours", count=kinds["graph neighbours"]),
        say("by_output", count=kinds["output"]),
    ]  # fmt: skip
    some = [way for way in ways if way.args["count"]]
    mode, other = modes
    count, refused = len(found.pairs), len(found.refused)
    partners = len({base for base, _ in found.pairs.values()})
    if not some:
        return say("paired_by_value_none", mode=mode, other=other, count=count, all=target, path=path, refused=refused,
                   partners=partners, own=baseline)  # fmt: skip
    return say("paired_by_value", mode=mode, other=other, count=count, all=target, path=path, kinds=some,
               refused=refused, partners=partners, own=baseline)  # fmt: skip


def _kind(how: str) -> str:
    if how.startswith("outputs"):
        return "output"
    return "graph neighbours" if how.startswith("graph") else "value"


def fault_notes(causes: Causes, path: str) -> tuple[Reason, ...]:
    """One sentence on each wrong operator, the first one first; and where outputs differ and none was found, that."""
    file, faults = Path(path).name, causes.found.faults
    notes = [_wrong(causes, fault, file) for fault in faults[:_MOST]]
    if len(faults) > _MOST:
        names = [fault.baseline for fault in faults[_MOST : 2 * _MOST]]
        notes.append(say("wrong_at_more", file=file, count=len(faults) - _MOST, names=names))
    if not faults:
        notes += [
            say("output_apart", name=name, file=file, base=base, distance=apart) for name, base, apart in _apart(causes)
        ]
    return tuple(notes)


def _wrong(causes: Causes, fault: Fault, file: str) -> Reason:
    made = causes.target.producer.get(fault.target)
    operator = f"{made.op_type} {made.name}" if made is not None else say("its_input")
    name, output = fault.baseline, fault.target
    place = (
        say("inputs_agree_shape", name=name, operator=operator, output=output)
        if fault.distance == float("inf")
        else say("inputs_agree", name=name, operator=operator, output=output, distance=fault.distance)
    )
    cause = causes.of(fault)
    return (
        say("wrong_at_because", file=file, place=place, cause=cause)
        if cause
        else say("wrong_at", file=file, place=place)
    )


def _apart(causes: Causes) -> Iterator[tuple[str, str, float]]:
    own, known = causes.target.own, causes.base.values
    for name, (base, _) in causes.found.pairs.items():
        meta = causes.base.metas.get(base)
        if meta is not None and meta.is_output and name in own and not agree(own[name], known[base], _LIKELY):
            yield name, base, distance(own[name], known[base])
