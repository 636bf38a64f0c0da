"""TensorRT for RTX, the real library, on a machine without a card: it parses, marks and builds ahead of time.

What needs a card (loading, running, the inspector) stays with the stand-in, whose classes are held against the real
ones here.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnx_models
import pytest
import tensorrt_fake
import tensorrt_models as models
from approval import holds_approved
from precision_debug_tensorrt import TensorRTBackend
from precision_debug_tensorrt.engine.kept import is_silent, map_nodes_to_layers
from precision_debug_tensorrt.engine.messages import Messages, make_logger
from precision_debug_tensorrt.engine.network import find_refused_marks, make_network
from precision_debug_tensorrt.engine.options import read_options
from precision_debug_tensorrt.engine.tactic_sources import tactics
from precision_debug_tensorrt.engine.versions import RTX, Api, load_api
from precision_debug_tensorrt.make import Built, Maker, build_for_chip, build_for_chips
from precision_debug_tensorrt.model import OnnxModel, read_source
from precision_debug_tensorrt.modes import recipe

from precision_debug.cli import main
from precision_debug.errors import BackendUnavailable, ModelError
from precision_debug.feeds.random import draw_feeds
from precision_debug.records import ModelFiles, SessionSpec

pytest.importorskip("tensorrt_rtx_bindings", reason="needs tensorrt-rtx-cu13-libs and tensorrt-rtx-cu13-bindings")

CHIP = "8.9"
MODELS: dict[str, Callable[[], onnx.ModelProto]] = {
    "residual": models.residual, "encoder": models.encoder, "fused_encoder": lambda: models.encoder(decomposed=False),
    "loop": models.loop, "branch": models.branch, "convnet": onnx_models.convnet, "mlp": onnx_models.mlp,
    "attention": onnx_models.attention, "mobile": onnx_models.mobile, "if": onnx_models.if_model,
}  # fmt: skip


@pytest.fixture(scope="module")
def api() -> Api:
    return load_api(RTX)


@pytest.fixture(scope="module")
def logger(api: Api) -> tuple[Messages, Any]:
    messages = Messages()
    return messages, make_logger(api.trt, messages)


def source_of(proto: onnx.ModelProto, folder: Path) -> OnnxModel:
    onnx.save(proto, folder / "m.onnx")
    source = read_source(ModelFiles(model_file=str(folder / "m.onnx")))
    assert isinstance(source, OnnxModel)
    return source


def built(
    api: Api, logger: tuple[Messages, Any], proto: onnx.ModelProto, folder: Path, mode: str, **options: Any
) -> tuple[Maker, Built]:
    source = source_of(proto, folder)
    feeds = draw_feeds(source.inputs, {}, {}, 0)[0]
    given = {"side": "target", **options}
    return build_for_chip(api, logger[1], logger[0], source, recipe(mode), read_options(given), [feeds], chip=CHIP)


def markable(maker: Any) -> list[str]:
    layers = maker.plan().layers
    refused = find_refused_marks(layers)
    return [output.name for layer in layers for output in layer.outputs if output.name not in refused]


def test_the_edition_is_typed_strongly_and_listens(api: Api) -> None:
    assert api.title == "TensorRT for RTX"
    assert {"8.0", "8.9", "12.0"} <= set(api.chips)
    assert not api.weakly_typed
    assert api.strongly_typed
    assert api.debug_tensors
    assert api.unfused_debug_tensors


@pytest.mark.parametrize("mode", ["rtx_fp32", "rtx_fp16", "rtx_bf16"])
@pytest.mark.parametrize("name", MODELS)
def test_every_model_is_parsed_typed_and_built(
    api: Api, logger: tuple[Messages, Any], name: str, mode: str, tmp_path: Path
) -> None:
    _, plan = built(api, logger, MODELS[name](), tmp_path, mode)
    assert len(plan.data) > 1000
    low = {output.dtype for layer in plan.layers for output in layer.outputs}
    wanted = {"rtx_fp32": "float32", "rtx_fp16": "float16", "rtx_bf16": "bfloat16"}[mode]
    assert wanted in low


def tensor_of(network: Any, name: str) -> Any:
    layers = (network.get_layer(place) for place in range(network.num_layers))
    made = (layer.get_output(index) for layer in layers for index in range(layer.num_outputs))
    return next(tensor for tensor in made if tensor is not None and tensor.name == name)


@pytest.mark.parametrize("name", ["residual", "encoder", "mobile", "attention"])
def test_every_tensor_is_marked_for_the_listener(
    api: Api, logger: tuple[Messages, Any], name: str, tmp_path: Path
) -> None:
    maker, _ = built(api, logger, MODELS[name](), tmp_path, "rtx_fp16")
    names = markable(maker)
    network = maker.network().network
    for one in names:
        tensor = tensor_of(network, one)
        network.mark_debug(tensor)
        assert network.is_debug_tensor(tensor)
    assert len(names) > 5
    assert len(maker.plan(names, "marked").data) > 1000
    assert len(maker.plan((), "unfused").data) > 1000


def test_what_the_library_refuses_in_the_type_stays_in_fp32(
    api: Api, logger: tuple[Messages, Any], tmp_path: Path
) -> None:
    """The parser has no HardSwish in BF16, the builder no transposed convolution; FP16 it has both in."""
    for mode, kept in (("rtx_bf16", {"HardSwish", "ConvTranspose"}), ("rtx_fp16", set())):
        maker, _ = built(api, logger, onnx_models.mobile(), tmp_path, mode)
        network = maker.network().network
        assert isinstance(maker.source, OnnxModel)
        nodes = maker.source.model.proto.graph.node
        floats = {
            node.op_type for node in nodes
            if node.op_type in {"HardSwish", "ConvTranspose"}
            and tensor_of(network, node.output[0]).dtype == api.trt.DataType.FLOAT
        }  # fmt: skip
        assert floats == kept, mode


def test_marks_as_outputs_are_outputs(api: Api, logger: tuple[Messages, Any], tmp_path: Path) -> None:
    maker, _ = built(api, logger, models.residual(), tmp_path, "rtx_fp16")
    names = [name for name in markable(maker) if name.startswith(("relu", "add"))]
    assert len(names) > 3
    assert len(maker.plan(names).data) > 1000
    assert maker.plan(()).outputs == ("probabilities",)


def test_what_is_kept_is_typed_so_in_the_real_network(api: Api, logger: tuple[Messages, Any], tmp_path: Path) -> None:
    trt = api.trt
    maker, _ = built(api, logger, models.residual(), tmp_path, "rtx_fp16", keep_layers=["fc"])
    network = maker.network().network
    assert tensor_of(network, "relu2_out").dtype == trt.DataType.HALF
    assert tensor_of(network, "logits").dtype == trt.DataType.FLOAT
    precise, _ = built(api, logger, models.residual(), tmp_path, "rtx_fp32", layer_precisions={"relu2": "FP16"})
    network = precise.network().network
    assert tensor_of(network, "relu2_out").dtype == trt.DataType.HALF
    assert tensor_of(network, "relu3_out").dtype == trt.DataType.FLOAT


@pytest.mark.parametrize("proto", [models.residual, models.quantised], ids=["calibrated", "own QDQ"])
def test_int8_is_quantised_in_the_real_network(
    api: Api, logger: tuple[Messages, Any], proto: Callable[[], onnx.ModelProto], tmp_path: Path
) -> None:
    _, plan = built(api, logger, proto(), tmp_path, "rtx_int8")
    kinds = [layer.type for layer in plan.layers]
    assert kinds.count("QUANTIZE") >= 3
    assert kinds.count("DEQUANTIZE") >= kinds.count("QUANTIZE")


def test_a_refused_operator_is_named(api: Api, logger: tuple[Messages, Any], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"'where' \(NonZero\)"):
        built(api, logger, models.non_zero(), tmp_path, "rtx_fp32")
    source = source_of(models.non_zero(), tmp_path)
    feeds = draw_feeds(source.inputs, {}, {}, 0)[0]
    told = build_for_chips(
        api, logger[1], logger[0], source, recipe("rtx_fp32"), read_options({"side": "target"}), [feeds]
    )
    assert [one.chip for one in told] == list(api.chips)
    assert all(one.built is None and "NonZero" in one.why for one in told)


def test_sizes_of_one_name_may_be_several_numbers(api: Api, logger: tuple[Messages, Any], tmp_path: Path) -> None:
    """Paddle2ONNX calls every size that is open "?"; TensorRT holds sizes of one name to be one number."""
    proto = models.residual()
    for place in (0, 2, 3):
        proto.graph.input[0].type.tensor_type.shape.dim[place].dim_param = "?"
    source = source_of(proto, tmp_path)
    feeds = {"image": np.zeros((2, 3, 32, 48), np.float32)}
    for mode in ("rtx_fp32", "rtx_fp16"):
        options = read_options({"side": "target"})
        _, plan = build_for_chip(api, logger[1], logger[0], source, recipe(mode), options, [feeds], chip=CHIP)
        assert len(plan.data) > 1000
    assert source.model.proto.graph.input[0].type.tensor_type.shape.dim[2].dim_param == "?"


@pytest.mark.parametrize("mode", ["rtx_fp16", "rtx_int8"])
def test_what_a_search_hands_over_speaks_of_types(mode: str, tmp_path: Path) -> None:
    """No flags, no constraints: a model with its types, and the command that builds it."""
    onnx.save(models.residual(), tmp_path / "m.onnx")
    spec = SessionSpec(model=ModelFiles(model_file=str(tmp_path / "m.onnx")), mode=mode, options={"side": "target"})
    keep = TensorRTBackend().keep(spec)
    assert keep is not None
    handed = keep.hand_over(["fc"], (), tmp_path)
    assert [one.kind for one in handed] == ["setting", "model", "model", "command"]
    setting, engine, typed, command = handed
    assert setting.text == f"--run_mode {mode} --keep_layers fc"
    assert (engine.mode, engine.maker) == ("rtx_engine", mode)
    assert engine.maker_options["save_model"] == typed.path == str(tmp_path / "m.strong.onnx")
    assert engine.maker_options["keep_layers"] == ("fc",)
    assert command.text == f"tensorrt_rtx --onnx={typed.path} --saveEngine={engine.path}"
    assert not any("OBEY" in one.text or "layerPrecisions" in one.text or "trtexec" in one.text for one in handed)


def test_the_commands_without_a_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(onnx_models.convnet(), tmp_path / "m.onnx")
    assert main(["inspect", "capability", str(tmp_path / "m.onnx"), "--run_mode", "rtx_fp16"]) == 0
    said = capsys.readouterr().out
    assert "TensorRT for RTX 1." in said
    assert "refuses 0" in said
    assert said.count("rtx_fp16 for compute capability") >= 4
    assert "no engine" not in said
    assert re.search(r"^FP16: \d+ operators \(.*\bConv\b", said, re.MULTILINE)
    assert "FP32:" not in said
    onnx.save(models.non_zero(), tmp_path / "n.onnx")
    assert main(["inspect", "capability", str(tmp_path / "n.onnx"), "--run_mode", "rtx_fp16"]) == 1
    assert "NonZero" in capsys.readouterr().out


def test_the_command_says_what_stays_in_fp32_and_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = models.residual()
    variance = next(item for item in proto.graph.initializer if item.name == "conv1_var")
    variance.CopyFrom(onnx.numpy_helper.from_array(np.full(32, 9.8e7, np.float32), variance.name))
    onnx.save(proto, tmp_path / "m.onnx")
    assert main(["inspect", "capability", str(tmp_path / "m.onnx"), "--run_mode", "rtx_fp16"]) == 0
    said = capsys.readouterr().out
    assert "FP32: 1 operator (1 BatchNormalization): conv1_bn" in said
    assert holds_approved(said)


def test_running_without_a_card_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from precision_debug.products.device import kernels

    if not kernels.explain_unavailable():
        pytest.skip("there is a GPU here")
    onnx.save(onnx_models.mlp(), tmp_path / "m.onnx")
    assert main(["--model_file", str(tmp_path / "m.onnx"), "--run_mode", "rtx_fp16"]) == 2
    assert "no GPU" in capsys.readouterr().err


def test_another_edition_is_told_from_this_one(monkeypatch: pytest.MonkeyPatch) -> None:
    load_api.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "tensorrt", None)
    with pytest.raises(BackendUnavailable, match="TensorRT cannot be imported"):
        load_api()
    load_api.cache_clear()


# --- the stand-in against the real library

CLASSES = {
    "INetworkDefinition": tensorrt_fake.LaterNetwork, "ITensor": tensorrt_fake.Tensor,
    "ICudaEngine": tensorrt_fake.Engine, "IBuilderConfig": tensorrt_fake.Config,
    "IExecutionContext": tensorrt_fake.Context,
    "ILayer": tensorrt_fake.Layer,
}  # fmt: skip
OWN = {"debug", "inputs", "layers", "outputs", "proto", "is_single"}
"""The stand-in's own, which nobody calls on TensorRT."""
BEFORE_11 = {
    "precision", "precision_is_set", "output_type_is_set", "set_output_type", "int8_calibrator", "algorithm_selector",
    "device_memory_size",
}  # fmt: skip


@pytest.mark.parametrize("name", CLASSES)
def test_the_stand_ins_classes_are_the_real_ones(api: Api, name: str) -> None:
    real, ours = getattr(api.trt, name), CLASSES[name]
    public = {one for one in vars(ours) if not one.startswith("_")} | {
        one for base in ours.__mro__[1:-1] for one in vars(base) if not one.startswith("_")
    }
    assert sorted(one for one in public - OWN - BEFORE_11 if not hasattr(real, one)) == []
    for one in sorted(public - OWN - BEFORE_11):
        function = inspect.getattr_static(ours, one)
        if not inspect.isfunction(function) or one.startswith("__"):
            continue
        documented = getattr(real, one).__doc__ or ""
        signatures = re.findall(rf"(?:^|\d\. ){one}\((.*?)\) ->", documented, re.MULTILINE | re.DOTALL)
        assert signatures, f"{name}.{one} is not a function of the real library"
        takes = len(inspect.signature(function).parameters)
        assert any(_takes(text, takes) for text in signatures), f"{name}.{one}({signatures})"


def _takes(signature: str, count: int) -> bool:
    """Whether a function of this pybind11 signature can be called with so many arguments."""
    every, optional = len(re.findall(r"\w+: ", signature)), signature.count(" = ")
    return every - optional <= count <= every


def test_the_stand_ins_enumerations_are_the_real_ones(api: Api) -> None:
    trt = tensorrt_fake.fake_tensorrt("10.16.1")
    for name in ("DataType", "TensorLocation", "TensorIOMode", "TensorFormat"):
        real = getattr(api.trt, name).__members__
        assert {one: int(real[one]) for one in getattr(trt, name).__members__} == {
            one.name: int(one.value) for one in getattr(trt, name)
        }, name
    for name in ("MemoryPoolType", "ProfilingVerbosity", "LayerInformationFormat"):
        for one, value in vars(getattr(trt, name)).items():
            assert int(getattr(api.trt, name).__members__[one]) == value, (name, one)
    assert np.dtype(np.float16) == np.dtype(api.trt.nptype(api.trt.DataType.HALF))


@pytest.mark.parametrize("off", [[], ["JIT_CONVOLUTIONS"], ["JIT_CONVOLUTIONS", "optimization_level"], None])
def test_the_engine_builds_with_what_the_ladder_switches_off(
    off: list[str] | None, tmp_path: Path, api: Api, logger: tuple[Messages, Any]
) -> None:
    (switch,) = tactics(SessionSpec(model=ModelFiles(model_file="convnet.onnx"), mode="rtx_fp16", options={}))
    assert not switch.needs
    assert {*switch.sources} <= {*api.trt.TacticSource.__members__}
    assert switch.items == (*switch.sources, "optimization_level")
    wanted = switch.items if off is None else off
    options = dict(switch.options(wanted))
    assert options["tactic_sources"] == ([one for one in switch.sources if one not in wanted] or ["none"])
    _, made = built(api, logger, onnx_models.convnet(), tmp_path, "rtx_fp16", **options)
    assert made


class Unnamed:
    """A layer as TensorRT 8.6 makes one of LayerNormalization: without the node's name, and without a note of it."""

    metadata = ""

    def __init__(self, layer: Any, place: int) -> None:
        self._layer, self.name = layer, f"(Unnamed Layer* {place})"

    def __getattr__(self, name: str) -> Any:
        return getattr(self._layer, name)


@pytest.mark.parametrize("name", MODELS)
def test_every_node_is_found_in_its_layers(
    name: str, api: Api, logger: tuple[Messages, Any], tmp_path: Path
) -> None:  # fmt: skip
    """By the tensors that layers give, too: where no layer has a name or a note of a node's, those that the real parser
    notes are found all the same."""
    source = source_of(MODELS[name](), tmp_path)
    network = make_network(api, logger[1], logger[0], source, strong=True).network
    layers = [network.get_layer(place) for place in range(network.num_layers)]
    notes = [re.findall(r"\[ONNX Layer: ([^\]|]*?)(?: \||\])", layer.metadata) for layer in layers]
    graph = source.model.proto.graph
    unnamed = SimpleNamespace(num_layers=len(layers), get_layer=lambda place: Unnamed(layers[place], place))
    named, by_tensors = map_nodes_to_layers(graph, network), map_nodes_to_layers(graph, unnamed)
    assert [node for node, places in named.items() if not places] == []
    assert [node for node, places in by_tensors.items() if not places] == []
    for place, nodes in enumerate(notes):
        for node in nodes:
            assert node not in named or place in named[node], (node, layers[place].name)
    norms = [node.name for node in graph.node if node.op_type == "LayerNormalization"]
    for node in norms:
        assert len([place for place in by_tensors[node] if not is_silent(layers[place])]) == 3  # gain, shift, the norm
        assert by_tensors[node] == named[node]
