"""A run kept on disk, to be the baseline on another machine or in another Python environment."""

from __future__ import annotations

from .format import is_recording
from .session import RecordedSession, open_recording
from .writer import RecordingWriter

__all__ = ["RecordedSession", "RecordingWriter", "is_recording", "open_recording"]
