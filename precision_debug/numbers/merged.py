"""Totals of many samples of one tensor: what travels between shards and machines, and is merged there.

The merge of any split, in any order, is the whole bit for bit: counts and histograms are integers, sums are exact
(``exact_sum``), extremes are kept with their sample and index, the first of equals winning. A sample enters by the
totals of one pass over its tensors, whose own sums are rounded as ever: within n * 2^-53 of the sum of magnitudes of
its n elements. Quantiles come from the one histogram that all kernels fill: see ``histogram.estimate_quantiles``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from ..codec import encode
from ..records import Comparison, Shape, TensorStats
from . import finish, histogram
from .exact_sum import ExactSum, sum_of_squares
from .metrics import DECLARED
from .slices import MergedSlices, SliceTotals, judge_slices
from .totals import PairTotals, Scales, SideTotals, Totals

__all__ = [
    "WORST",
    "Measured",
    "Merged",
    "MergedSide",
    "Place",
    "drop_totals",
    "from_plain",
    "side_from_plain",
    "side_to_plain",
    "to_plain",
]  # fmt: skip


NOTHING = ExactSum()

WORST = 5
"""Samples that are kept as the worst ones of a tensor."""


@dataclass(frozen=True, kw_only=True)
class Measured(Comparison):
    """The numbers of one pair of tensors, with the totals that they were made of; None: they are not numeric pairs.
    by_slice: of a final output."""

    totals: Totals | None = field(default=None, compare=False, repr=False)
    by_slice: SliceTotals | None = field(default=None, compare=False, repr=False)


def drop_totals(found: Comparison) -> Comparison:
    """Return the numbers without their totals, as a journal takes them."""
    return Comparison(**{one.name: getattr(found, one.name) for one in fields(Comparison)})


@dataclass(frozen=True, kw_only=True)
class Place:
    """An extreme, and where it is. index: inside the tensor of that sample."""

    value: float
    sample: int
    index: Shape


@dataclass(frozen=True, kw_only=True)
class MergedSide:
    """One side's tensors. dtype, shape: those of the first sample. sum, squares: of the finite elements."""

    dtype: str
    shape: Shape
    elements: int
    nan: int = 0
    inf: int = 0
    negative_inf: int = 0
    min: float | None = None
    max: float | None = None
    sum: ExactSum = NOTHING
    squares: ExactSum = NOTHING

    @classmethod
    def of(cls, stats: TensorStats, side: SideTotals | None, scale: int) -> MergedSide:
        """side: its totals; without them, sums come from the mean and the RMS."""
        finite = stats.elements - stats.nan - stats.inf
        if side is not None:
            total, squares = ExactSum.of(side.sum, scale), ExactSum.of(side.squares, 2 * scale)
        else:
            total = ExactSum.of((stats.mean or 0.0) * finite)
            squares = ExactSum.of(sum_of_squares(stats.rms or 0.0, finite))
        return cls(
            dtype=stats.dtype, shape=stats.shape, elements=stats.elements, nan=stats.nan, inf=stats.inf,
            negative_inf=stats.negative_inf, min=stats.min, max=stats.max, sum=total, squares=squares,
        )  # fmt: skip

    def merged(self, other: MergedSide) -> MergedSide:
        """self: has the first sample."""
        return MergedSide(
            dtype=self.dtype, shape=self.shape, elements=self.elements + other.elements, nan=self.nan + other.nan,
            inf=self.inf + other.inf, negative_inf=self.negative_inf + other.negative_inf,
            min=_smaller_of(self.min, other.min), max=_larger_of(self.max, other.max),
            sum=self.sum + other.sum, squares=self.squares + other.squares,
        )  # fmt: skip

    @property
    def stats(self) -> TensorStats:
        """The numbers of all elements together."""
        finite = self.elements - self.nan - self.inf
        power = _choose_power(self.squares)
        return TensorStats(
            dtype=self.dtype, shape=self.shape, elements=self.elements, min=self.min, max=self.max, nan=self.nan,
            inf=self.inf, negative_inf=self.negative_inf, mean=self.sum.scaled(0, finite) if finite else None,
            rms=finish.undo_scale(math.sqrt(self.squares.scaled(2 * power, finite)), power) if finite else None,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Merged:
    """All samples of one tensor.

    first: the lowest number among the samples. unlike: samples whose shapes or types do not compare; what needs pairs
    is over the others. mismatched, finite, …: see totals.PairTotals. counted: by a declared metric's name. stat_abs,
    stat_rel: the worst sample's. sketch: see histogram. worst: (error, sample) of the worst samples, the worst first;
    error is the relative L2 one, inf where something is not a number on one side. slices: of a final output.
    """

    samples: int
    first: int
    base: MergedSide
    target: MergedSide
    unlike: int = 0
    mismatched: int = 0
    finite: int = 0
    special: int = 0
    apart: int = 0
    same_inf: int = 0
    first_mismatch: Place | None = None
    max_abs: Place | None = None
    max_rel: Place | None = None
    sum_abs: ExactSum = NOTHING
    sum_rel: ExactSum = NOTHING
    squares: ExactSum = NOTHING
    base_squares: ExactSum = NOTHING
    target_squares: ExactSum = NOTHING
    dot: ExactSum = NOTHING
    counted: Mapping[str, ExactSum] = field(default_factory=dict)
    stat_abs: float | None = None
    stat_rel: float | None = None
    required_atol: float | None = None
    required_rtol: float | None = None
    fp16_overflow: int = 0
    fp16_subnormal: int = 0
    identical: bool = True
    sketch: Mapping[int, int] = field(default_factory=dict)
    worst: tuple[tuple[float, int], ...] = ()
    slices: MergedSlices | None = None

    @classmethod
    def of(cls, found: Comparison, sample: int) -> Merged:
        """One sample. found: best a Measured; of a plain Comparison only what it tells is merged."""
        totals = found.totals if isinstance(found, Measured) else None
        by_slice = found.by_slice if isinstance(found, Measured) else None
        scales, pairs = (totals.scales, totals.pairs) if totals is not None else (Scales(), None)
        unlike = found.mismatched is None

        largest, wildest = (found.max_abs, found.max_abs_index), (found.max_rel, found.max_rel_index)
        if pairs is not None:  # a row's own are infinite where NaN or Inf were born, and so is what they are merged to
            largest = pairs.max_abs, finish.unravel_index(pairs.max_abs_at, found.base.shape)
            wildest = pairs.max_rel, finish.unravel_index(pairs.max_rel_at, found.base.shape)

        def place(value: float | None, index: Shape | None) -> Place | None:
            return None if value is None or index is None else Place(value=value, sample=sample, index=index)

        shared: dict[str, Any] = {} if pairs is None else {
            "finite": pairs.finite, "special": pairs.special, "sum_rel": ExactSum.of(pairs.sum_rel),
            "sum_abs": ExactSum.of(pairs.sum_abs, scales.diff), "squares": ExactSum.of(pairs.squares, 2 * scales.diff),
            "base_squares": ExactSum.of(pairs.base_squares, 2 * scales.base),
            "target_squares": ExactSum.of(pairs.target_squares, 2 * scales.target),
            "dot": ExactSum.of(pairs.dot, scales.base + scales.target), "sketch": _sketch_of(pairs),
            "counted": {one.name: ExactSum.of(pairs.declared.get(one.name, 0)) for one in DECLARED},
        }  # fmt: skip
        return cls(
            samples=1, first=sample, unlike=int(unlike), mismatched=found.mismatched or 0,
            apart=found.apart, same_inf=found.same_inf,
            base=MergedSide.of(found.base, totals.base if totals else None, scales.base),
            target=MergedSide.of(found.target, totals.target if totals else None, scales.target),
            first_mismatch=place(0.0, found.first_mismatch), max_abs=place(*largest),
            max_rel=place(*wildest), stat_abs=found.stat_abs, stat_rel=found.stat_rel,
            required_atol=found.required_atol, required_rtol=found.required_rtol, fp16_overflow=found.fp16_overflow,
            fp16_subnormal=found.fp16_subnormal, identical=found.identical, worst=((rank_badness(found), sample),),
            slices=MergedSlices.of(by_slice) if by_slice is not None else None, **shared,
        )  # fmt: skip

    @staticmethod
    def merge(one: Merged, other: Merged) -> Merged:
        """Return the totals of both; they have no sample in common."""
        if other.first < one.first:
            one, other = other, one
        added: dict[str, Any] = {name: getattr(one, name) + getattr(other, name) for name in _ADDED}
        most: dict[str, Any] = {name: _larger_of(getattr(one, name), getattr(other, name)) for name in _MOST}
        return Merged(
            first=one.first, base=one.base.merged(other.base), target=one.target.merged(other.target),
            first_mismatch=_earlier_place(one.first_mismatch, other.first_mismatch),
            max_abs=_larger_place(one.max_abs, other.max_abs), max_rel=_larger_place(one.max_rel, other.max_rel),
            counted=_sum_counts(one.counted, other.counted, NOTHING), identical=one.identical and other.identical,
            sketch=_sum_counts(one.sketch, other.sketch, 0),
            worst=tuple(sorted((*one.worst, *other.worst), key=lambda pair: (-pair[0], pair[1]))[:WORST]),
            slices=one.slices.merged(other.slices) if one.slices is not None and other.slices is not None else None,
            **added, **most,
        )  # fmt: skip

    def comparison(self) -> Comparison:
        """Return the numbers of all samples together; shapes and indices are those of one sample (``first``, the
        places')."""
        compared = self.unlike < self.samples
        base, target = self.base.stats, self.target.stats
        if not compared:
            return Comparison(base=base, target=target, shapes_match=base.shape == target.shape)
        finite, mine = self.finite, self._floats()
        pairs, scales = mine.pairs, mine.scales
        quantiles: list[float | None] = [None] * len(finish.QUANTILES)
        if self.sketch and self.max_abs is not None:
            quantiles = list(histogram.estimate_quantiles(self.sketch, finish.QUANTILES, self.max_abs.value))
        has_sums = finite > 0
        return Comparison(
            base=base, target=target, shapes_match=not self.unlike, mismatched=self.mismatched, apart=self.apart,
            same_inf=self.same_inf,
            first_mismatch=self.first_mismatch.index if self.first_mismatch else None,
            max_abs=self.max_abs.value if self.max_abs else None,
            max_abs_index=self.max_abs.index if self.max_abs else None,
            max_rel=self.max_rel.value if self.max_rel else None,
            max_rel_index=self.max_rel.index if self.max_rel else None,
            mean_abs=self.sum_abs.scaled(0, finite) if has_sums else None,
            mean_rel=self.sum_rel.scaled(0, finite) if has_sums else None,
            rmse=finish.undo_scale(math.sqrt(self.squares.scaled(2 * scales.diff, finite)), scales.diff)
            if has_sums else None,
            cosine_distance=finish.compute_cosine_distance(mine) if has_sums else None,
            sqnr_db=finish.compute_sqnr(mine) if has_sums else None,
            abs_p50=quantiles[0], abs_p90=quantiles[1], abs_p99=quantiles[2], abs_p999=quantiles[3],
            quantiles_exact=not has_sums, stat_abs=self.stat_abs, stat_rel=self.stat_rel,
            required_atol=self.required_atol, required_rtol=self.required_rtol, fp16_overflow=self.fp16_overflow,
            fp16_subnormal=self.fp16_subnormal, identical=self.identical,
            slices=judge_slices(self.slices.totals if self.slices is not None else None),
            **finish.finish_declared_metrics(pairs),
        )  # fmt: skip

    def _floats(self) -> Totals:
        """Return what ``finish`` reads, each sum rounded once."""
        diff, base, target = (
            _choose_power(self.squares),
            _choose_power(self.base_squares),
            _choose_power(self.target_squares),
        )
        pairs = PairTotals(
            finite=self.finite, squares=self.squares.scaled(2 * diff),
            base_squares=self.base_squares.scaled(2 * base), target_squares=self.target_squares.scaled(2 * target),
            dot=self.dot.scaled(base + target), declared={name: float(one) for name, one in self.counted.items()},
        )  # fmt: skip
        return Totals(pairs=pairs, scales=Scales(base=base, target=target, diff=diff))


_ADDED = (
    "samples", "unlike", "mismatched", "finite", "special", "apart", "same_inf", "sum_abs", "sum_rel", "squares",
    "base_squares", "target_squares", "dot", "fp16_overflow", "fp16_subnormal",
)  # fmt: skip
_MOST = ("stat_abs", "stat_rel", "required_atol", "required_rtol")


def rank_badness(found: Comparison) -> float:
    """Return how bad one sample is: its relative L2 error; inf where shapes differ or one side is not a number."""
    if not found.shapes_match or found.mismatched is None or (found.required_atol == math.inf and found.mismatched):
        return math.inf
    error = found.relative_l2
    return float(found.mismatched) if error is None else error


def _sketch_of(pairs: PairTotals) -> dict[int, int]:
    if pairs.histogram is not None:
        entered = int(pairs.histogram.sum())
        return histogram.make_sketch(pairs.histogram, max(1, round(pairs.finite / entered)) if entered else 1)
    counts: dict[int, int] = {}
    for errors in pairs.diffs:
        counts = _sum_counts(counts, histogram.sketch_errors(errors), 0)
    return counts


def _sum_counts(one: Mapping[Any, Any], other: Mapping[Any, Any], zero: Any) -> dict[Any, Any]:
    both = dict(one)
    for key, value in other.items():
        both[key] = both.get(key, zero) + value
    return both


def _smaller_of(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else min(one, other)


def _larger_of(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else max(one, other)


def _larger_place(one: Place | None, other: Place | None) -> Place | None:
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda place: (-place.value, place.sample, place.index))


def _earlier_place(one: Place | None, other: Place | None) -> Place | None:
    if one is None or other is None:
        return one or other
    return min(one, other, key=lambda place: (place.sample, place.index))


def _choose_power(squares: ExactSum) -> int:
    """Return the exponent by which roots of the sum are scaled so that float64 holds the sum; 0 for usual values."""
    if not squares.mantissa:
        return 0
    top = (squares.mantissa.bit_length() + squares.exponent) // 2
    return 0 if -440 <= top <= 460 else top


# Merged totals as JSON values and back, without loss: exact sums travel as text, as no JSON number holds them.

_SIDES = ("base", "target")
_PLACES = ("first_mismatch", "max_abs", "max_rel")


def to_plain(merged: Merged) -> dict[str, Any]:
    """Fields by name; those at their default are left out."""
    plain: dict[str, Any] = {}
    for name, value in _list_stated_fields(merged):
        if name in _SIDES:
            plain[name] = side_to_plain(value)
        elif name in _PLACES:
            plain[name] = [encode(value.value), value.sample, list(value.index)]
        elif name == "sketch":
            plain[name] = [[bucket, count] for bucket, count in sorted(value.items())]
        elif name == "slices":
            plain[name] = value.to_plain()
        elif name == "counted":
            plain[name] = {key: item.text for key, item in value.items()}
        else:
            plain[name] = _encode_value(value)
    return plain


def from_plain(plain: Mapping[str, Any]) -> Merged:
    """Return the inverse. Raises KeyError, TypeError or ValueError on foreign data."""
    values: dict[str, Any] = {}
    for name, item in plain.items():
        if name in _SIDES:
            values[name] = side_from_plain(item)
        elif name in _PLACES:
            values[name] = Place(value=_decode_float(item[0]), sample=int(item[1]), index=tuple(item[2]))
        elif name == "sketch":
            values[name] = {int(bucket): int(count) for bucket, count in item}
        elif name == "slices":
            values[name] = MergedSlices.from_plain(item)
        elif name == "counted":
            values[name] = {key: ExactSum.from_text(text) for key, text in item.items()}
        elif name == "worst":
            values[name] = tuple((_decode_float(error), int(sample)) for error, sample in item)
        else:
            values[name] = _decode_value(name, item, _FIELDS)
    return Merged(**values)


def side_to_plain(side: MergedSide) -> dict[str, Any]:
    """Return the same for one side."""
    return {key: _encode_value(item) for key, item in _list_stated_fields(side)}


def side_from_plain(plain: Mapping[str, Any]) -> MergedSide:
    """Return its inverse."""
    return MergedSide(**{key: _decode_value(key, value, _SIDE_FIELDS) for key, value in plain.items()})


def _list_stated_fields(record: Any) -> list[tuple[str, Any]]:
    found = []
    for one in dataclasses.fields(record):
        value = getattr(record, one.name)
        if one.default is dataclasses.MISSING or value != one.default:
            found.append((one.name, value))
    return found


def _encode_value(value: Any) -> Any:
    return value.text if isinstance(value, ExactSum) else encode(value)


def _decode_value(name: str, value: Any, fields: Mapping[str, Callable[[Any], Any]]) -> Any:
    return fields[name](value)


def _decode_float(value: Any) -> float:
    return float(value["$float"]) if isinstance(value, dict) else value


def _make_reader(kind: str) -> Callable[[Any], Any]:
    if kind == "ExactSum":
        return ExactSum.from_text
    return tuple if kind == "Shape" else _decode_float


_FIELDS = {one.name: _make_reader(str(one.type)) for one in dataclasses.fields(Merged)}
_SIDE_FIELDS = {one.name: _make_reader(str(one.type)) for one in dataclasses.fields(MergedSide)}
