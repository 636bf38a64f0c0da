"""What is said of a tensor, a side or a run: a code with arguments, whose sentences stand in a catalogue.

A sentence is made once, where something is found out, and is never read back: whoever shows it in another language, or
decides by it, goes by its code.
"""

from __future__ import annotations

import functools
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Union

__all__ = [
    "NOTHING", "Catalogue", "Plain", "Reason", "ReasonOrText", "Text", "Wording", "arguments_of", "as_reason",
    "fill_template",
    "same", "split",
]  # fmt: skip


# The same thing in English and Chinese: what every sentence, title and help text of this project is.
#
# Where a sentence has a code, its two templates stand in a catalogue (``Wording``) and become a ``Text`` where they are
# shown. Both languages travel together because both are shown together: workbooks and pages hold them side by side.

class Text(NamedTuple):
    """English and Chinese of the same thing; names, numbers and paths are the same in both."""

    en: str
    zh: str

    def __str__(self) -> str:
        return self.en if self.en == self.zh else f"{self.en} / {self.zh}"

    def of(self, language: str) -> str:
        """In "en" or "zh"."""
        return self.zh if language == "zh" else self.en


def same(text: str) -> Text:
    """Something that needs no translation."""
    return Text(text, text)


Plain = Union[str, int, float, bool, None, "Reason", tuple["Plain", ...]]
"""What an argument may be: it travels in JSON."""

_PLAIN = (str, int, float, bool, type(None))


class Reason(str):
    """An English sentence that knows what it says.

    A str, so that programs read what they always read, and so that a backend's bare text is shown as it is. code: of
    the catalogue, with "<backend>." before a backend's own; "" where nobody knows one. args: its arguments by name.
    """

    __slots__ = ("args", "code")

    code: str
    args: Mapping[str, Plain]

    def __new__(cls, text: str = "", code: str = "", args: Mapping[str, Plain] | None = None) -> Reason:
        self = super().__new__(cls, text)
        object.__setattr__(self, "code", code)
        object.__setattr__(self, "args", dict(args or {}))
        return self

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Reason is frozen: {name}")

    def __getnewargs__(self) -> tuple[str, str, Mapping[str, Plain]]:  # type: ignore[override]
        return str(self), self.code, self.args

    def __getstate__(self) -> None:
        return None


ReasonOrText = str
"""A Reason, or a name or number as text."""

NOTHING = Reason()
"""There is none."""


def as_reason(text: str) -> Reason:
    """Return what a backend said, which may be a bare text: that has no code, and stays as it is in every language."""
    return text if isinstance(text, Reason) else Reason(text)


@dataclass(frozen=True)
class Wording:
    """The sentences of one code, with arguments in braces as ``str.format`` has them.

    ``{count:tensor|tensors}`` is the first word where the number is 1, else the second; an argument of several values
    is joined by commas, ``{parts:;}`` by semicolons, ``{names:or}`` by "or".
    do: what a reader can do about it, for the page of all reasons; "" where it only informs.
    whole: nothing is missing from a comparison because of it: the tensor's numbers are elsewhere, or it has none.
    decides: of a doubt, whether it leaves the verdict open.
    departs: of a note, whether what ran is not what the tool that it names makes by itself: who deploys that tool's own
    file must read it first, since none of the report's numbers is about that file.
    wider: of a note, whether less was rounded than was asked for, or compared: a pass says it on its first screen.
    """

    en: str
    zh: str
    do: str = ""
    whole: bool = False
    decides: bool = True
    departs: bool = False
    wider: bool = False


class Catalogue(Mapping[str, Wording]):
    """The reasons of the core ("") or of one backend (by its name): code to wording, and what makes them.

    Called with a code, without the backend's name, and its arguments, it gives the Reason. Raises KeyError for what
    it does not have: a mistake in our own source, which the tests find.
    """

    def __init__(self, owner: str, wordings: Mapping[str, Wording]) -> None:
        self.owner = owner
        self._before = f"{owner}." if owner else ""
        self._wordings = {self._before + code: wording for code, wording in wordings.items()}

    def __call__(self, code: str, /, **args: Any) -> Reason:
        code = self._before + code
        plain = {name: _to_plain_value(value) for name, value in args.items()}
        return Reason(fill_template(self._wordings[code].en, plain, ", ", str), code, plain)

    def __getitem__(self, code: str) -> Wording:
        return self._wordings[code]

    def __iter__(self) -> Any:
        return iter(self._wordings)

    def __len__(self) -> int:
        return len(self._wordings)


def _to_plain_value(value: Any) -> Plain:
    if type(value) in _PLAIN or isinstance(value, Reason):
        return value  # type: ignore[no-any-return]
    if isinstance(value, (list, tuple)):
        return tuple(_to_plain_value(item) for item in value)
    if isinstance(value, (bool, int, float)):  # an enumeration, a numpy float
        return value
    return _to_plain_value(value.item()) if hasattr(value, "item") else str(value)


@functools.lru_cache(maxsize=1024)
def _split_template(template: str) -> tuple[tuple[str, str | None, str], ...]:
    """Text, the argument after it (None: none), and how it is shown."""
    return tuple((text, name, spec or "") for text, name, spec, _ in string.Formatter().parse(template))


def arguments_of(template: str) -> frozenset[str]:
    """Return names of the arguments that a template shows."""
    return frozenset(name for _, name, _ in _split_template(template) if name is not None)


def split(template: str) -> tuple[str, str | None, str] | None:
    """Return the text before a template's only argument, its name (None: it has none), and text after it; None of any
    other."""
    parts = _split_template(template)
    if len(parts) == 1 and len(parts[0][0]) + bool(parts[0][1]) > 1:
        return parts[0][0], parts[0][1], ""
    if len(parts) == 2 and parts[1][1] is None:
        return parts[0][0], parts[0][1], parts[1][0]
    return None


def fill_template(template: str, args: Mapping[str, Plain], between: str, nested: Callable[[Reason], str]) -> str:
    """Return a template with its arguments. between: joins several values. nested: words an argument that is a Reason.

    Raises KeyError, ValueError or TypeError where the arguments, of a foreign file, are not the template's.
    """
    out = []
    for text, name, spec in _split_template(template):
        out.append(text)
        if name is not None:
            out.append(_format_argument(args[name], spec, between, nested))
    return "".join(out)


def _format_argument(value: Plain, spec: str, between: str, nested: Callable[[Reason], str]) -> str:
    if isinstance(value, Reason):
        return nested(value)
    if isinstance(value, tuple):
        if spec == "or":
            between, spec = (" or " if between == ", " else " 或 "), ""
        if spec == ";":
            between, spec = ("; " if between == ", " else "；"), ""
        return between.join(_format_argument(item, spec, between, nested) for item in value)
    if "|" in spec:
        one, _, more = spec.partition("|")
        return one if value in (1, "1") else more
    return format(value, spec)
