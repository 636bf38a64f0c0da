"""Which values of an optimised program can be fetched without changing what it does.

A value that is fetched has one more reader, so a fusion that would have swallowed it no longer happens. The values
that the fused program still computes are found by name (legacy) or by their numbers (PIR); of those, the largest set
is kept with which the fused program runs the same kernels, in the same types, to the same outputs bit for bit.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import naming

__all__ = ["Found", "Print", "Trace", "groups_by_value", "search"]

_POINTS = 257
_TOLERANCE = 1e-4


@dataclass(frozen=True, kw_only=True)
class Print:
    """A tensor's fingerprint that does not depend on its layout: how many elements, and quantiles of them."""

    size: int
    quantiles: tuple[float, ...]

    @classmethod
    def of(cls, array: np.ndarray[Any, Any]) -> Print:
        values = np.sort(np.asarray(array, dtype=np.float64).ravel())
        places = np.linspace(0, max(values.size - 1, 0), min(values.size, _POINTS)).astype(np.int64)
        return cls(size=values.size, quantiles=tuple(values[places].tolist()))

    def fits(self, other: Print) -> bool:
        """Whether both can be the same tensor, but for rounding in FP32."""
        if self.size != other.size:
            return False
        ours, theirs = np.array(self.quantiles), np.array(other.quantiles)
        scale = float(np.max(np.abs(ours), initial=0.0))
        return bool(np.allclose(ours, theirs, rtol=0.0, atol=_TOLERANCE * scale + 1e-12, equal_nan=True))


@dataclass(kw_only=True)
class Trace:
    """What a run did: its kernels with the types of their outputs, and its outputs."""

    kernels: collections.Counter[tuple[str, str]] = field(default_factory=collections.Counter)
    outputs: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)

    def saw(self, op_type: str, array: np.ndarray[Any, Any]) -> None:
        if not naming.carries(op_type):
            self.kernels[naming.kernel(op_type), array.dtype.name] += 1

    def same_as(self, other: Trace) -> bool:
        """Whether both ran the same kernels to the same bits, on the outputs that both have."""
        return self.kernels == other.kernels and all(
            array.tobytes() == other.outputs[name].tobytes()
            for name, array in self.outputs.items()
            if name in other.outputs
        )


@dataclass(kw_only=True)
class Found:
    """kept: can be marked. refused: marking it alone changes the program. untried: the builds ran out before."""

    kept: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    untried: set[str] = field(default_factory=set)
    builds: int = 0


def groups_by_value(
    seen: Iterable[tuple[str, tuple[int, ...], Print]],
    base: Mapping[str, tuple[tuple[int, ...], Print]],
) -> list[tuple[str, list[str]]]:
    """For each tensor that the fused program computes: its operator, and the values that it may be, likeliest first.

    seen: operator type, shape and fingerprint, in execution order. base: the same of the unfused program's values, in
    program order. A value of the same shape is likelier than one that was reshaped, a later one than an earlier one.
    """
    order = {name: place for place, name in enumerate(base)}
    by_size: dict[int, list[str]] = collections.defaultdict(list)
    for name, (_, finger) in base.items():
        by_size[finger.size].append(name)
    found = []
    for op_type, shape, finger in seen:
        fits = [name for name in by_size[finger.size] if base[name][1].fits(finger)]
        fits.sort(key=lambda name, shape=shape: (base[name][0] != shape, -order[name]))  # type: ignore[misc]
        if fits:
            found.append((op_type, fits))
    return found


def search(
    groups: Sequence[Sequence[str]], harmless: Callable[[Sequence[str]], bool], order: Sequence[str], budget: int
) -> Found:
    """The marks to keep: at most one value a group, found in as few builds as bisecting takes.

    groups: likeliest value first. harmless: builds the program with these marks, in program order, and says whether
    nothing changed. order: all names in program order. budget: how often ``harmless`` may be asked.
    """
    place = {name: number for number, name in enumerate(order)}
    found = Found()

    def bisect(names: list[str]) -> None:
        names = [name for name in names if name not in found.kept]
        if not names:
            return
        if found.builds >= budget:
            found.untried.update(names)
            return
        found.builds += 1
        if harmless(sorted([*found.kept, *names], key=place.__getitem__)):
            found.kept.extend(names)
        elif len(names) == 1:
            found.refused.add(names[0])
        else:
            half = len(names) // 2
            bisect(names[:half])
            bisect(names[half:])

    for turn in range(max(map(len, groups), default=0)):
        bisect(
            list(
                dict.fromkeys(
                    group[turn] for group in groups if len(group) > turn and not any(n in found.kept for n in group)
                )
            )
        )
    found.kept.sort(key=place.__getitem__)
    return found
