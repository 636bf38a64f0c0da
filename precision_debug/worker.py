"""The supervised child process, started with a run's folder as its one argument and an import path made for it.

Reads FOLDER/job.json, runs it, and tells FOLDER/journal.jsonl. Standard input is a pipe from the supervisor that is
never written to: when it closes, the supervisor is gone, and the worker delivers the partial report itself.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from pathlib import Path
from typing import NoReturn

from . import deliver, import_path, pipeline
from .codec import decode
from .errors import BackendError, PrecisionDebugError
from .journal import Journal
from .records import RunSpec

__all__ = ["main", "start"]


def main(folder: Path) -> int:
    """Run the job of a folder; returns the exit status of what went wrong, 0 where nothing did."""
    job = json.loads((folder / deliver.JOB).read_text(encoding="utf-8"))
    outputs = tuple(Path(path) for path in job["outputs"])
    threading.Thread(target=_outlive, args=(folder, outputs), daemon=True).start()
    with Journal(folder / deliver.JOURNAL) as journal:
        try:
            pipeline.execute(decode(RunSpec, job["spec"]), journal, folder=folder)
        except PrecisionDebugError as error:
            traceback.print_exc()
            _fail(journal, error)
            return error.exit_status
        except Exception as error:
            traceback.print_exc()
            known = BackendError(
                f"internal error: {type(error).__name__}: {error}", hint="please report it with the output of --verbose"
            )
            _fail(journal, known)
            return known.exit_status
    return 0


def _fail(journal: Journal, error: PrecisionDebugError) -> None:
    journal.write(
        "failure", text=str(error), kind=type(error).__name__, what=error.what, where=error.where, hint=error.hint
    )


def _outlive(folder: Path, outputs: tuple[Path, ...]) -> None:
    while os.read(0, 4096):
        pass
    deliver.deliver(folder, outputs, failure="the supervising process was killed")
    os._exit(3)


def start() -> NoReturn:
    """What the supervisor runs (see ``import_path.command``)."""
    import_path.clean()
    sys.exit(main(Path(sys.argv[1])))
