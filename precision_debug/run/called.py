"""One call of a function of ours in a child process: for what runs an engine and gives plain values, no report.

The same as for a run holds: a crash of the engine is one line, the signals end it within a moment, and what it wrote is
gone afterwards, or at the latest when the next command starts.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

from ..errors import BackendCrash, BackendError, OutputError, PrecisionDebugError
from ..events import Failure, read, written
from ..reasons import say
from ..safety import import_path
from . import child as children
from .error_transport import as_ours, error_of, failure_of
from .interrupts import watching
from .journal import UNTOLD
from .last_output import last_words
from .locked_folder import scratch

__all__ = ["Said", "called", "start"]

Said = Callable[[Mapping[str, Any]], None]
"""What a function calls with news, plain values, while it works."""

_JOB, _ANSWER, _LOG = "job.json", "answer.jsonl", "log.txt"


def called(
    function: str, job: Mapping[str, Any], *, where: str = "", log: Path | None = None, verbose: bool = False,
    on_said: Said | None = None,
) -> Any:  # fmt: skip
    """What ``module:function`` returns in a child process, called with (job, folder, said).

    job, and what is returned: plain values. folder: an existing one in TMPDIR for what the engine writes, gone
    afterwards. log: gets what the child prints; verbose: it is printed here. on_said: called with the function's news.
    Raises what the function raised of ours, BackendCrash where the process ended, and BackendError after a signal.
    """
    with watching() as stopping, scratch() as (folder, held):
        try:
            (folder / _JOB).write_text(json.dumps({"function": function, "job": dict(job)}), encoding="utf-8")
            said = log or folder / _LOG
            with said.open("ab") as file:
                code = "from precision_debug.run.called import start; start()"
                child = children.start(code, str(folder), said=None if verbose else file, handles=(held,))
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
            children.end(child)
        if stopping.asked:
            raise BackendError(say("interrupted"), hint=say("nothing_yet"))
        answers.read()
        if answers.failure is not None:
            raise error_of(answers.failure)
        if not answers.came:
            raise _crash(child.returncode, said, where)
        return answers.answer


def start() -> NoReturn:
    """What ``called`` runs (see ``import_path.command``): writes an answer into its folder."""
    import_path.clean()
    children.print_logs()
    folder = Path(sys.argv[1])
    plain = json.loads((folder / _JOB).read_text(encoding="utf-8"))
    threading.Thread(target=_outlive, args=(folder,), daemon=True).start()
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
                tell(written(failure_of(as_ours(error))))
    except OSError:
        status = UNTOLD
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(status)


def _outlive(folder: Path) -> None:
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
    ended, words = say("child_ended", how=children.ended_by(status)), last_words(log)
    what = say("last_words", what=ended, words=words) if words else ended
    return BackendCrash(what, where=where, hint=say("verbose_shows"))
