"""From culprits to a change that helps: the search for the smallest kept set, with as few sets as a comparison may run.

What the culprits suggest is its first ranking: what they are with what reads them, in INT8 what makes what they read;
then what a comparison with these kept names next, then the ranking. An error of many operators
has no culprits, and begins with the ranking. A set counts only if its error is less than half of what it was, and what
was to stay in the low precision still runs in it. What is offered is the smallest set that reaches what is expected, or
else the best trade of those that were run, and did so twice. One that gives up most of the low precision is offered
only where it is the best trade, and says so.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from ..errors import PrecisionDebugError
from ..explain import is_mended
from ..explain.criteria import HALF
from ..protocols import Session
from ..records import Culprit
from ..search.fix import Evaluation, ToKeep, TradePoint
from ..search.offer import (
    FixRule,
    JudgedSet,
    Oracle,
    Spent,
    choose_best_trade,
    is_large,
    is_steady,
    list_beside,
    list_unbettered,
    runs_low,
)
from ..search.ranking import Group
from ..search.strategy import make_smaller, minimise, search_along_data
from .criterion import Sample
from .judging import Pasted, as_pasted, is_open
from .to_keep import Keepable
from .trials import Trials

__all__ = ["PATIENCE", "PATIENT", "FixFinder", "Kept", "names_to_keep"]

_SMALL, _SMALL_WORK = 24, 12
"""Units of a model that is small enough for more sets where none of those that may be run helps; and those."""

_TO_LESSEN = 4
"""Of those, the ones that are left for parts of a set that helps."""

_FEW_NAMES = 6
"""Operators of a set that is offered, each of which is left out once: who pastes it reads them."""

_TOLD = 3
"""Smaller sets that are told of beside a fix that gives up most of the low precision; one less of those in vain."""

_AGAIN = 3
"""Runs of a set that another comparison, explained, is worth."""

_OTHERWISE = 2
"""Sets that helped, tried once more where the chosen one does not do so again."""

_FIRST = 3
"""Groups of a ranking that sets grow from where nobody is named."""

PATIENCE, PATIENT = 300.0, 1800.0
"""Seconds from which on no further set is run, unasked and of a full explanation. How many sets are run is counted in
work, which load does not change; this is for engines that take minutes to open, and a fix says where it ended so."""

Kept = frozenset[int]


@dataclass(kw_only=True)
class FixFinder:
    """trials: of the target. samples: the inputs of the comparison, then others. rule: what is offered, measured
    against the target's error on each of them. most: sets that may be run.

    again: the culprits of another comparison with some keys kept; None: there is to be none. pasted: what that command
    comes to; of_many, of_one: up to which an error is as expected that many operators make, or one. ranking: groups of
    units, the most likely ones first. beside: the target with nothing kept, where runs may be timed beside it.
    patience: see ``PATIENCE``. in_regions: see protocols.InRegions. until: the time (``time.monotonic``) by which
    the last engine is to be built that only makes a set smaller that holds. on_set: told of each set before it is run:
    its number, of how many, and seconds passed.
    """

    keepable: Keepable
    trials: Trials
    samples: Sequence[Sample]
    rule: FixRule
    most: int
    again: Callable[[tuple[str, ...]], Sequence[Culprit]] | None = None
    pasted: Callable[[tuple[str, ...]], Pasted] | None = None
    of_many: float = math.inf
    of_one: float = 0.0
    ranking: Callable[[], Sequence[Group]] = field(default=lambda: ())
    beside: Session | None = None
    patience: float = PATIENCE
    in_regions: bool = False
    until: float = math.inf
    on_set: Callable[[int, int, float], None] = lambda _number, _most, _seconds: None
    begun: float = field(default_factory=time.monotonic)
    vain: dict[Kept, JudgedSet] = field(default_factory=dict)
    lessened: dict[Kept, Evaluation] = field(default_factory=dict)
    ran: int = 0
    stopped: bool = False
    rough: bool = True

    def __post_init__(self) -> None:
        self.oracle = self._asked_by(self.most)
        self.confirmed: dict[Kept, Evaluation | None] = {}
        self._named: tuple[str, ...] = ()
        self._has_next, self._growing, self._floor = self.again is not None, False, 0

    def find(self, culprits: Sequence[Culprit]) -> ToKeep:
        """Return what to paste, with what it brought; without an option where nothing brought anything."""
        self._named = names_to_keep(culprits, self.keepable.target.precision)
        kept = self._searched(self.most)
        if kept is None and self.trials.calibrates and not self._each and not self.in_regions:
            # what one calibration promised does not hold where each set is calibrated anew: then no set is judged by it
            self.vain, self.rough = dict(self.oracle.asked), False
            self.oracle = self._asked_by(0)
            kept = self._searched(0)
        if kept is None and self.lessened:
            kept, again = min(self.lessened.items(), key=lambda item: item[1].size)
            self.confirmed[kept], self.oracle.asked[kept] = again, self._as_judged(kept, again)
        kept = self._alone() if kept is None else kept
        return self._nothing() if kept is None else self._with_named_next(kept)

    @property
    def seen(self) -> Mapping[Kept, Evaluation]:
        """What came of every set, of each calibration."""
        ran = (self.vain | self.oracle.asked).items()
        return {kept: judged.found for kept, judged in ran if judged.found is not None}

    def _searched(self, most: int) -> Kept | None:
        """Return the set to offer: it did so again. None: there is none. most: sets that may be run at first."""
        units = self.keepable.units
        if self.in_regions:
            makers, groups = self.keepable.makers(self._named), () if self._named else self.ranking()
            start = self.keepable.around(self._named) or frozenset().union(*(one.units for one in groups[:_FIRST]))
            search_along_data(self.oracle, units, start, makers)
            best = self._best()
            self.confirmed |= {} if best is None else {best: self.seen[best]}  # an engine takes long to build
            return best
        self._growing = True
        minimise(self.oracle, units, self._rank, first=self.keepable.likely(self._named) if self._named else ())
        small = len(units) <= _SMALL and self.most >= _SMALL_WORK
        if small and not self.oracle.helping:
            self.oracle.allow(len(units) + _AGAIN)
            minimise(self.oracle, units, self._rank)
        self._growing = False
        if (best := self._best()) is None:
            return None
        best = self._with_floor(best)
        smallest = self._smaller(best, most)
        others = {kept: one.error for kept, one in self.oracle.helping.items() if len(kept) < len(smallest)}
        if others and self.oracle.asked[smallest].gives_up and self.oracle.asked[smallest].passes:
            # what leaves an error may be the better trade, once it is as small as it can be
            self._smaller(choose_best_trade(others, self.rule.before[0], len(units), self.rule.allowed) or best, most)
            smallest = self._best() or smallest
        likely = (smallest, best, *sorted(self.oracle.helping, key=self._rank_of)[:_OTHERWISE])
        chosen = next((kept for kept in likely if self._again_so(kept) is not None), None)
        anew = self.rough and self.trials.calibrates and most >= _SMALL_WORK and not self._late()
        return self._smaller_anew(chosen) if anew and chosen and 1 < len(chosen) <= _FEW_NAMES else chosen

    def _smaller(self, best: Kept, most: int) -> Kept:
        """Return the smallest set that does as well as one that was run, as far as the runs that are left tell.

        Each of few names is left out once; where nobody is named, each of any set that is no large one: those of a
        ranking came in its order, and what each of them brings was not asked."""
        ranked = not self._named and not is_large(len(best), len(self.keepable.units))
        if most >= _SMALL_WORK and (ranked or len(best) <= _FEW_NAMES):
            self.oracle.allow(len(best) + 1)
        aim, passes = self.oracle.aiming_at(best), self.oracle.asked[best].passes
        make_smaller(aim, self.keepable.units, best, self._rank(frozenset()))
        return (self._best() if passes else aim.smallest()) or best

    def _smaller_anew(self, kept: Kept) -> Kept:
        """Return the part of a set that does as well calibrated anew, which one calibration for all need not tell."""
        self.rough, anew = False, self._asked_by(len(kept) + 1)
        anew.asked[kept] = self._as_judged(kept, self.confirmed[kept] or self.seen[kept])
        less = make_smaller(anew.aiming_at(kept), self.keepable.units, kept, self._rank(frozenset()))
        self.oracle.asked[less] = anew.asked[less]
        return kept if self._again_so(less) is None else less

    def _rank(self, kept: Kept) -> Sequence[Group]:
        """Return the culprits, then who is named where some units are kept already, then the ranking."""
        names = list(self._named)
        if kept and names and self._has_next and self.again and self.oracle.left > _AGAIN and not self._late():
            self._has_next = False
            self.oracle.end_after(self.oracle.left - _AGAIN)
            with contextlib.suppress(PrecisionDebugError):  # what the engine cannot run with these kept names nobody
                more = self.again(self.keepable.units.keys(kept))
                names += names_to_keep(more, self.keepable.target.precision)
            self._named = tuple(dict.fromkeys(names))
        named = [Group(tensor=name, units=self.keepable.around([name]), share=HALF) for name in dict.fromkeys(names)]
        return [*named, *(self.ranking() if self.keepable.known is None else ())]

    def _asked_by(self, most: int) -> Oracle:
        limit = None if self.rule.strict else self.rule.allowed
        oracle = Oracle(len(self.keepable.units), self._run, runs=most + 1, limit=limit)
        oracle.asked[frozenset()] = JudgedSet(False, self.rule.before[0])
        return oracle

    def _run(self, kept: Kept) -> JudgedSet:
        """Run a set. Raises Spent where the time is over, or what is left of the runs is for what helps already."""
        held = any(judged.passes for judged in self.oracle.asked.values())
        helping = self._growing and not held and self.most >= _SMALL_WORK and self.oracle.helping
        last = [*self.oracle.asked.values()][-1].found
        ends = time.monotonic() + (0.0 if last is None else last.seconds)  # an engine takes as long as the one before
        after = self.in_regions and held and ends > self.until
        if after or self._late() or (helping and self.oracle.left <= _TO_LESSEN):
            raise Spent
        return self._judged(kept)

    def _judged(self, kept: Kept) -> JudgedSet:
        self.ran += 1
        self.on_set(self.ran, max(self.most, self.ran), time.monotonic() - self.begun)
        keys, rough = self.keepable.units.keys(kept), self.rough and not kept >= self.oracle.all
        samples = self.samples if self.in_regions else self.samples[:1]
        return self._as_judged(kept, self.trials.run(keys, samples, timed=False, rough=rough))

    def _as_judged(self, kept: Kept, found: Evaluation) -> JudgedSet:
        return self.rule.judged(
            self.keepable.units, kept, found, every=kept >= self.oracle.all, silent=self.in_regions, floor=self._floor
        )  # fmt: skip

    def _late(self) -> bool:
        """Return whether the time for it is over; the first set is run however long the run took until then."""
        self.stopped = self.stopped or (self.ran > 0 and time.monotonic() - self.begun > self.patience)
        return self.stopped

    def _again_so(self, kept: Kept) -> Evaluation | None:
        """Return a set run once more in a session of its own, on the other inputs too; None where that does not give
        what it gave, or it does not help there.
        Of few names, what only moves the numbers of a kept operator is left out if the rest does without, or else is
        all that is kept (a Concat) if that does. The one run of a model that takes long is not repeated, unless it was
        rough: then what is not near to it is run a third time."""
        if kept not in self.confirmed:
            plain, keys = (self.keepable.units.keys(kept, movers=movers) for movers in (False, True))
            few = plain != keys and self.most >= _SMALL_WORK and len(kept) <= _FEW_NAMES
            parts = (plain, tuple(key for key in keys if key not in plain)) if few else ()
            again = (self._run_again(kept, some) for some in (*parts, keys))
            once = not (self.samples[1:] or self.most > 1 or self.trials.calibrates)
            self.confirmed[kept] = self.seen[kept] if once else next((one for one in again if one is not None), None)
        return self.confirmed[kept]

    def _run_again(self, kept: Kept, keys: tuple[str, ...]) -> Evaluation | None:
        before = self.seen[kept]
        first, again = before.size, self.trials.run(keys, self.samples, timed=False, beside=self.beside)
        if self.trials.calibrates and not is_steady(first, again):
            if again.errors:
                self.oracle.asked[kept] = self._as_judged(kept, again)
            first = again.sizes[0]
            again = self.trials.run(keys, self.samples, timed=False, beside=self.beside)
        if not (self.rule.confirms(first, again) and self._as_judged(kept, again).helps):
            return None
        if again.held[0] or not before.passes:
            return again
        self.lessened[kept] = again  # one calibration for all sets promised more; as it is pasted it helps
        return None

    def _best(self) -> Kept | None:
        """Return the smallest set that holds, unless it is too large; else the best trade of those that help."""
        holding = (kept for kept, judged in self.oracle.helping.items() if judged.passes)
        least = min(holding, key=self._rank_of, default=None)
        many = least and (is_large(len(least), len(self.keepable.units)) or self.oracle.asked[least].gives_up)
        return least if least and (self.rule.strict or not many) else self.oracle.best_trade(self.rule.allowed) or least

    def _with_floor(self, best: Kept) -> Kept:
        """Return the best set again, where one that gives up most of the low precision leaves some of it.
        An engine that widens what lies between kept operators too gives that up for a part of them already: then what
        leaves as many operators low as that set does is as good."""
        if self.oracle.asked[best].gives_up:
            self._floor = runs_low(self.seen[best])
            self._judge_anew()
        return self._best() or best

    def _alone(self) -> Kept | None:
        """Return, where nothing else is to be offered, the smallest set that takes none but itself out of the low
        precision: one Concat may be all that runs in INT8."""
        self.rule, self.confirmed = replace(self.rule, alone=True), {}
        self._judge_anew()
        if best := self._best():
            self._smaller(best, self.most)
        return next((kept for kept in sorted(self.oracle.helping, key=self._rank_of)[:_OTHERWISE]
                     if self._again_so(kept) is not None), None)  # fmt: skip

    def _judge_anew(self) -> None:
        for kept, judged in [*self.oracle.asked.items()]:
            if judged.found is not None:
                self.oracle.asked[kept] = self._as_judged(kept, judged.found)

    def _rank_of(self, kept: Kept) -> tuple[bool, int, float]:
        judged = self.oracle.asked[kept]
        return not judged.passes, len(kept), judged.error

    def _trade(self, of: int) -> tuple[TradePoint, ...]:
        """Of the smaller sets that were run, those with the least error of their size and below."""
        smaller = {one: found.size for one, found in self.seen.items() if len(one) < of}
        return tuple(self.point(self.seen[one]) for one in list_unbettered(smaller, self.rule.before[0])[-_TOLD:])

    def point(self, found: Evaluation) -> TradePoint:
        """Return a set as it is told of."""
        if self.trials.calibrates:  # what is told was run as it would be pasted
            found = self.trials.run(found.kept, self.samples[:1], timed=False)
        named = len(self.keepable.named(found.kept))
        return TradePoint(what="curve", kept=named, error=found.error, passes=found.passes)

    @property
    def _each(self) -> bool:
        """Whether every unit was left in the low precision by itself, and none could be."""
        rest = [self.oracle.asked.get(self.oracle.all - {unit}) for unit in self.oracle.all]
        return not self.stopped and all(judged is not None and not judged.helps for judged in rest)

    def _with_named_next(self, kept: Kept) -> ToKeep:
        """Return what to tell of a set; where its command still names an operator, with that one kept too if that
        mends it."""
        found = self._to_keep(kept)
        named = found.blamed if found.state == "lessened" else ""
        wider = kept | self.keepable.around([named] if named else [])
        if wider != kept and not self._late():
            self.oracle.allow(1)
            with contextlib.suppress(Spent):
                judged = self.oracle.judge(wider)
                if judged.helps and not judged.gives_up and self._again_so(wider) is not None:
                    more = self._to_keep(wider)
                    return more if more.state == "mended" else found
        return found

    def _to_keep(self, kept: Kept, *, beside: bool = True) -> ToKeep:
        again = self._again_so(kept)
        assert again is not None
        found = self.rule.told(
            self.keepable.typed(again.kept), again, runs=self.ran,
            trade=self._trade(len(kept)) if self.oracle.asked[kept].gives_up else (),
            stopped=self.patience if self.stopped else None,
        )  # fmt: skip
        likely = list_beside(self.oracle.asked, kept, _OTHERWISE, self.oracle.count, self.rule.allowed)
        again_so = (one for one in likely if beside and self._again_so(one))
        found = replace(found, beside=tuple(self._to_keep(one, beside=False) for one in itertools.islice(again_so, 1)))
        strict = self.rule.strict
        if self.pasted is not None and is_open(found, strict=strict, of_one=self.of_one, of_many=self.of_many):
            with contextlib.suppress(PrecisionDebugError):  # then it is not known
                return as_pasted(found, self.pasted(again.kept), strict=strict)
        return found

    def _nothing(self) -> ToKeep:
        """Return what came of everything that can be kept says where else to look."""
        every = frozenset(range(len(self.keepable.units)))
        trade, whole = self._trade(len(every))[1 - _TOLD:], self.seen.get(every)
        if whole is None and (not self._late() or not self.seen):
            self.oracle.asked[every] = self._judged(every)
            whole = self.seen[every]
        least = min((found.size for kept, found in self.seen.items() if kept != every), default=math.inf)
        stopped = self.patience if self.stopped else None
        return self.rule.told_in_vain(
            least, whole, runs=self.ran, trade=trade, each=self._each, stopped=stopped, unit=self.keepable.keep.unit,
            of=len(self.keepable.every),
        )  # fmt: skip


def names_to_keep(culprits: Sequence[Culprit], precision: str) -> tuple[str, ...]:
    """Return the tensors whose operators are kept for culprits, of those that a higher precision mends."""
    named = (one.keep or (one.name,) for one in culprits if is_mended(one.cause, precision))
    return tuple(dict.fromkeys(name for names in named for name in names))
