"""Measure casts to a narrower type that only the target does, of float8 training too."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..numbers.arrays import as_array
from ..records import TensorMeta
from .operators import CASTS, MOVE, plain_type
from .subject import FLOAT8, Subject, list_between
from .units import NARROW, bits_of, largest_of, smallest_of, unit_of

__all__ = [
    "CastLoss",
    "Casts",
    "find_cast_cause",
    "find_flushed_operand",
    "is_within_one_cast",
    "list_tensors_on_the_way",
    "narrow_casts",
]  # fmt: skip


# What becomes 0 of the operands of a product in float8, whose one scale the largest element decides.

_MUCH = 0.1
"""Share of an operand that becomes 0 from which on it is what is the matter; e4m3 and e5m2 hold five and nine powers of
ten below the largest element, so that next to none of a tensor without an outlier does."""


def find_flushed_operand(subject: Subject, name: str) -> Mapping[str, Any]:
    """Return the operand of a row's product of which most becomes 0: the tensor that is cast, the type, the share, and
    its largest and its median size; {} where none loses much. Takes a run of the target."""
    row = subject.row_of.get(name)
    meta = subject.targets.get(row.target_name) if row is not None else None
    if meta is None or not meta.op_type.startswith(FLOAT8):
        return {}
    casts = {cast.name: cast.dtype for cast in _list_float8_casts(subject, meta)}
    operands = {name: source for name in casts if (source := _find_unscaled_source(subject, name))}
    wanted = frozenset({*operands, *operands.values()})
    seen: dict[str, Any] = {}

    def hook(_op_type: str, shown: str, tensor: Any) -> None:
        if shown in wanted:
            seen[shown] = np.array(as_array(subject.bench.host(tensor)), dtype=np.float32)

    if operands:
        subject.target.run(subject.feeds_of_target, hook, wanted)
    found: dict[str, Any] = {}
    for cast, source in operands.items():
        if cast not in seen or source not in seen or seen[cast].shape != seen[source].shape:
            continue
        size = np.abs(seen[source])
        some = (size != 0) & np.isfinite(size)
        share = float(np.mean(seen[cast][some] == 0)) if some.any() else 0.0
        if share >= max(_MUCH, found.get("share", 0.0)):
            found = {
                "where": _nearest_compared(subject, source), "dtype": casts[cast], "share": share,
                "largest": float(size[some].max()), "typical": float(np.median(size[some])),
            }  # fmt: skip
    return found


def list_float8_operands(subject: Subject) -> frozenset[str]:
    """Return the casts of all operands of products in float8: what one loses is looked at where its product is
    blamed."""
    products = [meta for meta in subject.targets.values() if meta.op_type.startswith(FLOAT8)]
    return frozenset(cast.name for meta in products for cast in _list_float8_casts(subject, meta))


def _list_float8_casts(subject: Subject, meta: TensorMeta) -> list[TensorMeta]:
    """Return the casts to float8 behind the operands of a product, or inside a layer before its result."""
    found: list[TensorMeta] = []
    waiting = [*meta.inputs]
    if not any(_is_float8(subject, one) for one in waiting):  # a layer's result, which lists what the layer reads
        return [one for one in subject.targets.values()
                if one.node.rpartition("/")[0] == meta.node and one.op_type.endswith("_to_copy")
                and one.dtype.startswith("float8")]  # fmt: skip
    while waiting:
        one = subject.targets.get(waiting.pop())
        if one is None or not one.dtype.startswith("float8"):
            continue
        if plain_type(one.op_type) in MOVE and any(_is_float8(subject, source) for source in one.inputs):
            waiting.extend(one.inputs)
        else:
            found.append(one)
    return found


def _is_float8(subject: Subject, name: str) -> bool:
    meta = subject.targets.get(name)
    return meta is not None and meta.dtype.startswith("float8")


def _find_unscaled_source(subject: Subject, cast: str) -> str:
    """Return what a cast is made of, before it was scaled and clamped to the type's range."""
    name, meta = "", subject.targets.get(cast)
    while meta is not None and meta.inputs and (not name or plain_type(meta.op_type) in ("clamp", "mul")):
        name = meta.inputs[0]
        meta = subject.targets.get(name)
    return name


def _nearest_compared(subject: Subject, name: str) -> str:
    """Return the nearest compared tensor that one of the target's alone is made of, by the baseline's name."""
    for _ in range(len(subject.targets)):
        if name in subject.partner:
            return subject.partner[name]
        meta = subject.targets.get(name)
        if meta is None or not meta.inputs:
            break
        name = meta.inputs[0]
    return name


# Casts to a narrower type that only the target does, between two tensors that are compared: what each of them loses.
#
# Such a cast is no row of both sides, and what it loses is the error of the next operator that is one. A gradient that
# is cast to float8 and back again is one: it is flushed to 0 there, cut off, or rounded, and the operator behind it,
# which computes in bfloat16, has no part in it.

_MOST_OF_IT = 0.5
"""Share of a cast's squared error from which on what it flushed, or cut off, is the cause."""

_PART = 0.3
"""Error of a cast beside that of the operator behind it, from which on it is put down to the cast."""


@dataclass(frozen=True, kw_only=True)
class CastLoss:
    """What one cast made of what it was given, in a run of the target on the baseline's values.

    name, source: its row of the target, and the one that it reads. lost: elements that became 0; beyond: elements
    above the type's largest number; below_part, beyond_part: share of the squared error in what lies below the type's
    normal numbers, and above its largest. error: relative L2, inf where NaN or Inf came of it. largest: absolute.
    """

    name: str
    source: str
    dtype: str
    elements: int
    lost: int
    beyond: int
    below_part: float
    beyond_part: float
    error: float
    largest: float


class Casts:
    """Measures the casts of a run, as what each reads and gives is shown; names: of both, which must be shown."""

    def __init__(self, subject: Subject) -> None:
        self._source_of = narrow_casts(subject)
        self._types = {name: subject.targets[name].dtype for name in self._source_of}
        self._left: dict[str, int] = {}
        for source in self._source_of.values():
            self._left[source] = self._left.get(source, 0) + 1
        self._given: dict[str, Any] = {}
        self.found: dict[str, CastLoss] = {}
        self.names = frozenset(self._source_of) | frozenset(self._left)

    def see(self, name: str, value: Any) -> None:
        """value: what the run goes on with behind one of ``names``, an array that stays as it is."""
        source = self._source_of.get(name)
        given = self._given.get(source) if source is not None else None
        if source is not None:
            self._left[source] -= 1
            if not self._left[source]:
                self._given.pop(source, None)
        if source is not None and given is not None and given.shape == value.shape:
            self.found[name] = _measure_cast_loss(name, source, self._types[name], given, value)
        if self._left.get(name):
            self._given[name] = value


def narrow_casts(subject: Subject) -> Mapping[str, str]:
    """Casts to a type that is not the target's usual one, by the target's names: what each of them reads."""
    usual = {"float32", "float64", subject.narrow_type}
    operands = list_float8_operands(subject)
    found = {}
    for name, meta in subject.targets.items():
        if meta.dtype in usual or name in subject.partner or len(meta.inputs) != 1 or name in operands:
            continue
        bits, source = bits_of(meta.dtype), subject.targets.get(meta.inputs[0])
        if plain_type(meta.op_type) in CASTS and bits and source is not None and source.dtype != meta.dtype:
            found[name] = source.name
    return found


def _measure_cast_loss(name: str, source: str, dtype: str, given: Any, value: Any) -> CastLoss:
    with np.errstate(all="ignore"):
        exact, cast = np.asarray(given).astype(np.float64), np.asarray(value).astype(np.float64)
        fair, size = np.isfinite(exact), np.abs(exact)
        beyond, lost = fair & (size > largest_of(dtype)), fair & (exact != 0) & (cast == 0)
        below = fair & (size < smallest_of(dtype) * 2.0 ** (bits_of(dtype) - 1))
        broken = bool((fair & ~np.isfinite(cast)).any())
        squared = np.where(fair & np.isfinite(cast), np.square(cast - exact), 0.0)
        total, whole = float(squared.sum()), float(np.square(np.where(fair, exact, 0.0)).sum())
        parts = [float(squared[where].sum()) / total if total else 0.0 for where in (below, beyond)]
    return CastLoss(
        name=name, source=source, dtype=dtype, elements=int(exact.size), lost=int(lost.sum()), beyond=int(beyond.sum()),
        below_part=parts[0], beyond_part=1.0 if broken else parts[1], largest=float(np.max(size[fair], initial=0.0)),
        error=math.inf if broken else math.sqrt(total / whole) if whole else 0.0,
    )  # fmt: skip


def find_cast_cause(
    subject: Subject, casts: Mapping[str, CastLoss], name: str, error: float | None
) -> tuple[str, dict[str, Any]] | None:
    """Return a cause's code and evidence, where most of an operator's error was made by a cast on the way to it; else
    None.

    error: relative L2 that the operator introduces; inf where NaN or Inf first appear in it.
    """
    worst = max(
        (casts[one] for one in list_tensors_on_the_way(subject, name) if one in casts), key=_size_of_loss, default=None
    )
    if worst is None or not worst.error or error is None or worst.error < _PART * min(error, 1.0):
        return None
    if error == math.inf and worst.error < math.inf and not worst.beyond and not worst.lost:
        return None
    cast = {"cast": worst.dtype, "source": worst.source}
    if worst.beyond and worst.beyond_part > _MOST_OF_IT:
        found = {"largest": worst.largest, "limit": largest_of(worst.dtype), "count": worst.beyond, **cast}
        return "overflow", {**found, "cut": worst.error < math.inf}
    if worst.lost and worst.below_part > _MOST_OF_IT:
        return "underflow", {
            "lost": worst.lost, "share": worst.lost / worst.elements, "smallest": smallest_of(worst.dtype), **cast,
        }  # fmt: skip
    return "coarse", {"error": worst.error, **cast}


def _size_of_loss(loss: CastLoss) -> float:
    return loss.error


def is_within_one_cast(subject: Subject, name: str, error: float | None) -> bool:
    """Return whether an operator's error is no more than one rounding of what it reads to a narrow type, where one file
    casts that and computes in a wide type otherwise, as the other does.

    error: relative L2 that the operator introduces."""
    if error is None or subject.arithmetic not in {"", "float32", "float64"} or subject.quantises:
        return False
    casts = [
        *(subject.targets[one] for one in list_tensors_on_the_way(subject, name)),
        *subject.region_of.get(name, ())[:-1],
    ]
    units = [unit_of(meta.dtype, None) for meta in casts if plain_type(meta.op_type) in CASTS]
    return NARROW < max(units, default=0.0) >= error


def list_tensors_on_the_way(subject: Subject, name: str) -> list[str]:
    """Return the target's tensors without a partner from which a compared one is made, up to the next that have one."""
    row = subject.row_of.get(name)
    return list_between(subject, row.target_name) if row is not None else []
