"""What lies inside fused layers, in a run that is given the plain engine's values wherever that one shows some.

So what one stretch between shown tensors computes otherwise, a sum in another order that ends at the other side of a
quantiser's tie say, does not reach the next one, and each is judged for itself: by what it makes of the plain engine's
values at its front, and whether that is what the plain engine shows behind it. A quantiser is given its values in front
of it, where they stay what they are, so that what reads it still multiplies in 8 bits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from precision_debug.observe.unfused import SAME, Around, Values, find_differing

from ..make import Given, before
from .graph import Graph, Key
from .layers import Layer

__all__ = ["GivenRun", "place_taps"]

_TURNED = 1e-3
"""Share of a quantiser's values that may lie at the next step: a tie inside of the stretch was decided otherwise."""

_QUANTISER = "FakeQuantize"
_MOVES = frozenset(
    """
    Broadcast Concat Gather MaxPool ReduceMax Relu Reshape Slice Split Squeeze StridedSlice Tile Transpose Unsqueeze
    VariadicSplit
    """.split()  # noqa: SIM905
)
"""What gives nothing but values that it reads: a tap in the way of it would end a product in 8 bits."""


def place_taps(
    graph: Graph, layers: Sequence[Layer], shown: Collection[Key], inner: Collection[Key], fixed: Collection[str]
) -> Given:
    """Return where the taps stand. shown: by the plain engine. fixed: quantisers whose ranges are constants."""
    on_steps: dict[Key, bool] = {}
    for key, value in graph.values.items():
        real = [one for one in value.reads if graph.values[one].dtype.startswith("float")]
        moved = value.op_type in _MOVES and bool(real) and all(on_steps.get(one, False) for one in real)
        on_steps[key] = value.op_type == _QUANTISER or moved
    wanted = [key for key in {*shown, *inner} if graph.values[key].op_type != "Input"]
    aside = {key for key in wanted if on_steps[key] or not graph.values[key].dtype.startswith("float")}
    return Given(
        ways=frozenset(wanted) - aside, aside=frozenset(aside), without=_find_passed_by(graph, layers, set(shown)),
        quantisers=frozenset(
            key[0] for key in shown if graph.values[key].op_type == _QUANTISER and key[0] in fixed
        ),
    )  # fmt: skip


def _find_passed_by(graph: Graph, layers: Sequence[Layer], shown: Set[Key]) -> frozenset[str]:
    """Return the quantisers that OpenVINO's kernels do without: the first of a layer that adds another tensor in place
    behind it. It is a guess, as all that is given here, until what lies behind comes out the same."""
    found = set()
    for layer in layers:
        ops = sorted(layer.ops, key=graph.rank.__getitem__)
        values = [graph.values[op, 0] for op in ops if (op, 0) in graph.values]
        kinds = [value.op_type for value in values]
        first = kinds.index(_QUANTISER) if _QUANTISER in kinds else len(kinds)
        adds = any(value.op_type == "Add" and len(value.reads) == 2 for value in values[first:])
        if adds and values[first].key not in shown:
            found.add(values[first].key[0])
    return frozenset(found)


@dataclass(kw_only=True)
class GivenRun:
    """What the taps of such a run are shown. plain: what the plain engine shows, outputs included, which is given
    instead."""

    given: Given
    plain: Mapping[Key, Any]
    seen: Values[Key] = field(default_factory=Values)

    def receive(self, key: Key, memory: Any) -> Any:
        """Keep a copy; return what the readers get, None: the engine's own."""
        self.seen.receive(key, memory)
        if key[1] < 0:
            return self.plain.get((key[0], 0))
        return self.plain.get(key) if key in self.given.ways else None

    def find_same(
        self, outputs: Mapping[Key, Any], around: Mapping[Key, Around[Key]], ranges: Mapping[str, tuple[Any, ...]]
    ) -> set[Key]:  # fmt: skip
        """Return the inner tensors that are as the plain engine must have them. outputs: this run's. ranges: see
        ``Maker.ranges``."""
        found = {**outputs, **self.seen.found}
        wrong, loose = set(), set()  # not made of what was given; not given, and otherwise
        for key, value in self.plain.items():
            there = key in found and not find_differing({key: value}, {key: found[key]})
            read = found.get(before(key))
            if not there if read is None else not _makes(read, value, ranges[key[0]]):
                wrong.add(key)
            if not there and key not in self.given.ways:
                loose.add(key)
        return {
            key for key, one in around.items()
            if key in self.seen.found and one.behind and not one.behind & wrong and not one.front & loose
        }  # fmt: skip


def _makes(read: Any, values: Any, ranges: tuple[Any, ...]) -> bool:
    """Return whether a quantiser makes these values of what it reads, but for rounding: the least change to what it
    reads that would do it is as small as that of another order of sums; or some few lie at the next step."""
    low, high, out_low, out_high, levels = ranges
    if read.shape != values.shape or not np.all(out_high > out_low):
        return False
    step, known = (high - low) / (levels - 1), read.astype(np.float64)
    code = np.rint((values - out_low) / (out_high - out_low) * (levels - 1))
    under = np.where(code <= 0, -np.inf, low + (code - 0.5) * step)
    over = np.where(code >= levels - 1, np.inf, low + (code + 0.5) * step)
    apart = np.maximum(0, np.maximum(under - known, known - over))
    if not np.isfinite(apart).all():
        return False
    if float(np.sum(apart**2)) <= SAME**2 * float(np.sum(known**2)):
        return True
    return bool(np.mean(apart > SAME * np.abs(known)) <= _TURNED and np.all(apart <= step))
