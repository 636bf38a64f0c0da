"""From a model file and a recipe to a session: read it, choose the device, say what the precision came to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from precision_debug.errors import BackendUnavailable
from precision_debug.protocols import Feeds, Session
from precision_debug.records import SessionSpec

from .engine.graph import read_graph
from .make import Maker, folded
from .model import read_inputs, read_model
from .modes import Recipe
from .session import OpenVinoSession
from .settings import setting

__all__ = ["open_session"]


def open_session(spec: SessionSpec, recipe: Recipe, feeds: Sequence[Feeds]) -> Session:  # noqa: ARG001
    """Open a model by a recipe; feeds calibrate it where it is quantised."""
    import openvino

    core = openvino.Core()
    device = _device(core, str(setting(spec.options, "device")), recipe)
    model = read_model(spec)
    graph = read_graph(model)
    maker = Maker(
        core=core, model=model, simple=folded(model), path=spec.model.path, mode=recipe.mode.name,
        precision=recipe.precision, device=device,
        threads=setting(spec.options, "inference_num_threads") or spec.cores,
        properties=setting(spec.options, "properties"),
    )  # fmt: skip
    return OpenVinoSession(
        graph=graph, maker=maker, inputs=read_inputs(model), fused=recipe.fused,
        versions={"openvino": openvino.__version__, "device": str(core.get_property(device, "FULL_DEVICE_NAME"))},
    )  # fmt: skip


def _device(core: Any, asked: str, recipe: Recipe) -> str:
    """The device by OpenVINO's name. Raises BackendUnavailable where it is not there."""
    found = [str(name) for name in core.available_devices]
    name = asked.upper()
    if name.partition(".")[0] not in {one.partition(".")[0] for one in found}:
        hint = f"OpenVINO has {', '.join(found) or 'none'} here"
        raise BackendUnavailable(f"there is no device {asked}", where=recipe.mode.name, hint=hint)
    return name
