"""Whether what was to stay in the low precision still ran in it, with something else kept."""

from __future__ import annotations

import math
from collections.abc import Collection

from ..protocols import Executed, is_switch
from ..search import Units

__all__ = ["stays_low"]

_STAYS = 0.5
"""Of the operators that were not kept, what must still run in the low precision at least."""


def stays_low(units: Units, keys: Collection[str], was: Executed | None, now: Executed | None) -> bool:
    """Whether a set of kept keys is no way of switching the precision off.

    was, now: in which precision the target ran with nothing kept, and with these. Where nobody can tell, or nothing ran
    in the low one to begin with, a set of everything is none all the same.
    """
    if keys and all(is_switch(key) for key in keys):
        return True  # no operator is kept: what an engine takes by itself is its own choice
    kept = [unit for unit in units.units if unit.key in keys]
    if was is None or not was.low:
        return any(unit not in kept for unit in units.units if not is_switch(unit.key))
    made = sum(len(unit.metas) for unit in units.units)
    left = 1 - sum(len(unit.metas) for unit in kept) / max(1, made)
    return now is not None and now.low >= max(1, math.floor(_STAYS * left * was.low))
