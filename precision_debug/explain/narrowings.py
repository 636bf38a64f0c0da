"""All that a target rounds to integers of one operator: undone together, where no rounding alone makes its error.

Each alone may leave more than half of the squared error, and all of them next to nothing: then the operator does what
was asked for, and what is told is how much each of them makes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..numbers.narrowing import narrow_type as dtype_of
from ..numbers.narrowing import round_values
from ..records import Grid
from .criteria import HALF, LEAST_PART
from .evaluators import list_source_names, make_exact_evaluator
from .file_scales import list_scales_around
from .operator_facts import is_quantised
from .subject import collect_stretch
from .undo import LEFT, Case, list_grids, measure_left_of, round_to_grid

__all__ = ["find_parts", "measure_rounding", "tell_rest"]

Array = np.ndarray[Any, Any]


def find_parts(case: Case) -> dict[str, Any]:
    """Return what each of an operator's weights, of what it reads and its result makes of its error, rounded alone, the
    most first, where all of these together make most of it; {} where they do not, or that cannot be run."""
    plain = case.again({}) if is_quantised(case.narrow) and case.own else None
    if plain is None or not np.isfinite(plain).all() or not np.isfinite(case.wrong).all():
        return {}
    put, left = dict[str, Array](), 1.0
    for name, held in _list_rounded(case):
        tried = [(measure_left_of(case, case.wrong - (got - plain)), one) for one in held
                 if (got := case.again({**put, name: one})) is not None]  # fmt: skip
        least, best = min(tried, key=lambda pair: pair[0], default=(left, None))
        if best is not None and least < left:
            left, put[name] = least, best
    alone = {name: got - plain for name, one in put.items() if (got := case.again({name: one})) is not None}
    for grid in _list_result_grids(case):
        made = plain if (got := case.again(put)) is None else got
        rounded = _put_on(grid, made)
        least = measure_left_of(case, case.wrong - (rounded - plain))
        if least < left:
            left, alone[case.name] = least, _put_on(grid, plain) - plain
    shares = {name: float(np.sum(np.square(error))) / case.own**2 for name, error in alone.items()}
    told = [name for name in sorted(shares, key=lambda name: -shares[name]) if shares[name] >= LEAST_PART]
    if left > LEFT or not told:
        return {}
    folded = {"folded": case.folded.types} if case.folded is not None and case.folded.weight in told else {}
    return {"parts": ", ".join(f"`{name}` {shares[name]:.0%}" for name in told), "left": left, **folded}


def tell_rest(case: Case, evidence: Mapping[str, Any]) -> dict[str, Any]:
    """Return what else is told of a cause that lies in one tensor: what is folded into that weight, and where a good
    part of the error is left without it, what all that is rounded makes."""
    folded = case.folded
    own = folded is not None and folded.weight in (evidence.get("weight"), evidence.get("from"))
    rest = find_parts(case) if evidence.get("left", 0.0) > HALF else {}
    several = "%, " in rest.get("parts", "")
    return {**({"folded": folded.types} if own and folded else {}), **({"parts": rest["parts"]} if several else {})}


def _list_rounded(case: Case) -> Iterator[tuple[str, Sequence[Array]]]:
    """Yield each weight and each tensor that an operator reads, with what the target may hold in its place: as its file
    or its session tells, or else on a grid from its least to its largest number."""
    for weight, values in case.constants.items():
        if values.ndim > 1 and np.isfinite(values).all():
            yield weight, list_grids(case, weight)
    told = dict[str, list[Grid]]()
    for source, grid in _list_known_grids(case):
        told.setdefault(source, []).append(grid)
    for source in case.subject.sources(case.name):
        given = case.given(source)
        if given is not None and given.dtype.kind == "f" and given.size and np.isfinite(given).all():
            values = given.astype(np.float64)
            grids = [_put_on(grid, values) for grid in told.get(source, ())]
            yield source, grids or [round_to_grid(values, "uint8"), round_to_grid(values, "int8", mirrored=True)]


def _list_result_grids(case: Case) -> Iterator[Grid]:
    yield from dict.fromkeys(grid for name, grid in _list_known_grids(case) if name == case.name)


def _list_known_grids(case: Case) -> Iterator[tuple[str, Grid]]:
    """Yield the ends of the grids, and how many numbers they have, of an operator's result and of what it reads."""
    subject, row = case.subject, case.subject.row_of[case.name]
    for name, scale, zero, _ in list_scales_around(subject, case.name):
        if scale.size == 1 and zero.size == 1 and zero.dtype.kind in "iu":
            ends, step, origin = np.iinfo(zero.dtype), float(scale.reshape(-1)[0]), int(zero.reshape(-1)[0])
            yield name, ((ends.min - origin) * step, (ends.max - origin) * step, int(ends.max) - int(ends.min) + 1)
    names = list_source_names(subject)
    for meta in collect_stretch(subject.targets, row.target_name, subject.partner).values():
        for name in (case.name, *subject.sources(case.name)):
            there = subject.row_of[name].target_name if name in subject.row_of else name
            yield from ((name, grid) for key in {name, names.get(name, name), there} & meta.grids.keys()
                        for grid in [meta.grids[key]])  # fmt: skip


def _put_on(grid: Grid, values: Array) -> Array:
    """Return numbers on a grid, those beyond its ends at them."""
    low, high, count = grid
    step = (high - low) / (count - 1)
    return np.clip(np.rint((values - low) / step) * step + low, low, high) if step else values


def measure_rounding(case: Case) -> float | None:
    """Return the error, L2, that rounding each tensor and constant of a region to its narrow type makes, of integers to
    one grid each; None where that cannot be run."""
    if case.narrow not in ("float16", "bfloat16", "int8", "uint8") or (plain := case.again({})) is None:
        return None
    given = {source: values for source in case.subject.sources(case.name) if (values := case.given(source)) is not None}
    put = {key: _round_to(case.narrow, values) for key, values in {**case.constants, **given}.items()}
    for meta in case.subject.region_of.get(case.name, ()):
        compute = make_exact_evaluator(dataclasses.replace(case, name=meta.name))
        made = compute(put) if compute is not None else None
        if made is not None:  # else the file has no such tensor: an engine wrote its operator in parts
            put[meta.name] = _round_to(case.narrow, made)
    if case.name not in put:
        return None
    error = put[case.name] - plain
    return float(np.linalg.norm(error[np.isfinite(error)]))


def _round_to(narrow: str, values: Array) -> Array:
    """Return floats as a narrow type holds them; others as they are."""
    if values.dtype.kind != "f" or not values.size:
        return values
    with np.errstate(all="ignore"):
        if is_quantised(narrow):
            return round_to_grid(values, narrow)
        return round_values(np.ascontiguousarray(values, dtype=np.float32), dtype_of(narrow))
