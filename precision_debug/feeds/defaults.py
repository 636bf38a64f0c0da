"""Sizes for what a model leaves open, and values that are conventions: chosen by the kind of input, and always told.

A size of 1 hides what is to be found: an image of one pixel, or a sequence of one token, passes any tolerance.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import InputError
from ..reasons import Reason, say
from ..records import InputMeta
from .check import NO_TENSORS
from .dtypes import Array, as_dtype, is_float, is_integer

__all__ = ["Default", "Sized", "as_option", "choose_default_feeds", "choose_sizes", "make_conventional_values"]

BATCH, CHANNELS, SIDE, TOKENS, SAMPLES, PAST, DEPTH, OTHER = 2, 3, 224, 32, 512, 8, 16, 16
RATE = 16000
_WHOLE_FLOATS = 256
"""Every whole number up to it is one in bfloat16 and float16 too."""

_ROLES = (
    ("past", r"past(?!.*\+)"), ("total", r"total|\+|full"), ("batch", r"batch|^(n|b|bs)$"),
    ("height", r"height|^(h|rows?)$"), ("width", r"width|^(w|cols?)$"), ("channels", r"channel|^(c|ch)$"),
    ("samples", r"sample|^(time|wav)"), ("length", r"seq|length|_len$|^len$|token|frame|^(t|l|s|time)$"),
)  # fmt: skip
_STATE = re.compile(r"state|hidden|cell|cache|memory|past|^(h|c|hn|cn|hx|cx|h_?0|c_?0)$", re.IGNORECASE)
_AUDIO = re.compile(r"audio|wave|wav|speech|signal|sound|^input_values$", re.IGNORECASE)
_RATE = re.compile(r"^(sr|fs|(sampl\w*)_?rate)$", re.IGNORECASE)
_MASK = re.compile(r"mask", re.IGNORECASE)
_PADDING = re.compile(r"pad(ding|ded)?_?mask|mask_?pad", re.IGNORECASE)
"""Names of masks that are true where there is padding; others are true where there is something."""
_TYPES = re.compile(r"(token_?)?(type|segment)_?(ids?|s)$", re.IGNORECASE)
_POSITIONS = re.compile(r"position", re.IGNORECASE)
_TOKENS = re.compile(r"(^|_)(input_?)?(ids|tokens?)$|^(src|tgt|text)$", re.IGNORECASE)
_BYTES = re.compile(r"bytes", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Sized:
    """An input's shape. chosen: what of it nobody gave, in words ("height 224"), in the order of the dimensions."""

    shape: tuple[int, ...]
    chosen: tuple[Reason, ...] = ()


def choose_sizes(inputs: Sequence[InputMeta], shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Sized]:
    """Return every input's shape: as given, fixed by the model, or chosen by us.

    Dimensions of one name are of one size. Raises InputError for an input whose rank the model does not say.
    """
    symbols: dict[str, int] = {}
    for meta in inputs:
        for dim, size in zip(meta.shape or (), shapes.get(meta.name, ()), strict=False):
            if _has_own_name(dim):
                symbols.setdefault(str(dim), size)
    hears = any(_RATE.search(meta.name) for meta in inputs)
    found: dict[str, Sized] = {}
    for meta in inputs:
        if meta.name in shapes:
            found[meta.name] = Sized(shape=tuple(shapes[meta.name]))
            continue
        if meta.shape is None:
            if meta.optional:
                continue
            if as_dtype(meta.dtype) is None:
                raise InputError(
                    f"it is {_kind(meta.dtype)}, not a tensor, and is not made up",
                    where=f"input '{meta.name}'",
                    hint=f"--inputs SCRIPT.py:FUNCTION that yields {{'{meta.name}': {NO_TENSORS[meta.dtype]}}}",
                )
            raise InputError(
                "the model does not say its shape", where=f"input '{meta.name}'",
                hint=f"give --input_shapes {meta.name}:[...]",
            )  # fmt: skip
        found[meta.name] = _choose_size(meta, meta.shape, symbols, hears)
    return found


def _kind(dtype: str) -> str:
    return f"{'an' if dtype[0] in 'aeio' else 'a'} {dtype}" if dtype not in {"", "unknown"} else "of an unknown type"


def as_option(name: str, shape: Sequence[int]) -> str:
    """Return the text to type: --input_shapes x:[1,3,224,224]."""
    return f"--input_shapes {name}:[{','.join(map(str, shape))}]"


def _choose_size(meta: InputMeta, dims: tuple[int | str, ...], symbols: dict[str, int], hears: bool) -> Sized:
    roles = _find_roles(meta, dims, hears)
    shape, chosen = [], []
    for place, (dim, role) in enumerate(zip(dims, roles, strict=True)):
        if isinstance(dim, int) and dim >= 0:
            shape.append(dim)
            continue
        name = str(dim) if _has_own_name(dim) else ""
        size = symbols.get(name)
        if size is None:
            size = _size_of_role(role, name, dims, roles, symbols)
            if name:
                symbols[name] = size
            chosen.append(_describe_chosen_size(role, name, place, size))
        shape.append(size)
    return Sized(shape=tuple(shape), chosen=tuple(chosen))


_TOLD: Mapping[str, Callable[[int], Reason]] = {
    "batch": lambda size: say("dimension_batch", size=size),
    "channels": lambda size: say("dimension_channels", size=size),
    "depth": lambda size: say("dimension_depth", size=size),
    "height": lambda size: say("dimension_height", size=size),
    "width": lambda size: say("dimension_width", size=size),
    "length": lambda size: say("dimension_length", size=size),
    "layers": lambda size: say("dimension_layers", size=size),
    "past": lambda size: say("dimension_past", size=size),
    "samples": lambda size: say("dimension_samples", size=size),
    "total": lambda size: say("dimension_total", size=size),
}


def _describe_chosen_size(role: str, name: str, place: int, size: int) -> Reason:
    """Return a size that we chose, by what the dimension is, else by its name or its place."""
    if role in _TOLD:
        return _TOLD[role](size)
    return say("dimension_named", name=name, size=size) if name else say("dimension", place=place, size=size)


def _has_own_name(dim: int | str) -> bool:
    """Return whether a dimension has a name of its own; backends call one that has none "?" or by its place, "dim2"."""
    return isinstance(dim, str) and re.fullmatch(r"\?*|dim\d+", dim) is None


def _find_roles(meta: InputMeta, dims: tuple[int | str, ...], hears: bool) -> list[str]:
    """Return what each dimension is: by its own name, else by its place in an input of this kind."""
    rank = len(dims)
    dtype = as_dtype(meta.dtype)
    whole = dtype is not None and is_integer(dtype) and dtype.itemsize > 1
    state = bool(_STATE.search(meta.name))
    image = _find_channel_place(meta, dims) if not state and not whole else ""
    kinds = ["other"] * rank
    if image:
        middle = ["depth", "height", "width"][5 - rank :]
        kinds = ["batch", *middle, "channels"] if image == "last" else ["batch", "channels", *middle]
    elif state and rank >= 3:  # layers or batch first; heads and features are fixed where they are known
        kinds = ["batch", "channels", "past", "other"] if rank == 4 else ["layers", "batch", "other"]
        kinds = (kinds + ["other"] * rank)[:rank]
    elif rank >= 2:
        heard = not whole and rank == 2 and (hears or bool(_AUDIO.search(meta.name)) or _says(dims[1]) == "length")
        rest = "samples" if heard else "length"
        kinds = ["batch", *([rest] * (rank - 1))] if whole or heard or rank == 3 else ["batch"] + ["other"] * (rank - 1)
    found = [_says(dim) or kind for dim, kind in zip(dims, kinds, strict=True)]
    if rank == 2 and not whole and found[1] == "length" and found[0] == "batch":
        found[1] = "samples"  # a waveform: whole numbers would be tokens
    return found


def _says(dim: int | str) -> str:
    name = str(dim).lower() if _has_own_name(dim) else ""
    return next((role for role, pattern in _ROLES if name and re.search(pattern, name)), "")


def _find_channel_place(meta: InputMeta, dims: tuple[int | str, ...]) -> str:
    """Return where an image has its channels, "first" or "last"; "" where it is no image."""
    rank = len(dims)
    if rank not in (4, 5):
        return ""
    if meta.layout:
        return "last" if meta.layout.endswith("C") else "first"
    says = [_says(dim) for dim in dims]
    if dims[1] in (1, 3, 4) and dims[-1] not in (1, 3, 4):
        return "first"
    if dims[-1] in (1, 3, 4) and dims[1] not in (1, 3, 4):
        return "last"
    if "height" in says or "width" in says:
        return "last" if "height" in says[1:2] else "first"
    return "first" if rank == 4 else ""


def _size_of_role(
    role: str, name: str, dims: tuple[int | str, ...], roles: Sequence[str], symbols: Mapping[str, int]
) -> int:
    if role in ("height", "width"):
        sides = [size for size, what in zip(dims, roles, strict=True) if {what, role} == {"height", "width"}]
        other = next((size for size in sides if isinstance(size, int) and size > 0), None)
        if other is None:
            return SIDE
        return other if other >= 64 else 4 * other  # a low, wide image is a line of text
    if role == "total":  # "past_length + sequence_length" is the sum of its parts, which may come later
        parts = [part.strip() for part in name.split("+")] if "+" in name else []
        sizes = [symbols.get(part) or (int(part) if part.isdigit() else PAST if "past" in part else TOKENS)
                 for part in parts]  # fmt: skip
        return sum(sizes) if sizes else PAST + TOKENS
    return {
        "batch": BATCH, "channels": CHANNELS, "length": TOKENS, "samples": SAMPLES, "past": PAST, "depth": DEPTH,
        "layers": 1,
    }.get(role, OTHER)  # fmt: skip


def make_conventional_values(
    meta: InputMeta, shape: tuple[int, ...], rng: np.random.Generator, *, ranged: bool = False
) -> tuple[Array, Reason] | None:
    """Return values that are a convention, and what they are in words; None: any values of the range will do.

    ranged: a range was given for all inputs, so that only what the model itself asks for is kept.

    Masks are ones, those of padding zeros, token types zeros, positions count up, a sampling rate is 16000; token ids
    lie below the size of the table that they index, bytes are 0 to 255.
    """
    dtype = as_dtype(meta.dtype)
    if dtype is None or dtype.kind not in "biuf" or (dtype.kind == "b" and not _MASK.search(meta.name)):
        return None
    size = int(np.prod(shape))
    if _PADDING.search(meta.name):
        return np.zeros(shape, dtype), say("no_padding")
    if _MASK.search(meta.name):
        return np.ones(shape, dtype), say("ones")
    if is_float(dtype) and not meta.limit:
        return None
    if _RATE.search(meta.name) and size == 1 and dtype.itemsize > 1:
        return np.full(shape, RATE, dtype), say("sampling_rate", rate=RATE)
    if _TYPES.search(meta.name):
        return np.zeros(shape, dtype), say("zeros")
    if _POSITIONS.search(meta.name) and shape:
        row = np.arange(shape[-1]) % (meta.limit or shape[-1])
        return np.broadcast_to(row, shape).astype(dtype), say("positions")
    low, top = _index_range(meta, dtype) if meta.limit or not ranged else (0, 0)
    return (rng.integers(low, top, shape).astype(dtype), say("whole_numbers", low=low, high=top - 1)) if top else None


def _index_range(meta: InputMeta, dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the lowest index and the number of them; (0, 0) where nothing tells it."""
    if meta.limit:
        return 0, min(meta.limit, _WHOLE_FLOATS if is_float(dtype) else int(np.iinfo(dtype).max))
    if _BYTES.search(meta.name) or dtype == np.uint8:
        return 0, 256
    return (0, 100) if _TOKENS.search(meta.name) and dtype.itemsize > 1 else (0, 0)


@dataclass(frozen=True, kw_only=True)
class Default:
    """What an input is fed without --inputs. shape: None where it must be given. words: shape and values, one line."""

    shape: tuple[int, ...] | None
    words: Reason


def choose_default_feeds(inputs: Sequence[InputMeta], *, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Default]:
    """Return the defaults of every input, by name, without making the values of any but the conventional ones."""
    sizes = choose_sizes([meta for meta in inputs if meta.shape is not None or meta.name in shapes], shapes)
    return {meta.name: _choose_default(meta, sizes.get(meta.name)) for meta in inputs}


def _must_be_given(meta: InputMeta) -> str:
    return f"--input_shapes {meta.name}:[...]" if as_dtype(meta.dtype) is not None else "--inputs SCRIPT.py:FUNCTION"


def _choose_default(meta: InputMeta, size: Sized | None) -> Default:
    if size is None and meta.optional:
        return Default(shape=None, words=say("default_left_out"))
    if size is None:
        return Default(shape=None, words=say("default_none", give=_must_be_given(meta)))
    if meta.optional:
        return Default(shape=size.shape, words=say("default_left_out"))
    known = (
        make_conventional_values(meta, size.shape, np.random.default_rng(0)) if np.prod(size.shape) < 2**24 else None
    )
    shape, values = str(list(size.shape)), known[1] if known else say("random_values")
    if not size.chosen:
        return Default(shape=size.shape, words=say("default_fed", shape=shape, values=values))
    words = say("default_chosen", shape=shape, chosen=size.chosen, values=values)
    return Default(shape=size.shape, words=words)
