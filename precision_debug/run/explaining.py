"""Both sides once more, each operator alone, and what its error does; then what mends it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping
from pathlib import Path

from .. import events, explain
from ..errors import PrecisionDebugError
from ..onnx.file_operators import FileOperators
from ..onnx.model import read_model
from ..onnx.removed_activations import Removed, removed_operators
from ..protocols import Operators
from ..reasons import say
from ..records import Explanation, Operator, Status
from ..search import ToKeep
from ..settings.options import variants_in
from .agreeing import with_agreement
from .comparing import Comparing
from .configurations import with_configurations
from .faulty_pass import with_faulty_pass
from .fixes import tried_fix
from .inside_sums import inside_sums
from .judging import fixes_of_step
from .open_pair_run import OpenPair, SampleResult
from .pasted import Again
from .plan import Opening, crosses
from .refuted import repaired, withdrawn
from .second_opinion import with_second_opinion
from .stand_in import standing_in
from .unseen_inputs import calibrates_on_compared, tell_unseen

__all__ = ["explain_sample", "judge_unseen"]


_LARGEST_FILE = 1 << 30
"""Bytes of a model and its weights up to which its operators are computed once more: they are all held in memory."""


def explain_sample(work: Comparing, both: OpenPair, sample: int, ran: SampleResult, again: Again) -> None:
    """Tell the journal who introduced the error of a sample, and what to keep. ran: what that sample gave."""
    work.journal.write(events.Stage(text=say("stage_explaining")))
    with standing_in(both.base, both.target, work.feed_set, work.folder) as baseline:
        subject = _subject(work, both, sample, ran)
        if baseline is not both.base.session:
            subject = dataclasses.replace(subject, baseline=baseline, two_frameworks=False)
        _explain(work, both, subject, sample, again)


def _explain(work: Comparing, both: OpenPair, subject: explain.Subject, sample: int, again: Again) -> None:
    explanation, agreeing = _explained(work, both, subject, sample, again)
    if agreeing is not None:
        work.journal.write(events.KeepFound(to_keep=agreeing))
        return
    if not work.fixes:
        return
    tell_unseen(work, both, subject, explanation)
    if explanation.culprits or explain.is_of_many(explanation):
        work.journal.write(events.Stage(text=say("stage_trying_fixes")))
    step = fixes_of_step(subject)
    scaled = None if step is None else step.tried_on_step(subject, explanation, both.target)
    if scaled is not None and scaled.tried is not None and scaled.tried.state == "mended":
        work.journal.write(events.KeepFound(to_keep=scaled))
        return
    kept = tried_fix(
        work.spec, both.base, both.target, subject, explanation, work.feed_set, work.folder, sample=sample,
        again=None if both.base.opening.recording else again,
        foreign=subject.two_files or crosses(both.base.opening, both.target.opening),
        begun=lambda known: work.journal.write(events.KeepFound(to_keep=known)),
        on_stage=lambda stage: work.journal.write(events.Stage(text=stage)),
    )  # fmt: skip
    if scaled is not None and (kept is None or kept.tried is None or kept.tried.state != "mended"):
        kept = scaled  # no module mends it either
    refuted = withdrawn(explanation, kept)
    overruled = repaired(refuted or explanation, kept, subject) or refuted
    if overruled is not None:
        work.journal.write(events.Explained(explanation=overruled))
    if kept is not None:
        work.journal.write(events.KeepFound(to_keep=kept))


def judge_unseen(work: Comparing, both: OpenPair, sample: int, ran: SampleResult) -> None:
    """Tell of inputs that did not calibrate, where nobody asks who introduced the error."""
    if work.fixes and not work.alone and calibrates_on_compared(both.base, both.target, work.feed_set):
        tell_unseen(work, both, _subject(work, both, sample, ran), None)


def _subject(work: Comparing, both: OpenPair, sample: int, ran: SampleResult) -> explain.Subject:
    spec, base, target = work.spec, both.base, both.target
    feeds, target_feeds = work.feeds(sample)
    outputs = {meta.name for meta in base.tensors if meta.is_output}
    return explain.Subject(
        baseline=base.session,
        target=target.session,
        feeds=feeds,
        target_feeds=target_feeds,
        rows=[dataclasses.replace(row, is_output=row.name in outputs) for row in ran.ends],
        tensors=base.tensors,
        targets={meta.name: meta for meta in target.tensors},
        together=both.together,
        precision=target.opening.precision,
        simulation=bool(target.opening.mode and target.opening.mode.simulation),
        two_files=base.opening.spec.model != target.opening.spec.model,
        two_frameworks=base.opening.backend is not target.opening.backend,
        in_files=_in_files(base.opening, target.opening),
        removed=_removed(base.opening, target.opening),
        operators_alone=_operators_alone(base.opening),
        memory_budget=spec.memory_budget,
        iterations=ran.iterations,
        bearers=ran.bearers,
        outputs=ran.base_outputs,
        target_outputs=ran.target_outputs,
        tokens=ran.tokens,
        variant=variants_in(spec.input_variants)[sample] if spec.input_variants else "",
        fails=spec.tolerance.given and any(row.status is Status.FAIL and row.name in outputs for row in ran.rows),
    )


def _operators_alone(base: Opening) -> Callable[[], Operators | None] | None:
    """See explain.Subject. Read when they are first asked for."""
    runner = base.capabilities.operator_runner
    if runner is None or not base.spec.model.model_file.lower().endswith(".onnx"):
        return None

    @functools.cache
    def operators() -> Operators | None:
        file = Path(base.spec.model.model_file)
        try:
            beside = [one for one in file.parent.iterdir() if one.name.startswith(file.stem)]  # weights of their own
            if sum(one.stat().st_size for one in beside) > _LARGEST_FILE:
                return None
            return runner.operators(base.spec)
        except (OSError, PrecisionDebugError):
            return None

    return operators


def _removed(base: Opening, target: Opening) -> Callable[[], Mapping[str, Removed]]:
    """See explain.Subject: of an ONNX file and one that was quantised from it."""
    first, second = (opening.spec.model.model_file for opening in (base, target))

    @functools.cache
    def removed() -> Mapping[str, Removed]:
        if first == second or not all(one.lower().endswith(".onnx") for one in (first, second)):
            return {}
        try:
            return removed_operators(read_model(first), read_model(second))
        except (OSError, PrecisionDebugError):
            return {}

    return removed


def _in_files(
    base: Opening, target: Opening
) -> Callable[[str, str], tuple[Operator, Operator] | None] | None:  # fmt: skip
    """See explain.Subject. Of two ONNX files that two engines run: one engine says it of both in its own words."""
    first, second = (opening.spec.model.model_file for opening in (base, target))
    of_onnx = first.lower().endswith(".onnx") and second.lower().endswith(".onnx")
    if not of_onnx or first == second or base.backend is target.backend or None in (base.backend, target.backend):
        return None

    @functools.cache
    def files() -> tuple[FileOperators, FileOperators]:
        return FileOperators(read_model(first)), FileOperators(read_model(second))

    def held(name: str, there: str) -> tuple[Operator, Operator] | None:
        try:
            one, other = (file.operator_of(key) for file, key in zip(files(), (name, there), strict=True))
        except PrecisionDebugError:
            return None
        return None if one is None or other is None else (one, other)

    return held


def _explained(
    work: Comparing, both: OpenPair, subject: explain.Subject, sample: int, again: Again
) -> tuple[Explanation, ToKeep | None]:  # fmt: skip
    spec, journal = work.spec, work.journal
    feeds, target_feeds = work.feeds(sample)
    decided = None
    try:
        decided = explain.decided_otherwise(subject, spec.explain)
    except explain.NOT_LOOKED_AT as error:
        detail = str(error) if isinstance(error, PrecisionDebugError) else f"{type(error).__name__}: {error}"
        work.note(say("decisions_not_looked_at", detail=detail))
    explain_one = functools.partial(
        explain.explain, level=spec.explain, folder=work.folder,
        on_portrait=lambda portrait: journal.write(events.PortraitMade(portrait=portrait)),
        on_tokens=lambda effects: journal.write(events.TokenEffectsFound(effects=effects)),
    )  # fmt: skip
    explanation, found = explain_one(subject if decided is None else decided.before)
    if decided is not None and decided.clear and explanation.state == "healthy":
        explanation, found = explain_one(subject)  # of right scores: whoever decides may be who is wrong
    explanation = with_faulty_pass(
        explanation, subject, both.target.opening, spec.find_pass, target_feeds, work.feed_set.for_target().calibrating
    )
    if decided is not None:
        explanation = explain.with_decisions(explanation, decided)
    else:
        explanation, flips = explain.with_choices(explanation, subject)
        for reason in flips:
            work.note(reason)
    mode = both.target.opening.mode
    if both.target.opening.precision == "float16" and mode is not None:
        notes, doubts = inside_sums(subject, mode.accumulates)
        for reason in notes:
            work.note(reason)
        both.target.doubt(doubts)
    if spec.second_opinion:
        journal.write(events.Stage(text=say("stage_second_opinion")))
        explanation, notes = with_second_opinion(explanation, both.base, feeds, work.folder)
        for reason in notes:
            work.note(reason)
    agreeing = None
    if work.fixes:
        sides = both.base.opening, both.target.opening
        explanation = with_configurations(explanation, *sides, again, work.folder, subject.order)
        explanation, agreeing = with_agreement(
            explanation, spec, both.base, both.target, subject, work.feed_set, work.folder, sample=sample,
            begun=lambda: journal.write(events.Stage(text=say("stage_trying_fixes"))),
        )  # fmt: skip
    journal.write(events.IntroducedErrors(tensors=tuple(found)))
    journal.write(events.Explained(explanation=explanation))
    return explanation, agreeing
