"""Reads the user's options, which come as text from a command line or as Python values from a call."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from precision_debug.errors import UsageError

__all__ = ["flag", "one_of", "texts"]


def one_of(option: str, value: Any, known: Collection[str]) -> str:
    """The value in lower case; raises UsageError where it is not known."""
    if str(value).lower() not in known:
        raise UsageError(f"{value!r} is not one of {', '.join(known)}", where=option)
    return str(value).lower()


def texts(value: Any) -> tuple[str, ...]:
    """Names, from a sequence or from text with commas."""
    if not value:
        return ()
    return tuple(part.strip() for part in value.split(",")) if isinstance(value, str) else tuple(map(str, value))


def flag(option: str, value: Any) -> bool:
    """A yes or no."""
    text = str(value).lower()
    if text not in {"true", "1", "yes", "false", "0", "no"}:
        raise UsageError(f"{value!r} is neither true nor false", where=option)
    return text in {"true", "1", "yes"}
