"""The supervised child process, started with a run's folder as its one argument and an import path made for it.

Reads FOLDER/job.json, runs it, and tells FOLDER/journal.jsonl. Standard input is a pipe from the supervisor that is
never written to: when it closes, the supervisor is gone. The worker then becomes a process that only delivers the
partial report (--orphaned), whatever its threads were doing, and clears the folder away.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import shutil
import sys
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from .. import registry
from ..codec import decode
from ..errors import OutputError, PrecisionDebugError
from ..records import RunSpec
from ..safety import import_path, last_moments
from ..search.fix import SearchRequest
from ..settings.options import Workers
from . import child, pipeline
from .child import as_ours, make_failure_event
from .journal import UNTOLD, Journal
from .locked_folder import JOB, JOURNAL, LOG

__all__ = ["main", "start"]


ORPHANED = "--orphaned"

_WHOLE_WALKS = 100
"""Times that the collector looks through what is younger before it looks through everything, at least."""


def main(folder: Path) -> int:
    """Run the job of a folder; returns the exit status of what went wrong, 0 where nothing did."""
    job = json.loads((folder / JOB).read_text(encoding="utf-8"))
    if ORPHANED in sys.argv:
        return _deliver(folder, [Path(path) for path in job["outputs"]], [Path(path) for path in job["locks"]])
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with Journal(folder / JOURNAL) as journal:
        try:
            spec = decode(RunSpec, job["spec"])
            if "search" in job:
                registry.import_from_door("jobs", "search")(spec, decode(SearchRequest, job["search"]), journal, folder)
            elif "spread" in job:
                from . import parallel_run

                parallel_run.execute(spec, decode(Workers, job["spread"]), journal, folder=folder)
            else:
                pipeline.execute(spec, journal, folder=folder)
        except Exception as error:
            return _fail(journal, as_ours(error))
    return 0


def _fail(journal: Journal, error: PrecisionDebugError) -> int:
    """Tell of the error that is being handled; returns the exit status."""
    with contextlib.suppress(OSError):
        traceback.print_exc()
    try:
        journal.write(make_failure_event(error))
    except OutputError:
        return UNTOLD
    return error.exit_status


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    # other threads may be anywhere, also inside a framework that writes to the folder: a new program has none of them
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:], ORPHANED])


def _deliver(folder: Path, outputs: Sequence[Path], locks: Sequence[Path]) -> int:
    """Return what the supervisor would have done; the locks are still held by what this process has open."""
    from . import companion_files, deliver

    failure = "the supervising process was killed"
    if deliver.has_rows(folder):
        with contextlib.suppress(OutputError):  # the folder then stays, and the next run there speaks of it
            deliver.deliver(folder, outputs, failure=failure)
    else:
        if outputs:
            with (folder / LOG).open("a", encoding="utf-8") as log:
                log.write(f"{failure} before anything was compared\n")
            with contextlib.suppress(OutputError):
                companion_files.keep_log(folder / LOG, outputs)
        shutil.rmtree(folder, ignore_errors=True)
    for lock in locks:
        lock.unlink(missing_ok=True)
    return 3


def start() -> NoReturn:
    """What the supervisor runs (see ``import_path.make_command``)."""
    import_path.remove_front_folder()
    child.print_logs()
    # frameworks are a million objects that stay: to walk through all of them for each quarter more takes a second
    gc.set_threshold(*gc.get_threshold()[:2], _WHOLE_WALKS)
    status = main(Path(sys.argv[1]))
    with contextlib.suppress(Exception):
        last_moments.leave_to_the_exit()
        atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)  # what is told is in the journal: taking a framework and its models apart costs a second or two
