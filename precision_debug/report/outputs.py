"""Write what other viewers show of a report, and import what a report needs while the run is on."""

from __future__ import annotations

import contextlib
import importlib
import re
import threading
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .. import registry
from ..errors import OutputError, UsageError
from ..reasons import say
from .atomic_file import replace_atomically
from .formats import format_of

__all__ = ["make_ready", "overlay_names", "split", "write"]


# What a report needs is imported while the run is on, which is waited for anyway.

def make_ready(paths: Iterable[Path], *more: str) -> None:
    """Import in a thread what ``write`` will need for these paths, and further modules.

    What goes wrong shows when it is needed."""

    def load() -> None:
        for name in sorted({path.suffix.lower()[1:] for path in paths}):
            with contextlib.suppress(Exception):
                format_of(name)
        for module in (f"{__package__}.from_journal", *more):
            with contextlib.suppress(Exception):
                importlib.import_module(module)

    threading.Thread(target=load, name="make_ready").start()


# What other viewers show of a report, found by name behind the door "overlays". ``--output NAME:PATH`` writes it.
#
# An overlay is a module with ``write(report, path)`` and ``ENDING``, how its files' names end. Unlike a report format
# it holds only what its viewer can show; nothing reads it back.

def overlay_names() -> tuple[str, ...]:
    """Return the overlays that some product declares."""
    return tuple(sorted(registry.list_behind_door("overlays")))


def split(output: str) -> tuple[str, str]:
    """Return the overlay's name and the path of "NAME:PATH"; ("", output) where it names none.

    Raises UsageError where what stands before the colon looks like the name of an overlay and is none.
    """
    found = re.fullmatch(r"([a-z_]{2,}):(.*)", output, re.DOTALL)
    if found is None:
        return "", output
    name, path = found[1], found[2]
    if name not in overlay_names():
        hint = say("viewers_are", names=" ".join(overlay_names()), path=output)
        raise UsageError(say("no_viewer", name=name), where=output, hint=hint)
    ending = registry.import_from_door("overlays", name).ENDING
    if not path.lower().endswith(ending) or Path(path).name == ending:
        hint = say("such_as", example=f"{name}:output/report{ending}")
        raise UsageError(say("expects_ending", ending=ending), where=output, hint=hint)
    return name, path


def write(report: Any, name: str, path: str | Path) -> Path:
    """Write the overlay ``name`` of a report to ``path`` and return it: whole, or not at all.

    Raises OutputError where the place cannot be written, or the report has nothing that the viewer could show.
    """
    path = Path(path)
    with replace_atomically(path) as temporary:
        try:
            registry.import_from_door("overlays", name).write(report, temporary)
        except OutputError as error:
            raise OutputError(error.what, where=error.where or str(path), hint=error.hint) from error
    return path
