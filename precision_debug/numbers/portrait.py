"""A tensor pair in little: histograms of values and errors, where the errors lie, and the worst elements."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Bins", "Density", "Element", "ErrorMap", "Portrait"]


@dataclass(frozen=True, kw_only=True)
class Bins:
    """A histogram. edges: one more than counts; of errors log10 of the edge."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Density:
    """How many elements have which error at which magnitude, both as log10.

    magnitudes, errors: edges of the bins of |base| and of |target - base|, one more than there are; of neither 0 is
    among them. counts: a line a bin of errors, the smallest first.
    """

    magnitudes: tuple[float, ...]
    errors: tuple[float, ...]
    counts: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, kw_only=True)
class ErrorMap:
    """RMS of |target - base| over everything that falls into a cell, row by row; None where NaN or Inf is in it.

    size: elements along the two axes (or the one of channels, after 1) that the cells stand for.
    """

    size: tuple[int, int]
    cells: tuple[tuple[float | None, ...], ...]


@dataclass(frozen=True, kw_only=True)
class Element:
    """One element of the pair: its index, and both sides' values."""

    index: tuple[int, ...]
    base: float
    target: float


@dataclass(frozen=True, kw_only=True)
class Portrait:
    """What a page draws of one tensor.

    introduced: of what the operator itself added, both sides having been given the same inputs; else of the comparison.
    base, target: values of both sides on the same edges. errors: of |target - base| that is not 0, over decades.
    against: errors against magnitudes. map: over the last two axes. channels: over the second axis, where there are
    three or more.
    worst: elements with the largest errors, NaN and Inf first. sampled: elements that the histograms were made of.
    """

    name: str
    introduced: bool = False
    base: Bins | None = None
    target: Bins | None = None
    errors: Bins | None = None
    against: Density | None = None
    map: ErrorMap | None = None
    channels: ErrorMap | None = None
    worst: tuple[Element, ...] = ()
    sampled: int = 0
