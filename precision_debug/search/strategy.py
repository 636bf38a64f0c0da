"""From a ranking to the smallest set that holds, in few runs. More kept need not be better, and nothing lies together.

What is born non-finite is kept first. Then as many groups as the measured shares predict, ranked anew as long as that
is not enough, and the ranking's prefixes by doubling and bisection. Then drops: operators in a row, single units, and
what hangs together (pairs that hand each other a tensor, siblings, whole groups), since dropping either of two may
raise an error that dropping both does not; and a neighbour in place of two, where those are hardly missed. A. Zeller,
R. Hildebrandt (IEEE Trans. Software Eng. 28, 2002) for removing parts and halving them.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace

from ..explain.criteria import HALF
from ..explain.operators import find_reached, plain_type, split_words
from ..protocols import TF32_OFF
from .offer import Oracle, Spent
from .ranking import Group
from .units import Units

__all__ = [
    "ENGINES", "FoundSet", "Rank", "find_predicted", "grow_along_data", "make_smaller", "minimise",
    "search_along_data", "try_along_data",
]  # fmt: skip

_SMALL = 16
"""Units up to which a set is minimised one by one at once: longer pieces would mostly fail."""

_LARGE, _GUESSED = 64, 64
"""Units beyond which one needed unit after the other is found by halves; groups without a measured share that are
tried one after the other before that."""

_CERTAIN = 1e6
"""Weight of a unit in which NaN or Inf are born: it is dropped last, and not in chunks."""

_MANY, _SMALL_SHARE, _MAIN = 24, 1 / 3, 0.5
"""Units, or share of all of them, beyond which a kept set is not a small one, unless one operator has that share of the
squared error: then the error is diffuse, and dropping units one by one would find no cause, but only what happens to
cancel on these inputs."""

_READER = 0.5
"""Weight of what only reads a suspicious tensor: it is often needed, and less often than what makes it."""

_PREDICTED = 0.7
"""Times the limit that the predicted error may be: errors add up a little worse than their squares."""

_NEAR = 30.0
"""Times the limit up to which the error of dropping one unit leaves hope for dropping two."""

_LOOSE = 0.1
"""Share of the error with nothing kept beyond which a limit is so loose that errors which cancel do so by chance: then
what leaves more than half of that error leaves no hope."""

_MISSED, _TRADED = 1.25, 3
"""Times the limit up to which an error has only just missed it; and units that are tried in place of two others."""

_WHOLE = 0.99
"""Share of the error with nothing kept from which on a unit is what that error comes from."""

_SAME = 1e-5
"""Relative difference up to which the errors of dropping two neighbours are one: that of the edge between them, which
dropping both does not lessen."""

_LONGER = 4
"""Predictions of one ranking, each of a smaller error, where no operator stands out."""

_FEW = 6
"""Units of a set that is small enough; and of which single ones are tried where all of them switch the low precision
off, or do not run."""

_TURNS = 5
"""New rankings, with what was kept so far, before the last one's prefixes are tried."""

Steps = Sequence[frozenset[int]]

Rank = Callable[[frozenset[int]], Sequence[Group]]
"""Ranks the units while some are kept already; what it costs is not an evaluation of a set."""


@dataclass(frozen=True, kw_only=True)
class FoundSet:
    """The set of kept units that a search found, and how far it got.

    state: "not needed", "not possible", "found", "diffuse" (it holds, and is not a small set) or "unfinished" (then
    ``kept`` is the smallest seen to hold, if any). minimal: each unit was tried without, by itself, at the latest
    before the last of the others went; of errors that cancel, one may be idle all the same."""

    state: str
    kept: frozenset[int] | None = None
    minimal: bool = False
    groups: Sequence[Group] = ()


def minimise(
    oracle: Oracle, units: Units, rank: Rank, *, start: frozenset[int] | None = None, rough: Oracle | None = None,
    first: Iterable[frozenset[int]] = (),
) -> FoundSet:  # fmt: skip
    """Return the smallest set of units to keep.

    start: a set that is expected to hold, from a simulation; it is tried before any ranking, and stays as it is. first:
    sets that the culprits suggest, each asked for when those before it did not hold; the first that does is made
    smaller. rough: judges the same sets sooner, and not quite as ``oracle`` does. It chooses, and what it chose is
    judged again; where that gives another error, with each unit dropped too. Where it misled, no set is judged by it
    any more.
    """
    groups: Sequence[Group] = ()
    try:
        if rough is not None and not oracle.holds(()):
            chosen = minimise(rough, units, rank, start=start)
            if chosen.kept and chosen.kept != oracle.all:  # everything says nothing of which
                if oracle.holds(chosen.kept):
                    return _judge_again(oracle, rough, units, chosen)
                near = oracle.judge(chosen.kept).error < HALF * oracle.judge(()).error
                start = chosen.kept if near else start
        if oracle.holds(()):
            return FoundSet(state="not needed", kept=frozenset(), minimal=True)
        if start and oracle.holds(start):
            return FoundSet(state="found", kept=start, minimal=True)
        likely = next((one for one in first if one and one != oracle.all and oracle.holds(one)), None)
        if likely is not None:
            steps: Steps = [likely]
            groups = rank(frozenset())
        else:
            steps, groups = _find_enough(oracle, units, rank, start or frozenset())
        if not steps:  # of everything that does not run nobody knows what it would bring
            known = oracle.judge(oracle.all).ran and not oracle.left_out
            state = "not possible" if known else "unfinished"
            return FoundSet(state=state, groups=groups)
        kept, small = _reduce_set(oracle, units, steps, groups)
        return FoundSet(state="found" if small else "diffuse", kept=kept, minimal=small, groups=groups)
    except Spent:
        return FoundSet(state="unfinished", kept=oracle.smallest(), groups=groups)


def make_smaller(oracle: Oracle, units: Units, kept: frozenset[int], groups: Sequence[Group]) -> frozenset[int]:
    """Return the smallest set that holds, after trying parts of one that does for as long as sets may be run."""
    with contextlib.suppress(Spent):
        _reduce_set(oracle, units, [kept], groups)
    return oracle.smallest() or kept


def find_predicted(oracle: Oracle, rank: Rank) -> tuple[frozenset[int] | None, tuple[Group, ...]]:
    """Return what one ranking predicts to be enough, seen to hold in at most a few sets; None where it is not; and its
    groups.

    It is not made any smaller: of a simulation, whose engine decides what of it matters.
    """
    groups, goal, kept = tuple(rank(frozenset())), _PREDICTED, frozenset[int]()
    with contextlib.suppress(Spent):
        for _ in range(_LONGER):
            more = _predict_steps(oracle, kept, groups, goal)[-1]
            if more == kept:
                break
            kept, goal = more, goal * _PREDICTED
            if oracle.holds(kept):
                return kept, groups
    return None, groups


def _judge_again(oracle: Oracle, rough: Oracle, units: Units, chosen: FoundSet) -> FoundSet:
    """Judge again, by the exact oracle, a set that a rough one chose and that holds.

    Where it has another error after all, the units that can be dropped are. A set that is not a small one stays as it
    is, as in ``_reduce_set``."""
    assert chosen.kept is not None
    alike = math.isclose(oracle.judge(chosen.kept).error, rough.judge(chosen.kept).error, rel_tol=_SAME)
    if chosen.state == "diffuse" or (alike and chosen.state == "found"):
        return chosen
    try:
        kept = _without_single(oracle, units, chosen.kept, _weigh_units(units, chosen.groups))
    except Spent:
        return replace(chosen, kept=oracle.smallest(), minimal=False)
    return replace(chosen, state="found", kept=kept, minimal=True)


def _find_enough(oracle: Oracle, units: Units, rank: Rank, start: frozenset[int]) -> tuple[Steps, Sequence[Group]]:
    """Larger and larger sets, of which the last one holds; none where not even everything does; and their groups.

    As long as a new ranking tells of more, what it predicts is kept too: an error that hides others is gone then.
    Where no operator stands out, nothing is hidden, and the same ranking is asked for more before a new one.
    """
    kept, seen = start, list[Group]()
    for turn in range(_TURNS):
        groups = rank(kept)
        seen += groups
        alone = _list_certain(groups, kept) or not groups or groups[0].share >= _MAIN
        goal, tried = _PREDICTED, kept
        for _ in range(1 if alone else _LONGER):
            steps = _predict_steps(oracle, kept, groups, goal)
            if steps[-1] == tried:
                break
            tried, goal = steps[-1], goal * _PREDICTED
            if oracle.holds(tried):
                return steps, seen
            part = _find_part(oracle, units, steps, groups)
            if part:
                return [part], seen
            if turn == 0 and not oracle.holds(oracle.all):
                if oracle.judge(oracle.all).ran:
                    return [], seen
                if len(tried) <= _FEW and not oracle.judge(tried).ran:
                    oracle.leave_out(tried)
                    if oracle.holds(tried):
                        return [tried - oracle.left_out], seen
        if tried == kept:
            break
        kept = tried
    if not oracle.holds(oracle.all):
        return [], seen
    return [_find_prefix(oracle, kept, groups)], seen


def _predict_steps(oracle: Oracle, kept: frozenset[int], groups: Sequence[Group], goal: float) -> Steps:
    """Return larger and larger sets, from what is kept to what is predicted to be enough; goal: see _predict_groups."""
    more = _list_certain(groups, kept) or _predict_groups(oracle, kept, groups, goal)
    return list(itertools.accumulate((group.units for group in more), frozenset.union, initial=kept))


def _list_certain(groups: Sequence[Group], kept: frozenset[int]) -> list[Group]:
    return [group for group in groups if group.certain and not group.units <= kept]


def _find_part(oracle: Oracle, units: Units, steps: Steps, groups: Sequence[Group]) -> frozenset[int]:
    """Return a part that holds of the last step's set, or nothing where that set is not as follows.

    Its error is small enough, and hardly anything stays in the low precision with it. Of few units the part is those
    without what only reads, then single ones; of more the shortest of the steps to it whose error is small enough
    too."""
    tried = steps[-1]
    if oracle.limit is None or oracle.judge(tried).error > oracle.limit or len(tried) < 2:
        return frozenset()
    if len(tried) > _FEW:
        limit = oracle.limit
        shortest = _find_shortest(steps, lambda kept: oracle.judge(kept).error <= limit)
        return shortest if shortest != tried and oracle.holds(shortest) else frozenset()
    weight = _weigh_units(units, groups)
    ordered = sorted(tried, key=lambda unit: (-weight[unit], unit))
    parts = dict.fromkeys((tried - _find_readers(units, groups), *(frozenset({unit}) for unit in ordered)))
    return next((part for part in parts if part and part != tried and oracle.holds(part)), frozenset())


def _weigh_units(units: Units, groups: Sequence[Group]) -> dict[int, float]:
    """Return how likely each unit is to be needed."""
    weight = dict.fromkeys(units.neighbours, 0.0)
    for group in groups:
        for unit in group.units:
            whole = 1.0 if unit == units.of(group.tensor) or unit in group.makers else _READER
            weight[unit] = max(weight[unit], whole * (group.share + (_CERTAIN if group.certain else 0.0)))
    return weight


def _find_readers(units: Units, groups: Sequence[Group]) -> frozenset[int]:
    """Return what only reads tensors whose error was measured, and makes none of them."""
    known = [group for group in groups if group.certain or group.share > 0]
    makers = frozenset(unit for group in known for unit in (units.of(group.tensor), *group.makers))
    return frozenset(unit for group in known for unit in group.units) - makers


def _find_prefix(oracle: Oracle, kept: frozenset[int], groups: Sequence[Group]) -> frozenset[int]:
    """Return the shortest prefix of the ranking that holds, as far as doubling and bisection tell."""
    growing = itertools.accumulate((group.units for group in groups), frozenset.union, initial=kept)
    useful = list(dict.fromkeys(growing))[1:]
    if not useful or useful[-1] != oracle.all:
        useful.append(oracle.all)
    if len(useful) > _GUESSED and not any(group.share > 0 for group in groups):
        useful = [*useful[:_GUESSED], oracle.all]  # further down, the order says nothing: halves tell more
    bad, good = 0, 1
    while not oracle.holds(useful[good - 1]):
        bad, good = good, min(len(useful), 2 * good)
    return _find_shortest(useful[bad:good], oracle.holds)


def _predict_groups(oracle: Oracle, kept: frozenset[int], groups: Sequence[Group], goal: float) -> list[Group]:
    """Return the groups of a ranking that, by the measured shares, are enough; the first one where that is not known.

    goal: times the limit that the predicted error may be. One operator that has most of the error comes first, whatever
    it takes; else what takes off most for each unit more.
    """
    error = oracle.judge(kept).error
    useful = [group for group in groups if not group.units <= kept]
    if not useful or useful[0].share <= 0:
        return []
    if oracle.limit is None or not math.isfinite(error):
        return useful[:1]
    chosen, have, left = list[Group](), kept, 1.0
    waiting = [group for group in useful if group.share > 0]
    while waiting and error * math.sqrt(max(left, 0.0)) > goal * oracle.limit:
        if waiting[0].share >= _MAIN:
            group = waiting[0]
        else:
            group = max(waiting, key=lambda one: (one.share / max(len(one.units - have), 0.5), one.share))
        chosen.append(group)
        have |= group.units
        covered = [one for one in waiting if one.units <= have]
        left -= sum(one.share for one in covered)
        waiting = [one for one in waiting if not one.units <= have]
    return chosen


def _reduce_set(oracle: Oracle, units: Units, steps: Steps, groups: Sequence[Group]) -> tuple[frozenset[int], bool]:
    """As small as dropping makes it; False where that is not a small set, nor has the error a main cause.

    steps: sets of which each holds all before it; the last one is seen to hold.
    """
    weight = _weigh_units(units, groups)
    kept = steps[-1]
    known = any(group.share > 0 for group in groups)
    main = not known or any(group.certain or group.share >= _MAIN for group in groups)
    if not main and len(kept) > _SMALL // 2:
        kept = _find_shortest(steps, oracle.holds)
    if sum(weight[unit] < _READER * _CERTAIN for unit in kept) > _SMALL:
        if not main and len(kept) > min(_MANY, _SMALL_SHARE * oracle.count):
            return kept, False
        if len(kept) > _LARGE:
            kept = _without_blocks(oracle, units, kept, weight)
        else:
            kept = _without_segments(oracle, kept, weight)
    traded = main
    others = kept & _find_readers(units, groups)
    if 1 < len(others) < len(kept) <= _SMALL and oracle.holds(kept - others):
        kept -= others
    while True:
        kept = _without_single(oracle, units, kept, weight)
        smaller = _without_several(oracle, units, kept, groups)
        if smaller == kept and not traded:
            traded, smaller = True, _exchange_two_for_one(oracle, units, kept, weight)
        if smaller == kept:
            return kept, main or kept != oracle.all
        kept = smaller


def _find_shortest(steps: Steps, enough: Callable[[frozenset[int]], bool]) -> frozenset[int]:
    """Return the first of growing sets that is enough, as far as bisection tells; the last one is."""
    return steps[_bisect(-1, len(steps) - 1, steps, enough)]


def _bisect(bad: int, good: int, sets: Steps, enough: Callable[[frozenset[int]], bool]) -> int:
    """Return the place of a set that is enough beside one that is not, which bisection between two places tells."""
    while abs(good - bad) > 1:
        middle = (good + bad) // 2
        if enough(sets[middle]):
            good = middle
        else:
            bad = middle
    return good


def _order_by_need(kept: frozenset[int], weight: dict[int, float]) -> list[int]:
    """Return units in order, the least likely to be needed first."""
    return sorted(kept, key=lambda unit: (weight[unit], -unit))


def _without_blocks(oracle: Oracle, units: Units, kept: frozenset[int], weight: dict[int, float]) -> frozenset[int]:
    """One needed unit after the other, by halves: of what is equally likely, halves are blocks of operators in a row.

    What was found needed is mostly needed together with a neighbour, so that those are tried alone first, then all that
    is left.
    """
    needed, rest = frozenset[int](), _order_by_need(kept, weight)
    while rest:
        near = frozenset(n for unit in needed for n in units.neighbours[unit]).intersection(rest)
        if needed and oracle.holds(needed):
            return needed
        if near and oracle.holds(needed | near):
            rest = [unit for unit in rest if unit in near]
        sets = [needed.union(rest[dropped:]) for dropped in range(len(rest) + 1)]  # without the least likely
        good = _bisect(len(rest), 0, sets, oracle.holds)
        needed, rest = needed | {rest[good]}, rest[good + 1 :]
    return needed


def _without_segments(oracle: Oracle, kept: frozenset[int], weight: dict[int, float]) -> frozenset[int]:
    """Drop kept operators in a row, the longest row first, halved where they are needed.

    What lies in a row rounds much the same numbers, so that one that is kept helps little without the others."""
    sure = frozenset(unit for unit in kept if weight[unit] >= _READER * _CERTAIN)

    waiting = [tuple(sorted(kept - sure))]
    while waiting:
        waiting.sort(key=len, reverse=True)
        row = waiting.pop(0)
        rest = kept.difference(row)
        if rest and oracle.holds(rest):
            kept = rest
        elif len(row) > 2:
            waiting += [row[: len(row) // 2], row[len(row) // 2 :]]
    return kept


def _without_single(oracle: Oracle, units: Units, kept: frozenset[int], weight: dict[int, float]) -> frozenset[int]:
    """Until no unit can go by itself.

    One that could not may be able to after another went that it hangs together with, if it is not what all of the error
    comes from. Where a going changes nothing at all, the next ones are likely to be as idle: two go at once, then four.
    """
    waiting, failed, step = _order_by_need(kept, weight), list[int](), 1
    nothing = oracle.judge(()).error
    while waiting:
        several = frozenset(waiting[: min(step, len(kept) - 1)])
        if not several:
            break
        before = oracle.judge(kept).error
        if oracle.holds(kept - several):
            kept -= several
            waiting = waiting[len(several) :]
            idle = math.isclose(before, oracle.judge(kept).error, rel_tol=_SAME)
            step = 2 * step if idle and len(waiting) > 2 * step else 1
            near = {n for unit in several for n in units.neighbours[unit] | units.siblings[unit]}
            if oracle.limit is not None and oracle.judge(kept).error < before:
                alone = _errors_without_each(oracle, kept)
                near |= {unit for unit, error in alone.items() if error <= _MISSED * oracle.limit}
            waiting += [unit for unit in failed if unit in near]
            failed = [unit for unit in failed if unit not in near]
        elif len(several) > 1:
            step = 1
        else:
            unit = waiting.pop(0)
            if oracle.judge(kept - {unit}).error < _WHOLE * nothing:
                failed.append(unit)
    return kept


def _errors_without_each(oracle: Oracle, kept: frozenset[int]) -> dict[int, float]:
    """Return units to the error without them, as far as it was seen: of the smallest set that has all the others."""
    found: dict[int, tuple[int, float]] = {}
    for some, judged in oracle.asked.items():
        missing = kept - some
        if len(missing) == 1:
            (unit,) = missing
            found[unit] = min(found.get(unit, (oracle.count, math.inf)), (len(some), judged.error))
    return {unit: error for unit, (_, error) in found.items()}


def _without_several(oracle: Oracle, units: Units, kept: frozenset[int], groups: Sequence[Group]) -> frozenset[int]:
    """Without two or more that hang together, where dropping either of them alone does not ruin everything."""
    alone = _errors_without_each(oracle, kept)
    half = HALF * oracle.judge(()).error
    hope = _NEAR * oracle.limit if oracle.limit is not None else half
    if oracle.limit is not None and oracle.limit > _LOOSE * 2 * half:
        hope = min(hope, half)
    mild = {unit for unit, error in alone.items() if error <= hope}

    def one_edge(unit: int, other: int) -> bool:
        return other in units.neighbours[unit] and math.isclose(alone[unit], alone[other], rel_tol=_SAME)

    together: dict[frozenset[int], float] = {}
    for unit in mild:
        for other in (units.neighbours[unit] | units.siblings[unit]) & mild:
            if not one_edge(unit, other):
                together[frozenset({unit, other})] = alone[unit] + alone[other]
    for group in groups:
        inside = group.units & mild
        small = len(inside) == 2 or all(alone[unit] <= half for unit in inside)
        large = any(half < alone[unit] <= 2 * half for unit in inside)
        if len(inside) > 1 and small and not group.certain and not (large and one_edge(*sorted(inside)[:2])):
            together.setdefault(inside, sum(alone[unit] for unit in inside))
    if oracle.limit is not None:
        # errors are vectors: what remains of two is no shorter than the difference of their lengths
        remains = oracle.limit + oracle.judge(kept).error
        together = {
            several: error for several, error in together.items()
            if 2 * max(alone[unit] for unit in several) - error <= remains
        }  # fmt: skip
    order = sorted(together, key=lambda item: (together[item], sorted(item)))[: 2 * len(kept)]
    for several in order:
        rest = kept - several
        if rest and oracle.holds(rest):
            return rest
    return kept


def _exchange_two_for_one(
    oracle: Oracle, units: Units, kept: frozenset[int], weight: dict[int, float]
) -> frozenset[int]:
    """With a neighbour of the others in place of the unit that is hardly missed and of one beside it."""
    alone = _errors_without_each(oracle, kept)
    order = sorted(alone, key=lambda unit: (alone[unit], unit))
    if oracle.limit is None or len(kept) < _TRADED or not order or alone[order[0]] > _MISSED * oracle.limit:
        return kept
    beside = [unit for unit in order[2:] if unit in units.neighbours[order[0]]]
    for second in [*order[1:2], *beside[:1]]:
        core = kept - {order[0], second}
        near = frozenset(n for unit in core for n in units.neighbours[unit]) - kept
        likely = sorted(near, key=lambda unit: (-weight[unit], unit))[:_TRADED]
        if oracle.judge(core).error <= _MISSED * oracle.limit:
            return next((core | {unit} for unit in likely if oracle.holds(core | {unit})), kept)
    return kept


# Sets of kept operators that grow along the data, for engines that fuse operators: few of them, each worth a build.
#
# Inside a region a precision counts only together with what lies around it. Seen in TensorRT 8.6, of an overflow in a
# residual stream: keeping the adds that it goes through left NaN, so did all that writes to or reads from them, and the
# adds with the norms between them left 0.00044. So the predicted set comes first, then the stream as one unit, then the
# blocks around it, then everything from the culprit to the outputs; of the first that holds, halves.

_MULTIPLIES = split_words("MatMul Gemm Conv ConvTranspose Einsum LSTM GRU RNN FusedMatMul MatMulInteger Attention")
"""Where a stream ends: their inputs may be rounded, and their sums are their own."""

ENGINES = 9
"""Sets of a search; what comes of the answer takes three builds more."""

_HALVINGS = 3
"""Builds that make smaller what holds."""

_UNCHANGED = 0.1
"""Relative difference up to which nothing has changed."""


def grow_along_data(units: Units, culprits: Collection[int], start: frozenset[int]) -> list[frozenset[int]]:
    """Return larger and larger sets, each with all of those before it. start: what is predicted to be enough."""
    after = _map_readers(units)
    begin = frozenset(culprits or start)
    reached = find_reached(begin, after.__getitem__, lambda unit: not _multiplies(units, unit))
    stream = start.union(begin, (unit for unit in reached if not _multiplies(units, unit)))
    blocks = units.above(stream).union(*(after[unit] for unit in stream if unit in after))
    onward = blocks.union(begin, find_reached(begin, after.__getitem__))
    return [step for step in dict.fromkeys((start, stream, blocks, onward)) if step]


def search_along_data(
    oracle: Oracle, units: Units, start: frozenset[int], culprits: Collection[int], groups: Sequence[Group] = ()
) -> FoundSet:  # fmt: skip
    """Return the smallest set that holds of those that grow along the data, in few builds.

    start: what is predicted to be enough. culprits: units that make what is wrong. groups: of the ranking that they
    come from."""
    if oracle.holds(()):
        return FoundSet(state="not needed", kept=frozenset(), minimal=True)
    ends = range(units.operators, len(units))
    rounding = tuple(unit for unit in ends if units.units[unit].key == TF32_OFF)
    always = tuple(unit for unit in ends if unit not in rounding)  # they leave out what the user's command asks for
    everything = oracle.all - set(rounding)
    with contextlib.suppress(Spent):
        try_along_data(oracle, grow_along_data(units, culprits, start), everything, always, rounding)
    if (kept := oracle.smallest()) is not None:
        return FoundSet(state="found", kept=kept, groups=groups)
    whole = oracle.asked.get(oracle.all) or oracle.asked.get(everything)
    return FoundSet(state="unfinished" if whole is None or whole.passes else "not possible", groups=groups)


def try_along_data(
    oracle: Oracle, steps: Steps, everything: frozenset[int], always: Sequence[int], rounding: Sequence[int]
) -> None:  # fmt: skip
    """Try the steps up to the first that holds, and parts of that. Raises Spent.

    always: switches that are tried by themselves first, and stay on where they help. rounding: those that can only
    lessen an error that is finite; they are tried with a set too that changes nothing without them.
    """
    base, on, more = oracle.judge(()).error, frozenset[int](), frozenset(rounding)
    for one in (*always, *(rounding if math.isfinite(base) else ())):
        if oracle.holds(on | {one}):
            return
        if oracle.judge(on | {one}).error <= HALF * base:
            base, on = oracle.judge(on | {one}).error, on | {one}
    below = on
    for step in [*steps, everything]:
        tried = step | on
        if tried == below:
            continue
        if oracle.holds(tried):
            _halve(oracle, below, tried)
            return
        error = oracle.judge(tried).error
        unchanged = math.isfinite(base) and error >= (1 - _UNCHANGED) * base
        if more - on and (unchanged or step == everything):
            if oracle.holds(tried | more):
                _halve(oracle, below | more, tried | more)
                return
            on = on | more if oracle.judge(tried | more).error < error else on
        below = tried | on


def _halve(oracle: Oracle, low: frozenset[int], high: frozenset[int]) -> None:
    """Prefixes, along the data, of what the set that holds has beyond the one that does not."""
    rest = sorted(high - low)
    if len(high) <= _FEW:
        return  # a predicted edge: a half of it has one end
    for _ in range(_HALVINGS):
        if len(rest) < 2:
            return
        half = low | frozenset(rest[: len(rest) // 2])
        if oracle.holds(half):
            rest = rest[: len(rest) // 2]
        else:
            low, rest = half, rest[len(rest) // 2 :]


def _map_readers(units: Units) -> dict[int, frozenset[int]]:
    """For each unit those that read what it makes."""
    return {
        number: frozenset().union(*(units.readers.get(meta.name, frozenset()) for meta in unit.metas)) - {number}
        for number, unit in enumerate(units.units)
    }


def _multiplies(units: Units, unit: int) -> bool:
    return any(plain_type(kind) in _MULTIPLIES for kind in units.units[unit].op_types)
