"""What mends a training step: another scale of its loss, or parameters in float32, tried on the engine."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping

import numpy as np

from ... import numbers
from ...errors import PrecisionDebugError
from ...explain import Subject
from ...numbers.arrays import as_array
from ...numbers.born import is_broken
from ...reasons import say
from ...reasons.causes import CAUSES
from ...records import Explanation
from ...run.side import OpenSide
from ...search.fix import ToKeep

__all__ = [
    "find_wide_mode",
    "largest_telling_bound",
    "list_wrong_outputs",
    "scale_asked",
    "try_mode",
    "try_on_step",
    "try_scale",
]

_TIGHT = 10.0
"""Times the least bound of a wrong output up to which an output's error is what the sentence tells: a gradient that is
nothing but rounding has a bound of any size, and an error to match."""


def try_on_step(subject: Subject, explanation: Explanation, target: OpenSide) -> ToKeep | None:
    """Return what came of the scale, or else the run mode, that the first culprit asks for; None where it asks for
    none."""
    if scale := scale_asked(explanation):
        return try_scale(subject, explanation, target, scale)
    mode = find_wide_mode(explanation, target)
    return try_mode(subject, explanation, target, mode) if mode else None


def scale_asked(explanation: Explanation) -> str:
    """Return the loss's scale that the first culprit asks for, as a setting's value; "" where it asks for none."""
    first = explanation.culprits[0] if explanation.culprits else None
    option = str(first.evidence.get("option", "")) if first is not None else ""
    return option.rpartition("loss_scale=")[2] if "loss_scale=" in option else ""


def list_wrong_outputs(subject: Subject, explanation: Explanation) -> list[str]:
    """Return the outputs of a step that are beyond their own bounds."""
    found = []
    for row in subject.rows:
        error = row.relative_l2
        if not row.is_output or row.comparison is None:
            continue
        allowed = explanation.allowed_at.get(row.name, explanation.allowed or 0.0)
        if is_broken(row.comparison) or error is None or error > allowed:
            found.append(row.name)
    return found


def largest_telling_bound(bounds: Iterable[float], otherwise: float) -> float:
    """Return the largest bound of the outputs whose error tells something; otherwise: where there are none."""
    known = sorted(bounds)
    return max((one for one in known if one <= _TIGHT * known[0]), default=otherwise)


def try_scale(subject: Subject, explanation: Explanation, target: OpenSide, scale: str) -> ToKeep:
    """Run the target's step with another scale, and say what that brings at the outputs that are wrong."""
    kept = ToKeep(
        option=f"--option loss_scale={scale}", settings={"loss_scale": float(scale)}, unit="loss scale", keys=(scale,),
        of=1,
    )  # fmt: skip
    return _run_step_with(subject, explanation, target, kept, target.opening.spec.mode)


def find_wide_mode(explanation: Explanation, target: OpenSide) -> str:
    """Return the run mode with parameters in float32, where the first culprit is one that only their type makes; else
    ""."""
    first, mode = next(iter(explanation.culprits), None), target.opening.mode
    known = CAUSES.get(first.cause) if first is not None else None
    return mode.wide_parameters if known is not None and known.of_parameters and mode is not None else ""


def try_mode(subject: Subject, explanation: Explanation, target: OpenSide, mode: str) -> ToKeep:
    """Run the step in another run mode of the target's, with the same scale, and say what that brings.

    Of an update that is lost: what it brings to that update."""
    now = max((meta.scaled for meta in subject.targets.values()), default=1.0)
    kept = ToKeep(option=f"--run_mode {mode}", settings={"loss_scale": now}, unit="run mode", keys=(mode,), of=1)
    first = explanation.culprits[0]
    return _run_step_with(subject, explanation, target, kept, mode, first.at if first.cause == "update_lost" else "")


def _run_step_with(
    subject: Subject, explanation: Explanation, target: OpenSide, kept: ToKeep, mode: str, one: str = ""
) -> ToKeep:  # fmt: skip
    """Run a step in that mode with the settings to keep, and say what it gives at the outputs that are wrong.

    one: the only one to look at, which is mended where half of it is right."""
    wrong = [one] if one else list_wrong_outputs(subject, explanation)
    bounds = {name: 0.5 if one else explanation.allowed_at.get(name, explanation.allowed or 0.0) for name in wrong}
    allowed = largest_telling_bound(bounds.values(), explanation.allowed or 0.0)
    before = _errors_of_outputs(subject, subject.target_outputs, wrong)
    spec = target.opening.spec
    there = dataclasses.replace(spec, mode=mode, options={**spec.options, **kept.settings})
    try:
        session = dataclasses.replace(target.opening, comparer=None, spec=there).open([subject.feeds_of_target])
        try:
            outputs = session.run(subject.feeds_of_target)
        finally:
            session.close()
    except PrecisionDebugError as error:
        return dataclasses.replace(kept, state="not tried", why=say("fix_failed", detail=str(error)))
    after = _errors_of_outputs(subject, outputs, wrong)
    mended = all(error <= bounds[name] for name, error in after.items())
    was, now = (_largest_telling_error(errors, bounds, allowed) for errors in (before, after))
    state = "mended" if mended else "lessened" if now < was / 2 else "none"
    return dataclasses.replace(
        kept, option=kept.option if state != "none" else "", state=state,
        before=was if math.isfinite(was) else None, after=now if math.isfinite(now) else None,
        allowed=None if one else allowed, runs=1,
    )  # fmt: skip


def _errors_of_outputs(subject: Subject, outputs: object, names: list[str]) -> dict[str, float]:
    """Return the relative L2 error of each output; inf where it is NaN or Inf."""
    found = {}
    for name in names:
        base, got = (np.asarray(as_array(side[name])) for side in (subject.outputs, outputs))  # type: ignore[index]
        compared = numbers.compare(base, got)
        found[name] = math.inf if is_broken(compared) or compared.relative_l2 is None else compared.relative_l2
    return found


def _largest_telling_error(errors: Mapping[str, float], bounds: Mapping[str, float], allowed: float) -> float:
    """Return the largest error of the outputs whose error tells something; inf where any is NaN or Inf."""
    return max((e for name, e in errors.items() if bounds[name] <= allowed or not math.isfinite(e)), default=0.0)
