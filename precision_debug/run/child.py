"""Child processes that run engines: in a session of their own, and ended with all that they have started.

Their standard input is a pipe that says whether this process still lives: when it closes, they end by themselves.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
from collections.abc import Sequence
from typing import IO

from ..safety import import_path

__all__ = ["end", "ended_by", "print_logs", "start"]


def start(
    code: str, *arguments: str, said: IO[bytes] | None, handles: Sequence[int] = ()
) -> subprocess.Popen[bytes]:  # fmt: skip
    """Run Python code in a child process.

    said: gets what it prints; None: where this process prints. handles: descriptors that it holds too, so that what
    they lock outlives this process."""
    return subprocess.Popen(
        [*import_path.command(code), *arguments],
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


def ended_by(status: int) -> str:
    """How a process ended, in words: "killed by SIGKILL", "status 1"."""
    if status >= 0:
        return f"status {status}"
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(-status).name}"
    return f"killed by signal {-status}"
