"""The story in one screen: open both sides, feed both the same, save one, compare the other, keep what happened.

Everything is told to the journal as it is finished; ``assemble`` makes the report of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from . import machine, marks, metrics, recording, scores
from .align import Matches, align, stem
from .arrays import as_array
from .comparing import HostComparer
from .crossing import crosses, match_values
from .errors import BackendError, InputError, PrecisionDebugError, UsageError
from .feeds import FeedSet, make_feeds, save_feeds
from .hooks import AssertClose, SaveBaseline
from .journal import Journal
from .meeting import Meeting, run_both
from .plan import Opening, Plan, make_plan
from .protocols import Comparer, Feeds, Hook, OnDevice, OnDeviceAlone, Session, WeightKeeper
from .records import InputInfo, InputMeta, RunSpec, Side, TensorMeta
from .store import BaselineStore, Store

__all__ = ["execute"]


def execute(spec: RunSpec, journal: Journal, *, folder: Path, feeds: Sequence[Feeds] = ()) -> None:
    """Run a command and tell the journal.

    folder: an existing folder for temporary files and ``inputs``. feeds: arrays that the caller has already, in place
    of ``spec.inputs``. Raises PrecisionDebugError; what was finished before is in the journal.
    """
    begun = time.monotonic()
    journal.write("start", spec=spec, machine=machine.machine(), started=machine.now())
    plan = make_plan(spec, work_dir=str(folder))
    given = _feeds(spec, plan, feeds)
    _store_inputs(given, journal, folder)
    if plan.baseline is None:
        _record(spec, plan.target, given, journal)
    else:
        _compare(spec, plan.baseline, plan.target, given, journal, folder)
    journal.write("end", seconds=time.monotonic() - begun)


def _compare(spec: RunSpec, first: Opening, second: Opening, given: FeedSet, journal: Journal, folder: Path) -> None:
    labels = scores.load_labels(spec.labels) if spec.labels else None
    matches = _matched(first, second, given, journal) if crosses(first, second) else None
    together = _side_by_side(spec, first, second)
    comparer, kept_there = _on_device(first, second) if together else (HostComparer(), None)
    if kept_there is not None:
        first, second = _showing_to(comparer, first), _showing_to(comparer, second)
    alone = None if together else _on_device_alone(first, second)
    if alone is not None:
        comparer, second = alone, _showing_to(alone, second)
    with _open_both(first, second, given, journal, together) as (base, target):
        names = _selected(spec, base.tensors, journal)
        alignment = align(base.tensors, target.tensors, spec.renames, matches)
        paired = {pair.base.name for pair in alignment.pairs.values() if not pair.target.unseen}
        if spec.fused_only:
            names = frozenset(paired if names is None else names & paired)
            journal.write("selected", names=[meta.name for meta in base.tensors if meta.name in names])
        known = {meta.name for meta in base.tensors}
        of_target = None if names is None else {n for n, pair in alignment.pairs.items() if pair.base.name in names}
        seen = [meta for meta in base.tensors if not meta.unseen and (names is None or meta.name in names)]
        journal.write("plan", baseline=len(seen), target=sum(meta.name in paired for meta in seen))

        def may_have_a_partner(key: str) -> bool:
            return key not in known or key in paired or stem(key) in paired

        with Store(folder=folder, memory_budget=spec.options.get("memory_budget")) as store:
            meeting = Meeting(kept_there or store) if together else None
            save = SaveBaseline(
                store=meeting or store,
                wanted=may_have_a_partner,
                on_saved=lambda key, stats: journal.write("saved", name=key, stats=stats),
                comparer=comparer,
            )
            check = AssertClose(
                save,
                tolerance=spec.tolerance,
                alignment=alignment,
                consume=True,
                on_row=lambda row: journal.write("row", row=row),
            )
            with contextlib.ExitStack() as stack:
                hook: Hook = check
                if spec.record:
                    writer = stack.enter_context(recording.RecordingWriter(spec.record))
                    hook = _both(check, writer)
                with _settled(comparer):
                    if meeting is not None:
                        base_outputs, target_outputs = run_both(
                            meeting, lambda: base.run(save, names), lambda: target.run(hook, of_target)
                        )
                    else:
                        base_outputs = base.run(save, names)
                        target_outputs = target.run(hook, of_target)
                if spec.record:
                    _finish_recording(writer, target, given, target_outputs)
            base.announce(save.tensors)
            target.announce(check.tensors)
            journal.write("layers", layers=getattr(target.session, "layers", ()))
            left: BaselineStore = kept_there or store
            for name in left:
                _describe_leftover(name, left.get(name), comparer, journal)
            comparer.settle()
            left.close()
            if store.spilled_bytes:
                text = f"{store.spilled_bytes / 1e6:.0f} MB of baseline tensors waited on disk, beyond --memory_budget."
                journal.write("note", text=text)
        result = scores.score(base_outputs, target_outputs, labels)
        if result:
            journal.write("scores", scores=result)


@contextlib.contextmanager
def _settled(comparer: Comparer) -> Iterator[None]:
    """What was under way at the end is finished and told, also where a run failed."""
    try:
        yield
    except BaseException:
        with contextlib.suppress(Exception):
            comparer.settle()
        raise
    comparer.settle()


def _describe_leftover(name: str, value: Any, comparer: Comparer, journal: Journal) -> None:
    if value is not None:
        comparer.describe(value, lambda stats: journal.write("leftover", name=name, stats=stats))


def _on_device(first: Opening, second: Opening) -> tuple[Comparer, BaselineStore | None]:
    """The backend's own comparer where both sides are its own and share a device; otherwise the host's."""
    backend: object = first.backend
    if first.backend is second.backend and isinstance(backend, OnDevice):
        tools = backend.on_device(first.spec, second.spec)
        if tools is not None:
            return tools
    return HostComparer(), None


def _on_device_alone(first: Opening, second: Opening) -> Comparer | None:
    """The target backend's own comparer where it runs after a baseline in the host's memory; None for the host's."""
    backend: object = second.backend
    return backend.on_device_alone(first.spec, second.spec) if isinstance(backend, OnDeviceAlone) else None


def _showing_to(comparer: Comparer, side: Opening) -> Opening:
    options = {**side.spec.options, "comparer": comparer}
    return dataclasses.replace(side, spec=dataclasses.replace(side.spec, options=options))


@contextlib.contextmanager
def _open_both(
    first: Opening, second: Opening, given: FeedSet, journal: Journal, together: bool
) -> Iterator[tuple[_Side, _Side]]:
    """Both sides, opened at the same time where they will also run so, and closed whatever happens."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(1) as beside:
        later = beside.submit(_Side, "target", second, given, journal) if together else None
        try:
            base = stack.enter_context(_Side("baseline", first, given, journal))
        except BaseException:
            if later is not None and later.exception() is None:
                later.result().session.close()
            raise
        target = stack.enter_context(later.result() if later is not None else _Side("target", second, given, journal))
        yield base, target


def _matched(first: Opening, second: Opening, given: FeedSet, journal: Journal) -> Matches:
    journal.write("stage", text="pairing both graphs by value")
    matches, notes = match_values(first, second, given.feeds[0])
    journal.write("matches", matches=matches)
    for note in notes:
        journal.write("note", text=note)
    return matches


def _side_by_side(spec: RunSpec, first: Opening, second: Opening) -> bool:
    """Whether both runs advance together; where the user leaves it open, as soon as both sides can."""
    able = all(side.mode is None or side.mode.concurrent for side in (first, second))
    if spec.lockstep and not able:
        side = next(side for side in (first, second) if side.mode is not None and not side.mode.concurrent)
        raise UsageError(f"run mode {side.label} cannot run beside another", where="--lockstep on", hint="leave it out")
    return able if spec.lockstep is None else spec.lockstep


def _record(spec: RunSpec, opening: Opening, given: FeedSet, journal: Journal) -> None:
    with _Side("target", opening, given, journal) as side:
        names = _selected(spec, side.tensors, journal)
        with recording.RecordingWriter(spec.record) as writer:

            def keep(op_type: str, name: str, tensor: Any, /) -> None:
                writer(op_type, name, tensor)
                journal.write("saved", name=name, stats=None)

            outputs = side.run(keep, names)
            _finish_recording(writer, side, given, outputs)


class _Side:
    """One side while it is open; tells the journal what it is and what it has."""

    def __init__(self, role: str, opening: Opening, given: FeedSet, journal: Journal) -> None:
        self.role, self.opening, self.given, self.journal = role, opening, given, journal
        self.seconds: float | None = None
        journal.write("stage", text=f"opening the {role}: {opening.label}")
        self._tell(())
        self.session: Session = _guarded(f"{opening.label}", lambda: opening.open(given.feeds))
        self.announce()

    def __enter__(self) -> _Side:
        return self

    def __exit__(self, *exc: object) -> None:
        self.session.close()

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        return self.session.tensors

    def run(self, hook: Hook, names: Collection[str] | None) -> Mapping[str, Any]:
        self.journal.write("stage", text=f"running the {self.role}: {self.opening.label}")
        begun = time.monotonic()
        outputs: Mapping[str, Any] = _guarded(
            self.opening.label, lambda: self.session.run(self.given.feeds[0], hook, names)
        )
        self.seconds = time.monotonic() - begun
        return outputs

    def announce(self, seen: Sequence[TensorMeta] = ()) -> None:
        """Tell what the session lists, and what its hook showed beyond that."""
        listed = {meta.name for meta in self.session.tensors}
        tensors = [*self.session.tensors, *(meta for meta in seen if meta.name not in listed)]
        self.journal.write("tensors", side=self.role, tensors=tensors)
        self._tell(tensors)

    def _tell(self, tensors: Sequence[TensorMeta]) -> None:
        opening, session = self.opening, getattr(self, "session", None)
        info = Side(
            mode=opening.label,
            backend=opening.backend.name if opening.backend else "recording",
            model=opening.spec.model.path if opening.backend else opening.recording,
            versions=dict(session.versions) if session else {},
            notes=tuple(session.notes) if session else (),
            simulation=bool(opening.mode and opening.mode.simulation),
            tensors=len(tensors),
            seconds=self.seconds,
        )
        self.journal.write("side", side=self.role, info=info)


def _guarded(label: str, call: Callable[[], Any]) -> Any:
    try:
        return call()
    except PrecisionDebugError:
        raise
    except MemoryError as error:
        raise BackendError("out of memory", where=label, hint="use a smaller batch or mark fewer tensors") from error
    except Exception as error:
        raise BackendError(
            f"{type(error).__name__}: {error}", where=label, hint="--verbose shows the traceback"
        ) from error


def _feeds(spec: RunSpec, plan: Plan, feeds: Sequence[Feeds]) -> FeedSet:
    sides = [side for side in (plan.baseline, plan.target) if side is not None]
    recorded = next((side.recording for side in sides if side.recording), "")
    if recorded:
        if spec.inputs or feeds:
            raise InputError("a recorded run brings its own inputs", where=recorded, hint="leave --inputs out")
        session = recording.open_recording(recorded)
        loaded = dict(session.feeds)
        session.close()
        given = FeedSet(feeds=(loaded,), source=f"the inputs of the recording {recorded}", notes=())
        if all(side.recording for side in sides):
            return given
        return _checked(_inputs(next(side for side in sides if not side.recording)), given)
    metas = _inputs(sides[0])
    if not feeds and not spec.inputs and not spec.input_shapes and sides[0].exporter is not None:
        example = sides[0].exporter.examples(sides[0].spec)
        feeds = [example] if example else ()
        source = "the model's own example inputs"
    else:
        source = "arrays from the caller"
    if feeds:
        given = _checked(metas, FeedSet(feeds=tuple(dict(f) for f in feeds), source=source, notes=()))
    else:
        given = make_feeds(
            metas, source=spec.inputs, shapes=spec.input_shapes, val_range=spec.val_range, seed=spec.seed
        )
    return _checked(_inputs(sides[1]), given) if len(sides) > 1 and _differ(sides) else given


def _inputs(side: Opening) -> Sequence[InputMeta]:
    metas: Sequence[InputMeta] = _guarded(side.label, side.inputs)
    return metas


def _differ(sides: Sequence[Opening]) -> bool:
    return sides[0].spec.model != sides[1].spec.model


def _checked(metas: Sequence[InputMeta], given: FeedSet) -> FeedSet:
    from .feeds import check_feeds

    return check_feeds(metas, given)


def _store_inputs(given: FeedSet, journal: Journal, folder: Path) -> None:
    save_feeds(folder / "inputs.npz", given.feeds)
    infos = [_info(name, as_array(value)) for name, value in given.feeds[0].items()]
    journal.write("inputs", inputs=infos, source=given.source, file="")
    for note in given.notes:
        journal.write("note", text=note)
    if len(given.feeds) > 1:
        journal.write(
            "note", text=f"{len(given.feeds)} sample sets were given; the first one is compared, all of them calibrate."
        )


def _info(name: str, array: np.ndarray[Any, Any]) -> InputInfo:
    stats = metrics.describe(array)
    if array.dtype.kind in "OUS":
        data = "\0".join(map(str, array.ravel().tolist())).encode()
    else:
        data = np.ascontiguousarray(array).view(np.uint8).tobytes() if array.size else b""
    digest = hashlib.sha256(data).hexdigest()
    return InputInfo(name=name, dtype=stats.dtype, shape=stats.shape, sha256=digest, min=stats.min, max=stats.max)


def _selected(spec: RunSpec, tensors: Sequence[TensorMeta], journal: Journal) -> frozenset[str] | None:
    patterns = list(spec.marks)
    if spec.marks_from_inspector:
        patterns += marks.get_mark_names_from_serialized_json(spec.marks_from_inspector)
    if not patterns and spec.marks_between is None:
        return None
    names = marks.select(patterns, spec.marks_between, [meta.name for meta in tensors])
    journal.write("selected", names=list(names))
    return frozenset(names)


def _both(*hooks: Hook) -> Hook:
    def call(op_type: str, name: str, tensor: Any, /) -> None:
        for hook in hooks:
            hook(op_type, name, tensor)

    return call


def _finish_recording(
    writer: recording.RecordingWriter, side: _Side, given: FeedSet, outputs: Mapping[str, Any]
) -> None:
    session, spec, backend = side.session, side.opening.spec, side.opening.backend
    writer.finish(
        mode=spec.mode,
        backend=backend.name if backend else "recording",
        model=spec.model.path,
        versions=dict(session.versions),
        notes=tuple(session.notes),
        feeds=given.feeds[0],
        tensors=tuple(session.tensors),
        outputs=outputs,
        weights=backend.weights(spec) if isinstance(backend, WeightKeeper) else None,
    )
