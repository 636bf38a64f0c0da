"""Outputs that would overwrite what the same command reads."""

from __future__ import annotations

import contextlib
import dataclasses
import glob
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..reasons import NOTHING, Reason, say
from ..records import RunSpec
from ..settings.options import differing

__all__ = ["files_named", "refuse_overwriting"]

_WRITTEN = "save_"
"""Settings of a backend whose names begin so name files that it writes."""

_REPORTS = (".xlsx", ".html", ".md", ".csv")
"""Endings that no reader of a folder takes for its own; .json is one of Paddle's models too."""

_OURS = b'"precision_debug report"'


def refuse_overwriting(outputs: Iterable[str | Path], *read: Any) -> None:
    """Raises UsageError where an output is a file that the command reads, by whatever name or link.

    read: strings, and records, mappings and sequences of them. A string counts where it names a file, a folder,
    SCRIPT.py:function or a pattern of files; what a record's settings save is an output too.
    """
    named = list(files_named(*read))
    saved = [item for thing in read if isinstance(thing, RunSpec) for item in _saved(thing)]
    for output in (*outputs, *saved):
        for path in named:
            why = _overwritten(str(output), path)
            if why:
                raise UsageError(why, where=str(output), hint=say("another_file"))


def files_named(*things: Any) -> Iterator[str]:
    """Existing files and folders that strings name, also inside records, mappings and sequences."""
    for text in _texts(things):
        script = text.partition(".py:")[0] + ".py" if ".py:" in text else text
        for path in (text, script, *(glob.iglob(text, recursive=True) if glob.has_magic(text) else ())):
            if _state(path) is not None:
                yield path


def _texts(thing: Any) -> Iterator[str]:
    if isinstance(thing, str):
        if thing:
            yield thing
    elif isinstance(thing, Path):
        yield str(thing)
    elif isinstance(thing, RunSpec):
        kept = {key: value for key, value in thing.options.items() if not key.startswith(_WRITTEN)}
        named = [value for one, value in differing(thing) if one.file == "read"]
        yield from _texts((*named, thing.baseline_model, kept))
    elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        yield from _texts([getattr(thing, field.name) for field in dataclasses.fields(thing)])
    elif isinstance(thing, Mapping):
        yield from _texts(list(thing.values()))
    elif isinstance(thing, Sequence) and not isinstance(thing, (bytes, bytearray)):
        for item in thing:
            yield from _texts(item)


def _saved(spec: RunSpec) -> list[str]:
    of_backends = [value for key, value in spec.options.items() if key.startswith(_WRITTEN) and isinstance(value, str)]
    return of_backends + [value for one, value in differing(spec) if one.file == "written"]


def _overwritten(output: str, read: str) -> Reason:
    """What an output would destroy of something that is read; NOTHING where it is nothing."""
    ours, theirs = _state(output), _state(read)
    if theirs is None:
        return NOTHING
    if stat.S_ISDIR(theirs.st_mode):
        return _inside(output, ours, read)
    same = ours is not None and stat.S_ISREG(ours.st_mode) and os.path.samestat(ours, theirs)
    return say("read_too", path=read) if same else NOTHING


def _inside(output: str, state: os.stat_result | None, folder: str) -> Reason:
    place, root = os.path.realpath(output), os.path.realpath(folder)
    if not place.startswith(os.path.join(root, "")):
        return NOTHING
    if os.path.isfile(os.path.join(root, "manifest.json")):
        return say("read_recording", path=folder)
    if state is None or not stat.S_ISREG(state.st_mode) or place.lower().endswith(_REPORTS) or _is_report(place):
        return NOTHING
    return say("read_folder", path=folder)


def _is_report(path: str) -> bool:
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return _OURS in file.read(200)
    return False


def _state(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)
    except (OSError, ValueError):
        return None
