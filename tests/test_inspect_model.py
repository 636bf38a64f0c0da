"""`inspect model M.onnx`: what is told is what the file holds."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from approval import holds_approved
from onnx import helper
from onnx_models import if_model, mlp, model, value

from precision_debug.cli import main


def test_a_model_is_told_with_all_that_it_holds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1], auto_pad="NOTSET"),
             helper.make_node("Relu", ["c"], ["y"], name="relu")]  # fmt: skip
    weight = np.arange(9, dtype=np.float32).reshape(1, 1, 3, 3) - 4
    weight[0, 0, 0, 0] = np.inf
    onnx.save(model(nodes, [value("x", ["n", 1, 4, 4])], [value("y", ["n", 1, 4, 4])], {"w": weight}), "m.onnx")
    assert main(["inspect", "model", "m.onnx"]) == 0
    summary = capsys.readouterr().out
    assert "opset ai.onnx 17" in summary
    assert "input   x  float32 [n, 1, 4, 4]" in summary
    assert "output  y  float32 [n, 1, 4, 4]" in summary
    assert "2 operators: 1 Conv, 1 Relu" in summary
    assert "1 weights, 9 elements: 1 float32" in summary
    assert "pads" not in summary
    assert main(["inspect", "m.onnx", "--show", "layers", "attributes", "weights"]) == 0
    whole = capsys.readouterr().out
    assert whole.startswith(summary)
    assert "conv: x, w -> c" in whole
    assert "pads = [1, 1, 1, 1]" in whole
    assert "auto_pad = NOTSET" in whole
    assert holds_approved(whole)


def test_every_operator_and_weight_is_told_also_in_bodies(capsys: pytest.CaptureFixture[str]) -> None:
    for number, proto in enumerate((mlp(), if_model())):
        onnx.save(proto, f"{number}.onnx")
        assert main(["inspect", "model", f"{number}.onnx", "--show", "layers", "weights"]) == 0
        printed = capsys.readouterr().out
        graphs = [proto.graph, *(a.g for node in proto.graph.node for a in node.attribute if a.HasField("g"))]
        for graph in graphs:
            assert all(f"-> {', '.join(node.output)}" in printed for node in graph.node)
            assert all(f"\n{weight.name}  " in printed for weight in graph.initializer)


@pytest.mark.parametrize("arguments", [["model", "a.json"], ["a.json", "--show", "layers"], ["m.onnx", "--diff", "a"]])
def test_what_is_no_model_is_refused(arguments: list[str]) -> None:
    assert main(["inspect", *arguments]) == 2


def test_data_is_told_as_it_would_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    polygraphy_json = pytest.importorskip("polygraphy.json", reason="needs polygraphy")
    from polygraphy.comparator import RunResults

    feeds = [{"x": np.array([1, 2, 6], np.float32)}, {"x": np.array([np.nan, 1], np.float32)}]
    polygraphy_json.save_json(feeds, "in.json")
    results = RunResults()
    results.add([{"y": np.arange(4)}], 0.1, "runner")
    results.save("out.json")
    np.savez("in.npz", x=feeds[0]["x"])
    np.save("in.npy", feeds[0]["x"])
    assert main(["inspect", "data", "in.json", "out.json", "in.npz", "in.npy"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("x  float32 [3]  1 to 6, mean 3\n") == 2
    assert holds_approved(printed)
    assert holds_approved(printed, 2)
    assert "(only input)  float32 [3]" in printed
    assert main(["inspect", "data", "nowhere.npz"]) == 2


@pytest.mark.parametrize("way", ["short", "negative", "huge", "unknown type", "external"])
def test_a_weight_that_cannot_be_read_is_the_files_fault(
    way: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of an external one the file need not say the length: its shape does."""
    weight = onnx.TensorProto(name="w", data_type=99 if way == "unknown type" else 1)
    weight.dims.extend({"negative": [-2, 3], "huge": [2**40, 3]}.get(way, [2, 3]))
    if way == "external":
        (tmp_path / "w.bin").write_bytes(bytes(10))
        weight.data_location = onnx.TensorProto.EXTERNAL
        weight.external_data.add(key="location", value="w.bin")
    else:
        weight.raw_data = bytes(10)
    node = onnx.helper.make_node("Add", ["x", "w"], ["y"])
    made = [onnx.helper.make_tensor_value_info(name, 1, [2, 3]) for name in "xy"]
    graph = onnx.helper.make_graph([node], "g", made[:1], made[1:], [weight])
    (tmp_path / "m.onnx").write_bytes(onnx.helper.make_model(graph).SerializeToString())
    assert main(["inspect", "model", "m.onnx", "--show", "weights"]) == 2
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert ("w.bin are cut off" if way == "external" else "its weight 'w' ") in said
