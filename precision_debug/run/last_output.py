"""What a process printed last, where it ended without saying why."""

from __future__ import annotations

from pathlib import Path

from ..errors import shortened

__all__ = ["last_words"]


def last_words(log: Path, *, headed: bool = False) -> str:
    """The last line of a log that is not empty; "" where there is none. headed: its first line is ours."""
    if not log.exists():
        return ""
    with log.open("rb") as file:
        head = len(file.readline()) if headed else 0
        file.seek(max(head, log.stat().st_size - 4096))
        lines = [line.strip() for line in file.read().decode(errors="replace").splitlines() if line.strip()]
    return shortened(lines[-1], 400) if lines else ""
