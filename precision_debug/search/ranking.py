"""In which order units are worth keeping: by what an explanation measured of each operator's error.

The order decides what a search costs: each set that is tried is a run of the target, for some engines a build of
minutes, so the units that make most of the error are tried first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..reasons.causes import CAUSES
from ..records import Explanation, Row, Status
from .fix import KeptUnit
from .units import Units

__all__ = ["Group", "describe_kept_units", "rank_groups"]

_LEAST = 1e-4
"""Share of the squared error below which the order says nothing."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Units that are kept together: a tensor's producer and its readers.

    share: of the squared error at the outputs, as far as it was measured. certain: NaN or Inf are born in it and reach
    an output. makers: of the units those that make what is out of range, or
    make the error matter; the others only read it.
    """

    tensor: str
    units: frozenset[int]
    makers: frozenset[int] = frozenset()
    share: float = 0.0
    certain: bool = False


def rank_groups(
    units: Units, rows: Sequence[Row], explanation: Explanation | None, shares: Mapping[str, float] | None = None,
    kept: frozenset[int] = frozenset(),
) -> list[Group]:  # fmt: skip
    """Rank groups of units by how likely they are to be needed; every unit is in one of them.

    kept: units that are kept already: where an output is still not finite, what they give may overflow on the edge to a
    reader that is not kept.

    shares: of the squared error, as they add up (see products.search.attribution); without them the effects of single
    operators."""
    row_of = {row.name: row for row in rows}
    broken = any(row.is_output and row.non_finite for row in rows)
    beyond_fp16 = [row.name for row in rows if row.comparison is not None and row.comparison.fp16_overflow]
    budget = _share_budget(explanation, shares)
    found = {group.tensor: group for group in _group_culprits(units, row_of, explanation, budget)}
    for name in beyond_fp16 if broken else ():
        if units.of(name) in kept:
            found[name] = Group(tensor=name, units=units.around(name), share=1.0, certain=True)
    for name, share in sorted(budget.items(), key=lambda pair: -pair[1]):
        born = broken and _has_made_non_finite(row_of.get(name))
        if name not in found and units.around(name):
            found[name] = Group(tensor=name, units=units.around(name), share=share, certain=born and share > 0)
    if broken:
        found = {name: _with_what_stays(group, units, beyond_fp16) for name, group in found.items()}
    gone = frozenset(row.name for row in rows if row.status is Status.FUSED_AWAY)
    found = {name: _with_what_went_into(group, units, gone) for name, group in found.items()}
    groups = sorted(
        _merge_groups(group for group in found.values() if group.units),
        key=lambda group: (-group.certain, -group.share),
    )
    rest = [row for row in rows if row.name not in found and units.around(row.name)]
    rest.sort(key=_suspicion_of, reverse=True)
    groups += [Group(tensor=row.name, units=units.around(row.name)) for row in rest]
    return [*groups, *_group_unranked(units, groups)]


def _share_budget(explanation: Explanation | None, shares: Mapping[str, float] | None) -> dict[str, float]:
    """Return the share of the squared error by tensor: as they add up, unless a culprit was found, whose effect is then
    known."""
    if shares and not (explanation is not None and explanation.culprits):
        return {name: share for name, share in shares.items() if share > _LEAST}
    return dict(explanation.budget) if explanation is not None else {}


def _has_made_non_finite(row: Row | None) -> bool:
    """Return whether an operator made NaN or Inf itself."""
    own = row.introduced if row is not None else None
    return own is not None and own.born_nan + own.born_inf > 0


def _group_culprits(
    units: Units, row_of: Mapping[str, Row], explanation: Explanation | None, budget: Mapping[str, float]
) -> Iterator[Group]:
    """Yield a group for each culprit: what surrounds it, and what its cause says to keep besides."""
    for culprit in explanation.culprits if explanation is not None else ():
        chosen = set(units.around(culprit.name))
        for name in culprit.keep:
            unit = units.of(name)
            if unit is not None:
                chosen |= {unit} | units.beside(unit, chosen)
        share = culprit.share or budget.get(culprit.name, 0.0)
        known = CAUSES.get(culprit.cause)
        certain = _has_made_non_finite(row_of.get(culprit.name)) or (
            known is not None and known.out_of_range == "above"
        )
        amplifier = units.of(culprit.amplifier) if culprit.amplifier else None
        yield Group(
            tensor=culprit.name, units=frozenset(chosen), makers=frozenset(chosen & {amplifier}), share=share,
            certain=certain and share > 0,
        )  # fmt: skip


def _group_unranked(units: Units, groups: Sequence[Group]) -> list[Group]:
    """Return the units that no tensor of a row leads to, each by itself."""
    covered = frozenset().union(*(group.units for group in groups))
    return [
        Group(tensor=units.units[number].metas[0].name, units=frozenset({number}))
        for number in range(units.operators) if number not in covered
    ]  # fmt: skip


def describe_kept_units(units: Units, kept: Iterable[int], groups: Sequence[Group] = ()) -> tuple[KeptUnit, ...]:
    """Return units as a report tells them, in execution order; groups: of the ranking that they come from."""
    by_unit = {unit: group for group in reversed(groups) for unit in group.units}
    return tuple(
        KeptUnit(
            key=units.units[unit].key, op_types=units.units[unit].op_types, nodes=units.units[unit].nodes,
            tensors=tuple(meta.name for meta in units.units[unit].metas),
            certain=unit in by_unit and by_unit[unit].certain,
            share=by_unit[unit].share or None if unit in by_unit else None,
        )
        for unit in sorted(kept)
    )  # fmt: skip


def _with_what_stays(group: Group, units: Units, out_of_range: Sequence[str]) -> Group:
    """Return what overflows stays out of range until something divides it: every edge on the way there needs both its
    ends."""
    if not group.certain:
        return group
    chosen, left = set(group.units), list(out_of_range)
    while near := [name for name in left if units.of(name) in chosen]:
        left = [name for name in left if name not in near]
        for name in near:
            chosen |= units.around(name)
    made = {units.of(name) for name in out_of_range}
    return replace(group, units=frozenset(chosen), makers=frozenset(unit for unit in chosen if unit in made))


def _with_what_went_into(group: Group, units: Units, gone: frozenset[str]) -> Group:
    """Of a tensor that fusion left, what was fused into its operator: the error may be any of theirs."""
    inside = units.into(group.tensor, gone)
    return replace(group, units=group.units | inside, makers=group.makers | inside) if inside else group


def _merge_groups(groups: Iterable[Group]) -> Iterable[Group]:
    """Tensors with the same producer and readers are one: it takes the same units to keep them, so shares add up."""
    found: dict[tuple[frozenset[int], bool], Group] = {}
    for group in groups:
        before = found.get((group.units, group.certain))
        if before is None:
            found[group.units, group.certain] = group
        else:
            worse = group if group.share > before.share else before
            found[group.units, group.certain] = replace(worse, share=before.share + group.share)
    return found.values()


def _suspicion_of(row: Row) -> tuple[float, float]:
    """Of an operator whose effect was not measured: what it added itself, or how much its error grew."""
    own = row.introduced.units if row.introduced is not None else None
    growth = row.error_growth if row.error_growth is not None and not math.isnan(row.error_growth) else 0.0
    return (own or 0.0, min(growth, 1e30) if own is None else 0.0)
