"""A file that appears whole or not at all.

A run may be killed while it writes, and half a report reads like a finished one with few rows; a report that was there
before stays until the new one is complete.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from ..errors import OutputError
from ..ownership import refuse_foreign, remember
from ..reasons import Reason, say

__all__ = ["replace_atomically"]

_PATIENCE = 5.0
"""Seconds that a pipe's reader has to open it."""


@contextlib.contextmanager
def replace_atomically(path: Path, *, scratch: Path | None = None) -> Iterator[Path]:
    """An empty file that takes the name ``path`` when the block ends well, and vanishes when it does not.

    It lies in ``scratch``, where that is on the same disk, else beside ``path``. Missing folders are made. A symbolic
    link keeps pointing where it did, a file keeps its mode and owner; into a device or a pipe the content is copied.
    A file that we did not write is refused. Every OSError becomes an OutputError.
    """
    temporary, blamed = None, str(path)
    try:
        state = _state_of(path)
        if state is not None and stat.S_ISDIR(state.st_mode):
            raise OutputError(say("is_a_folder"), where=blamed, hint=say("name_a_report"))
        refuse_foreign(path)
        copied = state is not None and not stat.S_ISREG(state.st_mode)
        final = path if copied else Path(os.path.realpath(path))
        if not copied:
            final.parent.mkdir(parents=True, exist_ok=True)
            if state is not None and not os.access(final, os.W_OK):
                raise PermissionError(errno.EACCES, "it is read-only")
        folder = _choose_folder(final, scratch, copied)
        temporary = folder / f".precision_debug-{secrets.token_hex(6)}.part"
        blamed = str(folder) if copied else blamed
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if state is None else 0o600))
        yield temporary
        blamed = str(path)
        if copied:
            _copy_into(temporary, final)
        else:
            _copy_owner_and_mode(temporary, state)
            _move(temporary, final, state)
            remember(final)
    except OSError as error:
        raise OutputError(_describe_error(error), where=blamed, hint=_hint_for_error(error)) from error
    finally:
        if temporary is not None:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)


def _state_of(path: Path) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _choose_folder(final: Path, scratch: Path | None, copied: bool) -> Path:
    if copied:
        return scratch or Path(tempfile.gettempdir())
    if scratch is not None and os.stat(scratch).st_dev == os.stat(final.parent).st_dev:
        return scratch
    return final.parent


def _copy_owner_and_mode(file: Path, state: os.stat_result | None) -> None:
    """Give a new file the owner and the mode of the one that it replaces."""
    if state is None:
        return
    with contextlib.suppress(OSError):
        os.chown(file, state.st_uid, state.st_gid)
    os.chmod(file, stat.S_IMODE(state.st_mode))


def _move(file: Path, final: Path, state: os.stat_result | None) -> None:
    try:
        os.replace(file, final)
    except OSError as error:
        if error.errno != errno.EXDEV:  # one disk that is mounted in two places
            raise
        beside = final.with_name(file.name)
        try:
            shutil.copyfile(file, beside)
            shutil.copymode(file, beside)
            _copy_owner_and_mode(beside, state)
            os.replace(beside, final)
        finally:
            beside.unlink(missing_ok=True)


def _copy_into(file: Path, device: Path) -> None:
    with file.open("rb") as source, open(_open_without_waiting(device), "wb", buffering=0) as sink:
        while block := source.read(1 << 20):
            view = memoryview(block)
            while view:
                view = view[sink.write(view) or 0 :]


def _open_without_waiting(device: Path) -> int:
    """Return a descriptor for writing, without waiting for ever for somebody to read a pipe."""
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            handle = os.open(device, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
        else:
            os.set_blocking(handle, True)
            return handle


def _describe_error(error: OSError) -> Reason:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return say("full_disk")
    if error.errno == errno.ENXIO:
        return say("unread_pipe")
    return say("cannot_write", error=str(error.strerror or error))


def _hint_for_error(error: OSError) -> Reason:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return say("free_or_choose")
    if error.errno in (errno.EACCES, errno.EPERM):
        return say("close_or_choose")
    return say("choose_place")
