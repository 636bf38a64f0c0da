"""What becomes 0 of the operands of a product in float8, whose one scale the largest element decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ..numbers.arrays import as_array
from ..records import TensorMeta
from .operators import MOVE, plain_type
from .subject import FLOAT8, Subject

__all__ = ["flushed_operand", "operands_in_float8"]

_MUCH = 0.1
"""Share of an operand that becomes 0 from which on it is what is the matter; e4m3 and e5m2 hold five and nine powers of
ten below the largest element, so that next to none of a tensor without an outlier does."""


def flushed_operand(subject: Subject, name: str) -> Mapping[str, Any]:
    """The operand of a row's product of which most becomes 0: the tensor that is cast, the type, the share, and its
    largest and its median size; {} where none loses much. Takes a run of the target."""
    row = subject.row_of.get(name)
    meta = subject.targets.get(row.target_name) if row is not None else None
    if meta is None or not meta.op_type.startswith(FLOAT8):
        return {}
    casts = {cast.name: cast.dtype for cast in _casts(subject, meta)}
    operands = {name: source for name in casts if (source := _unscaled(subject, name))}
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
                "where": _origin(subject, source), "dtype": casts[cast], "share": share,
                "largest": float(size[some].max()), "typical": float(np.median(size[some])),
            }  # fmt: skip
    return found


def operands_in_float8(subject: Subject) -> frozenset[str]:
    """The casts of all operands of products in float8: what one loses is looked at where its product is blamed."""
    products = [meta for meta in subject.targets.values() if meta.op_type.startswith(FLOAT8)]
    return frozenset(cast.name for meta in products for cast in _casts(subject, meta))


def _casts(subject: Subject, meta: TensorMeta) -> list[TensorMeta]:
    """The casts to float8 behind the operands of a product, or inside a layer before its result."""
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


def _unscaled(subject: Subject, cast: str) -> str:
    """What a cast is made of, before it was scaled and clamped to the type's range."""
    name, meta = "", subject.targets.get(cast)
    while meta is not None and meta.inputs and (not name or plain_type(meta.op_type) in ("clamp", "mul")):
        name = meta.inputs[0]
        meta = subject.targets.get(name)
    return name


def _origin(subject: Subject, name: str) -> str:
    """The nearest compared tensor that one of the target's alone is made of, by the baseline's name."""
    for _ in range(len(subject.targets)):
        if name in subject.partner:
            return subject.partner[name]
        meta = subject.targets.get(name)
        if meta is None or not meta.inputs:
            break
        name = meta.inputs[0]
    return name
