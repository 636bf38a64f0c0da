"""Merged totals as JSON values and back, without loss: exact sums travel as text, as no JSON number holds them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from ..codec import encode
from .exact_sum import ExactSum
from .merged import Merged, MergedSide, Place
from .slices import MergedSlices

__all__ = ["from_plain", "side_from_plain", "side_to_plain", "to_plain"]

_SIDES = ("base", "target")
_PLACES = ("first_mismatch", "max_abs", "max_rel")


def to_plain(merged: Merged) -> dict[str, Any]:
    """Fields by name; those at their default are left out."""
    plain: dict[str, Any] = {}
    for name, value in _stated(merged):
        if name in _SIDES:
            plain[name] = side_to_plain(value)
        elif name in _PLACES:
            plain[name] = [encode(value.value), value.sample, list(value.index)]
        elif name == "sketch":
            plain[name] = [[bucket, count] for bucket, count in sorted(value.items())]
        elif name == "slices":
            plain[name] = value.to_plain()
        elif name == "counted":
            plain[name] = {key: item.text for key, item in value.items()}
        else:
            plain[name] = _out(value)
    return plain


def from_plain(plain: Mapping[str, Any]) -> Merged:
    """The inverse. Raises KeyError, TypeError or ValueError on foreign data."""
    values: dict[str, Any] = {}
    for name, item in plain.items():
        if name in _SIDES:
            values[name] = side_from_plain(item)
        elif name in _PLACES:
            values[name] = Place(value=_float(item[0]), sample=int(item[1]), index=tuple(item[2]))
        elif name == "sketch":
            values[name] = {int(bucket): int(count) for bucket, count in item}
        elif name == "slices":
            values[name] = MergedSlices.from_plain(item)
        elif name == "counted":
            values[name] = {key: ExactSum.from_text(text) for key, text in item.items()}
        elif name == "worst":
            values[name] = tuple((_float(error), int(sample)) for error, sample in item)
        else:
            values[name] = _in(name, item, _FIELDS)
    return Merged(**values)


def side_to_plain(side: MergedSide) -> dict[str, Any]:
    """The same for one side."""
    return {key: _out(item) for key, item in _stated(side)}


def side_from_plain(plain: Mapping[str, Any]) -> MergedSide:
    """Its inverse."""
    return MergedSide(**{key: _in(key, value, _SIDE_FIELDS) for key, value in plain.items()})


def _stated(record: Any) -> list[tuple[str, Any]]:
    found = []
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if field.default is dataclasses.MISSING or value != field.default:
            found.append((field.name, value))
    return found


def _out(value: Any) -> Any:
    return value.text if isinstance(value, ExactSum) else encode(value)


def _in(name: str, value: Any, fields: Mapping[str, Callable[[Any], Any]]) -> Any:
    return fields[name](value)


def _float(value: Any) -> float:
    return float(value["$float"]) if isinstance(value, dict) else value


def _reader(kind: str) -> Callable[[Any], Any]:
    if kind == "ExactSum":
        return ExactSum.from_text
    return tuple if kind == "Shape" else _float


_FIELDS = {field.name: _reader(str(field.type)) for field in dataclasses.fields(Merged)}
_SIDE_FIELDS = {field.name: _reader(str(field.type)) for field in dataclasses.fields(MergedSide)}
