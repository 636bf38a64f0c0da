from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from precision_debug_onnxruntime.build import weights
from precision_debug_onnxruntime.build.weights import read_source
from precision_debug_onnxruntime.model import read_model
from precision_debug_onnxruntime.wire import cut

from precision_debug.errors import ModelError


def model(*sizes: int, typed: bool = False, inner: bool = False) -> Any:
    """y = x + w0 + w1 …, with weights of the given numbers of elements; in an If's branches too."""
    rng = np.random.default_rng(3)
    arrays = [rng.standard_normal(size).astype(np.float32) for size in sizes]
    tensors = [numpy_helper.from_array(array, f"w{i}") for i, array in enumerate(arrays)]
    if typed and arrays:
        tensors[-1] = helper.make_tensor(f"w{len(arrays) - 1}", TensorProto.FLOAT, [sizes[-1]], arrays[-1].tolist())
    nodes, last = [], "x"
    for i in range(len(sizes)):
        nodes.append(helper.make_node("Add", [last, f"w{i}"], [f"y{i}"], name=f"add{i}"))
        last = f"y{i}"
    if inner:
        own = numpy_helper.from_array(rng.standard_normal(1000).astype(np.float32), "own")
        body = helper.make_graph(
            [helper.make_node("Identity", ["own"], ["own_out"])], "body", [],
            [helper.make_tensor_value_info("own_out", TensorProto.FLOAT, [1000])], [own],
        )  # fmt: skip
        nodes.append(helper.make_node("If", ["yes"], ["branch"], then_branch=body, else_branch=body))
        tensors.append(numpy_helper.from_array(np.array(True), "yes"))
    nodes.append(helper.make_node("Identity", [last], ["y"]))
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, None)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)], tensors,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], producer_name="test")


def restored(light: Any, folder: Path) -> Any:
    copy = onnx.ModelProto.FromString(light.SerializeToString())
    onnx.load_external_data_for_model(copy, str(folder))
    for tensor in copy.graph.initializer:
        tensor.ClearField("external_data")
        tensor.ClearField("data_location")
    return copy


@pytest.mark.parametrize(
    "proto",
    [
        model(1000), model(1000, 10, 300, 5000), model(1000, 400, typed=True), model(1000, inner=True), model(4, 5),
        model(257, 256, 255),
    ],
)  # fmt: skip
def test_weights_go_into_a_file_and_come_back(proto: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    folder = tmp_path / "work"
    folder.mkdir()
    source = read_source(str(path), folder)
    assert all(len(tensor.raw_data) <= 1024 for tensor in source.proto.graph.initializer)
    assert restored(source.proto, source.folder) == read_model(str(path)).proto
    for tensor in source.proto.graph.initializer:
        assert all(int(item.value) % 64 == 0 for item in tensor.external_data if item.key == "offset")


def test_a_model_with_external_weights_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save_model(model(1000, 2000), path, save_as_external_data=True, location="own.bin", size_threshold=6000)
    source = read_source(str(path), tmp_path / "unused")
    assert source.folder == tmp_path
    assert [len(tensor.raw_data) for tensor in source.proto.graph.initializer] == [4000, 0]


def test_both_sides_of_a_run_share_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model(1000).SerializeToString())
    reads = []
    read = weights._read
    monkeypatch.setattr(weights, "_read", lambda *given: reads.append(given) or read(*given))
    for name in "abc":
        (tmp_path / name).mkdir()
    first = read_source(str(path), tmp_path / "a", "this run")
    second = read_source(str(path), tmp_path / "b", "this run")
    assert second.proto == first.proto
    assert second.proto is not first.proto
    assert second.folder == tmp_path / "a"
    assert len(reads) == 1
    assert read_source(str(path), tmp_path / "c", "another run").folder == tmp_path / "c"
    path.write_bytes(model(2000).SerializeToString())
    assert read_source(str(path), tmp_path / "a", "another run").folder == tmp_path / "a"
    assert len(reads) == 3
    (tmp_path / "a" / "weights.bin").unlink()
    assert read_source(str(path), tmp_path / "b", "another run").folder == tmp_path / "b"
    assert len(reads) == 4
    assert (tmp_path / "b" / "weights.bin").stat().st_size == 8000


def test_what_goes_wrong_with_the_copy_is_told_where_it_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model(1000).SerializeToString())
    (tmp_path / "work" / "weights.bin").mkdir(parents=True)
    source = read_source(str(path), tmp_path / "work", "a run")
    for asked in (source, read_source(str(path), tmp_path / "work", "a run")):
        with pytest.raises(ModelError, match="its weights cannot be set aside"):
            _ = asked.folder


def test_a_model_with_names_for_all_is_loaded_from_its_own_file(tmp_path: Path) -> None:
    plain, nameless = model(1000), model(1000)
    for place, node in enumerate(plain.graph.node):
        node.name = f"node{place}"
    for name, proto in (("plain", plain), ("nameless", nameless)):
        (tmp_path / f"{name}.onnx").write_bytes(proto.SerializeToString())
        source = read_source(str(tmp_path / f"{name}.onnx"), tmp_path)
        assert source.file == (str(tmp_path / "plain.onnx") if name == "plain" else "")


@settings(deadline=None)
@given(st.data())
def test_damaged_bytes_are_refused_or_still_a_message(data: st.DataObject) -> None:
    whole = model(300, 1000).SerializeToString()
    end = data.draw(st.integers(0, len(whole)))
    at = data.draw(st.integers(0, len(whole) - 1))
    damaged = bytearray(whole[:end])
    if at < end:
        damaged[at] = data.draw(st.integers(0, 255))
    try:
        light, chunks = cut(memoryview(damaged), larger=1024, location="w")
    except ValueError:
        return
    assert len(light) <= len(damaged) + 100 * len(chunks)
    assert all(0 <= chunk.start <= chunk.start + chunk.length <= end for chunk in chunks)


def test_a_model_that_is_cut_off_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model(1000).SerializeToString()[:-500])
    with pytest.raises(ModelError, match=r"m\.onnx: is not an ONNX model, or is cut off"):
        read_source(str(path), tmp_path)
    path.write_bytes(b"")
    with pytest.raises(ModelError, match="the file is empty"):
        read_source(str(path), tmp_path)
    with pytest.raises(ModelError, match="no such file"):
        read_source(str(tmp_path / "other.onnx"), tmp_path)
