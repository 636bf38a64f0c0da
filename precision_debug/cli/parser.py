"""Argument parsing that every verb shares."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from ..errors import UsageError
from ..reasons import say

__all__ = ["Parser", "parse"]

_UNKNOWN = "unrecognized arguments: "
"""How argparse begins what it says most often."""


class Parser(argparse.ArgumentParser):
    """Raises UsageError in place of printing a usage block and leaving."""

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix(_UNKNOWN)
        what = say("unknown_options", names=unknown) if unknown != message else message
        raise UsageError(what, hint=say("see_help", program=self.prog))

    def _print_message(self, message: str, file: Any = None) -> None:
        """argparse's own forgets that it could not write."""
        (file or sys.stderr).write(message)


def parse(parser: argparse.ArgumentParser, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse, taking --dashed-names for --underscored_names. Raises UsageError."""
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
