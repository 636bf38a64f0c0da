"""Models that OpenVINO compiles by itself, and not with a tap on every tensor of every tensor."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from approval import holds_approved
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("openvino", reason="openvino is not installed")

from precision_debug_openvino.engine.graph import Key, read_graph
from precision_debug_openvino.engine.marks import build_undisturbed, put_behind_codes

import precision_debug
from precision_debug.records import Status

FEEDS = {"ids": np.arange(6, dtype=np.int64).reshape(2, 3), "keep": np.array([[1, 0, 1], [0, 1, 0]], np.int64)}


@pytest.fixture
def select(tmp_path: Path) -> str:
    """A Where of 64-bit whole numbers, one of which is an input: OpenVINO gives it i32 and i64."""
    sizes = [2, "n"]
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["keep"], ["flags"], to=TensorProto.BOOL),
            helper.make_node("Mul", ["ids", "two"], ["twice"]),
            helper.make_node("Where", ["flags", "twice", "ids"], ["chosen"]),
            helper.make_node("Cast", ["chosen"], ["numbers"], to=TensorProto.FLOAT),
            helper.make_node("Exp", ["numbers"], ["grown"]),
            helper.make_node("Softmax", ["grown"], ["y"]),
        ],
        "select", [helper.make_tensor_value_info(name, TensorProto.INT64, sizes) for name in ("ids", "keep")],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, sizes)],
        [numpy_helper.from_array(np.int64(2), "two")],
    )  # fmt: skip
    path = tmp_path / "select.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return str(path)


@pytest.mark.parametrize("mode", ["ov_opt", "ov_fp32", "ov_opt_fp32"])
def test_whole_numbers_are_shown_from_beside(select: str, mode: str) -> None:
    report = precision_debug.compare(select, run_mode=mode, baseline="ov_fp32", inputs=FEEDS, explain="full")
    assert any("by a side path" in str(note) for note in report.baseline.notes)
    assert not [row.name for row in report.rows if row.status is Status.FAIL]
    seen = {row.name: row.comparison for row in report.rows if row.comparison is not None}
    assert {"flags", "twice", "chosen", "numbers", "grown", "y"} <= set(seen) or mode != "ov_fp32"
    assert seen["numbers"].base.max == 8.0
    if mode == "ov_fp32":
        assert seen["chosen"].base.max == 8
    assert report.explanation is not None
    assert report.explanation.state == "healthy", "operators are run alone still"


def test_what_compiles_with_no_tap_at_all_is_seen_by_results(select: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from precision_debug_openvino import make

    from precision_debug.errors import BackendError

    def fails(self: make.Maker, *args: object, **more: object) -> make.Built:
        raise BackendError("no tap")

    monkeypatch.setattr(make.Maker, "through", fails)
    report = precision_debug.compare(select, run_mode="ov_fp32", baseline="ov_fp32", inputs=FEEDS, explain="off")
    assert holds_approved([str(note) for note in report.baseline.notes])
    assert {"numbers", "grown", "y"} <= {row.name for row in report.rows if row.comparison is not None}


@pytest.mark.parametrize("at_fault", [{"Split"}, {"Split", "late"}])
def test_taps_are_given_back_to_all_that_change_nothing(at_fault: set[str]) -> None:
    """Cells of Split, Add and Tanh, of which a tap at the Split changes the layers of the others. Those lost their taps
    with it: of a real network of 76 such cells 41 % of the expected tensors were compared. late: of the Adds, those of
    the last cells change the Tanh behind them as well."""
    cells = 6
    late = {f"Add{cell}" for cell in range(cells - 2, cells)} if "late" in at_fault else set()
    names = ["Conv0", *(f"{kind}{cell}" for cell in range(cells) for kind in ("Split", "Add", "Tanh"))]
    values = {
        (name, 0): SimpleNamespace(
            key=(name, 0), op_type=name[:-1], reads=[(names[place - 1], 0)] if name[0] in "AT" else []
        )
        for place, name in enumerate(names)
    }  # fmt: skip
    graph: Any = SimpleNamespace(
        values=values, rank={name: place for place, name in enumerate(names)}, computed=values.values
    )

    def layers(taps: Collection[Key]) -> list[Any]:
        split = {name[-1] for name, _ in taps if name.startswith("Split")}
        added = {name[-1] for name, _ in taps if name in late}
        other = {f"{kind}{cell}" for cell in split for kind in ("Add", "Tanh")} | {f"Tanh{cell}" for cell in added}
        return [
            SimpleNamespace(
                ops=(name,), kind="", arithmetic=(name in other, (name,)), layout="", kernel="", undecided=False
            )
            for name in names
        ]  # fmt: skip

    def build(taps: Collection[Key]) -> Any:
        return SimpleNamespace(layers=lambda _rank: layers(taps))

    found = build_undisturbed(graph, layers(()), build, list(values), exact=True)
    assert not found.changed
    assert {name for name, _ in found.dropped} == {name for name in names if name.startswith("Split")} | late


def test_what_a_file_in_8_bits_shows_is_what_its_own_kernels_compute(tmp_path: Path) -> None:
    """Weights that become floats where taps are put in are multiplied in bfloat16, or another way than the engine's."""
    random, nodes, read = np.random.default_rng(0), list[Any](), "x"
    constants: dict[str, Any] = {"z": np.zeros((), np.uint8), "zw": np.zeros((), np.int8), "s": np.float32(4 / 255)}
    for place in range(3):
        weight = random.standard_normal((8, 8, 3, 3)) / 8
        scale = np.float32(np.abs(weight).max() / 63)  # two products fit into 16 bits
        constants |= {f"w{place}": np.rint(weight / scale).astype(np.int8), f"sw{place}": scale}
        nodes += [
            helper.make_node("QuantizeLinear", [read, "s", "z"], [f"codes{place}"]),
            helper.make_node("DequantizeLinear", [f"codes{place}", "s", "z"], [f"back{place}"]),
            helper.make_node("DequantizeLinear", [f"w{place}", f"sw{place}", "zw"], [f"w{place}_back"]),
            helper.make_node("Conv", [f"back{place}", f"w{place}_back"], [f"c{place}"], pads=[1] * 4),
            helper.make_node("Relu", [f"c{place}"], [f"r{place}"]),
        ]  # fmt: skip
        read = f"r{place}"
    model = onnx_models.model(
        nodes, [onnx_models.value("x", [2, 8, 12, 12])], [onnx_models.value(read, [2, 8, 12, 12])], constants, opset=17
    )  # fmt: skip
    onnx.save(model, tmp_path / "m.onnx")
    feeds = {"x": np.random.default_rng(1).uniform(0, 4, (2, 8, 12, 12)).astype(np.float32)}
    report = precision_debug.compare(
        str(tmp_path / "m.onnx"), run_mode="ov_opt", baseline="ov_fp32", inputs=feeds, explain="off"
    )  # fmt: skip
    shown = {row.name: row.status for row in report.rows if row.name in {"codes0", "codes1", "codes2"}}
    assert shown == {f"codes{place}": Status.PASS for place in range(3)}


def test_behind_codes_stands_what_is_made_of_them(tmp_path: Path) -> None:
    import openvino

    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["codes"]),
        helper.make_node("DequantizeLinear", ["codes", "s", "z"], ["numbers"]),
        helper.make_node("Tanh", ["numbers"], ["h"]), helper.make_node("QuantizeLinear", ["h", "s", "z"], ["y"]),
    ]  # fmt: skip
    constants = {"s": np.float32(0.5), "z": np.full((), 3, np.uint8)}
    y = onnx_models.value("y", [2, 4], TensorProto.UINT8)
    onnx.save(onnx_models.model(nodes, [onnx_models.value("x", [2, 4])], [y], constants), tmp_path / "m.onnx")
    graph = read_graph(openvino.Core().read_model(tmp_path / "m.onnx"))
    keys = [graph.named[name].key for name in ("codes", "h", "y")]
    assert [graph.values[key].name for key in put_behind_codes(graph, keys)] == ["numbers", "h"]
