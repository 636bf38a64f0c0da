"""A command of the user's that says whether a saved model is good enough: by its exit status, nothing else."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ...errors import UsageError, shortened
from ...reasons import say
from ...settings import Setting

__all__ = ["PLACE", "CheckCommand", "saved_as"]

PLACE = "{model}"
"""Stands for the saved model's path, as often as the command has it."""

_FILES = {"save_engine": "set.engine", "save_model": "set.onnx", "save_ir": "set.xml"}
"""The settings by which a mode saves what it runs, the nearest to the engine first, and the file's name."""

_NOT_RUN = {126: "cannot be executed", 127: "was not found"}
"""What a shell says of a command that did not run at all."""


@dataclass(frozen=True, kw_only=True)
class CheckCommand:
    """words: the program and its arguments; no shell reads them."""

    words: tuple[str, ...]

    @classmethod
    def of(cls, text: str) -> CheckCommand:
        """Raises UsageError for what cannot be run, or does not say where the model's path goes."""
        try:
            words = tuple(shlex.split(text))
        except ValueError as error:
            raise UsageError(f"its quotes do not match ({error})", where="--check", hint=_EXAMPLE) from error
        if "\0" in text:
            raise UsageError("contains a NUL character", where="--check", hint=_EXAMPLE)
        if not any(PLACE in word for word in words[1:]):
            raise UsageError(say("no_place_for_model", place=PLACE), where="--check",
                             hint=_EXAMPLE)  # fmt: skip
        if shutil.which(words[0]) is None:
            raise UsageError(f"program not found: {words[0]}", where="--check", hint=_EXAMPLE)
        return cls(words=words)

    def passes(self, path: Path) -> tuple[bool, str]:
        """Whether it ends with status 0 on a model, and what to say where it does not.

        It runs in the current folder; what it prints goes where this process prints. Raises UsageError where it did
        not run at all.
        """
        if not path.exists():
            raise UsageError("the run mode saved no model to check", where="--check", hint="name another run mode")
        words = [word.replace(PLACE, str(path)) for word in self.words]
        try:
            status = subprocess.run(words, stdin=subprocess.DEVNULL, check=False).returncode
        except OSError as error:
            raise UsageError(f"cannot be started: {error.strerror}", where="--check", hint=_EXAMPLE) from error
        if status in _NOT_RUN:
            raise UsageError(f"its command {_NOT_RUN[status]} (status {status})", where="--check",
                             hint="try the command by hand")  # fmt: skip
        if status < 0:
            return False, f"the check was ended by signal {-status}"
        return status == 0, "" if status == 0 else f"the check ends with status {status}"

    @property
    def text(self) -> str:
        """As it was typed, shortened."""
        return shortened(shlex.join(self.words), 120)


_EXAMPLE = say("such_as", example=f'--check "python check.py {PLACE}"')


def saved_as(settings: Sequence[Setting], mode: str) -> tuple[str, str]:
    """The target's setting that saves what a mode runs, and a name for the file; ("", "") where it saves nothing."""
    for name, file in _FILES.items():
        if any(setting.name == name and setting.matters("target", mode) for setting in settings):
            return name, file
    return "", ""
