"""What a quantised model rounds inside of a region: a mask of -3e38 leaves the 8 bits of its sum nothing for scores,
and one channel of what a norm reads leaves them nothing for the others.

Neither is seen where it is quantised. What the baseline has of it, and that the target holds it in integers, is; and so
is what becomes of the region's result when the baseline rounds it there, too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import PrecisionDebugError
from .introduced import MASK
from .operators import BODIES, plain_type
from .subject import Subject
from .work import Work

__all__ = ["few_runs", "in_8_bits", "mask_readers", "quantised_mask", "rounded_most", "rounds_inside"]

_MOST, _PART = 16, 4
"""Tensors of a region that are rounded one after the other, the last ones, and at most that part of the runs that the
effects of single operators may take: each is a run of the baseline."""

_STEPS = 255
"""Of 8 bits."""

_EXPLAINS = 0.5
"""Part of the introduced error from which on one rounding inside is the reason."""


def quantised_mask(subject: Subject, name: str) -> dict[str, Any]:
    """The mask that a region reads, or makes, and that the target quantises: its name and its most negative value; {}
    where there is none."""
    for source in _inside(subject, name):
        lowest = subject.lowest_unseen.get(source, 0.0)
        if lowest < -MASK:
            return {"largest": lowest, "mask": source}
    return {}


def mask_readers(subject: Subject, name: str, mask: str) -> list[str]:
    """The operators of a region that read a mask."""
    return [meta.name for meta in subject.region_of.get(name, ()) if mask in meta.inputs]


def rounds_inside(subject: Subject, name: str) -> bool:
    """Whether a region, or the body of its branch or loop, rounds to integers on its way, where nobody looks: what it
    gives may then be off by any number of its own steps."""
    region = subject.region_of.get(name, ())
    if any(plain_type(meta.op_type) in BODIES for meta in region):
        return True
    return any(meta.name in subject.rounded_unseen for meta in region)


def rounded_most(subject: Subject, name: str, introduced: float) -> tuple[str, Any]:
    """Which tensor inside a region makes most of its error where the baseline rounds it to 8 bits, and the tensor as
    the baseline has it; ("", None) where none makes half of what was introduced. Takes a run of the baseline for each.
    """
    inside = _inside(subject, name)[-few_runs(subject) :]
    if not inside:
        return "", None
    found: dict[str, float] = {}
    try:
        exact = _run(subject, {*inside, name}, "")
        for source in inside:
            if source in exact and exact[source].dtype.kind == "f" and np.isfinite(exact[source]).all():
                got = _run(subject, {name, source}, source).get(name)
                found[source] = 0.0 if got is None else _rel_l2(exact.get(name), got)
    except PrecisionDebugError:  # an engine that does not run with these shown
        return "", None
    most = max(found, key=lambda one: found[one], default="")
    return (most, exact[most]) if most and found[most] >= _EXPLAINS * introduced else ("", None)


def few_runs(subject: Subject) -> int:
    """How many operators of one region are looked into: fewer of a model whose runs take long."""
    return min(_MOST, Work(subject, "fast").runs // _PART)


def _inside(subject: Subject, name: str) -> list[str]:
    """What a region reads or makes that the target quantises unseen, in order."""
    found = {one for meta in subject.region_of.get(name, ()) for one in (meta.name, *meta.inputs)}
    return sorted(found & subject.rounded_unseen, key=lambda one: subject.order[one])


def _run(subject: Subject, names: set[str], rounded: str) -> dict[str, Any]:
    """These tensors of a run of the baseline in which one of them is rounded."""
    seen: dict[str, Any] = {}

    def replace(_op: str, one: str, value: Any) -> Any:
        array = subject.bench.host(value)
        seen[one] = np.array(array)
        return subject.bench.with_error(value, array, in_8_bits(array)) if one == rounded else None

    subject.operators()[0].run_replacing(subject.feeds, subject.showing(replace), names)
    return seen


def in_8_bits(array: Any) -> Any:
    """On a grid of 8 bits from its smallest to its largest number, 0 on the grid."""
    low, high = min(0.0, float(array.min())), max(0.0, float(array.max()))
    step = (high - low) / _STEPS
    return (np.rint(array / step) * step).astype(array.dtype) if step else array


def _rel_l2(exact: Any, got: Any) -> float:
    if exact is None or exact.shape != got.shape or exact.dtype.kind != "f":
        return 0.0
    size = float(np.linalg.norm(exact.astype(np.float64)))
    return float(np.linalg.norm(got.astype(np.float64) - exact.astype(np.float64))) / size if size else 0.0
