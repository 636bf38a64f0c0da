"""``compare``: the whole command as one Python call."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import InputError, OutputError, PrecisionDebugError, UsageError
from .records import ModelFiles, RunSpec, Tolerance
from .report.formats import refuse_unknown
from .report.model import Report
from .report.readiness import make_ready
from .run import deliver, pipeline, supervisor
from .run.folder import JOURNAL, PREFIX
from .run.journal import Journal
from .run.overwriting import refuse_overwriting
from .run.plan import make_plan

__all__ = ["compare"]

_EXPLAIN = ("off", "fast", "full")


def compare(
    model: str | Path | ModelFiles,
    *,
    run_mode: str,
    baseline: str = "",
    baseline_model: str | Path | ModelFiles | None = None,
    inputs: str | Path | Mapping[str, Any] | Sequence[Mapping[str, Any]] = "",
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    val_range: tuple[float, float] | Mapping[str, tuple[float, float]] | None = None,
    seed: int = 0,
    atol: float | None = None,
    rtol: float | None = None,
    tolerance: Tolerance | None = None,
    marks: Sequence[str] = (),
    marks_between: tuple[str, str] | None = None,
    renames: Mapping[str, str] | None = None,
    labels: str | Path = "",
    output: str | Path | Sequence[str | Path] = (),
    lockstep: bool | None = None,
    validate: bool = False,
    top1: bool = False,
    explain: str = "fast",
    fused_only: bool = False,
    isolated: bool = False,
    **options: Any,
) -> Report:
    """Run a model in two modes on the same input and compare every tensor.

    model: a path, or ModelFiles where parameters lie in a file of their own. inputs: what --inputs takes, or arrays
    by input name (a sequence of them: each is a sample, and is compared). tolerance: in place of atol and rtol;
    without any of them a tensor passes where its error is what the target's arithmetic must lose.
    explain: "off", "fast" or "full": who introduced the error, and why.
    output: files to write, by suffix. isolated: run in a supervised child process, as the command line does; then
    ``inputs`` must be a path, and a crash raises BackendCrash after the partial report was written.
    options: the backends' own settings (docs/settings.md), for every side that reads them;
    ``**{"baseline.KEY": value}`` is for one side. Raises PrecisionDebugError; an out-of-tolerance result is no error.
    """
    arrays = () if isinstance(inputs, (str, Path)) else _samples(inputs)
    spec = RunSpec(
        model=_files(model),
        run_mode=run_mode,
        baseline=baseline,
        baseline_model=None if baseline_model is None else _files(baseline_model),
        inputs="" if arrays else str(inputs),
        input_shapes={name: tuple(shape) for name, shape in (input_shapes or {}).items()},
        val_range=val_range if isinstance(val_range, Mapping) else {"": val_range} if val_range else {},
        seed=seed,
        tolerance=tolerance or _tolerance(atol, rtol),
        marks=tuple(marks),
        marks_between=marks_between,
        renames=dict(renames or {}),
        labels=str(labels),
        lockstep=lockstep,
        validate=validate,
        top1=top1,
        explain=explain,
        fused_only=fused_only,
        options={name: _plain(value) for name, value in options.items()},
        command="precision_debug.compare",
    )
    outputs = [Path(output)] if isinstance(output, (str, Path)) else [Path(path) for path in output]
    _refuse(spec, outputs)  # what is wrong with the call itself is said before anything is written
    make_plan(spec, check_machine=False)
    if isolated:
        if arrays:
            raise TypeError("isolated=True takes inputs as a path: arrays do not travel to the child process")
        outcome = supervisor.supervise(spec, outputs or [Path("output/output.xlsx")])
        if outcome.error is not None:
            raise outcome.error
        assert outcome.report is not None
        return outcome.report
    refuse_overwriting(outputs, spec)
    outputs = [Path(os.path.abspath(path)) for path in outputs]
    make_ready(outputs)
    folder = _folder(outputs)
    try:
        with Journal(folder / JOURNAL) as journal:
            pipeline.execute(spec, journal, folder=folder, feeds=arrays)
    except BaseException as error:
        if outputs and deliver.has_rows(folder):
            said = str(error) if isinstance(error, PrecisionDebugError) else f"{type(error).__name__}: {error}"
            deliver.deliver(folder, outputs, failure=said)
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return deliver.deliver(folder, outputs)


def _samples(inputs: Any) -> tuple[Mapping[str, Any], ...]:
    samples = (inputs,) if isinstance(inputs, Mapping) else tuple(inputs)
    if not samples:
        raise InputError("there is no sample in it", where="inputs", hint="give arrays by input name")
    for sample in samples:
        if not isinstance(sample, Mapping):
            what = f"a sample is {type(sample).__name__}, not arrays by input name"
            raise InputError(what, where="inputs", hint="give {name: array}, or a list of such")
    return samples


def _refuse(spec: RunSpec, outputs: Sequence[Path]) -> None:
    """What the command line's parser would have refused."""
    if spec.explain not in _EXPLAIN:
        what = f"'{spec.explain}' is none of {', '.join(_EXPLAIN)}"
        raise UsageError(what, where="explain", hint="leave it out for 'fast'")
    for name, (low, high) in spec.val_range.items():
        if low > high:
            where = f"val_range of '{name}'" if name else "val_range"
            raise UsageError(f"{low:g}, {high:g} has its low end above its high end", where=where, hint="turn it round")
    for path in outputs:
        refuse_unknown(path)


def _folder(outputs: Sequence[Path]) -> Path:
    """A folder to work in: beside the first output, so that what is finished needs no room elsewhere."""
    try:
        for output in outputs[:1]:
            output.parent.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=PREFIX, dir=outputs[0].parent if outputs else None))
    except OSError as error:
        place = str(outputs[0].parent) if outputs else "TMPDIR"
        raise OutputError(
            f"cannot write there: {error.strerror or error}", where=place, hint="choose another place"
        ) from error


def _plain(value: Any) -> Any:
    """A setting's value as it travels: paths as text."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple, set, frozenset)) else value


def _tolerance(atol: float | None, rtol: float | None) -> Tolerance:
    """One that was not given counts mismatched elements by 1e-4, as ever, but does not decide."""
    plain = Tolerance()
    return Tolerance(
        atol=plain.atol if atol is None else atol,
        rtol=plain.rtol if rtol is None else rtol,
        given=atol is not None or rtol is not None,
    )


def _files(model: str | Path | ModelFiles) -> ModelFiles:
    if isinstance(model, ModelFiles):
        return model
    return ModelFiles(model_dir=str(model)) if Path(model).is_dir() else ModelFiles(model_file=str(model))
