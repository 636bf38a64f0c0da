"""The command line: one file per verb. Without a verb it compares."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

from .. import import_path
from ..errors import PrecisionDebugError

__all__ = ["VERBS", "main"]

VERBS = {
    "compare": "compare two run modes of a model (the default)",
    "doctor": "which run modes run here, and what the others need",
    "marks": "list a model's tensor names in execution order, to mark some of them",
    "inspect": "read TensorRT engine-inspector files: layers, real precision, fused outputs",
    "ladder": "climb an engine's optimisation stages one at a time, and bisect the one that brings the mismatch",
    "report": "write a report again in another format, or rescue one from an interrupted run",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns its exit status (see ``precision_debug --help``)."""
    if argv is None:
        import_path.clean()
    arguments = list(sys.argv[1:] if argv is None else argv)
    verb = arguments.pop(0) if arguments and arguments[0] in VERBS else "compare"
    module = importlib.import_module(f".{verb}", __name__)
    try:
        return int(module.run(arguments))
    except PrecisionDebugError as error:
        if "--verbose" in arguments:
            raise
        print(f"precision_debug: {error}", file=sys.stderr)
        return error.exit_status
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 2
    except KeyboardInterrupt:
        print("precision_debug: interrupted", file=sys.stderr)
        return 3
