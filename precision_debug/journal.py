"""One JSON line for each thing that is finished, flushed at once: what a crash leaves behind.

An event is {"event": NAME, ...}; ``assemble`` says which there are. A last line that was cut off is left out.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .codec import encode
from .errors import RecordingError

__all__ = ["Journal", "read_events"]


class Journal:
    """Appends events to a file. Use as a context manager; safe to use from several threads."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = self.path.open("a", encoding="utf-8")
        self._lock = threading.Lock()

    def write(self, event: str, **values: Any) -> None:
        """Append one event and hand it to the operating system, so that it outlives this process."""
        line = json.dumps({"event": event, **{key: encode(value) for key, value in values.items()}}, allow_nan=False)
        with self._lock:
            self._file.write(line + "\n")
            self._file.flush()

    def close(self) -> None:
        """Close the file; further writes fail."""
        self._file.close()

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def read_events(path: str | Path) -> Iterator[dict[str, Any]]:
    """The finished events of a journal. Raises RecordingError on a file that is no journal."""
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith("\n"):
                return
            try:
                event = json.loads(line)
            except ValueError as error:
                raise RecordingError(f"line {number} is no journal entry", where=str(path)) from error
            if not isinstance(event, dict) or "event" not in event:
                raise RecordingError(f"line {number} is no journal entry", where=str(path))
            yield event
