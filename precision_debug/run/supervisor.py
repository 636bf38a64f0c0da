"""Run the sessions in a child process, so that an abort in a backend costs nothing that was finished."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from .. import registry
from ..codec import encode
from ..errors import OutputError, PrecisionDebugError, UsageError
from ..events import EngineProgress, Stage, to_plain_event
from ..protocols import ProgressReader
from ..reasons import say
from ..records import RunSpec
from ..report.outputs import make_ready
from ..safety.untrusted import is_utf8
from ..search.fix import SearchRequest
from ..settings.options import Workers
from . import child as children
from .child import Stopping, watch_signals
from .companion_files import log_head, refuse_overwriting
from .locked_folder import (
    JOB,
    JOURNAL,
    LOG,
    PREFIX,
    SUFFIX,
    clear_scratch,
    clear_scratch_of,
    lock_of,
    release,
    run_folder,
    take,
)

if TYPE_CHECKING:
    from .outcome import Outcome

__all__ = ["EngineOutput", "supervise"]


# What the engine prints while a call of it goes on, as news for those who wait: see ``protocols.ProgressReader``.

_EVERY = 0.5  # seconds between two looks
_MOST = 1 << 16  # bytes of one look: only the newest news counts


class EngineOutput:
    """Reads a log that another process writes. tellers: who understands a line; None: the backends that are here."""

    def __init__(self, log: Path, tellers: Sequence[ProgressReader] | None = None) -> None:
        found = [backend.capabilities.teller for backend in registry.backends()] if tellers is None else tellers
        self._tellers = [teller for teller in found if teller is not None]
        self._log = log
        self._place = log.stat().st_size if log.exists() else 0
        self._next = time.monotonic() + _EVERY

    def heard(self) -> Mapping[str, Any] | None:
        """Return the newest news since the last look, as an event; None: nothing new, or it is too early to look."""
        now = time.monotonic()
        if not self._tellers or now < self._next:
            return None
        self._next = now + _EVERY
        return self.news()

    def news(self) -> Mapping[str, Any] | None:
        """Return the same at once."""
        try:
            with self._log.open("rb") as file:
                file.seek(max(self._place, self._log.stat().st_size - _MOST))
                text, whole, rest = file.read(_MOST).rpartition(b"\n")
                self._place = file.tell() - len(rest)
        except OSError:
            return None
        for line in reversed(text.decode(errors="replace").splitlines() if whole else ()):
            for teller in self._tellers:
                said = teller.heard(line)
                if said is not None:
                    return to_plain_event(EngineProgress(text=said))
        return None


# What runs left behind that were killed together with their workers.

def clear_leftovers(home: Path, outputs: Sequence[Path]) -> Iterator[str]:
    """Clear a folder of what dead runs left in it; yields a line for each whose finished rows stay there.

    A dead run into the same outputs gives its partial report; one that had come to no row is removed. Locks that
    nobody holds go too. outputs: those of the run that is about to begin, which holds their locks.
    """
    with contextlib.suppress(OSError):
        for name in sorted(os.listdir(home)):
            path = home / name
            if name.startswith(PREFIX) and path.is_dir() and not path.is_symlink():
                yield from _clear_run(path, outputs)
            elif name.startswith(".") and name.endswith(SUFFIX) and path.is_file() and not path.is_symlink():
                handle = _take(path)
                if handle is not None:
                    release(path, handle)


def is_being_rescued(home: Path, lock: Path) -> bool:
    """Return whether the run that holds a lock was killed, and its worker is about to deliver what there is and let
    go."""
    with contextlib.suppress(OSError):
        for folder in home.glob(f"{PREFIX}*"):
            job = _read(folder)
            pid = job.get("supervisor")
            if str(lock) in (job.get("locks") or ()) and isinstance(pid, int) and not _is_alive(pid):
                return True
    return False


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _clear_run(folder: Path, outputs: Sequence[Path]) -> Iterator[str]:
    job = _read_job(folder)
    handle = _take(folder / JOB) if job is not None else None
    if job is None or handle is None:
        return
    from .deliver import deliver, has_rows, rescue_command

    try:
        if not has_rows(folder):
            shutil.rmtree(folder, ignore_errors=True)
        elif job == [str(output) for output in outputs]:
            deliver(folder, outputs, failure="the run and its supervising process were killed")
        else:
            yield f"an earlier run was killed; {rescue_command(folder)}"
    except (PrecisionDebugError, OSError):
        yield f"an earlier run was killed; {rescue_command(folder)}"
    finally:
        os.close(handle)


def _read_job(folder: Path) -> list[str] | None:
    """Return the outputs of a run's folder; None where the folder is none of ours."""
    outputs = _read(folder).get("outputs")
    return [str(output) for output in outputs] if isinstance(outputs, list) else None


def _read(folder: Path) -> dict[str, Any]:
    """Return the job of a folder of ours; nothing of another one."""
    with contextlib.suppress(OSError, ValueError, RecursionError):
        job = json.loads((folder / JOB).read_text(encoding="utf-8"))
        if isinstance(job, dict) and os.stat(folder).st_uid == os.getuid():
            return job
    return {}


def _take(path: Path) -> int | None:
    with contextlib.suppress(OSError):
        return take(path)
    return None


# Runs the sessions in a child process, so that an abort in a backend costs nothing that was finished.
#
# The child is started first of all; what its end needs is imported meanwhile.

_RESCUE = 60.0
"""Seconds that a killed run's worker may take to deliver what there is; it takes one or two."""

Event = Mapping[str, Any]
"""An event of the journal as it stands there: see ``events.read``."""


def supervise(
    spec: RunSpec,
    outputs: Sequence[Path],
    *,
    verbose: bool = False,
    on_event: Callable[[Event], None] | None = None,
    on_note: Callable[[str], None] | None = None,
    asked: SearchRequest | None = None,
    spread: Workers | None = None,
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
    outputs = [_make_absolute(path) for path in outputs]
    home = outputs[0].parent if outputs else _make_absolute(Path(spec.record)).parent
    job = _make_job(spec, outputs, asked, spread)
    with (
        watch_signals() as stopping,
        _lock_outputs(outputs, home, spec.record) as locks,
        contextlib.ExitStack() as stack,
    ):
        clear_scratch()
        if not is_utf8(home):
            raise OutputError(say("not_utf8"), where=str(home), hint="name another --output")
        job |= {"locks": [str(lock) for lock in locks], "supervisor": os.getpid()}
        folder, held = run_folder(home, job)
        stack.callback(os.close, held)
        try:
            for note in clear_leftovers(home, outputs):
                (on_note or _ignore)(note)
            (folder / LOG).write_bytes(log_head(outputs))
            child = _start(folder, verbose, (*locks.values(), held))
            tell = on_event or _ignore
            status = _wait(child, folder, outputs, tell, stopping)
            if status and spread is not None and spread.engine == "ray":  # its actors are children of others
                clear_scratch_of(folder.name)
            from .outcome import find_error, finish_run

            failed = find_error(folder, status, stopping.asked)
            writing = to_plain_event(Stage(text=say("stage_writing")))
            return finish_run(folder, outputs, failed, stopping, language, lambda: _pass_events_on(writing, tell))
        except BaseException:
            from .deliver import has_rows

            if not has_rows(folder):
                shutil.rmtree(folder, ignore_errors=True)
            raise


def _make_job(
    spec: RunSpec, outputs: Sequence[Path], asked: SearchRequest | None, spread: Workers | None
) -> dict[str, Any]:
    """Return what the child is told, as JSON has it."""
    try:
        job = {"spec": encode(spec), "outputs": [str(path) for path in outputs]}
        job |= {"search": encode(asked)} if asked is not None else {}
        job |= {"spread": encode(spread)} if spread is not None else {}
    except TypeError as error:
        raise UsageError(f"a setting has an unusable value: {error}", where="--option") from error
    return job


def _make_absolute(path: Path) -> Path:
    """Return a path that stays right when the current folder goes; links in it are kept. Raises OutputError where none
    is."""
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


def _start(folder: Path, verbose: bool, handles: Sequence[int]) -> subprocess.Popen[bytes]:
    """Return the worker. handles: descriptors that it holds too, so that they outlive this process."""
    (folder / JOURNAL).touch()
    with (folder / LOG).open("ab") as log:
        code = "from precision_debug.run.worker import start; start()"
        return children.start(code, str(folder), said=None if verbose else log, handles=handles)


def _wait(
    child: subprocess.Popen[bytes], folder: Path, outputs: Sequence[Path], on_event: Callable[[Event], None],
    stopping: Stopping,
) -> int:  # fmt: skip
    """Tell what the worker tells until it has ended; returns its exit status."""
    try:
        make_ready(outputs, f"{__package__}.outcome")

        hearing = EngineOutput(folder / LOG)
        with (folder / JOURNAL).open(encoding="utf-8") as tail:
            while child.poll() is None and not stopping.asked:
                on_event = _follow(tail, on_event, stopping)
                on_event = _pass_events_on(hearing.heard(), on_event)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.wait(timeout=0.03)
            if not stopping.asked:
                _follow(tail, on_event, stopping)
    except KeyboardInterrupt:  # where the signals are not ours to watch
        stopping.asked = True
    finally:
        children.end(child)
    return child.returncode


def _ignore(event: object) -> None:
    pass


def _follow(tail: IO[str], on_event: Callable[[Event], None], stopping: Stopping) -> Callable[[Event], None]:
    """Tell of new events, up to a signal, and return who is to be told next time.

    Nobody, once telling has failed (a closed terminal)."""
    while not stopping.asked:
        place = tail.tell()
        line = tail.readline()
        if not line.endswith("\n"):
            tail.seek(place)
            return on_event
        try:
            on_event(json.loads(line))
        except (OSError, ValueError):
            on_event = _ignore
    return on_event


def _pass_events_on(heard: Event | None, on_event: Callable[[Event], None]) -> Callable[[Event], None]:
    """As ``_follow``, of what no journal holds."""
    try:
        if heard is not None:
            on_event(heard)
    except (OSError, ValueError):
        return _ignore
    return on_event


@contextlib.contextmanager
def _lock_outputs(outputs: Sequence[Path], home: Path, record: str) -> Iterator[Mapping[Path, int]]:
    """Hold every output for this run alone, and the folder that it records into.

    A second run into the same is refused, not mixed in.

    One that was killed a moment ago is waited for: its worker still delivers what was finished."""
    with contextlib.ExitStack() as stack:
        held: dict[Path, int] = {}
        folders = [Path(os.path.realpath(record))] if record else []  # one folder, whatever links lead to it
        for output in (*outputs, *folders):
            lock = lock_of(output)
            if lock in held:
                raise UsageError(say("output_twice"), where=str(output), hint=say("keep_one"))
            try:
                lock.parent.mkdir(parents=True, exist_ok=True)
                handle = take(lock)
                until = time.monotonic() + _RESCUE
                while handle is None and time.monotonic() < until and is_being_rescued(home, lock):
                    time.sleep(0.1)
                    handle = take(lock)
            except OSError as error:
                another = "record into another folder" if output in folders else "name another --output"
                raise OutputError(
                    f"cannot write there: {error.strerror or error}", where=str(output), hint=another
                ) from error
            if handle is None:
                if output in folders:
                    raise UsageError(say("recording_taken"), where=record, hint=say("wait_or_record"))
                raise UsageError(say("report_taken"), where=str(output), hint=say("wait_for_it"))
            stack.callback(release, lock, handle)
            held[lock] = handle
        yield held
