"""What a Paddle model and a file that paddle2onnx made of it say of each other: weights, layers, names.

All of it is read from the files, without Paddle. paddle2onnx calls a tensor of a PIR program
``p2o.pd_op.<operator>.<number>.<output>``, where the number counts the operators of that type as ours does.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from precision_debug.errors import ModelError
from precision_debug.onnx.model import load_model
from precision_debug.onnx.wire import parse
from precision_debug.protocols import Layer
from precision_debug.records import TensorMeta

from ..model import Model
from ..naming import plain_type
from .pir_program import PirProgram

__all__ = ["layer_of", "layers_named", "layers_of", "modules_in", "weights_of"]

_NAMED = re.compile(r"^p2o\.pd_op\.(\w+?)_?\.(\d+)\.\d+$")
_TYPES = {
    0: "bool", 1: "int16", 2: "int32", 3: "int64", 4: "float16", 5: "float32", 6: "float64", 20: "uint8", 21: "int8",
}  # fmt: skip
_ROLES = {
    "batch_norm": ("", "mean", "variance", "weight", "bias"),
    "layer_norm": ("", "weight", "bias"),
    "group_norm": ("", "weight", "bias"),
    "instance_norm": ("", "weight", "bias"),
    "add": ("bias", "bias"),
}
_ATTRIBUTES = {
    "epsilon": "epsilon", "axis": "axis", "strides": "strides", "dilations": "dilations", "groups": "group",
    "negative_slope": "alpha", "alpha": "alpha",
}  # fmt: skip


def weights_of(model: Model) -> dict[str, np.ndarray[Any, Any]]:
    """Return the parameters, by name. Raises ModelError where the file does not fit the program."""
    names = sorted(model.program.parameters())
    try:
        values = list(_tensors(Path(model.params).read_bytes()))
        return dict(zip(names, values, strict=True))
    except (OSError, ValueError, KeyError, struct.error) as error:
        raise ModelError(f"its weights cannot be read ({error})", where=str(model.params)) from error


def _tensors(data: bytes) -> Iterator[np.ndarray[Any, Any]]:
    """Of Paddle's save_combine format: version, LoD levels, version, length of the description, it, the values."""
    place = 0
    while place < len(data):
        _, levels = struct.unpack_from("<IQ", data, place)
        place += 12
        for _ in range(levels):
            place += 8 + struct.unpack_from("<Q", data, place)[0]
        _, length = struct.unpack_from("<Ii", data, place)
        place += 8
        fields = parse(data[place : place + length])
        place += length
        kind = np.dtype(_TYPES[next(field.integer for field in fields if field.tag == 1)])
        shape = tuple(field.integer for field in fields if field.tag == 2)
        count = int(np.prod(shape)) if shape else 1
        yield np.frombuffer(data, kind, count, place).reshape(shape)
        place += count * kind.itemsize


def layers_of(model: Model) -> dict[str, Layer]:
    """By ``layer_of``; {} of a legacy program, whose operators are not looked into."""
    program = model.program
    if not isinstance(program, PirProgram):
        return {}
    found: dict[str, Layer] = {}
    for key, kind, reads, attributes in program.reading():
        roles = _ROLES.get(kind, ("weight",) * len(reads))
        parameters = {
            roles[min(place, len(roles) - 1)] or "weight": name for place, name in enumerate(reads) if name
        }  # fmt: skip
        wanted = {_ATTRIBUTES[name]: value for name, value in attributes.items() if name in _ATTRIBUTES}
        paddings = attributes.get("paddings")
        if isinstance(paddings, tuple) and len(paddings) == 2 and attributes.get("padding_algorithm") == "EXPLICIT":
            wanted["pads"] = paddings * 2
        if parameters or wanted:
            found[key] = Layer(parameters=parameters, attributes=wanted)
    return found


def layers_named(names: Iterable[str]) -> dict[str, Layer]:
    """Of the weights' names alone nothing is known of the operators: one layer holds them all."""
    return {"": Layer(parameters={name: name for name in names})}


def layer_of(meta: TensorMeta) -> str:
    """Return the operator, as its name counts it: "conv2d_0" of "conv2d_0@Net/Conv2D"; the sublayer in dynamic
    graph."""
    if meta.node and meta.name.startswith(f"{meta.node}/"):
        return meta.node
    return meta.name.partition("@")[0].partition(".")[0]


def modules_in(path: str) -> dict[str, str]:
    """Return names of a paddle2onnx file's tensors to the operators that they come from. Raises ModelError."""
    graph = load_model(path).graph
    names = (name for node in graph.node for name in node.output)
    found: Mapping[str, Any] = {name: _NAMED.match(name) for name in names}
    return {name: f"{plain_type(match[1])}_{match[2]}" for name, match in found.items() if match}
