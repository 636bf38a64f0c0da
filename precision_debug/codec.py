"""Records to plain JSON values and back, without loss.

Strict JSON has no NaN and no infinity, so a float that is not finite travels as {"$float": "nan" | "inf" | "-inf"}.
Both ways are compiled once for each type from its hints, so that 100,000 rows take seconds.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

__all__ = ["decode", "encode", "parse_json"]

T = TypeVar("T")

_Convert = Callable[[Any], Any]
_MISSING = object()


def parse_json(text: str | bytes, **settings: Any) -> Any:
    """``json.loads``. Raises ValueError on whatever it cannot read, a text that is nested too deeply among it."""
    try:
        return json.loads(text, **settings)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def encode(value: Any) -> Any:
    """Dataclasses to dicts (fields at their default are left out), enums to their value, tuples to lists."""
    kind = type(value)
    if value is None or kind is bool or kind is int or kind is str:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": str(value)}
    if dataclasses.is_dataclass(kind):
        return {
            name: encode(item)
            for name, default in _defaults(kind)
            if not ((item := getattr(value, name)) is default or (type(item) is type(default) and item == default))
        }
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, (list, tuple, set, frozenset)):
        return [encode(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): encode(item) for key, item in value.items()}
    if isinstance(value, str):
        return str(value)
    if hasattr(value, "item"):  # a numpy scalar
        return encode(value.item())
    raise TypeError(f"{kind.__name__} does not travel in JSON")


def decode(kind: type[T], data: Any) -> T:
    """The inverse of ``encode`` for a dataclass type. Raises TypeError, KeyError or ValueError on foreign data.

    Fields that this version does not know are refused, and so are values of another type than the field's: a newer or
    a damaged file must not be read as if it were whole.
    """
    try:
        return typing.cast(T, _decoder(typing.cast(Any, kind))(data))
    except (AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


@functools.cache
def _defaults(kind: type) -> tuple[tuple[str, Any], ...]:
    rows = []
    for field in dataclasses.fields(kind):
        default: Any = field.default
        if default is dataclasses.MISSING:
            make: Any = field.default_factory
            default = _MISSING if make is dataclasses.MISSING else make()
        rows.append((field.name, default))
    return tuple(rows)


@functools.cache
def _decoder(kind: Any) -> _Convert:
    if kind is Any:
        return _anything
    if kind is float:
        return _float
    if kind in (str, int, bool):
        return _exactly(kind)
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return _union(typing.get_args(kind))
    if origin is tuple:
        return _tuple(typing.get_args(kind))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(_decoder(typing.get_args(kind)[1]))
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind)
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind
    raise TypeError(f"no way from JSON to {kind}")


def _dataclass(kind: Any) -> _Convert:
    hints = typing.get_type_hints(kind)
    decoders = {field.name: _decoder(hints[field.name]) for field in dataclasses.fields(kind)}

    def convert(data: Any) -> Any:
        if type(data) is not dict:
            raise TypeError(f"{kind.__name__} from {type(data).__name__}")
        return kind(**{name: decoders[name](item) for name, item in data.items()})

    return convert


def _union(kinds: tuple[Any, ...]) -> _Convert:
    """``X | None``, or plain types that JSON tells apart (int | str)."""
    some = [kind for kind in kinds if kind is not type(None)]
    if len(some) == 1:
        inner = _decoder(some[0])
        return lambda data: None if data is None else inner(data)
    plain = tuple(kinds)

    def convert(data: Any) -> Any:
        if type(data) not in plain:
            raise TypeError(f"{' or '.join(kind.__name__ for kind in plain)} from {type(data).__name__}")
        return data

    return convert


def _tuple(kinds: tuple[Any, ...]) -> _Convert:
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        item = _decoder(kinds[0])
        return lambda data: tuple([item(each) for each in _list(data)])
    items = [_decoder(kind) for kind in kinds]
    return lambda data: tuple([item(each) for item, each in zip(items, _list(data), strict=True)])


def _mapping(item: _Convert) -> _Convert:
    def convert(data: Any) -> Any:
        if type(data) is not dict:
            raise TypeError(f"mapping from {type(data).__name__}")
        return {key: item(each) for key, each in data.items()}

    return convert


def _list(data: Any) -> list[Any]:
    if type(data) is not list:
        raise TypeError(f"tuple from {type(data).__name__}")
    return data


def _exactly(kind: type) -> _Convert:
    def convert(data: Any) -> Any:
        if type(data) is not kind:
            raise TypeError(f"{kind.__name__} from {type(data).__name__}")
        return data

    return convert


def _float(data: Any) -> float:
    """Whole numbers stay whole: uint64 does not fit a double."""
    if type(data) is float or type(data) is int:
        return data
    if type(data) is dict:
        return float(data["$float"])
    raise TypeError(f"float from {type(data).__name__}")


def _anything(data: Any) -> Any:
    if type(data) is dict:
        if data.keys() == {"$float"}:
            return float(data["$float"])
        return {key: _anything(item) for key, item in data.items()}
    if type(data) is list:
        return [_anything(item) for item in data]
    return data
