from __future__ import annotations

import json
import math
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from precision_debug.errors import RecordingError
from precision_debug.events import EVENTS, End, Event, Note, Scores, read, read_line
from precision_debug.reasons import say
from precision_debug.run.journal import Journal, read_events


def test_events_come_back_and_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.write(Scores(scores={"top-1": math.inf}, samples=np.int64(3)))
        journal.write(Note(text=say("other_name", name="log.txt")))
        journal.write(End(seconds=0.5))
    with path.open("a", encoding="utf-8") as file:
        file.write('{"event": "row", "val')
    assert list(read_events(path)) == [
        Scores(scores={"top-1": math.inf}, samples=3), Note(text=say("other_name", name="log.txt")), End(seconds=0.5),
    ]  # fmt: skip
    note = next(read_events(path, Note))
    assert isinstance(note, Note)
    assert (note.text.code, note.text.args) == ("other_name", {"name": "log.txt"})


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("hello\n", encoding="utf-8")
    with pytest.raises(RecordingError, match="line 1"):
        list(read_events(path))


def test_an_event_of_a_newer_version_is_passed_over_and_an_odd_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    path.write_text('{"event": "dreamt", "of": 1}\n{"event": "end", "seconds": 1, "new": 2}\n', encoding="utf-8")
    assert list(read_events(path)) == [End(seconds=1)]
    path.write_text('{"event": "end", "seconds": "1"}\n', encoding="utf-8")
    with pytest.raises(RecordingError, match="line 1"):
        list(read_events(path))


@pytest.mark.parametrize(
    "event",
    [
        End(seconds=1.5), End(seconds=math.inf), End(seconds=2**70),
        Note(text=say("ended")), Note(text="letters: \u00e9, \ud800, \u2028"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_a_line_is_read_as_its_plain_values_are(tmp_path: Path, event: Event) -> None:
    """Most lines are decoded at once, the others by way of their values: whoever reads them cannot tell which."""
    with Journal(tmp_path / "j.jsonl") as journal:
        journal.write(event)
    line = (tmp_path / "j.jsonl").read_bytes()
    found = read_line(line, {event.event})
    assert repr(found) == repr(read(json.loads(line)))
    assert read_line(line, {"another"}) is None


@pytest.mark.parametrize(
    "line", [b'{"event": "end", "seconds": "soon"}\n', b'{"event": "end"}\n', b'{"event": "end", "seconds": 1']
)
def test_a_damaged_line_is_refused(line: bytes) -> None:
    with pytest.raises((ValueError, KeyError, TypeError)):
        read_line(line, {"end"})


def test_every_event_has_a_name_of_its_own() -> None:
    assert len(EVENTS) == len(get_args(Event))
    assert all(kind.event == name for name, kind in EVENTS.items())
