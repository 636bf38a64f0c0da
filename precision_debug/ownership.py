"""Say which files are ours, so that nothing of somebody else's is replaced or removed.

Every writer asks here before it takes a name. A file is ours where it bears a mark: reports, pages and scripts have one
in themselves, archives in their comment, and what has no room for one stands with its size and CRC-32 in a list
(``.precision_debug.jsonl``) of its folder. A file that somebody changed since is not ours any more. An empty file holds
nothing that could be lost, and anybody's name may be taken that names no plain file (a device, a pipe).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .errors import OutputError, PrecisionDebugError
from .reasons import say

__all__ = [
    "LIST",
    "MARK",
    "choose_free_folder",
    "compute_crc",
    "guard_output",
    "is_ours",
    "list_foreign_files",
    "list_foreign_names",
    "list_in",
    "refuse_foreign",
    "remember",
]  # fmt: skip

LIST = ".precision_debug.jsonl"
"""In a folder: a line a file of what we wrote there, {"name": …, "bytes": …, "crc32": …}."""

MARK = "written by precision_debug"
"""In the first kilobyte of a text, or the comment of an archive."""

_HEADS = (
    MARK.encode(), MARK.capitalize().encode(), b"written by `python -m precision_debug doctor",
    b'{\n "format": "precision_debug report"', b'<meta name="generator" content="precision_debug">',
)  # fmt: skip
"""How texts of ours begin."""

_COMMENTS = (MARK, "precision_debug")
_BLOCK = 1 << 20


def refuse_foreign(
    path: str | Path, *, hint: Any = None, error: type[PrecisionDebugError] = OutputError
) -> None:
    """Raise ``error`` where there is a file of this name that we did not write. hint: what to do, a Reason."""
    if not is_ours(Path(path)):
        raise error(say("not_ours"), where=str(path), hint=hint or say("move_or_name"))


def is_ours(path: Path) -> bool:
    """Return whether a name may be taken: it is free, empty, no plain file, or a file of ours as we left it."""
    try:
        state = os.stat(path)
    except (OSError, ValueError):
        return True  # whoever writes there finds out why it cannot be read
    if not stat.S_ISREG(state.st_mode) or not state.st_size:
        return True
    place = Path(os.path.realpath(path))
    try:
        return _is_marked_file(place) or _is_listed(place, state.st_size)
    except OSError:
        return False


def _is_marked_file(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(1 << 10)
    if any(mark in head for mark in _HEADS):
        return True
    if head.startswith(b"precision_debug: belongs to "):  # a run's log
        return True
    return head.startswith(b"PK") and _is_marked_archive(path)


def _is_marked_archive(path: Path) -> bool:
    """Return a workbook of ours says so in its properties, any other archive in its comment."""
    strange = (zipfile.BadZipFile, KeyError, ValueError, NotImplementedError, RuntimeError)
    with contextlib.suppress(*strange), zipfile.ZipFile(path) as archive:
        marked = archive.comment.decode("utf-8", "replace").startswith(_COMMENTS)
        return marked or b"<dc:title>precision_debug" in archive.read("docProps/core.xml")
    return False


def _is_listed(path: Path, size: int) -> bool:
    lines = [one for one in list_in(path.parent) if one["name"] == path.name and one["bytes"] == size]
    return bool(lines) and compute_crc(path) in {one["crc32"] for one in lines}


def list_in(folder: Path) -> Sequence[Mapping[str, Any]]:
    """Return the lines of a folder's list; none where it has none. A line that is no such line is left out."""
    found = []
    with contextlib.suppress(OSError):
        for line in (folder / LIST).read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                one = json.loads(line)
                if isinstance(one, dict) and {"name", "bytes", "crc32"} <= one.keys():
                    found.append(one)
    return found


def remember(path: Path) -> None:
    """Write a file's line into the list of its folder, unless it bears a mark itself."""
    place = Path(os.path.realpath(path))
    with contextlib.suppress(OSError):  # it is then refused the next time, and nothing is lost
        if not stat.S_ISREG(os.stat(place).st_mode) or not os.path.getsize(place) or _is_marked_file(place):
            return
        line = {"name": place.name, "bytes": place.stat().st_size, "crc32": compute_crc(place)}
        if line not in list_in(place.parent):
            with (place.parent / LIST).open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")


@contextlib.contextmanager
def guard_output(path: str | Path, *beside: str | Path, hint: Any = None) -> Iterator[Path]:
    """Guard what writes ``path``, and maybe files beside it: refuse what is somebody else's, and remember the rest.

    Folders that are missing are made. Raises OutputError.
    """
    for one in (path, *beside):
        refuse_foreign(one, hint=hint)
    place = Path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    yield place
    for one in (path, *beside):
        if os.path.isfile(one):
            remember(Path(one))


def list_foreign_files(folder: Path, *, only: Iterable[str] = ("*",)) -> list[Path]:
    """Return what in a folder, and in the folders in it, is not ours. only: patterns of names that count."""
    patterns = tuple(only)
    return sorted(
        path for path in folder.rglob("*")
        if not path.is_dir() and path.name != LIST and any(path.match(one) for one in patterns) and not is_ours(path)
    )  # fmt: skip


def list_foreign_names(folder: Path) -> set[str]:
    """Return the names in a folder that are not ours, those of folders in it where they hold anything that is not."""
    there = folder.iterdir() if folder.is_dir() else ()
    return {
        one.name for one in there if one.name != LIST
        and (list_foreign_files(one) if one.is_dir() else not is_ours(one))
    }  # fmt: skip


def choose_free_folder(folder: Path, names: Iterable[str]) -> Path:
    """Return the folder, or the first of its name with a number in which no file of these names is somebody else's."""
    wanted = set(names)
    for number in itertools.count(1):
        place = folder if number == 1 else folder.with_name(f"{folder.name}.{number}")
        if not wanted & list_foreign_names(place):
            return place
    raise AssertionError("there are endless numbers")


def compute_crc(path: Path) -> int:
    """Return the CRC-32 of a file's bytes, read in blocks."""
    crc = 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            crc = zlib.crc32(block, crc)
    return crc
