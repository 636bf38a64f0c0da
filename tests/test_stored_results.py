"""What was stored is gone on from only while all that can change the answer is the same, and never on a guess."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from precision_debug.errors import OutputError
from precision_debug.products.search.evaluations import Evaluations
from precision_debug.records import ModelFiles, RunSpec
from precision_debug.run import content
from precision_debug.run.content import digest_command, digest_contents, list_unknown_reads
from precision_debug.search.fix import Evaluation

JUDGE = """
import os
import numpy as np
from helpers.judge import good
from elsewhere import more
try:
    import cupy_that_is_not_there
except ImportError:
    pass
LIMITS = np.load("limits.npy")
def f(*a, **k):
    text = open("words.txt").read() + os.environ.get("MY_LIMIT", "")
    return good() and more(text)
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder: a judge with helpers below it, beside it, and in a folder of PYTHONPATH."""
    work, other, data = tmp_path / "work", tmp_path / "other", tmp_path / "data"
    for folder in (work / "helpers" / "inner", other, data, work / "lib"):
        folder.mkdir(parents=True)
    (work / "judge.py").write_text(JUDGE)
    (work / "helpers" / "__init__.py").touch()
    (work / "helpers" / "judge.py").write_text("from .inner import deep\ndef good(): return deep.yes\n")
    (work / "helpers" / "inner" / "deep.py").write_text("yes = True\n")
    (other / "elsewhere.py").write_text(f"TABLE = open({str(data / 'table.csv')!r}).read()\ndef more(t): return True\n")
    for file in ("work/limits.npy", "work/words.txt", "data/table.csv", "work/lib/a.so", "work/lib/b.so"):
        (tmp_path / file).write_bytes(b"one")
    (work / "m.onnx").write_bytes(b"model")
    monkeypatch.chdir(work)
    monkeypatch.syspath_prepend(str(other))
    return tmp_path


def spec() -> RunSpec:
    options = {"custom_ops_library": "lib/a.so,lib/b.so"}
    return RunSpec(model=ModelFiles(model_file="m.onnx"), run_mode="ort_int8", compare="judge.py:f", options=options)


@pytest.mark.parametrize(
    "file",
    [
        "work/judge.py", "work/helpers/judge.py", "work/helpers/__init__.py", "work/helpers/inner/deep.py",
        "other/elsewhere.py", "work/limits.npy", "work/words.txt", "data/table.csv", "work/lib/a.so", "work/lib/b.so",
        "work/m.onnx", "work/new.json", "other/cupy_that_is_not_there.py",
    ],
)  # fmt: skip
def test_a_file_that_is_read_is_part_of_the_key(home: Path, file: str) -> None:
    before = digest_contents(spec())
    assert digest_contents(spec()) == before
    assert not list_unknown_reads(spec(), "")
    with (home / file).open("ab") as changed:
        changed.write(b"\n# another\n")
    assert digest_contents(spec()) != before


@pytest.mark.parametrize(
    "name", ["MY_LIMIT", "OMP_NUM_THREADS", "ORT_DISABLE", "FLAGS_use_mkldnn", "NVIDIA_TF32_OVERRIDE"]
)
def test_the_environment_that_is_read_is_in_the_key(home: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(name, raising=False)
    before = digest_contents(spec())
    monkeypatch.setenv("SOME_OTHER_VARIABLE", "3")
    assert digest_contents(spec()) == before
    monkeypatch.setenv(name, "3")
    assert digest_contents(spec()) != before


def test_another_library_of_the_same_version_is_another_engine(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = home / "other" / "an_engine"
    engine.mkdir()
    (engine / "__init__.py").touch()
    (engine / "lib.so.1").write_bytes(b"one")
    monkeypatch.setattr(content, "_PACKAGES", ("an_engine",))
    before = digest_contents(spec())
    (engine / "lib.so.1").write_bytes(b"three")
    assert digest_contents(spec()) != before


def test_an_engine_that_is_installed_or_upgraded_meanwhile_is_another(home: Path) -> None:
    """Versions are read again where a folder of the import path has changed."""
    found = [digest_contents(spec())["versions"]]
    for version in ("1.0", "1.1"):
        for old in (home / "other").glob("*.dist-info"):
            old.rename(home / f"{old.name}.gone")
        info = home / "other" / f"torchao-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torchao\nVersion: {version}\n")
        found.append(digest_contents(spec())["versions"])
    assert len(set(found)) == 3
    assert digest_contents(spec())["versions"] == found[-1]


@pytest.mark.parametrize(
    "line",
    [
        "import subprocess", "import importlib; m = importlib.import_module(NAME)", "exec(open('x').read())",
        "import os; os.system('ls')", "from urllib import request", "import a_module_that_nobody_has",
        "import time; t = time.time()",
    ],
)  # fmt: skip
def test_what_cannot_be_known_is_never_gone_on_from_and_said(home: Path, line: str) -> None:
    with Path("judge.py").open("a") as file:
        file.write(line + "\n")
    first, second = digest_contents(spec()), digest_contents(spec())
    differing = {name for name in {*first, *second} if first.get(name) != second.get(name)}
    assert differing
    assert all("cannot be known" in name for name in differing)
    assert list_unknown_reads(spec(), "")


def test_a_model_that_is_put_into_evaluation_is_no_unknown(home: Path) -> None:
    with Path("judge.py").open("a") as file:
        file.write("def g(m): return m.eval()\n")
    assert not list_unknown_reads(spec(), "")


COMMANDS: dict[str, Callable[[Path], str]] = {
    "python": lambda home: "python judge.py {model}",
    "python with a flag": lambda home: "python judge.py --data=../data/table.csv {model}",
    "a shell's script": lambda home: "sh run.sh {model}",
    "a line for a shell": lambda home: "bash -c 'python judge.py {model}'",
    "make": lambda home: "make check MODEL={model}",
    "a script elsewhere": lambda home: f"sh {home}/data/far.sh {{model}}",
}


@pytest.mark.parametrize(
    "file", ["work/helpers/inner/deep.py", "data/table.csv", "work/words.txt", "other/elsewhere.py"]
)
@pytest.mark.parametrize("command", COMMANDS)
def test_the_whole_command_of_a_check_is_part_of_the_key(home: Path, command: str, file: str) -> None:
    Path("run.sh").write_text("python judge.py $1\n")
    Path("Makefile").write_text("check:\n\tpython judge.py $(MODEL)\n")
    (home / "data" / "far.sh").write_text(f"cd {home}/work && python {home}/work/judge.py $1\n")
    text = COMMANDS[command](home)
    before = digest_command(text)
    assert digest_command(text) == before
    (home / file).write_bytes(b"another = 1\n")
    assert digest_command(text) != before


def test_a_checks_own_report_beside_it_changes_nothing(home: Path) -> None:
    folder = home / "work" / "output"
    before = digest_command("python judge.py {model}", without=[folder])
    folder.mkdir()
    (folder / "evaluations.jsonl").write_text("{}\n")
    assert digest_command("python judge.py {model}", without=[folder]) == before


def test_a_line_of_a_search_that_was_changed_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "evaluations.jsonl"
    with Evaluations(path, "key") as known:
        known.begin("ort_int8", ["a"])
        known.end(Evaluation(kept=("a",), mode="ort_int8", passes=False, error=0.5))
    with Evaluations(path, "key") as known:
        found = known.find("ort_int8", ["a"])
        assert found is not None
        assert not found.passes
    text = path.read_text()
    for old, new in (('"passes": false', '"passes": true'), ("0.5", "0.25")):
        assert old in text
        path.write_text(text.replace(old, new))
        with pytest.raises(OutputError, match="damaged"):
            Evaluations(path, "key")
    lines = [json.loads(line) for line in text.splitlines()]
    for line in lines:
        line.pop("check", None)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))  # of a version that knew no digests
    with Evaluations(path, "key") as known:
        assert known.find("ort_int8", ["a"]) is None
    assert os.path.getsize(path)
