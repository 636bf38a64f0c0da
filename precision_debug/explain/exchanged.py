"""Which two changed places, where the target computes something else: two results, two operands, or operators in a row.

Each is told where the exchange, run in the baseline on its own inputs, makes what the target gave.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..reasons import say
from ..records import Culprit
from .attributes import find_other_parameter, find_other_settings, find_turned_flag, find_untold_attributes
from .criteria import FAR
from .introduced import Alone
from .operators import plain_type
from .subject import Subject, list_made_of
from .undo import LEFT, Case, measure_left_of, run_with
from .work import Work

__all__ = ["find_most_left", "make_case", "with_exchanged"]

Array = np.ndarray[Any, Any]

_FIRST = 3
"""Culprits whose operands are exchanged."""

_LONGEST = 8
"""Operators in a row that are looked at."""

_TRIED = 16
"""Exchanges of one operator's operands that are run."""

_MOST_AXES = 4
"""Axes of a tensor that is tried in other orders of them."""

_NEAREST = 4
"""Tensors of the same operator as an operand that are tried in its place."""


def with_exchanged(
    subject: Subject, alone: Alone, culprits: Sequence[Culprit], work: Work
) -> tuple[Culprit, ...]:  # fmt: skip
    """Return the culprits of which no more is known than that the target computes something else with what changed
    places there; and operators in a row that stand in another order as one, of which what reads them is no other.

    Takes up to 16 runs of the baseline for each of the first. Raises work.Ended."""
    if not subject.two_files or work.too_large:
        return tuple(culprits)
    found = [_find_exchange(subject, alone, one, work) if at < _FIRST else one for at, one in enumerate(culprits)]
    return tuple(_tell_order(subject, alone, found))


def _find_exchange(subject: Subject, alone: Alone, culprit: Culprit, work: Work) -> Culprit:
    other = culprit.evidence.get("what") == say("an_operator")
    made = other or culprit.cause == "other_arithmetic"
    case = make_case(subject, alone, culprit.name, kinds="fViu" if other else "fV") if made else None
    if case is None or "count" in culprit.evidence:
        return culprit
    if other or "ours" in culprit.evidence:
        most = find_most_left(case)
        told = find_other_settings(case) or find_other_parameter(case, most, work)
        told = told or _find_folded(case) or find_turned_flag(case, most)
        return dataclasses.replace(culprit, cause="files_differ", evidence=told) if told else culprit
    told = _find_result(case) or _find_operand(case, work) or _find_turned(case, work)
    told = told or find_untold_attributes(case, find_most_left(case))
    told = told or find_other_parameter(case, find_most_left(case), work)
    return dataclasses.replace(culprit, cause="files_differ", evidence=told) if told else culprit


def make_case(subject: Subject, alone: Alone, name: str, kinds: str = "fV") -> Case | None:
    """Return an operator's results for experiments; None where they were not kept, or are of two shapes or of none of
    these kinds of numbers, floats where nothing is said."""
    exact, wrong = alone.exact_of(name), alone.wrong_of(name)
    if exact is None or wrong is None or exact.shape != wrong.shape or exact.dtype.kind not in kinds:
        return None
    exact, wrong = (np.asarray(one).astype(np.float64) for one in (exact, wrong))
    return Case(subject=subject, alone=alone, name=name, exact=exact, wrong=wrong)


def _find_folded(case: Case) -> dict[str, Any]:
    """Return the constant of the target's operator that others of the baseline's were to be folded into, and that makes
    its error: with another number (a bias) or factor (a weight) for each channel it gives what these give; {} where
    none does."""
    subject, target, exact, wrong = case.subject, case.subject.operators()[1], case.exact, case.wrong
    region = subject.region_of.get(case.name, ())
    theirs = target.operator(subject.row_of[case.name].target_name) if target is not None else None
    kinds = [plain_type(one.op_type) for one in region]
    if theirs is None or len(kinds) < 2 or plain_type(theirs.op_type) not in kinds:
        return {}
    constants = {key: value for key, one in theirs.parameters.items() if (value := np.asarray(one)).dtype.kind == "f"}
    for axis in range(1, exact.ndim):
        size, rest = exact.shape[axis], tuple(one for one in range(exact.ndim) if one != axis)
        bias = next((key for key, value in constants.items() if value.shape == (size,)), None)
        weight = next((key for key, value in constants.items() if value.ndim > 1 and len(value) == size), None)
        along = [size] + [1] * (exact.ndim - 1 - axis)
        held = 0.0 if bias is None else constants[bias].astype(np.float64).reshape(along)
        more, own = (exact - wrong).mean(rest), wrong - held
        squares = (own * own).sum(rest)
        factor = np.where(squares > 0, (own * (exact - held)).sum(rest) / np.where(squares > 0, squares, 1.0), 1.0)
        for key, change, by_factor in ((bias, more, False), (weight, factor, True)):
            if key is None:
                continue
            wide = change.reshape(along)
            left = measure_left_of(case, own * wide + held if by_factor else wrong + wide)
            if left <= find_most_left(case):
                value = constants[key].astype(np.float64)
                wanted = (value.T * change).T if by_factor else value + change
                size = np.broadcast_to((change - 1 if by_factor else change), value.T.shape).T
                folded = "+".join(one.op_type for one in region)
                return {**_tell_constant(key, wanted, value, size), "folded": folded, "left": left}
    return {}


def _tell_constant(key: str, wanted: Array, held: Array, change: Array) -> dict[str, Any]:
    """Return the first number of a constant that is another one by more than rounding makes of the change that was
    fitted, an addend or a factor less 1."""
    apart = (np.abs(change) > _FITTED * np.abs(change).max()) & (wanted != held)
    at = np.unravel_index(int(np.argmax(apart)), held.shape)
    return {
        "what": say("a_constant"), "name": key, "count": int(apart.sum()), "elements": held.size,
        "at": [int(one) for one in at], "base": float(f"{wanted[at]:.4g}"), "target": float(held[at]),
    }  # fmt: skip


_FITTED = 1e-3
"""Part of the largest difference up to which fitted numbers are the same."""


def find_most_left(case: Case) -> float:
    """Return the part of an operator's own error that may be left: what rounding makes. Of several that are tried one
    may come near by chance, as a swish does to what it is of."""
    found = case.alone.found.get(case.name)
    return min(LEFT, FAR / found.units) if found is not None and found.units else 0.0


def _find_result(case: Case) -> dict[str, Any]:
    """Return another result of the same inputs that the target gives in the place of an operator's own, and whether it
    gives that one there; {} where there is none."""
    subject, alone = case.subject, case.alone
    best, least = "", find_most_left(case)
    for other in _list_of_same_inputs(subject, case.name):
        exact = alone.exact_of(other)
        if exact is not None and exact.shape == case.wrong.shape:
            left = measure_left_of(case, case.wrong - exact + case.exact)
            if left <= least:
                best, least = other, left
    if not best:
        return {}
    back = make_case(subject, alone, best)
    both = back is not None and measure_left_of(back, back.wrong - case.exact + back.exact) <= find_most_left(back)
    there = say("in_its_place", name=best) if both else best
    return {"what": say("a_result"), "name": case.name, "base": case.name, "target": there, "left": least}


def _find_operand(case: Case, work: Work) -> dict[str, Any]:
    """Return what an operator reads in the place of one of its operands, by running it so; {} where nothing that was
    run makes what the target gave."""
    best, least = dict[str, Any](), find_most_left(case)
    exchanges = [*itertools.islice(_list_exchanges(case), min(_TRIED, work.runs))]
    values = _read_values(case, {one for changed in exchanges for one in (*changed, *changed.values())})
    for changed in exchanges:
        work.go_on()
        put = {source: values[other] for source, other in changed.items() if _fit(values, source, other)}
        left = _measure_left(case, put) if len(put) == len(changed) else None
        if left is not None and left <= least:
            least = left
            best = {"base": ", ".join(changed), "target": ", ".join(changed.values())}
    return {"what": say("an_input"), "name": case.name, **best, "left": least} if best else {}


def _find_turned(case: Case, work: Work) -> dict[str, Any]:
    """Return which operand an operator reads with its axes in another order, or from the end, by running it so; {}
    where no such run makes what the target gave."""
    sources = _list_operands(case)
    values = _read_values(case, sources)
    turned = [(name, told, other) for name in sources if name in values for told, other in _turn(name, values[name])]
    for name, told, other in turned[: min(_TRIED, work.runs)]:
        work.go_on()
        left = _measure_left(case, {name: other})
        if left is not None and left <= find_most_left(case):
            return {"what": say("an_input"), "name": case.name, "base": name, "target": told, "left": left}
    return {}


def _turn(name: str, value: Array) -> Iterator[tuple[Any, Array]]:
    """Yield an array with what is told of it: in each order of its up to four axes that leaves its shape, from the end
    of each axis, and with the halves of each exchanged, interleaved, or put back; not what is the same so."""
    whole = tuple(range(value.ndim))
    orders = [one for one in itertools.permutations(whole) if value.ndim <= _MOST_AXES and one != whole]
    found = [(say("transposed", name=name, axes=one), value.transpose(one)) for one in orders]
    found += [(say("from_the_end", name=name, axis=axis), np.flip(value, axis)) for axis in whole]
    for axis in reversed(whole):  # of rotated pairs, of a gate and what it gates, and of groups it is the last
        each = np.arange(value.shape[axis])
        if len(each) > 2 and len(each) % 2 == 0:
            half, pairs = len(each) // 2, each.reshape(-1, 2)
            found += [
                (say("halves_exchanged", name=name, axis=axis), value.take(np.roll(each, half), axis)),
                (say("halves_interleaved", name=name, axis=axis), value.take(each.reshape(2, -1).T.ravel(), axis)),
                (say("even_before_odd", name=name, axis=axis), value.take(pairs.T.ravel(), axis)),
            ]
    for told, other in found:
        if other.shape == value.shape and not np.array_equal(other, value):
            yield told, np.ascontiguousarray(other)


def _list_operands(case: Case) -> tuple[str, ...]:
    """Return what an operator reads; of a stretch what the operators in it read of each other, too, the last first."""
    inside = [meta.name for meta in case.subject.region_of.get(case.name, ()) if meta.name != case.name]
    return (*case.subject.sources(case.name), *reversed(inside))


def _list_exchanges(case: Case) -> Iterator[Mapping[str, str]]:
    """Yield what may be read in the place of what: two operands exchanged, and for one of them another that the same
    inputs or the same operator make, the nearest first, or that it was made of, for each of them in turn. Operands of a
    stretch are also those of the operators in it."""
    subject = case.subject
    sources = _list_operands(case)
    for one, other in itertools.combinations(sources, 2):
        if _may_fit(subject, one, other) and not {(one, other), (other, one)} & {*_list_made_of(subject, one, other)}:
            yield {one: other, other: one}
    behind, at = subject.descendants(case.name), {name: place for place, name in enumerate(subject.meta_of)}
    each = []
    for source in sources:
        meta = subject.meta_of.get(source)
        alike = [one.name for one in subject.meta_of.values() if meta is not None and one.op_type == meta.op_type]
        alike.sort(key=lambda one: abs(at[one] - at[source]))
        near = (*_list_of_same_inputs(subject, source), *alike[:_NEAREST], *sources, *subject.sources(source))
        each.append([
            {source: other} for other in dict.fromkeys(near)
            if other not in (source, case.name) and other not in behind and _may_fit(subject, source, other)
        ])  # fmt: skip
    for turn in itertools.zip_longest(*each):
        yield from (changed for changed in turn if changed)


def _list_made_of(subject: Subject, *names: str) -> Iterator[tuple[str, str]]:
    """Yield (tensor, one that it is made of, by however many operators) for each of these."""
    for name in names:
        yield from ((name, one) for one in list_made_of(subject, name))


def _may_fit(subject: Subject, source: str, other: str) -> bool:
    """Return whether two tensors are of one shape, as far as it is known."""
    one, two = (subject.meta_of[name].shape if name in subject.meta_of else None for name in (source, other))
    known = one is not None and two is not None and all(isinstance(size, int) for size in (*one, *two))
    return not known or one == two


def _read_values(case: Case, names: Collection[str]) -> dict[str, Array]:
    """Return what the operator was given of these tensors, and what the baseline has of those that it did not read."""
    found = {name: given for name in names if name in case.subject.row_of and (given := case.given(name)) is not None}
    missing = sorted({*names} - found.keys())
    return {**(run_with(case, {}, *missing) if missing else {}), **found}


def _fit(values: Mapping[str, Array], source: str, other: str) -> bool:
    return source in values and other in values and values[source].shape == values[other].shape


def _list_of_same_inputs(subject: Subject, name: str) -> list[str]:
    """Return the other tensors that the same ones make."""
    read = subject.sources(name)
    return [one for one in subject.row_of if one != name and read and subject.sources(one) == read]


def _measure_left(case: Case, values: Mapping[str, Array]) -> float | None:
    """Return the part of an operator's own error that is left when the baseline's, given these, is taken off."""
    undone = case.without_error_of(values)
    if undone is None:
        got = run_with(case, values).get(case.name)
        if got is None or got.shape != case.wrong.shape:
            return None
        undone = case.wrong - (got - case.exact)
    return measure_left_of(case, undone)


def _tell_order(subject: Subject, alone: Alone, culprits: Sequence[Culprit]) -> list[Culprit]:
    """Return the culprits, of operators in a row that stand in another order the first of them, with both orders; those
    that read the last of the row are no others."""
    read = {one.name: one for one in culprits if one.evidence.get("what") == say("an_input")}
    reads = {name: _read_of(subject, name) for name in subject.row_of} if len(read) > 1 else {}
    for first in read if reads else ():
        ours, theirs = _find_orders(reads, first)
        if not ours:
            continue
        moved = [name for name in ours if reads[name][0] != reads[name][1]]
        lefts = [_measure_left_of_place(subject, alone, name) for name in moved]
        if any(left is None for left in lefts):
            continue
        named = {
            "what": say("an_order"), "name": ours[0], "base": ", ".join(ours), "target": ", ".join(theirs),
            "left": max(left for left in lefts if left is not None),
        }  # fmt: skip
        behind = {name for name in read if name not in ours and reads[name] == (ours[-1], theirs[-1])}
        others = [one for one in culprits if one.name not in behind and one.name not in ours]
        return [dataclasses.replace(read[ours[0]], evidence=named), *others]
    return [*culprits]


def _find_orders(reads: Mapping[str, tuple[str, str]], first: str) -> tuple[list[str], list[str]]:
    """Return the same operators in a row, as the baseline has them from ``first`` on and as the target has them behind
    what that one reads; nothing where they stand alike. reads: see ``_read_of``."""
    rows: list[list[str]] = [[], []]
    for side, row in enumerate(rows):
        last = reads[first][0]
        while last and len(row) < _LONGEST:
            further = [one for one, read in reads.items() if one not in row and read[side] == last]
            if len(further) > 1:  # beside what the row goes on with, others read it, on both sides
                further = [one for one in further if reads[one][0] != reads[one][1]]
            if len(further) != 1:
                break
            last = further[0]
            row.append(last)
    ours, theirs = rows
    for count in range(2, min(map(len, rows)) + 1):
        if {*ours[:count]} == {*theirs[:count]} and ours[:count] != theirs[:count]:
            return ours[:count], theirs[:count]
    return [], []


def _read_of(subject: Subject, name: str) -> tuple[str, str]:
    """Return the only tensor that an operator reads on each side, by the baseline's names; "" where there are
    several."""
    there = subject.targets.get(subject.row_of[name].target_name)
    both = subject.sources(name), [subject.partner.get(one, "") for one in there.inputs] if there is not None else []
    mine, theirs = (one[0] if len(one) == 1 else "" for one in both)
    return mine, theirs


def _measure_left_of_place(subject: Subject, alone: Alone, name: str) -> float | None:
    """Return the part of an operator's error that is left when the baseline's reads what the target's does; None where
    that is more than rounding."""
    case = make_case(subject, alone, name)
    mine, theirs = _read_of(subject, name)
    given = case.given(theirs) if case is not None and mine and theirs else None
    left = None if case is None or given is None else _measure_left(case, {mine: given})
    return left if case is not None and left is not None and left <= find_most_left(case) else None
