"""Take text and paths from files as data: they steer no terminal, hang no read and lead nowhere."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable
from pathlib import Path

__all__ = ["find_linked_file", "is_utf8", "make_visible", "refuse_special"]


# Text from files as text to look at: what would steer a terminal, a spreadsheet or the reading direction is shown.

# C0 and C1 controls (ESC, CSI, NUL, line ends); marks of direction (they let a name read as another one); line and
# paragraph separators; invisible operators and tags; half a surrogate pair; what is not a character
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def make_visible(text: str, keep: str = "") -> str:
    r"""Return the text with each hidden character as Python writes it: ``\x1b``, ``\u202e``, ``\ud800``.

    keep: characters that may stand where the text goes, such as line ends in a cell.
    """
    if text.isprintable():  # no character of the kind
        return text
    return _HIDDEN.sub(lambda found: found[0] if found[0] in keep else _escape_character(found[0]), text)


def _escape_character(character: str) -> str:
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character) or character.encode(
        "unicode_escape", "surrogatepass"
    ).decode("ascii")


# Whether a report may lead its reader to a file: reports come from elsewhere too, and a link is followed unread.

_ELSEWHERE = re.compile(r"[/\\]|[A-Za-z][A-Za-z0-9+.-]*:")
"""How an address, a path from the root, or a share of another machine begins."""


def find_linked_file(name: str) -> str:
    """Return a path relative to the report as it is; "" of anything else, which is then shown as text alone."""
    return "" if _ELSEWHERE.match(name) or make_visible(name) != name or "#" in name else name


# Pipes, devices and sockets: opening one waits for ever, or never ends.

_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def refuse_special(path: str | os.PathLike[str], error: Callable[..., Exception]) -> None:
    """Raise ``error`` where there is something at a path that is neither a file nor a folder."""
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return  # what opens it will say so
    for is_kind, name in _KINDS:
        if is_kind(mode):
            raise error(f"is {name}, not a file", where=os.fspath(path), hint="copy what it gives into a file first")


# Paths that no framework can be told of: their names are in another encoding than UTF-8 (GBK, Latin-1).

def is_utf8(path: str | Path) -> bool:
    """Return whether a path, with the folders above it, is UTF-8, as C++ libraries are given it."""
    try:
        os.path.abspath(path).encode("utf-8")
    except UnicodeEncodeError:
        return False
    except OSError:
        return True  # the current folder is gone, which others say
    return True
