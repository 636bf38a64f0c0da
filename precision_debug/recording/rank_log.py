"""What the ranks of a training run kept: a file each, with each gradient before and after the ranks' reduction.

A line is that of ``training_log`` with, besides, {"rank": 1, "ranks": 2, "skipped": false, "gradients": {"fc.weight":
{"local": [norm, broken, narrow, sketch], "reduced": …, "final": …}}, "shards": {"fc.weight": [start, count]},
"inputs": {"0": [print, rms, tokens]}}.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import InputError
from .training_log import ParameterNumbers, StepNumbers, decode_parameters, encode_parameters

__all__ = [
    "BINS",
    "GradientNumbers",
    "InputNumbers",
    "RankShard",
    "RankStep",
    "RankedStep",
    "Reduction",
    "join_shards",
    "join_sketches",
    "rank_file",
    "rank_line",
    "read_ranks",
]  # fmt: skip

BINS = 16
"""Numbers of a sketch."""


@dataclass(frozen=True, kw_only=True)
class GradientNumbers:
    """The recorded numbers of one gradient.

    norm: L2 over what is finite. broken: elements that are NaN or Inf. narrow: "bfloat16" or "float16" where that type
    holds its elements exactly, "" where none does, None: not known. sketch: ``BINS`` sums of its elements with fixed
    signs. It is linear, so that sketches of shards add up, and the mean of sketches is the sketch of the mean; its L2
    norm is about that of the gradient. () where it was not taken."""

    norm: float
    broken: int = 0
    narrow: str | None = None
    sketch: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Reduction:
    """One rank's gradient of a parameter, before and after it is reduced over the ranks.

    local: what its own batch gave; None: nothing did. reduced: when the backward pass had ended, for which a wrapper
    (DDP, FSDP2) waits. final: what the optimiser reads; None: a step that it did not do."""

    local: GradientNumbers | None = None
    reduced: GradientNumbers | None = None
    final: GradientNumbers | None = None


@dataclass(frozen=True, kw_only=True)
class InputNumbers:
    """The recorded numbers of an input of a rank's forward passes of a step.

    print: the same for the same values, and for no others. rms: of a floating point one's elements. tokens: of labels
    and masks, positions that count; None elsewhere."""

    print: str
    rms: float | None = None
    tokens: int | None = None


@dataclass(frozen=True, kw_only=True)
class RankShard:
    """Elements of a parameter that a rank holds: start: place of the first in the whole, row by row."""

    start: int
    count: int


@dataclass(frozen=True, kw_only=True)
class RankStep:
    """One rank's share of a training step.

    gradients: in the order in which the backward pass made them. skipped: GradScaler left the optimiser's step out.
    shards: of parameters that no rank holds whole. unseen: parameters whose own gradient before the reduction cannot be
    compared with what is behind it. inputs: by place or name; empty where ranks may well share a batch (tensor
    parallelism), or none was seen."""

    numbers: StepNumbers
    rank: int
    ranks: int
    skipped: bool = False
    gradients: Mapping[str, Reduction] = field(default_factory=dict)
    shards: Mapping[str, RankShard] = field(default_factory=dict)
    unseen: frozenset[str] = frozenset()
    inputs: Mapping[str, InputNumbers] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class RankedStep:
    """A step as all ranks saw it. ranks: by rank, those whose files are there. of: how many the run had."""

    step: int
    ranks: Mapping[int, RankStep]
    of: int


def rank_file(folder: str | Path, rank: int) -> Path:
    """Return the path of the file that a rank writes."""
    return Path(folder, f"statistics_rank{rank}.jsonl")


def rank_line(step: RankStep) -> str:
    """Return a rank's step as one line of its file."""
    line: dict[str, Any] = {
        "step": step.numbers.step, "scale": step.numbers.scale, "parameters": encode_parameters(step.numbers),
        "rank": step.rank, "ranks": step.ranks, "skipped": step.skipped, "unseen": sorted(step.unseen),
        "gradients": {
            name: {"local": _pack_numbers(one.local), "reduced": _pack_numbers(one.reduced),
            "final": _pack_numbers(one.final)}
            for name, one in step.gradients.items()
        },
        "shards": {name: [one.start, one.count] for name, one in step.shards.items()},
        "without": sorted(step.numbers.without),
        "inputs": {name: [one.print, one.rms, one.tokens] for name, one in step.inputs.items()},
    }  # fmt: skip
    return json.dumps(line) + "\n"


def _pack_numbers(one: GradientNumbers | None) -> list[Any] | None:
    if one is None:
        return None
    sketch = base64.b64encode(np.asarray(one.sketch, dtype="<f4").tobytes()).decode("ascii")
    return [one.norm, one.broken, one.narrow, sketch]


def _unpack_numbers(found: Any) -> GradientNumbers | None:
    if found is None:
        return None
    norm, broken, narrow, sketch = found
    values = np.frombuffer(base64.b64decode(sketch, validate=True), dtype="<f4")
    return GradientNumbers(
        norm=float(norm), broken=int(broken), narrow=None if narrow is None else str(narrow),
        sketch=tuple(float(value) for value in values),
    )  # fmt: skip


def read_ranks(folder: str | Path) -> tuple[RankedStep, ...]:
    """Return every step that all ranks whose files are there have kept; () where no file of a rank is. Raises
    InputError."""
    found: dict[int, list[RankStep]] = {}
    for path in sorted(Path(folder).glob("statistics_rank*.jsonl")):
        matched = re.fullmatch(r"statistics_rank(\d+)\.jsonl", path.name)
        if matched is None:
            continue
        try:
            with path.open(encoding="utf-8") as lines:
                found[int(matched[1])] = list(_read(lines))
        except OSError as error:
            raise InputError(f"cannot be read ({error.strerror})", where=str(path), hint="check its rights") from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise InputError(f"is damaged ({error})", where=str(path), hint="record the run again") from error
    by_place: dict[tuple[int, int], dict[int, RankStep]] = {}
    for rank, steps in found.items():
        seen: dict[int, int] = {}
        for one in steps:
            at = one.numbers.step
            turn = seen[at] = seen.get(at, -1) + 1
            by_place.setdefault((at, turn), {})[rank] = one
    return tuple(
        RankedStep(step=at, ranks=dict(sorted(ranks.items())), of=max(one.ranks for one in ranks.values()))
        for (at, _), ranks in sorted(by_place.items())
        if ranks.keys() == found.keys()
    )


def _read(lines: Iterator[str]) -> Iterator[RankStep]:
    for line in lines:
        if not line.endswith("\n"):
            return  # the run ended while it wrote
        entry = json.loads(line)
        yield RankStep(
            numbers=StepNumbers(
                step=int(entry["step"]), scale=float(entry["scale"]), parameters=decode_parameters(entry["parameters"]),
                without=frozenset(map(str, entry.get("without", ()))),
            ),
            rank=int(entry["rank"]), ranks=int(entry["ranks"]), skipped=bool(entry["skipped"]),
            unseen=frozenset(map(str, entry["unseen"])),
            gradients={
                str(name): Reduction(
                    local=_unpack_numbers(one["local"]), reduced=_unpack_numbers(one["reduced"]),
                    final=_unpack_numbers(one["final"])
                )
                for name, one in entry["gradients"].items()
            },
            shards={str(name): RankShard(start=int(s), count=int(c)) for name, (s, c) in entry["shards"].items()},
            inputs={
                str(name): InputNumbers(
                    print=str(printed), rms=None if rms is None else float(rms),
                    tokens=None if tokens is None else int(tokens),
                )
                for name, (printed, rms, tokens) in entry.get("inputs", {}).items()
            },
        )  # fmt: skip


def join_sketches(step: RankedStep, name: str, sides: Mapping[int, GradientNumbers]) -> np.ndarray[Any, Any] | None:
    """Return the sketch of a whole parameter, joined from its shards; None where one was not taken. sides: by rank."""
    own = {rank: step.ranks[rank].shards.get(name) for rank in sides}
    places = {shard.start: rank for rank, shard in own.items() if shard is not None and shard.count}
    chosen = list(places.values()) if any(shard is not None for shard in own.values()) else list(sides)[:1]
    if any(not sides[rank].sketch for rank in chosen):
        return None
    return np.sum([np.asarray(sides[rank].sketch) for rank in chosen], axis=0) if chosen else np.zeros(BINS)


def join_shards(steps: Sequence[RankedStep]) -> tuple[StepNumbers, ...]:
    """Return each step that the optimiser did as one process would have kept it: shards put together."""
    return tuple(_join_step(step) for step in steps if not any(one.skipped for one in step.ranks.values()))


def _join_step(step: RankedStep) -> StepNumbers:
    ranks = [*step.ranks.values()]
    names = dict.fromkeys(name for one in ranks for name in one.numbers.parameters)
    without = frozenset.intersection(*(one.numbers.without for one in ranks))
    return replace(ranks[0].numbers, parameters={name: _join_parameter(ranks, name) for name in names}, without=without)


def _join_parameter(ranks: Sequence[RankStep], name: str) -> ParameterNumbers:
    having = [one for one in ranks if name in one.numbers.parameters]
    parts = {one.shards[name].start: one for one in having if name in one.shards and one.shards[name].count}
    if not parts:  # each has all of it: the one that is worst off
        return max((one.numbers.parameters[name] for one in having), key=lambda numbers: numbers.broken)
    found = [(one.numbers.parameters[name], one.shards[name].count) for one in parts.values()]
    many = sum(count for _, count in found)
    moved = [one.moved * one.size for one, _ in found if one.moved is not None]
    size = math.sqrt(sum(one.size**2 for one, _ in found))
    first = found[0][0]
    return ParameterNumbers(
        rate=first.rate,
        decay=first.decay,
        undecayed=_mean_share(found, "undecayed"),
        still=_mean_share(found, "still"),
        norm=math.sqrt(sum(one.norm**2 for one, _ in found)),
        zeros=sum(one.zeros * count for one, count in found) / many,
        below=sum(one.below * count for one, count in found) / many,
        broken=sum(one.broken for one, _ in found),
        size=size,
        moved=math.sqrt(sum(one**2 for one in moved)) / size if moved and size else None,
    )


def _mean_share(parts: Sequence[tuple[ParameterNumbers, int]], share: str) -> float | None:
    """Of a share of each part's elements, over all; None where no part has it."""
    known = [(value, count) for one, count in parts if (value := getattr(one, share)) is not None]
    return sum(value * count for value, count in known) / sum(count for _, count in known) if known else None
