"""Text in two languages: many readers of a report read Chinese first."""

from __future__ import annotations

import functools
from collections.abc import Mapping

from .. import registry
from ..reasons import CORE, Plain, Reason, Text, Wording, filled, split
from ..registry import reasons_of, wording

__all__ = ["explained", "general", "is_whole", "recognised", "said", "sentence", "word"]

_BETWEEN = {"en": ", ", "zh": "、"}


def word(reason: str, lang: str) -> str:
    """A reason in "en" or "zh"; in English where nobody knows its code."""
    if lang == "en":
        return str(reason)
    coded = _coded(reason)
    found = sentence(coded.code, coded.args, lang)
    return str(reason) if found is None else found


def sentence(code: str, args: Mapping[str, Plain], lang: str) -> str | None:
    """What a code says in "en" or "zh"; None where nobody here knows it, or has it with other arguments."""
    known = wording(code)
    return None if known is None else said(known, args, lang)


def said(known: Wording, args: Mapping[str, Plain], lang: str) -> str | None:
    """A wording in "en" or "zh"; None where the arguments are not its own."""
    template = known.zh if lang == "zh" else known.en
    try:
        return filled(template, args, _BETWEEN[lang], lambda inner: word(inner, lang))
    except (KeyError, TypeError, ValueError, RecursionError):  # of another version, or of a foreign file
        return None


def explained(reason: str) -> Text:
    """A reason in both languages."""
    return Text(str(reason), word(reason, "zh"))


def general(reason: str) -> Text:
    """A reason in both languages with "…" for the names and numbers in it: what reasons of one kind have in common."""
    coded = _coded(reason)
    args = {name: value if isinstance(value, Reason) else "…" for name, value in coded.args.items()}
    en, zh = [sentence(coded.code, args, lang) for lang in ("en", "zh")] if coded.code else [None, None]
    return explained(reason) if en is None or zh is None else Text(en, zh)


def inner(reason: str) -> Reason:
    """A reason without the side that it is of: "target: a constant" to "a constant"."""
    coded = _coded(reason)
    why = coded.args.get("why") if coded.code in ("of_baseline", "of_target") else None
    return inner(why) if isinstance(why, str) else coded


def is_whole(reason: str) -> bool:
    """Whether nothing is missing from a comparison because of it: see ``Wording``."""
    known = wording(inner(reason).code)
    return known is not None and known.whole


def recognised(text: str) -> Reason:
    """The reason that a text is, also where its code was lost on the way; a mere text where no catalogue has it."""
    return _coded(text)


def _coded(reason: str) -> Reason:
    if isinstance(reason, Reason) and reason.code:
        return reason
    return _recognised(str(reason))


@functools.lru_cache(maxsize=4096)
def _recognised(text: str) -> Reason:
    """The reason of a sentence from a file that has no codes yet; a mere text where no catalogue has such a one."""
    for code, head, name, tail in _sentences():
        if name is None and text == head:
            return Reason(text, code)
        if name and text.startswith(head) and text.endswith(tail) and len(text) > len(head) + len(tail):
            return Reason(text, code, {name: _recognised(text[len(head) : len(text) - len(tail)])})
    return Reason(text)


@functools.cache
def _sentences() -> tuple[tuple[str, str, str | None, str], ...]:
    """Code, text before the argument, its name and text after it, of each wording with one argument at most."""
    catalogues = (CORE, *(reasons_of(plugin.name) for plugin in registry.plugins()))
    found = [
        (code, *parts)
        for catalogue in catalogues
        for code, known in catalogue.items()
        if (parts := split(known.en)) is not None
    ]
    return tuple(sorted(found, key=lambda one: -len(one[1]) - len(one[3])))
