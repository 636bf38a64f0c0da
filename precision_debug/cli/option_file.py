"""Options from a file: ``[tool.precision_debug]`` of the working folder's pyproject.toml, or ``--config FILE.toml``.

They become words in front of those that were typed, so that whatever reads a command (the journal of a search, a
checkpoint, the report) sees them as typed. One that was typed too is left out of the file's. A table named after a verb
(``[tool.precision_debug.search]``) is for that verb alone.

The working folder may hold somebody else's pyproject.toml. Found there, it can name nothing that would run as code:
only ``--config`` names a file that may.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import registry
from ..errors import UsageError
from ..reasons import say
from ..safety.nearest import find_nearest
from ..safety.untrusted import refuse_special
from ..settings import Setting
from ..settings.options import CONFIG
from . import completion
from .parser import Parser, find_setting, to_underscores

__all__ = ["with_file"]

_FOUND = "pyproject.toml"
_VERBS = ("compare", "search", "sweep", "ladder", "reduce")
_OF_PYTEST = "thresholds"

_ALTERNATIVES = (("model_file", "model_dir", "params_file"), ("baseline", "load_outputs"))
"""Where one of these is typed, it stands for what the file says with any of them."""

_LETTERS = {"o": "output", "q": "quiet", "v": "verbose"}

_CODE = re.compile(r"\.(py|pyw|pyc|pyd|so|dll|dylib|engine|plan|trt)\b", re.IGNORECASE)
_RUNS = ("check", "gen_script", "address")
"""Options of ours that run what they name, or write or fetch code."""


def with_file(parser: Parser, verb: str, typed: Sequence[str], *, without: Collection[str] = ()) -> list[str]:
    """Put the options of a file in front of the typed words; ``parser`` is told where they came from.

    without: names that the verb has no use for; what a file says of them for all verbs is passed over. Raises
    UsageError, with the file and the key, for an unknown key or a value of another type.
    """
    words = [to_underscores(word) for word in typed]
    asked, rest = _split_config_option(words, typed)
    path = Path(asked or _FOUND)
    if (
        completion.is_completion_asked()
        or {"--help", "-h", "--version", "-V"} & set(words)
        or not (asked or path.is_file())
    ):
        return rest
    table = _read_table(path)
    file = _OfFile(parser, path, trusted=bool(asked))
    common = {key: one for key, one in table.items() if not (isinstance(one, dict) and _plain_key(key) in _VERBS)}
    if path.name == _FOUND:
        common.pop(_OF_PYTEST, None)
    own = table.get(verb, {})
    common = {key: one for key, one in common.items() if _plain_key(key) not in {*without, *map(_plain_key, own)}}
    found = {**dict(file.words(common)), **dict(file.words(own, f"{verb}."))}
    passed = _typed_names(words)
    used = {key: said for key, said in found.items() if key not in passed}
    if used:
        parser.set_defaults(options_from=f"{path}: {', '.join(used)}")
    return [*(word for said in used.values() for word in said), *rest]


def _split_config_option(words: Sequence[str], typed: Sequence[str]) -> tuple[str, list[str]]:
    """Return what --config names, "" for nothing, and the typed words without it."""
    asked, rest, skip = "", [], False
    for place, word in enumerate(words):
        if skip:
            skip = False
        elif word == CONFIG.option:
            if place + 1 == len(words) or not words[place + 1]:
                raise UsageError(say("no_value_given", option=CONFIG.option))
            asked, skip = typed[place + 1], True
        elif word.startswith(f"{CONFIG.option}="):
            asked = typed[place].partition("=")[2]
            if not asked:
                raise UsageError(say("no_value_given", option=CONFIG.option))
        else:
            rest.append(typed[place])
    return asked, rest


def _read_table(path: Path) -> Mapping[str, Any]:
    """Return the options that a file holds. Raises UsageError where it cannot be read."""
    refuse_special(path, UsageError)
    try:
        text = path.read_text(encoding="utf-8")
        if path.name == _FOUND and "precision_debug" not in text:
            return {}
        if sys.version_info >= (3, 11):
            import tomllib
        else:
            import tomli as tomllib
        read: Any = tomllib.loads(text)
    except (ValueError, OSError, RecursionError) as error:
        raise UsageError(say("no_option_file", error=" ".join(str(error).split())), where=str(path)) from error
    if path.name == _FOUND:
        tool = read.get("tool", {})
        read = tool.get("precision_debug", {}) if isinstance(tool, dict) else {}
    if not isinstance(read, dict):
        raise UsageError(say("option_file_table"), where=f"{path} tool.precision_debug")
    for verb in _VERBS:
        if not isinstance(read.get(verb, {}), dict):
            raise UsageError(say("option_file_table"), where=f"{path} {verb}")
    return read


def _plain_key(key: str) -> str:
    return key.replace("-", "_")


def _typed_names(words: Sequence[str]) -> set[str]:
    """Return the options that typed words give, and what they stand for as well."""
    found: set[str] = set()
    for place, word in enumerate(words):
        if word.startswith("--"):
            name, equals, value = word[2:].partition("=")
            if name == "option":
                found.add((value if equals else "".join(words[place + 1 : place + 2])).partition("=")[0].strip())
            else:
                found.add(name)
        elif re.match("-[oqv]", word):
            found.update(_LETTERS[letter] for letter in re.match("-([qv]*o?)", word)[1])  # type: ignore[index]
    for names in _ALTERNATIVES:
        if found & set(names):
            found.update(names)
    return found


class _OfFile:
    """Makes words of a file's keys and values for one parser."""

    def __init__(self, parser: Parser, path: Path, *, trusted: bool) -> None:
        self._actions = parser._option_string_actions
        self._path, self._trusted = path, trusted
        self._settings = {one.name: one for backend in registry.backends() for one in backend.settings}

    def words(self, table: Mapping[str, Any], within: str = "") -> Iterator[tuple[str, list[str]]]:
        """Yield each option by its name, as the words that would be typed. Raises UsageError."""
        for key, value in table.items():
            name, where = _plain_key(key), f"{self._path} {within}{key}"
            if name == "option":
                if not isinstance(value, dict):
                    raise UsageError(say("option_file_table"), where=where)
                for inner, one in _flatten(value):
                    yield inner, self._setting_words(inner, one, f"{where}.{inner}")
                continue
            action = self._actions.get(f"--{name}")
            if action is not None and name not in ("help", "version", "config"):
                yield name, self._flag_words(name, action, value, where)
            elif name in self._settings:
                yield name, self._setting_words(name, value, where)
            else:
                raise self._unknown(name, where)

    def _unknown(self, name: str, where: str) -> UsageError:
        near = find_nearest(name, [one[2:] for one in self._actions if one.startswith("--")] + [*self._settings], 2)
        hint = say("did_you_mean", names=[repr(one) for one in near]) if near else ""
        return UsageError(say("option_file_unknown"), where=where, hint=hint)

    def _flag_words(self, name: str, action: argparse.Action, value: Any, where: str) -> list[str]:
        setting = find_setting(action) or (self._settings.get(name.removeprefix("baseline_")))
        if action.nargs == 0:
            if not isinstance(value, bool):
                raise UsageError(say("no_of_kind", value=_format_value(value)), where=where, hint=say("write_flag"))
            return [f"--{name}"] if value else []
        if setting is None:
            many = action.nargs in ("+", "*") and isinstance(value, list)
            said = [_argument_text(action, one, where) for one in (value if many else [value])]
        else:
            said = _option_words(setting, value, where)
        self._refuse_code(name, setting, said, where)
        if action.nargs is None and len(said) > 1 and not (setting and setting.repeated):
            said = [",".join(said)]
        if setting is not None and setting.repeated and not setting.nargs:
            return [f"--{name}={one}" for one in said]
        return [f"--{name}={said[0]}"] if len(said) == 1 else [f"--{name}", *said]

    def _setting_words(self, key: str, value: Any, where: str) -> list[str]:
        name = re.sub(r"^(baseline|target)\.", "", key)
        setting = self._settings.get(name)
        natives = (one.native for one in self._settings.values() if one.native)
        if setting is None and not any(re.fullmatch(native, name) for native in natives):
            raise self._unknown(name, where)
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            said = [repr(value)]
        elif isinstance(value, dict):
            said = [",".join(f"{one}={two}" for one, two in value.items())]
        else:
            said = _option_words(setting, value, where) if setting is not None else [_scalar_text(value, where)]
        self._refuse_code(name, setting, [*said, *(["/"] if _has_folder(said) else [])], where)
        return [f"--option={key}={said[0]}"]

    def _refuse_code(self, name: str, setting: Setting | None, said: Sequence[str], where: str) -> None:
        """Raise UsageError where the file was only found, and names what would run."""
        if self._trusted:
            return
        runs = name in _RUNS or (setting is not None and setting.code) or "/" in said
        if runs or any(_CODE.search(one) for one in said):
            raise UsageError(say("option_file_code"), where=where, hint=say("name_option_file", file=str(self._path)))


def _has_folder(said: Sequence[str]) -> bool:
    return any(os.sep in one or "\\" in one for one in said)


def _flatten(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Settings with the side that stands before them: {"target": {"k": 1}} and {"target.k": 1} are the same."""
    for key, value in table.items():
        if key in ("baseline", "target") and isinstance(value, dict):
            yield from ((f"{key}.{inner}", one) for inner, one in value.items())
        else:
            yield key, value


def _format_value(value: Any) -> str:
    return repr(value) if not isinstance(value, bool) else str(value).lower()


def _scalar_text(value: Any, where: str) -> str:
    if isinstance(value, (str, int, float)):
        return _format_value(value) if isinstance(value, bool) else str(value)
    raise UsageError(say("no_of_kind", value=_format_value(value)), where=where, hint=say("write_text"))


def _argument_text(action: argparse.Action, value: Any, where: str) -> str:
    """Of a verb's own flag, whose type is argparse's."""
    kinds = {int: (int,), float: (int, float)}.get(action.type, (str, int, float))  # type: ignore[call-overload]
    form = {int: say("write_whole"), float: say("write_number")}.get(action.type, say("write_text"))  # type: ignore[call-overload]
    if action.choices:
        form = say("write_one_of", known=", ".join(action.choices))
    if isinstance(value, bool) or not isinstance(value, kinds) or value not in (action.choices or (value,)):
        raise UsageError(say("no_of_kind", value=_format_value(value)), where=where, hint=form)
    return str(value)


_STRICT: Mapping[str, tuple[type, ...]] = {
    "flag": (bool,), "whole": (int,), "number": (int, float), "size": (int, str), "text": (str,), "word": (str,),
}  # fmt: skip
"""What TOML gives for a setting's kind; a string is no number."""


def _option_words(setting: Setting, value: Any, where: str) -> list[str]:
    """Return a value of TOML as the words of its option. Raises UsageError where it is of another type."""
    kinds = _STRICT.get(setting.kind)
    wrong = UsageError(say("no_of_kind", value=_format_value(value)), where=where, hint=setting.form)
    if setting.choices and isinstance(value, bool) and {"on", "off"} <= set(setting.choices):
        value = "on" if value else "off"
    elif setting.reader is None and not setting.choices and kinds is not None and not _is_a(value, kinds):
        raise wrong
    if isinstance(value, dict):
        said = [_key_value_text(setting, key, one) for key, one in value.items()]
    elif isinstance(value, list):
        said = [_scalar_text(one, where) for one in value]
    elif isinstance(value, bool):
        said = [str(int(value))]
    elif isinstance(value, (str, int, float)):
        said = [str(value)]
    else:
        raise wrong
    if not said or "" in said:
        raise UsageError(say("value_empty"), where=where, hint=say("write_or_leave_out"))
    many = isinstance(value, (list, dict)) or setting.nargs in ("+", "*") or setting.repeated
    setting.read(said if many else said[0], where)
    return said


def _is_a(value: Any, kinds: tuple[type, ...]) -> bool:
    """Return whether a value is of these types; true and false are no numbers."""
    return bool in kinds if isinstance(value, bool) else isinstance(value, kinds)


def _key_value_text(setting: Setting, key: str, value: Any) -> str:
    if setting.kind == "shapes" and isinstance(value, list):
        return f"{key}:[{','.join(map(str, value))}]"
    if setting.kind == "ranges" and isinstance(value, list):
        return ":".join(filter(None, (key, ",".join(map(str, value)))))
    return f"{key}:{value}" if setting.kind == "layers" else f"{key}={value}"
