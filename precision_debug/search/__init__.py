"""The smallest set of operators to keep in higher precision: what can be kept, in which order to try, how to minimise.

Nothing here runs a model: ``run.trials`` asks a backend to, and tells what came of each set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..safety.late import lazy_exports

__all__ = [
    "ENGINE_OPTION",
    "UNCOMPILED",
    "Artefact",
    "Evaluation",
    "Fix",
    "FixRule",
    "Found",
    "Group",
    "Judged",
    "KeptUnit",
    "Oracle",
    "Spent",
    "ToKeep",
    "TradePoint",
    "Tried",
    "Unit",
    "Units",
    "along",
    "best_trade",
    "betters",
    "finite",
    "gives_up_most",
    "grown",
    "is_large",
    "is_steady",
    "kept_units",
    "made_smaller",
    "minimise",
    "predicted",
    "rank_groups",
    "repeats_of",
    "smallest_along",
    "stays_low",
]  # fmt: skip

if TYPE_CHECKING:
    from .fix import Artefact, Evaluation, Fix, KeptUnit, TradePoint
    from .growing import along, grown, smallest_along
    from .offer import FixRule, best_trade, betters, finite, gives_up_most, is_large, is_steady, stays_low
    from .oracle import Judged, Oracle, Spent
    from .ranking import Group, kept_units, rank_groups
    from .repeats import repeats_of
    from .strategy import Found, made_smaller, minimise, predicted
    from .to_keep import ENGINE_OPTION, UNCOMPILED, ToKeep, Tried
    from .units import Unit, Units

__getattr__ = lazy_exports(
    __name__,
    {
        "growing": "along grown smallest_along",
        "fix": "Artefact Evaluation Fix KeptUnit TradePoint",
        "offer": "FixRule best_trade betters finite gives_up_most is_large is_steady stays_low",
        "oracle": "Judged Oracle Spent",
        "ranking": "Group kept_units rank_groups",
        "strategy": "Found made_smaller minimise predicted",
        "repeats": "repeats_of",
        "to_keep": "ENGINE_OPTION UNCOMPILED ToKeep Tried",
        "units": "Unit Units",
    },
)
