"""Where a tensor's memory lies."""

from __future__ import annotations

from typing import Any

__all__ = ["start_of"]


def start_of(tensor: Any) -> int | None:
    """The address at which a tensor's storage begins; None of one without memory of its own (sparse, a library's own
    kind), which torch refuses with a RuntimeError or its subclass NotImplementedError."""
    try:
        return int(tensor.untyped_storage().data_ptr())
    except RuntimeError:
        return None
