"""A comparison's last step: what to do about its culprits, tried on the engine within the work that a run may take."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import PrecisionDebugError
from ..explain import Subject, allowed_by, is_mended
from ..feeds import FeedSet
from ..numbers.arrays import as_array
from ..numbers.precisions import MODEL, is_narrow
from ..protocols import Feeds
from ..reasons import say
from ..records import Culprit, Explanation, RunSpec
from ..search import ToKeep, Tried, rank_groups
from ..search.request import SearchRequest
from .executed import executed_of
from .fix_finder import FixFinder
from .plan import Opening
from .searching.criterion import Criterion, Sample
from .searching.held_out import held_out_feeds
from .searching.trials import Trials, outputs_of
from .side import CALIBRATE, OpenSide
from .step_fix import tight, wrong_outputs
from .to_keep import Keepable, keepable

__all__ = ["tried_fix"]

_MOST = 12
"""Sets that are run for a small model."""

_WORK = 2 << 30
"""Bytes of tensors and weights that all of them may pass through, unasked; one set always may, up to ``_LARGE``."""

_LARGE = 2 << 30
"""Bytes from which on even one set is left to the user."""

_FULL = 8
"""Times more for those who ask for a full explanation, who wait for whatever it takes."""

_CALIBRATES = 2
"""Times the work of opening a mode that calibrates, where what was measured for one set serves the next: the model is
rewritten, and what is chosen is calibrated anew."""

_OTHERS = 2
"""Other inputs that a fix is run on: more than one, so that it is not one lucky input."""


def tried_fix(
    spec: RunSpec, base: OpenSide, target: OpenSide, subject: Subject, explanation: Explanation, feed_set: FeedSet,
    folder: Path, *, sample: int, again: Callable[[Mapping[str, Any]], Sequence[Culprit]] | None, foreign: bool,
    begun: Callable[[ToKeep], None],
) -> ToKeep | None:  # fmt: skip
    """What to paste and what it brought; None where there is nobody to keep, or nobody can tell how.

    Both sessions are open, and have run. folder: for what is written meanwhile. sample: which of the feeds the subject
    is of. again: the culprits of one more comparison with further settings of the target's; None: there can be none.
    begun: told what is known of a fix while sets are run, in case the run ends in that.
    An engine that fails with something kept costs no finished comparison: then nothing is offered.
    """
    feeds = feed_set.for_target().feeds
    opening = dataclasses.replace(_lowered(target), comparer=None)
    found = keepable(
        target.opening, base.tensors, subject.targets, subject.rows, explanation.culprits, feeds,
        precision=opening.precision or target.session.arithmetic, foreign=foreign,
    )  # fmt: skip
    if found is None or isinstance(found, ToKeep):
        return found
    if drawn := next((one.name for one in explanation.culprits if one.cause == "random"), ""):
        return _untried(found, say("fix_random", name=drawn))
    pairs = {row.name: row.target_name or row.name for row in subject.rows if row.is_output and row.comparison}
    allowed, bounds = allowed_by(explanation, opening.precision), {}
    if subject.is_step:  # the others have bounds of their own, which they keep
        pairs = {name: pairs[name] for name in wrong_outputs(subject, explanation)}
        bounds = {name: explanation.allowed_at.get(name, allowed) for name in pairs}
        allowed = tight(bounds.values(), allowed)
    criterion = Criterion.of(SearchRequest(), spec.tolerance, pairs, allowed, bounds)
    first = Sample(feeds=subject.feeds, target_feeds=subject.feeds_of_target, values=_copied(subject.outputs, pairs))
    got = _copied(subject.target_outputs, pairs.values())
    if not pairs or not set(pairs.values()) <= got.keys() or not set(pairs) <= first.values.keys():
        return _untried(found, say("fix_no_outputs"))
    before = criterion.judge(first, got)[1]
    most, work = _sets(spec, subject, target.opening)
    if not most:
        return _untried(found, say("fix_large", gigabytes=work / 1e9))
    further = _judged(spec, base, target, criterion, feed_set, sample) if most > 1 else ()
    samples, errors = zip((first, before), *further, strict=True)
    room = folder / "fixes"
    room.mkdir(exist_ok=True)
    trials = Trials(opening, found.keep, criterion, feeds[:CALIBRATE], room)
    keeps = found
    finder = FixFinder(
        keepable=keeps, trials=trials, samples=samples, before=errors, allowed=allowed, most=most,
        was=executed_of(opening, target.session),
        again=None if again is None else lambda keys: again({**keeps.keep.options(keys), **trials.roughly}),
        ranking=lambda: rank_groups(keeps.units, subject.rows, explanation),
        beside=None if _not_timed(target, subject) else target.session,
    )  # fmt: skip
    named = [one for one in explanation.culprits if is_mended(one.cause, opening.precision)]
    begun(_untried(found, say("fix_ended")))
    try:
        return finder.find(named)
    except PrecisionDebugError as error:
        return _untried(found, say("fix_failed", detail=str(error)))


def _lowered(target: OpenSide) -> Opening:
    """How the target was opened; of a mode that leaves the type to its engine, with the one that it chose (OpenVINO's
    BF16), which can be kept from operators as where it was asked for."""
    opening, chosen = target.opening, target.session.arithmetic
    if opening.mode is None or opening.precision != MODEL or not is_narrow(chosen):
        return opening
    return dataclasses.replace(opening, mode=dataclasses.replace(opening.mode, precision=chosen))


def _not_timed(target: OpenSide, subject: Subject) -> bool:
    """A simulation's time is nobody's; a step runs long; other sessions cannot run at once, or go through the host."""
    mode, session = target.opening.mode, target.session
    simulated = mode is None or mode.simulation or not mode.concurrent
    return simulated or subject.is_step or bool(session.alone) or target.opening.comparer is not None


def _sets(spec: RunSpec, subject: Subject, opening: Opening) -> tuple[int, int]:
    """How many sets may be run, and the bytes that one passes through: one of an engine that has to be built."""
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
        return 1, work
    return max(1, min(_MOST, times * _WORK // max(1, work))), work


def _others(
    spec: RunSpec, base: OpenSide, target: OpenSide, feed_set: FeedSet, sample: int
) -> Sequence[tuple[Feeds, Feeds]]:
    """Further inputs, for both sides: the user's own, or other random ones where they are random."""
    if len(feed_set.feeds) > 1:
        theirs = feed_set.for_target().feeds
        numbers = [number for number in range(min(len(feed_set.feeds), _OTHERS + 1)) if number != sample][:_OTHERS]
        return [(feed_set.feeds[number], theirs[number]) for number in numbers]
    return held_out_feeds(spec, SearchRequest(), base.opening, target.opening, feed_set)[0][:_OTHERS]


def _copied(values: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """Of outputs, those with these names: the others may lie on a device, and are many in a training step."""
    return {name: np.array(as_array(values[name], name=name)) for name in names if name in values}


def _judged(
    spec: RunSpec, base: OpenSide, target: OpenSide, criterion: Criterion, feed_set: FeedSet, sample: int
) -> Iterator[tuple[Sample, float | None]]:
    """Further samples, each with its error where nothing is kept; up to the first that a session refuses."""
    with contextlib.suppress(PrecisionDebugError):
        for fed in _others(spec, base, target, feed_set, sample):
            values = outputs_of(base.session, fed[0], base.opening.label)
            other = Sample(feeds=fed[0], target_feeds=fed[1], values=values)
            yield other, criterion.judge(other, outputs_of(target.session, fed[1], target.opening.label))[1]


def _untried(found: Keepable, why: Any) -> ToKeep:
    return ToKeep(unit=found.keep.unit, of=len(found.units), tried=Tried(state="not tried", why=why))

