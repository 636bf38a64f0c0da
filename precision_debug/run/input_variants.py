"""The same sample alone, inside a batch, or followed by padding: one model and run mode against itself.

Both sides are the same; the baseline is fed one sample alone, the target that sample among others, or with padding
behind it. Of each of the target's tensors the part is compared that is the sample's own: from every axis that became
longer, its beginning. What differs beyond rounding depends on the neighbours, or on the padding.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..errors import InputError, UsageError
from ..feeds import FeedSet
from ..protocols import Feeds
from ..reasons import Reason, say
from ..records import InputMeta, RunSpec
from ..settings.options import variants_in
from .plan import Plan, crosses
from .unseen_inputs import variations

__all__ = ["with_variants"]

Array = np.ndarray[Any, Any]

_BATCH = 4
"""Samples of a batch that is put together here."""


def with_variants(spec: RunSpec, plan: Plan, feed_set: FeedSet) -> tuple[Plan, FeedSet]:
    """Return the plan whose target shows the sample's own part, and what both sides are fed.

    Raises UsageError where two models or modes are asked for, or ranges would be calibrated on either; InputError for
    inputs of which no such variant can be made.
    """
    base, target = plan.baseline, plan.target
    if base is None or target.mode is None or crosses(base, target) or base.spec.model != target.spec.model:
        raise UsageError(say("variants_of_one"), where="--input_variants", hint=say("variants_of_one_hint"))
    if target.mode.calibrates:
        raise UsageError(say("variants_calibrate"), where="--input_variants", hint=say("variants_calibrate_hint"))
    metas = target.inputs()
    alone, many = _alone(feed_set)
    made, notes = [], []
    for name in variants_in(spec.input_variants):
        fed, note = _batched(alone, many, metas) if name == "batch" else _padded(alone, metas)
        made.append(fed)
        notes.append(note)
    sets = dataclasses.replace(
        feed_set, feeds=tuple(dict(alone) for _ in made), target=tuple(made), notes=(*feed_set.notes, *notes),
        many=range(len(made)) if len(made) > 1 else None, calibrates=None, halved=False,
    )  # fmt: skip
    return dataclasses.replace(plan, target=dataclasses.replace(target, alone=alone, variants=tuple(made))), sets


def _alone(feed_set: FeedSet) -> tuple[Feeds, Feeds | None]:
    """One sample, and a batch with it in front where the inputs are one already, or are several that fit together."""
    first = dict(feed_set.feeds[0])
    sizes = {value.shape[0] for value in first.values() if isinstance(value, np.ndarray) and value.ndim}
    if len(sizes) == 1 and next(iter(sizes)) > 1:
        return {name: _first(value) for name, value in first.items()}, first
    others = [feed_set.feeds[number] for number in range(1, min(len(feed_set.feeds), _BATCH))]
    fit = [
        one for one in others
        if one.keys() == first.keys() and all(np.shape(one[name]) == np.shape(value) for name, value in first.items())
    ]
    return first, _joined([first, *fit]) if fit else None


def _first(value: Any) -> Any:
    return value[:1].copy() if isinstance(value, np.ndarray) and value.ndim else value


def _joined(several: Sequence[Feeds]) -> dict[str, Any]:
    """Arrays one behind the other along their first axis; what has none stays."""
    return {
        name: np.concatenate([one[name] for one in several]) if isinstance(value, np.ndarray) and value.ndim else value
        for name, value in several[0].items()
    }  # fmt: skip


def _batched(alone: Feeds, many: Feeds | None, metas: Sequence[InputMeta]) -> tuple[dict[str, Any], Reason]:
    opened = {meta.name for meta in metas if meta.shape and isinstance(meta.shape[0], str)}
    # of a module that has example inputs nobody knows which sizes may be others
    fixed = {meta.name for meta in metas if opened and meta.shape is not None and meta.name not in opened}
    batch = dict(many) if many is not None else {}
    if not batch:
        others = list(itertools.islice(variations(alone), _BATCH - 1))
        if not others:
            raise InputError(say("variant_no_neighbours"), where="--input_variants batch", hint=say("variant_samples"))
        batch = _joined([alone, *others])
    batch |= {name: value for name, value in alone.items() if name in fixed}
    count = max(value.shape[0] for value in batch.values() if isinstance(value, np.ndarray) and value.ndim)
    return batch, say("variant_batch", count=int(count))


def _padded(alone: Feeds, metas: Sequence[InputMeta]) -> tuple[dict[str, Any], Reason]:
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
            fed[name] = _longer(name, fed[name], axis, more)
    masks = [name for name in fed if "mask" in name.lower()]
    return fed, say("variant_padded", more=more, length=int(length), masks=", ".join(masks) or say("no_mask"))


def _longer(name: str, value: Array, axis: int, more: int) -> Array:
    room = [(0, more if one == axis else 0) for one in range(value.ndim)]
    longer: Array = np.pad(value, room)
    if "position" in name.lower() and value.dtype.kind in "iu":
        places: list[Any] = [slice(None)] * value.ndim
        places[axis] = slice(value.shape[axis], None)
        last = np.take(value, [-1], axis=axis)
        steps = np.arange(1, more + 1).reshape([-1 if one == axis else 1 for one in range(value.ndim)])
        longer[tuple(places)] = last + steps
    return longer
