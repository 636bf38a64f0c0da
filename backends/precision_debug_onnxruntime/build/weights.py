"""Puts a model's weights into a file, so that every further copy of the graph is small."""

from __future__ import annotations

from pathlib import Path

from ..graph import all_graphs
from ..model import Model

__all__ = ["set_aside"]

_SMALL = 1024
_ALIGN = 64


def set_aside(model: Model, folder: Path) -> Model:
    """The model with its large weights in a file in ``folder``; the model given is of no use afterwards.

    A model that has external weights already is returned as it is: the two could not lie in one folder.
    """
    tensors = [tensor for graph in all_graphs(model.proto.graph) for tensor in graph.initializer]
    large = [tensor for tensor in model.proto.graph.initializer if len(tensor.raw_data) > _SMALL]
    if not large or any(tensor.external_data for tensor in tensors):
        return model
    path = folder / "weights.bin"
    with path.open("wb") as file:
        for tensor in large:
            file.write(b"\0" * (-file.tell() % _ALIGN))
            place = {"location": path.name, "offset": str(file.tell()), "length": str(len(tensor.raw_data))}
            file.write(tensor.raw_data)
            tensor.ClearField("raw_data")
            tensor.data_location = tensor.EXTERNAL
            for key, value in place.items():
                entry = tensor.external_data.add()
                entry.key, entry.value = key, value
    # a message keeps what was cleared until it goes itself, so the light graph moves into a new one
    light = type(model.proto).FromString(model.proto.SerializeToString())
    return Model(proto=light, folder=folder, path=model.path)
