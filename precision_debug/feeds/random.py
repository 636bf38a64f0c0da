"""Seeded random feeds, by each input's own type and shape.

Seeded, so that the same command gives the same report, here and on another machine.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..reasons import Reason, say
from ..records import InputMeta
from .check import note_left_out
from .defaults import as_option, choose_sizes, make_conventional_values
from .dtypes import Array, as_dtype, is_float, is_integer

__all__ = ["draw_feeds"]

DEFAULT_RANGE = (0.0, 1.0)
_MOST_DIMENSIONS = 32 if np.lib.NumpyVersion(np.__version__) < "2.0.0" else 64
_WORDS = ("a", "bc", "def", "ghij", "klmno")


def draw_feeds(
    inputs: Sequence[InputMeta],
    shapes: Mapping[str, tuple[int, ...]],
    val_range: Mapping[str, tuple[float, float]],
    seed: int,
) -> tuple[dict[str, Array], list[Reason]]:
    """Return one sample set of random values and what the reader must know of it.

    Each input has a random stream of its own, from the seed and its name: adding an input changes no other. Floats
    are uniform over the range, rounded to their type; integers are uniform over the whole numbers in it, both ends
    included; bools are 0 or 1. The range is 0 to 1 unless ``val_range`` says otherwise. What is a convention (masks,
    token ids, sampling rates) follows it unless the input has a range of its own; sizes that the model leaves open are
    chosen: see ``defaults``. Inputs with a default are left out unless a shape or a range is given for them.
    """
    feeds: dict[str, Array] = {}
    wanted = [meta for meta in inputs if not meta.optional or meta.name in shapes or meta.name in val_range]
    notes = note_left_out([meta for meta in inputs if meta not in wanted])
    sizes = choose_sizes(wanted, shapes)
    for meta in wanted:
        shape = sizes[meta.name].shape
        if sizes[meta.name].chosen:
            option = as_option(meta.name, shape)
            notes.append(say("input_sized", name=meta.name, chosen=sizes[meta.name].chosen, option=option))
        try:
            feeds[meta.name] = _draw_values(meta, shape, val_range, _seeded_generator(seed, meta.name), notes)
        except (MemoryError, ValueError) as error:
            many = len(shape) > _MOST_DIMENSIONS
            raise InputError(
                f"numpy has no arrays of {len(shape)} dimensions" if many
                else f"{list(shape)} of {meta.dtype} does not fit in memory",
                where=f"input '{meta.name}'",
                hint="give a smaller --input_shapes",
            ) from error
    return feeds, notes


def _seeded_generator(seed: int, name: str) -> np.random.Generator:
    digest = hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()
    words = np.frombuffer(digest, dtype="<u4").tolist()
    return np.random.Generator(np.random.PCG64(np.random.SeedSequence([seed, *words])))


def _draw_values(
    meta: InputMeta,
    shape: tuple[int, ...],
    val_range: Mapping[str, tuple[float, float]],
    rng: np.random.Generator,
    notes: list[Reason],
) -> Array:
    dtype = as_dtype(meta.dtype)
    own = meta.name in val_range
    known = None if own else make_conventional_values(meta, shape, rng, ranged="" in val_range)
    if known is not None:
        notes.append(say("input_convention", name=meta.name, dtype=meta.dtype, what=known[1]))
        return known[0]
    low, high = val_range.get(meta.name, val_range.get("", DEFAULT_RANGE))
    if dtype is not None and dtype.kind == "U":
        notes.append(say("input_words", name=meta.name))
        return np.asarray(np.array(_WORDS)[rng.integers(0, len(_WORDS), shape)])
    if dtype is not None and dtype.kind == "b":
        return np.asarray(rng.integers(0, 2, shape, dtype=np.uint8)).astype(np.bool_)
    if dtype is not None and is_integer(dtype):
        first, last = _integer_range(meta, dtype, low, high, own)
        if not own:
            notes.append(say("input_whole", name=meta.name, dtype=meta.dtype, low=first, high=last))
        wide: Any = np.uint64 if first >= 0 else np.int64
        return np.asarray(rng.integers(first, last, shape, dtype=wide, endpoint=True)).astype(dtype)
    if dtype is not None and (is_float(dtype) or dtype.kind == "c"):
        _check_range(meta, dtype, low, high)
        parts = [_draw_uniform(rng, shape, low, high, wide=dtype.itemsize > 4) for _ in range(1 + (dtype.kind == "c"))]
        whole = parts[0] if len(parts) == 1 else parts[0] + 1j * parts[1]
        return np.asarray(whole).astype(dtype, copy=False)
    raise InputError(
        f"no random values can be made for type {meta.dtype or 'unknown'}",
        where=f"input '{meta.name}'",
        hint="give its value with --inputs",
    )


def _draw_uniform(rng: np.random.Generator, shape: tuple[int, ...], low: float, high: float, *, wide: bool) -> Array:
    kind: Any = np.float64 if wide or high - low > float(np.finfo(np.float32).max) else np.float32
    values = np.asarray(rng.random(shape, dtype=kind))
    if (low, high) != (0.0, 1.0):
        values = np.asarray(values * kind(high - low) + kind(low))
        np.clip(values, low, high, out=values)
    return values


def _check_range(meta: InputMeta, dtype: np.dtype[Any], low: float, high: float) -> None:
    import ml_dtypes

    top = float(ml_dtypes.finfo(dtype).max)
    bottom = float(ml_dtypes.finfo(dtype).min)
    if low < bottom or high > top or not math.isfinite(high - low):
        raise InputError(
            f"--val_range {low:g},{high:g} leaves the range of {meta.dtype} ({bottom:g} to {top:g})",
            where=f"input '{meta.name}'",
            hint=f"narrow it with --val_range {meta.name}:LOW,HIGH",
        )


def _integer_range(meta: InputMeta, dtype: np.dtype[Any], low: float, high: float, own: bool) -> tuple[int, int]:
    """Return the whole numbers in the range; a range meant for all inputs is cut to the type, one meant for this must
    fit."""
    import ml_dtypes

    info = ml_dtypes.iinfo(dtype)
    bottom, top = int(info.min), int(info.max)
    first, last = math.ceil(low), math.floor(high)
    if not own:
        first, last = max(first, bottom), min(last, top)
    if first > last or first < bottom or last > top:
        raise InputError(
            f"--val_range {low:g},{high:g} has no whole number of {meta.dtype} ({bottom} to {top}) or leaves its range",
            where=f"input '{meta.name}'",
            hint=f"give --val_range {meta.name}:LOW,HIGH",
        )
    return first, last
