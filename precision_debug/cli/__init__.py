"""The command line: one file a verb, and nothing else to change for a new one. Without a verb it compares."""

from __future__ import annotations

import contextlib
import errno
import functools
import importlib
import os
import pkgutil
import re
import shlex
import sys
import traceback
from collections.abc import Mapping, Sequence

from ..errors import PrecisionDebugError, UsageError
from ..reasons import say
from ..safety import import_path
from ..safety.nearest import nearest
from ..safety.visible import visible
from . import completion, polygraphy, streams

__all__ = ["main", "verbs"]

_SUMMARY = re.compile(r'^SUMMARY = "(.+)"$(?:\nSUMMARY_ZH = "(.+)"$)?', re.MULTILINE)


@functools.cache
def verbs() -> Mapping[str, tuple[str, str]]:
    """Every verb, a module of this folder that says ``SUMMARY = "…"`` and below it ``SUMMARY_ZH = "…"``, and both; none
    is imported for it."""
    names = sorted((found.name for found in pkgutil.iter_modules(__path__)), key=lambda name: (name != "compare", name))
    summaries = {name: _SUMMARY.search((pkgutil.get_data(__name__, f"{name}.py") or b"").decode()) for name in names}
    return {name: (found[1], found[2] or found[1]) for name, found in summaries.items() if found is not None}


_UNREAD = 128 + 13
"""The status where nobody reads on, as after ``| head``: what a shell gives to a program that SIGPIPE ends."""

_OF_STREAMS = (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG, errno.EDQUOT)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status (see ``precision_debug --help``).

    Whatever happens ends with a status and one line: 3 for an exception that is none of ours, also where what was
    printed could not be written. Where nobody reads on (``| head``) it ends quietly, with 141.
    """
    if argv is None:
        _begin_in_utf8()
        import_path.clean()
    streams.make_ready()
    arguments = list(sys.argv[1:] if argv is None else argv)
    verbose = not {"--verbose", "-v"}.isdisjoint(arguments)
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except PrecisionDebugError as error:
        status = _say(_error_line(error, arguments), error.exit_status, verbose)
    except KeyboardInterrupt:
        status = _say("interrupted", 3)
    except SystemExit as error:  # of argparse after --help and --version, or of rich where nobody reads what it prints
        if isinstance(error.__context__, BrokenPipeError):
            status = _UNREAD
        else:
            status = _say(_line(error), 3, verbose) if error.code else _said()
    except BrokenPipeError:
        status = _UNREAD
    except BaseException as error:
        known = _of_the_machine(error)
        status = (
            _say(_line(error), 3, verbose) if known is None
            else _say(_error_line(known, arguments), known.exit_status, verbose)
        )  # fmt: skip
    streams.settle()
    return status


def _begin_in_utf8() -> None:
    """Begin anew with UTF-8 where the locale has no letters for a name that is UTF-8 all the same (LC_ALL=POSIX)."""
    if sys.getfilesystemencoding().lower().replace("-", "") == "utf8" or len(sys.orig_argv) < 2:
        return
    strange = [one for one in (*sys.argv, os.getcwd()) if not one.isascii()]
    with contextlib.suppress(UnicodeDecodeError, OSError):
        for one in strange:
            os.fsencode(one).decode("utf-8")
        if strange:
            os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], {**os.environ, "PYTHONUTF8": "1"})


def _run(arguments: list[str]) -> int:
    if completion.wanted():
        arguments = completion.begin(verbs())
    if arguments[:1] in (["help"], ["version"]):
        arguments = ["--version"] if arguments[0] == "version" else [*arguments[1:2], "--help"]
    if arguments and not arguments[0].startswith("-") and arguments[0] not in verbs():
        if foreign := polygraphy.answer(arguments):
            raise UsageError(foreign)
        raise _no_verb(arguments[0])
    verb = arguments.pop(0) if arguments and arguments[0] in verbs() else "compare"
    return int(importlib.import_module(f".{verb}", __name__).run(arguments))


def _no_verb(name: str) -> UsageError:
    """A word where a verb stands: a mistyped one, or a model."""
    near = [] if os.path.exists(name) else nearest(name, list(verbs()))
    if near or not ("." in name or os.path.exists(name)):
        hint = say("did_you_mean", names=[repr(one) for one in near]) if near else ""
        return UsageError(say("no_verb", name=name), hint=hint or say("see_help", program="precision_debug"))
    return UsageError(
        say("a_model_needs_its_option"), where=name, hint=say("write_model_file", name=shlex.quote(name))
    )  # fmt: skip


def _error_line(error: PrecisionDebugError, arguments: Sequence[str]) -> str:
    """The error's line in the language that --lang asks for, or the terminal's."""
    from .language import error_line, requested_language

    return error_line(error, requested_language(arguments))


def _said() -> int:
    """0 where all that was printed could be written, else 3."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _UNREAD
    except OSError as error:
        return _say(_line(error), 3)
    return 0


def _of_the_machine(error: BaseException) -> PrecisionDebugError | None:
    """What the machine refuses, a full disk among it; None where standard output is what cannot be written."""
    if isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and streams.is_lost(sys.stdout, "\n")):
        return None
    try:
        from ..run.error_transport import of_the_machine
    except OSError:  # no file can be opened any more, not even that
        return UsageError("too many open files", hint="raise the limit: ulimit -n 1024")
    return of_the_machine(error)


def _line(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno in _OF_STREAMS and streams.is_lost(sys.stdout, "\n"):
        return f"standard output cannot be written: {error.strerror or error}"
    if isinstance(error, MemoryError):
        return "out of memory; use a smaller batch or mark fewer tensors"
    text = " ".join(str(error).split())
    return f"internal error: {type(error).__name__}{': ' if text else ''}{text}; --verbose shows the traceback"


def _say(line: str, status: int, verbose: bool = False) -> int:
    """Write one line to standard error, where that is possible; returns the status."""
    with contextlib.suppress(OSError, ValueError):
        if verbose:
            traceback.print_exc()
        print(f"precision_debug: {visible(line)}", file=sys.stderr, flush=True)
    return status
