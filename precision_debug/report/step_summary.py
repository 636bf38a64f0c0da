"""The report in a step of GitHub Actions: Markdown in the file that GITHUB_STEP_SUMMARY names, and one annotation.

Source of the variables, of the limit and of what is escaped: GitHub's documentation of workflow commands, "Adding a job
summary" and "Setting an error message", and its toolkit's packages/core/src/command.ts.
"""

from __future__ import annotations

import os
from pathlib import Path

from ..errors import OutputError, UsageError
from .formats import md
from .lead import lead
from .model import Report, Verdict

__all__ = ["VARIABLE", "annotation", "append", "place"]

VARIABLE = "GITHUB_STEP_SUMMARY"

_MOST = 1 << 20
"""Bytes of a step's summary; of a longer one GitHub shows nothing."""


def place() -> Path | None:
    """The file of the step that this runs in; None outside of GitHub Actions."""
    named = os.environ.get(VARIABLE, "")
    return Path(named) if named else None


def annotation(report: Report, *, title: str = "", language: str = "en") -> str:
    """Return the line that GitHub shows beside the step, for a report that does not pass; "" elsewhere.

    title: what was compared, in place of the report's model and run mode. The first sentence is its text; where the
    verdict is open it warns.
    """
    if os.environ.get("GITHUB_ACTIONS") != "true" or report.exit_status == 0:
        return ""
    level = "warning" if report.verdict in (Verdict.INCONCLUSIVE, Verdict.PARTIAL) else "error"
    named = title or f"{report.target.mode} {Path(report.spec.model.path).name}"
    for plain, written in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A"), (":", "%3A"), (",", "%2C")):
        named = named.replace(plain, written)
    text = lead(report)[0].of(language)
    for plain, written in (("%", "%25"), ("\r", "%0D"), ("\n", "%0A")):
        text = text.replace(plain, written)
    return f"::{level} title={named}::{text}"


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
