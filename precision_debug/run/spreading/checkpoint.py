"""The parts of a spread run that are finished, in a file of the user's: what a later command goes on from."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path

from ...codec import encode, parse_json
from ...errors import OutputError, UsageError
from ...observe.shard import Shard
from ...records import RunSpec
from ...safety.special_file import refuse_special

__all__ = ["Checkpoint"]


class Checkpoint:
    """path: "" where there is none. shards: each finished part, as its text; none has a sample of another one.

    What was being written when a run was killed is cut off. Raises UsageError where the file is of another command, and
    OutputError where it cannot be read or written, or is damaged.
    """

    def __init__(self, path: str, spec: RunSpec) -> None:
        self.shards: list[str] = []
        self._path = Path(path) if path else None
        if self._path is None:
            return
        refuse_special(self._path, UsageError)
        plain = encode(dataclasses.replace(spec, command=""))
        head = {"checkpoint": hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()}
        try:
            if not self._path.exists():
                self._path.write_text(json.dumps(head) + "\n", encoding="utf-8")
                return
            data = self._path.read_bytes()
            lines = data[: data.rfind(b"\n") + 1].decode().splitlines(keepends=True)
        except (OSError, ValueError) as error:
            raise self._error(f"no checkpoint: {error}") from error
        self._check(lines, head)
        self.shards = self._parts(lines[1:])
        if not data.endswith(b"\n"):
            with self._path.open("r+b") as file:
                os.ftruncate(file.fileno(), data.rfind(b"\n") + 1)

    def add(self, text: str) -> None:
        """Keep one more part. Raises OutputError."""
        if self._path is None:
            return
        try:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(text + "\n")
        except OSError as error:
            raise self._error(f"the checkpoint cannot be written: {error.strerror or error}") from error

    def _check(self, lines: Sequence[str], head: dict[str, str]) -> None:
        try:
            found = parse_json(lines[0]) if lines else None
        except ValueError as error:
            raise self._error(f"no checkpoint: {error}") from error
        if found != head:
            raise UsageError("it belongs to another command", where=str(self._path), hint="name another --checkpoint")

    def _parts(self, lines: Sequence[str]) -> list[str]:
        """Lines that tell of other samples than the lines before: two commands may have written at once."""
        kept, known = [], set[int]()
        for number, line in enumerate(lines, 2):
            try:
                samples = Shard.from_text(line).samples
            except (ValueError, KeyError, TypeError) as error:
                raise self._error(f"line {number} is damaged", "remove the file to begin anew") from error
            if not samples & known:
                kept.append(line)
            known |= samples
        return kept

    def _error(self, what: str, hint: str = "name another --checkpoint") -> OutputError:
        return OutputError(what, where=str(self._path), hint=hint)
