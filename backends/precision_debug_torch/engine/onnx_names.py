"""What torch's ONNX exporter wrote into a file about where its nodes come from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from precision_debug.onnx.model import load_model

__all__ = ["module_of_tensors"]

_SCOPES = "pkg.torch.onnx.name_scopes"


def module_of_tensors(path: str | Path) -> dict[str, str]:
    """Return the name of each ONNX tensor of the main graph to the path of the torch module that it comes from, "" the
    outermost.

    Both of torch's exporters say it: the one in notes of each node, where its own helper nodes carry the note of what
    they belong to, the older one in the nodes' names. Tensors of nodes that do not say it are left out. Raises
    ModelError.
    """
    model = load_model(path)
    scoped = dict(_iterate_noted(model.graph))
    if not scoped and model.producer_name == "pytorch":
        scoped = dict(_iterate_named(model.graph))
    return {name: module for name, module in scoped.items() if name}


def _iterate_noted(graph: Any) -> Iterator[tuple[str, str]]:
    for node in graph.node:
        notes = {item.key: item.value for item in node.metadata_props}
        scopes = _parse_path(notes.get(_SCOPES, ""))
        for name in node.output if scopes else ():
            yield name, scopes[-2] if len(scopes) > 1 else ""


def _iterate_named(graph: Any) -> Iterator[tuple[str, str]]:
    """Of names like "/layers/layers.0/conv1/Conv". A module's second call is "relu_1", which may be another module."""
    calls = [tuple(node.name.split("/")[1:-1]) if node.name.startswith("/") else None for node in graph.node]
    known = {call[:depth] for call in calls if call is not None for depth in range(1, len(call) + 1)}
    for node, call in zip(graph.node, calls, strict=True):
        if call is None or any(_is_again(call[:depth], known) for depth in range(1, len(call) + 1)):
            continue
        parts: list[str] = []
        for part in call:
            if parts and part.startswith(f"{parts[-1]}."):
                parts.pop()
            parts.append(part)
        for name in node.output:
            yield name, ".".join(parts)


def _is_again(call: tuple[str, ...], known: set[tuple[str, ...]]) -> bool:
    stem, _, number = call[-1].rpartition("_")
    return number.isdigit() and (*call[:-1], stem) in known


def _parse_path(text: str) -> list[str]:
    try:
        value = ast.literal_eval(text) if text else []
    except (ValueError, SyntaxError):
        return []
    return [str(item) for item in value] if isinstance(value, list) else []
