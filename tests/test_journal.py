from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from precision_debug.errors import RecordingError
from precision_debug.run.journal import Journal, read_events


def test_events_come_back_and_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with Journal(path) as journal:
        journal.write("row", value=math.inf, count=np.int64(3))
        journal.write("end")
    with path.open("a", encoding="utf-8") as file:
        file.write('{"event": "row", "val')
    assert [event["event"] for event in read_events(path)] == ["row", "end"]
    assert next(iter(read_events(path)))["count"] == 3


def test_a_foreign_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("hello\n", encoding="utf-8")
    with pytest.raises(RecordingError, match="line 1"):
        list(read_events(path))
