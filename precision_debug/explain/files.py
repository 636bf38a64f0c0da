"""Find what the operators of two files do not share: a constant, an attribute, what they read, a shape."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..numbers.blocks import iterate_blocks, measure_norm
from ..numbers.narrowing import is_rounding
from ..numbers.number_types import find_promise
from ..onnx.types import shortest_float
from ..protocols import Replacer
from ..reasons import say
from ..records import Culprit, Operator, Row, TensorMeta
from .attributes import find_flattened, find_guilty_attributes, list_opposite_flags, list_other_attributes
from .exchanged import find_most_left
from .held_constants import open_stored
from .introduced import Alone
from .moved import find_first_difference, find_read_instead, find_transposition
from .operator_facts import (
    OWNER,
    compare_places,
    find_exchanged_operators,
    find_longer_stretches,
    find_operators_alone,
    list_fixed,
)
from .operators import MOVE, plain_type
from .stretch_constants import ONE, collect_constants, find_only_other_constant, hold_same_numbers, list_forms
from .subject import Subject, find_converted_type, list_made_of
from .undo import LEFT, Case, measure_left_of, measure_left_when
from .units import BEYOND, NARROW, is_of_few_bits, unit_of

__all__ = [
    "find_file_difference", "find_narrower_constants", "find_other_operator", "find_other_shapes", "find_other_weight",
]  # fmt: skip

Array = np.ndarray[Any, Any]
Evidence = dict[str, Any]


def find_file_difference(subject: Subject, name: str, case: Case | None = None) -> Evidence:
    """Return a constant or an attribute that the two sides' operators do not share; {} where they are the same
    operator.

    Only where both sides are to compute the same: with one file, a target's rounded constants are no difference.
    case: the operator as it ran alone, where it did: a constant is told where the target's in its place makes the
    error, with what is left of it.
    """
    baseline, target = subject.operators()
    if not subject.two_files or target is None:
        return {}
    if gone := _find_removed_activation(subject, name, case):
        return gone
    if subject.weights_alone:
        return _find_difference_beside_rounding(baseline, target, subject.row_of.get(name), name)
    if subject.quantised_file and find_promise(subject.precision).computes != "int8":
        return {}  # a file that was quantised differs in every constant; a mode that quantises has it from its own file
    rows = {row.name: row for row in subject.rows if row.comparison is not None}  # those of other shapes, too
    own = (subject.meta_of[name],) if name in rows and name in subject.meta_of else ()
    parts = []
    for meta in reversed(subject.region_of.get(name, own)):
        row = rows.get(meta.name)
        there = row.target_name if row is not None else meta.name
        held, plain = _operators_in_files(subject, meta, there), baseline.operator(meta.name)
        theirs = held[1] if held else _operator_behind_casts(target, there, plain)
        copy = plain is not None and plain.op_type == "Identity" and theirs is not None and theirs.op_type != "Identity"
        mine = held[0] if held else _operator_behind_casts(baseline, meta.name, theirs) if copy else plain
        if mine is None or theirs is None:
            continue
        mine, theirs = open_stored(mine, theirs)
        # inside a fused region equal names do not tell that the operators are the same; frameworks call them otherwise
        alike = subject.two_frameworks or mine.op_type == theirs.op_type
        if row is not None or (alike and _is_same_place(subject, meta, name, held)):
            parts.append((meta, None if copy and not held else row, held, mine, theirs))
    for meta, _, held, mine, theirs in parts:
        folded: Evidence = {}
        if subject.two_frameworks and held is None:
            difference = (
                _find_other_constant(mine, theirs) or _find_other_attribute(mine, theirs)
                or _find_other_word(mine, theirs, meta.name, case)
            )  # fmt: skip
            if not difference and meta.name == name and case is not None:
                difference = _prove_constant(case, _compare_region_constants(subject, name, mine, theirs) or ())
                difference = difference or find_only_other_constant(case, mine, theirs)
        elif (
            mine.op_type != theirs.op_type
            and (constants := _compare_region_constants(subject, name, mine, theirs)) is not None
        ):
            difference = _exchange_constants(case, constants) or _find_other_form(
                subject, case, mine, theirs, meta.name
            )
        else:
            difference = _find_operator_before_constant(subject, meta, row, mine, theirs) or _compare_operators(
                mine, theirs, meta.name, _count_axes(subject, meta), case
            )
            if difference and say("is_missing") in (difference["base"], difference["target"]):
                folded = _find_folded_operators(subject, name, difference, theirs)
                difference = folded or find_read_instead(difference, mine, theirs, meta.name, case) or difference
        if difference and difference["what"] == say("an_operator"):  # whose bodies they are in tells why
            told = find_exchanged_operators(subject, name) if difference["name"] == name and not folded else {}
            whole = {"base": told["ours"], "target": told["theirs"]} if "ours" in told else {}
            whole |= {key: told[key] for key in OWNER if key in told}
            difference = _compare_enclosing_operators(baseline, target, mine, theirs) or {**difference, **whole}
        if difference:
            return difference if meta.name == name else _add_inner_operator(difference, meta)
    if parts and (alone := find_operators_alone(subject, name)):
        return alone
    for meta, row, held, mine, theirs in parts:  # what a region reads may be an engine's doing: its constants are not
        difference = _reads_others_there(subject, meta.name, mine, theirs) if held is not None else {}
        difference = difference or _reads_others(subject, meta, row, mine, theirs) or _put_between(subject, name, row)
        if difference := difference or _cast_left_out(subject, name, row):
            return difference
    around = (_compare_enclosing_operators(baseline, target, mine, theirs) for _, _, _, mine, theirs in parts)
    return next((found for found in around if found), {}) or (_find_left_out(subject, case) if case is not None else {})


def _find_folded_operators(subject: Subject, name: str, difference: Evidence, theirs: Operator) -> Evidence:
    """Return the whole form in place of a constant that one side lacks, where the target's file lacks operators of the
    region too: they were folded, and that constant came of it. {} elsewhere."""
    target, there = subject.operators()[1], {*subject.partner.values()}
    region = subject.region_of.get(name, ())
    mine = [one.name for one in region if one.name not in (name, *there) and _acts(one.op_type)]
    if target is None or all(map(target.operator, mine)) or difference["what"] != say("a_constant"):
        return {}
    base, held = find_longer_stretches(subject, name) or ("+".join(meta.op_type for meta in region), theirs.op_type)
    return {"what": say("an_operator"), "name": name, "base": base, "target": held}


def _find_left_out(subject: Subject, case: Case) -> Evidence:
    """Return an operator of the region that the target's file lacks: without it the baseline's gives the same."""
    for meta in subject.region_of.get(case.name, ()):
        given = case.given(meta.inputs[0]) if meta.name != case.name and len(meta.inputs) == 1 else None
        plain = given if given is None or given.dtype.kind in "bi" else given.astype(np.float32)
        undone = None if plain is None else case.without_error_of({meta.name: plain})
        if undone is not None and (left := measure_left_of(case, undone)) <= find_most_left(case):
            told = {"what": say("an_operator"), "name": meta.name, "base": meta.op_type, "target": say("is_missing")}
            return {**told, "left": left}
    return {}


def _operator_behind_casts(target: Replacer, name: str, mine: Operator | None) -> Operator | None:
    """Return the target's operator of a tensor; what a cast, or a quantisation, reads where the baseline has none: a
    converted file's outputs."""
    found, carry = target.operator(name), ONE | {"QuantizeLinear", "DequantizeLinear"}
    while found is not None and mine is not None and plain_type(found.op_type) in carry - {plain_type(mine.op_type)}:
        further = target.operator(found.reads[0]) if len(found.reads) == 1 else None
        if further is None:
            break
        found = further
    return found


def _find_removed_activation(subject: Subject, name: str, case: Case | None) -> Evidence:
    """Return a Relu or Clip that a quantiser removed although its quantised range does not clip alike. Clipping the
    target's result must take most of the error away, or the activation lies inside a fused region, where the files
    prove it; {} elsewhere."""
    removed = subject.removed()
    own = (subject.meta_of[name],) if name in subject.meta_of else ()
    for meta in reversed(subject.region_of.get(name, own)) if removed else ():
        gone = removed.get(meta.origin or meta.name)
        if gone is None:
            continue
        told = {"what": say("an_operator"), "name": gone.node, "base": gone.op_type, "target": say("is_missing")}
        if meta.name != name:
            return told
        if case is None or math.isnan(gone.low) or math.isnan(gone.high):
            return {}
        if (left := measure_left_of(case, np.clip(case.wrong, gone.low, gone.high))) <= LEFT:
            return {**told, "left": left}
        case.refuted["files_differ"] = left
    return {}


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """A constant that one side's operator reads in the place of the other's: their names and values, the target's with
    its axes in the baseline's order. held: the types that the files hold it in, where they are not the arrays'."""

    key: str
    base: Array
    other: str
    target: Array
    held: tuple[str, str] = ("", "")

    @property
    def types(self) -> Evidence:
        """The types that it is held in, as evidence; {} unless these are two floats of few bits."""
        types = [held or array.dtype.name for held, array in zip(self.held, (self.base, self.target), strict=True)]
        apart = types[0] != types[1] and all(map(is_of_few_bits, types))
        return {"held": types[0], "held_there": types[1]} if apart else {}


def _compare_region_constants(
    subject: Subject, name: str, mine: Operator, theirs: Operator
) -> list[_Pair] | None:
    """Return the constants that differ between one operator and the several in its place. Pairs are made by what is
    really read, whatever names and layouts say; None where either side reads constants beyond such pairs."""
    own, spare = collect_constants(subject, name, mine, theirs)
    left: dict[str, Array] = {}
    for key, value in own.items():
        same = next((other for other, one in spare.items() if hold_same_numbers(value, one)), "")
        if same:
            del spare[same]
        else:
            left[key] = value
    pairs = []
    for key, value in left.items():
        turned = [(other, form) for other, one in spare.items() for form in list_forms(one, value.shape)]
        if not turned:
            return None
        other, form = min(turned, key=lambda pair: float(np.linalg.norm(pair[1].astype(np.float64) - value)))
        del spare[other]
        pairs.append(_Pair(key=key, base=value, other=other, target=form))
    return None if spare else pairs


def _exchange_constants(case: Case | None, pairs: Sequence[_Pair]) -> Evidence:
    """Return the constant that makes the operator's error, by exchanging it between the files, with those that have to
    be exchanged, too. Where that cannot be run, the first constant that differs; {} where none differs, or none makes
    the error."""
    told = [(pair, found) for pair in pairs if (found := find_first_difference(pair.key, pair.base, pair.target))]
    if not told:
        return {}
    best: float | None = None
    others, (pair, found) = dict[str, Any](), told[0]
    if case is not None:
        lefts = [measure_left_when(case, {pair.key: pair.target}) for pair, _ in told]
        known = sorted((left, place) for place, left in enumerate(lefts) if left is not None)
        if known:
            alone, place = known[0]
            pair, found = told[place]
            best, more = _find_few_constants(case, [(left, told[place][0]) for left, place in known])
            if best > LEFT:
                case.refuted["files_differ"] = alone
                return {}
            if more:
                alone, pair = _put_back_alone(case, [pair, *more]) or (alone, pair)
                found = next(found for one, found in told if one is pair)
                rest = (one for one in (told[place][0], *more) if one is not pair)
                others = {"others": ", ".join(f"`{one.key}`" for one in rest), "alone": alone}
    found = {**found, "name": _name_constant(pair.key, pair.other), **pair.types, **others}
    return found if best is None else {**found, "left": best}


def _find_few_constants(case: Case, ranked: Sequence[tuple[float, _Pair]]) -> tuple[float, list[_Pair]]:
    """Return what is left with the fewest of these exchanged that take the error away, and those of them besides the
    first: each takes half of the square that those before it leave, until rounding is left; all, where only that does.
    ranked: what each alone leaves, least first."""
    (left, first), *waiting = ranked
    few, usual = {first.key: first.target}, find_most_left(case)
    more = list[_Pair]()
    for _, pair in waiting:
        if left <= usual:
            return left, more
        further = measure_left_when(case, {**few, pair.key: pair.target})
        if further is not None and further <= LEFT * left:
            left, few[pair.key] = further, pair.target
            more.append(pair)
    if left > LEFT and len(waiting) > len(more):
        every = measure_left_when(case, {pair.key: pair.target for _, pair in ranked})
        if every is not None and every <= LEFT:
            return every, [pair for _, pair in waiting]
    return left, more


def _put_back_alone(case: Case, pairs: Sequence[_Pair]) -> tuple[float, _Pair] | None:
    """Return which of several constants, with the baseline's of it alone in the target's operator, leaves least of the
    error, and how much; None where that cannot be computed. Not what it alone adds to the baseline's: a mean's part
    depends on the variance by which it is divided."""
    plain, found = case.again({}), list[tuple[float, int]]()
    for place in range(len(pairs)):
        got = case.again({one.key: np.asarray(one.target) for at, one in enumerate(pairs) if at != place})
        if plain is not None and got is not None and got.shape == case.exact.shape:
            found.append((measure_left_of(case, case.exact + (got - plain)), place))
    left, place = min(found, default=(math.inf, 0))
    return (left, pairs[place]) if math.isfinite(left) else None


def _prove_constant(case: Case, pairs: Sequence[_Pair]) -> Evidence:
    """Return the same between two frameworks, whose regions need not be the same operators: only what was run
    counts."""
    found = _exchange_constants(case, pairs)
    return found if "left" in found else {}


def _name_constant(key: str, other: str) -> str:
    return key if key == other else say("read_as", name=key, other=other)


def _find_other_form(
    subject: Subject, case: Case | None, mine: Operator, theirs: Operator, name: str
) -> Evidence:
    """That the target has another operator there; {} where the same two stand for one another elsewhere and agree."""
    if case is not None:
        for one, found in case.alone.found.items():
            row = subject.row_of.get(one)
            if row is None or one == case.name or found.units is None or found.units > BEYOND:
                continue
            pair = subject.operators()[0].operator(one), _target_operator(subject, row)
            if [getattr(part, "op_type", "") for part in pair] == [mine.op_type, theirs.op_type]:
                case.refuted["files_differ"] = 1.0
                return {}
    return {"what": say("an_operator"), "name": name, "base": mine.op_type, "target": theirs.op_type}


def _target_operator(subject: Subject, row: Row) -> Operator | None:
    target = subject.operators()[1]
    return None if target is None else target.operator(row.target_name)


def _find_difference_beside_rounding(baseline: Replacer, target: Replacer, row: Row | None, name: str) -> Evidence:
    """Return what two operators do not share, of which one holds its weights in few bits: an attribute, or a constant
    that is further from the other one than any rounding is."""
    mine, theirs = baseline.operator(name), target.operator(row.target_name) if row is not None else None
    if mine is None or theirs is None or mine.op_type != theirs.op_type:  # an engine fuses as it likes
        return {}
    bare, other = (dataclasses.replace(one, parameters={}) for one in (mine, theirs))
    if found := _compare_operators(bare, other, name):
        return found
    for (key, first), second in zip(mine.parameters.items(), theirs.parameters.values(), strict=False):
        b, t = np.asarray(first), np.asarray(second)
        if b.shape != t.shape or b.dtype.kind != "f":
            continue
        held_exactly = b.ndim < 2  # norms and biases are not quantised
        far = held_exactly or measure_norm(t, b) > _NO_ROUNDING * measure_norm(b)
        if far and (told := find_first_difference(key, b, t)):
            at = np.unravel_index(int(np.argmax(np.abs(t - b))), b.shape)  # elsewhere it may be the same by chance
            where = {"at": [int(one) for one in at], "base": float(b[at]), "target": float(t[at])}
            return {**told, **where} if told["at"] else told
    return {}


_NO_ROUNDING = 0.75
"""Distance of two weights over the first one's size that no quantiser reaches: 4 bits lose 0.1, 2 bits 0.4, and two
weights of the same size that have nothing to do with each other are 1.4 apart."""


def _compare_enclosing_operators(
    baseline: Replacer, target: Replacer, mine: Operator, theirs: Operator
) -> Evidence:
    """Return what the operators in whose bodies two equal ones are do not share: a scan's direction, a loop's count; {}
    where they are in none, or in equal ones. That is told of what computes otherwise inside: only there it is seen."""
    if not mine.inside or not theirs.inside:
        return {}
    outer, there = baseline.operator(mine.inside), target.operator(theirs.inside)
    if outer is None or there is None:
        return {}
    found = _compare_operators(outer, there, mine.inside)
    if not found or found["what"] == say("an_operator"):
        return found or _compare_enclosing_operators(baseline, target, outer, there)
    return {**found, "owner": mine.inside, "owner_type": outer.op_type}


def _reads_the_same(subject: Subject, meta: TensorMeta) -> bool:
    """Return whether the target's tensor of the same name is made of the same tensors, by name or by pair; also where
    the running target has none, as it fused it away: then the names are the files' own. A program counts its views, and
    what it alone does moves the numbers of those that come after."""
    there = subject.targets.get(meta.name)
    return there is None or tuple(subject.partner.get(name, name) for name in there.inputs) == meta.inputs


def _is_same_place(subject: Subject, meta: TensorMeta, name: str, held: tuple[Operator, Operator] | None) -> bool:
    """Return whether the target's operator of the same name stands where this one of a region does: of one that reads
    constants alone its readers in the region tell, which must read the same beside it. held: as both files have it."""
    if meta.inputs:
        return _reads_the_same(subject, meta) or bool(held and held[0].reads and held[0].reads == held[1].reads)
    readers = [one for one in subject.region_of.get(name, ()) if meta.name in one.inputs]
    return not readers or any(_reads_the_same(subject, one) or _reads_alike(subject, one) for one in readers)


def _reads_alike(subject: Subject, meta: TensorMeta) -> bool:
    """Return whether both files' operators of a tensor read the same, whatever an engine folded before it."""
    there = subject.operators()[1]
    sides = _operators_in_files(subject, meta, meta.name) or (
        subject.operators()[0].operator(meta.name), there.operator(meta.name) if there is not None else None
    )  # fmt: skip
    reads = [one.reads for one in sides if one is not None]
    return len(reads) == 2 and bool(reads[0]) and reads[0] == reads[1]


def _find_operator_before_constant(
    subject: Subject, meta: TensorMeta, row: Row | None, mine: Operator, theirs: Operator
) -> Evidence:
    """Return an operator through which one side reads a constant that the other reads as it is; {} where there is
    none."""
    baseline, target = subject.operators()
    there = subject.targets.get(row.target_name if row is not None else meta.name)
    if target is None or there is None or mine.op_type != theirs.op_type or (
        len(mine.parameters) == len(theirs.parameters)
    ):  # fmt: skip
        return {}
    ahead = len(mine.parameters) < len(theirs.parameters)  # the baseline has an operator before it
    side, reads, more = (baseline, meta.inputs, theirs) if ahead else (target, there.inputs, mine)
    spare = [np.asarray(one) for one in more.parameters.values()]
    for read in reads:
        made = subject.meta_of.get(read) if ahead else subject.targets.get(read)
        found = side.operator(read)
        if made is None or made.inputs or found is None or not _acts(found.op_type):
            continue
        if any(hold_same_numbers(one, np.asarray(held)) for one in spare for held in found.parameters.values()):
            sides = (found.op_type, say("is_missing")) if ahead else (say("is_missing"), found.op_type)
            return {"what": say("an_operator"), "name": read, "base": sides[0], "target": sides[1]}
    return {}


def _count_axes(subject: Subject, meta: TensorMeta) -> tuple[int, int] | None:
    """Return how many axes an operator's first tensor and its result have; None where they were not compared."""
    rows = [subject.row_of.get(name) for name in (*meta.inputs[:1], meta.name)]
    found = [len(row.comparison.base.shape) for row in rows if row is not None and row.comparison is not None]
    return (found[0], found[1]) if len(found) == 2 else None


def _add_inner_operator(difference: Evidence, meta: TensorMeta) -> Evidence:
    """With the operator inside a fused region that it is of: the region is called after its last one."""
    if difference["what"] not in {say("an_attribute"), say("a_constant")}:
        return difference
    if getattr(difference["name"], "code", "") == "read_as":
        key, other = (difference["name"].args[part] for part in ("name", "other"))
        named = say("read_as_of", name=key, other=other, type=meta.given_by or meta.op_type, at=meta.name)
        return {**difference, "name": named}
    return {**difference, "name": f"{difference['name']} ({meta.given_by or meta.op_type} {meta.name})"}


def _operators_in_files(subject: Subject, meta: TensorMeta, there: str) -> tuple[Operator, Operator] | None:
    """Return a tensor's operators as two files of one format have them, where engines have other words for one
    operator; None where they are not of one kind: a file may have several where the other has one."""
    return next(
        (pair for pair in _list_operators_in_files(subject, meta, there) if pair[0].op_type == pair[1].op_type), None
    )


def _list_operators_in_files(
    subject: Subject, meta: TensorMeta, there: str
) -> Iterator[tuple[Operator, Operator]]:
    """Yield the same, of whatever kind, by each of the names that the target's may have."""
    running = subject.targets.get(there)
    for name in dict.fromkeys((running.origin if running is not None else "", there, meta.name)):
        pair = subject.in_files(meta.origin or meta.name, name) if subject.in_files is not None and name else None
        if pair is not None:
            yield pair


def find_other_operator(subject: Subject, name: str) -> Evidence:
    """That two files have another kind of operator in a tensor's place, or in that of the only such one of its region
    that reads the same; {} where they do not. To be asked of what computes otherwise alone: a file may write one
    operator in parts."""
    row, meta = subject.row_of.get(name), subject.meta_of.get(name)
    if row is None or meta is None or not subject.two_files:
        return {}
    inner = [
        (one.name, pair) for one in subject.region_of.get(name, ()) if one.name != name
        for pair in itertools.islice(_list_operators_in_files(subject, one, one.name), 1)
        if pair[0].op_type != pair[1].op_type and pair[0].reads and pair[0].reads == pair[1].reads
    ]  # fmt: skip
    own = [(name, pair) for pair in _list_operators_in_files(subject, meta, row.target_name)]
    for where, (mine, theirs) in (*own, *(inner if len(inner) == 1 else ())):
        if mine.op_type != theirs.op_type:
            return {"what": say("an_operator"), "name": where, "base": mine.op_type, "target": theirs.op_type}
    return {}


def find_narrower_constants(subject: Subject, name: str) -> Evidence:
    """Return the type and the worst of the constants that the target's file holds rounded to a narrower float. Every
    number of them must be such a rounding, as in a converted file; {} where one is not, or where no constant is
    narrower."""
    baseline, target = subject.operators()
    if target is None or not subject.two_files:
        return {}
    row, found, types = subject.row_of.get(name), dict[str, float](), {"float16", "bfloat16"}
    for meta in subject.region_of.get(name, ()):
        mine = baseline.operator(meta.name)
        theirs = target.operator(row.target_name if row is not None and meta.name == name else meta.name)
        if mine is None or theirs is None or len(mine.parameters) != len(theirs.parameters):
            continue
        for (key, first), second in zip(mine.parameters.items(), theirs.parameters.values(), strict=True):
            b, t = np.asarray(first), np.asarray(second)
            if b.dtype != np.float32 or b.shape != t.shape or t.dtype.kind not in "fV" or not np.isfinite(b).all():
                continue
            there = t.astype(np.float32)
            if np.array_equal(there, b):
                continue
            cut = {"float16"} if np.abs(b).max(initial=0.0) > np.finfo(np.float16).max else set[str]()  # not rounded
            types = {held for held in types - cut if is_rounding(b, there, held)}
            found[key] = float(np.linalg.norm(there - b) / (np.linalg.norm(b) or 1.0))
    if not found or not types:
        return {}
    weight = max(found, key=lambda key: found[key])
    return {"weight": weight, "held": min(types), "off": found[weight], "count": len(found)}


def find_other_weight(subject: Subject, name: str) -> Evidence:
    """Return a weight that the target's file holds rounded, whatever its backend calls the operator; {} where none
    is."""
    baseline, target = subject.operators()
    row = subject.row_of[name]
    for meta in reversed(subject.region_of.get(name, ())):
        mine = baseline.operator(meta.name)
        there = row.target_name if meta.name == name else meta.name
        theirs = target.operator(there) if target is not None else None
        if mine is None or theirs is None:
            continue
        for key, value in mine.parameters.items():
            weight = np.asarray(value)
            others = [other for other in map(np.asarray, theirs.parameters.values()) if other.size == weight.size]
            if weight.ndim < 2 or len(others) != 1 or others[0].dtype.kind != "f":
                continue
            if rounded := _find_rounded(key, weight, others[0]):
                return rounded
    return {}


def _find_rounded(key: str, b: Array, t: Array) -> Evidence:
    """Return what two weights of one size do not share where all of it may be rounding; {} elsewhere."""
    count, place, most = 0, 0, 0.0
    for first, blocks in iterate_blocks(b, t):
        ours, theirs = (block.astype(np.float64) for block in blocks)
        if not np.allclose(theirs, ours, rtol=2.0**-8, atol=2.0**-24):
            return {}
        off = np.abs(ours - theirs)
        count += int(np.count_nonzero(ours != theirs))
        if off.max() > most:
            place, most = first + int(np.argmax(off)), float(off.max())
    at = np.unravel_index(place, b.shape)
    values = {"base": float(b[at]), "target": float(t[np.unravel_index(place, t.shape)])}
    told = {"what": say("a_constant"), "name": key, "count": count, "elements": int(b.size)}
    return {**told, "at": [int(i) for i in at], **values} if count else {}


def _reads_others(
    subject: Subject, meta: TensorMeta, row: Row | None, mine: Operator, theirs: Operator
) -> Evidence:
    """That the target's operator reads other tensors, or in another order; {} where that is not known. Where either
    reads none that runs, as a state of a body before its first step, what its file has it read is told of both."""
    there = subject.targets.get(row.target_name) if row is not None else None
    if there is None or subject.two_frameworks or any(name not in subject.partner for name in there.inputs):
        return {}
    mapped = tuple(subject.partner[name] for name in there.inputs)
    gone = [name for name in meta.inputs if name not in subject.row_of]
    # what the target's file no longer has may be folded into something else, but not where it reads some of the rest
    fewer = bool(mapped) and {*mapped} < {*meta.inputs} and there.op_type == meta.op_type
    fewer = fewer and not {*meta.inputs} - {*mapped} <= list_fixed(subject)
    if mapped == tuple(meta.inputs) or (gone and not fewer):
        return {}
    sides = [", ".join(one) for one in (meta.inputs, mapped)]
    if not all(sides):
        sides = [", ".join(filter(None, one.inputs)) for one in (mine, theirs)]
    told = {"what": say("an_input"), "name": meta.name, "base": sides[0], "target": sides[1]}
    return told if all(sides) and sides[0] != sides[1] else {}


def _reads_others_there(subject: Subject, name: str, mine: Operator, theirs: Operator) -> Evidence:
    """Return the same of two files of which engines keep the names; {} where what either reads was not compared."""
    mapped = tuple(subject.partner.get(read, "") for read in theirs.reads)
    if mapped == mine.reads or not (mapped and mine.reads) or not {*mapped, *mine.reads} <= subject.row_of.keys():
        return {}
    return {"what": say("an_input"), "name": name, "base": ", ".join(mine.reads), "target": ", ".join(mapped)}


def _cast_left_out(subject: Subject, name: str, row: Row | None) -> Evidence:
    """Return a cast to a narrow type before an operator that the baseline's file alone has; {} where there is none, or
    where the target has such a type on its way, too."""
    if row is None or row.name != name or subject.two_frameworks or find_promise(subject.precision).narrow:
        return {}
    casts = [
        meta for meta in subject.region_of.get(name, ())
        if "cast" in meta.op_type.lower() and meta.name != name and unit_of(meta.dtype, None) > NARROW
    ]  # fmt: skip
    waiting, seen = [row.target_name], set[str]()
    while waiting and casts:
        one = subject.targets.get(waiting.pop())
        if one is None or one.name in seen:
            continue
        if unit_of(one.dtype, None) > NARROW:
            return {}
        seen.add(one.name)
        waiting += [read for read in one.inputs if read not in subject.partner]
    if not casts:
        return {}
    read = ", ".join(casts[0].inputs) or say("constants_alone")
    told = ", ".join(f"{meta.op_type} {meta.name} ({meta.dtype})" for meta in casts)
    return {"what": say("an_input"), "name": name, "base": say("one_of", one=told, other=read), "target": read}


def _put_between(subject: Subject, name: str, row: Row | None) -> Evidence:
    """Return operators of the target's file alone that stand before one, a cast to a narrower type above all; {} where
    there are none, or where the target's arithmetic puts in its own."""
    if row is None or row.name != name or subject.two_frameworks or find_promise(subject.precision).narrow:
        return {}
    between: list[TensorMeta] = []
    given: list[str] = []
    waiting = list(subject.targets[row.target_name].inputs) if row.target_name in subject.targets else []
    while waiting:
        one = subject.targets.get(waiting.pop())
        if one is None or one in between:
            continue
        if one.name in subject.partner:
            given.append(subject.partner[one.name])
        else:
            between.append(one)
            waiting += one.inputs
    region = subject.region_of.get(name, ())
    converted = find_converted_type(subject)  # whose casts, there and back, are that conversion's
    spare = Counter({("Cast", one): len(between) for one in (converted, subject.meta_of[name].dtype) if converted})
    spare.update((meta.op_type, meta.dtype) for meta in region)
    last, more = subject.targets.get(row.target_name), list[TensorMeta]()
    for meta in (*([last] if last is not None else []), *between):  # each stands for one of the baseline's
        if spare[meta.op_type, meta.dtype]:
            spare[meta.op_type, meta.dtype] -= 1
        elif meta is not last and _acts(meta.op_type):
            more.append(meta)
    if len(region) > 1:  # an engine that fuses several writes operators of its own; it casts nothing that was not cast
        more = [meta for meta in more if "cast" in meta.op_type.lower()]
    if not more:
        return {}
    read, own = (", ".join(sorted({*one})) or say("constants_alone") for one in (given, subject.sources(name)))
    told = ", ".join(f"{meta.op_type} {meta.name} ({meta.dtype})" for meta in reversed(more))
    return {"what": say("an_input"), "name": name, "base": own, "target": say("one_of", one=told, other=read)}


def _find_other_constant(mine: Operator, theirs: Operator) -> Evidence:
    """Return a constant that the other framework's operator holds with other values. {} where each constant has its
    equal, and where only one side has a batch norm folded into its own, which cannot be compared."""
    if _is_batch_norm(mine) != _is_batch_norm(theirs):
        return {}
    own = {key: np.asarray(value) for key, value in mine.parameters.items()}
    others = [array for array in map(np.asarray, theirs.parameters.values()) if array.dtype.kind == "f"]
    own = {key: array for key, array in own.items() if array.dtype.kind == "f" and array.size > 1}
    apart = {key: array for key, array in own.items() if not any(hold_same_numbers(array, one) for one in others)}
    spare = [one for one in others if not any(hold_same_numbers(array, one) for array in own.values())]
    for key, array in apart.items():
        one = next((one for one in spare if one.shape == array.shape), None)
        if one is not None:
            return find_first_difference(key, array, one)
    return {}


def _is_batch_norm(operator: Operator) -> bool:
    return "batchnorm" in operator.op_type.lower().replace("_", "")


def _acts(op_type: str) -> bool:
    """Return whether an operator does more to numbers than to move them; a cast rounds, and cuts off."""
    return "cast" in op_type.lower() or plain_type(op_type) not in MOVE


def _find_other_attribute(mine: Operator, theirs: Operator) -> Evidence:
    """Return an attribute, or the only number that each of two frameworks' operators reads, with another value; {}
    where what both say is the same."""
    own, others = _list_number_attributes(mine), _list_number_attributes(theirs)
    for key in sorted((own.keys() & others.keys()) | ((own.keys() | others.keys()) & _OFF)):
        b, t = own.get(key, (0.0,)), others.get(key, (0.0,))
        if len(b) == len(t) and not np.allclose(t, b, rtol=2e-3, atol=1e-9):
            base, there = (str(_shorten_values(one)) for one in (b, t))
            return {"what": say("an_attribute"), "name": key, "base": base, "target": there}
    scalars = [
        [(key, float(array.reshape(-1)[0])) for key, array in ((k, np.asarray(v)) for k, v in one.parameters.items())
         if array.dtype.kind == "f" and array.size == 1]
        for one in (mine, theirs)
    ]  # fmt: skip
    if all(len(one) == 1 for one in scalars):
        (key, first), (_, second) = scalars[0][0], scalars[1][0]
        if not math.isclose(first, second, rel_tol=2e-3, abs_tol=1e-9):
            return {"what": say("a_constant"), "name": key, "base": first, "target": second}
    return {}


def _find_other_word(mine: Operator, theirs: Operator, name: str, case: Case | None) -> Evidence:
    """Return an attribute of which two frameworks' operators have different words, as a Resize of how it counts
    coordinates, or a flag by another name, where running it so makes the error: both may also say the same."""
    flags = list_opposite_flags(mine, theirs)
    told: dict[str, tuple[Any, Any]] = {
        key: (first, second) for key, first in sorted(mine.attributes.items())
        if isinstance(first, str) and isinstance(second := theirs.attributes.get(key), str) and first != second
    }  # fmt: skip
    told |= {key: (first, second) for key, (_, first, second) in flags.items()}
    found = find_guilty_attributes(case, name, told) if case is not None else {}
    if found.get("left") is None or found["name"] not in flags:
        return found if found.get("left") is not None else {}
    return {**found, "name": say("read_as", name=found["name"], other=flags[found["name"]][0])}


_OFF = {"exclusive", "reverse"}
"""Flags that are off where nothing is said."""

_SAME_WORD = {"eps": "epsilon", "stride": "strides", "dilation": "dilations", "groups": "group"}


def _list_number_attributes(operator: Operator) -> dict[str, tuple[float, ...]]:
    """Attributes that are numbers, in words that frameworks share; axes are counted from either end."""
    found: dict[str, tuple[float, ...]] = {}
    for key, value in operator.attributes.items():
        several = value if isinstance(value, (tuple, list)) else (value,)
        if "ax" not in key and several and all(isinstance(one, (bool, int, float)) for one in several):
            found[_SAME_WORD.get(key, key)] = tuple(float(one) for one in several)
    begin, end = found.pop("pads_begin", None), found.pop("pads_end", None)
    return {**found, "pads": (*begin, *end)} if begin is not None and end is not None else found


def _shorten_values(values: tuple[float, ...]) -> Any:
    whole = [int(one) if one == int(one) else shortest_float(one) for one in values]
    return whole[0] if len(whole) == 1 else whole


def _compare_operators(
    mine: Operator, theirs: Operator, name: str, axes: tuple[int, int] | None = None, case: Case | None = None
) -> Evidence:
    """case: see ``find_file_difference``. axes: see ``_count_axes``."""
    if mine.op_type != theirs.op_type:
        return {"what": say("an_operator"), "name": name, "base": mine.op_type, "target": theirs.op_type}
    apart = list_other_attributes(mine, theirs, axes)
    if told := find_flattened(mine, theirs, axes) or find_guilty_attributes(case, name, apart):
        return told
    ours, others = list(mine.parameters.items()), list(theirs.parameters.items())
    if len(ours) != len(others):
        more = dict(ours if len(ours) > len(others) else others)
        fewer = dict(others if len(ours) > len(others) else ours)
        extra = next((key for key in more if key not in fewer), "")
        value = np.asarray(more.get(extra, ()))
        there, gone = value.item() if value.size == 1 else say("is_there"), say("is_missing")
        first, second = (there, gone) if len(ours) > len(others) else (gone, there)
        return {"what": say("a_constant"), "name": extra, "base": first, "target": second}
    pairs = []
    for (key, first), (other, second) in zip(ours, others, strict=True):
        b, t = np.asarray(first), np.asarray(second)
        t = t.reshape(b.shape) if b.size == t.size == 1 else t  # one number, which exporters write as [] or as [1]
        if b.shape != t.shape:
            turned = find_transposition(key, b, t) if b.dtype.kind == "f" and t.dtype.kind == "f" else {}
            what = {"what": say("a_constant"), "name": _name_constant(key, other)}
            return turned or {**what, "base": f"shape {list(b.shape)}", "target": f"shape {list(t.shape)}"}
        held = mine.narrowed.get(key, ""), theirs.narrowed.get(other, "")
        pairs.append(_Pair(key=key, base=b, other=other, target=t, held=held))
    return _exchange_constants(case, pairs) or compare_places(mine, theirs, name)


# Operators that give another shape than the baseline's, of the same inputs: no error can be carried from them.

def find_other_shapes(subject: Subject, alone: Alone) -> tuple[Culprit, ...]:
    """One for each operator, in order, that is the first on its way to an output of another shape.

    Where the outputs have theirs, a shape on the way to them is a matter of words: numbers tell who did it.
    """
    rows = {row.name: row for row in subject.rows if row.comparison is not None and not row.comparison.shapes_match}
    outputs = [row.name for row in rows.values() if row.is_output]
    lead = {name for output in outputs for name in (output, *list_made_of(subject, output))}
    found: dict[str, Culprit] = {}
    for name in sorted(rows.keys() & lead, key=lambda one: subject.order.get(one, 0)):
        exact, wrong = alone.exact.get(name), alone.wrong.get(name)
        if exact is None or wrong is None or exact.shape == wrong.shape or rows.keys() & list_made_of(subject, name):
            continue
        row, meta = rows[name], subject.meta_of.get(name)
        difference = find_file_difference(subject, name) if meta is not None else {}
        found[name] = Culprit(
            name=name,
            node=row.node,
            op_types=(row.op_type,),
            cause="files_differ" if difference else "other_arithmetic",
            evidence=difference,
            confidence=alone.method,
            at=name,
            fails_first=name,
            keep=(name,),
        )
    return tuple(found.values())
