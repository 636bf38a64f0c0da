"""From a model folder and a recipe to a session: read it, start vLLM on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from precision_debug.protocols import Feeds, Session
from precision_debug.records import SessionSpec
from precision_debug.settings import passed

from .make import take_server
from .model import read_inputs, read_model
from .modes import Recipe
from .session import VllmSession
from .settings import setting

__all__ = ["open_session"]

_LOOK = (1, 3)
"""Rows and tokens of the run that shows the graph before the first real one."""


def open_session(spec: SessionSpec, recipe: Recipe, python: str, feeds: Sequence[Feeds]) -> Session:
    """Raises ModelError or BackendError."""
    folder = read_model(spec.model.path)
    head = passed(spec.options, "side") == "target" and recipe.dtype != "float32"
    shapes = [np.shape(one["input_ids"]) for one in feeds if np.ndim(one.get("input_ids", 0)) == 2]
    server = take_server(
        python=python, folder=folder.path, mode=recipe.mode.name, dtype=recipe.dtype, cores=spec.cores or 0,
        head_fp32=head and setting(spec.options, "head_fp32") == "on",
    )  # fmt: skip
    try:
        server.load(max([_LOOK[0], *(int(one[0]) for one in shapes)]), max([16, *(int(one[1]) for one in shapes)]))
        return VllmSession(server=server, folder=folder, inputs=read_inputs(folder), dtype=recipe.dtype, look=_LOOK)
    except BaseException:
        server.close()
        raise
