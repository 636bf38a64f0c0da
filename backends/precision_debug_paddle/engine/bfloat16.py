"""Say which operators run in bfloat16 under oneDNN: by type, by trial, and as placed."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from precision_debug.errors import PrecisionDebugError
from precision_debug.protocols import Feeds, Session, progress_to

from .. import naming
from .fetchable import Trace
from .kept_in_pir import MARK
from .predictor import Runner

__all__ = [
    "Offer",
    "build_and_count",
    "count_placed",
    "estimate_opening_seconds",
    "find_first_running",
    "list_all_but",
    "list_lowered_names",
]


# Which operator types oneDNN runs in BF16 in a legacy program, by the names that they have when the pass sees them.

LOWERED = frozenset({
    "bilinear_interp_v2", "cast", "clip", "concat", "conv2d", "conv2d_transpose", "elementwise_add",
    "elementwise_mul", "expand_v2", "fc", "fused_conv2d", "fused_elementwise_add", "fused_elementwise_mul",
    "fused_matmul", "fusion_gru", "fusion_lstm", "gelu", "layer_norm", "matmul", "matmul_v2", "multi_gru",
    "pool2d", "prelu", "relu", "reshape2", "scale", "sigmoid", "slice", "softmax", "split", "squeeze",
    "squeeze2", "sum", "transpose2", "fused_transpose",
})  # fmt: skip
"""What oneDNN computes in BF16 where nobody names types: patterns::Bfloat16Placement in Paddle's
graph_pattern_detector.cc, and the names that its fusions give these operators. A list that is given takes the place of
this one as it is: a type in it that has no such kernel (batch_norm) makes Paddle fail, and one that is missing because
the pass sees it under its fused name leaves the operator in FP32."""

_SEEN_AS = {
    "conv2d": ("conv2d", "fused_conv2d"), "depthwise_conv2d": ("conv2d", "fused_conv2d"),
    "matmul": ("matmul", "fused_matmul"), "matmul_v2": ("matmul_v2", "fused_matmul", "fc"), "mul": ("mul", "fc"),
    "elementwise_add": ("elementwise_add", "fused_elementwise_add"),
    "elementwise_mul": ("elementwise_mul", "fused_elementwise_mul"), "transpose2": ("transpose2", "fused_transpose"),
    "gru": ("fusion_gru", "multi_gru"), "lstm": ("fusion_lstm",),
}  # fmt: skip
"""The names that an operator of the program may have when the pass that places BF16 sees it."""


def list_lowered_names(kind: str) -> tuple[str, ...]:
    """Return the names under which an operator of the program may be run in BF16; () where it never is."""
    return tuple(name for name in _SEEN_AS.get(kind, (kind,)) if name in LOWERED)


def list_all_but(kept: Collection[str], named: Sequence[str] = ()) -> tuple[str, ...]:
    """Return what to hand to ``set_bfloat16_op`` so that the types ``kept`` stay in FP32, and nothing else does.

    named: a list that the user has already, in place of all.
    """
    gone = {name for kind in kept for name in (kind, *list_lowered_names(kind))}
    return tuple(name for name in (named or sorted(LOWERED)) if name not in gone)


# Which operator types may run in bfloat16 where Paddle cannot run all of them: lists that are tried before one is
# offered, and what a session with it costs.

_PRODUCTS = ("conv2d", "depthwise_conv2d", "matmul", "matmul_v2", "mul")
"""What bfloat16 is used for, and the last of these that has always run: convolutions."""


@dataclass(frozen=True, kw_only=True)
class Offer:
    """A list that ran. low, of: kernels in bfloat16, of all with floats."""

    types: tuple[str, ...]
    low: int
    of: int


def find_first_running(
    kinds: Collection[str], failing: str, start: Callable[[Sequence[str]], Runner], feeds: Feeds
) -> Offer | None:
    """Return the largest list of a few that runs and puts anything into bfloat16; None where none does.

    kinds: the program's operator types. failing: the one that Paddle named, "" where it named none. start: makes a
    predictor with a list.
    """
    for types in _iterate_lists(kinds, failing):
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


def estimate_opening_seconds(opened: Callable[[], Session], builds: int) -> float:
    """Return seconds that opening a session takes which builds so many predictors, from one that may build fewer.

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


def _iterate_lists(kinds: Collection[str], failing: str) -> Iterator[tuple[str, ...]]:
    """Yield all but what fails; then products alone; then convolutions alone. Each once, and none that is empty."""
    told: set[tuple[str, ...]] = {()}
    for left in (
        [kind for kind in kinds if kind != failing] if failing else (),
        [kind for kind in _PRODUCTS if kind in kinds],
        [kind for kind in _PRODUCTS[:2] if kind in kinds],
    ):
        gone = set(list_lowered_names(failing))
        types = tuple(sorted({name for kind in left for name in list_lowered_names(kind)} - gone))
        if types not in told:
            told.add(types)
            yield types


# Which operators of a PIR program oneDNN's passes have put into bfloat16, read from what Paddle prints of its passes.
#
# Its hook sees results alone: a product in bfloat16 that hands on float32 looks like one in float32.

_PASS = "IRPrinting on builtin.module"
_AFTER = f"{_PASS} after cpu_bfloat16_placement_pass"
_OPERATOR = re.compile(r'^\s*\([^)]*\) = "(?:pd_op|onednn_op)\.(\w+)" \(.*\) -> .*xf32>')
_LOW = re.compile(r'(?:mkldnn|onednn)_data_type:"bfloat16"')

Made = TypeVar("Made")


def count_placed(text: str) -> tuple[int, int] | None:
    """Count the operators in bfloat16, and all that produce floats, in what Paddle printed. None where it printed no
    such pass."""
    _, found, rest = text.rpartition(_AFTER)
    if not found:
        return None
    low = every = 0
    for line in rest.partition(_PASS)[0].splitlines():
        match = _OPERATOR.match(line)
        if match is None or naming.carries(match[1]) or MARK in line:
            continue
        every += 1
        low += _LOW.search(line) is not None
    return low, every


def build_and_count(make: Callable[[], Made], folder: Path) -> tuple[Made, tuple[int, int] | None]:
    """Return what ``make`` gives, a predictor that prints its passes, and what was put where. folder: an existing
    one."""
    with tempfile.TemporaryFile(dir=folder) as said:
        with _redirect_output(said.fileno()):
            made = make()
        said.seek(0)
        return made, count_placed(said.read().decode("utf-8", "replace"))


@contextmanager
def _redirect_output(handle: int) -> Iterator[None]:
    """What libraries print on standard output goes to a descriptor."""
    try:
        before = os.dup(1)
    except OSError:  # there is none
        yield
        return
    try:
        os.dup2(handle, 1)
        yield
    finally:
        os.dup2(before, 1)
        os.close(before)
