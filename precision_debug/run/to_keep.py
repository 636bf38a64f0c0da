"""What a user types so that the culprits stay in higher precision: the setting of the run mode at hand, with names."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence

from .. import explain, registry
from ..errors import PrecisionDebugError
from ..numbers.precisions import promised
from ..protocols import Feeds, Keep
from ..reasons import as_reason
from ..records import Culprit, Row, TensorMeta
from ..search import ToKeep, Units
from .plan import Opening

__all__ = ["to_keep"]


def to_keep(
    target: Opening, tensors: Sequence[TensorMeta], targets: Mapping[str, TensorMeta], rows: Sequence[Row],
    culprits: Sequence[Culprit], calibrating: Sequence[Feeds], *, foreign: bool,
) -> ToKeep | None:  # fmt: skip
    """How the target keeps what higher precision mends, each with what reads it.

    tensors: the baseline's. targets: the target's, by name. foreign: the baseline is another model, so that its
    graph says nothing of the target's names. None where there is nothing of the kind, or nobody can tell.
    """
    mended = [one for one in culprits if explain.is_mended(one.cause, target.precision)]
    names = [name for one in mended for name in one.keep or (one.name,)]
    keeper = target.capabilities.keeper
    if not names or target.backend is None:
        return None
    try:
        keep = keeper.keep(target.spec) if keeper is not None else None
    except PrecisionDebugError as error:
        return ToKeep(modes=_others(target), why=as_reason(error.what))
    if keep is None:
        return ToKeep(modes=_others(target))
    with contextlib.suppress(PrecisionDebugError):
        if foreign:
            known = {row.name: targets[row.target_name] for row in rows if row.target_name in targets}
            names = [known[name].origin or known[name].name for name in names if name in known]
            tensors = _unfused(target, calibrating)
        units = Units(tensors, keep.key_of)
        kept = units.keys(frozenset().union(*map(units.around, names)))
        # what makes no floats of them (ArgMax) is no unit of a search's, and rounds what it reads all the same
        others = (keep.key_of(meta) for meta in tensors if units.of(meta.name) is None and {*meta.inputs} & {*names})
        keys = tuple(key for key in dict.fromkeys((*kept, *others)) if key)
        return _typed(target, keep, keys, len(units)) if keys else None
    return None


def _typed(target: Opening, keep: Keep, keys: Sequence[str], of: int) -> ToKeep:
    settings = dict(keep.options(keys))
    table = {setting.name: setting for setting in target.settings}
    return ToKeep(
        option=" ".join(table[name].typed(value) for name, value in settings.items()), settings=settings,
        replaced=tuple(name for name in settings if name in target.spec.options), unit=keep.unit,
        keys=tuple(keys), of=of,
    )  # fmt: skip


def _unfused(target: Opening, calibrating: Sequence[Feeds]) -> Sequence[TensorMeta]:
    """The tensors of the target's own model as it is, with the names that its settings take."""
    assert target.backend is not None
    assert target.mode is not None
    mode = target.mode.baseline
    taken = {one.name for one in target.settings if one.matters("target", mode)} | {"side", "seed"}
    options = {name: value for name, value in target.spec.options.items() if name in taken}
    found, run_mode = registry.find(target.spec.model, mode)
    opening = Opening(
        spec=dataclasses.replace(target.spec, mode=mode, options=options), mode=run_mode, backend=found
    )  # fmt: skip
    session = opening.open(calibrating)
    try:
        return tuple(session.tensors)
    finally:
        session.close()


def _others(target: Opening) -> tuple[str, ...]:
    """Modes of the same backend and precision that run here and can keep something of this model."""
    keeper, wanted = target.capabilities.keeper, promised(target.precision).computes
    found = []
    for backend, mode in registry.modes_for(target.spec.model) if keeper is not None else ():
        same = backend is target.backend and promised(mode.precision).computes == wanted
        if same and backend.availability(mode.name).ok:
            with contextlib.suppress(PrecisionDebugError):
                if keeper is not None and keeper.keep(dataclasses.replace(target.spec, mode=mode.name)) is not None:
                    found.append(mode.name)
    return tuple(found)
