"""The report that a finished or interrupted run's journal holds, looked at as one that comes from elsewhere."""

from __future__ import annotations

from pathlib import Path

from ..errors import RecordingError
from ..report.formats.json import from_dict, to_dict
from ..report.from_journal import report_of_events
from ..report.model import Report
from .journal import read_events

__all__ = ["report_of_journal"]


def report_of_journal(path: Path, *, hint: str = "") -> Report:
    """Raises RecordingError, with the hint, on whatever is not a journal of ours or is damaged."""
    try:
        return from_dict(to_dict(report_of_events(read_events(path))))  # which looks at every value's type
    except RecordingError as error:
        raise RecordingError(error.what, where=error.where, hint=error.hint or hint) from error
    except Exception as error:  # whatever odd values in it lead to
        raise RecordingError("this journal is damaged or of another version", where=str(path), hint=hint) from error
