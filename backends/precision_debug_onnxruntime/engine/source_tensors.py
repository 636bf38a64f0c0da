"""The source model's tensors, and the edges of the converted graph (the one ONNX Runtime loads) they lie on."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from precision_debug.onnx.graph import initializers_of, iterate_scopes, list_outer_reads, order_nodes

from .same_tensor import Edge, find_edges
from .types import Types

__all__ = ["INSERTED_CAST", "Known", "Source", "spellings"]

INSERTED_CAST = "InsertedPrecisionFreeCast_"
"""How the names begin of what ONNX Runtime computes in float32 in place of a float16 that it has no kernel for."""

_TOKEN = re.compile(r"_token_\d+$")
_FUSION = re.compile(r"^(.+)/\w*Fusion\w*/?(_token_\d+)?$")
_BIAS = "/MatMulAddFusion"
_MOVED = re.compile(r"(_pre_q|_post_dq)(_token_\d+)?$")


@dataclass(frozen=True, kw_only=True)
class Source:
    """A graph by name. tensors: inputs and node outputs with how deep in graphs and in loops they are computed.

    nodes: each node's outputs. repeated: names that occur in several graphs.
    """

    tensors: Mapping[str, tuple[int, int]]
    nodes: Mapping[str, tuple[str, ...]]
    producer: Mapping[str, Any]
    consumers: Mapping[str, tuple[Any, ...]]
    repeated: frozenset[str]
    inputs: frozenset[str]

    @classmethod
    def of(cls, graph: Any) -> Source:
        tensors: dict[str, tuple[int, int]] = {item.name: (0, 0) for item in graph.input}
        nodes: dict[str, tuple[str, ...]] = {}
        producer: dict[str, Any] = {}
        consumers: dict[str, list[Any]] = {}
        repeated: set[str] = set()
        for scope in iterate_scopes(graph):
            depth = (len(scope.key), scope.loop_depth)
            for node in scope.graph.node:
                for name in node.output:
                    if name in tensors:
                        repeated.add(name)
                    tensors.setdefault(name, depth)
                nodes.setdefault(node.name, tuple(node.output))
                producer.update(dict.fromkeys(node.output, node))
                for name in node.input:
                    consumers.setdefault(name, []).append(node)
        tensors.pop("", None)
        fixed = initializers_of(graph)
        fed = {item.name for scope in iterate_scopes(graph) for item in scope.graph.input} - fixed
        return cls(
            inputs=frozenset(fed),
            tensors=tensors, nodes=nodes, producer=producer, repeated=frozenset(repeated - {""}),
            consumers={name: tuple(found) for name, found in consumers.items()},
        )  # fmt: skip

    def layout(self, name: str) -> tuple[int, ...] | None:
        """() for a tensor of this graph, which has its own layout; None for other names."""
        return () if name in self.tensors else None

    def guessed(self, name: str) -> bool:  # noqa: ARG002
        """Nothing was moved in a graph that nothing has optimised."""
        return False

    def made(self, node: Any, index: int) -> tuple[int, ...]:  # noqa: ARG002
        """Return nodes of the converted graph tell nothing of their own."""
        return ()


@dataclass(frozen=True, kw_only=True)
class Known:
    """The source, the converted graph, and the converted graph's edge of each of its values.

    turned: values of the running graph that bear the name of a node in place of a tensor's, as ONNX Runtime calls what
    that node gives after a transposition was moved past it; and how they are transposed against the tensor. The same of
    copies that were made where the name was taken. None where the shapes do not tell.
    """

    source: Source
    converted: Source
    edge_of: Mapping[str, Edge] = field(default_factory=dict)
    turned: Mapping[str, tuple[int, ...] | None] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Any, converted: Any) -> Known:
        first, second = Source.of(source), Source.of(converted)
        types = Types(known={})
        edge_of: dict[str, Edge] = {}
        for scope in iterate_scopes(converted):
            for edge in find_edges(scope, order_nodes(scope.graph), types, first.nodes, first):
                for name in edge.forms:
                    edge_of.setdefault(name, edge)
        return cls(source=first, converted=second, edge_of=edge_of)

    def members(self, name: str) -> list[str]:
        """Return the source tensors on the converted graph's edge of a value, in the order of the edge.

        A quantiser that lets ONNX Runtime prepare a model of float16 goes on with its casts to float32, which are all
        that is left of the tensors then.
        """
        edge = self.edge_of.get(name)
        if edge is None:
            return []
        found = (next((plain for plain in spellings(item) if plain in self.source.tensors), "") for item in edge.forms)
        return list(dict.fromkeys(filter(None, found)))

    def quantised(self, name: str) -> bool:
        """Return whether a value of the converted graph holds quantised numbers, or such that were."""
        edge = self.edge_of.get(name)
        return edge is not None and bool(edge.forms[name].code)

    def scale_codes(self, name: str) -> set[str]:
        edge = self.edge_of.get(name)
        return set() if edge is None else {form.scale.code for form in edge.forms.values() if form.scale is not None}

    def layout(self, name: str) -> tuple[int, ...] | None:
        """Return how a value of the running graph is transposed against its source tensor, where its name tells it."""
        if name in self.turned or self.after(name) or self.copied(name):
            return self.turned.get(name)
        for plain in spellings(name):
            if plain in self.source.tensors and plain in self.converted.tensors:  # see ``missing``
                return ()
            edge = self.edge_of.get(plain)
            if edge is not None:
                return edge.forms[plain].perm
        return None

    @property
    def missing(self) -> frozenset[str]:
        """Source tensors that the converted graph has no more. A value of the running graph of such a name is called
        after a node, which exporters often call as its output, and may hold another tensor, in another layout."""
        return frozenset(self.source.tensors) - frozenset(self.converted.tensors)

    def outputs(self, node: Any) -> tuple[str, ...]:
        """Return the outputs that a node of the running graph had in the converted one; () where it was not there."""
        return self.converted.nodes.get(node.name) or self.converted.nodes.get(_TOKEN.sub("", node.name)) or ()

    def fused_outputs(self, node: Any) -> tuple[str, ...]:
        """Return the same for a node that a fusion made, which ONNX Runtime calls after the last node that went into
        it; a Gemm of a MatMul and an Add after the first."""
        found = _FUSION.match(node.name)
        outputs = self.converted.nodes.get(found.group(1), ()) if found else ()
        if _BIAS not in node.name or len(outputs) != 1:
            return outputs
        readers = self.converted.consumers.get(outputs[0], ())
        return tuple(readers[0].output) if len(readers) == 1 and readers[0].op_type == "Add" else ()

    def named_after(self, name: str) -> str:
        """Return the tensor that a node gives whose name a value bears; "" where that is not so, or there are
        several."""
        node = _TOKEN.sub("", name)
        if name in self.converted.tensors or name in self.edge_of:
            return ""
        outputs = [output for output in self.source.nodes.get(node, ()) if output]
        same = self.source.nodes.get(node) == self.converted.nodes.get(node)  # the quantiser moves names on
        return outputs[0] if same and len(outputs) == 1 else ""

    def copied(self, name: str) -> str:
        """Return the tensor that a cast was named after when another value had that name; "" for other values. ONNX
        Runtime names so what stands before a transposition that it moved behind the cast, whose layout is another
        then."""
        if not name.startswith(INSERTED_CAST) or _TOKEN.sub("", name) == name:
            return ""
        tensor = _TOKEN.sub("", name.removeprefix(INSERTED_CAST))
        taken = name.removeprefix(INSERTED_CAST) in self.source.tensors
        return "" if taken or tensor not in self.source.tensors else tensor

    def after(self, name: str) -> str:
        """Return the one output of the converted graph's node whose name a value of the running graph bears; "" where
        it is called otherwise. ONNX Runtime calls values so that it transposed."""
        if name in self.converted.tensors or name in self.edge_of:
            return ""
        outputs = [output for output in self.converted.nodes.get(_TOKEN.sub("", name), ()) if output]
        return outputs[0] if len(outputs) == 1 else ""

    def between(self, inputs: Collection[str], tensor: str, most: int = 64) -> list[str] | None:
        """Return the source tensors on the way from these to a value of the converted graph; None where it also needs
        others.

        Constants count for nothing. most: how many values are looked at.
        """
        left, met = [tensor], {tensor: True}
        while left:
            maker = self.converted.producer.get(left.pop())
            if maker is None:
                continue
            for name in (*maker.input, *list_outer_reads(maker)):
                if not name or name in met:
                    continue
                met[name] = not set(self.members(name) or [name]) & set(inputs)
                if met[name]:
                    if name in self.converted.inputs or len(met) > most:
                        return None
                    left.append(name)
        inside = [member for name, within in met.items() if within and name != tensor for member in self.members(name)]
        return [name for name in dict.fromkeys(inside) if name in self.source.producer]

    def guessed(self, name: str) -> bool:
        """Return whether a value's layout, if it is known, was found by its shape."""
        return name in self.turned

    def made(self, node: Any, index: int) -> tuple[int, ...]:
        """Return how a node's output was transposed in the converted graph; () where that is not known."""
        name = next(iter(self.outputs(node)[index : index + 1]), "")
        edge = self.edge_of.get(name)
        return () if edge is None else edge.forms[name].perm or ()


def spellings(name: str) -> Iterator[str]:
    """Yield the name, and what it was before ONNX Runtime decorated it."""
    yield name
    plain = _MOVED.sub("", name.removesuffix("/duplicated"))
    if plain != name:
        yield plain
    if plain.startswith(INSERTED_CAST):
        yield plain.removeprefix(INSERTED_CAST)
        yield _TOKEN.sub("", plain.removeprefix(INSERTED_CAST))
