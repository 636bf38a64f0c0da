"""Tensors compared on a CUDA device: the taps, the comparer and the store, on a device that is the host's memory.

What only a card shows is in tests/gpu/ort_device.py.
"""

from __future__ import annotations

import copy
import ctypes
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
from approval import raises_approved
from cuda_emulated import EmulatedDevice
from precision_debug_onnxruntime import OnnxRuntimeBackend, on_device, session
from precision_debug_onnxruntime.engine import taps
from precision_debug_onnxruntime.modes import recipe
from precision_debug_onnxruntime.opening import open_session

from precision_debug import compare
from precision_debug.errors import BackendError, UsageError
from precision_debug.numbers import cuda
from precision_debug.numbers.cuda import DeviceArray
from precision_debug.products.device.comparer import CudaComparer, CudaStore
from precision_debug.records import UNFUSED, ModelFiles, SessionSpec, Tolerance
from precision_debug.testing.backend_contract import have_same_bits

pytestmark = pytest.mark.skipif(not taps.borrows_memory(), reason="tap.c is not compiled")

IMAGE = {"x": np.random.default_rng(0).standard_normal((2, 3, 16, 16)).astype(np.float32)}


@pytest.fixture(scope="module")
def gpu() -> EmulatedDevice:
    if not shutil.which("g++"):
        pytest.skip("no C++ compiler")
    return EmulatedDevice()


class Kept:
    """A hook that uses what it is shown during the call alone."""

    borrows = True

    def __init__(self) -> None:
        self.seen: list[tuple[str, Any]] = []

    def __call__(self, op_type: str, name: str, tensor: Any, /) -> None:
        self.seen.append((name, np.array(tensor)))


def opened(folder: Path, there: bool) -> Any:
    spec = SessionSpec(model=ModelFiles(model_file=str(folder / "m.onnx")), mode="ort_opt", work_dir=str(folder))
    return open_session(spec, recipe("ort_opt"), [], on_device=there)


@pytest.mark.parametrize("name", ["convnet", "loop_model", "nested_model", "if_model", "scan_model"])
def test_what_the_cpu_runs_is_shown_in_the_host_and_in_order(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CUDA's provider leaves some nodes to the CPU, and their taps too: here it leaves all of them."""
    from precision_debug_onnxruntime.model import read_source

    from precision_debug.onnx.model import read_inputs

    monkeypatch.setattr(session, "IN_BODIES", True)
    onnx.save(getattr(onnx_models, name)(), tmp_path / "m.onnx")
    feeds = parse_feeds(read_inputs(read_source(str(tmp_path / "m.onnx"))))
    plain, there = Kept(), Kept()
    opened(tmp_path, False).run(feeds, plain)
    shown = opened(tmp_path, True)
    shown.run(feeds, there)
    assert shown._on_device
    assert [key for key, _ in there.seen] == [key for key, _ in plain.seen]
    assert all(have_same_bits(one, two) for (_, one), (_, two) in zip(there.seen, plain.seen, strict=True))


def parse_feeds(inputs: Any) -> dict[str, Any]:
    """Random values for a model's inputs; small whole numbers where those are asked for."""
    random = np.random.default_rng(1)
    found = {}
    for meta in inputs:
        shape = tuple(size if isinstance(size, int) else 2 for size in meta.shape or ())
        kind = np.dtype(meta.dtype)
        values = random.standard_normal(shape) if kind.kind == "f" else np.full(shape, 3)
        found[meta.name] = np.asarray(values).astype(kind)
    return found


@pytest.mark.parametrize("there", ["a device's", "the host's"])
@pytest.mark.parametrize("tap", ["host", "device"])
def test_a_tensor_is_read_where_it_lies(
    gpu: EmulatedDevice, monkeypatch: pytest.MonkeyPatch, there: str, tap: str
) -> None:
    """ONNX Runtime gives a tap in a body (If, Loop, Scan) the address that the tensor has outside: reading a device's
    as the host's ended the process.
    """
    values, told, waited = np.arange(6, dtype=np.float32).reshape(2, 3), [], []
    held = gpu.array(values)
    monkeypatch.setattr(cuda, "open_device", lambda ordinal=0: gpu)
    monkeypatch.setattr(cuda, "find_device_of_pointer", lambda pointer: gpu if there == "a device's" else None)
    monkeypatch.setattr(gpu, "synchronise_all", lambda: waited.append(1), raising=False)
    number = taps.connect(lambda place, tensor: told.append((place, tensor)), on_a_card=True)
    shape = (ctypes.c_int64 * 2)(2, 3)
    taps._receive(number, 5, held.pointer, 1, 2, shape, -1 if tap == "host" else 7)
    taps.disconnect(number)
    [(place, tensor)] = told
    assert place == 5
    assert isinstance(tensor, DeviceArray if (tap, there) == ("device", "a device's") else np.ndarray)
    np.testing.assert_array_equal(np.asarray(tensor), values)
    held.owner.bytes[:] = 0
    assert np.asarray(tensor).any() == ((tap, there) == ("host", "a device's"))  # a copy, where it was taken over
    assert bool(waited) == ((tap, there) in {("host", "a device's"), ("device", "the host's")})


def test_graphs_with_bodies_are_shown_in_the_host(tmp_path: Path) -> None:
    for name, there in (("convnet", True), ("loop_model", False), ("if_model", False)):
        onnx.save(getattr(onnx_models, name)(), tmp_path / "m.onnx")
        assert opened(tmp_path, True)._on_device is there, name


def test_where_the_taps_are_refused_the_hosts_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    onnx.save(onnx_models.convnet(), tmp_path / "m.onnx")
    shown = opened(tmp_path, True)
    plain = type(shown._runtime).open

    def refusing(self: Any, model: Any, **more: Any) -> Any:
        if any(node.op_type == "DeviceTap" for node in model.proto.graph.node):
            raise BackendError("Provider type for DeviceTap node is not set")
        return plain(self, model, **more)

    monkeypatch.setattr(type(shown._runtime), "open", refusing)
    hook = Kept()
    shown.run(IMAGE, hook)
    assert len(hook.seen) >= 10


def test_modes_of_the_cpu_and_machines_without_a_card_compare_in_the_host() -> None:
    spec = SessionSpec(model=ModelFiles(model_file="m.onnx"), mode="ort_fp32")
    assert on_device.make_device_comparer(spec) is None
    assert on_device.make_device_store(spec) is None
    assert OnnxRuntimeBackend().on_device(spec, spec) is None
    assert OnnxRuntimeBackend().on_device_alone(spec, spec) is None


@pytest.mark.parametrize("lockstep", [True, False])
def test_a_whole_comparison_on_the_device(
    gpu: EmulatedDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lockstep: bool
) -> None:
    """The same rows as in the host's memory, of a baseline on the device and of one in the host's memory."""
    onnx.save(onnx_models.convnet(), tmp_path / "m.onnx")
    ask: dict[str, Any] = {"run_mode": "ort_fp16", "inputs": IMAGE, "lockstep": lockstep, "atol": 1e-4, "rtol": 1e-4}
    plain = compare(tmp_path / "m.onnx", explain="off", **ask)
    used: list[CudaComparer] = []

    def comparer(spec: Any) -> CudaComparer:
        used.append(CudaComparer())
        return used[-1]

    host_array = taps._to_array

    def there(data: int | None, elem: int, shape: tuple[int, ...]) -> Any:
        array = host_array(data, elem, shape)
        return DeviceArray(gpu, data or 0, shape, array.dtype, stream=7)  # type: ignore[arg-type]

    def open_for(self: Any, comparer: Any, spec: Any, feeds: Any) -> Any:
        return self._opened(spec, feeds, on_device=True)

    monkeypatch.setattr(taps, "_to_array", there)
    monkeypatch.setattr(on_device, "make_device_comparer", comparer)
    monkeypatch.setattr(on_device, "make_device_store", lambda spec: CudaStore())
    monkeypatch.setattr(OnnxRuntimeBackend, "open_for", open_for)
    report = compare(tmp_path / "m.onnx", explain="off", **ask)
    # what a further run in the host's memory shows, none shows on the device
    further = {row.name for row in plain.rows if row.view == UNFUSED}
    assert [(row.name, row.status, row.reason is None) for row in report.rows if row.name not in further] == [
        (row.name, row.status, row.reason is None) for row in plain.rows if row.name not in further
    ]
    assert used[0].on_device >= 8
    for row, other in zip(report.rows, plain.rows, strict=True):
        if row.comparison is not None and other.comparison is not None:
            assert row.comparison.mismatched == other.comparison.mismatched
            assert row.comparison.max_abs == pytest.approx(other.comparison.max_abs, rel=1e-6)
    assert any(row.status == "fail" for row in report.rows)
    assert {one.name for one in report.portraits} == {one.name for one in plain.portraits} - further


def test_the_comparer_takes_both_places(gpu: EmulatedDevice) -> None:
    comparer, told = CudaComparer(), []
    base = np.random.default_rng(2).standard_normal((40, 50)).astype(np.float32)
    there, target = gpu.array(base), gpu.array(base + np.float32(1e-3))
    tolerance = Tolerance(atol=1e-4)
    for one, two in ((base, target), (there, target), (there, np.asarray(target)), (base, gpu.array(base[:3]))):
        comparer.compare(comparer.take(one, "x"), comparer.take(two, "x"), tolerance, told.append)
    assert [found.mismatched for found in told[:3]] == [2000] * 3
    assert not told[3].shapes_match
    assert comparer.on_device == 2
    comparer.describe(there, told.append)
    comparer.describe(base, told.append)
    assert told[4].max == told[5].max


def test_a_baseline_on_another_card_is_brought_over(gpu: EmulatedDevice) -> None:
    other, told = copy.copy(gpu), []
    base = np.random.default_rng(2).standard_normal((40, 50)).astype(np.float32)
    comparer = CudaComparer()
    comparer.compare(other.array(base), gpu.array(base + np.float32(1e-3)), Tolerance(atol=1e-4), told.append)
    assert (told[0].mismatched, comparer.on_device) == (2000, 1)


def test_the_card_is_told_to_the_provider() -> None:
    cuda, tensorrt = recipe("ort_cuda_fp32"), recipe("ort_tensorrt_fp16")
    assert cuda.provider_options({}) == ({}, {})
    assert cuda.provider_options({"device": "cuda"}) == ({}, {})
    assert cuda.provider_options({"device": "cuda:1"}) == ({"device_id": "1"}, {})
    assert tensorrt.provider_options({"device": 2, "use_tf32": False}) == (
        {"trt_fp16_enable": "1", "device_id": "2"}, {"use_tf32": "0", "device_id": "2"}, {},
    )  # fmt: skip
    with raises_approved(UsageError):
        cuda.provider_options({"device": "front"})


def test_what_waits_on_the_device_is_a_copy_and_beyond_a_share_in_the_host(gpu: EmulatedDevice) -> None:
    store, values = CudaStore(), np.arange(100, dtype=np.float32)
    mine = gpu.array(values)
    store.put("a", mine)
    mine.owner.bytes[:] = 0
    kept = store.get("a")
    assert isinstance(kept, DeviceArray)
    np.testing.assert_array_equal(np.asarray(kept), values)
    store._budget = 500
    store.put("b", gpu.array(values))
    assert isinstance(store.get("b"), np.ndarray)
    assert store.spilled_bytes == 400
    store.put("c", values)
    assert list(store) == ["a", "b", "c"]
    store.drop("a")
    store.close()
    assert list(store) == []
