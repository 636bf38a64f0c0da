"""Whatever happens to a command, it ends with one line and a status that says whose fault it was."""

from __future__ import annotations

import json
import os
import runpy
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import onnx
import onnx_models
import pytest
from approval import holds_approved, is_approved
from warm import command

from precision_debug import cli

COMPARE = "--model_file m.fake --run_mode fake_off --output r.json"


@pytest.fixture(autouse=True)
def model(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root / "tests" / "fake"), os.environ["PYTHONPATH"]]))
    (tmp_path / "m.fake").write_text(json.dumps({"layers": 4, "width": 4}), encoding="utf-8")


def shell(words: str, *, before: str = "", after: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    script = f"{before} {shlex.quote(sys.executable)} -m precision_debug {words} {after}"
    return subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, check=False, timeout=200,
        env={**os.environ, **environment},
    )  # fmt: skip


def one_line(done: subprocess.CompletedProcess[str], status: int) -> str:
    assert done.returncode == status, done.stderr
    said = done.stderr.splitlines()
    assert len(said) == 1, done.stderr
    assert said[0].startswith("precision_debug: ")
    return said[0]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
@pytest.mark.parametrize("words", ["", "--help", "--version", "doctor", "doctor --help", COMPARE])
def test_a_full_standard_output(words: str) -> None:
    assert holds_approved(one_line(shell(words, after="> /dev/full"), 3))


def test_a_standard_output_that_nobody_reads() -> None:
    done = shell(COMPARE, before="{ sleep 1;", after="; echo $? >status; } | true")
    assert done.stderr == ""
    assert Path("status").read_text(encoding="utf-8") == "141\n"  # as of a program that SIGPIPE ends
    assert json.loads(Path("r.json").read_text(encoding="utf-8"))["summary"]


def test_a_full_standard_error_does_not_change_the_status() -> None:
    assert shell("--run_mode x", after="2> /dev/full").returncode == 2
    assert shell("--run_mode x --verbose", after="2> /dev/full").returncode == 2


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&-", ">&- 2>&- <&-"])
def test_closed_streams_do_not_change_the_status(closed: str) -> None:
    assert shell(COMPARE, after=closed).returncode == 1
    assert json.loads(Path("r.json").read_text(encoding="utf-8"))["summary"]


@pytest.mark.parametrize("encoding", ["ascii", "ascii:strict", "latin-1", "utf-8"])
def test_characters_that_an_encoding_lacks(encoding: str) -> None:
    Path("模型.fake").write_bytes(Path("m.fake").read_bytes())
    asked = {**os.environ, "PYTHONIOENCODING": encoding}
    done = command("--model_file", "模型.fake", "--run_mode", "fake_off", "--output", "r.json", env=asked)
    assert (done.returncode, done.stderr) == (1, "")
    one_line(command("--model_file", "缺失.fake", "--run_mode", "fake_off", env=asked), 2)
    assert shell("--help", PYTHONIOENCODING=encoding).returncode == 0  # in a process of its own


@pytest.mark.parametrize(
    "words",
    ["--option a=1j", "--option \"a=b'x'\"", "--option a=...", "--atol=--", "--seed=--", "--output", "--atol x"],
)
def test_odd_words(words: str) -> None:
    one_line(command(*shlex.split(f"{COMPARE} {words}")), 2)


@pytest.mark.parametrize("files", [6, 8, 10])  # with 4 Python itself does not start
def test_few_descriptors(files: int) -> None:
    done = shell(COMPARE, before=f"ulimit -n {files};")
    assert done.returncode in (1, 2, 3)
    assert len(done.stderr.splitlines()) == (done.returncode != 1), done.stderr


@pytest.mark.parametrize("blocks", [0, 1, 2, 4])
def test_files_that_may_not_grow(blocks: int) -> None:
    done = shell(COMPARE, before=f"ulimit -f {blocks};")
    assert done.returncode in (1, 2, 3)
    assert len(done.stderr.splitlines()) == (done.returncode != 1), done.stderr


def test_an_exception_that_is_none_of_ours(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def broken(_: list[str]) -> int:
        raise ValueError("two\nlines")

    monkeypatch.setattr("precision_debug.cli.doctor.run", broken)
    assert cli.main(["doctor"]) == 3
    assert is_approved(capsys.readouterr().err)
    assert cli.main(["doctor", "--verbose"]) == 3
    assert "Traceback" in capsys.readouterr().err


def test_verbose_keeps_the_status_of_our_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["--model_file", "no.fake", "--run_mode", "fake_off", "--verbose"]) == 2
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["model", "folder", "report"])
def test_a_path_that_is_not_utf8_is_refused_in_one_line(what: str, tmp_path: Path) -> None:
    """As a folder that was named in GBK: the frameworks' C++ cannot be told of it."""
    odd = os.fsdecode(b"\xd6\xd0")
    plain, other = tmp_path / "plain", tmp_path / odd
    try:
        other.mkdir()
    except (OSError, UnicodeError):
        pytest.skip("the file system takes UTF-8 only")
    plain.mkdir()
    model = {"model": plain / f"{odd}.onnx", "folder": other / "m.onnx"}.get(what, plain / "m.onnx")
    onnx.save(onnx_models.mlp(), plain / "kept.onnx")
    os.rename(plain / "kept.onnx", model)
    report = (other if what == "report" else plain) / "o.json"
    done = subprocess.run(
        [sys.executable, "-m", "precision_debug", "--model_file", str(model), "--run_mode", "ort_opt", "--output",
         str(report)], capture_output=True, text=True, check=False, timeout=200,
    )  # fmt: skip
    assert done.returncode == 2
    assert "is not UTF-8" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert os.listdir(os.fsencode(plain)) == ([os.fsencode(model.name)] if what != "folder" else [])


def test_ctrl_c_while_it_starts_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Imports take a moment, before anything of ours can catch it."""

    class Interrupting:
        def find_spec(self, name: str, *_: Any) -> None:
            if name == "precision_debug.cli":
                raise KeyboardInterrupt

    for name in [name for name in sys.modules if f"{name}.".startswith("precision_debug.cli.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [Interrupting(), *sys.meta_path])
    with pytest.raises(SystemExit) as left:
        runpy.run_module("precision_debug", run_name="__main__")
    assert left.value.code == 3
    assert capsys.readouterr().err == "precision_debug: interrupted\n"
