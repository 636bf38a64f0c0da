"""From a model file and a recipe to a session: read it, choose the device, say what the precision came to."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from precision_debug.errors import BackendError, BackendUnavailable, InputError
from precision_debug.feeds.check import engine_arrays
from precision_debug.ownership import guard_output
from precision_debug.protocols import Feeds, Session
from precision_debug.reasons import Reason
from precision_debug.records import SessionSpec
from precision_debug.settings import CALIBRATED, get_passed

from .engine.graph import read_graph
from .engine.quantise import quantise_model
from .failures import to_one_line
from .keep import find_excluded, find_operators, make_marked_model, save_model
from .make import Maker
from .model import read_inputs, read_model, real_numbers
from .modes import Recipe, find_lacking
from .reasons import say
from .session import OpenVinoSession
from .settings import setting

__all__ = ["open_session"]


def open_session(spec: SessionSpec, recipe: Recipe, feeds: Sequence[Feeds]) -> Session:
    """Open a model by a recipe; feeds calibrate it where it is quantised, and fix the shapes of a model that OpenVINO
    does not compile with dynamic ones."""
    model = read_model(spec)
    try:
        return _open_session(spec, recipe, feeds, model, [])
    except BackendError as error:
        model = read_model(spec)
        if not _fix_shapes(model, feeds, spec.model.path):
            raise
        try:
            return _open_session(
                spec, recipe, feeds, model, [say("fixed_shapes", why=to_one_line(error.__cause__ or error))]
            )
        except BackendError:
            raise error from error.__cause__


def _fix_shapes(model: Any, feeds: Sequence[Feeds], path: str) -> bool:
    """Give a model of dynamic shapes those of the feeds; False where it has none, or the feeds differ or do not fit."""
    inputs = read_inputs(model)
    if not any(port.get_partial_shape().is_dynamic for port in model.inputs):
        return False
    try:
        shapes = {tuple(array.shape for array in engine_arrays(one, inputs, where=path).values()) for one in feeds}
    except InputError:
        return False
    if len(shapes) != 1:
        return False
    model.reshape(dict(zip(model.inputs, map(list, shapes.pop()), strict=True)))
    return True


def _open_session(
    spec: SessionSpec, recipe: Recipe, feeds: Sequence[Feeds], model: Any, notes: list[Reason]
) -> Session:  # fmt: skip
    import openvino

    core = openvino.Core()
    device = _choose_device(core, str(setting(spec.options, "device")), recipe)
    inputs = read_inputs(model)
    side = str(get_passed(spec.options, "side"))
    if recipe.quantise:
        fed = [engine_arrays(one, inputs, where=spec.model.path) for one in feeds]
        ignored = find_excluded(read_graph(model), setting(spec.options, "nodes_to_exclude"))
        leave = Path(spec.work_dir, CALIBRATED) if side == "target" and spec.work_dir else None
        model, said = quantise_model(model, fed, spec.options, ignored, spec.model.path, leave)
        notes += said
    graph = read_graph(model)

    def maker(model: Any) -> Maker:
        return Maker(
            core=core, model=model, path=spec.model.path, mode=recipe.mode.name,
            precision=recipe.precision, fused=recipe.fused, device=device,
            threads=setting(spec.options, "inference_num_threads") or spec.cores,
            properties=setting(spec.options, "config"),
        )  # fmt: skip

    made = maker(model)
    keep: frozenset[str] = frozenset()
    if side == "target" and (names := setting(spec.options, "keep_fp32")):
        keep = find_operators(graph, made.plain().layers(graph.rank), names)
        with _make_folder(spec) as folder:
            model = make_marked_model(core, model, keep, folder)
            graph, made = read_graph(model), maker(model)
    if side == "target" and (path := setting(spec.options, "save_ir")):
        with guard_output(path, Path(path).with_suffix(".bin")):
            save_model(model, path)
        notes.append(say("written", path=path))
    return OpenVinoSession(
        graph=graph, maker=made, inputs=inputs, notes=notes, fused=recipe.fused, keep=keep, tells=side == "target",
        real=real_numbers(spec.model.path),
        by_results=(setting(spec.options, "observe") or ("taps" if device == "CPU" else "results")) == "results",
        versions={"openvino": openvino.__version__, "device": str(core.get_property(device, "FULL_DEVICE_NAME"))},
    )  # fmt: skip


@contextlib.contextmanager
def _make_folder(spec: SessionSpec) -> Iterator[str]:
    """For files that are read at once: gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="openvino-", dir=spec.work_dir or None) as folder:
        yield folder


def _choose_device(core: Any, asked: str, recipe: Recipe) -> str:
    """Return the device by OpenVINO's name. Raises BackendUnavailable where it is not there, or lacks the precision."""
    found = [str(name) for name in core.available_devices]
    name = asked.upper()
    if name.partition(".")[0] not in {one.partition(".")[0] for one in found}:
        hint = say("has_devices", names=", ".join(found) or "none")
        raise BackendUnavailable(say("no_device", name=asked), where=recipe.mode.name, hint=hint)
    if missing := find_lacking(recipe, core.get_property(name, "OPTIMIZATION_CAPABILITIES")):
        what = say("lacks_precision", device=name, precision=missing)
        raise BackendUnavailable(what, where=recipe.mode.name, hint=say("other_device"))
    return name
