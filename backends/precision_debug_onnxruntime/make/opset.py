"""Brings a model to a newer opset with onnx's own converter; its weights stay where they lie."""

from __future__ import annotations

from precision_debug.errors import ModelError
from precision_debug.onnx.graph import iterate_graphs
from precision_debug.onnx.model import Model, name_nodes
from precision_debug.reasons import Reason

from ..reasons import say

__all__ = ["opset_of", "raise_opset"]


def opset_of(model: Model) -> int:
    """Return the version of ONNX's own operators that a model asks for; 0 where it asks for none."""
    return max((item.version for item in model.proto.opset_import if item.domain in {"", "ai.onnx"}), default=0)


def raise_opset(model: Model, opset: int, why: str) -> tuple[Model, tuple[Reason, ...]]:
    """Return the model at that opset at least, and a note where it was converted. Raises ModelError."""
    have = opset_of(model)
    if not have or have >= opset:
        return model, ()
    from onnx import version_converter

    hint = f"export it with opset {opset} or later"
    try:
        proto = version_converter.convert_version(model.proto, opset)
    except Exception as error:
        what = f"{why} needs opset {opset}, and onnx cannot convert the model from opset {have}"
        raise ModelError(what, where=model.path, hint=hint) from error
    for graph in iterate_graphs(proto.graph):
        name_nodes(graph)
    note = say("opset_raised", have=have, opset=opset, why=why)
    return Model(proto=proto, folder=model.folder, path=model.path), (note,)
