"""Text that a report gives to paste, so that what lost the precision stays in a higher one, and what that brought."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..protocols import Executed
from ..reasons import NOTHING, Reason
from .fix import TradePoint

__all__ = ["ENGINE_OPTION", "UNCOMPILED", "ToKeep", "TriedFix"]

ENGINE_OPTION, UNCOMPILED = "engine option", "uncompiled module"
"""``ToKeep.unit`` of what makes an engine compute as its baseline does: all of it, or modules that it leaves out."""

@dataclass(frozen=True, kw_only=True)
class TriedFix:
    """What came of running the target with something kept.

    state: one of
        "mended"     every output is as expected of the mode, or within the tolerance
        "lessened"   the error is less than half of what it was, and still above that
        "none"       nothing that was run did so and left something in the low precision
        "not tried"  nothing was run; ``why`` says why
    before, after: relative L2 error of the worst output, None where it is NaN, Inf or not known; after, in "none": the
    least that was seen. allowed: the error up to which it is as expected. was, still: in which precision the operators
    ran with nothing kept, and with these; None: the engine does not tell. runs: sets that were run.
    others: further inputs that it was run on; others_before, others_after: the worst error there.
    whole: in "none", the error with everything kept that can be, whole_still: in which precision that ran; None where
    that was not run. each: in "none", whether each unit was left in the low precision by itself, and none could be:
    nothing but everything helps then. trade: of a fix that gives up most of the low precision, smaller sets that were
    run, each with the least error of its size and those below. slower: a run with these kept takes so many times as
    long as with nothing kept, both by turns on this machine; whole_slower: with everything kept. None: not timed.
    stopped: seconds after which no further set was run, where that ended it. exact: error of the worst output against
    the same model in float64, of the baseline, of the target, and of the target with these kept; () not measured.
    pasted: whether the command with the option passes, where the bound of what is left depends on whose it is, or on
    the tensors inside: then it was compared so. None: it was not. blamed: whom that comparison names, or which tensor
    is out of the tolerance that was given; bound: up to which its outputs are as expected there. in_vain: of all the
    culprits kept, where that did nothing.
    """

    state: str
    before: float | None = None
    after: float | None = None
    allowed: float | None = None
    was: Executed | None = None
    still: Executed | None = None
    runs: int = 0
    others: int = 0
    others_before: float | None = None
    others_after: float | None = None
    whole: float | None = None
    whole_still: Executed | None = None
    whole_ran: bool = False
    each: bool = False
    slower: float | None = None
    whole_slower: float | None = None
    trade: tuple[TradePoint, ...] = ()
    stopped: float | None = None
    exact: tuple[float, ...] = ()
    pasted: bool | None = None
    blamed: str = ""
    bound: float | None = None
    in_vain: TradePoint | None = None
    why: Reason = NOTHING


@dataclass(frozen=True, kw_only=True)
class ToKeep:
    """What keeps the culprits in higher precision in the run mode at hand, as a user types it.

    option: the words to add to the command; "" where the mode has no such setting, or nothing that was tried brought
    anything. settings: the same as values, by name. replaced: names of settings that the command has already, and that
    it takes the place of. unit: "operator", "operator type" or "module"; of what makes an engine compute as its
    baseline does "engine option" or "uncompiled module". keys: those that it keeps, ``of`` how many there are.
    switched: what is set for the whole engine beside (see protocols.is_switch). text:
    the same as lines for a program of the user's, "" where there are none. modes: where there is no such setting, run
    modes of the same backend and precision that have one; why: what the backend says. tried: what it brought on the
    engine; None where there was nothing to try. beside: what else was run and helps, and may be pasted in its place.
    """

    option: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    replaced: tuple[str, ...] = ()
    unit: str = "operator"
    keys: tuple[str, ...] = ()
    switched: tuple[str, ...] = ()
    of: int = 0
    modes: tuple[str, ...] = ()
    why: Reason = NOTHING
    text: str = ""
    tried: TriedFix | None = None
    beside: tuple[ToKeep, ...] = ()
