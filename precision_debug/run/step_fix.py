"""What mends a training step: another scale of its loss, tried on the engine."""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from .. import numbers
from ..errors import PrecisionDebugError
from ..explain import Subject
from ..numbers.arrays import as_array
from ..numbers.born import is_broken
from ..reasons import say
from ..records import Explanation
from ..search import ToKeep, Tried
from .side import OpenSide

__all__ = ["scale_asked", "tried_scale", "wrong_outputs"]


def scale_asked(explanation: Explanation) -> str:
    """The loss's scale that the first culprit asks for, as a setting's value; "" where it asks for none."""
    first = explanation.culprits[0] if explanation.culprits else None
    option = str(first.evidence.get("option", "")) if first is not None else ""
    return option.rpartition("loss_scale=")[2] if "loss_scale=" in option else ""


def wrong_outputs(subject: Subject, explanation: Explanation) -> list[str]:
    """The outputs of a step that are beyond their own bounds."""
    found = []
    for row in subject.rows:
        error = row.relative_l2
        if not row.is_output or row.comparison is None:
            continue
        allowed = explanation.allowed_at.get(row.name, explanation.allowed or 0.0)
        if is_broken(row.comparison) or error is None or error > allowed:
            found.append(row.name)
    return found


def tried_scale(subject: Subject, explanation: Explanation, target: OpenSide, scale: str) -> ToKeep:
    """Run the target's step with another scale, and say what that brings at the outputs that are wrong."""
    wrong = wrong_outputs(subject, explanation)
    before = _worst(subject, explanation, subject.target_outputs, wrong)
    kept = ToKeep(
        option=f"--option loss_scale={scale}", settings={"loss_scale": float(scale)}, unit="loss scale", keys=(scale,),
        of=1,
    )  # fmt: skip
    spec = target.opening.spec
    there = dataclasses.replace(spec, options={**spec.options, "loss_scale": float(scale)})
    try:
        session = dataclasses.replace(target.opening, comparer=None, spec=there).open([subject.feeds_of_target])
        try:
            outputs = session.run(subject.feeds_of_target)
        finally:
            session.close()
    except PrecisionDebugError as error:
        return dataclasses.replace(kept, tried=Tried(state="not tried", why=say("fix_failed", detail=str(error))))
    after = _worst(subject, explanation, outputs, wrong)
    mended = all(beside <= 1 for _, beside in after)
    (was, _), (now, _) = _largest(before), _largest(after)
    state = "mended" if mended else "lessened" if now < was / 2 else "none"
    return dataclasses.replace(
        kept, option=kept.option if state != "none" else "",
        tried=Tried(
            state=state, before=was if math.isfinite(was) else None, after=now if math.isfinite(now) else None, runs=1
        ),
    )  # fmt: skip


def _worst(subject: Subject, explanation: Explanation, outputs: object, names: list[str]) -> list[tuple[float, float]]:
    """Of each output: its relative L2 error, and how many times its bound that is; inf where it is no number."""
    found = []
    for name in names:
        base, got = (np.asarray(as_array(side[name])) for side in (subject.outputs, outputs))  # type: ignore[index]
        compared = numbers.compare(base, got)
        error = math.inf if is_broken(compared) or compared.relative_l2 is None else compared.relative_l2
        allowed = explanation.allowed_at.get(name, explanation.allowed or 0.0)
        found.append((error, error / allowed if allowed else math.inf))
    return found


def _largest(found: list[tuple[float, float]]) -> tuple[float, float]:
    return max(found, default=(0.0, 0.0))
