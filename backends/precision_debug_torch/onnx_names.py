"""What torch's ONNX exporter wrote into a file about where its nodes come from."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from precision_debug.errors import ModelError

__all__ = ["module_of_tensors"]

_SCOPES = "pkg.torch.onnx.name_scopes"


def module_of_tensors(path: str | Path) -> dict[str, str]:
    """Name of each ONNX tensor of the main graph to the path of the torch module that it comes from, "" the outermost.

    Tensors of nodes without that note are left out; the exporter's own helper nodes carry the note of what they belong
    to. Raises ModelError.
    """
    return {name: module for node, module in _scoped(path) for name in node.output if name}


def _scoped(path: str | Path) -> Iterator[tuple[Any, str]]:
    import onnx

    try:
        graph = onnx.load(str(path), load_external_data=False).graph
    except Exception as error:
        raise ModelError(f"is no ONNX model: {type(error).__name__}: {error}", where=str(path)) from error
    for node in graph.node:
        notes = {item.key: item.value for item in node.metadata_props}
        scopes = _parsed(notes.get(_SCOPES, ""))
        if scopes:
            yield node, scopes[-2] if len(scopes) > 1 else ""


def _parsed(text: str) -> list[str]:
    try:
        value = ast.literal_eval(text) if text else []
    except (ValueError, SyntaxError):
        return []
    return [str(item) for item in value] if isinstance(value, list) else []
