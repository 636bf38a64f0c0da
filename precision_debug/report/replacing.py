"""A file that appears whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from ..errors import OutputError

__all__ = ["replacing"]


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """An empty file beside ``path`` that takes its name when the block ends well, and vanishes when it does not.

    Missing folders are made; a symbolic link keeps pointing where it did. Every OSError becomes an OutputError.
    """
    final = Path(os.path.realpath(path))
    if final.is_dir():
        raise OutputError("is a folder", where=str(path), hint="name a file in it")
    temporary = final.with_name(f".{secrets.token_hex(6)}.part")
    try:
        final.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        yield temporary
        os.replace(temporary, final)
    except OSError as error:
        raise OutputError(_what(error), where=str(path), hint=_hint(error)) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _what(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "the disk is full"
    return f"the report cannot be written there ({error.strerror or error})"


def _hint(error: OSError) -> str:
    if error.errno == errno.ENOSPC:
        return "free some space, or choose another place with --output"
    if error.errno in (errno.EACCES, errno.EPERM):
        return "close it in other programs, or choose another place with --output"
    return "choose another place with --output"
