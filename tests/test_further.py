"""Whoever else is to blame is found, and confirmed, by what the engine does with the others kept in FP32."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from planted.onnx_faults import Graph

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")

import precision_debug
from precision_debug.records import Culprit, KeptAlone
from precision_debug.report.blame import _evidence_sentence
from precision_debug.run.further import does_nothing


def culprits(g: Graph, path: Path, mode: str, **options: object) -> tuple[precision_debug.Report, tuple[Culprit, ...]]:
    report = precision_debug.compare(str(path), run_mode=mode, inputs=g.feeds, **options)
    assert report.explanation is not None
    return report, report.explanation.culprits


def test_a_smaller_loss_beside_a_large_one_is_named_too(tmp_path: Path) -> None:
    """The quieter of two branches makes a sixth of the squared error, and a third of the error is left without the
    louder one."""
    g = Graph(seed=1)
    x = g.norm(g.input("x", g.random.normal(size=(6, 16)).astype(np.float32)), 16, "n")
    far = g.op("Add", [g.dense(x, 16, 16, "a"), g.weight("offset", np.full(1, 700, np.float32))], "far")
    near = g.op("Sub", [far, "offset"], "near")
    small = g.op("Mul", [g.dense(x, 16, 16, "b"), g.weight("small", np.full(1, 0.003, np.float32))], "small_x")
    less = g.op("Sub", [g.op("Exp", [small], "e"), g.weight("one", np.ones(1, np.float32))], "less")
    up = g.op("Mul", [less, g.weight("back", np.full(1, 200, np.float32))], "up")
    path = g.save(tmp_path / "two.onnx", [g.dense(g.op("Add", [near, up], "both"), 16, 4, "y")])
    report, (first, second) = culprits(g, path, "ort_fp16_sim")
    assert (first.name, first.beside, second.name, second.cause) == ("far", None, "e", "cancellation")
    assert second.beside is not None
    assert "node_far" in second.beside.kept
    assert second.beside.before > second.beside.left > 10 * second.beside.then
    assert report.to_keep is not None
    assert {"node_far", "node_e"} <= {*report.to_keep.keys}
    told = _evidence_sentence(second, None, "")
    for said in (told.en, told.zh):
        assert "`node_far`" in said


def test_the_input_of_a_coarse_matrix_is_named_beside_it(tmp_path: Path) -> None:
    """One channel is 40 times as loud as the others and its row as small; another is nearly 0 and its row 50 times as
    large."""
    g = Graph(seed=2)
    x = g.norm(g.input("x", g.random.normal(size=(24, 32)).astype(np.float32)), 32, "n0")
    size = np.ones(32, np.float32)
    size[5], size[17] = 40, 1 / 50
    h = g.dense(g.op("Mul", [x, g.weight("size", size)], "loud"), 32, 32, "mid")
    g.weights["mid.w"] = (g.weights["mid.w"] / size[:, None]).astype(np.float32)
    path = g.save(tmp_path / "coarse.onnx", [g.dense(g.norm(g.mlp(h, 32, "m"), 32, "n1"), 32, 6, "y")])
    _, named = culprits(g, path, "ort_int8", per_channel=True, pre_process=True)
    assert sorted(one.name for one in named) == ["loud", "mid"]


def test_who_does_nothing_when_kept_is_withdrawn() -> None:
    alone = KeptAlone(mode="m", before=0.2633, left=0.2633)
    assert does_nothing(alone, 0.01626, 0.01626)
    assert not does_nothing(alone, 0.01626, 0.008)  # beside the fix it takes half of what is left
    assert not does_nothing(KeptAlone(mode="m", before=0.26, left=0.26, with_readers=0.1, readers=1), 0.016, 0.016)
