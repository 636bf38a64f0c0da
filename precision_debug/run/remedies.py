"""Known remedies of a cause, each run like a set of kept operators and offered by the same rule.

Another calibration, a scale for each channel, an epsilon that the type can hold: what leaves every operator in the low
precision is offered before what keeps some of them out of it, where it does as much.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import PrecisionDebugError
from ..protocols import Executed, Feeds, Handed, Session
from ..records import Culprit, TensorMeta
from ..search import ENGINE_OPTION, Evaluation, FixRule, ToKeep, gives_up_most
from .plan import Opening
from .searching.criterion import Criterion, Sample
from .searching.trials import Trials
from .to_keep import typed

__all__ = ["Chosen", "tried_remedy", "with_remedy"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Chosen:
    """See keeping.Keep, of which a trial asks for nothing but the settings. named: the settings of each."""

    named: Mapping[str, Mapping[str, Any]]
    unit: str = ENGINE_OPTION
    simulation: str = ""
    saves: tuple[str, ...] = ()

    def key_of(self, _meta: TensorMeta) -> str:
        return ""

    def options(self, keys: Sequence[str]) -> Mapping[str, Any]:
        return {name: value for key in keys for name, value in self.named[key].items()}

    def hand_over(self, _keys: Sequence[str], _tensors: Sequence[TensorMeta], _folder: Path, /) -> Sequence[Handed]:
        return ()


def tried_remedy(
    opening: Opening, culprits: Sequence[Culprit], criterion: Criterion, samples: Sequence[Sample], rule: FixRule,
    calibrating: Sequence[Feeds], folder: Path, *, most: int, patience: float, beside: Session | None = None,
) -> tuple[ToKeep, bool] | None:  # fmt: skip
    """Try the remedies that the backend knows; return the one that does most, and whether it keeps operators wider.

    The remedy as it is pasted, with what it brought, and whether it keeps operators in a higher precision; None where
    none is known or none halves the error and leaves most of the low precision in place, twice and on the other inputs
    too.

    samples: the inputs of the comparison, then others. most: how many may be run. beside: the target as it is, where
    runs may be timed beside it."""
    knows = opening.capabilities.remedies
    found = knows.remedies(opening.spec, culprits)[:most] if knows is not None else ()
    if not found:
        return None
    named = {typed(opening.settings, one.settings): one for one in found}
    chosen = Chosen(named={name: one.settings for name, one in named.items()})
    trials = Trials(opening, chosen, criterion, calibrating, folder)
    ran, since, sets = dict[str, Evaluation](), time.monotonic(), 0
    for name in named:
        if ran and time.monotonic() - since > patience:
            break
        sets += 1
        one = _run(trials, name, samples)
        if one is None or not rule.helps(one) or _gives_up(rule.was, one):
            continue
        ran[name] = one
        if one.held[0]:
            break
    for name in sorted(ran, key=lambda name: (not ran[name].held[0], ran[name].sizes[0])):
        again = _run(trials, name, samples, beside)
        if again is not None and rule.confirms(ran[name].sizes[0], again):
            settings = named[name].settings
            told = ToKeep(
                option=name, settings=dict(settings), unit=ENGINE_OPTION, keys=(name,), of=len(named),
                text=named[name].text, replaced=tuple(one for one in settings if one in opening.spec.options),
                tried=rule.told(again, runs=sets),
            )  # fmt: skip
            return told, named[name].keeps
    return None


def with_remedy(kept: ToKeep | None, found: tuple[ToKeep, bool] | None) -> ToKeep | None:
    """Choose between a kept set and a remedy: return what is offered first, with the other beside it.

    What holds comes first, then what keeps nothing out of the low precision, then what leaves less of the error. An
    accusation that a kept set refutes stands with that set.

    found: see ``tried_remedy``."""
    remedy, keeps = found or (None, False)
    if kept is None or remedy is None or kept.tried is None or remedy.tried is None:
        return kept if remedy is None else remedy
    if kept.tried.state not in ("mended", "lessened"):
        return remedy if kept.tried.in_vain is None else kept
    both = (kept.tried.state == "mended", remedy.tried.state == "mended")
    if all(both):
        first = not keeps
    else:
        first = both[1] or (not both[0] and (remedy.tried.after or 0.0) < (kept.tried.after or 0.0))
    if first and kept.tried.in_vain is None:
        return dataclasses.replace(remedy, beside=(dataclasses.replace(kept, beside=()),))
    return dataclasses.replace(kept, beside=(*kept.beside, remedy))


def _run(trials: Trials, name: str, samples: Sequence[Sample], beside: Session | None = None) -> Evaluation | None:
    """None where it does not run: an engine that fails with it costs no finished comparison."""
    try:
        found = trials.run([name], samples, timed=False, beside=beside)
    except PrecisionDebugError:
        return None
    return found if found.errors else None


def _gives_up(was: Executed | None, ran: Evaluation) -> bool:
    return was is not None and ran.executed is not None and gives_up_most(was, ran.executed, 0, 1)
