"""Checks what a caller feeds against what a session takes."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from precision_debug.errors import InputError
from precision_debug.protocols import Feeds

__all__ = ["checked_feeds"]


def checked_feeds(feeds: Feeds, known: Collection[str], required: Collection[str]) -> dict[str, Any]:
    """The feeds as numpy arrays; lists, dicts and None (sequences, maps, absent optionals) as they are.

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
