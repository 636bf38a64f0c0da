"""What a constant that two files do not share has otherwise, and where it stands in the baseline: at another place, or
here in another order or size.

A converter that exchanges layers, heads or experts changes no number: the other file has each constant, too.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..numbers.blocks import iterate_blocks
from ..numbers.narrowing import narrow_type, round_values
from ..onnx.types import shorten_floats
from ..pairing.reordered import find_order
from ..pairing.reordered import iterate_blocks as iterate_runs
from ..reasons import say
from ..records import Culprit, Explanation, Operator
from .subject import Subject
from .undo import LEFT, Case, measure_left_of

__all__ = [
    "find_first_difference", "find_read_instead", "find_transposition", "pair_parameters", "with_moved_constants",
]  # fmt: skip

Array = np.ndarray[Any, Any]
Evidence = dict[str, Any]

_SAMPLED = 64
"""Elements by which arrays and parts of them are looked up before they are compared, so that none is copied."""

_TOLD = 6
"""Places of an order that are told."""


def find_transposition(key: str, b: Array, t: Array) -> Evidence:
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


def find_first_difference(key: str, b: Array, t: Array) -> Evidence:
    """Return the first element that two arrays of one shape do not share, or their types, where these read the same
    bytes otherwise; {} where they are the same, or rounded."""
    types = b.dtype.name, t.dtype.name
    if types[0] != types[1] and b.dtype.itemsize == t.dtype.itemsize and b.tobytes() == t.tobytes():
        same = np.array_equal(b.astype(np.float64), t.astype(np.float64), equal_nan=True)
        return {} if same else {"what": say("a_constant"), "name": key, "base": types[0], "target": types[1]}
    b, t = (one.astype(np.float32) if one.dtype.kind == "V" else one for one in (b, t))  # types of few bits
    floats, count, every, place = b.dtype.kind == "f" and t.dtype.kind == "f", 0, 0, 0
    if floats:
        count, every, place = _count_apart(b, t)
    elif (apart := np.asarray(b != t)).any():
        count, place = int(apart.sum()), int(np.argmax(apart))
        every = count
    if not count:
        return {}
    if floats and (turned := find_transposition(key, b, t)):
        return turned
    at = tuple(int(i) for i in np.unravel_index(place, b.shape)) if b.ndim else ()
    return {
        "what": say("a_constant"), "name": key, "count": every, "elements": int(b.size),
        "at": list(at) if b.size > 1 else [], **({"beyond": count} if count < every else {}),
        "base": np.asarray(b[at]).item(), "target": np.asarray(t[at]).item(),
    }  # fmt: skip


def _count_apart(b: Array, t: Array) -> tuple[int, int, int]:
    """Return how many elements of two arrays of floats are apart by more than rounding, how many at all, and the place
    of the first beyond what 16 bits round; nothing where no element is beyond that. Where one side holds numbers of 16
    bits, that is its rounding; else it is float32's, as two ways to fold a constant may have it."""
    sizes = [np.abs(block).max() for _, (block,) in iterate_blocks(b)]
    largest = float(np.max(sizes)) if sizes else 0.0
    step = 4 * float(np.finfo(np.float32).eps)
    coarse, fine, every, place = 0, 0, 0, 0
    held = {(side, name) for side in (0, 1) for name in ("float16", "bfloat16")}
    for first, blocks in iterate_blocks(b, t):
        ours, theirs = pair = tuple(block.astype(np.float64) for block in blocks)
        held = {(at, name) for at, name in held if np.array_equal(round_values(pair[at], narrow_type(name)), pair[at])}
        every += int(np.count_nonzero((ours != theirs) & ~(np.isnan(ours) & np.isnan(theirs))))
        apart = ~np.isclose(theirs, ours, rtol=2e-3, atol=1e-6 * largest, equal_nan=True)
        if not coarse and apart.any():
            place = first + int(np.argmax(apart))
        coarse += int(np.count_nonzero(apart))
        fine += int(np.count_nonzero(~np.isclose(theirs, ours, rtol=step, atol=step * largest / 4, equal_nan=True)))
    return (coarse if held or not coarse else fine), every, place  # what is beyond the wider bound is beyond both


def find_read_instead(
    difference: Evidence, mine: Operator, theirs: Operator, name: str, case: Case | None
) -> Evidence:
    """Return the tensor that one side's operator reads in the place of a constant that the other's alone has, with what
    is left where the baseline's reads the constant, too; {} where none is, or that does not make the error."""
    key, ahead = str(difference["name"]), difference["base"] == say("is_missing")
    has, reads = (theirs, mine) if ahead else (mine, theirs)
    other = dict(zip(has.inputs, reads.inputs, strict=True)).get(key) if len(has.inputs) == len(reads.inputs) else None
    if difference["what"] != say("a_constant") or not other or other not in reads.reads:
        return {}
    sides = (other, say("constant_named", name=key)) if ahead else (say("constant_named", name=key), other)
    told = {"what": say("an_input"), "name": name, "base": sides[0], "target": sides[1]}
    undone = case.without_error_of({other: np.asarray(has.parameters[key])}) if case is not None and ahead else None
    left = None if case is None or undone is None else measure_left_of(case, undone)
    return told if left is None else {**told, "left": left} if left <= LEFT else {}


def with_moved_constants(explanation: Explanation, subject: Subject) -> Explanation:
    """Return the explanation with the place in the baseline's file of each culprit's constant that is the whole of
    another one, or in another order, and with the factor of one that is the same but for its size. Those of the first
    two kinds come in execution order: none of them is wrong by itself, and the first is where to look."""
    moved, scaled = dict[str, Culprit](), dict[str, Culprit]()
    held: dict[Any, list[tuple[str, str]]] = {}
    for plain in explanation.culprits:
        one, pair = _name_scales(subject, plain)
        if one is not plain:
            scaled[one.name] = one
        if (pair := pair or _find_pair(subject, one)) is None:
            continue
        key, base, target = pair
        if (factor := _find_factor(base, target)) is not None:
            told = say("all_times", value=_shorten(one), factor=factor)
            scaled[one.name] = dataclasses.replace(one, evidence={**one.evidence, "target": told})
            continue
        if (found := find_order(base, target)) is not None:
            axis, order = found
            *_, blocks = tuple(order), *iterate_runs(np.array(order))  # the gates of a recurrent layer
            shown = ", ".join(map(str, blocks[:_TOLD])) + (", …" if len(blocks) > _TOLD else "")
            told = say("in_other_order", value=_shorten(one), axis=axis, order=shown)
            if (size := len(order) // len(blocks)) > 1:
                told = say("in_blocks_in_other_order", value=_shorten(one), axis=axis, order=shown, size=size)
        else:
            held = held or _index_constants(subject)
            if not (name := _find_whole(subject, held, key, target)):
                continue
            told = say("all_of_another", value=_shorten(one), name=name)
        moved[one.name] = dataclasses.replace(one, evidence={**one.evidence, "target": told})
    waiting = iter(sorted(moved, key=lambda name: subject.order.get(name, 0)))
    culprits = tuple(
        moved[next(waiting)] if one.name in moved else scaled.get(one.name, one) for one in explanation.culprits
    )
    return dataclasses.replace(explanation, culprits=culprits) if moved or scaled else explanation


def _find_factor(base: Array, target: Array) -> float | None:
    """Return by which one factor every number of the target is the baseline's, but for a rounding of each side; None
    where there is none, or one number alone to tell it by (a variance that is the same in each channel)."""
    if {base.dtype.kind, target.dtype.kind} != {"f"}:
        return None
    if not (told := base[base != 0]).size or (told == told[0]).all():
        return None
    wide, there = base.astype(np.float64), target.astype(np.float64)
    factor = float(np.vdot(wide, there) / np.vdot(wide, wide))
    step = 2 * max(float(np.finfo(one.dtype).eps) for one in (base, target))
    fits = bool((np.abs(there - factor * wide) <= step * np.abs(there)).all())
    return factor if fits and math.isfinite(factor) and abs(factor - 1) > step else None


def _shorten(culprit: Culprit) -> Any:
    """Return the target's number in as many digits as the baseline's is told in, where these tell them apart."""
    base, target = culprit.evidence["base"], culprit.evidence["target"]
    figures = [f"{one:.4g}" for one in (base, target) if isinstance(one, float)]
    return float(figures[1]) if len({*figures}) == 2 else shorten_floats(target)


def _find_pair(subject: Subject, culprit: Culprit) -> tuple[str, Array, Array] | None:
    """Return the constant of a culprit's evidence, of which many numbers differ (half, where two of four gates changed
    places): its name, and both sides' arrays."""
    told = culprit.evidence
    if culprit.cause != "files_differ" or not told.get("at") or 4 * told.get("count", 0) < told.get("elements", 0):
        return None
    at = tuple(told["at"])
    for key, base, target in _iterate_pairs(subject, culprit.name):
        if base.shape == target.shape and base.ndim == len(at) and all(np.array(at) < base.shape) and (
            (base[at], target[at]) == (told["base"], told["target"])
        ):  # fmt: skip
            return key, base, target
    return None


def _name_scales(subject: Subject, culprit: Culprit) -> tuple[Culprit, tuple[str, Array, Array] | None]:
    """Return a culprit whose constant both files hold as the same integers with the scales that differ in its place,
    and both sides' scales; the culprit itself elsewhere."""
    told = culprit.evidence
    if culprit.cause != "files_differ" or told.get("what") != say("a_constant") or not told.get("at"):
        return culprit, None
    for mine, theirs in _iterate_operators(subject, culprit.name):
        for key, other, *_ in pair_parameters(mine, theirs):
            ours, there = mine.stored.get(key), theirs.stored.get(other)
            if ours is None or there is None or str(told["name"]).partition(" (")[0] != key:
                continue
            pairs = [(ours.integers, there.integers), (np.asarray(ours.zero_point), np.asarray(there.zero_point))]
            base, target = (np.asarray(one.scale).reshape(-1) for one in (ours, there))
            if base.shape == target.shape and all(np.array_equal(*pair) for pair in pairs):
                found = find_first_difference(key, base, target)
                rest = {name: one for name, one in told.items() if name != "beyond"}
                evidence = {**rest, **found, "what": say("a_scale"), "name": told["name"]}
                named = dataclasses.replace(culprit, evidence=evidence)
                return (named, (key, base, target)) if found else (culprit, None)
    return culprit, None


def _iterate_operators(subject: Subject, name: str) -> Iterator[tuple[Operator, Operator]]:
    """Yield the operators of a region, each with the target's."""
    baseline, target = subject.operators()
    row = subject.row_of.get(name)
    for meta in subject.region_of.get(name, ()):
        there = row.target_name if row is not None and meta.name == name else meta.name
        mine, theirs = baseline.operator(meta.name), target.operator(there) if target is not None else None
        if mine is not None and theirs is not None:
            yield mine, theirs


def _iterate_pairs(subject: Subject, name: str) -> Iterator[tuple[str, Array, Array]]:
    for mine, theirs in _iterate_operators(subject, name):
        for key, _, first, second in pair_parameters(mine, theirs):
            yield key, first, second


def pair_parameters(mine: Operator | None, theirs: Operator | None) -> Iterator[tuple[str, str, Array, Array]]:
    """Yield the constants of two operators in their order: both names, and both arrays; nothing where one is None."""
    if mine is not None and theirs is not None:
        for (key, first), (other, second) in zip(mine.parameters.items(), theirs.parameters.items(), strict=False):
            yield key, other, np.asarray(first), np.asarray(second)


def _index_constants(subject: Subject) -> dict[Any, list[tuple[str, str]]]:
    """Return, by shape and a sample of its numbers, each of the baseline's constants: who reads it, and its name."""
    baseline, found, seen = subject.operators()[0], dict[Any, list[tuple[str, str]]](), set[str]()
    for name in subject.meta_of:
        operator = baseline.operator(name)
        for key, value in operator.parameters.items() if operator is not None else ():
            if key not in seen and np.size(value) > 1:
                seen.add(key)
                found.setdefault(_sample(np.asarray(value)), []).append((name, key))
    return found


def _sample(array: Array) -> tuple[tuple[int, ...], bytes]:
    return array.shape, array.flat[:: max(1, array.size // _SAMPLED)].tobytes()


def _find_whole(subject: Subject, held: dict[Any, list[tuple[str, str]]], key: str, array: Array) -> str:
    """Return the only one of the baseline's constants that is this array; "" where none is, or several are."""
    alike = [one for one in held.get(_sample(array), ()) if one[1] != key]
    if len(alike) != 1:
        return ""
    reader, name = alike[0]
    operator = subject.operators()[0].operator(reader)
    return name if operator is not None and np.array_equal(np.asarray(operator.parameters[name]), array) else ""
