"""Two files in which a framework names tensors by their operator and a number, and does not number both alike."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import precision_debug
from precision_debug.pairing.renumbered import Numbered, find_renumbered
from precision_debug.records import Status, TensorMeta
from precision_debug.report.model import Report

RANDOM = np.random.default_rng(4)
WEIGHT = RANDOM.normal(size=(16, 16)).astype(np.float32) / 4
MODES = {"run_mode": "ort_fp32", "baseline": "ort_fp32"}
Ops = list[tuple[str, list[str], str]]


def save(path: Path, ops: Ops, output: str) -> str:
    """ops: operator, inputs (numbers are constants), result."""
    kept = {word for _, inputs, _ in ops for word in inputs if word.replace(".", "").isdigit()}
    constants = [numpy_helper.from_array(np.float32(float(word)), word) for word in sorted(kept)]
    constants.append(numpy_helper.from_array(WEIGHT, "w"))
    nodes = [helper.make_node(kind, inputs, [name], name) for kind, inputs, name in ops]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (6, 16)) for name in ("x", output))
    model = helper.make_model(helper.make_graph(nodes, "g", [x], [y], constants), ir_version=8,
                              opset_imports=[helper.make_opsetid("", 17)])  # fmt: skip
    onnx.save(model, str(path))
    return str(path)


def compare(folder: Path, base: Ops, target: Ops) -> Report:
    first, second = (save(folder / f"{name}.onnx", ops, ops[-1][2]) for name, ops in (("a", base), ("b", target)))
    inputs = {"x": np.random.default_rng(1).normal(size=(6, 16)).astype(np.float32)}
    return precision_debug.compare(second, inputs=inputs, baseline_model=first, **MODES)


def pairs(report: Report) -> dict[str, str]:
    return {row.name: row.target_name or row.name for row in report.rows if row.comparison is not None}


GATED: Ops = [
    ("MatMul", ["x", "w"], "/up/MatMul_output_0"), ("Sigmoid", ["x"], "/Sigmoid_output_0"),
    ("Mul", ["x", "/Sigmoid_output_0"], "/Mul_output_0"),
    ("Mul", ["/Mul_output_0", "/up/MatMul_output_0"], "/Mul_1_output_0"),
    ("MatMul", ["/Mul_1_output_0", "w"], "y"),
]  # fmt: skip


def steeper() -> Ops:
    """The sigmoid's input is multiplied: each product has the next one's number."""
    return [
        ("MatMul", ["x", "w"], "/up/MatMul_output_0"), ("Mul", ["x", "1.702"], "/Mul_output_0"),
        ("Sigmoid", ["/Mul_output_0"], "/Sigmoid_output_0"), ("Mul", ["x", "/Sigmoid_output_0"], "/Mul_1_output_0"),
        ("Mul", ["/Mul_1_output_0", "/up/MatMul_output_0"], "/Mul_2_output_0"),
        ("MatMul", ["/Mul_2_output_0", "w"], "y"),
    ]  # fmt: skip


def test_products_behind_one_more_are_paired_by_what_they_hold(tmp_path: Path) -> None:
    report = compare(tmp_path, GATED, steeper())
    found = pairs(report)
    assert (found["/Mul_output_0"], found["/Mul_1_output_0"]) == ("/Mul_1_output_0", "/Mul_2_output_0")
    assert report.explanation is not None
    assert report.explanation.culprits[0].name in {"/Sigmoid_output_0", "/Mul_output_0"}


def test_numbers_of_onnx_s_own_names(tmp_path: Path) -> None:
    """``onnx::Mul_7`` counts all values of a graph, so that the number alone differs there."""

    def renamed(ops: Ops, first: int) -> Ops:
        names = {name: f"onnx::{kind}_{first + at}" for at, (kind, _, name) in enumerate(ops[:-1])}
        return [(kind, [names.get(one, one) for one in inputs], names.get(name, name)) for kind, inputs, name in ops]

    report = compare(tmp_path, renamed(GATED, 3), renamed(steeper(), 2))
    found = pairs(report)
    assert found["onnx::Mul_6"] == "onnx::Mul_6"
    assert found["onnx::Mul_5"] == "onnx::Mul_5"


def test_two_that_are_computed_in_the_other_order_are_the_same(tmp_path: Path) -> None:
    def of(first: str, second: str) -> Ops:
        ends = dict(zip((first, second), ("Mul_0", "Mul_1"), strict=True))
        return [
            ("Mul", ["x", first], "Mul_0"), ("Mul", ["x", second], "Mul_1"), ("Sigmoid", [ends["3"]], "s"),
            ("Tanh", [ends["0.5"]], "t"), ("Add", ["s", "t"], "sum"), ("MatMul", ["sum", "w"], "y"),
        ]  # fmt: skip

    report = compare(tmp_path, of("3", "0.5"), of("0.5", "3"))
    assert pairs(report)["Mul_0"] == "Mul_1"
    assert {row.status for row in report.rows} == {Status.PASS}


def test_a_chain_of_which_one_link_is_new(tmp_path: Path) -> None:
    def of(factors: list[str]) -> Ops:
        ops: Ops = []
        for at, factor in enumerate(factors):
            read = f"Tanh_{at - 1}" if at else "x"
            ops += [("Mul", [read, factor], f"Mul_{at}"), ("Tanh", [f"Mul_{at}"], f"Tanh_{at}")]
        return [*ops, ("MatMul", [f"Tanh_{len(factors) - 1}", "w"], "y")]

    report = compare(tmp_path, of(["2", "3", "0.7"]), of(["2", "0.02", "3", "0.7"]))
    assert pairs(report)["Mul_2"] == "Mul_3"
    assert pairs(report)["Mul_0"] == "Mul_0"


def test_an_output_that_is_numbered_itself_is_the_output(tmp_path: Path) -> None:
    base: Ops = [("Mul", ["x", "2"], "Mul_0"), ("Tanh", ["Mul_0"], "t"), ("Mul", ["t", "3"], "Mul_1")]
    target: Ops = [("Mul", ["x", "2"], "Mul_0"), ("Mul", ["Mul_0", "0.8"], "Mul_1"), ("Tanh", ["Mul_1"], "t"),
                   ("Mul", ["t", "3"], "Mul_2")]  # fmt: skip
    assert pairs(compare(tmp_path, base, target))["Mul_1"] == "Mul_2"


def test_names_that_somebody_chose_stay_pairs(tmp_path: Path) -> None:
    """Whoever reads ``gate`` in place of ``gated`` is wrong, and not its name."""
    base: Ops = [("Mul", ["x", "2"], "gate"), ("Mul", ["gate", "x"], "gated"), ("MatMul", ["gated", "w"], "y")]
    target: Ops = [("Mul", ["x", "x"], "gate"), ("Mul", ["gate", "2"], "gated"), ("MatMul", ["gated", "w"], "y")]
    assert pairs(compare(tmp_path, base, target))["gate"] == "gate"


def test_what_another_factor_makes_keeps_its_number(tmp_path: Path) -> None:
    """Both programs count alike: a product that is far off is what is wrong, though another one is nearer."""
    def of(first: str) -> Ops:
        return [("Mul", ["x", first], "Mul_0"), ("Mul", ["x", "2.1"], "Mul_1"), ("Add", ["Mul_0", "Mul_1"], "Add_0"),
                ("MatMul", ["Add_0", "w"], "y")]  # fmt: skip

    report = compare(tmp_path, of("2"), of("9"))
    assert pairs(report)["Mul_0"] == "Mul_0"
    assert report.explanation is not None
    assert report.explanation.culprits[0].name == "Mul_0"


@pytest.mark.engine("torch")
def test_torch_s_numbers_of_one_module(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "nets.py").write_text(
        "import torch\n\n\nclass Base(torch.nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        torch.manual_seed(0)\n        self.a, self.b = torch.nn.Linear(16, 16), torch.nn.Linear(16, 4)\n\n"
        "    def forward(self, x):\n        return self.b(torch.sigmoid(x) * self.a(x))\n\n\nclass Target(Base):\n"
        "    def forward(self, x):\n        return self.b(torch.sigmoid(x * 1.5) * self.a(x))\n\n\n"
        "def base():\n    return Base().eval()\n\n\ndef target():\n    return Target().eval()\n"
    )
    file = tmp_path / "nets.py"
    inputs = {"x": np.random.default_rng(1).normal(size=(6, 16)).astype(np.float32)}
    report = precision_debug.compare(
        f"{file}:target", inputs=inputs, baseline_model=f"{file}:base", run_mode="torch_fp32", baseline="torch_fp32"
    )
    assert pairs(report)["mul"] == "mul#2"


def test_a_hundred_products_are_told_apart_by_some_of_their_numbers() -> None:
    """One more at the front, all of them of one shape: each has the next one's number."""
    def listed(count: int) -> list[TensorMeta]:
        return [TensorMeta(name=f"mul_{at}", op_type="mul", dtype="float32", shape=(40, 50)) for at in range(count)]

    held = {f"mul_{at}": RANDOM.normal(size=(40, 50)) for at in range(100)}
    moved = {f"mul_{at + 1}": value + RANDOM.normal(size=(40, 50)) / 10 for at, value in enumerate(held.values())}
    moved["mul_0"] = RANDOM.normal(size=(40, 50))
    numbered = Numbered(listed(100), listed(101), {name: name for name in held})
    assert find_renumbered(numbered, held, moved) == {f"mul_{at + 1}": f"mul_{at}" for at in range(100)}
