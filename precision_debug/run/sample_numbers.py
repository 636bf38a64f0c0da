"""--sample: which of the samples are compared."""

from __future__ import annotations

from ..errors import InputError
from ..reasons import say

__all__ = ["chosen_samples"]


def chosen_samples(text: str | None, count: int) -> tuple[int, range | None]:
    """(the one to compare, or the first, and the range of many or None) of ``--sample``. Raises InputError."""
    if not text:
        return 0, range(count) if count > 1 else None
    low, colon, high = text.partition(":")
    try:
        first = int(low or 0)
        last = (int(high) if high else count) if colon else first + 1
    except ValueError:
        first, last = -1, -1
    if not 0 <= first < last <= count:
        raise InputError(
            say("no_sample", value=text), where="--sample", hint=say("samples_are", last=count - 1, count=count)
        )
    return first, range(first, last) if colon else None
