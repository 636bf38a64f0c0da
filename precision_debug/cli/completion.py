"""Completion in a shell, by argcomplete: ``eval "$(register-python-argcomplete precision_debug)"``.

argcomplete runs the command without words of its own and puts the line that is typed into the environment. The verb of
that line decides whose options are completed.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from argparse import ArgumentParser

__all__ = ["begin", "complete", "is_completion_asked"]

_STARTS = "_ARGCOMPLETE"
"""Set by argcomplete's shell function: at which word of the line the program's own words begin, from 1."""


def is_completion_asked() -> bool:
    """Return whether a shell asks what may follow."""
    return _STARTS in os.environ


def begin(verbs: Iterable[str]) -> list[str]:
    """Return the words that lead to the parser of the typed line's verb, and let argcomplete pass over that verb."""
    start = int(os.environ.get(_STARTS, "1"))
    typed = os.environ.get("COMP_LINE", "")[: int(os.environ.get("COMP_POINT", "0") or 0)].split(" ")
    words = [word for word in typed if word]
    if len(words) > start and words[start] in verbs and (len(words) > start + 1 or not typed[-1]):
        os.environ[_STARTS] = str(start + 1)
        return [words[start]]
    return []


def complete(parser: ArgumentParser, *, verbs: Iterable[str] = ()) -> None:
    """Write what may follow for the shell, and end. verbs: those that may stand where the typed word stands."""
    try:
        import argcomplete
    except ImportError:
        raise SystemExit(0) from None
    for action in parser._actions:
        if action.dest in ("run_mode", "baseline", "run_modes"):
            action.completer = _list_modes  # type: ignore[attr-defined]
    if verbs:
        parser.add_argument("verb", nargs="?", choices=tuple(verbs))
    argcomplete.autocomplete(parser, always_complete_options="long")
    raise SystemExit(0)  # argcomplete has not ended: nothing may run in a shell that only asks


def _list_modes(**_: Any) -> list[str]:
    from .. import registry

    return sorted(mode.name for backend in registry.backends() for mode in backend.run_modes)
