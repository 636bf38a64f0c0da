"""Updates that change nothing: the parameter's type has no number so near to it."""

from __future__ import annotations

import dataclasses

from ...explain.subject import Subject
from ...records import Culprit

__all__ = ["UPDATE", "lost_updates"]

_MOST_OF_IT = 0.5
"""Share of an update's elements from which on a parameter stagnates."""

UPDATE = "update/"
"""What the names of outputs that are a parameter's update begin with."""


def lost_updates(subject: Subject) -> tuple[Culprit, ...]:
    """The worst of the parameters whose update is lost in the target, with how many there are; () where none is."""
    if _left_out(subject):
        return ()
    found: list[tuple[float, str]] = []
    for name in subject.outputs:
        if not name.startswith(UPDATE) or name not in subject.target_outputs:
            continue
        share = subject.bench.unmoved(
            *(subject.bench.returned(side, name) for side in (subject.outputs, subject.target_outputs))
        )
        if (share or 0.0) > _MOST_OF_IT and _learns(subject, name.removeprefix(UPDATE)):
            found.append((share or 0.0, name.removeprefix(UPDATE)))
    if not found:
        return ()
    share, parameter = max(found)
    wrote = _written(subject, parameter)
    dtype = _held_in(subject, parameter, wrote)
    meta = subject.meta_of.get(wrote)
    culprit = Culprit(
        name=wrote, node=meta.node if meta is not None else "", op_types=(meta.op_type,) if meta is not None else (),
        cause="update_lost", confidence="compared", share=1.0, at=f"{UPDATE}{parameter}", keep=(wrote,),
        evidence={"parameter": parameter, "parameters": len(found), "share": share, "dtype": dtype},
    )  # fmt: skip
    return (dataclasses.replace(culprit, fails_first=f"{UPDATE}{parameter}"),)


def _held_in(subject: Subject, parameter: str, wrote: str) -> str:
    """The type that took the update; of an optimiser that rounds by hand, the one that it rounds to."""
    held = subject.held_as.get(wrote, "") or subject.narrow_type
    own = [meta.dtype for name, meta in subject.targets.items() if name.startswith(f"optimiser/{parameter}/")]
    narrow = [one for one in own if one in ("bfloat16", "float16")]
    return narrow[0] if narrow and held in ("float32", "float64") else held


def _left_out(subject: Subject) -> bool:
    """Return whether the target's gradients hold NaN or Inf.

    GradScaler leaves the whole step out then, and no update is lost by rounding."""
    found = (row.comparison for name, row in subject.row_of.items() if name.startswith("gradient/") and row.is_output)
    return any(one is not None and one.target.nan + one.target.inf for one in found)


def _learns(subject: Subject, parameter: str) -> bool:
    """Whether its gradient is anything but 0."""
    row = subject.row_of.get(f"gradient/{parameter}")
    found = None if row is None or row.comparison is None else row.comparison.target
    return found is not None and bool(found.min or found.max)


def _written(subject: Subject, parameter: str) -> str:
    """The row of the operator that changed a parameter last; its update's own where none was seen."""
    before = f"optimiser/{parameter}/"
    rows = [meta.name for meta in subject.tensors if meta.name.startswith(before) and meta.op_type.endswith("_")]
    return rows[-1] if rows else f"{UPDATE}{parameter}"
