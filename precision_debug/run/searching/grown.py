"""The sets of an engine that fuses operators into regions, each a build: see search.growing.

A comparison's fix and a search grow the same ones; the comparison's are run on all of its inputs at once, since an
engine takes longer to build than to run.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...protocols import TF32_OFF
from ...search import Found, Group, Judged, Oracle, Spent, Units, along, smallest_along
from ...search.strategy import Rank

__all__ = ["grown", "switches_of"]

_ENGINES = 9
"""Sets of a search; what comes of the answer takes three builds more."""


def switches_of(units: Units) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Units that leave out what the user's command asks for, and those that forbid rounding in FP32 operators."""
    ends = range(units.operators, len(units))
    rounding = tuple(unit for unit in ends if units.units[unit].key == TF32_OFF)
    return tuple(unit for unit in ends if unit not in rounding), rounding


def grown(
    oracle: Oracle, units: Units, ranked: Rank | Sequence[Group], start: frozenset[int] | None
) -> Found:  # fmt: skip
    """The smallest set that holds of those that grow along the data, in few builds.

    ranked: the groups of a ranking, or what gives them. start: what holds in a simulation; None: the ranking's first.
    """
    if oracle.holds(()):
        return Found(state="not needed", kept=frozenset(), minimal=True)
    groups = ranked(frozenset()) if callable(ranked) else ranked
    first = start or (groups[0].units if groups else frozenset())
    makers = (units.of(group.tensor) for group in groups if group.units <= first)
    culprits = {unit for unit in makers if unit is not None}
    always, rounding = switches_of(units)
    sets = 0

    def judge(kept: frozenset[int]) -> Judged:
        nonlocal sets
        sets += bool(kept) and kept not in oracle.asked
        if sets > _ENGINES:
            raise Spent
        return oracle.judge(kept)

    everything = oracle.all - set(rounding)
    kept = smallest_along(judge, along(units, culprits, first), everything, always, rounding)
    if kept is not None:
        return Found(state="found", kept=kept, groups=groups)
    whole = oracle.asked.get(oracle.all) or oracle.asked.get(everything)
    return Found(state="unfinished" if whole is None or whole.passes else "not possible", groups=groups)
