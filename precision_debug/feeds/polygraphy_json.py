"""Polygraphy's JSON, read and written without it: feeds of several iterations, and what its runners gave.

An object is {…, "polygraphy_class": NAME}; "type" was that key's older name. An array is {"array": base64 of a .npy
file}, a LazyArray {"values": array}. Feeds are a list of {input name: array}. Results (--save-outputs) are a
RunResults, {"lst": [[runner, [IterationResult, …]], …]}, where an IterationResult is {"outputs": {name: LazyArray},
"runtime": seconds, "runner_name": runner}.
"""

from __future__ import annotations

import base64
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..codec import parse_json
from ..errors import InputError
from ..reasons import say
from ..safety.untrusted import refuse_special

__all__ = [
    "Iteration",
    "decode_value",
    "holds_results",
    "load_json",
    "read_feeds",
    "read_results",
    "write_feeds_text",
    "write_iteration_text",
]

_CLASS = "polygraphy_class"


@dataclass(frozen=True, kw_only=True)
class Iteration:
    """What one runner gave in one iteration: outputs by name, in its order. seconds: None where it was not timed."""

    outputs: Mapping[str, Any]
    seconds: float | None = None


def load_json(path: Path) -> Any:
    """Return the plain JSON of a file. Raises InputError."""
    refuse_special(path, InputError)
    try:
        return parse_json(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(say("no_json", error=str(error)), where=str(path)) from error


def holds_results(path: Path) -> bool:
    """Return whether the file is of runners' outputs, and not of feeds. Raises InputError."""
    data = load_json(path)
    return isinstance(data, dict) and data.get(_CLASS) == "RunResults"


def read_feeds(path: Path) -> list[dict[str, Any]]:
    """Return one dict of arrays for each iteration. Raises InputError."""
    data = load_json(path)
    sets = [data] if isinstance(data, dict) and _CLASS not in data else data
    if not isinstance(sets, list) or not all(isinstance(one, dict) for one in sets):
        kind = data.get(_CLASS, "object") if isinstance(data, dict) else type(data).__name__
        raise InputError(
            f"holds {kind}, not a list of feed dicts", where=str(path),
            hint="write it with polygraphy run --save-inputs",
        )  # fmt: skip
    return [{name: decode_value(value, "input", name, path) for name, value in one.items()} for one in sets]


def read_results(path: Path) -> dict[str, list[Iteration]]:
    """Return what each runner gave, one entry an iteration; runners in the file's order. Raises InputError.

    path: a file, or a folder whose files have numbers for names, one an iteration.
    """
    if path.is_dir():
        whole: dict[str, list[Iteration]] = {}
        for file in sorted(path.glob("[0-9]*.json")):
            for runner, iterations in read_results(file).items():
                whole.setdefault(runner, []).extend(iterations)
        return whole
    data = load_json(path)
    kind = data.get(_CLASS, "object") if isinstance(data, dict) else f"a {type(data).__name__}"
    if kind != "RunResults":
        raise InputError(
            f"holds {kind}, not what a runner gave", where=str(path),
            hint="write it with polygraphy run --save-outputs, or --save_outputs",
        )  # fmt: skip
    try:
        found = {
            str(runner): [
                Iteration(
                    outputs={
                        name: decode_value(one, "output", name, path) for name, one in iteration["outputs"].items()
                    },
                    seconds=None if iteration.get("runtime") is None else _finite_or_zero(float(iteration["runtime"])),
                )
                for iteration in iterations
            ]
            for runner, iterations in data["lst"]
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"its results are damaged: {type(error).__name__} {error}", where=str(path)) from error
    if not any(found.values()):
        raise InputError("holds no iteration", where=str(path), hint="write it again with --save-outputs")
    return found


def _finite_or_zero(seconds: float) -> float:
    if not math.isfinite(seconds):
        raise ValueError(f"runtime {seconds}")
    return seconds


def decode_value(value: Any, what: str, name: str, path: Path) -> Any:
    """Return an array as Polygraphy writes it; any other plain value as it is. Raises InputError."""
    if not isinstance(value, dict):
        return value
    kind = value.get(_CLASS, value.get("type", ""))
    if kind in ("LazyArray", "LazyNumpyArray"):
        return decode_value(value.get("values"), what, name, path)
    if not isinstance(value.get("array"), str):
        raise InputError(
            f"{what} '{name}' is stored as {kind or 'an unknown object'}",
            where=str(path),
            hint="save it as a numpy array",
        )
    try:
        return np.load(io.BytesIO(base64.b64decode(value["array"], validate=True)), allow_pickle=False)
    except Exception as error:  # numpy raises many kinds on damaged bytes
        raise InputError(
            f"the array of '{name}' is damaged: {type(error).__name__}: {error}", where=str(path)
        ) from error  # fmt: skip


def write_feeds_text(sets: Sequence[Mapping[str, Any]]) -> str:
    """Return feeds as text for Polygraphy's --load-inputs. Raises InputError on a value that is not an array."""
    return json.dumps([{name: _encode_array(value, name) for name, value in one.items()} for one in sets])


def write_iteration_text(runner: str, outputs: Mapping[str, Any], seconds: float | None) -> str:
    """Return one IterationResult as text on one line. Raises InputError on an output that is not an array."""
    lazy = {name: {"values": _encode_array(value, name), _CLASS: "LazyArray"} for name, value in outputs.items()}
    return json.dumps({"outputs": lazy, "runtime": seconds, "runner_name": runner, _CLASS: "IterationResult"})


def _encode_array(value: Any, name: str) -> dict[str, str]:
    """Return types that .npy does not know (bfloat16, fp8, int4) become float32, which holds each of their values."""
    if value is None or isinstance(value, (list, tuple, dict)):
        raise InputError("is not an array, and Polygraphy's JSON holds nothing else", where=name, hint="leave it out")
    array = np.asarray(value)
    if array.dtype.isbuiltin == 2:
        array = array.astype(np.float32)
    if array.dtype.kind == "O":
        array = array.astype(np.str_)
    written = io.BytesIO()
    np.save(written, array, allow_pickle=False)
    return {"array": base64.b64encode(written.getvalue()).decode(), _CLASS: "ndarray"}
