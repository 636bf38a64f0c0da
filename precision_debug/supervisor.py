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

from . import errors, import_path
from .codec import encode
from .deliver import JOB, JOURNAL, LOG, deliver
from .errors import BackendCrash, BackendError, OutputError, PrecisionDebugError, UsageError
from .journal import read_events
from .records import RunSpec
from .report import make_ready
from .report.model import Report

__all__ = ["Outcome", "supervise"]

Event = Mapping[str, Any]


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
) -> Outcome:
    """Run a command in a child process and deliver its report.

    outputs: files to write, at least one unless the run is only recorded. verbose: what the child prints goes to
    standard error too. on_event: called with each event of the journal as it comes. Ctrl-C ends the child, delivers
    the partial report, and is reported as an error; it is not raised.
    """
    home = outputs[0].parent if outputs else Path(spec.record).parent
    with _locked(outputs), _terminable():
        try:
            home.mkdir(parents=True, exist_ok=True)
            folder = Path(tempfile.mkdtemp(prefix=".precision_debug-", dir=home))
        except OSError as error:
            raise OutputError(
                f"cannot write there: {error.strerror}", where=str(home), hint="name another --output"
            ) from error
        job = {"spec": encode(spec), "outputs": [str(path) for path in outputs]}
        (folder / JOB).write_text(json.dumps(job), encoding="utf-8")
        make_ready(outputs)
        status, interrupted = _run(folder, verbose, on_event or _ignore)
        failed = _error(folder, status, interrupted)
        if failed is not None and not _has_rows(folder):
            log = folder / LOG
            if isinstance(failed, BackendError) and outputs and log.exists() and log.stat().st_size:
                os.replace(log, outputs[0].with_suffix(".log"))
            shutil.rmtree(folder, ignore_errors=True)
            return Outcome(None, failed)
        return Outcome(deliver(folder, outputs, failure=str(failed) if failed else ""), failed)


def _run(folder: Path, verbose: bool, on_event: Callable[[Event], None]) -> tuple[int, bool]:
    journal = folder / JOURNAL
    journal.touch()
    with (folder / LOG).open("wb") as log, journal.open(encoding="utf-8") as tail:
        child = subprocess.Popen(
            [*import_path.command("from precision_debug.worker import start; start()"), str(folder)],
            stdin=subprocess.PIPE,
            stdout=None if verbose else log,
            stderr=None if verbose else log,
            start_new_session=True,
        )
        interrupted = False
        try:
            while child.poll() is None:
                _follow(tail, on_event)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=0.03)
            _follow(tail, on_event)
        except KeyboardInterrupt:
            interrupted = True
        finally:
            if child.poll() is None:
                # the whole process group, since a backend may have started helpers; killed before its stdin closes,
                # so that the worker does not take itself for orphaned
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()
            if child.stdin is not None:
                child.stdin.close()
    return child.returncode, interrupted


def _ignore(event: Event) -> None:
    pass


def _follow(tail: IO[str], on_event: Callable[[Event], None]) -> None:
    while True:
        place = tail.tell()
        line = tail.readline()
        if not line.endswith("\n"):
            tail.seek(place)
            return
        on_event(json.loads(line))


def _error(folder: Path, status: int, interrupted: bool) -> PrecisionDebugError | None:
    if interrupted:
        return BackendError("interrupted", hint="the finished rows are in the report")
    told = next((event for event in read_events(folder / JOURNAL) if event["event"] == "failure"), None)
    if told is not None:
        kind = getattr(errors, told["kind"], BackendError)
        error: PrecisionDebugError = kind(told["what"], where=told["where"], hint=told["hint"])
        return error
    if status == 0:
        return None
    stage = ""
    for event in read_events(folder / JOURNAL):
        if event["event"] == "stage":
            stage = event["text"]
    last = _last_words(folder / LOG)
    said = f" (its last words: {last})" if last else ""
    if status < 0:
        name = signal.Signals(-status).name
        if -status == signal.SIGKILL:
            return BackendCrash(
                f"the process was killed ({name}), usually for using too much memory{said}",
                where=stage,
                hint="use a smaller batch, mark fewer tensors, or set --memory_budget",
            )
        return BackendCrash(f"the process crashed ({name}){said}", where=stage, hint="--verbose shows all it printed")
    return BackendCrash(
        f"the process ended with status {status}{said}", where=stage, hint="--verbose shows all it printed"
    )


def _last_words(log: Path) -> str:
    if not log.exists():
        return ""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - 4096))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""


def _has_rows(folder: Path) -> bool:
    return any(event["event"] in ("saved", "row") for event in read_events(folder / JOURNAL))


@contextlib.contextmanager
def _locked(outputs: Sequence[Path]) -> Iterator[None]:
    """Hold every output for this run alone; a second run into the same file is refused, not mixed in."""
    from filelock import FileLock, Timeout

    with contextlib.ExitStack() as stack:
        for output in sorted({path.resolve() for path in outputs}):
            lock = output.with_name(f".{output.name}.lock")
            try:
                output.parent.mkdir(parents=True, exist_ok=True)
                held = FileLock(lock, timeout=0)
                held.acquire()
                stack.callback(held.release)
                stack.callback(lock.unlink, missing_ok=True)
            except Timeout:
                raise UsageError(
                    "another run is writing this report",
                    where=str(output),
                    hint="wait for it, or name another --output",
                ) from None
            except OSError as error:
                raise OutputError(
                    f"cannot write there: {error.strerror}", where=str(output), hint="name another --output"
                ) from error
        yield


@contextlib.contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM is handled as Ctrl-C while a run is on."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # not in the main thread
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
