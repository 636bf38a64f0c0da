"""Two files that compute the same with their inner channels in another order, and what is wrong beside it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import precision_debug
from precision_debug.errors import ModelError
from precision_debug.pairing.reordered import find_order, find_reordered, list_orders
from precision_debug.records import TensorMeta
from precision_debug.report.model import Report

RANDOM = np.random.default_rng(0)
WEIGHTS = {
    "up": RANDOM.normal(size=(8, 24)), "up_b": RANDOM.normal(size=24), "down": RANDOM.normal(size=(24, 4)),
    "down_b": RANDOM.normal(size=4),
}  # fmt: skip
ORDER = RANDOM.permutation(24)
PLACES = tuple(np.argsort(ORDER).tolist())
MOVED = {**WEIGHTS, "up": WEIGHTS["up"][:, ORDER], "up_b": WEIGHTS["up_b"][ORDER], "down": WEIGHTS["down"][ORDER]}
MODES = {"run_mode": "ort_fp32", "baseline": "ort_fp32"}


def save(path: Path, weights: dict[str, np.ndarray]) -> str:
    nodes = [
        helper.make_node("Gemm", ["x", "up", "up_b"], ["h"], "first"),
        helper.make_node("Tanh", ["h"], ["t"], "tanh"),
        helper.make_node("Gemm", ["t", "down", "down_b"], ["g"], "second"),
        helper.make_node("Sigmoid", ["g"], ["y"], "last"),
    ]
    kept = [numpy_helper.from_array(np.asarray(value, np.float32), name) for name, value in weights.items()]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (5, size)) for name, size in (("x", 8), ("y", 4)))
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], kept), ir_version=8,
                              opset_imports=[helper.make_opsetid("", 17)])  # fmt: skip
    onnx.save(model, str(path))
    return str(path)


def compare(folder: Path, weights: dict[str, np.ndarray]) -> Report:
    return precision_debug.compare(
        save(folder / "target.onnx", weights), baseline_model=save(folder / "base.onnx", WEIGHTS), **MODES
    )


def reordered(report: Report) -> list[str]:
    return [row.name for row in report.rows if row.paired_by.startswith("in another order of channels")]


def test_units_in_another_order_in_both_layers_are_compared_in_the_baselines(tmp_path: Path) -> None:
    report = compare(tmp_path, MOVED)
    assert reordered(report) == ["h", "t"]
    assert {row.status for row in report.rows} == {precision_debug.records.Status.PASS}


def test_what_is_wrong_beside_another_order_is_named_by_itself(tmp_path: Path) -> None:
    worse = MOVED["down"].copy()
    worse[PLACES[3], 2] += 1
    report = compare(tmp_path, {**MOVED, "down": worse})
    assert report.explanation is not None
    (one,) = report.explanation.culprits
    assert (one.name, one.cause, [*one.evidence["at"]]) == ("g", "files_differ", [3, 2])
    assert one.evidence["base"] == pytest.approx(WEIGHTS["down"][3, 2])
    assert one.evidence["target"] == pytest.approx(WEIGHTS["down"][3, 2] + 1)


@pytest.mark.parametrize("name", ["up", "down"])
def test_an_order_that_one_layer_alone_has_is_what_is_wrong(tmp_path: Path, name: str) -> None:
    wrong = {"up": MOVED["up"], "up_b": MOVED["up_b"]} if name == "up" else {"down": MOVED["down"]}
    report = compare(tmp_path, {**WEIGHTS, **wrong})
    assert not reordered(report)
    assert report.explanation is not None
    (one,) = report.explanation.culprits
    assert one.name == {"up": "h", "down": "g"}[name]
    assert "another order along axis" in one.evidence["target"]


def _find(*metas: TensorMeta, **values: np.ndarray) -> set[str]:
    """Which of a graph's tensors, given the baseline's, are in the target's order; constants are a and b."""
    moved = {name: (one, one[:, ORDER]) for name, one in values.items() if one.shape[1:] == (24,)}
    same = {name: (one, one) for name, one in values.items() if name not in moved}
    constants = {"h": [("a", WEIGHTS["up"], MOVED["up"])], "y": [("b", WEIGHTS["down"], MOVED["down"])]}
    return {*find_reordered(metas, {"x"}, {**moved, **same}, constants, [PLACES]).tensors}


def _meta(name: str, *inputs: str, output: bool = False) -> TensorMeta:
    return TensorMeta(name=name, op_type="Op", inputs=inputs, is_output=output)


def test_every_reader_undoes_an_order_or_does_not_depend_on_it() -> None:
    x, y, h = (RANDOM.normal(size=(5, size)) for size in (8, 4, 24))
    metas = [_meta("h", "x"), _meta("y", "h")]
    assert _find(*metas, x=x, h=h, y=y) == {"h"}
    assert _find(*metas, _meta("mean", "h"), x=x, h=h, y=y, mean=h.mean(1)) == {"h"}
    assert _find(*metas, _meta("unknown", "h"), x=x, h=h, y=y) == set()
    assert _find(_meta("h", "x", output=True), metas[1], x=x, h=h, y=y) == set()
    assert _find(*metas, _meta("from nowhere", "y"), **{"x": x, "h": h, "y": y, "from nowhere": h}) == {"h"}


def test_orders_of_whole_heads_are_those_of_heads_too() -> None:
    weight, heads = RANDOM.normal(size=(24, 3)), np.array([2, 0, 1])
    order = (heads[:, None] * 8 + np.arange(8)).ravel()
    assert find_order(weight, weight[order]) == (0, order.tolist())
    found = list_orders([(weight, weight[order]), (weight, weight)])
    assert found[0] == tuple(np.argsort(order).tolist())
    assert tuple(np.argsort(heads).tolist()) in found


_MODULE = """
import torch
from torch import nn


class Attend(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.q, self.k, self.v, self.o = (nn.Linear(32, 32) for _ in range(4))

    def forward(self, x):
        q, k, v = (one(x).view(2, 6, 4, 8).transpose(1, 2) for one in (self.q, self.k, self.v))
        return self.o((torch.softmax(q @ k.transpose(2, 3) / 8**0.5, -1) @ v).transpose(1, 2).reshape(2, 6, 32))


def base():
    return Attend().eval(), torch.randn(2, 6, 32)


@torch.no_grad()
def moved(worse=1.0):
    net, x = base()
    order = torch.arange(32).view(4, 8)[[2, 0, 3, 1]].reshape(-1)
    for one in (net.q, net.k, net.v):
        one.weight.copy_(one.weight[order])
        one.bias.copy_(one.bias[order])
    net.o.weight.copy_(net.o.weight[:, order])
    net.k.weight[2] *= worse
    return net, x


def worse():
    return moved(1.3)
"""


@pytest.mark.engine("torch")
def test_heads_in_another_order_accuse_nobody_and_hide_nothing(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="torch is not installed")
    file = tmp_path / "heads.py"
    file.write_text(_MODULE)
    found = {
        name: precision_debug.compare(
            f"{file}:{name}", run_mode="torch_fp32", baseline="torch_fp32", baseline_model=f"{file}:base"
        )
        for name in ("moved", "worse")
    }
    assert {row.status for row in found["moved"].rows} == {precision_debug.records.Status.PASS}
    assert "softmax" in reordered(found["moved"])
    explained = found["worse"].explanation
    assert explained is not None
    (one,) = explained.culprits
    assert (one.name, one.cause) == ("k/addmm", "files_differ")
    assert one.evidence["target"] == pytest.approx(1.3 * one.evidence["base"], rel=1e-5)


@pytest.mark.engine("torch")
def test_weights_that_cannot_be_read_end_no_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a Paddle program whose file holds others: what runs is compared."""
    pytest.importorskip("torch", reason="torch is not installed")
    from precision_debug_torch.engine import exported_weights

    def refuse(model: Any) -> Any:
        raise ModelError("its weights cannot be read", where=model.path)

    monkeypatch.setattr(exported_weights, "weights_of", refuse)
    file = tmp_path / "heads.py"
    file.write_text(_MODULE)
    report = precision_debug.compare(
        f"{file}:moved", run_mode="torch_fp32", baseline="torch_fp32", baseline_model=f"{file}:base"
    )
    assert not reordered(report)
    assert [row.status for row in report.outputs] == [precision_debug.records.Status.PASS]


@pytest.mark.engine("torch")
def test_weights_are_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a card are copied to the host, where not all of them may fit."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    from precision_debug_torch.engine import exported_weights
    from precision_debug_torch.model import Model

    read: list[str] = []
    as_array = exported_weights.as_array

    def noted(tensor: Any, *, name: str) -> Any:
        read.append(name)
        return as_array(tensor, name=name)

    monkeypatch.setattr(exported_weights, "as_array", noted)
    weights = exported_weights.weights_of(Model(module=torch.nn.Linear(3, 2), path="a module"))
    assert (sorted(weights), read) == (["bias", "weight"], [])
    assert weights["weight"].shape == (2, 3)
    assert read == ["weight"]
