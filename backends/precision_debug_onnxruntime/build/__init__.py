"""Makes the graph that runs: conversion, quantisation or simulation, then ONNX Runtime's own optimised graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from precision_debug.protocols import Feeds

from ..model import Model
from ..types import Types
from .dump import dump, infer_types, unoptimised

if TYPE_CHECKING:
    from ..modes import Recipe
    from ..runtime import Runtime

__all__ = ["Built", "build"]


@dataclass(frozen=True, kw_only=True)
class Built:
    """given: what ONNX Runtime was given; running: what it makes of that, with the types of all its values.

    notes: what the reader of a report must know about how it came about.
    """

    given: Model
    running: Model
    types: Types
    notes: tuple[str, ...] = ()


def build(source: Model, recipe: Recipe, runtime: Runtime, feeds: Sequence[Feeds], folder: Path) -> Built:
    """Build the graph of a run mode; what has to be written goes to folder. Raises ModelError or BackendError."""
    notes: tuple[str, ...] = ()
    given = source
    if recipe.change in {"int8", "int8_dynamic"}:
        from .quantise import quantise

        given, notes = quantise(source, recipe.change, runtime, feeds, folder)
    running = (
        dump(given, runtime, folder, "all") if recipe.optimise else unoptimised(given, runtime, folder)
    )
    return Built(given=given, running=running, types=infer_types(running, runtime, folder), notes=notes)
