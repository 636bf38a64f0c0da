"""Run engines in child processes: start and end them, carry errors and interrupts across, make one call in one."""

from __future__ import annotations

import contextlib
import errno
import importlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Any, NoReturn

from .. import errors, events
from ..errors import BackendCrash, BackendError, OutputError, PrecisionDebugError, UsageError, shorten
from ..events import Failure, read, to_plain_event
from ..reasons import say
from ..safety import import_path
from .journal import UNTOLD
from .locked_folder import make_scratch_folder

__all__ = [
    "Said",
    "Stopping",
    "as_machine_error",
    "as_ours",
    "call_in_child",
    "describe_end",
    "end",
    "make_error",
    "make_failure_event",
    "print_logs",
    "read_last_line",
    "start",
    "was_stopped",
    "watch_signals",
]  # fmt: skip


# Child processes that run engines: in a session of their own, and ended with all that they have started.
#
# Their standard input is a pipe that says whether this process still lives: when it closes, they end by themselves.

def start(
    code: str, *arguments: str, said: IO[bytes] | None, handles: Sequence[int] = ()
) -> subprocess.Popen[bytes]:  # fmt: skip
    """Run Python code in a child process.

    said: gets what it prints; None: where this process prints. handles: descriptors that it holds too, so that what
    they lock outlives this process."""
    return subprocess.Popen(
        [*import_path.make_command(code), *arguments],
        stdin=subprocess.PIPE, stdout=said, stderr=said, start_new_session=True, pass_fds=handles,
    )  # fmt: skip


def print_logs() -> None:
    """Print what our own loggers are told: in a child that is the run's log, which its caller reads."""
    logger = logging.getLogger("precision_debug")
    logger.addHandler(logging.StreamHandler())
    logger.setLevel(logging.DEBUG)


def end(child: subprocess.Popen[bytes]) -> None:
    """End it, where it has not ended, and close its standard input."""
    if child.poll() is None:
        # the whole process group, since a backend may have started helpers; killed before its stdin closes, so that
        # the child does not take itself for orphaned
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()
    if child.stdin is not None:
        with contextlib.suppress(OSError):
            child.stdin.close()


def describe_end(status: int) -> str:
    """Return how a process ended, in words: "killed by SIGKILL", "status 1"."""
    if status >= 0:
        return f"status {status}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-status).name}"
    return f"killed by signal {-status}"


# Ctrl-C, SIGTERM and SIGHUP while a run is on: asked for, then acted on where nothing can be lost.

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopping:
    """asked: whether one of the signals came.

    While something must be finished (``finishing``), the first one only says so, and the second raises
    KeyboardInterrupt.
    """

    def __init__(self) -> None:
        self.asked = False
        self._finishing = ""

    def __call__(self, *_: object) -> None:
        if self._finishing and self.asked:
            raise KeyboardInterrupt
        self.asked = True
        if self._finishing:
            with contextlib.suppress(OSError):
                os.write(2, f"precision_debug: {self._finishing}; once more leaves it\n".encode())

    @contextlib.contextmanager
    def finishing(self, what: str) -> Iterator[None]:
        """While this lasts, the first signal does not end it. what: one line that says what is going on."""
        before, self.asked, self._finishing = self.asked, False, what
        try:
            yield
        finally:
            self.asked, self._finishing = self.asked or before, ""


_now: Stopping | None = None


@contextlib.contextmanager
def watch_signals() -> Iterator[Stopping]:
    """The signals as a flag, except those that are ignored already (nohup), and outside the main thread.

    Inside another one it is the same flag: a verb that runs engines one after the other ends with the one that was
    stopped.
    """
    global _now  # noqa: PLW0603
    if _now is not None and threading.current_thread() is threading.main_thread():
        yield _now
        return
    stopping = Stopping()
    before = {}
    try:
        for number in _SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                before[number] = signal.signal(number, stopping)
    except ValueError:  # not in the main thread
        yield stopping
        return
    _now = stopping
    try:
        yield stopping
    finally:
        _now = None
        for number, handler in before.items():
            signal.signal(number, handler)


def was_stopped() -> bool:
    """Return whether one of the signals came while ``watch_signals``."""
    return _now is not None and _now.asked


# What a process printed last, where it ended without saying why.

def read_last_line(log: Path, *, headed: bool = False) -> str:
    """Return the last line of a log that is not empty; "" where there is none. headed: its first line is ours."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        head = len(file.readline()) if headed else 0
        file.seek(max(head, log.stat().st_size - 4096))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return shorten(lines[-1], 400) if lines else ""


# An error of ours as it travels from one process to another.

def make_failure_event(error: PrecisionDebugError) -> events.Failure:
    """Return the event that tells of it. A backend's own kind of an error travels as the one of ours that it is."""
    ours = (kind.__name__ for kind in type(error).__mro__ if getattr(errors, kind.__name__, None) is kind)
    return events.Failure(
        text=str(error), kind=next(ours, type(error).__name__), what=error.what, where=error.where, hint=error.hint
    )


def make_error(failure: events.Failure) -> PrecisionDebugError:
    """Return the inverse; of a kind that this version does not know, BackendError."""
    kind = getattr(errors, failure.kind, BackendError)
    error: PrecisionDebugError = kind(failure.what, where=failure.where, hint=failure.hint)
    return error


def as_ours(error: BaseException) -> PrecisionDebugError:
    """Any exception as one of ours; one that nobody expected says so."""
    if isinstance(error, PrecisionDebugError):
        return error
    known = as_machine_error(error)
    if known is not None:
        return known
    text = shorten(f"internal error: {type(error).__name__}: {error}", 400)
    return BackendError(text, hint="please report it with the output of --verbose")


def as_machine_error(error: BaseException) -> PrecisionDebugError | None:
    """Return what the machine refuses, which is not a fault of anybody's code: room, memory, descriptors, processes."""
    cause: BaseException | None = error
    while cause is not None:
        where = str(getattr(cause, "filename", None) or "")
        match getattr(cause, "errno", None):
            case errno.ENOSPC | errno.EDQUOT | errno.EFBIG:
                return OutputError(say("disk_full"), where=where, hint=say("free_space"))
            case errno.EMFILE | errno.ENFILE:
                return UsageError(say("no_descriptors"), where=where, hint=say("more_descriptors"))
            case errno.EAGAIN if isinstance(cause, BlockingIOError):
                return UsageError(say("no_processes"), where=where, hint=say("more_processes"))
            case errno.EROFS | errno.EACCES | errno.EPERM if where:
                reason = getattr(cause, "strerror", None) or str(cause)
                return OutputError(say("cannot_write", error=reason), where=where, hint=say("another_place"))
        if isinstance(cause, MemoryError) or getattr(cause, "errno", None) == errno.ENOMEM:
            return BackendError(say("out_of_memory"), hint=say("smaller"))
        cause = cause.__cause__ or cause.__context__
    return None


# One call of a function of ours in a child process: for what runs an engine and gives plain values, no report.
#
# The same as for a run holds: a crash of the engine is one line, the signals end it within a moment, and what it wrote
# is gone afterwards, or at the latest when the next command starts.

Said = Callable[[Mapping[str, Any]], None]
"""What a function calls with news, plain values, while it works."""

_JOB, _ANSWER, _LOG = "job.json", "answer.jsonl", "log.txt"


def call_in_child(
    function: str, job: Mapping[str, Any], *, where: str = "", log: Path | None = None, verbose: bool = False,
    on_said: Said | None = None,
) -> Any:  # fmt: skip
    """Return what ``module:function`` returns in a child process, called with (job, folder, said).

    job, and what is returned: plain values. folder: an existing one in TMPDIR for what the engine writes, gone
    afterwards. log: gets what the child prints; verbose: it is printed here. on_said: called with the function's news.
    Raises what the function raised of ours, BackendCrash where the process ended, and BackendError after a signal.
    """
    with watch_signals() as stopping, make_scratch_folder() as (folder, held):
        try:
            (folder / _JOB).write_text(json.dumps({"function": function, "job": dict(job)}), encoding="utf-8")
            said = log or folder / _LOG
            with said.open("ab") as file:
                code = "from precision_debug.run.child import start_call; start_call()"
                child = start(code, str(folder), said=None if verbose else file, handles=(held,))
        except OSError as error:
            what = say("cannot_write", error=error.strerror or error)
            raise OutputError(what, where="TMPDIR", hint=say("another_tmpdir")) from error
        answers = _Answers(folder / _ANSWER, on_said)
        try:
            while child.poll() is None and not stopping.asked:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=0.03)
                answers.read()
        finally:
            end(child)
        if stopping.asked:
            raise BackendError(say("interrupted"), hint=say("nothing_yet"))
        answers.read()
        if answers.failure is not None:
            raise make_error(answers.failure)
        if not answers.came:
            raise _crash(child.returncode, said, where)
        return answers.answer


def start_call() -> NoReturn:
    """What ``call_in_child`` runs (see ``import_path.make_command``): writes an answer into its folder."""
    import_path.remove_front_folder()
    print_logs()
    folder = Path(sys.argv[1])
    plain = json.loads((folder / _JOB).read_text(encoding="utf-8"))
    threading.Thread(target=_clear_up_and_end, args=(folder,), daemon=True).start()
    status = 0
    try:
        with (folder / _ANSWER).open("w", encoding="utf-8") as file:

            def tell(line: Mapping[str, Any]) -> None:
                file.write(json.dumps(line) + "\n")
                file.flush()

            try:
                module, _, name = plain["function"].partition(":")
                function = getattr(importlib.import_module(module), name)
                tell({"answer": function(plain["job"], folder, lambda news: tell({"said": dict(news)}))})
            except Exception as error:
                traceback.print_exc()
                tell(to_plain_event(make_failure_event(as_ours(error))))
    except OSError:
        status = UNTOLD
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)


def _clear_up_and_end(folder: Path) -> None:
    """When the calling process is gone, this one clears up and ends, whatever its other threads are doing."""
    while os.read(0, 4096):
        pass
    code = "import shutil, sys; shutil.rmtree(sys.argv[1], ignore_errors=True)"
    os.execv(sys.executable, [sys.executable, "-I", "-S", "-c", code, str(folder)])


class _Answers:
    """What a child has written so far. came: whether its answer is there; failure: why there is none."""

    def __init__(self, path: Path, on_said: Said | None) -> None:
        self.answer: Any = None
        self.came = False
        self.failure: Failure | None = None
        self._path, self._on_said, self._place = path, on_said, 0

    def read(self) -> None:
        """Take in the whole lines that are new."""
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            file.seek(self._place)
            for line in file:
                if not line.endswith(b"\n"):
                    return
                self._place += len(line)
                self._take(json.loads(line))

    def _take(self, plain: dict[str, Any]) -> None:
        if "said" in plain:
            if self._on_said is not None:
                self._on_said(plain["said"])
        elif "answer" in plain:
            self.answer, self.came = plain["answer"], True
        else:
            event = read(plain)
            self.failure = event if isinstance(event, Failure) else None


def _crash(status: int, log: Path, where: str) -> PrecisionDebugError:
    if status == UNTOLD:
        return OutputError(say("disk_full"), where="TMPDIR", hint=say("another_tmpdir"))
    ended, words = say("child_ended", how=describe_end(status)), read_last_line(log)
    what = say("last_words", what=ended, words=words) if words else ended
    return BackendCrash(what, where=where, hint=say("verbose_shows"))
