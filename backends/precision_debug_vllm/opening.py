"""From a model folder and a recipe to a session: read it, start vLLM on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from precision_debug.errors import UsageError
from precision_debug.protocols import Feeds, Hook, Session
from precision_debug.records import SessionSpec
from precision_debug.settings import get_passed

from .make import give_back, take_server
from .model import read_inputs, read_model
from .modes import Recipe
from .session import VllmSession, travel
from .settings import setting

__all__ = ["ROADS", "open_session", "travel_road"]

ROADS = ("whole", "decode", "alone", "chunks", "head_fp32")
"""How an engine runs the same tokens; it pads nothing."""

_CHUNKS = 3

_LOOK = (1, 3)
"""Rows and tokens of the run that shows the graph before the first real one."""


def open_session(spec: SessionSpec, recipe: Recipe, python: str, feeds: Sequence[Feeds]) -> Session:
    """Raises ModelError or BackendError."""
    folder = read_model(spec.model.path)
    head = get_passed(spec.options, "side") == "target" and recipe.dtype != "float32"
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


def travel_road(
    spec: SessionSpec, recipe: Recipe, python: str, road: str, feeds: Feeds, hook: Hook
) -> Mapping[str, Any]:  # fmt: skip
    """Run the engine over the same tokens by a road: see protocols.Roads. Raises PrecisionDebugError."""
    if road not in ROADS:
        raise UsageError(f"there is no road '{road}'", where="--roads", hint=f"there are {', '.join(ROADS)}")
    folder, ids = read_model(spec.model.path), np.asarray(feeds["input_ids"])
    head = recipe.dtype != "float32" and (road == "head_fp32" or setting(spec.options, "head_fp32") == "on")
    server = take_server(
        python=python, folder=folder.path, mode=recipe.mode.name, dtype=recipe.dtype, cores=spec.cores or 0,
        head_fp32=head, budget=max(len(ids), -(-ids.size // _CHUNKS)) if road == "chunks" else 0,
    )  # fmt: skip
    try:
        found = travel(server, folder, read_inputs(folder), road, feeds, hook)
    except BaseException:
        server.close()
        raise
    give_back(server)
    return found
