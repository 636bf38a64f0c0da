"""Records to plain JSON values and back, without loss.

Strict JSON has no NaN and no infinity, so a float that is not finite travels as {"$float": "nan" | "inf" | "-inf"}.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

__all__ = ["decode", "encode"]

T = TypeVar("T")


def encode(value: Any) -> Any:
    """Dataclasses to dicts (fields at their default are left out), enums to their value, tuples to lists."""
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else {"$float": str(value)}
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [encode(item) for item in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            name: encode(item)
            for name, default in _defaults(type(value))
            if not _same(item := getattr(value, name), default)
        }
    if hasattr(value, "item"):  # a numpy scalar
        return encode(value.item())
    raise TypeError(f"{type(value).__name__} does not travel in JSON")


def decode(kind: type[T], data: Any) -> T:
    """The inverse of ``encode`` for a dataclass type. Raises TypeError, KeyError or ValueError on foreign data.

    Fields that this version does not know are refused: a newer file must not be read as if it were complete.
    """
    return typing.cast(T, _decode(kind, data))


_MISSING = object()


@functools.cache
def _defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    rows = []
    for field in dataclasses.fields(kind):
        default: Any = field.default
        if default is dataclasses.MISSING:
            made = field.default_factory is not dataclasses.MISSING
            default = field.default_factory() if made else _MISSING  # type: ignore[misc]
        rows.append((field.name, default))
    return tuple(rows)


def _same(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and value == default)


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _decode(kind: Any, data: Any) -> Any:
    if isinstance(data, dict) and "$float" in data:
        return float(data["$float"])
    if kind is Any or data is None:
        return data
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _decode(next((k for k in typing.get_args(kind) if _fits(k, data)), Any), data)
    if origin is tuple:
        items = typing.get_args(kind)
        if len(items) == 2 and items[1] is Ellipsis:
            return tuple(_decode(items[0], item) for item in data)
        return tuple(_decode(item_kind, item) for item_kind, item in zip(items, data, strict=True))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        value_kind = typing.get_args(kind)[1]
        return {key: _decode(value_kind, item) for key, item in data.items()}
    if dataclasses.is_dataclass(kind):
        hints = _hints(typing.cast(type, kind))
        return typing.cast(Any, kind)(**{name: _decode(hints[name], item) for name, item in data.items()})
    if kind is float:
        return float(data)
    if isinstance(kind, type) and not isinstance(data, kind):
        return kind(data)
    return data


def _fits(kind: Any, data: Any) -> bool:
    if kind is type(None):
        return data is None
    if dataclasses.is_dataclass(kind):
        return isinstance(data, dict)
    if typing.get_origin(kind) is tuple:
        return isinstance(data, list)
    if kind is float:
        return isinstance(data, (int, float)) and not isinstance(data, bool)
    return isinstance(kind, type) and isinstance(data, kind)
