"""Which attributes of an operator make its error: the baseline's is run with the target's in the place of its own.

A beta, a limit, an epsilon, a number of groups: what two operators are told otherwise need not be why one is wrong.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..onnx.types import FLATTENS, says_nothing, shorten_floats
from ..protocols import takes_attributes
from ..reasons import say
from ..records import Operator, TensorMeta
from .criteria import SEVERAL
from .evaluators import list_source_names, make_exact_evaluator
from .operator_facts import parameters_of
from .operators import MOVE, plain_type
from .subject import list_between
from .undo import LEFT, Case, measure_left_of, run_with
from .work import Work

__all__ = [
    "Told", "find_flattened", "find_guilty_attributes", "find_other_parameter", "find_other_settings",
    "find_turned_flag",
    "find_untold_attributes", "list_opposite_flags", "list_other_attributes",
]  # fmt: skip

Array = np.ndarray[Any, Any]

Told = Mapping[str, tuple[Any, Any]]
"""Attributes by key: the baseline's value and the target's; None where a side says nothing."""

_TRIED = 8
"""Sets of attributes that are run at most."""


def list_opposite_flags(mine: Operator, theirs: Operator) -> dict[str, tuple[str, Any, Any]]:
    """Return the flags that two frameworks' operators are told otherwise, of which the target's says the opposite by
    another name: that name, and both values as the baseline's has them."""
    found: dict[str, tuple[str, Any, Any]] = {}
    for key, names in _OPPOSITES.items():
        other = next((name for name in names if isinstance(theirs.attributes.get(name), (bool, int))), "")
        own = mine.attributes.get(key)
        if other and isinstance(own, (bool, int)) and bool(own) == bool(theirs.attributes[other]):
            found[key] = other, own, type(own)(not own)
    return found


_OPPOSITES = {"count_include_pad": ("exclude-pad", "exclusive")}
"""Flags, and what says the opposite elsewhere: OpenVINO, Paddle."""


def list_other_attributes(mine: Operator, theirs: Operator, axes: tuple[int, int] | None) -> Told:
    """Return the attributes that two operators of one type are told otherwise. axes: how many there are of what is read
    and of the result; None where that is not known."""
    found: dict[str, tuple[Any, Any]] = {}
    for key in sorted({*mine.attributes, *theirs.attributes} - {FLATTENS}):
        first, second = mine.attributes.get(key), theirs.attributes.get(key)
        if None in (first, second) and says_nothing(key, second if first is None else first):
            continue
        if (
            first != second
            and not _name_same_axes(mine.op_type, key, first, second, axes)
            and not _cuts_differently(mine, first, second)
        ):
            found[key] = first, second
    return found


def find_flattened(mine: Operator, theirs: Operator, axes: tuple[int, int] | None) -> dict[str, Any]:
    """Return the axes over which one of two takes its shares, as it did before opset 13; {} where it is all the
    same."""
    sides = [(one, one.attributes.get(FLATTENS)) for one in (mine, theirs)]
    if sides[0][1] == sides[1][1] or _is_last(mine.attributes.get("axis"), axes):
        return {}
    told = [say("axis_and_behind", axis=str(one.attributes.get("axis"))) if own else
            str(one.attributes.get("axis")) for one, own in sides]  # fmt: skip
    return {"what": say("an_attribute"), "name": "axis", "base": told[0], "target": told[1]}


_OF_ITS_RESULT = frozenset({"OneHot", "Unsqueeze"})
"""Operators that count axes of what they give."""


def _cuts_differently(moves: Operator, first: Any, second: Any) -> bool:
    """Return whether an operator that only moves elements moves another number of them in the target. It does not
    choose how many it reads: an earlier operator divided the work differently, so this is no fault of its own."""
    if plain_type(moves.op_type) not in MOVE:
        return False
    if not (isinstance(first, (list, tuple)) and isinstance(second, (list, tuple)) and len(first) == len(second) > 1):
        return False
    whole = all(isinstance(one, (int, np.integer)) and one > 0 for one in (*first, *second))
    return whole and math.prod(first) != math.prod(second)


def _name_same_axes(op_type: str, key: str, first: Any, second: Any, axes: tuple[int, int] | None) -> bool:
    """Return whether two attributes name the same axes, counted from either end."""
    rank = axes[op_type in _OF_ITS_RESULT] if axes is not None and key in ("axis", "axes") else 0
    several = [list(one) if isinstance(one, (list, tuple)) else [one] for one in (first, second)]
    if not rank or not all(isinstance(axis, int) for one in several for axis in one):
        return False
    return [axis % rank for axis in several[0]] == [axis % rank for axis in several[1]]


def _is_last(axis: Any, axes: tuple[int, int] | None) -> bool:
    """Return whether no axis comes after one; axes: see ``list_other_attributes``."""
    return axis == -1 or (axes is not None and axes[0] > 0 and isinstance(axis, int) and axis % axes[0] == axes[0] - 1)


def find_guilty_attributes(case: Case | None, name: str, told: Told) -> dict[str, Any]:
    """Return the attribute that makes the error, or the fewest where several leave far less than one; the first where
    no run can tell, with None as what is left; {} where none makes it, or there is none. name: the tensor whose
    operator of a region it is."""
    if not told:
        return {}
    put = {key: pair[1] for key, pair in told.items()}  # None: left out, as the target leaves it out
    lefts = {key: _measure_left(case, name, {key: put[key]}) for key in [*put][:_TRIED]} if case else {}
    known = {key: left for key, left in lefts.items() if left is not None}
    if case is not None and not known and len(told) > 1:  # none of them without the others
        every = _measure_left(case, name, put)
        if every is not None and every <= LEFT:
            return {**_describe(told), "left": every}
    if case is None or not known:
        return {**_describe(dict([*told.items()][:1])), "left": None}
    chosen = [min(known, key=lambda key: known[key])]
    least = known[chosen[0]]
    rounded = SEVERAL * np.finfo(np.float32).eps * float(np.linalg.norm(case.exact[np.isfinite(case.exact)]))
    if len(known) > 1 and least * case.own > rounded:
        much = LEFT * min(least, 1.0)
        every = _measure_left(case, name, {key: put[key] for key in known})
        if every is not None and every <= much:
            chosen, least = [*known], every
            for key in known:  # without one that does nothing beside the others
                fewer = [one for one in chosen if one != key]
                left = _measure_left(case, name, {one: put[one] for one in fewer})
                if left is not None and left <= much:
                    chosen, least = fewer, left
    if least <= LEFT:
        return {**_describe({key: told[key] for key in chosen}), "left": least}
    if len(known) < len(told):
        return {**_describe({key: pair for key, pair in told.items() if key not in known}), "left": None}
    case.refuted["files_differ"] = least
    return {}


def find_other_settings(case: Case) -> dict[str, Any]:
    """Return what a module is told otherwise, inside of which both sides make a result by whatever operators, and with
    which the baseline's makes what the target gave; {} where none does, or that cannot be run."""
    baseline, target = case.subject.operators()
    row = case.subject.row_of[case.name]
    paths = [one.rpartition("/")[0] for one in (case.name, row.target_name)]
    if target is None or not all(paths) or not takes_attributes(baseline):
        return {}
    mine, theirs = baseline.operator(paths[0]), target.operator(paths[1])
    if mine is None or theirs is None or mine.op_type != theirs.op_type:
        return {}
    told = dict(list_other_attributes(mine, theirs, None))
    ours, others = ({key.rpartition(".")[2]: value for key, value in one.parameters.items()} for one in (mine, theirs))
    told |= {key: (ours.get(key), others.get(key)) for key in sorted(ours.keys() ^ others.keys())}
    found = find_guilty_attributes(case, paths[0], told)
    return {**found, "name": f"{found['name']} ({mine.op_type} {paths[0]})"} if found.get("left") is not None else {}


def find_turned_flag(case: Case, most: float) -> dict[str, Any]:
    """Return a flag of an operator of the region with which turned the baseline's makes what the target gave by other
    operators, up to a part of the error, as an attention that looks back only; {} where none does."""
    baseline = case.subject.operators()[0]
    flags = (
        (meta, key, value) for meta in case.subject.region_of.get(case.name, ())
        for key, value in getattr(baseline.operator(meta.name), "attributes", {}).items() if isinstance(value, bool)
    )  # fmt: skip
    for meta, key, value in itertools.islice(flags, _TRIED):
        left = _measure_left(case, meta.name, {key: not value})
        if left is not None and left <= most:
            told = _describe({key: (value, not value)})
            return {**told, "name": f"{key} ({meta.given_by or meta.op_type} {meta.name})", "left": left}
    return {}


def find_other_parameter(case: Case, most: float, work: Work) -> dict[str, Any]:
    """Return the parameter with which the baseline's operators make what others of the target's gave, up to a part of
    the error: an attribute, or a single number that they read or compute; {} where none does.

    What is tried is what the target's operators are told, their schemas' defaults where nothing is said, by the same
    name first, and the single numbers that they read. Raises work.Ended."""
    subject, (baseline, target) = case.subject, case.subject.operators()
    there = subject.row_of[case.name].target_name
    names = (there, *list_between(subject, there)) if there in subject.targets else (there,)
    theirs = [one for name in names if target is not None and (one := target.operator(name)) is not None]
    region = [(meta, one) for meta in subject.region_of.get(case.name, ()) if (one := baseline.operator(meta.name))]
    shared = {pair for _, one in region for pair in _list_numbers(one)}
    held = dict(pair for one in theirs for pair in _list_numbers(one) if pair not in shared)
    held |= {key: value for one in theirs for key, value in one.attributes.items()}
    tried = [*_list_exchanged_numbers(case, region, held), *_list_exchanged_attributes(case, region, held)]
    for told, measure in tried[: min(2 * _TRIED, work.runs)]:
        work.go_on()
        left = measure()
        if left is not None and left <= most:
            return {**told, "left": left}
    return {}


_Trial = tuple[dict[str, Any], Callable[[], float | None]]
"""What is told of an exchange, and what measures the part of the error that it leaves."""


def _list_exchanged_attributes(
    case: Case, region: Sequence[tuple[TensorMeta, Operator]], held: Mapping[str, Any]
) -> Iterator[_Trial]:
    """Yield an attribute of one of a region's operators with what the target's are told by the same name, or as a
    fraction by any. held: what these are told, and the numbers that they read, by name."""
    for meta, one in region:
        for key, value in one.attributes.items():
            others = [held[key]] if key in held and type(held[key]) is type(value) else []
            others += [other for other in held.values() if isinstance(value, float) and isinstance(other, float)]
            where = f" ({meta.given_by or meta.op_type} {meta.name})" if len(region) > 1 else ""
            for text, other in {repr(other): other for other in others}.items():
                if text != repr(value):
                    told = {**_describe({key: (value, other)}), "name": f"{key}{where}"}
                    yield told, functools.partial(_measure_left, case, meta.name, {key: other})


def _list_exchanged_numbers(
    case: Case, region: Sequence[tuple[TensorMeta, Operator]], held: Mapping[str, Any]
) -> Iterator[_Trial]:
    """Yield the same of single numbers: constants that the region reads, and what it computes inside."""
    read = parameters_of(case.subject, case.name)
    arrays = {key: read[key] for _, one in region for key, _ in _list_numbers(one) if key in read}
    inner = [meta.name for meta, _ in region if meta.name != case.name]
    made = run_with(case, {}, *inner) if inner else {}
    arrays |= {key: one for key, one in made.items() if key in inner and one.size == 1 and one.dtype.kind in "fiu"}
    for key, array in arrays.items():
        value = array.item()
        for other, number in held.items():
            if _is_number(number) and isinstance(number, float) == isinstance(value, float) and number != value:
                told = {"what": say("a_constant"), "name": say("read_as", name=key, other=other)}
                told |= {"base": shorten_floats(value), "target": shorten_floats(number)}
                yield told, functools.partial(_measure_left_with, case, key, np.full_like(array, number))


def _measure_left_with(case: Case, name: str, other: np.ndarray[Any, Any]) -> float | None:
    undone = case.without_error_of({name: other})
    return None if undone is None else measure_left_of(case, undone)


def _list_numbers(operator: Operator) -> list[tuple[str, Any]]:
    """Return the constants of one number that an operator reads, by name."""
    read = ((key, np.asarray(value)) for key, value in operator.parameters.items())
    return [(key, value.item()) for key, value in read if value.size == 1 and value.dtype.kind in "fiu"]


def find_untold_attributes(case: Case, most: float) -> dict[str, Any]:
    """Return numbers that one framework's operator is told and another's has no word for, as a softplus' beta: with
    these the baseline's makes what the target gave, up to a part of the error. {} where none does.

    What is tried is what the operator says where nothing is said, and what the target's reads in their place."""
    baseline, target = case.subject.operators()
    mine, row = baseline.operator(case.name), case.subject.row_of[case.name]
    theirs = target.operator(row.target_name) if target is not None else None
    if mine is None or theirs is None or not case.subject.two_frameworks:
        return {}
    own = {key: value for key, value in mine.attributes.items() if _is_number(value)}
    best, least = dict[str, Any](), most
    for put in _list_in_place(own, mine, theirs):
        left = _measure_left(case, case.name, put)
        if left is not None and left <= least:
            best, least = put, left
    return {**_describe({key: (own[key], value) for key, value in best.items()}), "left": least} if best else {}


def _list_in_place(own: Mapping[str, Any], mine: Operator, theirs: Operator) -> Iterator[dict[str, Any]]:
    """Yield sets of other numbers, the smallest first."""
    numbers = [value for value in theirs.attributes.values() if isinstance(value, float)]  # a flag is no number
    numbers += [float(one.reshape(-1)[0]) for one in map(np.asarray, theirs.parameters.values())
                if one.size == 1 and one.dtype.kind == "f"]  # fmt: skip
    usual = {key: mine.defaults[key] for key in own if mine.defaults.get(key, own[key]) != own[key]}
    found = [{key: value} for key, value in usual.items()]
    found += [usual] if len(usual) > 1 else []
    if len(numbers) == len(own):
        found.append({key: value for (key, held), value in zip(own.items(), numbers, strict=True) if held != value})
    found += [{key: value} for key, held in own.items() for value in numbers if value != held]
    yield from [put for put in found if put][:_TRIED]


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _measure_left(case: Case, name: str, attributes: Mapping[str, Any]) -> float | None:
    """Return the part of the error that is left where the baseline's operator with other attributes is taken off; None
    where that cannot be run."""
    own = list_source_names(case.subject)
    plainly, otherwise = make_exact_evaluator(case), make_exact_evaluator(case, {own.get(name, name): attributes})
    if plainly is not None and otherwise is not None:
        plain, got = plainly({}), otherwise({})
    elif takes_attributes(case.subject.operators()[0]):
        read = {source: case.given(source) for source in case.subject.sources(case.name)}
        put = {source: value for source, value in read.items() if value is not None}
        inside = name not in case.subject.meta_of  # a module, that may compute by other operators then
        other = run_with(case, put, told={name: attributes}, every=inside)
        last = [value for key, value in other.items() if inside and key.startswith(f"{name}/")]
        last = [value for value in last if value.shape == case.wrong.shape]
        plain, got = run_with(case, put).get(case.name), last[-1] if last else other.get(case.name)
    else:
        return None
    if plain is None or got is None or not plain.shape == got.shape == case.wrong.shape:
        return None
    plain, got = (one.astype(np.float64) for one in (plain, got))
    if measure_left_of(case, plain) > _REPRODUCED:  # it is not computed as it ran
        return None
    with np.errstate(all="ignore"):
        undone = case.wrong - (got - plain)
    alike = ~np.isfinite(case.wrong) & ((case.wrong == got) | (np.isnan(case.wrong) & np.isnan(got)))
    return measure_left_of(case, np.where(alike, plain, undone))  # NaN less NaN would undo nothing


_REPRODUCED = 0.25
"""Part of an operator's own error by which computing it once more may differ from what ran."""


def _describe(told: Told) -> dict[str, Any]:
    base, target = (_list_values([pair[side] for pair in told.values()]) for side in (0, 1))
    return {"what": say("an_attribute"), "name": ", ".join(told), "base": base, "target": target}


def _list_values(values: Sequence[Any]) -> str:
    if all(one is None for one in values):
        return say("is_missing")
    if all(isinstance(one, np.ndarray) for one in values):
        return say("is_there")
    return ", ".join("-" if one is None else str(shorten_floats(one)) for one in values)
