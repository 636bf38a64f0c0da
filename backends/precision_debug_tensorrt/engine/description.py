"""What a serialised engine holds, as TensorRT's own inspector tells: layers, real precision, tactics, bindings."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from precision_debug.errors import BackendUnavailable, ModelError, PrecisionDebugError
from precision_debug.inspector import EngineLayer, find_real_precision
from precision_debug.protocols import DescribedLayer, Description
from precision_debug.reasons import Reason
from precision_debug.records import InputMeta, ModelFiles

from ..make import Built, load_engine
from ..model import EngineFile, read_source
from ..reasons import say
from . import device_memory, versions
from .device_memory import Device
from .execution import Runner, engine_inputs, engine_outputs
from .messages import Messages, make_logger
from .types import dtype_name, numpy_dtype
from .versions import Api

__all__ = ["describe"]

_ELSEWHERE = (
    "read it where it was built (trtexec --loadEngine=FILE --exportLayerInfo=layers.json), and inspect layers.json here"
)


def describe(path: str) -> Description:
    """See ``protocols.Describer``; needs the TensorRT and the kind of GPU that the engine was built with."""
    source = read_source(ModelFiles(model_file=path))
    assert isinstance(source, EngineFile)
    try:
        api = versions.load_api()
        device = device_memory.find_device()  # without a GPU, TensorRT 8's runtime ends the process
        messages = Messages()
        logger = make_logger(api.trt, messages)
        api.trt.init_libnvinfer_plugins(logger, "")
        built = load_engine(api, logger, messages, source)
    except BackendUnavailable as error:
        raise BackendUnavailable(
            f"this engine cannot be read here: {error.what}", where=path, hint=_ELSEWHERE
        ) from error
    engine = built.engine
    names = engine_inputs(api, engine), engine_outputs(api, engine)
    layers = _layers(api, built, device, messages, path)
    facts = list(_facts(api, engine, names, len(source.data)))
    if not layers:
        facts.append(say("engine_without_layers"))
    return Description(
        format=f"TensorRT engine, read by TensorRT {api.version} on {device.name}",
        inputs=[_meta(engine, name) for name in names[0]],
        outputs=[_meta(engine, name) for name in names[1]],
        layers=[_describe_layer(layer) for layer in layers],
        facts=facts,
    )  # fmt: skip


def _layers(api: Api, built: Built, device: Device, messages: Messages, path: str) -> Sequence[EngineLayer]:
    """Of an engine with dynamic shapes at the shapes that it was tuned for; without them types stay unknown."""
    runner = Runner(api, built, device, messages, path)
    try:
        feeds = {name: _zeros(built.engine, name) for name in engine_inputs(api, built.engine)}
        with contextlib.suppress(PrecisionDebugError):  # shapes that are values: the inspector then says less
            runner.set_inputs(feeds)
        return runner.inspect()[1]
    finally:
        runner.close()


def _zeros(engine: Any, name: str) -> np.ndarray[Any, Any]:
    shape = tuple(engine.get_tensor_shape(name))
    if any(dim < 0 for dim in shape):
        shape = tuple(engine.get_tensor_profile_shape(name, 0)[1])
    dtype = numpy_dtype(engine.get_tensor_dtype(name))
    if dtype is None:
        raise ModelError(f"input '{name}' has a type that is not read here", where=name)
    return np.zeros(shape, dtype)


def _describe_layer(layer: EngineLayer) -> DescribedLayer:
    precision, read_from = find_real_precision(layer)
    details = []
    if read_from:
        details.append(f"precision from {read_from}")
    if layer.tactic_name or layer.tactic_value:
        details.append(f"tactic {' '.join(filter(None, (layer.tactic_name, layer.tactic_value)))}")
    if layer.onnx_nodes:
        details.append(f"of {', '.join(layer.onnx_nodes)}{', …' if layer.nodes_cut else ''}")
    return DescribedLayer(
        op_type=layer.layer_type, name=layer.name, precision=precision or "", details=tuple(details),
        inputs=tuple(_tensor(one) for one in layer.inputs), outputs=tuple(_tensor(one) for one in layer.outputs),
    )  # fmt: skip


def _tensor(tensor: Any) -> str:
    said = " ".join(filter(None, (tensor.dtype, tensor.format if tensor.format != tensor.dtype else "")))
    return f"{tensor.name} ({said})" if said else str(tensor.name)


def _meta(engine: Any, name: str) -> InputMeta:
    shape = tuple(int(dim) if dim >= 0 else f"dim{place}" for place, dim in enumerate(engine.get_tensor_shape(name)))
    return InputMeta(name=name, dtype=dtype_name(engine.get_tensor_dtype(name)), shape=shape)


def _facts(api: Api, engine: Any, names: tuple[Sequence[str], Sequence[str]], size: int) -> Iterator[Reason]:
    layers, profiles = int(engine.num_layers), int(engine.num_optimization_profiles)
    yield say("engine_size", size=size / 2**20, layers=layers, profiles=profiles)
    for attribute in ("device_memory_size_v2", "device_memory_size"):
        needs = getattr(engine, attribute, None)
        if needs is not None:
            yield say("engine_memory", size=needs / 2**20)
            break
    for both in names:
        for name in both:
            kind = str(engine.get_tensor_format_desc(name))
            host = engine.get_tensor_location(name) == api.trt.TensorLocation.HOST
            if host:
                yield say("binding_on_host", name=name, kind=kind)
            else:
                yield say("binding_on_device", name=name, kind=kind)
    for name in names[0]:
        for number in range(engine.num_optimization_profiles):
            shapes = engine.get_tensor_profile_shape(name, number)
            low, best, high = (list(shape) for shape in shapes)
            if low != high:
                yield say("profile_of", number=number, name=name, low=str(low), high=str(high), best=str(best))
