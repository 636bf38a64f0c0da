"""From culprits to a change that helps: a few sets of kept operators run on the engine, the smallest that does it told.

The first set keeps what the culprits are, with what reads them. Where that is not enough, in INT8 what makes what they
read is kept too, then the same in every layer, then what a comparison with these kept names next, then what the
ranking has next. An error of many operators has no culprits: then it is larger and larger parts of the ranking. Of a
set that does it, parts are tried as long as the work allows. A set counts only if its error is less than half of what
it was, and what was to stay in the low precision still runs in it. One that gives up most of the low precision is
offered only where no smaller one comes near it, and says so.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from ..errors import BackendUnavailable, PrecisionDebugError, UsageError
from ..explain import is_mended
from ..numbers.number_types import promised
from ..protocols import BETWEEN, WHOLE, Session
from ..records import Culprit
from ..search import (
    Evaluation,
    FixRule,
    Group,
    Judged,
    Spent,
    ToKeep,
    TradePoint,
    Tried,
    betters,
    finite,
    gives_up_most,
    smallest_along,
    stays_low,
    trade_costs,
    without_rows,
)  # fmt: skip
from ..search.offer import is_steady
from .criterion import Sample
from .pasted import Pasted, as_pasted, is_open
from .to_keep import Keepable
from .trials import Trials, switches_of

__all__ = ["FixFinder"]

_AS_GOOD = 1.25
"""Times the least error that was seen, up to which a smaller set is as good, where none is as expected."""

_MARGIN = 0.9
"""Of the allowed error, what a part of a set may come to: it holds on other inputs too then."""

_LARGE, _SHARE, _FEWER, _NEARLY = 24, 1 / 3, 1 / 4, 2.0
"""Units from which on a set is too large beyond that share of them, where a fourth of it comes to twice the allowed
error: a third of a model in FP32 is no answer to a few operators' fault."""

_PARTS = (32, 16, 8, 4, 2)
"""Of the units, which parts are kept one after the other where the error is that of many operators."""

_FEW, _SMALL_WORK = 24, 12
"""Units up to which each is left in the low precision by itself, and sets that may be run of a model that is small
enough for it."""

_TO_LESSEN = 4
"""Of those, the ones that are left for parts of a set that helps."""

_FEW_NAMES = 6
"""Operators of a set that is offered, each of which is left out once: who pastes it reads them."""

_LESS = 1 / 4
"""Of the operators of a set that holds, how many one that halves the error may keep to be offered beside it."""

_POINTS = 3
"""Smaller sets that are told of beside a fix that gives up most of the low precision."""

_NEAREST = 2
"""Of the sets that were run in vain, those that are told."""

_AGAIN = 3
"""Runs of a set that another comparison, explained, is worth."""

_OTHERWISE = 2
"""Sets that helped, tried once more where the chosen one does not do so again."""

_AUTHORS = 3
"""Culprits that are tried each by itself."""

PATIENCE, PATIENT = 300.0, 1800.0
"""Seconds from which on no further set is run, unasked and of a full explanation. How many sets are run is counted in
work, which load does not change; this is for engines that take minutes to open, and a fix says where it ended so."""

Groups = tuple[tuple[str, ...], ...]
"""Of each operator that is kept, the keys that keep it."""


@dataclass(kw_only=True)
class FixFinder:
    """trials: of the target. samples: the inputs of the comparison, then others. rule: what is offered, measured
    against the target's error on each of them. most: sets that may be run.

    again: the culprits of another comparison with some keys kept; None: there is to be none. pasted: what that command
    comes to; of_many, of_one: up to which an error is as expected that many operators make, or one. ranking: groups of
    units, the most likely ones first. beside: the target with nothing kept, where runs may be timed beside it.
    patience: see ``PATIENCE``. in_regions: see protocols.InRegions. until: the time (``time.monotonic``) from
    which on a set of such an engine that holds is not made smaller. on_set: told of each set before it is run: its
    number, of how many, and seconds passed.
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
    seen: dict[Groups, Evaluation] = field(default_factory=dict)
    confirmed: dict[Groups, Evaluation | None] = field(default_factory=dict)
    vain: dict[Groups, Evaluation] = field(default_factory=dict)
    no_less: dict[Groups, int] = field(default_factory=dict)
    spent: int = 0
    ran: int = 0
    each: bool = False
    rough: bool = True
    patience: float = PATIENCE
    in_regions: bool = False
    until: float = math.inf
    on_set: Callable[[int, int, float], None] = lambda _number, _most, _seconds: None
    begun: float = field(default_factory=time.monotonic)
    stopped: bool = False

    def find(self, culprits: Sequence[Culprit]) -> ToKeep:
        """Return what to paste, with what it brought; without an option where nothing brought anything."""
        names = self._names(culprits)
        if self.in_regions:
            found = self._grown(names)
            return self._nothing() if found is None else self._to_keep(found)
        for groups in self._wider(names):
            if self.most >= _SMALL_WORK and self.most - self.spent < _TO_LESSEN and any(map(self._helps, self.seen)):
                break  # what helps already is rather made smaller
            self._run(groups)
            if self._holds(groups):
                break
        if not any(map(self._helps, self.seen)):
            self._leave_low()
        found = self._best(culprits)
        if found is None and self.trials.calibrates and not self.each:
            # what one calibration promised does not hold where each set is calibrated anew: then no set is judged by it
            self.rough, self.vain = False, dict(self.seen)
            self.seen = {groups: self.seen[groups] for groups in self.confirmed}
            self._leave_low()
            found = self._best(culprits)
        return self._nothing() if found is None else self._to_keep(found)

    def _grown(self, names: tuple[str, ...]) -> Groups | None:
        """Return the smallest set that holds of those that grow along the data, else the best that helps. Each is run
        on all samples, and not again: an engine takes long to build."""
        units, held = self.keepable.units, False

        def groups_of(kept: frozenset[int]) -> Groups:
            return tuple(units.units[unit].keys for unit in sorted(kept))

        def judge(kept: frozenset[int]) -> Judged:
            nonlocal held
            if not kept:
                return Judged(False, self.rule.before[0])
            if (held and time.monotonic() > self.until) or self._run(groups_of(kept)) is None:
                raise Spent
            held = held or self._holds(groups_of(kept))
            return Judged(self._holds(groups_of(kept)), self._error(groups_of(kept)))

        steps = self.keepable.growing(names, () if names else self.ranking())
        always, rounding = switches_of(units)
        kept = smallest_along(judge, steps, frozenset(range(len(units))) - {*rounding}, always, rounding)
        found = None if kept is None else groups_of(kept)
        if (found := found or min(filter(self._helps, self.seen), key=self._rank, default=None)) is not None:
            self.confirmed[found] = self.seen[found]
        return found

    def _best(self, culprits: Sequence[Culprit]) -> Groups | None:
        """Of the sets that were run, made smaller, the one to offer: it did so again. None: there is none."""
        helping = [groups for groups in self.seen if self._helps(groups)]
        best = min(helping, key=self._rank, default=None)
        if best is None:
            return None
        units = len(self.keepable.units)
        if units >= _LARGE and len(best) > _SHARE * units:
            nearly = [groups for groups in helping if len(groups) <= _FEWER * len(best) and self._nearly(groups)]
            best = min(nearly, key=lambda groups: (len(groups), self._error(groups)), default=best)
        if self._gives_up(best):
            self.most = max(self.most, self.spent) + _AGAIN
        whole = self._cheaper(self._smaller(best, culprits))
        likely = dict.fromkeys((_needed(self, whole), whole, best, *sorted(helping, key=self._rank)[:_OTHERWISE]))
        return next((groups for groups in likely if self._again_so(groups) is not None), None)

    # sets -------------------------------------------------------------------------------------------------------

    def _names(self, culprits: Sequence[Culprit]) -> tuple[str, ...]:
        precision = self.keepable.target.precision
        return tuple(dict.fromkeys(
            name for one in culprits if is_mended(one.cause, precision) for name in one.keep or (one.name,)
        ))  # fmt: skip

    def _wider(self, names: tuple[str, ...]) -> Iterator[Groups]:
        """Larger and larger sets, each made when the one before it was not enough."""
        if not names:
            yield from self._of_the_ranking(*(max(1, len(self.keepable.units) // part) for part in _PARTS))
            return
        first, authors = self.keepable.groups(names), self.keepable.groups(names, readers=False)
        coarse, module = self.keepable.keep.unit != "operator", self.keepable.keep.unit == "module"
        if coarse:
            if module:
                yield from _parts(authors)
            yield authors
            yield from _parts(first) if module else ()
        yield first
        if not coarse and promised(self.keepable.target.precision).computes == "int8":
            yield from self.keepable.before(names)
        else:
            yield authors
        if module:
            yield from _parts(self.keepable.groups(self.keepable.everywhere(names)))
        yield self.keepable.groups(self.keepable.everywhere(names))
        if self.again is not None and self.most - self.spent > _AGAIN and not self._late():
            kept = min(self.seen, key=self._error, default=())
            self.spent += _AGAIN
            try:
                more = self._names(self.again(tuple(key for group in kept for key in group)))
            except PrecisionDebugError:  # what the engine cannot run with these kept names nobody else
                more = ()
            if wider := [name for name in more if name not in names]:
                yield self.keepable.groups((*names, *wider))
                yield self.keepable.groups(self.keepable.everywhere((*names, *wider)))
        if self.keepable.known is not None:
            return
        if len(self.keepable.units) >= _LARGE and any(self._nearly(groups) for groups in self.seen):
            return  # the ranking's next ones are many for little
        units = len(self.keepable.units)
        yield from self._of_the_ranking(1, 2, 4, 8, units // 2, units - 1)

    def _of_the_ranking(self, *counts: int) -> Iterator[Groups]:
        """As many of the units as are counted, the most likely ones first."""
        units = self.keepable.units.units
        order = dict.fromkeys(units[unit].keys for group in self.ranking() for unit in sorted(group.units))
        ranked = list(order)
        for count in sorted({*counts}):
            if 0 < count < len(units):
                yield tuple(ranked[:count])

    def _leave_low(self) -> None:
        """Run everything kept but one unit, for each of a small model's: those that do no harm alone stay low together.

        A unit that cannot be left so is needed in every set that helps, so that where none can nothing else helps.
        """
        everything = tuple(group for group in self.keepable.everything if WHOLE not in group)
        if self.most < _SMALL_WORK or len(everything) > _FEW:
            return
        self.most = max(self.most, self.spent) + len(everything) + _AGAIN
        if len(everything) < len(self.keepable.units):  # what no module computes is left low
            self._run(everything, rough=False)
            if self._helps(everything):
                return
        harmless = []
        for group in everything:
            rest = tuple(other for other in everything if other != group)
            self._run(rest, rough=False)
            if self._helps(rest):
                harmless.append(group)
        while len(harmless) > 1:
            self._run(rest := tuple(group for group in everything if group not in harmless))
            if self._helps(rest):
                break
            harmless = harmless[: len(harmless) // 2]
        self.each = not harmless

    def _smaller(self, best: Groups, culprits: Sequence[Culprit]) -> Groups:
        """As small as the runs that are left make it: the authors alone, each alone, then halves."""
        precision = self.keepable.target.precision
        named = [one for one in culprits if is_mended(one.cause, precision)]
        # in INT8 the last operator of a region keeps nothing of what is rounded on its way in
        whole = promised(precision).computes == "int8"
        each = [one.keep if whole and one.keep else (one.name,) for one in named]
        authors = [name for names in each for name in names]
        pairs = [*authors, *(one.amplifier for one in named if one.amplifier)]
        plain = [
            self.keepable.groups(authors, readers=False), self.keepable.groups(pairs, readers=False),
            *(self.keepable.groups(names, readers=False) for names in each[:_AUTHORS]),
            self.keepable.groups(self.keepable.everywhere(authors), readers=False),
            self.keepable.groups(each[0] if each else ()), self.keepable.groups(authors[:1]),
        ]  # fmt: skip
        for groups in sorted(dict.fromkeys(plain), key=len):
            if 0 < len(groups) < len(best) and not self._in_vain(groups) and self._as_good(groups, best):
                best = groups
                break
        goal = best
        return tuple(without_rows(best, lambda rest: self._as_good(tuple(rest), goal)))

    def _cheaper(self, found: Groups) -> Groups:
        """In place of a set that gives up most of the low precision, the smallest that does not, and comes near it."""
        if not self._gives_up(found) or self.rule.strict:
            return found
        found = self._for_no_more(found)
        near = _NEARLY * max(self.rule.allowed, self._error(found))
        smaller = [
            groups for groups in self.seen
            if self._helps(groups) and not self._gives_up(groups) and len(groups) < len(found)
            and self._error(groups) <= near
        ]  # fmt: skip
        return min(smaller, key=lambda groups: (len(groups), self._error(groups)), default=found)

    def _for_no_more(self, found: Groups) -> Groups:
        """Return the smallest set that does as well and leaves as much in the low precision: an engine that widens what
        lies between kept operators too gives that up for a part of them already."""
        ran = self.seen[found].executed
        error = max(_MARGIN * self.rule.allowed, self._error(found))
        smaller = [
            groups for groups, one in self.seen.items()
            if len(groups) < len(found) and one.passes == self.seen[found].passes and self._error(groups) <= error
            and ran is not None and one.executed is not None and one.executed.low >= ran.low
        ]  # fmt: skip
        least = min(smaller, key=lambda groups: (len(groups), self._error(groups)), default=found)
        if least != found and ran is not None:
            self.no_less[least] = ran.low
        return least

    def _in_vain(self, groups: Groups) -> bool:
        """Return whether a set that holds all of these did nothing: fewer will do no more."""
        kept = set(groups)
        return any(kept <= set(seen) and self._error(seen) >= _MARGIN * self.rule.before[0] for seen in self.seen)

    # runs -------------------------------------------------------------------------------------------------------

    def _run(self, groups: Groups, *, rough: bool = True) -> Evaluation | None:
        """Return what came of a set; None where it has nothing in it, or the runs are used up. rough: see
        ``Trials.run``."""
        if groups in self.seen:
            return self.seen[groups]
        if not groups or self.spent >= self.most or self._late():
            return None
        self.spent += 1
        self.ran += 1
        self.on_set(self.ran, max(self.most, self.ran), time.monotonic() - self.begun)
        keys = tuple(dict.fromkeys(key for group in groups for key in group))
        try:
            samples = self.samples if self.in_regions else self.samples[:1]
            found = self.trials.run(keys, samples, timed=False, rough=rough and self.rough)
        except (BackendUnavailable, UsageError) as error:
            found = Evaluation(kept=keys, mode=self.trials.mode, passes=False, text=str(error))
        self.seen[groups] = found
        return found

    def _late(self) -> bool:
        """Return whether the time for it is over; the first set is run however long the run took until then."""
        self.stopped = self.stopped or (bool(self.seen) and time.monotonic() - self.begun > self.patience)
        return self.stopped

    def _error(self, groups: Groups) -> float:
        return self.seen[groups].size

    def _helps(self, groups: Groups) -> bool:
        """Return whether the error is less than half of what it was, and the rest still runs in the low precision."""
        if (found := self.seen.get(groups)) is None or not self.rule.helps(found):
            return False
        told = found.executed is not None or not self.in_regions  # a region tells of no precision
        was = self.rule.was if told else None
        return stays_low(self.keepable.units, found.kept, was, found.executed)

    def _holds(self, groups: Groups) -> bool:
        return self._helps(groups) and self.seen[groups].passes

    def _rank(self, groups: Groups) -> tuple[bool, float, float, int]:
        """Return the smallest of those that hold well first, then by their error; of those that do not hold the best
        trade."""
        strict, error = self.rule.strict, self._error(groups)
        if not self._holds(groups):
            return True, self._cost(groups), error, len(groups)
        well = strict or error <= _MARGIN * self.rule.allowed
        return False, len(groups) if well else math.inf, error, len(groups)

    def _cost(self, groups: Groups) -> float:
        errors = {one: self._error(one) for one in self.seen}
        return trade_costs(errors, self.rule.before[0], len(self.keepable.units), self.rule.allowed)[groups]

    def _gives_up(self, groups: Groups) -> bool:
        return gives_up_most(self.rule.was, self.seen[groups].executed, len(groups), len(self.keepable.units))

    def _trade(self, groups: Groups) -> tuple[TradePoint, ...]:
        """Of the smaller sets that were run, those with the least error of their size and below."""
        ran = {**self.vain, **self.seen}
        smaller = {one: found.size for one, found in ran.items() if len(one) < len(groups)}
        chosen = betters(smaller, self.rule.before[0])
        return tuple(self.point(one, ran[one]) for one in chosen[-_POINTS:])

    def point(self, groups: Groups, found: Evaluation) -> TradePoint:
        """Return a set as it is told of."""
        if self.trials.calibrates:  # what is told was run as it would be pasted
            found = self.trials.run(found.kept, self.samples[:1], timed=False)
        return TradePoint(what="curve", kept=len(groups), error=found.error, passes=found.passes)

    def _nearly(self, groups: Groups) -> bool:
        """Return whether a set helps, and all but reaches what is expected."""
        strict = self.rule.strict
        return not strict and self._helps(groups) and self._error(groups) <= _NEARLY * self.rule.allowed

    def _as_good(self, groups: Groups, as_what: Groups) -> bool:
        if self._run(groups) is None or not self._helps(groups):
            return False
        if not self.seen[as_what].passes:
            return self._error(groups) <= _AS_GOOD * self._error(as_what)
        near = self._error(groups) <= max(_MARGIN * self.rule.allowed, self._error(as_what))
        return self.seen[groups].passes and (near or self.rule.strict)

    def _again_so(self, groups: Groups) -> Evaluation | None:
        """Return a set run once more in a session of its own, on the other inputs too; None where that does not give
        what it gave, or it does not help there. The one run of a model that takes long is not repeated, unless it was
        rough: then what is not near to it is run a third time."""
        if groups in self.confirmed:
            return self.confirmed[groups]
        found: Evaluation | None = self.seen[groups]
        if self.samples[1:] or self.most > 1 or self.trials.calibrates:
            keys = tuple(dict.fromkeys(key for group in groups for key in group))
            first = self._error(groups)
            again = self.trials.run(keys, self.samples, timed=False, beside=self.beside)
            if self.trials.calibrates and not is_steady(first, again):
                self.seen[groups] = again
                first = again.sizes[0]
                again = self.trials.run(keys, self.samples, timed=False, beside=self.beside)
            low = stays_low(self.keepable.units, again.kept, self.rule.was, again.executed) or (
                groups in self.no_less and again.executed is not None and again.executed.low >= self.no_less[groups]
            )
            found = again if self.rule.confirms(first, again) and low else None
        self.confirmed[groups] = found
        return found

    # answers ----------------------------------------------------------------------------------------------------

    def _to_keep(self, groups: Groups) -> ToKeep:
        again = self._again_so(groups)
        assert again is not None
        tried = self.rule.told(
            again, runs=self.ran,
            whole_slower=None if again.slower is None else self._whole_slower(),
            trade=self._trade(groups) if self._gives_up(groups) else (),
            stopped=self.patience if self.stopped else None,
        )  # fmt: skip
        told = replace(self.keepable.typed(groups), tried=self._as_pasted(tried, again.kept))
        return replace(told, beside=_beside(self, groups)) if again.held[0] else told

    def _as_pasted(self, tried: Tried, keys: tuple[str, ...]) -> Tried:
        strict = self.rule.strict
        if self.pasted is not None and is_open(tried, strict=strict, of_one=self.of_one, of_many=self.of_many):
            with contextlib.suppress(PrecisionDebugError):  # then it is not known
                return as_pasted(tried, self.pasted(keys), strict=strict)
        return tried

    def _whole_slower(self) -> float | None:
        """Times as long a run takes with everything kept; None where the runs are used up."""
        if self.spent >= self.most or self._late():
            return None
        self.spent += 1
        keys = tuple(dict.fromkeys(key for group in self.keepable.everything for key in group))
        return self.trials.run(keys, self.samples[:1], timed=False, beside=self.beside).slower

    def _nothing(self) -> ToKeep:
        """Return what came of everything that can be kept says where else to look."""
        everything = self.keepable.everything
        trade = self._trade(everything)[-_NEAREST:]
        self.most += 1
        whole = self._run(everything, rough=False)
        least = min((self._error(groups) for groups in self.seen if groups != everything), default=math.inf)
        return ToKeep(
            unit=self.keepable.keep.unit, of=self.keepable.units.operators,
            tried=Tried(
                state="none", before=finite(self.rule.before[0]), after=finite(least), allowed=self.rule.allowed,
                was=self.rule.was, runs=self.ran, whole=whole.error if whole is not None else None,
                whole_still=whole.executed if whole is not None else None,
                whole_ran=whole is not None and bool(whole.errors), each=self.each and not self.stopped, trade=trade,
                stopped=self.patience if self.stopped else None,
            ),
        )  # fmt: skip


def _needed(finder: FixFinder, found: Groups) -> Groups:
    """Of a set of a few names those that it takes: what only moves the numbers of a kept operator is left out if
    the rest does without, and then each operator by itself."""
    if finder.most < _SMALL_WORK or len(found) > _FEW_NAMES:
        return found
    finder.most = max(finder.most, finder.spent) + len(found) + 1
    plain = tuple(group[:1] for group in found)
    found = plain if plain != found and _does(finder, plain, found) else found
    for group in found:
        rest = tuple(other for other in found if other != group)
        found = rest if rest and not finder._in_vain(rest) and _does(finder, rest, found) else found
    return found


def _does(finder: FixFinder, groups: Groups, as_what: Groups) -> bool:
    """Return whether a part of a set that holds does too, or is as good as one that does not."""
    held = finder.seen[as_what].passes and finder._run(groups) is not None
    return finder._holds(groups) if held else finder._as_good(groups, as_what)


def _beside(finder: FixFinder, groups: Groups) -> tuple[ToKeep, ...]:
    """Beside a set that holds and keeps many, the smallest that halves the error, with a fourth of it or less."""
    smaller = [
        one for one in finder.seen
        if len(one) <= _LESS * len(groups) and finder._helps(one) and not finder._gives_up(one)
    ]  # fmt: skip
    least = sorted(smaller, key=lambda one: (len(one), finder._error(one)))[:_OTHERWISE]
    again = next((one for one in least if finder._again_so(one) is not None), None)
    return () if again is None else (finder._to_keep(again),)


def _parts(groups: Groups) -> Iterator[Groups]:
    """Yield a set of modules with what is computed between modules in place of those around others: less is kept so."""
    keys = {key for group in groups for key in group}
    around = {key for key in keys if key == WHOLE or any(other.startswith(f"{key}.") for other in keys)}
    if keys - around - {BETWEEN}:
        inside = tuple(group for group in groups if not around.intersection(group))
        yield inside
        if (BETWEEN,) not in inside:
            yield (*inside, (BETWEEN,))
