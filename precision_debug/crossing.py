"""Across frameworks: pair the tensors of a model and of a file that was exported from it, by their values.

Both are run once in float32, on the same input, before the comparison proper: there, values that belong together are
equal to rounding, whatever the target's own arithmetic does to them later.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from . import registry
from .align import Matches
from .arrays import as_array
from .fingerprint import Fingerprint, pair_by_value, take
from .plan import Opening
from .protocols import Backend, Feeds
from .records import SessionSpec, TensorMeta

__all__ = ["crosses", "match_values"]


def crosses(first: Opening, second: Opening) -> bool:
    """Whether the names of both sides come from different frameworks: a model against a file exported from it."""
    return first.exporter is not None and second.backend is not None and second.backend is not first.backend


def match_values(first: Opening, second: Opening, feeds: Feeds) -> tuple[Matches, tuple[str, ...]]:
    """The pairs, and what to say of them and of the exported weights. Raises PrecisionDebugError."""
    exporter, path = first.exporter, second.spec.model.path
    assert exporter is not None
    assert first.backend is not None
    assert first.mode is not None
    assert second.mode is not None
    reference = second.mode.baseline
    backend, _ = registry.find(second.spec.model, reference)
    notes = list(exporter.check_weights(first.spec, path))
    ours = _prints(first.backend, dataclasses.replace(first.spec, mode=first.mode.baseline), feeds)
    theirs = _prints(backend, dataclasses.replace(second.spec, mode=reference), feeds)
    pairing = pair_by_value(ours, theirs, modules=exporter.modules_in(path))
    found = {
        name: (match.baseline, f"{match.how}, confidence {match.confidence:.4f}")
        for name, match in pairing.matches.items()
    }
    notes.append(
        f"Paired by value in {first.mode.baseline} against {reference}: {len(found)} of the {len(theirs)} tensors of "
        f"{path}; {len(pairing.refused)} refused because values cannot tell them apart."
    )
    return Matches(found=found, refused=pairing.refused), tuple(notes)


def _prints(backend: Backend, spec: SessionSpec, feeds: Feeds) -> Sequence[tuple[TensorMeta, Fingerprint]]:
    session = backend.open(spec, [feeds])
    found: dict[str, Fingerprint | None] = {}

    def keep(op_type: str, name: str, tensor: Any, /) -> None:  # noqa: ARG001
        found[name] = take(as_array(tensor, name=name))

    try:
        session.run(feeds, keep)
        return [(meta, print_) for meta in session.tensors if (print_ := found.get(meta.name)) is not None]
    finally:
        session.close()
