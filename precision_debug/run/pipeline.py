"""The story in one screen: open both sides, feed both the same, save one, compare the other, keep what happened.

Everything is told to the journal as it is finished; ``report.from_journal`` makes the report of it.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .. import events
from ..errors import PrecisionDebugError
from ..protocols import Feeds
from ..reasons import say
from ..records import Doubt, ModelFiles, RunSpec
from ..report import sections
from ..settings import without_saving
from .explaining import explain_sample, judge_unseen
from .faulty_pass import with_stopping_pass
from .inputs import load_feeds, store_inputs
from .journal import Journal
from .judging import Pasted, read_pasted
from .open_pair import Apart, Comparing, open_pair, record, refuse_lockstep
from .open_pair_run import OpenPair
from .plan import RunPlan, find_side, make_plan
from .repetition import Repetition
from .samples import OneSample, Samples
from .second_opinion import prove_faults_of_sides
from .unseen_inputs import calibrates_on_compared, with_variants

__all__ = ["execute"]


def execute(
    spec: RunSpec, journal: Journal, *, folder: Path, feeds: Sequence[Feeds] = (), plan: RunPlan | None = None,
    parts: Iterable[list[int]] | None = None, fixes: bool = True, shown: bool = True,
) -> None:  # fmt: skip
    """Run a command and tell the journal.

    folder: an existing folder for temporary files and ``inputs``. feeds: arrays that the caller has already, in place
    of ``spec.inputs``. plan: both sides, where the caller has their models in memory. parts: of many samples, the parts
    to compare, one at a time (see ``_run_parts``). fixes: what mends the culprits is tried. shown: somebody
    reads the report; otherwise what decides nothing (portraits, who moves a token) is not measured. Raises
    PrecisionDebugError; what was finished before is in the journal.
    """
    begun = time.monotonic()
    journal.write(events.Start(spec=spec, machine=sections.describe_machine(), started=sections.local_time()))
    plan = plan or make_plan(spec, work_dir=str(folder))
    feed_set = load_feeds(spec, plan, feeds)
    if spec.input_variants:
        plan, feed_set = with_variants(spec, plan, feed_set)
        fixes = False  # what a mode keeps in a higher precision is no question here
    elsewhere = next((find_side(side.recording) for side in (plan.baseline, plan.target) if side and side.dump), None)
    if elsewhere is not None:
        plan = elsewhere.with_recorded_dumps(plan, feed_set, folder)
    with store_inputs(feed_set, journal, folder, spec.save_inputs) as stored:
        if plan.baseline is None:
            record(spec, plan.target, feed_set, journal, stored)
        else:
            again = Repetition(spec, plan.target, feed_set, journal, folder)
            work = Comparing(
                spec=spec, baseline=plan.baseline, target=plan.target, feed_set=feed_set, journal=journal,
                folder=folder, stored=stored, parts=parts, fixes=fixes, shown=shown, repetition=again,
            )  # fmt: skip
            try:
                _compare_either_way(work)
            except PrecisionDebugError as error:
                said = with_stopping_pass(error, plan.target, work.feeds(0)[1], feed_set.for_target().calibrating)
                if said is error:
                    raise
                raise said from error
            if again.count:
                again.finish()
    journal.write(events.End(seconds=time.monotonic() - begun))


def _compare_either_way(work: Comparing) -> None:
    """Side by side, or one after the other where that turns out to be impossible."""
    try:
        _compare(work)
    except Apart as reason:
        work.journal.write(events.Again())
        work.note(say("apart", why=reason.why))
        _compare(dataclasses.replace(work), apart=True)


def _compare(work: Comparing, *, apart: bool = False) -> None:
    """Open and pair both sides, compare every sample, and ask of the worst one who did it."""
    # before either side is opened: what files prove by themselves is told even where an engine cannot load them
    for reason in prove_faults_of_sides(work.baseline, work.target, asked=work.spec.second_opinion):
        work.note(reason)
    if work.alone:
        work.note(say("validated_alone"))
    with open_pair(work, apart=apart) as both:
        work.stored()
        samples = OneSample(work, both) if work.feed_set.many is None else Samples(work, both)
        if work.parts is not None and isinstance(samples, Samples):
            _run_parts(work.parts, samples, work, both)
            return
        if not samples.compare():
            return
        refuse_lockstep(both.together, both.base, both.target)
        _record_late_tensors(both, work.journal)
        samples.finish()
        asked = work.explains or work.spec.save_tensors or work.repetition.count
        if not (asked or calibrates_on_compared(both.base, both.target, work.feed_set)):
            return
        number, ran = samples.worst()
        if work.repetition.count:
            of_many = None if work.feed_set.many is None else number
            work.repetition.hold(both, ran, work.feeds(number)[1], of_many)
        if work.explains:
            explain_sample(work, both, number, ran, partial(_compare_once_more, work, number))
        else:
            judge_unseen(work, both, number, ran)


def _run_parts(parts: Iterable[list[int]], samples: Samples, work: Comparing, both: OpenPair) -> None:
    """Do what is asked for: [FROM, TO] are samples to compare, [N] is one to explain."""
    for number, part in enumerate(parts):
        if len(part) == 1:
            ran = samples.again(part[0])
            if work.explains:
                explain_sample(work, both, part[0], ran, partial(_compare_once_more, work, part[0]))
            continue
        samples.part(*part)
        if number == 0:
            _record_late_tensors(both, work.journal)
            if not work.explains and calibrates_on_compared(both.base, both.target, work.feed_set):
                both.target.doubt((Doubt(code="only_calibrated"),))


def _record_late_tensors(both: OpenPair, journal: Journal) -> None:
    """What both sides have shown, beyond what they announced."""
    both.base.announce(both.seen[0])
    both.target.announce(both.seen[1])
    journal.write(events.Layers(layers=tuple(both.target.session.layers)))


def _compare_once_more(
    work: Comparing, sample: int, settings: Mapping[str, Any], model: ModelFiles | None = None, *,
    explained: bool = True,
) -> Pasted:  # fmt: skip
    """Return what one more comparison comes to, with further settings of the target's or another model in its place, on
    one sample."""
    options = {**without_saving(work.target.spec.options), **settings}
    there = dataclasses.replace(work.target.spec, options=options, model=model or work.target.spec.model)
    plan = RunPlan(
        baseline=dataclasses.replace(work.baseline, comparer=None),
        target=dataclasses.replace(work.target, comparer=None, spec=there),
    )  # fmt: skip
    one = dataclasses.replace(
        work.spec, inputs="", samples_axis=None, sample="", save_inputs="", labels="", metric="", metric_drop="",
        top_k=None, validate=False, compare="", fail_fast=False, find_pass=False, second_opinion=False,
        explain="fast" if explained else "off", repeat=None, run_once=True,
        save_outputs="", save_tensors=None, record="",
    )  # fmt: skip
    with tempfile.TemporaryDirectory(dir=work.folder) as room:
        path = Path(room, "journal.jsonl")
        with Journal(path) as journal:
            feeds = [work.feeds(sample)[0]]
            execute(one, journal, folder=Path(room), feeds=feeds, plan=plan, fixes=False, shown=False)
        return read_pasted(path)
