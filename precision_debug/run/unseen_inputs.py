"""Measure the error on other inputs: ones that did not calibrate, and the same sample alone, in a batch or padded."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError, PrecisionDebugError, UsageError
from ..explain import Subject
from ..feeds import FeedSet
from ..feeds.dtypes import is_float
from ..numbers.number_types import QUANTISED
from ..protocols import Feeds
from ..reasons import Reason, say
from ..records import Doubt, Explanation, InputMeta, RunSpec
from ..search.fix import SearchRequest
from ..settings.options import parse_variants
from .criterion import Sample
from .judging import is_random, make_held_out_feeds, make_judging
from .open_pair import Comparing
from .open_pair_run import OpenPair
from .plan import RunPlan, is_across_frameworks
from .side import OpenSide
from .trials import run_outputs
from .unseen_causes import find_unseen_cause

__all__ = ["calibrates_on_compared", "tell_unseen", "with_variants"]


# The error on inputs that did not calibrate: on the very one that did, a quantised model is at its best.
#
# Ranges that are taken from one input fit that input. Of several samples, or of a batch, part calibrates (see
# ``run.inputs``). Where all that is judged calibrated, both sides run on a few others: other random ones where the
# inputs are random, else the user's own, varied within their own statistics. Where nothing can be run, nothing is
# proved.

_OTHERS = 2
"""Inputs that are run: each costs a run of both sides."""

_NOISE, _SMALLER = 0.05, 0.9
"""Of an input's own standard deviation, what is added; and what another one is multiplied by."""

_TIMES = 3.0
"""Times the error on what calibrated, up to which another one's is the same error."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class _Unseen:
    """here: the error on the input that calibrated; there: on the others. passes: whether all do. why: the code of
    what is told where they do not, with its further values."""

    here: float
    there: Sequence[float]
    passes: bool
    why: tuple[str, Mapping[str, Any]] = ("", {})

    @property
    def is_off(self) -> bool:
        """Whether a pass on what calibrated proves little."""
        return not self.passes and max(self.there) > _TIMES * self.here

    @property
    def note(self) -> Reason:
        """For the first screen."""
        return say("calibrated_here", here=self.here, count=len(self.there), there=max(self.there))

    @property
    def doubts(self) -> tuple[Doubt, ...]:
        """Why a pass on what calibrated proves little."""
        code, more = self.why
        values = {"here": self.here, "count": len(self.there), "there": max(self.there), **more}
        return (Doubt(code=code, values=values),) if self.is_off else ()


def tell_unseen(work: Comparing, both: OpenPair, subject: Subject, explanation: Explanation | None) -> None:
    """Tell the error on inputs that did not calibrate, and what a pass lacks: where there are none, its proof."""
    base, target, feed_set = both.base, both.target, work.feed_set
    if subject.is_step or not (feed_set.halved or calibrates_on_compared(base, target, feed_set)):
        return
    found = _measure_unseen_errors(work, both, subject, explanation)
    if found is not None:
        work.note(found.note)
        target.doubt(found.doubts)
    elif not feed_set.has_unseen:
        target.doubt((Doubt(code="only_calibrated"),))


def calibrates_on_compared(base: OpenSide, target: OpenSide, feed_set: FeedSet) -> bool:
    """Return whether the ranges of the target were taken from the very inputs that it is judged on."""
    mode = target.opening.mode
    if mode is None or not mode.calibrates or feed_set.has_unseen:
        return False
    return not any(QUANTISED.search(meta.op_type) for meta in base.tensors)  # else the file brings its own ranges


def _measure_unseen_errors(
    work: Comparing, both: OpenPair, subject: Subject, explanation: Explanation | None
) -> _Unseen | None:
    """None where nothing else can be run."""
    base, target = both.base, both.target
    judging = make_judging(work.spec, subject, explanation, target.opening.precision)
    if judging is None:
        return None
    errors, samples, passes = list[float](), list[Sample](), True
    with contextlib.suppress(PrecisionDebugError):
        for feeds, target_feeds in _make_other_inputs(work.spec, base, target, work.feed_set, subject.feeds):
            values = run_outputs(base.session, feeds, base.opening.label)
            other = Sample(feeds=feeds, target_feeds=target_feeds, values=values)
            got = run_outputs(target.session, target_feeds, target.opening.label)
            found = judging.criterion.judge(other, got)
            errors.append(found.error if found.outputs is None else found.outputs)
            samples.append(other)
            passes &= found.passes
    if not errors:
        return None
    here = judging.found.error if judging.found.outputs is None else judging.found.outputs
    unseen = _Unseen(here=here, there=errors, passes=passes)
    if not unseen.is_off:
        return unseen
    why = find_unseen_cause(work, both, subject, explanation, judging.criterion, samples, errors)
    return dataclasses.replace(unseen, why=why)


def _make_other_inputs(
    spec: RunSpec, base: OpenSide, target: OpenSide, feed_set: FeedSet, feeds: Feeds
) -> Sequence[tuple[Feeds, Feeds]]:
    if is_random(spec, SearchRequest(), feed_set):
        return make_held_out_feeds(spec, SearchRequest(), base.opening, target.opening, feed_set)[0][:_OTHERS]
    if feed_set.target is None:
        return [(varied, varied) for varied in iterate_variations(feeds)]
    found = [(varied, _as_fed(varied, feed_set)) for varied in iterate_variations(feeds)]
    return [(varied, theirs) for varied, theirs in found if theirs is not None]


def _as_fed(varied: Mapping[str, Any], feed_set: FeedSet) -> Mapping[str, Any] | None:
    """Return the target's own names and types; None where it is fed other shapes."""
    theirs = {}
    for name, value in feed_set.for_target().feeds[0].items():
        ours = varied.get(feed_set.names.get(name, name))
        if not isinstance(ours, np.ndarray) or ours.shape != np.shape(value):
            return None
        theirs[name] = ours.astype(value.dtype)
    return theirs


def iterate_variations(feeds: Feeds) -> Iterator[Mapping[str, Any]]:
    """Yield the same input with some noise, and a little smaller; ids moved on by one; masks as they are."""
    for number in range(_OTHERS):
        random = np.random.default_rng(number)
        varied = {name: _vary_value(value, random, noised=number == 0) for name, value in feeds.items()}
        if any(varied[name] is not feeds[name] for name in feeds):
            yield varied


def _vary_value(value: Any, random: np.random.Generator, *, noised: bool) -> Any:
    if not isinstance(value, np.ndarray) or value.size < 4:
        return value
    if value.dtype.kind in "iu" and value.dtype.itemsize > 1:
        return _move_ids(value, 1 if noised else -1)
    if not (is_float(value.dtype) or value.dtype.kind in "iu") or not np.isfinite(value).all():
        return value
    low, high = value.min(), value.max()
    if np.isin(value, (low, high)).all():  # a mask, or a constant
        return value
    whole = value.dtype.kind in "iu"  # eight bits of a picture, say
    if not noised:
        smaller = value * _SMALLER
        return (smaller.round() if whole else smaller).astype(value.dtype)
    largest = max(abs(float(low)), abs(float(high)))  # in parts of it, no square and no sum leaves float64
    parts = value.astype(np.float64) / largest
    noise = _NOISE * parts.std() * random.standard_normal(value.shape)
    noisy = np.clip(parts + noise, parts.min(), parts.max()) * largest
    return (noisy.round() if whole else noisy).astype(value.dtype)


def _move_ids(ids: Any, places: int) -> Any:
    """Move the ids of each row on, in their order, so that they stay like those in use.

    Padding, counters and masks stay where they are."""
    values, counts = np.unique(ids, return_counts=True)
    rows = ids.reshape(-1, ids.shape[-1])
    if len(values) <= 2 or (np.diff(rows, axis=1) >= 0).all():
        return ids
    padding = values[counts.argmax()] if counts.max() > 1 else None
    moved = rows.copy()
    for row in moved:
        own = np.flatnonzero(row != padding) if padding is not None else np.arange(row.size)
        row[own] = np.roll(row[own], places)
    return moved.reshape(ids.shape)


# The same sample alone, inside a batch, or followed by padding: one model and run mode against itself.
#
# Both sides are the same; the baseline is fed one sample alone, the target that sample among others, or with padding
# behind it. Of each of the target's tensors the part is compared that is the sample's own: from every axis that became
# longer, its beginning. What differs beyond rounding depends on the neighbours, or on the padding.

Array = np.ndarray[Any, Any]

_BATCH = 4
"""Samples of a batch that is put together here."""


def with_variants(spec: RunSpec, plan: RunPlan, feed_set: FeedSet) -> tuple[RunPlan, FeedSet]:
    """Return the plan whose target shows the sample's own part, and what both sides are fed.

    Raises UsageError where two models or modes are asked for, or ranges would be calibrated on either; InputError for
    inputs of which no such variant can be made.
    """
    base, target = plan.baseline, plan.target
    if (
        base is None
        or target.mode is None
        or is_across_frameworks(base, target)
        or base.spec.model != target.spec.model
    ):
        raise UsageError(say("variants_of_one"), where="--input_variants", hint=say("variants_of_one_hint"))
    if target.mode.calibrates:
        raise UsageError(say("variants_calibrate"), where="--input_variants", hint=say("variants_calibrate_hint"))
    metas = target.inputs()
    alone, many = _take_alone(feed_set)
    made, notes = [], []
    for name in parse_variants(spec.input_variants):
        fed, note = _put_in_batch(alone, many, metas) if name == "batch" else _pad_sample(alone, metas)
        made.append(fed)
        notes.append(note)
    sets = dataclasses.replace(
        feed_set, feeds=tuple(dict(alone) for _ in made), target=tuple(made), notes=(*feed_set.notes, *notes),
        many=range(len(made)) if len(made) > 1 else None, calibrates=None, halved=False,
    )  # fmt: skip
    return dataclasses.replace(plan, target=dataclasses.replace(target, alone=alone, variants=tuple(made))), sets


def _take_alone(feed_set: FeedSet) -> tuple[Feeds, Feeds | None]:
    """Return one sample alone, and the batch that begins with it. The batch is the inputs' own, or made of several
    samples of the same shapes; None where there is neither."""
    first = dict(feed_set.feeds[0])
    sizes = {value.shape[0] for value in first.values() if isinstance(value, np.ndarray) and value.ndim}
    if len(sizes) == 1 and next(iter(sizes)) > 1:
        return {name: _take_first(value) for name, value in first.items()}, first
    others = [feed_set.feeds[number] for number in range(1, min(len(feed_set.feeds), _BATCH))]
    fit = [
        one for one in others
        if one.keys() == first.keys() and all(np.shape(one[name]) == np.shape(value) for name, value in first.items())
    ]
    return first, _join_samples([first, *fit]) if fit else None


def _take_first(value: Any) -> Any:
    return value[:1].copy() if isinstance(value, np.ndarray) and value.ndim else value


def _join_samples(several: Sequence[Feeds]) -> dict[str, Any]:
    """Arrays one behind the other along their first axis; what has none stays."""
    return {
        name: np.concatenate([one[name] for one in several]) if isinstance(value, np.ndarray) and value.ndim else value
        for name, value in several[0].items()
    }  # fmt: skip


def _put_in_batch(alone: Feeds, many: Feeds | None, metas: Sequence[InputMeta]) -> tuple[dict[str, Any], Reason]:
    opened = {meta.name for meta in metas if meta.shape and isinstance(meta.shape[0], str)}
    # of a module that has example inputs nobody knows which sizes may be others
    fixed = {meta.name for meta in metas if opened and meta.shape is not None and meta.name not in opened}
    batch = dict(many) if many is not None else {}
    if not batch:
        others = list(itertools.islice(iterate_variations(alone), _BATCH - 1))
        if not others:
            raise InputError(say("variant_no_neighbours"), where="--input_variants batch", hint=say("variant_samples"))
        batch = _join_samples([alone, *others])
    batch |= {name: value for name, value in alone.items() if name in fixed}
    count = max(value.shape[0] for value in batch.values() if isinstance(value, np.ndarray) and value.ndim)
    return batch, say("variant_batch", count=int(count))


def _pad_sample(alone: Feeds, metas: Sequence[InputMeta]) -> tuple[dict[str, Any], Reason]:
    """Half as long again, with zeros; a mask has zeros there, positions count on."""
    named = {meta.name: meta.shape for meta in metas if meta.shape is not None}
    arrays = {name: value for name, value in alone.items() if isinstance(value, np.ndarray) and value.ndim > 1}
    axes: dict[str, list[int]] = {}
    for name, value in arrays.items():
        shape = named.get(name, ())
        words = [axis for axis in range(1, value.ndim) if axis < len(shape) and isinstance(shape[axis], str)]
        axes[name] = words[:1] if words else []
    if not any(axes.values()):  # a model that names no axes: the second one, of the inputs that share its length
        length = next((value.shape[1] for value in arrays.values()), 0)
        axes = {name: [1] if value.shape[1] == length else [] for name, value in arrays.items()}
    length = max((arrays[name].shape[axis] for name, own in axes.items() for axis in own), default=0)
    if length < 1:
        raise InputError(say("variant_no_axis"), where="--input_variants padded", hint=say("variant_no_axis_hint"))
    more = length // 2 + 1
    fed = dict(alone)
    for name, own in axes.items():
        for axis in own:
            fed[name] = _lengthen(name, fed[name], axis, more)
    masks = [name for name in fed if "mask" in name.lower()]
    return fed, say("variant_padded", more=more, length=int(length), masks=", ".join(masks) or say("no_mask"))


def _lengthen(name: str, value: Array, axis: int, more: int) -> Array:
    room = [(0, more if one == axis else 0) for one in range(value.ndim)]
    longer: Array = np.pad(value, room)
    if "position" in name.lower() and value.dtype.kind in "iu":
        places: list[Any] = [slice(None)] * value.ndim
        places[axis] = slice(value.shape[axis], None)
        last = np.take(value, [-1], axis=axis)
        steps = np.arange(1, more + 1).reshape([-1 if one == axis else 1 for one in range(value.ndim)])
        longer[tuple(places)] = last + steps
    return longer
