"""The smallest set of operators to keep in higher precision: what can be kept, in which order to try, how to minimise.

Nothing here runs a model: ``run.trials`` asks a backend to, and tells what came of each set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..safety.late import make_lazy_exports

__all__ = [
    "ENGINE_OPTION",
    "UNCOMPILED",
    "Artefact",
    "Evaluation",
    "Fix",
    "FixRule",
    "FoundSet",
    "Group",
    "JudgedSet",
    "KeptUnit",
    "Oracle",
    "Spent",
    "ToKeep",
    "TradePoint",
    "TriedFix",
    "Unit",
    "Units",
    "choose_best_trade",
    "describe_kept_units",
    "does_stay_low",
    "find_predicted",
    "find_smallest_along",
    "finite_or_none",
    "gives_up_most",
    "grow_along_data",
    "is_large",
    "is_steady",
    "list_repeats",
    "list_unbettered",
    "make_smaller",
    "minimise",
    "rank_groups",
    "search_along_data",
]  # fmt: skip

if TYPE_CHECKING:
    from .fix import Artefact, Evaluation, Fix, KeptUnit, TradePoint
    from .growing import find_smallest_along, grow_along_data, search_along_data
    from .offer import (
        FixRule,
        choose_best_trade,
        does_stay_low,
        finite_or_none,
        gives_up_most,
        is_large,
        is_steady,
        list_unbettered,
    )
    from .oracle import JudgedSet, Oracle, Spent
    from .ranking import Group, describe_kept_units, rank_groups
    from .repeats import list_repeats
    from .strategy import FoundSet, find_predicted, make_smaller, minimise
    from .to_keep import ENGINE_OPTION, UNCOMPILED, ToKeep, TriedFix
    from .units import Unit, Units

__getattr__ = make_lazy_exports(
    __name__,
    {
        "growing": "grow_along_data search_along_data find_smallest_along",
        "fix": "Artefact Evaluation Fix KeptUnit TradePoint",
        "offer": "FixRule choose_best_trade list_unbettered finite_or_none gives_up_most is_large is_steady"
        " does_stay_low",
        "oracle": "JudgedSet Oracle Spent",
        "ranking": "Group describe_kept_units rank_groups",
        "strategy": "FoundSet make_smaller minimise find_predicted",
        "repeats": "list_repeats",
        "to_keep": "ENGINE_OPTION UNCOMPILED ToKeep TriedFix",
        "units": "Unit Units",
    },
)
