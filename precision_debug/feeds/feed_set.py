"""Checked feeds of a run, from a seed, a file, or a caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from ..errors import InputError
from ..reasons import Reason, say
from ..records import InputMeta
from .check import check_names, check_one, check_shape
from .defaults import choose_sizes
from .load import load_sets
from .random import draw_feeds
from .sets import SampleSets

__all__ = ["CALIBRATE", "FeedSet", "check_feeds", "make_feeds"]

CALIBRATE = 128
"""Sample sets that calibrate, at most, where a mode needs that."""

_HELD = 64
"""Sample sets that cost little to read and may stay in memory."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True, eq=False)
class FeedSet:
    """Checked feeds, one dict a sample set, in the order of the model's inputs; many are read when they are asked for.

    A value is a numpy array of the input's type and shape (text as fixed-width unicode); for an input that is no
    array it is what the source held. source: one line for the report. notes: what was guessed or converted.
    target: the same for a target that calls its inputs differently; names: its inputs to the baseline's.
    chosen: shapes of the inputs whose sizes nobody gave. many: the sample sets that are compared; None: the first one.
    calibrates: the sample sets that calibrate a mode that needs it. halved: of a batch, its first half does.
    """

    feeds: Sequence[dict[str, Any]]
    source: str
    notes: tuple[Reason, ...] = ()
    target: Sequence[dict[str, Any]] | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    chosen: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    many: range | None = None
    calibrates: tuple[int, ...] | None = None
    halved: bool = False

    @property
    def calibrating(self) -> Sequence[dict[str, Any]]:
        """What a side is opened with: the sample sets that calibrate it. For the target's, see for_target."""
        if self.calibrates is None:
            return self.feeds[:CALIBRATE]
        if self.halved:
            return tuple(_repeat_first_half(self.feeds[number]) for number in self.calibrates)
        if self.calibrates == tuple(range(len(self.calibrates))):
            return self.feeds[: len(self.calibrates)]
        return tuple(self.feeds[number] for number in self.calibrates)

    @property
    def has_unseen(self) -> bool:
        """Whether nothing that is compared calibrates; a batch is compared whole, and half of it is new."""
        if self.calibrates is None:
            return False
        compared = range(1) if self.many is None else self.many
        return self.halved or not set(compared) & set(self.calibrates)

    def for_target(self) -> FeedSet:
        """Return the feeds of the target."""
        return self if self.target is None else replace(self, feeds=self.target, target=None)


def _repeat_first_half(feeds: Mapping[str, Any]) -> dict[str, Any]:
    """Return a batch of the same size, in which the second half is the first once more."""
    count = min(np.shape(value)[0] for value in feeds.values())
    places = np.arange(count) % (count // 2)
    return {name: np.ascontiguousarray(np.asarray(value)[places]) for name, value in feeds.items()}


def make_feeds(
    inputs: Sequence[InputMeta],
    *,
    source: str = "",
    shapes: Mapping[str, tuple[int, ...]] = _NOTHING,
    val_range: Mapping[str, tuple[float, float]] = _NOTHING,
    seed: int = 0,
    samples_axis: int | None = None,
) -> FeedSet:
    """Make the feeds of a model with these inputs.

    source: path of a .npz, .npy or Polygraphy .json file, of a folder of .npy or .npz files, of an ONNX test data set,
    or SCRIPT.py[:function]; "" makes one random sample set from the seed.
    shapes: input name to shape; with a source, the shape that its arrays must have.
    samples_axis: the arrays of a .npz or .npy file hold many samples along it.
    val_range: input name ("" for all) to (low, high) of random values; 0 to 1 unless given.
    Raises InputError, one line, where something does not fit.
    """
    check_names(shapes, inputs, where="--input_shapes")
    check_names({name: None for name in val_range if name}, inputs, where="--val_range")
    for meta in inputs:
        if meta.name in shapes:
            check_shape(shapes[meta.name], meta, where="--input_shapes")
    if not source:
        if samples_axis is not None:
            needs = say("needs_option", option="--inputs FILE")
            raise InputError(needs, where="--samples_axis", hint=say("add_or_leave_out"))
        feeds, notes = draw_feeds(inputs, shapes, val_range, seed)
        ours = {name: one.shape for name, one in choose_sizes(inputs, shapes).items() if one.chosen and name in feeds}
        source = say("seeded_random", seed=seed)
        return FeedSet(feeds=(feeds,), source=source, notes=tuple(notes), chosen=ours)
    metas = [_with_shape(meta, shapes) for meta in inputs]
    sets = load_sets(source, metas, samples_axis)
    if not sets:
        raise InputError("it has no sample set", where=source, hint="give at least one dict of arrays")
    idle = [say("range_idle")] if val_range else []
    return _check_sets(metas, sets, source, idle)


def check_feeds(inputs: Sequence[InputMeta], feed_set: FeedSet) -> FeedSet:
    """Check and convert feeds that were made elsewhere, as ``make_feeds`` does with a file's.

    Elsewhere: by a recording, a caller, another model. Raises InputError.
    """
    given_sets = feed_set.feeds if isinstance(feed_set.feeds, SampleSets) else _as_sets(list(feed_set.feeds))
    checked = _check_sets(inputs, given_sets, feed_set.source, feed_set.notes)
    return replace(checked, chosen=feed_set.chosen)


def _as_sets(sets: list[dict[str, Any]]) -> SampleSets:
    return SampleSets(len(sets), lambda number: sets[number], cheap=True)


def _check_sets(inputs: Sequence[InputMeta], sets: SampleSets, source: str, notes: Sequence[Reason]) -> FeedSet:
    """Return what costs little is checked as a whole now; of the rest the first set, and each other one when it is
    read."""
    known = dict.fromkeys(notes)
    many = len(sets) > 1

    def one(number: int) -> dict[str, Any]:
        values, remarks = check_one(
            sets[number], inputs, where=f"{source} (sample set {number + 1})" if many else source
        )  # fmt: skip
        known.update(dict.fromkeys(remarks))
        return values

    if sets.cheap and len(sets) <= _HELD:
        checked: Sequence[dict[str, Any]] = tuple(one(number) for number in range(len(sets)))
    else:
        for number in range(len(sets) if sets.cheap else min(1, len(sets))):
            one(number)
        checked = SampleSets(len(sets), one, cheap=sets.cheap)
    return FeedSet(feeds=checked, source=source, notes=tuple(known))


def _with_shape(meta: InputMeta, shapes: Mapping[str, tuple[int, ...]]) -> InputMeta:
    if meta.name not in shapes:
        return meta
    return replace(meta, shape=shapes[meta.name])
