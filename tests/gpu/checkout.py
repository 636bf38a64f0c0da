"""`import checkout` first, in each script of this folder: this checkout is what it imports and what it starts.

So that a script starts from any folder, with nothing set before it: the project, its backends and the modules of tests/
are found here, by the processes that it starts too. What PYTHONPATH held stays behind them. ``stamped`` runs a command
of it and tells when it began with what.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

_BEGUN = time.monotonic()

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [str(ROOT), str(ROOT / "backends"), str(ROOT / "tests"), str(ROOT / "tests" / "gpu")]

sys.path[:0] = [folder for folder in SOURCES if folder not in sys.path]
_held = [folder for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder and folder not in SOURCES]
os.environ["PYTHONPATH"] = os.pathsep.join([*SOURCES, *_held])


def stamped(words: list[str], file: Path) -> tuple[int, list[tuple[float, str]]]:
    """Run the command in this process; its status, and what it told of when, in seconds since this file was imported.

    file: gets the same while it runs, a line each."""
    times: list[tuple[float, str]] = []
    with file.open("w") as lines:

        def stamp(text: str) -> None:
            times.append((round(time.monotonic() - _BEGUN, 1), text))
            print(f"{times[-1][0]:7.1f}  {text}", file=lines, flush=True)

        from precision_debug.cli import main, progress

        progress.show_progress = _stamping(stamp)  # type: ignore[assignment]
        stamp("command")
        status = main(words)
        stamp(f"exit status {status}")
    return status, times


def _stamping(stamp: Callable[[str], None]) -> Any:
    @contextlib.contextmanager
    def bar(**_: Any) -> Iterator[Callable[[Mapping[str, Any]], None]]:
        rows, heard = 0, ("", 0.0)

        def take(event: Mapping[str, Any]) -> None:
            nonlocal rows, heard
            if event["event"] in ("stage", "again", "explanation"):
                stamp(f"{event['event']}: {plain(event.get('text', ''))}")
            elif event["event"] == "heard":
                text = str(plain(event["text"]))
                kind = text.partition(" for ")[0]
                if kind != heard[0] or time.monotonic() - heard[1] > 10:
                    stamp(f"    heard: {text}")
                    heard = kind, time.monotonic()
            elif event["event"] == "row":
                rows += 1
                if rows == 1:
                    stamp("first row")
            elif event["event"] == "ran":
                stamp(f"ran: {event['side']}, {rows} rows")

        yield take

    return bar


def plain(text: Any) -> Any:
    return text.get("text", text) if isinstance(text, Mapping) else text


def phases(times: list[tuple[float, str]]) -> dict[str, float]:
    """Second at which each thing began, by its first words; of engines each one."""
    found: dict[str, float] = {}
    for second, text in times:
        if not text.startswith("    heard"):
            found.setdefault(text.removeprefix("stage: ")[:60], second)
    return found
