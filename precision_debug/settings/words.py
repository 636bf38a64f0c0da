"""Shapes, ranges and renames in the words of the command line."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from ..errors import UsageError
from ..reasons import say

__all__ = ["parse_renames", "parse_shapes", "parse_val_range"]

_SHAPE_FORM = say("shape_form")
_RANGE_FORM = say("range_form")


def parse_shapes(texts: Sequence[str], *, option: str = "--input_shapes") -> dict[str, tuple[int, ...]]:
    """["x:[1,3,224,224]", "y:1x3"] to input name and shape.

    The last colon ends the name, so a name may hold colons itself. "x:[]" is a scalar. Raises UsageError.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for text in texts:
        name, colon, dims = text.strip().rpartition(":")
        name = name.strip()
        if not colon or not name:
            raise UsageError(say("no_input_named", value=text), where=option, hint=_SHAPE_FORM)
        shape = _dims(dims.strip())
        if shape is None:
            raise UsageError(say("no_shape", value=text), where=option, hint=_SHAPE_FORM)
        if shapes.setdefault(name, shape) != shape:
            what = f"two shapes for '{name}': {list(shapes[name])} and {list(shape)}"
            raise UsageError(what, where=option, hint="keep one")
    return shapes


def parse_val_range(texts: Sequence[str], *, option: str = "--val_range") -> dict[str, tuple[float, float]]:
    """["0,1", "x:-1,1", "y:[-1,1]"] to input name ("" for all) and (low, high). Raises UsageError."""
    ranges: dict[str, tuple[float, float]] = {}
    for text in texts:
        name, _, numbers = text.strip().rpartition(":")
        name = name.strip()
        bounds = _bounds(numbers.strip())
        if bounds is None:
            raise UsageError(say("no_range", value=text), where=option, hint=_RANGE_FORM)
        low, high = bounds
        if low > high:
            raise UsageError(say("low_above_high", value=text), where=option, hint=_RANGE_FORM)
        if ranges.setdefault(name, bounds) != bounds:
            raise UsageError(f"two ranges for {repr(name) if name else 'all inputs'}", where=option, hint="keep one")
    return ranges


def parse_renames(texts: Sequence[str]) -> dict[str, str]:
    """["new=old"] to {"new": "old"}; the last = ends the target's name. Raises UsageError."""
    renames: dict[str, str] = {}
    for text in texts:
        target, equals, baseline = text.rpartition("=")
        if not equals or not target or not baseline:
            raise UsageError(say("no_rename", value=text), where="--rename", hint=say("rename_form"))
        if renames.setdefault(target, baseline) != baseline:
            raise UsageError(say("renamed_twice", name=target), where="--rename", hint=say("keep_one"))
    return renames


def _dims(text: str) -> tuple[int, ...] | None:
    inner = _unbracket(text)
    if inner == "" and text:
        return ()
    parts = re.split(r"[,x]", inner)
    if not all(re.fullmatch(r"[0-9]{1,18}", part.strip(), re.ASCII) for part in parts):
        return None
    return tuple(int(part) for part in parts)


def _bounds(text: str) -> tuple[float, float] | None:
    parts = _unbracket(text).split(",")
    if len(parts) != 2:
        return None
    try:
        low, high = float(parts[0]), float(parts[1])
    except ValueError:
        return None
    return (low, high) if math.isfinite(low) and math.isfinite(high) else None


def _unbracket(text: str) -> str:
    paired = text[:1] + text[-1:] in ("[]", "()")
    return text[1:-1].strip() if paired else text
