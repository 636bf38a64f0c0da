"""What is left when one operator alone is repaired is asked of the engine; a replay's figure is told as one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from approval import holds_approved
from planted.onnx_faults import Graph

import precision_debug
from precision_debug.protocols import Executed
from precision_debug.records import Culprit, Explanation, KeptAlone
from precision_debug.report.blame import _evidence_sentence, cancelling_error_sentence, repairs_sentence
from precision_debug.report.lead import lead_sentences
from precision_debug.run.fixes import is_kept, with_kept_alone
from precision_debug.search.fix import Evaluation

_MODULES = """\
import torch


class Times(torch.nn.Module):
    def __init__(self, by):
        super().__init__()
        self.by = torch.nn.Parameter(torch.tensor(by))

    def forward(self, x):
        return x * self.by


class Steep(torch.nn.Module):
    def forward(self, x):
        return torch.exp((x.mean(1) - 0.5) * 80)


def model():
    return torch.nn.Sequential(Times(1.0036), Times(1.0045), Steep()).eval()
"""


def cancelling(folder: Path, *, modules: bool) -> tuple[str, dict[str, Any]]:
    """Two factors that BF16 rounds to 1 and to 1.0078, and behind them what makes each rounding matter."""
    graph = Graph(seed=5)
    x = graph.random.uniform(0.4, 0.6, size=(32, 4096, 16)).astype(np.float32)
    if modules:
        (folder / "cancel.py").write_text(_MODULES, encoding="utf-8")
        return f"{folder / 'cancel.py'}:model", {"input": x}
    value = graph.input("x", x)
    for number, times in enumerate((1.0036, 1.0045)):
        factor = graph.weight(f"c{number}", times * np.eye(16, dtype=np.float32))
        value = graph.op("MatMul", [value, factor], f"times{number}")
    mean = graph.op("ReduceMean", [value], "mean", axes=[1])
    off = graph.op("Sub", [mean, graph.weight("middle", np.float32(0.5))], "off")
    steep = graph.op("Mul", [off, graph.weight("steep", np.float32(80))], "steeper")
    return str(graph.save(folder / "cancel.onnx", [graph.op("Exp", [steep], "y")])), graph.feeds


@pytest.mark.parametrize(("mode", "option", "keys", "wide"), [
    ("ort_bf16_sim", "node_block_list", "node_times0 node_times1", "node_mean node_off node_steeper node_y"),
    ("ov_bf16", "keep_fp32", "times0 times1", "mean off steeper y"),
    ("torch_bf16", "keep_modules", "0 1", "2"),
])  # fmt: skip
def test_a_repair_is_told_as_the_engine_runs_it(
    tmp_path: Path, mode: str, option: str, keys: str, wide: str
) -> None:
    """Two rounding errors that cancel: mending one makes it worse. A text recogniser in OpenVINO's BF16 was told
    0.0216 of 0.0254 by a replay, and the engine with that operator alone in FP32 gives 0.0348."""
    pytest.importorskip(
        {"ort": "onnxruntime", "ov": "openvino", "torch": "torch"}[mode.partition("_")[0]], reason="the engine"
    )
    path, feeds = cancelling(tmp_path, modules=mode.startswith("torch"))

    def run(*kept: str, **more: Any) -> Any:
        return precision_debug.compare(path, run_mode=mode, inputs=feeds, **{option: (*wide.split(), *kept)}, **more)

    report = run()
    assert report.explanation is not None
    named = sorted(report.explanation.culprits, key=lambda one: one.name)
    assert len(named) == 2
    for one, key in zip(named, keys.split(), strict=True):
        assert one.kept_alone is not None
        assert one.kept_alone.left == pytest.approx(run(key, explain="off").outputs[0].relative_l2, rel=1e-6)
        assert one.kept_alone.is_worse
        assert one.share is None, "a replay's share is none of the engine's"
    assert (named[0].kept_alone.with_readers or 0.0) < 0.2 * named[0].kept_alone.before, "who reads it is the other one"
    told = cancelling_error_sentence(report.explanation.culprits[0])
    assert told in lead_sentences(report)
    assert report.to_keep is not None
    assert len(report.to_keep.keys) != 1, "one of them alone is no fix"
    assert all(len(one.keys) != 1 for one in report.to_keep.beside)


REPLAYED = Culprit(
    name="conv", node="conv", op_types=("Conv",), cause="amplified", at="y", repaired=0.0216, others_repaired=0.0377,
    with_all=0.0402,
)  # fmt: skip


def test_what_only_a_replay_leaves_is_said_to_be_so() -> None:
    said = repairs_sentence(REPLAYED)
    assert said is not None
    assert holds_approved(said.en)
    assert cancelling_error_sentence(REPLAYED) is None


@pytest.mark.parametrize(("left", "worse"), [(0.0348, True), (0.0111, False)])
def test_what_the_engine_leaves_takes_the_place_of_the_replay_s(left: float, worse: bool) -> None:
    kept = KeptAlone(mode="ov_opt", before=0.0254, left=left, with_readers=0.01, readers=2)
    one = dataclasses.replace(REPLAYED, kept_alone=kept)
    said = repairs_sentence(one)
    assert said is not None
    assert f"{left}" in said.en
    assert f"{left}" in said.zh
    assert "0.0216" not in said.en + said.zh
    assert (cancelling_error_sentence(one) is not None) == worse


@pytest.mark.parametrize(("left", "with_readers", "share", "in_budget"), [
    (0.1302, 0.1005, 0.287, 0.287), (0.1502, 0.0771, 0.75, 0.75), (0.1502, None, 0.051, 0.051), (0.2, None, None, 0.0),
])  # fmt: skip
def test_a_share_is_the_engine_s_where_it_ran_one(
    left: float, with_readers: float | None, share: float | None, in_budget: float
) -> None:
    """As seen of a stretch in OpenVINO's INT8: 90 % by a replay, and 29 % of the squared error goes with it alone. Next
    to nothing goes where its rounding happens at its reader."""
    named = [dataclasses.replace(REPLAYED, name=name, share=0.9) for name in ("conv", "other")]
    told = Explanation(state="culprits", culprits=tuple(named), at="y", budget={"conv": 0.9, "other": 0.9})
    ran = {"conv": KeptAlone(mode="ov_int8", before=0.1542, left=left, with_readers=with_readers, readers=4)}
    found = with_kept_alone(told, ran)
    assert found.culprits[0].share == (share if share is None else pytest.approx(share, abs=1e-3))
    assert (found.culprits[1], found.budget["other"]) == (named[1], 0.9)
    assert found.budget["conv"] == pytest.approx(in_budget, abs=1e-3)
    assert "explains" not in _evidence_sentence(found.culprits[0], None, "").en, "a replay's words"


@pytest.mark.parametrize(("was", "executed", "error", "kept"), [
    (Executed(low=5, of=9, precision="BF16"), Executed(low=4, of=9, precision="BF16"), 0.3, True),
    (Executed(low=5, of=9, precision="BF16"), Executed(low=5, of=9, precision="BF16"), 0.3, False),
    (Executed(low=5, of=9, precision="BF16"), None, 0.3, False),
    (None, Executed(low=4, of=9, precision="BF16"), 0.3, False),
    (Executed(low=1, of=9, precision="INT8", names=(("a",),)), Executed(low=1, of=9, precision="INT8"), 0.2, False),
    (Executed(low=1, of=9, precision="INT8", names=(("a",),)), Executed(low=1, of=9, precision="INT8"), 0.3, True),
])  # fmt: skip
def test_an_engine_that_kept_nothing_tells_nothing(
    was: Executed | None, executed: Executed | None, error: float, kept: bool
) -> None:
    found = Evaluation(kept=("b",), mode="m", passes=False, error=error, executed=executed)
    assert is_kept(found, was, 0.2, frozenset({"b"})) == kept
