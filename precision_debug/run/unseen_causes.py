"""Find out why a target is off on inputs that did not calibrate it: their calibration, or operators in few bits.

Each is run on the engine: the target calibrated on these inputs as well, then with operators left out of the low
precision. What was not run blames nothing.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import PrecisionDebugError
from ..explain import Subject
from ..explain.criteria import HALF, SMALLER
from ..protocols import Feeds, InRegions
from ..records import Explanation
from ..search.fix import ToKeep
from ..search.offer import FixRule, error_to_halve
from ..search.ranking import rank_groups
from .criterion import Criterion, Sample
from .fix_finder import FixFinder
from .fixes import count_affordable_sets
from .open_pair import Comparing
from .open_pair_run import OpenPair
from .side import count_executed
from .to_keep import Keepable, find_keepable
from .trials import Trials

__all__ = ["find_unseen_cause"]

def find_unseen_cause(
    work: Comparing, both: OpenPair, subject: Subject, explanation: Explanation | None, criterion: Criterion,
    samples: Sequence[Sample], before: Sequence[float],
) -> tuple[str, Mapping[str, Any]]:  # fmt: skip
    """Return the code of what is told of the error on other inputs, and its values.

    samples: these inputs; before: the target's error on each."""
    opening = dataclasses.replace(both.target.opening, comparer=None)
    calibrating: Sequence[Feeds] = work.feed_set.for_target().calibrating
    most = count_affordable_sets(work.spec, subject, opening)[0]
    if opening.mode is None or not opening.mode.calibrates or most <= 1:
        return "off_on_others_untried", {}
    room = Path(work.folder, "unseen")
    room.mkdir(exist_ok=True)
    theirs = [one.target_feeds if one.target_feeds is not None else one.feeds for one in samples]
    anew = Trials(opening, lambda _keys: {}, criterion, [*calibrating, *theirs], room, ran=True).run(
        [], samples, timed=False
    )
    if not anew.errors or None in anew.errors:
        return "off_on_others_untried", {}
    left = max(anew.sizes)
    if _is_worth_telling(left, max(before), passes=anew.passes):
        return "off_on_others", {"anew": left}
    # the worst of these inputs: what holds there is tried on the others too
    order = sorted(range(len(samples)), key=lambda place: -before[place])
    kept = None
    with contextlib.suppress(PrecisionDebugError):
        kept = _find_kept(
            work, both, subject, explanation, criterion, [samples[one] for one in order],
            [before[one] for one in order], most, room,
        )  # fmt: skip
    after = [] if kept is None else [kept.after, *([] if kept.others_after is None else [kept.others_after])]
    worst = max((math.inf if one is None else one for one in after), default=math.inf)
    if kept is None or not _is_worth_telling(worst, max(before), passes=kept.state == "mended"):
        return "off_on_others_anyway", {"anew": left}
    return "off_on_others_kept", {"anew": left, "kept": len(kept.keys), "after": worst, "option": kept.option}


def _is_worth_telling(left: float, before: float, *, passes: bool) -> bool:
    """Return whether it is so much that is taken off: of what is as expected then, less is enough."""
    return left <= (before / SMALLER if passes else HALF * error_to_halve(before))


def _find_kept(
    work: Comparing, both: OpenPair, subject: Subject, explanation: Explanation | None, criterion: Criterion,
    samples: Sequence[Sample], before: Sequence[float], most: int, room: Path,
) -> ToKeep | None:  # fmt: skip
    """Return the operators that are left out of the low precision on these inputs; None where none can be."""
    opening = dataclasses.replace(both.target.opening, comparer=None)
    calibrating: Sequence[Feeds] = work.feed_set.for_target().calibrating
    keeps = find_keepable(
        opening, both.base.tensors, subject.targets, subject.rows, (), calibrating, precision=opening.precision,
        foreign=subject.two_files, of_many=True,
    )  # fmt: skip
    if not isinstance(keeps, Keepable) or isinstance(keeps.keep, InRegions):
        return None
    rule = FixRule(
        before=before, allowed=criterion.allowed, was=count_executed(opening, both.target.session),
        strict=criterion.tolerance.given, slices=criterion.in_slices, unseen=True,
    )  # fmt: skip
    finder = FixFinder(
        keepable=keeps, trials=Trials(opening, keeps.keep.options, criterion, calibrating, room, ran=True),
        samples=samples, rule=rule, most=most,
        ranking=lambda: rank_groups(keeps.units, subject.rows, explanation),
    )  # fmt: skip
    found = finder.find(())
    return found if found.state in ("mended", "lessened") else None
