"""Which pass of the engine keeps a target from being built or run at all: it is built with passes off, by bisection.

Such a pass makes a graph that the engine itself then refuses, and what the engine says blames the model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

from ..errors import BackendCrash, BackendError, ModelError, PrecisionDebugError
from ..explain.ladder import explain as bisected
from ..protocols import Feeds, Rung
from ..reasons import say
from ..settings import without_saving
from .faulty_pass import option_of, work_of_file
from .plan import Opening

__all__ = ["MOST_BYTES", "with_stopping_pass"]

MOST_BYTES = 128 << 20
"""Of the model's file, up to which the pass is looked for."""


def with_stopping_pass(
    error: PrecisionDebugError, target: Opening, feeds: Feeds, sets: Collection[Feeds]
) -> PrecisionDebugError:
    """The error; where the target runs once passes are off, one that names them and what switches them off.

    feeds: the target's. sets: what it is calibrated on. An engine that took its process with it is not asked again.
    """
    ladder = target.capabilities.ladder if target.backend is not None else None
    if ladder is None or isinstance(error, BackendCrash) or not isinstance(error, BackendError | ModelError):
        return error
    if work_of_file(target) > MOST_BYTES:
        return error
    calibrating = tuple(sets)

    def runs(options: Mapping[str, Any]) -> bool:
        return _runs(target, options, feeds, calibrating)

    try:
        if runs({}):  # it is not the target, or it fails by chance
            return error
        rung = Rung(name=target.spec.mode, mode=target.spec.mode)
        switches = [one for one in ladder.switches(target.spec, rung, ()) if one.quick and not one.needs]
    except PrecisionDebugError:
        return error
    for switch in switches:
        found = bisected(switch, runs)
        if found.found:
            named = " and ".join(found.off)
            return BackendError(
                say("stopped_by_pass", passes=named, why=error.what), where=error.where,
                hint=say("runs_without", option=option_of(target, switch, found.off), paste=found.snippet),
            )  # fmt: skip
    return error


def _runs(target: Opening, options: Mapping[str, Any], feeds: Feeds, sets: tuple[Feeds, ...]) -> bool:
    spec = dataclasses.replace(target.spec, options={**without_saving(target.spec.options), **options})
    try:
        session = dataclasses.replace(target, spec=spec, comparer=None).open(sets)
        try:
            session.run(feeds)
        finally:
            session.close()
    except Exception:  # whatever a backend raises: it does not run so
        return False
    return True
