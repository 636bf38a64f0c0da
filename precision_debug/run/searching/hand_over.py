"""What a search gives away, each made, loaded and run again as its user would."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from ... import events
from ...errors import BackendUnavailable, PrecisionDebugError
from ...protocols import Handed
from ...reasons import say
from ...search import Artefact, Units
from ..journal import Journal
from .criterion import Sample
from .trials import Trials

__all__ = ["handed_over"]


def handed_over(
    trials: Trials, units: Units, keys: Sequence[str], samples: Sequence[Sample], home: Path, journal: Journal
) -> tuple[Artefact, ...]:
    """The backend's artefacts for kept units, in ``home``, verified on every sample. Raises PrecisionDebugError."""
    home.mkdir(parents=True, exist_ok=True)
    tensors = [meta for unit in units.units for meta in unit.metas]
    made = []
    for handed in trials.keep.hand_over(keys, tensors, home):
        journal.write(events.Stage(text=say("stage_handing_over", title=handed.title)))
        made.append(_verified(trials, handed, samples))
    return tuple(made)


def _verified(trials: Trials, handed: Handed, samples: Sequence[Sample]) -> Artefact:
    """What cannot be run on this machine is not verified; what does not load or hold is said to fail."""
    plain = Artefact(kind=handed.kind, title=handed.title, path=handed.path, text=handed.text, note=handed.note)
    try:
        if handed.maker:
            trials.made(handed)
        if handed.mode:
            used, milliseconds = trials.used(handed, samples)
            plain = dataclasses.replace(
                plain, verified=used.passes, error=used.error, milliseconds=milliseconds,
                note=_joined(handed.note, used.text),
            )  # fmt: skip
        if handed.path:
            beside = Path(f"{handed.path}.data")
            size = Path(handed.path).stat().st_size + (beside.stat().st_size if beside.exists() else 0)
            plain = dataclasses.replace(plain, bytes=size)
    except BackendUnavailable as error:
        return dataclasses.replace(plain, note=_joined(handed.note, str(error)))
    except (PrecisionDebugError, OSError) as error:
        return dataclasses.replace(plain, verified=False, note=_joined(handed.note, str(error)))
    return plain


def _joined(*parts: str) -> str:
    return "; ".join(part for part in parts if part)
