"""The command line: a verb is a file here, or one that a product declares. Without a verb it compares."""

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
from types import ModuleType

from ..errors import PrecisionDebugError, UsageError
from ..reasons import say
from ..safety import import_path
from ..safety.nearest import find_nearest
from ..safety.untrusted import make_visible
from . import completion, polygraphy, streams

__all__ = ["main", "module_of", "verbs"]

_SUMMARY = re.compile(r'^SUMMARY = "(.+)"$(?:\nSUMMARY_ZH = "(.+)"$)?', re.MULTILINE)


@functools.cache
def verbs() -> Mapping[str, tuple[str, str]]:
    """Return every verb, a module that says ``SUMMARY = "…"`` and below it ``SUMMARY_ZH = "…"``, and both.

    No verb is imported for it.
    """
    found = {name: _SUMMARY.search(_summary_of(module)) for name, module in _list_modules().items()}
    return {name: (said[1], said[2] or said[1]) for name, said in found.items() if said is not None}


def module_of(verb: str) -> ModuleType:
    """Return the module that runs a verb."""
    return importlib.import_module(_list_modules()[verb])


def _list_modules() -> Mapping[str, str]:
    """Return those of this folder, and the verbs of the products, "compare" first."""
    from .. import registry  # main has left the current folder's files out by then

    here = {found.name: f"{__name__}.{found.name}" for found in pkgutil.iter_modules(__path__)}
    found = here | dict(registry.list_behind_door("verbs"))
    return {name: found[name] for name in sorted(found, key=lambda name: (name != "compare", name))}


def _summary_of(module: str) -> str:
    package, _, name = module.rpartition(".")
    return (pkgutil.get_data(package, f"{name}.py") or b"").decode()


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
        import_path.remove_front_folder()
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
            status = _say(_format_error(error), 3, verbose) if error.code else _status_after_printing()
    except BrokenPipeError:
        status = _UNREAD
    except BaseException as error:
        known = _as_machine_error(error)
        status = (
            _say(_format_error(error), 3, verbose) if known is None
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
    if completion.is_completion_asked():
        arguments = completion.begin(verbs())
    if arguments[:1] in (["help"], ["version"]):
        arguments = ["--version"] if arguments[0] == "version" else [*arguments[1:2], "--help"]
    if arguments and not re.match("[-\u2010-\u2015\u2212]", arguments[0]) and arguments[0] not in verbs():
        if foreign := polygraphy.answer_polygraphy_words(arguments):
            raise UsageError(foreign)
        raise _refuse_unknown_verb(arguments[0])
    verb = arguments.pop(0) if arguments and arguments[0] in verbs() else "compare"
    return int(module_of(verb).run(arguments))


def _refuse_unknown_verb(name: str) -> UsageError:
    """Return a word where a verb stands: a mistyped one, or a model."""
    near = [] if os.path.exists(name) else find_nearest(name, list(verbs()))
    if near or not ("." in name or os.path.exists(name)):
        hint = say("did_you_mean", names=[repr(one) for one in near]) if near else ""
        return UsageError(say("no_verb", name=name), hint=hint or say("see_help", program="precision_debug"))
    return UsageError(
        say("a_model_needs_its_option"), where=name, hint=say("write_model_file", name=shlex.quote(name))
    )  # fmt: skip


def _error_line(error: PrecisionDebugError, arguments: Sequence[str]) -> str:
    """Return the error's line in the language that --lang asks for, or the terminal's."""
    from .parser import find_requested_language, format_error_line

    return format_error_line(error, find_requested_language(arguments))


def _status_after_printing() -> int:
    """0 where all that was printed could be written, else 3."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _UNREAD
    except OSError as error:
        return _say(_format_error(error), 3)
    return 0


def _as_machine_error(error: BaseException) -> PrecisionDebugError | None:
    """Return what the machine refuses, a full disk among it; None where standard output is what cannot be written."""
    if isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and streams.is_lost(sys.stdout, "\n")):
        return None
    try:
        from ..run.child import as_machine_error
    except OSError:  # no file can be opened any more, not even that
        return UsageError("too many open files", hint="raise the limit: ulimit -n 1024")
    return as_machine_error(error)


def _format_error(error: BaseException) -> str:
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
        print(f"precision_debug: {make_visible(line)}", file=sys.stderr, flush=True)
    return status
