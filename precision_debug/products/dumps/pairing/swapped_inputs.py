"""A file whose inputs have each other's names: found by giving it the values the other way round."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....reasons import Reason, say
from .agreement import agree
from .graph import BaseGraph, TargetGraph

__all__ = ["SwappedInputs", "find_swapped_inputs", "swapped_inputs_note"]

_MOST = 5
"""Inputs whose orders are all tried: 120 of five, each a run of the file's graph."""

_NEAR = 1e-3
"""How near every output must come with the inputs swapped back, as in ``repairs``."""


@dataclass(frozen=True, kw_only=True)
class SwappedInputs:
    """belongs: the file's input to the one whose value it should have. values: what the file then computes."""

    belongs: Mapping[str, str]
    values: Mapping[str, Any]


def find_swapped_inputs(
    base: BaseGraph, target: TargetGraph, outputs: Mapping[str, tuple[str, str]]
) -> SwappedInputs | None:
    """Another order of the inputs with which the outputs agree; None where they do anyway, or none does."""

    def right(values: Mapping[str, Any]) -> bool:
        return all(
            name in values and agree(values[name], base.values[partner], _NEAR)
            for name, (partner, _) in outputs.items()
        )

    inputs = [name for name in target.own if name not in target.producer and name not in target.constants]
    if not outputs or not 1 < len(inputs) <= _MOST or right(target.own):
        return None
    for order in itertools.permutations(inputs):
        belongs = {name: other for name, other in zip(inputs, order, strict=True) if name != other}
        pairs = [(target.own[name], target.own[other]) for name, other in belongs.items()]
        if not belongs or any(one.shape != other.shape or one.dtype != other.dtype for one, other in pairs):
            continue
        made = target.compute(target.operators, lambda name: target.own[belongs.get(name, name)])  # noqa: B023
        if right(made):
            return SwappedInputs(belongs=belongs, values=made)
    return None


def swapped_inputs_note(found: SwappedInputs | None, path: str) -> tuple[Reason, ...]:
    """What to say of it."""
    if found is None:
        return ()
    pairs = [say("used_as", name=name, other=other) for name, other in found.belongs.items()]
    return (say("exchanged", file=Path(path).name, pairs=pairs),)
