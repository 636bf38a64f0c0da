"""Makes the portrait of a pair of arrays: see ``numbers.told``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .told import Bins, Density, Element, ErrorMap, Portrait

__all__ = ["Seen", "draw_portrait_of"]

Array = np.ndarray[Any, Any]

_VALUE_BINS, _ERROR_BINS = 48, 40
_MAGNITUDES, _ERRORS = 32, 20
_CELLS = 32
"""Cells of a map along one axis, at most."""
_CHANNELS = 64
_WORST = 8
_LOOKED_AT = 1 << 17
"""Elements that histograms are made of, at most: every so-many-th of a larger tensor."""
_MAPPED = 1 << 20
"""Elements that maps are made of, about: of a larger tensor blocks along its first axes are left out."""


def draw_portrait_of(
    name: str, base: Any, target: Any, *, introduced: bool = False, read: Callable[[Any], Array] = np.asarray
) -> Portrait | None:
    """Return the portrait of two arrays of one shape; None where there is nothing to draw: no float, another shape,
    empty.

    read: makes an array of a piece of them, where they are tensors of a device; only what is looked at is read.
    """
    seen = Seen.of(name, base, target, introduced=introduced, read=read)
    return None if seen is None else seen.drawn()


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a portrait is made of: copies of a part of two arrays, which may be overwritten then.

    base, target: every ``step``-th element. squared: the squared errors of what the maps are made of.
    """

    name: str
    introduced: bool
    shape: tuple[int, ...]
    step: int
    base: Array
    target: Array
    squared: Array | None

    @classmethod
    def of(
        cls, name: str, base: Any, target: Any, *, introduced: bool = False, read: Callable[[Any], Array] = np.asarray
    ) -> Seen | None:
        """See ``draw_portrait_of``."""
        size, flat = math.prod(base.shape), (base.reshape(-1), target.reshape(-1))
        if base.shape != target.shape or not size or not all(_is_real(read(one[:1])) for one in flat):
            return None
        step, shape = -(-size // _LOOKED_AT), tuple(base.shape)
        with np.errstate(all="ignore"):
            b, t = (read(one[::step]).astype(np.float64) for one in flat)
            squared = None
            if shape:
                some = _choose_blocks(shape)
                squared = np.square(read(target[some]).astype(np.float32) - read(base[some]).astype(np.float32))
        return cls(name=name, introduced=introduced, shape=shape, step=step, base=b, target=t, squared=squared)

    def drawn(self) -> Portrait:
        """Return the portrait."""
        b, t = self.base, self.target
        with np.errstate(all="ignore"):
            error = np.abs(t - b)
            edges = _choose_edges(b, t)
            mapped, channels = _draw_error_maps(self.shape, self.squared)
            return Portrait(
                name=self.name,
                introduced=self.introduced,
                base=_count_bins(b, edges),
                target=_count_bins(t, edges),
                errors=_count_error_bins(error),
                against=_count_density(b, error),
                map=mapped,
                channels=channels,
                worst=_find_worst_elements(self.shape, b, t, self.step),
                sampled=int(b.size),
            )


def _is_real(array: Array) -> bool:
    return array.dtype.kind in "fiu" or array.dtype.name.startswith(("bfloat16", "float8"))


def _choose_edges(b: Array, t: Array) -> Array:
    """From the smallest to the largest finite value of both sides."""
    finite = [side[np.isfinite(side)] for side in (b, t)]
    some = [side for side in finite if side.size]
    low, high = (min(map(np.min, some)), max(map(np.max, some))) if some else (0.0, 1.0)
    if not high > low:  # all the same: a bin's width of 1, of numbers so large that adding 1 is nothing half of them
        low, high = (low, low + 1.0) if low + 1.0 > low else sorted((low, low / 2))
    return np.linspace(low / 2, high / 2, _VALUE_BINS + 1) * 2  # halves, since the span may be beyond a double


def _count_bins(values: Array, edges: Array) -> Bins:
    """Count values by bins: numpy's histogram refuses a span beyond a double's range, and one that is narrower than so
    many steps of it."""
    finite = values[np.isfinite(values)]
    bins, low = len(edges) - 1, edges[0] / 2
    span = edges[-1] / 2 - low
    shares = (finite / 2 - low) / span if span else np.zeros(finite.shape)  # half of the least double is 0
    counts = np.bincount(np.clip(shares * bins, 0, bins - 1).astype(np.intp), minlength=bins)
    return Bins(edges=_round_edges(edges), counts=tuple(map(int, counts)))


def _count_error_bins(error: Array) -> Bins | None:
    logs = np.log10(error[np.isfinite(error) & (error > 0)])
    if not logs.size:
        return None
    low, high = math.floor(logs.min() * 2) / 2, math.ceil(logs.max() * 2) / 2
    counts, edges = np.histogram(logs, _ERROR_BINS, (low, high if high > low else low + 0.5))
    return Bins(edges=_round_edges(edges), counts=tuple(map(int, counts)))


def _count_density(b: Array, error: Array) -> Density | None:
    some = np.isfinite(error) & (error > 0) & (b != 0)
    if not some.any():
        return None
    edges, places = [], []
    for values, bins in ((np.abs(b), _MAGNITUDES), (error, _ERRORS)):
        logs = np.log10(values[some])
        low, high = math.floor(logs.min() * 2) / 2, math.ceil(logs.max() * 2) / 2
        edges.append(np.linspace(low, high if high > low else low + 0.5, bins + 1))
        places.append(_find_bins(logs, edges[-1]))
    counts = np.bincount(places[1] * _MAGNITUDES + places[0], minlength=_ERRORS * _MAGNITUDES)
    return Density(
        magnitudes=_round_edges(edges[0]), errors=_round_edges(edges[1]),
        counts=tuple(tuple(line) for line in counts.reshape(_ERRORS, _MAGNITUDES).tolist()),
    )  # fmt: skip


def _find_bins(values: Array, edges: Array) -> Array:
    """In which bin each value is, of bins of one width that hold all of them: numpy's searchsorted (and its last bin,
    which has both edges) in a tenth of the time."""
    last = len(edges) - 2
    found: Array = ((values - edges[0]) * ((last + 1) / (edges[-1] - edges[0]))).astype(np.intp).clip(0, last)
    found -= values < edges[found]
    found += (values >= edges[found + 1]) & (found < last)
    return found


def _draw_error_maps(shape: tuple[int, ...], squared: Array | None) -> tuple[ErrorMap | None, ErrorMap | None]:
    """Over the last two axes, and over the second one."""
    if squared is None:
        return None, None
    channels = None
    if len(shape) > 2 and shape[1] > 1:
        over = tuple(axis for axis in range(len(shape)) if axis != 1)
        channels = _map(squared.mean(over, dtype=np.float64)[None, :], _CHANNELS, (1, shape[1]))
    if len(shape) == 1:
        return _map(squared[None, :].astype(np.float64), _CHANNELS, (1, *shape)), None
    if min(shape[-2:]) == 1 and channels is not None:
        return None, channels
    return _map(squared.mean(tuple(range(len(shape) - 2)), dtype=np.float64), _CELLS, shape[-2:]), channels


def _choose_blocks(shape: Sequence[int]) -> tuple[slice, ...]:
    """Of a large tensor every so-many-th block along its first axes, as many as its maps have cells for at least."""
    size, steps = math.prod(shape), []
    for axis, length in enumerate(shape):
        drawn = axis >= len(shape) - 2 or axis == 1
        steps.append(max(1, min(-(-size // _MAPPED), length // _CHANNELS if drawn else length)))
        size //= steps[-1]
    return tuple(slice(None, None, step) for step in steps)


def _map(squared: Array, cells: int, stands_for: Sequence[int]) -> ErrorMap:
    """Mean squares along two axes to at most so many cells of RMS."""
    height, width = squared.shape
    for axis, size in enumerate((height, width)):
        count = min(cells, size)
        starts = np.arange(count) * size // count
        lengths = np.diff(np.append(starts, size))
        shape = (-1, 1) if axis == 0 else (1, -1)
        squared = np.add.reduceat(squared, starts, axis) / lengths.reshape(shape) if count < size else squared
    rms = np.sqrt(squared)
    lines = tuple(tuple(float(f"{cell:.3g}") if np.isfinite(cell) else None for cell in line) for line in rms)
    return ErrorMap(size=(stands_for[0], stands_for[1]), cells=lines)


def _find_worst_elements(shape: Sequence[int], b: Array, t: Array, step: int) -> tuple[Element, ...]:
    """Of the elements that were looked at."""
    lost = np.isfinite(b) != np.isfinite(t)
    error = np.where(lost, np.inf, np.nan_to_num(np.abs(t - b), nan=0.0, posinf=0.0))
    count = min(_WORST, error.size)
    places = np.argpartition(-error, count - 1)[:count]
    places = places[np.argsort(-error[places], kind="stable")]
    return tuple(
        Element(
            index=tuple(int(i) for i in np.unravel_index(int(place) * step, tuple(shape))),
            base=float(b[place]), target=float(t[place]),
        )
        for place in places
        if error[place] > 0
    )  # fmt: skip


def _round_edges(edges: Array) -> tuple[float, ...]:
    """Rounded, to digits enough for the edges to differ."""
    span = edges[-1] / 2 - edges[0] / 2
    extra = math.log10(max(abs(edges[0]), abs(edges[-1])) / 2 / span) if span > 0 else 0.0
    digits = min(17, 4 + max(0, math.ceil(extra)))
    rounded = [float(f"{edge:.{digits}g}") for edge in edges]
    return tuple(short if math.isfinite(short) else float(edge) for short, edge in zip(rounded, edges, strict=True))
