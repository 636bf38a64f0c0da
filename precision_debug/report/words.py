"""Write texts and numbers as people read them: in two languages, rounded, and as wide as there is room."""

from __future__ import annotations

import functools
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Context
from typing import Any

from .. import registry
from ..reasons import CORE, Plain, Reason, Text, Wording, arguments_of, fill_template, split
from ..reasons.cause import THINGS
from ..records import Row
from ..registry import find_wording, reasons_of
from .columns import Column

__all__ = [
    "are",
    "code_text",
    "count",
    "explain_reason",
    "fill_text",
    "fit_width",
    "format_count",
    "format_duration",
    "format_figure",
    "format_percent",
    "format_shape",
    "format_sufficient",
    "generalise",
    "is_whole",
    "join_texts",
    "measure_text_width",
    "reason_text",
    "recognise",
    "were",
    "wording_text",
    "wrap_text",
]  # fmt: skip


# Text in two languages: many readers of a report read Chinese first.

_BETWEEN = {"en": ", ", "zh": "、"}


def reason_text(reason: str, lang: str) -> str:
    """Return a reason in "en" or "zh"; in English where nobody knows its code."""
    if lang == "en":
        return str(reason)
    coded = _restore_code(reason)
    found = code_text(coded.code, coded.args, lang)
    return str(reason) if found is None else found


def code_text(code: str, args: Mapping[str, Plain], lang: str) -> str | None:
    """Return what a code says in "en" or "zh"; None where nobody here knows it, or has it with other arguments."""
    known = find_wording(code)
    return None if known is None else wording_text(known, args, lang)


def wording_text(known: Wording, args: Mapping[str, Plain], lang: str) -> str | None:
    """Return a wording in "en" or "zh"; None where the arguments are not its own."""
    template = known.zh if lang == "zh" else known.en
    try:
        return fill_template(template, args, _BETWEEN[lang], lambda inner: reason_text(inner, lang))
    except (KeyError, TypeError, ValueError, RecursionError):  # of another version, or of a foreign file
        return None


def explain_reason(reason: str) -> Text:
    """Return a reason in both languages."""
    return Text(str(reason), reason_text(reason, "zh"))


def fill_text(en: str, zh: str, /, **values: Any) -> Text:
    """Return a text from templates in both languages (see ``Wording``).

    A value that a template names is written as people read it: a count with thousands apart, an error (None: it is not
    finite) with four digits, several names with what stands between them in that language."""
    texts = []
    for template, language in ((en, "en"), (zh, "zh")):
        words = {name: _write_value(values[name], language) for name in arguments_of(template)}
        texts.append(fill_template(template, words, _BETWEEN[language], str))
    return Text(*texts)


def _write_value(value: Any, language: str) -> Plain:
    if isinstance(value, Text):
        return value.of(language)
    if isinstance(value, (str, type(None))):
        return _NOT_FINITE.of(language) if value is None else value
    if isinstance(value, (int, float)):
        return count(value) if isinstance(value, int) else format_figure(value)
    return tuple(value)


_NOT_FINITE = Text("NaN or Inf", "NaN 或 Inf")


def join_texts(*parts: Text) -> Text:
    """Return texts one behind the other, in each language."""
    return Text("".join(part.en for part in parts), "".join(part.zh for part in parts))


def generalise(reason: str) -> Text:
    """Return a reason in both languages with "…" for the names and numbers in it: what reasons of one kind have in
    common."""
    coded = _restore_code(reason)
    args = {name: value if isinstance(value, Reason) else "…" for name, value in coded.args.items()}
    en, zh = [code_text(coded.code, args, lang) for lang in ("en", "zh")] if coded.code else [None, None]
    return explain_reason(reason) if en is None or zh is None else Text(en, zh)


def strip_side(reason: str) -> Reason:
    """Return a reason without the side that it is of: "target: a constant" to "a constant"."""
    coded = _restore_code(reason)
    why = coded.args.get("why") if coded.code in ("of_baseline", "of_target") else None
    return strip_side(why) if isinstance(why, str) else coded


def is_whole(reason: str) -> bool:
    """Return whether nothing is missing from a comparison because of it: see ``Wording``."""
    known = find_wording(strip_side(reason).code)
    return known is not None and known.whole


def recognise(text: str) -> Reason:
    """Return the reason that a text is, also where its code was lost on the way; a mere text where no catalogue has
    it."""
    return _restore_code(text)


def _restore_code(reason: str) -> Reason:
    if not reason or (isinstance(reason, Reason) and reason.code):
        return reason if isinstance(reason, Reason) else Reason(reason)
    return _recognise_sentence(str(reason))


@functools.lru_cache(maxsize=4096)
def _recognise_sentence(text: str) -> Reason:
    """Return the reason of a sentence from a file that has no codes yet; a mere text where no catalogue has such a
    one."""
    for code, head, name, tail in _list_sentences():
        if name is None and text == head:
            return Reason(text, code)
        if name and text.startswith(head) and text.endswith(tail) and len(text) > len(head) + len(tail):
            return Reason(text, code, {name: _recognise_sentence(text[len(head) : len(text) - len(tail)])})
    for code, pattern in _list_patterns():
        if found := pattern.fullmatch(text):
            return Reason(text, code, {name: _recognise_sentence(part) for name, part in found.groupdict().items()})
    return Reason(text)


@functools.cache
def _list_patterns() -> tuple[tuple[str, re.Pattern[str]], ...]:
    """Code and pattern of each wording of evidence with several plain arguments and words enough to know it by, the
    longest first."""
    found = []
    for code, known in THINGS.items():
        literal = re.sub(r"\{[^}]*\}", "", known.en)
        if ":" not in known.en.replace(": ", "") and len(arguments_of(known.en)) > 1 and len(literal) > _KNOWN_BY:
            found.append((len(literal), code, re.sub(r"\\\{(\w+)\\\}", r"(?P<\1>.+?)", re.escape(known.en))))
    return tuple((code, re.compile(pattern)) for _, code, pattern in sorted(found, reverse=True))


_KNOWN_BY = 12
"""Letters beside its arguments from which on a wording is no other text."""


@functools.cache
def _list_sentences() -> tuple[tuple[str, str, str | None, str], ...]:
    """Code, text before the argument, its name and text after it, of each wording with one argument at most."""
    catalogues = (CORE, *(reasons_of(plugin.name) for plugin in registry.plugins()))
    found = [
        (code, *parts)
        for catalogue in catalogues
        for code, known in catalogue.items()
        if (parts := split(known.en)) is not None
    ]
    return tuple(sorted(found, key=lambda one: -len(one[1]) - len(one[3])))


# Numbers as people read them.

def format_figure(value: float | None) -> str:
    """Four significant digits; "" for None; nan, inf and -inf as those words."""
    if value is None:
        return ""
    return f"{value:.4g}"


def format_sufficient(value: float) -> str:
    """Two significant digits, rounded up: a tolerance that is still enough."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    return f"{float(Context(prec=2, rounding=ROUND_CEILING).create_decimal_from_float(value)):g}"


def format_percent(share: float) -> str:
    """Return a share from 0 to 1; never 0 % where something is there, never 100 % where something is missing."""
    if 0 < share < 0.0001:
        return "<0.01%"
    if 0.9999 < share < 1:
        return ">99.99%"
    return f"{100 * share:.4g}%"


def count(value: int) -> str:
    """With thousands apart."""
    return f"{value:,}"


def format_count(value: int, noun: str) -> str:
    """Write a count with its noun: "1 tensor", "1,024 tensors"."""
    return f"{count(value)} {noun}{'' if value == 1 else 's'}"


def are(value: int) -> str:
    """Return the verb after a count: "is" after 1, else "are"."""
    return "is" if value == 1 else "are"


def were(value: int) -> str:
    """Return the verb after a count: "was" after 1, else "were"."""
    return "was" if value == 1 else "were"


def format_shape(value: tuple[int, ...]) -> str:
    """As Paddle's table writes it: [8, 3, 224, 224]."""
    return str(list(value))


def format_duration(seconds: float | None) -> str:
    """In seconds, or in minutes and seconds."""
    if seconds is None:
        return ""
    if seconds < 0.001:
        return "0 s"
    if seconds < 120 or not math.isfinite(seconds):
        return f"{seconds:.3g} s"
    return f"{int(seconds // 60)} min {int(seconds % 60)} s"


# How wide a text is, where its lines end, and how wide a column must be.

_SAMPLE = 2000
_WIDE = "\u2e80-\u2fff\u3040-\u9fff\uf900-\ufaff"
_OPEN, _CLOSE = "（「《“", "，。；：、）」》”！？"
_WORD = f"[^\\s{_WIDE}{_OPEN}{_CLOSE}]+"
_UNIT = re.compile(f"[{_OPEN}]*(?:[{_WIDE}]|{_WORD})[{_CLOSE}]*|[{_OPEN}{_CLOSE}]+|\\s+")
"""A word, a space, or one Chinese character, with the marks that do not begin or end a line without it."""


def measure_text_width(text: str) -> int:
    """Return places that a text takes: Chinese characters take two."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def wrap_text(text: str, width: int) -> list[str]:
    """Return lines of at most so many places, broken at spaces and between Chinese characters; longer words inside."""
    lines, line = [], ""
    for unit in _UNIT.findall(text):
        if measure_text_width(line) + measure_text_width(unit) <= width:
            line += unit
            continue
        if line.strip():
            lines.append(line.rstrip())
        line = unit.lstrip()
        while measure_text_width(line) > width:
            cut = next(place for place in range(len(line), 0, -1) if measure_text_width(line[:place]) <= max(2, width))
            lines.append(line[:cut])
            line = line[cut:]
    return [*lines, line.rstrip()] if line.strip() or not lines else lines


def fit_width(column: Column, rows: Sequence[Row], least: int) -> int:
    """In characters, at least ``least``: of text what a sample of the rows needs, but no more than the column's own."""
    if column.kind not in ("text", "index"):
        return max(least, column.width)
    sample = rows[:: max(1, len(rows) // _SAMPLE)]
    longest = max((measure_text_width(str(value)) for row in sample if (value := column.get(row))), default=0)
    return max(least, min(column.width, longest + 3))
