"""What an operator would have given without the cause that is suspected: the experiment behind each cause.

A cause is told where undoing it, and it alone, takes most of the operator's own error away. That is run on the
operator's own inputs, as both sides had them when it ran alone: elements are given their exact values, a range is
widened, a channel gets a scale of its own, a constant is exchanged and the operator computed once more.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..errors import PrecisionDebugError
from ..numbers.narrowing import narrow_type as dtype_of
from ..numbers.narrowing import round_values
from ..protocols import TellsOtherwise
from ..reasons import say
from .evaluators import Folded, find_folded_weight, make_engine_evaluator, make_form_evaluator
from .held_constants import find_held_constant, has_one_scale
from .introduced import Alone
from .operator_facts import constants_of, find_weights_in_few_bits, is_quantised, narrow_type, parameters_of
from .subject import Subject
from .units import find_lost_digits, largest_of, normal_of, smallest_of, steps_of, unit_of

__all__ = [
    "EXPERIMENTS",
    "LEFT",
    "Case",
    "count_below",
    "find_amplified_constant",
    "find_coarse_constant",
    "find_fitting_steps",
    "find_saturating_sums",
    "find_tiny_constant",
    "list_grids",
    "measure_growth_of_constants",
    "measure_least_rounding",
    "measure_left_in_places",
    "measure_left_of",
    "measure_left_when",
    "measure_left_without",
    "round_to_grid",
    "run_with",
]  # fmt: skip

Array = np.ndarray[Any, Any]
Evidence = Mapping[str, Any]

LEFT = 0.5**0.5
"""Part of an operator's own error (L2) that may be left when its cause is undone: half of the squared error, as is most
of it everywhere else."""

_REPRODUCED = 0.25
"""Part of an operator's own error by which computing it once more may differ from what ran: else nothing is proven."""

_FLOOR = 1e-7
"""What converters to FP16 make of a constant below it, where they do not make it 0 (onnxconverter, min_positive_val).
"""

_NOTHING = 1e-4
"""Of the second largest slice's size: what is smaller is pruned, and loses nothing."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """An operator that ran alone. exact, wrong: its result in the baseline's and in the target's arithmetic, float64.
    refuted: causes that were undone in vain so far, each with the part of the error that was left."""

    subject: Subject
    alone: Alone
    name: str
    exact: Array
    wrong: Array
    refuted: dict[str, float] = field(default_factory=dict)

    def proven(self, code: str, evidence: Evidence) -> dict[str, Any] | None:
        """Return the evidence, with what is left of the error where that could be run; None where too much is left:
        then the cause is noted as refuted."""
        left = measure_left_without(self, code, evidence)
        if left is not None and left > LEFT:
            self.refuted[code] = min(left, self.refuted.get(code, left))
            return None
        return {**evidence} if left is None else {**evidence, "left": left}

    @functools.cached_property
    def own(self) -> float:
        """Its own error, L2 over what is finite on both sides."""
        return _size_of_error(self.wrong - self.exact)

    @functools.cached_property
    def narrow(self) -> str:
        return narrow_type(self.subject, self.name)

    @functools.cached_property
    def folded(self) -> Folded | None:
        """The weight that the target rounds to integers with an operator behind it folded into it."""
        return find_folded_weight(self) if is_quantised(self.narrow) else None

    @functools.cached_property
    def constants(self) -> Mapping[str, Array]:
        """Its constants in float as the target has them before it rounds."""
        own = constants_of(self.subject, self.name)
        return own if self.folded is None else self.folded.fold(own)

    def given(self, source: str) -> Array | None:
        """Return what it read when it ran alone: the baseline's values as the target holds them, or the target's
        own."""
        if self.alone.method == "replayed":
            return self.alone.wrong_of(source)
        exact = self.alone.exact_of(source)
        row = self.subject.row_of.get(source)
        held = None if exact is None or row is None else self.subject.held(row.target_name, exact)
        return exact if held is None else np.asarray(held)

    @functools.cached_property
    def again(self) -> Callable[[Mapping[str, Array]], Array | None]:
        """Compute it once more with other constants or inputs, by name; it gives None where that cannot be done, or
        where what the baseline gave is not reproduced with its own."""
        for make in (make_engine_evaluator, make_form_evaluator):  # of many forms, only where no engine computes it
            compute = make(self)
            plain = None if compute is None else compute({})
            if compute is None or plain is None or plain.shape != self.exact.shape:
                continue
            finite = np.isfinite(self.exact)
            off = _size_of_error(np.where(finite, plain - self.exact, 0.0))
            least = 1e-5 * _size_of_error(self.exact)
            broken = bool((finite & ~np.isfinite(self.wrong)).any())
            whole = bool(np.isfinite(plain[finite]).all())  # no power of what is below 0, tried as the form
            if whole and off <= max(_REPRODUCED * self.own, least if broken else 0.0):
                return compute if self.folded is None else self.folded.follow(compute)
        return lambda _: None

    def without_error_of(self, changed: Mapping[str, Array]) -> Array | None:
        """Return what it would have given, had the target not read these in place of the exact ones."""
        plain, other = self.again({}), self.again(changed)
        if plain is None or other is None or other.shape != self.wrong.shape:
            return None
        with np.errstate(all="ignore"):
            undone = self.wrong - (other - plain)
        same = ~np.isfinite(self.wrong) & ~np.isfinite(other) & np.isfinite(plain)
        return np.where(same, plain, undone)  # NaN or Inf that these make, too


def measure_left_without(case: Case, code: str, evidence: Evidence) -> float | None:
    """Part of an operator's own error that is left when its cause is undone; None where nothing could be run."""
    experiment = EXPERIMENTS.get(code)
    if experiment is None or case.exact.shape != case.wrong.shape:
        return None
    with np.errstate(all="ignore"):
        undone = experiment(case, evidence)
        return undone if undone is None or isinstance(undone, float) else measure_left_of(case, undone)


def measure_left_when(case: Case, changed: Mapping[str, Array]) -> float | None:
    """Return the same where the target reads these constants in place of the baseline's, and the exact ones are put
    back."""
    if case.exact.shape != case.wrong.shape or not changed.keys() <= parameters_of(case.subject, case.name).keys():
        return None
    undone = case.without_error_of({key: np.asarray(value) for key, value in changed.items()})
    return None if undone is None else measure_left_of(case, undone)


def measure_left_of(case: Case, undone: Array) -> float:
    """Part of an operator's own error that is left in another result; inf where that is broken and it was not."""
    finite = np.isfinite(case.exact)
    broken = finite & ~np.isfinite(case.wrong)
    if broken.any():  # what is not a number at all is more than what is off
        return float((broken & ~np.isfinite(undone)).sum() / broken.sum())
    error = (undone - case.exact)[finite]
    return (_size_of_error(error) if np.isfinite(error).all() else math.inf) / case.own if case.own else 0.0


def _size_of_error(error: Array) -> float:
    return float(np.linalg.norm(error[np.isfinite(error)]))


def _restore_elements(case: Case, where: Array) -> Array:
    return np.where(where, case.exact, case.wrong)


def _undo_overflow(case: Case, evidence: Evidence) -> Array | None:
    if evidence.get("cast") or evidence.get("cut"):
        return None
    return _restore_elements(case, np.abs(case.exact) > evidence["limit"])


def _undo_range_inside(case: Case, _evidence: Evidence) -> Array:
    return _restore_elements(case, ~np.isfinite(case.wrong) | ((case.wrong == 0) & (case.exact != 0)))


def _undo_underflow(case: Case, evidence: Evidence) -> Array | None:
    if evidence.get("cast"):
        return None
    gone = (case.exact != 0) & (case.wrong == 0) & (np.abs(case.exact) < smallest_of(case.narrow))
    return _restore_elements(case, gone | find_lost_digits(case.exact, case.wrong, case.narrow))


def _undo_saturation(case: Case, evidence: Evidence) -> Array | None:
    """Return the range widened with the type's steps, where the baseline's own values are beyond it: not what a ruined
    input made of them."""
    limit, numbers = evidence["limit"], case.subject.row_of[case.name].comparison
    above = evidence["largest"] > limit
    if numbers is not None and numbers.base.min is not None and numbers.base.max is not None:
        really = numbers.base.max > limit if above else numbers.base.min < limit
        if not really:
            return case.wrong
    finite, steps = case.wrong[np.isfinite(case.wrong)], steps_of(case.narrow)
    ends = float(finite.min()), float(finite.max())
    held = _restore_elements(case, np.isin(case.wrong, ends) & (np.clip(case.exact, *ends) != case.exact))
    wide = (max(0.0, case.exact.max()) - min(0.0, case.exact.min())) / steps if steps else 0.0
    return held + np.rint(case.exact / wide) * wide - case.exact if wide else held  # and all others are rounded to it


def _shift(case: Case, evidence: Evidence) -> Array | None:
    return None if evidence.get("weight") else case.wrong - evidence["shift"]


def _undo_factor(case: Case, evidence: Evidence) -> Array:
    return np.asarray(case.wrong / evidence["ratio"])


_MUCH_IN_PAIRS = 1 << 27
"""Products of two activations up to which their 8-bit sums are added up by pairs."""


def find_saturating_sums(case: Case) -> dict[str, Any]:
    """Return which part of a product's sums of two terms a kernel cuts off that adds 8-bit products in 16 bits (x86-64
    without VNNI: vpmaddubsw); {} where none would be, or it is no product of two activations in 8 bits."""
    found = _add_in_16_bits(case)
    return {} if found is None or not found[1] else {"pairs": found[1]}


def _undo_saturating_sums(case: Case, evidence: Evidence) -> Array | None:
    found = _add_in_16_bits(case) if "pairs" in evidence else None
    return None if found is None else case.wrong + found[0]


def _add_in_16_bits(case: Case) -> tuple[Array, float] | None:
    """Return what each result loses when pairs of 8-bit products are added in 16 bits, and the part of the pairs that
    saturate. One factor is unsigned there, by a shift where it has both signs, which a sum in 32 bits takes back."""
    given = [one for source in case.subject.sources(case.name) if (one := case.given(source)) is not None]
    found = next(((pair, times) for pair in (given, given[::-1]) if (times := _find_multiple(case, pair))), None)
    if found is None:
        return None
    (one, other), times = found
    first_is_unsigned = bool(one.min() >= 0) or bool(other.min() < 0)
    (left, unit), (right, unit_of_right) = _on_8_bits(one, first_is_unsigned), _on_8_bits(other, not first_is_unsigned)
    if not unit or not unit_of_right:
        return None
    lost, beyond = np.zeros(case.exact.shape), 0
    for at in range(0, one.shape[-1], 2):
        pair = np.matmul(left[..., at : at + 2], right[..., at : at + 2, :])
        cut = np.clip(pair, np.iinfo(np.int16).min, np.iinfo(np.int16).max)
        lost += pair - cut
        beyond += int(np.count_nonzero(pair != cut))
    return lost * unit * unit_of_right * times, beyond / max(lost.size * -(-one.shape[-1] // 2), 1)


def _find_multiple(case: Case, given: Sequence[Array]) -> float:
    """Return how many times the product of two an operator in 8 bits is, by a scale or a sign; 0 where it is more."""
    if "int8" not in case.narrow or any(one.size > 1 for one in case.constants.values()) or len(given) != 2:
        return 0.0
    one, other = given
    fit = one.ndim > 1 and other.ndim > 1 and one.shape[-1] == other.shape[-2] and one.dtype.kind == "f"
    fit = fit and all(a == b or 1 in (a, b) for a, b in zip(one.shape[-3::-1], other.shape[-3::-1], strict=False))
    if not fit or case.exact.size * one.shape[-1] > _MUCH_IN_PAIRS or not np.isfinite([one.sum(), other.sum()]).all():
        return 0.0
    product = np.matmul(one.astype(np.float64), other.astype(np.float64))
    if product.shape != case.exact.shape:
        return 0.0
    times = float(np.sum(product * case.exact)) / (float(np.sum(product * product)) or 1.0)
    return times if _size_of_error(times * product - case.exact) <= _REPRODUCED * case.own else 0.0


def _on_8_bits(values: Array, unsigned: bool) -> tuple[Array, float]:
    """Return a factor's integers as a kernel reads them, on one grid, and what a step is worth."""
    largest = float(np.abs(values).max(initial=0.0))
    shifted = unsigned and bool(values.min(initial=0.0) < 0)
    steps = 255 if unsigned and not shifted else 127
    unit = largest / steps
    return (np.rint(values / unit) if unit else np.zeros(values.shape)) + (128 if shifted else 0), unit


def round_to_grid(values: Array, held_as: str, *, symmetric: bool = False, mirrored: bool = False) -> Array:
    """On the grid of an integer type from the smallest to the largest number, 0 on it. symmetric: from minus the
    largest; mirrored: so, on a grid that leaves the lowest integer out."""
    low, high = min(0.0, float(values.min())), max(0.0, float(values.max()))
    if symmetric or mirrored:
        high = max(-low, high)
        low = -high
    step = (high - low) / ((steps_of(held_as) or 255) - mirrored)
    return np.rint(values / step) * step if step else values


def _give_own_scale(values: Array, evidence: Evidence, held_as: str) -> tuple[Array, Array]:
    """On one grid, and with one for the outlier alone, or for each along its axis."""
    one = round_to_grid(values, held_as)
    if evidence.get("several"):
        turned = np.moveaxis(values, evidence["axis"], 0)
        return one, np.moveaxis(np.stack([round_to_grid(part, held_as) for part in turned]), 0, evidence["axis"])
    place: list[Any] = [slice(None)] * values.ndim
    place[evidence["axis"]] = evidence["channel"]
    rest = np.array(values)
    rest[tuple(place)] = 0
    two = round_to_grid(rest, held_as)
    two[tuple(place)] = round_to_grid(values[tuple(place)], held_as)
    return one, two


def _undo_channel(case: Case, evidence: Evidence) -> Array | float | None:
    source, axis = evidence.get("from", ""), evidence["axis"]
    grids = None if evidence.get("too") else _put_on_both_grids(case, evidence)
    if grids is None:
        return None
    values, one, two = grids
    if not source:
        sizes = [_measure_by_slices(case.exact, other, axis) for other in (case.wrong, one, two)]
        return _measure_energy_left(*sizes)
    if (computed := _compute_with(case, {source: one}, {source: two})) is None:
        rounding = _measure_by_slices(values, one, axis)
        return _measure_by_slices(values, two, axis) / rounding if rounding else None
    plain, got, best = computed
    sizes = [case.own, _size_of_error(got - plain), _size_of_error(best - plain)]
    mixed = axis > 0 and evidence.get("who") == say("channel", number=evidence["channel"])
    if not mixed and _stays_in_its_slice(case, source, values, evidence):  # a token's: what the others lose is theirs
        results = (case.wrong, case.exact + (got - plain), case.exact + (best - plain))
        sizes = [_measure_by_slices(case.exact, other, axis) for other in results]
    return _measure_energy_left(*sizes)


def measure_left_in_places(case: Case, places: Sequence[Evidence]) -> float | None:
    """Return what is left where one outlier gets its own scale in all that an operator reads and in its result at once;
    None where that cannot be run."""
    grids = {one.get("from", ""): _put_on_both_grids(case, one) for one in places}
    known = {source: found for source, found in grids.items() if found is not None}
    if len(known) < len(places):
        return None
    computed = _compute_with(
        case, *({source: found[which] for source, found in known.items() if source} for which in (1, 2))
    )
    if computed is None:
        return None
    plain, got, best = computed
    got, best = case.exact + (got - plain), case.exact + (best - plain)
    if "" in known:
        evidence = next(one for one in places if not one.get("from"))
        got, best = _give_own_scale(got, evidence, case.narrow)[0], _give_own_scale(best, evidence, case.narrow)[1]
    return _measure_energy_left(
        *(_measure_by_slices(case.exact, other, places[0]["axis"]) for other in (case.wrong, got, best))
    )


def _put_on_both_grids(case: Case, evidence: Evidence) -> tuple[Array, Array, Array] | None:
    """Return what an outlier lies in: as it is, on one grid, and with a scale for the outlier alone; None where it is
    not there."""
    source = evidence.get("from", "")
    values = case.exact if not source else case.constants.get(source, case.given(source))
    if values is None or values.ndim <= evidence["axis"] or values.shape[evidence["axis"]] <= evidence["channel"]:
        return None
    values = values.astype(np.float64)
    one, two = _give_own_scale(values, evidence, case.narrow if is_quantised(case.narrow) else "int8")
    held = find_held_constant(case.subject, case.name, source, values) if source in case.constants else None
    return values, one if held is None else held, two


def _compute_with(case: Case, *puts: Mapping[str, Array]) -> list[Array] | None:
    """Return what the operator gives, and what it gives with others in the place of what it reads: computed once more,
    or in runs of the baseline, where these give what it gave; None where neither can be done."""
    found = [case.again(put) for put in ({}, *puts)]
    if found[0] is None and {*puts[0]} <= case.subject.row_of.keys():
        found = [run_with(case, put).get(case.name) for put in ({}, *puts)]
        if found[0] is None or _size_of_error(found[0].astype(np.float64) - case.exact) > _REPRODUCED * case.own:
            return None
    known = [one.astype(np.float64) for one in found if one is not None]
    return known if len(known) == len(found) else None


def run_with(
    case: Case, put: Mapping[str, Array], *more: str, told: Mapping[str, Mapping[str, Any]] | None = None,
    every: bool = False,
) -> dict[str, Array]:  # fmt: skip
    """Return these tensors and the operator's own of a run of the baseline, with others put in their place; {} where
    the engine does not run so. more, every: further tensors. told: see ``TellsOtherwise``."""
    seen: dict[str, Array] = {}
    bench = case.subject.bench

    def replace(_op: str, name: str, value: Any) -> Any:
        array = bench.host(value)
        seen[name] = np.array(array)
        other = put.get(name)
        if other is None or other.shape != array.shape:
            return None
        return bench.with_error(value, array, other.astype(array.dtype))

    try:
        case.subject.operators()[0].run_replacing(
            case.subject.feeds, TellsOtherwise(case.subject.showing(replace), told or {}),
            None if every else {*put, *more, case.name},
        )  # fmt: skip
    except PrecisionDebugError:
        return {}
    return seen


def _stays_in_its_slice(case: Case, source: str, values: Array, evidence: Evidence) -> bool:
    """Return whether what an operator makes of one sample or token that it reads is one of its result: it is computed
    once more with that one doubled. Channels come together again in a product behind it, where the large one counts."""
    axis, doubled = evidence["axis"], np.array(values)
    place: list[Any] = [slice(None)] * values.ndim
    place[axis] = evidence["channel"]
    doubled[tuple(place)] *= 2
    plain, other = case.again({source: values}), case.again({source: doubled})
    if plain is None or other is None or plain.ndim != values.ndim or plain.shape[axis] != values.shape[axis]:
        return False
    moved = np.any(plain != other, axis=tuple(a for a in range(plain.ndim) if a != axis))
    return bool(moved[evidence["channel"]]) and int(moved.sum()) == 1


def _measure_energy_left(whole: float, before: float, after: float) -> float | None:
    """Part of an error that is left where what made ``before`` of it makes ``after``: other roundings fall otherwise on
    the engine, and are as large. One that would make far more than there is was not made there."""
    if not whole:
        return None
    return 1.0 if before > 2 * whole else float(np.sqrt(max(0.0, whole**2 - before**2) + after**2)) / whole


def _measure_by_slices(exact: Array, other: Array, axis: int) -> float:
    """Return the size of an error, each slice along an axis judged by its own size: what one large slice loses is no
    measure of what the others lose to it."""
    others = tuple(a for a in range(exact.ndim) if a != axis)
    size = np.sqrt(np.sum(np.square(exact), axis=others))
    alive = size > _NOTHING * float(np.sort(size, axis=None)[-2:][0])  # where there is one slice, the whole is it
    error = np.sqrt(np.sum(np.square(other - exact), axis=others))
    return _size_of_error(error[alive] / size[alive])


def _rounding_makes_it(case: Case) -> bool:
    """Return whether rounding the exact result to the type makes an error of the size that there is."""
    return _size_of_error(round_to_grid(case.exact, case.narrow) - case.exact) >= 0.5 * case.own


def _undo_constant(case: Case, evidence: Evidence) -> Array | None:
    """Return a constant as the model has it, in place of what the type makes of its tiny or large numbers."""
    weight = evidence["weight"]
    if weight not in case.constants:
        return None
    return _choose_best(
        case, (case.without_error_of({weight: held}) for held in _list_held_constants(case, weight, everything=False))
    )


def _undo_rounded_constants(case: Case, evidence: Evidence) -> Array | None:
    """Of a product whose terms cancel inside: its constants not rounded at all."""
    if evidence.get("amplifier") != case.name or not case.constants:
        return None
    return _choose_best(case, map(case.without_error_of, _list_rounded_constants(case)))


def _list_rounded_constants(case: Case) -> Iterator[dict[str, Array]]:
    """Yield all of its constants as the target may hold them; of integers its weights, on each kind of grid."""
    if not is_quantised(case.narrow):
        yield {weight: next(_list_held_constants(case, weight, everything=True)) for weight in case.constants}
        return
    weights = [weight for weight, value in case.constants.items() if value.ndim > 1]
    for grids in zip(*(list_grids(case, weight) for weight in weights), strict=False):
        yield dict(zip(weights, grids, strict=True))


def measure_growth_of_constants(case: Case) -> float | None:
    """Return how many times as large the rounding of its constants, and it alone, is in the result, both beside what
    they are the error of; None where that cannot be run."""
    plain, known = case.again({}), list[tuple[float, float]]()
    size = 0.0 if plain is None else _size_of_error(plain)
    for held in _list_rounded_constants(case):
        off = math.hypot(*(_size_of_error(value - case.constants[key]) / (_size_of_error(case.constants[key]) or 1.0)
                           for key, value in held.items()))  # fmt: skip
        got, undone = case.again(held), case.without_error_of(held)
        if got is not None and plain is not None and undone is not None and off and size:
            known.append((measure_left_of(case, undone), _size_of_error(got - plain) / size / off))
    return min(known)[1] if known else None


def _undo_constant_grid(case: Case, evidence: Evidence) -> Array | None:
    weight = evidence["weight"]
    values = case.constants[weight]
    return _choose_best(
        case, (case.without_error_of({weight: _lose_what_is_0(values, grid)}) for grid in list_grids(case, weight))
    )


def _lose_what_is_0(values: Array, grid: Array) -> Array:
    """Return a constant of which nothing is rounded but what a grid makes 0."""
    return np.where(grid == 0, 0.0, values)


def list_grids(case: Case, weight: str) -> list[Array]:
    """Return a constant as a file tells that the target holds it, or else on the grids that an engine may hold it on:
    of one scale, or of one for each channel."""
    value = case.constants[weight].astype(np.float64)
    if (held := find_held_constant(case.subject, case.name, weight, value)) is not None:
        return [held]
    grids = [round_to_grid(value, case.narrow, symmetric=True), round_to_grid(value, case.narrow),
             round_to_grid(value, case.narrow, mirrored=True)]  # fmt: skip
    for axis in sorted({0, value.ndim - 1}) if value.ndim > 1 else ():  # one scale for each of its output channels
        if value.ndim > 2 and value.shape[axis] not in case.exact.shape:  # a side of a filter
            continue
        for mirrored in (False, True):
            parts = [round_to_grid(part, case.narrow, symmetric=True, mirrored=mirrored)
                     for part in np.moveaxis(value, axis, 0)]  # fmt: skip
            grids.append(np.moveaxis(np.stack(parts), 0, axis))
    return grids


def measure_least_rounding(case: Case, weight: str) -> float:
    """Relative L2 error of the result where nothing but this constant is rounded, on the best grid for it; 0 where
    that cannot be run."""
    plain = case.again({})
    sizes = [
        _size_of_error(got - plain)
        for grid in (list_grids(case, weight) if plain is not None and weight in case.constants else ())
        if (got := case.again({weight: grid})) is not None
    ]
    whole = _size_of_error(case.exact)
    return min(sizes) / whole if sizes and whole else 0.0


def _reads_rounded(case: Case, evidence: Evidence) -> Array | None:
    """Return what it reads as it is, in place of rounded to 8 bits: in blocks of the last axis, or all on one grid."""
    source, block = evidence["from"], evidence["block"]
    given = case.given(source)
    if given is None or given.dtype.kind != "f" or not given.size:
        return None
    values = given.astype(np.float64)
    if not block:
        return case.without_error_of({source: round_to_grid(values, "uint8")})
    size = values.shape[-1]
    padded = np.zeros((*values.shape[:-1], -(-size // block) * block))
    padded[..., :size] = values
    parts = padded.reshape(-1, block)
    scale = np.max(np.abs(parts), axis=1, keepdims=True) / np.iinfo(np.int8).max
    with np.errstate(all="ignore"):
        held = np.where(scale > 0, np.rint(parts / scale) * scale, 0.0)
    return case.without_error_of({source: held.reshape(padded.shape)[..., :size]})


def _choose_best(case: Case, several: Iterator[Array | None]) -> Array | None:
    known = [one for one in several if one is not None]
    return min(known, key=lambda one: measure_left_of(case, one), default=None)


def _list_held_constants(case: Case, weight: str, *, everything: bool) -> Iterator[Array]:
    """Yield what the target may hold of a constant; everything: of all of its numbers, not of those that are out of
    range."""
    value = case.constants[weight].astype(np.float32)
    held = case.subject.narrow_type
    with np.errstate(all="ignore"):
        there = round_values(value, dtype_of(held)).astype(np.float64)
        if everything:
            yield there
            return
        size = np.abs(value)
        beyond = size > largest_of(held)
        out = beyond | (size < normal_of(held))
        yield np.where(out, there, value)
        if beyond.any():
            yield np.where(beyond, np.sign(value) * np.inf, value).astype(np.float64)
        if held == "float16":
            yield np.where(size < smallest_of(held), 0.0, value).astype(np.float64)
            yield np.where((size < _FLOOR) & (value != 0), np.sign(value) * _FLOOR, value).astype(np.float64)


def find_tiny_constant(case: Case) -> tuple[bool, dict[str, Any]]:
    """Return whether constants with numbers below the type's normal ones could be tried, and the one whose tiny numbers
    make the operator's error: evidence of ``weight_underflow``, {} where none does."""
    normal, least = normal_of(case.narrow), smallest_of(case.narrow)
    ran, best, found = False, LEFT, dict[str, Any]()
    for weight, values in case.constants.items() if least else ():
        sizes = np.abs(values)
        low = sizes[(sizes > 0) & (sizes < normal)].astype(np.float64)
        if not low.size:
            continue
        left = measure_left_without(case, "weight_underflow", {"weight": weight})
        if left is None:
            continue
        ran = True
        if left <= best:
            gone, middle = low[low < least], float(np.median(low))
            found = {"weight": weight, "value": middle, "smallest": normal, "left": left}
            if 2 * gone.size >= low.size:
                found |= {"value": float(np.median(gone)), "smallest": least, **count_below(values, least)}
            else:
                off = float(np.linalg.norm(np.round(low / least) * least - low) / np.linalg.norm(low))
                found |= {"off": off}
            best = left
    return ran, found


def count_below(values: Array, least: float) -> dict[str, int]:
    """Return how many numbers of a constant are below the type's smallest; {} where it is a single one."""
    gone = int(np.count_nonzero((values != 0) & (np.abs(values) < least)))
    return {"count": gone, "elements": int(values.size)} if values.size > 1 else {}


def find_amplified_constant(case: Case) -> dict[str, Any]:
    """Return a constant whose rounding to a narrow float makes the operator's error, however small it is itself:
    evidence of ``constant_rounded``; {} where none does."""
    best, found, held = LEFT, dict[str, Any](), case.subject.narrow_type
    for weight, values in case.constants.items() if smallest_of(held) and not is_quantised(case.narrow) else ():
        value = values.astype(np.float64)
        apart = float(np.linalg.norm(next(_list_held_constants(case, weight, everything=True)) - value))
        left = measure_left_without(case, "constant_rounded", {"weight": weight}) if 0 < apart < np.inf else None
        if left is not None and left <= best:
            best, found = left, {"weight": weight, "held": held, "off": apart / float(np.linalg.norm(value))}
    return {**found, "left": best} if found else {}


def _undo_rounded_constant(case: Case, evidence: Evidence) -> Array | None:
    weight = evidence["weight"]
    return case.without_error_of({weight: next(_list_held_constants(case, weight, everything=True))})


def find_coarse_constant(case: Case) -> dict[str, Any]:
    """Return a constant of which its scale, or that of each of its channels, makes a part 0, which makes the operator's
    error: evidence of ``constant_scale``, of the grid that leaves least; {} where none does."""
    best, found = LEFT, dict[str, Any]()
    if not is_quantised(case.narrow) or _rounding_makes_it(case):
        return found
    for weight, values in case.constants.items():
        if values.size < 2 or not np.isfinite(values).all():
            continue
        sizes = np.abs(values[values != 0]).astype(np.float64)
        for grid in list_grids(case, weight):
            gone = int(np.count_nonzero((values != 0) & (grid == 0)))
            undone = case.without_error_of({weight: _lose_what_is_0(values, grid)}) if gone else None
            left = None if undone is None else measure_left_of(case, undone)
            if left is not None and (left < best or (left == best and not found)):
                whole = case.without_error_of({weight: grid})  # of all of its numbers, as it is told
                told = left if whole is None else min(left, measure_left_of(case, whole))
                best, found = left, {
                    "weight": weight, "least": float(sizes.min()), "largest": float(sizes.max()),
                    "share": gone / sizes.size, "left": told,
                }  # fmt: skip
    return found


def find_fitting_steps(case: Case) -> dict[str, Any]:
    """Return a constant whose numbers are few whole steps, of one size or of one a column, and that a quantiser
    rounded to steps of another size, which makes the operator's error; {} where there is none."""
    for weight, values in case.constants.items():
        held = find_held_constant(case.subject, case.name, weight, values)
        if held is None or values.ndim != 2 or not np.isfinite(values).all():
            continue
        largest = np.abs(values).max(axis=None if has_one_scale(case.subject, case.name, weight, values) else 0)
        steps = np.abs(values) / np.maximum(largest, np.finfo(np.float32).tiny)
        fits = next((n for n in _FEW_STEPS if _are_whole(n * steps[:_FEW_ROWS]) and _are_whole(n * steps)), 0)
        undone = case.without_error_of({weight: held}) if fits else None
        left = None if undone is None else measure_left_of(case, undone)
        if left is not None and left <= LEFT:
            return {"weight": weight, "fits": fits, "left": left}
    return {}


def _are_whole(values: Array) -> bool:
    return bool((np.abs(values - np.round(values)) < _BESIDE).all())


def _undo_stored_constants(case: Case, evidence: Evidence) -> Array | None:
    """Return every constant exact again that the target's file holds in a narrower type; None where an engine may have
    folded some of them into others, in that type, which nobody can undo from outside."""
    held = dtype_of(evidence["held"])
    values = {weight: value.astype(np.float32) for weight, value in case.constants.items()}
    near = {weight: round_values(value, held).astype(np.float64) for weight, value in values.items()}
    undone = case.without_error_of(near)
    folded = len(case.subject.region_of.get(case.name, ())) > 1 and len(near) > 1
    few = case.own <= _FOLDED * (unit_of(evidence["held"], None) or 0.0) * _size_of_error(case.exact)
    return None if undone is not None and folded and few and measure_left_of(case, undone) > LEFT else undone


def _undo_weight_rounding(case: Case, evidence: Evidence) -> Array | None:
    """Return the weight that it was made of in the place of what the quantiser's file holds."""
    pair = find_weights_in_few_bits(case.subject, case.name).get(evidence["weight"])
    return None if pair is None else case.without_error_of({evidence["weight"]: pair[1].astype(np.float32, copy=False)})


_FEW_STEPS = range(1, 8)
"""Whole steps up to which numbers of both signs fit in 4 bits, and so in more."""

_FEW_ROWS = 64
"""Rows that are looked at before all are: most constants fit no step."""

_BESIDE = 1e-3
"""Part of a step that a number may lie beside it, as float32 and its scale round it."""

_FOLDED = 4.0
"""Roundings that constants bring which were rounded, and multiplied, and rounded again: two of each, added up."""


EXPERIMENTS: Mapping[str, Callable[[Case, Evidence], Array | float | None]] = {
    "overflow": _undo_overflow,
    "range_inside": _undo_range_inside,
    "underflow": _undo_underflow,
    "weight_underflow": _undo_constant,
    "weight_overflow": _undo_constant,
    "saturation": _undo_saturation,
    "saturating_sums": _undo_saturating_sums,
    "zero_point": _shift,
    "scale": _undo_factor,
    "outlier_channel": _undo_channel,
    "constant_scale": _undo_constant_grid,
    "reads_rounded": _reads_rounded,
    "constant_rounded": _undo_rounded_constant,
    "cancellation": _undo_rounded_constants,
    "held_narrower": _undo_stored_constants,
    "few_bits": _undo_weight_rounding,
}
"""By cause: what the operator would have given without it, or the part of its error that is left; None: not run."""
