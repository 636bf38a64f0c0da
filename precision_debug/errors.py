"""Everything this package raises on purpose, and the exit status that each one means.

    PrecisionDebugError            exit status 2
    ├── UsageError                 2   options that are wrong or do not fit together
    ├── ModelError                 2   a model file that cannot be read or has not what was asked of it
    │   └── NothingToQuantise      2   a model in which a quantising run mode changes nothing
    ├── InputError                 2   feeds that do not fit the model's inputs
    ├── MarkError                  2   marked names that the model does not have
    ├── RecordingError             2   a recorded run that is partial, damaged or of another version
    ├── OutputError                2   a report that cannot be written where it was asked for
    ├── BackendUnavailable         2   a run mode that cannot run here: package, device or format is missing
    └── BackendError               3   a framework failed while building or running
        └── BackendCrash           3   it took its process with it (abort, signal, out of memory)

A message is one line: what happened, where (file, node, backend), and what to type next.
Backends raise these at their boundary, chained with ``from``; ``--verbose`` shows the chain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .safety.untrusted import make_visible

__all__ = [
    "BackendCrash",
    "BackendError",
    "BackendUnavailable",
    "InputError",
    "MarkError",
    "ModelError",
    "NothingToQuantise",
    "OutputError",
    "PrecisionDebugError",
    "RecordingError",
    "UsageError",
    "shorten",
    "translate_errors",
]


class PrecisionDebugError(Exception):
    """Base class of every error that this package raises on purpose.

    what: one clause saying what happened. where: the file, node, option or backend concerned.
    hint: what the reader can do next. ``str()`` joins them on one line.
    """

    exit_status = 2

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        self.what = _keep_on_one_line(what)
        self.where = _keep_on_one_line(where)
        self.hint = _keep_on_one_line(hint)
        super().__init__(str(self))

    def __str__(self) -> str:
        text = f"{self.where}: {self.what}" if self.where else self.what
        return f"{text}; {self.hint}" if self.hint else text

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.what, self.where, self.hint)


def _keep_on_one_line(text: str) -> str:
    """On one line; a Reason that is so already stays one, for those who read it in another language."""
    line = _join_lines(text)
    return text if line == text else line


def _rebuild(kind: type[PrecisionDebugError], what: str, where: str, hint: str) -> PrecisionDebugError:
    return kind(what, where=where, hint=hint)


_LONG_WORD = 100


def shorten(text: str, limit: int = 800) -> str:
    """Shorten a text to one line of at most about ``limit`` characters.

    It keeps both ends: what failed stands at the one, why at the other. Long words (node names, paths) give way first.
    """
    line = _join_lines(text)
    if len(line) > limit:
        line = re.sub(rf"\S{{{_LONG_WORD},}}", lambda word: _cut_middle_out(word[0], _LONG_WORD), line)
    return _cut_middle_out(line, limit)


def _cut_middle_out(text: str, limit: int) -> str:
    half = (limit - 1) // 2
    return text if len(text) <= limit else f"{text[:half]}…{text[-half:]}"


def _join_lines(text: str) -> str:
    return make_visible(" ".join(str(text).split()))


class UsageError(PrecisionDebugError):
    """Options that are wrong or do not fit together."""


class ModelError(PrecisionDebugError):
    """A model file that cannot be read, or that lacks what was asked of it."""


class NothingToQuantise(ModelError):
    """A model in which a run mode that quantises changes nothing: no engine's doing."""


class InputError(PrecisionDebugError):
    """Feeds whose names, shapes or types do not fit the model's inputs."""


class MarkError(PrecisionDebugError):
    """Marked tensor names that the model does not have."""


class RecordingError(PrecisionDebugError):
    """A recorded run that is partial, damaged, or of another format version."""


class OutputError(PrecisionDebugError):
    """A report that cannot be written where it was asked for."""


class BackendUnavailable(PrecisionDebugError):
    """A run mode that cannot run here; ``hint`` says what it needs."""


class BackendError(PrecisionDebugError):
    """A framework failed while building or running a model."""

    exit_status = 3


class BackendCrash(BackendError):
    """A framework ended its process: abort, signal, or killed for memory."""


@contextmanager
def translate_errors(where: str, ours: Callable[[Exception], PrecisionDebugError]) -> Iterator[None]:
    """Turn what a call of a framework raises into one of our errors, chained; our own pass as they are.

    where: the model's file, for the one failure that all frameworks share, memory. ours: makes the error of any other.
    """
    try:
        yield
    except PrecisionDebugError:
        raise
    except MemoryError as error:
        raise BackendError("out of memory", where=where, hint="use a smaller batch or mark fewer tensors") from error
    except Exception as error:
        raise ours(error) from error
