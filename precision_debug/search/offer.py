"""When what was run is offered as a fix: one rule for kept operators, for remedies and for the sets of a search.

It leaves less than half of the error, on every input that it ran on; half at least of what was to stay in the low
precision still runs in it, or where nothing does so, none but the kept operators left it; and it does so again. The
numbers are those of ``explain.criteria``. Beyond that the best trade is the set that gives most for what it keeps. What
is told beside what is offered holds, or is the better trade.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from ..explain.criteria import FEW, FIFTH, HALF, LITTLE, SEVERAL, SMALLER
from ..protocols import Executed, is_switch
from .fix import ENGINE_OPTION, UNCOMPILED, Evaluation, ToKeep

if TYPE_CHECKING:
    from .units import Units

__all__ = [
    "FixRule", "JudgedSet", "Oracle", "Spent", "choose_best_trade", "did_others_leave", "does_stay_low",
    "error_to_halve", "finite_or_none", "gives_up_most", "is_better_trade", "is_large", "is_steady", "is_told_beside",
    "list_beside", "list_unbettered", "runs_low",
]  # fmt: skip

_NO_ERROR = 1e-12
"""What is as good as no error."""

_S = TypeVar("_S", bound=Sized)


@dataclass(frozen=True)
class JudgedSet:
    """What came of one set. error: inf where it is not finite. ran: False where the engine does not run with it.

    helps: less than half of the error is left, and what is not kept still runs in the low precision. gives_up: most of
    that is given up with it. found: of what was run, the rest."""

    passes: bool
    error: float = math.inf
    ran: bool = True
    helps: bool = False
    gives_up: bool = False
    found: Evaluation | None = None


@dataclass(frozen=True, kw_only=True)
class FixRule:
    """The target with nothing kept, against which everything that is tried is measured.

    before: its error by sample, inf where it is not finite. allowed: the error up to which an output is as expected.
    was: in which precision it ran; None: nobody can tell. strict: the user's own tolerance decides, which what only
    comes near it does not meet. asked: what passes is what was asked for, however little it takes off; of a tolerance
    that nothing kept does not meet it is a fix, too. alone: of what was run, nothing else is offered: what leaves
    nothing low counts, where none but what is kept left it. metric: the user's, whose loss is the error. slices: what
    was lost enters the error, see ToKeep."""

    before: Sequence[float]
    allowed: float
    was: Executed | None = None
    strict: bool = False
    asked: bool = False
    alone: bool = False
    metric: str = ""
    slices: bool = False
    unseen: bool = False

    def judged(
        self, units: Units, kept: frozenset[int], found: Evaluation, *, every: bool, silent: bool = False,
        floor: int = 0,
    ) -> JudgedSet:  # fmt: skip
        """Return what a run of a set comes to. every: everything is kept, which switches the low precision off.

        floor: how many operators in the low precision are enough, of an engine that gives up most of it for a few; 0:
        see ``does_stay_low``. silent: the engine, of regions, need not tell in which precision it ran."""
        was = None if silent and found.executed is None else self.was
        stays = 0 < floor <= runs_low(found) or does_stay_low(units, found.kept, was, found.executed)
        if self.alone and not stays and len(kept) <= HALF * len(units):
            stays = not did_others_leave(units, kept, was, found.executed)
        helps = stays and self.helps(found)
        return JudgedSet(
            found.passes and (every or (stays if self.asked else helps)), found.size, ran=bool(found.errors),
            helps=helps, gives_up=gives_up_most(self.was, found.executed, len(kept), len(units)), found=found,
        )  # fmt: skip

    def helps(self, found: Evaluation) -> bool:
        """Return whether less than half of the error is left of every sample that was run.

        On other inputs than the first, what is as expected is enough, whatever it was before; where all of them are
        others, on the first too if the error is smaller there."""
        if self.strict and self.asked and found.passes:
            return True
        halves = [HALF * error_to_halve(error, self.metric) for error in self.before]
        first = min(self.allowed, self.before[0] / SMALLER) if self.unseen else 0.0
        most = [max(half, self.allowed if at else first) for at, half in enumerate(halves)]
        return all(math.isfinite(now) and now <= bound for now, bound in zip(found.sizes, most, strict=False))

    def confirms(self, first: float, again: Evaluation) -> bool:
        """Return whether a second run comes to the same on the first sample, and helps on all of them."""
        return bool(again.errors) and is_steady(first, again) and self.helps(again)

    def told(self, kept: ToKeep, found: Evaluation, *, runs: int, state: str = "", **more: Any) -> ToKeep:
        """Return something that is offered with what came of it. runs: sets or settings that were run until then."""
        sizes = found.sizes[: len(self.before)]
        return replace(
            kept, state=state or ("mended" if found.held[0] else "lessened"), before=finite_or_none(self.before[0]),
            after=finite_or_none(sizes[0]), allowed=self.allowed, was=self.was and self.was.counts,
            still=found.executed and found.executed.counts, runs=runs, others=len(self.before) - 1,
            others_before=finite_or_none(max(self.before[1:], default=0.0)),
            others_after=finite_or_none(max(sizes[1:])) if sizes[1:] else None, slower=found.slower, metric=self.metric,
            slices=self.slices, outputs=found.outputs[0] if self.slices and found.outputs else None,
            **more,
        )  # fmt: skip

    def told_in_vain(self, least: float, whole: Evaluation | None, **more: Any) -> ToKeep:
        """Return what came of sets of which none is offered. least: the least error that was left. whole: with
        everything kept; None: that was not run."""
        found = whole if whole is not None else Evaluation(kept=(), mode="", passes=False)
        left = Evaluation(kept=(), mode="", passes=False, error=finite_or_none(least))
        return self.told(
            ToKeep(), left, state="none", whole=found.error, whole_still=found.told.executed,
            whole_ran=bool(found.errors), **more,
        )  # fmt: skip


def error_to_halve(before: float, metric: str = "") -> float:
    """Return what less than half of is to be left: the error, and no more than the output itself, which is what an
    output of nothing but 0 is off by. metric: the user's, whose loss has no such size; "" where there is none."""
    return before if metric else min(before, 1.0)


def is_steady(first: float, again: Evaluation) -> bool:
    """Return whether a run came to the same error on the first sample as an earlier one, but for a little."""
    return max(again.sizes[0], first) <= LITTLE * min(again.sizes[0], first) or again.sizes[0] == first


def runs_low(found: Evaluation) -> int:
    """Return how many operators ran in the low precision, as far as the engine tells."""
    return found.executed.low if found.executed is not None else 0


def finite_or_none(error: float) -> float | None:
    """Return an error as reports have it: None where it is not finite."""
    return error if math.isfinite(error) else None


def gives_up_most(was: Executed | None, still: Executed | None, kept: int, of: int) -> bool:
    """Return whether a fix gives up more than half of the low precision: who asked for INT8 wants its speed.

    It leaves less than half of what ran in the low precision, or where nobody can tell that, keeps more than half of
    the units; so too where the engine runs most of a float model wider by itself, as ONNX Runtime does on a CPU: what
    it leaves low then says little of an engine that does not. was, still: with nothing kept, and with these."""
    most = kept > HALF * of
    if was is None or still is None or not was.low:
        return most
    wider = was.low < HALF * was.of and not was.precision.startswith("INT")
    return still.low < HALF * was.low or (most and wider)


def does_stay_low(units: Units, keys: Collection[str], was: Executed | None, now: Executed | None) -> bool:
    """Return whether a set of kept keys is no way of switching the precision off.

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
    return now is not None and now.low >= max(1, math.floor(HALF * left * was.low))


def did_others_leave(units: Units, kept: Collection[int], was: Executed | None, now: Executed | None) -> bool:
    """Return whether an operator left the low precision that is not kept, nor fused into one that is; so too where
    nobody can tell which.

    was, now: in which precision the target ran with nothing kept, and with these."""
    if was is None or now is None or was.names is None or now.names is None:
        return True
    own = {meta.name for number in kept for meta in units.units[number].metas}
    own |= {name for made in now.names for name in made}
    return any(own.isdisjoint(made) for made in was.names)


def is_large(kept: int, of: int) -> bool:
    """Return whether a set is more than twice what is called a few: so much in FP32 is no answer to a few operators'
    fault."""
    return HALF * kept > max(FEW, of // FIFTH)


def choose_best_trade(
    errors: Mapping[_S, float], before: float, of: int, allowed: float = 0.0, wide: Collection[_S] = ()
) -> _S | None:  # fmt: skip
    """Return the set that gives most for what it keeps; None where there is none.

    It has the least sum of the share of the units that it keeps, and of the error that it leaves: each tenth of the
    operators that is kept counts as much as a tenth of the way, in decades of the error, from nothing kept to the least
    that was seen. errors: of the sets that were run. before: with nothing kept. of: how many units
    there are. allowed: the error that is as expected, below which less is worth no further operator. wide: those that
    give up most of the low precision, which counts as all of it."""
    known = [error for error in errors.values() if math.isfinite(error)]
    least = max(allowed, min(known, default=0.0), _NO_ERROR)
    most = max(before if math.isfinite(before) else max(known, default=0.0), 2 * least)
    decades = math.log(most / least)

    def cost(kept: _S) -> float:
        return math.log(max(errors[kept], least) / least) / decades + (1.0 if kept in wide else len(kept) / of)

    return min(errors, key=lambda kept: (cost(kept), len(kept), errors[kept]), default=None)


def list_beside(
    asked: Mapping[frozenset[int], JudgedSet], kept: frozenset[int], most: int, of: int, allowed: float
) -> list[frozenset[int]]:  # fmt: skip
    """Return what may be told of beside a set: of one that holds and keeps many, the smallest that halves the error and
    is the better trade, a fourth of it or less; of one that does not hold, the smallest that does, whatever that gives
    up. most: of them. of, allowed: see ``choose_best_trade``."""
    helping = {one: judged for one, judged in asked.items() if judged.helps}

    def is_better(one: frozenset[int]) -> bool:
        errors, wide = {each: asked[each].error for each in (kept, one)}, [kept] * asked[kept].gives_up
        return choose_best_trade(errors, asked[frozenset()].error, of, allowed, wide) == one

    if asked[kept].passes:
        few = (one for one in helping if SEVERAL * len(one) <= len(kept))
        others = [one for one in few if not helping[one].gives_up and (helping[one].passes or is_better(one))]
    else:
        others = [one for one in helping if helping[one].passes]
    return sorted(others, key=lambda one: (len(one), helping[one].error))[:most]


def is_told_beside(other: ToKeep, first: ToKeep) -> bool:
    """Return whether something is of use beside what is offered first: it holds, and gives up most of the low precision
    only where that does, too, or does not hold; or it is the better trade."""
    if other.state == "mended":
        return first.state != "mended" or _is_wide(first) or not _is_wide(other)
    return is_better_trade(other, first)


def is_better_trade(other: ToKeep, first: ToKeep) -> bool:
    """Return whether something gives more for what it keeps; see ``choose_best_trade``."""
    pair, of = (first, other), max(1, first.of, other.of)
    before, *left = (math.inf if error is None else error for error in (other.before, first.after, other.after))
    errors = dict(zip(map(_kept_by, pair), left, strict=True))
    wide = [_kept_by(one) for one in pair if _is_wide(one)]
    return choose_best_trade(errors, before, of, other.allowed or 0.0, wide) == _kept_by(other)


def _kept_by(fix: ToKeep) -> tuple[str, ...]:
    """Return the operators that a fix keeps: of a setting of the engine none."""
    return () if fix.unit in (ENGINE_OPTION, UNCOMPILED) else fix.keys


def _is_wide(fix: ToKeep) -> bool:
    return gives_up_most(fix.was, fix.still, len(_kept_by(fix)), max(1, fix.of))


def list_unbettered(errors: Mapping[_S, float], most: float = math.inf) -> list[_S]:
    """Return the sets that nothing smaller betters, in the order of their sizes. most: the error that the first is
    below."""
    chosen: list[_S] = []
    for kept in sorted(errors, key=lambda kept: (len(kept), errors[kept])):
        if errors[kept] < most:
            most = errors[kept]
            chosen.append(kept)
    return chosen


# Whether a set of kept units holds: asked once for each set, and only as often as the budget allows.

_APART = 2.0
"""Times that two errors of one set may be apart."""


class Spent(Exception):
    """The runs or the seconds are used up."""


class Oracle:
    """Sets of units 0 to count - 1.

    evaluate: runs one set; it may raise Spent. limit: the error up to which a set passes, where that is what decides.
    exact: of a rough one, which it judges the first set of, too, and the first that holds: one that misleads there says
    no more.
    """

    def __init__(
        self, count: int, evaluate: Callable[[frozenset[int]], JudgedSet], *, runs: int = 10_000,
        limit: float | None = None, exact: Oracle | None = None,
    ) -> None:  # fmt: skip
        self.count, self.limit = count, limit
        self.all, self.left_out = frozenset(range(count)), frozenset[int]()
        self.asked: dict[frozenset[int], JudgedSet] = {}
        self._evaluate, self._runs, self._exact = evaluate, runs, exact
        self._checked = False
        self._aim: float | None = None

    @property
    def left(self) -> int:
        """How many sets may still be run."""
        return self._runs - len(self.asked)

    def allow(self, more: int) -> None:
        """Let at least so many sets be run from here on."""
        self._runs = max(self._runs, len(self.asked) + more)

    def end_after(self, more: int) -> None:
        """Let at most so many sets be run from here on."""
        self._runs = min(self._runs, len(self.asked) + more)

    def aiming_at(self, best: frozenset[int]) -> Oracle:
        """Return one by which a part of a set that was judged holds where it does as well.

        Of one that does not pass it knows what this one does, and every set holds that helps and leaves no more than
        about that: so a set that does not reach the aim is made smaller as one that does."""
        judged = self.asked[best]
        if judged.passes:
            return self
        other = copy.copy(self)
        other.limit = other._aim = LITTLE * judged.error
        return other

    def judge(self, kept: Iterable[int]) -> JudgedSet:
        """Raises Spent."""
        key = frozenset(kept) - self.left_out
        if key not in self.asked:
            if len(self.asked) >= self._runs:
                raise Spent
            self.asked[key] = self._evaluate(key)
            if self._exact is not None and 0 < len(key) < self.count and self._misleads(key, self._exact):
                del self.asked[key]
                raise Spent
        return self.asked[key]

    def _misleads(self, key: frozenset[int], exact: Oracle) -> bool:
        """Return whether the exact oracle says something else of a set, if this is one that it is asked of."""
        rough = self.asked[key]
        if self._checked and not rough.passes:
            return False
        self._checked = True
        truth = exact.judge(key)
        if rough.passes:
            self._exact = None
        apart = max(truth.error, rough.error) > _APART * min(truth.error, rough.error)
        return apart or (rough.passes and not truth.passes)

    def leave_out(self, tried: Iterable[int]) -> None:
        """Keep no unit from here on with which, by itself, the engine does not run. Raises Spent.

        tried: a few of a set that does not run."""
        refused = frozenset(unit for unit in tried if not self.judge({unit}).ran)
        self.left_out |= refused
        self.all -= refused

    def holds(self, kept: Iterable[int]) -> bool:
        """Raises Spent."""
        return self._is_held(self.judge(kept))

    def _is_held(self, found: JudgedSet) -> bool:
        return found.passes if self._aim is None else found.helps and found.error <= self._aim

    def best_trade(self, allowed: float = 0.0) -> frozenset[int]:
        """Return the set that gives most for what it keeps, of those that help; none where none does.

        allowed: the error that is as expected."""
        useful = {kept: judged.error for kept, judged in self.helping.items() if kept and kept != self.all}
        wide = [kept for kept in useful if self.asked[kept].gives_up]
        before = self.asked[frozenset()].error if frozenset() in self.asked else math.inf
        return choose_best_trade(useful, before, self.count, allowed, wide) or frozenset()

    @property
    def helping(self) -> dict[frozenset[int], JudgedSet]:
        """What came of the sets that help."""
        return {kept: judged for kept, judged in self.asked.items() if judged.helps}

    def list_larger(self, than: frozenset[int]) -> list[frozenset[int]]:
        """Return sets that were seen to hold and keep more than this one, the smallest first, fewer the larger they
        are."""
        sizes: dict[int, frozenset[int]] = {}
        for kept in sorted(self.asked, key=lambda kept: (len(kept), self.asked[kept].error)):
            if len(kept) > len(than) and kept != self.all and self._is_held(self.asked[kept]):
                sizes.setdefault(len(kept), kept)
        held = list(sizes.values())
        return [held[2**power - 1] for power in range(len(held).bit_length())]

    def smallest(self) -> frozenset[int] | None:
        """Return the smallest set that was seen to hold, the one with the least error among equals."""
        held = [kept for kept, found in self.asked.items() if self._is_held(found)]
        return min(held, key=lambda kept: (len(kept), self.asked[kept].error), default=None)
