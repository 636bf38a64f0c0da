"""A report is made in a time that grows with its tensors, also of a run that was stopped while it explained them."""

from __future__ import annotations

import sys
from types import FrameType

from precision_debug import events
from precision_debug.records import TensorMeta
from precision_debug.report.from_journal import report_of_events


def calls(count: int) -> int:
    """How often Python code is entered for a chain of so many tensors, each of which has another name here."""
    told: list[events.Event] = [
        events.Tensors(
            side=side,
            tensors=tuple(
                TensorMeta(name=f"{side}{i}", op_type="Sin", inputs=(f"{side}{i - 1}",)) for i in range(count)
            ),
        )
        for side in ("baseline", "target")
    ]
    told.append(events.Paired(pairs={f"target{i}": (f"baseline{i}", "rename map") for i in range(count)}))
    entered = 0

    def count_it(_frame: FrameType, event: str, _given: object) -> None:
        nonlocal entered
        entered += event == "call"

    before = sys.getprofile()
    sys.setprofile(count_it)
    try:
        report = report_of_events(told, failure="interrupted")
    finally:
        sys.setprofile(before)
    assert len(report.rows) == count
    assert {row.paired_by for row in report.rows} == {"rename map"}
    return entered


def test_renamed_tensors_are_looked_up_and_not_searched_for() -> None:
    calls(10)  # what is imported late
    assert calls(400) < 3 * calls(200)
