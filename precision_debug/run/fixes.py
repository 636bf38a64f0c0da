"""A comparison's last step: what to do about its culprits, tried on the engine within the work that a run may take."""

from __future__ import annotations

import copy
import dataclasses
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .. import registry
from ..errors import PrecisionDebugError, UsageError
from ..explain import LEFT, Subject, bound_of_many, error_worth_failing, is_mended, is_of_many
from ..explain.criteria import DROP, FEW, FIFTH, HALF, LITTLE, PART
from ..feeds import CALIBRATE, FeedSet
from ..numbers.number_types import MODEL, QUANTISED, is_narrow
from ..protocols import Executed, Feeds, InRegions, Remedy, Session
from ..reasons import Reason, as_reason, say
from ..reasons.causes import CAUSES
from ..records import Culprit, Explanation, KeptAlone, ModelFiles, Overlap, RunSpec
from ..search.fix import ENGINE_OPTION, UNCOMPILED, Evaluation, SearchRequest, ToKeep, TradePoint
from ..search.offer import FixRule, gives_up_most, is_better_trade, is_told_beside
from ..search.ranking import rank_groups
from .answers import labels_by_sample
from .criterion import Criterion, Sample
from .faulty_pass import read_faulty_pass
from .fix_finder import PATIENCE, PATIENT, FixFinder, Kept, names_to_keep
from .further import confirm_further
from .judging import CompareAgain, Judging, Pasted, does_metric_ask, iterate_further_samples, make_judging
from .plan import Opening, is_across_frameworks
from .side import OpenSide, count_executed
from .to_keep import Keepable, find_keepable, format_settings
from .trials import Trials, run_outputs

__all__ = [
    "add_repaired_culprit", "count_affordable_sets", "is_kept", "list_remedies", "note_kept_in_vain", "prove_by_remedy",
    "try_fix", "with_agreement", "with_kept_alone", "with_remedy", "withdraw_culprits",
]  # fmt: skip

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

_PART_ALONE = 4
"""Part of the sets that may be run, up to which culprits are kept alone besides."""

_REMEDIES = 4
"""Known remedies that are run, each like a set."""

_LARGE = 2 << 30
"""Bytes from which on even one set is left to the user, and options that agree to those who ask for a full
explanation."""

_FULL = 8
"""Times more for those who ask for a full explanation, who wait for whatever it takes."""

_CALIBRATES = 2
"""Times the work of opening a mode that calibrates, where what was measured for one set serves the next: the model is
rewritten, and what is chosen is calibrated anew."""


def try_fix(
    spec: RunSpec, base: OpenSide, target: OpenSide, subject: Subject, explanation: Explanation, feed_set: FeedSet,
    folder: Path, *, sample: int, again: CompareAgain | None, foreign: bool,
    begun: Callable[[ToKeep], None], on_stage: Callable[[Reason], None] = lambda _stage: None,
    on_alone: Callable[[Mapping[str, KeptAlone]], None] = lambda _kept: None,
    on_named: Callable[[tuple[Culprit, ...]], None] = lambda _named: None,
) -> ToKeep | None:  # fmt: skip
    """Return what to paste and what it brought; None where there is nobody to keep, or nobody can tell how.

    Both sessions are open, and have run. folder: for what is written meanwhile. sample: which of the feeds the subject
    is of. again: what comes of one more comparison with further settings of the target's; None: there can be none.
    begun: told what is known of a fix while sets are run, in case the run ends in that. on_stage: told of each set.
    on_alone: told what the target leaves with single culprits kept, by name. on_named: told who is named by what the
    engine does with them kept, see ``confirm_further``.
    An engine that fails with something kept costs no finished comparison: then nothing is offered.
    """
    feeds = feed_set.for_target().feeds
    opening = dataclasses.replace(_lower_target(target), comparer=None)
    precision = opening.precision or target.session.arithmetic
    off = read_faulty_pass(explanation, target.opening) if is_narrow(precision) else {}
    if off and again is not None:
        rest = functools.partial(
            try_fix, spec, base, feed_set=feed_set, folder=folder, sample=sample, foreign=foreign, begun=begun,
            on_stage=on_stage,
        )  # fmt: skip
        large = count_affordable_sets(spec, subject, target.opening)[1] * _EXPLAINED > _WORK and spec.explain != "full"
        return _try_with_settings(off, target, subject, explanation, feed_set, again, rest, explained=not large)
    by_metric = does_metric_ask(spec, explanation) and not subject.is_step
    of_many = (is_of_many(explanation) or by_metric) and is_narrow(precision) and not subject.is_step
    found = find_keepable(
        target.opening, base.tensors, subject.targets, subject.rows, explanation.culprits, feeds,
        precision=precision, foreign=foreign, of_many=of_many,
    )  # fmt: skip
    regions = isinstance(found, Keepable) and isinstance(found.keep, InRegions)
    if of_many and count_affordable_sets(spec, subject, target.opening, in_regions=regions)[0] <= 1:
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
    if by_metric and judging.found.passes:
        return None
    most, work = count_affordable_sets(spec, subject, target.opening, in_regions=regions)
    criterion, allowed = judging.criterion, judging.criterion.allowed
    if of_many and not by_metric and spec.explain != "full":
        most = min(most, _OF_MANY)
    if not most:
        return untried(say("fix_large", gigabytes=work / 1e9))
    others = iterate_further_samples(spec, base, target, criterion, feed_set, sample, labels)
    samples, before = zip((judging.first, judging.found.error), *(others if most > 1 else ()), strict=True)
    room = folder / "fixes"
    room.mkdir(exist_ok=True)
    rule = FixRule(
        before=before, allowed=allowed,
        was=count_executed(opening, target.session), strict=criterion.tolerance.given,
        asked=criterion.tolerance.given and not judging.found.passes,
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
            again=None if again is None
            else functools.cache(lambda keys: again({**kept_too(keys), **trials.roughly}).culprits),
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
        full = spec.explain == "full"
        more = 0 if finder.stopped or (regions and not full) else most if full else most // _PART_ALONE
        alone = _keep_each_alone(finder, explanation.culprits, judging, more)
        on_alone(alone)
        if explainable and more:
            on_named(confirm_further(finder, explanation.culprits, kept, alone))
    mended = kept is not None and kept.state == "mended"
    ran = _run_in_turn(
        opening, [one for one in known if not (one.wide and mended)][: min(_REMEDIES, most)], criterion, samples, rule,
        calibrating, room, patience, timed,
    )  # fmt: skip
    if not (isinstance(ran, str) or ran[0].state == "none"):
        kept = with_remedy(kept, (ran[0], ran[1].keeps or ran[1].wide))
    return with_remedy(kept, _calibrate_on_all(spec, opening, feed_set, criterion, samples, rule, room, timed, work))


def _try_with_settings(
    off: Mapping[str, Any], target: OpenSide, subject: Subject, explanation: Explanation, feed_set: FeedSet,
    again: CompareAgain, rest: Callable[..., ToKeep | None], *, explained: bool,
) -> ToKeep | None:  # fmt: skip
    """Return a fix for what a target still loses with a pass of its engine off, with what switches that off.

    off: the settings for that, beside which all is run, and which are pasted with what was found. again: see
    ``try_fix``, which rest is. explained: whether the comparison may be explained once more; else who is named beside
    the pass is kept."""
    options = target.opening.spec.options
    opening = dataclasses.replace(
        target.opening, comparer=None, spec=dataclasses.replace(target.opening.spec, options={**options, **off})
    )

    def again_off(settings: Mapping[str, Any], model: ModelFiles | None = None, /, *, explained: bool = True) -> Pasted:
        return again({**off, **settings}, model, explained=explained)

    try:
        found = again_off({}).explanation if explained else None
        if not explained:
            others = tuple(one for one in explanation.culprits if one.cause != "faulty_pass")
            found = dataclasses.replace(explanation, culprits=others) if others else None
        if found is None or found.state == "healthy" or found.passes:
            return None
        side = copy.copy(target)
        side.opening, side.session = opening, opening.open(feed_set.for_target().calibrating)
        try:
            got = run_outputs(side.session, subject.feeds_of_target, opening.label)
            without = dataclasses.replace(subject, target=side.session, target_outputs=got)
            kept: ToKeep | None = rest(target=side, subject=without, explanation=found, again=again_off)
        finally:
            side.session.close()
    except PrecisionDebugError:
        return None  # an engine that fails so costs no finished comparison
    return None if kept is None else _beside(kept, off, target.opening)


def _beside(kept: ToKeep, off: Mapping[str, Any], target: Opening) -> ToKeep:
    """Return what was found with the settings beside which it was run, to be pasted at once."""
    typed = format_settings(target.settings, off)
    replaced = tuple(name for name in off if name in target.spec.options)
    told = dataclasses.replace(
        kept, off=typed, in_vain=None, beside=tuple(_beside(one, off, target) for one in kept.beside)
    )
    return told if not kept.option else dataclasses.replace(
        told, option=f"{typed} {kept.option}", settings={**off, **kept.settings},
        replaced=(*replaced, *kept.replaced),
    )  # fmt: skip


def _keep_operators(finder: FixFinder, explanation: Explanation, precision: str) -> ToKeep:
    """Return what came of keeping operators, and of keeping all who are named where that did nothing."""
    named = [one for one in explanation.culprits if is_mended(one.cause, precision)]
    try:
        tried = finder.find(named)
        all_named = len(named) == len(explanation.culprits)
        names = names_to_keep(named, precision) if all_named else ()
        theirs = finder.keepable.around(names) if names else frozenset[int]()
        return note_kept_in_vain(
            tried, finder.seen, theirs, finder.rule.before[0], finder.rule.was, finder.point, frozenset(names)
        )
    except PrecisionDebugError as error:
        return _note_untried(finder.keepable, say("fix_failed", detail=str(error)))


def _keep_each_alone(
    finder: FixFinder, culprits: Sequence[Culprit], judging: Judging, most: int
) -> dict[str, KeptAlone]:  # fmt: skip
    """Return, for each culprit of whose repair a replay tells, what the target leaves with that operator alone kept;
    of one that does not halve the error so, with what reads it kept, too.

    In a replay errors are put into the baseline's run, and what they make there of each other need not be what they
    make on the engine. most: sets that may be run besides those of the search."""
    keepable, found = finder.keepable, dict[str, KeptAlone]()

    def left(kept: Kept, one: Culprit, before: float) -> float | None:
        nonlocal most
        trials = _judging_only(finder.trials, one.at)
        ran = finder.seen.get(kept) if trials.criterion == judging.criterion and not trials.calibrates else None
        if ran is None and most > 0:
            most, ran = most - 1, trials.run(keepable.units.keys(kept), [judging.first], timed=False)
        if ran is None or not is_kept(ran, finder.rule.was, before, frozenset(one.inside or (one.name,))):
            return None
        return ran.sizes[0] if math.isfinite(ran.sizes[0]) else None

    for one in culprits:
        if one.repaired is None or one.at not in judging.criterion.pairs:
            continue
        own = keepable.makers(one.inside or (one.name,))
        before = _judging_only(finder.trials, one.at).criterion.judge(judging.first, judging.got).error
        if not own or not math.isfinite(before) or not _makes_only(keepable, own, one):
            continue
        if (alone := left(own, one, before)) is not None:
            found[one.name] = KeptAlone(mode=finder.trials.mode, before=before, left=alone)
    for one in culprits:
        told = found.get(one.name)
        if told is None or told.left <= HALF * told.before:
            continue
        own = keepable.makers(one.inside or (one.name,))
        around = own | keepable.around([one.name])
        if around != own and (with_readers := left(around, one, told.before)) is not None:
            found[one.name] = dataclasses.replace(told, with_readers=with_readers, readers=len(around - own))
    return found


def with_kept_alone(explanation: Explanation, ran: Mapping[str, KeptAlone]) -> Explanation:
    """Return the explanation with what the engine left of single culprits, whose shares are the engine's then.

    Where next to nothing goes with an operator alone, an engine may round what it makes where that is read: then it is
    what goes with the readers, too. An error that cancels part of the others' has no share."""
    budget = dict(explanation.budget)

    def as_ran(culprit: Culprit) -> Culprit:
        kept = ran.get(culprit.name)
        if kept is None:
            return culprit
        gone = kept.gone if kept.gone >= PART or kept.is_worse else max(kept.gone, kept.gone_with_readers)
        if culprit.name in budget and culprit.at == explanation.at:
            budget[culprit.name] = max(0.0, gone)
        return dataclasses.replace(culprit, kept_alone=kept, share=None if kept.is_worse else gone)

    culprits = tuple(map(as_ran, explanation.culprits))
    return dataclasses.replace(explanation, culprits=culprits, budget=budget)


def _judging_only(trials: Trials, at: str) -> Trials:
    """Return the same trials, which judge one output by its relative L2."""
    asked = trials.criterion
    only = dataclasses.replace(
        asked, asked=SearchRequest(), metric=None, check=None, pairs={at: asked.pairs[at]}, bounds={}, lost={}
    )  # fmt: skip
    return Trials(trials.opening, trials.keeping, only, trials.feeds, trials.folder, ran=True)


def _makes_only(keepable: Keepable, units: Kept, culprit: Culprit) -> bool:
    """Return whether units are kept operator by operator, or hold no other one: a type or a module may hold many."""
    made = {meta.node or meta.name for unit in units for meta in keepable.units.units[unit].metas}
    return keepable.keep.unit == "operator" or len(made) <= len(culprit.inside or (culprit.name,))


def is_kept(found: Evaluation, was: Executed | None, before: float, names: frozenset[str]) -> bool:
    """Return whether an engine kept what it was told to, as far as its count of operators in low precision tells.

    Who ran in float all the while (a Log between two quantised tensors) leaves the count as it is when kept."""
    if was is None or found.executed is None:
        return False
    counted = was.names is None or not names.isdisjoint(name for made in was.names for name in made)
    return found.executed.low < was.low if counted else found.error != before


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


def count_affordable_sets(
    spec: RunSpec, subject: Subject, opening: Opening, *, in_regions: bool = False
) -> tuple[int, int]:
    """Return how many sets may be run, and the bytes that one passes through: one of an engine that has to be built."""
    path = opening.spec.model.path
    file = Path(path.partition(".py:")[0] + ".py" if ".py:" in path else path)
    weights = file.stat().st_size if file.is_file() else 0
    beside = file.with_suffix(".pdiparams")
    weights += beside.stat().st_size if beside.is_file() else 0
    times = _CALIBRATES if opening.mode is not None and opening.mode.calibrates else 1
    work = (_count_bytes(subject) + weights) * times
    times = _FULL if spec.explain == "full" else 1
    if work > _LARGE and spec.explain != "full":
        return 0, work
    if opening.mode is not None and opening.mode.builds and spec.explain != "full":
        return (_OF_REGIONS if in_regions else 1), work
    return max(1, min(_MOST, times * _WORK // max(1, work))), work


def _count_bytes(subject: Subject) -> int:
    """Return the bytes of the tensors that are compared."""
    return sum(4 * row.comparison.base.elements for row in subject.rows if row.comparison is not None)


def _note_untried(found: Keepable, why: Any) -> ToKeep:
    return ToKeep(unit=found.keep.unit, of=len(found.every), state="not tried", why=why)


# An accusation that the engine refutes: with all who are named kept in FP32, the error is what it was.
#
# In the baseline's run one operator's error may do what all errors do, and where the replay is not the error that was
# measured nothing refutes it there (see ``explain.confirm``). What was run on the engine for a fix does.

def note_kept_in_vain(
    found: ToKeep, seen: Mapping[Kept, Evaluation], culprits: Kept, before: float, was: Executed | None,
    point: Callable[[Evaluation], TradePoint], names: frozenset[str] = frozenset(),
) -> ToKeep:  # fmt: skip
    """With what came of keeping all of the culprits, where that did nothing although keeping more did something, or
    where it made the error larger.

    seen: the sets that were run. culprits: who is named, with what reads them. before: the error with nothing kept.
    was: in which precision the operators ran then. point: a set as it is told of, run as it would be pasted. names: of
    the culprits' tensors.
    """
    named = culprits
    if not named or not math.isfinite(before) or not before:
        return found
    works = found.state in ("mended", "lessened") or (found.whole is not None and found.whole <= HALF * before)
    most = len(named) / HALF if works else math.inf  # what more than twice as many take away is no longer theirs
    sets = [(kept, one) for kept, one in seen.items() if named <= kept and len(kept) <= most]
    errors = [one.error for _, one in sets if one.error is not None]
    if not errors or len(errors) < len(sets) or LITTLE * min(errors) < before:
        return found
    if not works and min(errors) < LITTLE * before:
        return found  # nothing that is kept may do anything on this engine
    if not all(is_kept(one, was, before, names) for _, one in sets):
        return found  # or the engine does not tell whether it did
    units, least = min(sets, key=lambda pair: pair[1].error or 0.0)
    told = dataclasses.replace(point(least), kept=len(units))
    if told.error is None or LITTLE * told.error < before:
        return found
    return dataclasses.replace(found, in_vain=told)


def withdraw_culprits(explanation: Explanation, kept: ToKeep | None) -> Explanation | None:
    """Return the explanation without its culprits; None where nothing refutes them."""
    point = kept.in_vain if kept is not None else None
    if point is None or point.error is None or explanation.state != "culprits":
        return None
    first = explanation.culprits[0]
    if any(one.non_finite or CAUSES[one.cause].fails_for(one.evidence) for one in explanation.culprits):
        return None
    if first.without is not None and first.with_all and first.without <= HALF * first.with_all:
        return None  # most of the replayed error is theirs; of less the engine's own run decides
    if first.name not in explanation.budget:  # what its error makes alone was not measured
        return None
    overlap = Overlap(name=first.name, alone=None, without=point.error, tried=explanation.tried, kept=point.kept)
    bound = bound_of_many(explanation)
    if explanation.passes:  # within what one operator may make, so that nobody's is none either
        return dataclasses.replace(explanation, state="healthy", culprits=(), passes=False, allowed=bound)
    return dataclasses.replace(
        explanation, state="diffuse", culprits=(), overlap=overlap, passes=False, allowed=bound
    )


def add_repaired_culprit(explanation: Explanation, kept: ToKeep | None, subject: Subject) -> Explanation | None:
    """Return the explanation with a culprit that was found by its repair, or None.

    Where nobody was named although keeping a few operators on the engine brings the error within bounds, or one alone
    takes two thirds of it; or what the user's metric loses. None elsewhere.

    One coarse tensor may ruin the inputs of all that comes after it, so that no error measured there adds up."""
    if kept is None or (explanation.state != "diffuse" and not kept.metric):
        return None
    one = kept.state == "lessened" and len(kept.keys) == 1
    if kept.before is None or kept.after is None or not (kept.state == "mended" or one):
        return None
    few = kept.unit == "operator" and 0 < len(kept.keys) <= max(FEW, kept.of // FIFTH)
    few = few and not gives_up_most(kept.was, kept.still, len(kept.keys), kept.of)  # of a small model two may be most
    if not few or kept.after > HALF * kept.before or (one and DROP * kept.after > kept.before):
        return None
    made = [meta.name for meta in subject.tensors if meta.node in kept.keys]
    names = [name for name in made if name in subject.row_of] or made  # what is fused is no row of both sides
    if not names:
        return None
    name = max(names, key=lambda one: explanation.budget.get(one, 0.0))  # the first of those that make as much
    own = subject.meta_of[name]
    told = {"kept": ", ".join(f"`{one}`" for one in names), "before": kept.before, "after": kept.after}
    evidence = {**told, "metric": kept.metric} if kept.metric else told
    cause = "metric_lost" if kept.metric else "found_by_repair"
    culprit = Culprit(
        name=name, node=own.node, op_types=(own.op_type,), cause=cause, evidence=evidence,
        confidence="repaired", at=explanation.at, keep=tuple(names),
    )  # fmt: skip
    return dataclasses.replace(explanation, state="culprits", culprits=(culprit,), overlap=None, passes=False)


# Settings that may mend an error, each run like a set of kept operators and offered by the same rule.
#
# Known remedies of a cause: another calibration, a scale for each channel, an epsilon that the type can hold. What
# leaves every operator in the low precision is offered before what keeps some of them out of it, where it does as much.
# And where the target computes in the model's own types, which an optimising compiler may round in other places:
# options with which it computes as its baseline does. One that mends the error is what it came of.


def list_remedies(opening: Opening, culprits: Sequence[Culprit], base: Opening) -> Sequence[Remedy]:
    """Return what the target's backend knows to try for these culprits."""
    knows = opening.capabilities.remedies
    if knows is None or opening.mode is None or opening.recording:  # what was recorded takes no setting
        return ()
    return knows.remedies(opening.spec, culprits, base.spec)


def _run_in_turn(
    opening: Opening, found: Sequence[Remedy], criterion: Criterion, samples: Sequence[Sample], rule: FixRule,
    calibrating: Sequence[Feeds], folder: Path, patience: float, beside: Session | None = None,
) -> tuple[ToKeep, Remedy, Evaluation] | str:  # fmt: skip
    """Run settings one after the other, up to the first that holds; return what came of the one that did most.

    It is as it is pasted, with what it brought: it halves the error and leaves most of the low precision in place,
    twice and on the other inputs too. Where none is to be offered, of the best, "none"; why the last did not run where
    none did.

    found: see ``list_remedies``. samples: the inputs of the comparison, then others. patience: seconds after which no
    further one is run. beside: the target as it is, where runs may be timed beside it."""
    named = {one.name or format_settings(opening.settings, one.settings): one for one in found}
    trials = Trials(
        opening, lambda names: {key: value for name in names for key, value in named[name].settings.items()}, criterion,
        calibrating, folder, ran=True,
    )  # fmt: skip
    begun, ran, failed = time.monotonic(), dict[str, Evaluation](), ""

    def told(name: str) -> ToKeep:
        unit, keys = (UNCOMPILED, named[name].modules) if named[name].modules else (ENGINE_OPTION, (name,))
        return ToKeep(unit=unit, keys=keys, of=len(named))

    def is_offered(name: str) -> bool:
        known = rule.was is not None and ran[name].executed is not None and not named[name].wide
        return rule.helps(ran[name]) and not (known and gives_up_most(rule.was, ran[name].executed, 0, 1))

    for name in named:
        if ran and time.monotonic() - begun > patience:
            break
        one = trials.run([name], samples, timed=False)
        if not one.errors:
            failed = one.text
            continue
        ran[name] = one
        if one.held[0] and is_offered(name):
            break
    ordered = sorted(ran, key=lambda name: (not ran[name].held[0], ran[name].sizes[0]))
    for name in filter(is_offered, ordered):
        again = trials.run([name], samples, timed=False, beside=beside)
        if rule.confirms(ran[name].sizes[0], again):
            settings = dict(named[name].settings)
            typed = dataclasses.replace(
                told(name), option=format_settings(opening.settings, settings), settings=settings,
                text=named[name].text, replaced=tuple(key for key in settings if key in opening.spec.options),
            )  # fmt: skip
            return rule.told(typed, again, runs=len(ran)), named[name], again
    if not ran:
        return failed
    best = ordered[0]
    return rule.told(told(best), ran[best], runs=len(ran), state="none"), named[best], ran[best]


def _calibrate_on_all(
    spec: RunSpec, opening: Opening, feed_set: FeedSet, criterion: Criterion, samples: Sequence[Sample], rule: FixRule,
    folder: Path, beside: Session | None, work: int,
) -> tuple[ToKeep, bool] | None:  # fmt: skip
    """Return what the target comes to with all of the inputs calibrating in place of a part of them, where that is a
    fix: the others are kept to judge on, and what the part does not show is no operator's fault. work: bytes of one
    input's run."""
    count, mode = len(feed_set.feeds), opening.mode
    if mode is None or not mode.calibrates or not feed_set.has_unseen or count > CALIBRATE:
        return None
    if count * work > _FULL * _WORK and spec.explain != "full":
        return None
    typed = f"--calibration_samples {count}"
    every = feed_set.for_target().feeds[:]
    ran = _run_in_turn(
        opening, [Remedy(settings={}, name=typed)], criterion, samples, rule, every, folder, PATIENCE, beside
    )
    if isinstance(ran, str) or ran[0].state == "none":
        return None
    replaced = () if spec.calibration_samples is None else ("calibration_samples",)
    settings, caution = {"calibration_samples": count}, say("calibrated_on_all")
    return dataclasses.replace(ran[0], option=typed, settings=settings, caution=caution, replaced=replaced), False


def with_remedy(kept: ToKeep | None, found: tuple[ToKeep, bool] | None) -> ToKeep | None:
    """Choose between a kept set and a remedy: return what is offered first, with the other beside it.

    What holds comes first, then what keeps nothing out of the low precision, then what leaves less of the error; of two
    that keep, the set, unless it gives up most of the low precision and leaves no less. What keeps nothing also comes
    before a set that gives up most, where it is the better trade. An accusation that a kept set refutes stands with
    that set, and is refuted as well beside what mends where no set does. The other is told only where it is of use
    (see ``is_told_beside``).

    found: what is pasted, and whether it keeps operators wider."""
    remedy, keeps = found or (None, False)
    if kept is None or remedy is None:
        return kept if remedy is None else remedy
    if kept.state not in ("mended", "lessened"):
        return dataclasses.replace(remedy, in_vain=kept.in_vain)
    if kept.state == remedy.state == "mended":
        most = gives_up_most(kept.was, kept.still, len(kept.keys), kept.of)
        first = not keeps or (most and (remedy.after or 0.0) <= (kept.after or 0.0))
    else:
        better = kept.state != "mended" and (remedy.after or 0.0) < (kept.after or 0.0)
        most = gives_up_most(kept.was, kept.still, len(kept.keys), kept.of) and not keeps
        first = remedy.state == "mended" or better or (most and is_better_trade(remedy, kept))
    if first and kept.in_vain is None:
        own = dataclasses.replace(kept, beside=())
        return dataclasses.replace(remedy, beside=(own,) if is_told_beside(own, remedy) else ())
    return dataclasses.replace(kept, beside=(*kept.beside, *([remedy] if is_told_beside(remedy, kept) else [])))


def _is_open(culprit: Culprit, target: Opening) -> bool:
    """Return whether a remedy may tell the cause: where the target runs the file's own types, or an operator that the
    file has quantised, what it does otherwise than the file says looks like an operator's own arithmetic, or like a
    cause whose experiment could not run."""
    known = CAUSES[culprit.cause]
    untried = known.undone is not None and culprit.evidence.get("left") is None
    as_in_file = not is_narrow(target.precision) or any(map(QUANTISED.search, culprit.op_types))
    return known.is_open(culprit.evidence) or (as_in_file and (untried or known.is_its_own))


def prove_by_remedy(
    explanation: Explanation, introduced: Mapping[str, float], base: Opening, target: Opening,
    again: Callable[[Mapping[str, Any]], Pasted], whole: Mapping[str, int] = MappingProxyType({}),
) -> Explanation:  # fmt: skip
    """Return the explanation, with the cause that a remedy proves: for the culprits of which no other is known, and
    most of whose own error goes with it.

    introduced: own errors by tensor, relative L2; of whole numbers the share that differs, whole: how many there are.
    again: the comparison with further settings of the target's; a recorded baseline has none."""
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
            _prove_cause(one, introduced, left, remedy, switch, whole) if is_open else one
            for one, is_open in zip(explanation.culprits, asked, strict=True)
        )
        explanation = dataclasses.replace(explanation, culprits=culprits)
    return explanation


def _prove_cause(
    culprit: Culprit, introduced: Mapping[str, float], left: Mapping[str, float], remedy: Remedy, switch: str,
    whole: Mapping[str, int],
) -> Culprit:  # fmt: skip
    before, after = introduced.get(culprit.name), left.get(culprit.name)
    if before is None or after is None or after > LEFT * before:
        return culprit
    evidence: dict[str, Any] = {**remedy.evidence, "switch": switch, "before": before, "after": after}
    if elements := whole.get(culprit.name):
        differed, differ = (round(share * elements) for share in (before, after))
        evidence = {"switch": switch, "differed": differed, "differ": differ, "elements": elements}
    return dataclasses.replace(culprit, cause=remedy.cause, evidence=evidence)


# Settings with which an engine computes as its baseline does.

def measure_beside_float64(
    spec: RunSpec, base: OpenSide, target: OpenSide, subject: Subject, explanation: Explanation
) -> tuple[Mapping[str, Any] | None, Reason | None]:  # fmt: skip
    """Return the outputs of the same model in float64, and how far both sides are from each other and from these: which
    of two that round in other places is the nearer one.

    Of a target that computes in the model's own types, beside the same model in the same framework, unless the baseline
    is in float64 itself. None where it is no such target, or too large."""
    large = _count_bytes(subject) > _LARGE and spec.explain != "full"
    if large or not _does_the_same(base, target, subject) or base.opening.precision == "float64":
        return None, None
    exact = _run_exact(dataclasses.replace(target.opening, comparer=None), subject.feeds)
    judging = make_judging(spec, subject, explanation, target.opening.precision)
    if exact is None or judging is None or judging.criterion.metric is not None:
        return exact, None
    sizes = _measure_against_exact(judging, dataclasses.replace(judging.first, values=exact), judging.found.error)
    if not sizes:
        return exact, None
    return exact, say(
        "beside_float64", baseline=base.opening.label, target=target.opening.label,
        exact_base=sizes[0], exact_target=sizes[1], apart=sizes[2],
    )  # fmt: skip


def _does_the_same(base: OpenSide, target: OpenSide, subject: Subject) -> bool:
    """Return whether the target computes in the model's own types what the baseline computes, in the same framework."""
    same = not subject.two_files and not is_across_frameworks(base.opening, target.opening)
    knows = target.opening.capabilities.agreeing is not None and target.opening.precision == MODEL
    return knows and same and base.opening.backend is not None and not subject.is_step


def with_agreement(
    explanation: Explanation, spec: RunSpec, base: OpenSide, target: OpenSide, subject: Subject, feed_set: FeedSet,
    folder: Path, exact: Mapping[str, Any] | None, *, sample: int, begun: Callable[[], None] = lambda: None,
) -> tuple[Explanation, ToKeep | None]:  # fmt: skip
    """Return the explanation, with what the error came of where a setting proves it; and that setting, with what it
    brought.

    Of a target that computes in the model's own types, beside the same model in the same framework. None where the
    outputs pass, or there is nothing to try; an engine that fails with it costs no finished comparison. exact: the
    model's outputs in float64, where they are known. begun: told before the first is run.
    """
    knows = target.opening.capabilities.agreeing
    fails = explanation.state == "culprits" or is_of_many(explanation)
    if knows is None or not fails or not _does_the_same(base, target, subject):
        return explanation, None
    judging = make_judging(spec, subject, explanation, target.opening.precision)
    if judging is None or judging.found.passes or any(one.cause == "random" for one in explanation.culprits):
        return explanation, None
    blamed = [one.inside or (one.name,) for one in explanation.culprits]
    choices = knows.agreements(target.opening.spec, subject.tensors, blamed)
    if not choices:
        return explanation, None
    work = _count_bytes(subject)
    if work > _LARGE and spec.explain != "full":
        why = say("fix_setting_large", gigabytes=work / 1e9)
        return explanation, ToKeep(unit=ENGINE_OPTION, of=len(choices), state="not tried", why=why)
    begun()
    opening = dataclasses.replace(target.opening, comparer=None)
    room = folder / "agreeing"
    room.mkdir(exist_ok=True)
    others = iterate_further_samples(spec, base, target, judging.criterion, feed_set, sample)
    samples, before = zip((judging.first, judging.found.error), *(others if 2 * work <= _LARGE else ()), strict=True)
    if exact is not None:
        samples = (*samples, dataclasses.replace(judging.first, values=exact))
    ran = _run_in_turn(
        opening, choices, judging.criterion, samples,
        FixRule(before=before, allowed=judging.criterion.allowed, slices=judging.criterion.in_slices),
        feed_set.for_target().calibrating, room, PATIENT if spec.explain == "full" else PATIENCE,
    )  # fmt: skip
    if isinstance(ran, str):
        why = say("fix_setting_failed", detail=ran)
        return explanation, ToKeep(unit=ENGINE_OPTION, of=len(choices), state="not tried", why=why)
    kept, chosen, last = ran
    if exact is not None:
        kept = dataclasses.replace(kept, exact=_measure_against_exact(judging, samples[-1], last.sizes[-1]))
    return _blame_setting(explanation, kept, chosen), kept


def _run_exact(target: Opening, feeds: Feeds) -> Mapping[str, Any] | None:
    """Return the outputs of the same model in float64; None where its backend has no such mode, or it does not run."""
    if target.backend is None:
        return None
    known, ending = target.backend, registry.suffix(target.spec.model)
    found = next(
        (mode for mode in known.run_modes
         if mode.precision == "float64" and ending in mode.suffixes and known.availability(mode.name).ok), None,
    )  # fmt: skip
    if found is None:
        return None
    try:
        session = target.in_mode(found.name).open([feeds])
        try:
            return run_outputs(session, feeds, found.name)
        finally:
            session.close()
    except PrecisionDebugError:
        return None


def _blame_setting(explanation: Explanation, kept: ToKeep, chosen: Remedy) -> Explanation:
    """Return what one setting mends has one cause: the first culprit stands for all."""
    if kept.state != "mended" or not chosen.cause or not explanation.culprits:
        return explanation
    evidence: dict[str, Any] = {
        **chosen.evidence, "switch": chosen.name, "before": math.inf if kept.before is None else kept.before,
        "after": kept.after, "count": len(explanation.culprits),
    }  # fmt: skip
    if kept.exact:
        evidence |= {"exact_base": kept.exact[0], "exact_target": kept.exact[1]}
    first = explanation.culprits[0]
    proven = dataclasses.replace(first, cause=chosen.cause, evidence=evidence, keep=(first.name,), amplifier="")
    return dataclasses.replace(explanation, culprits=(proven,))


def _measure_against_exact(judging: Judging, exact: Sample, then: float) -> tuple[float, ...]:
    """Return the errors of the baseline, of the target and of the target with something chosen; () where one is not
    finite."""
    criterion = judging.criterion
    base = {there: judging.first.values[name] for name, there in criterion.pairs.items()}
    found = (criterion.judge(exact, base).error, criterion.judge(exact, judging.got).error, then)
    return found if all(map(math.isfinite, found)) else ()
