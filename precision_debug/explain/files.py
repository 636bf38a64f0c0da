"""What the operators of two files do not share: a constant, an attribute, what they read."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from typing import Any

import numpy as np

from ..numbers.precisions import promised
from ..reasons import say
from ..records import Operator, Row, TensorMeta
from .operators import MOVE, plain_type
from .subject import Subject

__all__ = ["files_differ", "other_weight"]

Array = np.ndarray[Any, Any]
Evidence = dict[str, Any]


def files_differ(subject: Subject, name: str) -> Evidence:
    """A constant or an attribute that the two sides' operators do not share; {} where they are the same operator.

    Only where both sides are to compute the same: with one file, a target's rounded constants are no difference.
    """
    baseline, target = subject.operators()
    if not subject.two_files or target is None:
        return {}
    if subject.quantised_file and promised(subject.precision).computes != "int8":
        return {}  # a file that was quantised differs in every constant; a mode that quantises has it from its own file
    rows = {row.name: row for row in subject.rows if row.comparison is not None}  # those of other shapes, too
    own = (subject.meta_of[name],) if name in rows and name in subject.meta_of else ()
    for meta in reversed(subject.region_of.get(name, own)):
        row = rows.get(meta.name)
        there = row.target_name if row is not None else meta.name
        held = _in_files(subject, meta, there)
        mine, theirs = held or (baseline.operator(meta.name), target.operator(there))
        if mine is None or theirs is None:
            continue
        if row is None and mine.op_type != theirs.op_type:
            continue  # inside a fused region equal names do not tell that the operators are the same
        if subject.two_frameworks and held is None:
            difference = _other_constant(mine, theirs) or _other_attribute(mine, theirs)
        else:
            difference = _difference(mine, theirs, meta.name)
        if held is not None:
            difference = difference or _reads_others_there(subject, meta.name, *held)
        difference = difference or _reads_others(subject, meta, row) or _put_between(subject, name, row)
        if difference:
            return difference if meta.name == name else _of_part(difference, meta)
    return {}


def _of_part(difference: Evidence, meta: TensorMeta) -> Evidence:
    """With the operator inside a fused region that it is of: the region is called after its last one."""
    if difference["what"] not in {say("an_attribute"), say("a_constant")}:
        return difference
    return {**difference, "name": f"{difference['name']} ({meta.op_type} {meta.name})"}


def _in_files(subject: Subject, meta: TensorMeta, there: str) -> tuple[Operator, Operator] | None:
    """A tensor's operators as two files of one format have them, where engines have other words for one operator; None
    where they are not of one kind: a file may have several where the other has one."""
    if subject.in_files is None:
        return None
    running = subject.targets.get(there)
    names = dict.fromkeys((running.origin if running is not None else "", there, meta.name))
    found = (subject.in_files(meta.origin or meta.name, name) for name in names if name)
    return next((pair for pair in found if pair is not None and pair[0].op_type == pair[1].op_type), None)


def other_weight(subject: Subject, name: str) -> Evidence:
    """A weight that the target's file holds rounded, whatever its backend calls the operator; {} where none is."""
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
            b, t = weight.astype(np.float64).reshape(-1), others[0].astype(np.float64).reshape(-1)
            apart = b != t
            if apart.any() and np.allclose(t, b, rtol=2.0**-8, atol=2.0**-24):
                place = int(np.argmax(np.abs(b - t)))
                return {
                    "what": say("a_constant"), "name": key, "count": int(apart.sum()), "elements": int(b.size),
                    "at": [int(i) for i in np.unravel_index(place, weight.shape)], "base": float(b[place]),
                    "target": float(t[place]),
                }  # fmt: skip
    return {}


def _reads_others(subject: Subject, meta: TensorMeta, row: Row | None) -> Evidence:
    """That the target's operator reads other tensors, or in another order; {} where that is not known."""
    theirs = subject.targets.get(row.target_name) if row is not None else None
    if theirs is None or subject.two_frameworks or any(name not in subject.partner for name in theirs.inputs):
        return {}
    mapped = tuple(subject.partner[name] for name in theirs.inputs)
    gone = [name for name in meta.inputs if name not in subject.row_of]
    # what the target's file no longer has may be folded into something else, but not where it reads some of the rest
    fewer = bool(mapped) and {*mapped} < {*meta.inputs} and theirs.op_type == meta.op_type
    if mapped == tuple(meta.inputs) or (gone and not fewer):
        return {}
    what = {"what": say("an_input"), "name": meta.name}
    return {**what, "base": ", ".join(meta.inputs), "target": ", ".join(mapped)}


def _reads_others_there(subject: Subject, name: str, mine: Operator, theirs: Operator) -> Evidence:
    """The same of two files of which engines keep the names; {} where what either reads was not compared."""
    mapped = tuple(subject.partner.get(read, "") for read in theirs.reads)
    if mapped == mine.reads or not {*mapped, *mine.reads} <= subject.row_of.keys():
        return {}
    return {"what": say("an_input"), "name": name, "base": ", ".join(mine.reads), "target": ", ".join(mapped)}


def _put_between(subject: Subject, name: str, row: Row | None) -> Evidence:
    """Operators of the target's file alone that stand before one, a cast to a narrower type above all; {} where there
    are none, or where the target's arithmetic puts in its own."""
    if row is None or row.name != name or subject.two_frameworks or promised(subject.precision).narrow:
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
    own = Counter((meta.op_type, meta.dtype) for meta in subject.region_of.get(name, ()))
    more = [meta for meta in between if not own[meta.op_type, meta.dtype] and _acts(meta.op_type)]
    if not more:
        return {}
    read = ", ".join(sorted(given)) or "constants"
    told = ", ".join(f"{meta.op_type} {meta.name} ({meta.dtype})" for meta in reversed(more))
    return {"what": say("an_input"), "name": name, "base": read, "target": f"{told} of {read}"}


def _other_constant(mine: Operator, theirs: Operator) -> Evidence:
    """A constant that the other framework's operator has, too, with other values; {} where each has its equal, or where
    one of them has a batch norm's folded into its own, which are then no constants of the other."""
    if _is_batch_norm(mine) != _is_batch_norm(theirs):
        return {}
    own = {key: np.asarray(value) for key, value in mine.parameters.items()}
    others = [array for array in map(np.asarray, theirs.parameters.values()) if array.dtype.kind == "f"]
    own = {key: array for key, array in own.items() if array.dtype.kind == "f" and array.size > 1}
    apart = {key: array for key, array in own.items() if not any(_same_numbers(array, one) for one in others)}
    spare = [one for one in others if not any(_same_numbers(array, one) for array in own.values())]
    for key, array in apart.items():
        one = next((one for one in spare if one.shape == array.shape), None)
        if one is not None:
            return _where_apart(key, array, one)
    return {}


def _is_batch_norm(operator: Operator) -> bool:
    return "batchnorm" in operator.op_type.lower().replace("_", "")


def _acts(op_type: str) -> bool:
    """Whether an operator does more to numbers than to move them; a cast rounds, and cuts off."""
    return "cast" in op_type.lower() or plain_type(op_type) not in MOVE


def _other_attribute(mine: Operator, theirs: Operator) -> Evidence:
    """An attribute, or the only number that each of two frameworks' operators reads, with another value; {} where what
    both say is the same."""
    own, others = _numbers_of(mine), _numbers_of(theirs)
    for key in sorted((own.keys() & others.keys()) | ((own.keys() | others.keys()) & _OFF)):
        b, t = own.get(key, (0.0,)), others.get(key, (0.0,))
        if len(b) == len(t) and not np.allclose(t, b, rtol=2e-3, atol=1e-9):
            return {"what": say("an_attribute"), "name": key, "base": str(_short(b)), "target": str(_short(t))}
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


_OFF = {"exclusive", "reverse"}
"""Flags that are off where nothing is said."""

_SAME_WORD = {"eps": "epsilon", "stride": "strides", "dilation": "dilations", "groups": "group"}


def _numbers_of(operator: Operator) -> dict[str, tuple[float, ...]]:
    """Attributes that are numbers, in words that frameworks share; axes are counted from either end."""
    found: dict[str, tuple[float, ...]] = {}
    for key, value in operator.attributes.items():
        several = value if isinstance(value, (tuple, list)) else (value,)
        if "ax" not in key and several and all(isinstance(one, (bool, int, float)) for one in several):
            found[_SAME_WORD.get(key, key)] = tuple(float(one) for one in several)
    begin, end = found.pop("pads_begin", None), found.pop("pads_end", None)
    return {**found, "pads": (*begin, *end)} if begin is not None and end is not None else found


def _short(values: tuple[float, ...]) -> Any:
    whole = [int(one) if one == int(one) else one for one in values]
    return whole[0] if len(whole) == 1 else whole


def _same_numbers(first: Array, second: Array) -> bool:
    """Whether two arrays hold the same, also where one is the other's transpose or has axes of 1 more."""
    if first.size != second.size:
        return False
    b, t = (np.squeeze(array).astype(np.float64) for array in (first, second))
    turned = [t, t.T] if b.ndim == 2 else [t]
    return any(b.shape == one.shape and np.allclose(one, b, rtol=2e-3, atol=1e-6) for one in turned)


def _difference(mine: Operator, theirs: Operator, name: str) -> Evidence:
    if mine.op_type != theirs.op_type:
        return {"what": say("an_operator"), "name": name, "base": mine.op_type, "target": theirs.op_type}
    for key in sorted({*mine.attributes, *theirs.attributes}):
        first, second = mine.attributes.get(key), theirs.attributes.get(key)
        if first != second:
            return {"what": say("an_attribute"), "name": key, "base": str(first), "target": str(second)}
    ours, others = list(mine.parameters.items()), list(theirs.parameters.items())
    if len(ours) != len(others):
        more = dict(ours if len(ours) > len(others) else others)
        fewer = dict(others if len(ours) > len(others) else ours)
        extra = next((key for key in more if key not in fewer), "")
        there, gone = say("is_there"), say("is_missing")
        first, second = (there, gone) if len(ours) > len(others) else (gone, there)
        return {"what": say("a_constant"), "name": extra, "base": first, "target": second}
    for (key, first), (_, second) in zip(ours, others, strict=True):
        b, t = np.asarray(first), np.asarray(second)
        if b.shape != t.shape:
            turned = _transposed(key, b, t) if b.dtype.kind == "f" and t.dtype.kind == "f" else {}
            return turned or {
                "what": say("a_constant"),
                "name": key,
                "base": f"shape {list(b.shape)}",
                "target": f"shape {list(t.shape)}",
            }
        found = _where_apart(key, b, t)
        if found:
            return found
    return {}


def _transposed(key: str, b: Array, t: Array) -> Evidence:
    """That one array is the other with its axes in another order; {} where it is not, or where both are the same so."""
    for order in itertools.permutations(range(b.ndim)) if 2 <= b.ndim <= 4 and b.size == t.size else ():
        turned = b.transpose(order)
        if list(order) == sorted(order) or turned.shape != t.shape or not np.allclose(t, turned, rtol=2e-3, atol=1e-6):
            continue
        return {
            "what": say("a_constant"), "name": key, "count": int((b != t).sum()) if b.shape == t.shape else b.size,
            "elements": int(b.size), "at": [], "base": f"shape {list(b.shape)}",
            "target": f"transposed (axes {', '.join(map(str, order))})",
        }  # fmt: skip
    return {}


def _where_apart(key: str, b: Array, t: Array) -> Evidence:
    """The first element that two arrays of one shape do not share; {} where they are the same, or rounded."""
    if b.dtype.kind == "f" and t.dtype.kind == "f":
        b, t = b.astype(np.float64), t.astype(np.float64)
        apart = ~np.isclose(t, b, rtol=2e-3, atol=1e-6 * (float(np.abs(b).max()) if b.size else 0), equal_nan=True)
    else:
        apart = np.asarray(b != t)
    if not apart.any():
        return {}
    if b.dtype.kind == "f" and t.dtype.kind == "f" and (turned := _transposed(key, b, t)):
        return turned
    place = tuple(int(i) for i in np.unravel_index(int(np.argmax(apart)), b.shape)) if b.ndim else ()
    return {
        "what": say("a_constant"), "name": key, "count": int(apart.sum()), "elements": int(b.size), "at": list(place),
        "base": float(b[place]), "target": float(t[place]),
    }  # fmt: skip
