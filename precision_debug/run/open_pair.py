"""Both sides, opened and paired: what is compared with what is known before anything runs."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator, Sequence

from .. import events, registry
from ..errors import MarkError, UsageError
from ..feeds import FeedSet
from ..pairing import marks
from ..pairing.align import Alignment
from ..protocols import Matches
from ..reasons import Reason, as_reason, say
from ..records import RunSpec, TensorMeta
from .comparing import Comparing
from .journal import Journal
from .old_objects import old_objects_at_rest
from .open_pair_run import OpenPair
from .pairs import Pairs
from .placement import choose_placement, place_on_host
from .plan import Opening, converted, crosses
from .side import OpenSide, open_both, open_one

__all__ = ["Apart", "open_pair", "refuse_lockstep", "renames_of", "runs_together", "selected"]


@contextlib.contextmanager
def open_pair(work: Comparing, *, apart: bool) -> Iterator[OpenPair]:
    """apart: the two may not advance together. Raises PrecisionDebugError, and Apart where they cannot after all."""
    first, second, journal, spec = work.baseline, work.target, work.journal, work.spec
    matches = None
    if converted(first, second):
        matches, second = _matches_converted(work)
    elif crosses(first, second):
        matches = _matches_across(work)
    together = not apart and not work.alone and runs_together(spec, first, second)
    place = place_on_host(first, second) if work.alone else choose_placement(first, second, together=together)
    opened = (
        open_one(place.target, work.feed_set, journal) if work.alone
        else open_both(place.baseline, place.target, work.feed_set, journal, together)
    )  # fmt: skip
    with opened as (base, target), old_objects_at_rest():
        work.answers.check([meta for meta in base.tensors if meta.is_output])
        names = selected(spec, base.tensors, journal)
        refuse_lockstep(together, base, target)
        alignment = _aligned(work, base, target, matches)
        names = _announced_plan(spec, base, alignment, names, journal)
        yield OpenPair(
            spec=spec, base=base, target=target, names=names, alignment=alignment, place=place, together=together,
            folder=work.folder,
        )  # fmt: skip


class Apart(Exception):
    """why: two runs that were to advance together cannot."""

    def __init__(self, why: Reason) -> None:
        super().__init__(why)
        self.why = why


def refuse_lockstep(together: bool, *sides: OpenSide) -> None:
    """Raise Apart where one of two that advance together says that it cannot."""
    reason = next((side.session.alone for side in sides if side.session.alone), "")
    if together and reason:
        raise Apart(as_reason(reason))


def runs_together(spec: RunSpec, first: Opening, second: Opening) -> bool:
    """Whether both runs advance together; where the user leaves it open, as soon as both sides can."""
    able = all(side.mode is None or side.mode.concurrent for side in (first, second))
    if spec.lockstep and not able:
        side = next(side for side in (first, second) if side.mode is not None and not side.mode.concurrent)
        raise UsageError(
            f"run mode {side.label} cannot run side by side with another", where="--lockstep on", hint="leave it out"
        )
    return able if spec.lockstep is None else spec.lockstep


def selected(spec: RunSpec, tensors: Sequence[TensorMeta], journal: Journal) -> frozenset[str] | None:
    """Return the names of the tensors that the marks select, and tell the journal; None where there are no marks."""
    patterns = list(spec.marks)
    if spec.marks_from_inspector:
        found = marks.get_mark_names_from_serialized_json(spec.marks_from_inspector)
        if not found:  # none is not all of them
            raise MarkError(say("no_fused_outputs"), where=spec.marks_from_inspector, hint=say("leave_it_out"))
        patterns += found
    if not patterns and spec.marks_between is None:
        return None
    names = {*marks.select(patterns, spec.marks_between, [meta.name for meta in tensors]), *_finals(spec, tensors)}
    journal.write(events.Selected(names=tuple(meta.name for meta in tensors if meta.name in names)))
    return frozenset(names)


def _finals(spec: RunSpec, tensors: Sequence[TensorMeta]) -> set[str]:
    """The final outputs, which are compared beside whatever is marked: they cost nothing, and change no fusion."""
    return set() if spec.without_outputs else {meta.name for meta in tensors if meta.is_output}


def renames_of(
    spec: RunSpec, feed_set: FeedSet, baseline: Sequence[TensorMeta], target: Sequence[TensorMeta]
) -> dict[str, str]:
    """The user's rename map, and inputs that have another name; inputs that a side does not list are left out."""
    ours, theirs = {meta.name for meta in baseline}, {meta.name for meta in target}
    both = {new: old for new, old in feed_set.names.items() if new != old and new in theirs and old in ours}
    own = {new: old for new, old in spec.renames.items() if feed_set.names.get(new) != old}
    return {**both, **own}


def _aligned(work: Comparing, base: OpenSide, target: OpenSide, matches: Matches | None) -> Alignment:
    renames = renames_of(work.spec, work.feed_set, base.tensors, target.tensors)
    two_files = base.opening.spec.model != target.opening.spec.model
    pairer = target.opening.capabilities.pairer
    if matches is None and pairer is not None:
        matches = pairer.pair(base.tensors, target.tensors)
        for note in matches.notes if matches is not None else ():
            work.note(note)
    pairs = Pairs(
        base=base, target=target, journal=work.journal, renames=renames, matches=matches, two_files=two_files
    )  # fmt: skip
    return pairs.decide()


def _announced_plan(
    spec: RunSpec, base: OpenSide, alignment: Alignment, names: frozenset[str] | None, journal: Journal
) -> frozenset[str] | None:
    """Of the baseline's tensors those that are wanted; None: all. The journal is told how many will be seen."""
    paired = {pair.base.name for pair in alignment.pairs.values() if not pair.target.unseen}
    if spec.fused_only:
        names = frozenset((paired if names is None else names & paired) | _finals(spec, base.tensors))
        journal.write(events.Selected(names=tuple(meta.name for meta in base.tensors if meta.name in names)))
    seen = [meta for meta in base.tensors if not meta.unseen and (names is None or meta.name in names)]
    journal.write(events.Plan(baseline=len(seen), target=sum(meta.name in paired for meta in seen)))
    return names


def _matches_converted(work: Comparing) -> tuple[Matches, Opening]:
    """What names and values say of a model's tensors and a converted file's, and the target in the model's layouts."""
    match_converted = registry.opened("pairings", "converted")
    work.journal.write(events.Stage(text=say("stage_pairing")))
    feeds, target_feeds = work.feeds(0)
    matches, arranged, notes = match_converted(
        work.baseline, work.target, feeds, target_feeds=target_feeds, folder=work.folder,
        memory_budget=work.spec.memory_budget,
    )  # fmt: skip
    for note in notes:
        work.note(note)
    return matches, dataclasses.replace(work.target, arranged=arranged)


def _matches_across(work: Comparing) -> Matches:
    """What values say of two frameworks' tensors."""
    match_values = registry.opened("pairings", "across_frameworks")
    work.journal.write(events.Stage(text=say("stage_pairing")))
    feeds, target_feeds = work.feeds(0)
    matches: Matches
    matches, notes = match_values(
        work.baseline, work.target, feeds, target_feeds=target_feeds, folder=work.folder,
        memory_budget=work.spec.memory_budget,
    )  # fmt: skip
    for note in notes:
        work.note(as_reason(note))
    return matches
