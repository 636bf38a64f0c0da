"""What was kept of a training run: numbers of each parameter at some of its steps, one step a line of a file.

A line is {"step": 300, "scale": 65536.0, "parameters": {"fc.weight": [norm, zeros, below, broken, size, moved]}}.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..errors import InputError, OutputError
from ..reasons import say

__all__ = [
    "LOG", "SMALLEST", "Departure", "ParameterNumbers", "StepNumbers", "begin_log", "first_departure", "is_log",
    "parameters_in", "parameters_of", "read_log", "steps_with_a_band", "written",
]  # fmt: skip

LOG = "statistics.jsonl"

SMALLEST = 2.0**-24
"""The smallest number of float16: what "below" counts is rounded to 0 there, at the loss scale of the step."""

_FEW = 5
"""Steps that make a band: before there are so many, only what is not finite leaves it."""

_WIDE, _LEAST = 6.0, 1.0
"""Half the width of the band of a norm, in median absolute deviations of its logarithm, and in powers of ten at least.
"""

_MORE_ZEROS = 0.5
"""Share of zeros above the median of the steps before from which on a gradient has left its band."""


@dataclass(frozen=True, kw_only=True)
class ParameterNumbers:
    """norm: L2 of its gradient, unscaled, over what is finite. zeros: share of the gradient that is 0. below: share,
    of what is not 0, that float16 would make 0 at the step's scale. broken: elements that are NaN or Inf. size: L2 of
    the parameter. moved: L2 of the update over ``size``; None where it was not measured."""

    norm: float
    zeros: float
    below: float
    broken: int
    size: float
    moved: float | None = None


@dataclass(frozen=True, kw_only=True)
class StepNumbers:
    """Of one step. scale: what its loss was multiplied by."""

    step: int
    scale: float = 1.0
    parameters: Mapping[str, ParameterNumbers] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Departure:
    """The first step at which a parameter's gradient is not as in the steps before. what: "broken", "zeros", "larger"
    or "smaller"; value: its number then, usual: the median before."""

    step: int
    parameter: str
    what: str
    value: float
    usual: float


def written(numbers: StepNumbers) -> str:
    """One line of the file."""
    return json.dumps({"step": numbers.step, "scale": numbers.scale, "parameters": parameters_of(numbers)}) + "\n"


def is_log(path: Path) -> bool:
    """Whether a file is one of ours: its first line is a step's, or there is no such file, or nothing in it."""
    if not path.exists() or not path.stat().st_size:
        return True
    with path.open("rb") as file:
        line = file.readline(1 << 26)
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and {"step", "scale", "parameters"} <= first.keys()


def begin_log(path: Path) -> None:
    """Make an empty file, in the place of an earlier one of ours. Raises OutputError where it is somebody else's."""
    if not is_log(path):
        raise OutputError(say("not_ours"), where=str(path), hint=say("move_or_name"))
    path.write_text("", encoding="utf-8")


def parameters_of(numbers: StepNumbers) -> dict[str, list[float | int | None]]:
    """A line's "parameters"."""
    return {
        name: [one.norm, one.zeros, one.below, one.broken, one.size, one.moved]
        for name, one in numbers.parameters.items()
    }


def read_log(folder: str | Path) -> tuple[StepNumbers, ...]:
    """Every step that was kept, in order. Raises InputError."""
    path = Path(folder, LOG)
    try:
        with path.open(encoding="utf-8") as lines:
            return tuple(_read(lines))
    except OSError as error:
        raise InputError(say("no_statistics"), where=str(path), hint=say("name_training_folder")) from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(f"is damaged ({error})", where=str(path), hint="record the run again") from error


def _read(lines: Iterator[str]) -> Iterator[StepNumbers]:
    for line in lines:
        if not line.endswith("\n"):
            return  # the run ended while it wrote
        entry = json.loads(line)
        parameters = parameters_in(entry["parameters"])
        yield StepNumbers(step=int(entry["step"]), scale=float(entry["scale"]), parameters=parameters)


def parameters_in(rows: Mapping[str, Sequence[float | None]]) -> dict[str, ParameterNumbers]:
    """What ``parameters_of`` wrote. Raises ValueError and TypeError where it is something else."""
    found = {}
    for name, (norm, zeros, below, broken, size, moved) in rows.items():
        found[str(name)] = ParameterNumbers(
            norm=_number(norm), zeros=_number(zeros), below=_number(below), broken=int(_number(broken)),
            size=_number(size), moved=None if moved is None else float(moved),
        )  # fmt: skip
    return found


def _number(value: float | None) -> float:
    if value is None:
        raise ValueError("a number is missing")
    return float(value)


def steps_with_a_band(steps: Sequence[StepNumbers]) -> int:
    """How many have enough steps before them for a band: of the others only NaN and Inf are known."""
    return max(0, len(steps) - _FEW)


def first_departure(steps: Sequence[StepNumbers]) -> Departure | None:
    """The first step that leaves the band of the steps before it, and the parameter that is furthest out."""
    for place, now in enumerate(steps):
        found = [one for name in now.parameters if (one := _departs(steps[:place], now, name)) is not None]
        if found:
            return max(found, key=_how_far)
    return None


def _departs(before: Sequence[StepNumbers], now: StepNumbers, name: str) -> Departure | None:
    own = now.parameters[name]
    past = [step.parameters[name] for step in before if name in step.parameters]
    norms = [math.log10(one.norm) for one in past if one.norm > 0 and not one.broken]
    usual = 10.0 ** float(np.median(norms)) if norms else 0.0
    if own.broken:
        return Departure(step=now.step, parameter=name, what="broken", value=float(own.broken), usual=0.0)
    if len(past) < _FEW:
        return None
    zeros = float(np.median([one.zeros for one in past]))
    if own.zeros > zeros + _MORE_ZEROS:
        return Departure(step=now.step, parameter=name, what="zeros", value=own.zeros, usual=zeros)
    if len(norms) < _FEW or own.norm <= 0:
        return None
    off = math.log10(own.norm) - float(np.median(norms))
    width = max(_LEAST, _WIDE * float(np.median(np.abs(np.array(norms) - np.median(norms)))))
    if abs(off) <= width:
        return None
    what = "larger" if off > 0 else "smaller"
    return Departure(step=now.step, parameter=name, what=what, value=own.norm, usual=usual)


def _how_far(one: Departure) -> tuple[int, float]:
    kinds = {"broken": 3, "zeros": 2}
    ratio = one.value / one.usual if one.usual else one.value
    return kinds.get(one.what, 1), abs(math.log10(ratio)) if ratio > 0 else 0.0
