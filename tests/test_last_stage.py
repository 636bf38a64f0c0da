"""The stage that a crash is blamed on: both sides' where both were at it."""

from __future__ import annotations

from pathlib import Path

import pytest

from precision_debug.events import Event, SideDone, Stage, Tensors
from precision_debug.reasons import say
from precision_debug.run.journal import Journal
from precision_debug.run.outcome import find_last_stage


def at(kind: str, side: str) -> Stage:
    return Stage(text=say(kind, side=say(side), mode=f"mode of the {side}"))


OPEN = [at("stage_opening", "target"), at("stage_opening", "baseline")]
RUN = [at("stage_running", "baseline"), at("stage_running", "target")]
TOLD = [Tensors(side="baseline", tensors=()), Tensors(side="target", tensors=())]
BOTH = "opening the baseline: mode of the baseline, and at the same time opening the target: mode of the target"


@pytest.mark.parametrize(
    ("events", "said"),
    [
        ([], ""),
        (OPEN[:1], "opening the target: mode of the target"),
        (OPEN, BOTH),
        ([*OPEN, TOLD[0]], "opening the target: mode of the target"),
        ([*OPEN, *TOLD, *RUN, SideDone(side="target")], "running the baseline: mode of the baseline"),
        ([*OPEN, *TOLD, *RUN], BOTH.replace("opening", "running")),
        ([OPEN[1], TOLD[0], OPEN[0]], "opening the target: mode of the target"),
        ([*OPEN, *TOLD, RUN[0], SideDone(side="baseline"), RUN[1]], "running the target: mode of the target"),
        ([*OPEN, Stage(text=say("stage_pairing"))], str(say("stage_pairing"))),
    ],
)  # fmt: skip
def test_the_last_stage(events: list[Event], said: str, tmp_path: Path) -> None:
    with Journal(tmp_path / "journal.jsonl") as journal:
        for event in events:
            journal.write(event)
    assert find_last_stage(tmp_path / "journal.jsonl") == said
