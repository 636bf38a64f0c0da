"""Two runs of a module that is in memory already: the pipeline of any command, with a backend that has the module."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from precision_debug.events import Event, RowDone
from precision_debug.records import ModelFiles, Row, RunSpec, SessionSpec, Tolerance
from precision_debug.report.model import Report
from precision_debug.run import deliver, pipeline
from precision_debug.run.journal import Journal
from precision_debug.run.locked_folder import JOURNAL, make_scratch_folder
from precision_debug.run.open_pair import freeze_old_objects
from precision_debug.run.plan import Opening, RunPlan

from . import modes
from .backend import TorchBackend
from .model import Model, example_feeds, from_module

__all__ = ["compare_module"]


def compare_module(
    module: Any,
    inputs: Any,
    *,
    run_mode: str,
    baseline: str = "torch_fp32",
    level: str = "op",
    device: str = "",
    seed: int = 0,
    tolerance: Tolerance | None = None,
    on_row: Callable[[Row], None] | None = None,
    compare_on: str = "",
    loss: Callable[..., Any] | None = None,
    optimiser: Any = None,
    settings: Mapping[str, Any] = MappingProxyType({}),
    explain: str = "off",
) -> Report:
    """Run a live ``nn.Module`` in two modes in lockstep and compare every tensor.

    inputs: a tensor, a tuple of arguments, or a dict of keyword arguments. level: "op" or "module".
    compare_on: "device" or "host"; "" compares on a GPU where the runs are, and otherwise in the host's memory.
    loss, optimiser: of a training step, as a factory returns them; settings: further ones of the backend, "step" among
    them. explain: "off", "fast" or "full".
    on_row: called with each row as it is finished. Memory is the two models plus the tensors of a few operators.
    Raises PrecisionDebugError.
    """
    model = replace(from_module(module, inputs), loss=loss, optimiser=optimiser)
    options = {**settings, "level": level, "device": device, "compare_on": compare_on}
    spec = RunSpec(
        model=ModelFiles(), run_mode=run_mode, baseline=baseline, tolerance=tolerance or Tolerance(), seed=seed,
        explain=explain, options=options, command="precision_debug_torch.live.compare_module",
    )  # fmt: skip

    def tell(event: Event) -> None:
        if on_row is not None and isinstance(event, RowDone):
            on_row(event.row)

    with make_scratch_folder() as (folder, _):
        with freeze_old_objects(), Journal(folder / JOURNAL, on_event=tell) as journal:
            pipeline.execute(spec, journal, folder=folder, feeds=(example_feeds(model),), plan=_plan(model, spec))
        return deliver.deliver(folder, ())


def _plan(model: Model, spec: RunSpec) -> RunPlan:
    backend = TorchBackend(model)

    def side(name: str, mode: str) -> Opening:
        options = {**spec.options, "side": name, "seed": spec.seed, "target_mode": spec.run_mode}
        session = SessionSpec(model=ModelFiles(model_file=model.path), mode=mode, options=options)
        return Opening(spec=session, mode=modes.recipe(mode).mode, backend=backend)

    return RunPlan(baseline=side("baseline", spec.baseline), target=side("target", spec.run_mode))
