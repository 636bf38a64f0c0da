"""The story of a run, in the journal's own words: what is told in which order, and what a failure leaves behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from precision_debug.errors import BackendError, MarkError, UsageError
from precision_debug.events import Again, End, Event, Inputs, Ran, Renames, RowDone, Saved, Selected, Start
from precision_debug.records import ModelFiles, RunSpec, Status
from precision_debug.report.from_journal import report_of_events
from precision_debug.run import pipeline
from precision_debug.run.journal import Journal, read_events

X = {"x": np.zeros(4, np.float32)}


def told(fake: str, folder: Path, mode: str = "fake_off", **settings: Any) -> list[Event]:
    work = folder / "work"
    work.mkdir()
    spec = RunSpec(model=ModelFiles(model_file=fake), run_mode=mode, **settings)
    with Journal(work / "j") as journal:
        pipeline.execute(spec, journal, folder=work, feeds=(X,))
    return list(read_events(work / "j"))


def test_a_whole_run_is_told_from_its_start_to_its_end(fake: str, tmp_path: Path) -> None:
    events = told(fake, tmp_path)
    assert isinstance(events[0], Start)
    assert isinstance(events[-1], End)
    kinds = [type(event) for event in events]
    assert kinds.index(Renames) < kinds.index(Saved) < kinds.index(Ran) < kinds.index(RowDone)
    assert sum(kind is Saved for kind in kinds) == sum(kind is RowDone for kind in kinds) == 8
    assert Inputs in kinds
    report = report_of_events(events)
    assert [row.status for row in report.rows] == [Status.PASS] * 3 + [Status.FAIL] * 5
    assert report.first_mismatch is not None
    assert report.first_mismatch.name == "t3"
    assert report.failure == ""


def test_only_what_was_marked_is_saved_and_compared(fake: str, tmp_path: Path) -> None:
    events = told(fake, tmp_path, marks=("t2", "t5"))
    assert [event.names for event in events if isinstance(event, Selected)] == [("t2", "t5")]
    assert [event.row.name for event in events if isinstance(event, RowDone)] == ["t2", "t5"]


def test_tensors_that_the_target_calls_otherwise_are_paired_by_their_origin(fake: str, tmp_path: Path) -> None:
    rows = [event.row for event in told(fake, tmp_path, "fake_fused") if isinstance(event, RowDone)]
    assert [(row.name, row.target_name, row.paired_by) for row in rows] == [
        (f"t{number}", f"f{number}", "graph metadata") for number in (1, 3, 5, 7)
    ]


def test_what_was_finished_before_a_failure_is_in_the_journal(fake: str, tmp_path: Path) -> None:
    with pytest.raises(BackendError, match="ValueError"):
        told(fake, tmp_path, "fake_raise")
    events = list(read_events(tmp_path / "work" / "j"))
    assert not any(isinstance(event, End) for event in events)
    report = report_of_events(events)
    assert [row.name for row in report.rows if row.comparison is not None] == [f"t{number}" for number in range(5)]
    assert report.verdict == "partial"


@pytest.mark.parametrize(
    ("settings", "kind", "said"),
    [
        ({"marks": ("nothing",)}, MarkError, "no tensor"),
        ({"lockstep": True}, UsageError, "run mode fake_fp32 cannot run beside another"),
    ],
)
def test_what_cannot_be_done_is_said(
    fake: str, tmp_path: Path, settings: dict[str, Any], kind: type[Exception], said: str
) -> None:
    with pytest.raises(kind, match=said):
        told(fake, tmp_path, **settings)


def test_what_was_told_before_both_run_again_is_void(fake: str, tmp_path: Path) -> None:
    """As where two runs turn out to share state: the rows of the first attempt are none of the report's."""
    events = told(fake, tmp_path)
    rows = [event for event in events if isinstance(event, RowDone)]
    twice = [*events[:-1], Again(), *events[1:-1], events[-1]]
    assert sum(isinstance(event, RowDone) for event in twice) == 2 * len(rows)
    assert report_of_events(twice).rows == report_of_events(events).rows
    spoiled = [*events[:-1], Again(), events[-1]]
    assert all(row.comparison is None for row in report_of_events(spoiled).rows)
