"""What the rules of a cause ask about one operator: its types, constants, sizes, and where its error stands."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..numbers.born import compute_finite_l2
from ..protocols import Replacer
from ..reasons import say
from ..records import Operator, TensorMeta
from .held_constants import open_stored
from .operators import CANCEL, MOVE, REORDER, SELECT, SUM_UP, TURNS, plain_type
from .subject import Subject, collect_stretch

__all__ = [
    "OWNER",
    "WIDE",
    "compare_places",
    "constants_of",
    "count_terms",
    "describe_born",
    "ends_in_sum",
    "error_share",
    "find_acting_type",
    "find_exchanged_operators",
    "find_inherited_error",
    "find_largest_input",
    "find_longer_stretches",
    "find_operators_alone",
    "find_weights_in_few_bits",
    "is_finer",
    "is_quantised",
    "largest_of_row",
    "name_types",
    "narrow_type",
    "operators_of",
    "parameters_of",
    "types_of",
]

Array = np.ndarray[Any, Any]

WIDE = frozenset({"float32", "float64"})
"""Types in which nothing overflows or vanishes that the baseline holds."""


def narrow_type(subject: Subject, name: str) -> str:
    """Return the narrow type in which an operator computes."""
    held_as = subject.held_as.get(name, "")
    return subject.narrow_type if held_as in WIDE else held_as


def is_finer(subject: Subject, name: str) -> bool:
    """Return whether the baseline computes in float64: then float32 is the narrow type."""
    numbers = subject.row_of[name].comparison
    return numbers is not None and numbers.base.dtype == "float64" and numbers.target.dtype != "float64"


def is_quantised(held_as: str) -> bool:
    """Return whether tensors held in this type are quantised: integers that stand for real numbers."""
    return held_as in {"int8", "uint8", "int4", "uint4", "int16", "uint16"}


def types_of(subject: Subject, name: str) -> set[str]:
    """Return the plain types of the operators in a tensor's region."""
    region = subject.region_of.get(name, ())
    return {plain_type(meta.op_type) for meta in region} or {plain_type(subject.row_of[name].op_type)}


def operators_of(subject: Subject, name: str) -> tuple[TensorMeta, ...]:
    """Return a tensor's region as it is told: without what only carries operands there, where anything else is in
    it."""
    region = subject.region_of.get(name, ())
    return tuple(meta for meta in region if meta.name not in subject.carried) or region


def name_types(subject: Subject, name: str) -> tuple[str, ...]:
    """Return the types of a tensor's operators as they are told."""
    found = tuple(meta.given_by or meta.op_type for meta in operators_of(subject, name))
    return found or (subject.row_of[name].op_type,)


def list_fixed(subject: Subject) -> set[str]:
    """Return the baseline's tensors that no input of the model reaches."""
    fixed = set[str]()
    for meta in subject.tensors:
        if meta.op_type != "Input" and fixed.issuperset(meta.inputs):
            fixed.add(meta.name)
    return fixed


def find_acting_type(subject: Subject, name: str) -> str:
    """Return the operator of a region that gives its result, what only moves that about, or chooses among it, left out;
    where others compute before one that is no sum, all of few."""
    types = [meta.op_type for meta in subject.region_of.get(name, ())] or [subject.row_of[name].op_type]
    computing = [one for one in types if plain_type(one) not in MOVE] or types
    acting = [one for one in computing if plain_type(one) not in SELECT] or computing
    few = 1 < len(computing) <= _FEW_TYPES and plain_type(acting[-1]) not in CANCEL
    return "+".join(computing) if few else acting[-1]


_FEW_TYPES = 3
"""Operators of a region that are named together."""


OWNER = ("owner", "owner_type", "sole", "seen")
"""Keys of the evidence that names the operator whose error it is, where another's result shows it."""


def find_exchanged_operators(subject: Subject, name: str) -> dict[str, Any]:
    """Return the types of the operators that two files' stretches between the same compared tensors do not share, in
    execution order, without those that both begin or end with; {} where the types are the same, or where an engine
    wrote them anew. Where they are the same in another order, how many, or the number that one of them is told
    otherwise. at: the first of them, the target's where the baseline has none. owner, sole: the same of those that one
    side alone has, of which the error is told, and that side; seen: what is compared behind them."""
    mine, theirs, alike = _list_own_stretches(subject, name)
    sides = zip((mine, theirs), (subject.baseline.replacer, subject.target.replacer), strict=True)
    ours, others = ([kind for one in side for kind in _list_types(subject, one, files)] for side, files in sides)
    if not ours and not others:
        return {}
    one_sided = not ours or not others
    if one_sided and all(plain_type(one) in MOVE for one in (*ours, *others)):  # a copy more makes no other numbers
        turns = any(plain_type(one) in REORDER for one in (*ours, *others))
        if not turns or not all(plain_type(one.op_type) in MOVE for one, _ in alike):
            return {}
    if sorted(ours) == sorted(others):
        return _find_other_number(subject, mine, theirs) or {"turned": len(ours)}
    more = mine or theirs
    acting = next((one for one in more if plain_type(one.op_type) not in MOVE), None)
    at = acting or next((one for one in more if plain_type(one.op_type) in REORDER), more[0])
    apart = next((told for pair in alike if one_sided and (told := _tell_apart(subject, *pair))), None)
    if apart is not None:  # the operators that one side has more make up for it
        ours, others = [apart[0], *ours], [apart[1], *others]
    named = [_join_types(side) or say("no_operator") for side in (ours, others)]
    found = {"ours": named[0], "theirs": named[1], "at": at.name}
    if not one_sided or apart is not None:
        return found
    shown = at.name in (name, subject.row_of[name].target_name)
    return {
        **found, "owner": at.name, "owner_type": named[not ours], **({} if shown else {"seen": name}),
        "sole": say("the_baseline") if ours else say("the_target"),
    }  # fmt: skip


def _list_types(subject: Subject, meta: TensorMeta, files: Replacer | None) -> list[str]:
    """Return the type of a listed operator, and of those behind it that it is listed in the place of: an integer, and
    what becomes of it, is listed as what it holds the values of."""
    found, name = list[str](), meta.name
    own = files.operator(name) if files is not None else None
    while files is not None and own is not None and own.op_type in TURNS and own.op_type != meta.op_type:
        found, name = [own.op_type, *found], own.inputs[0] if own.inputs else ""
        own = files.operator(name) if name and name not in subject.row_of else None
    return [meta.op_type, *found]


def find_operators_alone(subject: Subject, name: str) -> dict[str, Any]:
    """Return the operators that one side alone has before one that only moves elements, as a view that reads a dropout:
    they make the error, and that one shows it. {} where it does more, or both sides have others."""
    row = subject.row_of.get(name)
    told = find_exchanged_operators(subject, name) if row is not None and plain_type(row.op_type) in MOVE else {}
    whole = {key: told[key] for key in OWNER if key in told}
    named = {"what": say("an_operator"), "name": name, "base": told.get("ours"), "target": told.get("theirs")}
    return {**named, **whole} if "sole" in told else {}


def find_longer_stretches(subject: Subject, name: str) -> tuple[str, str] | None:
    """Return what two files' stretches do not share, where the target's has several operators: nothing was folded into
    one of them. None elsewhere."""
    row, told = subject.row_of.get(name), find_exchanged_operators(subject, name)
    if row is None or "ours" not in told:
        return None
    between = collect_stretch(subject.targets, row.target_name, subject.partner).values()
    several = sum(plain_type(meta.op_type) not in MOVE for meta in between) > 1
    return (told["ours"], told["theirs"]) if several else None


def _tell_apart(subject: Subject, mine: TensorMeta, other: TensorMeta) -> tuple[str, str] | None:
    """Return two operators of one type with the attributes that they are told otherwise; None where there are none."""
    baseline, target = subject.operators()
    sides = baseline.operator(mine.name), target.operator(other.name) if target is not None else None
    if sides[0] is None or sides[1] is None:
        return None
    told = [one.attributes for one in sides if one is not None]
    keys = [key for key in sorted(told[0].keys() | told[1].keys()) if told[0].get(key) != told[1].get(key)]
    if not keys:
        return None
    words = [", ".join(f"{key} {one[key]}" for key in keys if key in one) for one in told]
    first, second = (f"{mine.op_type} ({one})" if one else mine.op_type for one in words)
    return first, second


_Stretches = tuple[list[TensorMeta], list[TensorMeta], list[tuple[TensorMeta, TensorMeta]]]


def _list_own_stretches(subject: Subject, name: str) -> _Stretches:
    """Return both files' operators between the same compared tensors, without those that both begin or end with; and
    these."""
    row = subject.row_of.get(name)
    if row is None or subject.two_frameworks or not subject.two_files:
        return [], [], []
    between = collect_stretch(subject.targets, row.target_name, subject.partner)
    ours, theirs = [*operators_of(subject, name)], [meta for key, meta in subject.targets.items() if key in between]
    if any(meta.absorbs or meta.own for meta in theirs):
        return [], [], []
    alike = []
    for end in (-1, 0):
        while ours and theirs and ours[end].op_type == theirs[end].op_type:
            alike.append((ours.pop(end), theirs.pop(end)))
    return ours, theirs, alike


def _find_other_number(subject: Subject, ours: list[TensorMeta], theirs: list[TensorMeta]) -> dict[str, Any]:
    """Return the first attribute, a divisor say, that operators of one type are told otherwise; {} where there is none.
    Each stands for the next of its type."""
    baseline, target = subject.operators()
    left = list(theirs)
    for meta in ours:
        there = next((one for one in left if one.op_type == meta.op_type), None)
        if there is None or target is None:
            continue
        left.remove(there)
        pair = baseline.operator(meta.name), target.operator(there.name)
        first, second = (one.attributes if one is not None else {} for one in pair)
        for key in sorted(first.keys() & second.keys()):
            b, t = first[key], second[key]
            if isinstance(b, int | float) and isinstance(t, int | float) and not math.isclose(b, t, rel_tol=2e-3):
                told = f"{key} ({meta.given_by or meta.op_type} {meta.name})"
                return {"what": say("an_attribute"), "name": told, "base": str(b), "target": str(t)}
    return {}


def _join_types(types: list[str]) -> str:
    """Return types as they are told; of many the first and the last, and how many are between."""
    if len(types) <= _MANY_TYPES:
        return "+".join(types)
    return f"{'+'.join(types[:2])}+…+{'+'.join(types[-2:])} ({len(types)})"


_MANY_TYPES = 6
"""Operators of a stretch beyond which not all are told."""


def ends_in_sum(subject: Subject, name: str) -> bool:
    """Return whether a region's result is that of a sum or a difference, as far as it is computed: no size of such a
    result says what was added inside, before a norm say."""
    types = [plain_type(meta.op_type) for meta in subject.region_of.get(name, ())]
    return next((one for one in reversed(types) if one not in MOVE | SELECT), "") in CANCEL


def find_inherited_error(subject: Subject, name: str, author: str = "") -> float:
    """Return the largest relative error of what an operator reads; where most of that is an offset or a mask that was
    added, also of what it was added to: beside large numbers an error looks small, and is as large again behind them.

    author: whose own error is asked about, and not what came before it."""
    most, waiting, seen = 0.0, [*subject.sources(name)], set[str]()
    while waiting:
        source = waiting.pop()
        row = subject.row_of.get(source)
        if row is None or source in seen:
            continue
        seen.add(source)
        most = max(most, compute_finite_l2(row) or 0.0)
        types = {plain_type(meta.op_type) for meta in subject.region_of.get(source, ())}
        size = (row.comparison.base.rms or 0.0) if row.comparison is not None else 0.0
        passes = source != author and bool(types) and types <= (CANCEL - SUM_UP) | SELECT | MOVE
        for one in subject.sources(source) if passes else ():
            read = subject.row_of[one].comparison if one in subject.row_of else None
            if types <= MOVE or (read is not None and _DROWNS * (read.base.rms or 0.0) < size):
                waiting.append(one)
    return most


_DROWNS = 8.0
"""Times that a sum is larger than one of its terms from which on that one is a small part of it."""


def find_largest_input(subject: Subject, name: str) -> float:
    """Return the largest magnitude among what an operator reads."""
    found = 0.0
    for source in subject.sources(name):
        found = max(found, largest_of_row(subject, source))
    return found


def largest_of_row(subject: Subject, name: str) -> float:
    """Return the largest size of a tensor in the baseline's own run; 0 where there are no numbers of it."""
    numbers = subject.row_of[name].comparison
    return 0.0 if numbers is None else max(abs(numbers.base.min or 0.0), abs(numbers.base.max or 0.0))


def describe_born(subject: Subject, name: str, nan: int, inf: int) -> dict[str, Any]:
    """Return what an operator made that is not finite, and how much of what it reads is infinite on both sides."""
    what = " and ".join(word for word, count in (("NaN", nan), ("Inf", inf)) if count)
    read = [row.comparison.base if row.comparison is not None else row.base
            for row in (subject.row_of[source] for source in subject.sources(name))]  # fmt: skip
    infinite = sum(numbers.inf or 0 for numbers in read if numbers is not None)
    return {"what": what, "count": nan + inf, **({"infinite": infinite} if infinite else {})}


def count_terms(subject: Subject, name: str, constants: Mapping[str, Array]) -> int:
    """Terms of one sum: those that a weight says, else what the operator makes fewer of."""
    weights = [values for values in constants.values() if values.ndim >= 2]
    numbers = subject.row_of[name].comparison
    if weights:
        shape = weights[-1].shape
        if len(shape) > 2:
            return int(np.prod(shape[1:]))
        columns = numbers.base.shape[-1:] if numbers is not None else ()  # a weight may lie there transposed
        return int(shape[0] if shape[1:] == columns else shape[1] if shape[:1] == columns else max(shape))
    operator = subject.operators()[0].operator(name)
    axis = operator.attributes.get("dim") if operator is not None else None
    if numbers is not None and "cum" in plain_type(subject.row_of[name].op_type) and isinstance(axis, int):
        return int(numbers.base.shape[axis])
    sizes = [subject.row_of[source].comparison for source in subject.sources(name)]
    largest = max((one.base.elements for one in sizes if one is not None), default=0)
    return largest // max(1, numbers.base.elements) if numbers is not None else 0


def constants_of(subject: Subject, name: str) -> dict[str, Array]:
    """Return the model's constants that the baseline's operators of a region read, as float arrays by name."""
    return {key: one for key, one in parameters_of(subject, name).items() if one.dtype.kind == "f" and one.size}


def parameters_of(subject: Subject, name: str) -> dict[str, Array]:
    """Return the same of any type. Those of the last name asked for are kept, since reading a weight from a GPU takes
    up to a second."""
    if name not in subject.constants:
        subject.constants.clear()
        subject.constants[name] = _read(subject, name)
    return subject.constants[name]


def _read(subject: Subject, name: str) -> dict[str, Array]:
    found: dict[str, Array] = {}
    baseline, target = subject.operators()
    for meta in subject.region_of.get(name, ()):
        operator = baseline.operator(meta.name)
        if operator is not None and operator.stored and target is not None:
            row = subject.row_of.get(meta.name)
            theirs = target.operator(row.target_name if row is not None else meta.name)
            operator = operator if theirs is None else open_stored(operator, theirs)[0]
        found |= {} if operator is None else {key: np.asarray(value) for key, value in operator.parameters.items()}
    return found


def compare_places(mine: Operator, theirs: Operator, name: str) -> dict[str, Any]:
    """Return what two operators read, in order, where one constant stands in another place, as in 1 - x and x - 1; {}
    where none does, or that is not known."""
    places = [[read in one.parameters for read in one.inputs] for one in (mine, theirs)]
    if places[0] == places[1] or not all(places) or mine.op_type in _ANY_ORDER or sum(places[0]) != sum(places[1]):
        return {}
    base, target = (", ".join(filter(None, one.inputs)) for one in (mine, theirs))
    return {"what": say("an_input"), "name": name, "base": base, "target": target}


_ANY_ORDER = frozenset({"Add", "And", "Equal", "Max", "Mean", "Min", "Mul", "Or", "Sum", "Xor"})
"""Operators to which it is all the same which of their inputs comes first."""


def find_weights_in_few_bits(subject: Subject, name: str) -> dict[str, tuple[Array, Array]]:
    """Return the weights of a region that a quantiser's file holds in few bits, by the baseline's name: (the baseline's
    numbers, the dequantised ones); {} where the target's file quantises more than weights."""
    baseline, target = subject.operators()
    found: dict[str, tuple[Array, Array]] = {}
    if target is None or not subject.weights_alone:
        return found
    for meta in subject.region_of.get(name, ()):
        row = subject.row_of.get(meta.name)
        mine = baseline.operator(meta.name)
        theirs = target.operator(row.target_name if row is not None else meta.name)
        if mine is None or theirs is None or len(mine.parameters) != len(theirs.parameters):
            continue
        for (key, first), second in zip(mine.parameters.items(), theirs.parameters.values(), strict=True):
            b, t = np.asarray(first), np.asarray(second)
            if b.dtype.kind == "f" and b.ndim > 1 and b.shape == t.shape and not np.array_equal(b, t):
                found[key] = b, t
    return found


def error_share(exact: Array, wrong: Array, where: Array) -> float:
    """Return the share of the squared error that stands in some elements; 1 where one of them is not finite."""
    with np.errstate(all="ignore"):
        error = np.square(wrong - exact)
    if not np.isfinite(wrong[where]).all():
        return 1.0
    total = float(np.sum(error[np.isfinite(error)]))
    return float(np.sum(error[where & np.isfinite(error)])) / total if total else 0.0
