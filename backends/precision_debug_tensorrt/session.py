"""One model in one run mode: the real engine, its layers, and every tensor that it or a rebuilt twin lets be seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from precision_debug.errors import BackendError
from precision_debug.inspector import EngineLayer, compare_engines, find_real_precision
from precision_debug.protocols import Feeds, Hook
from precision_debug.reasons import Reason
from precision_debug.records import Doubt, TensorMeta

from .engine.constraints import Asked
from .engine.execution import Runner, listen
from .engine.marked_outputs import Batch, Marking, are_finite, group, largest_difference
from .engine.session_facts import Facts
from .engine.tensor_sizes import Sizes
from .make import Built, Maker
from .naming import LayerIndex
from .reasons import say

__all__ = ["TensorRTSession"]

_AS_LONG = 1.0  # times the real engine's build, that marked ones take before the last is begun
_SHARE = 0.5  # of the free device memory, where the user sets no budget


class TensorRTSession:
    """See protocols.Session.

    ``layers`` are the real engine's, as its inspector lists them for the shapes that were fed. Outputs, and the rows
    of outputs, always come from the real engine; other tensors from a rebuilt one or from the debug listener, and the
    column "Seen In" says which. ``build_seconds``: of the real one's build alone; 0.0 where it was read from a file.
    """

    doubts: Sequence[Doubt] = ()
    alone = arithmetic = ""
    replacer = None

    def __init__(self, *, facts: Facts, built: Built, maker: Maker | None) -> None:
        self._facts, self._built, self._maker = facts, built, maker
        self._tensors = facts.tensors
        self._notes = list(facts.notes)
        self._run_notes: list[Reason] = []
        self._kept: list[Batch] = []
        self._refused: dict[str, Reason] = {}
        self._closed, self.build_seconds = False, built.seconds
        self.versions: Mapping[str, str] = facts.versions
        self.layers: Sequence[EngineLayer] = facts.layers

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        return self._tensors

    @property
    def notes(self) -> Sequence[Reason]:
        return (*self._notes, *self._run_notes)

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        if self._closed:
            raise BackendError("this session is closed", where=self._facts.path)
        self._run_notes = []
        runner = self._open(self._built, feeds)
        seen_by_listener: dict[str, np.ndarray[Any, Any]] = {}
        try:
            if hook is not None and self._maker is None and self._facts.api.debug_tensors:
                listen(runner, seen_by_listener, self._run_notes, unfused=self._facts.api.unfused_debug_tensors)
            runner.run()
            outputs = {name: runner.output(name) for name in runner.outputs()}
            held = {name: self._shown(runner, name) for name in outputs} if hook is not None else {}
        finally:
            runner.close()
        if hook is not None:
            self._show(feeds, hook, names, {**seen_by_listener, **held}, outputs)
            if self._maker is not None:
                self._maker.release()
        return outputs

    def obeyed(self) -> Sequence[str]:
        """Return what the engine's inspector, and the builder, say of each layer that has a precision of its own."""
        words = {True: "runs as asked", False: "does NOT run as asked", None: "not reported"}
        return [
            f"{outcome.asked.node or outcome.asked.layer}{_as_layer(outcome.asked)}"
            f" ({outcome.asked.precision or outcome.asked.output_type}): {words[outcome.obeyed]}"
            + (f"; {outcome.got}" if outcome.got else "")
            for outcome in self._facts.outcomes
        ]

    def close(self) -> None:
        self._closed = True
        if self._maker is not None:
            self._maker.release()
        self._kept = []

    def _open(self, built: Built, feeds: Feeds) -> Runner:
        facts = self._facts
        runner = Runner(facts.api, built, facts.device, facts.messages, facts.path)
        runner.set_inputs(feeds)
        return runner

    def _shown(self, runner: Runner, name: str) -> Any:
        return runner.tensor(name) if self._facts.on_device else runner.output(name)

    def _show(
        self, feeds: Feeds, hook: Hook, names: Collection[str] | None, known: Mapping[str, Any],
        outputs: Mapping[str, Any],
    ) -> None:  # fmt: skip
        wanted = [meta for meta in self._tensors if not meta.unseen and (names is None or meta.name in names)]
        known = {**{name: np.asarray(feeds[name]) for name in self._facts.inputs if name in feeds}, **known}
        rest = [meta.name for meta in wanted if meta.name not in known]
        if rest and self._maker is None:
            self._drop(dict.fromkeys(rest, "the built engine does not show it"))
            rest = []
        if rest and self._facts.api.debug_tensors and not self._facts.mark_outputs:
            self._show_by_listener(feeds, hook, wanted, known, rest)
        else:
            self._show_by_marks(feeds, hook, wanted, known, rest, outputs)

    def _show_by_marks(
        self, feeds: Feeds, hook: Hook, wanted: Sequence[TensorMeta], known: Mapping[str, Any], rest: Sequence[str],
        outputs: Mapping[str, Any],
    ) -> None:  # fmt: skip
        queue = _Queue(hook, wanted, known)
        if not rest or self._maker is None:
            queue.finish()
            return
        facts = self._facts
        sizes = Sizes(self._built.layers, facts.proto, {name: np.asarray(value) for name, value in feeds.items()})
        budget = facts.memory_budget or int(facts.device.free_bytes() * _SHARE)
        marking = Marking(
            maker=self._maker, real=self.layers, open_runner=self._open, kept=self._kept, refused=self._refused,
            more=facts.marked_builds, longest=_AS_LONG * self._built.seconds,
        )  # fmt: skip
        parts = group(rest, sizes, budget)
        number = 0
        measured: dict[str, dict[str, str]] = {}
        reads = {meta.name: meta.inputs for meta in self._tensors}
        real = LayerIndex(self.layers, reads)
        for part in parts:
            for batch, runner in marking.batches(part, feeds):
                number += 1
                try:
                    for name in (name for name in batch.names if name in part):
                        queue.show(name, self._shown(runner, name))
                    there_too = {n: runner.output(n) for n in runner.outputs() if n in outputs}
                    gap = largest_difference(outputs, there_too)
                finally:
                    runner.close()
                self._run_notes.append(_describe_rebuilt(batch, number, gap))
                if are_finite(there_too) and not are_finite(outputs):
                    marking.finite = True
                    self._run_notes.append(say("rebuilt_finite", number=number))
                if facts.fused_only and not batch.diff.fusion_kept:
                    self._run_notes.append(say("other_fusion", number=number, layers=batch.diff.lost[:3]))
                index = LayerIndex(batch.layers, reads)
                there = {name: _make_columns(real, index, name, facts.node_of(name), number) for name in batch.names}
                measured |= there
                other = sum("Fused Layer There" in columns for columns in there.values())
                if other:
                    self._run_notes.append(say("from_other_fusion", count=other, all=len(there), number=number))
                precisions = [_precisions(real, index, name, facts.node_of(name)) for name in batch.names]
                differ = sum(bool(one and two and one != two) for one, two in precisions)
                if differ:
                    self._run_notes.append(say("other_precision", count=differ, all=len(there)))
                facts.keep_inspector(batch.text, number)
        queue.finish()
        if marking.refused:
            self._run_notes.append(say("not_marked", count=len(marking.refused)))
        self._dress(measured, marking.refused)

    def _show_by_listener(
        self, feeds: Feeds, hook: Hook, wanted: Sequence[TensorMeta], known: Mapping[str, Any], rest: Sequence[str]
    ) -> None:
        """Debug tensors: the unfused variant where TensorRT has it, which leaves the fusion as it is."""
        if self._maker is None:
            return
        unfused = self._facts.api.unfused_debug_tensors
        built = self._maker.build(() if unfused else rest, debug="unfused" if unfused else "marked")
        runner = self._open(built, feeds)
        queue = _Queue(hook, wanted, known)
        seen: dict[str, np.ndarray[Any, Any]] = {}

        def show(name: str, array: Any) -> None:
            try:
                queue.show(name, array)
            except Exception as error:  # nothing may be raised through TensorRT's own call
                queue.fail(error)

        try:
            _, layers = runner.inspect()
            listen(runner, seen, self._run_notes, unfused=unfused, show=show, on_device=self._facts.on_device)
            runner.run()
        finally:
            runner.close()
        queue.raise_error()
        queue.finish()
        diff = compare_engines(self.layers, layers)
        self._run_notes.append(
            say("listened_unfused", diff=diff.summary) if unfused else say("listened_marked", diff=diff.summary)
        )
        shown = set(seen) & {meta.name for meta in wanted}
        lost = [name for name in rest if name not in shown]
        if unfused:
            self._drop(lost)
        else:
            self._dress({}, dict.fromkeys(lost, say("not_listened")))

    def _drop(self, lost: Collection[str]) -> None:
        """Take tensors out of the list that the engine no longer has, so that the report says "fused away"."""
        self._tensors = tuple(meta for meta in self._tensors if meta.name not in lost)

    def _dress(self, measured: Mapping[str, Mapping[str, str]], refused: Mapping[str, Reason]) -> None:
        self._tensors = tuple(
            dataclasses.replace(
                meta,
                unseen=refused.get(meta.name, meta.unseen),
                extra={**meta.extra, **measured.get(meta.name, {})},
            )
            for meta in self._tensors
        )


class _Queue:
    """Calls the hook in execution order: what is known already goes in between what comes."""

    def __init__(self, hook: Hook, wanted: Sequence[TensorMeta], known: Mapping[str, Any]) -> None:
        self._hook, self._known = hook, dict(known)
        self._waiting = list(wanted)
        self._types = {meta.name: meta.op_type for meta in wanted}
        self._error: Exception | None = None

    def show(self, name: str, array: Any) -> None:
        """A tensor has come; what stands before it in the list and is known goes first."""
        if name not in self._types or self._error is not None:
            return
        places = [place for place, meta in enumerate(self._waiting) if meta.name == name]
        if not places:
            return
        before, self._waiting = self._waiting[: places[0]], self._waiting[places[0] + 1 :]
        for meta in before:
            if meta.name in self._known:
                self._hook(meta.op_type, meta.name, self._known[meta.name])
        late = [meta for meta in before if meta.name not in self._known]
        self._waiting = [*late, *self._waiting]
        self._hook(self._types[name], name, array)

    def finish(self) -> None:
        """What is known and was not shown yet."""
        for meta in self._waiting:
            if meta.name in self._known:
                self._hook(meta.op_type, meta.name, self._known[meta.name])
        self._waiting = []

    def fail(self, error: Exception) -> None:
        self._error = self._error or error

    def raise_error(self) -> None:
        """Raise the first error of the hook, which could not be raised inside TensorRT; return where there is none."""
        if self._error is not None:
            raise self._error


def _as_layer(asked: Asked) -> str:
    """Return the layer that a kept node became, where that has another name."""
    return f" as {asked.layer}" if asked.node not in ("", asked.layer) else ""


def _make_columns(real: LayerIndex, index: LayerIndex, name: str, node: str, number: int) -> dict[str, str]:
    """Columns on the rebuilt engine that a tensor was seen in, and on how far that is the real one."""
    layer, before = index.find(name, node), real.find(name, node)
    found = {"Seen In": f"engine rebuilt with marks, {number}"}
    if layer is None:
        return found
    precision, source = find_real_precision(layer)
    found["Precision There"] = precision or f"not reported: {source}"
    if before is not None and not compare_engines([before], [layer]).fusion_kept:
        found["Fused Layer There"] = layer.name
    return found


def _precisions(real: LayerIndex, index: LayerIndex, name: str, node: str) -> tuple[str, str]:
    """In the real engine and in a rebuilt one; "" where one does not tell."""
    found = (at.find(name, node) for at in (real, index))
    first, second = (find_real_precision(layer)[0] if layer is not None else "" for layer in found)
    return first, second


def _describe_rebuilt(batch: Batch, number: int, gap: float) -> Reason:
    same = say("outputs_same") if gap == 0 else say("outputs_apart", gap=gap)
    asked, seconds, count, diff = batch.built.imitated, batch.built.seconds, len(batch.names), batch.diff.summary
    if asked:
        return say("rebuilt_alike", number=number, count=count, diff=diff, same=same, asked=asked, seconds=seconds)
    return say("rebuilt", number=number, count=count, diff=diff, same=same, seconds=seconds)
