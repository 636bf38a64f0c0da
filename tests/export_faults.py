"""Faults planted into exported ONNX files, each with the layer that it is in and a word of its cause."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

__all__ = ["FAULTS", "Planted", "parameters"]


@dataclass(frozen=True, kw_only=True)
class Planted:
    """weights: names of the model's parameters, one of which the report must name; or of the layer. cause: in it."""

    model: Any
    weights: tuple[str, ...]
    cause: str


Own = dict[str, np.ndarray]


def parameters(model: Any) -> dict[str, tuple[Any, np.ndarray]]:
    """Every weight of a file, name to (its TensorProto, its value): initializers and Constant nodes."""
    found = {item.name: (item, numpy_helper.to_array(item)) for item in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            found[node.output[0]] = node.attribute[0].t, numpy_helper.to_array(node.attribute[0].t)
    return {name: pair for name, pair in found.items() if any(name in node.input for node in model.graph.node)}


def _set(tensor: Any, value: np.ndarray) -> None:
    name = tensor.name
    tensor.CopyFrom(numpy_helper.from_array(np.ascontiguousarray(value), name))


def _known(model: Any, own: Own, dims: int) -> Iterator[tuple[str, Any, np.ndarray]]:
    """The file's weights that are the model's, in its order: (the model's name, TensorProto, value)."""
    file = parameters(model)
    seen = set()
    for name, right in own.items():
        if right.ndim != dims or right.dtype.kind != "f":
            continue
        for other, (tensor, value) in file.items():
            if (
                other not in seen
                and value.ndim == dims
                and any(np.array_equal(form, value) for form in (right, right.T if dims == 2 else right))
                and np.unique(value).size > 3
            ):
                seen.add(other)
                yield name, tensor, value
                break


def _inner(found: list[Any]) -> Any:
    """One in the middle: neither the first thing that runs nor the last."""
    return found[len(found) // 2]


def missing_bias(model: Any, own: Own) -> Planted | None:
    """The bias input of a node is taken away, or the addition of it."""
    biases = {tensor.name: name for name, tensor, _ in _known(model, own, 1) if "bias" in name or ".b_0" in name}
    places = []
    for node in model.graph.node:
        for place, read in enumerate(node.input):
            third = place == 2 and node.op_type in ("Conv", "Gemm")
            if read in biases and (third or node.op_type in ("Add", "Reshape")):
                places.append((node, place, biases[read]))
    if not places:
        return None
    node, place, name = _inner(places)
    if node.op_type == "Reshape":  # paddle2onnx: the bias is given axes of its own, then added
        node = next(one for one in model.graph.node if one.op_type == "Add" and node.output[0] in one.input)
        place = next(n for n, read in enumerate(node.input) if "reshape" in read)
    if node.op_type == "Add":
        other = node.input[1 - place]
        node.op_type = "Identity"
        del node.input[:]
        node.input.append(other)
    else:
        del node.input[place]
    return Planted(model=model, weights=(name,), cause="missing")


def epsilon(model: Any, own: Own) -> Planted | None:
    for node in model.graph.node:
        if node.op_type in ("LayerNormalization", "BatchNormalization", "GroupNormalization", "InstanceNormalization"):
            for item in [item for item in node.attribute if item.name == "epsilon"]:
                node.attribute.remove(item)
            node.attribute.append(onnx.helper.make_attribute("epsilon", 1e-2))
            file = {name: value for name, (_, value) in parameters(model).items()}
            names = tuple(
                full for read in node.input[1:] if read in file
                for full, value in own.items() if np.array_equal(value, file[read])
            )  # fmt: skip
            return Planted(model=model, weights=(*names, node.name, node.output[0]), cause="epsilon")
    return None


def slight_epsilon(model: Any) -> tuple[Any, list[str]]:
    """Every epsilon changed so little that no value tells; the names of the operators."""
    named = []
    for node in model.graph.node:
        for item in node.attribute:
            if item.name == "epsilon" and node.op_type.endswith("Normalization"):
                item.f = 1e-6 if item.f > 5e-6 else 1e-5
                named.append(node.name)
    return model, named


def transposed(model: Any, own: Own) -> Planted | None:
    square = [found for found in _known(model, own, 2) if found[2].shape[0] == found[2].shape[1]]
    if not square:
        return None
    name, tensor, value = _inner(square)
    _set(tensor, value.T)
    return Planted(model=model, weights=(name,), cause="transposed")


def swapped(model: Any, own: Own) -> Planted | None:
    for dims in (2, 4):
        found = list(_known(model, own, dims))
        for place, (name, tensor, value) in enumerate(found):
            for other, tensor2, value2 in found[place + 1 :]:
                turned = [np.array_equal(own[n], v) for n, v in ((name, value), (other, value2))]
                if value.shape == value2.shape and turned[0] == turned[1]:
                    _set(tensor, value2)
                    _set(tensor2, value)
                    return Planted(model=model, weights=(name, other), cause="swapped")
    return None


def scaled(model: Any, own: Own) -> Planted | None:
    found = list(_known(model, own, 2)) + list(_known(model, own, 4))
    if not found:
        return None
    name, tensor, value = _inner(found)
    _set(tensor, value * np.float32(1.25))
    return Planted(model=model, weights=(name,), cause="scaled by 1.25")


def one_element(model: Any, own: Own) -> Planted | None:
    found = list(_known(model, own, 2)) + list(_known(model, own, 4))
    found = [item for item in found if "embed" not in item[0] and "words" not in item[0]]
    if not found:
        return None
    name, tensor, value = _inner(found)
    value = value.copy()
    value.flat[value.size // 2] += np.float32(0.5)
    _set(tensor, value)
    return Planted(model=model, weights=(name,), cause="1 of")


def old_checkpoint(model: Any, own: Own) -> Planted | None:
    """Every weight a little off, as after more training."""
    random = np.random.default_rng(3)
    found = [*_known(model, own, 1), *_known(model, own, 2), *_known(model, own, 4)]
    if not found:
        return None
    for _, tensor, value in found:
        _set(tensor, (value * (1 + 0.1 * random.standard_normal(value.shape))).astype(value.dtype))
    return Planted(model=model, weights=tuple(name for name, _, _ in found), cause="another checkpoint")


def input_order(model: Any, own: Own) -> Planted | None:
    """Two inputs of one shape have each other's name."""
    names = [item.name for item in model.graph.input]
    if len(names) != 2:
        return None
    exchanged = {names[0]: names[1], names[1]: names[0]}
    for item in model.graph.input:
        item.name = exchanged[item.name]
    for node in model.graph.node:
        for place, read in enumerate(node.input):
            node.input[place] = exchanged.get(read, read)
    return Planted(model=model, weights=(), cause="swapped back")


FAULTS: dict[str, Callable[[Any, Own], Planted | None]] = {
    "missing bias": missing_bias, "epsilon": epsilon, "transposed": transposed, "swapped": swapped, "scaled": scaled,
    "one element": one_element, "old checkpoint": old_checkpoint, "input order": input_order,
}  # fmt: skip
