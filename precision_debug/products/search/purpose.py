"""What a search runs a set for: its name in the journal, and its words."""

from __future__ import annotations

from ...reasons import Reason, say

__all__ = ["HELD_OUT", "JOINED", "ROUGH", "TRADE", "counts", "is_rough", "words"]

HELD_OUT, JOINED, TRADE, ROUGH = "held out", "islands joined", "for the trade", "from one calibration"
"""Each is how a name begins."""


def is_rough(what: str) -> bool:
    """Whether a set is only chosen among: see ``Trials.run``."""
    return what.startswith(ROUGH)


def counts(what: str) -> bool:
    """Whether it is one of the sets that the search tries, and no check of one."""
    return not what.startswith((HELD_OUT, JOINED, TRADE))


def words(what: str, samples: int) -> Reason:
    """As people read it."""
    if what.startswith(HELD_OUT):
        return say("set_held_out", count=samples)
    if is_rough(what):
        return say("set_rough")
    if what == JOINED:
        return say("set_joined")
    return say("set_for_trade") if what == TRADE else say("set_learnt")
