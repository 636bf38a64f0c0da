"""A run kept on disk, to be the baseline on another machine or in another Python environment."""

from __future__ import annotations

from .format import is_recording
from .polygraphy_outputs import OutputsSession, is_outputs, open_outputs
from .session import RecordedSession, open_recording
from .writer import RecordingWriter

__all__ = [
    "OutputsSession", "RecordedSession", "RecordingWriter", "is_outputs", "is_recording", "open_outputs",
    "open_recording",
]  # fmt: skip
