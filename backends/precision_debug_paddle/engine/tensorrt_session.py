"""A session on a TensorRT engine: marked anew where other tensors are asked for."""

from __future__ import annotations

import gc
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.errors import BackendError, BackendUnavailable, UsageError
from precision_debug.inspector import EngineLayer, diff_engines, ran_instead
from precision_debug.protocols import Feeds, Hook, Session
from precision_debug.reasons import NOTHING, Reason
from precision_debug.records import Doubt, SessionSpec, TensorMeta

from .. import naming
from ..model import Model
from ..modes import Recipe
from ..reasons import say
from ..session import HookSession, meta_of, metas_of
from ..settings import setting
from . import capability
from .framework import keep_kernels_loaded
from .inspector_files import WANTED, columns, norms_apart, precision_note, precisions_differ, without_suffixes
from .predictor import Runner
from .tensorrt import Builder

__all__ = ["ENGINE", "EngineSession", "open_tensorrt", "outputs_apart"]

ENGINE = "tensorrt_engine"
_OUTSIDE = "use a GPU that the wheel has code for, or try --option min_subgraph_size=1"
_CALIBRATES = (
    "calibration needs a static shape, and with one Paddle gives TensorRT no matrix product: write fully connected "
    "layers as 1x1 convolutions, quantise the model before (PaddleSlim), or use a GPU that the wheel has code for"
)


def open_tensorrt(
    spec: SessionSpec, model: Model, recipe: Recipe, feeds: Sequence[Feeds], folder: Path, versions: Mapping[str, str]
) -> Session:
    """Build and probe the engine. Raises our errors; what Paddle would abort on is refused before."""
    if model.program.pir:
        from .tensorrt_pir import open_pir

        return open_pir(spec, model, recipe, feeds, folder, versions)
    if not capability.tensorrt_version():
        raise BackendUnavailable(
            "this Paddle has TensorRT for PIR models only (paddle.tensorrt), and this is a legacy program",
            where=model.path,
            hint="export the model with Paddle 3 (.json), or install paddlepaddle-gpu 2.6 with TensorRT",
        )
    if not feeds:
        raise UsageError("an engine is built for given inputs, and there are none", where=model.path)
    keep_kernels_loaded()
    builder = Builder(spec, model, recipe, feeds, folder)
    built, runner = builder.built(())
    return EngineSession(builder, runner, builder.inspected(built), versions)


class EngineSession:
    """Opened with the unmarked engine; ``run`` with a hook builds the one in which the wanted tensors are marked.

    Until then ``tensors`` are those that may be marked; afterwards those that the marked engine showed.
    """

    layers: Sequence[EngineLayer] = ()
    alone = arithmetic = ""
    replacer = None

    def __init__(
        self, builder: Builder, runner: Runner, plain: Sequence[EngineLayer], versions: Mapping[str, str]
    ) -> None:
        self.versions = versions
        self._builder, self._runner, self._plain = builder, runner, plain
        self._outputs = builder.outputs
        self._markable = builder.markable(plain) if setting(builder.options, "mark_all") else ()
        self._marks: tuple[str, ...] = ()
        self._said: tuple[Reason, ...] = ()
        self._shown: HookSession | None = None
        self._closed = False
        extra = columns(plain)
        values = [v for v in builder.model.program.values if v.output or v.name in set(self._markable)]
        self.tensors: Sequence[TensorMeta] = metas_of(
            meta_of(value, op_type=ENGINE, extra=extra.get(value.name, {})) for value in values
        )
        if self._markable:  # before an engine with marks is built, which takes the longest
            self._check_outside(self._probed(plain, {}))
        else:
            self._show(())

    @property
    def notes(self) -> Sequence[Reason]:
        shown = self._shown.notes if self._shown is not None else ()
        said = (*self._builder.notes, self._builder.took(), *self._said, *shown)
        return tuple(dict.fromkeys(note for note in said if note))

    @property
    def doubts(self) -> Sequence[Doubt]:
        """Of the engine that ships, the unmarked one: whether it ran in what the mode asks for."""
        wanted = WANTED[self._builder.recipe.precision]
        instead = ran_instead(self._plain, wanted) if wanted != "FP32" else None
        return (Doubt(code="precision_not_run", values={"precision": wanted, "detail": instead}),) if instead else ()

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        if self._closed:
            raise BackendError("the session is closed", where=self._builder.model.path, hint="open it again")
        if hook is None:
            return self._runner.run(feeds)
        marks = tuple(name for name in self._markable if names is None or name in names)
        if self._shown is None or not set(marks) <= set(self._marks):
            self._show(marks)  # an engine that shows more than is asked for is used again
        assert self._shown is not None
        return self._shown.run(feeds, hook, names)

    def close(self) -> None:
        self._closed = True
        self._runner.close()

    def _show(self, marks: tuple[str, ...]) -> None:
        """Build the engine with these marks, where it is not the one at hand, and learn what it shows."""
        layers, self._said = self._plain, ()
        if marks != self._marks:
            self._runner.close()
            self._shown = None
            gc.collect()
            folder, self._runner = self._builder.built(marks)
            layers = self._builder.inspected(folder)
            self._marks = marks
            self._said = (*self._compared(layers), outputs_apart(self._outputs, self._builder.outputs))
        for marked, built in ((False, self._plain), (True, layers if marks else ())):
            recipe = self._builder.recipe
            self._said += (precision_note(built, recipe.precision, recipe.mode.name, marked=marked),)
        extra = columns(layers, self._plain if marks else ())
        self._said += (precisions_differ(extra),)
        shown = self._probed(layers, extra)
        self._check_outside(shown)
        self._shown = shown
        self.tensors = shown.tensors

    def _probed(self, layers: Sequence[EngineLayer], extra: Mapping[str, Mapping[str, str]]) -> HookSession:
        """What the hook of the engine at hand shows. layers: its own."""
        shown = HookSession(
            self._builder.model, self._runner, versions=self.versions, extra=extra, apart=norms_apart(layers)
        )
        shown.probe(self._builder.feeds[0])
        return shown

    def _compared(self, marked: Sequence[EngineLayer]) -> tuple[Reason, ...]:
        """What the marks did to the engine."""
        if not self._plain or not marked:
            return (say("marks_unknown"),)
        diff = diff_engines(without_suffixes(self._plain), without_suffixes(marked))
        if setting(self._builder.options, "fused_only"):
            return (say("only_fused_marked", diff=diff.summary),)
        if diff.fusion_kept:
            return (say("tensors_marked", count=len(self._marks), diff=diff.summary),)
        before, after = len(self._plain), len(marked)
        told = say("marks_added", count=len(self._marks), more=after - before, before=before, after=after)
        return (told,)

    def _check_outside(self, shown: HookSession) -> None:
        """Operators that Paddle runs itself are worth nothing on a card that it has no code for.

        Those that only compute shapes stay: Paddle runs them on the CPU, and their rows say whether it did.
        """
        around = {kind: count for kind, count in shown.kinds.items() if kind != ENGINE and not naming.carries(kind)}
        outside = {kind: count for kind, count in around.items() if count > shown.whole[kind]}
        if not shown.kinds[ENGINE]:
            shown.add_note(say("no_subgraph"))
        card = capability.gpu()
        if card is None or card.works:
            return
        if outside:
            types = " ".join(sorted(outside)[:6])
            self.close()
            raise BackendUnavailable(
                f"{sum(outside.values())} tensors come from operators that TensorRT did not take ({types}), and "
                f"{card.problem}",
                where=self._builder.model.path,
                hint=_CALIBRATES if self._builder.calibrates else _OUTSIDE,
            )
        if around:
            shown.add_note(say("shapes_outside", types=sorted(around), problem=card.problem))
            return
        shown.add_note(say("all_in_tensorrt", problem=card.problem))


def outputs_apart(real: Mapping[str, Any], marked: Mapping[str, Any]) -> Reason:
    """What marks did to the outputs; "" where that is nothing. real: of the engine that ships."""
    worst = 0.0
    for name in set(real) & set(marked):
        one, two = (np.asarray(side[name]) for side in (real, marked))
        if one.shape != two.shape or not one.size or one.dtype.kind != "f" or np.array_equal(one, two, equal_nan=True):
            continue
        with np.errstate(all="ignore"):
            gap = np.abs(one.astype(np.float64) - two.astype(np.float64)).max() / np.abs(one.astype(np.float64)).max()
        worst = max(worst, float(gap) if np.isfinite(gap) else float("inf"))
    return say("outputs_differ", gap=worst) if worst else NOTHING
