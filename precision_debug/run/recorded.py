"""A run that is recorded: alone, or while it is compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from .. import events, recording
from ..feeds import FeedSet
from ..records import RunSpec
from .journal import Journal
from .open_pair import selected
from .open_pair_run import HookChain
from .plan import Opening
from .side import OpenSide
from .unchanged import model_digest

__all__ = ["finish_recording", "record"]


def record(spec: RunSpec, opening: Opening, feed_set: FeedSet, journal: Journal, stored: Callable[[], None]) -> None:
    """Run the target alone, and save its tensors as a recording."""
    with OpenSide("target", opening, feed_set, journal) as side:
        names = selected(spec, side.tensors, journal)
        with recording.RecordingWriter(spec.record, overwrite=True) as writer:

            def tell(_op_type: str, name: str, _tensor: Any, /) -> None:
                journal.write(events.Saved(name=name, stats=None))

            stored()
            outputs = side.run(HookChain(hooks=(writer, tell)), names)
            finish_recording(writer, side, feed_set, outputs)


def finish_recording(
    writer: recording.RecordingWriter, side: OpenSide, feed_set: FeedSet, outputs: Mapping[str, Any]
) -> None:
    """Complete a recording with what the open session says of itself."""
    session, spec, backend = side.session, side.opening.spec, side.opening.backend
    keeper = side.opening.capabilities.weight_keeper
    writer.finish(
        mode=spec.mode,
        precision=session.arithmetic or side.opening.precision,
        backend=backend.name if backend else "recording",
        model=spec.model.path,
        digest=model_digest(spec.model),
        versions=dict(session.versions),
        notes=tuple(session.notes),
        feeds=feed_set.feeds[0],
        tensors=tuple(session.tensors),
        outputs=outputs,
        weights=keeper.weights(spec) if keeper is not None else None,
    )
