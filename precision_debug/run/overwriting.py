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
from ..ownership import refuse_foreign
from ..reasons import NOTHING, Reason, say
from ..records import RunSpec
from ..settings.options import differing

__all__ = ["files_named", "refuse_overwriting"]

_WRITTEN = "save_"
"""Settings of a backend whose names begin so name files that it writes."""

_REPORTS = (".xlsx", ".html", ".md", ".csv")
"""Endings that no reader of a folder takes for its own; .json is one of Paddle's models too."""

_OURS = b'"precision_debug report"'


def refuse_overwriting(outputs: Iterable[str | Path], *read: Any, added: Iterable[str | Path] = ()) -> None:
    """Raise UsageError where an output would overwrite a file that the command reads or writes something else into.

    By whatever name or link; and where it is a file that is somebody else's.

    read: strings, and records, mappings and sequences of them. A string counts where it names a file, a folder,
    SCRIPT.py:function or a pattern of files; what a record's settings save is an output too. added: outputs that are
    added to what is there."""
    named = list(files_named(*read))
    saved = {option: path for thing in read if isinstance(thing, RunSpec) for option, path in _saved(thing)}
    outputs, appended = list(outputs), list(added)
    _refuse_written_twice([*outputs, *appended], saved)
    for output in (*outputs, *appended, *saved.values()):
        for path in named:
            why = _overwritten(str(output), path)
            if why:
                raise UsageError(why, where=str(output), hint=say("another_file"))
        if output not in appended:
            refuse_foreign(output, error=UsageError)
    for path in saved.values():
        for beside in (f"{path}.data", *([f"{path[:-4]}.bin"] if path.endswith(".xml") else ())):
            refuse_foreign(beside, error=UsageError)


def _refuse_written_twice(outputs: Iterable[str | Path], saved: Mapping[str, str]) -> None:
    """The last one would be all that is left; a device takes them all."""
    written: dict[str, str] = {}
    for output in outputs:
        place = _place(output)
        if place in written:
            raise UsageError(say("output_twice"), where=str(output), hint=say("keep_one"))
        written[place] = "--output"
    for option, path in saved.items():
        place = _place(path)
        if place in written and (os.path.isfile(place) or not os.path.exists(place)):
            said = say("written_twice", other=written[place])
            raise UsageError(said, where=f"{option} {path}", hint=say("another_file"))
        written[place] = option


def _place(path: str | Path) -> str:
    """What a path names, by whatever link; as it is typed where the current folder is gone."""
    try:
        return os.path.realpath(path)
    except FileNotFoundError:
        return str(path)


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
        kept = {key: value for key, value in thing.options.items() if not _is_written(key)}
        named = [value for one, value in differing(thing) if one.file == "read"]
        yield from _texts((*named, thing.baseline_model, kept))
    elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        yield from _texts([getattr(thing, field.name) for field in dataclasses.fields(thing)])
    elif isinstance(thing, Mapping):
        yield from _texts(list(thing.values()))
    elif isinstance(thing, Sequence) and not isinstance(thing, (bytes, bytearray)):
        for item in thing:
            yield from _texts(item)


def _saved(spec: RunSpec) -> list[tuple[str, str]]:
    """What saves something, as it is typed, and where."""
    kept = [(key, one) for key, one in spec.options.items() if _is_written(key) and isinstance(one, str) and one]
    of_backends = [(f"--option {key}", one) for key, one in kept]
    return of_backends + [(one.option, value) for one, value in differing(spec) if one.file == "written"]


def _is_written(key: str) -> bool:
    """Whether a backend's setting, maybe of one side, names a file that is written."""
    return key.rpartition(".")[2].startswith(_WRITTEN)


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
