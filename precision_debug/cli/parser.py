"""Parse the command line, in the language that is asked for."""

from __future__ import annotations

import argparse
import itertools
import os
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from ..errors import PrecisionDebugError, UsageError
from ..reasons import Text, say
from ..report.words import wrap_text
from ..safety.nearest import find_nearest
from ..settings import Setting
from ..settings.options import GROUPS, LANG, LANGUAGES
from . import completion, polygraphy

__all__ = [
    "LANGUAGES",
    "MODEL_FLAGS",
    "Flag",
    "Help",
    "Parser",
    "add_flags",
    "add_language",
    "add_options",
    "choose_language",
    "find_requested_language",
    "find_setting",
    "format_error_line",
    "given_options",
    "make_flag",
    "make_formatter",
    "make_verb_parser",
    "parse",
    "program_name",
    "to_underscores",
]  # fmt: skip


# The language that the terminal is spoken to in.

class Help(str):
    """A text of a parser's: argparse wants a str, the English one, and loses whatever else comes with it."""

    __slots__ = ("text",)
    text: Text

    def __new__(cls, en: str, zh: str) -> Help:
        self = super().__new__(cls, en)
        self.text = Text(en, zh)
        return self


def add_language(group: argparse._ActionsContainer) -> None:
    """Add the option --lang."""
    group.add_argument(LANG.option, choices=LANG.choices, default=LANG.default, help=Help(LANG.help, LANG.zh))


def find_requested_language(arguments: Sequence[str]) -> str:
    """Return what --lang asks for, whatever becomes of the other words; "" where it asks for nothing that there is."""
    typed = [text.removeprefix("--lang=") for text in arguments if text.startswith("--lang=")]
    typed += [value for name, value in itertools.pairwise(arguments) if name == "--lang"]
    return next((value for value in typed if value in LANGUAGES), "")


def choose_language(asked: str = "") -> str:
    """Return what was asked for, else that of the locale: LC_ALL, LC_MESSAGES or LANG, the first that is set."""
    if asked:
        return asked
    locale = next((value for name in ("LC_ALL", "LC_MESSAGES", "LANG") if (value := os.environ.get(name))), "")
    return "zh" if locale.lower().startswith("zh") else "en"


def format_error_line(error: PrecisionDebugError, asked: str = "") -> str:
    """Return an error's one line in the language that is asked for, as far as its parts are known in it."""
    if choose_language(asked) != "zh":
        return str(error)
    from ..report.doubts import error_sentence
    from ..report.words import reason_text

    return reason_text(error_sentence(error), "zh")


# Argument parsing that every verb shares.

_ARGPARSE = {
    "positional arguments": "位置参数", "options": "选项", "show this help message and exit": "显示此帮助并退出",
    "show program's version number and exit": "显示版本号并退出",
}  # fmt: skip
"""What argparse itself says in a parser's help, in Chinese."""


_SYNONYMS = {
    "--input": ("--inputs",), "--model": ("--model_file",), "--mode": ("--run_mode",), "--out": ("--output",),
    "--tolerance": ("--atol", "--rtol"), "--tol": ("--atol", "--rtol"), "--threshold": ("--atol", "--rtol"),
    "--shape": ("--input_shapes",), "--shapes": ("--input_shapes",), "--target": ("--run_mode",),
    "--load_inputs": ("--inputs",), "--trt": ("--run_mode",), "--onnxrt": ("--run_mode",), "--fp16": ("--run_mode",),
    "--int8": ("--run_mode",), "--bf16": ("--run_mode",), "--fp8": ("--run_mode",), "--tf32": ("--run_mode",),
    "--abs": ("--atol",), "--rel": ("--rtol",), "--report": ("--output",), "--output_file": ("--output",),
    "--onnx": ("--model_file",), "--data": ("--inputs",), "--batch": ("--input_shapes",), "--ref": ("--baseline",),
    "--reference": ("--baseline",), "--golden": ("--baseline",), "--compare_with": ("--baseline",),
    "--precision": ("--run_mode",), "--backend": ("--run_mode",), "--engine_mode": ("--run_mode",),
    "--debug": ("--verbose",), "--layers": ("--mark",), "--tensors": ("--mark",), "--language": ("--lang",),
    "--samples": ("--sample",), "--threads": ("--jobs",), "--workers": ("--jobs",), "--silent": ("--quiet",),
    "--gpu": ("--run_mode",), "--cuda": ("--run_mode",), "--cpu": ("--run_mode",), "--html": ("--output",),
    "--xlsx": ("--output",), "--excel": ("--output",), "--json": ("--output",), "--csv": ("--output",),
    "--md": ("--output",), "--markdown": ("--output",), "--pdf": ("--output",),
    "-m": ("--model_file",), "-i": ("--inputs",), "-b": ("--baseline",), "-r": ("--run_mode",), "-t": ("--run_mode",),
    "-p": ("--params_file",), "-s": ("--input_shapes",), "-q": ("--quiet",), "-l": ("--lang",),
}  # fmt: skip
"""Options as other tools call them, which no spelling leads to."""


_BELOW_ZERO = re.compile(r"-\.?\d")
"""What begins so is a value, never an option: a number below zero, or a range from one."""


def _normalise_dashes(word: str) -> str:
    """Return an option as it is typed, where an editor or a page made other dashes of its own, or one is missing."""
    dashes = re.match("[-\u2010-\u2015\u2212]+", word)
    rest = word[len(dashes[0]):] if dashes else word
    return word if dashes is None else f"--{rest}" if len(rest) > 1 else f"-{rest}"


class Parser(argparse.ArgumentParser):
    """An argument parser that raises UsageError in place of printing a usage block and leaving.

    language: of its help, "en" or "zh"."""

    language = "en"
    words: Sequence[str] = ()

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._negative_number_matcher = _BELOW_ZERO

    def _get_values(self, action: argparse.Action, arg_strings: list[str]) -> Any:
        """Of each option and place as it is read; what an empty variable of a shell leaves is no value."""
        name = action.option_strings[-1] if action.option_strings else str(action.metavar or action.dest)
        if "" in arg_strings and "" not in (action.choices or ()):
            raise UsageError(say("value_empty"), where=name, hint=say("write_or_leave_out"))
        return super()._get_values(action, arg_strings)

    def error(self, message: str) -> NoReturn:
        message = re.sub("^argument -[a-z]/--", "argument --", message)
        foreign = (
            polygraphy.answer_polygraphy_words(self.words) if message.startswith("unrecognized arguments: ") else None
        )
        if foreign is not None:
            raise UsageError(foreign)
        hint = self._meant(message) or self._joined(message) or say("see_help", program=self.prog)
        raise UsageError(_reword_argparse_message(message), hint=hint)

    def _joined(self, message: str) -> str:
        """Return how to write a value that begins with a minus, where that is why one is missing; "" where it is
        not."""
        found = re.fullmatch(r"argument (\S+): expected .* arguments?", message)
        places = [place for place, word in enumerate(self.words[:-1]) if found and word == found[1]]
        after = [self.words[place + 1] for place in places]
        near = [word for word in after if word.startswith("-") and word not in self._option_string_actions]
        return say("write_joined", option=shlex.quote(f"{found[1]}={near[0]}")) if found and near else ""

    def _meant(self, message: str) -> str:
        """Return the options that the unknown ones may have meant; "" where none is near, or nothing is unknown."""
        found = re.fullmatch(r"unrecognized arguments: (.*)", message, re.DOTALL)
        words = [_normalise_dashes(word.partition("=")[0]) for word in (found[1].split() if found else ())]
        unknown = [word for word in words if re.match("--?[a-z]", word)]
        known = list(self._option_string_actions)
        near: dict[str, None] = {}
        for word in unknown:
            other = [one for one in (word, *_SYNONYMS.get(word, ())) if one in known]
            near |= dict.fromkeys(other or find_nearest(word, known, 2))
        model = "" if unknown or not found or "--model_file" not in known else found[1]
        if re.fullmatch(r"\S+\.\w+", model):
            return say("write_model_file_alone", name=shlex.quote(model))
        return say("did_you_mean", names=[repr(one) for one in near]) if near else ""

    def format_help(self) -> str:
        """Return the help in the language that was asked for, as ``parse`` found it."""
        if self.language != "zh":
            return super().format_help()
        self.description, self.epilog = _translate_to_chinese(self.description), _translate_to_chinese(self.epilog)
        for group in self._action_groups:
            group.title, group.description = (
                _translate_to_chinese(group.title),
                _translate_to_chinese(group.description),
            )
        for action in self._actions:
            action.help = _translate_to_chinese(action.help)
        self.formatter_class = lambda prog: _ChineseFormatter(prog, max_help_position=34)
        return super().format_help().replace("usage: ", "用法：", 1)

    def _print_message(self, message: str, file: Any = None) -> None:
        """Write a message; unlike argparse's own method, raise an error where that fails."""
        (file or sys.stderr).write(message)


class _ChineseFormatter(argparse.RawDescriptionHelpFormatter):
    """Breaks lines between Chinese characters, which take two places each."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return wrap_text(" ".join(text.split()), width)


def _translate_to_chinese(text: str | None) -> str | None:
    return text.text.zh if isinstance(text, Help) else _ARGPARSE.get(text or "", text)


class _Reads(argparse.Action):
    """Keeps a setting's value in its type; the words of one that may be repeated add up. Raises UsageError."""

    def __init__(self, *arguments: Any, setting: Setting, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._setting = setting
        self._words: list[str] = []

    def __call__(self, _parser: Any, namespace: Any, values: Any, _option: str | None = None) -> None:
        if self._setting.repeated:
            values = self._words = [*self._words, *(values if isinstance(values, list) else [values])]
        setattr(namespace, self.dest, self._setting.read(values))


def find_setting(action: argparse.Action) -> Setting | None:
    """Return the setting that an option reads, where it is one of a comparison."""
    return action._setting if isinstance(action, _Reads) else None


@dataclass(frozen=True, kw_only=True)
class Flag:
    """A flag, or a place, of one verb. form: the rest of it in argparse's words."""

    names: tuple[str, ...]
    help: Help
    form: Mapping[str, Any]


def make_flag(names: str, en: str, zh: str, **form: Any) -> Flag:
    """Make a flag of a verb. names: one or several, as they are typed. What takes a text and is not given is ""."""
    usual = {} if form.keys() & {"action", "default", "required"} else {"default": ""}
    return Flag(names=tuple(names.split()), help=Help(en, zh), form=usual | form)


MODEL_FLAGS = (
    make_flag(
        "model", "the model: .onnx, .pdmodel, .json, …", "模型：.onnx、.pdmodel、.json 等", metavar="M", nargs="?"
    ),
    make_flag("--model_file", "the same", "同上", metavar="M"),
    make_flag("--params_file", "its parameters, if they are a separate file", "参数文件（若单独存放）", metavar="P"),
    make_flag("--model_dir", "the model's folder", "模型所在的目录", metavar="D"),
)
"""Of a verb that reads a model and runs nothing; ``reading.read_model_options`` reads them."""


def add_flags(group: argparse._ActionsContainer, flags: Iterable[Flag]) -> None:
    """Add flags to a group of an argument parser."""
    for one in flags:
        group.add_argument(*_spell_flag(one.names), help=one.help, **one.form)


def make_verb_parser(verb: str, text: str | None, zh: str, flags: Iterable[Flag]) -> Parser:
    """Return what a verb takes that stands on its own. text, zh: what it does, in English and in Chinese."""
    parser = Parser(prog=program_name(verb), formatter_class=make_formatter, description=Help(text or "", zh))
    add_flags(parser, flags)
    add_language(parser)
    parser.add_argument("-v", "--verbose", action="store_true", help=Help("tracebacks", "显示 traceback"))
    return parser


def add_options(parser: argparse.ArgumentParser, table: Iterable[Setting]) -> None:
    """Add flags for the options of a table, below the headings of their groups.

    What RunSpec keeps is None where it was not given, so that its own default holds; the rest has its default.
    """
    groups = {group.title: group for group in parser._action_groups}
    for one in table:
        (en, _, below), (zh, _, unten) = (text.partition("\n") for text in GROUPS[one.group])
        if en not in groups:
            groups[en] = parser.add_argument_group(Help(en, zh), Help(below, unten) if below else None)
        help_text = Help(*(text.replace("%", "%%") for text in (one.help, one.zh)))
        default = None if one.field else one.default
        form: dict[str, Any] = {"dest": one.spelled or one.name, "default": default, "help": help_text}
        if one.kind == "flag" and not one.nargs:
            groups[en].add_argument(*_spell_flag((one.option,)), action="store_const", const=True, **form)
            continue
        if one.choices:
            form["choices"] = one.choices
        else:
            words = one.metavar.split()
            form["metavar"] = tuple(words) if len(words) > 1 else one.metavar
        if one.nargs:
            form["nargs"] = int(one.nargs) if one.nargs.isdigit() else one.nargs
        groups[en].add_argument(*_spell_flag((one.option,)), action=_Reads, setting=one, const=one.const, **form)


def _spell_flag(names: tuple[str, ...]) -> tuple[str, ...]:
    """With the letter that people expect of it."""
    return (*(_LETTERS[name] for name in names if name in _LETTERS), *names)


_LETTERS = {"--output": "-o", "--quiet": "-q", "--verbose": "-v"}


def given_options(args: argparse.Namespace, table: Iterable[Setting]) -> dict[str, Any]:
    """Return the values of the options that were given, by name."""
    found = {one.name: getattr(args, one.spelled or one.name) for one in table}
    return {name: value for name, value in found.items() if value is not None}


def _reword_argparse_message(message: str) -> str:
    """Return argparse's most frequent messages as reasons, which have Chinese; the rest as it is."""
    if found := re.fullmatch(r"unrecognized arguments: (.*)", message, re.DOTALL):
        return say("unknown_options", names=found[1])
    if found := re.fullmatch(r"the following arguments are required: (.*)", message):
        return say("missing_arguments", names=found[1])
    if found := re.fullmatch(r"argument (.*?): expected (one|at least one|\d+) arguments?", message):
        return say("no_value_given", option=found[1])
    if found := re.fullmatch(r"argument (.*?): invalid int value: '(.*)'", message, re.DOTALL):
        return say("no_whole_number", option=found[1], value=found[2])
    if found := re.fullmatch(r"argument (.*?): invalid float value: '(.*)'", message, re.DOTALL):
        return say("no_number", option=found[1], value=found[2])
    if found := re.fullmatch(r"argument (.*?): invalid choice: '?(.*?)'? \(choose from (.*)\)", message, re.DOTALL):
        return say("no_such_choice", option=found[1], value=found[2], known=found[3])
    return message


def parse(parser: Parser, arguments: Sequence[str], *, verbs: Iterable[str] = ()) -> argparse.Namespace:
    """Parse, taking --dashed-names for --underscored_names. Raises UsageError."""
    if completion.is_completion_asked():
        completion.complete(parser, verbs=verbs if parser.prog == program_name() else ())
    parser.language = choose_language(find_requested_language(arguments))
    parser.words = [to_underscores(text) for text in arguments]
    for text in arguments:
        if re.fullmatch(r"--[a-z][a-z0-9_-]*=--", text):  # argparse takes this value for the end of the options
            raise UsageError("expects a value, got '--'", where=text.removesuffix("=--"))
    return parser.parse_args(parser.words)


def to_underscores(text: str) -> str:
    """Return a word with the underscores of an option's name that may be typed with dashes."""
    name, equals, value = text.partition("=")
    if re.fullmatch(r"--[a-z][a-z0-9_-]*", name):
        return "--" + name[2:].replace("-", "_") + equals + value
    return text


def make_formatter(prog: str) -> argparse.HelpFormatter:
    """Return a formatter that makes help as wide as the terminal, defaults kept in the text."""
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=34)


def program_name(verb: str = "") -> str:
    """Return how this program was called."""
    name = "python -m precision_debug" if sys.argv[0].endswith("__main__.py") else "precision_debug"
    return f"{name} {verb}".strip()
