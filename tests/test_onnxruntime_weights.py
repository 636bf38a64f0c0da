from __future__ import annotations

import gc
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from approval import raises_approved
from google.protobuf.message import DecodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from precision_debug_onnxruntime import OnnxRuntimeBackend
from precision_debug_onnxruntime import model as weights
from precision_debug_onnxruntime.make.running_graph import _bring_along
from precision_debug_onnxruntime.model import read_source

from precision_debug.errors import ModelError
from precision_debug.onnx.graph import iterate_external_tensors, read_external_data
from precision_debug.onnx.model import read_model, refuse_strays
from precision_debug.onnx.without_weights import cut
from precision_debug.records import ModelFiles, SessionSpec


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
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], producer_name="test", ir_version=9)


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
def test_weights_stay_in_the_file_and_are_found_there(proto: Any, tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    source = read_source(str(path))
    assert all(len(tensor.raw_data) <= 1024 for tensor in source.proto.graph.initializer)
    assert restored(source.proto, source.folder) == read_model(str(path)).proto


@pytest.mark.parametrize("shift", range(4))
def test_weights_that_lie_anywhere_in_the_file_give_the_same_bits(shift: int, tmp_path: Path) -> None:
    import onnxruntime as ort

    rng = np.random.default_rng(5)
    weights = {
        "kernel": rng.standard_normal((64, 32, 3, 3)), "matrix": rng.standard_normal((64, 257)),
        "bias": rng.standard_normal(257), "table": rng.standard_normal((300, 257)),
    }  # fmt: skip
    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["a"], name="conv"),
        helper.make_node("GlobalAveragePool", ["a"], ["b"], name="pool"),
        helper.make_node("Flatten", ["b"], ["c"], name="flat"),
        helper.make_node("Gemm", ["c", "matrix", "bias"], ["d"], name="gemm"),
        helper.make_node("ReduceSum", ["table", "axis"], ["sums"], name="sum", keepdims=0),
        helper.make_node("Add", ["d", "sums"], ["y"], name="add"),
    ]
    tensors = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in weights.items()]
    tensors.append(numpy_helper.from_array(np.array([0]), "axis"))
    graph = helper.make_graph(
        nodes, "g" * (1 + shift), [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 32, 9, 9])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 257])], tensors,
    )  # fmt: skip
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    proto.producer_name = "p" * shift  # before the graph, so that each weight moves on
    path = tmp_path / "m.onnx"
    path.write_bytes(proto.SerializeToString())
    feeds = {"x": rng.standard_normal((2, 32, 9, 9)).astype(np.float32)}
    spec = SessionSpec(model=ModelFiles(model_file=str(path)), mode="ort_fp32", work_dir=str(tmp_path))
    session = OnnxRuntimeBackend().open(spec, [feeds])
    seen: dict[str, Any] = {}
    outputs = session.run(feeds, lambda _, name, tensor: seen.update({name: np.array(tensor)}))
    session.close()
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    own = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feeds)[0]
    np.testing.assert_array_equal(outputs["y"], own)
    assert {"a", "b", "c", "d", "sums", "y"} <= set(seen)


def test_a_model_behind_a_link_is_read_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "0f3a").write_bytes(model(1000).SerializeToString())
    (tmp_path / "m.onnx").symlink_to(tmp_path / "blobs" / "0f3a")
    (tmp_path / "第二 个.onnx").hardlink_to(tmp_path / "blobs" / "0f3a")
    feeds = {"x": np.ones(1000, np.float32)}
    for mode in ("ort_fp32", "ort_opt", "ort_fp16", "ort_fp16_sim", "onnx_ref"):
        for name in ("m", "第二 个"):
            path = str(tmp_path / f"{name}.onnx")
            spec = SessionSpec(model=ModelFiles(model_file=path), mode=mode, work_dir=str(tmp_path))
            session = OnnxRuntimeBackend().open(spec, [feeds])
            assert session.run(feeds)["y"].shape == (1000,)
            session.close()


def test_a_model_with_external_weights_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save_model(model(1000, 2000), path, save_as_external_data=True, location="own.bin", size_threshold=6000)
    source = read_source(str(path))
    assert source.folder == tmp_path
    assert [len(tensor.raw_data) for tensor in source.proto.graph.initializer] == [4000, 0]


def test_a_session_without_a_folder_of_its_own_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model(1000).SerializeToString())
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    session = OnnxRuntimeBackend().open(SessionSpec(model=ModelFiles(model_file=str(path)), mode="ort_opt"), [])
    assert list((tmp_path / "temporary").iterdir())
    session.close()
    del session
    gc.collect()
    assert not list((tmp_path / "temporary").iterdir())
    path.write_bytes(b"no model")
    with pytest.raises(ModelError):
        OnnxRuntimeBackend().open(SessionSpec(model=ModelFiles(model_file=str(path)), mode="ort_opt"), [])
    assert not list((tmp_path / "temporary").iterdir())


def test_weights_that_an_old_release_leaves_behind_are_brought_along(tmp_path: Path) -> None:
    """ONNX Runtime 1.20 writes a graph whose unchanged weights still lie in the source's file."""
    own, source = tmp_path / "own", tmp_path / "source"
    for folder, name in ((own, "graph.onnx.bin"), (source, "w.bin")):
        folder.mkdir()
        onnx.save(model(100, 3000, inner=True), folder / "m.onnx", save_as_external_data=True, location=name)
    kept, left = (onnx.load(folder / "m.onnx", load_external_data=False) for folder in (own, source))
    first = kept.graph.initializer[0]
    del kept.graph.initializer[1:]
    kept.graph.initializer.extend(left.graph.initializer[1:])
    assert {read_external_data(tensor).location for tensor in iterate_external_tensors(kept.graph)} == {
        "graph.onnx.bin",
        "w.bin",
    }
    _bring_along(kept, source, own / "graph.onnx.bin")
    assert {read_external_data(tensor).location for tensor in iterate_external_tensors(kept.graph)} == {
        "graph.onnx.bin"
    }
    assert kept.graph.initializer[0] == first
    size = (own / "graph.onnx.bin").stat().st_size
    whole = restored(kept, own)
    for tensor, wanted in zip(whole.graph.initializer, model(100, 3000, inner=True).graph.initializer, strict=True):
        assert numpy_helper.to_array(tensor).tobytes() == numpy_helper.to_array(wanted).tobytes(), tensor.name
    _bring_along(kept, source, own / "graph.onnx.bin")
    assert (own / "graph.onnx.bin").stat().st_size == size, "what is there already was copied again"


@pytest.mark.parametrize("linked", [True, False])
def test_a_download_cache_keeps_model_and_weights_behind_links(linked: bool, tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "blobs", tmp_path / "snapshots" / "1"
    blobs.mkdir()
    snapshot.mkdir(parents=True)
    onnx.save_model(
        model(1000, 1000), blobs / "m.onnx", save_as_external_data=True, location="m.onnx_data", size_threshold=100
    )
    (snapshot / "m.onnx").symlink_to("../../blobs/m.onnx")
    if linked:
        (blobs / "m.onnx_data").rename(blobs / "0f3a")
        (snapshot / "m.onnx_data").symlink_to("../../blobs/0f3a")
    feeds = {"x": np.ones(1000, np.float32)}
    for mode in ("ort_fp32", "ort_opt", "ort_fp16", "ort_fp16_sim", "onnx_ref"):
        files = ModelFiles(model_file=str(snapshot / "m.onnx"))
        session = OnnxRuntimeBackend().open(SessionSpec(model=files, mode=mode, work_dir=str(tmp_path)), [feeds])
        assert session.run(feeds)["y"].shape == (1000,)
        session.close()


def test_weights_in_two_folders_are_left_to_onnx_runtime(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    proto = model(1000, 1000)
    for place, tensor in enumerate(proto.graph.initializer):
        name = ("first.bin", "sub/second.bin")[place]
        (tmp_path / name).write_bytes(tensor.raw_data)
        onnx.external_data_helper.set_external_data(tensor, name)
        tensor.ClearField("raw_data")
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    source = read_source(str(tmp_path / "m.onnx"))
    assert source.folder == tmp_path
    spec = SessionSpec(model=ModelFiles(model_file=source.path), mode="ort_fp32", work_dir=str(tmp_path))
    session = OnnxRuntimeBackend().open(spec, [])
    assert session.run({"x": np.ones(1000, np.float32)})["y"].shape == (1000,)
    session.close()


def test_both_sides_of_a_run_read_the_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model(1000).SerializeToString())
    reads = []
    read = weights.read_light
    monkeypatch.setattr(weights, "read_light", lambda *given: reads.append(given) or read(*given))
    first, second = read_source(str(path), "this run"), read_source(str(path), "this run")
    assert second.proto == first.proto
    assert second.proto is not first.proto
    assert second.folder == first.folder == tmp_path
    assert len(reads) == 1
    read_source(str(path), "another run")
    assert len(reads) == 2
    path.write_bytes(model(2000).SerializeToString())
    assert [tuple(item.dims) for item in read_source(str(path), "another run").proto.graph.initializer] == [(2000,)]
    assert len(reads) == 3


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
        light = cut(memoryview(damaged), larger=1024, location="w")
    except ValueError:
        return
    assert len(light) <= len(damaged) + 200
    try:
        proto = onnx.ModelProto.FromString(light)
    except DecodeError:
        return
    for tensor in proto.graph.initializer:
        entries = {item.key: item.value for item in tensor.external_data}
        if entries.get("location") == "w":
            assert 0 <= int(entries["offset"]) <= int(entries["offset"]) + int(entries["length"]) <= end


def test_a_model_that_is_cut_off_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes(model(1000).SerializeToString()[:-500])
    with raises_approved(ModelError):
        read_source(str(path))
    path.write_bytes(b"")
    with pytest.raises(ModelError, match="the file is empty"):
        read_source(str(path))
    with pytest.raises(ModelError, match="no such file"):
        read_source(str(tmp_path / "other.onnx"))


@pytest.mark.parametrize("place", ["../secret.bin", "/etc/hostname", "sub/../../secret.bin"])
def test_weights_outside_the_models_folder_are_refused(place: str, tmp_path: Path) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(4096))
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    proto = model(1000)
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", place), ("offset", "0"), ("length", "8")):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="lie outside its folder"):
        read_model(str(folder / "m.onnx"))


@pytest.mark.parametrize("place", ["w.bin", "sub/w.bin", "sub", "m.onnx"])
def test_a_link_out_of_the_models_folder_is_refused_as_a_path_is(place: str, tmp_path: Path) -> None:
    """The same rule for the weights' own name, for a folder on its way, and where the model is a link itself."""
    outside, folder = tmp_path / "outside", tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    outside.mkdir()
    (outside / "w.bin").write_bytes(bytes(4096))
    location = "sub/w.bin" if place.startswith("sub") else "w.bin"
    proto = model(1000)
    tensor = proto.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "4000")):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, value
    if place == "sub":
        (folder / "sub").rmdir()
        (folder / "sub").symlink_to(outside)
    else:
        (folder / location).symlink_to(outside / "w.bin")
    path = folder / "m.onnx"
    if place == "m.onnx":
        (tmp_path / "blobs").mkdir()
        (tmp_path / "blobs" / "m").write_bytes(proto.SerializeToString())
        path.symlink_to(tmp_path / "blobs" / "m")
    else:
        path.write_bytes(proto.SerializeToString())
    with pytest.raises(ModelError, match="lie outside its folder"):
        read_model(str(path))
    with pytest.raises(ModelError, match="lie outside its folder"):
        refuse_strays(str(path))
    if place != "m.onnx":
        (folder / location).unlink() if place != "sub" else (folder / "sub").unlink()
        (folder / location).parent.mkdir(exist_ok=True)
        (folder / "real.bin").write_bytes(bytes(4096))
        (folder / location).symlink_to(folder / "real.bin")  # a link inside the folder leads nowhere else
        assert read_model(str(path)).folder == folder


def test_openvino_reads_no_weights_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("openvino", reason="needs openvino")
    from precision_debug_openvino.backend import OpenVinoBackend

    (tmp_path / "m").mkdir()
    path = tmp_path / "m" / "m.onnx"
    onnx.save_model(model(1000), path, save_as_external_data=True, location="w.bin", size_threshold=100)
    (tmp_path / "m" / "w.bin").rename(tmp_path / "w.bin")
    (tmp_path / "m" / "w.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(ModelError, match="lie outside its folder"):
        OpenVinoBackend().inputs(SessionSpec(model=ModelFiles(model_file=str(path)), mode="ov_fp32"))
