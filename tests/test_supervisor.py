"""Runs through the whole command with a backend that can go wrong in every way."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from approval import holds_approved, is_approved
from attack.case import patience
from warm import Begun, begin, command

from precision_debug import Report, Status
from precision_debug.report.model import Verdict


@pytest.fixture
def model(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root / "tests" / "fake"), os.environ["PYTHONPATH"]]))
    path = tmp_path / "m.fake"
    path.write_text(json.dumps({"layers": 10, "width": 4}), encoding="utf-8")
    return path


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
    assert Path("out/r.json.inputs.npz").exists()
    assert Path("out/r.xlsx").exists()
    assert not leftovers()


def test_the_same_inputs_again_from_the_report(model: Path) -> None:
    compare("fake_fp32", "--seed", "3")
    first = Report.load("out/r.json")
    done = compare("fake_fp32", "--inputs", "out/r.json.inputs.npz", "--output", "again.json")
    assert done.returncode == 0, done.stderr
    assert Report.load("again.json").inputs[0].sha256 == first.inputs[0].sha256


def test_within_tolerance_is_status_0(model: Path) -> None:
    done = compare("fake_fp32")
    assert done.returncode == 0, done.stderr
    assert "AS EXPECTED" in done.stdout
    done = compare("fake_fp32", "--atol", "1e-4")
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
        ("fake_abort", "crashed (SIGABRT) (last output: terminate called: out of unicorns)"),
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
        assert "unicorn" in Path("out/r.json.log").read_text(encoding="utf-8")


def test_a_crash_before_anything_was_seen_is_status_3_and_keeps_the_log(model: Path) -> None:
    done = compare("fake_abort_open")
    assert done.returncode == 3
    assert "cannot open" in done.stderr
    assert not Path("out/r.json").exists()
    assert "cannot open" in Path("out/r.json.log").read_text(encoding="utf-8")
    assert not leftovers()


def start(mode: str, *more: str, fresh: bool = False) -> Begun | subprocess.Popen[str]:
    """fresh: in a process of its own, of which its child is one."""
    return begin("-m", "precision_debug", "--model_file", "m.fake", "--run_mode", mode, *more, fresh=fresh)


def wait_for(what: Callable[[], object], process: Begun | subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + patience(200)
    while not what():
        if time.monotonic() > deadline:
            if process is not None:
                process.kill()
            raise AssertionError("it did not come")
        time.sleep(0.05)


def found(pattern: str) -> list[Path]:
    return list(Path("out").glob(pattern)) if Path("out").exists() else []


def start_hanging(*outputs: str, record: str = "", fresh: bool = False) -> Begun | subprocess.Popen[str]:
    recorded = ("--record", record, "--baseline", "fake_fp32") if record else ()
    written = [word for name in outputs or ("out/r.json",) for word in ("--output", name)]
    process = start("fake_hang", *recorded, *written, fresh=fresh)

    def at_layer_5() -> bool:
        journals = found(".precision_debug-*/journal.jsonl")
        return bool(journals) and journals[0].read_text(encoding="utf-8").count('"event": "row"') == 5

    wait_for(at_layer_5, process)
    return process


def rescued(stderr: str) -> Report:
    """The report that the command in a message makes."""
    typed = re.search(r"`precision_debug (report .*) --output FILE`", stderr)
    assert typed is not None, stderr
    done = command(*shlex.split(typed[1]), "--output", "rescued.json")
    assert done.returncode == 3, done.stderr
    return Report.load("rescued.json")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_ctrl_c_leaves_the_partial_report(model: Path, number: signal.Signals) -> None:
    process = start_hanging(fresh=True)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=patience(55))
    assert process.returncode == 3
    assert "interrupted" in stderr
    report = Report.load("out/r.json")
    assert report.verdict is Verdict.PARTIAL
    assert len(report.compared) == 5
    assert not leftovers()


def test_when_the_supervisor_is_killed_the_worker_delivers(model: Path) -> None:
    process = start_hanging(fresh=True)
    process.kill()
    process.communicate(timeout=patience(55))
    deadline = time.monotonic() + patience(55)
    while not Path("out/r.json").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    report = Report.load("out/r.json")
    assert is_approved(report.failure)
    assert len(report.compared) == 5


def test_two_runs_into_one_report_do_not_mix(model: Path) -> None:
    process = start_hanging()
    done = compare("fake_fp32")
    assert done.returncode == 2
    assert holds_approved(done.stderr)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=patience(55))
    assert compare("fake_fp32").returncode == 0


def test_a_run_that_was_killed_a_moment_ago_is_waited_for(model: Path) -> None:
    """Its worker holds the report's lock while it delivers what was finished."""
    process = start_hanging()
    process.kill()
    process.wait(30)
    done = compare("fake_fp32")
    process.communicate(timeout=patience(55))
    assert done.returncode == 0, done.stderr
    assert not Report.load("out/r.json").failure
    assert not leftovers()


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
    process.communicate(timeout=patience(55))
    done = command("report", "kept.jsonl", "--output", "rescued.xlsx", "--output", "rescued.json")
    assert done.returncode == 3, done.stderr
    assert len(Report.load("rescued.json").compared) == 5


def test_nothing_of_the_users_beside_the_report_is_touched(model: Path) -> None:
    Path("out").mkdir()
    mine = ["r.log", "r.inputs.npz", "r.json.log", "r.json.inputs.npz", ".r.json.lock", "r.txt", "output.log"]
    for name in mine:
        Path("out", name).write_text(f"my {name}", encoding="utf-8")
    for mode, status in (("fake_fp32", 0), ("fake_abort", 3), ("fake_abort_open", 3), ("fake_fp32", 0)):
        done = compare(mode)
        assert done.returncode == status, done.stderr
        for name in mine:
            assert Path("out", name).read_text(encoding="utf-8") == f"my {name}"
    report = Report.load("out/r.json")
    assert report.inputs_file == "r.json.inputs.2.npz"
    assert any("r.json.inputs.2.npz has this name" in note for note in report.notes)
    assert sorted(os.listdir("out")) == sorted([*mine, "r.json", "r.json.inputs.2.npz"])


def test_folders_under_the_names_beside_the_report(model: Path) -> None:
    for name in ("r.log", "r.inputs.npz", "r.json.log", "r.json.inputs.npz"):
        Path("out", name).mkdir(parents=True)
    assert compare("fake_fp32").returncode == 0
    assert compare("fake_abort").returncode == 3
    assert "unicorn" in Path("out/r.json.2.log").read_text(encoding="utf-8")


def test_each_report_names_its_own_inputs(model: Path) -> None:
    done = compare("fake_fp32", "--seed", "1", "--output", "other/r.html")
    assert done.returncode == 0, done.stderr
    assert "../out/r.json.inputs.npz" in Path("other/r.html").read_text(encoding="utf-8")
    assert command("--model_file", "m.fake", "--run_mode", "fake_fp32", "--output", "out/r.csv").returncode == 0
    again = compare("fake_fp32", "--seed", "2")
    assert again.returncode == 0, again.stderr
    assert Report.load("out/r.json").inputs_file == "r.json.inputs.2.npz"


@pytest.mark.parametrize("more", [["--inputs", "in.json"], ["--marks", "in.json"], ["--labels", "in.json"]])
def test_an_output_that_is_also_read_is_refused(model: Path, more: list[str]) -> None:
    Path("in.json").write_text("[]", encoding="utf-8")
    done = command("--model_file", "m.fake", "--run_mode", "fake_fp32", *more, "--output", "in.json")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert Path("in.json").read_text(encoding="utf-8") == "[]"


def test_marks_do_not_overwrite_the_model(model: Path) -> None:
    before = Path("m.fake").read_bytes()
    done = command("marks", "--model_file", "m.fake", "--output", "m.fake")
    assert done.returncode == 2
    assert Path("m.fake").read_bytes() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_while_the_models_are_opened_leaves_nothing(model: Path, number: signal.Signals) -> None:
    process = start("fake_hang_open", "--output", "out/r.json", fresh=number == signal.SIGTERM)
    wait_for(lambda: found(".precision_debug-*/target/begun"), process)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=patience(55))
    assert process.returncode == 3
    assert "interrupted" in stderr
    assert os.listdir("out") == []


def test_a_killed_supervisor_while_the_models_are_opened_leaves_a_log(model: Path) -> None:
    process = start("fake_hang_open", "--output", "out/r.json")
    wait_for(lambda: found(".precision_debug-*/target/begun"), process)
    process.kill()
    process.communicate(timeout=patience(55))
    wait_for(lambda: os.listdir("out") == ["r.json.log"])
    assert holds_approved(Path("out/r.json.log").read_text(encoding="utf-8"))


def kill_both(process: Begun | subprocess.Popen[str]) -> None:
    """The supervisor and its worker, whose process group is a session of its own."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8").split()
    for child in children:
        os.kill(int(child), signal.SIGSTOP)
    process.kill()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    process.communicate(timeout=patience(55))


def test_the_next_run_clears_what_nobody_survived(model: Path) -> None:
    kill_both(start_hanging(fresh=True))
    assert len(found(".*")) == 2
    done = compare("fake_absent")
    assert done.returncode == 2
    assert len(Report.load("out/r.json").compared) == 5
    assert not leftovers()

    process = start("fake_hang_open", "--output", "out/r.json", fresh=True)
    wait_for(lambda: found(".precision_debug-*/target/begun"), process)
    kill_both(process)
    assert compare("fake_fp32").returncode == 0
    assert not leftovers()


def test_the_next_run_into_another_report_says_where_the_rows_are(model: Path) -> None:
    kill_both(start_hanging(fresh=True))
    done = command("--model_file", "m.fake", "--run_mode", "fake_fp32", "--output", "out/other.json")
    assert done.returncode == 0
    assert holds_approved(done.stderr)
    assert len(rescued(done.stderr).compared) == 5
    assert not Path("out/r.json").exists()


def test_a_run_that_is_on_is_no_leftover(model: Path) -> None:
    process = start_hanging()
    done = command("--model_file", "m.fake", "--run_mode", "fake_fp32", "--output", "out/other.json")
    assert (done.returncode, done.stderr) == (0, "")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=patience(55))
    assert len(Report.load("out/r.json").compared) == 5


def test_a_folder_that_only_looks_like_a_run_stays(model: Path) -> None:
    Path("out/.precision_debug-mine").mkdir(parents=True)
    Path("out/.precision_debug-mine/file").write_text("mine", encoding="utf-8")
    assert compare("fake_fp32").returncode == 0
    assert Path("out/.precision_debug-mine/file").read_text(encoding="utf-8") == "mine"


def delivering(process: Begun | subprocess.Popen[str]) -> None:
    """Wait until a run into out/r.json and then out/pipe.json has written the first."""
    wait_for(lambda: Path("out/r.json").exists(), process)


def test_a_signal_during_delivery_does_not_end_it(model: Path) -> None:
    Path("out").mkdir()
    os.mkfifo("out/pipe.json")
    process = start("fake_fp32", "--output", "out/r.json", "--output", "out/pipe.json")
    delivering(process)
    process.send_signal(signal.SIGTERM)
    text = Path("out/pipe.json").read_text(encoding="utf-8")
    _, stderr = process.communicate(timeout=patience(55))
    assert process.returncode == 0, stderr
    assert holds_approved(stderr)
    assert json.loads(text)["format"] == "precision_debug report"
    assert stat.S_ISFIFO(os.stat("out/pipe.json").st_mode)


def test_a_second_signal_during_delivery_says_where_the_rows_are(model: Path) -> None:
    Path("out").mkdir()
    os.mkfifo("out/pipe.json")
    process = start_hanging("out/r.json", "out/pipe.json")
    for _ in range(3):
        process.send_signal(signal.SIGINT)
        delivering(process)
        time.sleep(0.3)
    _, stderr = process.communicate(timeout=patience(55))
    assert process.returncode == 3
    assert len(rescued(stderr.splitlines()[-1]).compared) == 5


def test_a_report_that_cannot_be_written_says_where_the_rows_are(model: Path) -> None:
    process = start_hanging("out/r.json", "out/r.html")
    Path("out/r.json").mkdir()
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=patience(55))
    assert process.returncode == 2
    assert "is a folder" in stderr
    assert len(rescued(stderr).compared) == 5
    assert Path("out/r.html").exists()  # the other output is written all the same


def limited(kilobytes: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Files cannot grow beyond a size, as on a full disk."""
    words = shlex.join([sys.executable, "-m", "precision_debug", "--model_file", "m.fake", *arguments])
    return subprocess.run(
        ["bash", "-c", f"ulimit -f {kilobytes}; {words}"], capture_output=True, text=True, check=False, timeout=200
    )


def test_a_disk_that_is_full_for_the_report_only(model: Path) -> None:
    done = limited(200, "--run_mode", "fake_off", "--output", "out/r.html")  # a page is larger
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    typed = re.search(r"`precision_debug (report .*) --output FILE`", done.stderr)
    assert typed is not None
    assert command(*shlex.split(typed[1]), "--output", "rescued.json").returncode == 1
    assert len(Report.load("rescued.json").compared) == 10


def test_a_disk_that_is_full_for_the_journal(model: Path) -> None:
    model.write_text(json.dumps({"layers": 200, "width": 4}), encoding="utf-8")
    done = limited(100, "--run_mode", "fake_off", "--output", "out/r.csv")
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_disk_that_is_full_from_the_start(model: Path) -> None:
    done = limited(0, "--run_mode", "fake_off", "--output", "out/r.csv")
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert os.listdir("out") == []


def test_a_full_temporary_folder_does_not_matter(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", "/dev/full")
    done = compare("fake_fp32", "--output", "out/r.xlsx")
    assert done.returncode == 0, done.stderr


def test_a_current_folder_that_is_gone(model: Path, tmp_path: Path) -> None:
    Path("gone").mkdir()
    model_file, python = shlex.quote(str(model)), shlex.quote(sys.executable)
    run = f"{python} -m precision_debug --model_file {model_file} --run_mode fake_fp32 --output"
    script = (
        f"cd gone; rmdir ../gone; {run} {shlex.quote(str(tmp_path / 'there.xlsx'))}; echo $?; {run} r.xlsx; echo $?"
    )
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=200)
    assert done.stdout.splitlines()[-1] == "2"
    assert "0" in done.stdout.splitlines()
    assert "Traceback" not in done.stderr
    assert Path("there.xlsx").exists()


def test_reports_whose_names_are_no_utf8(model: Path) -> None:
    """We write them ourselves. A model's path must be UTF-8, since C++ opens it: see test_cli_statuses."""
    outputs = [
        word for suffix in ("xlsx", "json", "html", "csv", "md") for word in ("--output", f"out/\udcfe.{suffix}")
    ]
    done = command("--model_file", str(model), "--run_mode", "fake_off", *outputs)
    assert done.returncode == 1, done.stderr
    assert Report.load("out/\udcfe.json").spec.model.model_file == str(model)
    # five reports, the inputs, and whose the CSV and the Markdown are, which have no room for a mark of ours
    assert len(found("\udcfe.*")) == 6
    assert len(found("*")) == 7
    name = os.fsdecode(b"m\xff.fake")
    Path(name).write_bytes(model.read_bytes())
    done = command("--model_file", name, "--run_mode", "fake_off", "--output", "out/other.json")
    assert done.returncode == 2
    assert "is not UTF-8" in done.stderr


def test_a_long_name(model: Path) -> None:
    done = compare("fake_abort", "--output", f"out/{'n' * 250}.json")
    assert done.returncode == 3, done.stderr
    assert "crashed" in done.stderr
    assert len(Report.load(f"out/{'n' * 250}.json").compared) == 5
    done = command("--model_file", "m.fake", "--run_mode", "fake_fp32", "--output", f"out/{'n' * 251}.json")
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.fixture
def tmpdir_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "tmpdir"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    return place


def samples(count: int) -> list[str]:
    """The options of many samples by two workers."""
    Path("many").mkdir()
    for number in range(count):
        np.save(Path("many", f"{number}.npy"), np.full(4, number, np.float32))
    return ["--inputs", "many", "--jobs", "2", "--explain", "off"]


def test_workers_leave_nothing_in_tmpdir(model: Path, tmpdir_of_its_own: Path) -> None:
    done = compare("fake_fp32", *samples(8))
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmpdir_of_its_own) == []
    assert not leftovers()


@pytest.mark.parametrize("deaths", [*(pytest.param(few, marks=pytest.mark.slow) for few in (1, 2)), 3])
def test_a_worker_that_is_killed_while_it_opens_has_three_tries(
    model: Path, tmpdir_of_its_own: Path, deaths: int
) -> None:
    model.write_text(json.dumps({"layers": 10, "width": 4, "deaths": deaths, "counter": "deaths.txt"}))
    done = compare("fake_kill_open", *samples(8))
    assert os.listdir(tmpdir_of_its_own) == []
    if deaths < 3:
        assert done.returncode == 0, done.stderr
        assert len(Report.load("out/r.json").compared) == 10
        return
    assert done.returncode == 3
    assert holds_approved(done.stderr)
    assert "killed by SIGKILL" in done.stderr
    assert "internal error" not in done.stderr


TELLS = """
import sys
from pathlib import Path
from precision_debug.events import Stage, read
from precision_debug.records import ModelFiles, RunSpec
from precision_debug.run.supervisor import supervise

stages = []
spec = RunSpec(model=ModelFiles(model_file="m.fake"), run_mode=sys.argv[1])
supervise(spec, [Path("out/r.json")], on_event=lambda one: one["event"] == Stage.event and stages.append(read(one)))
print(*(stage.text for stage in stages), sep="\\n")
"""


@pytest.mark.parametrize("mode", ["fake_off", "fake_abort"])
def test_that_the_report_is_written_is_told_last(model: Path, mode: str) -> None:
    words = [sys.executable, "-c", TELLS, mode]
    stages = subprocess.run(words, capture_output=True, text=True, check=True, timeout=200).stdout.splitlines()
    assert Path("out/r.json").exists()
    assert stages[0].startswith("opening the ")
    assert [stage for stage in stages if "writing" in stage] == stages[-1:] == ["writing the report"]


def test_two_runs_that_record_into_one_folder_do_not_mix(model: Path) -> None:
    """Under another name of the same folder, too; and the folder is free again afterwards."""
    process = start_hanging(record="kept")
    Path("link").symlink_to("kept")
    for name in ("kept", "link", "./kept/"):
        done = command("--model_file", "m.fake", "--run_mode", "fake_fp32", "--record", name)
        assert done.returncode == 2, done.stdout + done.stderr
        assert holds_approved(done.stderr)
        assert len(done.stderr.strip().splitlines()) == 1
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=patience(55))
    done = command("--model_file", "m.fake", "--run_mode", "fake_fp32", "--record", "kept")
    assert done.returncode == 0, done.stderr
