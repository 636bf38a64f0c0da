"""The constants of a stretch of operators in two files, whatever operators either has there."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..records import Operator
from .moved import find_first_difference
from .operators import plain_type
from .subject import Subject, list_between
from .undo import Case

__all__ = ["ONE", "collect_constants", "find_only_other_constant", "hold_same_numbers", "list_forms"]

Array = np.ndarray[Any, Any]

ONE = frozenset({"Identity", "Cast"})
"""Operators that read one tensor, which an engine puts anywhere."""


def collect_constants(
    subject: Subject, name: str, mine: Operator, theirs: Operator
) -> tuple[dict[str, Array], dict[str, Array]]:
    """Return the arrays of floats that both sides' operators read in a tensor's region, by name."""
    baseline, target = subject.operators()
    own = {} if plain_type(theirs.op_type) in ONE else {key: np.asarray(v) for key, v in mine.parameters.items()}
    there = {} if plain_type(mine.op_type) in ONE else {key: np.asarray(v) for key, v in theirs.parameters.items()}
    partner = {base: target_name for target_name, base in subject.partner.items()}
    for meta in subject.region_of.get(name, ()):
        found = baseline.operator(meta.name)
        own |= {} if found is None else {key: np.asarray(value) for key, value in found.parameters.items()}
        found = target.operator(partner[meta.name]) if target is not None and meta.name in partner else None
        there |= {} if found is None else {key: np.asarray(value) for key, value in found.parameters.items()}
    there_too = partner.get(name, name)
    for made in (there_too, *list_between(subject, there_too)) if there_too in subject.targets else ():
        found = target.operator(made) if target is not None else None
        there |= {} if found is None else {key: np.asarray(value) for key, value in found.parameters.items()}
    own = {key: value for key, value in own.items() if value.dtype.kind == "f" and value.size > 1}
    spare = {key: value for key, value in there.items() if value.dtype.kind == "f" and value.size > 1}
    return own, spare


def list_forms(array: Array, shape: tuple[int, ...]) -> Iterator[Array]:
    """Yield an array with its axes in each order that gives a shape."""
    for order in itertools.permutations(range(array.ndim)) if array.ndim <= 4 else [tuple(range(array.ndim))]:
        if (turned := array.transpose(order)).shape == shape:
            yield turned


def hold_same_numbers(first: Array, second: Array) -> bool:
    """Return whether two arrays hold the same, also where one is the other's transpose or has axes of 1 more."""
    if first.size != second.size:
        return False
    b, t = (np.squeeze(array).astype(np.float64) for array in (first, second))
    turned = [t, t.T] if b.ndim == 2 else [t]
    return any(b.shape == one.shape and np.allclose(one, b, rtol=2e-3, atol=1e-6) for one in turned)


def find_only_other_constant(case: Case, mine: Operator, theirs: Operator) -> dict[str, Any]:
    """Return the constant of a stretch that is another one in the target's file, where all others there have their
    equal, no factors of its channels make the one of the other, and nothing can be run; {} elsewhere."""
    subject, name = case.subject, case.name
    own, spare = collect_constants(subject, name, mine, theirs)
    apart = dict(own)
    for key, value in own.items():
        if same := next((other for other, one in spare.items() if _is_turned(value, one)), ""):
            del apart[key], spare[same]
    if len(apart) != 1 or len(spare) != 1 or len(own) < 2 or case.again({}) is not None:
        return {}
    [(key, value)], [there] = apart.items(), spare.values()
    forms = sorted(list_forms(there, value.shape), key=lambda one: float(np.linalg.norm(one - value)))
    if not forms or _are_factors(value, forms[0]):
        return {}
    holders = (meta for meta in subject.region_of[name] if key in _parameters_of(subject, meta.name))
    owner = next(holders, subject.meta_of[name])
    inside = {"owner": owner.name, "owner_type": owner.op_type, "seen": name} if owner.name != name else {}
    return {**found, **inside} if (found := find_first_difference(key, value, forms[0])) else {}


def _parameters_of(subject: Subject, name: str) -> Any:
    return getattr(subject.operators()[0].operator(name), "parameters", {})


def _is_turned(value: Array, other: Array) -> bool:
    """Return whether an array is another with its axes in some order, but for rounding."""
    if hold_same_numbers(value, other):
        return True
    return any(np.allclose(one, value, rtol=2e-3, atol=1e-6) for one in list_forms(other, value.shape))


def _are_factors(value: Array, other: Array) -> bool:
    """Return whether one array is the other but for a factor of each place of an axis: what follows was folded in."""
    for axis in range(value.ndim):
        others = tuple(one for one in range(value.ndim) if one != axis)
        squares = np.sum(value * value, axis=others, keepdims=True)
        factor = np.sum(value * other, axis=others, keepdims=True) / np.where(squares > 0, squares, 1)
        if np.allclose(other, factor * value, rtol=2e-3, atol=1e-6 * float(np.abs(other).max())):
            return True
    return False
