"""What a process held before a comparison is no garbage of ours."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["old_objects_at_rest"]


@contextlib.contextmanager
def old_objects_at_rest() -> Iterator[None]:
    """Keep the garbage collector away from the objects that are there already.

    A framework and a model are a million objects, and a quarter of a second each time that it walks through all of
    them."""
    if gc.get_freeze_count():  # somebody else's
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
