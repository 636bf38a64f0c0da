"""Records to plain JSON values and back, without loss.

Strict JSON has no NaN and no infinity, so a float that is not finite travels as {"$float": "nan" | "inf" | "-inf"}.
A reason travels as its English sentence, which everybody reads; its code and arguments stand beside it, under "codes"
of the same object, by the name of its field.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import json
import math
import re
import sys
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import msgspec.json

from .reasons.reason import Reason

__all__ = ["decode", "decode_line", "encode", "json_text", "parse_json"]

T = TypeVar("T")

_LONG = re.compile(rb"\d{300}")
_HALVES = re.compile("[\ud800-\udfff]")
_MISSING = object()
_CODES = "codes"
_LOOKED_AT = frozenset({dict, list, int})
_MOST = 2**1023
_FINITE = sys.float_info.max


def parse_json(text: str | bytes, **settings: Any) -> Any:
    """``json.loads``. Raises ValueError on whatever it cannot read, a text that is nested too deeply among it."""
    try:
        return json.loads(text, **settings)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def json_text(value: Any, *, indent: int | None = None) -> str:
    """Return plain values as strict JSON, with letters as they are.

    Only what UTF-8 has no bytes for (half a surrogate pair, as of a file name that is not text) is escaped. Raises
    ValueError on a float that is not finite."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent)
    return _HALVES.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def encode(value: Any) -> Any:
    """Encode dataclasses as dicts (fields at their default are left out), enums to their value, tuples to lists."""
    kind = type(value)
    if value is None or kind is bool or kind is int or kind is str:
        return value
    if kind is float:
        return value if math.isfinite(value) else {"$float": str(value)}
    if dataclasses.is_dataclass(kind):
        return _encode_dataclass(value)
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


def _encode_dataclass(value: Any) -> dict[str, Any]:
    plain, codes = {}, {}
    kind: Any = type(value)
    for name, default, says in _list_fields(kind):
        item = getattr(value, name)
        if item is default:
            continue
        of = type(item)  # every row of a journal comes along here: the plain types first
        if of is str or of is int or of is bool or (of is float and -_FINITE <= item <= _FINITE):
            if of is not type(default) or item != default:
                plain[name] = item
            continue
        if of is type(default) and item == default:
            continue
        plain[name] = encode(item)
        if says and (code := _codes_beside(item)) is not None:
            codes[name] = code
    if codes:
        plain[_CODES] = codes
    return plain


@functools.cache
def _list_fields(kind: Any) -> tuple[tuple[str, Any, bool], ...]:
    """Return names and defaults, and whether a field may hold reasons."""
    rows = []
    for field in dataclasses.fields(kind):
        default: Any = field.default
        if default is dataclasses.MISSING:
            make: Any = field.default_factory
            default = _MISSING if make is dataclasses.MISSING else make()
        rows.append((field.name, default, "Reason" in str(field.type)))
    return tuple(rows)


def _codes_beside(item: Any) -> Any:
    """Return what stands beside a sentence, or beside several of them; None where no code is known."""
    if isinstance(item, Reason):
        if not item.code:
            return None
        return {
            "code": item.code,
            **({"args": {k: _encode_argument(v) for k, v in item.args.items()}} if item.args else {}),
        }
    if isinstance(item, (list, tuple)):
        several = [_codes_beside(each) for each in item]
        return several if any(several) else None
    if isinstance(item, Mapping):
        return {str(key): code for key, each in item.items() if (code := _codes_beside(each)) is not None} or None
    return None


def _encode_argument(value: Any) -> Any:
    if isinstance(value, Reason):
        return {"text": str(value), **(_codes_beside(value) or {})}
    return [_encode_argument(each) for each in value] if isinstance(value, tuple) else encode(value)


def decode(kind: type[T], data: Any) -> T:
    """Decode what ``encode`` made of a dataclass type. Raises TypeError, KeyError or ValueError on foreign data.

    Values of another type than the field's are refused: a damaged file must not be read as if it were whole. Fields
    that this version does not know, of a newer one, are left out.
    """
    try:
        return msgspec.convert(_restore_special_values(data), kind, dec_hook=_decode_reason)
    except (msgspec.MsgspecError, AttributeError, OverflowError, RecursionError) as error:
        raise ValueError(f"{type(error).__name__}: {error}") from error


def decode_line(kind: type[T], line: bytes) -> T | None:
    """Decode the JSON of a plain record at once; None where it holds what only ``decode`` knows, or refuses.

    Most lines of a journal are such: no float that is not finite, no sentence with a code, no number of 300 digits.
    """
    if b'"$float"' in line or b'"codes"' in line or _LONG.search(line):
        return None
    try:
        found: T = _decoder(kind).decode(line)  # type: ignore[arg-type]  # a type is hashable
        return found
    except (msgspec.MsgspecError, ValueError, AttributeError, OverflowError, RecursionError):
        return None


@functools.cache
def _decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(kind, dec_hook=_decode_reason)


def _decode_reason(kind: type, value: Any) -> Any:
    if kind is Reason and isinstance(value, str):
        return value if isinstance(value, Reason) else Reason(value)
    raise TypeError(f"{kind.__name__} from {type(value).__name__}")


def _restore_special_values(data: Any) -> Any:
    """Return plain data with its floats that are not finite, and with sentences that know their code."""
    if type(data) is list:
        return [_restore_special_values(item) if type(item) in _LOOKED_AT else item for item in data]
    if type(data) is int and abs(data) > _MOST:
        raise ValueError("a whole number that no float comes near")
    if type(data) is not dict:
        return data
    if data.keys() == {"$float"}:
        return float(data["$float"])
    alive = {key: _restore_special_values(item) if type(item) in _LOOKED_AT else item for key, item in data.items()}
    codes = alive.get(_CODES)
    if type(codes) is dict:
        for name, code in codes.items():
            if name in alive and name != _CODES:
                alive[name] = _attach_codes(alive[name], code)
    return alive


def _attach_codes(said: Any, code: Any) -> Any:
    """Return the sentences as Reasons, with their codes and arguments; a sentence whose code does not fit stays
    text."""
    if type(said) is str and type(code) is dict and type(code.get("code")) is str:
        args = code.get("args")
        found = {k: _decode_reason_argument(v) for k, v in args.items()} if type(args) is dict else {}
        return Reason(said, code["code"], found)
    if type(said) is list and type(code) is list and len(said) == len(code):
        return [_attach_codes(each, one) for each, one in zip(said, code, strict=True)]
    if type(said) is dict and type(code) is dict:
        return {key: _attach_codes(each, code.get(key)) for key, each in said.items()}
    return said


def _decode_reason_argument(value: Any) -> Any:
    """Return an argument as it was."""
    if type(value) is list:
        return tuple(_decode_reason_argument(each) for each in value)
    if type(value) is dict:
        text = value.get("text")
        return _attach_codes(text, value) if type(value.get("code")) is str else Reason(str(text))
    return value
