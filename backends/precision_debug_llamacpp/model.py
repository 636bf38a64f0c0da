"""Reads model files, and what a model wants to be fed with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from precision_debug.errors import ModelError
from precision_debug.records import InputMeta

from .engine.file import GgufFile, read_file
from .engine.graph import INPUT
from .failures import reading

__all__ = ["read_configuration", "read_inputs", "read_model"]


def read_model(path: str) -> GgufFile:
    """Raises ModelError."""
    with reading(path):
        return read_file(path)


_READ_BY_NOBODY = ("general.", "tokenizer.", "split.", "quantize.")
"""How keys begin that no operator reads: names, the vocabulary's texts, where the file comes from."""


def read_configuration(path: str) -> Mapping[str, Any]:
    """Return what a file's head says of how operators compute; {} of a file that cannot be read."""
    try:
        values = read_model(path).values
    except ModelError:
        return {}
    return {key: one for key, one in values.items() if one is not None and not key.startswith(_READ_BY_NOBODY)}


def read_inputs(model: GgufFile) -> Sequence[InputMeta]:
    """One row of token ids. Raises ModelError."""
    with reading(model.path):
        limit = model.vocabulary
    return (InputMeta(name=INPUT, dtype="int64", shape=(1, "tokens"), limit=limit),)
