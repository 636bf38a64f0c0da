"""tests/forks.py: what became of each test is told as it is without forks, and one that ends its fork fails alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from warm import run_python

ROOT = Path(__file__).resolve().parent.parent

_FIRST = """
import os
import pytest

@pytest.fixture(scope="module")
def made(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "times"
    yield path
    print("torn down after", path.read_text())

def test_a(made, tmp_path):
    made.write_text(str(os.getpid()))
    (tmp_path / "own").mkdir()

def test_dies(made):
    os._exit(7)

def test_c(made):
    print("said by c")
    made.write_text("2")
    assert made.read_text() == "3", os.getpid()

@pytest.mark.skip
def test_skipped():
    pass
"""
_OTHER = """
import pytest

@pytest.mark.parametrize("number", range(3))
def test_number(number, record_property):
    record_property("number", number)
    print("said by", number)
    assert number != 1
"""


def test_forks_tell_what_became_of_each_test(tmp_path: Path) -> None:
    (tmp_path / "test_first.py").write_text(_FIRST, encoding="utf-8")
    for name in ("second", "third"):
        (tmp_path / f"test_{name}.py").write_text(_OTHER, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(
        "from forks import pytest_addoption, pytest_runtestloop\n", encoding="utf-8"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    done = run_python("-m", "pytest", "-v", "--forks", "2", "-p", "no:cacheprovider", "-o",
                      f"pythonpath={ROOT / 'tests'} {ROOT}", str(tmp_path), cwd=tmp_path)  # fmt: skip
    said = done.stdout
    assert done.returncode == 1, said + done.stderr
    assert "4 failed, 5 passed, 1 skipped" in said, said
    for test, became in {
        "test_first.py::test_a": "PASSED", "test_first.py::test_dies": "FAILED", "test_first.py::test_c": "FAILED",
        "test_first.py::test_skipped": "SKIPPED", "test_second.py::test_number[0]": "PASSED",
        "test_second.py::test_number[1]": "FAILED", "test_third.py::test_number[2]": "PASSED",
    }.items():  # fmt: skip
        assert f"{test} {became}" in said, (test, said)
    assert "status 7" in said
    assert "said by c" in said
    assert said.count("said by 1") == 2
    assert "said by 0" not in said


_LONG = r"""
import os
import time
from pathlib import Path
import pytest

@pytest.mark.parametrize("number", range(24))
def test_long(number):
    if number in (5, 17):
        os._exit(3)
    ran = Path(__file__).with_name("ran")
    while number == 0 and not ran.exists():  # until another has run
        time.sleep(0.01)
    with ran.open("a") as file:
        file.write(f"{number}\n")
"""


def test_who_has_no_file_left_takes_half_of_anothers_rest(tmp_path: Path) -> None:
    """Each test of the last file runs once, whichever fork dies."""
    (tmp_path / "test_long.py").write_text(_LONG, encoding="utf-8")
    (tmp_path / "conftest.py").write_text("from forks import pytest_addoption, pytest_runtestloop\n", encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    done = run_python("-m", "pytest", "-q", "--forks", "3", "-p", "no:cacheprovider", "-o",
                      f"pythonpath={ROOT / 'tests'} {ROOT}", str(tmp_path), cwd=tmp_path)  # fmt: skip
    assert "2 failed, 22 passed" in done.stdout, done.stdout + done.stderr
    ran = [int(line) for line in (tmp_path / "ran").read_text(encoding="utf-8").splitlines()]
    assert sorted(ran) == [number for number in range(24) if number not in (5, 17)]
    assert ran[0] > 1


_IN_ORDER = r"""
import os
import time
from pathlib import Path
import pytest

@pytest.mark.in_order
@pytest.mark.parametrize("number", range(6))
def test_whole(number):
    with Path(__file__).with_name("pids").open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(0.05)  # another has time to take some
"""


def test_what_goes_on_from_one_another_stays_with_one_fork(tmp_path: Path) -> None:
    """As the blocks of a document do, in one folder."""
    (tmp_path / "test_whole.py").write_text(_IN_ORDER, encoding="utf-8")
    (tmp_path / "conftest.py").write_text("from forks import pytest_addoption, pytest_runtestloop\n", encoding="utf-8")
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = in_order\n", encoding="utf-8")
    done = run_python("-m", "pytest", "-q", "--forks", "3", "-p", "no:cacheprovider", "-o",
                      f"pythonpath={ROOT / 'tests'} {ROOT}", str(tmp_path), cwd=tmp_path)  # fmt: skip
    assert "6 passed" in done.stdout, done.stdout + done.stderr
    assert len(set((tmp_path / "pids").read_text(encoding="utf-8").split())) == 1


_CRASHES = r"""
import os
import signal
from pathlib import Path
import pytest

def crash():
    os.kill(os.getpid(), signal.SIGSEGV)

@pytest.mark.parametrize("number", range(8))
def test_crashes(number):
    ran = Path(__file__).with_name(f"ran{number}")
    times = len(ran.read_text()) if ran.exists() else 0
    ran.write_text("." * (times + 1))
    if number in CRASHING and times < CRASHING[number]:
        crash()
"""


@pytest.mark.parametrize(
    ("crashing", "became"),
    [({3: 1}, "8 passed"), ({3: 2}, "1 failed, 7 passed"), ({3: 1, 5: 1}, "1 failed, 7 passed")],
    ids=["once", "each time", "two tests"],
)
def test_a_test_that_a_signal_ended_runs_once_more_and_that_is_told(
    tmp_path: Path, crashing: dict[int, int], became: str
) -> None:
    (tmp_path / "test_crash.py").write_text(_CRASHES.replace("CRASHING", repr(crashing)), encoding="utf-8")
    (tmp_path / "conftest.py").write_text(
        "from forks import pytest_addoption, pytest_runtestloop, pytest_terminal_summary\n", encoding="utf-8"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n", encoding="utf-8")
    done = run_python("-m", "pytest", "-q", "--forks", "2", "-p", "no:cacheprovider", "-o",
                      f"pythonpath={ROOT / 'tests'} {ROOT}", str(tmp_path), cwd=tmp_path)  # fmt: skip
    assert became in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("was run again") == 1
    assert "ended with status -11" in done.stdout
    assert "in crash" in done.stdout
    runs = [len((tmp_path / f"ran{number}").read_text(encoding="utf-8")) for number in range(8)]
    assert sorted(runs) == [1] * 7 + [2]
