"""A process of the Python that has vLLM, with a model loaded in it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from .failures import make_not_loaded_error, make_not_run_error

__all__ = ["Server", "give_back", "take_server"]

_SERVER = Path(__file__).parent / "engine" / "server.py"
_TYPES: Mapping[str, Any] = {"bfloat16": ml_dtypes.bfloat16}

_idle: list[Server] = []
"""A process that the last session left, with its model loaded: starting one takes longer than most runs."""


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
        self._process: subprocess.Popen[bytes] | None = None
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
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._said is not None:
            self._said.close()
        self._process = self._said = self._write = self._read = None
        self._room, self.is_at_rest = (0, 0), False

    def _start(self) -> None:
        theirs_read, self._write = _pipe(ours="wb")
        theirs_write, self._read = _pipe(ours="rb")
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 (as long as the process)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
        if self._cores:
            environment["OMP_NUM_THREADS"] = str(self._cores)
        try:
            self._process = subprocess.Popen(
                [self.python, str(_SERVER), str(theirs_read), str(theirs_write)], pass_fds=(theirs_read, theirs_write),
                stdin=subprocess.DEVNULL, stdout=self._said, stderr=self._said, env=environment,
            )  # fmt: skip
        except OSError as error:
            raise make_not_run_error(self.folder, self.mode, f"{self.python}: {error.strerror or error}") from error
        finally:
            os.close(theirs_read)
            os.close(theirs_write)

    def _last(self) -> str:
        """Return the last line that the process printed."""
        if self._said is None:
            return ""
        if self._process is not None:
            self._process.wait()
        self._said.seek(0)
        lines = [line for line in self._said.read().decode("utf-8", "replace").splitlines() if line.strip()]
        return " ".join(lines[-1].split()) if lines else ""


def _stamps(folder: Path) -> tuple[Any, ...]:
    """Return the folder as it is now: what was written since is another model."""
    files = (file for file in folder.iterdir() if file.is_file())
    return (str(folder.resolve()), *sorted((file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files))


def _pipe(*, ours: str) -> tuple[int, Any]:
    """Their end, as a descriptor, and ours, as a file that is read ("rb") or written ("wb")."""
    read, write = os.pipe()
    return (write, os.fdopen(read, "rb")) if ours == "rb" else (read, os.fdopen(write, "wb"))
