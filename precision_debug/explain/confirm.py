"""The second question: how much is left when one small change is made? It decides where an error alone accuses nobody.

Every operator's own error is put into the baseline's run, which gives about what the target gives; then all but the
culprit's, and those of what is to be kept with it. An error that becomes a third of what it was has an author, however
small it is; one that does not has many. Of an author of ordinary rounding that holds for a large error, too.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from ..pairing.align import strip_iteration
from ..reasons.causes import CAUSES
from ..records import Culprit, Overlap, RepairedSet
from .criteria import FAR, FEW, FIFTH, HALF, LITTLE, PART, SMALLER
from .culprits import is_far_off, list_felt
from .effects import Carried, Sink, measure_error_without
from .introduced import Alone
from .subject import Subject
from .work import Work

__all__ = ["confirm_culprits", "find_few_that_halve", "find_overlap", "with_repairs", "with_set_left_out"]


_FIRST = 4
"""Culprits each of which is left out where most of the error is left without the first."""

_MANY = 6
"""Operators besides a culprit from which on two of them all are few: two of an error that all make alike would leave
87 % of it."""

_REPAIRED = 3
"""Culprits of which it is measured what their repair leaves, unasked: each takes a run of the baseline."""


def confirm_culprits(
    subject: Subject, alone: Alone, culprits: tuple[Culprit, ...], tried: Carried, sinks: Sequence[Sink],
    plain: Mapping[str, Any], work: Work, dropped: frozenset[str] = frozenset(),
) -> tuple[Culprit, ...]:  # fmt: skip
    """Return the culprits with what is left without the first of them; none where most of it is left, and the operator
    only rounds as every other does. Those that are named are left out together, too: each alone may be enough for it.
    So is the first with the next largest, where one alone is named: of two that halve it, of many, the larger has the
    blame. Of operators that do far more than round, the one without which least is left comes first; where nearly all
    is left without all of them, the others do as much, and nobody is to blame.

    Takes two or three runs of the baseline, and a few more where several do far more than round. Where the replay is
    not the error that was measured, nothing is left out and nothing refuted, unless what is left is more than that; of
    a replay that is far more, those who only round are refuted where the error that was measured is there without them.
    dropped: whose errors are left out, too, before these are refuted: one alone may be no more than half of a pair.
    Raises work.Ended.
    """
    sink = next((one for one in sinks if culprits and one.name == culprits[0].at), None)
    if sink is None or sink.non_finite or not sink.squared or not tried.effects:
        return culprits
    if any(subject.times(one.name) > 1 for one in culprits):  # the iterations that were not looked at stay as they are
        return culprits
    names = list_felt(subject, alone)

    def without(left_out: Collection[str]) -> float | None:
        work.go_on()
        return measure_error_without(subject, alone, names, left_out, sink, plain)

    whole = without(())
    if whole is None or not math.isfinite(whole) or whole < HALF * sink.rel_l2:
        return culprits
    first = culprits[0]
    if subject.far(first.introduced, first.units, FAR) or CAUSES[first.cause].fails_for(first.evidence):
        return _confirm_beyond_rounding(subject, alone, culprits, tried, sinks, plain, work, without, whole, dropped)
    together = [one for one in culprits if one is first or (first.amplifier and one.amplifier == first.amplifier)]
    family = _family_of(alone, together, first.amplifier)
    if whole > sink.rel_l2 / HALF:  # a decision that only the replay makes so; that the target's error is there without
        left = without(family)  # those who make it, it tells none the less
        if left is None or left * SMALLER <= sink.rel_l2:
            return culprits
        others = tuple(one for one in culprits if one not in together)
        return confirm_culprits(subject, alone, others, tried, sinks, plain, work, dropped)
    left = without(family)
    if left is None:
        return culprits
    times = sink.rel_l2 / whole  # to hold a replay against what the target gave; what is told is the replay's own
    if left * times * SMALLER > sink.rel_l2:
        others = tuple(one for one in culprits if one not in together)
        every = _family_of(alone, culprits, first.amplifier)
        if not others:
            every |= _find_equal_of_family(tried, family, sink)
        both = without(every) if every > family else None
        smaller = SMALLER if others else 1 / HALF
        if is_far_off(subject, sink) and both is not None and both * times * smaller <= sink.rel_l2:
            left, family = both, every
        else:
            return confirm_culprits(subject, alone, others, tried, sinks, plain, work, dropped | family)
    return (_with_error_left(subject, alone, first, family, left, whole), *culprits[1:])


def _confirm_beyond_rounding(
    subject: Subject, alone: Alone, culprits: tuple[Culprit, ...], tried: Carried, sinks: Sequence[Sink],
    plain: Mapping[str, Any], work: Work, without: Callable[[Collection[str]], float | None], whole: float,
    dropped: frozenset[str],
) -> tuple[Culprit, ...]:  # fmt: skip
    """Return the same where the first of them does far more than round. without: what is left without these
    operators."""
    first, sink = culprits[0], next(one for one in sinks if one.name == culprits[0].at)
    replayed = whole <= sink.rel_l2 / HALF
    family = _family_of(alone, [first], first.amplifier)
    left = without(family)
    if left is None:
        return culprits
    if left * SMALLER > whole:
        rivals = [one for one in culprits[1:] if one.at == sink.name and not one.amplifier][: _FIRST - 1]
        families = {one.name: _family_of(alone, [one], "") for one in rivals}
        lefts = {name: found for name in families if (found := without(families[name])) is not None}
        least = min(lefts, key=lefts.__getitem__, default="")
        if least and LITTLE * lefts[least] < left:
            first = next(one for one in rivals if one.name == least)
            culprits = (first, *(one for one in culprits if one is not first))
            left, family = lefts[least], families[least]
    if left * LITTLE > whole:
        every = dropped.union(*(_family_of(alone, [one], one.amplifier) for one in culprits))
        all_left = without(every) if every > family else left
        smaller = SMALLER if dropped else LITTLE  # with those who were refuted: as much as would have kept these
        too_much = all_left is not None and all_left * smaller > whole and (replayed or all_left > sink.rel_l2)
        if too_much and not CAUSES[first.cause].fails_for(first.evidence):
            others = tuple(one for one in culprits if one.at != sink.name)
            return confirm_culprits(subject, alone, others, tried, sinks, plain, work)
    if not replayed:
        return culprits
    # what two files have otherwise is told of each by itself, whatever the other one leaves
    if left * LITTLE > whole and not CAUSES[first.cause].fails_for(first.evidence):
        partners = _list_partners(subject, tried, family, dropped, sink)
        together, both = _find_together(family, partners, without, whole)
        if together:
            family, left = together, both
            first = dataclasses.replace(first, keep=(*first.keep, *sorted(together - {*first.keep})))
    return (_with_error_left(subject, alone, first, family, left, whole), *culprits[1:])


def _list_partners(
    subject: Subject, tried: Carried, family: Collection[str], dropped: Collection[str], sink: Sink
) -> list[str]:  # fmt: skip
    """Return who may be needed beside a family: those who were refuted before it, and then who makes most alone. Not an
    input, which whoever reads it rounds."""
    share = {
        name: effect.share for name, found in tried.effects.items() for effect in found
        if effect.at == sink.name and name not in family and (effect.share >= PART or name in dropped)
        and subject.meta_of[name].op_type != "Input"
    }  # fmt: skip
    return sorted(share, key=lambda name: (name not in dropped, -share[name]))[: _FIRST - 1]


def _find_together(
    family: Collection[str], partners: Sequence[str], without: Callable[[Collection[str]], float | None], whole: float
) -> tuple[set[str], float]:
    """Return the fewest of these partners that are left out with a family for half of the error to go, and it, and
    what is left then; nothing where all of them together do not halve it."""
    found, left = {*family, *partners}, without({*family, *partners}) if partners else None
    if left is None or left > HALF * whole:
        return set(), math.inf
    for one in reversed(partners):
        fewer = without(found - {one}) if len(found) > len(family) + 1 else None
        if fewer is not None and fewer <= max(LITTLE * left, PART * whole):
            found, left = found - {one}, fewer
    return found, left


def _with_error_left(
    subject: Subject, alone: Alone, first: Culprit, family: Collection[str], left: float, whole: float
) -> Culprit:
    """Return the first culprit with what is left without it, and without what else was left out with it."""
    told = sorted({*family} & alone.found.keys(), key=lambda name: (name != first.name, subject.order.get(name, 0)))
    return dataclasses.replace(first, without=left, with_all=whole, left_out=tuple(told))


def with_repairs(
    subject: Subject, alone: Alone, culprits: tuple[Culprit, ...], tried: Carried, sinks: Sequence[Sink],
    plain: Mapping[str, Any], work: Work,
) -> tuple[Culprit, ...]:  # fmt: skip
    """Return the culprits with what is left when each alone is repaired, and when all others are. Where an output has
    NaN or Inf, or counts decisions, no error is left that could be told. Takes a run of the baseline for each, and one
    for each output that they are judged at. Raises work.Ended."""
    found, wholes, names = list(culprits), dict[str, float | None](), list_felt(subject, alone)
    judged = {sink.name: sink for sink in sinks if sink.squared and not sink.non_finite and not sink.flips}
    for place, one in enumerate(culprits if work.full else culprits[:_REPAIRED]):
        effect = next((effect for effect in tried.effects.get(one.name, ()) if effect.at == one.at), None)
        sink = judged.get(one.at)
        several = subject.times(one.name) > 1 or strip_iteration(one.name) != one.name or "depth" in one.evidence
        if effect is None or sink is None or several:  # one of many iterations alone mends nothing
            continue

        def left(out: Collection[str], sink: Sink = sink) -> float | None:
            work.go_on()
            error = measure_error_without(subject, alone, names, out, sink, plain)
            return error if error is not None and math.isfinite(error) else None

        if one.at not in wholes:
            wholes[one.at] = one.with_all if one.with_all is not None else left(())
        if (wholes[one.at] or 0.0) < HALF * sink.rel_l2:
            continue  # a replay that does not show the error says nothing of who is behind it
        found[place] = dataclasses.replace(
            one, repaired=left({one.name}), others_repaired=effect.rel_l2, with_all=wholes[one.at]
        )
    return tuple(found)


def find_few_that_halve(
    subject: Subject, alone: Alone, tried: Carried, sinks: Sequence[Sink], at: str, plain: Mapping[str, Any],
    work: Work, *, beyond: bool,
) -> tuple[tuple[str, ...], tuple[RepairedSet, ...]]:  # fmt: skip
    """Of an error that nobody is named for: the smallest set of operators without whose errors at most half of it is
    left, () where there is none; and the sets that were left out.

    Those that make most alone are left out one by one: errors that all go one way add up to more than their squares, so
    that a third of the square alone may be over half of the error. Then, of one beyond bounds, the first two, three,
    and a fifth of all that were tried: where none of these halves it, the error is that of many. Takes up to ten runs
    of the baseline, and a few more to make a fifth smaller. Raises work.Ended."""
    sink = next((one for one in sinks if one.name == at), None)
    if sink is None or sink.non_finite or not sink.squared or not is_far_off(subject, sink):
        return (), ()
    share = {name: e.share for name, found in tried.effects.items() for e in found if e.at == at and e.share > 0}
    ranked, names = sorted(share, key=lambda name: -share[name]), list_felt(subject, alone)
    likely = [name for name in ranked if share[name] >= PART][:_FIRST]
    if not ranked or not (likely or beyond):
        return (), ()

    def left(out: Collection[str]) -> float | None:
        work.go_on()
        error = measure_error_without(subject, alone, names, out, sink, plain)
        return error if error is not None and math.isfinite(error) else None

    whole, ran = left(()), dict[tuple[str, ...], float]()
    if whole is None:
        return (), ()
    replayed = HALF * sink.rel_l2 <= whole <= sink.rel_l2 / HALF

    def halves(names: Sequence[str]) -> bool:
        if tuple(names) not in ran and (found := left(names)) is not None:
            ran[tuple(names)] = found
        return replayed and ran.get(tuple(names), math.inf) <= HALF * whole

    found = min((name for name in likely if halves([name])), key=lambda name: ran[name,], default="")
    few = (found,) if found else _smallest_halving_prefix(ranked, halves) if beyond else ()
    told = tuple(RepairedSet(names=names, left=error, whole=whole) for names, error in ran.items())
    return few, told


def _smallest_halving_prefix(ranked: Sequence[str], halves: Callable[[Sequence[str]], bool]) -> tuple[str, ...]:
    """Return the fewest of those that make most, of at most three of them or a fifth, that halve an error; each is
    needed."""
    most = max(FEW, len(ranked) // FIFTH)
    counts = [count for count in (*range(1, FEW + 1), most) if count == 1 or 2 * count <= len(ranked)]
    last = 0
    for count in dict.fromkeys(counts):
        if halves(ranked[:count]):
            fewest = count
            while fewest - last > 1:
                middle = (fewest + last) // 2
                fewest, last = (middle, last) if halves(ranked[:middle]) else (fewest, middle)
            found = list(ranked[:fewest])
            for name in found[:-1] if fewest <= FEW else ():  # the last is: without it they did not halve it
                if len(found) > 1 and halves(rest := [one for one in found if one != name]):
                    found = rest
            return tuple(found)
        last = count
    return ()


def with_set_left_out(
    culprits: tuple[Culprit, ...], sets: Sequence[RepairedSet], few: Sequence[str]
) -> tuple[Culprit, ...]:
    """Return the culprits, the first of them with what is left without all of them."""
    found = next((one for one in sets if one.names == tuple(few)), None)
    if found is None or not culprits:
        return culprits
    first = dataclasses.replace(culprits[0], without=found.left, with_all=found.whole, left_out=found.names)
    return (first, *culprits[1:])


def _find_equal_of_family(tried: Carried, family: Collection[str], sink: Sink) -> set[str]:
    """Return the operator whose error alone makes most at a sink besides a family's, where two are few of those
    tried."""
    share = {
        name: effect.share for name, found in tried.effects.items() for effect in found
        if effect.at == sink.name and name not in family
    }  # fmt: skip
    return {max(share, key=share.__getitem__)} if len(share) >= _MANY else set()


def _family_of(alone: Alone, culprits: Sequence[Culprit], amplifier: str) -> set[str]:
    """Return the tensors whose errors are left out with these culprits, an operator's of a loop in all its
    iterations."""
    named = {part for one in culprits for part in (one.name, *one.keep)} - {amplifier}
    looped = {strip_iteration(name) for name in named if strip_iteration(name) != name}
    return named | {name for name in alone.found if strip_iteration(name) in looped}


# Errors that do not add up: behind a threshold, a sigmoid or a normalisation one operator's error may do what all do.
#
# Then an operator alone makes the whole error, and without it the others make as much: nobody is the cause, and mending
# that one operator mends nothing. How many have to be left out together says how far from one operator's fault it is.

def find_overlap(
    subject: Subject, alone: Alone, tried: Carried, sinks: Sequence[Sink], at: str, plain: Mapping[str, Any], work: Work
) -> Overlap | None:
    """Of an error that nobody is named for: the operator that makes most of it alone, where that is over half; None
    where none does, or where it could not be measured. Takes a few runs of the baseline. Raises work.Ended."""
    sink = next((one for one in sinks if one.name == at), None)
    if sink is None or sink.non_finite or not sink.squared:
        return None
    found = {name: effect for name, carried in tried.effects.items() for effect in carried if effect.at == at}
    ranked = sorted(found, key=lambda name: -float(found[name].rel_l2 or 0.0))
    first = found[ranked[0]] if ranked else None
    if first is None or first.share < HALF or not first.rel_l2:
        return None
    names = list_felt(subject, alone)

    def left(count: int) -> float | None:
        work.go_on()
        return measure_error_without(subject, alone, names, ranked[:count], sink, plain)

    whole, without = left(0), left(1)
    if not whole or without is None:
        return None
    low, high = 1, 2
    while high < len(ranked) and not _is_half(left(high), whole):
        low, high = high, 2 * high
    if high >= len(ranked):
        high = len(ranked)
        if not _is_half(left(high), whole):
            return Overlap(name=ranked[0], alone=first.rel_l2, without=without, whole=whole, tried=len(ranked))
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if _is_half(left(middle), whole) else (middle, high)
    return Overlap(
        name=ranked[0], alone=first.rel_l2, without=without, whole=whole, fewest=high, tried=len(ranked)
    )


def _is_half(error: float | None, whole: float) -> bool:
    return error is not None and error <= HALF * whole
