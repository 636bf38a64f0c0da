"""Runs a loaded engine once on given inputs, and reads what its inspector says for just these shapes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from precision_debug.errors import BackendError, InputError
from precision_debug.inspector import EngineLayer, parse_inspector
from precision_debug.reasons import Reason

from ..failures import run_error
from ..make import Built
from ..reasons import say
from .device_memory import Buffer, Device
from .messages import Messages
from .types import dtype_name, numpy_dtype, type_name
from .versions import Api

__all__ = ["Runner", "address_of", "engine_inputs", "engine_outputs", "listen", "make_listener"]


# TensorRT's debug listener (10 and later): called with each debug tensor while the engine runs.

Listener = Callable[[str, Any, Exception | None], None]
"""Gets the tensor's name and its array; or None and what went wrong, since nothing may be raised inside TensorRT."""


def make_listener(api: Api, device: Device, receive: Listener, *, on_device: bool = False) -> Any:
    """Return a listener that copies each tensor to the host, where TensorRT lets its memory go after the call.

    on_device: it is shown where it is instead, and lives during the call only.
    """
    base: Any = api.trt.IDebugListener
    host = api.trt.TensorLocation.HOST

    class DebugListener(base):  # type: ignore[misc]
        def __init__(self) -> None:
            base.__init__(self)

        def process_debug_tensor(
            self, addr: Any, location: Any, kind: Any, shape: Any, name: str, _stream: int
        ) -> bool:
            try:
                dtype = numpy_dtype(kind)
                if dtype is None:
                    receive(name, None, TypeError(f"its type {type_name(kind)} is not read here"))
                    return True
                sizes = tuple(int(dim) for dim in shape)
                array: Any
                if location == host:
                    size = int(np.prod(sizes, dtype=np.int64)) * dtype.itemsize
                    array = np.frombuffer(ctypes.string_at(address_of(addr), size), dtype).reshape(sizes)
                else:
                    read = device.tensor if on_device else device.download
                    array = read(address_of(addr), sizes, dtype)
                receive(name, array, None)
            except Exception as error:
                receive(name, None, error)
            return True

    return DebugListener()


def address_of(pointer: Any) -> int:
    """Return an address from an integer or from the capsule in which the bindings hand it over."""
    if isinstance(pointer, int):
        return pointer
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    return int(get_pointer(pointer, get_name(pointer)) or 0)


Array = np.ndarray[Any, Any]


def engine_inputs(api: Api, engine: Any) -> tuple[str, ...]:
    """Return names of the engine's inputs, in its order."""
    return _names(api, engine, "INPUT")


def engine_outputs(api: Api, engine: Any) -> tuple[str, ...]:
    """Return names of the engine's outputs, in its order."""
    return _names(api, engine, "OUTPUT")


class Runner:
    """One execution context with its inputs set. The outputs live on the device until they are asked for."""

    def __init__(self, api: Api, built: Built, device: Device, messages: Messages, path: str) -> None:
        self.api, self.built, self.device, self.messages, self.path = api, built, device, messages, path
        self.engine = built.engine
        messages.fresh_errors()
        self.context = self.engine.create_execution_context()
        if self.context is None:
            raise run_error(path, messages.fresh_errors())
        self._held: list[Any] = []
        self._outputs: dict[str, Buffer | Any] = {}
        self._listener: Any = None

    def set_inputs(self, feeds: Mapping[str, Array]) -> None:
        """Upload the feeds. Raises InputError or BackendError."""
        trt = self.api.trt
        wanted = engine_inputs(self.api, self.engine)
        for name in feeds:
            if name not in wanted:
                raise InputError(
                    f"the engine has no input '{name}'",
                    where=self.path,
                    hint=f"its inputs: {', '.join(wanted) or 'none'}",
                )
        for name in wanted:
            if name not in feeds:
                raise InputError(f"the engine wants an input '{name}', which has no value", where=self.path)
            array = self._fitting(name, np.asarray(feeds[name]))
            if not self.context.set_input_shape(name, array.shape):
                raise self._outside(name, array.shape)
            if self.engine.get_tensor_location(name) == trt.TensorLocation.HOST:
                flat = np.ascontiguousarray(array)
                self._held.append(flat)
                address = int(flat.ctypes.data)
            else:
                buffer = self.device.upload(array)
                self._held.append(buffer)
                address = buffer.pointer
            self.context.set_tensor_address(name, address)
        missing = self.context.infer_shapes()
        if missing:
            raise BackendError(f"TensorRT still wants a shape or value of {', '.join(missing)}", where=self.path)

    def inspect(self) -> tuple[str, tuple[EngineLayer, ...]]:
        """Return the inspector's JSON for the shapes that are set, and its layers; none where the engine keeps no
        detail."""
        inspector = self.engine.create_engine_inspector()
        inspector.execution_context = self.context
        text = inspector.get_engine_information(self.api.trt.LayerInformationFormat.JSON)
        try:
            return text, parse_inspector(text, where=self.path)
        except Exception:
            return text, ()

    def listen(self, listener: Listener, *, unfused: bool, on_device: bool = False) -> None:
        """Call the listener with each debug tensor of the run. unfused: with all that fusion left.

        on_device: with the engine's own memory.
        """
        self._listener = make_listener(self.api, self.device, listener, on_device=on_device)
        self.context.set_debug_listener(self._listener)
        if unfused:
            self.context.unfused_tensors_debug_state = True
        else:
            self.context.set_all_tensors_debug_state(True)

    def run(self) -> None:
        """Execute once and wait. Raises BackendError."""
        self._allocate()
        self.messages.fresh_errors()
        if not self.context.execute_async_v3(self.device.stream):
            raise run_error(self.path, self.messages.fresh_errors())
        try:
            self.device.synchronise()
        except BackendError as error:
            said = self.messages.fresh_errors()
            raise run_error(self.path, [*said, error.what]) from error

    def output(self, name: str) -> Array:
        """One output, copied from the device. Raises BackendError where its type has no numpy counterpart."""
        held = self._outputs[name]
        dtype = numpy_dtype(self.engine.get_tensor_dtype(name))
        if dtype is None:
            kind = type_name(self.engine.get_tensor_dtype(name))
            raise BackendError(f"output '{name}' has type {kind}, which is not read here", where=self.path)
        if isinstance(held, np.ndarray):
            return held
        if isinstance(held, Buffer):
            return self.device.download(held.pointer, tuple(self.context.get_tensor_shape(name)), dtype)
        pointer, shape = held.result(name)
        return self.device.download(pointer, shape, dtype)

    def tensor(self, name: str) -> Any:
        """One output where it is, with what keeps its memory; what lies in the host's as ``output`` gives it."""
        held, dtype = self._outputs[name], numpy_dtype(self.engine.get_tensor_dtype(name))
        if dtype is None or isinstance(held, np.ndarray):
            return self.output(name)
        if isinstance(held, Buffer):
            return self.device.tensor(held.pointer, tuple(self.context.get_tensor_shape(name)), dtype, held)
        pointer, shape = held.result(name)
        return self.device.tensor(pointer, shape, dtype, held)

    def outputs(self) -> Iterator[str]:
        """Yield names of the outputs of the engine, in its order."""
        yield from self._outputs

    def close(self) -> None:
        """Free context and buffers."""
        self.context = self._listener = None
        self._outputs.clear()
        self._held.clear()

    def _fitting(self, name: str, array: Array) -> Array:
        kind = self.engine.get_tensor_dtype(name)
        dtype = numpy_dtype(kind)
        layout = self.engine.get_tensor_format(name)
        if dtype is None or type_name(layout) != "LINEAR":
            raise InputError(
                f"input '{name}' has type {type_name(kind)} and layout {type_name(layout)}, which cannot be fed",
                where=self.path, hint="build the engine with linear inputs",
            )  # fmt: skip
        if array.dtype == dtype:
            return array
        with np.errstate(all="ignore"):
            cast = array.astype(dtype)
        if array.dtype.kind in "iu" and not np.array_equal(cast.astype(array.dtype), array):
            raise InputError(
                f"input '{name}' is {array.dtype.name} with values that {dtype_name(kind)} cannot hold",
                where=self.path,
                hint="TensorRT 8 has no INT64; feed smaller values",
            )  # fmt: skip
        return cast

    def _outside(self, name: str, shape: tuple[int, ...]) -> InputError:
        low, _, high = self.engine.get_tensor_profile_shape(name, 0)
        return InputError(
            f"input '{name}' has shape {list(shape)}, the engine was built for {list(low)} to {list(high)}",
            where=self.path, hint="feed another shape with --input_shapes, or build for a wider range",
        )  # fmt: skip

    def _allocate(self) -> None:
        trt = self.api.trt
        for name in engine_outputs(self.api, self.engine):
            shape = tuple(int(dim) for dim in self.context.get_tensor_shape(name))
            dtype = numpy_dtype(self.engine.get_tensor_dtype(name))
            itemsize = dtype.itemsize if dtype is not None else 1
            if self.engine.get_tensor_location(name) == trt.TensorLocation.HOST:
                host = np.empty(shape, dtype or np.uint8)
                self._outputs[name] = host
                self.context.set_tensor_address(name, int(host.ctypes.data) if host.size else 1)
            elif any(dim < 0 for dim in shape):
                allocator = _allocator(self.api, self.device)
                self._held.append(allocator)
                self._outputs[name] = allocator
                self.context.set_output_allocator(name, allocator)
            else:
                buffer = self.device.allocate(int(np.prod(shape, dtype=np.int64)) * itemsize)
                self._outputs[name] = buffer
                self.context.set_tensor_address(name, buffer.pointer)


def _allocator(api: Api, device: Device) -> Any:
    """Memory for an output whose size depends on the data."""
    base: Any = api.trt.IOutputAllocator

    class Allocator(base):  # type: ignore[misc]
        def __init__(self) -> None:
            base.__init__(self)
            self.buffers: dict[str, Buffer] = {}
            self.shapes: dict[str, tuple[int, ...]] = {}

        def reallocate_output(self, name: str, _memory: Any, size: int, _alignment: int) -> int:
            held = self.buffers.get(name)
            if held is None or held.size < size:
                held = self.buffers[name] = device.allocate(size)
            return held.pointer

        def reallocate_output_async(self, name: str, memory: Any, size: int, alignment: int, _stream: int) -> int:
            return self.reallocate_output(name, memory, size, alignment)

        def notify_shape(self, name: str, shape: Any) -> None:
            self.shapes[name] = tuple(int(dim) for dim in shape)

        def result(self, name: str) -> tuple[int, tuple[int, ...]]:
            if name not in self.shapes:
                raise BackendError(f"TensorRT reported no shape for output '{name}'", where="TensorRT")
            return self.buffers[name].pointer, self.shapes[name]

    return Allocator()


def _names(api: Api, engine: Any, mode: str) -> tuple[str, ...]:
    wanted = getattr(api.trt.TensorIOMode, mode)
    names = (engine.get_tensor_name(place) for place in range(engine.num_io_tensors))
    return tuple(name for name in names if engine.get_tensor_mode(name) == wanted)


# Connects the debug listener of a run with whoever wants its tensors.

def listen(
    runner: Runner, seen: dict[str, np.ndarray[Any, Any]], notes: list[Reason], *, unfused: bool,
    show: Callable[[str, Any], None] | None = None, on_device: bool = False,
) -> None:  # fmt: skip
    """Let ``runner`` report its debug tensors.

    show: gets each one while it lives, and then only its name is kept in ``seen``; None: the arrays are kept.
    on_device: show gets them where they are.
    notes: told of tensors that could not be read.
    """

    def receive(name: str, array: Any, error: Exception | None) -> None:
        if error is not None:
            notes.append(say("debug_unreadable", name=name, detail=error))
            return
        seen[name] = array if show is None else np.empty(0)
        if show is not None:
            show(name, array)

    runner.listen(receive, unfused=unfused, on_device=on_device and show is not None)
