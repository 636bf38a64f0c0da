"""A run kept on disk, to be the baseline on another machine or in another Python environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..safety.late import make_lazy_exports

__all__ = [
    "OutputsSession", "RecordedSession", "RecordingWriter", "is_outputs", "is_recording", "open_outputs",
    "open_recording",
]  # fmt: skip

if TYPE_CHECKING:
    from .format import is_outputs, is_recording
    from .polygraphy_outputs import OutputsSession, open_outputs
    from .session import RecordedSession, open_recording
    from .writer import RecordingWriter

__getattr__ = make_lazy_exports(
    __name__,
    {
        "format": "is_outputs is_recording",
        "polygraphy_outputs": "OutputsSession open_outputs",
        "session": "RecordedSession open_recording",
        "writer": "RecordingWriter",
    },
)
