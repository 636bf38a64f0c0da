"""Hold a folder while somebody works in it: one that nobody holds is a dead run's, and can be cleared away."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..errors import OutputError
from ..reasons import say

__all__ = [
    "HELD",
    "JOB",
    "JOURNAL",
    "LOG",
    "PREFIX",
    "SCRATCH",
    "SUFFIX",
    "clear_scratch",
    "clear_scratch_of",
    "lock_of",
    "make_scratch_folder",
    "release",
    "run_folder",
    "take",
]  # fmt: skip


# The private folder that a run works in, beside its report: ``deliver`` makes the report of what lies there.

PREFIX = ".precision_debug-"
"""How the names of runs' folders begin."""

SCRATCH = "precision_debug-"
"""How the names of folders in TMPDIR begin."""

JOB, JOURNAL, LOG = "job.json", "journal.jsonl", "log.txt"

HELD = ".held"
"""In a folder of TMPDIR: the file whose lock says that somebody works there."""


# Locks that say a run is on: held by the supervisor and its worker, and gone when both are, however they ended.

SUFFIX = ".precision_debug-lock"
_NAME_MAX = 255
"""Bytes of a file's name on the usual file systems."""


def lock_of(path: Path) -> Path:
    """Return the lock of a file, beside what the file's name leads to."""
    final = Path(os.path.realpath(path))
    if os.path.lexists(final) and not final.is_file():  # a device or a pipe: nothing is made in its folder
        final = path
    name = f".{final.name}{SUFFIX}"
    if len(os.fsencode(name)) > _NAME_MAX:
        name = f".{hashlib.sha256(os.fsencode(final.name)).hexdigest()[:32]}{SUFFIX}"
    return final.with_name(name)


def take(lock: Path) -> int | None:
    """Return a descriptor that holds the lock as long as any process has it open; None where another run has it.

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


# Folders that are held while somebody works in them: one that nobody holds is a dead run's, and can be cleared away.
#
# What holds one is a lock on a file in it, which every process that works there has open.

_LOOK, _LOOKS, _SURE = 0.2, 50, 10
"""Seconds between two looks whether the processes of a killed run are gone; looks at most; looks in a row that find no
folder of theirs, after which none comes: a cluster's actors end a second or so after who started them."""


def run_folder(home: Path, job: Mapping[str, Any], *, hint: str = "name another --output") -> tuple[Path, int]:
    """Return a run's folder in another one, with its job, and a descriptor that holds it. Raises OutputError."""
    folder = None
    try:
        home.mkdir(parents=True, exist_ok=True)
        folder, held = _make_folder(PREFIX, home, JOB)
        (folder / JOB).write_text(json.dumps(job), encoding="utf-8")
    except OSError as error:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        raise OutputError(say("cannot_write", error=error.strerror or error), where=str(home), hint=hint) from error
    return folder, held


@contextlib.contextmanager
def make_scratch_folder(of: str = "") -> Iterator[tuple[Path, int]]:
    """A folder in TMPDIR and the descriptor that holds it, gone afterwards. What dead ones left there is cleared first.

    of: the name of the run's folder that it is made for by another process, see ``clear_scratch_of``. Raises
    OutputError.
    """
    clear_scratch()
    try:
        folder, held = _make_folder(_folder_prefix(of), None, HELD)
    except OSError as error:
        what = say("cannot_write", error=error.strerror or error)
        raise OutputError(what, where="TMPDIR", hint=say("another_tmpdir")) from error
    try:
        yield folder, held
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(held)


def clear_scratch() -> None:
    """Remove what ``make_scratch_folder`` made of processes that are dead, theirs who run this alone."""
    with contextlib.suppress(OSError):
        home = tempfile.gettempdir()
        for name in os.listdir(home):
            if name.startswith(SCRATCH):
                with contextlib.suppress(OSError):
                    _clear(Path(home, name))


def clear_scratch_of(run: str) -> None:
    """Remove what processes that nobody here started made for a run that was killed, once they have ended too.

    run: the name of the run's folder."""
    sure = 0
    for _ in range(_LOOKS):
        clear_scratch()
        with contextlib.suppress(OSError):
            left = any(name.startswith(_folder_prefix(run)) for name in os.listdir(tempfile.gettempdir()))
            sure = 0 if left else sure + 1
        if sure == _SURE:
            return
        time.sleep(_LOOK)


def _folder_prefix(run: str) -> str:
    """Return how the names of folders in TMPDIR begin that are made for a run."""
    return f"{SCRATCH}{run.removeprefix(PREFIX)}-" if run else SCRATCH


def _clear(folder: Path) -> None:
    lock = folder / HELD
    if folder.is_symlink() or os.stat(folder).st_uid != os.getuid() or not lock.is_file():
        return
    handle = take(lock)
    if handle is not None:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _make_folder(prefix: str, home: Path | None, lock: str) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=home))
        try:
            handle = take(folder / lock)
        except FileNotFoundError:  # it was taken for a dead one's before it was held
            continue
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        if handle is not None:
            return folder, handle
