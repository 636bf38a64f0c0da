"""Every worker of --jobs has a GPU of its own as long as there are enough, told by CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from precision_debug.numbers import cores
from precision_debug.numbers.cores import count_available_cores
from precision_debug.run import pools
from precision_debug.run.pools import Processes


@pytest.mark.parametrize(
    ("options", "found", "wanted"),
    [
        ({}, "0,1,2", ("0", "1", "2")),
        ({"device": "cuda"}, "GPU-a,GPU-b", ("GPU-a", "GPU-b")),
        ({"device": "cuda:0", "baseline.device": "cuda:1"}, "0,1,2,3", ("0,1", "2,3")),
        ({"device": "cuda:0", "baseline.device": "cuda:1"}, "0,1", ()),
        ({"device": "cuda:1"}, "4,5,6", ()),
        ({"device": "cpu"}, "0,1", ("0", "1")),
        ({"device": "1"}, "0,1", ()),
        ({}, "0", ()),
        ({}, "", ()),
    ],
)
def test_who_gets_which(options: dict[str, Any], found: str, wanted: tuple[str, ...]) -> None:
    assert pools.list_card_shares(options, found.split(",") if found else ()) == wanted


def test_what_this_process_may_not_use_is_not_given_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pools.VISIBLE, "3, 5")
    assert pools.list_cards() == ("3", "5")
    monkeypatch.setenv(pools.VISIBLE, "")
    assert pools.list_cards() == ()
    monkeypatch.delenv(pools.VISIBLE)
    monkeypatch.setattr(pools, "_count", lambda: 2)
    assert pools.list_cards() == ("0", "1")


class Visible:
    """Answers in its own process with what it sees."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        pass

    def ask(self, part: Any) -> list[Any]:
        return [os.environ.get("CUDA_VISIBLE_DEVICES")]


def test_workers_take_the_card_that_fewest_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(pools.VISIBLE, "2,7")
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    pool = Processes({"run_mode": "x"}, 3, tmp_path / "log", Visible)
    workers = [pool.start() for _ in range(3)]
    for worker in workers:
        worker.ask([])
    assert [worker.ask([1]) for worker in workers] == [["2"], ["7"], ["2"]]
    workers[1].close()
    assert pool.start().ask([]) is not None
    assert pool._started[-1].cards == "7", "the one that ended has left its own"
    pool.close()


class Share:
    """Answers in its own process with the cores that it may use, and what engines are told of them."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        pass

    def ask(self, part: Any) -> list[Any]:
        from precision_debug.numbers.cores import count_available_cores, count_shared_cores

        return [count_available_cores(), count_shared_cores(), os.environ.get("OMP_NUM_THREADS")]


def test_workers_share_the_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    share = max(1, count_available_cores() // 2)
    pool = Processes({}, 2, tmp_path / "log", Share)
    worker = pool.start()
    worker.ask([])
    assert worker.ask([1]) == [share, share, str(share)]
    pool.close()
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    pool = Processes({}, 2, tmp_path / "log", Share)
    worker = pool.start()
    worker.ask([])
    assert worker.ask([1])[2] == "3", "what a user says stands"
    pool.close()


def test_the_sides_of_a_worker_are_opened_on_its_share(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from precision_debug.records import ModelFiles, RunSpec
    from precision_debug.run.plan import make_plan

    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    (tmp_path / "m.onnx").touch()
    monkeypatch.setattr(cores, "_share", {})
    spec = RunSpec(model=ModelFiles(model_file=str(tmp_path / "m.onnx")), run_mode="ort_opt")
    assert make_plan(spec, work_dir=str(tmp_path)).target.spec.cores == 0
    cores.take_share(1)
    assert make_plan(spec, work_dir=str(tmp_path)).target.spec.cores == 1
