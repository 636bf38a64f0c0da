"""CI fails where a promised test did not run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from outcomes import list_long, read
from promised import broken, promised

TESTS = """
import importlib.util
import pytest
if {module!r} == "skips": pytest.skip("a framework", allow_module_level=True)
def test_one(): pass
@pytest.mark.parametrize("n", [1, 2])
def test_some(n):
    if n == 2 and {second!r}: pytest.skip("it is not installed")
@pytest.mark.installed
def test_both(): pass
@pytest.mark.hardware({hardware!r})
def test_bfloat16(): assert {right!r}, "it begins so"
"""

HERE = Path(__file__).parent
PATHS = os.pathsep.join(map(str, (HERE, HERE.parent, HERE.parent / "backends")))


def run(
    folder: Path, name: str, *arguments: str, module: str = "", second: str = "", has: str = "avx512_bf16",
    hardware: str = "avx512_bf16", right: bool = True, long: str = "",
) -> dict[str, str]:  # fmt: skip
    """Outcomes of a pytest of its own, with this checkout's options, on a CPU that has one flag."""
    (folder / "conftest.py").write_text(
        "import forks, outcomes\nfrom forks import pytest_runtestloop\n"
        "from outcomes import pytest_configure, pytest_runtest_setup\n"
        "def pytest_addoption(parser):\n    outcomes.pytest_addoption(parser)\n    forks.pytest_addoption(parser)\n"
        "from pathlib import Path\noutcomes.LONG = Path('long.txt')\n"
        f"outcomes._flags_of_the_cpu = lambda: {{{has!r}}}\n"
        "def pytest_collection_modifyitems(config, items):\n"
        "    outcomes.mark_long(items)\n    outcomes.without_passed(config, items)\n"
        "def pytest_ignore_collect(collection_path, config):\n"
        "    return outcomes.passed_whole(config, collection_path) or None\n"
    )
    (folder / "test_y.py").write_text("open('imported', 'a').write('.')\ndef test_one(): pass\n")
    (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n  installed: x\n  hardware: x\n  long: x\n")
    (folder / "long.txt").write_text(long)
    (folder / "test_x.py").write_text(TESTS.format(module=module, second=second, hardware=hardware, right=right))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--outcomes={name}", *arguments],
        cwd=folder, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": PATHS}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    known = right and hardware == "avx512_bf16"
    assert done.returncode in ((0, 5) if known else (1,)), done.stdout + done.stderr
    return read(folder / name)


@pytest.mark.parametrize("more", [(), ("--forks", "2")], ids=["one process", "two forks"])
def test_what_passed_without_frameworks_does_not_run_again(more: tuple[str, ...], tmp_path: Path) -> None:
    one, some, both = "test_x.py::test_one", "test_x.py::test_some", "test_x.py::test_both"
    other = {"test_x.py::test_bfloat16": "passed", "test_y.py::test_one": "passed"}
    bare = run(tmp_path, "bare", *more, second="skips")
    assert bare == {one: "passed", f"{some}[1]": "passed", f"{some}[2]": "skipped", both: "passed", **other}
    (tmp_path / "imported").unlink()
    full = run(tmp_path, "full", "--passed-in=bare", *more)
    assert full == {f"{some}[2]": "passed", both: "passed"}
    assert not (tmp_path / "imported").exists()
    assert broken(["test_x.py", some], [bare, full]) == (["test_x.py: 5 passed", f"{some}: 2 passed"], [])
    assert broken([some], [bare])[1] == [f"{some}[2]: skipped"]
    assert broken(["test_z.py"], [bare])[1] == ["test_z.py: is in no run"]
    whole = run(tmp_path, "whole", *more, module="skips")
    assert whole == {"test_x.py": "skipped", "test_y.py::test_one": "passed"}
    assert broken(["test_x.py"], [whole])[1] == ["test_x.py: skipped"]
    assert broken(["test_x.py"], [whole, bare, full])[1] == []
    assert broken([one], [{one: "failed"}])[1] == [f"{one}: failed"]


@pytest.mark.parametrize("more", [(), ("--forks", "2")], ids=["one process", "two forks"])
def test_a_machine_without_the_declared_hardware_breaks_no_promise(more: tuple[str, ...], tmp_path: Path) -> None:
    name = "test_x.py::test_bfloat16"
    here = run(tmp_path, "here", *more, has="another")
    assert here[name] == "no hardware"
    assert broken([name], [here]) == ([f"{name}: 0 passed, 1 without its hardware"], [])
    assert broken(["test_x.py"], [{"test_x.py": "skipped"}, here]) == (
        ["test_x.py: 4 passed, 1 without its hardware"], []
    )  # fmt: skip
    again = run(tmp_path, "again", "--passed-in=here", *more)
    assert again[name] == "passed"


def test_a_failure_is_no_absence_and_says_how_it_begins(tmp_path: Path) -> None:
    name = "test_x.py::test_bfloat16"
    assert broken([name], [run(tmp_path, "wrong", right=False)])[1] == [f"{name}: failed"]
    (line,) = [line for line in (tmp_path / "wrong").read_text().splitlines() if name in line]
    assert "test_x.py:12: AssertionError: it begins so" in line
    assert broken([name], [run(tmp_path, "unknown", hardware="a card")])[1] == [f"{name}: failed"]
    assert broken([name], [{name: "no hardware"}, {name: "failed"}])[1] == [f"{name}: failed and no hardware"]


@pytest.mark.quick
def test_what_is_promised_is_in_the_tree(root: Path) -> None:
    for name in promised():
        path, _, test = name.partition("::")
        text = (root / path).read_text(encoding="utf-8")
        assert not test or f"def {test.partition('[')[0]}(" in text or "backend_contract" in text, name


@pytest.mark.parametrize("more", [(), ("--forks", "2")], ids=["one process", "two forks"])
def test_what_was_left_out_as_long_runs_with_the_frameworks(more: tuple[str, ...], tmp_path: Path) -> None:
    """Also of a file of which all else has passed."""
    some, other = "test_x.py::test_some", "test_y.py::test_one"
    long = f"# a note\n1 {some}\n0 {other}\n"
    bare = run(tmp_path, "bare", "-m", "not long", *more, long=long)
    assert f"{some}[1]" in bare
    assert not {f"{some}[2]", other} & bare.keys()
    full = run(tmp_path, "full", "--passed-in=bare", *more, long=long)
    assert full == {f"{some}[2]": "passed", other: "passed", "test_x.py::test_both": "passed"}


@pytest.mark.quick
def test_what_is_long_exists() -> None:
    for begins in list_long():
        name, _, test = begins.partition("::")
        code = (Path(__file__).parent.parent / name).read_text(encoding="utf-8")
        assert re.search(rf"^def {test.partition('[')[0]}\(", code, re.MULTILINE), begins
