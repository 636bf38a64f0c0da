"""What rounding everywhere makes of a healthy model: the baseline, with every tensor off by its rounding at random."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from ..numbers.number_types import QUANTISED
from ..protocols import Workbench, keeps_own
from ..records import Row
from .effects import NOISE, Sink, measure_error_at
from .operators import MOVE, SELECT, SUM_UP, find_shape_makers, plain_type
from .subject import Subject
from .units import INTEGERS, NARROW, unit_of
from .workbench import HostWorkbench

__all__ = ["predict_errors", "run_shaken"]

_FEW_DRAWS = 4
"""Runs whose mean square is told where one element decides."""


def predict_errors(
    subject: Subject, plain: Mapping[str, Any], sinks: Sequence[Sink], *, draw: int = 0
) -> dict[str, float]:
    """Return the relative L2 error at each sink when each tensor is off by up to its unit of rounding, uniformly.

    plain: the sinks' values in the baseline. Weights are rounded too in most targets, about as often as activations, so
    the errors are multiplied by sqrt(2). draw: another one, other random numbers. Where single elements of a cast may
    fall to the other side, which one decides: the mean square of a few runs is told.
    """
    several = _FEW_DRAWS if _cast_alike(subject) else 1
    found = [_predict_by_shaking(subject, plain, sinks, several * draw + number) for number in range(several)]
    return {
        name: math.sqrt(sum(one.get(name, 0.0) ** 2 for one in found) / several) for name in found[0]
    }  # fmt: skip


def _predict_by_shaking(
    subject: Subject, plain: Mapping[str, Any], sinks: Sequence[Sink], draw: int
) -> dict[str, float]:
    bench = subject.bench
    wanted = {sink.name for sink in sinks}
    seen: dict[str, Any] = {}
    shake = _make_shaker(subject, bench, draw=draw)

    def replace(op: str, name: str, value: Any) -> Any:
        new = shake(op, name, value) if name in wanted or not keeps_own(subject.baseline, name) else None
        if name in wanted:
            seen[name] = bench.kept(value if new is None else new)
        return new

    subject.operators()[0].run_replacing(subject.feeds, subject.showing(replace), _list_shown(subject))
    return {
        name: math.sqrt(2) * error
        for name in wanted
        if name in plain
        and name in seen
        and (error := measure_error_at(bench, plain[name], seen[name], rounded=name in subject.rounded)) is not None
    }


def run_shaken(
    subject: Subject, wanted: Collection[str], *, draw: int, fixed: Mapping[str, Any] | None = None,
    also: Collection[str] = (), own: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return tensors of such a run, as numpy arrays, in which what only chooses among numbers rounds none of them: it
    gives what it was given, to the bit. fixed: what some tensors are whatever is before them; own: returned is what
    they would have been. also: further tensors that are off by the model's typical unit, since the target computes them
    and does not show them."""
    bench, kept = HostWorkbench(), fixed or {}
    seen: dict[str, Any] = {}
    shake = _make_shaker(subject, bench, draw=draw, chosen=False, times=math.sqrt(2), also=also)

    def replace(op: str, name: str, value: Any) -> Any:
        new = kept[name] if name in kept and kept[name].shape == value.shape else None
        if new is None and (name in wanted or not keeps_own(subject.baseline, name)):
            new = shake(op, name, value)
        if name in wanted:
            seen[name] = bench.kept(value if new is None or (own and name in kept) else new)
        return new

    subject.operators()[0].run_replacing(subject.feeds, replace, _list_shown(subject) | {*wanted, *kept, *also})
    return seen


def _list_shown(subject: Subject) -> frozenset[str]:
    return frozenset(subject.row_of) | _list_fused(subject)


def _list_fused(subject: Subject) -> frozenset[str]:
    """Return what the target fused, and computes in its own way, and quantises then: sums, and what a file's own grids
    are read by where nothing else rounds."""
    if not (subject.same_steps or subject.on_same_grids):
        return frozenset()
    quantised = subject.on_same_grids and {
        source for meta in subject.tensors if QUANTISED.search(meta.op_type) for source in meta.inputs
    }
    return frozenset(
        meta.name for meta in subject.tensors
        if meta.name not in subject.row_of and not meta.unseen
        and (meta.name in quantised if quantised else plain_type(meta.op_type) in SUM_UP)
    )  # fmt: skip


def _make_shaker(
    subject: Subject, bench: Workbench, *, draw: int, chosen: bool = True, times: float = 1.0,
    also: Collection[str] = (),
) -> Callable[[str, str, Any], Any]:  # fmt: skip
    """Return what puts a tensor off by up to its unit of rounding. chosen: also what is only chosen among numbers."""
    noise = np.random.default_rng(draw).uniform(-times, times, NOISE).astype(np.float32)
    fused, left = _list_fused(subject), find_shape_makers(subject.tensors, subject.row_of)
    alike = _cast_alike(subject)

    def shake(_op: str, name: str, value: Any) -> Any:
        row = subject.row_of.get(name)
        new = None
        if row is None and (name in fused or name in also):
            unit = _ACCUMULATED if name in fused else subject.typical_unit
            new = bench.shaken(value, noise, unit, zlib.crc32(name.encode()) % NOISE, None)
        if row is not None and row.comparison is not None and name in alike:
            new = _put_one_step_off(bench, value, alike[name], draw)
        elif row is not None and row.comparison is not None and name not in left:
            unit = 0.0 if _is_left_alone(subject, name, chosen=chosen) else _unit_of_tensor(subject, name, row)
            if unit > 0 and not _is_exact(subject, row, value, unit):
                step = (row.comparison.base.rms or 0.0) if subject.whole_steps(name) else None
                # turned for each: tensors of one shape that were off alike would add up, as rounding does not
                new = bench.shaken(value, noise, unit, zlib.crc32(name.encode()) % NOISE, step)
        return new

    return shake


def _is_exact(subject: Subject, row: Row, value: Any, unit: float) -> bool:
    """Return whether a tensor holds only whole numbers that rounding to this unit leaves as they are. Such are a mask's
    0 and 1: 1 - 1 of them is exactly 0 and no small number that passes for true."""
    stats = row.comparison.base if row.comparison is not None else None
    ends = (stats.min, stats.max) if stats is not None else ()
    if subject.whole_steps(row.name) or not all(one is not None and float(one).is_integer() for one in ends):
        return False
    if not subject.bench.is_float(value) or max(abs(one or 0.0) for one in ends) * unit > 1:
        return False
    found = np.asarray(subject.bench.host(value))
    return bool(np.array_equal(found, np.rint(found)))


_ACCUMULATED = 2.0**-15
"""Relative error of what is summed up of integers: an engine rounds biases to the step of the accumulator."""


def _is_left_alone(subject: Subject, name: str, *, chosen: bool) -> bool:
    """Return whether a tensor is not shaken: its operators round nothing. In a step neither what is chosen among
    numbers: a gradient goes to the one that equals the result, and would go nowhere (Paddle's max pooling, torch's
    amax)."""
    if subject.only_moves(name):
        return not _narrows(subject, name)
    region = subject.region_of.get(name, ())
    free = subject.is_step or (not chosen and not subject.whole_steps(name))
    return free and bool(region) and all(plain_type(meta.op_type) in SELECT | MOVE for meta in region)


def _narrows(subject: Subject, name: str) -> bool:
    """Return whether a model that is wide elsewhere casts to a narrow type here, and so rounds though it only moves."""
    read = subject.sources(name)
    return subject.few_narrow and unit_of(subject.held_as.get(name, ""), None) > NARROW and bool(read) and all(
        unit_of(subject.held_as.get(one, ""), None) <= NARROW for one in read
    )  # fmt: skip


def _cast_alike(subject: Subject) -> dict[str, float]:
    """Return the tensors that both sides of a wide run compute in a wide type, and cast to one and the same narrow
    type, with the unit of that: what both round alike is no rounding of either."""
    found = {}
    for name in subject.row_of if subject.few_narrow else ():
        held, meta = subject.held_as.get(name, ""), subject.meta_of.get(name)
        unit, region = unit_of(held, None), subject.region_of.get(name, ())
        if meta is None or unit <= NARROW or meta.dtype != held or not _narrows(subject, name):
            continue
        narrow = [one for one in region if unit_of(one.dtype, None) > NARROW]
        if all(plain_type(one.op_type) in MOVE for one in narrow):
            found[name] = unit
    return found


def _put_one_step_off(bench: Workbench, value: Any, unit: float, draw: int) -> Any:
    """Return the tensor with one element on the next number of its narrow type: as much as may fall to the other side
    of a rounding that both sides do, of what is off by far less. draw: which one."""
    if not bench.is_float(value):
        return None
    array = bench.host(value)
    flat = np.asarray(array).reshape(-1).astype(np.float32)
    places = np.flatnonzero(np.isfinite(flat) & (flat != 0))
    if not places.size:
        return None
    place = int(np.random.default_rng(draw).choice(places))
    moved = np.array(array)
    moved.reshape(-1)[place] = moved.reshape(-1)[place] * (1 + 2 * unit)
    return bench.with_error(value, array, moved)


def _unit_of_tensor(subject: Subject, name: str, row: Row) -> float:
    """Of what the target holds in float32, too, the narrow type's where it is computed from rounded weights."""
    if subject.whole_in_both(row):
        return 0.0  # whoever makes it rounds what was shaken before
    own = subject.unit(name, row.comparison.base) if row.comparison is not None else 0.0
    if subject.same_steps and any(plain_type(meta.op_type) in SUM_UP for meta in subject.region_of.get(name, ())):
        own = max(own, _ACCUMULATED)
    typical = subject.unit_behind(name)
    if own > NARROW or typical <= NARROW:
        return own
    computed = subject.region_of.get(name, ())
    whole = subject.narrow_type in INTEGERS
    return typical if not whole or any(plain_type(m.op_type) in SUM_UP for m in computed) else own
