"""``compare``: the whole command as one Python call."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from . import events
from .errors import InputError, PrecisionDebugError, UsageError
from .reasons import say
from .records import ModelFiles, RunSpec, Tolerance
from .report.formats import refuse_unknown
from .report.model import Report
from .report.outputs import make_ready
from .run import deliver, pipeline, supervisor
from .run.companion_files import refuse_overwriting
from .run.journal import Journal
from .run.locked_folder import JOURNAL, make_scratch_folder, run_folder
from .run.plan import make_plan
from .settings.options import check_tolerance, list_options, spec_of

__all__ = ["compare"]

_LOG = logging.getLogger("precision_debug.compare")
logging.getLogger("precision_debug").addHandler(logging.NullHandler())  # silent until the user sets up logging


def compare(
    model: str | Path | ModelFiles,
    *,
    run_mode: str,
    baseline_model: str | Path | ModelFiles | None = None,
    inputs: str | Path | Mapping[str, Any] | Sequence[Mapping[str, Any]] = "",
    tolerance: Tolerance | None = None,
    output: str | Path | Sequence[str | Path] = (),
    isolated: bool = False,
    **options: Any,
) -> Report:
    """Run a model in two modes on the same input and compare every tensor.

    model: a path, or ModelFiles where parameters lie in a file of their own. inputs: what --inputs takes, or arrays
    by input name (a sequence of them: each is a sample, and is compared). tolerance: in place of atol and rtol;
    without any of them a tensor passes where its error is what the target's arithmetic must lose.
    output: files to write, by suffix. isolated: run in a supervised child process, as the command line does; then
    ``inputs`` must be a path, and a crash raises BackendCrash after the partial report was written.
    options: those of the command line, as ``doctor --settings`` lists them, and the backends' own settings, for
    every side that reads them; ``**{"baseline.KEY": value}`` is for one side.
    Raises PrecisionDebugError; an out-of-tolerance result is not an error. Nothing is printed: the logger
    "precision_debug.compare" has each stage and note (INFO) and each finished row (DEBUG).
    """
    arrays = () if isinstance(inputs, (str, os.PathLike)) else _as_sample_sets(inputs)
    chosen = {"run_mode": run_mode, "inputs": "" if arrays else inputs, **options}
    spec = _spec_of(
        _as_model_files(model, "model"), None if baseline_model is None else _as_model_files(baseline_model,
        "baseline_model"), chosen,
        tolerance,
    )  # fmt: skip
    several = isinstance(output, Iterable) and not isinstance(output, (str, os.PathLike))
    named: Iterable[Any] = output if several else (output,)  # type: ignore[assignment]
    outputs = [Path(_as_path_text(one, "output")) for one in named]
    for path in outputs:  # what is wrong with the call itself is said before anything is written
        refuse_unknown(path)
    make_plan(spec, check_machine=False)
    if not isolated:
        return _compare_in_this_process(spec, outputs, arrays)
    if arrays:
        raise TypeError("isolated=True takes inputs as a path: arrays do not travel to the child process")
    outcome = supervisor.supervise(spec, outputs or [Path("output/output.xlsx")], on_event=_log_plain)
    if outcome.error is not None:
        raise outcome.error
    assert outcome.report is not None
    return outcome.report


def _spec_of(
    model: ModelFiles, baseline_model: ModelFiles | None, chosen: Mapping[str, Any], tolerance: Tolerance | None
) -> RunSpec:
    """Make a RunSpec; what is no option of the command line, by its name, is a backend's setting."""
    ours = {one.name: one for one in list_options(RunSpec) if one.field.count(".") == 0 or one.field.startswith("tol")}
    values = {name: ours[name].read(one, name) for name, one in chosen.items() if name in ours and one is not None}
    if not values.get("run_mode"):
        raise UsageError(say("no_run_mode"), hint=say("name_the_target"))
    if values.get("record"):
        raise UsageError("compare() does not record runs", where="record", hint="use the command line's --record")
    return spec_of(
        values,
        model=model,
        baseline_model=baseline_model,
        options={name: _to_plain_value(one) for name, one in chosen.items() if name not in ours},
        command="precision_debug.compare",
        **({} if tolerance is None else {"tolerance": check_tolerance(tolerance)}),
    )


def _compare_in_this_process(spec: RunSpec, outputs: Sequence[Path], arrays: Sequence[Mapping[str, Any]]) -> Report:
    """In this process. An error that leaves finished rows behind is raised after their report was written."""
    refuse_overwriting(outputs, spec)
    outputs = [Path(os.path.abspath(path)) for path in outputs]
    make_ready(outputs)
    with contextlib.ExitStack() as stack:
        if outputs:  # beside the first one, so that what is finished needs no room elsewhere
            job = {"outputs": [str(path) for path in outputs], "locks": []}
            folder, held = run_folder(outputs[0].parent, job, hint="choose another place")
            stack.callback(os.close, held)
        else:
            folder, _ = stack.enter_context(make_scratch_folder())
        try:
            with Journal(folder / JOURNAL, on_event=_log) as journal:
                pipeline.execute(spec, journal, folder=folder, feeds=arrays)
        except BaseException as error:
            if outputs and deliver.has_rows(folder):
                said = str(error) if isinstance(error, PrecisionDebugError) else f"{type(error).__name__}: {error}"
                deliver.deliver(folder, outputs, failure=said)
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return deliver.deliver(folder, outputs)


def _log_plain(event: Mapping[str, Any]) -> None:
    """Log an event as it stands in a journal; only where somebody listens is it read."""
    if _LOG.isEnabledFor(logging.INFO) and (found := events.read(event)) is not None:
        _log(found)


def _log(event: Any) -> None:
    match event:
        case events.Stage(text=text) | events.EngineProgress(text=text) | events.Note(text=text):
            _LOG.info("%s", text)
        case events.RowDone(row=row):
            _LOG.debug("%s %s: %s", row.op_type, row.name, row.status.value)
        case events.Failure(text=text):
            _LOG.info("%s", text)


def _as_sample_sets(inputs: Any) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(inputs, Iterable):
        raise InputError(say("no_arrays", kind=type(inputs).__name__), where="inputs")
    samples = (inputs,) if isinstance(inputs, Mapping) else tuple(inputs)
    if not samples:
        raise InputError("contains no samples", where="inputs", hint="give arrays by input name")
    for sample in samples:
        if not isinstance(sample, Mapping):
            what = f"a sample is {type(sample).__name__}, not arrays by input name"
            raise InputError(what, where="inputs", hint="give {name: array}, or a list of such")
    return samples


def _to_plain_value(value: Any) -> Any:
    """Return a setting's value as it travels: paths as text."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): _to_plain_value(item) for key, item in value.items()}
    return [_to_plain_value(item) for item in value] if isinstance(value, (list, tuple, set, frozenset)) else value


def _as_model_files(model: str | Path | ModelFiles, where: str) -> ModelFiles:
    if isinstance(model, ModelFiles):
        return model
    path = _as_path_text(model, where)
    return ModelFiles(model_dir=path) if os.path.isdir(path) else ModelFiles(model_file=path)


def _as_path_text(given: Any, where: str) -> str:
    """Return a path as text. Raises UsageError for what is none."""
    path = os.fspath(given) if isinstance(given, os.PathLike) else given
    if not isinstance(path, str):
        raise UsageError(say("no_path", kind=type(given).__name__), where=where, hint=say("name_a_file"))
    return path
