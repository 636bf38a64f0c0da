"""Why an operator lost it: a code, and the numbers that prove it.

What each code means, the evidence that it has, and all that follows from it is one record in ``reasons.causes``. A
cause that can be told from an operator's values alone brings the function that does so with it (``Cause.found``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..numbers.born import finite_l2
from ..reasons.causes import CAUSES
from ..records import Introduced
from .files import files_differ, other_weight
from .introduced import MASK, Alone
from .operators import CANCEL, MOVE, REACH_FURTHER, SQUARE_NOTHING, SUM_UP, plain_type
from .subject import Subject
from .units import largest_of, smallest_of

__all__ = ["cause_of"]

Array = np.ndarray[Any, Any]
Evidence = dict[str, Any]

_WIDE = frozenset({"float32", "float64"})

_LEAST_TF32, _MOST_TF32 = 0.15, 1.2
"""Relative L2 error of a product whose operands were rounded to TF32's 11 bits, in roundings: each operand is off by
1/sqrt(3) of one at its worst and by 0.4 on the average, together 0.6. Float32's own sums stay below 0.02 of it."""

_PER_TERM = 64.0
"""Roundings for each term beyond which a sum's error is not that of adding up: one would do at most, where no term is
larger than the sum."""

_ROUNDED = 1e-3
"""Relative L2 error beyond which an operator of float32 does not round, but computes something else."""

_MOST_OF_IT = 0.5
"""Share of the squared error from which on what became 0 is the error."""

_LEAST_FACTOR = 1.5
"""Times that an operator makes an error larger from which on it amplifies it."""

_BLOCK = 1 << 18
"""Elements that are counted at once: they stay in the cache."""

_NEARLY_EQUAL = 8.0
"""Times that terms are larger than their sum from which on they cancel; of independent terms it is about 1."""


def cause_of(
    subject: Subject, alone: Alone, name: str, amplifier: str, *, poisons: bool = False
) -> tuple[str, Evidence, tuple[str, ...]]:
    """The code of a culprit's cause, its evidence, and the tensors whose operators to keep in higher precision.

    poisons: its error, small as it may be, makes NaN or Inf of a later operator.
    """
    found = alone.found[name]
    keep = (name, amplifier) if amplifier else (name,)
    difference = files_differ(subject, name)
    if difference:
        return "files_differ", difference, (name,)
    refused = not_obeyed(subject, name)
    if refused:
        return "not_obeyed", refused, (name,)
    if found.flips and not amplifier:
        return "flips", {"count": found.flips, "elements": found.elements}, keep
    exact, wrong = alone.exact_of(name), alone.wrong_of(name)
    if amplifier:
        lost = _lost(subject, name, exact, wrong) or _narrowed_range(subject, alone, name, exact, wrong)
        if lost or _enlarges(subject, name, amplifier):
            return (*(lost or _amplified(subject, name, amplifier)), keep)
    if exact is None or wrong is None:
        return (*_too_coarse(subject, name, found), keep)
    if poisons and not found.born_nan + found.born_inf and (gone := _lost(subject, name, exact, wrong)):
        return (*gone, keep)
    code, evidence = _by_values(subject, alone, name, np.asarray(exact), np.asarray(wrong))
    if CAUSES[code].unproven:  # nothing here is sure of it
        code, evidence = _by_its_own_rule(subject, name, np.asarray(exact), np.asarray(wrong)) or (code, evidence)
    return code, evidence, keep


def _enlarges(subject: Subject, name: str, amplifier: str) -> bool:
    """Whether what an operator is given comes out larger; one where an error only shows first does not enlarge it."""
    return _factor(subject, name, amplifier) >= _LEAST_FACTOR


def _factor(subject: Subject, name: str, amplifier: str) -> float:
    """How much larger the error is behind the amplifier than in what it reads; where that is next to nothing, than at
    the culprit: many steps of a recurrence enlarge it between them, and none by itself."""
    error = finite_l2(subject.row_of[amplifier]) or 0.0
    given = max((finite_l2(subject.row_of[source]) or 0.0 for source in subject.sources(amplifier)), default=0.0)
    step = error / given if given else math.inf
    own = finite_l2(subject.row_of[name]) or 0.0
    return step if step >= _LEAST_FACTOR or not own else error / own


def _by_its_own_rule(subject: Subject, name: str, exact: Array, wrong: Array) -> tuple[str, Evidence] | None:
    """The first cause whose record itself tells it."""
    for code, cause in CAUSES.items():
        evidence = cause.found(subject, name, exact, wrong) if cause.found is not None else {}
        if evidence:
            return code, dict(evidence)
    return None


def _lost(subject: Subject, name: str, exact: Array | None, wrong: Array | None) -> tuple[str, Evidence] | None:
    """What became 0, where that is no more than the rounding of a norm but decides what is divided by it."""
    least = smallest_of(_narrow(subject, name))
    vanished = _vanished(_constants(subject, name), least)
    if vanished:
        return "weight_underflow", vanished
    if exact is None or wrong is None or not least:
        return None
    lost = (exact != 0) & (wrong == 0) & (np.abs(exact) < least)
    if not lost.any():
        return None
    return "underflow", {"lost": int(lost.sum()), "share": float(lost.mean()), "smallest": least}


def _narrowed_range(
    subject: Subject, alone: Alone, name: str, exact: Array | None, wrong: Array | None
) -> tuple[str, Evidence] | None:
    """What makes the quantised range wide: then half a step, as little as it is beside the largest, is all of the rest;
    None where nothing does."""
    if exact is None or wrong is None or not _quantised(_narrow(subject, name)):
        return None
    code, evidence = _quantised_cause(subject, alone, name, exact.astype(np.float64), wrong.astype(np.float64))
    return None if code == "coarse" else (code, evidence)


def _narrow(subject: Subject, name: str) -> str:
    """The narrow type in which an operator computes."""
    held_as = subject.held_as.get(name, "")
    return subject.narrow_type if held_as in _WIDE else held_as


def _by_values(subject: Subject, alone: Alone, name: str, exact: Array, wrong: Array) -> tuple[str, Evidence]:
    found = alone.found[name]
    narrow = _narrow(subject, name)
    limit, least = largest_of(narrow), smallest_of(narrow)
    constants = _constants(subject, name)
    with np.errstate(all="ignore"):
        b, t = exact.astype(np.float64), wrong.astype(np.float64)
        size = np.abs(b)
    if narrow not in _WIDE:
        too_large = np.isfinite(b) & (size > limit)
        only_results = bool(too_large.any()) and np.isfinite(t[~too_large & np.isfinite(b)]).all()
        for weight, values in constants.items():
            top = float(np.max(np.abs(values))) if values.size else 0.0
            # a number is often computed with in a wider type, and then only results are beyond the narrow one
            if math.isfinite(top) and top > limit and not (values.size == 1 and only_results):
                return "weight_overflow", {"weight": weight, "largest": top, "limit": limit}
        if too_large.any() and _error_in(b, t, too_large) > 0.2:
            largest = float(size[np.isfinite(b)].max())
            return "overflow", {"largest": largest, "limit": limit, "count": int(too_large.sum())}
    if found.born_nan or found.born_inf:
        largest = _largest_input(subject, name)
        vanished = _vanished(constants, least) or _vanished_there(constants, least, b, t)
        if vanished:
            return "weight_underflow", vanished
        if infinite := [weight for weight, values in constants.items() if not np.isfinite(values).all()]:
            return "infinite_constant", {"weight": infinite[0], "count": found.born_nan + found.born_inf}
        reaches = REACH_FURTHER - SQUARE_NOTHING
        if narrow not in _WIDE and (_types(subject, name) & reaches or largest > limit):
            return "range_inside", {"largest": largest, "limit": limit}
        what = " and ".join(word for word, n in (("NaN", found.born_nan), ("Inf", found.born_inf)) if n)
        return "born", {"what": what, "count": found.born_nan + found.born_inf}
    if _quantised(narrow):
        told = _quantised_cause(subject, alone, name, b, t)
        return told if told[0] != "coarse" else _too_coarse(subject, name, found)
    if narrow not in _WIDE:
        vanished = _vanished(constants, least) or _vanished_there(constants, least, b, t)
        if vanished:
            return "weight_underflow", vanished
        lost = (b != 0) & (size < least * 2**10) & (np.abs(t - b) > 0.05 * size)
        if lost.any() and _error_in(b, t, lost) > 0.5:
            return "underflow", {"lost": int(lost.sum()), "share": float(lost.mean()), "smallest": least}
    types = _types(subject, name)
    gone = (b != 0) & (t == 0)  # an Inf inside, by which the result was divided
    squares = types & (REACH_FURTHER - SQUARE_NOTHING) and _largest_input(subject, name) ** 2 > limit
    if squares and gone.any() and _error_in(b, t, gone) > _MOST_OF_IT:
        return "range_inside", {"largest": _largest_input(subject, name), "limit": limit}
    if narrow == "float32" and types & SUM_UP and (rounded := other_weight(subject, name)):
        return "files_differ", rounded
    if narrow == "float32" and types & SUM_UP and _LEAST_TF32 <= (found.rel_l2 or 0.0) * 2**11 <= _MOST_TF32:
        return "tf32", {"units": (found.rel_l2 or 0.0) * 2**11, "count": 1}
    if narrow in _WIDE and (found.rel_l2 or 0.0) > _ROUNDED and not _finer(subject, name):
        return "other_arithmetic", {"rel_l2": found.rel_l2}
    if inside := _subtracts_a_constant(subject, name, constants):
        return "cancellation", inside
    if types & SUM_UP:
        inside = _cancels_inside(subject, name, constants)
        if inside:
            return "cancellation", inside
        depth = _depth(subject, name, constants)
        if (found.units or 0.0) <= _PER_TERM * max(1, depth):
            return "long_reduction", {"depth": depth, "units": found.units}
    return _too_coarse(subject, name, found)


def _too_coarse(subject: Subject, name: str, found: Introduced) -> tuple[str, Evidence]:
    """That the type is too coarse is said only where the baseline computed the same in a finer one, and better.

    Two sides of one type have no such measurement: whatever differs there was computed otherwise. Nor is it float32's
    rounding that is off in the third digit, however exact the other side is.
    """
    meta, narrow = subject.meta_of.get(name), _narrow(subject, name)
    same = meta is not None and meta.dtype == narrow
    wide = narrow in _WIDE or (subject.held_as.get(name) in _WIDE and subject.only_moves(name))  # nothing rounds there
    # a row of several operators ("tensor method+linear") may cancel inside, where nobody looks
    hidden = _finer(subject, name) and "+" in subject.row_of[name].op_type
    if same or (wide and (found.rel_l2 or 0.0) > _ROUNDED and not hidden):
        return "other_arithmetic", {"rel_l2": found.rel_l2}
    return "coarse", {"units": found.units}


def _finer(subject: Subject, name: str) -> bool:
    """Whether the baseline computes in float64: then float32 is the narrow type."""
    numbers = subject.row_of[name].comparison
    return numbers is not None and numbers.base.dtype == "float64" and numbers.target.dtype != "float64"


def _error_in(exact: Array, wrong: Array, where: Array) -> float:
    """Share of the squared error that stands in some elements; 1 where one of them is not finite."""
    with np.errstate(all="ignore"):
        error = np.square(wrong - exact)
    if not np.isfinite(wrong[where]).all():
        return 1.0
    total = float(np.sum(error[np.isfinite(error)]))
    return float(np.sum(error[where & np.isfinite(error)])) / total if total else 0.0


def _quantised(held_as: str) -> bool:
    return held_as in {"int8", "uint8", "int4", "uint4", "int16", "uint16"}


def _quantised_cause(subject: Subject, alone: Alone, name: str, exact: Array, wrong: Array) -> tuple[str, Evidence]:
    """A mask or one channel that makes the range of all, or saturation."""
    largest = float(np.abs(exact).max()) if exact.size else 0.0
    if largest > MASK or _masked(exact):
        return "mask_range", {"largest": float(exact.min())}
    finite = np.isfinite(wrong)
    top, bottom = float(wrong[finite].max()), float(wrong[finite].min())
    beyond = ((exact > top) & (wrong == top)) | ((exact < bottom) & (wrong == bottom))
    if top > bottom and beyond.any() and _error_in(exact, wrong, beyond) > 0.3:
        limit = max(abs(top), abs(bottom))
        return "saturation", {"share": float(beyond.mean()), "largest": float(np.abs(exact).max()), "limit": limit}
    given = {source: alone.exact_of(source) for source in subject.sources(name)}
    for where, values in (("", exact), *_constants(subject, name).items(), *given.items()):
        outlier = None if values is None else _outlier(values)
        if outlier is not None:
            return "outlier_channel", {"from": where, **outlier}
    return "coarse", {"units": None}


def _masked(values: Array) -> bool:
    """Whether some values are about one and the same negative number, far beyond all the others: "minus infinity"."""
    finite = values[np.isfinite(values)]
    lowest = float(finite.min()) if finite.size else 0.0
    far = finite < 0.5 * lowest
    rest = float(np.abs(finite[~far]).max()) if not far.all() else 0.0
    return lowest < 0 and far.sum() > 1 and rest > 0 and lowest < -64 * rest and float(finite[far].max()) < 0.9 * lowest


def _outlier(values: Array) -> Evidence | None:
    """The channel whose range is far above the others', along the axis where that is clearest."""
    if values.ndim < 2 or values.size < 16 or values.dtype.kind != "f":
        return None
    best: Evidence | None = None
    for axis in range(values.ndim):
        if values.shape[axis] < 4:
            continue
        ranges = np.max(np.abs(values), axis=tuple(a for a in range(values.ndim) if a != axis))
        middle = float(
            np.quantile(ranges, 0.25)
        )  # half of the channels may be the large ones, as of two that were joined
        if middle > 0 and (ratio := float(ranges.max()) / middle) > 16 and (best is None or ratio > best["ratio"]):
            best = {"channel": int(ranges.argmax()), "axis": axis, "ratio": ratio}
    return best


def _amplified(subject: Subject, name: str, amplifier: str) -> tuple[str, Evidence]:
    row = subject.row_of[amplifier]
    sources = subject.sources(amplifier)
    factor = _factor(subject, name, amplifier)
    evidence: Evidence = {"amplifier": amplifier, "amplifier_type": _acting(subject, amplifier), "factor": factor}
    if _types(subject, amplifier) & CANCEL and row.comparison is not None:
        sizes = [subject.row_of[source].comparison for source in sources]
        largest = max((numbers.base.rms or 0.0 for numbers in sizes if numbers is not None), default=0.0)
        own = row.comparison.base.rms or 0.0
        if largest > 4 * own:
            return "cancellation", {**evidence, "input_size": largest, "output_size": own}
    return "amplified", evidence


def _acting(subject: Subject, name: str) -> str:
    """The operator of a region that computes: what only moves its result about may stand last."""
    types = [meta.op_type for meta in subject.region_of.get(name, ())] or [subject.row_of[name].op_type]
    summing = [one for one in types if plain_type(one) in CANCEL]
    computing = [one for one in types if plain_type(one) not in MOVE]
    return (summing or computing or types)[-1]


def _types(subject: Subject, name: str) -> set[str]:
    region = subject.region_of.get(name, ())
    return {plain_type(meta.op_type) for meta in region} or {plain_type(subject.row_of[name].op_type)}


def _largest_input(subject: Subject, name: str) -> float:
    found = 0.0
    for source in subject.sources(name):
        numbers = subject.row_of[source].comparison
        if numbers is not None:
            found = max(found, abs(numbers.base.min or 0.0), abs(numbers.base.max or 0.0))
    return found


def _constants(subject: Subject, name: str) -> dict[str, Array]:
    """What the baseline's operators of a region read of the model's own constants, as float arrays: those of the last
    name that was asked for are at hand, since to read a weight of a card takes up to a second."""
    if name not in subject.constants:
        subject.constants.clear()
        subject.constants[name] = _read(subject, name)
    return subject.constants[name]


def _read(subject: Subject, name: str) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for meta in subject.region_of.get(name, ()):
        operator = subject.operators()[0].operator(meta.name)
        for key, value in (operator.parameters if operator is not None else {}).items():
            array = np.asarray(value)
            if array.dtype.kind == "f" and array.size:
                found[key] = array
    return found


def _vanished(constants: Mapping[str, Array], least: float) -> Evidence:
    """A constant, an epsilon or variances say, below what the type can hold; {} where there is none."""
    for weight, values in constants.items():
        if least and _half_are_below(values, least):
            middle = float(np.median(np.abs(values[values != 0])))
            if middle < least:
                return {"weight": weight, "value": middle, "smallest": least}
    return {}


def _vanished_there(constants: Mapping[str, Array], least: float, exact: Array, wrong: Array) -> Evidence:
    """A constant of one number a channel, variances say, some of which are below the type, where most of the error is
    in their channels, and no NaN or Inf elsewhere; {} where there is none."""
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
            if not (broken & ~there).any() and _error_in(exact, wrong, there) > _MOST_OF_IT:
                return {"weight": weight, "value": float(np.abs(values[small]).max()), "smallest": least}
    return {}


def _half_are_below(values: Array, least: float) -> bool:
    """Whether half of what is not 0 is smaller, without which no median is; to count takes a tenth of the time."""
    some = below = 0
    for block in np.array_split(values.reshape(-1), max(1, values.size // _BLOCK)):
        nonzero = int(np.count_nonzero(block))
        some += nonzero
        below += nonzero - int(np.count_nonzero(~(np.abs(block) < least)))
    return 0 < some <= 2 * below


def _cancels_inside(subject: Subject, name: str, constants: Mapping[str, Array]) -> Evidence:
    """A product with a weight whose terms nearly sum to 0, so that the weight's own rounding is what is left; {} where
    the result is as large as products of such numbers are."""
    row = subject.row_of[name]
    weights = [values for values in constants.values() if values.ndim >= 2]
    own = (row.comparison.base.rms or 0.0) if row.comparison is not None else 0.0
    given = [subject.row_of[source].comparison for source in subject.sources(name)]
    size = max((numbers.base.rms or 0.0 for numbers in given if numbers is not None), default=0.0)
    if not weights or not own or not size:
        return {}
    rms = math.sqrt(float(np.mean(np.square(weights[-1].astype(np.float64)))))
    terms = size * rms * math.sqrt(_depth(subject, name, constants))
    if terms < _NEARLY_EQUAL * own:
        return {}
    summing = [meta.op_type for meta in subject.region_of.get(name, ()) if plain_type(meta.op_type) in SUM_UP]
    return {
        "amplifier": name, "amplifier_type": (summing or [row.op_type])[-1], "factor": terms / own, "input_size": terms,
        "output_size": own,
    }  # fmt: skip


def _subtracts_a_constant(subject: Subject, name: str, constants: Mapping[str, Array]) -> Evidence:
    """A sum of a tensor and a constant that nearly cancel, so that the constant's own rounding is what is left; {}
    where they do not."""
    types = _types(subject, name)
    row = subject.row_of[name]
    if not constants or not types & (CANCEL - SUM_UP) or row.comparison is None:
        return {}
    own = row.comparison.base.rms or 0.0
    largest = max(float(np.max(np.abs(values))) for values in constants.values())
    if not own or not math.isfinite(largest) or largest < _NEARLY_EQUAL * own:
        return {}
    return {
        "amplifier": name, "amplifier_type": _acting(subject, name), "factor": largest / own, "input_size": largest,
        "output_size": own,
    }  # fmt: skip


def _depth(subject: Subject, name: str, constants: Mapping[str, Array]) -> int:
    """Terms of one sum: those that a weight says, else what the operator makes fewer of."""
    weights = [values for values in constants.values() if values.ndim >= 2]
    if weights:
        shape = weights[-1].shape
        return int(np.prod(shape[1:])) if len(shape) > 2 else int(max(shape))
    numbers = subject.row_of[name].comparison
    operator = subject.operators()[0].operator(name)
    axis = operator.attributes.get("dim") if operator is not None else None
    if numbers is not None and "cum" in plain_type(subject.row_of[name].op_type) and isinstance(axis, int):
        return int(numbers.base.shape[axis])
    sizes = [subject.row_of[source].comparison for source in subject.sources(name)]
    given = max((one.base.elements for one in sizes if one is not None), default=0)
    return given // max(1, numbers.base.elements) if numbers is not None else 0


def not_obeyed(subject: Subject, name: str) -> Evidence:
    """What the user asked of an operator's precision and the engine did instead, where its session tells so; {} where
    it did as asked."""
    for meta in reversed(subject.region_of.get(name, ())):
        row = subject.row_of.get(meta.name)
        told = subject.targets.get(row.target_name if row is not None else meta.name)
        if told is not None and told.extra.get("Obeyed") == "no":
            real = told.extra.get("Real Precision", "") or "not told"
            return {"layer": meta.node or meta.name, "asked": told.extra.get("Asked Precision", ""), "real": real}
    return {}
