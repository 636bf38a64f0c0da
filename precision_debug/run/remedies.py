"""Known remedies of a cause, each run like a set of kept operators and offered by the same rule.

Another calibration, a scale for each channel, an epsilon that the type can hold: what leaves every operator in the low
precision is offered before what keeps some of them out of it, where it does as much.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import PrecisionDebugError
from ..explain import LEFT
from ..numbers.number_types import is_narrow
from ..protocols import Feeds, Handed, Remedy, Session
from ..reasons.causes import CAUSES
from ..records import Culprit, Explanation, TensorMeta
from ..search.fix import ENGINE_OPTION, Evaluation, ToKeep, TriedFix
from ..search.offer import FixRule, gives_up_most
from .criterion import Criterion, Sample
from .pasted import Pasted
from .plan import Opening
from .to_keep import format_settings
from .trials import Trials

__all__ = ["Chosen", "list_remedies", "prove_by_remedy", "run_in_turn", "run_of", "try_remedy", "with_remedy"]


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

    def told(self, name: str, opening: Opening, tried: TriedFix, **more: Any) -> ToKeep:
        """Return a setting as a user types it, with what it brought."""
        settings = dict(self.named[name])
        values: dict[str, Any] = {"unit": ENGINE_OPTION, "keys": (name,), **more}
        return ToKeep(
            option=format_settings(opening.settings, settings), settings=settings, of=len(self.named), tried=tried,
            replaced=tuple(one for one in settings if one in opening.spec.options), **values,
        )  # fmt: skip


def list_remedies(opening: Opening, culprits: Sequence[Culprit], base: Opening) -> Sequence[Remedy]:
    """Return what the target's backend knows to try for these culprits."""
    knows = opening.capabilities.remedies
    if knows is None or opening.mode is None or opening.recording:  # what was recorded takes no setting
        return ()
    return knows.remedies(opening.spec, culprits, base.spec)


def try_remedy(
    opening: Opening, found: Sequence[Remedy], criterion: Criterion, samples: Sequence[Sample], rule: FixRule,
    calibrating: Sequence[Feeds], folder: Path, *, patience: float, beside: Session | None = None,
) -> tuple[ToKeep, bool] | None:  # fmt: skip
    """Try remedies; return the one that does most, and whether it keeps operators wider.

    The remedy as it is pasted, with what it brought, and whether it keeps operators in a higher precision; None where
    none is known or none halves the error and leaves most of the low precision in place, twice and on the other inputs
    too.

    found: see ``list_remedies``. samples: the inputs of the comparison, then others. beside: the target as it is,
    where runs may be timed beside it."""
    if not found:
        return None
    named = {format_settings(opening.settings, one.settings): one for one in found}
    chosen = Chosen(named={name: one.settings for name, one in named.items()})
    trials = Trials(opening, chosen, criterion, calibrating, folder)

    def offered(name: str, one: Evaluation) -> bool:
        known = rule.was is not None and one.executed is not None and not named[name].wide
        return rule.helps(one) and not (known and gives_up_most(rule.was, one.executed, 0, 1))

    ran, _ = run_in_turn(trials, named, samples, lambda name, one: one.held[0] and offered(name, one), patience)
    useful = {name: one for name, one in ran.items() if offered(name, one)}
    for name in sorted(useful, key=lambda name: (not ran[name].held[0], ran[name].sizes[0])):
        again = run_of(trials, name, samples, beside)
        if rule.confirms(ran[name].sizes[0], again):
            told = chosen.told(name, opening, rule.told(again, runs=len(ran)), text=named[name].text)
            return told, named[name].keeps or named[name].wide
    return None


def run_in_turn(
    trials: Trials, names: Iterable[str], samples: Sequence[Sample], enough: Callable[[str, Evaluation], bool],
    patience: float,
) -> tuple[Mapping[str, Evaluation], str]:  # fmt: skip
    """Run settings one after the other; return what came of those that ran, and why the last of the others did not.

    enough: of one, whether no further one is run. patience: seconds after which none is, once one has run."""
    ran, failed, since = dict[str, Evaluation](), "", time.monotonic()
    for name in names:
        if ran and time.monotonic() - since > patience:
            break
        found = run_of(trials, name, samples)
        if not found.errors:
            failed = found.text
            continue
        ran[name] = found
        if enough(name, found):
            break
    return ran, failed


def run_of(
    trials: Trials, name: str, samples: Sequence[Sample], beside: Session | None = None
) -> Evaluation:  # fmt: skip
    """Return what came of a setting; of one that does not run, why: that costs no finished comparison."""
    try:
        return trials.run([name], samples, timed=False, beside=beside)
    except PrecisionDebugError as error:
        return Evaluation(kept=(name,), mode=trials.mode, passes=False, text=str(error))


def with_remedy(kept: ToKeep | None, found: tuple[ToKeep, bool] | None) -> ToKeep | None:
    """Choose between a kept set and a remedy: return what is offered first, with the other beside it.

    What holds comes first, then what keeps nothing out of the low precision, then what leaves less of the error. An
    accusation that a kept set refutes stands with that set.

    found: see ``try_remedy``."""
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


def _is_open(culprit: Culprit, target: Opening) -> bool:
    """Return whether a remedy may tell the cause: where the target runs the file's own types, what it does otherwise
    than the file says looks like a fault of a scale or a zero point, or like a cause whose experiment could not run."""
    known = CAUSES[culprit.cause]
    if known.is_open(culprit.evidence):
        return True
    untried = known.undone is not None and "left" not in culprit.evidence
    return not is_narrow(target.precision) and (untried or (known.mended and not known.enlarged))


def prove_by_remedy(
    explanation: Explanation, introduced: Mapping[str, float], base: Opening, target: Opening,
    again: Callable[[Mapping[str, Any]], Pasted],
) -> Explanation:  # fmt: skip
    """Return the explanation, with the cause that a remedy proves: for the culprits of which no other is known, and
    most of whose own error goes with it.

    introduced: own errors by tensor, relative L2. again: the comparison with further settings of the target's; a
    recorded baseline has none."""
    asked = [_is_open(one, target) for one in explanation.culprits]
    if base.recording or not any(asked):
        return explanation
    for remedy in list_remedies(target, explanation.culprits, base):
        if not remedy.cause:
            continue
        try:
            left = again(remedy.settings).introduced
        except PrecisionDebugError:
            continue  # an engine that fails with it costs no finished comparison
        switch = format_settings(target.settings, remedy.settings)
        culprits = tuple(
            _prove_cause(one, introduced, left, remedy.cause, switch) if is_open else one
            for one, is_open in zip(explanation.culprits, asked, strict=True)
        )
        explanation = dataclasses.replace(explanation, culprits=culprits)
    return explanation


def _prove_cause(
    culprit: Culprit, introduced: Mapping[str, float], left: Mapping[str, float], cause: str, switch: str
) -> Culprit:
    before, after = introduced.get(culprit.name), left.get(culprit.name)
    if before is None or after is None or after > LEFT * before:
        return culprit
    return dataclasses.replace(culprit, cause=cause, evidence={"switch": switch, "before": before, "after": after})
