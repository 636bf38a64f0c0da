"""Whether feeds fit the model's inputs; what can be converted without changing a value is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import InputError
from ..numbers.arrays import as_array
from ..reasons import Reason, say, suggest_nearest
from ..records import InputMeta
from .dtypes import Array, as_dtype, cast_exactly, dtype_name, is_float, is_integer

__all__ = ["NO_TENSORS", "check_names", "check_one", "check_shape", "engine_arrays", "note_left_out"]

NO_TENSORS = {"sequence": "[array, array]", "map": "{key: value}"}
"""Inputs that no file of arrays holds, and what a script gives for them."""


def check_one(
    feeds: Mapping[str, Any], inputs: Sequence[InputMeta], *, where: str
) -> tuple[dict[str, Any], list[Reason]]:
    """Return the feeds in the model's order and types, and notes on what was converted or looks odd.

    Values may be anything with ``__array__``, or nested lists of numbers, which have no type of their own and take
    the input's. An input that is not an array (a sequence, an optional) is passed on as it came. Raises InputError.
    """
    check_names(feeds, inputs, where=where)
    absent = [meta.name for meta in inputs if meta.name not in feeds and not meta.optional]
    if absent:
        raise InputError(
            say("no_value_for", names=_list_names(absent)),
            where=where,
            hint=say("it_has", names=_list_names(list(feeds)) or "none"),
        )
    checked: dict[str, Any] = {}
    notes: list[Reason] = []
    for meta in inputs:
        if meta.name in feeds:
            checked[meta.name] = _check_input(feeds[meta.name], meta, notes, where)
    return checked, notes + note_left_out([meta for meta in inputs if meta.name not in feeds])


def note_left_out(inputs: Sequence[InputMeta]) -> list[Reason]:
    """Say in one note whose own values the model takes: old ONNX files list every weight among their inputs."""
    names = [meta.name for meta in inputs if not meta.guessed]
    return [say("inputs_left_out", names=_list_names(names))] if names else []


def engine_arrays(feeds: Mapping[str, Any], inputs: Sequence[InputMeta], *, where: str) -> dict[str, Array]:
    """Return contiguous arrays in the inputs' order, for an engine that takes exactly these names, types and shapes.

    For sessions, which scripts call without ``check_one``: nothing is converted. Raises InputError.
    """
    check_names(feeds, inputs, where=where)
    arrays = {}
    for meta in inputs:
        if meta.name not in feeds:
            raise InputError(f"no value for the input {meta.name}", where=where, hint="give it with --inputs")
        array = np.asarray(feeds[meta.name])
        kind = "str" if array.dtype.kind in "OUST" else array.dtype.name
        if kind != meta.dtype:
            raise InputError(f"input {meta.name} is {kind}", where=where, hint=f"it takes {meta.dtype}")
        check_shape(array.shape, meta, where=where)
        arrays[meta.name] = np.ascontiguousarray(array).reshape(array.shape)  # which makes a scalar a vector of one
    return arrays


def check_names(feeds: Mapping[str, Any], inputs: Sequence[InputMeta], *, where: str) -> None:
    """Check that every key names an input of the model. Raises InputError with the nearest name."""
    names = [meta.name for meta in inputs]
    for name in feeds:
        if name not in names:
            hint = suggest_nearest(str(name), names) or say("its_inputs", names=_list_names(names) or "none")
            raise InputError(say("no_such_input", name=str(name)), where=where, hint=hint)


def check_shape(shape: Sequence[int], meta: InputMeta, *, where: str) -> None:
    """Check that rank and fixed dimensions are the model's; of an example, its rank. Raises InputError."""
    if meta.shape is None or meta.guessed:
        return
    fits = len(shape) == len(meta.shape) and all(
        meta.example or isinstance(dim, str) or dim < 0 or dim == size
        for dim, size in zip(meta.shape, shape, strict=True)
    )
    if not fits:
        wanted = ", ".join(str(dim) if isinstance(dim, str) or dim >= 0 else "?" for dim in meta.shape)
        raise InputError(
            say("input_shape", name=meta.name, shape=str(list(shape)), wanted=wanted),
            where=where,
            hint=say("reshape_it"),
        )


def _check_input(value: Any, meta: InputMeta, notes: list[Reason], where: str) -> Any:
    wanted = as_dtype(meta.dtype)
    if wanted is None:
        if meta.dtype in NO_TENSORS and hasattr(value, "__array__"):
            raise InputError(
                f"input '{meta.name}' is a {meta.dtype}, and its value an array", where=where,
                hint=f"--inputs SCRIPT.py:FUNCTION that yields {{'{meta.name}': {NO_TENSORS[meta.dtype]}}}",
            )  # fmt: skip
        notes.append(say("input_unchecked", name=meta.name, dtype=meta.dtype or "unknown"))
        return value
    untyped = isinstance(value, (list, tuple, int, float, complex, str)) and not isinstance(value, np.generic)
    try:
        array = as_array(value) if hasattr(value, "__dlpack__") else np.asarray(value)  # torch's bfloat16
    except Exception as error:
        raise InputError(f"the value of '{meta.name}' cannot become an array: {error}", where=where) from error
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    array = _to_fixed_width_text(array, meta, where) if array.dtype.kind in "OSTU" else array
    if meta.codes and array.dtype.name == meta.codes:
        array = ((array.astype(np.int64) - meta.zero_point) * np.float32(meta.scale)).astype(wanted)
        notes.append(say("input_codes", name=meta.name, dtype=meta.codes, scale=meta.scale, zero=meta.zero_point))
    if meta.guessed and not (is_float(array.dtype) and is_float(wanted)):
        wanted = array.dtype
    if untyped and array.size == 0:
        array = array.astype(wanted)
    if untyped and is_float(wanted) and (is_float(array.dtype) or is_integer(array.dtype)):
        with np.errstate(all="ignore"):
            array = array.astype(wanted)
    array = _cast(array, wanted, meta, [] if untyped else notes, where)
    if meta.shape == () and array.shape == (1,) and not meta.guessed:  # engines take it, too
        array = array.reshape(())
        notes.append(say("input_scalar", name=meta.name))
    check_shape(array.shape, meta, where=where)
    _note_non_finite(array, meta, notes)
    return array


def _to_fixed_width_text(array: Array, meta: InputMeta, where: str) -> Array:
    """Return the text of any kind as fixed-width unicode, which .npz holds without pickle."""
    try:
        items = [item.decode("utf-8") if isinstance(item, bytes) else item for item in array.ravel().tolist()]
    except UnicodeDecodeError as error:
        raise InputError(f"input '{meta.name}' has text that is not UTF-8: {error}", where=where) from error
    if not all(isinstance(item, str) for item in items):
        what = f"input '{meta.name}' holds Python objects, not {meta.dtype}"
        raise InputError(what, where=where, hint="convert it to an array")
    if any("\0" in item for item in items):
        what = f"input '{meta.name}' has text with a NUL character"
        raise InputError(what, where=where, hint="engines cut it off there; remove it")
    return array if array.dtype.kind == "U" else np.asarray(np.array(items, dtype=np.str_).reshape(array.shape))


def _cast(array: Array, wanted: np.dtype[Any], meta: InputMeta, notes: list[Reason], where: str) -> Array:
    have = array.dtype
    if have == wanted or (have.kind == "U" and wanted.kind == "U"):
        return array
    if have.kind == "V" and have.isbuiltin == 0 and wanted.isbuiltin == 2 and have.itemsize == wanted.itemsize:
        notes.append(say("input_raw", name=meta.name, bytes=have.itemsize, dtype=meta.dtype))
        return array.view(wanted)
    bits = have.kind == "u" and have.itemsize == wanted.itemsize and is_float(wanted) and wanted.itemsize < 4
    converted = None if bits else cast_exactly(array, wanted)
    if converted is None and meta.rounds and is_float(have) and is_float(wanted):
        if meta.guessed:  # the session finds out which type it takes
            return array
        with np.errstate(all="ignore"):
            rounded = array.astype(wanted)
        if np.array_equal(np.isinf(rounded), np.isinf(array)):
            notes.append(say("input_rounded_to_example", name=meta.name, have=dtype_name(have), dtype=meta.dtype))
            return rounded
    if converted is None:
        why = say("values_or_bits") if bits else say("values_would_change")
        raise InputError(
            say("input_type", name=meta.name, have=dtype_name(have), dtype=meta.dtype, why=why),
            where=where, hint=say("convert_it", dtype=meta.dtype),
        )  # fmt: skip
    notes.append(say("input_converted", name=meta.name, have=dtype_name(have), dtype=meta.dtype))
    return converted


def _note_non_finite(array: Array, meta: InputMeta, notes: list[Reason]) -> None:
    if not (is_float(array.dtype) or array.dtype.kind == "c"):
        return
    wide = array if array.dtype.kind in "fc" and array.dtype.isbuiltin == 1 else array.astype(np.float32)
    if not np.isfinite(wide).all():
        nan, inf = int(np.isnan(wide).sum()), int(np.isinf(wide).sum())
        notes.append(say("input_non_finite", name=meta.name, nan=nan, inf=inf, count=array.size))


def _list_names(names: Sequence[str], most: int = 8) -> str:
    shown = ", ".join(repr(name) for name in names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown
