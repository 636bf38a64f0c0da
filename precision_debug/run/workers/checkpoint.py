"""The parts of a spread run that are finished, in a file of the user's: what a later command goes on from.

The first line says what the numbers were made of, each further one is a part behind its checksum. A part counts only
where the command, the files that it reads and the versions that compute are the same to the byte.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...codec import parse_json
from ...errors import OutputError, UsageError
from ...observe.shard import Shard
from ...reasons import say
from ...records import RunSpec
from ...safety.special_file import refuse_special
from ..content import contents

__all__ = ["Checkpoint"]

_FORMAT = 2
"""Of the file; one of another format is not continued."""
_HEX = 32
"""Letters of a line's checksum."""


class Checkpoint:
    """path: "" where there is none. shards: each finished part, as its text; none has a sample of another one.

    more: digests of what else decides, beside the command and its files. samples: those of the command; None: any.
    What was being written when a run was killed is cut off. Raises UsageError where the file is of another command, or
    of one whose model, inputs or versions were others, and OutputError where it cannot be read or written, or is
    damaged.
    """

    def __init__(
        self, path: str, spec: RunSpec, *, more: Mapping[str, str] | None = None, samples: range | None = None
    ) -> None:
        self.shards: list[str] = []
        self._path = Path(path) if path else None
        self._samples = samples
        if self._path is None:
            return
        refuse_special(self._path, UsageError)
        made_of = {**contents(spec, without=[self._path]), **(more or {})}
        self._head = json.dumps({"checkpoint": _FORMAT, "of": made_of}, sort_keys=True)
        try:
            data = self._path.read_bytes() if self._path.exists() else b""
            if not data.rfind(b"\n") + 1:
                if data and not f"{self._head}\n".encode().startswith(data):  # somebody else's file stays as it is
                    raise self._another()
                self._path.write_text(self._head + "\n", encoding="utf-8")
                return
            lines = data[: data.rfind(b"\n")].decode().split("\n")
        except (OSError, ValueError) as error:
            raise self._error(f"no checkpoint: {getattr(error, 'strerror', None) or error}") from error
        self._check(lines[0], made_of)
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
                file.write(f"{self._sum(text)} {text}\n")
        except OSError as error:
            raise self._error(f"the checkpoint cannot be written: {error.strerror or error}") from error

    def _sum(self, text: str) -> str:
        """Of a part and of what it was made of, so that no line of another checkpoint passes."""
        return hashlib.sha256(f"{self._head}\n{text}".encode("utf-8", "surrogatepass")).hexdigest()[:_HEX]

    def _check(self, line: str, made_of: Mapping[str, str]) -> None:
        try:
            head = parse_json(line)
        except ValueError as error:
            raise self._error(f"no checkpoint: {error}") from error
        if line == self._head:
            return
        theirs = head.get("of") if isinstance(head, dict) and head.get("checkpoint") == _FORMAT else None
        if not isinstance(theirs, dict) or theirs.get("options") != made_of["options"]:
            raise self._another()
        changed = sorted(name for name in {*theirs, *made_of} if theirs.get(name) != made_of.get(name))
        raise UsageError(
            say("checkpoint_stale", names=tuple(changed)), where=str(self._path), hint=say("checkpoint_anew")
        )

    def _parts(self, lines: Sequence[str]) -> list[str]:
        """Lines that tell of other samples than the lines before: two commands may have written at once."""
        kept, known = [], set[int]()
        for number, line in enumerate(lines, 2):
            digest, _, text = line.partition(" ")
            if digest != self._sum(text):
                raise self._damaged(number)
            try:
                shard = Shard.from_text(text)
            except (ValueError, KeyError, TypeError) as error:
                raise self._damaged(number) from error
            if not shard.samples or (self._samples is not None and not shard.samples <= set(self._samples)):
                raise self._damaged(number)
            if not shard.samples & known:
                kept.append(text)
            known |= shard.samples
        return kept

    def _another(self) -> UsageError:
        return UsageError("it belongs to another command", where=str(self._path), hint="name another --checkpoint")

    def _damaged(self, number: int) -> OutputError:
        return self._error(f"line {number} is damaged", "remove the file to start over")

    def _error(self, what: str, hint: str = "name another --checkpoint") -> OutputError:
        return OutputError(what, where=str(self._path), hint=hint)
