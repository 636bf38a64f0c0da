"""The driver's calls, as its interface has them: made to a library that has it over the host's memory."""

from __future__ import annotations

import ctypes
import gc
import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import test_cuda_kernel as known
from approval import raises_approved
from cuda_emulated import emulated

from precision_debug import numbers
from precision_debug.errors import BackendError, BackendUnavailable
from precision_debug.numbers import cuda as driver
from precision_debug.numbers.cuda import DeviceArray
from precision_debug.products.device import answer, kernels
from precision_debug.products.device.comparer import CudaComparer, CudaStore
from precision_debug.products.device.kernels import start
from precision_debug.records import Tolerance


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The library in the driver's place."""
    if not shutil.which("g++"):
        pytest.skip("no C++ compiler")
    library = emulated()
    plain = ctypes.CDLL
    monkeypatch.setattr(
        ctypes, "CDLL", lambda name, *more: plain(str(library) if "libcuda" in str(name) else name, *more)
    )
    monkeypatch.setattr(driver.Device, "lanes", 1)
    monkeypatch.setattr(driver.Device, "threads", lambda self, warps: 1)
    for owner, name in ((driver, "_devices"), (kernels, "_rooms"), (answer, "_free")):
        monkeypatch.setattr(owner, name, {})
    caches = driver._load_library, kernels.explain_unavailable
    for cached in caches:
        cached.cache_clear()
    yield plain(str(library))
    gc.collect()
    for cached in caches:
        cached.cache_clear()
    kernels._make_plan.cache_clear()


def put(gpu: driver.Device, values: np.ndarray[Any, Any], stream: int = 0) -> DeviceArray:
    memory = gpu.allocate(values.nbytes)
    gpu.upload(memory.pointer, values.reshape(-1).view(np.uint8), stream)
    return DeviceArray(gpu, memory.pointer, values.shape, values.dtype, memory, stream)


def test_a_device_says_what_it_is(cuda: Any) -> None:
    gpu = driver.open_device(0)
    assert kernels.explain_unavailable() == ""
    assert (gpu.name, gpu.processors, gpu.capability, gpu.memory()) == ("emulated", 2, 90, (1000, 3000))
    assert driver.open_device(0) is gpu
    with pytest.raises(BackendError, match="device 1: invalid device ordinal"):
        driver.open_device(1)


def test_memory_is_copied_and_freed(cuda: Any) -> None:
    gpu, values = driver.open_device(0), np.arange(12, dtype=np.float32)
    before = cuda.emulated_held()
    array, copy = put(gpu, values), gpu.allocate(values.nbytes)
    gpu.copy(copy.pointer, array.pointer, values.nbytes, 0)
    np.testing.assert_array_equal(array.numpy(), values)
    np.testing.assert_array_equal(
        np.asarray(DeviceArray(gpu, copy.pointer, (3, 4), values.dtype)), values.reshape(3, 4)
    )
    gpu.fill(copy.pointer, 12, 0)
    assert not DeviceArray(gpu, copy.pointer, (12,), values.dtype).numpy().any()
    assert driver.find_device_of_pointer(array.pointer) is gpu
    assert driver.find_device_of_pointer(values.ctypes.data) is None
    assert driver.find_device_of_pointer(gpu.pinned(64).pointer) is None
    gpu.synchronise_all()
    assert cuda.emulated_held() == before + 2
    del array, copy
    gc.collect()
    assert cuda.emulated_held() == before
    with raises_approved(BackendError) as raised:
        gpu.allocate(1 << 30)
    assert "smaller batch" in str(raised.value)


def test_events_and_streams(cuda: Any) -> None:
    gpu = driver.open_device(0)
    stream, event, before = gpu.stream(), gpu.event(), cuda.emulated_events()
    with gpu.current():
        event.record(stream)
    event.hold_up(0)
    event.wait()
    assert event.ready
    gpu.synchronise(stream)
    with pytest.raises(BackendError, match="cuStreamSynchronize: it failed"):
        gpu.synchronise(5)
    del event
    gc.collect()
    assert cuda.emulated_events() == before - 1


def test_the_threads_own_context_comes_back(cuda: Any) -> None:
    gpu, other = driver.open_device(0), ctypes.c_void_p(8)
    cuda.cuCtxSetCurrent(other)
    gpu.allocate(10)
    found = ctypes.c_void_p()
    cuda.cuCtxGetCurrent(ctypes.byref(found))
    assert found.value == 8
    cuda.cuCtxSetCurrent(None)


@pytest.mark.parametrize("kind", ["near", "bad", "huge"])
def test_comparisons_through_the_driver(cuda: Any, kind: str) -> None:
    gpu = driver.open_device(0)
    for size in (700, 91000):
        base, target, tolerance = known.pair(kind, size, np.float32, np.float16)
        found = start(put(gpu, base), put(gpu, target), tolerance, gpu.stream()).finish()
        assert known.differences(found, numbers.compare(base, target, tolerance), size) == []


def test_the_comparer_and_the_store(cuda: Any) -> None:
    gpu, told = driver.open_device(0), []
    base = np.random.default_rng(0).standard_normal((30, 40)).astype(np.float32)
    store, comparer = CudaStore(), CudaComparer()
    store._budget = 1 << 20
    store.put("x", put(gpu, base))
    target = put(gpu, base + np.float32(1), gpu.stream())
    for one in (store.get("x"), base):
        comparer.compare(one, target, Tolerance(atol=0.5), told.append)
    assert [found.mismatched for found in told] == [1200, 1200]
    assert comparer.on_device == 2


def test_tensorrts_memory_is_the_drivers(cuda: Any) -> None:
    from precision_debug_tensorrt.engine import device_memory

    device_memory.find_device.cache_clear()
    try:
        found = device_memory.find_device()
        assert (found.name, found.shows_tensors, found.free_bytes()) == ("emulated", True, 1000)
        values = np.arange(6, dtype=np.float16).reshape(2, 3)
        buffer = found.upload(values)
        np.testing.assert_array_equal(found.download(buffer.pointer, (2, 3), values.dtype), values)
        np.testing.assert_array_equal(np.asarray(found.tensor(buffer.pointer, (2, 3), values.dtype, buffer)), values)
    finally:
        device_memory.find_device.cache_clear()


def test_without_a_driver_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from precision_debug_tensorrt.engine import device_memory

    def missing(name: str) -> Any:
        raise OSError("cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    monkeypatch.setattr(driver, "_devices", {})
    for cached in (driver._load_library, kernels.explain_unavailable, device_memory.find_device):
        cached.cache_clear()
    assert "libcuda.so.1 does not load" in kernels.explain_unavailable()
    with raises_approved(BackendUnavailable) as raised:
        device_memory.find_device()
    assert "libcuda" in str(raised.value)
    kernels.explain_unavailable.cache_clear()
