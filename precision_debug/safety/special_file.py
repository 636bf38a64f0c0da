"""Pipes, devices and sockets: opening one waits for ever, or never ends."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable

__all__ = ["refuse_special"]

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def refuse_special(path: str | os.PathLike[str], error: Callable[..., Exception]) -> None:
    """Raise ``error`` where there is something at a path that is neither a file nor a folder."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return  # what opens it will say so
    for is_kind, name in _KINDS:
        if is_kind(mode):
            raise error(f"is {name}, not a file", where=os.fspath(path), hint="copy what it gives into a file first")
