"""Runs through the whole command with a backend that can go wrong in every way."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from precision_debug import Report, Status
from precision_debug.report.model import Verdict


@pytest.fixture
def model(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root / "tests" / "fake"), os.environ["PYTHONPATH"]]))
    path = tmp_path / "m.fake"
    path.write_text(json.dumps({"layers": 10, "width": 4}), encoding="utf-8")
    return path


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "precision_debug", *arguments], capture_output=True, text=True, check=False, timeout=60
    )


def compare(mode: str, *more: str) -> subprocess.CompletedProcess[str]:
    return command("--model_file", "m.fake", "--run_mode", mode, "--output", "out/r.json", *more)


def leftovers() -> list[str]:
    return [path.name for path in Path("out").iterdir() if path.name.startswith(".")]


def test_the_whole_way(model: Path) -> None:
    done = compare("fake_off", "--output", "out/r.xlsx")
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    assert "OUT OF TOLERANCE" in done.stdout
    report = Report.load("out/r.json")
    assert [row.name for row in report.rows] == [f"t{i}" for i in range(10)]
    assert report.first_mismatch is not None
    assert report.first_mismatch.name == "t3"
    assert report.verdict is Verdict.FAIL
    assert report.baseline.mode == "fake_fp32"
    assert report.outputs[0].name == "t9"
    assert Path("out/r.inputs.npz").exists()
    assert Path("out/r.xlsx").exists()
    assert not leftovers()


def test_the_same_inputs_again_from_the_report(model: Path) -> None:
    compare("fake_fp32", "--seed", "3")
    first = Report.load("out/r.json")
    done = compare("fake_fp32", "--inputs", "out/r.inputs.npz", "--output", "again.json")
    assert done.returncode == 0, done.stderr
    assert Report.load("again.json").inputs[0].sha256 == first.inputs[0].sha256


def test_within_tolerance_is_status_0(model: Path) -> None:
    done = compare("fake_fp32")
    assert done.returncode == 0, done.stderr
    assert "WITHIN TOLERANCE" in done.stdout


def test_fused_away_tensors_have_rows(model: Path) -> None:
    compare("fake_fused")
    report = Report.load("out/r.json")
    assert [row.status for row in report.rows] == [Status.FUSED_AWAY, Status.PASS] * 5
    assert all(row.base is not None for row in report.rows if row.status is Status.FUSED_AWAY)
    assert report.rows[1].target_name == "f1"
    assert report.rows[1].paired_by == "graph metadata"


@pytest.mark.parametrize(
    ("mode", "said"),
    [
        ("fake_abort", "crashed (SIGABRT) (its last words: terminate called: out of unicorns)"),
        ("fake_kill", "was killed (SIGKILL)"),
        ("fake_exit", "ended with status 7"),
        ("fake_raise", "ValueError: layer 5 has no unicorn"),
    ],
)
def test_a_crash_leaves_the_partial_report(model: Path, mode: str, said: str) -> None:
    done = compare(mode, "--output", "out/r.xlsx")
    assert done.returncode == 3
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr
    report = Report.load("out/r.json")
    assert said in report.failure
    assert report.verdict is Verdict.PARTIAL
    assert [row.status for row in report.rows] == [Status.PASS] * 5 + [Status.NOT_COMPARED] * 5
    assert "PARTIAL" in done.stdout
    assert Path("out/r.xlsx").exists()
    assert not leftovers()
    if mode in ("fake_abort", "fake_raise"):
        assert "unicorn" in Path("out/r.log").read_text(encoding="utf-8")


def test_a_crash_before_anything_was_seen_is_status_3_and_keeps_the_log(model: Path) -> None:
    done = compare("fake_abort_open")
    assert done.returncode == 3
    assert "cannot open" in done.stderr
    assert not Path("out/r.json").exists()
    assert "cannot open" in Path("out/r.log").read_text(encoding="utf-8")
    assert not leftovers()


def start_hanging() -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "precision_debug", "--model_file", "m.fake", "--run_mode", "fake_hang",
         "--output", "out/r.json"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        journals = list(Path("out").glob(".precision_debug-*/journal.jsonl")) if Path("out").exists() else []
        if journals and journals[0].read_text(encoding="utf-8").count('"event": "row"') == 5:
            return process
        time.sleep(0.05)
    process.kill()
    raise AssertionError("the run never came to layer 5")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_leaves_the_partial_report(model: Path, number: signal.Signals) -> None:
    process = start_hanging()
    process.send_signal(number)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 3
    assert "interrupted" in stderr
    report = Report.load("out/r.json")
    assert report.verdict is Verdict.PARTIAL
    assert len(report.compared) == 5
    assert not leftovers()


def test_when_the_supervisor_is_killed_the_worker_delivers(model: Path) -> None:
    process = start_hanging()
    process.kill()
    process.communicate(timeout=30)
    deadline = time.monotonic() + 30
    while not Path("out/r.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    report = Report.load("out/r.json")
    assert report.failure == "the supervising process was killed"
    assert len(report.compared) == 5


def test_two_runs_into_one_report_do_not_mix(model: Path) -> None:
    process = start_hanging()
    done = compare("fake_fp32")
    assert done.returncode == 2
    assert "another run is writing this report" in done.stderr
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert compare("fake_fp32").returncode == 0


def test_a_mode_that_cannot_run_here_says_what_it_needs(model: Path) -> None:
    done = compare("fake_absent")
    assert done.returncode == 2
    assert "needs a unicorn" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_journal_of_a_run_that_nobody_survived_becomes_a_report(model: Path) -> None:
    process = start_hanging()
    journal = next(Path("out").glob(".precision_debug-*/journal.jsonl"))
    Path("kept.jsonl").write_bytes(journal.read_bytes())
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    done = command("report", "kept.jsonl", "--output", "rescued.xlsx", "--output", "rescued.json")
    assert done.returncode == 3, done.stderr
    assert len(Report.load("rescued.json").compared) == 5
