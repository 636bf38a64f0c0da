"""Open and pair both sides: what is compared is known before anything runs."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import events, recording, registry
from ..errors import MarkError, UsageError
from ..events import Note, Paired, PairKept
from ..feeds import FeedSet
from ..observe.worst_pairs import WorstPairs
from ..pairing import marks
from ..pairing.align import Alignment, align
from ..protocols import Feeds, Matches
from ..reasons import Reason, as_reason, say
from ..reasons.ways import Way
from ..records import RunSpec, TensorMeta
from .answers import Answers
from .content import digest_model
from .inputs import choose_samples
from .journal import Journal
from .open_pair_run import HookChain, OpenPair, choose_placement, place_on_host
from .plan import NONE, Opening, is_across_frameworks, is_converted
from .recut import recut_sides
from .repetition import Repetition
from .saved import SavedOutputs
from .side import OpenSide, open_both, open_one

__all__ = [
    "Apart",
    "Comparing",
    "PairedLists",
    "find_renames",
    "finish_recording",
    "freeze_old_objects",
    "open_pair",
    "record",
    "refuse_lockstep",
    "runs_together",
    "select_marked",
]  # fmt: skip


# What a process held before a comparison is no garbage of ours.

_at_rest = False
"""Whether they are: while something is compared, or for good where somebody else has seen to it. The collector is asked
until it says so, and not again: it counts them one by one, 50 ms with PyTorch and Paddle imported."""


@contextlib.contextmanager
def freeze_old_objects() -> Iterator[None]:
    """Keep the garbage collector away from the objects that are there already.

    A framework and a model are a million objects, and a quarter of a second each time that it walks through all of
    them."""
    global _at_rest  # noqa: PLW0603
    if not _at_rest and gc.get_freeze_count():
        _at_rest = True  # somebody else's, and never ended here
    if _at_rest:
        yield
        return
    _at_rest = True
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        _at_rest = False


# Which tensors of both sides are compared: decided when both are open, and again whenever one lists others.

@dataclass(frozen=True, kw_only=True)
class PairedLists:
    """The one place where two lists become pairs: the journal carries them, and the report only looks them up."""

    base: OpenSide
    target: OpenSide
    journal: Journal
    renames: Mapping[str, str]
    matches: Matches | None = None
    two_files: bool = False
    recut: Mapping[str, tuple[str, Way]] = field(default_factory=dict)

    def align(self) -> Alignment:
        """Return the pairs of what both list by now; the journal is not told. Raises MarkError: see ``align``."""
        return align(
            self.base.announced, self.target.announced, self.renames, self.matches, two_files=self.two_files
        )  # fmt: skip

    def decide(self) -> Alignment:
        """Of the tensors that both list at the start; from now on again whenever a side lists others.

        Raises MarkError: see ``align``.
        """
        found = self._aligned(self.renames)
        self.base.on_announced = self.target.on_announced = self._again
        return found

    def _again(self) -> None:
        here, there = ({meta.name for meta in side.announced} for side in (self.target, self.base))
        self._aligned({new: old for new, old in self.renames.items() if new in here and old in there})

    def _aligned(self, renames: Mapping[str, str]) -> Alignment:
        found = align(
            self.base.announced, self.target.announced, renames, self.matches, two_files=self.two_files,
            recut=self.recut,
        )  # fmt: skip
        pairs = {name: (pair.base.name, pair.how) for name, pair in found.pairs.items()}
        self.journal.write(
            Paired(pairs=pairs, rivals=found.rivals, refused=found.refused, missing=found.missing)
        )  # fmt: skip
        return found


# What one comparison is made of, from the command to where its results go.

@dataclass(frozen=True, kw_only=True)
class Comparing:
    """What a comparison needs.

    folder: an existing one for temporary files. stored: waits until the inputs are kept, and raises its errors. parts:
    of many samples, the parts to compare, one at a time; None: all of them. fixes: try what mends the target. shown:
    somebody reads the report. answers, saved: what evaluates and keeps the outputs; a comparison that is begun again
    has new ones."""

    spec: RunSpec
    baseline: Opening
    target: Opening
    feed_set: FeedSet
    journal: Journal
    folder: Path
    stored: Callable[[], None]
    repetition: Repetition
    parts: Iterable[list[int]] | None = None
    fixes: bool = True
    shown: bool = True
    answers: Answers = field(init=False)
    saved: SavedOutputs | None = field(init=False)

    def __post_init__(self) -> None:
        first, _ = choose_samples(self.spec.sample, len(self.feed_set.feeds))
        modes = self.baseline.label, self.target.label
        saved = SavedOutputs(self.spec.save_outputs, modes, self.folder) if self.spec.save_outputs else None
        object.__setattr__(self, "answers", Answers(self.spec, self.feed_set, first))
        object.__setattr__(self, "saved", saved)

    @property
    def alone(self) -> bool:
        """Whether there is no baseline: the target is only validated, held against itself."""
        return self.spec.baseline == NONE

    @property
    def explains(self) -> bool:
        """Whether who introduced the error is asked for, and there is an error to speak of."""
        return self.spec.explain != "off" and not self.alone

    def feeds(self, sample: int) -> tuple[Feeds, Feeds]:
        """Return what both sides are fed: the baseline's and the target's."""
        return self.feed_set.feeds[sample], self.feed_set.for_target().feeds[sample]

    def note(self, text: Reason) -> None:
        """Tell the journal a sentence for the report."""
        self.journal.write(Note(text=text))

    def keepers_of_pairs(self) -> list[WorstPairs]:
        """Return what saves the worst tensors of a run, where that is asked for."""
        most = self.spec.save_tensors
        if not most:
            return []
        return [WorstPairs(most, self.folder, lambda name, at: self.journal.write(PairKept(name=name, number=at)))]


# Both sides, opened and paired: what is compared with what is known before anything runs.

@contextlib.contextmanager
def open_pair(work: Comparing, *, apart: bool) -> Iterator[OpenPair]:
    """apart: the two may not advance together. Raises PrecisionDebugError, and Apart where they cannot after all."""
    first, second, journal, spec = work.baseline, work.target, work.journal, work.spec
    matches = None
    if is_converted(first, second):
        matches, second = _match_converted(work)
    elif is_across_frameworks(first, second):
        matches = _match_across(work)
    together = not apart and not work.alone and runs_together(spec, first, second)
    place = place_on_host(first, second) if work.alone else choose_placement(first, second, together=together)
    if place.why:
        work.note(as_reason(place.why))
    opened = (
        open_one(place.target, work.feed_set, journal) if work.alone
        else open_both(place.baseline, place.target, work.feed_set, journal, together)
    )  # fmt: skip
    with opened as (base, target), freeze_old_objects():
        work.answers.check([meta for meta in base.tensors if meta.is_output])
        names = select_marked(spec, base.tensors, journal)
        refuse_lockstep(together, base, target)
        alignment = _align_sides(work, base, target, matches, whole=place.on_host)
        names = _announce_plan(spec, base, alignment, names, journal)
        yield OpenPair(
            spec=spec, base=base, target=target, names=names, alignment=alignment, place=place, together=together,
            folder=work.folder,
        )  # fmt: skip


class Apart(Exception):
    """Raised where two runs that were to advance together cannot. why: the reason, for the report."""

    def __init__(self, why: Reason) -> None:
        super().__init__(why)
        self.why = why


def refuse_lockstep(together: bool, *sides: OpenSide) -> None:
    """Raise Apart where one of two that advance together says that it cannot."""
    reason = next((side.session.alone for side in sides if side.session.alone), "")
    if together and reason:
        raise Apart(as_reason(reason))


def runs_together(spec: RunSpec, first: Opening, second: Opening) -> bool:
    """Return whether both runs advance together; where the user leaves it open, as soon as both sides can."""
    able = all(side.mode is None or side.mode.concurrent for side in (first, second))
    if spec.lockstep and not able:
        side = next(side for side in (first, second) if side.mode is not None and not side.mode.concurrent)
        raise UsageError(
            f"run mode {side.label} cannot run side by side with another", where="--lockstep on", hint="leave it out"
        )
    return able if spec.lockstep is None else spec.lockstep


def select_marked(spec: RunSpec, tensors: Sequence[TensorMeta], journal: Journal) -> frozenset[str] | None:
    """Return the names of the tensors that the marks select, and tell the journal; None where there are no marks."""
    patterns = list(spec.marks)
    if spec.marks_from_inspector:
        found = marks.get_mark_names_from_serialized_json(spec.marks_from_inspector)
        if not found:  # none is not all of them
            raise MarkError(say("no_fused_outputs"), where=spec.marks_from_inspector, hint=say("leave_it_out"))
        patterns += found
    if not patterns and spec.marks_between is None:
        return None
    names = {
        *marks.select(patterns, spec.marks_between, [meta.name for meta in tensors]),
        *_list_final_outputs(spec, tensors),
    }
    journal.write(events.Selected(names=tuple(meta.name for meta in tensors if meta.name in names)))
    return frozenset(names)


def _list_final_outputs(spec: RunSpec, tensors: Sequence[TensorMeta]) -> set[str]:
    """Return the final outputs, which are compared beside whatever is marked: they cost nothing, and change no
    fusion."""
    return set() if spec.without_outputs else {meta.name for meta in tensors if meta.is_output}


def find_renames(
    spec: RunSpec, feed_set: FeedSet, baseline: Sequence[TensorMeta], target: Sequence[TensorMeta]
) -> dict[str, str]:
    """Return the user's rename map, and inputs that have another name; inputs that a side does not list are left
    out."""
    ours, theirs = {meta.name for meta in baseline}, {meta.name for meta in target}
    both = {new: old for new, old in feed_set.names.items() if new != old and new in theirs and old in ours}
    own = {new: old for new, old in spec.renames.items() if feed_set.names.get(new) != old}
    return {**both, **own}


def _align_sides(
    work: Comparing, base: OpenSide, target: OpenSide, matches: Matches | None, *, whole: bool
) -> Alignment:
    """whole: tensors may be put together, in the host's memory."""
    renames = find_renames(work.spec, work.feed_set, base.tensors, target.tensors)
    two_files = base.opening.spec.model != target.opening.spec.model
    pairer = target.opening.capabilities.pairer
    if matches is None and pairer is not None:
        matches = pairer.pair(base.tensors, target.tensors)
        for note in matches.notes if matches is not None else ():
            work.note(note)
    pairs = PairedLists(
        base=base, target=target, journal=work.journal, renames=renames, matches=matches, two_files=two_files
    )  # fmt: skip
    apart = two_files or base.opening.recording or target.opening.recording
    if apart and whole and base is not target and not (work.spec.marks or work.spec.marks_between):
        found = recut_sides(base, target, pairs.align(), work.feeds(0))
        pairs = dataclasses.replace(pairs, recut=found.pairs)
        for one in found.beyond:
            work.note(
                say("output_padding", name=one.name, axis=one.axis, count=one.count, of_target=one.of_target)
            )
            if one.largest:
                work.note(
                    say("padding_is_largest", name=one.name, axis=one.axis, largest=one.largest, places=one.places)
                )
    return pairs.decide()


def _announce_plan(
    spec: RunSpec, base: OpenSide, alignment: Alignment, names: frozenset[str] | None, journal: Journal
) -> frozenset[str] | None:
    """Of the baseline's tensors those that are wanted; None: all. The journal is told how many will be seen."""
    paired = {pair.base.name for pair in alignment.pairs.values() if not pair.target.unseen}
    if spec.fused_only:
        names = frozenset((paired if names is None else names & paired) | _list_final_outputs(spec, base.tensors))
        journal.write(events.Selected(names=tuple(meta.name for meta in base.tensors if meta.name in names)))
    seen = [meta for meta in base.tensors if not meta.unseen and (names is None or meta.name in names)]
    journal.write(events.Plan(baseline=len(seen), target=sum(meta.name in paired for meta in seen)))
    return names


def _match_converted(work: Comparing) -> tuple[Matches, Opening]:
    """Return what names and values say of a model's tensors and a converted file's, and the target in the model's
    layouts."""
    matches, arranged = _match_by(work, "converted")
    return matches, dataclasses.replace(work.target, arranged=arranged)


def _match_across(work: Comparing) -> Matches:
    """Return what values say of two frameworks' tensors."""
    matches: Matches = _match_by(work, "across_frameworks")[0]
    return matches


def _match_by(work: Comparing, door: str) -> Sequence[Any]:
    """Return what values say of two runs' tensors, after telling the notes, which come last."""
    match_values = registry.import_from_door("pairings", door)
    work.journal.write(events.Stage(text=say("stage_pairing")))
    feeds, target_feeds = work.feeds(0)
    found: list[Any]
    *found, notes = match_values(
        work.baseline, work.target, feeds, target_feeds=target_feeds, folder=work.folder,
        memory_budget=work.spec.memory_budget,
    )  # fmt: skip
    for note in notes:
        work.note(as_reason(note))
    return found


# A run that is recorded: alone, or while it is compared.

def record(spec: RunSpec, opening: Opening, feed_set: FeedSet, journal: Journal, stored: Callable[[], None]) -> None:
    """Run the target alone, and save its tensors as a recording."""
    with OpenSide("target", opening, feed_set, journal) as side:
        names = select_marked(spec, side.tensors, journal)
        with recording.RecordingWriter(spec.record, overwrite=True) as writer:

            def tell(_op_type: str, name: str, _tensor: Any, /) -> None:
                journal.write(events.Saved(name=name, stats=None))

            stored()
            outputs = side.run(HookChain(hooks=(writer, tell)), names)
            finish_recording(writer, side, feed_set, outputs)


def finish_recording(
    writer: recording.RecordingWriter, side: OpenSide, feed_set: FeedSet, outputs: Mapping[str, Any]
) -> None:
    """Complete a recording with what the open session says of itself."""
    session, spec, backend = side.session, side.opening.spec, side.opening.backend
    keeper = side.opening.capabilities.weight_keeper
    writer.finish(
        mode=spec.mode,
        precision=session.arithmetic or side.opening.precision,
        backend=backend.name if backend else "recording",
        model=spec.model.path,
        digest=digest_model(spec.model),
        versions=dict(session.versions),
        notes=tuple(session.notes),
        feeds=feed_set.feeds[0],
        tensors=tuple(session.tensors),
        outputs=outputs,
        weights=keeper.weights(spec) if keeper is not None else None,
    )
