"""Report formats, found by name: a module of this folder is one, and each entry point of ``precision_debug.formats``.

A format is a module with ``write(report, path)``; its name is the ending of its files ("xlsx" writes "*.xlsx"). A wheel
of somebody else's names ``ending = "module"`` under the entry-point group, and nothing of ours changes.
"""

from __future__ import annotations

import functools
import pkgutil
from collections.abc import Mapping
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from ...errors import OutputError
from ..atomic_file import replace_atomically

__all__ = [
    "GROUP",
    "format_of",
    "list_built_in_formats",
    "list_endings",
    "map_format_modules",
    "refuse_unknown",
    "write",
]

GROUP = "precision_debug.formats"


def list_built_in_formats() -> tuple[str, ...]:
    """Return the formats of this folder, by name; nothing is imported for it."""
    return tuple(sorted(found.name for found in pkgutil.iter_modules(__path__)))


@functools.cache
def map_format_modules() -> Mapping[str, str]:
    """Return the name of each format to the module that writes it; a wheel's may take the place of one of ours."""
    ours = {name: f"{__name__}.{name}" for name in list_built_in_formats()}
    return {**ours, **{entry.name: entry.value for entry in metadata.entry_points(group=GROUP)}}


def list_endings() -> tuple[str, ...]:
    """Return the endings of files that can be written, with the dot, lower case."""
    return tuple(f".{name}" for name in map_format_modules())


def format_of(name: str) -> Any:
    """Return the module of a format. Raises OutputError where there is none, or it cannot be imported."""
    found = map_format_modules().get(name.lower())
    if found is None:
        known = " ".join(list_endings())
        what = f"no report format has the ending '.{name}'" if name else "the report's name has no ending"
        raise OutputError(what, hint=f"end it in one of {known}")
    try:
        return import_module(found)
    except ImportError as error:
        raise OutputError(f"the report format {name} cannot be loaded: {error}", hint=f"it is {found}") from error


def refuse_unknown(path: Path) -> None:
    """Raise OutputError where no format has the path's ending."""
    if path.suffix.lower()[1:] not in map_format_modules():
        try:
            format_of(path.suffix.lower()[1:])
        except OutputError as error:
            raise OutputError(error.what, where=str(path), hint=error.hint) from error


def write(report: Any, path: str | Path, *, scratch: Path | None = None, form: str = "", language: str = "") -> Path:
    """Write a report to ``path`` and return it. The file appears whole or not at all; missing folders are made.

    form: the format's name; "": as the path's ending says. scratch: an existing folder for what is not finished, in
    place of the one that the file goes to. language: "en" or "zh", for formats whose module has LANGUAGES; "": what
    the reader prefers. Raises OutputError where the format is unknown or the place cannot be written.
    """
    path = Path(path)
    try:
        module = format_of(form or path.suffix.lower()[1:])
    except OutputError as error:
        raise OutputError(error.what, where=str(path), hint=error.hint) from error
    with replace_atomically(path, scratch=scratch) as temporary:
        spoken = {"language": language} if language and hasattr(module, "LANGUAGES") else {}
        module.write(report, temporary, **spoken)
    return path
