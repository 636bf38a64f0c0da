"""The story in one screen: open both sides, feed both the same, save one, compare the other, keep what happened.

Everything is told to the journal as it is finished; ``report.from_journal`` makes the report of it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import events, explain, recording
from ..errors import UsageError
from ..feeds import FeedSet
from ..observe.portraits import Portraits
from ..observe.shard import Shard
from ..observe.worst_pairs import WorstPairs
from ..pairing import marks
from ..pairing.align import align
from ..protocols import Feeds, Matches
from ..reasons import Reason, as_reason, say
from ..records import Culprit, Row, RunSpec, Status, TensorMeta
from ..report import machine
from .answers import Answers
from .answers import finish as finish_answers
from .both import Both, Each, Ran
from .comparer import placed, placed_on_host
from .fail_fast import Enough, enough
from .faulty_pass import with_faulty_pass
from .fixes import tried_fix
from .inputs import feeds_of, storing
from .inside_sums import inside_sums
from .journal import Journal, read_events
from .old_objects import old_objects_at_rest
from .plan import NONE, Opening, Plan, crosses, make_plan
from .proven import proven
from .repetition import Repetition
from .samples import Samples, chosen_samples, finish_scores, worst_sample
from .saved_json import SavedOutputs
from .second_opinion import with_second_opinion
from .side import OpenSide, open_both, open_one

__all__ = ["execute"]


def execute(
    spec: RunSpec, journal: Journal, *, folder: Path, feeds: Sequence[Feeds] = (), plan: Plan | None = None,
    parts: Iterable[list[int]] | None = None, fixes: bool = True,
) -> None:  # fmt: skip
    """Run a command and tell the journal.

    folder: an existing folder for temporary files and ``inputs``. feeds: arrays that the caller has already, in place
    of ``spec.inputs``. plan: both sides, where the caller has their models in memory. parts: of many samples, the parts
    to compare, one at a time (see _in_parts). fixes: what mends the culprits is tried. Raises PrecisionDebugError; what
    was finished before is in the journal.
    """
    begun = time.monotonic()
    journal.write(events.Start(spec=spec, machine=machine.machine(), started=machine.now()))
    plan = plan or make_plan(spec, work_dir=str(folder))
    given = feeds_of(spec, plan, feeds)
    with storing(given, journal, folder, spec.save_inputs) as stored:
        if plan.baseline is None:
            _record(spec, plan.target, given, journal, stored)
        else:
            again = Repetition(spec, plan.target, given, journal, folder)
            told = (spec, plan.baseline, plan.target, given, journal, folder, stored, parts, again, fixes)
            try:
                _compare(*told)
            except _Apart as reason:
                journal.write(events.Again())
                journal.write(events.Note(text=say("apart", why=reason.why)))
                _compare(*told, apart=True)
            if again.count:
                again.finish()
    journal.write(events.End(seconds=time.monotonic() - begun))


def _compare(
    spec: RunSpec, first: Opening, second: Opening, given: FeedSet, journal: Journal, folder: Path,
    stored: Callable[[], None], parts: Iterable[list[int]] | None, repetition: Repetition, fixes: bool, *,
    apart: bool = False,
) -> None:  # fmt: skip
    wanted = spec.save_outputs
    saved = SavedOutputs(wanted, (first.label, second.label), folder) if wanted else None
    first_sample, _ = chosen_samples(spec.sample, len(given.feeds))
    answers = Answers(spec, given, first_sample)
    alone = spec.baseline == NONE
    for reason in proven(first, second, asked=spec.second_opinion):
        journal.write(events.Note(text=reason))
    if alone:
        journal.write(events.Note(text=say("validated_alone")))
    matches = _matched(spec, first, second, given, journal, folder) if crosses(first, second) else None
    together = not apart and not alone and _side_by_side(spec, first, second)
    place = placed(first, second, together=together) if not alone else placed_on_host(first, second)
    opened = (
        open_one(place.target, given, journal) if alone
        else open_both(place.baseline, place.target, given, journal, together)
    )  # fmt: skip
    with opened as (base, target), old_objects_at_rest():
        answers.check([meta for meta in base.tensors if meta.is_output])
        names = _selected(spec, base.tensors, journal)
        _if_alone(together, base, target)
        renames = _renames(spec, given, base.tensors, target.tensors)
        two_files = base.opening.spec.model != target.opening.spec.model
        journal.write(events.Renames(renames=renames, two_files=two_files))
        if matches is None:
            matches = _known_pairs(base, target, journal)
        alignment = align(base.tensors, target.tensors, renames, matches, two_files=two_files)
        paired = {pair.base.name for pair in alignment.pairs.values() if not pair.target.unseen}
        if spec.fused_only:
            names = frozenset(paired if names is None else names & paired)
            journal.write(events.Selected(names=tuple(meta.name for meta in base.tensors if meta.name in names)))
        seen = [meta for meta in base.tensors if not meta.unseen and (names is None or meta.name in names)]
        journal.write(events.Plan(baseline=len(seen), target=sum(meta.name in paired for meta in seen)))
        both = Both(
            spec=spec, base=base, target=target, names=names, alignment=alignment, place=place, together=together,
            folder=folder,
        )  # fmt: skip
        if given.many is not None:
            stored()
            samples = Samples(both, given, journal, answers, saved)
            journal.write(events.SamplesFound(first=given.many.start, last=given.many.stop))

            def explained(worst: int) -> None:
                journal.write(events.Stage(text=say("stage_explaining_worst", sample=worst)))
                pairs = _worst_pairs(spec, folder, journal)
                again = both.run(given.feeds[worst], given.for_target().feeds[worst], lookers=pairs)
                if pairs:
                    journal.write(events.Note(text=say("saved_of_sample", sample=worst)))
                if spec.explain == "off" or alone:
                    return
                _explain(spec, base, target, again.rows, given, journal, folder, together, again, fixes, sample=worst)

            if parts is not None:
                _in_parts(parts, samples, explained, lambda: _announced(both, journal))
                return
            whole = samples.run(given.many)
            if saved is not None:
                saved.finish()
            finish_scores(spec, whole, journal, base.tensors, answers.metric)
            _if_alone(together, base, target)
            _announced(both, journal)
            if (spec.explain != "off" and not alone) or spec.save_tensors:
                explained(worst_sample(whole, base.tensors))
            if repetition.count:
                worst = worst_sample(whole, base.tensors)
                fed = given.for_target().feeds[worst]
                repetition.hold(both, both.run(given.feeds[worst], fed), fed, worst)
            return
        stored()
        with contextlib.ExitStack() as stack:
            writer = None
            if spec.record:
                writer = stack.enter_context(recording.RecordingWriter(spec.record, overwrite=True))

            def finished(row: Row) -> None:
                journal.write(events.RowDone(row=row))
                if enough(spec, row, second.precision):
                    raise Enough(row)

            portraits = Portraits(
                None if spec.tolerance.given else explain.allowed_by(None, second.precision),
                lambda portrait: journal.write(events.PortraitMade(portrait=portrait)),
            )
            try:
                with portraits:
                    ran = both.run(
                        given.feeds[0], given.for_target().feeds[0], journal=journal, on_row=finished, also=writer,
                        lookers=[portraits, *_worst_pairs(spec, folder, journal)],
                    )
            except Enough as reason:
                journal.write(events.Note(text=say("fail_fast", name=reason.row.name)))
                return
            if writer is not None:
                _finish_recording(writer, target, given.for_target(), ran.target_outputs)
        _if_alone(together, base, target)
        if saved is not None:
            saved.add((ran.base_outputs, ran.target_outputs), (base.seconds, target.seconds))
            saved.finish()
        _announced(both, journal)
        for name, stats in ran.left.items():
            journal.write(events.Leftover(name=name, stats=stats))
        if ran.spilled_bytes:
            journal.write(events.Note(text=say("spilled", megabytes=ran.spilled_bytes / 1e6)))
        if ran.moved_bytes:
            journal.write(events.Note(text=say("moved_to_the_host", megabytes=ran.moved_bytes / 1e6)))
        if answers.asked:
            found = Shard()
            answers.add(found, first_sample, ran.base_outputs, ran.paired_outputs)
            finish_answers(spec, found, journal, answers.metric)
        if repetition.count:
            repetition.hold(both, ran, given.for_target().feeds[0])
        if spec.explain != "off" and not alone:
            _explain(spec, base, target, ran.rows, given, journal, folder, together, ran, fixes)


def _worst_pairs(spec: RunSpec, folder: Path, journal: Journal) -> list[WorstPairs]:
    """What saves tensors, where that is asked for."""
    most = spec.save_tensors
    if not most:
        return []
    return [WorstPairs(most, folder, lambda name, number: journal.write(events.PairKept(name=name, number=number)))]


def _announced(both: Both, journal: Journal) -> None:
    """What both sides have shown, beyond what they announced."""
    both.base.announce(both.seen[0])
    both.target.announce(both.seen[1])
    journal.write(events.Layers(layers=tuple(both.target.session.layers)))


def _in_parts(
    parts: Iterable[list[int]], samples: Samples, explained: Callable[[int], None], announce: Callable[[], None]
) -> None:
    """Do what is asked for: [FROM, TO] are samples to compare, [N] is one to explain."""
    for number, part in enumerate(parts):
        if len(part) == 1:
            explained(part[0])
            continue
        samples.part(*part)
        if number == 0:
            announce()


def _explain(
    spec: RunSpec, base: OpenSide, target: OpenSide, rows: Sequence[Row], given: FeedSet, journal: Journal,
    folder: Path, together: bool, ran: Ran, fixes: bool, *, sample: int = 0,
) -> None:  # fmt: skip
    """Both sides once more, each operator alone, and what its error does: see ``explain``; then what mends it.

    sample: which of the feeds ``ran`` is of.
    """
    journal.write(events.Stage(text=say("stage_explaining")))
    outputs = {meta.name for meta in base.tensors if meta.is_output}
    subject = explain.Subject(
        baseline=base.session,
        target=target.session,
        feeds=given.feeds[sample],
        target_feeds=given.for_target().feeds[sample],
        rows=[dataclasses.replace(row, is_output=row.name in outputs) for row in rows],
        tensors=base.tensors,
        targets={meta.name: meta for meta in target.tensors},
        together=together,
        precision=target.opening.precision,
        simulation=bool(target.opening.mode and target.opening.mode.simulation),
        two_files=base.opening.spec.model != target.opening.spec.model,
        two_frameworks=base.opening.backend is not target.opening.backend,
        memory_budget=spec.memory_budget,
        outputs=ran.base_outputs,
        target_outputs=ran.target_outputs,
        fails=spec.tolerance.given and any(row.status is Status.FAIL and row.name in outputs for row in rows),
    )
    explanation, found = explain.explain(
        subject, level=spec.explain, folder=folder,
        on_portrait=lambda portrait: journal.write(events.PortraitMade(portrait=portrait)),
    )  # fmt: skip
    explanation = with_faulty_pass(
        explanation, subject, target.opening, spec.find_pass, given.for_target().feeds[sample], given.for_target().feeds
    )  # fmt: skip
    if target.opening.precision == "float16" and target.opening.mode is not None:
        told, doubts = inside_sums(subject, target.opening.mode.accumulates)
        for reason in told:
            journal.write(events.Note(text=reason))
        target.doubt(doubts)
    if spec.second_opinion:
        journal.write(events.Stage(text=say("stage_second_opinion")))
        explanation, told = with_second_opinion(explanation, base, given.feeds[sample], folder)
        for reason in told:
            journal.write(events.Note(text=reason))
    journal.write(events.IntroducedErrors(tensors=tuple(found)))
    journal.write(events.Explained(explanation=explanation))
    if not fixes:
        return
    journal.write(events.Stage(text=say("stage_trying_fixes")))

    def again(kept: Mapping[str, Any]) -> Sequence[Culprit]:
        return _culprits_with(spec, base.opening, target.opening, kept, subject.feeds, folder)

    kept = tried_fix(
        spec, base, target, subject, explanation, given, folder, sample=sample,
        again=None if base.opening.recording else again,
        foreign=subject.two_files or crosses(base.opening, target.opening),
    )  # fmt: skip
    if kept is not None:
        journal.write(events.KeepTold(to_keep=kept))


def _culprits_with(
    spec: RunSpec, first: Opening, second: Opening, settings: Mapping[str, Any], feeds: Feeds, folder: Path
) -> Sequence[Culprit]:
    """Whom one more comparison names, with further settings of the target's, on one sample."""
    there = dataclasses.replace(second.spec, options={**second.spec.options, **settings})
    plan = Plan(
        baseline=dataclasses.replace(first, comparer=None),
        target=dataclasses.replace(second, comparer=None, spec=there),
    )  # fmt: skip
    one = dataclasses.replace(
        spec, inputs="", samples_axis=None, sample="", save_inputs="", labels="", metric="", top_k=None, validate=False,
        compare="", fail_fast=False, explain="fast", find_pass=False, second_opinion=False, repeat=None,
        save_outputs="", save_tensors=None, record="",
    )  # fmt: skip
    with tempfile.TemporaryDirectory(dir=folder) as room:
        path = Path(room, "journal.jsonl")
        with Journal(path) as journal:
            execute(one, journal, folder=Path(room), feeds=[feeds], plan=plan, fixes=False)
        for event in read_events(path, events.Explained):
            if isinstance(event, events.Explained):
                return event.explanation.culprits
    return ()


class _Apart(Exception):
    """why: two runs that were to advance together cannot."""

    def __init__(self, why: Reason) -> None:
        super().__init__(why)
        self.why = why


def _if_alone(together: bool, *sides: OpenSide) -> None:
    reason = next((side.session.alone for side in sides if side.session.alone), "")
    if together and reason:
        raise _Apart(as_reason(reason))


def _known_pairs(base: OpenSide, target: OpenSide, journal: Journal) -> Matches | None:
    pairer = target.opening.capabilities.pairer
    matches = pairer.pair(base.tensors, target.tensors) if pairer is not None else None
    if matches is not None:
        journal.write(events.Matched(matches=matches))
    return matches


def _matched(spec: RunSpec, first: Opening, second: Opening, given: FeedSet, journal: Journal, folder: Path) -> Matches:
    from .across_frameworks import match_values

    journal.write(events.Stage(text=say("stage_pairing")))
    matches, notes = match_values(
        first, second, given.feeds[0], target_feeds=given.for_target().feeds[0], folder=folder,
        memory_budget=spec.memory_budget,
    )  # fmt: skip
    journal.write(events.Matched(matches=matches))
    for note in notes:
        journal.write(events.Note(text=as_reason(note)))
    return matches


def _renames(
    spec: RunSpec, given: FeedSet, baseline: Sequence[TensorMeta], target: Sequence[TensorMeta]
) -> dict[str, str]:
    """The user's rename map, and inputs that have another name; inputs that a side does not list are left out."""
    ours, theirs = {meta.name for meta in baseline}, {meta.name for meta in target}
    both = {new: old for new, old in given.names.items() if new != old and new in theirs and old in ours}
    own = {new: old for new, old in spec.renames.items() if given.names.get(new) != old}
    return {**both, **own}


def _side_by_side(spec: RunSpec, first: Opening, second: Opening) -> bool:
    """Whether both runs advance together; where the user leaves it open, as soon as both sides can."""
    able = all(side.mode is None or side.mode.concurrent for side in (first, second))
    if spec.lockstep and not able:
        side = next(side for side in (first, second) if side.mode is not None and not side.mode.concurrent)
        raise UsageError(f"run mode {side.label} cannot run beside another", where="--lockstep on", hint="leave it out")
    return able if spec.lockstep is None else spec.lockstep


def _record(spec: RunSpec, opening: Opening, given: FeedSet, journal: Journal, stored: Callable[[], None]) -> None:
    with OpenSide("target", opening, given, journal) as side:
        names = _selected(spec, side.tensors, journal)
        with recording.RecordingWriter(spec.record, overwrite=True) as writer:

            def tell(_op_type: str, name: str, _tensor: Any, /) -> None:
                journal.write(events.Saved(name=name, stats=None))

            stored()
            outputs = side.run(Each(hooks=(writer, tell)), names)
            _finish_recording(writer, side, given, outputs)


def _selected(spec: RunSpec, tensors: Sequence[TensorMeta], journal: Journal) -> frozenset[str] | None:
    patterns = list(spec.marks)
    if spec.marks_from_inspector:
        patterns += marks.get_mark_names_from_serialized_json(spec.marks_from_inspector)
    if not patterns and spec.marks_between is None:
        return None
    names = marks.select(patterns, spec.marks_between, [meta.name for meta in tensors])
    journal.write(events.Selected(names=tuple(names)))
    return frozenset(names)


def _finish_recording(
    writer: recording.RecordingWriter, side: OpenSide, given: FeedSet, outputs: Mapping[str, Any]
) -> None:
    session, spec, backend = side.session, side.opening.spec, side.opening.backend
    keeper = side.opening.capabilities.weight_keeper
    writer.finish(
        mode=spec.mode,
        precision=session.arithmetic or side.opening.precision,
        backend=backend.name if backend else "recording",
        model=spec.model.path,
        versions=dict(session.versions),
        notes=tuple(session.notes),
        feeds=given.feeds[0],
        tensors=tuple(session.tensors),
        outputs=outputs,
        weights=keeper.weights(spec) if keeper is not None else None,
    )
