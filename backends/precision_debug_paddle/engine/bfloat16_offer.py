"""Which operator types may run in bfloat16 where Paddle cannot run all of them: lists that are tried before one is
offered, and what a session with it costs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from precision_debug.errors import PrecisionDebugError
from precision_debug.protocols import Feeds, Session, progress_to

from .bfloat16_types import lowered_as
from .fetchable import Trace
from .predictor import Runner

__all__ = ["Offer", "first_that_runs", "opening_takes"]

_PRODUCTS = ("conv2d", "depthwise_conv2d", "matmul", "matmul_v2", "mul")
"""What bfloat16 is used for, and the last of these that has always run: convolutions."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A list that ran. low, of: kernels in bfloat16, of all with floats."""

    types: tuple[str, ...]
    low: int
    of: int


def first_that_runs(
    kinds: Collection[str], failing: str, start: Callable[[Sequence[str]], Runner], feeds: Feeds
) -> Offer | None:
    """The largest list of a few that runs and puts anything into bfloat16; None where none does.

    kinds: the program's operator types. failing: the one that Paddle named, "" where it named none. start: makes a
    predictor with a list.
    """
    for types in _lists(kinds, failing):
        trace = Trace()
        with contextlib.suppress(PrecisionDebugError):
            runner = start(types)
            try:
                trace.outputs = runner.run(feeds, lambda kind, _name, array, trace=trace: trace.saw(kind, array))  # type: ignore[misc]
            finally:
                runner.close()
        low, of = trace.executed("bfloat16")
        finite = all(np.isfinite(one).all() for one in trace.outputs.values() if one.dtype.kind == "f")
        if low and trace.outputs and finite:
            return Offer(types=types, low=low, of=of)
    return None


def opening_takes(opened: Callable[[], Session], builds: int) -> float:
    """Seconds that opening a session takes which builds so many predictors, from one that may build fewer.

    opened: opens that one; it tells of each predictor that it builds.
    """
    told: list[float] = []
    begun = time.monotonic()
    with progress_to(lambda _text: told.append(time.monotonic())):
        session = opened()
        try:
            _ = session.tensors  # that is when they are built
        finally:
            session.close()
    ended = time.monotonic()
    if not told:
        return ended - begun
    return (told[0] - begun) + builds * (ended - told[0]) / len(told)


def _lists(kinds: Collection[str], failing: str) -> Iterator[tuple[str, ...]]:
    """All but what fails; then products alone; then convolutions alone. Each once, and none that is empty."""
    told: set[tuple[str, ...]] = {()}
    for left in (
        [kind for kind in kinds if kind != failing] if failing else (),
        [kind for kind in _PRODUCTS if kind in kinds],
        [kind for kind in _PRODUCTS[:2] if kind in kinds],
    ):
        gone = set(lowered_as(failing))
        types = tuple(sorted({name for kind in left for name in lowered_as(kind)} - gone))
        if types not in told:
            told.add(types)
            yield types
