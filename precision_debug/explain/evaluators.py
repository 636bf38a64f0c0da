"""An operator, or the stretch of operators between two tensors that are compared, computed once more."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from ..records import TensorMeta
from .forms import find_form
from .integer_grids import list_integer_grids, read_integers, write_integers
from .operator_facts import constants_of, list_fixed
from .operators import SUM_UP, plain_type
from .subject import Subject, collect_stretch
from .units import is_of_few_bits

__all__ = [
    "Folded", "find_folded_weight", "list_source_names", "make_engine_evaluator", "make_exact_evaluator",
    "make_form_evaluator",
]  # fmt: skip

Array = np.ndarray[Any, Any]
Compute = Callable[[Mapping[str, Array]], Array | None]


class _Case(Protocol):
    """What is asked of an operator that ran alone (see ``undo.Case``)."""

    @property
    def subject(self) -> Subject: ...

    @property
    def name(self) -> str: ...

    @property
    def exact(self) -> Array: ...

    def given(self, source: str, /) -> Array | None: ...


def make_engine_evaluator(case: _Case, name: str = "") -> Compute | None:
    """As ``make_exact_evaluator``, in float64."""
    exactly = make_exact_evaluator(case, name=name)
    if exactly is None:
        return None

    def compute(changed: Mapping[str, Array]) -> Array | None:
        found = exactly(changed)
        return None if found is None else found.astype(np.float64)

    return compute


def make_exact_evaluator(
    case: _Case, told: Mapping[str, Mapping[str, Any]] | None = None, *, name: str = ""
) -> Compute | None:
    """Return the region's operators one after the other, in the baseline's own engine, where it runs them alone. told:
    attributes in place of their own, by what they make. name: one of the region's tensors in place of its result."""
    operators = None if case.subject.operators_alone is None else case.subject.operators_alone()
    if operators is None:
        return None
    maker = {output: one for one in operators.operators for output in one.outputs if output}
    own, last = list_source_names(case.subject), name or case.name
    grids = list_integer_grids(case.subject, case.name)

    def compute(changed: Mapping[str, Array]) -> Array | None:
        values: dict[str, Array] = {}
        inner = {own.get(name, name): value for name, value in changed.items()}  # of its region
        waiting = [own.get(last, last)]
        ends = {own.get(name, name): name for name in case.subject.row_of if name != last}
        while waiting:
            name = waiting[-1]
            if name in values or not name:
                waiting.pop()
                continue
            if name in operators.constants:
                constant = np.asarray(operators.constants[name])
                other = changed.get(name, constant)
                if grids and constant.dtype.kind in "iu" and other.dtype.kind == "f":
                    return None  # what its integers stand for
                few = all(is_of_few_bits(one.dtype.name) for one in (constant, other))  # each has numbers of its own
                values[name] = other if few else other.astype(constant.dtype)
                continue
            if name in ends:
                given = changed.get(ends[name], case.given(ends[name]))
                if given is None:
                    return None
                wide, whole = case.subject.meta_of[ends[name]].dtype == "float64", grids.get(name)
                if given.dtype.kind != "f":
                    values[name] = given
                elif whole is not None:
                    values[name] = write_integers(given, *whole)
                else:
                    values[name] = given.astype(np.float64 if wide else np.float32)
                continue
            if name in inner:
                values[name] = inner[name]
                continue
            one = maker.get(name)
            if one is None or len(waiting) > 64:
                return None
            if missing := [read for read in one.inputs if read and read not in values]:
                waiting += missing
                continue
            found = operators.run(one, values, (told or {}).get(name))
            if found is None:
                return None
            values.update({key: np.asarray(value) for key, value in found.items()})
        made, whole = values.get(own.get(last, last)), grids.get(own.get(last, last))
        return made if made is None or whole is None else read_integers(made, *whole)

    return compute


def list_source_names(subject: Subject) -> Mapping[str, str]:
    """Return what the source model calls each tensor of the baseline."""
    metas: tuple[TensorMeta, ...] = tuple(subject.tensors)
    return {meta.name: meta.origin or meta.name for meta in metas}


def make_form_evaluator(case: _Case) -> Compute | None:
    """Of an operator of one tensor and constants in any framework, or of two constants alone."""
    constants = constants_of(case.subject, case.name)
    subject, fixed = case.subject, list_fixed(case.subject)  # a view of a constant is that constant's
    sources = [one for one in subject.sources(case.name) if one not in fixed or not subject.only_moves(one)]
    given = case.given(sources[0]) if len(sources) == 1 else None
    if not sources and len(constants) == 2:
        sources = [min(constants, key=lambda key: constants[key].ndim)]
        given = constants.pop(sources[0])
    return None if given is None else find_form(case.exact, sources[0], given, constants)


_SAME = 1e-3
"""Relative L2 error up to which a weight with factors of its own gives what the operators behind it do."""


@dataclass(frozen=True)
class Folded:
    """A weight that the target holds with the operators behind it folded into it, a batch normalisation say.

    factors: what they multiply each of its output channels by; types: theirs; taken: their own constants, which are no
    more."""

    weight: str
    factors: Array
    types: str
    taken: frozenset[str]

    def fold(self, constants: Mapping[str, Array]) -> dict[str, Array]:
        """Return constants as the target has them."""
        left = {key: value for key, value in constants.items() if key not in self.taken}
        return left | {self.weight: constants[self.weight] * self.factors}

    def follow(self, compute: Compute) -> Compute:
        """Return what computes the operators apart, given a weight that they are folded into."""

        def compute_apart(changed: Mapping[str, Array]) -> Array | None:
            held = changed.get(self.weight)
            if held is None:
                return compute(changed)
            apart = np.divide(held, self.factors, out=np.zeros_like(held, np.float64), where=self.factors != 0)
            return compute({**changed, self.weight: apart})

        return compute_apart


def find_folded_weight(case: _Case) -> Folded | None:
    """Return the weight of a region whose factors for each channel the target has no operator for; None where none is
    so. Which factors these are is measured: with them alone the weight has to give what the operators behind it do."""
    subject, region = case.subject, case.subject.region_of.get(case.name, ())
    stretch = collect_stretch(subject.targets, subject.row_of[case.name].target_name, subject.partner)
    there = {plain_type(meta.op_type) for meta in stretch.values()}
    constants = constants_of(subject, case.name) if len(region) > 1 else {}
    first, weight = _find_first_weight(subject, region, constants)
    found, types, taken = None, list[str](), set[str]()
    for meta in region[[meta.name for meta in region].index(first) + 1 :] if first else ():
        operator = subject.operators()[0].operator(meta.name)
        taken |= set() if operator is None else operator.parameters.keys()
        if plain_type(meta.op_type) in there:
            continue
        factors = _measure_factors(case, first, meta.name, weight, constants[weight])
        if factors is None:
            break
        types.append(meta.op_type)
        found = Folded(weight, factors, "+".join(types), frozenset(taken))
    return found


def _find_first_weight(
    subject: Subject, region: Sequence[TensorMeta], constants: Mapping[str, Array]
) -> tuple[str, str]:
    """Return the first operator of a region that adds up products with a weight, and that weight; "" where none is."""
    for meta in region:
        operator = subject.operators()[0].operator(meta.name) if plain_type(meta.op_type) in SUM_UP else None
        for key in operator.parameters if operator is not None else ():
            if key in constants and constants[key].ndim > 1:
                return meta.name, key
    return "", ""


def _measure_factors(case: _Case, first: str, last: str, weight: str, values: Array) -> Array | None:
    """Return by what the operators from the first one on multiply each channel that it makes, in the shape of its
    weight; None where they do more than that, or it cannot be computed."""
    computes = [make_engine_evaluator(case, name) for name in (first, last)]
    made = [compute({weight: one}) if compute is not None else None for compute in computes
            for one in (np.zeros_like(values), values)]  # fmt: skip
    none, alone, none_behind, behind = made
    if none is None or alone is None or none_behind is None or behind is None or behind.shape != alone.shape:
        return None
    if not all(np.isfinite(one).all() for one in (alone, behind)) or behind.ndim < 2:
        return None
    channel = 1 if values.ndim > 2 else alone.ndim - 1
    others = tuple(axis for axis in range(alone.ndim) if axis != channel)
    size = np.sum(np.square(alone - none), axis=others)
    product = np.sum((alone - none) * (behind - none_behind), axis=others)
    factors = np.divide(product, size, out=np.ones_like(size), where=size > 0)
    for axis in (0, values.ndim - 1):
        if values.shape[axis] != factors.size or computes[0] is None:
            continue
        along = factors.reshape([-1 if one == axis else 1 for one in range(values.ndim)])
        got = computes[0]({weight: values * along})
        off = np.inf if got is None else np.linalg.norm((got - none) - (behind - none_behind))
        if off <= _SAME * np.linalg.norm(behind - none_behind):
            return np.asarray(along)
    return None
