"""Files whose names nobody chose: one of such a name that we did not write is left alone.

A folder of ours has a list of what we wrote into it; a file that lies alone bears a mark.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import zipfile
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..reasons import say

__all__ = ["LIST", "MARK", "foreign", "free_folder", "mark_archive", "refuse_foreign", "remember"]

LIST = ".precision_debug.json"
"""In a folder: the names of what we wrote there."""

MARK = "precision_debug reduce"
"""In a file: the comment of an .npz, the key of an .onnx file's metadata, the docstring of a script."""


def free_folder(folder: Path, names: Iterable[str]) -> Path:
    """The folder, or the first of its name with a number in which no file of these names is somebody else's."""
    wanted = set(names)
    for number in itertools.count(1):
        place = folder if number == 1 else folder.with_name(f"{folder.name}.{number}")
        if not wanted & foreign(place):
            return place
    raise AssertionError("there are endless numbers")


def remember(folder: Path, before: Collection[str]) -> None:
    """What is in the folder now and was not before is ours. before: names, without what was ours already."""
    own = sorted({entry.name for entry in folder.iterdir()} - set(before) - {LIST})
    (folder / LIST).write_text(json.dumps({"written": own}), encoding="utf-8")


def foreign(folder: Path) -> set[str]:
    """Names in a folder that are not ours; none where there is no such folder."""
    there = {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()
    own: Any = None
    with contextlib.suppress(OSError, ValueError):
        own = json.loads((folder / LIST).read_text(encoding="utf-8"))
    listed = own.get("written") if isinstance(own, dict) else None
    return there - {LIST} - {name for name in (listed if isinstance(listed, list) else ()) if isinstance(name, str)}


def mark_archive(path: Path) -> None:
    """Let an .npz bear our mark."""
    with zipfile.ZipFile(path, "a") as archive:
        archive.comment = MARK.encode()


def refuse_foreign(path: Path, option: str) -> None:
    """Raises UsageError where a file that nobody named would be replaced and bears no mark of ours."""
    marked = {".npz": _marked_archive, ".py": _marked_script}.get(path.suffix, _marked_model)
    if path.exists() and not marked(path):
        raise UsageError(say("not_ours"), where=str(path), hint=say("name_another", option=option))


def _marked_archive(path: Path) -> bool:
    with contextlib.suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        return archive.comment == MARK.encode()
    return False


def _marked_script(path: Path) -> bool:
    with contextlib.suppress(OSError), path.open("rb") as file:
        return MARK.encode() in file.read(1 << 10)
    return False


def _marked_model(path: Path) -> bool:
    import onnx

    with contextlib.suppress(Exception):  # whatever it is, it is not ours
        return any(entry.key == MARK for entry in onnx.load(str(path), load_external_data=False).metadata_props)
    return False
