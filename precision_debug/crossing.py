"""Across frameworks: pair the tensors of a model and of a file that was exported from it, by their values.

Both are run once in float32, on the same input, before the comparison proper: there, values that belong together are
equal to rounding, whatever the target's own arithmetic does to them later. A recorded baseline needs no framework: its
values are those of the recording.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from . import recording, registry
from .align import Matches
from .arrays import as_array
from .fingerprint import Fingerprint, pair_by_value, take
from .plan import Opening
from .protocols import Backend, Exporter, Feeds, Session, WeightKeeper
from .records import SessionSpec, TensorMeta

__all__ = ["crosses", "match_values"]


def crosses(first: Opening, second: Opening) -> bool:
    """Whether the names of both sides come from different frameworks: a model against a file exported from it."""
    exporter: object = _exporter(first)
    return second.backend is not None and exporter is not None and exporter is not second.backend


def _exporter(side: Opening) -> Exporter | None:
    """The backend whose names the side has, where its models are exported; a recording says which one made it."""
    if not side.recording:
        return side.exporter
    session = recording.open_recording(side.recording)
    session.close()
    made_by: object = next((found for found in registry.backends() if found.name == session.backend), None)
    return made_by if isinstance(made_by, Exporter) else None


def match_values(first: Opening, second: Opening, feeds: Feeds) -> tuple[Matches, tuple[str, ...]]:
    """The pairs, and what to say of them and of the exported weights. Raises PrecisionDebugError."""
    exporter, path = _exporter(first), second.spec.model.path
    assert exporter is not None
    assert second.mode is not None
    reference = second.mode.baseline
    backend, _ = registry.find(second.spec.model, reference)
    if first.recording:
        replayed = recording.open_recording(first.recording)
        known, notes = replayed.mode, _recorded_weights(exporter, replayed.weights(), path)
        ours = _prints(replayed, feeds)
    else:
        assert first.backend is not None
        assert first.mode is not None
        known, notes = first.mode.baseline, list(exporter.check_weights(first.spec, path))
        ours = _prints(_opened(first.backend, first.spec, known, feeds), feeds)
    theirs = _prints(_opened(backend, second.spec, reference, feeds), feeds)
    pairing = pair_by_value(ours, theirs, modules=exporter.modules_in(path))
    found = {
        name: (match.baseline, f"{match.how}, confidence {match.confidence:.4f}")
        for name, match in pairing.matches.items()
    }
    notes.append(
        f"Paired by value in {known} against {reference}: {len(found)} of the {len(theirs)} tensors of "
        f"{path}; {len(pairing.refused)} refused because values cannot tell them apart."
    )
    return Matches(found=found, refused=pairing.refused), tuple(notes)


def _recorded_weights(exporter: object, weights: Mapping[str, Any], path: str) -> list[str]:
    if weights and isinstance(exporter, WeightKeeper):
        return list(exporter.check_arrays(weights, path))
    return ["The exported weights were not checked: the recording does not have the model's."]


def _opened(backend: Backend, spec: SessionSpec, mode: str, feeds: Feeds) -> Session:
    return backend.open(dataclasses.replace(spec, mode=mode), [feeds])


def _prints(session: Session, feeds: Feeds) -> Sequence[tuple[TensorMeta, Fingerprint]]:
    found: dict[str, Fingerprint | None] = {}

    def keep(op_type: str, name: str, tensor: Any, /) -> None:  # noqa: ARG001
        found[name] = take(as_array(tensor, name=name))

    try:
        session.run(feeds, keep)
        return [(meta, print_) for meta in session.tensors if (print_ := found.get(meta.name)) is not None]
    finally:
        session.close()
