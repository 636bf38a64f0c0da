"""Find which pass of the engine brings an error, or keeps the target from running: by bisection."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from .. import explain
from ..errors import BackendCrash, BackendError, ModelError, NothingToQuantise, PrecisionDebugError
from ..explain.ladder import StageExplanation as Bisected
from ..explain.ladder import explain as bisected
from ..explain.units import BEYOND
from ..numbers.arrays import measure_distance
from ..numbers.number_types import PRECISIONS, is_narrow
from ..protocols import Feeds, Rung, Switch
from ..reasons import say
from ..reasons.causes import CAUSES
from ..records import Culprit, Explanation, TensorMeta
from ..settings import without_saving
from .plan import Opening

__all__ = ["with_faulty_pass", "with_stopping_pass"]


# Which pass of the engine brings an error: the target is built again with passes off, by bisection.

_WORK = 128 << 20
"""Bytes of the model's file and of all compared tensors, together, up to which the pass is looked for unasked."""

_FEWER = 10.0
"""Times that the error must shrink with every pass off, where something else is off too."""

_STEPS = 4.0
"""Roundings to int8 up to which a quantised model's outputs are off by single steps."""

_NAMED = 4
"""Operators that a sentence names on either side of a pass."""


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
    own = (one for one in named if CAUSES[one.cause].is_its_own)
    guilty = tuple(one for one in own if not CAUSES[one.cause].of_processor)
    if any(one.cause == "inputs_differ" for one in named) or (named and not guilty and not asked):
        return explanation
    unexplained = any(CAUSES[one.cause].by_a_pass for one in guilty)
    if not asked and (_count_work(subject, target) > _WORK or (is_narrow(target.precision) and not unexplained)):
        return explanation
    try:
        found = _bisect_passes(explanation, subject, target, feeds, tuple(sets), quick=not asked)
    except PrecisionDebugError:
        return explanation  # the finished comparison is not lost for it
    return explanation if found is None else _with_cause(explanation, subject, target, guilty, *found)


def _count_work(subject: explain.Subject, target: Opening) -> int:
    tensors = sum(4 * row.comparison.base.elements for row in subject.rows if row.comparison is not None)
    return tensors + count_file_bytes(target)


def count_file_bytes(target: Opening) -> int:
    """Return bytes of the model's file; 0 where there is none."""
    try:
        return os.path.getsize(target.spec.model.path)
    except OSError:
        return 0


def _bisect_passes(
    explanation: Explanation, subject: explain.Subject, target: Opening, feeds: Feeds, sets: tuple[Feeds, ...],
    *, quick: bool,
) -> tuple[Bisected, float, float, Rebuilt] | None:  # fmt: skip
    """Return what must be off, and the error of the worst output with every pass on and with these off."""
    ladder = target.capabilities.ladder
    wanted = {subject.partner.get(name, name): one for name, one in subject.target_outputs.items()}
    before = _error_of_worst_output(subject.outputs, wanted)
    allowed = explain.bound_of(explanation, target.precision)
    if ladder is None or before <= allowed:
        return None
    rung = Rung(name=target.spec.mode, mode=target.spec.mode)
    op_types = [meta.op_type for meta in subject.targets.values()]
    for switch in ladder.switches(target.spec, rung, op_types):
        if switch.needs or (quick and not switch.quick):
            continue
        tried: dict[str, Rebuilt] = {}

        def rebuilt(options: Mapping[str, Any], tried: dict[str, Rebuilt] = tried) -> Rebuilt:
            key = repr(sorted(options.items()))
            if key not in tried:
                tried[key] = _rebuild_target(subject, target, options, feeds, sets)
            return tried[key]

        most = rebuilt(switch.options(switch.items)).error
        bound = allowed if most <= allowed else 2 * most
        if most > allowed and not most * _FEWER < before:
            continue

        def passes(options: Mapping[str, Any], bound: float = bound) -> bool:
            return rebuilt(options).error <= bound

        found = bisected(switch, passes)
        if found.found:
            best = rebuilt(switch.options(found.off))
            return found, before, best.error, best
    return None


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rebuilt:
    """error: of the worst output, relative L2; inf where it did not run. tensors: what it lists."""

    error: float
    tensors: tuple[TensorMeta, ...] = ()


def _rebuild_target(
    subject: explain.Subject, target: Opening, options: Mapping[str, Any], feeds: Feeds, sets: tuple[Feeds, ...]
) -> Rebuilt:  # fmt: skip
    spec = dataclasses.replace(target.spec, options={**without_saving(target.spec.options), **options})
    try:
        session = dataclasses.replace(target, spec=spec, comparer=None).open(sets)
        try:
            outputs = session.run(feeds)
            named = {subject.partner.get(name, name): one for name, one in outputs.items()}
            return Rebuilt(error=_error_of_worst_output(subject.outputs, named), tensors=tuple(session.tensors))
        finally:
            session.close()
    except PrecisionDebugError:
        return Rebuilt(error=math.inf)


def _error_of_worst_output(base: Mapping[str, Any], target: Mapping[str, Any]) -> float:
    """Return the relative L2 of the worst output that both sides have; inf where shapes, NaN or Inf do not agree."""
    return max((measure_distance(one, target[name]) for name, one in base.items() if name in target), default=math.inf)


def _with_cause(
    explanation: Explanation, subject: explain.Subject, target: Opening, guilty: tuple[Culprit, ...], found: Bisected,
    before: float, after: float, best: Rebuilt,
) -> Explanation:  # fmt: skip
    """The pass is the cause of the first culprit that it can be; without one, of the output that is worst.

    Where the error is no more than what rounding everywhere makes of this model, the pass only rounds elsewhere.
    """
    usual, actual = explanation.expected, explanation.actual
    # the integers of one file are rounded alike on both sides: only what falls to the neighbouring step is usual
    times = _STEPS if subject.same_integers else BEYOND
    small = bool(usual) and actual is not None and actual <= times * (usual or 0.0)
    if guilty and is_narrow(target.precision) and guilty[0].cause == "other_arithmetic":
        small = False  # no rounding makes what that operator is off by
    cause = "pass_rounding" if small or _is_one_step(subject, before) else "faulty_pass"
    gone, new = _describe_replaced(best.tensors, subject.targets.values())
    blamed = guilty[0].name if guilty else explanation.at
    made_of = subject.row_of[blamed].target_op_type if blamed in subject.row_of else ""
    gone, new = gone or "the same operators", new or f"{made_of} {blamed}".strip()
    evidence: dict[str, Any] = {
        "passes": " and ".join(found.off), "before": before, "after": after, "runs": found.runs,
        "of": len(found.switch.items), "replaced": gone, "instead": new, "paste": found.snippet,
        "option": format_switch_option(target, found.switch, found.off),
    }  # fmt: skip
    if guilty:
        first, rest = guilty[0], explanation.culprits
        culprit = dataclasses.replace(first, cause=cause, evidence=evidence, keep=(first.name,), amplifier="")
        return dataclasses.replace(explanation, culprits=tuple(culprit if one is first else one for one in rest))
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


def _is_one_step(subject: explain.Subject, error: float) -> bool:
    """Return whether an error is no more than one step of integers, in a model that quantises.

    Kernels of integers round otherwise than the floats between a DequantizeLinear and a QuantizeLinear."""
    quantises = any(meta.op_type == "QuantizeLinear" for meta in subject.tensors)
    return quantises and error <= _STEPS * PRECISIONS["int8"].rounding


def format_switch_option(target: Opening, switch: Switch, off: Collection[str]) -> str:
    """Return what switches them off in a command of ours."""
    table = {setting.name: setting for setting in target.settings}
    return " ".join(table[name].typed(typed) for name, typed in switch.options(off).items())


def _describe_replaced(without: Iterable[TensorMeta], within: Iterable[TensorMeta]) -> tuple[str, str]:
    """Return what only the graph without the passes has, and only the graph with them."""
    first, second = ({(meta.op_type, meta.origin or meta.name): None for meta in metas} for metas in (without, within))

    def listed(ours: Collection[tuple[str, str]], theirs: Collection[tuple[str, str]]) -> str:
        alone = [f"{kind} {name}" for kind, name in ours if (kind, name) not in theirs]
        more = len(alone) - _NAMED
        return " + ".join(alone[:_NAMED]) + (f" + {more} more" if more > 0 else "")

    return listed(first, second), listed(second, first)


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
