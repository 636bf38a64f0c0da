"""Reads model files, and what a model wants to be fed with."""

from __future__ import annotations

from collections.abc import Sequence

from precision_debug.records import InputMeta

from .engine.file import GgufFile, read_file
from .engine.graph import INPUT
from .failures import reading

__all__ = ["read_inputs", "read_model"]


def read_model(path: str) -> GgufFile:
    """Raises ModelError."""
    with reading(path):
        return read_file(path)


def read_inputs(model: GgufFile) -> Sequence[InputMeta]:
    """One row of token ids. Raises ModelError."""
    with reading(model.path):
        limit = model.vocabulary
    return (InputMeta(name=INPUT, dtype="int64", shape=(1, "tokens"), limit=limit),)
