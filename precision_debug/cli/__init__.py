"""The command line: one file per verb. Without a verb it compares."""

from __future__ import annotations

import contextlib
import errno
import importlib
import sys
import traceback
from collections.abc import Sequence

from ..errors import PrecisionDebugError
from ..safety import import_path
from ..safety.visible import visible
from . import streams

__all__ = ["VERBS", "main"]

VERBS = {
    "compare": "compare two run modes of a model (the default)",
    "doctor": "which run modes run here, and what the others need",
    "inputs": "list a model's inputs, what each is fed by default, and a command to copy",
    "marks": "list a model's tensor names in execution order, to mark some of them",
    "inspect": "read TensorRT engine-inspector files: layers, real precision, fused outputs",
    "sweep": "several run modes in one table: error, culprit, accuracy, latency, size; and the plot of it",
    "search": "find the smallest set of operators to keep in higher precision, verify it and hand it over",
    "ladder": "climb an engine's optimisation stages one at a time, and bisect the one that brings the mismatch",
    "diff": "what changed between two reports: tensors that got better or worse, culprits that came or went",
    "report": "write a report again in another format, or rescue one from an interrupted run",
}


_OF_STREAMS = (errno.ENOSPC, errno.EIO, errno.EBADF, errno.EFBIG, errno.EDQUOT)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status (see ``precision_debug --help``).

    Whatever happens ends with a status and one line: 3 for an exception that is none of ours, also where what was
    printed could not be written.
    """
    if argv is None:
        import_path.clean()
    streams.make_ready()
    arguments = list(sys.argv[1:] if argv is None else argv)
    verbose = "--verbose" in arguments
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except PrecisionDebugError as error:
        status = _say(str(error), error.exit_status, verbose)
    except KeyboardInterrupt:
        status = _say("interrupted", 3)
    except SystemExit as error:  # of argparse after --help and --version, or of rich where nobody reads what it prints
        cause = error.__context__ if isinstance(error.__context__, BrokenPipeError) else error
        status = _say(_line(cause), 3, verbose) if error.code else _said()
    except BaseException as error:
        status = _say(_line(error), 3, verbose)
    streams.settle()
    return status


def _run(arguments: list[str]) -> int:
    verb = arguments.pop(0) if arguments and arguments[0] in VERBS else "compare"
    return int(importlib.import_module(f".{verb}", __name__).run(arguments))


def _said() -> int:
    """0 where all that was printed could be written, else 3."""
    try:
        sys.stdout.flush()
    except OSError as error:
        return _say(_line(error), 3)
    return 0


def _line(error: BaseException) -> str:
    if isinstance(error, BrokenPipeError):
        return "standard output cannot be written: nobody reads it"
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
