"""One seam per version of TensorRT, against the names that the real Python bindings of 8.6, 10.16 and 11.4 have.

tests/data/tensorrt/api_*.json hold the public names of the bindings' modules and classes.
"""

from __future__ import annotations

import ctypes
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from approval import holds_approved, raises_approved
from precision_debug_tensorrt.engine.execution import address_of, make_listener
from precision_debug_tensorrt.engine.options import read_options
from precision_debug_tensorrt.engine.versions import Api
from precision_debug_tensorrt.make import choose_road
from precision_debug_tensorrt.model import EngineFile, OnnxModel, read_source
from precision_debug_tensorrt.modes import recipe

from precision_debug.errors import BackendUnavailable, UsageError
from precision_debug.records import ModelFiles

DATA = Path(__file__).parent / "data" / "tensorrt"
NAMES = {version: json.loads((DATA / f"api_{version}.json").read_text()) for version in ("8.6", "10", "11")}

# what is called on both roads, in every version
ALWAYS = {
    "Builder": ["create_network", "create_builder_config", "create_optimization_profile", "build_serialized_network"],
    "IBuilderConfig": [
        "set_flag", "get_flag", "clear_flag", "profiling_verbosity", "set_memory_pool_limit", "set_tactic_sources",
        "builder_optimization_level", "create_timing_cache",
        "set_timing_cache", "get_timing_cache", "add_optimization_profile",
    ],
    "INetworkDefinition": [
        "num_layers", "get_layer", "num_inputs", "get_input", "num_outputs", "get_output", "mark_output",
    ],
    "OnnxParser": ["parse", "num_errors", "get_error"],
    "ParserError": ["node", "desc"],
    "Runtime": ["deserialize_cuda_engine"],
    "ICudaEngine": [
        "create_execution_context", "create_engine_inspector", "num_io_tensors", "get_tensor_name", "get_tensor_mode",
        "get_tensor_dtype", "get_tensor_location", "get_tensor_format", "get_tensor_profile_shape", "get_tensor_shape",
    ],
    "IExecutionContext": [
        "set_input_shape", "set_tensor_address", "infer_shapes", "get_tensor_shape", "set_output_allocator",
        "execute_async_v3",
    ],
    "EngineInspector": ["execution_context", "get_engine_information"],
    "IOptimizationProfile": ["set_shape", "set_shape_input"],
    "ITensor": ["name", "dtype", "shape", "is_shape_tensor", "is_network_output"],
    "ILayer": ["name", "type", "num_inputs", "get_input", "num_outputs", "get_output"],
    "ITimingCache": ["serialize"],
    "IOutputAllocator": [],  # its methods are ours; by its docstring reallocate_output, …_async and notify_shape
    "BuilderFlag": ["TF32"],
    "MemoryPoolType": ["WORKSPACE"],
    "ProfilingVerbosity": ["DETAILED"],
    "LayerInformationFormat": ["JSON"],
    "TensorIOMode": ["INPUT", "OUTPUT"],
    "TensorLocation": ["HOST"],
    "TensorFormat": ["LINEAR"],
    "LayerType": [
        "TRIP_LIMIT", "ITERATOR", "RECURRENCE", "LOOP_OUTPUT", "CONDITION", "CONDITIONAL_INPUT", "CONDITIONAL_OUTPUT",
        "SHAPE", "CONSTANT", "CAST", "QUANTIZE", "DEQUANTIZE",
    ],
}  # fmt: skip
WEAK = {
    "BuilderFlag": ["FP16", "INT8", "OBEY_PRECISION_CONSTRAINTS", "PREFER_PRECISION_CONSTRAINTS"],
    "ILayer": [
        "precision", "precision_is_set", "set_output_type", "output_type_is_set", "get_output_type",
    ],
    "IBuilderConfig": ["int8_calibrator", "set_calibration_profile", "algorithm_selector"],
    "IInt8EntropyCalibrator2": [],
    "IAlgorithmSelector": ["select_algorithms", "report_algorithms"],
    "IAlgorithm": ["algorithm_variant", "get_algorithm_io_info"],
    "IAlgorithmContext": ["name", "num_inputs", "num_outputs"],
    "IAlgorithmVariant": ["implementation", "tactic"],
    "IAlgorithmIOInfo": ["dtype", "strides", "vectorized_dim", "components_per_element"],
}  # fmt: skip
LISTENING = {
    "IDebugListener": ["process_debug_tensor"],
    "INetworkDefinition": ["mark_debug", "mark_unfused_tensors_as_debug_tensors"],
    "IExecutionContext": ["set_debug_listener", "set_all_tensors_debug_state", "unfused_tensors_debug_state"],
    "ParserError": ["node_name", "node_operator"],
}


def module_of(version: str) -> Any:
    """A stand-in with the names of the real module; enumerations count up."""
    names = NAMES[version]
    members = {
        kind: SimpleNamespace(**{name: number for number, name in enumerate(found)}, __name__=kind)
        for kind, found in names["members"].items()
    }
    return SimpleNamespace(__version__=names["version"], **members)


@pytest.fixture(params=["8.6", "10", "11"])
def version(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def missing(version: str, wanted: dict[str, list[str]]) -> list[str]:
    members = NAMES[version]["members"]
    lost = [f"{kind}.{name}" for kind, names in wanted.items() for name in names if name not in members.get(kind, ())]
    return lost + [kind for kind in wanted if kind not in members]


def test_what_every_version_is_asked_for_exists(version: str) -> None:
    assert missing(version, ALWAYS) == []
    assert "init_libnvinfer_plugins" in NAMES[version]["module"]


def test_the_weakly_typed_road_exists_up_to_10() -> None:
    assert missing("8.6", WEAK) == []
    assert missing("10", WEAK) == []
    gone = missing("11", WEAK)
    assert {"BuilderFlag.FP16", "ILayer.precision", "IInt8EntropyCalibrator2", "IAlgorithmSelector"} <= set(gone)


def test_the_listener_exists_from_10_on() -> None:
    assert missing("10", LISTENING) == []
    assert missing("11", LISTENING) == []
    assert "IDebugListener" in missing("8.6", LISTENING)


def test_what_the_api_says_of_each_version(version: str) -> None:
    api = Api(module_of(version))
    told = {
        "weakly_typed": api.weakly_typed, "strongly_typed": api.strongly_typed, "calibrates": api.calibrates,
        "replays_tactics": api.replays_tactics, "debug_tensors": api.debug_tensors,
        "unfused_debug_tensors": api.unfused_debug_tensors,
        "BF16": api.can_hold("BF16"), "FP8": api.can_hold("FP8"), "FP16": api.can_hold("FP16"),
    }  # fmt: skip
    old = {"weakly_typed", "calibrates", "replays_tactics", "FP16"}
    new = {"strongly_typed", "debug_tensors", "unfused_debug_tensors", "BF16", "FP8", "FP16"}
    wanted = {"8.6": old, "10": old | new, "11": new}[version]
    assert {name for name, value in told.items() if value} == wanted


def test_flags_of_a_network() -> None:
    flags = {version: module_of(version).NetworkDefinitionCreationFlag for version in NAMES}
    assert Api(module_of("8.6")).creation_flags(strong=False) == 1 << flags["8.6"].EXPLICIT_BATCH
    strong = 1 << flags["10"].EXPLICIT_BATCH | 1 << flags["10"].STRONGLY_TYPED
    assert Api(module_of("10")).creation_flags(strong=True) == strong
    assert Api(module_of("11")).creation_flags(strong=False) == 0
    assert Api(module_of("11")).creation_flags(strong=True) == 1 << flags["11"].STRONGLY_TYPED


@pytest.fixture
def plain(tmp_path: Path) -> OnnxModel:
    import onnx
    import tensorrt_models as models

    onnx.save(models.residual(), tmp_path / "m.onnx")
    source = read_source(ModelFiles(model_file=str(tmp_path / "m.onnx")))
    assert isinstance(source, OnnxModel)
    return source


@pytest.mark.parametrize(
    ("version", "mode", "options", "strong"),
    [
        ("8.6", "trt_fp16", {}, False),
        ("10", "trt_fp16", {}, False),
        ("10", "trt_bf16", {"typing": "strong"}, True),
        ("11", "trt_fp16", {}, True),
        ("11", "trt_int8", {}, True),
        ("11", "trt_fp16", {"layer_precisions": "Add:float32"}, True),
        ("8.6", "trt_best", {}, False),
    ],
)
def test_the_road_taken(version: str, mode: str, options: dict[str, Any], strong: bool, plain: OnnxModel) -> None:
    road = choose_road(Api(module_of(version)), recipe(mode), read_options(options), plain)
    assert road.strong is strong


@pytest.mark.parametrize(
    ("version", "mode", "options", "error", "said"),
    [
        ("8.6", "trt_bf16", {}, BackendUnavailable, r"cannot compute in BF16; it needs 9\.1"),
        ("8.6", "trt_fp8", {}, BackendUnavailable, "cannot compute in FP8"),
        ("10", "trt_fp8", {}, UsageError, "FP8 needs a model with FP8 QuantizeLinear"),
        ("8.6", "trt_fp16", {"typing": "strong"}, BackendUnavailable, "has no strongly typed networks"),
        ("11", "trt_fp16", {"typing": "weak"}, BackendUnavailable, "strongly typed networks only"),
        ("11", "trt_fp16", {"layer_precisions": "Add:float32", "precision_constraints": "prefer"}, UsageError,
         "'prefer' is not possible in a strongly typed network"),
        ("11", "trt_fp16", {"layer_output_types": "Add:float32"}, UsageError, "an output has the type of its layer"),
        ("11", "trt_fp16", {"layer_precisions": "Add:int8"}, UsageError, "casts cannot put a layer into INT8"),
        ("11", "trt_best", {}, UsageError, "does not choose precisions"),
        ("11", "trt_fp16", {"save_tactics": "t.json"}, BackendUnavailable, "use --timing_cache"),
        ("8.6", "trt_fp16", {"layer_precisions": "Add:int8"}, UsageError, "use --run_mode trt_int8"),
        ("8.6", "trt_fp32", {"layer_precisions": "Add:float16"}, UsageError, "use --run_mode trt_fp16"),
    ],
)  # fmt: skip
def test_what_the_road_cannot_give_ends_before_the_build(
    version: str, mode: str, options: dict[str, Any], error: Any, said: str, plain: OnnxModel
) -> None:
    with pytest.raises(error, match=said):
        choose_road(Api(module_of(version)), recipe(mode), read_options(options), plain)


def test_an_engine_takes_no_settings_of_a_build() -> None:
    source = EngineFile(path="m.engine", data=b"x")
    for options in ({"layer_precisions": "a:float16"}, {"save_engine": "n.engine"}, {"network_script": "p.py"}):
        with raises_approved(UsageError):
            choose_road(Api(module_of("8.6")), recipe("trt_fp16"), read_options(options), source)


class Memory:
    """A device whose memory is the host's."""

    def download(self, pointer: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        size = int(np.prod(shape)) * dtype.itemsize
        return np.frombuffer(ctypes.string_at(pointer, size), dtype).reshape(shape)


def capsule(address: int) -> Any:
    make = ctypes.pythonapi.PyCapsule_New
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return make(address, None, None)


def test_the_listener_takes_the_address_as_the_bindings_give_it() -> None:
    """By the docstring of 10.16 and 11.4 it is a capsule; 8.6 gives integers elsewhere."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert address_of(capsule(array.ctypes.data)) == address_of(array.ctypes.data) == array.ctypes.data

    got: list[tuple[str, Any, Any]] = []
    trt = SimpleNamespace(
        IDebugListener=type("IDebugListener", (), {}), TensorLocation=SimpleNamespace(HOST="host", DEVICE="device")
    )
    listener = make_listener(Api(trt), Memory(), lambda *call: got.append(call))  # type: ignore[arg-type]
    for place in ("host", "device"):
        assert listener.process_debug_tensor(capsule(array.ctypes.data), place, "DataType.FLOAT", (2, 3), "t", 7)
    assert listener.process_debug_tensor(capsule(array.ctypes.data), "device", "DataType.INT4", (2, 3), "packed", 7)
    assert [call[0] for call in got] == ["t", "t", "packed"]
    np.testing.assert_array_equal(got[0][1], array)
    np.testing.assert_array_equal(got[1][1], array)
    assert holds_approved(str(got[2][2]))


def test_what_the_parser_tells() -> None:
    old = SimpleNamespace(node=lambda: 3, desc=lambda: "no")
    new = SimpleNamespace(node=lambda: 3, desc=lambda: "no", node_name=lambda: "n", node_operator=lambda: "Op")
    api = Api(module_of("8.6"))
    assert api.parser_problem(old) == (3, "", "", "no")
    assert api.parser_problem(new) == (3, "n", "Op", "no")


def test_tensorrt_8_lists_only_what_it_takes_and_marks_none_of_it() -> None:
    """Seen with 8.6.1 on an H200: of Relu, Nowhere it said ([0], False), and Relu was told as refused."""
    from precision_debug_tensorrt.engine.survey import _find_refused

    class Parser:
        def __init__(self, *groups: tuple[list[int], bool]) -> None:
            self.groups = groups

        def supports_model(self, _data: bytes, _path: str) -> tuple[bool, tuple[tuple[list[int], bool], ...]]:
            return all(whole for _, whole in self.groups), self.groups

    assert _find_refused(Parser(([0], False)), b"", "", 2) == {1}
    assert _find_refused(Parser(([0, 1], False), ([3], False)), b"", "", 5) == {2, 4}
    assert _find_refused(Parser(([0, 1, 2], True)), b"", "", 3) == set()
    assert _find_refused(Parser(), b"", "", 1) == {0}


def test_an_error_that_is_quoted_is_not_logged_too(caplog: pytest.LogCaptureFixture) -> None:
    from precision_debug_tensorrt.engine.messages import Messages, make_logger

    messages = Messages()
    logger = make_logger(SimpleNamespace(ILogger=object_with_init()), messages)
    messages.quoted = True
    logger.log("Severity.ERROR", "the plan is cut")
    logger.log("Severity.WARNING", "another card made it")
    messages.quoted = False
    logger.log("Severity.ERROR", "no memory")
    assert "cut" not in caplog.text
    assert "another card" in caplog.text
    assert "no memory" in caplog.text
    assert list(messages.errors) == ["the plan is cut", "no memory"]


def object_with_init() -> type:
    class Base:
        def __init__(self) -> None: ...

    return Base
