"""A comparison's last step: what to do about its culprits, tried on the engine within the work that a run may take."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..errors import PrecisionDebugError, UsageError
from ..explain import Subject, bound_of_many, error_worth_failing, is_mended, is_of_many
from ..feeds import FeedSet
from ..numbers.number_types import MODEL, is_narrow
from ..protocols import InRegions
from ..reasons import Reason, as_reason, say
from ..records import Explanation, RunSpec
from ..search.fix import ToKeep
from ..search.offer import FixRule
from ..search.ranking import rank_groups
from .answers import labels_by_sample
from .fix_finder import PATIENCE, PATIENT, FixFinder, names_to_keep
from .judging import does_metric_ask, iterate_further_samples, make_judging
from .pasted import CompareAgain
from .plan import Opening
from .refuted import note_kept_in_vain
from .remedies import list_remedies, try_remedy, with_remedy
from .side import OpenSide, count_executed
from .to_keep import Keepable, find_keepable
from .trials import Trials

__all__ = ["try_fix"]

_MOST = 12
"""Sets that are run for a small model."""

_OF_MANY = 8
"""The same of an error of many operators, where each larger part of the ranking is a set, and the smallest that helps
is the search's to find."""

_OF_REGIONS = 6
"""Sets of an engine that is built for each, where a precision counts only together with what is around it."""

_BUILDS = 3
"""Times as long as the engine to deploy took to build, after which a set of such an engine is not made smaller."""

_WORK = 2 << 30
"""Bytes of tensors and weights that all of them may pass through, unasked; one set always may, up to ``_LARGE``."""

_EXPLAINED = 3
"""Sets up to which a model is small enough for one more comparison that is explained: it runs the model some tens of
times, each time with another error in it."""

_REMEDIES = 4
"""Known remedies that are run, each like a set."""

_LARGE = 2 << 30
"""Bytes from which on even one set is left to the user."""

_FULL = 8
"""Times more for those who ask for a full explanation, who wait for whatever it takes."""

_CALIBRATES = 2
"""Times the work of opening a mode that calibrates, where what was measured for one set serves the next: the model is
rewritten, and what is chosen is calibrated anew."""


def try_fix(
    spec: RunSpec, base: OpenSide, target: OpenSide, subject: Subject, explanation: Explanation, feed_set: FeedSet,
    folder: Path, *, sample: int, again: CompareAgain | None, foreign: bool,
    begun: Callable[[ToKeep], None], on_stage: Callable[[Reason], None] = lambda _stage: None,
) -> ToKeep | None:  # fmt: skip
    """Return what to paste and what it brought; None where there is nobody to keep, or nobody can tell how.

    Both sessions are open, and have run. folder: for what is written meanwhile. sample: which of the feeds the subject
    is of. again: what comes of one more comparison with further settings of the target's; None: there can be none.
    begun: told what is known of a fix while sets are run, in case the run ends in that. on_stage: told of each set.
    An engine that fails with something kept costs no finished comparison: then nothing is offered.
    """
    feeds = feed_set.for_target().feeds
    opening = dataclasses.replace(_lower_target(target), comparer=None)
    precision = opening.precision or target.session.arithmetic
    by_metric = does_metric_ask(spec, explanation) and not subject.is_step
    of_many = (is_of_many(explanation) or by_metric) and is_narrow(precision) and not subject.is_step
    found = find_keepable(
        target.opening, base.tensors, subject.targets, subject.rows, explanation.culprits, feeds,
        precision=precision, foreign=foreign, of_many=of_many,
    )  # fmt: skip
    regions = isinstance(found, Keepable) and isinstance(found.keep, InRegions)
    if of_many and _count_affordable_sets(spec, subject, target.opening, in_regions=regions)[0] <= 1:
        return None  # one set of many says nothing
    known = list_remedies(opening, explanation.culprits, base.opening)
    if not isinstance(found, Keepable):
        causes = {one.cause for one in explanation.culprits if one.cause}
        known = [one for one in known if one.cause in causes or (one.files and "files_differ" in causes)]
        if not known:
            return found

    def untried(why: Reason) -> ToKeep | None:
        return _note_untried(found, why) if isinstance(found, Keepable) else found

    if drawn := next((one.name for one in explanation.culprits if one.cause == "random"), ""):
        return untried(say("fix_random", name=drawn))
    labels = labels_by_sample(spec, len(feed_set.feeds)) if by_metric else lambda _sample: None
    try:
        judging = make_judging(spec, subject, explanation, opening.precision, labels(sample))
    except UsageError as error:
        return untried(as_reason(error.what))
    if judging is None:
        return untried(say("fix_no_outputs"))
    if by_metric and judging.passes:
        return None
    most, work = _count_affordable_sets(spec, subject, target.opening, in_regions=regions)
    criterion, allowed, first, before = judging.criterion, judging.criterion.allowed, judging.first, judging.error
    if of_many and not by_metric and spec.explain != "full":
        most = min(most, _OF_MANY)
    if not most:
        return untried(say("fix_large", gigabytes=work / 1e9))
    others = iterate_further_samples(spec, base, target, criterion, feed_set, sample, labels)
    further = tuple(others if most > 1 else ())
    samples, errors = zip((first, before), *further, strict=True)
    room = folder / "fixes"
    room.mkdir(exist_ok=True)
    rule = FixRule(
        before=[math.inf if error is None else error for error in errors], allowed=allowed,
        was=count_executed(opening, target.session), strict=criterion.tolerance.given,
        asked=criterion.tolerance.given and not judging.passes,
        metric=spec.metric.rpartition(":")[2] if by_metric else "", slices=criterion.in_slices,
    )  # fmt: skip
    patience = PATIENT if spec.explain == "full" else PATIENCE
    calibrating = feed_set.for_target().calibrating
    timed = None if regions or _is_not_timed(target, subject) else target.session
    kept = found if isinstance(found, ToKeep) else None
    if isinstance(found, Keepable):
        keeps = found

        def on_set(number: int, of: int, passed: float) -> None:
            on_stage(say("stage_trying_set", number=number, most=of, passed=passed, seconds=patience))

        strict, kept_too = criterion.tolerance.given, keeps.keep.options
        explainable = spec.explain == "full" or work * _EXPLAINED <= _WORK
        trials = Trials(opening, kept_too, criterion, calibrating, room, ran=True)
        finder = FixFinder(
            keepable=keeps, trials=trials, samples=samples, rule=rule, most=most,
            again=None if again is None else lambda keys: again({**kept_too(keys), **trials.roughly}).culprits,
            pasted=None if again is None or subject.is_step or regions or by_metric or not (strict or explainable)
            else lambda keys: again(kept_too(keys), explained=not strict),
            of_many=bound_of_many(explanation) or allowed, of_one=min(allowed,
            error_worth_failing(explanation.unit or 0.0)),
            ranking=functools.cache(lambda: rank_groups(keeps.units, subject.rows, explanation)),
            beside=timed, patience=patience, on_set=on_set, in_regions=regions, until=_find_shrink_deadline(target,
            spec),
        )  # fmt: skip
        begun(_note_untried(found, say("fix_ended")))
        kept = _keep_operators(finder, explanation, opening.precision)
    mended = kept is not None and kept.state == "mended"
    other = try_remedy(
        opening, [one for one in known if not (one.wide and mended)][: min(_REMEDIES, most)], criterion, samples, rule,
        calibrating, room, patience=patience, beside=timed,
    )  # fmt: skip
    return with_remedy(kept, other)


def _keep_operators(finder: FixFinder, explanation: Explanation, precision: str) -> ToKeep:
    """Return what came of keeping operators, and of keeping all who are named where that did nothing."""
    named = [one for one in explanation.culprits if is_mended(one.cause, precision)]
    try:
        tried = finder.find(named)
        all_named = len(named) == len(explanation.culprits)
        theirs = finder.keepable.around(names_to_keep(named, precision)) if all_named else frozenset[int]()
        return note_kept_in_vain(tried, finder.seen, theirs, finder.rule.before[0], finder.rule.was, finder.point)
    except PrecisionDebugError as error:
        return _note_untried(finder.keepable, say("fix_failed", detail=str(error)))


def _find_shrink_deadline(target: OpenSide, spec: RunSpec) -> float:
    """Return the time from which on a set that holds is not made smaller; a full explanation waits for the smallest.

    A session that builds its engine may tell the seconds of that in ``build_seconds``: opening it can load a builder
    first, which no further set waits for."""
    built: float = getattr(target.session, "build_seconds", 0.0) or target.opening_seconds
    return math.inf if spec.explain == "full" else target.opened + (_BUILDS - 1) * built


def _lower_target(target: OpenSide) -> Opening:
    """Return how the target was opened, with the precision that its engine chose where the mode leaves that to it.

    OpenVINO's BF16 is one, which can be kept from operators as where it was asked for."""
    opening, chosen = target.opening, target.session.arithmetic
    if opening.mode is None or opening.precision != MODEL or not is_narrow(chosen):
        return opening
    return dataclasses.replace(opening, mode=dataclasses.replace(opening.mode, precision=chosen))


def _is_not_timed(target: OpenSide, subject: Subject) -> bool:
    """A simulation's time is nobody's; a step runs long; other sessions cannot run at once, or go through the host."""
    mode, session = target.opening.mode, target.session
    simulated = mode is None or mode.simulation or not mode.concurrent
    return simulated or subject.is_step or bool(session.alone) or target.opening.comparer is not None


def _count_affordable_sets(
    spec: RunSpec, subject: Subject, opening: Opening, *, in_regions: bool = False
) -> tuple[int, int]:
    """Return how many sets may be run, and the bytes that one passes through: one of an engine that has to be built."""
    path = opening.spec.model.path
    tensors = sum(row.comparison.base.elements * 4 for row in subject.rows if row.comparison is not None)
    file = Path(path.partition(".py:")[0] + ".py" if ".py:" in path else path)
    weights = file.stat().st_size if file.is_file() else 0
    beside = file.with_suffix(".pdiparams")
    weights += beside.stat().st_size if beside.is_file() else 0
    work = (tensors + weights) * (_CALIBRATES if opening.mode is not None and opening.mode.calibrates else 1)
    times = _FULL if spec.explain == "full" else 1
    if work > _LARGE and spec.explain != "full":
        return 0, work
    if opening.mode is not None and opening.mode.builds and spec.explain != "full":
        return (_OF_REGIONS if in_regions else 1), work
    return max(1, min(_MOST, times * _WORK // max(1, work))), work


def _note_untried(found: Keepable, why: Any) -> ToKeep:
    return ToKeep(unit=found.keep.unit, of=len(found.every), state="not tried", why=why)

