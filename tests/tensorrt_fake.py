"""A stand-in for TensorRT's Python module: it parses ONNX, "fuses" chains, and computes with ONNX Runtime on the host.

Nothing here says how TensorRT behaves; it lets the backend's own steps run where there is no GPU: what is marked, what
is built how often, where tensors go. FP16 rounds every output. Convolutions take in the normalisation and activation
behind them, unless what lies between is an output.
"""

from __future__ import annotations

import ctypes
import enum
import json
import weakref
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx

from precision_debug.errors import BackendError

__all__ = ["HostGpu", "fake_tensorrt"]

_FOLLOWS = {"BatchNormalization", "Relu"}


class HostGpu:
    """A GPU (see numbers.cuda) in the host's memory, without kernels. limit: bytes of one allocation."""

    name = "GPU"

    def __init__(self, limit: int = 10**6, free: int = 5) -> None:
        self.held: dict[int, Any] = {}
        self.limit, self.free = limit, free

    def stream(self) -> int:
        return 7

    def memory(self) -> tuple[int, int]:
        return self.free, 9

    def synchronise(self, stream: int) -> None:
        """Everything was done when it was queued."""

    def allocate(self, size: int) -> HostMemory:
        if size > self.limit:
            raise BackendError("out of memory", where="CUDA")
        return HostMemory(self, max(size, 1))

    def upload(self, pointer: int, array: np.ndarray[Any, Any], stream: int) -> None:
        ctypes.memmove(pointer, array.ctypes.data, array.nbytes)

    def download(self, pointer: int, into: np.ndarray[Any, Any], stream: int) -> None:
        ctypes.memmove(into.ctypes.data, pointer, into.nbytes)


class HostMemory:
    """Freed when it is collected."""

    def __init__(self, gpu: HostGpu, size: int) -> None:
        self._gpu, self._bytes = gpu, ctypes.create_string_buffer(size)
        self.pointer = ctypes.addressof(self._bytes)
        gpu.held[self.pointer] = size

    def __del__(self) -> None:
        del self._gpu.held[self.pointer]


class DataType(enum.Enum):
    FLOAT, HALF, INT8, INT32, BOOL, UINT8, FP8, BF16, INT64 = range(9)


class TensorLocation(enum.Enum):
    DEVICE, HOST = range(2)


class TensorIOMode(enum.Enum):
    NONE, INPUT, OUTPUT = range(3)


class TensorFormat(enum.Enum):
    LINEAR = 0


class LayerType(enum.Enum):
    OTHER, CONSTANT, SHAPE, QUANTIZE, DEQUANTIZE, CONVOLUTION, MATRIX_MULTIPLY, SOFTMAX = range(8)


_KINDS = {
    "Constant": LayerType.CONSTANT, "Conv": LayerType.CONVOLUTION, "MatMul": LayerType.MATRIX_MULTIPLY,
    "Gemm": LayerType.MATRIX_MULTIPLY, "Softmax": LayerType.SOFTMAX,
}  # fmt: skip


_OF_WORD = {
    "tensor(float)": DataType.FLOAT, "tensor(float16)": DataType.HALF, "tensor(int32)": DataType.INT32,
    "tensor(int64)": DataType.INT64, "tensor(bool)": DataType.BOOL, "tensor(int8)": DataType.INT8,
    "tensor(uint8)": DataType.UINT8,
}  # fmt: skip
_TYPES = {1: DataType.FLOAT, 10: DataType.HALF, 6: DataType.INT32, 7: DataType.INT32, 9: DataType.BOOL}


class Tensor:
    """ITensor."""

    def __init__(self, name: str, dtype: DataType, shape: tuple[int, ...]) -> None:
        self.name, self.dtype, self.shape = name, dtype, shape
        self.is_shape_tensor = self.is_network_output = False


class Layer:
    """ILayer."""

    def __init__(self, node: onnx.NodeProto, reads: list[Tensor], writes: list[Tensor]) -> None:
        self.name, self._reads, self._writes = node.name, reads, writes
        self.type = _KINDS.get(node.op_type, LayerType.OTHER)
        self.precision_is_set, self._precision = False, DataType.FLOAT
        self._types: dict[int, DataType] = {}

    num_inputs = property(lambda self: len(self._reads))
    num_outputs = property(lambda self: len(self._writes))
    precision = property(lambda self: self._precision)

    @property
    def is_single(self) -> bool:
        """Asked to be FP32, and so are its outputs."""
        return self.precision_is_set and self._precision is DataType.FLOAT and self._types.get(0) is DataType.FLOAT

    @precision.setter
    def precision(self, kind: DataType) -> None:
        self._precision, self.precision_is_set = kind, True

    def get_input(self, place: int) -> Tensor:
        return self._reads[place]

    def get_output(self, place: int) -> Tensor:
        return self._writes[place]

    def output_type_is_set(self, place: int) -> bool:
        return place in self._types

    def set_output_type(self, place: int, kind: DataType) -> None:
        self._types[place] = kind

    def get_output_type(self, place: int) -> DataType:
        return self._types.get(place, DataType.FLOAT)


class Network:
    """INetworkDefinition, filled by the parser."""

    proto: onnx.ModelProto

    def __init__(self) -> None:
        self.inputs: list[Tensor] = []
        self.outputs: list[Tensor] = []
        self.layers: list[Layer] = []
        self.debug: list[str] = []

    num_inputs = property(lambda self: len(self.inputs))
    num_outputs = property(lambda self: len(self.outputs))
    num_layers = property(lambda self: len(self.layers))

    def get_input(self, place: int) -> Tensor:
        return self.inputs[place]

    def get_output(self, place: int) -> Tensor:
        return self.outputs[place]

    def get_layer(self, place: int) -> Layer:
        return self.layers[place]

    def mark_output(self, tensor: Tensor) -> None:
        tensor.is_network_output = True
        self.outputs.append(tensor)

    def mark_debug(self, tensor: Tensor) -> None:
        self.debug.append(tensor.name)


class LaterNetwork(Network):
    """With TensorRT 10.12's way to see what fusion leaves."""

    def mark_unfused_tensors_as_debug_tensors(self) -> None:
        self.debug = list(_fused(self.proto, [tensor.name for tensor in self.outputs]))


class Config:
    """IBuilderConfig."""

    int8_calibrator: Any = None
    algorithm_selector: Any = None

    def __init__(self) -> None:
        self.flags: set[Any] = set()

    def set_flag(self, flag: Any) -> None:
        self.flags.add(flag)

    def get_flag(self, flag: Any) -> bool:
        return flag in self.flags

    def clear_flag(self, flag: Any) -> None:
        self.flags.discard(flag)

    def create_timing_cache(self, data: bytes) -> Any:
        return SimpleNamespace(serialize=lambda: b"times")

    def set_timing_cache(self, cache: Any, _ignore: bool) -> bool:
        self.cache = cache
        return True

    def get_timing_cache(self) -> Any:
        return self.cache

    def __getattr__(self, name: str) -> Any:
        if name in {"set_memory_pool_limit", "set_tactic_sources", "add_optimization_profile"}:
            return lambda *_: True
        raise AttributeError(name)


class Engine:
    """ICudaEngine and its inspector."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        import onnxruntime as ort

        self.proto = onnx.ModelProto.FromString(bytes.fromhex(plan["model"]))
        self.half, self.debug, self.shown = plan["half"], plan["debug"], plan["outputs"]
        self.rounds, self.kept = plan["rounds"], set(plan["kept"])
        options = ort.SessionOptions()
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        self.session = ort.InferenceSession(self.proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
        self.inputs = {item.name: item for item in self.session.get_inputs()}
        self.names = [*self.inputs, *self.shown]
        self.types = {item.name: _OF_WORD[item.type] for item in (*self.inputs.values(), *self.session.get_outputs())}
        inferred = onnx.shape_inference.infer_shapes(self.proto).graph
        self.typed_half = {item.name for item in inferred.value_info if item.type.tensor_type.elem_type == 10}

    num_io_tensors = property(lambda self: len(self.names))
    num_layers = property(lambda self: len(self._layers()))
    num_optimization_profiles = 1
    device_memory_size = 1 << 20

    def get_tensor_format_desc(self, name: str) -> str:
        return "Row major linear FP32 format (kLINEAR)"

    def get_tensor_profile_shape(self, name: str, profile: int) -> list[tuple[int, ...]]:
        return [tuple(max(1, dim) for dim in self.get_tensor_shape(name))] * 3

    def get_tensor_name(self, place: int) -> str:
        return self.names[place]

    def get_tensor_mode(self, name: str) -> TensorIOMode:
        return TensorIOMode.INPUT if name in self.inputs else TensorIOMode.OUTPUT

    def get_tensor_dtype(self, name: str) -> DataType:
        return self.types[name]

    def get_tensor_location(self, name: str) -> TensorLocation:
        return TensorLocation.DEVICE

    def get_tensor_format(self, name: str) -> TensorFormat:
        return TensorFormat.LINEAR

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        given = {**self.inputs, **{item.name: item for item in self.session.get_outputs()}}
        return tuple(-1 if isinstance(dim, str) else dim for dim in given[name].shape)

    def create_execution_context(self) -> Context:
        return Context(self)

    def create_engine_inspector(self) -> Any:
        return SimpleNamespace(get_engine_information=lambda _format: json.dumps({"Layers": self._layers()}))

    def _layers(self) -> list[dict[str, Any]]:
        return [
            {
                "Name": " + ".join(node.name for node in nodes), "LayerType": nodes[0].op_type,
                "Inputs": [_told(nodes[0].input[0], self._kind(nodes))], "Outputs": [_told(output, self._kind(nodes))],
                "TacticName": "sm80_xmma_f16f16_f16f16_f16" if self._kind(nodes) == "Half" else (
                    "sm80_xmma_f32f32_f32f32_f32"
                ),
                "TacticValue": "0x1", "Metadata": "\x1e".join(f"[ONNX Layer: {node.name}]" for node in nodes),
            }
            for output, nodes in _fused(self.proto, self.shown).items() if not nodes[0].name.startswith("round:")
        ]  # fmt: skip

    def _kind(self, nodes: Sequence[onnx.NodeProto]) -> str:
        if nodes[-1].output[0] in self.typed_half:
            return "Half"
        return "Half" if self.half and not {node.name for node in nodes} & self.kept else "Float"


def _fused(proto: onnx.ModelProto, shown: Sequence[str]) -> dict[str, list[onnx.NodeProto]]:
    """What each "layer" of the engine makes, and its nodes."""
    made: dict[str, list[onnx.NodeProto]] = {}
    for node in proto.graph.node:
        before = made.get(node.input[0]) if node.op_type in _FOLLOWS else None
        if before is not None and before[0].op_type == "Conv" and node.input[0] not in shown:
            made[node.output[0]] = [*made.pop(node.input[0]), node]
        else:
            made[node.output[0]] = [node]
    return made


def _round(proto: onnx.ModelProto, kept: set[str]) -> None:
    """Round to FP16 and back behind every node that is not kept."""
    nodes = []
    for node in list(proto.graph.node):
        nodes.append(node)
        if node.name in kept or node.op_type == "Constant":
            continue
        name = node.output[0]
        node.output[0] = f"{name}!exact"
        nodes.append(onnx.helper.make_node("Cast", [node.output[0]], [f"{name}!half"], name=f"round:{name}", to=10))
        nodes.append(onnx.helper.make_node("Cast", [f"{name}!half"], [name], name=f"round:{name}!", to=1))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def _keep_types(proto: onnx.ModelProto) -> None:
    """Two Identities behind every node that gives FP16: ONNX Runtime, which has few such kernels on a CPU, would leave
    out the casts between two nodes that it computes in FP32, and compute one Identity in FP32 too."""
    inferred = onnx.shape_inference.infer_shapes(proto).graph
    half = {item.name for item in (*inferred.value_info, *inferred.output) if item.type.tensor_type.elem_type == 10}
    nodes = []
    for node in list(proto.graph.node):
        nodes.append(node)
        for place, name in enumerate(node.output):
            if name in half:
                node.output[place] = f"{name}!exact"
                for a, b in ((f"{name}!exact", f"{name}!half"), (f"{name}!half", name)):
                    nodes.append(onnx.helper.make_node("Identity", [a], [b], name=f"round:{b}"))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def _are_inconsistent(proto: onnx.ModelProto, sizes: Mapping[str, Sequence[int]]) -> bool:
    """Return whether inputs' sizes of one name are several numbers, which 8.6.1 refuses to build (on an H200)."""
    found: dict[str, set[int]] = {}
    for value in proto.graph.input:
        for dim, size in zip(value.type.tensor_type.shape.dim, sizes.get(value.name, ()), strict=False):
            found.setdefault(dim.dim_param, set()).add(size if dim.dim_param else 0)
    return any(len(numbers) > 1 for numbers in found.values())


def _round_to_grid(proto: onnx.ModelProto, kept: set[str]) -> None:
    """Round to 255 steps of the largest magnitude behind every node that is not kept."""
    nodes = []
    step = onnx.helper.make_tensor("int8!steps", 1, [], [127.0])
    proto.graph.initializer.append(step)
    for node in list(proto.graph.node):
        nodes.append(node)
        if node.name in kept or node.op_type == "Constant":
            continue
        name = node.output[0]
        node.output[0] = f"{name}!exact"
        made = [("Abs", [f"{name}!exact"], "abs"), ("ReduceMax", [f"{name}!abs"], "most"),
                ("Div", [f"{name}!most", "int8!steps"], "scale"), ("Div", [f"{name}!exact", f"{name}!scale"], "scaled"),
                ("Round", [f"{name}!scaled"], "whole")]  # fmt: skip
        for kind, inputs, output in made:
            more = {"keepdims": 0} if kind == "ReduceMax" else {}
            nodes.append(onnx.helper.make_node(kind, inputs, [f"{name}!{output}"], name=f"{output}:{name}", **more))
        nodes.append(onnx.helper.make_node("Mul", [f"{name}!whole", f"{name}!scale"], [name], name=f"grid:{name}"))
    del proto.graph.node[:]
    proto.graph.node.extend(nodes)


def _select(selector: Any, layers: Sequence[str]) -> list[str]:
    """Layers for which a selector takes tactic 2 out of 1 and 2; the fastest one is 2."""
    if selector is None:
        return []
    contexts = [SimpleNamespace(name=name, num_inputs=0, num_outputs=0) for name in layers]
    tactics = [SimpleNamespace(algorithm_variant=SimpleNamespace(implementation=7, tactic=number)) for number in (1, 2)]
    left = [selector.select_algorithms(context, tactics) for context in contexts]
    selector.report_algorithms(contexts, [tactics[1]] * len(contexts))
    return [name for name, places in zip(layers, left, strict=True) if places == [1]]


def _told(name: str, kind: str) -> dict[str, Any]:
    return {"Name": name, "Dimensions": [1], "Format/Datatype": kind}


class Context:
    """IExecutionContext."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.addresses: dict[str, int] = {}
        self.listener: Any = None

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self.shapes[name] = tuple(shape)
        return True

    def set_tensor_address(self, name: str, address: int) -> bool:
        self.addresses[name] = address
        return True

    def infer_shapes(self) -> list[str]:
        self.values = self._compute()
        return []

    def get_tensor_shape(self, name: str) -> tuple[int, ...]:
        return tuple(self.shapes.get(name) or self.values[name].shape)

    def set_debug_listener(self, listener: Any) -> None:
        self.listener = listener

    unfused_tensors_debug_state = False

    def set_all_tensors_debug_state(self, _on: bool) -> None: ...

    def execute_async_v3(self, stream: int) -> bool:
        for name in self.engine.debug if self.listener is not None else ():
            value = np.ascontiguousarray(self.values[name])
            self.listener.process_debug_tensor(
                value.ctypes.data, TensorLocation.DEVICE, self.engine.types[name], value.shape, name, stream
            )
        for name in self.engine.shown:
            value = np.ascontiguousarray(self.values[name])
            ctypes.memmove(self.addresses[name], value.ctypes.data, value.nbytes)
        return True

    def _compute(self) -> dict[str, Any]:
        feeds = {}
        for name, shape in self.shapes.items():
            size = int(np.prod(shape)) * 4
            feeds[name] = np.frombuffer(ctypes.string_at(self.addresses[name], size), np.float32).reshape(shape)
        names = [item.name for item in self.engine.session.get_outputs()]
        values = dict(zip(names, self.engine.session.run(None, feeds), strict=True))
        if self.engine.half and not self.engine.rounds:
            return {name: value.astype(np.float16).astype(np.float32) for name, value in values.items()}
        return values


class _Parser:
    def __init__(self, network: Network, _logger: Any) -> None:
        self._network = network

    num_errors = 0

    def parse(self, data: bytes, _path: str) -> bool:
        proto = onnx.shape_inference.infer_shapes(onnx.ModelProto.FromString(data))
        graph, network = proto.graph, self._network
        typed = {item.name: item.type.tensor_type for item in (*graph.input, *graph.value_info, *graph.output)}
        weights = {item.name for item in graph.initializer}
        tensors: dict[str, Tensor] = {}

        def tensor(name: str) -> Tensor:
            found = typed.get(name)
            dims = found.shape.dim if found is not None else ()
            shape = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in dims)
            kind = _TYPES.get(found.elem_type, DataType.FLOAT) if found is not None else DataType.FLOAT
            return tensors.setdefault(name, Tensor(name, kind, shape))

        network.inputs = [tensor(item.name) for item in graph.input if item.name not in weights]
        for node in graph.node:
            reads = [tensors[name] for name in node.input if name in tensors]
            network.layers.append(Layer(node, reads, [tensor(name) for name in node.output if name]))
        for item in graph.output:
            network.mark_output(tensors[item.name])
        network.proto = proto
        return True


def fake_tensorrt(
    version: str = "8.6.1",
    *,
    refuse: Sequence[str] = (),
    too_large: int = 10**12,
    rounds: bool = False,
    untaken: Sequence[str] = (),
) -> Any:
    """The module. refuse: tensors without which it builds no engine. too_large: outputs, in bytes, that end a build.
    From 11 on networks are typed strongly: they compute in the model's types, and flags and constraints are gone.
    rounds: FP16 rounds what every layer gives, but for layers that are asked to be FP32 with their outputs. untaken:
    operator types that its parser does not take, where it is asked.

    Of every build, ``builds`` collects the names of the outputs, ``asked`` the layers' precisions and the flags, and
    ``taken`` the layers for which a selector left only tactic 2 of the tactics 1 and 2. ``builders``: those that
    were made.
    """
    listens, typed = not version.startswith("8"), int(version.partition(".")[0]) >= 11
    kind = LaterNetwork if tuple(int(part) for part in version.split(".")[:2]) >= (10, 12) else Network
    weak = ("FP16", "INT8", "OBEY_PRECISION_CONSTRAINTS", "PREFER_PRECISION_CONSTRAINTS")
    members = ("TF32",) if typed else ("TF32", *weak)
    flags = enum.Enum("BuilderFlag", members)  # type: ignore[misc]
    how = ("STRONGLY_TYPED",) if typed else ("EXPLICIT_BATCH",)
    creation = enum.IntEnum("NetworkDefinitionCreationFlag", how, start=0)  # type: ignore[misc]
    builds: list[list[str]] = []
    asked: list[dict[str, str]] = []
    taken: list[list[str]] = []
    builders: list[Any] = []
    sizes: dict[str, Sequence[int]] = {}

    class Base:
        def __init__(self) -> None: ...

    class Builder:
        def __init__(self, logger: Any) -> None:
            self._logger = logger
            builders.append(weakref.ref(self))

        def create_network(self, _flags: int = 0) -> Network:
            return kind()

        def create_builder_config(self) -> Config:
            return Config()

        def create_optimization_profile(self) -> Any:
            return SimpleNamespace(set_shape=lambda name, _low, best, _high: sizes.update({name: best}))

        def build_serialized_network(self, network: Network, config: Config) -> bytes | None:
            names = [tensor.name for tensor in network.outputs]
            builds.append(names)
            asked.append({layer.name: layer.precision.name for layer in network.layers if layer.precision_is_set})
            asked[-1] |= {flag.name: "on" for flag in config.flags}
            taken.append(_select(config.algorithm_selector, list(_fused(network.proto, names))))
            size = sum(4 * int(np.prod(tensor.shape)) for tensor in network.outputs)
            if _are_inconsistent(network.proto, sizes):
                self._logger.log("Severity.ERROR", "4: [shapeContext.cpp::getInterval::3338] Error Code 4: Internal"
                                 " Error (?: Input dimensions with this name are inconsistent.)")  # fmt: skip
                return None
            if set(names) & set(refuse) or size > too_large:
                self._logger.log("Severity.ERROR", "4: [builder.cpp::fail::1] Error Code 4: Internal Error (no reason)")
                return None
            proto = onnx.ModelProto()
            proto.CopyFrom(network.proto)
            del proto.graph.output[:]
            wanted = dict.fromkeys([*names, *network.debug])
            proto.graph.output.extend(onnx.helper.make_empty_tensor_value_info(name) for name in wanted)
            on = {flag.name for flag in config.flags}
            half = "FP16" in on
            if typed:
                _keep_types(proto)
            if half and rounds:
                _round(proto, {layer.name for layer in network.layers if layer.is_single})
            if "INT8" in on and rounds:
                _round_to_grid(proto, {layer.name for layer in network.layers if layer.is_single})
            kept = [layer.name for layer in network.layers if layer.is_single]
            plan = {"model": proto.SerializeToString().hex(), "half": half, "rounds": rounds, "kept": kept,
                    "debug": network.debug, "outputs": names}  # fmt: skip
            return json.dumps(plan).encode()

    class Runtime:
        def __init__(self, _logger: Any) -> None: ...

        def deserialize_cuda_engine(self, data: bytes) -> Engine:
            return Engine(json.loads(data))

    class Parser(_Parser):
        def groups(self, data: bytes) -> list[tuple[list[int], bool]]:
            nodes = onnx.ModelProto.FromString(data).graph.node
            return [([place], node.op_type not in untaken) for place, node in enumerate(nodes)]

        if version.startswith("8"):

            def supports_model(self, data: bytes, _path: str) -> tuple[bool, list[tuple[list[int], bool]]]:
                """As 8.6.1 does: stretches that are taken, none of them marked unless all is one."""
                whole = all(taken for _, taken in self.groups(data))
                return whole, [(nodes, whole) for nodes, taken in self.groups(data) if taken]
        else:

            def supports_model_v2(self, data: bytes, _path: str) -> bool:
                self.found = self.groups(data)
                self.num_subgraphs = len(self.found)
                return not untaken

            def is_subgraph_supported(self, place: int) -> bool:
                return self.found[place][1]

            def get_subgraph_nodes(self, place: int) -> list[int]:
                return self.found[place][0]

    extra = {"IDebugListener": Base} if listens else {}
    extra |= {} if typed else {"IInt8EntropyCalibrator2": Base, "IAlgorithmSelector": Base}
    return SimpleNamespace(
        __version__=version, builds=builds, asked=asked, taken=taken, builders=builders, BuilderFlag=flags,
        NetworkDefinitionCreationFlag=creation,
        DataType=DataType, LayerType=LayerType, TensorLocation=TensorLocation, TensorIOMode=TensorIOMode,
        TensorFormat=TensorFormat, TacticSource=enum.IntEnum("TacticSource", ("CUBLAS",), start=0),
        MemoryPoolType=SimpleNamespace(WORKSPACE=0), ProfilingVerbosity=SimpleNamespace(DETAILED=2),
        LayerInformationFormat=SimpleNamespace(JSON=1), ILogger=Base,
        IOutputAllocator=Base, INetworkDefinition=kind, Builder=Builder,
        OnnxParser=Parser, Runtime=Runtime, init_libnvinfer_plugins=lambda *_: True, **extra,
    )  # fmt: skip
