"""Feeds and outputs that are no arrays to ONNX Runtime's Python: bfloat16, float8, int4, sequences, maps."""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Mapping
from typing import Any

from precision_debug.errors import InputError
from precision_debug.numbers.arrays import as_array
from precision_debug.onnx.types import dtype_name, elem_of, numpy_dtype
from precision_debug.protocols import Feeds

__all__ = ["check_feeds", "run"]


# Checks what a caller feeds against what a session takes.

def check_feeds(feeds: Feeds, known: Collection[str], required: Collection[str]) -> dict[str, Any]:
    """Return the feeds as numpy arrays; lists, dicts and None (sequences, maps, absent optionals) as they are.

    Raises InputError for a name that the model does not have and for a required one that is missing.
    """
    import numpy as np

    for name in feeds:
        if name not in known:
            raise InputError(f"the model has no input {name}", where=name, hint=f"it has {', '.join(known)}")
    for name in required:
        if name not in feeds:
            raise InputError(f"no value for the input {name}", where=name, hint="give it with --inputs")
    as_they_are = (type(None), list, dict)
    return {name: value if isinstance(value, as_they_are) else np.asarray(value) for name, value in feeds.items()}


_HALF_BYTES = frozenset({21, 22, 23})
_QUARTER_BYTES = frozenset({25, 26})
_BYTES = frozenset({17, 18, 19, 20, 24})
_ODD = frozenset({16}) | _BYTES | _HALF_BYTES | _QUARTER_BYTES


def run(session: Any, feeds: Mapping[str, Any], options: Any) -> list[Any]:
    """Run an InferenceSession. Arrays with ml_dtypes' types go in and come out as such; of a sequence or map comes one
    array, see ``as_array``."""
    outputs = session.get_outputs()
    ort_feeds = {name: _to_ort(name, value) for name, value in feeds.items()}
    if not any(elem_of(item.type) in _ODD for item in outputs):
        return [
            as_array(value) if isinstance(value, (list, dict)) else value
            for value in session.run(None, ort_feeds, options)
        ]
    import onnxruntime as ort

    def as_value(value: Any) -> Any:
        return value if isinstance(value, ort.OrtValue) else ort.OrtValue.ortvalue_from_numpy(value)

    values = {name: as_value(value) for name, value in ort_feeds.items()}
    found = session.run_with_ort_values([item.name for item in outputs], values, options)
    return [_from_ort(value, elem_of(item.type)) for value, item in zip(found, outputs, strict=True)]


def _to_ort(name: str, value: Any) -> Any:
    if not hasattr(value, "dtype"):
        return value
    elem = elem_of(f"tensor({value.dtype.name})")
    if elem not in _ODD:
        return value
    import numpy as np
    import onnxruntime as ort

    try:
        made = ort.OrtValue.ortvalue_from_shape_and_type(list(value.shape), elem)
    except Exception as error:
        raise InputError(f"ONNX Runtime takes no {dtype_name(elem)} inputs from Python", where=name) from error
    raw = np.ascontiguousarray(value).reshape(-1).view(np.uint8)
    bits = _count_bits(elem)
    if bits < 8:
        raw = _pack_numbers(raw, bits)
    ctypes.memmove(made.data_ptr(), raw.ctypes.data, raw.nbytes)
    return made


def _count_bits(elem: int) -> int:
    """Return bits of one number where it lies packed in memory."""
    if elem in _BYTES:
        return 8
    return 4 if elem in _HALF_BYTES else 2 if elem in _QUARTER_BYTES else 16


def _pack_numbers(raw: Any, bits: int) -> Any:
    """Return numbers of one byte each, the first one into the lowest bits."""
    import numpy as np

    each = 8 // bits
    padded = np.zeros(-(-raw.size // each) * each, np.uint8)
    padded[: raw.size] = raw & ((1 << bits) - 1)
    places = np.arange(0, 8, bits, dtype=np.uint8)
    return np.bitwise_or.reduce(padded.reshape(-1, each) << places, axis=1).astype(np.uint8)


def _from_ort(value: Any, elem: int) -> Any:
    import numpy as np

    if elem not in _ODD or not value.is_tensor():
        return value.numpy() if value.is_tensor() else value
    shape = tuple(value.shape())
    count = int(np.prod(shape, dtype=np.int64))
    bits = _count_bits(elem)
    raw = np.frombuffer(ctypes.string_at(value.data_ptr(), (count * bits + 7) // 8), np.uint8)
    if bits < 8:
        places = np.arange(0, 8, bits, dtype=np.uint8)
        small = ((raw[:, None] >> places) & ((1 << bits) - 1)).reshape(-1)[:count]
        if elem in {22, 26}:
            small = small.astype(np.int8) - ((small >> (bits - 1)) << bits).astype(np.int8)
        return small.astype(numpy_dtype(elem)).reshape(shape)
    return raw.view(numpy_dtype(elem)).reshape(shape).copy()
