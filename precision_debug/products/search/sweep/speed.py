"""How fast one mode runs, without any hook, in a process of its own: what it builds is that mode's alone."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ....codec import decode, encode
from ....errors import BackendError, InputError, PrecisionDebugError, shorten
from ....records import ModelFiles, RunSpec
from ....run.child import Said, call_in_child
from ....run.content import iterate_external_files
from ....run.inputs import load_feeds
from ....run.plan import RunPlan, make_plan
from ....run.side import guard_call
from .result import Speed

__all__ = ["measure_here", "measure_in_child", "measure_speed"]

WARM_UP, RUNS, MOST = 5, 10, 2000
"""Runs of a round that are not counted, and at least and at most so many that are."""


def measure_speed(spec: RunSpec, *, batch: int = 0, seconds: float = 3.0, log: Path | None = None) -> Speed:
    """Time the target of a command in a child process.

    batch: samples a run, made of the first one; 0: as it is. seconds: for which runs are timed, about. Raises
    PrecisionDebugError: what the mode was refused for, BackendCrash, or BackendError after a signal.
    """
    job = {"spec": encode(spec), "batch": batch, "seconds": seconds}
    return decode(Speed, call_in_child(f"{__name__}:measure_in_child", job, where=spec.run_mode, log=log))


def measure_in_child(job: Mapping[str, Any], folder: Path, _said: Said) -> Any:
    """Return what the child process does."""
    spec = decode(RunSpec, job["spec"])
    made = folder / "models"  # beside the job's own files
    made.mkdir()
    try:
        return encode(measure_here(spec, batch=job["batch"], seconds=job["seconds"], folder=made))
    except PrecisionDebugError:
        raise
    except Exception as error:  # of an engine, or of what it was fed
        raise BackendError(shorten(f"{type(error).__name__}: {error}", 300)) from error


def measure_here(spec: RunSpec, *, batch: int, seconds: float, folder: Path) -> Speed:
    """Time the target of a command in this process. folder: an existing one for what the backend writes."""
    made = make_plan(spec, work_dir=str(folder))
    target = made.target
    feed_set = load_feeds(spec, RunPlan(baseline=None, target=target), ())
    feeds = dict(feed_set.feeds[0]) if not batch else _batch_feeds(feed_set.feeds[0], batch)
    size = batch or _find_batch_size(feeds)
    begun = time.perf_counter()
    session = guard_call(target.label, lambda: target.open(feed_set.calibrating if not batch else [feeds]))
    try:
        guard_call(target.label, lambda: session.run(feeds))
        build = time.perf_counter() - begun
        times = _time_calls(lambda: session.run(feeds), seconds)
        file, bytes_ = _runs(folder, spec.model)
    finally:
        session.close()
    return Speed(
        batch=size, runs=len(times), median=float(np.median(times)), p99=float(np.quantile(times, 0.99)), build=build,
        size=bytes_, file=file, p01=float(np.quantile(times, 0.01)),
    )  # fmt: skip


def _time_calls(call: Any, seconds: float) -> list[float]:
    for _ in range(WARM_UP):
        call()
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < RUNS or (time.perf_counter() < end and len(times) < MOST):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
        if len(times) >= 3 and time.perf_counter() > end + 10 * seconds:  # a run takes longer than the whole time
            break
    return times


def _batch_feeds(feeds: Mapping[str, Any], batch: int) -> dict[str, Any]:
    """Return the first axis of each input that has the batch's size, filled up with its own entries."""
    have = _find_batch_size(feeds)
    found: dict[str, Any] = {}
    for name, value in feeds.items():
        array = np.asarray(value)
        same = array.ndim and array.shape[0] == have
        found[name] = np.take(array, np.arange(batch) % have, axis=0) if same else array
    return found


def _find_batch_size(feeds: Mapping[str, Any]) -> int:
    sizes = [np.shape(value)[0] for value in feeds.values() if np.ndim(value)]
    if not sizes or not sizes[0]:
        raise InputError("no input has a first axis to be the batch", where="--batch_sizes", hint="leave it out")
    return int(sizes[0])


_MODELS = (".onnx", ".engine", ".plan", ".trt", ".pdmodel", ".pdiparams", ".json", ".xml", ".bin", ".pt2", ".ort")


def _runs(folder: Path, model: ModelFiles) -> tuple[str, int]:
    """Return the name and bytes of what runs: the newest models that the backend wrote into its folder, or the user's
    own."""
    written = [path for path in folder.rglob("*") if path.suffix in _MODELS and path.is_file()]
    if written:
        last = max(written, key=lambda path: (path.stat().st_mtime_ns, path.suffix == ".onnx"))
        together = [path for path in last.parent.iterdir() if _is_companion(path, last)]
        if len(together) > 1 or last.suffix != Path(model.path).suffix:  # else its weights are in the user's own file
            return last.name, sum(path.stat().st_size for path in together)
    if ".py" in model.model_file:  # a factory's weights are in no file that we know
        return "", 0
    model_path = Path(model.path)
    files = [path for path in model_path.rglob("*") if path.is_file()] if model_path.is_dir() else [model_path]
    if model.params_file:
        files.append(Path(model.params_file))
    files += [path for path in model_path.parent.glob(f"{model_path.name}*") if path != model_path and path.is_file()]
    if model_path.suffix == ".onnx":
        files += iterate_external_files(model_path)
    return model_path.name, sum(path.stat().st_size for path in {one.resolve() for one in files} if path.exists())


def _is_companion(path: Path, model: Path) -> bool:
    return path.is_file() and path.name.startswith(model.stem)
