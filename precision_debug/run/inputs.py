"""Make what both sides are fed once, check it against both models, and tell it to the journal."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from .. import numbers, recording
from ..errors import InputError, PrecisionDebugError
from ..events import Inputs, Note
from ..feeds import (
    CALIBRATE,
    FeedSet,
    SampleSets,
    check_feeds,
    find_channel_transpose,
    make_feeds,
    match_inputs,
    save_feeds,
)
from ..feeds.dtypes import as_dtype, cast_exactly, is_float
from ..numbers.arrays import as_array
from ..numbers.number_types import QUANTISED
from ..protocols import Feeds
from ..reasons import Reason, say
from ..records import InputInfo, InputMeta, RunSpec
from .journal import Journal
from .plan import Opening, RunPlan, find_side
from .saved import save_inputs
from .side import guard_call

__all__ = ["choose_samples", "load_feeds", "store_inputs"]


# --sample: which of the samples are compared.

def choose_samples(text: str | None, count: int) -> tuple[int, range | None]:
    """(the one to compare, or the first, and the range of many or None) of ``--sample``. Raises InputError."""
    if not text:
        return 0, range(count) if count > 1 else None
    low, colon, high = text.partition(":")
    try:
        first = int(low or 0)
        last = (int(high) if high else count) if colon else first + 1
    except ValueError:
        first, last = -1, -1
    if not 0 <= first < last <= count:
        raise InputError(
            say("no_sample", value=text), where="--sample", hint=say("samples_are", last=count - 1, count=count)
        )
    return first, range(first, last) if colon else None


# What both sides are fed: made once, checked against both models, and told to the journal.

def load_feeds(spec: RunSpec, plan: RunPlan, feeds: Sequence[Feeds]) -> FeedSet:
    """Return the sample sets of a run, and which of them are compared. Raises InputError or ModelError.

    feeds: arrays that the caller has already. One that is to be compared alone comes first; all of them calibrate.
    """
    feed_set = _load_feeds(spec, plan, feeds)
    first, many = choose_samples(spec.sample, len(feed_set.feeds))
    if (plan.baseline is None or spec.record) and many is not None:
        note = say("one_recorded", count=len(feed_set.feeds))
        feed_set = dataclasses.replace(feed_set, notes=(*feed_set.notes, note))
        many = None
    if first and many is None:
        feed_set = dataclasses.replace(
            feed_set, feeds=_with_first(feed_set.feeds, first),
            target=None if feed_set.target is None else _with_first(feed_set.target, first),
        )  # fmt: skip
    return _with_calibration(spec, plan, dataclasses.replace(feed_set, many=many))


def _with_calibration(spec: RunSpec, plan: RunPlan, feed_set: FeedSet) -> FeedSet:
    """Part of several samples calibrates, and the rest judges; of one batch, its first half calibrates.

    What is chosen by --sample judges, and the others calibrate. Of several modes, all are judged by the same ones.
    """
    mode = plan.target.mode
    if plan.baseline is None or mode is None or not (mode.calibrates or spec.judged_alike):
        return feed_set
    if _has_own_ranges(plan.target):
        return feed_set
    split = _split(spec, plan, feed_set)
    if mode.calibrates or split.many == feed_set.many:
        return split if mode.calibrates else feed_set
    count, judged = len(split.calibrates or ()), 1 if split.many is None else len(split.many)
    note = say("others_calibrate", count=count, judged=judged)
    return dataclasses.replace(feed_set, many=split.many, notes=(*feed_set.notes, note))


def _split(spec: RunSpec, plan: RunPlan, feed_set: FeedSet) -> FeedSet:
    count = len(feed_set.feeds)
    if spec.calibration_samples is not None:
        calibrates = tuple(range(min(count, spec.calibration_samples)))
        rest = range(len(calibrates), count)
        if feed_set.many == range(count) and rest:
            return _note_chosen_samples(feed_set, rest, calibrates)
        return dataclasses.replace(feed_set, calibrates=calibrates)
    if count == 1:
        halved = _is_batch(_list_inputs(plan.target), feed_set.for_target().feeds[0])
        note = (say("batch_calibrates"),) if halved else ()
        notes = (*feed_set.notes, *note)
        return dataclasses.replace(feed_set, calibrates=(0,), halved=halved, notes=notes)
    compared = range(1) if feed_set.many is None else feed_set.many
    others = tuple(number for number in range(count) if number not in compared)[:CALIBRATE]
    if others:
        return (
            _note_chosen_samples(feed_set, feed_set.many, others)
            if _have_same_shapes(feed_set, others[0])
            else feed_set
        )
    half = min(CALIBRATE, (count + 1) // 2)
    return _note_chosen_samples(feed_set, range(half, count), tuple(range(half)))


def _note_chosen_samples(feed_set: FeedSet, many: range | None, calibrates: tuple[int, ...]) -> FeedSet:
    note = say("part_calibrates", count=len(calibrates), judged=1 if many is None else len(many))
    return dataclasses.replace(feed_set, many=many, calibrates=calibrates, notes=(*feed_set.notes, note))


def _have_same_shapes(feed_set: FeedSet, other: int) -> bool:
    """Return whether a session that is opened with another sample takes the first one: engines fix their shapes by
    it."""
    first, second = feed_set.feeds[0], feed_set.feeds[other]
    return first.keys() == second.keys() and all(np.shape(first[name]) == np.shape(second[name]) for name in first)


def _is_batch(metas: Sequence[InputMeta], feeds: Mapping[str, Any]) -> bool:
    """Return whether every input has one and the same open first axis, of two entries or more."""
    open_axes = [meta.shape[0] if meta.shape else 0 for meta in metas]
    if not metas or any(isinstance(axis, int) for axis in open_axes) or len(set(open_axes)) > 1:
        return False
    sizes = {value.shape[0] for value in feeds.values() if isinstance(value, np.ndarray) and value.ndim}
    arrays = all(isinstance(value, np.ndarray) and value.ndim for value in feeds.values())
    return arrays and len(feeds) == len(metas) and len(sizes) == 1 and sizes.pop() > 1


def _has_own_ranges(side: Opening) -> bool:
    """Return whether the model is quantised already, so that nothing calibrates it."""
    file = side.spec.model.model_file
    if not file.lower().endswith(".onnx"):
        return False
    from ..onnx.graph import iterate_graphs
    from ..onnx.without_weights import read_light

    with contextlib.suppress(PrecisionDebugError):
        graph = read_light(file).proto.graph
        return any(QUANTISED.search(node.op_type) for one in iterate_graphs(graph) for node in one.node)
    return False


def _with_first(sets: Sequence[dict[str, Any]], first: int) -> Sequence[dict[str, Any]]:
    order = [first, *(number for number in range(len(sets)) if number != first)]
    if isinstance(sets, SampleSets):
        return SampleSets(len(sets), lambda place: sets[order[place]], cheap=sets.cheap)
    return tuple(sets[number] for number in order)


def _load_feeds(spec: RunSpec, plan: RunPlan, feeds: Sequence[Feeds]) -> FeedSet:
    """Return the sample sets of a run. feeds: arrays that the caller has already. Raises InputError or ModelError."""
    sides = [side for side in (plan.baseline, plan.target) if side is not None]
    recorded = next((side.recording for side in sides if side.brings_inputs), "")
    if recorded:
        if spec.inputs or feeds:
            raise InputError("a recorded run brings its own inputs", where=recorded, hint="leave --inputs out")
        session = recording.open_recording(recorded)
        loaded = dict(session.feeds)
        session.close()
        feed_set = FeedSet(feeds=(loaded,), source=say("recording_inputs", recording=str(recorded)), notes=())
        if all(side.recording for side in sides):
            return feed_set
        live = _list_inputs(next(side for side in sides if not side.recording))
        if sides[0].recording and len(sides) > 1:
            return _feed_both([_make_meta(name, value) for name, value in loaded.items()], live, feed_set, spec.renames)
        return check_feeds(live, feed_set)
    saved = next((side.recording for side in sides if side.recording), "")
    dumped = next((side.recording for side in sides if side.dump), "")
    elsewhere = find_side(dumped) if dumped else None
    if dumped and all(side.recording for side in sides):
        raise InputError(say("no_model_to_pair"), where=dumped, hint=say("dumps_first"))
    if elsewhere is not None and not spec.inputs and not feeds:
        held = elsewhere.read_dumped_inputs(dumped, _list_inputs(next(side for side in sides if not side.recording)))
        feeds = [held] if held else ()
    if saved and not spec.inputs and not feeds:
        raise InputError(
            say("outputs_alone"), where=saved,
            hint=say("add_inputs") if dumped else say("add_polygraphy_inputs"),
        )  # fmt: skip
    sides = [side for side in sides if not side.recording]
    metas = _list_inputs(sides[0])
    if len(sides) > 1 and _differ(sides) and not feeds and not spec.inputs:
        metas = _complete_inputs(metas, _list_inputs(sides[1]))
    exporter = sides[0].capabilities.exporter
    if not feeds and not spec.inputs and not spec.input_shapes and exporter is not None:
        example = exporter.examples(sides[0].spec)
        feeds = [example] if example else ()
        source = "the model's own example inputs"
    else:
        source = say("from_the_caller")

    def made(inputs: Sequence[InputMeta]) -> FeedSet:
        if feeds:
            return check_feeds(inputs, FeedSet(feeds=tuple(dict(f) for f in feeds), source=source, notes=()))
        return make_feeds(
            inputs, source=spec.inputs, shapes=spec.input_shapes, val_range=spec.val_range, seed=spec.seed,
            samples_axis=spec.samples_axis,
        )  # fmt: skip

    if len(sides) > 1 and _differ(sides):
        theirs = _list_inputs(sides[1])
        return _feed_both(metas, theirs, _feed_by_either_name(metas, theirs, spec.renames, made), spec.renames)
    return made(metas)


def _feed_by_either_name(
    ours: Sequence[InputMeta], theirs: Sequence[InputMeta], renames: Mapping[str, str],
    made: Callable[[Sequence[InputMeta]], FeedSet],
) -> FeedSet:  # fmt: skip
    """Return what is made by the baseline's names of the inputs, or by the target's where only those are given.

    Raises InputError: what is wrong with the baseline's names."""
    try:
        return made(ours)
    except InputError:
        try:
            old_of, _ = match_inputs(ours, theirs, renames)
            new_of = {old: new for new, old in old_of.items()}
            found = made([dataclasses.replace(meta, name=new_of.get(meta.name, meta.name)) for meta in ours])
        except InputError:
            found = None
        if found is None:
            raise

    def renamed(values: Mapping[str, Any]) -> dict[str, Any]:
        return {old_of.get(name, name): value for name, value in values.items()}

    sets = found.feeds
    own = sets.each(renamed) if isinstance(sets, SampleSets) else tuple(renamed(one) for one in sets)
    return dataclasses.replace(found, feeds=own, chosen=renamed(found.chosen))


def _feed_both(
    ours: Sequence[InputMeta], theirs: Sequence[InputMeta], feed_set: FeedSet, renames: Mapping[str, str]
) -> FeedSet:
    """Return the feeds as the target wants them too, under its own names where those differ. Raises InputError."""
    first = feed_set.feeds[0]
    absent = [meta.name for meta in ours if meta.name not in first]
    names, notes = match_inputs([meta for meta in ours if meta.name not in absent], theirs, renames)
    same = all(new == old for new, old in names.items()) and len(names) == len(ours) - len(absent)
    types = {meta.name: meta.dtype for meta in ours if not meta.guessed}
    same = same and all(meta.guessed or types.get(meta.name, meta.dtype) == meta.dtype for meta in theirs)

    def deployed(feeds: Mapping[str, Any], said: list[Reason]) -> dict[str, Any]:
        named = feeds if same else {new: feeds[old] for new, old in names.items()}
        return _as_deployed(_turn_channels(named, theirs, said), theirs, said)

    rounded: list[Reason] = []
    deployed(first, rounded)
    if isinstance(feed_set.feeds, SampleSets):
        if same and not rounded:
            return feed_set
        fed: Sequence[dict[str, Any]] = feed_set.feeds.each(lambda feeds: deployed(feeds, []))
    else:
        fed = tuple(deployed(feeds, rounded) for feeds in feed_set.feeds)
        if same and not rounded:
            return check_feeds(theirs, feed_set)
    checked = check_feeds(theirs, FeedSet(feeds=fed, source=feed_set.source))
    return dataclasses.replace(
        feed_set, notes=tuple(dict.fromkeys((*feed_set.notes, *notes, *rounded, *checked.notes))), target=checked.feeds,
        names=names,
    )  # fmt: skip


def _turn_channels(feeds: Mapping[str, Any], metas: Sequence[InputMeta], notes: list[Reason]) -> dict[str, Any]:
    """Arrays whose channels a converter put last, or first, as it did; and notes."""
    fed = dict(feeds)
    for meta in metas:
        value = feeds.get(meta.name)
        axes = find_channel_transpose(np.shape(value), meta) if isinstance(value, np.ndarray) else ()
        if axes:
            fed[meta.name] = np.ascontiguousarray(np.asarray(value).transpose(axes))
            notes.append(say("input_turned", name=meta.name, axes=str(list(axes))))
    return fed


def _as_deployed(feeds: Mapping[str, Any], metas: Sequence[InputMeta], notes: list[Reason]) -> dict[str, Any]:
    """Return floats in the type that a model takes, rounded where they have to be as a deployment rounds them; and
    notes."""
    fed = dict(feeds)
    for meta in metas:
        value, wanted = feeds.get(meta.name), as_dtype(meta.dtype)
        have = getattr(value, "dtype", None)
        if wanted is None or have is None or have == wanted or not (is_float(have) and is_float(wanted)):
            continue
        array = np.asarray(value)
        if cast_exactly(array, wanted) is not None:
            continue
        with np.errstate(over="ignore"):
            fed[meta.name] = array.astype(wanted)
        beyond = int(np.count_nonzero(np.isinf(fed[meta.name].astype(np.float32)) & np.isfinite(array)))
        name, dtype = meta.name, meta.dtype
        notes.append(
            say("input_rounded_infinite", name=name, dtype=dtype, have=have.name, beyond=beyond)
            if beyond
            else say("input_rounded", name=name, dtype=dtype, have=have.name)
        )
    return fed


def _complete_inputs(ours: Sequence[InputMeta], theirs: Sequence[InputMeta]) -> list[InputMeta]:
    """Return the baseline's inputs, completed by what the target knows of them.

    A size that the baseline leaves open is the one that the target's file fixes, and what it can only guess is what the
    target says."""
    fixed = {meta.name: meta.shape for meta in theirs if meta.shape is not None}
    said = {meta.name: meta for meta in theirs if not meta.guessed}
    ours = [
        dataclasses.replace(meta, dtype=other.dtype, shape=other.shape, optional=other.optional)
        if meta.guessed and (other := said.get(meta.name)) is not None
        else meta
        for meta in ours
    ]

    def sizes(meta: InputMeta) -> tuple[int | str, ...] | None:
        other = fixed.get(meta.name)
        if meta.shape is None or other is None or len(other) != len(meta.shape):
            return meta.shape
        pairs = zip(meta.shape, other, strict=True)
        return tuple(there if isinstance(here, str) and isinstance(there, int) else here for here, there in pairs)

    return [dataclasses.replace(meta, shape=sizes(meta)) for meta in ours]


def _make_meta(name: str, value: Any) -> InputMeta:
    array = as_array(value)
    return InputMeta(name=name, dtype=str(array.dtype.name), shape=tuple(array.shape))


def _list_inputs(side: Opening) -> Sequence[InputMeta]:
    metas: Sequence[InputMeta] = guard_call(side.label, side.inputs)
    return metas


def _differ(sides: Sequence[Opening]) -> bool:
    return sides[0].spec.model != sides[1].spec.model


@contextlib.contextmanager
def store_inputs(feed_set: FeedSet, journal: Journal, folder: Path, saved: str = "") -> Iterator[Callable[[], None]]:
    """Keep the inputs in a run's folder, and tell the journal of the set that is compared, beside what is done inside.

    saved: a file for all that are compared, as Polygraphy's JSON. What this gives waits until that is done, and raises
    its errors.
    """
    with ThreadPoolExecutor(1) as beside:
        yield beside.submit(_store, feed_set, journal, folder, saved).result


def _store(feed_set: FeedSet, journal: Journal, folder: Path, saved: str) -> None:
    few = not isinstance(feed_set.feeds, SampleSets)
    save_feeds(folder / "inputs.npz", feed_set.feeds if few else feed_set.feeds[0])
    if saved:
        chosen = range(1) if feed_set.many is None else feed_set.many
        save_inputs(saved, (feed_set.feeds[number] for number in chosen))
    infos = [_describe_input(name, value) for name, value in feed_set.feeds[0].items()]
    asked = 1 if feed_set.many is None else len(feed_set.many)
    journal.write(
        Inputs(inputs=tuple(infos), source=feed_set.source, file="", given=len(feed_set.feeds), asked=asked)
    )
    for note in feed_set.notes:
        journal.write(Note(text=note))
    if feed_set.calibrates is None and len(feed_set.feeds) > CALIBRATE:
        journal.write(Note(text=say("samples_calibrate", count=CALIBRATE, all=len(feed_set.feeds))))


def _describe_input(name: str, value: Any) -> InputInfo:
    if not isinstance(value, (list, tuple, dict, type(None))):
        return _describe_array(name, as_array(value))
    parts = list(value.values()) if isinstance(value, dict) else list(value or ())
    inside = [_describe_input(name, part) for part in parts]
    digest = hashlib.sha256("".join(info.sha256 for info in inside).encode()).hexdigest()
    kind = "none" if value is None else "map" if isinstance(value, dict) else "sequence"
    low = [info.min for info in inside if info.min is not None]
    high = [info.max for info in inside if info.max is not None]
    return InputInfo(
        name=name, dtype=kind, shape=(len(parts),), sha256=digest,
        min=min(low, default=None), max=max(high, default=None),
    )  # fmt: skip


def _describe_array(name: str, array: np.ndarray[Any, Any]) -> InputInfo:
    stats = numbers.describe(array)
    data: bytes | memoryview
    if array.dtype.kind in "OUS":
        data = "\0".join(map(str, array.ravel().tolist())).encode()
    else:
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b""
    digest = hashlib.sha256(data).hexdigest()
    return InputInfo(name=name, dtype=stats.dtype, shape=stats.shape, sha256=digest, min=stats.min, max=stats.max)
