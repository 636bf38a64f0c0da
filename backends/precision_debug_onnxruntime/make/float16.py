"""Conversion to float16 with onnxruntime.transformers.float16, and what it does to the weights."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from precision_debug.errors import BackendUnavailable, ModelError, PrecisionDebugError
from precision_debug.explain.operators import MOVE
from precision_debug.onnx.graph import iterate_graphs, iterate_scopes
from precision_debug.onnx.model import Model, name_nodes, read_model
from precision_debug.reasons import Reason

from ..engine.light_imports import leave_logging_alone
from ..engine.remedies import raise_constants
from ..engine.runtime import Runtime, our_errors
from ..engine.source_tensors import INSERTED_CAST
from ..engine.types import TypeInfo, Types
from ..keep import Blocked
from ..reasons import say
from ..settings import setting
from .kept import cut_round_trips, separate_constants
from .narrowing import Trouble, as_float16, constants_of, count_trouble, trouble_notes
from .running_graph import infer_types

__all__ = ["after_conversion", "convert", "float16_notes", "narrow_on_cpu"]

_FLOAT, _FLOAT16 = 1, 10
_DOES = Trouble(
    beyond=lambda count, names: say("weights_beyond_clamped", count=count, names=names),
    below=lambda count, names: say("weights_below_raised", count=count, names=names),
    subnormal=lambda count, names: say("weights_subnormal", count=count, type="float16", names=names),
)


def convert(source: Model, runtime: Runtime, folder: Path) -> tuple[Model, tuple[Reason, ...]]:
    """Return the model in float16 with float32 inputs and outputs, and notes on what was done to it.

    It is what the stock converter makes of the file. Where that does not load, because the converter goes by onnx's
    inference, which knows none of ONNX Runtime's own operators, it is told the types that ONNX Runtime infers.
    Options: "op_block_list" and "node_block_list", what stays in float32. Raises UsageError, ModelError or
    BackendError.
    """
    named = Blocked.of(runtime, source)
    try:
        return _convert_model(source, runtime, folder, None, named)
    except PrecisionDebugError as refused:
        try:
            model, notes = _convert_model(source, runtime, folder, infer_types(source, runtime, folder), named)
        except PrecisionDebugError:
            kind = _find_blocking_type(source, runtime, folder, named, refused.what)
            if kind:
                hint = say("kept_runs", option=f"op_block_list={','.join((*sorted(named.ops), kind))}")
                raise type(refused)(refused.what, where=refused.where, hint=hint) from refused
            raise refused from None
        return model, (*notes, say("own_types_told", detail=refused.what))


_MOST_TYPES, _MOST_BYTES = 24, 1 << 27
"""Operator types that are tried in float32, and of how large a file: each is a conversion and a session of its own."""


def _find_blocking_type(
    source: Model, runtime: Runtime, folder: Path, named: Blocked, said: str
) -> str:  # fmt: skip
    """Return the operator type without whose conversion the model is converted and loads, tried; "" where no single one
    is."""
    if Path(source.path).stat().st_size > _MOST_BYTES:
        return ""
    nodes = [node for graph in iterate_graphs(source.proto.graph) for node in graph.node]
    words = set(re.findall(r"[\w./:-]+", said))
    first = [node.op_type for node in nodes if node.op_type in words or (node.name and node.name in words)]
    for kind in list(dict.fromkeys([*first, *(node.op_type for node in nodes)]))[:_MOST_TYPES]:
        blocked = dataclasses.replace(named, ops=named.ops | {kind})
        with contextlib.suppress(PrecisionDebugError):
            _convert_model(source, runtime, folder, None, blocked)
            return str(kind)
    return ""


_HINT = "keep what it stumbles over in float32: options op_block_list, node_block_list"


def _convert_model(
    source: Model, runtime: Runtime, folder: Path, types: Types | None, named: Blocked
) -> tuple[Model, tuple[Reason, ...]]:  # fmt: skip
    """types: written into the model in place of what onnx infers. Raises PrecisionDebugError where it does not load."""
    import onnx

    with leave_logging_alone():
        from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

    whole = read_model(source.path)  # with the weights that lie in the file itself
    proto = whole.proto
    with our_errors(source.path, _HINT):
        onnx.load_external_data_for_model(proto, str(whole.folder))
        raise_constants(proto, setting(runtime.settings, "raise_constants"))
        if types is not None:
            _tell_types(proto, types)
        before = {name: count_trouble(array, "float16") for name, array in constants_of(proto)}
        narrow = {name for name, _ in constants_of(proto, _FLOAT16)}
        casts = _count_casts(proto)
        passed = _take_passed_through(proto.graph)
        blocked = [*DEFAULT_OP_BLOCK_LIST, *named.ops]
        constants = separate_constants(proto, named)
        own = {node.name for node in proto.graph.node}
        if types is None:
            proto = _infer_types(proto)
        with _convert_weights_quickly():
            proto = convert_float_to_float16(
                proto, keep_io_types=True, disable_shape_infer=True, op_block_list=blocked,
                node_block_list=[*named.nodes, *constants],
            )  # fmt: skip
        cut = cut_round_trips(proto, own) if named.ops or named.nodes else 0
        _put_back(proto.graph, passed)
        converted = {name for name, _ in constants_of(proto, _FLOAT16)}
        if converted <= narrow and _count_casts(proto) <= casts:
            if named.nodes:
                return source, (say("all_kept"),)
            raise ModelError("has no float32 tensor to convert", where=source.path, hint="choose another run mode")
        for graph in iterate_graphs(proto.graph):
            name_nodes(graph)
        path = folder / "float16.onnx"
        path.with_suffix(".bin").unlink(missing_ok=True)  # onnx appends to it
        onnx.save_model(proto, str(path), save_as_external_data=True, location="float16.bin", size_threshold=1024)
    light = onnx.load(str(path), load_external_data=False)
    model = Model(proto=light, folder=folder, path=source.path)
    with after_conversion():
        infer_types(model, runtime, folder)
    notes = trouble_notes({name: found for name, found in before.items() if name in converted}, _DOES)
    if cut:
        notes = (*notes, say("round_trips_cut", count=cut))
    return model, notes


_HEAVY = 4096
"""Bytes of a weight that shape inference does not need: a weight that decides a shape is a few numbers."""

_one_at_a_time = threading.Lock()


def _infer_types(proto: Any) -> Any:
    """Return the model with the types that onnx infers, as the converter would do it, but without large weights
    meanwhile.

    No shape depends on those; with them, a model is written and read again twice as a whole.
    """
    import onnx

    kept = {}
    for place, tensor in enumerate(proto.graph.initializer):
        if tensor.data_type == _FLOAT and len(tensor.raw_data) > _HEAVY:
            kept[place] = tensor.raw_data
            tensor.ClearField("raw_data")
    found = onnx.shape_inference.infer_shapes(proto)
    for place, data in kept.items():
        found.graph.initializer[place].raw_data = data
    return found


@contextlib.contextmanager
def _convert_weights_quickly() -> Iterator[None]:
    """The converter turns weights into float16 by ``as_float16``, which is its own function's result."""
    from onnxruntime.transformers import float16

    with _one_at_a_time:
        plain = float16.convert_np_to_float16
        float16.convert_np_to_float16 = as_float16
        try:
            yield
        finally:
            float16.convert_np_to_float16 = plain


def _count_casts(proto: Any) -> int:
    return sum(node.op_type == "Cast" for graph in iterate_graphs(proto.graph) for node in graph.node)


@contextlib.contextmanager
def after_conversion() -> Iterator[None]:
    """Say of what ONNX Runtime refuses inside that it was the converted model."""
    try:
        yield
    except BackendUnavailable:
        raise
    except PrecisionDebugError as error:
        raise type(error)(f"after its conversion to float16: {error.what}", where=error.where, hint=_HINT) from error


def _take_passed_through(graph: Any) -> list[Any]:
    """Take out the outputs that no node computes: the converter would define their names twice."""
    made = {name for node in graph.node for name in node.output}
    passed = [item for item in graph.output if item.name not in made]
    kept = [item for item in graph.output if item.name in made]
    if passed:
        kept, passed = [_copy(item) for item in kept], [_copy(item) for item in passed]
        del graph.output[:]
        graph.output.extend(kept)
    return passed


def _put_back(graph: Any, passed: list[Any]) -> None:
    elems = {tensor.name: tensor.data_type for tensor in graph.initializer}
    for item in passed:
        item.type.tensor_type.elem_type = elems.get(item.name, item.type.tensor_type.elem_type)
        graph.output.append(item)


def _copy(item: Any) -> Any:
    copy = type(item)()
    copy.CopyFrom(item)
    return copy


def _tell_types(proto: Any, types: Types) -> None:
    """Write every value's type into the model, ONNX Runtime's own inference: the converter goes by it."""
    from onnx import helper

    for scope in iterate_scopes(proto.graph):
        graph = scope.graph
        del graph.value_info[:]
        typed = {item.name for item in (*graph.input, *graph.output)}
        for node in graph.node:
            for name in node.output:
                info = types.of(scope.key, name)
                if name and name not in typed and info.kind == "tensor":
                    # equal names of dimensions would mean equal sizes, and these are not the model's
                    sizes = None if info.shape is None else [d if isinstance(d, int) else None for d in info.shape]
                    graph.value_info.append(helper.make_tensor_value_info(name, info.elem, sizes))


def narrow_on_cpu(running: Model, types: Types) -> tuple[Reason, ...]:
    """That operators of float16 in the file run in float32, as ONNX Runtime's own casts around them show; () where
    there are none. It has few such kernels on a CPU, and takes the casts between two of them away again."""
    half = single = 0
    for scope in iterate_scopes(running.proto.graph):
        for node in scope.graph.node:
            if node.op_type in MOVE or node.op_type == "Cast":
                continue
            if any(name.startswith(INSERTED_CAST) for name in node.output):
                single += 1
            elif any(_is_float16(types.of(scope.key, name)) for name in node.output if name):
                half += 1
    if not single:
        return ()
    return (say("file_in_float32_on_cpu", single=single, all=half + single),)


def _is_float16(info: object) -> bool:
    return isinstance(info, TypeInfo) and info.kind == "tensor" and info.elem == _FLOAT16


def float16_notes(running: Model, types: Types, on_cpu: bool) -> tuple[Reason, ...]:
    """Return which nodes of the running graph really compute in float16; one that only moves numbers computes in no
    type."""
    half = single = casts = 0
    for scope in iterate_scopes(running.proto.graph):
        for node in scope.graph.node:
            infos = [types.of(scope.key, name) for name in (*node.input, *node.output) if name]
            elems = {info.elem for info in infos if isinstance(info, TypeInfo) and info.kind == "tensor"}
            if node.op_type == "Cast":
                casts += bool(elems & {_FLOAT16})
            elif node.op_type in MOVE:
                continue
            elif _FLOAT16 in elems:
                half += 1
            elif _FLOAT in elems:
                single += 1
    nodes = say("nodes_in_float16", half=half, all=half + single, single=single, casts=casts)
    return (say("float16_on_cpu", nodes=nodes) if on_cpu else nodes,)
