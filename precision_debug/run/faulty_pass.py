"""Find which pass of the engine brings an error, or keeps the target from running: by bisection."""

from __future__ import annotations

import dataclasses
import math
import os
import shlex
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from .. import explain
from ..errors import BackendCrash, BackendError, ModelError, NothingToQuantise, PrecisionDebugError
from ..explain.criteria import HALF, SEVERAL
from ..explain.ladder import StageExplanation as Bisected
from ..explain.ladder import explain as bisected
from ..explain.units import BEYOND
from ..numbers.arrays import as_array, measure_distance
from ..numbers.number_types import PRECISIONS, is_narrow
from ..protocols import Feeds, Hook, Replacer, Rung, Switch
from ..reasons import say
from ..reasons.causes import CAUSES
from ..records import Culprit, Explanation, TensorMeta
from ..settings import without_saving
from .plan import Opening

__all__ = ["read_faulty_pass", "with_faulty_pass", "with_stopping_pass"]


# Which pass of the engine brings an error: the target is built again with passes off, by bisection.

_WORK = 128 << 20
"""Bytes of the model's file and of all compared tensors, together, up to which the pass is looked for unasked."""

_FEWER = 10.0
"""Times that the error must shrink with every pass off, where something else is off too."""

_STEPS = 4.0
"""Roundings to int8 up to which a quantised model's outputs are off by single steps."""

_NAMED = 4
"""Operators that a sentence names on either side of a pass."""

_ROUNDING = frozenset({"QuantizeLinear", "DequantizeLinear", "Cast"})
"""Operators that compute nothing but another type."""


def with_faulty_pass(
    explanation: Explanation, subject: explain.Subject, target: Opening, asked: bool | None, feeds: Feeds,
    sets: Collection[Feeds],
) -> Explanation:  # fmt: skip
    """Return the explanation, with the pass as the cause where one is found whose absence mends the outputs.

    asked: with the option ``find_pass``; None: only where the target computes in float32, or something else than the
    baseline, and where a session is cheap. feeds: the target's. sets: what it is calibrated on.
    """
    if asked is False or explanation.state not in ("culprits", "diffuse", "unknown") or target.backend is None:
        return explanation
    named = explanation.culprits
    # a pass that computes the same in another order rounds elsewhere: what makes that large is not a fault of the pass
    known = {one.cause: CAUSES[one.cause] for one in named}
    own = (one for one in named if known[one.cause].is_its_own or one.cause == "tf32")  # which its size alone tells
    guilty = tuple(one for one in own if not known[one.cause].of_processor)
    if any(one.cause == "inputs_differ" for one in named) or (named and not guilty and not asked):
        return explanation
    levels = _list_levels(target)
    # where one run tells whether any pass does it, also whoever is told by sizes alone may be another pass's
    may = bool(levels) and not any(one.of_processor for one in known.values())
    unexplained = tuple(
        one.name for one in guilty if known[one.cause].by_a_pass or (may and known[one.cause].is_open(one.evidence))
    )
    looked = bool(unexplained) or (may and not named) or not is_narrow(target.precision)
    if not asked and (_count_work(subject, target) > _WORK or not looked):
        return explanation
    try:
        trials = _Trials(subject, target, feeds, tuple(sets), unexplained)
        found = _bisect_passes(explanation, trials, levels, quick=not asked)
    except PrecisionDebugError:
        return explanation  # the finished comparison is not lost for it
    return explanation if found is None else _with_cause(explanation, trials, guilty, *found)


def _count_work(subject: explain.Subject, target: Opening) -> int:
    tensors = sum(4 * row.comparison.base.elements for row in subject.rows if row.comparison is not None)
    return tensors + count_file_bytes(target)


def count_file_bytes(target: Opening) -> int:
    """Return bytes of the model's file; 0 where there is none."""
    try:
        return os.path.getsize(target.spec.model.path)
    except OSError:
        return 0


def _list_levels(target: Opening) -> list[Mapping[str, Any]]:
    """Return the settings of the engine's lower levels of optimisation; at the last one it changes nothing."""
    cautious = target.capabilities.cautious
    return list(cautious.cautiously(target.spec).values()) if cautious is not None else []


def _bisect_passes(
    explanation: Explanation, trials: _Trials, levels: list[Mapping[str, Any]], *, quick: bool
) -> tuple[Bisected, Rebuilt, Rebuilt] | None:
    """Return what must be off, and what comes of the target with every pass on and with these off.

    A level at which the engine changes nothing is run first, where it has one: where that mends nothing, no pass does.
    """
    subject, target = trials.subject, trials.target
    ladder = target.capabilities.ladder
    before = trials.compared
    allowed = explain.bound_of(explanation, target.precision)
    if ladder is None or before.error <= allowed:
        return None
    if levels and _find_bound(trials.run(levels[-1]), before, allowed) is None:
        return None
    rung = Rung(name=target.spec.mode, mode=target.spec.mode)
    op_types = [meta.op_type for meta in subject.targets.values()]
    for switch in ladder.switches(target.spec, rung, op_types):
        if switch.needs or (quick and not switch.quick):
            continue
        bound = _find_bound(trials.run(switch.options(switch.items)), before, allowed)
        if bound is None:
            continue

        def passes(options: Mapping[str, Any], bound: float = bound) -> bool:
            tried = trials.run(options)
            return tried.error <= bound and (bound <= allowed or tried.mends(before))

        found = bisected(switch, passes)
        if found.found:
            return found, before, trials.run(switch.options(found.off))
    return None


def _find_bound(without: Rebuilt, before: Rebuilt, allowed: float) -> float | None:
    """Return what the worst output may be off by with passes off, of what it is without any; None where that is no
    mend: something else is off too, and neither is it little, nor do those who compute something else go with it."""
    if without.error <= allowed:
        return allowed
    times = 1 / HALF if before.there and without.mends(before) else _FEWER
    mends = without.error * times < before.error
    return min(2 * without.error, math.sqrt(without.error * before.error)) if mends else None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """error: of the worst output, relative L2; inf where it did not run. there: that of each tensor that was asked for
    and is seen. tensors: what it lists."""

    error: float
    there: Mapping[str, float] = dataclasses.field(default_factory=dict)
    tensors: tuple[TensorMeta, ...] = ()

    def mends(self, before: Rebuilt) -> bool:
        """Return whether the first of these, whose error is made by nobody in front of it, loses half of it."""
        first = next(iter(before.there), "")
        return not first or self.there.get(first, math.inf) <= HALF * before.there[first]


class _Trials:
    """Runs the target with passes off, each set once. names: those at which the error is measured, beside outputs."""

    def __init__(
        self, subject: explain.Subject, target: Opening, feeds: Feeds, sets: tuple[Feeds, ...], names: Collection[str]
    ) -> None:  # fmt: skip
        self.subject, self.target = subject, target
        self._feeds, self._sets = feeds, sets
        self._names = {subject.row_of[name].target_name: name for name in names if name in subject.row_of}
        self._known: dict[str, Rebuilt] = {}

    @cached_property
    def _base(self) -> Mapping[str, Any]:
        """What the baseline has at these names; takes a run of it."""
        found: dict[str, Any] = {}
        if self._names:
            self.subject.baseline.run(self.subject.feeds, _keep_in(found), frozenset(self._names.values()))
        return found

    @cached_property
    def compared(self) -> Rebuilt:
        """The target as it was compared."""
        rows = {name: self.subject.row_of[name].relative_l2 for name in self._names.values()}
        there = {name: error for name, error in rows.items() if error is not None}
        return Rebuilt(error=self._measure_outputs(self.subject.target_outputs), there=there)

    def run(self, options: Mapping[str, Any]) -> Rebuilt:
        """Return what comes of the target with these options."""
        key = repr(sorted(options.items()))
        if key not in self._known:
            self._known[key] = self._run(options)
        return self._known[key]

    def _run(self, options: Mapping[str, Any]) -> Rebuilt:
        target = self.target
        spec = dataclasses.replace(target.spec, options={**without_saving(target.spec.options), **options})
        try:
            session = dataclasses.replace(target, spec=spec, comparer=None).open(self._sets)
            try:
                seen: dict[str, Any] = {}
                listed = {meta.name for meta in session.tensors}
                names = frozenset(listed & {*self._names, *self._names.values()})
                outputs = session.run(self._feeds, *((_keep_in(seen), names) if names else ()))
                own = {self._names.get(name, name): one for name, one in seen.items()}
                there = {name: measure_distance(one, own[name]) for name, one in self._base.items() if name in own}
                told = tuple(_name_types(session.tensors, session.replacer))
                return Rebuilt(error=self._measure_outputs(outputs), there=there, tensors=told)
            finally:
                session.close()
        except PrecisionDebugError:
            return Rebuilt(error=math.inf)

    def _measure_outputs(self, outputs: Mapping[str, Any]) -> float:
        named = {self.subject.partner.get(name, name): one for name, one in outputs.items()}
        return _error_of_worst_output(self.subject.outputs, named)


def _keep_in(found: dict[str, Any]) -> Hook:
    def keep(_op_type: str, name: str, value: Any, /) -> None:
        found.setdefault(name, np.array(as_array(value, name=name)))

    return keep


def _error_of_worst_output(base: Mapping[str, Any], target: Mapping[str, Any]) -> float:
    """Return the relative L2 of the worst output that both sides have; inf where shapes, NaN or Inf do not agree."""
    return max((measure_distance(one, target[name]) for name, one in base.items() if name in target), default=math.inf)


def _with_cause(
    explanation: Explanation, trials: _Trials, guilty: tuple[Culprit, ...], found: Bisected, before: Rebuilt,
    best: Rebuilt,
) -> Explanation:  # fmt: skip
    """The pass is the cause of the first culprit whose error goes with it, which stands for all such; where none was
    looked at, of the first that it can be; without one, of the output that is worst.

    Where the error is no more than what rounding everywhere makes of this model, the pass only rounds elsewhere. One
    that takes nothing but roundings away, and comes nearer to the numbers without any, is not at fault, nor is one that
    the user asked for.
    """
    subject, target = trials.subject, trials.target
    usual, actual = explanation.expected, explanation.actual
    # the integers of one file are rounded alike on both sides: only what falls to the neighbouring step is usual
    times = _STEPS if subject.same_integers else BEYOND
    small = bool(usual) and actual is not None and actual <= times * (usual or 0.0)
    gone_too = {name for name, error in before.there.items() if best.there.get(name, math.inf) <= HALF * error}
    first = next((one for one in guilty if one.name in gone_too), guilty[0] if guilty else None)
    if first is not None and is_narrow(target.precision):  # what the operator itself is off by, where that is told
        small = small and first.evidence.get("units", math.inf) <= SEVERAL
    elif first is not None and first.cause == "other_arithmetic" and "left" in first.evidence:
        small = False  # no rounding makes what it is seen to compute
    cause = "pass_rounding" if small or _is_one_step(subject, before.error) else "faulty_pass"
    within = tuple(_name_types(subject.targets.values(), subject.target.replacer))
    replaced, instead = _list_replaced(best.tensors, within)
    gone, new = _name_some(replaced), _name_some(instead)
    blamed = first.name if first is not None else explanation.at
    there = subject.row_of[blamed].target_name if blamed in subject.row_of else ""
    made_of = next((meta.op_type for meta in within if meta.name == there), "")
    gone, new = gone or "the same operators", new or f"{made_of} {blamed}".strip()
    evidence: dict[str, Any] = {
        "passes": " and ".join(found.off), "before": before.error, "after": best.error, "runs": found.runs,
        "of": len(found.switch.items), "replaced": gone, "instead": new, "paste": found.snippet,
        "option": format_switch_option(target, found.switch, found.off),
    }  # fmt: skip
    fewer, more = (Counter(kind for kind, _ in some) for some in (replaced, instead))
    if replaced and {*(fewer - more), *(more - fewer)} <= _ROUNDING and (nearer := _find_nearer(subject)):
        cause = "rounds_less_by_pass"
        evidence |= nearer
    if asking := _find_asking(trials, before, best):
        cause = "asked_pass"
        evidence |= asking
    if first is not None:
        culprit = dataclasses.replace(first, cause=cause, evidence=evidence, keep=(first.name,), amplifier="")
        told = [culprit if one is first else one for one in explanation.culprits
                if one is first or one.name not in gone_too]  # fmt: skip
        if cause == "faulty_pass":  # without it most of the error is gone
            told.sort(key=lambda one: one is not culprit)
        return dataclasses.replace(explanation, culprits=tuple(told))
    name = explanation.at or next(iter(subject.outputs), "")
    row = subject.row_of.get(name)
    if row is None:
        return explanation
    types = tuple(meta.op_type for meta in subject.region_of.get(name, ())) or (row.op_type,)
    made = Culprit(
        name=name, node=row.node, op_types=types, cause=cause, evidence=evidence, confidence="compared",
        at=name, keep=(name,),
    )  # fmt: skip
    return dataclasses.replace(explanation, state="culprits", culprits=(*explanation.culprits, made))


def _find_asking(trials: _Trials, before: Rebuilt, best: Rebuilt) -> Mapping[str, Any]:
    """Return which of the engine's own settings that the user gave has the pass on, as evidence: left out, the error
    goes as it does with the pass off; {} where none does."""
    target = trials.target
    table = {setting.name: setting for setting in target.settings if setting.kind == "pairs"}
    bound = max(2 * best.error, before.error / _FEWER)
    for name, setting in table.items():
        given = dict(target.spec.options.get(name) or {})
        for key, value in given.items():
            without = trials.run({name: {one: given[one] for one in given if one != key}})
            if without.error <= min(bound, HALF * before.error):
                return {"asked": setting.typed({key: value}), "after": without.error}
    return {}


def _find_nearer(subject: explain.Subject) -> Mapping[str, float]:
    """Return what both sides are off by against the baseline's model without its roundings to narrow types, as
    evidence; {} where the target is not the nearer one, or nobody can tell."""
    try:
        unrounded = _run_unrounded(subject)
    except PrecisionDebugError:
        return {}
    base = _error_of_worst_output(unrounded, subject.outputs)
    named = {subject.partner.get(name, name): one for name, one in subject.target_outputs.items()}
    target = _error_of_worst_output(unrounded, named)
    return {"exact_base": base, "exact_target": target} if target < base else {}


def _run_unrounded(subject: explain.Subject) -> Mapping[str, Any]:
    """Return the baseline's outputs where behind each QuantizeLinear and DequantizeLinear, and behind casts from one
    float to another, what went into them is put. Raises PrecisionDebugError."""
    session = subject.baseline.replacer
    if session is None or not session.replaces:
        return {}
    types = {meta.name: meta.dtype for meta in session.tensors}
    known: dict[str, Any] = {name: as_array(one, name=name) for name, one in subject.feeds.items()}

    def put(_op_type: str, name: str, value: Any) -> Any:
        own = session.operator(name)
        shown = as_array(value, name=name)
        wide = known.get(own.inputs[0]) if own is not None and own.op_type in _ROUNDING and own.inputs else None
        if own is None or wide is None or (own.op_type == "Cast" and "float" not in types.get(name, "")):
            known[name] = np.array(shown)
            return value
        known[name] = _cut_off_alike(wide, shown)
        return value if own.op_type == "QuantizeLinear" else known[name]

    return session.run_replacing(subject.feeds, put)


def _cut_off_alike(wide: Any, rounded: Any) -> Any:
    """Return numbers before rounding, of which what the grid cuts off is cut off: that may be meant so, as where a Relu
    was left out for it."""
    if not rounded.size:
        return rounded
    low, high = rounded.min(), rounded.max()
    step = np.abs(wide - rounded)[(low < rounded) & (rounded < high)].max(initial=0)
    return np.clip(wide, low - step, high + step)


def _is_one_step(subject: explain.Subject, error: float) -> bool:
    """Return whether an error is no more than one step of integers, in a model that quantises.

    Kernels of integers round otherwise than the floats between a DequantizeLinear and a QuantizeLinear."""
    quantises = any(meta.op_type == "QuantizeLinear" for meta in subject.tensors)
    return quantises and error <= _STEPS * PRECISIONS["int8"].rounding


def format_switch_option(target: Opening, switch: Switch, off: Collection[str]) -> str:
    """Return what switches them off in a command of ours."""
    table = {setting.name: setting for setting in target.settings}
    return " ".join(table[name].typed(typed) for name, typed in switch.options(off).items())


def read_faulty_pass(explanation: Explanation, target: Opening) -> Mapping[str, Any]:
    """Return the settings that switch off the passes that were found at fault; {} where none was."""
    table, found = {setting.name: setting for setting in target.settings}, dict[str, Any]()
    for one in explanation.culprits:
        words = shlex.split(one.evidence["option"]) if one.cause == "faulty_pass" else []
        for flag, word in zip(words[::2], words[1::2], strict=False):
            name, raw = word.split("=", 1) if flag == "--option" else (flag.removeprefix("--"), word)
            found[name] = table[name].read(raw)
    return found


def _name_types(metas: Iterable[TensorMeta], session: Replacer | None) -> Iterator[TensorMeta]:
    """Yield tensors with the type of the operator that gives each: one that holds another's values (an integer's, or
    what becomes of it) is listed as the other's."""
    seen = set()
    for meta in metas:
        own = session.operator(meta.name) if session is not None and meta.node and meta.node in seen else None
        seen.add(meta.node)
        yield meta if own is None else dataclasses.replace(meta, op_type=own.op_type)


def _list_replaced(
    without: Iterable[TensorMeta], within: Iterable[TensorMeta]
) -> tuple[list[tuple[str, str]], list[tuple[str, str]]]:
    """Return operators, as type and name, that only the graph without the passes has, and only the graph with them."""
    first, second = ({(meta.op_type, meta.origin or meta.name): None for meta in metas} for metas in (without, within))
    return [one for one in first if one not in second], [one for one in second if one not in first]


def _name_some(operators: Collection[tuple[str, str]]) -> str:
    alone = [f"{kind} {name}" for kind, name in operators]
    more = len(alone) - _NAMED
    return " + ".join(alone[:_NAMED]) + (f" + {more} more" if more > 0 else "")


# Which pass of the engine keeps a target from being built or run at all: it is built with passes off, by bisection.
#
# Such a pass makes a graph that the engine itself then refuses, and what the engine says blames the model.

MOST_BYTES = 128 << 20
"""Of the model's file, up to which the pass is looked for."""


def with_stopping_pass(
    error: PrecisionDebugError, target: Opening, feeds: Feeds, sets: Collection[Feeds]
) -> PrecisionDebugError:
    """Return the error; where the target runs once passes are off, one that names them and what switches them off.

    feeds: the target's. sets: what it is calibrated on. An engine that took its process with it is not asked again, and
    a quantiser that finds nothing to do was not stopped.
    """
    ladder = target.capabilities.ladder if target.backend is not None else None
    if isinstance(error, BackendCrash | NothingToQuantise) or not isinstance(error, BackendError | ModelError):
        return error
    if ladder is None:
        return error
    if count_file_bytes(target) > MOST_BYTES:
        return error
    calibrating = tuple(sets)

    def runs(options: Mapping[str, Any]) -> bool:
        return _runs(target, options, feeds, calibrating)

    try:
        if runs({}):  # it is not the target, or it fails by chance
            return error
        rung = Rung(name=target.spec.mode, mode=target.spec.mode)
        switches = [one for one in ladder.switches(target.spec, rung, ()) if one.quick and not one.needs]
    except PrecisionDebugError:
        return error
    for switch in switches:
        found = bisected(switch, runs)
        if found.found:
            named = " and ".join(found.off)
            return BackendError(
                say("stopped_by_pass", passes=named, why=error.what), where=error.where,
                hint=say("runs_without", option=format_switch_option(target, switch, found.off), paste=found.snippet),
            )  # fmt: skip
    return error


def _runs(target: Opening, options: Mapping[str, Any], feeds: Feeds, sets: tuple[Feeds, ...]) -> bool:
    spec = dataclasses.replace(target.spec, options={**without_saving(target.spec.options), **options})
    try:
        session = dataclasses.replace(target, spec=spec, comparer=None).open(sets)
        try:
            session.run(feeds)
        finally:
            session.close()
    except Exception:  # whatever a backend raises: it does not run so
        return False
    return True
