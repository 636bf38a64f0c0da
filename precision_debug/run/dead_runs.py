"""What runs left behind that were killed together with their workers."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..errors import PrecisionDebugError
from .folder import JOB, PREFIX
from .locking import SUFFIX, release, take

__all__ = ["clear_leftovers", "is_being_rescued"]


def clear_leftovers(home: Path, outputs: Sequence[Path]) -> Iterator[str]:
    """Clear a folder of what dead runs left in it; yields a line for each whose finished rows stay there.

    A dead run into the same outputs gives its partial report; one that had come to no row is removed. Locks that
    nobody holds go too. outputs: those of the run that is about to begin, which holds their locks.
    """
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(home)):
            path = home / name
            if name.startswith(PREFIX) and path.is_dir() and not path.is_symlink():
                yield from _clear_run(path, outputs)
            elif name.startswith(".") and name.endswith(SUFFIX) and path.is_file() and not path.is_symlink():
                handle = _take(path)
                if handle is not None:
                    release(path, handle)


def is_being_rescued(home: Path, lock: Path) -> bool:
    """Whether the run that holds a lock was killed, and its worker is about to deliver what there is and let go."""
    with contextlib.suppress(OSError):
        for folder in home.glob(f"{PREFIX}*"):
            job = _read(folder)
            pid = job.get("supervisor")
            if str(lock) in (job.get("locks") or ()) and isinstance(pid, int) and not _lives(pid):
                return True
    return False


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _clear_run(folder: Path, outputs: Sequence[Path]) -> Iterator[str]:
    job = _job(folder)
    handle = _take(folder / JOB) if job is not None else None
    if job is None or handle is None:
        return
    from .deliver import deliver, has_rows, rescue

    try:
        if not has_rows(folder):
            shutil.rmtree(folder, ignore_errors=True)
        elif job == [str(output) for output in outputs]:
            deliver(folder, outputs, failure="the run and its supervising process were killed")
        else:
            yield f"an earlier run was killed; {rescue(folder)}"
    except (PrecisionDebugError, OSError):
        yield f"an earlier run was killed; {rescue(folder)}"
    finally:
        os.close(handle)


def _job(folder: Path) -> list[str] | None:
    """The outputs of a run's folder; None where the folder is none of ours."""
    outputs = _read(folder).get("outputs")
    return [str(output) for output in outputs] if isinstance(outputs, list) else None


def _read(folder: Path) -> dict[str, Any]:
    """The job of a folder of ours; nothing of another one."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        job = json.loads((folder / JOB).read_text(encoding="utf-8"))
        if isinstance(job, dict) and os.stat(folder).st_uid == os.getuid():
            return job
    return {}


def _take(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        return take(path)
    return None
