"""Say what pairing by value found: outputs, swapped inputs, and what the pairs agree in."""

from __future__ import annotations

import collections
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ....reasons import Reason, say
from ....reasons.ways import Way, way
from ....records import TensorMeta
from .graph import BaseGraph, TargetGraph
from .likeness import agree, is_float, is_informative, measure_distance
from .repairs import Causes
from .walk import Fault, FoundPairs

__all__ = ["describe_coverage", "find_swapped_inputs", "list_fault_notes", "note_swapped_inputs", "pair_outputs"]


# A model's outputs beside those of the file: always paired, and how.

Values = Mapping[str, Any]


def pair_outputs(
    baseline: Sequence[TensorMeta], target: Sequence[TensorMeta], base_values: Values, target_values: Values
) -> dict[str, tuple[str, Way]]:
    """Target output to (baseline output, how): by values that only one other has, by name, then by position.

    Position decides only where as many are left on both sides and each pair has one shape and one kind of type; or
    where a shape and type is one output's alone on both sides.
    """
    ours = [meta.name for meta in baseline if meta.is_output and meta.name in base_values]
    theirs = [meta.name for meta in target if meta.is_output and meta.name in target_values]
    found: dict[str, tuple[str, Way]] = {}

    def list_left() -> tuple[list[str], list[str]]:
        """Return the outputs of both sides that have no partner yet."""
        taken = {base for base, _ in found.values()}
        return [name for name in ours if name not in taken], [name for name in theirs if name not in found]

    def fits(one: str, other: str) -> bool:
        a, b = base_values[one], target_values[other]
        return a.shape == b.shape and is_float(a) == is_float(b)

    base, others = list_left()
    alike = {t: [b for b in base if fits(b, t) and agree(target_values[t], base_values[b])] for t in others}
    for name, rivals in alike.items():
        alone = [t for t, candidates in alike.items() if rivals and rivals[0] in candidates]
        if len(rivals) == 1 and len(alone) == 1 and is_informative(base_values[rivals[0]]):
            found[name] = rivals[0], way("fingerprint, and both are outputs of the model")
    base, others = list_left()
    for name in others:
        named = [b for b in base if fits(b, name) and _plain_name(b) == _plain_name(name)]
        if len(named) == 1 and named[0] in list_left()[0]:
            found[name] = named[0], way("outputs of the model, by name")
    base, others = list_left()
    if len(base) == len(others) and all(fits(b, t) for b, t in zip(base, others, strict=True)):
        for place, (b, t) in enumerate(zip(base, others, strict=True), 1):
            told = "outputs of the model, by position ({place} of {count}), shape and type"
            found[t] = b, way(told, place=place, count=len(base))
        return found
    for name in others:
        same = [b for b in base if fits(b, name)]
        if len(same) == 1 and sum(fits(same[0], t) for t in others) == 1:
            found[name] = same[0], way("outputs of the model, the only ones of this shape and type")
    return found


def _plain_name(name: str) -> str:
    """Return the plain name of an output: "output.logits" and "logits" are one, and so are "output[0]" and "0"."""
    return re.sub(r"[\[\]]", "", name.rpartition(".")[2].removeprefix("output")).lower() or name.lower()


# A file whose inputs have each other's names: found by giving it the values the other way round.

_MOST_INPUTS = 5
"""Inputs whose orders are all tried: 120 of five, each a run of the file's graph."""

_NEAR = 1e-3
"""How near every output must come with the inputs swapped back, as in ``repairs``."""


@dataclass(frozen=True, kw_only=True)
class SwappedInputs:
    """belongs: the file's input to the one whose value it should have. values: what the file then computes."""

    belongs: Mapping[str, str]
    values: Mapping[str, Any]


def find_swapped_inputs(
    base: BaseGraph, target: TargetGraph, outputs: Mapping[str, tuple[str, Way]]
) -> SwappedInputs | None:
    """Another order of the inputs with which the outputs agree; None where they do anyway, or none does."""

    def right(values: Mapping[str, Any]) -> bool:
        return all(
            name in values and agree(values[name], base.values[partner], _NEAR)
            for name, (partner, _) in outputs.items()
        )

    inputs = [name for name in target.own if name not in target.producer and name not in target.constants]
    if not outputs or not 1 < len(inputs) <= _MOST_INPUTS or right(target.own):
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


def note_swapped_inputs(found: SwappedInputs | None, path: str) -> tuple[Reason, ...]:
    """Return what to say of it."""
    if found is None:
        return ()
    pairs = [say("used_as", name=name, other=other) for name, other in found.belongs.items()]
    return (say("exchanged", file=Path(path).name, pairs=pairs),)


# What the walk through an exported file says to the reader of a report: how much is paired, and what is wrong.

_MOST_FAULTS = 8
"""Faults that get a sentence each; as many more are named."""
_SOME = 5
"""Operators of a stretch that are listed before its last one."""
_LIKELY = 1e-3
"""How far an output may be off before the export is called wrong: ten times agreement.SLACK."""


def describe_coverage(found: FoundPairs, modes: tuple[str, str], path: str, target: int, baseline: int) -> Reason:
    """One line. modes: in which they were run. target, baseline: how many tensors each side showed."""
    kinds = collections.Counter(_kind_of_match(how) for _, how in found.pairs.values())
    ways = [
        say("by_value", count=kinds["value"]), say("by_neighbours", count=kinds["graph neighbours"]),
        say("by_output", count=kinds["output"]),
    ]  # fmt: skip
    some = [way for way in ways if way.args["count"]]
    mode, other = modes
    count, refused = len(found.pairs), len(found.refused)
    partners = len({base for base, _ in found.pairs.values()})
    if not some:
        return say("paired_by_value_none", mode=mode, other=other, count=count, all=target, path=path, refused=refused,
                   partners=partners, own=baseline)  # fmt: skip
    return say("paired_by_value", mode=mode, other=other, count=count, all=target, path=path, kinds=some,
               refused=refused, partners=partners, own=baseline)  # fmt: skip


def _kind_of_match(how: str) -> str:
    if how.startswith("outputs"):
        return "output"
    return "graph neighbours" if how.startswith("graph") else "value"


def list_fault_notes(causes: Causes, path: str) -> tuple[Reason, ...]:
    """One sentence on each wrong operator, the first one first; and where outputs differ and none was found, that."""
    file, faults = Path(path).name, causes.found.faults
    notes = [_describe_fault(causes, fault, file) for fault in faults[:_MOST_FAULTS]]
    if len(faults) > _MOST_FAULTS:
        names = [fault.baseline for fault in faults[_MOST_FAULTS : 2 * _MOST_FAULTS]]
        notes.append(say("wrong_at_more", file=file, count=len(faults) - _MOST_FAULTS, names=names))
    if not faults:
        notes += [
            say("output_apart", name=name, file=file, base=base, distance=apart)
            for name, base, apart in _iterate_distances(causes)
        ]
    return tuple(notes)


def _describe_fault(causes: Causes, fault: Fault, file: str) -> Reason:
    made = causes.target.producer.get(fault.target)
    operator: Any = f"{made.op_type} {made.name}" if made is not None else say("its_input")
    if made is not None and len(fault.operators) > 1:  # what agrees is read by the first of them
        names = {*fault.operators} - {made.name}
        before = [one.op_type for one in causes.target.operators if one.name in names]
        some = before if len(before) <= _SOME else [*before[: _SOME - 1], "…", before[-1]]
        operator = ", ".join([*some, operator])
    name, output = fault.baseline, fault.target
    place = (
        say("inputs_agree_shape", name=name, operator=operator, output=output)
        if fault.distance == float("inf")
        else say("inputs_agree", name=name, operator=operator, output=output, distance=fault.distance)
    )
    cause = causes.of(fault)
    return (
        say("wrong_at_because", file=file, place=place, cause=cause)
        if cause
        else say("wrong_at", file=file, place=place)
    )


def _iterate_distances(causes: Causes) -> Iterator[tuple[str, str, float]]:
    own, known = causes.target.own, causes.base.values
    for name, (base, _) in causes.found.pairs.items():
        meta = causes.base.metas.get(base)
        if meta is not None and meta.is_output and name in own and not agree(own[name], known[base], _LIKELY):
            yield name, base, measure_distance(own[name], known[base])
