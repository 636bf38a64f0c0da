"""Inputs that a search does not see: once it has learnt from one of them, new ones take their place."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from planted.onnx_faults import Graph, tokens

from precision_debug.products.search.unseen import Unseen
from precision_debug.records import ModelFiles, RunSpec
from precision_debug.run.criterion import Sample
from precision_debug.run.inputs import load_feeds
from precision_debug.run.plan import make_plan
from precision_debug.search.fix import SearchRequest

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


def unseen(folder: Path, inputs: str = "") -> Unseen:
    graph = Graph()
    path = graph.save(folder / "net.onnx", [graph.dense(tokens(graph, 16, 4), 16, 8, "y")])
    spec = RunSpec(model=ModelFiles(model_file=str(path)), run_mode="ort_fp16_sim", inputs=inputs)
    plan = make_plan(spec, work_dir=str(folder))
    assert plan.baseline is not None
    return Unseen(spec, SearchRequest(), plan.baseline, plan.target, load_feeds(spec, plan, ()))


def values(samples: list[Sample]) -> list[float]:
    return [float(np.asarray(sample.feeds["x"]).ravel()[0]) for sample in samples]


def test_of_random_inputs_there_are_ever_new_ones(tmp_path: Path) -> None:
    found = unseen(tmp_path)
    first = values(found.now)
    assert (len(found.seen), len(first)) == (1, 5)
    found.learn(found.now[2])
    assert values(found.seen)[1:] == first[2:3]
    now = values(found.now)
    assert now[:4] == [*first[:2], *first[3:]]
    assert len(now) == 9
    assert not set(now[4:]) & {*first, *values(found.seen)}


def test_half_of_the_users_check_until_something_was_learnt(tmp_path: Path) -> None:
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    for number in range(8):
        np.savez(inputs / f"{number}.npz", x=np.full((2, 4, 16), number, np.float32))
    found = unseen(tmp_path, str(inputs))
    assert (values(found.seen), values(found.now)) == ([0, 1, 2, 3], [4, 5, 6, 7])
    found.learn(found.now[1])
    assert (values(found.seen), values(found.now)) == ([0, 1, 2, 3, 5], [4, 6, 7])
