"""Several workers give what one gives, bit for bit, whatever happens to one of them; a checkpoint is gone on from."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from precision_debug.errors import InputError, UsageError
from precision_debug.events import ShardDone
from precision_debug.records import ModelFiles, RunSpec
from precision_debug.report.from_journal import report_of_events
from precision_debug.report.model import Report
from precision_debug.run import parallel_run, pipeline
from precision_debug.run.journal import Journal, read_events
from precision_debug.run.pools import Worker
from precision_debug.settings.options import Workers


@pytest.fixture
def spec(root: Path, tmp_path: Path) -> RunSpec:
    images = np.load(root / "examples/digits/test_images.npz")["image"][:24]
    np.savez(tmp_path / "images.npz", image=images)
    np.save(tmp_path / "labels.npy", np.load(root / "examples/digits/test_labels.npy")[:24])
    return RunSpec(
        model=ModelFiles(model_file=str(root / "examples/digits/digits.onnx")), run_mode="ort_int8",
        inputs=str(tmp_path / "images.npz"), labels=str(tmp_path / "labels.npy"), samples_axis=0,
    )  # fmt: skip


def told(folder: Path, run: Any) -> Report:
    folder.mkdir()
    with Journal(folder / "journal.jsonl") as journal:
        run(journal, folder)
    return report_of_events(read_events(folder / "journal.jsonl"))


def one(spec: RunSpec, tmp_path: Path) -> Report:
    return told(tmp_path / "one", lambda journal, folder: pipeline.execute(spec, journal, folder=folder))


def spread(spec: RunSpec, tmp_path: Path, asked: Workers, **more: Any) -> Report:
    return told(
        tmp_path / "spread", lambda journal, folder: parallel_run.execute(spec, asked, journal, folder=folder, **more)
    )


def assert_same(ours: Report, theirs: Report) -> None:
    assert ours.rows == theirs.rows
    assert ours.scores == theirs.scores
    assert ours.verdict == theirs.verdict
    mine, other = ours.explanation, theirs.explanation
    assert mine is not None
    assert other is not None
    assert (mine.state, mine.culprits, mine.actual, mine.expected) == (
        other.state, other.culprits, other.actual, other.expected
    )  # fmt: skip
    assert ours.notes == theirs.notes


def test_child_processes_give_what_one_process_gives(spec: RunSpec, tmp_path: Path) -> None:
    whole = one(spec, tmp_path)
    assert whole.compared
    parts: list[int] = []

    def kill_the_first(worker: Worker, done: int) -> None:
        parts.append(done)
        if done == 1:
            os.kill(worker.pid, signal.SIGKILL)

    found = spread(spec, tmp_path, Workers(jobs=2), on_part=kill_the_first)
    assert_same(found, whole)
    assert len(parts) == 12, "24 samples, two workers, 8 parts each or so"


@pytest.mark.slow
def test_a_checkpoint_is_gone_on_from(spec: RunSpec, tmp_path: Path) -> None:
    class Stop(Exception):
        pass

    def stop(worker: Worker, done: int) -> None:
        if done == 3:
            raise Stop

    kept = tmp_path / "kept.jsonl"
    with pytest.raises(Stop):
        told(
            tmp_path / "stopped",
            lambda journal, folder: parallel_run.execute(
                spec, Workers(jobs=1, checkpoint=str(kept)), journal, folder=folder, on_part=stop
            ),
        )
    before = len(kept.read_text().splitlines())
    assert before >= 4
    made: list[int] = []
    found = spread(
        spec, tmp_path, Workers(jobs=1, checkpoint=str(kept)), on_part=lambda worker, done: made.append(done)
    )
    assert len(made) <= 24 - 3 * (before - 1) + 8
    shards = list(read_events(tmp_path / "spread" / "journal.jsonl", ShardDone))
    assert len(shards) == len(made) + before - 1
    assert_same(found, one(spec, tmp_path))
    other = RunSpec(model=spec.model, run_mode="ort_opt", inputs=spec.inputs, options=spec.options)
    with pytest.raises(UsageError, match="another command"):
        told(
            tmp_path / "other",
            lambda journal, folder: parallel_run.execute(
                other, Workers(jobs=1, checkpoint=str(kept)), journal, folder=folder
            ),
        )


def test_what_is_wrong_is_said_in_one_line(spec: RunSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "images.npz", image=np.zeros((3, 2, 8, 8), np.float32))
    with pytest.raises(InputError, match="the model expects"):
        told(
            tmp_path / "b", lambda journal, folder: parallel_run.execute(spec, Workers(jobs=1), journal, folder=folder)
        )
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match="Ray is not installed"):
        told(
            tmp_path / "c",
            lambda journal, folder: parallel_run.execute(spec, Workers(engine="ray"), journal, folder=folder),
        )


def test_one_sample_is_compared_by_a_worker(spec: RunSpec, tmp_path: Path) -> None:
    single = RunSpec(model=spec.model, run_mode="ort_opt", explain="off")
    found = spread(single, tmp_path, Workers(jobs=2))
    assert found.rows == one(single, tmp_path).rows
    assert not found.failure
    assert found.compared


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_ray_gives_what_one_process_gives_though_a_worker_is_killed(spec: RunSpec, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed")
    whole = one(spec, tmp_path)
    killed: list[int] = []

    def kill_half_way(worker: Worker, done: int) -> None:
        if done == 6:
            killed.append(worker.pid)
            os.kill(worker.pid, signal.SIGKILL)

    found = spread(spec, tmp_path, Workers(engine="ray", jobs=2), on_part=kill_half_way)
    assert killed
    assert_same(found, whole)


@pytest.mark.parametrize(
    "address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:99999999", "no.such.host.invalid:6379"]
)
def test_a_cluster_that_nobody_answers_for_is_one_line_at_once(address: str) -> None:
    """Ray itself waits for minutes."""
    pytest.importorskip("ray", reason="ray is not installed")
    from precision_debug.run.pools import connect_to_ray

    with pytest.raises(UsageError, match="no response from"):
        connect_to_ray(address)
