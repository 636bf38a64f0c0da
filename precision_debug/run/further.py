"""Which further operators are at fault, by running the engine with the named ones kept in higher precision.

Beside a large error a smaller one is not seen: of two branches that both lose, the louder one alone makes most of it.
So where a fix keeps more operators than are named, the named ones are kept, and if much of the error is left, another
comparison tells which operator makes it. One that is named beside the first is withdrawn where keeping it takes nothing
off, neither alone nor beside the fix.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence

from ..errors import PrecisionDebugError
from ..explain import is_mended
from ..explain.criteria import FEW, HALF, LITTLE
from ..reasons.causes import CAUSES
from ..records import Culprit, FoundBeside, KeptAlone
from ..search.fix import ToKeep
from .fix_finder import FixFinder, Kept, names_to_keep

__all__ = ["confirm_further", "does_nothing"]


def confirm_further(
    finder: FixFinder, culprits: Sequence[Culprit], kept: ToKeep, alone: Mapping[str, KeptAlone]
) -> tuple[Culprit, ...]:
    """Return the culprits without those that take nothing off on the engine when they are kept, and with those that are
    found once the others are kept, as far as the fix keeps them.

    alone: what the target leaves with single ones kept, by name."""
    if kept.state not in ("mended", "lessened") or kept.in_vain is not None:
        return tuple(culprits)
    offered = frozenset(number for number, unit in enumerate(finder.keepable.units.units) if unit.key in kept.keys)
    named = [one for place, one in enumerate(culprits) if not place or not _is_refuted(finder, one, offered, alone)]
    with contextlib.suppress(PrecisionDebugError):  # an engine that fails so costs no finished comparison
        while len(named) < FEW and (more := _find_next(finder, named, offered)) is not None:
            named.append(more)
    return tuple(named)


def does_nothing(ran: KeptAlone, after: float, beside: float) -> bool:
    """Return whether keeping an operator takes next to nothing off: alone, or with what reads it, and beside a fix.

    after: what that leaves; beside: with this operator kept, too."""
    least = ran.left if ran.with_readers is None else min(ran.left, ran.with_readers)
    return LITTLE * least >= ran.before and LITTLE * beside >= after


def _is_refuted(finder: FixFinder, culprit: Culprit, offered: Kept, alone: Mapping[str, KeptAlone]) -> bool:
    ran, own = alone.get(culprit.name), finder.keepable.around(culprit.inside or (culprit.name,))
    if ran is None or own & offered or culprit.non_finite or CAUSES[culprit.cause].fails_for(culprit.evidence):
        return False
    after, beside = _find_left(finder, offered), _find_left(finder, offered | own)
    return after is not None and beside is not None and does_nothing(ran, after, beside)


def _find_next(finder: FixFinder, named: Sequence[Culprit], offered: Kept) -> Culprit | None:
    """Return the operator that makes most of what is left with the named ones kept; None where that is as expected,
    where the fix keeps no such operator, or where keeping it does not halve what is left."""
    precision = finder.keepable.target.precision
    names = names_to_keep([one for one in named if is_mended(one.cause, precision)], precision)
    theirs = finder.keepable.around(names)
    if finder.again is None or not theirs or not offered - theirs:
        return None
    left = _find_left(finder, theirs)
    if left is None or left <= finder.rule.allowed:
        return None
    keys = finder.keepable.units.keys(theirs)
    for one in finder.again(keys):
        own = finder.keepable.makers(one.inside or (one.name,))
        if one.name in {other.name for other in named} or not own & offered or not is_mended(one.cause, precision):
            continue
        then = _find_left(finder, theirs | finder.keepable.around(names_to_keep([one], precision)))
        if then is not None and then <= HALF * left:
            beside = FoundBeside(kept=keys, mode=finder.trials.mode, before=finder.rule.before[0], left=left, then=then)
            return dataclasses.replace(one, beside=beside)
    return None


def _find_left(finder: FixFinder, kept: Kept) -> float | None:
    """Return the error with a set kept, as its search measures it; None where the engine does not run it."""
    ran = finder.seen.get(kept) or finder.trials.run(finder.keepable.units.keys(kept), finder.samples[:1], timed=False)
    return ran.error
