"""What a process held before a comparison is no garbage of ours."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

__all__ = ["old_objects_at_rest"]

_at_rest = False
"""Whether they are: while something is compared, or for good where somebody else has seen to it. The collector is asked
until it says so, and not again: it counts them one by one, 50 ms with PyTorch and Paddle imported."""


@contextlib.contextmanager
def old_objects_at_rest() -> Iterator[None]:
    """Keep the garbage collector away from the objects that are there already.

    A framework and a model are a million objects, and a quarter of a second each time that it walks through all of
    them."""
    global _at_rest  # noqa: PLW0603
    if not _at_rest and gc.get_freeze_count():
        _at_rest = True  # somebody else's, and never ended here
    if _at_rest:
        yield
        return
    _at_rest = True
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        _at_rest = False
