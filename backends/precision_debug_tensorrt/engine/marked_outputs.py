"""Intermediate tensors as further outputs of rebuilt engines: every TensorRT can, and it disturbs the fusion.

A tensor that TensorRT refuses at the build is found by its name in the error, else by halving, and left out.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from precision_debug.errors import BackendError
from precision_debug.inspector import EngineDiff, EngineLayer, diff_engines
from precision_debug.reasons import Reason

from ..make import Built, Maker
from ..reasons import say
from .execution import Runner

__all__ = ["Batch", "Marking", "largest_difference"]

_TRIES = 12


@dataclass(frozen=True, kw_only=True)
class Batch:
    """One rebuilt engine. diff: against the real engine. layers: of the rebuilt one. text: its inspector's JSON."""

    names: tuple[str, ...]
    built: Built
    layers: tuple[EngineLayer, ...]
    diff: EngineDiff
    text: str


@dataclass(kw_only=True)
class Marking:
    """Rebuilds with marks and runs.

    real: layers of the undisturbed engine. refused: filled with the tensors that TensorRT did not let be marked.
    open_runner: makes a Runner with the inputs set. kept: engines of earlier runs; one that shows all that is asked
    for is used again, so that a tensor's value does not depend on which others are looked at.
    """

    maker: Maker
    real: Sequence[EngineLayer]
    open_runner: Callable[[Built, Mapping[str, Any]], Runner]
    refused: dict[str, Reason] = field(default_factory=dict)
    kept: list[Batch] = field(default_factory=list)
    failures: int = 0

    def batches(self, names: Sequence[str], feeds: Mapping[str, Any]) -> Iterator[tuple[Batch, Runner]]:
        """Engines that together show ``names``, each with a Runner that has run; the caller closes it."""
        kept = next((batch for batch in self.kept if set(names) <= set(batch.names)), None)
        if kept is not None:
            runner = self.open_runner(self.maker.load(kept.built), feeds)
            runner.run()
            yield kept, runner
            return
        waiting = [tuple(names)]
        while waiting:
            part = waiting.pop(0)
            if not part:
                continue
            try:
                built = self.maker.build(part)
                runner = self.open_runner(built, feeds)
            except BackendError as error:
                waiting = [*self._without_refused(part, error), *waiting]
                continue
            text, layers = runner.inspect()
            try:
                runner.run()
            except BackendError:
                runner.close()
                if len(part) == 1:
                    raise
                waiting = [part[: len(part) // 2], part[len(part) // 2 :], *waiting]
                continue
            diff = diff_engines(self.real, layers)
            plan = dataclasses.replace(built, engine=None, runtime=None)
            batch = Batch(names=part, built=plan, layers=layers, diff=diff, text=text)
            self.kept.append(batch)
            yield batch, runner

    def _without_refused(self, part: tuple[str, ...], error: BackendError) -> list[tuple[str, ...]]:
        """What to try next after a build with ``part`` failed."""
        self.failures += 1
        if len(part) == 1 or self.failures > _TRIES:
            for name in part:
                self.refused[name] = say("not_built", detail=error.what)
            return []
        named = {name for name in part if re.search(rf"(?<![\w/.]){re.escape(name)}(?![\w/.])", error.what)}
        if named and len(named) < len(part):
            for name in named:
                self.refused[name] = say("refused", detail=error.what)
            return [tuple(name for name in part if name not in named)]
        half = len(part) // 2
        return [part[:half], part[half:]]


def largest_difference(real: Mapping[str, Any], marked: Mapping[str, Any]) -> float:
    """Largest |difference| between outputs of the same name; nan where one is not finite and the other differs."""
    worst = 0.0
    for name in set(real) & set(marked):
        a, b = np.asarray(real[name]), np.asarray(marked[name])
        if a.shape == b.shape and a.size and a.dtype.kind in "fiub":
            with np.errstate(all="ignore"):
                gap = np.abs(a.astype(np.float64) - b.astype(np.float64))
            gap = np.where(a == b, 0.0, gap)
            worst = max(worst, float(np.max(gap))) if not np.isnan(gap).any() else float("nan")
    return worst
