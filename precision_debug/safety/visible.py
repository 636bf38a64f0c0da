"""Text from files as text to look at: what would steer a terminal, a spreadsheet or the reading direction is shown."""

from __future__ import annotations

import re

__all__ = ["visible"]

# C0 and C1 controls (ESC, CSI, NUL, line ends); marks of direction (they let a name read as another one); line and
# paragraph separators; invisible operators and tags; half a surrogate pair; what is not a character
_HIDDEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff"
    "\U000e0000-\U000e007f]"
)


def visible(text: str, keep: str = "") -> str:
    r"""Return the text with each hidden character as Python writes it: ``\x1b``, ``\u202e``, ``\ud800``.

    keep: characters that may stand where the text goes, such as line ends in a cell.
    """
    if text.isprintable():  # no character of the kind
        return text
    return _HIDDEN.sub(lambda found: found[0] if found[0] in keep else _written(found[0]), text)


def _written(character: str) -> str:
    return {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character) or character.encode(
        "unicode_escape", "surrogatepass"
    ).decode("ascii")
