"""A model's outputs beside those of the file: always paired, and how."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ....records import TensorMeta
from .agreement import agree, informative, is_float

__all__ = ["pair_outputs"]

Values = Mapping[str, Any]


def pair_outputs(
    baseline: Sequence[TensorMeta], target: Sequence[TensorMeta], base_values: Values, target_values: Values
) -> dict[str, tuple[str, str]]:
    """Target output to (baseline output, how): by values that only one other has, by name, then by position.

    Position decides only where as many are left on both sides and each pair has one shape and one kind of type; or
    where a shape and type is one output's alone on both sides.
    """
    ours = [meta.name for meta in baseline if meta.is_output and meta.name in base_values]
    theirs = [meta.name for meta in target if meta.is_output and meta.name in target_values]
    found: dict[str, tuple[str, str]] = {}

    def left() -> tuple[list[str], list[str]]:
        taken = {base for base, _ in found.values()}
        return [name for name in ours if name not in taken], [name for name in theirs if name not in found]

    def fits(one: str, other: str) -> bool:
        a, b = base_values[one], target_values[other]
        return a.shape == b.shape and is_float(a) == is_float(b)

    base, others = left()
    alike = {t: [b for b in base if fits(b, t) and agree(target_values[t], base_values[b])] for t in others}
    for name, rivals in alike.items():
        alone = [t for t, candidates in alike.items() if rivals and rivals[0] in candidates]
        if len(rivals) == 1 and len(alone) == 1 and informative(base_values[rivals[0]]):
            found[name] = rivals[0], "fingerprint, and both are outputs of the model"
    base, others = left()
    for name in others:
        named = [b for b in base if fits(b, name) and _plain(b) == _plain(name)]
        if len(named) == 1 and named[0] in left()[0]:
            found[name] = named[0], "outputs of the model, by name"
    base, others = left()
    if len(base) == len(others) and all(fits(b, t) for b, t in zip(base, others, strict=True)):
        for place, (b, t) in enumerate(zip(base, others, strict=True), 1):
            found[t] = b, f"outputs of the model, by position ({place} of {len(base)}), shape and type"
        return found
    for name in others:
        same = [b for b in base if fits(b, name)]
        if len(same) == 1 and sum(fits(same[0], t) for t in others) == 1:
            found[name] = same[0], "outputs of the model, the only ones of this shape and type"
    return found


def _plain(name: str) -> str:
    """Return the plain name of an output: "output.logits" and "logits" are one, and so are "output[0]" and "0"."""
    return re.sub(r"[\[\]]", "", name.rpartition(".")[2].removeprefix("output")).lower() or name.lower()
