"""Look inside a fused region: which of its operators, constants and roundings loses the precision."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from ..errors import PrecisionDebugError
from ..numbers.arrays import as_array
from ..numbers.narrowing import narrow_type, round_values
from ..numbers.narrowing import narrow_type as dtype_of
from ..reasons.causes import CAUSES
from ..records import Culprit, Grid
from .introduced import MASK, Alone
from .operator_facts import constants_of, is_quantised, operators_of
from .operators import BODIES, CANCEL, MOVE, plain_type
from .subject import Subject
from .units import largest_of, smallest_of
from .work import Work

__all__ = [
    "NEARLY_EQUAL",
    "find_most_rounded",
    "find_quantised_mask",
    "find_rounded_constant",
    "list_mask_readers",
    "measure_distance",
    "round_to_8_bits",
    "rounds_inside",
    "run_rounded",
    "subtracts",
    "subtracts_inside",
    "with_stretches",
]  # fmt: skip


# What happens between two tensors that are seen: a region is measured as one, and the baseline has its inside.

_T = TypeVar("_T")
_SAME = 0.01
"""Relative difference of masks, and what all else comes to beside them."""

NEARLY_EQUAL = 8.0
"""Times that terms are larger than their sum from which on they cancel; of independent terms it is about 1. Set on
tests/planted/paddle_faults.py."""


def subtracts_inside(subject: Subject, name: str, units: float | None) -> dict[str, Any]:
    """Return evidence of ``cancellation``, where an operator inside the region of a tensor subtracts nearly equal
    numbers, in the baseline, by more than the region is off; {} where none does. One run of the baseline.

    units: of rounding, the region's own error.
    """
    region = subject.region_of.get(name, ())
    if units is None or not any(plain_type(meta.op_type) in CANCEL and len(meta.inputs) > 1 for meta in region[:-1]):
        return {}
    sizes = _measure_sizes(subject, {one for meta in region for one in (meta.name, *meta.inputs)})
    found: dict[str, Any] = {}
    for meta in region:
        read = [sizes.get(one, 0.0) for one in meta.inputs]
        own, largest = sizes.get(meta.name, 0.0), max(read, default=0.0)
        if len(read) < 2 or not own or plain_type(meta.op_type) not in CANCEL or largest < NEARLY_EQUAL * own:
            continue
        if largest / own > max(units, found.get("factor", 0.0)):
            found = {
                "amplifier": meta.name, "amplifier_type": meta.op_type, "factor": largest / own,
                "input_size": largest, "output_size": own,
            }  # fmt: skip
    return found


def subtracts(subject: Subject, name: str) -> dict[str, Any]:
    """Return evidence of ``cancels``, where an operator subtracts nearly equal numbers that are all seen; {} where
    not."""
    row, types = subject.row_of[name], {plain_type(meta.op_type) for meta in subject.region_of.get(name, ())}
    read = [subject.row_of[one].comparison for one in subject.sources(name) if one in subject.row_of]
    largest = max((numbers.base.rms or 0.0 for numbers in read if numbers is not None), default=0.0)
    own = (row.comparison.base.rms or 0.0) if row.comparison is not None else 0.0
    if len(read) < 2 or not types & CANCEL or not own or largest < NEARLY_EQUAL * own:
        return {}
    return {"factor": largest / own, "input_size": largest, "output_size": own}


def find_inner_overflows(subject: Subject, name: str) -> dict[str, dict[str, Any]]:
    """Of the operators in the region of a tensor those whose results the target's type cannot hold in the baseline, in
    order, each with the evidence of ``overflow``. One run of the baseline."""
    limit = largest_of(subject.narrow_type)
    region = [meta.name for meta in subject.region_of.get(name, ()) if plain_type(meta.op_type) not in MOVE]
    if limit > MASK or len(region) < 2:
        return {}

    def beyond(value: Any) -> dict[str, Any]:
        finite = value[np.isfinite(value)]
        sizes = np.abs(finite)
        large = sizes > limit
        count = int(np.count_nonzero(large))
        if not count or sizes.max() >= MASK or _is_mask(finite[large], sizes[~large]):
            return {}
        return {"largest": float(sizes.max()), "limit": limit, "count": count}

    found = _tell_of_tensors(subject, set(region), beyond)
    return {one: found[one] for one in region if found.get(one)}


def _is_mask(large: Any, rest: Any) -> bool:
    """Return whether numbers beyond a type are one that says "never" (-1e9), far from all others: no result that
    grew."""
    same = bool((large < 0).all()) and float(np.ptp(large)) <= _SAME * -float(large.min())
    return same and float(rest.max(initial=0.0)) < _SAME * -float(large.max())


def _measure_sizes(subject: Subject, names: set[str]) -> dict[str, float]:
    """Root mean square of the baseline's tensors with these names; nothing of those that it does not show."""
    return _tell_of_tensors(subject, names, lambda value: float(np.sqrt(np.mean(np.square(value.astype(np.float64))))))


def _tell_of_tensors(subject: Subject, names: set[str], tell: Callable[[Any], _T]) -> dict[str, _T]:
    """Return what is told of the baseline's floats with these names; nothing of those that it does not show."""
    told: dict[str, _T] = {}

    def hook(_op: str, name: str, tensor: Any, /) -> None:
        value = as_array(tensor, name=name)
        if name in names and value.dtype.kind == "f" and value.size:
            told[name] = tell(value)

    try:
        subject.baseline.run(subject.feeds, hook, frozenset(names))
    except PrecisionDebugError:
        return {}
    return told


# What a quantised model rounds inside of a region: a mask of -3e38 leaves the 8 bits of its sum nothing for scores, and
# one channel of what a norm reads leaves them nothing for the others.
#
# Neither is seen where it is quantised. What the baseline has of it, and that the target holds it in integers, is; and
# so is what becomes of the region's result when the baseline rounds it there, too.

_MOST, _PART_OF_WORK = 16, 4
"""Tensors of a region that are rounded one after the other, the last ones, and at most that part of the runs that the
effects of single operators may take: each is a run of the baseline."""

_LEVELS = 256
"""Of 8 bits."""

_EXPLAINS = 0.5
"""Part of the introduced error from which on one rounding inside is the reason."""


def find_quantised_mask(subject: Subject, name: str) -> dict[str, Any]:
    """Return the mask that a region reads, or makes, and that the target quantises: its name and its most negative
    value; {} where there is none."""
    for source in _list_quantised_inside(subject, name):
        lowest = subject.lowest_unseen.get(source, 0.0)
        if lowest < -MASK:
            return {"largest": lowest, "mask": source}
    return {}


def list_mask_readers(subject: Subject, name: str, mask: str) -> list[str]:
    """Return the operators of a region that read a mask."""
    return [meta.name for meta in subject.region_of.get(name, ()) if mask in meta.inputs]


def rounds_inside(subject: Subject, name: str) -> bool:
    """Return whether a region, or the body of its branch or loop, rounds to integers on its way, where nobody looks:
    what it gives may then be off by any number of its own steps."""
    region = subject.region_of.get(name, ())
    if any(plain_type(meta.op_type) in BODIES for meta in region):
        return True
    return any(meta.name in subject.rounded_unseen for meta in region)


def find_most_rounded(subject: Subject, name: str, introduced: float) -> tuple[str, Any, float]:
    """Return which tensor inside a region makes most of its error where the baseline rounds it to 8 bits, the tensor
    as the baseline has it, and that error, relative L2; ("", None, 0) where none makes half of what was introduced.
    Takes a run of the baseline for each."""
    inside = _list_quantised_inside(subject, name)[-count_affordable_runs(subject) :]
    if not inside:
        return "", None, 0.0
    found: dict[str, float] = {}
    try:
        exact = _run(subject, {*inside, name}, "")
        for source in inside:
            if source in exact and exact[source].dtype.kind == "f" and np.isfinite(exact[source]).all():
                got = _run(subject, {name, source}, source).get(name)
                found[source] = 0.0 if got is None else _measure_rel_l2(exact.get(name), got)
    except PrecisionDebugError:  # an engine that does not run with these shown
        return "", None, 0.0
    most = max(found, key=lambda one: found[one], default="")
    enough = most and found[most] >= _EXPLAINS * introduced
    return (most, exact[most], found[most]) if enough else ("", None, 0.0)


def count_affordable_runs(subject: Subject) -> int:
    """Return how many operators of one region are looked into: fewer of a model whose runs take long."""
    return min(_MOST, Work(subject, "fast").runs // _PART_OF_WORK)


def _list_quantised_inside(subject: Subject, name: str) -> list[str]:
    """Return what a region reads or makes that the target quantises unseen, in order."""
    found = {one for meta in subject.region_of.get(name, ()) for one in (meta.name, *meta.inputs)}
    return sorted(found & subject.rounded_unseen, key=lambda one: subject.order[one])


def _run(subject: Subject, names: set[str], rounded: str) -> dict[str, Any]:
    """These tensors of a run of the baseline in which one of them is rounded."""
    seen: dict[str, Any] = {}

    def replace(_op: str, one: str, value: Any) -> Any:
        array = subject.bench.host(value)
        seen[one] = np.array(array)
        if one != rounded:
            return None
        return subject.bench.with_error(value, array, round_to_8_bits(array, _find_grid(subject, one)))

    subject.operators()[0].run_replacing(subject.feeds, subject.showing(replace), names)
    return seen


def _find_grid(subject: Subject, name: str) -> Grid | None:
    """Return the grid of one of the baseline's tensors that the target quantises unseen, where it tells it."""
    return next((meta.grids[name] for meta in subject.targets.values() if name in meta.grids), None)


def round_to_8_bits(array: Any, grid: Grid | None = None) -> Any:
    """On the target's own grid; where that is not known on one of 8 bits from the smallest to the largest number, 0 on
    the grid."""
    low, high, count = grid or (min(0.0, float(array.min())), max(0.0, float(array.max())), _LEVELS)
    step = (high - low) / (count - 1)
    return (np.rint(np.clip(array, low, high) / step) * step).astype(array.dtype) if step else array


def _measure_rel_l2(exact: Any, got: Any) -> float:
    if exact is None or exact.shape != got.shape or exact.dtype.kind != "f":
        return 0.0
    size = float(np.linalg.norm(exact.astype(np.float64)))
    return float(np.linalg.norm(got.astype(np.float64) - exact.astype(np.float64))) / size if size else 0.0


# Which operator of a stretch: an engine that fuses shows a tensor here and there, and what lies between two of them is
# measured as one. The baseline has every tensor in between, and so it can be rounded there, one after the other.

_FIRST = 3
"""Culprits whose stretches are looked into."""

_FLOATS = frozenset({"float16", "bfloat16"})
"""Types that round without a scale."""

Narrow = Callable[[Any, str], Any]
"""An array rounded to the target's type, and back; the tensor's name."""

_HALF = 0.5
"""Part of the stretch's error from which on one operator inside is told."""


def with_stretches(
    subject: Subject, alone: Alone, culprits: Sequence[Culprit], work: Work
) -> tuple[Culprit, ...]:  # fmt: skip
    """Return the culprits, the first of them with the stretch that each is the end of, and who in it makes the
    error."""
    found = []
    for place, culprit in enumerate(culprits):
        region = subject.region_of.get(culprit.name, ())
        if len(region) > 1 and culprit.name in alone.found:
            inside = tuple(meta.name for meta in operators_of(subject, culprit.name))
            told = _blame_inner_overflow(subject, culprit) if place < _FIRST else culprit
            inner, part, times = (
                _find_inner_author(subject, alone, culprit.name, work) if place < _FIRST else ("", None, 0.0)
            )
            told_by_sizes = CAUSES[culprit.cause].is_open(culprit.evidence)
            if inner and times >= NEARLY_EQUAL and told_by_sizes:  # what was run comes before what is likely
                told = dataclasses.replace(told, cause="amplified", evidence={"inner": inner, "factor": times})
            found.append(dataclasses.replace(told, inside=inside, inner=told.inner or inner, inner_part=part))
        else:
            found.append(culprit)
    return tuple(found)


def _blame_inner_overflow(subject: Subject, culprit: Culprit) -> Culprit:
    """Of a stretch at whose end NaN or Inf appears: its operators whose results the type cannot hold, as the baseline
    has them. They are kept; the end alone would keep what only reads what is lost by then."""
    if culprit.cause != "born" or not (beyond := find_inner_overflows(subject, culprit.name)):
        return culprit
    first, evidence = next(iter(beyond.items()))
    keep = tuple(dict.fromkeys((*beyond, *culprit.keep)))
    inner = first if first != culprit.name else ""
    told = {**evidence, "inner": inner} if inner else evidence
    return dataclasses.replace(culprit, cause="overflow", evidence=told, confidence="ranked", keep=keep, inner=inner)


def _find_inner_author(
    subject: Subject, alone: Alone, name: str, work: Work
) -> tuple[str, float | None, float]:  # fmt: skip
    """Return the tensor inside whose rounding alone makes most of the error of the whole stretch, how much of it, and
    how many times larger that is than the rounding."""
    held = subject.narrow_type
    own = alone.found[name]
    whole = float(own.flips) if own.flips else own.rel_l2
    computing = [meta.name for meta in subject.region_of[name] if plain_type(meta.op_type) not in MOVE]
    narrow: Narrow
    if is_quantised(held):  # the others of a stretch are not rounded, and none without a scale
        narrow = lambda array, one: round_to_8_bits(array, _find_grid(subject, one))  # noqa: E731
        computing = [one for one in computing if one in subject.rounded_unseen]
    elif held in _FLOATS:
        dtype = narrow_type(held)
        narrow = lambda array, _one: round_values(np.ascontiguousarray(array), dtype)  # noqa: E731
    else:
        return "", None, 0.0
    if whole is None or not 0 < whole < math.inf or own.born_nan or own.born_inf:
        return "", None, 0.0
    try:
        exact = run_rounded(subject, name, "", narrow).get(name)
        parts, rounding = dict[str, float](), dict[str, float]()
        for source in computing[-count_affordable_runs(subject) :] if exact is not None else ():
            work.go_on()
            got = run_rounded(subject, name, source, narrow, rounding).get(name)
            parts[source] = 0.0 if got is None else measure_distance(exact, got, flips=bool(own.flips)) / whole
    except PrecisionDebugError:
        return "", None, 0.0
    most = max(parts, key=lambda one: parts[one], default="")
    if not most or most == name or parts[most] < _HALF:
        return "", None, 0.0
    return most, parts[most], 0.0 if own.flips or not rounding.get(most) else parts[most] * whole / rounding[most]


def run_rounded(
    subject: Subject, name: str, rounds: str, narrow: Narrow, off: dict[str, float] | None = None
) -> dict[str, Any]:
    """Return the end of a stretch, in a run of the baseline in which one tensor inside is rounded. off: takes by how
    much that tensor is off by its rounding."""
    seen: dict[str, Any] = {}

    def replace(_op: str, one: str, value: Any) -> Any:
        array = subject.bench.host(value)
        if one == name:
            seen[name] = np.array(array)
        if one != rounds or array.dtype.kind != "f":
            return None
        rounded = narrow(array, rounds)
        if off is not None:
            off[rounds] = measure_distance(array, rounded, flips=False)
        return subject.bench.with_error(value, array, rounded)

    subject.operators()[0].run_replacing(subject.feeds, subject.showing(replace), {name, rounds} - {""})
    return seen


def measure_distance(exact: Any, got: Any, *, flips: bool) -> float:
    """Return elements that differ, or the relative L2 error."""
    if exact.shape != got.shape:
        return 0.0
    if flips:
        return float(np.count_nonzero(exact != got))
    with np.errstate(all="ignore"):
        size = float(np.linalg.norm(exact.astype(np.float64)))
        error = float(np.linalg.norm(got.astype(np.float64) - exact.astype(np.float64)))
    return error / size if size and math.isfinite(error) else 0.0


# Whether what an operator loses is the rounding of a constant that it reads, and not of its result.

Array = np.ndarray[Any, Any]

_PART_OF_ERROR = 0.3
"""Share of the squared error that a constant's rounding makes from which on it is named: of a product that is rounded
too, it is a half."""


def find_rounded_constant(subject: Subject, name: str, exact: Array | None, wrong: Array | None) -> dict[str, Any]:
    """Return the constant, and by how much rounding it to the target's type is off; {} where it does not explain the
    error.

    Of a product the constant's relative error is the result's, of a sum its absolute one: what it would make is taken
    from what is measured, and a good part of the squared error has to go with it.
    """
    held = subject.narrow_type
    if exact is None or wrong is None or not smallest_of(held) or exact.shape != wrong.shape:
        return {}
    with np.errstate(all="ignore"):
        exact = np.asarray(exact).astype(np.float64)
        error = np.asarray(wrong).astype(np.float64) - exact
        whole = float(np.sum(np.square(error)))
        if not whole or not np.isfinite(whole):
            return {}
        for weight, values in constants_of(subject, name).items():
            value = values.astype(np.float32)
            there = round_values(value, dtype_of(held)).astype(np.float64)
            if not np.isfinite(value).all() or np.array_equal(there, value) or not _fits(value, exact):
                continue
            ratio = np.where(value != 0, there / np.where(value != 0, value, 1) - 1, 0.0)
            made = (exact * ratio, -exact * ratio, there - value, value - there)
            left = min(float(np.sum(np.square(error - one))) for one in made)
            if left < (1 - _PART_OF_ERROR) * whole:
                off = float(np.linalg.norm(there - value) / np.linalg.norm(value))
                return {"weight": weight, "held": held, "off": off}
    return {}


def _fits(value: Array, exact: Array) -> bool:
    """Return whether a constant stands beside each element of a result; of a matrix product it does not."""
    try:
        return bool(np.broadcast_shapes(value.shape, exact.shape) == exact.shape)
    except ValueError:
        return False
