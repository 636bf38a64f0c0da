"""A part of an ONNX graph as a model of its own, and the smallest one of them that still shows something."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..errors import ModelError
from .graph import initializers_of, list_outer_reads, order_nodes
from .types import elem_of

__all__ = ["Part", "Parts"]

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, kw_only=True)
class Part:
    """Some operators of a model. proto: onnx.ModelProto; feeds: of its inputs; nodes: their number."""

    proto: Any
    feeds: Mapping[str, Array]
    nodes: int


class Parts:
    """The parts of a model that end in one tensor, by the number of its last operators that they keep.

    proto: with its weights in it. tensors: values of one run by name, of the inputs and of as many others as are known;
    only they can become inputs of a part. output: the tensor that every part gives. Raises ModelError.
    """

    def __init__(self, proto: Any, tensors: Mapping[str, Array], output: str) -> None:
        self._proto, self._tensors, self._output = proto, tensors, output
        self._constants = initializers_of(proto.graph) - {name for name in tensors if name in _list_inputs(proto)}
        self._maker = {name: node for node in proto.graph.node for name in node.output if name}
        if output not in self._maker:
            raise ModelError(f"'{output}' is made by no operator of the main graph", hint="name another with --tensor")
        needed = _find_closure(output, self._maker, stop=frozenset())
        self._order = [node for node in order_nodes(proto.graph) if id(node) in needed]

    def __len__(self) -> int:
        """Return how many operators the largest part has."""
        return len(self._order)

    def last(self, count: int) -> Part:
        """Return the last ``count`` operators before the output, and those before them whose values are not known."""
        from onnx import helper

        kept = {name for node in self._order[-count:] for name in node.output if name}
        stop = frozenset(name for name in self._tensors if name not in kept)
        inside = _find_closure(self._output, self._maker, stop=stop)
        nodes = [node for node in self._order if id(node) in inside]
        made = {name for node in nodes for name in node.output if name}
        read = dict.fromkeys(name for node in nodes for name in (*node.input, *list_outer_reads(node)) if name)
        outside = [name for name in read if name not in made and name not in self._constants]
        unknown = [name for name in outside if name not in self._tensors]
        if unknown:
            raise ModelError(f"the value of '{unknown[0]}' is not known", hint="compare without --mark")
        graph = helper.make_graph(
            nodes, "part", [self._described(name) for name in outside], [self._described(self._output)],
            [weight for weight in self._proto.graph.initializer if weight.name in read],
            sparse_initializer=[w for w in self._proto.graph.sparse_initializer if w.values.name in read],
        )  # fmt: skip
        graph.quantization_annotation.extend(
            one for one in self._proto.graph.quantization_annotation if one.tensor_name in made | set(read)
        )
        model = helper.make_model(
            graph, opset_imports=self._proto.opset_import, ir_version=self._proto.ir_version,
            functions=self._proto.functions, producer_name="precision_debug",
        )  # fmt: skip
        return Part(proto=model, feeds={name: self._tensors[name] for name in outside}, nodes=len(nodes))

    def smallest(self, shows: Callable[[Part], bool]) -> Part | None:
        """Return the smallest part that shows it, None where even the largest does not.

        Doubles the number of operators until the part shows it, then halves the gap: about 2 log2(n) questions. Where
        a larger part may stop showing what a smaller one did, it is a small one, though perhaps not the smallest.
        """
        low, high, found = 0, 1, None
        while found is None:
            part = self.last(high)
            if shows(part):
                found = part
            elif high == len(self):
                return None
            else:
                low, high = high, min(2 * high, len(self))
        while high - low > 1:
            middle = (low + high) // 2
            part = self.last(middle)
            if shows(part):
                high, found = middle, part
            else:
                low = middle
        return found

    def _described(self, name: str) -> Any:
        from onnx import helper

        array = self._tensors[name]
        return helper.make_tensor_value_info(name, elem_of(array.dtype.name), list(array.shape))


def _list_inputs(proto: Any) -> set[str]:
    return {item.name for item in proto.graph.input} - initializers_of(proto.graph)


def _find_closure(output: str, maker: Mapping[str, Any], *, stop: frozenset[str]) -> set[int]:
    """Return the operators that a tensor needs, by identity; what is in ``stop`` is given."""
    found: set[int] = set()
    waiting = [output]
    while waiting:
        name = waiting.pop()
        node = maker.get(name)
        if node is None or name in stop or id(node) in found:
            continue
        found.add(id(node))
        waiting += [each for each in (*node.input, *list_outer_reads(node)) if each]
    return found
