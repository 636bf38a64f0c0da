"""Writes the model that was judged where the user wants it: whole, with its weights, ready for any engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from precision_debug.errors import OutputError
from precision_debug.onnx.graph import iterate_external_tensors, iterate_graphs, read_external_data, reorder
from precision_debug.onnx.model import Model
from precision_debug.ownership import guard_output

__all__ = ["save"]

_MOST = 2_000_000_000
"""Bytes of a model beyond which protobuf takes none: its weights then lie in a file beside it."""


def save(model: Model, source: Any, path: Path) -> None:
    """Write a converted or quantised model; opset and IR version are its own, metadata those of the source model.

    source: the onnx.ModelProto that it was made of. Weights of more than 2 GB go to ``path`` + ".data", else they are
    in the model. Raises OutputError.
    """
    import onnx

    try:
        beside = path.with_name(f"{path.name}.data")
        proto = onnx.ModelProto()
        proto.CopyFrom(model.proto)
        proto.producer_name, proto.producer_version = source.producer_name, source.producer_version
        proto.domain, proto.model_version, proto.doc_string = source.domain, source.model_version, source.doc_string
        _import_what_is_used(proto, source)
        reorder(proto.graph, {})  # converters add nodes at the end
        have = {entry.key for entry in proto.metadata_props}
        proto.metadata_props.extend(entry for entry in source.metadata_props if entry.key not in have)
        large = _bring_weights(proto, model.folder) > _MOST
        with guard_output(path, beside):
            beside.unlink(missing_ok=True)  # onnx appends to it
            onnx.save_model(proto, str(path), save_as_external_data=large, location=beside.name, size_threshold=1024)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OutputError(f"the model cannot be saved ({reason})", where=str(path), hint="name another file") from error


def _import_what_is_used(proto: Any, source: Any) -> None:
    """Without the operator sets that ONNX Runtime lists of its own accord: another engine may not know them."""
    graphs = [*iterate_graphs(proto.graph), *proto.functions]
    used = {node.domain for graph in graphs for node in graph.node} | {item.domain for item in source.opset_import}
    kept = [item for item in proto.opset_import if item.domain in used]
    del proto.opset_import[:]
    proto.opset_import.extend(kept)


def _bring_weights(proto: Any, folder: Path) -> int:
    """Read the weights that lie in files. ONNX's own loader wants them nowhere but beside the model. Returns bytes."""
    for tensor in iterate_external_tensors(proto.graph):
        place = read_external_data(tensor)
        with (folder / place.location).open("rb") as file:
            file.seek(place.offset)
            data = file.read(place.length) if place.length else file.read()
        del tensor.external_data[:]
        tensor.raw_data = data
        tensor.ClearField("data_location")
    for graph in iterate_graphs(proto.graph):
        del graph.value_info[:]  # of the source's types, some of which are others now
    return sum(len(tensor.raw_data) for graph in iterate_graphs(proto.graph) for tensor in graph.initializer)
