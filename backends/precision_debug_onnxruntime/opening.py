"""From a model file and a recipe to a session: build the graph that runs, list its tensors, say what is special."""

from __future__ import annotations

import dataclasses
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path

from precision_debug.protocols import Feeds, Session
from precision_debug.records import SessionSpec

from .build import build
from .build.dump import infer_types
from .build.simulate import internal
from .graph import values
from .listing import Entry, Sizes, list_tensors, with_dropped
from .model import Model, read_model
from .modes import Recipe
from .naming import hold
from .runtime import Runtime
from .session import OrtSession
from .source import Known

__all__ = ["open_session"]


def open_session(spec: SessionSpec, recipe: Recipe, feeds: Sequence[Feeds]) -> Session:
    """Open a model by a recipe; feeds calibrate it where it is quantised. Temporary files go to ``spec.work_dir``."""
    import onnxruntime as ort

    settings = dict(spec.options)
    options = recipe.provider_options(settings)
    runtime = Runtime(providers=recipe.providers, provider_options=options, settings=settings)


def _as_rounded(entry: Entry, recipe: Recipe) -> Entry:
    """Say of a float32 tensor that its numbers are those of the simulated type."""
    if entry.meta.dtype != "float32" or entry.meta.view or entry.meta.op_type == "Input":
        return entry
    view = f"rounded to {recipe.change.removesuffix('_sim')}"
    return dataclasses.replace(entry, meta=dataclasses.replace(entry.meta, view=view))


def _sizes(source: Model, runtime: Runtime, folder: Path) -> Sizes:
    """Shapes of the source model's tensors, inferred once when the first one is asked for."""
    known: dict[str, tuple[int | str, ...] | None] = {}

    def size(name: str) -> tuple[int | str, ...] | None:
        if not known:
            types = infer_types(source, runtime, folder)
            for value in values(source.proto.graph):
                known.setdefault(value.name, types.of(value.scope.key, value.name).shape)
        return known.get(name)

    return size
