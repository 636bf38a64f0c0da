"""The network before the build: parsed or made by a script, and read into plain records."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from precision_debug.errors import ModelError
from precision_debug.reasons import Reason

from ..failures import parser_error
from ..model import OnnxModel, Script, load_function
from ..reasons import say
from .messages import Messages
from .types import dtype_name
from .versions import Api

__all__ = ["LayerFacts", "Made", "OutputFacts", "find_refused_marks", "make_network", "read_layers"]

_BOUNDS = frozenset({"TRIP_LIMIT", "ITERATOR", "RECURRENCE", "CONDITION", "CONDITIONAL_INPUT"})


@dataclass(frozen=True, kw_only=True)
class OutputFacts:
    """One output of a layer. shape: -1 where dynamic; () also where unknown."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    is_shape: bool


@dataclass(frozen=True, kw_only=True)
class LayerFacts:
    """One layer of the network. type: TensorRT's name ("CONVOLUTION", …). inputs: names of tensors."""

    name: str
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[OutputFacts, ...]


_first: list[Any] = []


@dataclass(kw_only=True)
class Made:
    """A network with what must live as long as it does: builder and parser."""

    builder: Any
    network: Any
    parser: Any = None


def make_network(
    api: Api, logger: Any, messages: Messages, source: OnnxModel | Script, *, strong: bool, postprocess: str = "",
    builder: Any = None,
) -> Made:  # fmt: skip
    """Make the network once.

    postprocess: ``file.py[:function]`` that changes it. builder: one that is there already, since a new one loads
    TensorRT's kernels for seconds; a script may make its own. Raises ModelError.
    """
    if isinstance(source, Script):
        made = _from_script(api, logger, source, strong, builder)
    else:
        made = _from_onnx(api, logger, messages, source, strong, builder)
    if postprocess:
        function = load_function(postprocess, default="postprocess")
        try:
            function(made.network)
        except Exception as error:
            raise ModelError(
                f"the network script fails: {type(error).__name__}: {error}", where=postprocess,
                hint="it is called with the network and changes it in place",
            ) from error  # fmt: skip
    if not made.network.num_outputs:
        raise ModelError("the network has no output", where=source.path, hint="mark one with network.mark_output")
    return made


def _from_onnx(api: Api, logger: Any, messages: Messages, source: OnnxModel, strong: bool, builder: Any) -> Made:
    trt = api.trt
    builder = builder if builder is not None else _keep_builder_alive(trt.Builder(logger))
    network = builder.create_network(api.creation_flags(strong=strong))
    parser = trt.OnnxParser(network, logger)
    messages.fresh_errors()
    try:
        data = source.model.proto.SerializeToString()
    except ValueError as error:
        raise ModelError(
            "is over protobuf's 2 GB", where=source.path, hint="save it with external data (onnx.save_model)"
        ) from error
    place = str(source.model.folder / "model.onnx")
    if not parser.parse(data, place):
        problems = [api.parser_problem(parser.get_error(i)) for i in range(parser.num_errors)]
        raise parser_error(source, problems, messages.fresh_errors())
    return Made(builder=builder, network=network, parser=parser)


def _from_script(api: Api, logger: Any, source: Script, strong: bool, builder: Any) -> Made:
    trt = api.trt
    try:
        if source.takes_network:
            builder = builder if builder is not None else _keep_builder_alive(trt.Builder(logger))
            network = builder.create_network(api.creation_flags(strong=strong))
            made = source.function(builder, network) or (builder, network)
        else:
            made = source.function()
    except Exception as error:
        raise ModelError(f"the script fails: {type(error).__name__}: {error}", where=source.path) from error
    if not isinstance(made, tuple) or len(made) < 2:
        raise ModelError(
            f"the function returned {type(made).__name__}", where=source.path,
            hint="return (builder, network) or (builder, network, parser)",
        )  # fmt: skip
    return Made(builder=_keep_builder_alive(made[0]), network=made[1], parser=made[2:])


def _keep_builder_alive(builder: Any) -> Any:
    """Return the builder; the process's first one is never destroyed, not even at the process's end.

    TensorRT 8.6 crashed each time its last builder went, and with it the kernels that it had loaded (on an H200).
    """
    if not _first:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(builder))
        _first.append(builder)
    return builder


def read_layers(network: Any) -> tuple[LayerFacts, ...]:
    """Return the network's layers in the order in which they were added."""
    return tuple(_read(network.get_layer(place)) for place in range(network.num_layers))


def find_refused_marks(layers: Sequence[LayerFacts]) -> dict[str, Reason]:
    """Return tensors that cannot be made outputs of the engine, and why."""
    refused: dict[str, Reason] = {}
    for layer in layers:
        for output in layer.outputs:
            if layer.type in _BOUNDS:
                kind = layer.type.lower().replace("_", " ")
                refused[output.name] = say("entry", kind=kind)
            elif layer.type in {"SHAPE", "CONSTANT"}:
                refused[output.name] = say("not_run", kind=layer.type.lower())
            elif output.is_shape:
                refused[output.name] = say("shape_tensor")
    for name in _inside(layers, {"ITERATOR", "RECURRENCE"}, "LOOP_OUTPUT"):
        refused.setdefault(name, say("inside_loop"))
    for name in _inside(layers, {"CONDITIONAL_INPUT"}, "CONDITIONAL_OUTPUT"):
        refused.setdefault(name, say("inside_branch"))
    return refused


def _inside(layers: Sequence[LayerFacts], entries: set[str], exit_type: str) -> Iterator[str]:
    """Yield tensors between the layers that lead into a body and those that lead out of it."""
    inside: set[str] = set()
    grown = True
    while grown:  # a recurrence reads what is made after it
        grown = False
        for layer in layers:
            enters = layer.type in entries or (layer.type != exit_type and inside.intersection(layer.inputs))
            new = {output.name for output in layer.outputs} - inside
            if enters and new:
                inside |= new
                grown = True
    yield from sorted(inside)


def _read(layer: Any) -> LayerFacts:
    inputs = [layer.get_input(i) for i in range(layer.num_inputs)]
    outputs = [layer.get_output(i) for i in range(layer.num_outputs)]
    return LayerFacts(
        name=layer.name,
        type=str(layer.type).rpartition(".")[2],
        inputs=tuple(tensor.name for tensor in inputs if tensor is not None),
        outputs=tuple(_output(tensor) for tensor in outputs if tensor is not None),
    )


def _output(tensor: Any) -> OutputFacts:
    try:
        shape = tuple(int(dim) for dim in tensor.shape)
    except ValueError:  # TensorRT gives -1 dimensions where it cannot tell the rank
        shape = ()
    return OutputFacts(
        name=tensor.name, dtype=dtype_name(tensor.dtype), shape=shape, is_shape=bool(tensor.is_shape_tensor)
    )
