"""A bias in integers that is read on the scale of input times weight, and was made with another one."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..onnx.scales import find_broken
from ..records import Stored
from .file_scales import measure_left_with
from .held_constants import dequantise, list_stored_constants, list_target_operators
from .operator_facts import list_fixed
from .undo import LEFT, Case, run_with

__all__ = ["find_bias_scale", "measure_left_of_constant"]

Array = np.ndarray[Any, Any]

_ANOTHER_SCALE = 0.02
"""Share by which two scales differ that are not one."""


def find_bias_scale(case: Case) -> dict[str, Any]:
    """Return a bias whose integers are the baseline's by a scale of their own, while the target reads them on another,
    with both, where the baseline's in its place takes most of the error away; {} where there is none."""
    for weight, values, held in _list_biases(case):
        there = np.broadcast_to(np.asarray(held.used, np.float64), values.shape)
        own = None if find_broken(there).any() else _find_own_scale(values, held)  # told of the grids which make it
        far = np.zeros(()) if own is None else np.abs(there - own) > _ANOTHER_SCALE * own
        left = measure_left_of_constant(case, weight, values, held) if own is not None and far.any() else 1.0
        if own is None or (left is not None and left > LEFT):
            continue
        worst = np.unravel_index(int(np.argmax(np.where(far, np.abs(dequantise(held) - values), 0))), values.shape)
        return {
            "weight": weight, "ratio": float(there[worst] / own[worst]), "count": int(far.sum()),
            "elements": values.size, "scale": float(own[worst]), "read_on": float(there[worst]),
            **({} if left is None else {"left": left}),
        }  # fmt: skip
    return {}


def _list_biases(case: Case) -> Iterator[tuple[str, Array, Stored]]:
    """Yield the baseline's name and numbers of each bias of an operator, with what the target's file holds in its
    place: also of one that the baseline's operators make of constants."""
    subject, found = case.subject, False
    for told in list_stored_constants(subject, case.name):
        found |= told[2].read_on is not None
        yield from (told,) * (told[2].read_on is not None)
    fixed = list_fixed(subject) if not found else ()
    region = [meta for meta in subject.region_of.get(case.name, ()) if meta.name in fixed]
    read = {source for meta in subject.region_of.get(case.name, ()) if meta.name not in fixed for source in meta.inputs}
    there = (one for one in list_target_operators(subject, case.name) if region) if not found else ()
    for held in (held for one in there for held in one.stored.values() if held.read_on is not None):
        values = run_with(case, {}, *(meta.name for meta in region if meta.name in read))
        yield from ((name, value.astype(np.float64), held) for name, value in values.items()
                    if name != case.name and value.shape == held.integers.shape)  # fmt: skip


def _find_own_scale(values: Array, held: Stored) -> Array | None:
    """Return the scale by which a bias' integers are the baseline's numbers: as the file has it, or where none is
    written the one that all numbers share; None where none makes these of them."""
    whole = held.integers.astype(np.float64)
    size = float((whole * whole).sum())
    if held.scale is None and (whole != 0).sum() < _SHARED:
        return None
    own = np.broadcast_to((whole * values).sum() / size if held.scale is None else held.scale, values.shape)
    off = np.abs(dequantise(dataclasses.replace(held, read_on=own)) - values)
    return None if (own <= 0).any() or (off > np.maximum(2 * own, 0.01 * np.abs(values))).any() else own


_SHARED = 3
"""Numbers of which one factor is no chance."""


def measure_left_of_constant(case: Case, weight: str, values: Array, held: Stored) -> float | None:
    """Return the part of the error that is left with the baseline's constant in place of what the file holds; of one
    that is added, where its operator cannot be run with it, by what it adds where nothing was cut off. None: not
    known."""
    real = dequantise(held)
    left = measure_left_with(case, {weight: real}, {weight: values})
    if left is not None or held.integers.dtype != np.int32 or values.ndim != 1:
        return left
    least = float(case.exact.min(initial=0.0))
    seen = (case.wrong > least) if (case.wrong.min(initial=0.0) == least) else np.isfinite(case.wrong)
    own, lefts = float(np.linalg.norm((case.wrong - case.exact)[seen])), list[float]()
    for axis in (axis for axis, size in enumerate(case.exact.shape) if axis and size == values.size and own):
        more = np.expand_dims(values - real, [*range(1, case.exact.ndim - axis)])
        undone = np.maximum(case.wrong + more, least)  # as what cuts off behind it does
        lefts.append(float(np.linalg.norm((undone - case.exact)[seen])) / own)
    return min(lefts, default=None)
