"""CI fails where a promised test did not run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from outcomes import read
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
"""


def run(folder: Path, name: str, *arguments: str, module: str = "", second: str = "") -> dict[str, str]:
    """Outcomes of a pytest of its own, with this checkout's options."""
    (folder / "conftest.py").write_text(
        "import outcomes\nfrom outcomes import pytest_addoption, pytest_configure\n"
        "def pytest_collection_modifyitems(config, items):\n    outcomes.without_passed(config, items)\n"
    )
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = installed: x\n")
    (folder / "test_x.py").write_text(TESTS.format(module=module, second=second))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--outcomes={name}", *arguments],
        cwd=folder, env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parent)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode in (0, 5), done.stdout + done.stderr
    return read(folder / name)


@pytest.mark.parametrize("more", [(), ("-n", "2")], ids=["one process", "two"])
def test_what_passed_without_frameworks_does_not_run_again(more: tuple[str, ...], tmp_path: Path) -> None:
    one, some, both = "test_x.py::test_one", "test_x.py::test_some", "test_x.py::test_both"
    bare = run(tmp_path, "bare", *more, second="skips")
    assert bare == {one: "passed", f"{some}[1]": "passed", f"{some}[2]": "skipped", both: "passed"}
    full = run(tmp_path, "full", "--passed-in=bare", *more)
    assert full == {f"{some}[2]": "passed", both: "passed"}
    assert broken(["test_x.py", some], [bare, full]) == (["test_x.py: 4 passed", f"{some}: 2 passed"], [])
    assert broken([some], [bare])[1] == [f"{some}[2]: skipped"]
    assert broken(["test_y.py"], [bare])[1] == ["test_y.py: is in no run"]
    whole = run(tmp_path, "whole", *more, module="skips")
    assert whole == {"test_x.py": "skipped"}
    assert broken(["test_x.py"], [whole])[1] == ["test_x.py: skipped"]
    assert broken(["test_x.py"], [whole, bare, full])[1] == []
    assert broken([one], [{one: "failed"}])[1] == [f"{one}: failed"]


def test_what_is_promised_is_in_the_tree(root: Path) -> None:
    for name in promised():
        path, _, test = name.partition("::")
        text = (root / path).read_text(encoding="utf-8")
        assert not test or f"def {test.partition('[')[0]}(" in text or "backend_contract" in text, name
