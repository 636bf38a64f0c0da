"""Tactic files: which tactic each layer of a TensorRT build took, and which of them only bad builds took.

Read are files of --save_tactics, Polygraphy's replay files (TensorRT up to 10), and engine-inspector files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..codec import parse_json
from ..errors import ModelError
from .layer import describe_edge_types
from .read import expand, parse_inspector

__all__ = ["Suspect", "find_suspects", "read_tactics"]

_OURS = "precision_debug tactics"

Suspect = tuple[str, frozenset[str], frozenset[str]]
"""A layer, the tactics that only bad builds took, and those that good ones took."""


def read_tactics(source: str) -> dict[str, dict[str, str]]:
    """By file (source: one, or a glob), the layers in its order and the tactic of each, in words. Raises ModelError."""
    return {str(file): _read_tactics(Path(file)) for file in expand(source)}


def find_suspects(good: Sequence[Mapping[str, str]], bad: Sequence[Mapping[str, str]]) -> list[Suspect]:
    """Return layers that took a tactic in some bad build that they took in no good one."""
    found = []
    for layer in dict.fromkeys(name for build in bad for name in build):
        taken = [frozenset(build[layer] for build in builds if layer in build) for builds in (bad, good)]
        if taken[1] and taken[0] - taken[1]:
            found.append((layer, taken[0] - taken[1], taken[1]))
    return found


def _read_tactics(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        data = parse_json(text, strict=False)
    except (OSError, ValueError) as error:
        raise ModelError(f"is not readable JSON: {error}", where=str(path), hint="save the tactics again") from error
    if (
        isinstance(data, dict)
        and str(data.get("format", "")).startswith(_OURS)
        and isinstance(data.get("layers"), dict)
    ):
        return {str(name): _describe_tactic(one) for name, one in data["layers"].items()}
    replay = data.get("lst", data.get("replay")) if isinstance(data, dict) else None
    if isinstance(replay, (list, dict)):  # Polygraphy writes pairs; before 0.47 it wrote a mapping
        pairs = replay.items() if isinstance(replay, dict) else replay
        try:
            return {str(name): _describe_tactic(one) for name, one in pairs}
        except (TypeError, ValueError) as error:
            raise ModelError(
                f"is not a replay file: {error}", where=str(path), hint="save the tactics again"
            ) from error
    return {
        layer.name: " ".join(filter(None, (layer.tactic_name, layer.tactic_value, describe_edge_types(layer))))
        for layer in parse_inspector(text, where=str(path))
    }


def _describe_tactic(one: Any) -> str:
    """Implementation and tactic, and what tells one from another of the same number: types and strides."""
    if not isinstance(one, Mapping):
        return str(one)
    kept = {key: value for key, value in one.items() if key != "polygraphy_class"}
    return ", ".join(f"{key} {_plain_text(value)}" for key, value in kept.items())


def _plain_text(value: Any) -> str:
    if isinstance(value, Mapping):
        kept = [f"{item}" for key, item in value.items() if key not in ("polygraphy_class",)]
        return "/".join(kept)
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_plain_text, value))}]"
    return str(value)
