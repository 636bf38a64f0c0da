"""Settings that may mend an error, each run like a set of kept operators and offered by the same rule.

Known remedies of a cause: another calibration, a scale for each channel, an epsilon that the type can hold. What leaves
every operator in the low precision is offered before what keeps some of them out of it, where it does as much. And
where the target computes in the model's own types, which an optimising compiler may round in other places: options with
which it computes as its baseline does. One that mends the error is what it came of.
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .. import registry
from ..errors import PrecisionDebugError
from ..explain import LEFT, Subject, is_of_many
from ..feeds import FeedSet
from ..numbers.number_types import MODEL, QUANTISED, is_narrow
from ..protocols import Feeds, Remedy, Session
from ..reasons import say
from ..reasons.causes import CAUSES
from ..records import Culprit, Explanation, RunSpec
from ..search.fix import ENGINE_OPTION, UNCOMPILED, Evaluation, ToKeep
from ..search.offer import FixRule, gives_up_most
from .criterion import Criterion, Sample
from .fix_finder import PATIENCE, PATIENT
from .judging import Judging, iterate_further_samples, make_judging
from .pasted import Pasted
from .plan import Opening, is_across_frameworks
from .side import OpenSide
from .to_keep import format_settings
from .trials import Trials, run_outputs

__all__ = ["list_remedies", "prove_by_remedy", "try_remedy", "with_agreement", "with_remedy"]

_LARGE = 2 << 30
"""Bytes of compared tensors from which on options that agree are left to those who ask for a full explanation."""

_SAMPLES = 1 << 30
"""Bytes of compared tensors up to which they are tried on further inputs too."""


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
    ran = _run_in_turn(opening, found, criterion, samples, rule, calibrating, folder, patience, beside)
    if isinstance(ran, str):
        return None
    kept, remedy, _ = ran
    return None if kept.state == "none" else (kept, remedy.keeps or remedy.wide)


def _run_in_turn(
    opening: Opening, found: Sequence[Remedy], criterion: Criterion, samples: Sequence[Sample], rule: FixRule,
    calibrating: Sequence[Feeds], folder: Path, patience: float, beside: Session | None = None,
) -> tuple[ToKeep, Remedy, Evaluation] | str:  # fmt: skip
    """Run settings one after the other, up to the first that holds; return what came of the one that did most, twice.

    Where none is to be offered, of the best, "none"; why the last did not run where none did. patience: seconds after
    which no further one is run."""
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


def with_remedy(kept: ToKeep | None, found: tuple[ToKeep, bool] | None) -> ToKeep | None:
    """Choose between a kept set and a remedy: return what is offered first, with the other beside it.

    What holds comes first, then what keeps nothing out of the low precision, then what leaves less of the error. An
    accusation that a kept set refutes stands with that set.

    found: see ``try_remedy``."""
    remedy, keeps = found or (None, False)
    if kept is None or remedy is None:
        return kept if remedy is None else remedy
    if kept.state not in ("mended", "lessened"):
        return remedy if kept.in_vain is None else kept
    if kept.state == remedy.state == "mended":
        first = not keeps
    else:
        better = kept.state != "mended" and (remedy.after or 0.0) < (kept.after or 0.0)
        first = remedy.state == "mended" or better
    if first and kept.in_vain is None:
        return dataclasses.replace(remedy, beside=(dataclasses.replace(kept, beside=()),))
    return dataclasses.replace(kept, beside=(*kept.beside, remedy))


def _is_open(culprit: Culprit, target: Opening) -> bool:
    """Return whether a remedy may tell the cause: where the target runs the file's own types, or an operator that the
    file has quantised, what it does otherwise than the file says looks like an operator's own arithmetic, or like a
    cause whose experiment could not run."""
    known = CAUSES[culprit.cause]
    untried = known.undone is not None and "left" not in culprit.evidence
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

def with_agreement(
    explanation: Explanation, spec: RunSpec, base: OpenSide, target: OpenSide, subject: Subject, feed_set: FeedSet,
    folder: Path, *, sample: int, begun: Callable[[], None] = lambda: None,
) -> tuple[Explanation, ToKeep | None]:  # fmt: skip
    """Return the explanation, with what the error came of where a setting proves it; and that setting, with what it
    brought.

    Of a target that computes in the model's own types, beside the same model in the same framework. None where the
    outputs pass, or there is nothing to try; an engine that fails with it costs no finished comparison. begun: told
    before the first is run.
    """
    knows = target.opening.capabilities.agreeing
    fails = explanation.state == "culprits" or is_of_many(explanation)
    same = (
        not subject.two_files
        and not is_across_frameworks(base.opening, target.opening)
        and base.opening.backend is not None
    )
    if knows is None or not fails or not same or subject.is_step or target.opening.precision != MODEL:
        return explanation, None
    judging = make_judging(spec, subject, explanation, target.opening.precision)
    if judging is None or judging.passes or any(one.cause == "random" for one in explanation.culprits):
        return explanation, None
    blamed = [one.inside or (one.name,) for one in explanation.culprits]
    choices = knows.agreements(target.opening.spec, subject.tensors, blamed)
    if not choices:
        return explanation, None
    work = sum(4 * row.comparison.base.elements for row in subject.rows if row.comparison is not None)
    if work > _LARGE and spec.explain != "full":
        why = say("fix_setting_large", gigabytes=work / 1e9)
        return explanation, ToKeep(unit=ENGINE_OPTION, of=len(choices), state="not tried", why=why)
    begun()
    opening = dataclasses.replace(target.opening, comparer=None)
    room = folder / "agreeing"
    room.mkdir(exist_ok=True)
    small = work <= _SAMPLES
    further = tuple(iterate_further_samples(spec, base, target, judging.criterion, feed_set, sample)) if small else ()
    exact = _run_exact(opening, subject.feeds)
    samples = [judging.first, *(one for one, _ in further)]
    if exact is not None:
        samples.append(dataclasses.replace(judging.first, values=exact))
    before = [judging.error, *(math.inf if error is None else error for _, error in further)]
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
