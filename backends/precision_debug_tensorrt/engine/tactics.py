"""Tactic replay (TensorRT up to 10): the tactic of every layer, saved as JSON and chosen again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from precision_debug.errors import BackendError, OutputError
from precision_debug.ownership import guard_output

__all__ = ["load_tactics", "make_recorder", "make_replayer", "save_tactics"]

_FORMAT = "precision_debug tactics 1"


def load_tactics(path: str) -> dict[str, dict[str, Any]]:
    """Layer name to its tactic. Raises BackendError."""
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BackendError(f"the tactics cannot be read: {error}", where=path, hint="save them again") from error
    if not isinstance(data, dict) or data.get("format") != _FORMAT or not isinstance(data.get("layers"), dict):
        raise BackendError("is not a file of --save_tactics", where=path, hint="save the tactics again")
    return dict(data["layers"])


def save_tactics(path: str, layers: Mapping[str, Mapping[str, Any]], version: str) -> None:
    """Raises OutputError."""
    data = {"format": _FORMAT, "tensorrt": version, "layers": layers}
    try:
        with guard_output(path) as place:
            place.write_text(json.dumps(data, indent=1), encoding="utf-8")
    except OSError as error:
        raise OutputError(f"the tactics cannot be written: {error.strerror}", where=path) from error


def make_recorder(trt: Any, into: dict[str, dict[str, Any]]) -> Any:
    """Return an algorithm selector that leaves the choice to TensorRT and notes it in ``into``."""

    class Recorder(trt.IAlgorithmSelector):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IAlgorithmSelector.__init__(self)

        def select_algorithms(self, _context: Any, choices: Sequence[Any]) -> list[int]:
            return list(range(len(choices)))

        def report_algorithms(self, contexts: Sequence[Any], choices: Sequence[Any]) -> None:
            for context, choice in zip(contexts, choices, strict=True):
                into[context.name] = describe(context, choice)

    return Recorder()


def make_replayer(trt: Any, wanted: Mapping[str, Mapping[str, Any]], missing: list[str]) -> Any:
    """Return an algorithm selector that allows only the saved tactic.

    missing: filled with the layers whose saved tactic TensorRT does not offer, or that were not saved; there it
    chooses by itself.
    """

    class Replayer(trt.IAlgorithmSelector):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.IAlgorithmSelector.__init__(self)

        def select_algorithms(self, context: Any, choices: Sequence[Any]) -> list[int]:
            saved = wanted.get(context.name)
            found = [
                place
                for place, choice in enumerate(choices)
                if saved is not None and describe(context, choice) == saved
            ]
            if not found and choices:
                missing.append(context.name)
            return found or list(range(len(choices)))

        def report_algorithms(self, contexts: Sequence[Any], choices: Sequence[Any]) -> None:
            pass

    return Replayer()


def describe(context: Any, algorithm: Any) -> dict[str, Any]:
    """Return what tells one tactic from another: implementation, tactic, and format, type and strides of each
    tensor."""
    variant = algorithm.algorithm_variant
    tensors = []
    for index in range(context.num_inputs + context.num_outputs):
        info = algorithm.get_algorithm_io_info(index)
        tensors.append(
            {
                "dtype": str(info.dtype).rpartition(".")[2],
                "strides": [int(step) for step in info.strides],
                "vectorized_dim": int(getattr(info, "vectorized_dim", -1)),
                "components": int(getattr(info, "components_per_element", 1)),
            }
        )
    return {"implementation": int(variant.implementation), "tactic": int(variant.tactic), "tensors": tensors}
