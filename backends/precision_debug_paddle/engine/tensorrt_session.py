"""A session on a TensorRT engine: marked anew where other tensors are asked for."""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.errors import BackendError, BackendUnavailable, UsageError
from precision_debug.inspector import EngineLayer, compare_engines, list_ran_instead
from precision_debug.numbers.number_types import NUMBER_TYPES
from precision_debug.protocols import Feeds, Hook, Session
from precision_debug.reasons import NOTHING, Reason
from precision_debug.records import Doubt, SessionSpec, TensorMeta

from .. import naming
from ..model import Model
from ..modes import Recipe
from ..reasons import say
from ..session import HookSession, list_metas, make_meta
from ..settings import setting
from . import capability
from .framework import keep_kernels_loaded
from .inspector_files import (
    columns,
    find_separate_norms,
    list_kept,
    note_other_precisions,
    precision_note,
    without_suffixes,
)
from .predictor import Runner
from .tensorrt import Builder

__all__ = ["ENGINE", "EngineSession", "note_outputs_apart", "open_tensorrt"]

ENGINE = "tensorrt_engine"
_OUTSIDE = "use a GPU that the wheel has code for, or try --option min_subgraph_size=1"
_PRODUCTS = frozenset({"matmul", "matmul_v2", "mul"})
"""What Paddle gives TensorRT with dynamic shapes only."""
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
    _check_products(builder)
    return EngineSession(builder, versions)


def _check_products(builder: Builder) -> None:
    """Refuse before anything is built what calibration leaves outside the engine, and the card cannot run.

    Each part that is left is calibrated for itself, which takes minutes to end in the same."""
    card = capability.gpu()
    outside = [value.op_type for value in builder.model.program.values if value.op_type in _PRODUCTS]
    if builder.calibrates and outside and card is not None and not card.works:
        raise BackendUnavailable(
            f"{len(outside)} matrix products ({' '.join(sorted(set(outside)))}) stay outside TensorRT, and "
            f"{card.problem}",
            where=builder.model.path, hint=_CALIBRATES,
        )  # fmt: skip


class EngineSession:
    """``run`` with a hook builds the engine in which the wanted tensors are marked, and the one that ships.

    The marked one comes first, so that its tensors are seen before the other is there to hold them against: a build of
    a real model takes a minute or more. Only with fused_only, and where nothing is marked, the one that ships is built
    at once. Until then ``tensors`` are those that may be marked; afterwards those that were shown.
    """

    layers: Sequence[EngineLayer] = ()
    alone = arithmetic = ""
    replacer = None

    def __init__(self, builder: Builder, versions: Mapping[str, str]) -> None:
        self.versions = versions
        self._builder = builder
        self._runner: Runner | None = None
        self._plain: Sequence[EngineLayer] | None = None  # layers of the one that ships; None: it is not built yet
        self._outputs: Mapping[str, Any] = {}
        self._marked_outputs: Mapping[str, Any] = {}
        self._marked_layers: Sequence[EngineLayer] = ()
        self._marks: tuple[str, ...] = ()
        self._said: tuple[Reason, ...] = ()
        self._shown: HookSession | None = None
        self._closed = False
        marked, fused_only = setting(builder.options, "mark_all"), setting(builder.options, "fused_only")
        if not marked or fused_only:
            self._build_plain()
        self._markable = builder.markable(self._plain or ()) if marked else ()
        extra = columns(self._plain or ())
        values = [v for v in builder.model.program.values if v.output or v.name in set(self._markable)]
        self.tensors: Sequence[TensorMeta] = list_metas(
            make_meta(value, op_type=ENGINE, extra=extra.get(value.name, {})) for value in values
        )
        if not self._markable:
            self._show(())
        elif fused_only:  # before an engine with marks is built, which takes the longest
            self._check_outside(self._probed(self._plain or ()))

    @property
    def notes(self) -> Sequence[Reason]:
        shown = self._shown.notes if self._shown is not None else ()
        said = (*self._builder.notes, self._builder.took(), *self._said, *shown)
        return tuple(dict.fromkeys(note for note in said if note))

    @property
    def doubts(self) -> Sequence[Doubt]:
        """Of the engine that ships, the unmarked one: whether it ran in what the mode asks for."""
        wanted = NUMBER_TYPES[self._builder.recipe.precision].short
        instead = list_ran_instead(self._plain or (), wanted) if wanted != "FP32" else None
        return (Doubt(code="precision_not_run", values={"precision": wanted, "detail": instead}),) if instead else ()

    def obeyed(self) -> Sequence[str]:
        """Return what the inspector says of each output whose operator is to stay in FP32, in the engine that ships."""
        found = list_kept(self._plain or (), setting(self._builder.options, "disable_tensorrt_half_ops"))
        tf32 = f"runs in TF32, as FP32 layers of {self._builder.recipe.mode.name} may"
        words = {"FP32": "runs as asked", "TF32": tf32, "": "not reported"}
        return [f"{name} (FP32): {words.get(real, f'does NOT run as asked; {real}')}" for name, real in found.items()]

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        if self._closed:
            raise BackendError("the session is closed", where=self._builder.model.path, hint="open it again")
        if hook is None:
            if self._runner is None:
                self._build_plain()
            assert self._runner is not None
            return self._runner.run(feeds)
        marks = tuple(name for name in self._markable if names is None or name in names)
        if self._shown is None or not set(marks) <= set(self._marks):
            self._show(marks)  # an engine that shows more than is asked for is used again
        assert self._shown is not None
        outputs = self._shown.run(feeds, hook, names)
        if self._plain is None:
            self._hold_against_plain()
        return outputs

    def close(self) -> None:
        self._closed = True
        self._close_runner()

    def _close_runner(self) -> None:
        if self._runner is not None:
            self._runner.close()
        self._runner = self._shown = None
        gc.collect()

    def _build_plain(self) -> None:
        """The engine that ships, as the one at hand."""
        self._close_runner()
        self._marks = ()
        folder, self._runner = self._builder.built(())
        self._plain, self._outputs = self._builder.inspected(folder), self._builder.outputs

    def _show(self, marks: tuple[str, ...]) -> None:
        """Build the engine with these marks, where it is not the one at hand, and learn what it shows."""
        if marks:
            self._close_runner()
            folder, self._runner = self._builder.built(marks)
            self._marked_layers, self._marked_outputs = self._builder.inspected(folder), self._builder.outputs
            self._marks = marks
        elif self._plain is None or self._runner is None or self._marks:
            self._build_plain()
        shown = self._probed(self._marked_layers if marks else self._plain or ())
        self._check_outside(shown)
        self._shown = shown
        self.tensors = shown.tensors
        if self._plain is not None:
            self._judge_marks()
        else:
            self._dress(columns(self._marked_layers))

    def _hold_against_plain(self) -> None:
        """Build the engine that ships too, and let it go; the marked one stays, for who asks for its tensors again."""
        folder, runner = self._builder.built(())
        self._plain, self._outputs = self._builder.inspected(folder), self._builder.outputs
        runner.close()
        del runner
        gc.collect()
        self._judge_marks()

    def _judge_marks(self) -> None:
        """What is said of both engines, and the columns that tell one from the other."""
        plain, marked = self._plain or (), self._marked_layers if self._marks else ()
        said = []
        if self._marks:
            said += [*self._compared(marked), note_outputs_apart(self._outputs, self._marked_outputs)]
        recipe = self._builder.recipe
        for is_marked, built in ((False, plain), (True, marked)):
            said.append(precision_note(built, recipe.precision, recipe.mode.name, marked=is_marked))
        extra = columns(marked or plain, plain if self._marks else ())
        self._said = (*said, note_other_precisions(extra))
        self._dress(extra)

    def _dress(self, extra: Mapping[str, Mapping[str, str]]) -> None:
        self.tensors = tuple(dataclasses.replace(meta, extra=extra.get(meta.name, {})) for meta in self.tensors)

    def _probed(self, layers: Sequence[EngineLayer]) -> HookSession:
        """Return what the hook of the engine at hand shows. layers: its own."""
        assert self._runner is not None
        builder = self._builder
        shown = HookSession(
            builder.model,
            self._runner,
            versions=self.versions,
            apart=find_separate_norms(layers),
            scalars=builder.scalars,
        )
        shown.probe(builder.feeds[0])
        return shown

    def _compared(self, marked: Sequence[EngineLayer]) -> tuple[Reason, ...]:
        """Return what the marks did to the engine."""
        if not self._plain or not marked:
            return (say("marks_unknown"),)
        diff = compare_engines(without_suffixes(self._plain), without_suffixes(marked))
        if setting(self._builder.options, "fused_only"):
            return (say("only_fused_marked", diff=diff.summary),)
        if diff.fusion_kept:
            return (say("tensors_marked", count=len(self._marks), diff=diff.summary),)
        before, after = len(self._plain), len(marked)
        note = say("marks_added", count=len(self._marks), more=after - before, before=before, after=after)
        return (note,)

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


def note_outputs_apart(real: Mapping[str, Any], marked: Mapping[str, Any]) -> Reason:
    """Return what marks did to the outputs; "" where that is nothing. real: of the engine that ships."""
    worst = 0.0
    for name in set(real) & set(marked):
        one, two = (np.asarray(side[name]) for side in (real, marked))
        if one.shape != two.shape or not one.size or one.dtype.kind != "f" or np.array_equal(one, two, equal_nan=True):
            continue
        with np.errstate(all="ignore"):
            gap = np.abs(one.astype(np.float64) - two.astype(np.float64)).max() / np.abs(one.astype(np.float64)).max()
        worst = max(worst, float(gap) if np.isfinite(gap) else float("inf"))
    return say("outputs_differ", gap=worst) if worst else NOTHING
