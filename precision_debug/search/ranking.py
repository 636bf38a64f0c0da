"""In which order units are worth keeping: by what an explanation measured of each operator's error.

The order decides what a search costs: each set that is tried is a run of the target, for some engines a build of
minutes, so the units that make most of the error are tried first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ..explain.operators import CANCEL, JOIN, plain_type
from ..reasons.causes import CAUSES
from ..records import Explanation, Row, Status
from .fix import KeptUnit
from .units import NOT_KEPT, Units

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
    units: Units, rows: Sequence[Row], explanation: Explanation | None, kept: frozenset[int] = frozenset(), *,
    follows: bool = False,
) -> list[Group]:  # fmt: skip
    """Rank groups of units by how likely they are to be needed; every unit is in one of them.

    kept: units that are kept already: where an output is still not finite, what they give may overflow on the edge to a
    reader that is not kept. follows: of an error without culprits the shares that add up, not single effects."""
    row_of = {row.name: row for row in rows}
    broken = any(row.is_output and row.non_finite for row in rows)
    beyond_fp16 = [row.name for row in rows if row.comparison is not None and row.comparison.fp16_overflow]
    budget = dict(explanation.budget) if explanation is not None else {}
    if follows and (explanation is None or not explanation.culprits):
        budget = _follow_backwards(units, row_of, explanation.at if explanation is not None else "") or budget
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


def _follow_backwards(units: Units, row_of: Mapping[str, Row], at: str) -> dict[str, float]:
    """Return the share of the squared error at one output ("": of all) that each tensor's operator introduced itself.

    Followed backwards, an operator keeps of its result's error what it added, beside what it makes of its inputs';
    these share the rest by their own errors: of what is added or joined in its size, else relative to theirs."""
    errors_of = {name: row.relative_l2 for name, row in row_of.items() if row.relative_l2 is not None}
    square = {name: error**2 for name, error in errors_of.items() if math.isfinite(error)}
    for meta in units.tensors:  # what was fused away has the error of what it is made from
        square.setdefault(meta.name, max((square.get(source, 0.0) for source in meta.inputs), default=0.0))
    outputs = [name for name, row in row_of.items() if row.is_output and row.comparison is not None]
    ends = [at] if at in outputs else outputs
    carried, shares = dict.fromkeys(ends, 1.0 / max(1, len(ends))), dict[str, float]()
    for meta in reversed(units.tensors):
        left = carried.get(meta.name, 0.0)
        own = left * _find_own_part(row_of.get(meta.name)) if meta.op_type not in NOT_KEPT else 0.0
        shares |= {meta.name: own} if own > _LEAST else {}
        errors = {source: square[source] for source in meta.inputs if square.get(source)}
        sizes = {source: _energy_of(row_of.get(source)) for source in errors}
        if plain_type(meta.op_type) in CANCEL | JOIN and all(sizes.values()):
            errors = {source: error * sizes[source] for source, error in errors.items()}
        for source, error in errors.items():
            carried[source] = carried.get(source, 0.0) + (left - own) * error / sum(errors.values())
    return shares


def _find_own_part(row: Row | None) -> float:
    """Return which part of its result's squared error an operator added; 0 of one that was not run alone, as inside of
    a region."""
    known = row.introduced if row is not None else None
    if row is None or known is None or known.rel_l2 is None or not math.isfinite(known.rel_l2):
        return 0.0
    own, inherited, whole = known.rel_l2**2, known.inherited, row.relative_l2
    if inherited is None or not math.isfinite(inherited):
        came = max(0.0, whole**2 - own) if whole is not None and math.isfinite(whole) else 0.0
    else:
        came = inherited**2
    return own / (own + came) if own else 0.0


def _energy_of(row: Row | None) -> float:
    """Return the sum of the squares of a tensor's numbers; 0 where it is not known."""
    base = row.comparison.base if row is not None and row.comparison is not None else None
    return 0.0 if base is None or base.rms is None else base.rms**2 * base.elements


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
