"""The report in the summary of a GitHub Actions step: Markdown, added to the file that GITHUB_STEP_SUMMARY names.

Source of the variable and of the limit: GitHub's documentation of workflow commands, "Adding a job summary".
"""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import OutputError, UsageError
from .formats import md
from .model import Report

__all__ = ["VARIABLE", "append", "place"]

VARIABLE = "GITHUB_STEP_SUMMARY"

_MOST = 1 << 20
"""Bytes of a step's summary; of a longer one GitHub shows nothing."""


def place() -> Path | None:
    """The file of the step that this runs in; None outside of GitHub Actions."""
    named = os.environ.get(VARIABLE, "")
    return Path(named) if named else None


def append(report: Report, path: Path | None = None, *, title: str = "") -> None:
    """Add a report below what is there: whole, or its first sentences where the whole would be too long.

    path: in place of the step's file. title: a heading of its own before it. Raises UsageError outside of GitHub
    Actions, and OutputError where the file cannot be written.
    """
    path = path or place()
    if path is None:
        raise UsageError(f"{VARIABLE} is not set", hint="this is for a step of GitHub Actions")
    head = [f"## {md.plain(title)}", ""] if title else []
    try:
        room = _MOST - (path.stat().st_size if path.exists() else 0)
        for lines in (md.lines(report), md.head(report)):
            data = ("\n".join([*head, *lines]) + "\n\n").encode("utf-8", "backslashreplace")
            if len(data) <= room:
                with path.open("ab") as file:
                    file.write(data)
                return
    except OSError as error:
        what = f"the step's summary cannot be written ({error.strerror})"
        raise OutputError(what, where=str(path), hint=f"see what {VARIABLE} names") from error
