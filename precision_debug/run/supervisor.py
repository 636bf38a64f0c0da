"""Runs the sessions in a child process, so that an abort in a backend costs nothing that was finished."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from .. import errors
from ..codec import encode
from ..errors import BackendCrash, BackendError, OutputError, PrecisionDebugError, UsageError, shortened
from ..events import Failure, Stage
from ..reasons import NOTHING, Reason, say
from ..records import RunSpec
from ..report import make_ready
from ..report.failure import sentence_of
from ..report.model import Report
from ..safety import import_path
from ..search.asked import Asked
from .companion_files import keep_log, log_head
from .dead_runs import clear_leftovers
from .deliver import JOB, JOURNAL, LOG, PREFIX, deliver, has_rows, rescue
from .hearing import Hearing
from .interrupts import Stopping, watching
from .journal import UNTOLD, read_events
from .locking import lock_of, release, take
from .overwriting import refuse_overwriting
from .spreading.asked import Spread

__all__ = ["Outcome", "supervise"]

Event = Mapping[str, Any]
"""An event of the journal as it stands there: see ``events.read``."""


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


def supervise(
    spec: RunSpec,
    outputs: Sequence[Path],
    *,
    verbose: bool = False,
    on_event: Callable[[Event], None] | None = None,
    on_note: Callable[[str], None] | None = None,
    asked: Asked | None = None,
    spread: Spread | None = None,
    language: str = "",
) -> Outcome:
    """Run a command in a child process and deliver its report.

    asked: search for what to keep in higher precision too. spread: the samples go to several workers.
    language: see ``report.write``.

    outputs: files to write, at least one unless the run is only recorded. verbose: what the child prints goes to
    standard error too. on_event: called with each event of the journal as it comes. on_note: called with what is to be
    said of earlier runs. Ctrl-C, SIGTERM and SIGHUP end the child, deliver the partial report, and are reported as an
    error; they are not raised. Raises PrecisionDebugError where nothing was started.
    """
    refuse_overwriting(outputs, spec)
    outputs = [_absolute(path) for path in outputs]
    home = outputs[0].parent if outputs else _absolute(Path(spec.record)).parent
    try:
        job = {"spec": encode(spec), "outputs": [str(path) for path in outputs]}
        job |= {"search": encode(asked)} if asked is not None else {}
        job |= {"spread": encode(spread)} if spread is not None else {}
    except TypeError as error:
        raise UsageError(f"a setting has a value of no use: {error}", where="--option") from error
    with watching() as stopping, _locked(outputs) as locks, contextlib.ExitStack() as stack:
        folder, held = _made(home, {**job, "locks": [str(lock) for lock in locks]})
        stack.callback(os.close, held)
        try:
            for note in clear_leftovers(home, outputs):
                (on_note or _ignore)(note)
            make_ready(outputs)
            (folder / LOG).write_bytes(log_head(outputs))
            status = _run(folder, verbose, on_event or _ignore, stopping, (*locks.values(), held))
            failed = _error(folder, status, stopping.asked)
            return _finished(folder, outputs, failed, stopping, language)
        except BaseException:
            if not has_rows(folder):
                shutil.rmtree(folder, ignore_errors=True)
            raise


def _finished(
    folder: Path, outputs: Sequence[Path], failed: PrecisionDebugError | None, stopping: Stopping, language: str
) -> Outcome:  # fmt: skip
    if failed is not None and not has_rows(folder):
        if isinstance(failed, BackendError) and outputs:
            with contextlib.suppress(OutputError):
                keep_log(folder / LOG, outputs)
        shutil.rmtree(folder, ignore_errors=True)
        return Outcome(None, failed)
    try:
        with stopping.finishing("the report is being written"):
            failure = sentence_of(failed) if failed else NOTHING
            return Outcome(deliver(folder, outputs, failure=failure, language=language), failed)
    except OutputError as error:
        return Outcome(None, error)
    except KeyboardInterrupt:
        return Outcome(None, BackendError("interrupted while the report was written", hint=rescue(folder)))


def _absolute(path: Path) -> Path:
    """A path that stays right when the current folder goes; links in it are kept. Raises OutputError where none is."""
    try:
        absolute = Path(os.path.abspath(path))
    except OSError as error:
        raise OutputError("the current folder is gone", where=str(path), hint="name an absolute --output") from error
    try:
        os.stat(absolute)
    except FileNotFoundError:
        pass
    except (OSError, ValueError) as error:
        what = f"cannot write there: {getattr(error, 'strerror', None) or error}"
        raise OutputError(what, where=str(path), hint="name another --output") from error
    return absolute


def _made(home: Path, job: Mapping[str, Any]) -> tuple[Path, int]:
    """A run's folder with its job, and a descriptor that holds it: a folder that nobody holds is a dead run's."""
    folder = None
    try:
        home.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=home))
        held = take(folder / JOB)
        assert held is not None  # nobody else knows its name
        (folder / JOB).write_text(json.dumps(job), encoding="utf-8")
    except OSError as error:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
        what = f"cannot write there: {error.strerror or error}"
        raise OutputError(what, where=str(home), hint="name another --output") from error
    return folder, held


def _run(
    folder: Path, verbose: bool, on_event: Callable[[Event], None], stopping: Stopping, handles: Sequence[int]
) -> int:  # fmt: skip
    """The worker's exit status. handles: descriptors that it holds too, so that they outlive this process."""
    journal = folder / JOURNAL
    journal.touch()
    with (folder / LOG).open("ab") as log, journal.open(encoding="utf-8") as tail:
        child = subprocess.Popen(
            [*import_path.command("from precision_debug.run.worker import start; start()"), str(folder)],
            stdin=subprocess.PIPE,
            stdout=None if verbose else log,
            stderr=None if verbose else log,
            start_new_session=True,
            pass_fds=handles,
        )
        hearing = Hearing(folder / LOG)
        try:
            while child.poll() is None and not stopping.asked:
                on_event = _follow(tail, on_event)
                on_event = _passed_on(hearing.heard(), on_event)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=0.03)
            if not stopping.asked:
                _follow(tail, on_event)
        except KeyboardInterrupt:  # where the signals are not ours to watch
            stopping.asked = True
        finally:
            if child.poll() is None:
                # the whole process group, since a backend may have started helpers; killed before its stdin closes,
                # so that the worker does not take itself for orphaned
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            if child.stdin is not None:
                child.stdin.close()
    return child.returncode


def _ignore(event: object) -> None:
    pass


def _follow(tail: IO[str], on_event: Callable[[Event], None]) -> Callable[[Event], None]:
    """Tell of new events. Returns who is to be told next time: nobody, once telling has failed (a closed terminal)."""
    while True:
        place = tail.tell()
        line = tail.readline()
        if not line.endswith("\n"):
            tail.seek(place)
            return on_event
        try:
            on_event(json.loads(line))
        except (OSError, ValueError):
            on_event = _ignore


def _passed_on(heard: Event | None, on_event: Callable[[Event], None]) -> Callable[[Event], None]:
    """As ``_follow``, of what the engine printed."""
    try:
        if heard is not None:
            on_event(heard)
    except (OSError, ValueError):
        return _ignore
    return on_event


def _error(folder: Path, status: int, interrupted: bool) -> PrecisionDebugError | None:
    if interrupted and status != 0:
        hint = say("rows_in_report") if has_rows(folder) else say("nothing_yet")
        return BackendError(say("interrupted"), hint=hint)
    told = next(read_events(folder / JOURNAL, Failure), None)
    if isinstance(told, Failure):
        kind = getattr(errors, told.kind, BackendError)
        error: PrecisionDebugError = kind(told.what, where=told.where, hint=told.hint)
        return error
    if status == 0:
        return None
    if status == UNTOLD:
        what = "the disk is full, or files may not grow: the run could not write what it had finished"
        return OutputError(what, where=str(folder.parent), hint="free some space, or name another --output")
    stage: str = ""
    for event in read_events(folder / JOURNAL, Stage):
        stage = event.text if isinstance(event, Stage) else stage
    last = _last_words(folder / LOG)

    def crash(what: Reason, hint: Reason) -> BackendCrash:
        return BackendCrash(say("last_words", what=what, words=last) if last else what, where=stage, hint=hint)

    if status < 0:
        name = signal.Signals(-status).name
        if -status == signal.SIGKILL:
            return crash(say("killed", signal=name), say("smaller"))
        return crash(say("crashed", signal=name), say("verbose_shows"))
    return crash(say("ended_with", status=status), say("verbose_shows"))


def _last_words(log: Path) -> str:
    if not log.exists():
        return ""
    with log.open("rb") as file:
        head = len(file.readline())
        file.seek(max(head, log.stat().st_size - 4096))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return shortened(lines[-1], 400) if lines else ""


@contextlib.contextmanager
def _locked(outputs: Sequence[Path]) -> Iterator[Mapping[Path, int]]:
    """Hold every output for this run alone; a second run into the same file is refused, not mixed in."""
    with contextlib.ExitStack() as stack:
        held: dict[Path, int] = {}
        for output in outputs:
            lock = lock_of(output)
            if lock in held:
                raise UsageError("the same --output is named twice", where=str(output), hint="name it once")
            try:
                lock.parent.mkdir(parents=True, exist_ok=True)
                handle = take(lock)
            except OSError as error:
                raise OutputError(
                    f"cannot write there: {error.strerror or error}", where=str(output), hint="name another --output"
                ) from error
            if handle is None:
                raise UsageError(
                    say("report_taken"), where=str(output), hint=say("wait_for_it")
                )  # fmt: skip
            stack.callback(release, lock, handle)
            held[lock] = handle
        yield held
