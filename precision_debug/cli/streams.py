"""Standard output and standard error, in whatever state the caller left them."""

from __future__ import annotations

import contextlib
import io
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["is_lost", "make_ready", "settle", "without_chatter"]


def make_ready() -> None:
    """Make the standard streams safe to read and write.

    Opens what is closed onto nothing, and writes what an encoding lacks as an escape in place of failing. A terminal
    that says it is 0 wide, as one does that was not asked yet, does not say: nothing at all would be printed in it."""
    for size in ("COLUMNS", "LINES"):
        if re.fullmatch("0+", os.environ.get(size, "")):
            del os.environ[size]
    for number, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        with contextlib.suppress(OSError):
            if _is_closed(number):  # else the next file that is opened would get what the frameworks print
                nothing = os.open(os.devnull, os.O_RDWR)
                if nothing != number:
                    os.dup2(nothing, number)
                    os.close(nothing)
                if getattr(sys, name) is None:
                    setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))
        stream = getattr(sys, name)
        if number and isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def settle() -> None:
    """Write what waits; where that fails, let it go, so that Python's own end neither speaks nor changes the status."""
    for stream in (sys.stdout, sys.stderr):
        if is_lost(stream):
            with contextlib.suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


@contextlib.contextmanager
def without_chatter(verbose: bool = False) -> Iterator[None]:
    """Discard what frameworks print on standard error while they read a file.

    One that reads many formats tries them all, and complains of each. verbose: it is shown."""
    if verbose:
        yield
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.flush()
    kept = os.dup(2)
    nothing = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nothing, 2)
        yield
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nothing)


def is_lost(stream: Any, text: str = "") -> bool:
    """Return whether what was printed cannot be written; text: is written too, where what failed may be forgotten."""
    try:
        stream.write(text)
        stream.flush()
    except (OSError, ValueError):
        return True
    return False


def _is_closed(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return True
    return False
