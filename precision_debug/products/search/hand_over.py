"""What a search gives away, each made, loaded and run again as its user would."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path

from ... import events
from ...errors import BackendUnavailable, PrecisionDebugError
from ...ownership import choose_free_folder, is_ours, list_foreign_names, remember
from ...protocols import Handed, Keep
from ...reasons import say
from ...run.criterion import Sample
from ...run.journal import Journal
from ...run.trials import Trials
from ...search.fix import Artefact
from ...search.units import Units

__all__ = ["hand_over"]

_AGAIN = 1.5
"""Times the error that a trade had when it was searched for, which may have been in a simulation, up to which it is the
same again."""


def hand_over(
    trials: Trials, keep: Keep, units: Units, keys: Sequence[str], samples: Sequence[Sample], home: Path,
    journal: Journal, goal: float | None = None,
) -> tuple[Artefact, ...]:  # fmt: skip
    """Return the backend's artefacts for kept units, in ``home``, verified on every sample. Raises PrecisionDebugError.

    goal: the error that they must come to, where they are a trade that misses what was asked for.

    Where files of their names there are not ours, the next free folder is taken, and a note says so.
    """
    tensors = [meta for unit in units.units for meta in unit.metas]
    place = home
    if list_foreign_names(home):
        with tempfile.TemporaryDirectory(dir=trials.folder) as trial:
            paths = [Path(handed.path) for handed in keep.hand_over(keys, tensors, Path(trial)) if handed.path]
            names = [path.name for path in paths if path.parent == Path(trial)]
        beside = [f"{name}.data" for name in names] + [str(Path(name).with_suffix(".bin")) for name in names]
        place = choose_free_folder(home, [*names, *beside])
    place.mkdir(parents=True, exist_ok=True)
    before, made = {path for path in place.rglob("*") if not is_ours(path)}, []
    for handed in keep.hand_over(keys, tensors, place):
        journal.write(events.Stage(text=say("stage_handing_over", title=handed.title)))
        made.append(_verify_artefact(trials, handed, samples, goal))
    for path in place.rglob("*"):
        if path.is_file() and path not in before:
            remember(path)
    if place != home:
        journal.write(events.Note(text=say("other_name", name=str(place))))
    return tuple(made)


def _verify_artefact(trials: Trials, handed: Handed, samples: Sequence[Sample], goal: float | None) -> Artefact:
    """Return what cannot be run on this machine is not verified; what does not load or hold is said to fail."""
    plain = Artefact(kind=handed.kind, title=handed.title, path=handed.path, text=handed.text, note=handed.note)
    try:
        if handed.maker:
            trials.made(handed)
        elsewhere = handed.mode != trials.mode and not handed.model  # which may write no file for the user's own check
        if handed.mode and not (elsewhere and trials.criterion.check is not None):
            used, milliseconds = trials.used(handed, samples)
            good, text = used.passes, used.text
            if goal is not None:
                good = good or (used.error is not None and used.error <= _AGAIN * goal)
                text = "" if good else text
            plain = dataclasses.replace(
                plain, verified=good, error=used.error, milliseconds=milliseconds, note=_joined(handed.note, text)
            )
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
