"""What a run was at when it ended, by its journal."""

from __future__ import annotations

from pathlib import Path

from ..events import SideDone, Stage, Tensors
from ..reasons import NOTHING, Reason, say
from .journal import read_events

__all__ = ["last_stage"]

_OPENING, _RUNNING = "stage_opening", "stage_running"


def last_stage(journal: Path) -> str:
    """The last stage that had not ended; both sides' where they were at it side by side: nobody knows which it was.

    "" where there is none. Raises RecordingError.
    """
    last = NOTHING
    going: dict[str, Reason] = {}
    for event in read_events(journal, Stage, Tensors, SideDone):
        match event:
            case Stage(text=text):
                last, side = text, text.args.get("side")
                if text.code in (_OPENING, _RUNNING) and isinstance(side, Reason):
                    going[side.code] = text
            case Tensors(side=side) if side in going and going[side].code == _OPENING:
                del going[side]
            case SideDone(side=side) if side in going and going[side].code == _RUNNING:
                del going[side]
    if last.code not in (_OPENING, _RUNNING) or not going:
        return last
    if len(going) == 1:
        return next(iter(going.values()))
    return say("stages_together", first=going["baseline"], second=going["target"])
