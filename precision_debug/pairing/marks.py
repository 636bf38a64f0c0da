"""Which tensors to compare, in the user's words.

A word is, in this order: the exact name of a tensor; "re:EXPR", a regular expression over the whole name; a pattern
with * (any text) and ? (any character), where it holds one of them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from ..codec import parse_json
from ..errors import MarkError
from ..inspector import read_inspector, split_fused_outputs, strip_subgraph_suffix
from ..reasons import say, suggest_nearest
from ..safety.untrusted import refuse_special

__all__ = ["assign_mark_names", "get_mark_names_from_serialized_json", "read_marks_file", "select"]

_LIST_THEM = say("marks_lists")


def select(patterns: Sequence[str], between: tuple[str, str] | None, names: Sequence[str]) -> tuple[str, ...]:
    """Return the names that the words ask for, in execution order.

    patterns: no words mean all names. between: first and last name of a section, both included; with words, what they
    match inside the section. names: in execution order. Raises MarkError where a word matches nothing or the
    section's ends are unknown or the other way round.
    """
    section = names if between is None else _cut_section(between, names)
    if not patterns:
        return tuple(section)
    wanted: set[str] = set()
    known = set(names)
    unknown: list[str] = []
    for word in dict.fromkeys(patterns):
        if word in known:
            wanted.add(word)
            continue
        matches = _make_matcher(word)
        found = [name for name in names if matches(name)] if matches else []
        wanted.update(found)
        if not found:
            unknown.append(word)
    if unknown:
        raise _make_unknown_error(unknown, names)
    chosen = tuple(name for name in section if name in wanted)
    if between is not None and not chosen:
        raise MarkError(
            f"none of the {len(wanted)} marked tensors lies between '{between[0]}' and '{between[1]}'",
            hint="widen --marks_between or leave it out",
        )
    return chosen


def read_marks_file(path: str | Path) -> tuple[str, ...]:
    """Return the words in a file: one a line, with # comments, or a JSON list of strings. Raises MarkError."""
    refuse_special(path, MarkError)
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise MarkError(say("no_marks", error=str(error)), where=str(path)) from error
    if text.lstrip().startswith("["):
        try:
            words = parse_json(text)
        except ValueError as error:
            raise MarkError(say("no_json", error=str(error)), where=str(path), hint="write a list of names") from error
        if not all(isinstance(word, str) for word in words):
            raise MarkError("the list holds more than names", where=str(path), hint="write a list of strings")
    else:
        words = [re.sub(r"(^|\s+)#.*", "", line).strip() for line in text.splitlines()]
    found = tuple(dict.fromkeys(word for word in words if word))
    if not found:
        raise MarkError("has no names", where=str(path), hint="write one name or pattern a line")
    return found


def assign_mark_names(
    start: str | Iterable[str], end: str | Iterable[str], baseline: str | Path | Iterable[str] = "save_baseline.txt"
) -> list[str]:
    """Return the names from one of ``start`` to the next one of ``end``, both included, in execution order.

    As often as a start comes. Paddle-Inference-Demo's function of this name, with its constants as arguments.

    baseline: the names in execution order (a SaveBaseline's, say), or the text file into which the demo's hook wrote a
    line for each tensor, its name last. Raises MarkError.
    """
    starts, ends = _split_patterns(start), _split_patterns(end)
    names = _read_names(Path(baseline)) if isinstance(baseline, (str, Path)) else list(baseline)
    known = set(names)
    unknown = [word for word in (*starts, *ends) if word not in known]
    if unknown:
        raise _make_unknown_error(unknown, names)
    marked: list[str] = []
    opened = ""
    for name in names:
        if name in starts:
            opened = name
        if opened:
            marked.append(name)
        if name in ends:
            opened = ""
    if opened and ends:
        raise MarkError(f"no end comes after the start '{opened}'", hint="exchange start and end")
    return list(dict.fromkeys(marked))


def get_mark_names_from_serialized_json(path: str | Path = "cache/engine_info_*.json") -> list[str]:
    """Return the tensors that a built TensorRT engine still produces after fusion, in execution order.

    Marking these alone keeps the fusion. Paddle-Inference-Demo's function of this name.

    path: engine inspector files of Paddle or TensorRT, a path or a glob. Paddle's ``_subgraph_N`` suffixes are taken
    off; copies in another format, constants and names that the engine made up are left out. Raises ModelError.
    """
    names = [strip_subgraph_suffix(name) for name in split_fused_outputs(read_inspector(path))[0]]
    by_paddle = any(number is not None for _, number in names)
    return list(dict.fromkeys(name for name, number in names if number is not None or not by_paddle))


def _cut_section(between: tuple[str, str], names: Sequence[str]) -> Sequence[str]:
    places = {name: place for place, name in reversed(list(enumerate(names)))}
    unknown = [name for name in between if name not in places]
    if unknown:
        raise _make_unknown_error(unknown, names)
    first, last = places[between[0]], places[between[1]]
    if first > last:
        raise MarkError(
            say("runs_after", first=between[0], last=between[1]),
            where="--marks_between",
            hint=say("swap_marks", last=between[1], first=between[0]),
        )
    return names[first : last + 1]


def _make_matcher(word: str) -> Callable[[str], object] | None:
    if word.startswith("re:"):
        try:
            return re.compile(word[3:]).fullmatch
        except re.error as error:
            raise MarkError(say("no_regex", word=word, error=str(error)), hint=say("see_re")) from error
    if "*" in word or "?" in word:
        parts = {"*": ".*", "?": "."}
        return re.compile("".join(parts.get(char) or re.escape(char) for char in word), re.DOTALL).fullmatch
    return None


def _make_unknown_error(words: Sequence[str], names: Sequence[str]) -> MarkError:
    word = words[0]
    names_ = ", ".join(map(repr, words[:4])) + (", …" if len(words) > 4 else "")
    return MarkError(
        say("no_such_tensor", names=names_) if _make_matcher(word) is None else say("no_tensor_matches", names=names_),
        where=say("of_tensors", count=len(names)),
        hint=_suggest_names(word, names),
    )


def _suggest_names(word: str, names: Sequence[str]) -> str:
    near = suggest_nearest(word.removeprefix("re:"), names)
    inside = 0 if _make_matcher(word) else sum(word in name for name in names)
    if inside:
        found = say("glob_matches", glob=f"*{word}*", count=inside)
        return say("near_and_glob", near=near, found=found) if near else found
    return near or (say("it_has", names=", ".join(map(repr, names))) if len(names) <= 8 else _LIST_THEM)


def _split_patterns(patterns: str | Iterable[str]) -> list[str]:
    return [patterns] if isinstance(patterns, str) else list(patterns)


def _read_names(file: Path) -> list[str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise MarkError(
            f"the baseline's names cannot be read: {error}", where=str(file), hint="give the names as a list"
        ) from error
    return [line.split()[-1] for line in lines if line.strip()]
