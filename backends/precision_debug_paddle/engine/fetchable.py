"""Which values of an optimised program can be fetched without changing what it does.

A value that is fetched has one more reader, so a fusion that would have swallowed it no longer happens. The values
that the fused program still computes are found by name (legacy) or by their numbers (PIR); of those, the largest set
is kept with which the fused program runs the same kernels, in the same types, to the same outputs bit for bit.
"""

from __future__ import annotations

import collections
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .. import naming
from .program import Value

__all__ = ["Changed", "Found", "Groups", "Print", "Trace", "group_by_value", "search", "split_in_batches"]

_POINTS = 257
_TOLERANCE = 1e-4
"""Of the largest value. Both runs compute in FP32, by other kernels, so a tensor's quantiles are equal to rounding
only."""

_WIDE, _NARROW = "float32", "bfloat16"


@dataclass(frozen=True, kw_only=True)
class Print:
    """A tensor's fingerprint that does not depend on its layout: how many elements, and quantiles of them."""

    size: int
    quantiles: tuple[float, ...]

    @classmethod
    def of(cls, array: np.ndarray[Any, Any]) -> Print:
        found = np.real(array).ravel()
        if found.dtype.itemsize <= 2:
            found = found.astype(np.float32)  # exact, and sorted by the processor's vectors
        places = np.linspace(0, max(found.size - 1, 0), min(found.size, _POINTS)).astype(np.int64)
        return cls(size=found.size, quantiles=tuple(np.sort(found)[places].astype(np.float64).tolist()))

    def fits(self, other: Print) -> bool:
        """Return whether both can be the same tensor, but for rounding in FP32."""
        if self.size != other.size:
            return False
        ours, theirs = np.array(self.quantiles), np.array(other.quantiles)
        scale = float(np.max(np.abs(ours), initial=0.0, where=np.isfinite(ours)))
        return bool(np.allclose(ours, theirs, rtol=0.0, atol=_TOLERANCE * scale + 1e-12, equal_nan=True))


@dataclass(kw_only=True)
class Trace:
    """What a run did: its kernels with the types of their outputs, its outputs, and all types that it moved."""

    kernels: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)
    outputs: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    types: set[str] = field(default_factory=set)

    def saw(self, op_type: str, array: np.ndarray[Any, Any]) -> None:
        self.types.add(array.dtype.name)
        if not naming.carries(op_type):
            self.kernels[naming.kernel(op_type), array.dtype.name] += 1

    def executed(self, narrow: str) -> tuple[int, int]:
        """Return how many kernels gave a tensor of a narrow type, and how many gave one of any that has a precision."""
        counts: collections.Counter[str] = collections.Counter()
        for (_, dtype), count in self.kernels.items():
            counts["low" if dtype in (narrow, f"u{narrow}") else "float" if "float" in dtype else ""] += count
        return counts["low"], counts["low"] + counts["float"]

    def changed(self, other: Trace) -> collections.Counter[str]:
        """Return how many kernels of each type differ, in type or number; "" stands for an output whose bits differ.

        Only outputs that both have are compared. Empty: both did the same. Kernels that only write wider than this
        run's (``widened``) count as the same where the outputs are.
        """
        found: collections.Counter[str] = collections.Counter()
        gone, new = self.kernels - other.kernels, other.kernels - self.kernels
        wider = self.widened(other)
        common = self.outputs.keys() & other.outputs.keys()
        differ = sum(self.outputs[name].tobytes() != other.outputs[name].tobytes() for name in common)
        for name in {name for name, _ in (*gone, *new)} - (frozenset() if differ else wider):
            count = [sum(n for (key, _), n in side.items() if key == name) for side in (gone, new)]
            found[name] = max(count)
        if not found:
            found[""] = differ
        return +found

    def widened(self, other: Trace) -> frozenset[str]:
        """Kernels of which the other run has as many, but some write float32 where all of this run's write bfloat16.

        oneDNN computes in float32 and rounds last, so what they write is this run's value before its rounding.
        """
        gone, new = self.kernels - other.kernels, other.kernels - self.kernels
        return frozenset(
            name
            for (name, dtype), count in new.items()
            if dtype == _WIDE
            and gone.get((name, _NARROW)) == count
            and not self.kernels.get((name, _WIDE))
            and sum(key == name for key, _ in (*gone, *new)) == 2
        )


@dataclass(kw_only=True)
class Found:
    """kept: can be marked. refused: marking it alone changes the program. untried: the builds ran out before."""

    kept: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    untried: set[str] = field(default_factory=set)
    builds: int = 0


Groups = list[tuple[str, list[str]]]


@dataclass(frozen=True, kw_only=True)
class Changed:
    """Tensors of one size whose numbers are no value's: how many, and the values that they may be."""

    tensors: int
    names: tuple[str, ...]


def group_by_value(
    seen: Iterable[tuple[str, tuple[int, ...], Print]],
    base: Mapping[str, tuple[str, tuple[int, ...], Print]],
) -> tuple[Groups, list[Changed]]:
    """For each tensor that the fused program computes: its operator, and the values that it may be, likeliest first.

    seen: operator type, shape and fingerprint, in execution order. base: the same of the unfused program's values, in
    program order. A value of the same operator is likeliest, then one of the same shape, then the later one.
    The second list holds what is left: a tensor whose numbers are no value's, as a fusion changed them, may be any
    value of its size that is no other tensor.
    """
    order = {name: place for place, name in enumerate(base)}
    by_size: dict[int, list[str]] = collections.defaultdict(list)
    for name, (_, _, finger) in base.items():
        by_size[finger.size].append(name)
    found: Groups = []
    lost: list[int] = []
    for op_type, shape, finger in seen:
        fits = [name for name in by_size[finger.size] if base[name][2].fits(finger)]
        rank = {name: (base[name][0] != naming.plain_type(op_type), base[name][1] != shape) for name in fits}
        fits.sort(key=lambda name, rank=rank: (*rank[name], -order[name]))  # type: ignore[misc]
        if fits:
            found.append((op_type, fits))
        else:
            lost.append(finger.size)
    taken = {name for _, names in found for name in names}
    count = collections.Counter(lost)
    return found, [
        Changed(tensors=count[size], names=tuple(name for name in by_size[size] if name not in taken)) for size in count
    ]


def search(
    groups: Sequence[tuple[str, Sequence[str]]],
    changes: Callable[[Sequence[str]], collections.Counter[str]],
    order: Sequence[str],
    budget: int,
    late: Callable[[], bool] = lambda: False,
) -> Found:
    """Return the marks to keep: at most one value a group, found in as few builds as bisecting takes.

    groups: operator type of the fused program, and the values that its output may be, likeliest first.
    changes: builds the program with these marks, in program order, and says what changed (``Trace.changed``).
    order: all names in program order. budget: how often ``changes`` may be asked.
    late: whether the time for it is over, on a machine that has become slower since ``budget`` was found.
    """
    place = {name: number for number, name in enumerate(order)}
    made_by = {name: naming.kernel(op_type) for op_type, names in groups for name in names}
    found = Found()

    def bisect(names: list[str], changed: collections.Counter[str] | None = None) -> None:
        """changed: what these marks are known to change, together with those that are kept."""
        names = [name for name in names if name not in found.kept and name not in found.refused]
        if not names:
            return
        if changed is None and (found.builds >= budget or late()):
            found.untried.update(names)
            return
        if changed is None:
            found.builds += 1
            changed = changes(sorted([*found.kept, *names], key=place.__getitem__))
        if not changed:
            found.kept.extend(names)
            return
        suspects = [name for name in names if made_by[name] in changed or not made_by[name]]
        first = [name for name in names if name not in suspects]
        scarce = found.builds > budget // 2 or late()
        if len(names) == 1 or (scarce and not first and max(changed.values()) >= len(names)):
            found.refused.update(names)  # as many operators of a type changed as were marked: likely each mark did it
            return
        if not first or not suspects:
            first, suspects = names[: len(names) // 2], names[len(names) // 2 :]
        bisect(first)
        # where all of the first part was kept, what the whole changed is what the second part changes
        bisect(suspects, changed if all(name in found.kept for name in first) else None)

    for turn in range(max((len(names) for _, names in groups), default=0)):
        open_groups = [names for _, names in groups if len(names) > turn and not any(n in found.kept for n in names)]
        bisect(list(dict.fromkeys(names[turn] for names in open_groups)))
    found.kept.sort(key=place.__getitem__)
    return found


def split_in_batches(
    values: Mapping[str, Value], limit: int, names: Iterable[str], feeds: Mapping[str, Any]
) -> list[tuple[str, ...]]:
    """Split so that one predictor holds at most ``limit`` bytes; dynamic dimensions count as the largest of the feeds'
    first ones.
    """
    batch = max((np.shape(value)[0] for value in feeds.values() if np.ndim(value)), default=1)
    batches: list[list[str]] = [[]]
    held = 0
    for name in names:
        size = 4 * math.prod(dim if isinstance(dim, int) else batch for dim in values[name].shape or ())
        if batches[-1] and held + size > limit:
            batches.append([])
            held = 0
        batches[-1].append(name)
        held += size
    return [tuple(item) for item in batches]
