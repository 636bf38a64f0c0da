"""An optimiser's epsilon that is 0 on both sides, in the type in which the model itself holds its parameters."""

from __future__ import annotations

from ...explain.subject import Subject
from ...explain.units import NARROW, smallest_of, unit_of
from ...records import Culprit, Row
from .step_causes import constant_added
from .step_updates import UPDATE

__all__ = ["lost_epsilons", "without_these"]


def lost_epsilons(subject: Subject) -> tuple[Culprit, ...]:
    """Where both runs divide updates by 0, because what is added to prevent that is 0 too; () where none does.

    Where the baseline's type holds the epsilon, its loss is the target's, and told of the operator that underflows.
    """
    found: list[tuple[float, str, str, float]] = []
    for meta in subject.tensors:
        phase, parameter, _ = meta.name.split("/", 2) if meta.name.count("/") > 1 else (meta.name, "", "")
        row = subject.row_of.get(meta.name)
        if phase != "optimiser" or row is None or row.comparison is None or unit_of(meta.dtype, None) <= NARROW:
            continue
        added, update = constant_added(meta), subject.row_of.get(f"{UPDATE}{parameter}")
        if not 0 < added < smallest_of(meta.dtype) / 2 or update is None or row.comparison.base.min != 0:
            continue
        share = min(_broken(update, of_base=True), _broken(update, of_base=False))
        if share:
            found.append((share, meta.name, parameter, added))
    if not found:
        return ()
    share, name, parameter, added = max(found)
    meta = subject.meta_of[name]
    return (
        Culprit(
            name=name, node=meta.node, op_types=(meta.op_type,), cause="epsilon_lost", confidence="compared",
            at=f"{UPDATE}{parameter}", keep=(name,), fails_first=f"{UPDATE}{parameter}",
            evidence={"parameter": parameter, "parameters": len({one[2] for one in found}), "epsilon": added,
                      "share": share, "dtype": meta.dtype},
        ),
    )  # fmt: skip


def without_these(culprits: tuple[Culprit, ...], lost: tuple[Culprit, ...]) -> tuple[Culprit, ...]:
    """The culprits that are named for something else than updates, which a division by 0 has made what they are."""
    return tuple(one for one in culprits if not lost or not one.at.startswith((UPDATE, "state/")))


def _broken(row: Row, *, of_base: bool) -> float:
    """Share of an update that is NaN or Inf, which is that of its divisor that is 0."""
    numbers = row.comparison
    stats = None if numbers is None else numbers.base if of_base else numbers.target
    return 0.0 if stats is None or not stats.elements else (stats.nan + stats.inf) / stats.elements
