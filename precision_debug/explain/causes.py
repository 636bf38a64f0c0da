"""Why an operator lost it: a code, and the numbers that prove it.

What each code means, the evidence that it has, and all that follows from it is one record in ``reasons.causes``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from ..numbers.arrays import as_array
from ..numbers.blocks import measure_norm
from ..numbers.born import make_introduced_infinite
from ..numbers.narrowing import narrow_type as dtype_of
from ..numbers.narrowing import round_values
from ..numbers.number_types import PRECISIONS, QUANTISED, find_promise
from ..reasons import CORE, say
from ..reasons.causes import CAUSES
from ..records import Culprit, Introduced
from .bias_scale import find_bias_scale
from .broken_scales import find_broken_scale
from .casts import find_cast_cause
from .criteria import HALF
from .effects import find_noise, measure_growth
from .evaluators import make_exact_evaluator
from .file_scales import find_clipping_scale, find_coarse_scale, find_other_range, find_own_scale
from .files import find_file_difference, find_narrower_constants, find_other_operator, find_other_weight
from .grid import (
    describe_outlier,
    find_grid_cause,
    find_outlier,
    find_shared_scale,
    find_stored_cause,
    holds_another_scale,
    measure_outlier_again,
)
from .growth import find_merged_operand
from .introduced import Alone
from .made_of_constants import find_constant_behind
from .narrowings import find_parts, measure_rounding, tell_rest
from .operator_facts import (
    WIDE,
    constants_of,
    count_terms,
    describe_born,
    ends_in_sum,
    error_share,
    find_acting_type,
    find_exchanged_operators,
    find_largest_input,
    find_weights_in_few_bits,
    is_finer,
    is_quantised,
    largest_of_row,
    narrow_type,
    types_of,
)
from .operators import BODIES, CANCEL, MOVE, REACH_FURTHER, SELECT, SQUARE_NOTHING, SUM_UP, plain_type
from .regions import (
    NEARLY_EQUAL,
    find_most_rounded,
    find_quantised_mask,
    find_rounded_constant,
    list_mask_readers,
    rounds_inside,
    subtracts,
    subtracts_inside,
)
from .subject import Subject
from .undo import (
    LEFT,
    Case,
    count_below,
    find_amplified_constant,
    find_tiny_constant,
    measure_growth_of_constants,
    measure_least_rounding,
    measure_left_of,
)
from .units import BEYOND, describe_underflow, find_lost_digits, find_rounded_off, largest_of, smallest_of
from .whole_numbers import find_whole_in_float32, find_wrapped_integers, has_whole_numbers_alone

__all__ = ["find_cause", "with_own_numbers"]

Array = np.ndarray[Any, Any]
Evidence = dict[str, Any]
Told = tuple[str, Evidence]
"""A cause's code, and what proves it."""

_LEAST_TF32, _MOST_TF32 = 0.15, 1.2
"""Relative L2 error of a product whose operands were rounded to TF32's 11 bits, in roundings: each operand is off by
1/sqrt(3) of one at its worst and by 0.4 on the average, together 0.6. Float32's own sums stay below 0.02 of it."""

_PER_TERM = 64.0
"""Roundings for each term beyond which a sum's error is not that of adding up: one would do at most, where no term is
larger than the sum."""

_ROUNDED = 1e-3
"""Relative L2 error beyond which an operator of float32 does not round, but computes something else: its unit is 6e-8,
and what is off in the third digit is no sum's order."""

_NO_LIMIT = 1e30
"""A type that holds more has the range of float32: a square of ordinary numbers is finite in it."""

_SOME_STEPS = 4 * PRECISIONS["int8"].rounding
"""Relative L2 error beyond which two runs of one quantised file do not round to neighbouring steps: it is a fault."""

_BEHIND_TWO = 4.0
"""Roundings to 8 bits that two subtracted numbers bring at most: of an input, a weight and a result each, 2.4."""

_MOST_OF_IT = 0.5  # share of the squared error from which on what became 0 is the error

_LEAST_FACTOR = 1.5  # times that an operator makes an error larger from which on it amplifies it

_BLOCK = 1 << 18  # elements that are counted at once: 1 MiB of float32 stays in the cache


def find_cause(
    subject: Subject, alone: Alone, name: str, amplifier: str, *, poisons: bool = False, zeros_count: bool = True
) -> tuple[str, Evidence, tuple[str, ...]]:
    """Return the code of a culprit's cause, its evidence, and the tensors whose operators to keep in higher precision.

    poisons: its error, small as it may be, makes NaN or Inf of a later operator. zeros_count: what became 0 may be why.
    """
    found = alone.found[name]
    keep = (name, amplifier) if amplifier else (name,)
    exact, wrong = alone.exact_of(name), alone.wrong_of(name)
    if broken := find_broken_scale(subject, alone, name):
        return "broken_scale", broken, (name,)
    case = _make_case(subject, alone, name, exact, wrong) if subject.two_files else None
    if case is not None and (misread := find_bias_scale(case)):
        return "scale", misread, (name,)
    difference = find_file_difference(subject, name, case)
    if difference := difference or (find_constant_behind(case) if case is not None else {}):
        held = find_narrower_constants(subject, name) if difference["what"] == say("a_constant") else {}
        if held and (proven := case.proven("held_narrower", held) if case is not None else held):
            return "held_narrower", proven, (name,)
        return "files_differ", difference, (name,)
    stored = find_stored_cause(case) if case is not None and holds_another_scale(subject, name) else None
    if case is not None and (few := stored or _cause_in_few_bits(case) or find_other_range(case)):
        return (*few, (name,))
    if subject.variant and not amplifier:
        where = say("in_batch") if subject.variant == "batch" else say("in_padded")
        return "neighbours", {"variant": where}, (name,)
    if refused := find_disobeyed_request(subject, name):
        return "not_obeyed", refused, (name,)
    if found.flips and not amplifier and (wrapped := find_wrapped_integers(subject, alone, name)):
        return "wrapped", wrapped, keep
    if not amplifier and (in_float32 := find_whole_in_float32(subject, alone, name)):
        return "whole_in_float32", in_float32, keep
    if found.flips and not amplifier:
        if told := find_other_operator(subject, name):
            return "files_differ", told, (name,)
        many = {"count": found.flips, "elements": found.elements}
        by_files = _name_other_operators(subject, name, many)
        whole = subject.two_files and has_whole_numbers_alone(subject, name)
        named = subject.narrow_type in WIDE and by_files[1].keys() - many.keys()
        return (*by_files, (name,)) if whole or named else ("flips", many, keep)
    if by_cast := find_cast_cause(subject, alone.casts, name, make_introduced_infinite(found).rel_l2):
        return (*by_cast, keep)
    if merged := find_merged_operand(subject, alone, name):
        return "coarse", merged, keep
    if amplifier:
        lost = _cause_of_lost_results(subject, name, exact, wrong, zeros_count) or _cause_of_wide_range(
            subject, alone, name, exact, wrong
        )
        broken = _count_broken(subject, amplifier) if poisons else {}
        factor = 0.0 if lost or broken else measure_growth(subject, alone, name, amplifier) or 0.0
        if lost or broken or factor >= _LEAST_FACTOR:  # one where an error only shows first does not enlarge it
            code, evidence = lost or _cause_amplified(subject, amplifier, factor, broken)
            if CAUSES[code].instead.keys() >= {"weight"} and "amplifier" in evidence:
                evidence = {**evidence, **find_rounded_constant(subject, name, exact, wrong)}
            noise = find_noise(subject, alone, name, amplifier) if factor and "noise" in CAUSES[code].behind else {}
            return code, {**evidence, **noise}, keep
    if exact is None or wrong is None:
        return (*_cause_too_coarse(subject, name, found), keep)
    born = found.born_nan + found.born_inf
    if poisons and not born and (gone := _cause_of_lost_results(subject, name, exact, wrong, zeros_count)):
        return (*gone, keep)
    code, evidence = _cause_by_values(subject, alone, name, np.asarray(exact), np.asarray(wrong))
    if "mask" in evidence:  # what reads the mask is to be kept, and it lies inside of what is seen
        keep = (*list_mask_readers(subject, name, evidence["mask"]), *keep)
    if evidence.get("from", "") in subject.rounded_unseen:
        keep = (evidence["from"], *keep)
    if code == "other_arithmetic":
        code, evidence = _name_other_operators(subject, name, evidence)
    return code, evidence, (name,) if code == "files_differ" else keep


def _name_other_operators(subject: Subject, name: str, evidence: Evidence) -> Told:
    """Return what two files have otherwise where one computes something else: the operator, or those of a stretch."""
    if told := find_other_operator(subject, name):
        return "files_differ", told
    exchanged = find_exchanged_operators(subject, name)
    return ("files_differ", exchanged) if "what" in exchanged else ("other_arithmetic", {**evidence, **exchanged})


def _make_case(subject: Subject, alone: Alone, name: str, exact: Array | None, wrong: Array | None) -> Case | None:
    """For experiments; None where its results were not kept, or are no numbers of one shape."""
    if exact is None or wrong is None or exact.shape != wrong.shape or exact.dtype.kind in "USO":
        return None
    exact, wrong = (np.asarray(one).astype(np.float64) for one in (exact, wrong))
    return Case(subject=subject, alone=alone, name=name, exact=exact, wrong=wrong)


def _cause_in_few_bits(case: Case) -> Told | None:
    """Return the weight that a quantiser's file holds in few bits, where the operator's error goes with the original's
    in its place; None where it does not."""
    pairs = find_weights_in_few_bits(case.subject, case.name)
    for key, (b, t) in pairs.items():
        off = measure_norm(t, b) / (measure_norm(b) or 1.0)
        proven = case.proven("few_bits", {"weight": key, "off": off})
        if proven is not None and "left" in proven:
            told = find_stored_cause(case) or ("outlier_channel", find_shared_scale(case))
            return told if told[1] else ("few_bits", proven)
    return None


def _count_broken(subject: Subject, amplifier: str) -> Evidence:
    """Return how many NaN and Inf an operator makes in the target alone, of which the number is all that there is to
    say."""
    numbers = subject.row_of[amplifier].comparison
    if numbers is None:
        return {}
    more = max(0, numbers.target.nan - numbers.base.nan) + max(0, numbers.target.inf - numbers.base.inf)
    return {"broken": more} if more else {}


def _cause_of_lost_results(
    subject: Subject, name: str, exact: Array | None, wrong: Array | None, zeros_count: bool
) -> Told | None:
    """Return what became 0, where that is no more than the rounding of a norm but decides what is divided by it."""
    least = smallest_of(narrow_type(subject, name))
    vanished = _find_vanished_constant(constants_of(subject, name), least)
    if vanished:
        return "weight_underflow", vanished
    if exact is None or wrong is None or not least or not zeros_count:
        return None
    lost = (exact != 0) & (wrong == 0) & (np.abs(exact) < least)
    if not lost.any():
        return None
    return "underflow", {"lost": int(lost.sum()), "share": float(lost.mean()), "smallest": least}


def _cause_of_wide_range(
    subject: Subject, alone: Alone, name: str, exact: Array | None, wrong: Array | None
) -> Told | None:
    """Return what makes the quantised range wide: then half a step, as little as it is beside the largest, is all of
    the rest; None where nothing does."""
    if exact is None or wrong is None or not is_quantised(narrow_type(subject, name)):
        return None
    case = Case(subject=subject, alone=alone, name=name, exact=exact.astype(np.float64), wrong=wrong.astype(np.float64))
    code, evidence = find_grid_cause(case)
    return None if code == "coarse" else (code, evidence)


@dataclass(frozen=True, kw_only=True)
class _Operator:
    """A culprit whose operator ran alone: what it gives exactly and wrongly, in float64, and what its type holds."""

    subject: Subject
    alone: Alone
    name: str
    exact: Array
    wrong: Array

    @cached_property
    def found(self) -> Introduced:
        return self.alone.found[self.name]

    @cached_property
    def narrow(self) -> str:
        """The narrow type that the target computes the operator in."""
        return narrow_type(self.subject, self.name)

    @cached_property
    def limit(self) -> float:
        return largest_of(self.narrow) if find_own_scale(self.subject, self.name) is None else math.inf

    @property
    def least(self) -> float:
        return smallest_of(self.narrow)

    @cached_property
    def types(self) -> set[str]:
        return types_of(self.subject, self.name)

    @cached_property
    def constants(self) -> dict[str, Array]:
        return constants_of(self.subject, self.name)

    @cached_property
    def largest_input(self) -> float:
        return find_largest_input(self.subject, self.name)

    @cached_property
    def case(self) -> Case:
        """The same, for experiments."""
        return Case(subject=self.subject, alone=self.alone, name=self.name, exact=self.exact, wrong=self.wrong)

    @cached_property
    def vanished(self) -> Evidence:
        """A constant whose tiny numbers make the error, or where that could not be tried, one that the type turned into
        0, or that its results show to be gone."""
        ran, found = find_tiny_constant(self.case) if self.narrow not in WIDE else (False, {})
        if ran:
            return found
        there = _find_vanished_constant(self.constants, self.least)
        return there or _find_partly_vanished_constant(self.constants, self.least, self.exact, self.wrong)


def _cause_by_values(subject: Subject, alone: Alone, name: str, exact: Array, wrong: Array) -> Told:
    """That the target computes something else is said only where all that it rounds was undone in vain."""
    with np.errstate(all="ignore"):
        exact, wrong = exact.astype(np.float64), wrong.astype(np.float64)
    one = _Operator(subject=subject, alone=alone, name=name, exact=exact, wrong=wrong)
    code, evidence = _cause_by_rules(one)
    if (CAUSES[code].by_a_pass or code == "unfound") and (parts := find_parts(one.case)):
        return "coarse", {"units": one.found.units, **parts}
    if "parts" in CAUSES[code].behind:
        evidence = {**evidence, **tell_rest(one.case, evidence)}
    return code, evidence


def _cause_by_rules(one: _Operator) -> Told:
    """By the first rule that tells it: what cannot be otherwise comes before what is only likely."""
    for rule in (
        _cause_beyond_range, _cause_born_there, _read_on_steps, _cause_in_integers, _cause_below_range,
        _cause_divided_by_infinity,
        _cause_in_float32, _cause_in_sums, _cause_cast_before,
    ):  # fmt: skip
        if evidence := rule(one):
            return _unless_files_differ(one, evidence)
    if one.narrow not in WIDE and (inside := subtracts_inside(one.subject, one.name, one.found.units)):
        return "cancellation", {**inside, "factor": one.found.units}
    beyond = (one.found.units or 0.0) > BEYOND and one.narrow not in WIDE
    if beyond and (rounded := find_amplified_constant(one.case)):
        return "constant_rounded", {**rounded, "units": one.found.units}
    return _told_or_not_found(one, _unless_files_differ(one, _cause_too_coarse(one.subject, one.name, one.found)))


def _unless_files_differ(one: _Operator, told: Told) -> Told:
    """Return what two files have otherwise, in the place of a narrow type or a sum in it, where rounding all that a
    region reads and makes does not make half of its error; the cause itself elsewhere. Engines write a stretch in other
    operators as well: that is told of an error beyond rounding alone."""
    code, evidence = told
    if not CAUSES[code].of_type or not evidence.keys() <= {"units", "depth", "ratio", "left", "which"}:
        return told
    if one.subject.quantised_file and find_promise(one.subject.precision).computes not in {"int8", "int4"}:
        return told  # a file that was quantised has other operators everywhere
    instead = _name_other_operators(one.subject, one.name, {})
    more_than_all = (one.found.rel_l2 or 0.0) > 1.0  # which rounding makes only where terms cancel
    beyond = (one.subject.two_files or more_than_all) and (one.found.units or 0.0) > BEYOND
    asked = beyond or (instead[1] and instead[0] == "files_differ")
    made = measure_rounding(one.case) if asked else None
    if made is None or made * math.sqrt(evidence.get("depth", 1)) >= HALF * one.case.own:
        return told
    return instead[0], {"rel_l2": one.found.rel_l2, **instead[1]} if instead[0] == "other_arithmetic" else instead[1]


def _told_or_not_found(one: _Operator, told: Told) -> Told:
    """Return what is said where no rule tells a cause: of one that does not round but more, what was tried in vain."""
    if told[0] != "coarse" or not one.case.refuted or (one.found.units or 0.0) <= BEYOND:
        return told
    tried = tuple(
        say("undone_leaves", what=CORE(f"cause_{code}"), undone=CORE(f"undone_{code}"), left=f"{left:.0%}")
        for code, left in one.case.refuted.items()
    )
    return "unfound", {"tried": say("tried_each", items=tried), "units": one.found.units}


def _cause_beyond_range(one: _Operator) -> Told | None:
    """Weights, or results that make the error, above what a narrow type holds; beside float64, float32 is one."""
    if one.narrow in WIDE and not is_finer(one.subject, one.name):
        return None
    if clipped := find_clipping_scale(one.case):
        return "saturation", clipped
    finite, limit = np.isfinite(one.exact), one.limit
    too_large = finite & (np.abs(one.exact) > limit)
    only_results = bool(too_large.any()) and np.isfinite(one.wrong[~too_large & finite]).all()
    for weight, values in one.constants.items():
        top = float(np.max(np.abs(values))) if values.size else 0.0
        # a number is often computed with in a wider type, and then only results are beyond the narrow one
        beyond = math.isfinite(top) and top > limit and not (values.size == 1 and only_results)
        told = {"weight": weight, "largest": top, "limit": limit}
        if beyond and (proven := _prove_cause(one, "weight_overflow", told)):
            return proven
    if too_large.any() and error_share(one.exact, one.wrong, too_large) > 0.2:
        # as the model has it: what ran alone was given rounded inputs
        model = max(largest_of_row(one.subject, one.name), limit)
        largest = model if model > limit else float(np.abs(one.exact)[finite].max())
        return _prove_cause(one, "overflow", {"largest": largest, "limit": limit, "count": int(too_large.sum())})
    return None


def _cause_born_there(one: _Operator) -> Told | None:
    """NaN or Inf that the operator itself made."""
    found = one.found
    if not (found.born_nan or found.born_inf):
        return None
    if one.vanished:
        return "weight_underflow", one.vanished
    if infinite := [weight for weight, values in one.constants.items() if not np.isfinite(values).all()]:
        return "infinite_constant", {"weight": infinite[0], "count": found.born_nan + found.born_inf}
    reaches = REACH_FURTHER - SQUARE_NOTHING
    if one.narrow not in WIDE and one.largest_input > one.limit:
        largest = one.largest_input
        beyond = round_values(np.full(1, np.inf, np.float32), dtype_of(one.narrow))  # NaN where the type has no Inf
        become = "NaN" if np.isnan(beyond).any() else "Inf"
        return "range_inside", {"largest": largest, "limit": one.limit, "read": largest, "become": become}
    if one.narrow not in WIDE and one.types & reaches:
        return "range_inside", {"largest": one.largest_input, "limit": one.limit}
    return "born", describe_born(one.subject, one.name, found.born_nan, found.born_inf)


def _read_on_steps(one: _Operator) -> Told | None:
    """Return what it reads is rounded to integers: by itself, as its file asks, or before it with a scale far too
    large."""
    subject, row = one.subject, one.subject.row_of[one.name]
    meta, target = subject.targets.get(row.target_name), subject.operators()[1]
    operator = target.operator(row.target_name) if target is not None and meta is not None and meta.rounds else None
    sources = subject.sources(one.name)
    if meta is not None and operator is not None and sources and QUANTISED.search(meta.op_type):
        asked = {key: operator.attributes[key] for key in _ASKS if key in operator.attributes}
        block = int(operator.attributes.get("block_size", 0))
        evidence = {
            "from": subject.partner.get(meta.rounds[0], sources[0]), "block": block,
            "asked": ", ".join(f"{key} {value}" for key, value in asked.items()) or meta.op_type,
        }  # fmt: skip
        given = None if one.case is None else one.case.given(sources[0])
        by_whom = asked or block or given is None or find_outlier(given) is None  # else the outlier is why it loses
        if by_whom and (told := _prove_cause(one, "reads_rounded", evidence)):
            return told
    # an engine that fuses a quantiser into what makes its input calls it by that one's name
    by_file = subject.quantised_file or (subject.two_files and not subject.quantises and is_quantised(one.narrow))
    scaled = find_coarse_scale(one.case) if by_file else {}
    return ("coarse_scale", scaled) if scaled else None


_ASKS = ("accuracy_level",)
"""Attributes by which a file lets an operator of floats compute in integers."""


def _cause_in_integers(one: _Operator) -> Told | None:
    """Of a quantised type it is the grid, one way or the other."""
    if not is_quantised(one.narrow):
        return None
    if one.subject.quantised_file and (told := find_stored_cause(one.case)):
        return told
    if mask := find_quantised_mask(one.subject, one.name):
        return "mask_range", mask
    code, evidence = find_grid_cause(one.case)
    source = evidence.get("from") if code == "outlier_channel" else None
    if source and ("left" not in evidence or source in one.constants):  # something inside may be why instead
        inner, values, makes = find_most_rounded(one.subject, one.name, one.found.rel_l2 or 0.0)
        # a constant was undone as if it had one scale: on the grid that fits it best it may make next to nothing
        if inner and inner != source and ("left" not in evidence or makes > measure_least_rounding(one.case, source)):
            code, evidence = _cause_of_inner_tensor(one.subject, inner, values)
    if code != "coarse":
        return code, evidence
    if evidence.keys() & {"steps", "fits"} or not np.ptp(one.wrong):  # the nearest: nothing but the grid is to blame
        return code, {**evidence, "units": one.found.units}
    if cancelled := subtracts(one.subject, one.name):  # of what it reads each is on a grid of its own size
        return "cancels", {**cancelled, "factor": one.found.units or cancelled["factor"]}
    if cancelled := subtracts_inside(one.subject, one.name, (one.found.units or 0.0) / _BEHIND_TWO):
        return "cancellation", {**cancelled, "factor": one.found.units}
    beyond = (one.found.units or 0.0) > BEYOND  # no rounding of these inputs is so large
    terms = _cancels_inside(one.subject, one.name, one.constants) if one.types & SUM_UP else {}
    if (told := _prove_cancellation(one, terms)) and "left" in told[1]:
        return told[0], {**told[1], "own": sum(values.ndim > 1 for values in one.constants.values())}
    if one.subject.quantised_file and beyond and not rounds_inside(one.subject, one.name):
        return "other_arithmetic", {"rel_l2": one.found.rel_l2}
    return _told_or_not_found(one, _cause_too_coarse(one.subject, one.name, one.found))


def _cause_of_inner_tensor(subject: Subject, inner: str, values: Array) -> Told:
    """Return why rounding a tensor inside of a region to integers loses so much."""
    outlier = find_outlier(values)
    if outlier is None:
        return "coarse", {"units": None}
    return "outlier_channel", {"from": inner, "who": describe_outlier(subject, inner, values, outlier), **outlier}


def _cause_below_range(one: _Operator) -> Told | None:
    """Weights, or results that make the error, below what a narrow type holds."""
    if one.narrow in WIDE:
        return None
    if one.vanished:
        return "weight_underflow", one.vanished
    rounded = find_rounded_off(one.constants, one.narrow, one.found.rel_l2)
    if rounded and not find_tiny_constant(one.case)[0]:
        return "weight_underflow", rounded
    lost = find_lost_digits(one.exact, one.wrong, one.narrow)
    if lost.any() and error_share(one.exact, one.wrong, lost) > _MOST_OF_IT:
        return _prove_cause(one, "underflow", describe_underflow(lost, one.wrong, one.narrow))
    return None


def _prove_cause(one: _Operator, code: str, evidence: Evidence) -> Told | None:
    """Return a cause with its evidence, where its experiment bears it out, or has none that can be run."""
    proven = one.case.proven(code, evidence)
    return None if proven is None else (code, proven)


def _cause_divided_by_infinity(one: _Operator) -> Told | None:
    """Results that became 0, a whole line at once: a square inside was infinite, and they were divided by it."""
    gone = (one.exact != 0) & (one.wrong == 0)
    if not gone.any() or error_share(one.exact, one.wrong, gone) <= _MOST_OF_IT:
        return None
    if one.types & (REACH_FURTHER - SQUARE_NOTHING) and one.largest_input**2 > one.limit:
        return "range_inside", {"largest": one.largest_input, "limit": one.limit}
    # where what comes between is not seen: a module scales its input before it squares it, say
    normal = one.limit < _NO_LIMIT and bool((np.abs(one.exact[gone]) > one.least * 2**10).all())
    whole_lines = one.exact.ndim > 1 and bool((gone.all(axis=-1) == gone.any(axis=-1)).all())
    if normal and whole_lines and one.narrow not in WIDE and not is_quantised(one.narrow):
        return "range_inside", {"largest": one.largest_input, "limit": one.limit, "gone": int(gone.sum())}
    return None


def _cause_in_float32(one: _Operator) -> Told | None:
    """Too much for float32's rounding: other weights, TF32's 11 bits, or another computation."""
    error = one.found.rel_l2 or 0.0
    held = find_narrower_constants(one.subject, one.name) if one.narrow == "float32" else {}
    if held and (proven := _prove_cause(one, "held_narrower", held)):
        return proven
    if one.narrow == "float32" and one.types & SUM_UP:
        if rounded := find_other_weight(one.subject, one.name):
            return "files_differ", rounded
        if _LEAST_TF32 <= error * 2**11 <= _MOST_TF32:
            return "tf32", {"units": error * 2**11, "count": 1}
    if one.narrow in WIDE and error > _ROUNDED and not is_finer(one.subject, one.name):
        return "other_arithmetic", {"rel_l2": one.found.rel_l2}
    return None


def _cause_in_sums(one: _Operator) -> Told | None:
    """Terms that cancel, or more of them than the type adds up well."""
    if told := _prove_cancellation(one, _subtracts_a_constant(one.subject, one.name)):
        return told
    if not one.types & SUM_UP:
        return None
    if told := _prove_cancellation(one, _cancels_inside(one.subject, one.name, one.constants)):
        return told
    depth = count_terms(one.subject, one.name, one.constants)
    if depth > 1 and (one.found.units or 0.0) <= _PER_TERM * depth:
        return "long_reduction", {"depth": depth, "units": one.found.units}
    return None


def _prove_cancellation(one: _Operator, inside: Evidence) -> Told | None:
    """Return the cause with how many times the constants' rounding is enlarged: by rounding them alone where that can
    be run, and else by what the operator is off by beside one rounding."""
    told = _prove_cause(one, "cancellation", inside) if inside else None
    if told is None:
        return None
    return told[0], {**told[1], "factor": measure_growth_of_constants(one.case) or one.found.units}


def _cause_cast_before(one: _Operator) -> Told | None:
    """Of an operator of float64 that the target computes in float32: what it reads, rounded to it. Of several tensors
    the one that makes most is told."""
    exact = {source: one.alone.exact_of(source) for source in one.subject.sources(one.name)}
    wide = {source: values for source, values in exact.items() if values is not None and values.dtype == np.float64}
    compute = make_exact_evaluator(one.case) if wide and is_finer(one.subject, one.name) else None
    if compute is None or (plain := compute(wide)) is None:
        return None
    cast = {source: values.astype(np.float32).astype(np.float64) for source, values in wide.items()}
    # the others as they are: the target may hold them in float32 already
    made = {source: compute({**wide, source: values}) for source, values in cast.items()}
    got, size = compute(cast), float(np.linalg.norm(plain)) or 1.0
    if got is None or (left := measure_left_of(one.case, one.wrong - (got - plain))) > LEFT:
        return None
    off = {source: float(np.linalg.norm(each - plain)) / size for source, each in made.items() if each is not None}
    source = max(off, key=lambda name: off[name])
    return "coarse", {"source": source, "cast": "float32", "error": off[source], "left": left}


def _cause_too_coarse(subject: Subject, name: str, found: Introduced) -> Told:
    """That the type is too coarse is said only where the baseline computed the same in a finer one, and better.

    Two sides of one type have no such measurement: whatever differs there was computed otherwise. Nor is it float32's
    rounding that is off in the third digit, however exact the other side is.
    """
    meta, narrow = subject.meta_of.get(name), narrow_type(subject, name)
    same = meta is not None and meta.dtype == narrow
    wide = narrow in WIDE or (subject.held_as.get(name) in WIDE and subject.only_moves(name))  # nothing rounds there
    # several operators between two tensors that are seen ("tensor method+linear") may cancel inside, where nobody looks
    hidden = is_finer(subject, name) and len(subject.region_of.get(name, ())) > 1
    # one file of integers in two runs: both round to its steps, and a float32 result is at most a few of them off
    one_file = subject.same_integers and subject.held_as.get(name) in WIDE and (found.rel_l2 or 0.0) > _SOME_STEPS
    # nor does a rounding to that grid, or its end, take more than all of a result, where the baseline rounds to it too
    # 0 is on every grid: only what adds or subtracts rounded numbers is off by more than all of its result
    once = subject.quantises_itself or not types_of(subject, name) & (SUM_UP | CANCEL)
    one_grid = once and (found.rel_l2 or 0.0) > 1.0
    if same or one_file or one_grid or (wide and (found.rel_l2 or 0.0) > _ROUNDED and not hidden):
        return "other_arithmetic", {"rel_l2": found.rel_l2}
    return "inside_body" if types_of(subject, name) & BODIES else "coarse", {"units": found.units}


def _cause_amplified(subject: Subject, amplifier: str, factor: float, broken: Evidence) -> Told:
    """factor: see ``effects.measure_growth``; 0 where what is made of it is no number."""
    row = subject.row_of[amplifier]
    sources = subject.sources(amplifier)
    evidence: Evidence = {"amplifier": amplifier, "amplifier_type": find_acting_type(subject, amplifier)}
    if broken:
        return "amplified", {**evidence, **broken}
    evidence["factor"] = factor
    # half of the growth is to be seen at the subtraction; what comes behind it, a factor say, may add as much again
    seen = ends_in_sum(subject, amplifier)
    if inside := subtracts_inside(subject, amplifier, (HALF if seen else HALF * HALF) * factor):
        return "cancellation", {**inside, "factor": factor}
    if seen and row.comparison is not None:
        sizes = [subject.row_of[source].comparison for source in sources]
        largest = max((numbers.base.rms or 0.0 for numbers in sizes if numbers is not None), default=0.0)
        own = row.comparison.base.rms or 0.0
        if largest > 4 * own:
            return "cancellation", {**evidence, "input_size": largest, "output_size": own}
    return "amplified", evidence


def _find_vanished_constant(constants: Mapping[str, Array], least: float) -> Evidence:
    """Return a constant, an epsilon or variances say, below what the type can hold; {} where there is none."""
    for weight, values in constants.items():
        if least and _are_half_below(values, least):
            middle = float(np.median(np.abs(values[values != 0])))
            if middle < least:
                return {"weight": weight, "value": middle, "smallest": least, **count_below(values, least)}
    return {}


def _find_partly_vanished_constant(
    constants: Mapping[str, Array], least: float, exact: Array, wrong: Array
) -> Evidence:
    """Return a constant of one number a channel, variances say, some of which are below the type, where most of the
    error is in their channels, and no NaN or Inf elsewhere; {} where there is none."""
    broken = np.isfinite(exact) & ~np.isfinite(wrong)
    for weight, values in constants.items() if least else ():
        small = (values != 0) & (np.abs(values) < least)
        if values.ndim != 1 or not small.any() or small.all():
            continue
        for axis in (1, exact.ndim - 1):
            if not 0 <= axis < exact.ndim or exact.shape[axis] != values.size:
                continue
            shape = [1] * exact.ndim
            shape[axis] = values.size
            there = np.broadcast_to(small.reshape(shape), exact.shape)
            if not (broken & ~there).any() and error_share(exact, wrong, there) > _MOST_OF_IT:
                largest = float(np.abs(values[small]).max())
                return {"weight": weight, "value": largest, "smallest": least, **count_below(values, least)}
    return {}


def _are_half_below(values: Array, least: float) -> bool:
    """Return whether half of what is not 0 is smaller, without which no median is; to count takes a tenth of the
    time."""
    some = below = 0
    for block in np.array_split(values.reshape(-1), max(1, values.size // _BLOCK)):
        nonzero = int(np.count_nonzero(block))
        some += nonzero
        below += nonzero - int(np.count_nonzero(~(np.abs(block) < least)))
    return 0 < some <= 2 * below


def _cancels_inside(subject: Subject, name: str, constants: Mapping[str, Array]) -> Evidence:
    """Return a product with a weight whose terms nearly sum to 0, so that the weight's own rounding is what is left; {}
    where the result is as large as products of such numbers are."""
    row = subject.row_of[name]
    weights = [values for values in constants.values() if values.ndim >= 2]
    own = (row.comparison.base.rms or 0.0) if row.comparison is not None else 0.0
    inputs = [subject.row_of[source].comparison for source in subject.sources(name)]
    size = max((numbers.base.rms or 0.0 for numbers in inputs if numbers is not None), default=0.0)
    if not weights or not own or not size:
        return {}
    rms = math.sqrt(float(np.mean(np.square(weights[-1].astype(np.float64)))))
    terms = size * rms * math.sqrt(count_terms(subject, name, constants))
    if terms < NEARLY_EQUAL * own or _is_made_small_behind(subject, name):
        return {}
    summing = [meta.op_type for meta in subject.region_of.get(name, ()) if plain_type(meta.op_type) in SUM_UP]
    return {
        "amplifier": name, "amplifier_type": (summing or [row.op_type])[-1], "factor": terms / own, "input_size": terms,
        "output_size": own, "own": len(constants),
    }  # fmt: skip


def _is_made_small_behind(subject: Subject, name: str) -> bool:
    """Return whether something behind the first product of a region makes its result small, a softmax say, or another
    product: then the size of the region's result says nothing of the terms of the first."""
    types = [plain_type(meta.op_type) for meta in subject.region_of.get(name, ())]
    behind = next((types[place + 1 :] for place, one in enumerate(types) if one in SUM_UP), [])
    return any(one in SUM_UP or one not in MOVE | SELECT | CANCEL for one in behind)


def _subtracts_a_constant(subject: Subject, name: str) -> Evidence:
    """Return a sum of a tensor and a constant that nearly cancel, so that the constant's own rounding is what is left;
    {} where they do not. Of a stretch of operators it is the one that gives its result: what else a stretch reads, a
    factor say, is no term of it."""
    row = subject.row_of[name]
    own = (row.comparison.base.rms or 0.0) if row.comparison is not None else 0.0
    acting = [meta for meta in subject.region_of.get(name, ()) if plain_type(meta.op_type) not in MOVE | SELECT]
    if not acting or not own or plain_type(acting[-1].op_type) not in CANCEL - SUM_UP:
        return {}
    operator = subject.operators()[0].operator(acting[-1].name)
    constants = [np.asarray(value) for value in (operator.parameters.values() if operator is not None else ())]
    largest = max((float(np.abs(one).max()) for one in constants if one.dtype.kind == "f" and one.size), default=0.0)
    if not math.isfinite(largest) or largest < NEARLY_EQUAL * own:
        return {}
    return {
        "amplifier": name, "amplifier_type": find_acting_type(subject, name), "factor": largest / own,
        "input_size": largest,
        "output_size": own, "own": len(constants),
    }  # fmt: skip


def find_disobeyed_request(subject: Subject, name: str) -> Evidence:
    """Return what the user asked of an operator's precision and the engine did instead, where its session tells so; {}
    where it did as asked."""
    for meta in reversed(subject.region_of.get(name, ())):
        row = subject.row_of.get(meta.name)
        running = subject.targets.get(row.target_name if row is not None else meta.name)
        if running is not None and running.extra.get("Obeyed") == "no":
            real = running.extra.get("Real Precision", "") or "not reported"
            return {"layer": meta.node or meta.name, "asked": running.extra.get("Asked Precision", ""), "real": real}
    return {}


# The numbers of a cause, as the model has them: an operator that ran alone was given what the target holds of its
# inputs, and a tensor that is coarse there is another tensor. What is said of a tensor is true of the baseline's own.

_TELLS_OF = {"outlier_channel": "from", "underflow": "", "overflow": ""}
"""Causes that tell of a whole tensor, with the evidence that names it; "": the culprit's own result."""


def with_own_numbers(subject: Subject, culprits: Sequence[Culprit]) -> tuple[Culprit, ...]:
    """Return the culprits, with what their causes tell of a tensor measured in the baseline's own one. Takes one run of
    it, where there is such a cause."""
    read = {
        place: one.evidence.get(_TELLS_OF[one.cause]) or one.name for place, one in enumerate(culprits)
        if one.cause in _TELLS_OF and "cast" not in one.evidence
    }  # fmt: skip
    found = list(culprits)
    if not read or subject.bench.on_device:
        return tuple(found)
    waiting = {*read.values()}

    def hook(_op: str, name: str, tensor: Any, /) -> None:
        if name not in waiting:
            return
        waiting.discard(name)
        values = np.asarray(as_array(tensor, name=name))
        for place in [place for place, one in read.items() if one == name and values.dtype.kind == "f"]:
            evidence = _measure_again(subject, culprits[place], name, values)
            found[place] = dataclasses.replace(culprits[place], evidence={**culprits[place].evidence, **evidence})

    subject.baseline.run(subject.feeds, hook, frozenset(waiting))
    return tuple(found)


def _measure_again(subject: Subject, culprit: Culprit, name: str, values: Array) -> Evidence:
    """Return what a cause tells of a tensor, by these values of it; {} where they do not show it."""
    evidence = culprit.evidence
    if culprit.cause == "outlier_channel":
        return measure_outlier_again(subject, name, values, evidence)
    if culprit.cause == "overflow":
        count = int((np.isfinite(values) & (np.abs(values) > evidence["limit"])).sum())
        return {"count": count} if count else {}
    narrow = narrow_type(subject, culprit.name)
    if narrow not in ("float16", "bfloat16"):  # of fewer bits, numbers are scaled before they are rounded
        return {}
    with np.errstate(all="ignore"):
        rounded = round_values(np.ascontiguousarray(values), dtype_of(narrow))
    if "lost" in evidence:
        count = int(((values != 0) & (rounded == 0)).sum())
        flushes = count < evidence["lost"] * _MOST_OF_IT  # an engine that makes 0 of more than rounding does
        return {} if flushes else {"lost": count, "share": count / values.size}
    low = (np.abs(values) < evidence["smallest"]) & (rounded != values)
    return {"digits": int(low.sum()), "share": float(low.mean())} if low.any() else {}
