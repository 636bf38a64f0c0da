"""The runner of the checks on a card names what there is."""

from __future__ import annotations

import importlib.util
import sys
import threading
from pathlib import Path
from typing import Any


def _runner(root: Path) -> Any:
    spec = importlib.util.spec_from_file_location("gpu_all", root / "tests" / "gpu" / "all.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_every_script_of_the_folder_is_a_check_or_a_part_of_one(root: Path) -> None:
    runner = _runner(root)
    scripts = {path.name for path in (root / "tests" / "gpu").glob("*.py")}
    named = {check.words[0] for check in runner.checks().values()}
    assert named | set(runner._PARTS) == scripts
    assert {check.needs for check in runner.checks().values()} <= set(runner.NEEDS)


def test_a_check_whose_environment_is_missing_is_told_and_not_run(root: Path, tmp_path: Path, monkeypatch: Any) -> None:
    runner = _runner(root)
    monkeypatch.setattr(runner, "OUT", tmp_path)
    monkeypatch.setitem(runner.NEEDS, "onnxruntime", "import a_module_that_nobody_has")
    line = runner.run("x", runner.Check(words=("x.py",), needs="onnxruntime"), 60)
    assert (line["result"], line["why"]) == ("not here", "needs onnxruntime")
    monkeypatch.setitem(runner.NEEDS, "nothing", "pass")
    monkeypatch.setattr(runner, "GPU", tmp_path)
    for text, result in (("print('PASS a')", "green"), ("print('FAIL b')", "RED"), ("raise SystemExit(3)", "RED")):
        (tmp_path / "x.py").write_text(text)
        assert runner.run("x", runner.Check(words=("x.py",), needs="nothing"), 60)["result"] == result
    (tmp_path / "x.py").write_text("import time; time.sleep(60)")
    late = runner.run("x", runner.Check(words=("x.py",), needs="nothing", seconds=0.5), 60)
    assert late["result"] == "over its limit"


def test_each_step_of_paddle_with_tensorrt_is_a_check(root: Path, monkeypatch: Any) -> None:
    monkeypatch.syspath_prepend(root / "tests" / "gpu")
    spec = importlib.util.spec_from_file_location("paddle_trt", root / "tests" / "gpu" / "paddle_trt.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    steps = {check.words[1] for check in _runner(root).checks().values() if check.words[0] == "paddle_trt.py"}
    assert steps == set(module.STEPS)
    assert module._told("x", {"seconds": 1, "checks": {"a": True, "b": False}}) == 1
    assert module._told("x", {"seconds": 1, "failed": "Traceback"}) == 1
    assert module._told("x", {"seconds": 1}) == 0


def test_what_needs_much_of_the_card_waits_for_room(root: Path) -> None:
    runner = _runner(root)
    room = runner.Room(10)
    order = []
    with room.of(6):
        waiting = threading.Thread(target=lambda: _enter(room, 8, order))
        waiting.start()
        with room.of(4):
            order.append("the small one")
    waiting.join(30)
    assert order == ["the small one", 8]


def _enter(room: Any, gigabytes: int, order: list[Any]) -> None:
    with room.of(gigabytes):
        order.append(gigabytes)
