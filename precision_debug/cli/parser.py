"""Argument parsing that every verb shares."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from ..errors import UsageError
from ..reasons import say
from .language import asked_in, language_of

__all__ = ["Parser", "parse"]

class Parser(argparse.ArgumentParser):
    """Raises UsageError in place of printing a usage block and leaving. language: of its help, "en" or "zh"."""

    language = "en"

    def error(self, message: str) -> NoReturn:
        raise UsageError(_told(message), hint=say("see_help", program=self.prog))

    def format_help(self) -> str:
        """In the language that was asked for, as ``parse`` found it."""
        if self.language != "zh":
            return super().format_help()
        from .help_in_chinese import translate

        translate(self)
        return super().format_help().replace("usage: ", "用法：", 1)

    def _print_message(self, message: str, file: Any = None) -> None:
        """argparse's own forgets that it could not write."""
        (file or sys.stderr).write(message)


def _told(message: str) -> str:
    """What argparse says most often as reasons, which have Chinese; the rest as it is."""
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


def parse(parser: Parser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse, taking --dashed-names for --underscored_names. Raises UsageError."""
    parser.language = language_of(asked_in(arguments))
    for text in arguments:
        if re.fullmatch(r"--[a-z][a-z0-9_-]*=--", text):  # argparse takes this value for the end of the options
            raise UsageError("'--' is no value", where=text.removesuffix("=--"), hint="give it one")
    return parser.parse_args([_underscored(text) for text in arguments])


def _underscored(text: str) -> str:
    name, equals, value = text.partition("=")
    if re.fullmatch(r"--[a-z][a-z0-9_-]*", name):
        return "--" + name[2:].replace("-", "_") + equals + value
    return text


def formatter(prog: str) -> argparse.HelpFormatter:
    """Help as wide as the terminal, defaults kept in the text."""
    return argparse.RawDescriptionHelpFormatter(prog, max_help_position=34)


def program(verb: str = "") -> str:
    """How this program was called."""
    name = "python -m precision_debug" if sys.argv[0].endswith("__main__.py") else "precision_debug"
    return f"{name} {verb}".strip()
