"""A process of the Python that has vLLM, with a model loaded in it."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np

from .failures import make_not_loaded_error, make_not_run_error

__all__ = ["Server", "give_back", "take_server"]

_SERVER = Path(__file__).parent / "engine" / "server.py"
_TYPES: Mapping[str, Any] = {"bfloat16": ml_dtypes.bfloat16}

_MESSAGE = 16
"""Bytes of each that goes to and from ``engine.server.make_forks``."""

_idle: list[Server] = []
"""A process that the last session left, with its model loaded: starting one takes longer than most runs."""

_forking: dict[tuple[int, str, int], _Forking] = {}
"""Of this process, by its Python and cores: a fork of this process has none of its own yet."""


def take_server(**how: Any) -> Server:
    """One that has the model loaded already, or a new one that has to; the arguments are those of ``Server``."""
    made = Server(**how)
    if _idle and _idle[0].key == made.key:
        return _idle.pop()
    return made


def give_back(server: Server) -> None:
    """A session needs it no more: the next one of the same model may have it. One waits at most."""
    while _idle:
        _idle.pop().close()
    if server.is_at_rest:
        _idle.append(server)
    else:
        server.close()


class Server:
    """A process that has a model loaded, for so many rows of so many tokens; more of them load it anew.

    One question at a time. Raises BackendError where it ends early, with the last that it said.
    """

    def __init__(
        self, *, python: str, folder: str, mode: str, dtype: str, cores: int, head_fp32: bool, budget: int = 0
    ) -> None:  # fmt: skip
        """budget: tokens a step, so that prompts are cut into chunks; 0: as many as there are."""
        self.folder, self.mode, self.python = folder, mode, python
        self.key = (python, dtype, cores, head_fp32, budget, *_stamps(Path(folder)))
        self.is_at_rest = False
        self._asked = {
            "do": "load", "folder": os.path.abspath(folder), "dtype": dtype, "head_fp32": head_fp32, "budget": budget,
        }  # fmt: skip
        self._cores = cores
        self._room = (0, 0)
        self._parent: _Forking | None = None
        self._number = 0
        self._said: Any = None
        self._write: Any = None
        self._read: Any = None
        self.versions: Mapping[str, str] = {}

    def load(self, rows: int, tokens: int) -> None:
        """Make room. Raises ModelError with what vLLM says."""
        if rows <= self._room[0] and tokens <= self._room[1]:
            return
        room = (max(rows, self._room[0]), max(tokens, self._room[1]))
        self.close()
        while _idle:  # its memory is wanted
            _idle.pop().close()
        self._start()
        self.ask({**self._asked, "rows": room[0], "tokens": room[1]})
        answer, _ = self.hear(loading=True)
        self.versions = {str(name): str(version) for name, version in answer["versions"].items()}
        self._room = room

    def ask(self, message: Mapping[str, Any], data: bytes = b"") -> None:
        self.is_at_rest = False
        try:
            self._write.write(json.dumps({**message, "bytes": len(data)}).encode() + b"\n" + data)
            self._write.flush()
        except (OSError, ValueError, AttributeError) as error:
            raise make_not_run_error(self.folder, self.mode, self._last() or "its process ended") from error

    def hear(self, *, loading: bool = False) -> tuple[Mapping[str, Any], Any]:
        """Return the next message, and the array that it brings, or None."""
        line = self._read.readline()
        if not line:
            what = self._last() or "its process ended"
            raise (
                make_not_loaded_error(self.folder, self.mode, what)
                if loading
                else make_not_run_error(self.folder, self.mode, what)
            )
        message: Mapping[str, Any] = json.loads(line)
        data = self._read.read(message["bytes"])
        if message["is"] == "error":
            what = message["what"]
            raise (
                make_not_loaded_error(self.folder, self.mode, what)
                if loading
                else make_not_run_error(self.folder, self.mode, what)
            )
        self.is_at_rest = message["is"] != "tensor"
        if not data:
            return message, None
        kind = message.get("dtype", "float32")
        return message, np.frombuffer(data, _TYPES.get(kind, kind)).reshape(message["shape"])

    def close(self) -> None:
        """End the process; calling it twice is harmless."""
        for end in (self._write, self._read):
            if end is not None:
                end.close()
        if self._parent is not None:
            self._parent.end(self._number)
        if self._said is not None:
            self._said.close()
        self._parent = self._said = self._write = self._read = None
        self._room, self.is_at_rest = (0, 0), False

    def _start(self) -> None:
        theirs_read, self._write = _pipe(ours="wb")
        theirs_write, self._read = _pipe(ours="rb")
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process)
        key = (os.getpid(), self.python, self._cores)
        try:
            if key not in _forking:
                _forking[key] = _Forking(self.python, self._cores)
            self._parent = _forking[key]
            self._number = self._parent.start(theirs_read, theirs_write, self._said.fileno())
        except OSError as error:
            ended = _forking.pop(key, None)
            self._parent, said = None, "" if ended is None else ended.close()
            if said:
                raise make_not_loaded_error(self.folder, self.mode, said) from error
            what = f"{self.python}: {error.strerror or error}"
            raise make_not_run_error(self.folder, self.mode, what) from error
        finally:
            os.close(theirs_read)
            os.close(theirs_write)

    def _last(self) -> str:
        """Return the last line that the process printed."""
        if self._parent is not None:
            self._parent.end(self._number)  # which may be about to print it still: it has closed its end
        return "" if self._said is None else _last_line(self._said)


class _Forking:
    """A process that has imported the engine, and gives each server a fork of its own."""

    def __init__(self, python: str, cores: int) -> None:
        """Raises OSError."""
        self._ours, theirs = socket.socketpair()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        if cores:
            environment["OMP_NUM_THREADS"] = str(cores)
        with theirs:
            self._process = subprocess.Popen(
                [python, str(_SERVER), str(theirs.fileno())], pass_fds=[theirs.fileno()], env=environment,
                stdin=subprocess.DEVNULL, stdout=self._said, stderr=self._said,
            )  # fmt: skip

    def start(self, read: int, write: int, said: int) -> int:
        """Return a fork's number, which reads and writes there. Raises OSError where the process has ended."""
        socket.send_fds(self._ours, [b"start".ljust(_MESSAGE)], [read, write, said])
        found = self._ours.recv(_MESSAGE)
        if not found:
            raise ConnectionResetError("its process ended")
        return int(found)

    def end(self, number: int) -> None:
        """End a fork; of one that has ended nothing happens."""
        with contextlib.suppress(OSError):
            self._ours.sendall(str(number).encode().ljust(_MESSAGE))

    def close(self) -> str:
        """End the process and all forks of it; the last line that it printed itself."""
        with contextlib.suppress(OSError), self._ours:
            self._ours.shutdown(socket.SHUT_RDWR)  # a fork of this process may hold the same end open
        self._process.wait()
        with self._said:
            return _last_line(self._said)


@atexit.register
def _end_all() -> None:
    for (owner, _, _), one in _forking.items():
        if owner == os.getpid():
            one.close()


def _last_line(said: IO[bytes]) -> str:
    said.seek(0)
    lines = [line for line in said.read().decode("utf-8", "replace").splitlines() if line.strip()]
    return " ".join(lines[-1].split()) if lines else ""


def _stamps(folder: Path) -> tuple[Any, ...]:
    """Return the folder as it is now: what was written since is another model."""
    files = (file for file in folder.iterdir() if file.is_file())
    return (str(folder.resolve()), *sorted((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files))


def _pipe(*, ours: str) -> tuple[int, Any]:
    """Their end, as a descriptor, and ours, as a file that is read ("rb") or written ("wb")."""
    read, write = os.pipe()
    return (write, os.fdopen(read, "rb")) if ours == "rb" else (read, os.fdopen(write, "wb"))
