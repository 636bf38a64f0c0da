"""Inputs that a search does not see, so that what it finds is no accident of those that it does."""

from __future__ import annotations

import dataclasses
from typing import Any

from ...errors import InputError
from ...feeds import FeedSet
from ...reasons import NOTHING, Reason, say
from ...records import RunSpec
from ...search.request import SearchRequest
from ..inputs import feeds_of
from ..plan import Opening, Plan

__all__ = ["Pair", "held_out_feeds", "is_random"]

_SEEDS = 5
"""Random inputs of a portion, where there is no unseen sample."""

Pair = tuple[dict[str, Any], dict[str, Any]]


def is_random(spec: RunSpec, asked: SearchRequest, feed_set: FeedSet) -> bool:
    """Whether further inputs are made as the ones given were."""
    return not asked.held_out and not spec.inputs and feed_set.source.startswith("seeded random")


def held_out_feeds(
    spec: RunSpec, asked: SearchRequest, baseline: Opening, target: Opening, feed_set: FeedSet, *, portion: int = 0
) -> tuple[list[Pair], Reason]:
    """For both sides: the user's own, or other random ones where the inputs are random; and why there are none.

    portion: of random ones, which of ever more.

    Raises InputError or ModelError.
    """
    plan = Plan(baseline=baseline, target=target)
    if asked.held_out:
        more = feeds_of(dataclasses.replace(spec, inputs=asked.held_out), plan, ())
        return list(zip(more.feeds, more.for_target().feeds, strict=True)), NOTHING
    if not is_random(spec, asked, feed_set):
        return [], say("not_held_out")
    found: list[Pair] = []
    for step in range(1 + portion * _SEEDS, 1 + (portion + 1) * _SEEDS):
        other = dataclasses.replace(spec, seed=(spec.seed + step) % 2**63)
        fresh = feeds_of(other, plan, ())
        if any(fresh.feeds[0].keys() != feeds.keys() for feeds in feed_set.feeds):
            raise InputError("other random inputs have other names", where="--held_out")
        found.append((fresh.feeds[0], fresh.for_target().feeds[0]))
    return found, NOTHING
