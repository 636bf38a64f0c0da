"""A device for products.device whose memory is the host's, and whose kernels are the same text, compiled by g++."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import functools
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.numbers.cuda import DeviceArray

# of the process that imports it first, whose forks use it (tests/forks.py)
_FOLDER = Path(tempfile.mkdtemp(prefix="emulated-"))
atexit.register(shutil.rmtree, _FOLDER, ignore_errors=True)


@functools.cache
def emulated() -> Path:
    """The library of the kernels, and of the driver's interface (see test_cuda_driver); compiled once for all forks."""
    made = _FOLDER / "emulated.so"
    with (_FOLDER / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _compile(made)
    return made


def _compile(made: Path) -> None:
    here = Path(__file__).resolve().parent
    sources, quiet = here.parent / "precision_debug", "-Wno-unknown-pragmas"
    words = ["g++", "-O1", "-std=c++17", "-ffp-contract=off", "-fPIC", "-shared", "-Wall", "-Werror", quiet, "-o", made,
             f"-I{sources}/numbers", f"-I{sources}/products/device", here / "cuda_driver_emulated.cpp"]  # fmt: skip
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


class EmulatedEvent:
    ready = True

    def record(self, stream: int) -> None:
        """Everything was done when it was queued."""

    def wait(self) -> None:
        """So there is nothing to wait for."""

    def hold_up(self, stream: int) -> None:
        """Nor for a stream."""


class EmulatedMemory:
    def __init__(self, size: int) -> None:
        self.size = size
        self.bytes = np.zeros(size + 64, np.uint8)
        self.bytes = self.bytes[-self.bytes.ctypes.data % 64 :][:size]
        self.pointer = self.bytes.ctypes.data


class EmulatedDevice:
    """See numbers.cuda.Device."""

    lanes, processors, ordinal, name = 1, 2, 0, "emulated"

    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(emulated()))
        self.launched: list[str] = []
        self.names: dict[int, str] = {}

    def threads(self, warps: int) -> int:
        return 1

    def enter(self) -> None:
        """There is no context."""

    def leave(self, before: None) -> None:
        """Nor was there one."""

    def function(self, name: str, load_code: Any) -> int:
        address = ctypes.cast(getattr(self.library, name), ctypes.c_void_p).value or 0
        self.names[address] = name
        return address

    def launch(self, function: int, blocks: int, threads: int, stream: int, arguments: int) -> None:
        self.launched.append(self.names[function])
        argument = ctypes.c_void_p.from_address(arguments).value
        self.library.launch(ctypes.c_void_p(function), blocks, ctypes.c_void_p(argument))

    def allocate(self, size: int) -> EmulatedMemory:
        return EmulatedMemory(size)

    pinned = allocate

    def fill(self, pointer: int, words: int, stream: int) -> None:
        ctypes.memset(pointer, 0, 4 * words)

    def upload(self, pointer: int, array: np.ndarray[Any, Any], stream: int) -> None:
        ctypes.memmove(pointer, array.ctypes.data, array.nbytes)

    def copy(self, to: int, pointer: int, size: int, stream: int) -> None:
        ctypes.memmove(to, pointer, size)

    def stream(self) -> int:
        return 7

    def synchronise(self, stream: int) -> None:
        """Everything was done when it was queued."""

    def memory(self) -> tuple[int, int]:
        return 10**9, 10**9

    def current(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def download(self, pointer: int, into: np.ndarray[Any, Any], stream: int) -> None:
        ctypes.memmove(into.ctypes.data, pointer, into.nbytes)

    def event(self) -> EmulatedEvent:
        return EmulatedEvent()

    def array(self, values: np.ndarray[Any, Any], skew: int = 0) -> DeviceArray:
        """A copy, so many bytes off a multiple of 64."""
        memory = EmulatedMemory(values.nbytes + skew)
        memory.bytes[skew:] = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        return DeviceArray(self, memory.pointer + skew, values.shape, values.dtype, memory)  # type: ignore[arg-type]
