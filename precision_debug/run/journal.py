"""One JSON line for each thing that is finished, flushed at once: what a crash leaves behind.

An event is {"event": NAME, ...}; ``report.from_journal`` says which there are. A last line that was cut off is left
out.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..errors import OutputError, RecordingError
from ..events import EVENTS, Event, read_line, to_plain_event
from ..safety.untrusted import refuse_special

__all__ = ["UNTOLD", "Journal", "read_events"]

UNTOLD = 74
"""Exit status of a run that could not even write why it failed (EX_IOERR of sysexits.h)."""


class Journal:
    """Appends events to a file. Use as a context manager; safe to use from several threads.

    on_event: called with each event once it is in the file.
    """

    def __init__(self, path: str | Path, *, on_event: Callable[[Event], None] | None = None) -> None:
        self.path = Path(path)
        self._on_event = on_event
        self._file = self.path.open("ab", buffering=0)
        self._lock = threading.Lock()

    def write(self, event: Event) -> None:
        """Append one event and hand it to the operating system, so that it outlives this process.

        Raises OutputError where there is no room for it; the journal then ends with the event before.
        """
        line = _encode_line(to_plain_event(event))
        with self._lock:
            whole = rest = memoryview(line + b"\n")
            try:
                while rest:
                    rest = rest[self._file.write(rest) or 0 :]
            except OSError as error:
                with contextlib.suppress(OSError):  # half a line in the middle would spoil all that follow
                    end = os.fstat(self._file.fileno()).st_size
                    os.ftruncate(self._file.fileno(), end - (len(whole) - len(rest)))
                raise OutputError(
                    f"the run's journal cannot be written ({error.strerror or error})", where=str(self.path.parent),
                    hint="free some space there, or choose another place with --output",
                ) from error  # fmt: skip
        if self._on_event is not None:
            self._on_event(event)

    def close(self) -> None:
        """Close the file; further writes fail."""
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def _encode_line(plain: Mapping[str, Any]) -> bytes:
    """JSON in ASCII, so that no reader meets half a letter. msgspec takes a tenth of the time, but knows no escapes."""
    with contextlib.suppress(UnicodeEncodeError):
        line = msgspec.json.format(msgspec.json.encode(plain), indent=0)  # spaced as json does
        if line.isascii():
            return line
    return json.dumps(plain, allow_nan=False).encode()


def read_events(path: str | Path, *kinds: type[Event]) -> Iterator[Event]:
    """Yield the finished events of a journal, of the given kinds alone where there are some.

    Raises RecordingError on a file that is not a journal, or holds something else than an event of such a kind does."""
    wanted = {kind.event for kind in kinds} or EVENTS
    refuse_special(path, RecordingError)
    try:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    event = read_line(line, wanted)
                except (ValueError, TypeError, KeyError, RecursionError) as error:
                    raise RecordingError(f"line {number} is not a journal entry", where=str(path)) from error
                if event is not None:
                    yield event
    except OSError as error:
        raise RecordingError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
