"""A run kept on disk, to be the baseline on another machine or in another Python environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..safety.late import offered

__all__ = [
    "Dump", "DumpedTensor", "OutputsSession", "RecordedSession", "RecordingWriter", "is_dump", "is_outputs",
    "is_recording", "open_outputs", "open_recording", "read_dump",
]  # fmt: skip

if TYPE_CHECKING:
    from .dump import Dump, DumpedTensor, is_dump, read_dump
    from .format import is_outputs, is_recording
    from .polygraphy_outputs import OutputsSession, open_outputs
    from .session import RecordedSession, open_recording
    from .writer import RecordingWriter

__getattr__ = offered(
    __name__,
    {
        "dump": "Dump DumpedTensor is_dump read_dump",
        "format": "is_outputs is_recording",
        "polygraphy_outputs": "OutputsSession open_outputs",
        "session": "RecordedSession open_recording",
        "writer": "RecordingWriter",
    },
)
