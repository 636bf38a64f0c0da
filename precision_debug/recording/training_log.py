"""What was kept of a training run: numbers of each parameter at some of its steps, one step a line of a file.

A line is {"step": 300, "scale": 65536.0, "without": ["old.weight"], "parameters": {"fc.weight": [norm, zeros, below,
broken, size, moved, rate, decay, undecayed, still]}}, with "kept": true where a step before is in these gradients, and
"changed" and "state" where something was changed between two steps, and "settings" where the optimiser's are new;
earlier versions wrote six numbers, and no "without".
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import InputError, OutputError
from ..reasons import say

__all__ = [
    "LOG",
    "SMALLEST",
    "ParameterNumbers",
    "StepNumbers",
    "begin_log",
    "compare_left",
    "decode_parameters",
    "encode_parameters",
    "encode_step",
    "is_log",
    "read_log",
]  # fmt: skip

LOG = "statistics.jsonl"

SMALLEST = 2.0**-24
"""The smallest number of float16: what "below" counts is rounded to 0 there, at the loss scale of the step."""


@dataclass(frozen=True, kw_only=True)
class ParameterNumbers:
    """The recorded numbers of a parameter at one training step.

    norm: L2 of its gradient, unscaled, over what is finite. zeros: share of the gradient that is 0. below: share, of
    what is not 0, that float16 would make 0 at the step's scale. broken: elements that are NaN or Inf. size: L2 of the
    parameter. moved: L2 of the update over ``size``. rate: the optimiser's learning rate for it. decay: share that
    decoupled weight decay takes off an element at this step, and undecayed: share of its elements that this alone
    leaves as they are, in the parameter's type. still: share of elements that had a gradient and have the value that
    they had when the recording began. Each of these is None where it was not measured or does not apply."""

    norm: float
    zeros: float
    below: float
    broken: int
    size: float
    moved: float | None = None
    rate: float | None = None
    decay: float | None = None
    undecayed: float | None = None
    still: float | None = None


@dataclass(frozen=True, kw_only=True)
class StepNumbers:
    """The recorded numbers of one training step.

    scale: what its loss was multiplied by. without: parameters that ask for a gradient, that this optimiser moves, and
    that had none. kept: its gradients were added to those of the step before, which nobody had set back. changed:
    parameters that were others when the step began than the step before had left them, and by how much (L2 over their
    own); state: the same of what the optimiser keeps of a parameter, 1 where that is gone. settings: what numbers each
    of the optimiser's groups is set to ("momentum", "betas[0]"), by its first parameter, where they changed."""

    step: int
    scale: float = 1.0
    parameters: Mapping[str, ParameterNumbers] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    kept: bool = False
    changed: Mapping[str, float] = field(default_factory=dict)
    state: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def encode_step(numbers: StepNumbers) -> str:
    """Return a step as one line of the file."""
    line = {
        "step": numbers.step, "scale": numbers.scale, "without": sorted(numbers.without),
        "parameters": encode_parameters(numbers), **({"kept": True} if numbers.kept else {}),
        **({"changed": dict(numbers.changed)} if numbers.changed else {}),
        **({"state": dict(numbers.state)} if numbers.state else {}),
        **({"settings": {name: dict(one) for name, one in numbers.settings.items()}} if numbers.settings else {}),
    }  # fmt: skip
    return json.dumps(line) + "\n"


def is_log(path: Path) -> bool:
    """Return whether a file is one of ours: its first line is a step's, or there is no such file, or nothing in it."""
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


def compare_left(
    left: Mapping[tuple[str, str], Any], now: Mapping[tuple[str, str], Any],
    measure: Callable[[Any, Any], tuple[float, float] | None],
) -> tuple[dict[str, float], dict[str, float]]:  # fmt: skip
    """Return the parameters that are others than a step left them, by how much of their size, and those of which the
    optimiser's state is.

    left, now: some elements of each parameter, and of what of its state ("": of itself). measure: the L2 of what was
    there and of the change; None where nothing changed."""
    changed, state = dict[str, float](), dict[str, float]()
    here = {name for name, _ in now}
    for (name, what), before in left.items():
        value = now.get((name, what))
        if name not in here or (value is not None and value.shape != before.shape):
            continue  # it is moved no more, or held otherwise
        measured = (0.0, math.inf) if value is None else measure(before, value)
        if measured is not None:
            size, moved = measured
            found = state if what else changed
            apart = moved / size if size and math.isfinite(moved) and math.isfinite(size) else 1.0
            found[name] = max(apart, found.get(name, 0.0))
    return changed, state


def encode_parameters(numbers: StepNumbers) -> dict[str, list[float | int | None]]:
    """Return a line's "parameters"."""
    return {
        name: [
            one.norm, one.zeros, one.below, one.broken, one.size, one.moved, one.rate, one.decay, one.undecayed,
            one.still,
        ]
        for name, one in numbers.parameters.items()
    }  # fmt: skip


def read_log(folder: str | Path) -> tuple[StepNumbers, ...]:
    """Return every step that was kept, in order. Raises InputError."""
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
        yield StepNumbers(
            step=int(entry["step"]), scale=float(entry["scale"]), parameters=decode_parameters(entry["parameters"]),
            without=frozenset(map(str, entry.get("without", ()))), kept=bool(entry.get("kept")),
            changed=_decode_changes(entry.get("changed")), state=_decode_changes(entry.get("state")),
            settings={str(name): _decode_changes(one) for name, one in entry.get("settings", {}).items()},
        )  # fmt: skip


def decode_parameters(rows: Mapping[str, Sequence[float | None]]) -> dict[str, ParameterNumbers]:
    """Return what ``encode_parameters`` wrote. Raises ValueError and TypeError where it is something else."""
    found = {}
    for name, (norm, zeros, below, broken, size, *more) in rows.items():
        moved, rate, decay, undecayed, still = [*(None if one is None else float(one) for one in more), *[None] * 4][:5]
        found[str(name)] = ParameterNumbers(
            norm=_decode_number(norm), zeros=_decode_number(zeros), below=_decode_number(below),
            broken=int(_decode_number(broken)),
            size=_decode_number(size), moved=moved, rate=rate, decay=decay, undecayed=undecayed, still=still,
        )  # fmt: skip
    return found


def _decode_changes(told: Mapping[str, float] | None) -> dict[str, float]:
    return {str(name): float(value) for name, value in (told or {}).items()}


def _decode_number(value: float | None) -> float:
    if value is None:
        raise ValueError("a number is missing")
    return float(value)
