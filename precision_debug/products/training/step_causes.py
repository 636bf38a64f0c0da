"""What is the matter in a training step: what the loss's scale has to do with it, and which gradients it is about."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ...explain.casts import CastLoss, find_flushed_operand
from ...explain.operators import plain_type
from ...explain.subject import Subject
from ...explain.units import NARROW, largest_of, smallest_of, unit_of
from ...reasons.causes import CAUSES
from ...records import Culprit, Row, TensorMeta
from .step_updates import UPDATE

__all__ = ["find_cause_in_step", "find_lost_epsilons", "without_these"]


_MOST = 2.0**24
"""The largest scale that is offered: GradScaler seldom grows beyond it."""

_ROOM = 2.0
"""Times that the largest number of this batch is to stay below the type's end: other batches have larger ones."""

_BELOW, _ABOVE = (
    frozenset(code for code, cause in CAUSES.items() if where in cause.gradient) for where in ("below", "above")
)
"""Causes behind which a gradient may lie below the type's range, or above it."""


def find_cause_in_step(
    subject: Subject, casts: Collection[CastLoss], name: str, code: str, evidence: Mapping[str, Any], at: Sequence[str]
) -> tuple[str, dict[str, Any]]:  # fmt: skip
    """Return a culprit's cause in the words of a step. code, evidence: of the operator alone. at: the outputs it
    spoils."""
    meta = subject.meta_of.get(name)
    if subject.is_step and (flushed := find_flushed_operand(subject, name)):
        return "operand_flushed", dict(flushed)
    if meta is not None and meta.phase == "optimiser" and code == "underflow":
        return _find_cause_in_optimiser(subject, name, dict(evidence), at)
    names = [subject.within_rank(one)[1] for one in at]
    gradients = [one.removeprefix("gradient/") for one in names if one.startswith("gradient/")]
    narrow = str(evidence.get("cast") or subject.narrow_type)
    ranged = narrow == "float16" or narrow.startswith("float8")
    if meta is None or meta.phase != "backward" or not ranged or not gradients:
        return code, dict(evidence)
    cast = cast_before(subject, name)
    if code in _ABOVE and cast and not _reaches(subject, cast, largest_of(narrow)):
        cast = ""  # the operator's own results are beyond the type, and what it reads is not
    where = str(evidence.get("source") or cast or name)
    common = {"gradient": gradients[0], "gradients": len(gradients), "where": where, "dtype": narrow}
    scale = find_fitting_scale(subject, casts)
    now = meta.scaled
    scales = {
        "scale": format_power_of_two(scale or 1.0),
        "now": format_power_of_two(now),
        "option": f"--option loss_scale={scale or 1.0:.0f}",
    }
    if code == "underflow" and scale is not None and scale > now:
        return "gradient_underflow", {**common, "share": evidence["share"], **scales}
    cut = bool(evidence.get("cut"))  # what float8 cuts off is no NaN or Inf, which GradScaler would see
    if code in _ABOVE and scale is not None and 1 <= scale < now and not cut:  # and its scale is never below 1
        common |= {"largest": float(evidence.get("largest") or 0.0), "limit": largest_of(narrow)}
        return "gradient_overflow", {**common, **scales}
    return code, dict(evidence)


def _reaches(subject: Subject, name: str, limit: float) -> bool:
    row = subject.row_of.get(name)
    base = row.comparison.base if row is not None and row.comparison is not None else None
    return base is None or max(abs(base.min or 0.0), abs(base.max or 0.0)) > limit


def _find_cause_in_optimiser(
    subject: Subject, name: str, evidence: dict[str, Any], at: Sequence[str]
) -> tuple[str, dict[str, Any]]:  # fmt: skip
    """Return what an optimiser divides by underflows: what it adds, so as not to divide by 0, may be 0 in that type,
    too."""
    phase, parameter, _ = name.split("/", 2) if name.count("/") > 1 else (name, "", "")
    rows = [meta for meta in subject.tensors if meta.name.startswith(f"{phase}/{parameter}/")] if parameter else []
    added = next((one for meta in rows if (one := find_constant_added(meta)) and one < evidence["smallest"] / 2), 0.0)
    if not added:
        return "underflow", evidence
    dtype = subject.held_as.get(name, "") or subject.narrow_type
    updates = [one for one in at if one.startswith("update/")]
    return "epsilon_lost", {
        "parameter": parameter, "parameters": len(updates), "epsilon": added, "share": evidence["share"], "dtype": dtype
    }  # fmt: skip


def find_constant_added(meta: TensorMeta) -> float:
    """Return the number that an addition adds; 0 where it adds none."""
    if meta.call is None or plain_type(meta.op_type) not in ("add", "_foreach_add"):
        return 0.0
    with contextlib.suppress(ValueError):
        return float(meta.call.settings.partition(" ")[0])
    return 0.0


def format_power_of_two(scale: float) -> str:
    """Write a loss scale as a power of two, "2^12"; small ones and what is no power of two as they are."""
    exponent = math.log2(scale)
    return f"2^{int(exponent)}" if exponent == int(exponent) and exponent >= 4 else f"{scale:g}"


def cast_before(subject: Subject, name: str) -> str:
    """Return what is cast, in the target's run alone, before an operator reads it; "" where nothing is."""
    row = subject.row_of.get(name)
    meta = subject.targets.get(row.target_name) if row is not None else None
    for source in meta.inputs if meta is not None else ():
        if _is_cast(subject, source) and source.rpartition("/")[2].count(":to["):
            return source.rpartition(":to[")[0]
        behind = source
        while _is_cast(subject, behind):  # there and back, by an operator each
            behind = next(iter(subject.targets[behind].inputs), "")
        if behind != source:
            return subject.partner.get(behind, behind)
    return ""


def _is_cast(subject: Subject, name: str) -> bool:
    """Return whether a tensor of the target alone is a cast of another: torch's by its name, Paddle's by its
    operator."""
    if name in subject.partner or name not in subject.targets:
        return False
    return ":to[" in name.rpartition("/")[2] or plain_type(subject.targets[name].op_type) == "cast"


def find_fitting_scale(subject: Subject, casts: Collection[CastLoss] = ()) -> float | None:
    """Return the largest loss scale, a power of two, at which nothing of the backward pass overflows float16.

    That is: every number of the backward pass which the target holds in float16 is one, and what it casts to another
    type on the way; None where there is no such number. casts: what was measured of these."""
    part = max(map(functools.partial(_share_of_range, subject), casts), default=0.0)
    scaled = _from_the_loss(subject)
    for name, row in subject.row_of.items():
        meta, numbers = subject.meta_of.get(name), row.comparison
        if meta is None or name not in scaled or numbers is None or row.is_output:
            continue
        if subject.held_as.get(name) != "float16" and not cast_before(subject, name):
            continue
        size = max(abs(numbers.base.min or 0.0), abs(numbers.base.max or 0.0))
        part = max(part, size / meta.scaled / largest_of("float16") if math.isfinite(size) else 0.0)
    return min(_MOST, 2.0 ** math.floor(-math.log2(_ROOM * part))) if part else None


def _share_of_range(subject: Subject, cast: CastLoss) -> float:
    """Return the largest number that a cast of the backward pass reads, unscaled, over the largest of its type.

    0 of a cast that is made before the backward pass."""
    meta = subject.targets[cast.name]
    return cast.largest / meta.scaled / largest_of(cast.dtype) if meta.phase == "backward" else 0.0


def _from_the_loss(subject: Subject) -> set[str]:
    """Return tensors of the backward pass that are made of the loss's gradient; the others are weights that it
    reads."""
    found: set[str] = set()
    begun: set[int | None] = set()
    for meta in subject.tensors:
        if meta.phase == "backward" and not meta.is_output:
            begins = meta.rank not in begun and meta.op_type.endswith("ones_like")
            begun |= {meta.rank} if begins else set()
            if begins or not found.isdisjoint(meta.inputs):
                found.add(meta.name)
    return found


# An optimiser's epsilon that is 0 on both sides, in the type in which the model itself holds its parameters.

def find_lost_epsilons(subject: Subject) -> tuple[Culprit, ...]:
    """Where both runs divide updates by 0, because what is added to prevent that is 0 too; () where none does.

    Where the baseline's type holds the epsilon, its loss is the target's, and told of the operator that underflows.
    """
    found: list[tuple[float, str, str, float]] = []
    for meta in subject.tensors:
        phase, parameter, _ = meta.name.split("/", 2) if meta.name.count("/") > 1 else (meta.name, "", "")
        row = subject.row_of.get(meta.name)
        if phase != "optimiser" or row is None or row.comparison is None or unit_of(meta.dtype, None) <= NARROW:
            continue
        added, update = find_constant_added(meta), subject.row_of.get(f"{UPDATE}{parameter}")
        if not 0 < added < smallest_of(meta.dtype) / 2 or update is None or row.comparison.base.min != 0:
            continue
        share = min(_share_broken(update, of_base=True), _share_broken(update, of_base=False))
        if share:
            found.append((share, meta.name, parameter, added))
    if not found:
        return ()
    share, name, parameter, added = max(found)
    meta = subject.meta_of[name]
    return (
        Culprit(
            name=name, node=meta.node, op_types=(meta.op_type,), cause="epsilon_lost", confidence="compared",
            at=f"{UPDATE}{parameter}", keep=(name,), fails_first=f"{UPDATE}{parameter}",
            evidence={"parameter": parameter, "parameters": len({one[2] for one in found}), "epsilon": added,
                      "share": share, "dtype": meta.dtype},
        ),
    )  # fmt: skip


def without_these(culprits: tuple[Culprit, ...], lost: tuple[Culprit, ...]) -> tuple[Culprit, ...]:
    """Return the culprits that are named for something else than updates, which a division by 0 has made what they
    are."""
    return tuple(one for one in culprits if not lost or not one.at.startswith((UPDATE, "state/")))


def _share_broken(row: Row, *, of_base: bool) -> float:
    """Return the share of an update that is NaN or Inf, which is that of its divisor that is 0."""
    numbers = row.comparison
    stats = None if numbers is None else numbers.base if of_base else numbers.target
    return 0.0 if stats is None or not stats.elements else (stats.nan + stats.inf) / stats.elements
