"""What .ci/run promises: every step runs whatever failed before, and each failure is told at the end."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from ci_steps import ci_steps
from warm import EveryWarm

CI = ci_steps()
OUTCOMES = """passed\ttests/a.py::one
failed\ttests/a.py::two\ta.py:3: it begins so | and goes on
no hardware\ttests/a.py::three"""


def planted(work: Path) -> Sequence[object]:
    """Five steps, three of which fail: a command, a tool that says why, a test."""
    tests = work / "tests.txt"
    return [
        CI.Step(name="a command", clone="", script="exit 7"),
        CI.Step(name="a tool", clone="", script="echo checked; echo 'x.py:1: wrong' >&2; false; echo not reached"),
        CI.Step(name="tests", clone="", cores=2, after=["a command"], outcomes=tests,
                script=f"printf '%s' '{OUTCOMES}' >{tests}; exit 1"),
        CI.Step(name="after them", clone="", after=["tests", "a tool"], script="echo ran"),
        CI.Step(name="work", clone="", script="for i in 1 2 3 4 5 6 7 8 9; do seq 200000 | tail -1; done >/dev/null"),
    ]  # fmt: skip


def test_every_step_runs_and_each_failure_is_told(tmp_path: Path) -> None:
    found = CI.run_all(planted(tmp_path), tmp_path, "HEAD")
    assert [(one.step.name, one.status) for one in found] == [
        ("a command", 7), ("a tool", 1), ("tests", 1), ("after them", 0), ("work", 0),
    ]  # fmt: skip
    assert found[3].log == "ran\n"
    assert "not reached" not in found[1].log
    told = ["\n".join(one.failures()) for one in found]
    assert "status 7" in told[0]
    assert "x.py:1: wrong" in told[1]
    assert [part.strip() for part in told[2].splitlines()] == [
        "tests/a.py::two", "a.py:3: it begins so", "and goes on",
    ]  # fmt: skip
    assert told[3:] == ["", ""]
    rows = [line.split() for line in CI.table(found).splitlines()]
    assert rows[3][0] == "tests"
    assert rows[3][3:] == ["1", "1", "1", "RED"]
    assert found[4].cpu > 0


def test_a_step_that_hangs_is_ended_and_the_rest_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CI, "LIMIT_S", 0.5)
    hangs = CI.Step(name="hangs", clone="", script="sleep 1000 & wait")
    after = CI.Step(name="after", clone="", after=["hangs"], script="true")
    assert [one.status for one in CI.run_all([hangs, after], tmp_path, "HEAD")] == [-9, 0]


@pytest.mark.parametrize("red", [False, True])
@pytest.mark.parametrize("tests", [[], ["tests/test_house.py"]])
def test_what_passed_whole_is_remembered_beside_the_commits(
    red: bool, tests: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """For every worktree of the clone; a trial with chosen tests is never remembered."""
    main, other = tmp_path / "main", tmp_path / "other"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(main)]
    subprocess.run(["git", "init", "-q", str(main)], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "one"], check=True)
    subprocess.run([*git, "worktree", "add", "-q", str(other)], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout
    monkeypatch.setattr(CI, "ROOT", other)
    script = "false" if red else "git rev-parse HEAD"
    monkeypatch.setattr(CI, "steps", lambda work, tests: [CI.Step(name="one", clone="first", script=script)])
    assert CI.main(tests) == int(red)
    passed = main / ".git" / "ci-passed"
    assert (passed.read_text() if passed.exists() else "") == ("" if red or tests else commit)
    printed = capfd.readouterr().out
    assert printed.endswith("\nred\n" if red else "\ngreen\n")
    assert ("a trial" in printed) == bool(tests)
    assert red or f"\n{commit}" in printed, "the step did not run in a clone of the commit"


def test_what_begins_first_is_there_and_lint_and_types_leave_the_cores_to_tests(tmp_path: Path) -> None:
    """A file that was renamed would begin last, and one core would wait for it."""
    import conftest

    here = {path.stem for path in Path(__file__).parent.glob("test_*.py")}
    assert len(set(conftest.LONGEST)) == len(conftest.LONGEST)
    assert set(conftest.LONGEST) <= here
    steps = {step.name: step for step in CI.steps(tmp_path, [])}
    with_frameworks = steps["tests with frameworks"]
    assert with_frameworks.cores == CI.CORES
    busy = [name for name, step in steps.items() if step.cores and name not in with_frameworks.after]
    assert busy == ["tests with frameworks", "promised tests"], "nobody waits for one core while the other is idle"
    assert all(set(step.after) <= steps.keys() for step in steps.values())


@pytest.mark.parametrize("turn", ["before", "after"])
def test_what_a_library_leaves_in_the_environment_ends_no_forks(turn: str, warm: EveryWarm) -> None:
    """Paddle's import does so: each command of the tests behind it was a process of its own, at five times the cost."""
    assert warm["onnxruntime"].serves(os.environ), turn
    os.environ["CUDA_MODULE_LOADING"] = "LAZY"
    os.environ.pop("HOME", None)
    assert not warm["onnxruntime"].serves(os.environ)
