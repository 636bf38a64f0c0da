"""What is explained: both open sessions, how their tensors are paired, and the rows of the comparison."""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from ..errors import BackendError, PrecisionDebugError
from ..numbers.narrowing import is_rounding
from ..numbers.number_types import FEW_BITS, QUANTISED, QUANTISED_WEIGHT, find_promise
from ..numbers.told import Tokens
from ..onnx.removed_activations import Removed
from ..pairing.align import strip_iteration
from ..protocols import Feeds, Operators, Replace, Replacer, Session, Workbench, holds_integers
from ..records import Operator, Row, TensorMeta, TensorStats
from .operators import BODIES, CASTS, JOIN, MOVE, find_reached, find_rounded_numbers, plain_type
from .units import (
    FEW_STEPS,
    INT4,
    INT8,
    INT16,
    INTEGERS,
    LEAST,
    NARROW,
    bits_of,
    held_type,
    model_unit,
    smallest_of,
    steps_of,
    unit_of,
)
from .workbench import HostWorkbench

__all__ = ["FLOAT8", "Subject", "collect_stretch", "find_converted_type", "find_narrowed_constants", "replaces"]

Array = np.ndarray[Any, Any]

_WIDE_UNIT = unit_of("float32", None)
_WIDE_TYPES = frozenset({"", "float32", "float64"})

FLOAT8 = "float8."
"""What the operator types of layers in float8 begin with."""


class _OnDevice:
    """See protocols.Workbench."""

    on_device = True

    def __init__(self, replace: Replace) -> None:
        self._replace = replace

    def __call__(self, op_type: str, name: str, tensor: Any, /) -> Any:
        return self._replace(op_type, name, tensor)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """Two open sessions that have just been compared.

    rows: those that were compared, with their numbers; unfused: those inside a fused layer that a further run shows.
    tensors: the baseline's, in execution order. targets: the target's tensors, by name. together: both may run at once.
    operators_alone: the baseline's file's, to be run on any values; None of another format. target_feeds: the target's
    own, where its inputs have other names. memory_budget: bytes of waiting tensors to hold in memory. two_frameworks:
    whose words for one operator are not the same. outputs, target_outputs: as the run returned them. fails: an output
    is beyond the user's tolerance. iterations: how many a tensor has of which ``rows`` has the first and the last
    alone, by its name without one. bearers: tensors in between that bear the error of iterations without rows. variant:
    what the target was given the baseline's sample in, "batch" or "padded"; "" where both were fed alike. tokens: of a
    causal language model, what both sides say of each. inner: rows that are parts of their readers.
    """

    baseline: Session
    target: Session
    feeds: Feeds
    target_feeds: Feeds | None = None
    rows: Sequence[Row]
    unfused: Sequence[Row] = ()
    tensors: Sequence[TensorMeta]
    targets: Mapping[str, TensorMeta]
    together: bool = False
    precision: str = ""
    simulation: bool = False
    two_files: bool = False
    two_frameworks: bool = False
    in_files: Callable[[str, str], tuple[Operator, Operator] | None] | None = None
    removed: Callable[[], Mapping[str, Removed]] = dict
    operators_alone: Callable[[], Operators | None] | None = None
    fails: bool = False
    variant: str = ""
    memory_budget: int | None = None
    iterations: Mapping[str, int] = field(default_factory=dict)
    bearers: frozenset[str] = frozenset()
    outputs: Mapping[str, Any] = field(default_factory=dict)
    target_outputs: Mapping[str, Any] = field(default_factory=dict)
    tokens: Tokens | None = None
    inner: frozenset[str] = frozenset()

    def budget(self, usual: int) -> int:
        """Bytes of waiting tensors to hold in memory; the usual ones where the user has not said."""
        return usual if self.memory_budget is None else self.memory_budget

    @cached_property
    def bench(self) -> Workbench:
        """Where the tensors are handled: on their device where both sides can, else in the host's memory."""
        first, second = (getattr(side.replacer, "workbench", None) for side in (self.baseline, self.target))
        return first if first is not None and second is not None else HostWorkbench()

    def showing(self, replace: Replace) -> Replace:
        """A ``replace`` that is shown tensors as the workbench handles them."""
        return _OnDevice(replace) if self.bench.on_device else replace

    @property
    def feeds_of_target(self) -> Feeds:
        """What the target is fed."""
        return self.feeds if self.target_feeds is None else self.target_feeds

    @cached_property
    def told_by_files(self) -> dict[str, dict[str, Any]]:
        """Room for what the two files were found to say of each tensor, by what was asked."""
        return {}

    @cached_property
    def _shown(self) -> Counter[str]:
        return Counter(strip_iteration(name) for name in self.row_of if strip_iteration(name) in self.iterations)

    def times(self, name: str) -> float:
        """How often an operator runs for each time that there is a row of it: over 1 in a loop of many iterations."""
        whole = self.iterations.get(strip_iteration(name), 0) if self.iterations else 0
        return whole / self._shown[strip_iteration(name)] if whole else 1.0

    @cached_property
    def is_step(self) -> bool:
        """Whether it is a training step, whose outputs are its gradients."""
        return any(meta.phase for meta in self.tensors)

    @cached_property
    def ranks(self) -> tuple[int, ...]:
        """Of a step of several; () elsewhere."""
        return tuple(sorted({meta.rank for meta in self.tensors if meta.rank is not None}))

    def within_rank(self, name: str) -> tuple[str, str]:
        """Of a step of several ranks, what a tensor's name begins with, and the name on that rank: ("rank1/", "loss");
        elsewhere ("", name)."""
        rank, slash, rest = name.partition("/") if self.ranks else ("", "", name)
        return f"{rank}{slash}", rest

    @property
    def target_replaces(self) -> bool:
        """Whether the target can be run on the baseline's values."""
        return replaces(self.target)

    @cached_property
    def constants(self) -> dict[str, dict[str, Any]]:
        """Room for what an explanation reads of the model's constants."""
        return {}

    @cached_property
    def row_of(self) -> Mapping[str, Row]:
        """Compared rows by the baseline's name, without those that are ``carried``."""
        return {row.name: row for row in self._compared if row.comparison and row.comparison.shapes_match}

    @cached_property
    def _compared(self) -> list[Row]:
        return [row for row in self.rows if row.comparison is not None and row.name not in self.carried]

    @cached_property
    def carried(self) -> frozenset[str]:
        """What the target only moves from a cast of its own to the operator that computes in the narrower type:
        autocast casts first and expands then, and what that loses is the operator's."""
        return self.inner | (frozenset() if self.is_step else _find_carried(self.rows, self.targets))

    @cached_property
    def rounded_unseen(self) -> frozenset[str]:
        """The baseline's tensors that the target quantises where nobody sees it."""
        found = {meta.origin for meta in self.targets.values() if QUANTISED.search(meta.op_type)}
        for meta in self.targets.values():
            found.update(meta.rounds)
        return frozenset(found & self.meta_of.keys() - self.row_of.keys())

    @cached_property
    def lowest_unseen(self) -> Mapping[str, float]:
        """The smallest finite number of each of these; takes a run of the baseline."""
        return _lowest_errors(self)

    @cached_property
    def partner(self) -> Mapping[str, str]:
        """Target name to baseline name, of everything that was compared and is not ``carried``."""
        return {row.target_name: row.name for row in self._compared}

    @cached_property
    def meta_of(self) -> Mapping[str, TensorMeta]:
        """The baseline's tensors by name."""
        return {meta.name: meta for meta in self.tensors}

    @cached_property
    def order(self) -> Mapping[str, int]:
        """Place of each of the baseline's tensors in its execution order."""
        return {meta.name: place for place, meta in enumerate(self.tensors)}

    @cached_property
    def held_as(self) -> Mapping[str, str]:
        """The type in which the target holds each tensor, by the baseline's name."""
        return _find_types_held(self)

    @cached_property
    def codes_of(self) -> Mapping[tuple[str, str], str]:
        """The type of the codes that an operator which quantises its result makes, by its node and its type: a float of
        the same operator is these, dequantised, as an output of the model is."""
        return {
            (meta.node, meta.op_type): meta.dtype for meta in self.targets.values()
            if meta.node and (meta.dtype.startswith("float8") or (
                meta.dtype in INTEGERS and QUANTISED.search(meta.op_type)))
        }  # fmt: skip

    @cached_property
    def quantised_file(self) -> bool:
        """Whether the target's file brings integers that stand for numbers, and the baseline's none, in any modes."""
        told = any(QUANTISED.search(meta.op_type) for meta in self.targets.values())
        return not self.quantises and (told or (holds_integers(self.target) and not holds_integers(self.baseline)))

    @cached_property
    def weights_alone(self) -> bool:
        """Whether the target's file is the baseline's graph and quantises nothing but weights, which its operators hold
        for themselves: then whatever else differs is not the quantiser's doing."""
        kinds = [meta.op_type for meta in self.targets.values() if QUANTISED.search(meta.op_type) or _shows_codes(meta)]
        same = self.quantised_file and self.two_files and not self.two_frameworks
        return same and all(kind.endswith(QUANTISED_WEIGHT) for kind in kinds)

    @cached_property
    def same_integers(self) -> bool:
        """Whether both sides run one file that quantises, in modes that quantise nothing themselves."""
        named = (meta.op_type for meta in (*self.tensors, *self.targets.values()))
        own = find_promise(self.precision).computes in {"int8", "int4"}
        return not self.two_files and not own and any(QUANTISED.search(op_type) for op_type in named)

    @property
    def quantises_itself(self) -> bool:
        """Whether both sides run one file that quantises, whatever modes they are."""
        return self.quantises and not self.two_files

    @cached_property
    def on_same_grids(self) -> bool:
        """Whether the target computes in integers, on no grids but those of the file that both sides run."""
        return self.quantises_itself and self.arithmetic == "int8" and _quantises_nothing_else(self)

    @cached_property
    def quantises(self) -> bool:
        """Whether the baseline's graph itself quantises."""
        return any(QUANTISED.search(meta.op_type) for meta in self.tensors)

    @cached_property
    def typical_unit(self) -> float:
        """The unit of rounding that is typical of the target's tensors.

        The tensors' types decide, on both sides. Integers that both hold are not rounded (they must agree to the
        accumulator's rounding). A narrow type that both hold is rounded by each in its own order. Of a target that
        holds integers only these count, whatever narrow floats there are beside them.
        """
        rows = [row for row in self.rows if row.comparison is not None and not self.whole_in_both(row)]
        whole = [row for row in rows if self.whole_steps(row.name)]
        arithmetic = self.arithmetic
        if arithmetic in {"int8", "int4"} and whole:
            rows = whole
        units = [self._own_unit(row.name, row.comparison.base) for row in rows if row.comparison]
        if self.few_narrow:  # each costs its own rounding and what that becomes, and the others theirs
            units = [unit for unit in units if unit <= NARROW]
        known = model_unit(units)
        if arithmetic == "int4":  # of weights alone: the tensors are held in another type
            return max(known, INT4)
        if arithmetic == "int8":
            known = known if whole and known > NARROW else 0.0
            return known if known > INT16 else INT8 if _has_coarse_steps(self) else INT16
        return max(known, unit_of(arithmetic, None))

    def unit_at(self, expected: float | None, name: str) -> float:
        """The unit in which an output's error is looked at: the typical one, or what is predicted, if that is more and
        few tensors are narrow or steps fall otherwise: of floats rounded to whole numbers, or on the same grids."""
        unit = self.unit_behind(name)
        return max(unit, expected or 0.0) if self.few_narrow or self.on_same_grids or name in self.rounded else unit

    def unit_behind(self, name: str) -> float:
        """The unit that is typical of what a tensor is made of: float32's where the model's own types alone are narrow
        somewhere, and nothing narrow is before it."""
        wide = max(_WIDE_UNIT, unit_of(self.held_as.get(name, ""), None))
        return min(self.typical_unit, wide) if name in self.fed_by_none else self.typical_unit

    @cached_property
    def fed_by_none(self) -> frozenset[str]:
        """The compared tensors of a wide run that are narrow on neither side, and that nothing narrow is before, where
        something narrow is elsewhere. Empty where the mode, or a quantised file, makes any of them coarse."""
        return _find_fed_by_none(self)

    @cached_property
    def arithmetic(self) -> str:
        """The type that the target computes in: as its session says, else as its mode promises or its file brings."""
        arithmetic = self.target.arithmetic or find_promise(self.precision).computes
        of_file = self.quantised_file and arithmetic in {"", "float32", "bfloat16"}  # these lose less
        return ("int4" if _has_weights_of_4_bits(self) else "int8") if of_file else arithmetic

    @cached_property
    def narrow_type(self) -> str:
        """The narrow type that most of the target's tensors are held in; "float32" where none is, or few are."""
        narrow = self._types_held[1]
        most = max(set(narrow), key=narrow.count) if narrow else ""
        return most if narrow and not self.few_narrow else self.arithmetic or "float32"

    @cached_property
    def _types_held(self) -> tuple[list[str], list[str]]:
        """The types of all of the target's tensors that can be rounded, and those of them that are narrow. Bytes are
        narrow as codes: those that stand where the baseline has a float, or any where something quantises."""
        any_code = self.quantises or self.quantised_file or self.arithmetic in {"int8", "int4"}
        floats = {meta.name for meta in self.tensors if meta.dtype not in INTEGERS}
        types = [
            held for name, held in self.held_as.items()
            if unit_of(held, None) or (held in {"int8", "uint8"} and (any_code or name in floats))
        ]  # fmt: skip
        return types, [held for held in types if held not in {"float32", "float64"}]

    @cached_property
    def few_narrow(self) -> bool:
        """Whether the mode is of a wide type and a few floats alone are narrow, or constants, as the file asks: what
        they cost is told by their own rounding, and theirs is not everybody's."""
        types, narrow = self._types_held
        floats = "float" in max(set(narrow), key=narrow.count) if narrow else any(
            _expect_of_file(self, name) for name in self.row_of
        )
        return floats and self.arithmetic in _WIDE_TYPES and 2 * len(narrow) < len(types)

    def unit(self, name: str, stats: TensorStats) -> float:
        """Largest relative error of rounding a tensor once to the type in which the target holds it, or the baseline.

        Of what both hold as the same integers, what a few elements make that fall to the other side of a step.
        """
        own = self._own_unit(name, stats)
        meta = self.meta_of.get(name)
        if meta is None:
            return own
        if self.whole_steps(name) and self.held_as.get(name) == meta.dtype:
            return own * FEW_STEPS
        if self.quantises and (inside := sum(map(_rounds_to_steps, self.region_of.get(name, ())))):
            own = max(own, _find_unit_of_steps(self) * math.sqrt(inside))  # fused, it falls to steps that nobody sees
        return own

    def _own_unit(self, name: str, stats: TensorStats) -> float:
        own, meta = unit_of(self.held_as.get(name, ""), stats), self.meta_of.get(name)
        if meta is None or self.whole_steps(name):
            return own
        return max(own, unit_of(meta.dtype, None), _find_unit_of_operands(self, name))

    def whole_steps(self, name: str) -> bool:
        """Whether the target holds a tensor as integers, whose rounding error does not depend on the value."""
        return self.held_as.get(name, "") in INTEGERS

    @cached_property
    def rounded(self) -> frozenset[str]:
        """Tensors of whole numbers that are floats, rounded, whose error is that of numbers."""
        return find_rounded_numbers(self.meta_of)

    @cached_property
    def same_steps(self) -> bool:
        """Whether some tensors are the same integers on both sides: then a difference far below a step becomes a whole
        one in a few elements, and such steps spread, without anybody's fault. Only where nothing else is rounded."""
        return self.typical_unit <= NARROW and self.quantises

    def whole_in_both(self, row: Row) -> bool:
        """Whether both sides hold a tensor as the same integers."""
        meta = self.meta_of.get(row.name)
        return meta is not None and self.whole_steps(row.name) and self.held_as.get(row.name) == meta.dtype

    def held(self, target_name: str, value: Any) -> Any:
        """What the target holds of a value; None where that is not known, or is the value itself."""
        return None if self.target.replacer is None else self.target.replacer.held(target_name, value)

    def operators(self) -> tuple[Replacer, Replacer | None]:
        """Both sides, where they can tell of their operators. Raises BackendError where the baseline cannot."""
        if self.baseline.replacer is None:
            raise BackendError("its operators cannot be run alone", where="explain")
        return self.baseline.replacer, self.target.replacer

    def far(self, rel_l2: float | None, units: float | None, times: float) -> bool:
        """Whether an error is beyond so many units of rounding, and of a size that matters at all."""
        return rel_l2 is not None and units is not None and units > times and rel_l2 > LEAST

    def error_units(self, row: Row) -> float | None:
        """A row's cumulative error in the model's units of rounding."""
        error, unit = row.relative_l2, self.unit_behind(row.name)
        if self.few_narrow and row.comparison is not None:
            unit = max(unit, self._own_unit(row.name, row.comparison.base))
        return None if error is None or not unit else error / unit

    @cached_property
    def region_of(self) -> Mapping[str, tuple[TensorMeta, ...]]:
        """For each compared tensor the baseline's operators from the nearest compared tensors to it, in order."""
        return {name: tuple(self._region(name)) for name in self.row_of}

    def _region(self, name: str) -> list[TensorMeta]:
        found = collect_stretch(self.meta_of, name, self.row_of)
        return sorted(found.values(), key=lambda meta: self.order[meta.name])

    def only_moves(self, name: str) -> bool:
        """Whether a tensor's operators only move numbers about, and so take no blame."""
        region = self.region_of.get(name, ())
        types = {plain_type(meta.op_type) for meta in region}
        if not types or not types <= MOVE or (types & JOIN and self.whole_steps(name)):
            return False
        return not any(self._rounds_integers(meta) for meta in region)

    def moves_on(self, name: str) -> bool:
        """Whether a tensor's operators only move about what is compared before it."""
        return self.only_moves(name) and bool(self.sources(name))

    def is_rounded(self, name: str) -> bool:
        """Whether a tensor's numbers are of its floating-point type where those that it is moved from are."""
        held = self.held_as.get(name, "")
        return bool(bits_of(held)) and self.moves_on(name) and all(
            self.held_as.get(one) == held for one in self.sources(name)
        )  # fmt: skip

    def _rounds_integers(self, meta: TensorMeta) -> bool:
        """Whether an operator makes floats of integers: then it is the first to round them, or to overflow."""
        dtypes = [self.meta_of[source].dtype for source in meta.inputs if source in self.meta_of]
        return "float" in meta.dtype and any(dtype.lstrip("u").startswith("int") for dtype in dtypes)

    def sources(self, name: str) -> tuple[str, ...]:
        """The nearest compared tensors that a tensor's region reads, and what a body hands to the operator it is of."""
        return self._sources_of.get(name, ())

    @cached_property
    def _sources_of(self) -> Mapping[str, tuple[str, ...]]:
        found = {name: {*self._read(name), *self._handed.get(name, ())} for name in self.row_of}
        return {name: tuple(sorted(one, key=lambda source: self.order[source])) for name, one in found.items()}

    def _read(self, name: str) -> set[str]:
        inside = {meta.name for meta in self.region_of.get(name, ())}
        found = {source for meta in self.region_of.get(name, ()) for source in meta.inputs if source not in inside}
        return found & self.row_of.keys()

    @cached_property
    def _handed(self) -> Mapping[str, list[str]]:
        """Outputs of loops and branches, to the tensors of the body that ran right before and that nothing reads: no
        session lists these edges."""
        read = {source for name in self.row_of for source in self._read(name)}
        bodies = {name for name in self.row_of if plain_type(self.row_of[name].op_type) in BODIES}
        found: dict[str, list[str]] = {}
        leaves: list[str] = []
        node, readers = "", list[str]()
        for name in sorted(self.row_of, key=lambda one: self.order.get(one, 0)) if bodies else ():
            row = self.row_of[name]
            if name in bodies:
                if leaves or row.node != node:
                    node, readers, leaves = row.node, leaves, []
                found[name] = readers
            elif name not in read and not row.is_output and row.op_type != "Input":
                leaves.append(name)
        return found

    def broken(self, name: str) -> bool:
        """Whether the target's tensor has NaN or Inf where the baseline's has numbers."""
        numbers = self.row_of[name].comparison if name in self.row_of else None
        return numbers is not None and (numbers.target.nan > numbers.base.nan or numbers.target.inf > numbers.base.inf)

    @cached_property
    def readers(self) -> Mapping[str, tuple[str, ...]]:
        """For each compared tensor the compared tensors whose regions read it, in order."""
        found: dict[str, list[str]] = {}
        for name in self.row_of:
            for source in self.sources(name):
                found.setdefault(source, []).append(name)
        return {name: tuple(readers) for name, readers in found.items()}

    def descendants(self, name: str) -> set[str]:
        """Every compared tensor that depends on one."""
        return set(find_reached([name], lambda one: self.readers.get(one, ())))

    def ancestors(self, name: str) -> set[str]:
        """Every compared tensor that one depends on."""
        return set(find_reached([name], lambda one: self._sources_of.get(one, ())))


def _quantises_nothing_else(subject: Subject) -> bool:
    """Return whether the target quantises nothing but what the baseline does: then it is off by what falls to other
    steps, which spreads, and not by rounding."""
    theirs = (meta for meta in subject.targets.values() if QUANTISED.search(meta.op_type))
    return all({meta.name, meta.origin} & subject.meta_of.keys() for meta in theirs)


def _find_unit_of_steps(subject: Subject) -> float:
    """Return what a tensor is off that falls to other steps than the baseline's. Where the target rounds it to a narrow
    float before, by half a unit on the mean, that part of a step, of twice INT8, is the share of those that fall."""
    held = {subject.arithmetic, *subject.held_as.values()}  # what is fused computes so unseen
    before = max(unit_of(one, None) for one in held)
    return max(INT8 * FEW_STEPS, math.sqrt(INT8 * before))


def _lowest_errors(subject: Subject) -> dict[str, float]:
    found: dict[str, float] = {}

    def look(_op: str, name: str, value: Any) -> None:
        array = subject.bench.host(value)
        if name in subject.rounded_unseen and array.dtype.kind == "f" and np.isfinite(array).any():
            found[name] = float(array[np.isfinite(array)].min())

    with contextlib.suppress(PrecisionDebugError):  # an engine that does not run with these shown
        subject.operators()[0].run_replacing(subject.feeds, subject.showing(look), subject.rounded_unseen)
    return found


def _find_carried(rows: Sequence[Row], targets: Mapping[str, TensorMeta]) -> frozenset[str]:
    base_of = {row.target_name: row for row in rows if row.comparison is not None}
    lowered: set[str] = set()
    found: set[str] = set()
    for meta in targets.values():  # in execution order
        row, source = base_of.get(meta.name), targets.get(meta.inputs[0]) if len(meta.inputs) == 1 else None
        kind = plain_type(meta.op_type)
        if not bits_of(meta.dtype) or unit_of(meta.dtype, None) <= _WIDE_UNIT or kind not in MOVE:
            continue
        if kind in CASTS:
            wider = source is None if not meta.inputs else source is not None and source.dtype != meta.dtype
            if row is None and wider:
                lowered.add(meta.name)
        elif source is not None and source.name in lowered and not meta.is_output and not (row and row.is_output):
            lowered.add(meta.name)
            if row is not None:
                found.add(row.name)
    return frozenset(found)


def collect_stretch(metas: Mapping[str, TensorMeta], name: str, ends: Container[str]) -> dict[str, TensorMeta]:
    """Return one side's operators from the nearest tensors of ``ends`` to one, by name, the last first."""
    found: dict[str, TensorMeta] = {}
    waiting = [name]
    while waiting:
        current = waiting.pop()
        meta = metas.get(current)
        if meta is None or current in found or (current != name and current in ends):
            continue
        if current != name and meta.op_type in {"Input", "Constant"}:
            continue
        found[current] = meta
        waiting.extend(meta.inputs)
    return found


def _find_types_held(subject: Subject) -> dict[str, str]:
    """Return the type in which the target holds each row's tensor, by the baseline's name."""
    inside = _find_codes_inside(subject)
    return {row.name: inside.get(row.target_name) or _find_type_held(subject, row) for row in subject.rows}


def _find_codes_inside(subject: Subject) -> dict[str, str]:
    """Return the target's floats that its file, which quantises no weight, makes of integers, with their types, where
    the baseline's file makes none so: what these bits cost over the range of the values is as expected of them."""
    if subject.quantised_file or not subject.two_files or any(map(_shows_codes, subject.tensors)):
        return {}
    codes: dict[tuple[str, str], str] = {}
    found: dict[str, str] = {}
    for meta in subject.targets.values():  # in the order that they are made in: codes, then what becomes of them
        if _shows_codes(meta):
            codes[meta.node, meta.op_type] = meta.dtype
        elif meta.node and (meta.node, meta.op_type) in codes:
            found[meta.name] = codes[meta.node, meta.op_type]
    return found


def _shows_codes(meta: TensorMeta) -> bool:
    """Return whether a tensor is shown as the numbers that its integers stand for."""
    return meta.view.startswith("dequantised") and meta.dtype in INTEGERS


def _find_type_held(subject: Subject, row: Row) -> str:
    """Return the type in which the target holds a row's tensor."""
    meta = subject.targets.get(row.target_name) or subject.targets.get(row.target_name.rpartition("@")[0])
    found = held_type(row, meta.dtype if meta is not None else "")
    if meta is None or meta.dtype in INTEGERS:
        return found
    codes = subject.codes_of.get((meta.node, meta.op_type), "")
    if subject.quantised_file:
        dtypes = [subject.targets[name].dtype for name in meta.inputs if name in subject.targets]
        steps = next((dtype for dtype in dtypes if dtype in INTEGERS), "") if _dequantises(meta.op_type) else ""
        return steps or codes or found
    return codes if codes.startswith("float8") and row.target_name != row.name else found


def _has_coarse_steps(subject: Subject) -> bool:
    """Whether a target of integers has any of fewer than 16 bits: in its tensors, in the constants that its file
    holds, or in what became of the weights."""
    types = {meta.dtype for meta in subject.targets.values() if QUANTISED.search(meta.op_type)} & INTEGERS
    if not types or min(map(steps_of, types)) < steps_of("int16") or subject.target.replacer is None:
        return True
    for name, row in subject.row_of.items():
        one, other = subject.operators()[0].operator(name), subject.target.replacer.operator(row.target_name or name)
        if one is None or other is None:
            continue
        if any(0 < steps_of(str(held.integers.dtype)) < steps_of("int16") for held in other.stored.values()):
            return True
        for key, weights in one.parameters.items():
            ours, theirs = np.asarray(weights), np.asarray(other.parameters.get(key, weights))
            alike = ours.dtype.kind == "f" == theirs.dtype.kind and ours.shape == theirs.shape
            if alike and np.linalg.norm(theirs - ours) > INT16 * np.linalg.norm(ours):
                return True
    return False


def _find_unit_of_operands(subject: Subject, name: str) -> float:
    """Return the rounding unit of the coarsest operand that the target reads in fewer bits than its result has. Such
    are float8 operands of a product, those that an operator of floats rounds to 8 bits inside, and constants that its
    file alone stores in a narrower float; otherwise 0."""
    row, mine = subject.row_of.get(name), subject.meta_of.get(name)
    meta = subject.targets.get(row.target_name) if row is not None else None
    if meta is None:
        return 0.0
    if meta.op_type.startswith(FLOAT8):
        types = [subject.targets[one].dtype for one in meta.inputs if one in subject.targets]
        return max(unit_of(dtype, None) for dtype in ("float8_e4m3fn", *types) if dtype.startswith("float8"))
    alone = mine is not None and not mine.rounds
    if not alone or not meta.rounds or not QUANTISED.search(meta.op_type):
        return _expect_of_file(subject, name)
    return INT4 if subject.arithmetic == "int4" and FEW_BITS.search(meta.op_type) else INT8


def find_narrowed_constants(subject: Subject, name: str) -> tuple[float, bool]:
    """Return of the constants of a tensor's region that the target's file, and not the baseline's, stores in a narrower
    float: the rounding unit of the coarsest, 0 where none is or one is no such rounding; and whether one that is cast
    where it is read has, in the same operator, a number that is neither of that type's two about the baseline's."""
    room: dict[str, tuple[float, bool]] = subject.told_by_files.setdefault("narrowed", {})
    if name not in room:  # asked once: a session that is in a run may have no other answer
        room[name] = _find_narrowed_constants(subject, name)
    return room[name]


def _find_narrowed_constants(subject: Subject, name: str) -> tuple[float, bool]:
    baseline, target = subject.baseline.replacer, subject.target.replacer
    if not subject.two_files or baseline is None or target is None:
        return 0.0, False
    unit, alike, other = 0.0, True, False
    for meta in subject.region_of.get(name, ()):
        mine = baseline.operator(meta.name)
        theirs = target.operator(subject.row_of[name].target_name if meta.name == name else meta.name)
        if mine is None or theirs is None or mine.narrowed:
            continue
        for first, (key, second) in zip(mine.parameters.values(), theirs.parameters.items(), strict=False):
            cast = theirs.narrowed.get(key, "")
            # an engine may compute in a wide type what the file has in a narrow one, without a cast of the file
            held = cast or (second.dtype.name if subject.arithmetic in _WIDE_TYPES else "")
            coarse = unit_of(held, None)
            if coarse <= unit_of(first.dtype.name, None) or np.shape(first) != np.shape(second):
                continue
            unit = max(unit, coarse)
            if not is_rounding(first, second, held):
                alike = False
                same = bool(cast) and mine.op_type == theirs.op_type
                other |= same and _is_between_none(first, second, held)
    return unit if alike else 0.0, other


def _expect_of_file(subject: Subject, name: str) -> float:
    """Return the rounding unit of narrower constants, and of casts that the target's file alone has, where their
    rounding is expected: whoever asked for less is told who has them."""
    return 0.0 if subject.fails else max(find_narrowed_constants(subject, name)[0], _find_unit_of_casts(subject, name))


def _find_unit_of_casts(subject: Subject, name: str) -> float:
    """Return the rounding unit of the narrower type that the target's file was converted to, where it casts to that
    between the nearest compared tensors and one; 0 where it does not, or where the mode has narrow types of its own."""
    if not subject.two_files or subject.arithmetic not in _WIDE_TYPES or not (kind := find_converted_type(subject)):
        return 0.0
    return unit_of(kind, None) if _find_coarsest(subject, subject.row_of[name])[1] == kind else 0.0


def find_converted_type(subject: Subject) -> str:
    """Return the narrower type that most of the target's file was converted to, whose casts are that conversion's; ""
    where it was not. What is computed in a wide type between two of its casts is converted as well."""
    room: dict[str, str] = subject.told_by_files.setdefault("converted", {})
    if "" not in room:
        types = [
            _find_coarsest(subject, row) for row in subject.rows
            if row.target_name in subject.targets and (meta := subject.meta_of.get(row.name)) is not None
            and meta.op_type != "Input" and unit_of(meta.dtype, None)
        ]  # fmt: skip
        narrower = Counter(there for here, there in types if unit_of(there, None) > unit_of(here, None))
        (most, count), *_ = narrower.most_common(1) or [("", 0)]
        room[""] = most if 2 * count > len(types) else ""
    return room[""]


def _find_coarsest(subject: Subject, row: Row) -> tuple[str, str]:
    """Return the coarsest float of each side's operators from the nearest compared tensors to one."""
    sides = ((subject.meta_of, row.name, subject.row_of), (subject.targets, row.target_name, subject.partner))
    mine, theirs = (
        max((meta.dtype for meta in collect_stretch(*side).values()), key=lambda dtype: unit_of(dtype, None) or 0.0)
        for side in sides
    )
    return mine, theirs


def _is_between_none(values: Array, others: Array, held: str) -> bool:
    """Return whether a number is further from another than any of the type's two about it: cut off, it is the one."""
    mine, theirs = (np.asarray(one, np.float64) for one in (values, others))
    return bool((np.abs(theirs - mine) > 2 * unit_of(held, None) * np.abs(mine) + smallest_of(held)).any())


def _has_weights_of_4_bits(subject: Subject) -> bool:
    """Return whether the target's file quantises weights alone, to 4 bits or fewer, and the baseline's are not these
    numbers already. It then loses what 4 bits lose, whatever type the operators multiply in."""
    kinds = [meta.op_type for meta in subject.targets.values() if QUANTISED.search(meta.op_type)]
    if not all(FEW_BITS.search(kind) for kind in kinds):
        return False
    found = (_measure_steps_apart(subject, row) for row in subject.row_of.values())
    apart = next((one for one in found if one is not None), None)
    return apart is not None and apart > _ON_THE_GRID


_ON_THE_GRID = 0.02
"""Median distance of weights from those of a file in its steps, up to which they are the same: rounding makes a quarter
of a step."""


def _measure_steps_apart(subject: Subject, row: Row) -> float | None:
    """Return how far the baseline's weights are from the integers of 4 bits that the target holds, in steps, half of
    them at least; None of an operator without such."""
    meta, (baseline, target) = subject.targets.get(row.target_name), subject.operators()
    theirs = target.operator(row.target_name) if meta is not None and target is not None else None
    if meta is None or target is None or (QUANTISED.search(meta.op_type) and not FEW_BITS.search(meta.op_type)):
        return None
    while theirs is not None and not theirs.stored and len(theirs.reads) == 1:  # an engine adds a bias to the product
        theirs = target.operator(theirs.reads[0])
    parts = (baseline.operator(one.name) for one in subject.region_of.get(row.name, ()))
    mine = [np.asarray(value) for one in parts if one is not None for value in one.parameters.values()]
    for held in theirs.stored.values() if theirs is not None else ():
        values = next((one for one in mine if one.shape == held.integers.shape and one.dtype.kind == "f"), None)
        kind = held.integers.dtype  # float32: the numbers of a table of 16
        if values is not None and (kind == np.float32 or 0 < steps_of(kind.name) < _STEPS_OF_8_BITS):
            whole = held.integers.astype(np.float32) - np.asarray(held.zero_point, np.float32)
            return float(np.median(np.abs(values / np.asarray(held.scale) - whole)))
    return None


_STEPS_OF_8_BITS = 255


def _find_fed_by_none(subject: Subject) -> frozenset[str]:
    if subject.arithmetic not in _WIDE_TYPES or subject.quantises or subject.is_step:
        return frozenset()
    behind, there = _find_behind_narrow(subject.tensors), _find_behind_narrow(tuple(subject.targets.values()))
    if not behind and not there:
        return frozenset()
    return frozenset(
        name for name, row in subject.row_of.items()
        if name not in behind and there.isdisjoint({row.target_name, row.target_name.rpartition("@")[0]})
        and unit_of(subject.held_as.get(name, ""), None) <= NARROW
    )  # fmt: skip


def _find_behind_narrow(tensors: Sequence[TensorMeta]) -> set[str]:
    """The tensors that are held in a narrow type, and all that is made of them; of what a body runs nobody lists what
    it hands on, so that all of its operator's results are."""
    found: set[str] = set()
    for meta in tensors:  # in execution order
        body = plain_type(meta.op_type) in BODIES
        if body or unit_of(meta.dtype, None) > NARROW or not found.isdisjoint(meta.inputs):
            found.add(meta.name)
    return found


def _rounds_to_steps(meta: TensorMeta) -> bool:
    """Whether an operator rounds to integers while it runs; weights of few bits alone stay what they are."""
    held = FEW_BITS.search(meta.op_type) and not meta.rounds
    return bool(QUANTISED.search(meta.op_type)) and not _dequantises(meta.op_type) and not held


def _dequantises(op_type: str) -> bool:
    return op_type.lower().startswith("dequanti")


def list_made_of(subject: Subject, name: str) -> list[str]:
    """Return every tensor that one depends on, compared or not."""
    return find_reached([name], lambda one: subject.meta_of[one].inputs if one in subject.meta_of else ())


def list_between(subject: Subject, target_name: str) -> list[str]:
    """Return the target's tensors without a partner from which one of it is made, up to those that have one."""
    def read(one: str) -> list[str]:
        metas = subject.targets
        return [name for name in (metas[one].inputs if one in metas else ())
                if name in metas and name not in subject.partner]  # fmt: skip

    return find_reached([target_name], read)


def replaces(session: Session) -> bool:
    """Whether a session can go on with other values than it computed."""
    return session.replacer is not None and session.replacer.replaces
