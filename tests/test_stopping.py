"""Every verb that runs an engine ends within moments of a signal, with what there is, and leaves nothing in TMPDIR."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from attack.case import patience

from precision_debug.run import locked_folder

SIGNALS = [signal.SIGTERM, signal.SIGHUP, signal.SIGINT]


@pytest.fixture
def place(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """TMPDIR, empty; the model hangs or takes its time, as its run mode says."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(root / "tests" / "fake"), os.environ["PYTHONPATH"]]))
    place = tmp_path / "tmpdir"
    place.mkdir()
    monkeypatch.setenv("TMPDIR", str(place))
    save(pause=0)
    return place


OPENING = {
    "marks": ["marks", "m.fake", "--run_mode", "fake_hang_open"],
    "capability": ["inspect", "capability", "m.fake", "--run_mode", "fake_hang_open"],
    "ladder": ["ladder", "--model_file", "m.fake", "--run_mode", "fake_hang_open", "--output", "out/l.json"],
    "jobs": ["--model_file", "m.fake", "--run_mode", "fake_hang_open", "--jobs", "2", "--output", "out/r.json"],
}


def paired(ways: Sequence[Any]) -> list[Any]:
    """Every verb of OPENING with every way; but for one way each, taken in turn, they are slow."""
    return [
        pytest.param(verb, way, id=f"{verb}-{way}", marks=() if turn % len(ways) == at else pytest.mark.slow)
        for turn, verb in enumerate(OPENING) for at, way in enumerate(ways)
    ]  # fmt: skip


def save(**more: float) -> None:
    Path("m.fake").write_text(json.dumps({"layers": 10, "width": 4, **more}), encoding="utf-8")


def begin(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "precision_debug", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip


def wait_for(what: Callable[[], object], process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + patience(100)
    while not what():
        if time.monotonic() > deadline:
            if process is not None:
                process.kill()
                raise AssertionError(f"it did not come: {process.communicate()}")
            raise AssertionError("it did not come")
        time.sleep(0.05)


def opened() -> list[str]:
    """Files that a session which is opening leaves; folders may go while they are looked through."""
    return [str(Path(folder, "begun")) for folder, _, files in os.walk(Path.cwd()) if "begun" in files]


def ended(process: subprocess.Popen[str], number: signal.Signals) -> str:
    """What it says on standard error, one line at its end."""
    process.send_signal(number)
    _, stderr = process.communicate(timeout=patience(100))
    assert process.returncode == 3, stderr
    assert stderr.splitlines()[-1].startswith("precision_debug: interrupted"), stderr
    return stderr


def children_of(process: subprocess.Popen[str]) -> list[int]:
    text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text(encoding="utf-8")
    return [int(one) for one in text.split()]


def runs(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return False


@pytest.mark.parametrize("number", [SIGNALS[0], *(pytest.param(one, marks=pytest.mark.slow) for one in SIGNALS[1:])])
def test_a_sweep_that_is_timing_reports_what_it_has(place: Path, number: signal.Signals) -> None:
    save(pause=0.01)
    words = ["sweep", "--model_file", "m.fake", "--run_modes", "fake_fp32,fake_off", "--explain", "off"]
    process = begin(*words, "--speed_seconds", "1000", "--output", "out/s.json")
    wait_for(lambda: list(place.glob("*/.held")) and children_of(process), process)  # the folder is there before it
    (child,) = children_of(process)
    ended(process, number)
    wait_for(lambda: not runs(child))
    assert os.listdir(place) == []
    found = json.loads(Path("out/s.json").read_text(encoding="utf-8"))
    assert [mode["name"] for mode in found["modes"]] == ["fake_fp32", "fake_off"]
    assert found["modes"][1]["verdict"] == "out of tolerance"


def test_a_sweep_that_is_comparing_leaves_the_other_modes_out(place: Path) -> None:
    words = ["sweep", "--model_file", "m.fake", "--run_modes", "fake_off,fake_hang,fake_raise", "--explain", "off"]
    process = begin(*words, "--speed_seconds", "0.01", "--output", "out/s.json")

    def at_layer_5() -> bool:
        journals = list(Path("out").glob("s.modes/.precision_debug-*/journal.jsonl"))
        return (
            any('"fake_hang"' in path.read_text(encoding="utf-8") for path in journals)
            and Path("out/s.modes/fake_off.json").exists()
        )

    wait_for(at_layer_5, process)
    ended(process, signal.SIGTERM)
    found = {mode["name"]: mode for mode in json.loads(Path("out/s.json").read_text(encoding="utf-8"))["modes"]}
    assert found["fake_off"]["verdict"] == "out of tolerance"
    assert "interrupted" in found["fake_hang"]["refused"]
    assert found["fake_raise"]["refused"] == "interrupted"
    assert os.listdir(place) == []


@pytest.mark.parametrize(("verb", "number"), paired(SIGNALS))
def test_a_verb_that_opens_a_model_ends(place: Path, verb: str, number: signal.Signals) -> None:
    process = begin(*OPENING[verb])
    wait_for(opened, process)
    ended(process, number)
    assert os.listdir(place) == []
    assert opened() == []


@pytest.mark.parametrize(("verb", "who"), paired(["the command", "and its child"]))
def test_the_next_command_clears_what_a_killed_one_left(place: Path, verb: str, who: str) -> None:
    process, both = begin(*OPENING[verb]), who == "and its child"
    wait_for(opened, process)
    children = children_of(process) if both else []
    for child in children:
        os.kill(child, signal.SIGSTOP)
    process.kill()
    for child in children:
        os.killpg(child, signal.SIGKILL)
    process.communicate(timeout=patience(100))
    if both:
        assert opened()
    else:  # the child clears its own folder
        wait_for(lambda: not opened())
    again = ["marks", "m.fake", "--run_mode", "fake_fp32"]
    if verb == "jobs":
        again = ["--model_file", "m.fake", "--run_mode", "fake_fp32", "--output", "out/r.json"]
    assert begin(*again).communicate(timeout=patience(100))[1] == ""
    wait_for(lambda: not opened())
    assert os.listdir(place) == []


def test_what_somebody_works_in_is_no_leftover(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(place))
    for name in ("precision_debug-mine", "precision_debug-.held", "other"):
        (place / name).mkdir()
    (place / "precision_debug-file").touch()
    (place / "precision_debug-mine" / "notes").touch()
    with locked_folder.make_scratch_folder() as (folder, _):
        locked_folder.clear_scratch()
        assert folder.is_dir()
        names = {path.name for path in place.iterdir()}
        assert len(names) == 5
    assert {path.name for path in place.iterdir()} == names - {folder.name}


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_reduction_that_is_stopped_leaves_nothing(place: Path, number: signal.Signals) -> None:
    pytest.importorskip("onnxruntime", reason="only ONNX models are reduced")
    import numpy as np
    from onnx import helper, save_model
    from onnx_models import model, value

    nodes = [helper.make_node("Add", [f"t{n - 1}" if n else "x", "zero"], [f"t{n}"]) for n in range(300)]
    nodes.append(helper.make_node("Mul", ["t299", "t299"], ["y"]))
    save_model(model(nodes, [value("x", [4])], [value("y", [4])], {"zero": np.zeros(1, np.float32)}), "m.onnx")
    np.savez("x.npz", x=np.array([1, 2, 3, 1000], np.float32))
    before = sorted(os.listdir())
    process = begin("reduce", "--model_file", "m.onnx", "--run_mode", "ort_fp16_sim", "--inputs", "x.npz")
    wait_for(lambda: list(place.glob("*/part-*")), process)
    ended(process, number)
    assert set(os.listdir(place)) <= {".ses"}, "which ONNX Runtime writes"
    assert sorted(os.listdir()) == before


_WORKS_FOR = """
import sys, time
from precision_debug.run.locked_folder import make_scratch_folder
with make_scratch_folder(of=sys.argv[1]):
    print("held", flush=True)
    time.sleep(1000)
"""


def test_what_is_made_for_a_killed_run_goes_once_who_made_it_has_ended(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster's actors are nobody's children here, and end a moment after who started them."""
    monkeypatch.setattr("tempfile.tempdir", str(place))
    made = {}
    for run in (".precision_debug-this", ".precision_debug-that"):
        made[run] = subprocess.Popen([sys.executable, "-c", _WORKS_FOR, run], stdout=subprocess.PIPE, text=True)
        stdout = made[run].stdout
        assert stdout is not None
        assert stdout.readline() == "held\n"
    assert len(os.listdir(place)) == 2
    ends = threading.Timer(0.5, made[".precision_debug-this"].kill)
    ends.start()
    locked_folder.clear_scratch_of(".precision_debug-this")
    ends.join()
    (left,) = os.listdir(place)
    assert "that" in left
    for process in made.values():
        process.kill()
        process.communicate()
    locked_folder.clear_scratch()
    assert os.listdir(place) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_search_by_actors_leaves_nothing_of_ours(
    place: Path, number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="needs Ray")
    import numpy as np
    from planted.kept import CASES, LIMIT

    case = next(case for case in CASES if case.name == "cancellation0_overflow2")
    path, feeds = case.make(Path.cwd())
    np.savez("inputs.npz", **feeds)
    place = Path(tempfile.mkdtemp(prefix="ray-", dir="/tmp"))  # Ray's sockets lie in it: a longer name is refused
    monkeypatch.setenv("TMPDIR", str(place))
    process = begin(
        "search", "--model_file", str(path), "--inputs", "inputs.npz", "--run_mode", case.mode, "--limit", str(LIMIT),
        "--engine", "ray", "--jobs", "2", "--output", "out/o.json",
    )  # fmt: skip
    wait_for(lambda: list(place.glob("precision_debug-*/0")), process)
    ended(process, number)
    assert not list(place.glob("precision_debug-*"))
    shutil.rmtree(place)


def test_an_engine_that_ends_its_process_is_one_line_of_any_verb(place: Path) -> None:
    process = begin("marks", "m.fake", "--run_mode", "fake_abort_open")
    out, err = process.communicate(timeout=patience(100))
    assert (process.returncode, out) == (3, "")
    assert len(err.splitlines()) == 1
    assert "SIGABRT" in err
    assert "cannot open" in err
    assert os.listdir(place) == []


def test_a_ladder_whose_target_cannot_run_says_why_on_standard_error(place: Path) -> None:
    process = begin("ladder", "--model_file", "m.fake", "--run_mode", "fake_absent")
    out, err = process.communicate(timeout=patience(100))
    assert process.returncode == 2
    assert "needs a unicorn" in err
    assert len(err.splitlines()) == 1
    assert "fake_absent" in out


_SWALLOWED = """
import os, signal, sys, weakref
import precision_debug.cli as cli
from precision_debug import __main__ as command

class Thing: ...

def run():
    thing = Thing()
    kept = weakref.ref(thing, lambda _: os.kill(os.getpid(), signal.SIGINT))
    del thing  # Python prints what its callback raises, and goes on
    signal.sigtimedwait([], 30)  # ends with KeyboardInterrupt
    return 0

cli.main = run
sys.exit(command.main())
"""


@pytest.mark.skipif(not hasattr(signal, "sigtimedwait"), reason="waits as POSIX does")
def test_ctrl_c_inside_a_callback_is_not_swallowed() -> None:
    done = subprocess.run([sys.executable, "-c", _SWALLOWED], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (3, "precision_debug: interrupted\n")
