"""Whole numbers that a target computes otherwise: wrapped around to a narrower type, or divided in float32.

Each is told where the target's own numbers come out of computing the baseline's operator once more that way.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from ..numbers.blocks import widen
from ..protocols import Operators
from .evaluators import list_source_names, make_exact_evaluator
from .introduced import Alone
from .subject import Subject
from .undo import Case

__all__ = [
    "count_moved", "find_moved", "find_whole_in_float32", "find_wrapped_integers", "has_whole_numbers_alone",
]  # fmt: skip

Array = np.ndarray[Any, Any]


def has_whole_numbers_alone(subject: Subject, name: str) -> bool:
    """Return whether operators read and make whole numbers or truth values alone, so that nothing is rounded there."""
    rows = [row for one in subject.sources(name) if (row := subject.row_of.get(one)) is not None]
    types = [meta.dtype for meta in subject.region_of.get(name, ())]
    types += [row.comparison.base.dtype if row.comparison is not None else "" for row in rows]
    return bool(types) and all(one.lstrip("u").startswith(("int", "bool")) for one in types)


def find_wrapped_integers(subject: Subject, alone: Alone, name: str) -> dict[str, Any]:
    """Return evidence that every whole number that differs is what a narrower type makes of the exact one; {} where
    none does.

    Either the exact results are wrapped around to that type, or are the end that a processor makes of every number
    beyond it, or those of the operator whose constants are cut off at its ends, as OpenVINO cuts them: it is computed
    once more with these, in whole numbers.
    """
    exact, wrong = alone.exact_of(name), alone.wrong_of(name)
    if exact is None or wrong is None or exact.shape != wrong.shape or {exact.dtype.kind, wrong.dtype.kind} - {*"iu"}:
        return {}
    exact, wrong = np.asarray(exact), np.asarray(wrong)
    differ = exact != wrong
    largest = max(exact[differ].tolist(), key=abs, default=0)
    case = Case(subject=subject, alone=alone, name=name, exact=exact, wrong=wrong)
    for kind in (np.int32, np.uint32, np.int16, np.uint16, np.int8, np.uint8):
        if exact.dtype.itemsize <= np.dtype(kind).itemsize:
            continue
        evidence = {"type": np.dtype(kind).name, "largest": largest, "count": int(differ.sum()), "elements": exact.size}
        if np.array_equal(exact.astype(kind), wrong):  # by value, in whatever type the target holds it
            return evidence
        ends, end = np.iinfo(kind), np.unique(wrong[differ]).tolist()
        beyond = (exact[differ] < ends.min) | (exact[differ] > ends.max)
        if beyond.all() and beyond.size > 1 and len(end) == 1 and end[0] in (ends.min, ends.max):
            return {**evidence, "end": end[0]}
        compute = make_exact_evaluator(case)
        cut = {
            key: held for key, value in _list_integer_constants(subject, name).items()
            if not np.array_equal(held := np.clip(value, ends.min, ends.max), value)
        }  # fmt: skip
        found = compute(cut) if compute is not None and cut else None
        if found is not None and np.array_equal(found.astype(kind), wrong):
            key, held = next(iter(cut.items()))
            value = _list_integer_constants(subject, name)[key]
            place = np.argmax(np.abs(value.astype(np.float64) - held))
            return {**evidence, "constant": key, "value": int(value.flat[place]), "cut": int(held.flat[place])}
    return {}


def find_whole_in_float32(subject: Subject, alone: Alone, name: str) -> dict[str, Any]:
    """Return evidence that a division of whole numbers, or its remainder, was computed in float32: the target's numbers
    are those that float32 gives, of the inputs as they are or wrapped around to 32 bits; {} where they are not. One
    inside of a region is computed so alone, and what follows it in whole numbers."""
    exact, wrong = alone.exact_of(name), alone.wrong_of(name)
    operators = None if subject.operators_alone is None else subject.operators_alone()
    if exact is None or wrong is None or exact.shape != wrong.shape or operators is None:
        return {}
    case = Case(subject=subject, alone=alone, name=name, exact=exact, wrong=wrong)
    sources = list_source_names(subject)
    made = {output: one for one in operators.operators for output in one.outputs}
    for inner in (meta.name for meta in subject.region_of.get(name, ())):
        one = made.get(sources.get(inner, inner))
        if one is None or one.op_type not in _IN_FLOAT32 or len(one.inputs) != 2:
            continue
        given = [_find_whole_numbers(case, operators, key) for key in one.inputs]
        follow = None if inner == name else make_exact_evaluator(case)
        if given[0] is None or given[1] is None or (inner != name and follow is None):
            continue
        for held in (given[0], given[0].astype(np.int32)):
            if not any(_gives(inner, each, follow, given[0].dtype, wrong)
                       for each in _divide_in_float32(one.op_type, held, given[1])):  # fmt: skip
                continue
            differ = int((exact != wrong).sum())
            largest = max(given[0].ravel().tolist(), key=abs, default=0)
            told: dict[str, Any] = {"count": differ, "elements": exact.size, "largest": largest}
            told |= {} if inner == name else {"divides": inner}
            return told if np.array_equal(held, given[0]) else {**told, "type": "int32"}
    return {}


def _divide_in_float32(op_type: str, left: Array, right: Array) -> list[Array]:
    a, b = left.astype(np.float32), right.astype(np.float32)
    with np.errstate(all="ignore"):
        return [found for make in _IN_FLOAT32[op_type] if np.isfinite(found := make(a, b)).all()]


def _gives(
    inner: str, result: Array, follow: Callable[[Mapping[str, Array]], Array | None] | None, kind: Any, wrong: Array
) -> bool:  # fmt: skip
    """Return whether a result, with what the region makes of it, is what the target gave."""
    found = result if follow is None else follow({inner: result.astype(kind)})
    return found is not None and np.array_equal(found.astype(wrong.dtype), wrong)


def _find_whole_numbers(case: Case, operators: Operators, key: str) -> Array | None:
    """Return the whole numbers that an operator of a region reads: constants, given, or of other operators there."""
    names = {own: row for row, own in list_source_names(case.subject).items()}
    found = operators.constants[key] if key in operators.constants else case.given(names.get(key, key))
    if found is None and (compute := make_exact_evaluator(dataclasses.replace(case, name=names.get(key, key)))):
        found = compute({})
    return None if found is None or np.asarray(found).dtype.kind not in "iu" else np.asarray(found)


_IN_FLOAT32: Mapping[str, tuple[Callable[[Array, Array], Array], ...]] = {
    "Div": (lambda a, b: np.trunc(a / b), lambda a, b: np.floor(a / b)),
    "Mod": (lambda a, b: a - b * np.floor(a / b), lambda a, b: a - b * np.trunc(a / b), np.mod, np.fmod),
}
"""How engines divide whole numbers in float32, by the operator."""


def _list_integer_constants(subject: Subject, name: str) -> dict[str, Array]:
    """Return the whole numbers among the constants that a region's operators read."""
    replacer = subject.operators()[0]
    found = {
        key: np.asarray(value) for meta in subject.region_of.get(name, ())
        if (operator := replacer.operator(meta.name)) is not None for key, value in operator.parameters.items()
    }  # fmt: skip
    return {key: value for key, value in found.items() if value.dtype.kind in "iu" and value.size}


def count_moved(one: Array, other: Array) -> int:
    """Return in how many places two decisions are not the same; of other shapes, by how many rows at least."""
    if one.shape != other.shape:
        return max(1, abs(one.size - other.size))
    return int(find_moved(one, other).sum())


def find_moved(one: Array, other: Array) -> Any:
    """Return where two decisions are not the same; of floats that are whole numbers, those that are another one."""
    if one.dtype.kind == "f" and other.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            return np.abs(widen(one) - widen(other)) >= 0.5
    return one != other
