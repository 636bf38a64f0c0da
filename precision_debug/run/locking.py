"""Locks that say a run is on: held by the supervisor and its worker, and gone when both are, however they ended."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
from pathlib import Path

__all__ = ["SUFFIX", "lock_of", "release", "take"]

SUFFIX = ".precision_debug-lock"
_NAME_MAX = 255
"""Bytes of a file's name on the usual file systems."""


def lock_of(path: Path) -> Path:
    """The lock of a file, beside what the file's name leads to."""
    final = Path(os.path.realpath(path))
    if os.path.lexists(final) and not final.is_file():  # a device or a pipe: nothing is made in its folder
        final = path
    name = f".{final.name}{SUFFIX}"
    if len(os.fsencode(name)) > _NAME_MAX:
        name = f".{hashlib.sha256(os.fsencode(final.name)).hexdigest()[:32]}{SUFFIX}"
    return final.with_name(name)


def take(lock: Path) -> int | None:
    """A descriptor that holds the lock as long as any process has it open; None where another run has it.

    The lock is an empty file, which is never written. Raises OSError.
    """
    while True:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(handle), os.lstat(lock)):
                return handle
        except FileNotFoundError:  # its last owner removed it just now
            pass
        except OSError as error:
            os.close(handle)
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return None
            raise
        os.close(handle)


def release(lock: Path, handle: int) -> None:
    """Remove the lock, where it is the empty file that it should be, and let go of it."""
    with contextlib.suppress(OSError):
        if os.fstat(handle).st_size == 0:
            lock.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        os.close(handle)
