"""A search with several workers, child processes or Ray actors, gives the answer and journal of one process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from planted.kept import CASES, LIMIT
from test_search import search
from test_search_strategy import chain, groups_of

from precision_debug import events
from precision_debug.cli import main
from precision_debug.events import Evaluated
from precision_debug.products.search.prefetch import Prefetcher
from precision_debug.report.model import Report
from precision_debug.run.journal import read_events
from precision_debug.run.pools import WorkerLost
from precision_debug.search.fix import Evaluation
from precision_debug.search.offer import JudgedSet, Oracle
from precision_debug.search.strategy import minimise


@pytest.fixture
def planted(tmp_path: Path) -> list[str]:
    import numpy as np

    case = next(case for case in CASES if case.name == "cancellation0_overflow2")
    path, feeds = case.make(tmp_path)
    np.savez(tmp_path / "inputs.npz", **feeds)
    return ["--model_file", str(path), "--inputs", str(tmp_path / "inputs.npz"), "--run_mode", case.mode,
            "--limit", str(LIMIT)]  # fmt: skip


def asked_in(folder: Path) -> list[tuple[Any, ...]]:
    told = read_events(folder / "report.search" / "evaluations.jsonl", Evaluated)
    found = [event.evaluation for event in told if isinstance(event, Evaluated)]
    return [(item.mode, item.kept, item.passes, item.error, item.errors, item.held) for item in found]


def both(tmp_path: Path, arguments: Sequence[str], *more: str) -> tuple[Report, Report]:
    """One process and several: reports, after their journals were seen to be the same."""
    made = []
    for name, extra in (("one", ()), ("several", more)):
        folder = tmp_path / name
        folder.mkdir()
        made.append(search(folder, *arguments, *extra))
    assert asked_in(tmp_path / "one") == asked_in(tmp_path / "several")
    assert len(asked_in(tmp_path / "one")) > 3
    return made[0], made[1]


def test_two_child_processes_give_the_answer_and_journal_of_one(tmp_path: Path, planted: list[str]) -> None:
    one, several = both(tmp_path, planted, "--jobs", "2")
    assert one.fix is not None
    assert several.fix is not None
    assert (one.fix.kept, one.fix.evaluations, one.fix.after) == (
        several.fix.kept, several.fix.evaluations, several.fix.after
    )  # fmt: skip


@pytest.mark.slow
def test_ray_actors_give_the_answer_and_journal_of_one_process(tmp_path: Path, planted: list[str]) -> None:
    pytest.importorskip("ray", reason="needs Ray")
    one, several = both(tmp_path, planted, "--engine", "ray", "--jobs", "2")
    assert one.fix is not None
    assert several.fix is not None
    assert one.fix.kept == several.fix.kept


def test_a_checkpoint_is_refused_in_one_line(
    tmp_path: Path, planted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ["--output", str(tmp_path / "o.json"), "--quiet"]
    assert main(["search", *planted, *folder, "--jobs", "2", "--checkpoint", str(tmp_path / "c")]) == 2
    said = capsys.readouterr().err
    assert "--checkpoint" in said
    assert said.count("\n") == 1


class _Fake:
    """A pool whose workers answer at once; the set ("dies",) takes its worker with it."""

    size = 2

    def __init__(self) -> None:
        self.ran: list[tuple[str, ...]] = []
        self.started = 0

    def start(self) -> _Fake:
        self.started += 1
        return self

    pid = 0

    def ask(self, part: Sequence[Any]) -> list[dict[str, Any]]:
        if not part or part[0] == "setup":
            return []
        keys = tuple(part[2])
        self.ran.append(keys)
        if keys == ("dies",):
            raise WorkerLost("process 1 ended with status -11")
        told = Evaluation(kept=keys, mode="m", passes=True, error=0.25)
        return [events.to_plain_event(Evaluated(key="", evaluation=told))]

    def close(self) -> None:
        pass


class _Setup:
    mode = "m"

    def text(self) -> str:
        return ""


def test_a_set_that_takes_its_worker_with_it_fails_and_the_next_has_a_new_one() -> None:
    pool = _Fake()
    pool.size = 1
    with Prefetcher(pool) as ahead:
        number = ahead.prepared(_Setup())  # type: ignore[arg-type]
        gone = ahead.take(number, ("dies",))
        assert not gone.passes
        assert "-11" in gone.text
        assert ahead.take(number, ("b",)).passes
    assert pool.started == 2


def test_what_is_expected_runs_once_and_what_is_no_longer_is_forgotten() -> None:
    pool = _Fake()
    with Prefetcher(pool) as ahead:
        number = ahead.prepared(_Setup())  # type: ignore[arg-type]
        ahead.expect(number, [("a",), ("b",), ("c",)])
        assert ahead.take(number, ("a",)).error == 0.25
        assert ahead.take(number, ("b",)).error == 0.25
        ahead.expect(number, [])
    assert sorted(pool.ran) == [("a",), ("b",)]


def test_the_strategy_asks_for_what_it_said_it_would() -> None:
    """Most sets that are run were told before; what is asked, and the answer, stay the same."""
    units = chain(40)
    needed = frozenset({3, 4, 30, 31})

    def judged(kept: frozenset[int]) -> JudgedSet:
        error = 1e-3 if needed <= kept else 0.5 * len(needed - kept)
        return JudgedSet(error <= 1e-2, error)

    groups = groups_of(units, range(39), share=0.0)
    told: set[frozenset[int]] = set()
    plain = Oracle(len(units), judged, limit=1e-2)
    ahead = Oracle(len(units), judged, limit=1e-2, ahead=lambda sets: told.update(sets[:4]))
    found, again = minimise(plain, units, lambda _: groups), minimise(ahead, units, lambda _: groups)
    assert found == again
    assert list(plain.asked) == list(ahead.asked)
    assert len(told & set(ahead.asked)) >= 0.85 * len(ahead.asked)
