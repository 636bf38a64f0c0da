"""The operators of a graph as its file has them: type, attributes, constants, and integers with their scales."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ..records import Operator, Stored
from .constants import read_held
from .graph import iterate_graphs
from .model import Model
from .scales import QUANTISED, read_node_scales
from .types import with_defaults

__all__ = ["FileOperators"]

Array = np.ndarray[Any, Any]

_WHOLE = {"QLinearConv": 3, "QLinearMatMul": 3, "QGemm": 3}
"""Operators of whole numbers, and the place of the weight that they read; its scale and zero point come next."""

_SUMS = {"QLinearConv": 8, "QGemm": 6}
"""Of these the place of the bias, which has no scale: that of input times weight is meant."""

_ADDING = {"ConvInteger": 0, "MatMulInteger": -1}
"""Operators that add up products of integers and leave scales to others, and the axis of a weight's."""

_PARTS = (QUANTISED, "_scale", "_zero_point")
"""What ONNX Runtime's quantisers call the integers of a constant, their scale and zero point, behind its name."""


class FileOperators:
    """The constants of a graph by name, weights, scales and zero points, and its operators by what they make."""

    def __init__(self, model: Model) -> None:
        self._folder = str(model.folder)
        self._graph = model.proto.graph
        self._opsets = {item.domain or "ai.onnx": int(item.version) for item in model.proto.opset_import}
        self._arrays: dict[str, Array] = {}

    @functools.cached_property
    def _tensors(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for inner in iterate_graphs(self._graph):
            for node in inner.node:
                if node.op_type == "Constant" and (held := read_held(node)) is not None:
                    found[node.output[0]] = held
            found.update({tensor.name: tensor for tensor in inner.initializer})
        return found

    def get(self, name: str) -> Array | None:
        """Return a constant; None where the value is computed, or cannot be read."""
        if name not in self._arrays:
            from onnx import numpy_helper

            if name not in self._tensors:
                return None
            held = self._tensors[name]
            try:
                self._arrays[name] = held if isinstance(held, np.ndarray) else numpy_helper.to_array(held, self._folder)
            except (OSError, ValueError, TypeError, AttributeError):
                return None
        return self._arrays[name]

    @functools.cached_property
    def _makers(self) -> dict[str, Any]:
        """What makes each tensor, by the tensor's name; names that several graphs have are left out."""
        found: dict[str, Any] = {}
        for inner in iterate_graphs(self._graph):
            for node in inner.node:
                found.update({name: None if name in found else node for name in node.output if name})
        return found

    @functools.cached_property
    def _owners(self) -> dict[str, str]:
        """The first output of the node in whose body a tensor is made, by the tensor's name."""
        return {
            name: next((one for one in node.output if one), "")
            for graph in iterate_graphs(self._graph) for node in graph.node
            for item in node.attribute for body in (*([item.g] if item.HasField("g") else ()), *item.graphs)
            for inner in body.node for name in inner.output if name
        }  # fmt: skip

    def operator_of(self, name: str) -> Operator | None:
        """Return the node that makes a tensor; None where no node does, or more than one."""
        node = self._makers.get(name)
        return None if node is None else self.described(node)

    def described(self, node: Any) -> Operator:
        """Return a node of the graph as an Operator, with the defaults of attributes that it leaves out."""
        from onnx import helper

        said = {
            item.name: _to_plain_value(helper.get_attribute_value(item))
            for item in node.attribute
            if not (item.HasField("g") or item.HasField("t") or item.graphs or item.tensors)
        }
        constants = {name: array for name in node.input if name and (array := self.get(name)) is not None}
        narrowed = {name: array for name in node.input if name and (array := self._read_narrowed(name)) is not None}
        constants |= {name: array.astype(np.float32) for name, array in narrowed.items()}
        constants = {name: constants[name] for name in node.input if name in constants}
        weight = constants.get(node.input[1]) if len(node.input) > 1 else None
        attributes = with_defaults(
            node.op_type, said, domain=node.domain, opset=self._opsets.get(node.domain or "ai.onnx", 1),
            weight=None if weight is None else weight.shape,
        )  # fmt: skip
        packed = node.op_type == "MatMulNBits" and len(node.input) > 2 and node.input[1] in constants
        stored = (
            _Packed(node.input[1], functools.partial(self._unpacked, node)) if packed else
            {name: found for name in node.input if (found := self._stored(node, name)) is not None}
        )
        reads = tuple(name for name in node.input if name and name not in constants)
        inside = next((self._owners[name] for name in node.output if name in self._owners), "")
        return Operator(
            op_type=node.op_type, attributes=attributes, parameters=constants, stored=stored, reads=reads,
            inputs=tuple(node.input),
            narrowed={name: array.dtype.name for name, array in narrowed.items()},
            scales={**self._read_scales(node), **self._read_scales_behind(node)}, inside=inside,
        )  # fmt: skip

    def _read_narrowed(self, name: str) -> Array | None:
        """Return a constant of floats that is stored in a narrower type than the one to which it is cast where it is
        read; None where that is not so. As it is stored."""
        node = self._makers.get(name)
        held = self.get(node.input[0]) if node is not None and node.op_type == "Cast" else None
        return held if held is not None and held.dtype.name in {"float16", "bfloat16"} else None

    def _read_scales(self, node: Any) -> dict[str, tuple[Array, Array]]:
        """Return scale and zero point of each tensor that a node has integers of; those that are computed are not in
        it."""
        found = {}
        for name, held in read_node_scales(node).items():
            scale = self.get(held.scale)
            zero = self.get(held.zero_point) if held.zero_point else np.zeros((), np.uint8)
            if scale is not None and zero is not None:
                found[name] = scale, zero
        return found

    def _read_scales_behind(self, node: Any) -> dict[str, tuple[Array, Array]]:
        """Return the same of what it makes and a QuantizeLinear reads: an engine may make both one operator."""
        behind = (self._quantisers[name] for name in node.output if name in self._quantisers)
        return {name: held for quantiser in behind for name, held in self._read_scales(quantiser).items()}

    @functools.cached_property
    def scales(self) -> dict[str, tuple[Array, Array]]:
        """Of all that the file holds in few bits (see ``_name_scales``)."""
        nodes = (node for inner in iterate_graphs(self._graph) for node in inner.node)
        return dict(pair for node in nodes for pair in _name_scales(node, self._read_scales(node), self.get).items())

    @functools.cached_property
    def _quantisers(self) -> dict[str, Any]:
        """The QuantizeLinear that reads a tensor, by the tensor's name."""
        found: dict[str, Any] = {}
        for inner in iterate_graphs(self._graph):
            for node in inner.node:
                if node.op_type == "QuantizeLinear":
                    found.setdefault(node.input[0], node)
        return found

    def _unpacked(self, node: Any) -> Stored | None:
        """Return the weight of MatMulNBits, [K, N], whose blocks have a scale each; None where its parts do not fit."""
        import ml_dtypes
        from onnx import helper

        said = {item.name: helper.get_attribute_value(item) for item in node.attribute}
        wide, many, bits, block = (int(said.get(key, 0)) for key in ("K", "N", "bits", "block_size"))
        held, scale = self.get(node.input[1]), self.get(node.input[2])
        if bits not in (2, 4, 8) or block <= 0 or held is None or scale is None or held.dtype != np.uint8:
            return None
        blocks = -(-wide // block)
        if held.size * (8 // bits) != many * blocks * block or scale.size != many * blocks:
            return None
        zero = self.get(node.input[3]) if len(node.input) > 3 and node.input[3] else None
        if zero is None:
            offsets = np.full((many, blocks), 1 << (bits - 1), np.float32)
        elif zero.dtype != np.uint8:
            offsets = zero.reshape(many, blocks).astype(np.float32)
        else:  # each row is packed by itself
            offsets = _unpack_parts(zero.reshape(many, -1), bits)[:, :blocks].astype(np.float32)

        of_each = self.get(node.input[4]) if len(node.input) > 4 and node.input[4] else np.arange(wide) // block
        if of_each is None or of_each.size < wide:
            return None

        def spread(each: Array) -> Array:
            return np.asarray(each.reshape(many, blocks)[:, of_each[:wide]].T)

        integers = _unpack_parts(held.reshape(many, -1), bits)[:, :wide].T
        held_as = getattr(ml_dtypes, f"uint{bits}", np.uint8)
        scales = spread(scale.astype(np.float32))
        return Stored(integers=integers.astype(held_as), scale=scales, zero_point=spread(offsets))

    def find_quantised(self, name: str) -> Stored | None:
        """Return the integers that ONNX Runtime's quantisers made of a constant, by the names that these give; None
        where there are none."""
        packed, axis = self._quantised_weights.get(name, (None, 0))
        if packed is not None and packed.op_type == "MatMulNBits":
            return self._unpacked(packed)
        return None if packed is None else self._integers(*_name_parts(name), axis)

    @functools.cached_property
    def _quantised_weights(self) -> dict[str, tuple[Any, int]]:
        return _find_quantised_weights(self._graph, self._tensors)

    def _stored(self, node: Any, name: str) -> Stored | None:
        """Return a constant that a node reads through a DequantizeLinear, or beside its own scale; None where it is
        none."""
        maker = self._makers.get(name)
        if maker is not None and maker.op_type == "DequantizeLinear":
            said = {item.name: item.i for item in maker.attribute}
            return self._integers(*_first_three(maker.input), said.get("axis", 1), said.get("block_size", 0))
        place = _WHOLE.get(node.op_type, 0)
        if place and len(node.input) > place + 2 and name == node.input[place]:
            return self._integers(*_first_three(node.input[place:]), 0 if node.op_type == "QLinearConv" else -1)
        if (place := _SUMS.get(node.op_type, 0)) and name in node.input[place : place + 1]:
            return _read_bias(node, *(self.get(one) for one in (name, node.input[1], node.input[4])))
        if node.op_type in _ADDING and name.endswith(_PARTS[0]):
            return self._integers(*_name_parts(name.removesuffix(_PARTS[0])), _ADDING[node.op_type])
        if node.op_type == "GatherBlockQuantized" and name == node.input[0]:
            said = {"quantize_axis": 1, "block_size": 128, "bits": 4, **{item.name: item.i for item in node.attribute}}
            held = _first_three([name, *node.input[2:]])
            return self._integers(*held, said["quantize_axis"], said["block_size"], said["bits"])
        return None

    def _integers(self, held: str, scale: str, zero: str, axis: int, block: int = 0, bits: int = 0) -> Stored | None:
        """block: how many numbers along the axis have one scale; 0 where all have. bits: of each number, where bytes
        hold several."""
        integers, step = self.get(held), self.get(scale)
        if integers is None or step is None or not integers.ndim:
            return None
        return _make_stored(integers, step, self.get(zero) if zero else None, axis, block, bits)


def _find_quantised_weights(graph: Any, tensors: Mapping[str, Any]) -> dict[str, tuple[Any, int]]:
    """Return who reads the integers of each constant that a quantiser made some of, and the axis of its scales."""
    found: dict[str, tuple[Any, int]] = {}
    for inner in iterate_graphs(graph):
        for node in inner.node:
            if node.op_type == "MatMulNBits" and len(node.input) > 2:
                found[node.input[1].rpartition("_Q")[0]] = node, 0
                continue
            for held in (one for one in node.input if one.endswith(_PARTS[0]) and one in tensors):
                many = len(getattr(tensors[held], "dims", ())) > 2
                said = next((item.i for item in node.attribute if item.name == "axis"), 0 if many else -1)
                found[held.removesuffix(_PARTS[0])] = node, said
    return found


def _make_stored(
    integers: Array, step: Array, offset: Array | None, axis: int, block: int, bits: int
) -> Stored | None:
    """See ``FileOperators._integers``."""
    import ml_dtypes

    axis = axis if -integers.ndim <= axis < integers.ndim else 0
    if integers.dtype == np.uint8 and bits in (2, 4, 8):
        offset = np.full((), 1 << (bits - 1), np.uint8) if offset is None else _unpack_parts(offset, bits)
        integers = _unpack_parts(integers, bits).astype(getattr(ml_dtypes, f"uint{bits}", np.uint8))
    if step.ndim == integers.ndim and block:
        steps, zeros = (_spread_blocks(one, block, axis, integers.shape) for one in (step, offset))
        return Stored(integers=integers, scale=steps.astype(np.float32), zero_point=zeros)
    if step.ndim > 1:
        return None
    shape = [1] * integers.ndim
    shape[axis] = -1

    def along(array: Array) -> Array:
        return array.reshape(shape) if array.size > 1 else array.reshape(())

    return Stored(integers=integers, scale=along(step), zero_point=along(np.zeros(1) if offset is None else offset))


def _read_bias(node: Any, integers: Array | None, read: Array | None, held: Array | None) -> Stored | None:
    """Return the bias of an operator of integers. read, held: the scales of its input and its weight."""
    if integers is None or read is None or held is None or read.size != 1 or held.size not in (1, integers.size):
        return None
    alpha = next((item.f for item in node.attribute if item.name == "alpha"), 1.0)
    scale = np.broadcast_to(read.reshape(()) * held.reshape(-1) * np.float32(alpha), integers.shape)
    return Stored(integers=integers, scale=None, zero_point=np.zeros(()), read_on=scale)


def _spread_blocks(array: Array | None, block: int, axis: int, shape: tuple[int, ...]) -> Array:
    """Return what each block along an axis has, for each of its elements; 0 for all where there is none."""
    if array is None or array.ndim != len(shape):
        return np.zeros(()) if array is None else array
    return np.asarray(np.repeat(array, block, axis=axis)[tuple(map(slice, shape))])


def _name_scales(node: Any, held: dict[str, tuple[Array, Array]], get: Callable[[str], Array | None]) -> dict[str, Any]:
    """Return scale and zero point of a node's tensors by the names of the codes, of the floats that these are made of
    or become, and of the constant that ONNX Runtime's quantisers made them of. held: by those of the codes."""
    if node.op_type in {"QuantizeLinear", "DequantizeLinear"} and node.input[0] in held:
        held[node.output[0]] = held[node.input[0]]
    elif node.op_type == "MatMulNBits" and (step := get(node.input[2])) is not None:
        held = {node.input[1].rpartition("_Q")[0] or node.input[1]: (step, np.zeros((), np.uint8))}
    return {name.removesuffix(QUANTISED): one for name, one in held.items()}


def _first_three(names: Any) -> tuple[str, str, str]:
    """Return integers, scale and zero point of an operator's inputs, the last "" where there is none."""
    return names[0], names[1], names[2] if len(names) > 2 else ""


def _name_parts(name: str) -> tuple[str, str, str]:
    """Return what ONNX Runtime's quantisers call what they make of a constant."""
    integers, scale, zero = (f"{name}{part}" for part in _PARTS)
    return integers, scale, zero


def _unpack_parts(packed: Array, bits: int) -> Array:
    """Return the integers of bytes that hold several each, the lowest bits first."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    return np.asarray((packed[..., None] >> shifts) & ((1 << bits) - 1)).reshape(*packed.shape[:-1], -1)


class _Packed(Mapping[str, Stored]):
    """One constant that is unpacked when it is asked for: of a language model all of them are many times the file."""

    def __init__(self, name: str, unpack: Callable[[], Stored | None]) -> None:
        self._name, self._unpack = name, unpack

    @functools.cached_property
    def _found(self) -> dict[str, Stored]:
        found = self._unpack()
        return {} if found is None else {self._name: found}

    def __getitem__(self, name: str) -> Stored:
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def _to_plain_value(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    several = isinstance(value, (list, tuple)) or type(value).__name__.startswith("Repeated")
    return [_to_plain_value(one) for one in value] if several else value
