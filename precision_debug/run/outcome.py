"""What came of a run in a child process: its report, and the error that it ended with."""

from __future__ import annotations

import contextlib
import shutil
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from ..errors import BackendCrash, BackendError, OutputError, PrecisionDebugError
from ..events import Failure
from ..reasons import NOTHING, Reason, say
from ..report.failure import sentence_of
from ..report.model import Report
from .bare import runs_with, whose_crash
from .companion_files import keep_log
from .deliver import deliver, has_rows, rescue
from .error_transport import error_of as error_in
from .folder import JOURNAL, LOG
from .interrupts import Stopping
from .journal import UNTOLD, read_events
from .last_output import last_words
from .last_stage import last_stage

__all__ = ["Outcome", "error_of", "finished"]


class Outcome:
    """What came of a supervised run. report: None where nothing had been started. error: why it ended early."""

    def __init__(self, report: Report | None, error: PrecisionDebugError | None) -> None:
        self.report, self.error = report, error

    @property
    def exit_status(self) -> int:
        """The error's, else the report's."""
        if self.error is not None:
            return self.error.exit_status
        return self.report.exit_status if self.report is not None else 0


def finished(
    folder: Path, outputs: Sequence[Path], failed: PrecisionDebugError | None, stopping: Stopping, language: str,
    on_writing: Callable[[], object],
) -> Outcome:  # fmt: skip
    """on_writing: called before a report is made, which takes seconds where there are many tensors."""
    if failed is not None and not has_rows(folder):
        if isinstance(failed, BackendError) and outputs:
            with contextlib.suppress(OutputError):
                keep_log(folder / LOG, outputs)
        shutil.rmtree(folder, ignore_errors=True)
        return Outcome(None, failed)
    if outputs:
        on_writing()
    try:
        with stopping.finishing("the report is being written"):
            failure = sentence_of(failed) if failed else NOTHING
            return Outcome(deliver(folder, outputs, failure=failure, language=language), failed)
    except OutputError as error:
        return Outcome(None, error)
    except KeyboardInterrupt:
        return Outcome(None, BackendError("interrupted while the report was written", hint=rescue(folder)))


def error_of(folder: Path, status: int, interrupted: bool) -> PrecisionDebugError | None:
    """Return the error that a run ended with, by its exit status, journal and log; None where there is none."""
    if not (folder / JOURNAL).exists():
        return OutputError(say("folder_gone"), where=str(folder), hint=say("leave_it"))
    if interrupted and status != 0:
        hint = say("rows_in_report") if has_rows(folder) else say("nothing_yet")
        return BackendError(say("interrupted"), hint=hint)
    failure = next(read_events(folder / JOURNAL, Failure), None)
    if isinstance(failure, Failure):
        return error_in(failure)
    if status == 0:
        return None
    if status == UNTOLD:
        return OutputError(say("disk_full"), where=str(folder.parent), hint=say("free_space"))
    stage = last_stage(folder / JOURNAL)
    last = last_words(folder / LOG, headed=True)

    def crash(what: Reason, hint: Reason) -> BackendCrash:
        return BackendCrash(say("last_words", what=what, words=last) if last else what, where=stage, hint=hint)

    if status < 0:
        name = signal.Signals(-status).name
        if -status == signal.SIGKILL:
            return crash(say("killed", signal=name), say("smaller"))
        crashed = say("crashed", signal=name)
        whose = whose_crash(folder)
        typed = runs_with(folder)
        hint = say("runs_with", option=typed) if typed else say("verbose_shows")
        return crash(say("crashed_whose", what=crashed, whose=whose) if whose else crashed, hint)
    return crash(say("ended_with", status=status), say("verbose_shows"))

