"""Reads a model file: its inputs, its nodes with a name each, and where its external weights lie; they stay there."""

from __future__ import annotations

import math
import mmap
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from precision_debug.errors import BackendUnavailable, ModelError
from precision_debug.onnx.types import dtype_name
from precision_debug.reasons import say
from precision_debug.records import InputMeta
from precision_debug.safety.untrusted import refuse_special

from .functions import inline_functions
from .graph import (
    initializers_of,
    iterate_external_tensors,
    iterate_graphs,
    move_external_data,
    read_external_data,
    read_external_location,
)

__all__ = [
    "Model",
    "load_model",
    "map_file",
    "may_threads_read",
    "name_every_node",
    "name_nodes",
    "parse_model",
    "read_inputs",
    "read_model",
    "read_tensor_shape",
    "refuse_strays",
]  # fmt: skip

_AGAIN = say("export_again")
_BYTES = {1: 4, 2: 1, 3: 1, 4: 2, 5: 2, 6: 4, 7: 8, 9: 1, 10: 2, 11: 8, 12: 4, 13: 8, 14: 8, 15: 16, 16: 2}
"""Of one element, by ONNX's number of the type."""
_GIT_LFS = b"version https://git-lfs"


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model as ONNX Runtime can load it.

    proto: onnx.ModelProto whose every node has a name of its own; external weights are references.
    folder: where the external weights lie. path: the file that messages name.
    """

    proto: Any
    folder: Path
    path: str


def read_model(path: str) -> Model:
    """Read an ``.onnx`` file without its external weights. Raises ModelError."""
    proto = parse_model(map_file(Path(path)), path)
    _refuse_damaged(proto, path)
    folder = _find_external(proto, Path(path))
    return Model(proto=name_every_node(proto, path), folder=folder, path=path)


def name_every_node(proto: Any, path: str) -> Any:
    """Return the model with its functions written out and a name for every node. Raises ModelError."""
    if proto.functions:
        proto = inline_functions(proto, path)
    for graph in iterate_graphs(proto.graph):
        name_nodes(graph)
    return proto


def read_inputs(model: Model) -> tuple[InputMeta, ...]:
    """Return the inputs that a caller feeds, in the model's order; those with a default value are optional.

    Before IR version 4 each constant had to be listed as an input, and engines let nobody feed it.
    """
    defaults = initializers_of(model.proto.graph)
    if model.proto.ir_version < 4:
        fed = (value for value in model.proto.graph.input if value.name not in defaults)
        return tuple(_make_input_meta(value, False) for value in fed)
    return tuple(_make_input_meta(value, value.name in defaults) for value in model.proto.graph.input)


def map_file(path: Path) -> memoryview:
    """Return the bytes of a file that may be a model, mapped into memory. Raises ModelError."""
    if path.is_dir():
        raise ModelError("is a folder, not an .onnx file", where=str(path), hint="name the .onnx file inside it")
    refuse_special(path, ModelError)
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if size else b""
    except FileNotFoundError as error:
        raise ModelError(say("no_such_file"), where=str(path), hint=say("check_model_file")) from error
    except OSError as error:
        raise ModelError(say("cannot_read", error=str(error.strerror)), where=str(path)) from error
    if not data:
        raise ModelError(say("file_empty"), where=str(path), hint=_AGAIN)
    view = memoryview(data)
    if view[: len(_GIT_LFS)] == _GIT_LFS:
        raise ModelError("is a Git LFS pointer, not the model", where=str(path), hint="run git lfs pull")
    return view  # the mapping goes with its last view


def parse_model(data: bytes | memoryview, path: str) -> Any:
    """Return the onnx.ModelProto in some bytes. Raises ModelError, or BackendUnavailable without the onnx package."""
    onnx = _import_onnx(path)
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped, unused-ignore]

    proto = onnx.ModelProto()
    try:
        proto.ParseFromString(data)
    except DecodeError as error:
        raise ModelError(say("no_onnx"), where=path, hint=_AGAIN) from error
    if not proto.ir_version or not proto.opset_import or not proto.graph.output:
        raise ModelError("is not an ONNX model: no IR version, opset or output in it", where=path, hint=_AGAIN)
    return proto


def load_model(path: str | Path) -> Any:
    """Return the onnx.ModelProto of a file as it is, without its external weights. Raises as ``parse_model``."""
    onnx = _import_onnx(path)
    try:
        return onnx.load(str(path), load_external_data=False)
    except Exception as error:
        raise ModelError(f"is not an ONNX model: {type(error).__name__}: {error}", where=str(path)) from error


def _import_onnx(path: str | Path) -> Any:
    """Return the onnx package, which not every engine's extra brings. Raises BackendUnavailable."""
    try:
        import onnx
    except ModuleNotFoundError as error:
        missing = "an ONNX file needs the onnx package"
        raise BackendUnavailable(missing, where=str(path), hint="pip install onnx") from error
    return onnx


def _refuse_damaged(proto: Any, path: str) -> None:
    """Raise ModelError where a weight's bytes are not what its shape and type say.

    An engine may leave such a weight out unread where nothing needs it."""
    for graph in iterate_graphs(proto.graph):
        for weight in graph.initializer:
            width = _BYTES.get(weight.data_type, 0)
            size = math.prod(weight.dims) * width
            if width and weight.HasField("raw_data") and size != len(weight.raw_data):
                what = say("damaged_weight", name=weight.name, bytes=len(weight.raw_data), shape=str(list(weight.dims)))
                raise ModelError(what, where=path, hint=_AGAIN)


def may_threads_read() -> bool:
    """Return whether two threads may read one parsed model. With protobuf in pure Python, reading a field writes it."""
    from google.protobuf.internal import api_implementation  # type: ignore[import-untyped, unused-ignore]

    return bool(api_implementation.Type() != "python")


def _count_bytes(tensor: Any) -> int:
    """Return bytes of a tensor whose file is not said to hold so many; 0 where its type, or a size, is none."""
    many = math.prod(tensor.dims) if all(dim >= 0 for dim in tensor.dims) else 0
    return many * _BYTES.get(tensor.data_type, 0)


def _find_external(proto: Any, path: Path) -> Path:
    """Return the folder of a model's external weights: the one of the file, or of what it is a link to.

    Weights that are links themselves, as in a cache of downloads, are named by the files that they lead to: onnx, and
    ONNX Runtime where it is given bytes, refuse links. Raises ModelError.
    """
    tensors = list(iterate_external_tensors(proto.graph))
    beside, behind = path.absolute().parent, Path(os.path.realpath(path)).parent
    ends: dict[str, int] = {}
    for tensor in tensors:
        try:
            place = read_external_data(tensor)
        except ValueError as error:
            what = f"says of '{tensor.name}' that its weights lie at no number: {error}"
            raise ModelError(what, where=str(path), hint="export the model again") from error
        ends[place.location] = max(ends.get(place.location, 0), place.offset + (place.length or _count_bytes(tensor)))
    places: dict[str, Path] = {}
    for location, end in ends.items():
        file = _find_external_file(location, path)
        if file is None or file.stat().st_size < end:
            what = f"its external weights {location} are {'missing' if file is None else 'cut off'}"
            raise ModelError(what, where=str(path), hint="copy the weights next to the .onnx file")
        places[location] = file
    folders = {file.resolve().parent for file in places.values()}
    if len(folders) != 1:
        return next((beside for file in places.values() if beside in file.parents), behind)
    for tensor in tensors:
        place = read_external_data(tensor)
        move_external_data(tensor, replace(place, location=places[place.location].resolve().name))
    return folders.pop()


def _find_external_file(location: str, path: Path) -> Path | None:
    """Return the file of external weights: beside the model, or beside what it is a link to; None where there is none.

    Neither a path nor a link leads elsewhere, else a model of a stranger could have any file of the machine read as
    a weight, and its numbers shown. Raises ModelError.
    """
    if "\0" in location:
        raise ModelError("its external weights have a name that no file has", where=str(path))
    beside, behind = path.absolute().parent, Path(os.path.realpath(path)).parent
    file = next((one for folder in (beside, behind) if (one := folder / location).is_file()), None)
    strays = Path(location).is_absolute() or ".." in Path(location).parts
    roots = (beside.resolve(), behind)
    if strays or (file is not None and not any(file.resolve().is_relative_to(root) for root in roots)):
        what = f"its external weights {location} lie outside its folder"
        raise ModelError(what, where=str(path), hint="save it with its weights beside it (onnx.save_model)")
    return file


def refuse_strays(path: str) -> None:
    """Raise ModelError where a model's external weights lie outside its folder: before an engine reads the file itself.

    A file that is not a model is the engine's to refuse.
    """
    try:
        proto = load_model(path)
        locations = {read_external_location(tensor) for tensor in iterate_external_tensors(proto.graph)}
    except (BackendUnavailable, ModelError, ValueError):
        return
    for location in locations:
        _find_external_file(location, Path(path))


def name_nodes(graph: Any) -> None:
    """Give every node a name that no other node of the graph has; it depends on the node's output, not its place."""
    taken: set[str] = set()
    for node in graph.node:
        if not node.name:
            output = next((name for name in node.output if name), "")
            node.name = f"{node.op_type}:{output}"
        name, count = node.name, 1
        while node.name in taken:
            count += 1
            node.name = f"{name}#{count}"
        taken.add(node.name)


def _make_input_meta(value: Any, optional: bool) -> InputMeta:
    kind = value.type.WhichOneof("value")
    if kind == "optional_type":
        inner = value.type.optional_type.elem_type
        kind = inner.WhichOneof("value")
        tensor = inner.tensor_type if kind == "tensor_type" else None
        optional = True
    else:
        tensor = value.type.tensor_type if kind == "tensor_type" else None
    if tensor is None:
        return InputMeta(name=value.name, dtype=str(kind or "unknown").removesuffix("_type"), shape=None)
    return InputMeta(
        name=value.name, dtype=dtype_name(tensor.elem_type), shape=read_tensor_shape(tensor), optional=optional
    )


def read_tensor_shape(tensor: Any) -> tuple[int | str, ...] | None:
    """Return the shape of a TypeProto.Tensor, as InputMeta has it."""
    if not tensor.HasField("shape"):
        return None
    return tuple(
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or f"dim{place}"
        for place, dim in enumerate(tensor.shape.dim)
    )
