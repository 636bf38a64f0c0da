"""Scales on which no number has a place, 0 or NaN say, in whatever file holds a tensor or a constant in few bits."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import PrecisionDebugError
from ..numbers.narrowing import narrow_type as dtype_of
from ..numbers.narrowing import round_values
from ..onnx.scales import find_broken
from ..protocols import Replacer, find_file_scales, find_stored
from ..records import Operator
from .held_constants import list_stored_constants
from .introduced import Alone
from .operator_facts import constants_of
from .operators import TURNS
from .subject import Subject
from .undo import LEFT, Case, measure_left_of, round_to_grid, run_with
from .units import largest_of, steps_of

__all__ = ["find_broken_scale"]

Array = np.ndarray[Any, Any]
Evidence = dict[str, Any]

_TURNS = TURNS | {"FakeQuantize", "Convert", "Subtract", "Multiply", "QUANTIZE", "DEQUANTIZE"}
"""The same, what OpenVINO makes of them, and LiteRT's."""

_FEW = 32
"""Tensors of the target between two that are compared."""


def find_broken_scale(subject: Subject, alone: Alone, name: str) -> Evidence:
    """Return the scale of an operator's result, of what lies between it and what is compared before it, or of one of
    its constants, that is 0, NaN or infinite, where a sound one takes the operator's error away; {} where none is."""
    found = [*_list_broken_tensors(subject, name), *_list_broken_constants(subject, name)]
    exact, wrong = (alone.exact_of(name), alone.wrong_of(name)) if found else (None, None)
    if exact is None or wrong is None or exact.shape != wrong.shape or exact.dtype.kind in "USO":
        return {}
    case = Case(subject=subject, alone=alone, name=name, exact=exact.astype(np.float64), wrong=wrong.astype(np.float64))
    broken = bool((np.isfinite(case.exact) & ~np.isfinite(case.wrong)).any())
    for evidence, values in found:
        with np.errstate(all="ignore"):
            undone = _repair_tensor(case, evidence) if values is None else _repair_constant(case, evidence, values)
            left = None if undone is None else measure_left_of(case, undone)
        if left is not None and left <= LEFT:
            return {**evidence, "left": left}
        lost = values is not None and (values != case.constants[evidence["weight"]]).any() if left is None else False
        if left is None and (lost or (broken and evidence["scale"] != "0")):  # nothing could be run
            return evidence
    return {}


def _list_broken_tensors(subject: Subject, name: str) -> Iterator[tuple[Evidence, None]]:
    """Yield what is said of each tensor of the target, from those that are compared before one up to it, that is on a
    broken scale."""
    target, scales, row = subject.operators()[1], find_file_scales(subject.target), subject.row_of[name]
    waiting, seen = [row.target_name], set[str]()
    while waiting and target is not None and len(seen) < _FEW:
        one = waiting.pop()
        if one in seen:
            continue
        seen.add(one)
        floats = _find_floats(subject, target, one)
        if one in scales and (told := _describe(floats, *scales[one])):
            yield told, None
        for low, high, many in _list_grids(subject, one):
            if told := _describe(floats, np.array((high - low) / max(1, many - 1)), np.zeros((), np.uint8)):
                yield told, None
        operator = target.operator(one)
        if operator is not None:
            waiting += [
                read for read in _list_read(subject, operator, one) if read not in subject.partner
                and read not in operator.stored and (subject.two_files or read not in subject.row_of)
            ]  # fmt: skip
    for meta in subject.region_of.get(name, ()):  # fused, where the session shows no more of them
        if meta.name in scales and (told := _describe(meta.name, *scales[meta.name])):
            yield told, None


def _list_read(subject: Subject, operator: Operator, name: str) -> tuple[str, ...]:
    """Return what an operator of the target reads, by the file or, where no file tells that, by the session."""
    meta = subject.targets.get(name)
    return operator.reads or (meta.inputs if meta is not None else ())


def _find_floats(subject: Subject, target: Replacer, name: str) -> str:
    """Return the baseline's name of the floats that a tensor of the target is made of or becomes."""
    while name not in subject.partner:
        operator = target.operator(name)
        read = _list_read(subject, operator, name) if operator is not None and operator.op_type in _TURNS else ()
        if not read:
            return name
        name = read[0]
    return subject.partner[name]


def _list_grids(subject: Subject, name: str) -> Iterator[tuple[float, float, int]]:
    """Yield the grids that a session tells of a tensor itself, where it tells of grids and no file does."""
    meta = subject.targets.get(name)
    if meta is not None:
        yield from (grid for source, grid in meta.grids.items() if source in (meta.name, meta.origin))


def _list_broken_constants(subject: Subject, name: str) -> Iterator[tuple[Evidence, Array]]:
    """Yield what is said of each constant of an operator that the target's file holds on broken scales, and the numbers
    that it stands for there."""
    scales = find_file_scales(subject.target)
    stored = list_stored_constants(subject, name) if subject.two_files else (
        (weight, values, held) for weight, values in constants_of(subject, name).items()
        if weight in scales and (held := find_stored(subject.target, weight)) is not None
    )  # fmt: skip
    told = set[str]()
    for weight, values, held in stored:
        told.add(weight)
        if held.integers.shape != values.shape:
            continue
        scale = np.asarray(held.used)
        each = scale if scale.size == 1 else np.broadcast_to(scale, values.shape)
        if found := _describe(weight, each, held.integers, "weight"):
            yield found, _break(values, each)
    for weight, values in constants_of(subject, name).items():  # of one number, which no file tells of as stored
        scale, zero = scales.get(weight, (np.ones(()), np.ones(())))
        if weight not in told and scale.size == 1 and (found := _describe(weight, scale, zero, "weight")):
            yield found, _break(values, scale.reshape(()))


def _describe(name: str, scale: Array, codes: Array, key: str = "from") -> Evidence:
    """codes: an array of their type."""
    broken = find_broken(scale)
    if not broken.any():
        return {}
    worst = float(np.asarray(scale)[broken].flat[0])
    many = {"count": int(broken.sum()), "elements": int(broken.size)} if broken.size > 1 else {}
    told = f"{worst:.4g}".replace("nan", "NaN").replace("inf", "Inf")
    return {key: name, "type": codes.dtype.name, "scale": told, **many}


def _break(values: Array, scale: Array) -> Array:
    """Return a constant as it is read from codes of broken scales: 0 of a scale that is no size, NaN of the others."""
    lost = np.where(np.isfinite(scale.astype(np.float64)), 0.0, np.nan)
    return np.where(np.broadcast_to(find_broken(scale), values.shape), lost, values)


def _repair_constant(case: Case, evidence: Evidence, held: Array) -> Array | None:
    """Return the result with the constant of the model in place of the one that the file holds."""
    return case.without_error_of({evidence["weight"]: held})


def _repair_tensor(case: Case, evidence: Evidence) -> Array | None:
    """Return the result with a tensor on a grid that holds it. Its own result is taken as the engine itself gives it,
    of the same inputs, before it is quantised; where it does not show that, as the baseline does."""
    source, held_as = evidence["from"], evidence["type"]
    if source == case.name:
        made = _run_before_quantised(case)
        return _put_on_sound_grid(case.exact if made is None else made, held_as)
    if source in case.subject.row_of:
        given = case.given(source)
        put = {} if given is None else {source: _put_on_sound_grid(given, held_as)}
        again = case.again(put) if put else None
        return run_with(case, put).get(case.name) if put and again is None else again
    inside = run_with(case, {}, source).get(source)
    return None if inside is None else run_with(case, {source: _put_on_sound_grid(inside, held_as)}).get(case.name)


def _put_on_sound_grid(values: Array, held_as: str) -> Array:
    if not values.size or not np.isfinite(values).all():
        return values
    if steps_of(held_as):
        return round_to_grid(values, held_as)
    unit = float(np.abs(values).max()) / largest_of(held_as) or 1.0
    return np.asarray(round_values((values / unit).astype(np.float32), dtype_of(held_as)).astype(np.float64) * unit)


def _run_before_quantised(case: Case) -> Array | None:
    """Return an operator's result in a run of the target, on the baseline's inputs, as it was before its quantiser;
    None where the engine has no such tensor, or does not run so."""
    subject, seen = case.subject, list[Array]()
    target, row = subject.operators()[1], subject.row_of[case.name]
    meta = subject.targets.get(row.target_name)
    before = meta.origin if meta is not None else ""
    if target is None or not subject.target_replaces or before not in subject.targets or before == row.target_name:
        return None
    put = {subject.row_of[source].target_name: case.given(source) for source in subject.sources(case.name)}

    def replace(_op: str, name: str, value: Any) -> Any:
        if name == before:
            seen.append(np.array(subject.bench.host(value), np.float64))
        other = put.get(name)
        return None if other is None else other.astype(subject.bench.host(value).dtype)

    try:
        target.run_replacing(subject.feeds_of_target, subject.showing(replace), frozenset({before, *put}))
    except PrecisionDebugError:
        return None
    return seen[0] if seen and seen[0].shape == case.exact.shape else None
