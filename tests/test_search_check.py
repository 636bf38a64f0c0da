"""`precision_debug search --check COMMAND`: a command of the user's decides of each saved model by its exit status."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from planted.kept import CASES
from test_search import search

from precision_debug.cli import main
from precision_debug.errors import UsageError
from precision_debug.run.criterion import CheckCommand

CHECK = """
import sys
import numpy as np
import onnxruntime

path, folder = sys.argv[1], sys.argv[2]
feeds = dict(np.load(folder + "/inputs.npz"))
session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
got = session.run(None, feeds)[0]
want = np.load(folder + "/want.npy")
with open(folder + "/calls.txt", "a") as told:
    told.write(path + "\\n")
ok = np.isfinite(got).all() and np.linalg.norm(got - want) <= 0.02 * np.linalg.norm(want)
raise SystemExit(0 if ok else 1)
"""


@pytest.fixture
def planted(tmp_path: Path) -> list[str]:
    import onnxruntime

    case = next(case for case in CASES if case.name == "overflow1")
    path, feeds = case.make(tmp_path)
    np.savez(tmp_path / "inputs.npz", **feeds)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    np.save(tmp_path / "want.npy", session.run(None, feeds)[0])
    (tmp_path / "check.py").write_text(CHECK)
    return ["--model_file", str(path), "--inputs", str(tmp_path / "inputs.npz"), "--run_mode", "ort_fp16"]


def test_the_exit_status_of_a_command_drives_the_search(tmp_path: Path, planted: list[str]) -> None:
    command = f"{sys.executable} {tmp_path}/check.py {{model}} {tmp_path}"
    fix = search(tmp_path, *planted, "--check", command).fix
    assert fix is not None
    assert (fix.state, [unit.key for unit in fix.kept]) == ("found", ["node_p1_big"])
    assert fix.limit.startswith("`")
    assert "ends with status 0" in fix.limit
    assert fix.before is not None
    assert fix.before > 0.5, "infinite sums behind a Tanh"
    assert fix.after is not None
    assert fix.after < 0.02
    calls = (tmp_path / "calls.txt").read_text().splitlines()
    assert len(calls) >= fix.evaluations
    models = [item for item in fix.artefacts if item.path]
    assert models
    genuine = [item for item in fix.artefacts if "ort_fp16_sim" in item.text]  # it may not hold in genuine float16
    assert all(item.verified for item in fix.artefacts if item.kind != "config" and item not in genuine)
    assert models[0].path in calls, "what is handed over was checked by the command too"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("python 'check.py {model}", "quotes"),
        ("python check.py", "{model}"),
        ("no_such_program_anywhere {model}", "program not found"),
        ("", ""),
    ],
)
def test_bad_commands_are_one_line(
    tmp_path: Path, planted: list[str], capsys: pytest.CaptureFixture[str], command: str, said: str
) -> None:
    more = ["--check", command] if command else ["--check", "true {model}", "--limit", "0.1"]
    assert main(["search", *planted, "--output", str(tmp_path / "o.json"), "--quiet", *more]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    assert (said or "--limit") in told


def test_what_a_shell_cannot_run_is_no_answer(tmp_path: Path) -> None:
    model = tmp_path / "m.onnx"
    model.write_text("")
    with pytest.raises(UsageError, match="was not found"):
        CheckCommand.of("sh -c 'no_such_program_anywhere {model}'").passes(model)
    passes, why = CheckCommand.of("sh -c 'kill -9 $$ {model}'").passes(model)
    assert not passes
    assert "signal 9" in why
    assert CheckCommand.of("test -f {model}").passes(model) == (True, "")
    with pytest.raises(UsageError, match="saved no model"):
        CheckCommand.of("test -f {model}").passes(tmp_path / "none.onnx")


def test_a_mode_that_saves_nothing_is_refused(
    tmp_path: Path, planted: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*planted[:-1], "ort_fp16_sim", "--output", str(tmp_path / "o.json"), "--quiet"]
    assert main(["search", *arguments, "--check", "true {model}"]) == 2
    assert "saves no model" in capsys.readouterr().err
