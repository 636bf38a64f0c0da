"""What each side makes of numbers that a scatter writes to one place is told by doing it once more."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from planted.onnx_faults import Graph

import precision_debug
from precision_debug.explain.scattered import _list_places, find_meeting
from precision_debug.explain.undo import Case
from precision_debug.reasons import say
from precision_debug.records import Operator, TensorMeta

RANDOM = np.random.default_rng(7)
VALUES = RANDOM.normal(size=(8, 4)).astype(np.float32)
ROWS = np.array([0, 1, 1, 2, 4, 4, 4, -1])


def case(exact: Any, wrong: Any, index: Any, op_type: str = "ScatterElements") -> Case:
    """Of an operator that reads ``x``, with its indices among the constants of the target's file."""
    meta = TensorMeta(name="y", op_type=op_type, inputs=("x",))
    there = Operator(op_type=op_type, parameters={"at": index})
    subject: Any = SimpleNamespace(
        region_of={"y": (meta,)}, constants={"y": {}}, row_of={"y": SimpleNamespace(target_name="y", op_type=op_type)},
        sources=lambda _name: ("x",), operators=lambda: (None, SimpleNamespace(operator=lambda _name: there)),
    )  # fmt: skip
    alone: Any = SimpleNamespace(method="replayed", wrong_of=lambda _name: VALUES)
    return Case(subject=subject, alone=alone, name="y", exact=np.float64(exact), wrong=np.float64(wrong))


def written(way: str, start: Any = None) -> Any:
    out = np.zeros((6, 4)) if start is None else np.array(start)
    if way == "the_last":
        out[ROWS] = VALUES
    elif way == "the_first":
        out[ROWS[::-1]] = VALUES[::-1]
    else:
        {"their_sum": np.add, "the_largest": np.maximum}[way].at(out, ROWS, VALUES)
    return out


@pytest.mark.parametrize("ways", [("their_sum", "the_last"), ("the_last", "the_first"), ("the_largest", "their_sum")])
@pytest.mark.parametrize("form", ["elements", "rows", "places"])
def test_what_becomes_of_numbers_that_go_to_one_place_is_told(ways: tuple[str, str], form: str) -> None:
    index = {"elements": np.repeat(ROWS[:, None], 4, 1), "rows": ROWS, "places": ROWS[:, None]}[form]
    found = find_meeting(case(written(ways[0]), written(ways[1]), index), 1e-6)
    assert found == {"met": say(ways[0]), "met_there": say(ways[1])}


def test_nothing_is_told_of_what_no_way_gives_or_of_another_operator() -> None:
    right = written("their_sum")
    assert not find_meeting(case(right, right + 1, ROWS), 1e-6)
    assert not find_meeting(case(right, written("the_last"), ROWS, "Gather"), 1e-6)
    assert not find_meeting(case(right, written("the_last"), np.arange(8) % 6 + 90), 1e-6), "of another tensor"


def test_indices_of_several_axes_are_one_place() -> None:
    at = np.array([[0, 1], [2, -1]])
    assert [one.tolist() for one in _list_places(at, (3, 4)) if one.ndim == 1] == [[1, 11]]


def test_messages_of_which_the_last_one_counts_are_told(tmp_path: Path) -> None:
    """A module adds them, its file's ScatterElements has no reduction. "The target computes something else" was said,
    and no word of the indices that repeat."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    assert torch
    pytest.importorskip("onnxruntime", reason="the file runs in ONNX Runtime")
    (tmp_path / "m.py").write_text(
        "import torch\nfrom torch import nn\nat = torch.tensor([0, 1, 1, 2, 4, 4, 4, 5])[:, None].expand(8, 4)\n"
        "class Net(nn.Module):\n    def forward(self, x):\n"
        "        return torch.zeros(6, 4).scatter_add(0, at, torch.tanh(x)) * 2\n"
        "def net():\n    return Net().eval(), torch.randn(8, 4)\n"
    )
    g = Graph(seed=1, opset=18)
    x = g.op("Tanh", [g.input("x", VALUES)], "t")
    where = g.weight("where", np.repeat(ROWS[:, None] % 6, 4, 1))
    x = g.op("ScatterElements", [g.weight("zero", np.zeros((6, 4), np.float32)), where, x], "sum", axis=0)
    g.op("Mul", [x, g.weight("two", np.float32(2))], "y")
    report = precision_debug.compare(
        g.save(tmp_path / "m.onnx", ["y"]), run_mode="ort_fp32", baseline="torch_fp32",
        baseline_model=f"{tmp_path / 'm.py'}:net", inputs=g.feeds,
    )  # fmt: skip
    assert report.explanation is not None
    first = report.explanation.culprits[0]
    assert (first.evidence["met"], first.evidence["met_there"]) == (say("their_sum"), say("the_last"))
