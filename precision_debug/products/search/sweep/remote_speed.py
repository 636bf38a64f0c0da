"""Times a mode where a Ray cluster has the GPUs for it, rather than on this machine."""

from __future__ import annotations

from typing import Any

from ....codec import decode, encode
from ....errors import BackendCrash, BackendError, PrecisionDebugError
from ....reasons import say
from ....records import RunSpec
from ....run.child import watch_signals
from ....run.pools import connect_to_ray
from ....settings.options import Workers
from .result import Speed
from .speed import measure_speed

__all__ = ["measure_remotely"]


def measure_remotely(spec: RunSpec, spread: Workers, *, batch: int, seconds: float) -> Speed:
    """As ``measure_speed``, as one Ray task with the GPUs that were asked for; a lost machine's task is done again.

    Raises PrecisionDebugError.
    """
    ray, _ = connect_to_ray(spread.address)
    task = ray.remote(num_cpus=1, num_gpus=spread.gpus, max_retries=3)(_measure_here)
    asked = task.remote(encode(spec), batch, seconds)
    try:
        with watch_signals() as stopping:
            while not ray.wait([asked], timeout=0.2)[0]:
                if stopping.asked:
                    ray.cancel(asked, force=True)
                    raise BackendError(say("interrupted"), hint=say("nothing_yet"))
        found = ray.get(asked)
    except ray.exceptions.RayError as error:
        raise BackendCrash(f"{type(error).__name__}", where=spec.run_mode) from error
    if "failure" in found:
        raise BackendError(found["failure"], where=spec.run_mode)
    return decode(Speed, found["speed"])


def _measure_here(spec: dict[str, Any], batch: int, seconds: float) -> dict[str, Any]:
    try:
        return {"speed": encode(measure_speed(decode(RunSpec, spec), batch=batch, seconds=seconds))}
    except PrecisionDebugError as error:
        return {"failure": str(error)}
