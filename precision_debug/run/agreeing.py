"""With what an engine computes as its baseline does: settings that it knows, each run, and which side is truer.

An engine that optimises a program of the same framework rounds in other places, and often less: what agrees with the
baseline is not what is nearer to exact arithmetic. So both are measured, where the model also runs in float64.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from .. import registry
from ..errors import PrecisionDebugError
from ..explain import Subject, is_of_many
from ..feeds import FeedSet
from ..numbers.number_types import MODEL
from ..protocols import Agreement, Feeds
from ..reasons import say
from ..records import Explanation, RunSpec, SessionSpec
from ..search.fix import ENGINE_OPTION, UNCOMPILED, ToKeep, TriedFix
from ..search.offer import FixRule
from .criterion import Sample
from .fix_finder import PATIENCE, PATIENT
from .judging import Judging, iterate_further_samples, make_judging
from .plan import Opening, is_across_frameworks
from .remedies import Chosen, run_in_turn, run_of
from .side import OpenSide
from .trials import Trials, run_outputs

__all__ = ["with_agreement"]

_LARGE = 2 << 30
"""Bytes of compared tensors from which on it is left to those who ask for a full explanation."""

_SAMPLES = 1 << 30
"""Bytes of compared tensors up to which it is tried on further inputs too."""


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
        return explanation, ToKeep(unit=ENGINE_OPTION, of=len(choices), tried=TriedFix(state="not tried", why=why))
    begun()
    opening = dataclasses.replace(target.opening, comparer=None)
    room = folder / "agreeing"
    room.mkdir(exist_ok=True)
    named = {one.name: one for one in choices}
    chosen = Chosen(named={name: one.settings for name, one in named.items()})
    trials = Trials(opening, chosen, judging.criterion, feed_set.for_target().calibrating, room)
    small = work <= _SAMPLES
    further = tuple(iterate_further_samples(spec, base, target, judging.criterion, feed_set, sample)) if small else ()
    exact = _run_exact(opening, subject.feeds)
    samples = [judging.first, *(one for one, _ in further)]
    if exact is not None:
        samples.append(dataclasses.replace(judging.first, values=exact))
    patience = PATIENT if spec.explain == "full" else PATIENCE
    ran, failed = run_in_turn(trials, named, samples, lambda _name, one: one.held[0], patience)
    if not ran:
        why = say("fix_setting_failed", detail=failed)
        return explanation, ToKeep(unit=ENGINE_OPTION, of=len(named), tried=TriedFix(state="not tried", why=why))
    before = [judging.error, *(math.inf if error is None else error for _, error in further)]
    rule = FixRule(before=before, allowed=judging.criterion.allowed)
    ordered = sorted(ran, key=lambda name: ran[name].sizes[0])
    helping = [name for name in ordered if rule.helps(ran[name])]
    best, last = next(
        ((name, again) for name in helping
         if rule.confirms(ran[name].sizes[0], again := run_of(trials, name, samples))), (ordered[0], ran[ordered[0]]),
    )  # fmt: skip
    exactly = () if exact is None else _measure_against_exact(judging, samples[-1], last.sizes[-1])
    tried = rule.told(last, runs=len(ran), exact=exactly)
    if not helping or last is ran[ordered[0]]:
        tried = dataclasses.replace(tried, state="none")
    return _blame_setting(explanation, chosen.told(best, opening, tried, **_as_told(named[best])), named[best])


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
    table = {one.name: one for one in target.settings}
    options = {
        name: value for name, value in target.spec.options.items()
        if name not in table or table[name].matters("target", found.name)
    }  # fmt: skip
    spec = SessionSpec(model=target.spec.model, mode=found.name, options=options)
    try:
        session = Opening(spec=spec, mode=found, backend=known).open([feeds])
        try:
            return run_outputs(session, feeds, found.name)
        finally:
            session.close()
    except PrecisionDebugError:
        return None


def _as_told(chosen: Agreement) -> Mapping[str, Any]:
    unit, keys = (UNCOMPILED, chosen.modules) if chosen.modules else (ENGINE_OPTION, (chosen.name,))
    return {"unit": unit, "keys": keys, "text": chosen.text}


def _blame_setting(explanation: Explanation, kept: ToKeep, chosen: Agreement) -> tuple[Explanation, ToKeep]:
    """Return what one setting mends has one cause: the first culprit stands for all."""
    tried = kept.tried
    assert tried is not None
    if tried.state == "none":
        return explanation, ToKeep(unit=kept.unit, keys=kept.keys, of=kept.of, tried=tried)
    if tried.state != "mended" or not chosen.cause or not explanation.culprits:
        return explanation, kept
    before = math.inf if tried.before is None else tried.before
    evidence: dict[str, Any] = {
        **chosen.evidence, "switch": chosen.name, "before": before, "after": tried.after,
        "count": len(explanation.culprits),
    }  # fmt: skip
    if tried.exact:
        evidence |= {"exact_base": tried.exact[0], "exact_target": tried.exact[1]}
    first = explanation.culprits[0]
    proven = dataclasses.replace(first, cause=chosen.cause, evidence=evidence, keep=(first.name,), amplifier="")
    return dataclasses.replace(explanation, culprits=(proven,)), kept


def _measure_against_exact(judging: Judging, exact: Sample, then: float) -> tuple[float, ...]:
    """Return the errors of the baseline, of the target and of the target with something chosen; () where one is not
    finite."""
    criterion = judging.criterion
    base = {there: judging.first.values[name] for name, there in criterion.pairs.items()}
    found = (criterion.judge(exact, base)[1], criterion.judge(exact, judging.got)[1], then)
    return found if all(map(math.isfinite, found)) else ()
