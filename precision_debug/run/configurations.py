"""What two models' configurations do not share, and whether that is why a culprit computes something else.

A rope theta, an epsilon, a softcap, a number of heads: no constant of a graph, but a number in a file beside it. Which
key it is follows from no table: all values that differ are the baseline's on the target's side, which runs once more;
then one of them is the target's again. A culprit whose error is gone in the first run, and back in the second, has that
key for its cause. Likewise a weight of an operator that an engine does not show alone, such as an expert of many that
are held in one piece: the target runs with the baseline's in its file.
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import PrecisionDebugError
from ..explain import LEFT
from ..protocols import ABSENT, OtherWeight, Place, StoredWeights
from ..reasons import say
from ..reasons.causes import CAUSES
from ..records import Culprit, Explanation
from .judging import CompareAgain, Pasted
from .plan import Opening

__all__ = ["ConfigurationTrials", "Differing", "list_differing", "with_configurations"]

_MOST = 12
"""Keys that differ up to which each is exchanged by itself: a run of both sides for each."""

_LONG = 60
"""Characters of a value that are told."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class Differing:
    """A value that two configurations do not share: ABSENT where one of them does not have it."""

    place: Place
    base: Any
    target: Any

    @property
    def key(self) -> str:
        """The value's place in words."""
        return ".".join(self.place)


def list_differing(base: Mapping[str, Any], target: Mapping[str, Any]) -> Sequence[Differing]:
    """Return every value that two configurations do not share, of groups that both have each by itself."""
    return tuple(_iterate_differing(base, target, ()))


def _iterate_differing(base: Mapping[str, Any], target: Mapping[str, Any], way: Place) -> Iterator[Differing]:
    for key in (*base, *(one for one in target if one not in base)):
        first, second = base.get(key, ABSENT), target.get(key, ABSENT)
        if isinstance(first, Mapping) and isinstance(second, Mapping):
            yield from _iterate_differing(first, second, (*way, key))
        elif first != second:
            yield Differing(place=(*way, key), base=first, target=second)


def with_configurations(
    explanation: Explanation,
    base: Opening,
    target: Opening,
    again: CompareAgain,
    folder: Path,
    order: Mapping[str, int],
) -> Explanation:
    """Return the explanation, with a key and both of its values as the cause of each culprit that an exchange clears.

    order: place of each of the baseline's tensors in its execution order."""
    able = base.capabilities.configurer, target.capabilities.configurer
    if not explanation.culprits or able[0] is None or able[1] is None:
        return explanation
    first, second = (one.configurations for one in able if one is not None)
    if first.words != second.words:
        return explanation
    if base.spec.model == target.spec.model:
        return explanation
    apart = list_differing(first.read(base.spec), second.read(target.spec))

    def exchanged(some: Sequence[Differing]) -> Pasted | None:
        """Return what comes of the target with the baseline's values of these; None where it does not run so."""
        with tempfile.TemporaryDirectory(dir=folder, prefix="configured_") as room:
            try:
                model = second.exchange(target.spec, {one.place: one.base for one in some}, Path(room), base.spec)
                return again({}, model)
            except PrecisionDebugError:  # a value that does not go with the others, or with the weights
                return None

    trials = ConfigurationTrials(exchanged=exchanged)
    causes = {culprit.name: trials.cause_of(culprit, apart) for culprit in explanation.culprits} if apart else {}
    told = _order_culprits(tuple(
        culprit if (found := causes.get(culprit.name)) is None
        else dataclasses.replace(culprit, cause="files_differ", evidence=found)
        for culprit in explanation.culprits
    ), {key for key, one in causes.items() if one is not None}, order)  # fmt: skip
    if second.weights is not None:
        told = tuple(_with_weights(one, second.weights, base, target, again, folder) for one in told)
    return dataclasses.replace(explanation, culprits=told)


def _with_weights(
    culprit: Culprit, weights: StoredWeights, base: Opening, target: Opening, again: CompareAgain, folder: Path
) -> Culprit:  # fmt: skip
    """Return a culprit with the weights of its module for its cause, where its error goes with the baseline's in their
    place. They are looked for by the module's name, and halved while a half does it: what is told was run."""
    module = culprit.name.partition("/")[0]
    if not CAUSES[culprit.cause].mended or not module:  # else what both sides do not share is known
        return culprit
    try:
        apart = weights.list_other(target.spec, base.spec, f"{module}.")
    except PrecisionDebugError:
        return culprit

    def exchanged(some: Sequence[Differing]) -> Pasted | None:
        with tempfile.TemporaryDirectory(dir=folder, prefix="weights_") as room:
            try:
                return again({}, weights.exchange(target.spec, [one.key for one in some], Path(room), base.spec))
            except PrecisionDebugError:
                return None

    trials = ConfigurationTrials(exchanged=exchanged)
    every = [Differing(place=(one.name,), base=one.base, target=one.target) for one in apart]
    if not every or trials.left(culprit, every) > LEFT:
        return culprit
    needed = trials.halve(culprit, every, most=1)
    found = [one for one in apart if one.name in {each.key for each in needed}]
    told = _tell_weights(found, trials.left(culprit, needed))
    return dataclasses.replace(culprit, cause="files_differ", evidence=told)


def _tell_weights(found: Sequence[OtherWeight], left: float) -> Mapping[str, Any]:
    first = found[0]
    name = first.name if len(found) == 1 else say("and_others", name=first.name, count=len(found) - 1)
    target = say("all_of_another", value=first.target, name=first.same_as) if first.same_as else first.target
    return {
        "what": say("a_constant"), "name": name, "left": left, "base": first.base, "target": target,
        "at": list(first.at), "count": first.count, "elements": first.elements,
    }  # fmt: skip


def _order_culprits(
    culprits: Sequence[Culprit], configured: Collection[str], order: Mapping[str, int]
) -> tuple[Culprit, ...]:
    """Return the culprits, those that the configuration makes in execution order among themselves: one key makes many
    operators wrong, and the first is where to look."""
    theirs = sorted((one for one in culprits if one.name in configured), key=lambda one: order.get(one.name, 0))
    waiting = iter(theirs)
    return tuple(next(waiting) if one.name in configured else one for one in culprits)


@dataclasses.dataclass(kw_only=True)
class ConfigurationTrials:
    """Runs with values exchanged, each made once. exchanged: makes one."""

    exchanged: Callable[[Sequence[Differing]], Pasted | None]
    ran: dict[tuple[Place, ...], Pasted | None] = dataclasses.field(default_factory=dict)

    def left(self, culprit: Culprit, some: Sequence[Differing]) -> float:
        """Part of a culprit's own error that is left with these exchanged; 1 where that cannot be run."""
        key = tuple(one.place for one in some)
        if key not in self.ran:
            self.ran[key] = self.exchanged(some) if some else None
        found = self.ran[key]
        if found is None:
            return 1.0
        if culprit.name not in found.errors and culprit.name not in found.introduced:
            # fused into another one now: what its error alone makes of an output is no more than what is left there
            alone = float(culprit.others_repaired or 0.0)
            return found.errors[culprit.at] / alone if alone and culprit.at in found.errors else 1.0
        now = found.introduced.get(culprit.name)
        if now is not None and culprit.introduced:
            return now / float(culprit.introduced)
        return found.errors.get(culprit.name, 1.0) / float(culprit.introduced or 1.0)

    def cause_of(self, culprit: Culprit, apart: Sequence[Differing]) -> Mapping[str, Any] | None:
        """Return the evidence of a culprit whose error the configuration makes; None of another one."""
        needed = self._needed(culprit, apart)
        left = self.left(culprit, needed)
        if not needed or left > LEFT:
            return None
        return {
            "what": say("a_setting"), "name": ", ".join(one.key for one in needed), "left": left,
            "base": _format_values([one.base for one in needed]),
            "target": _format_values([one.target for one in needed]),
        }  # fmt: skip

    def _needed(self, culprit: Culprit, apart: Sequence[Differing]) -> Sequence[Differing]:
        """Return the fewest of the values that differ with which a culprit's error goes; () where it does not."""
        if self.left(culprit, apart) > LEFT:  # or they do not all go with the target's weights
            some = apart if len(apart) <= _MOST else ()
            return tuple(sorted((one for one in some if self.left(culprit, (one,)) <= LEFT),
                                key=lambda one: self.left(culprit, (one,)))[:1])  # fmt: skip
        kept = self.halve(culprit, apart, most=_MOST)
        for one in kept if len(kept) <= _MOST else ():
            without = [other for other in kept if other is not one]
            if without and self.left(culprit, without) <= LEFT:
                kept = without
        return kept

    def halve(self, culprit: Culprit, some: Sequence[Differing], *, most: int) -> Sequence[Differing]:
        """Return the half that does it by itself, again and again, until they are so few or neither half does it."""
        kept = some
        while len(kept) > most:
            middle = len(kept) // 2
            half = next((one for one in (kept[:middle], kept[middle:]) if self.left(culprit, one) <= LEFT), None)
            if half is None:
                break
            kept = half
        return kept


def _format_values(values: Sequence[Any]) -> str:
    if len(values) > 1:
        return ", ".join(_format_values([one]) for one in values)
    [value] = values
    if value is ABSENT:
        return say("is_missing")
    if isinstance(value, float):
        return f"{value:.7g}"  # as it was written: of a GGUF's float32 no more digits are true
    text = json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value
    return text if len(text) <= _LONG else text[: _LONG - 1] + "…"
