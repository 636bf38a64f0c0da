"""Which tensor of the source model each value of the running graph holds.

Three graphs: the *source* model, the one *given* to ONNX Runtime (converted or quantised, else the source itself) and
the one that *runs* after its fusions. A name that survives says it; else the edge it lies on (``edges``); else the
node that computed it, whose name the fusions keep.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .edges import NCHWC, Edge, Form, find_edges
from .graph import Scope, scopes
from .types import Types

__all__ = ["Holding", "Source", "Known", "hold"]

_CAST = "InsertedPrecisionFreeCast_"
_TOKEN = re.compile(r"_token_\d+$")


@dataclass(frozen=True, kw_only=True)
class Source:
    """The source model's values and nodes by name; node maps to its outputs and operator type."""

    tensors: frozenset[str]
    nodes: Mapping[str, tuple[str, ...]]
    op_types: Mapping[str, str]
    producer: Mapping[str, Any]
    consumers: Mapping[str, tuple[Any, ...]]

    @classmethod
    def of(cls, graph: Any) -> Source:
        tensors: set[str] = {item.name for item in graph.input}
        nodes: dict[str, tuple[str, ...]] = {}
        op_types: dict[str, str] = {}
        producer: dict[str, Any] = {}
        consumers: dict[str, list[Any]] = {}
        for scope in scopes(graph):
            for node in scope.graph.node:
                tensors.update(name for name in node.output if name)
                nodes.setdefault(node.name, tuple(node.output))
                op_types.setdefault(node.name, node.op_type)
                producer.update(dict.fromkeys(node.output, node))
                for name in node.input:
                    consumers.setdefault(name, []).append(node)
        return cls(
            tensors=frozenset(tensors), nodes=nodes, op_types=op_types, producer=producer,
            consumers={name: tuple(found) for name, found in consumers.items()},
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Holding:
    """What a value of the running graph holds.

    origin: the source tensor; "" where none could be told. form: how. same_as: another value of the running graph that
    holds the same numbers and stands for the source tensor. before: it holds the numbers before they were rounded.
    constant: it is a constant of the model in another form. root: the value of its edge that an operator computed.
    """

    origin: str = ""
    form: Form
    root: str = ""
    same_as: str = ""
    before: str = ""
    constant: bool = False


@dataclass(frozen=True, kw_only=True)
class Known:
    """The given graph's edges: by value, and what each stands for in the source."""

    source: Source
    given: Source
    edge_of: Mapping[str, Edge] = field(default_factory=dict)

    @classmethod
    def of(cls, source: Any, given: Any) -> Known:
        first, second = Source.of(source), Source.of(given)
        types = Types(known={})
        edge_of = {
            name: edge
            for scope in scopes(given)
            for edge in find_edges(scope, types, first.nodes, second.tensors)
            for name in edge.forms
        }
        return cls(source=first, given=second, edge_of=edge_of)

    def members(self, name: str) -> list[str]:
        """The source tensors on the given graph's edge of a value, in the order of the edge."""
        edge = self.edge_of.get(name)
        return [] if edge is None else [item for item in edge.forms if item in self.source.tensors]

    def scale_names(self, name: str) -> set[str]:
        edge = self.edge_of.get(name)
        return set() if edge is None else {form.scale.scale for form in edge.forms.values() if form.scale is not None}


def hold(running: Any, types: Types, known: Known, outputs: frozenset[str]) -> dict[tuple[Any, str], Holding]:
    """What every value of the running graph holds, by (scope key, name)."""
    found: dict[tuple[Any, str], Holding] = {}
    canonical = known.given.tensors | known.source.tensors
    for scope in scopes(running):
        groups: dict[tuple[str, ...], list[Edge]] = {}
        for edge in find_edges(scope, types, known.source.nodes, canonical):
            members = tuple(_members(edge, known))
            if not members or edge.constant:
                for name, form in edge.forms.items():
                    constant = edge.constant and name not in known.source.tensors
                    found[scope.key, name] = Holding(form=form, root=edge.root, constant=constant)
            else:
                groups.setdefault(members, []).append(edge)
        for members, edges in groups.items():
            for name, holding in _assign(members, edges, known, outputs, types, scope):
                found[scope.key, name] = holding
    return found


def _members(edge: Edge, known: Known) -> list[str]:
    """The source tensors that an edge of the running graph stands for."""
    for name in edge.forms:
        for plain in _spellings(name):
            members = known.members(plain)
            if members:
                return members
    if edge.node is None:
        return []
    if edge.node.domain == NCHWC:
        return _blocked_members(edge.node, known)
    return _node_members(edge, known)


def _spellings(name: str) -> Iterator[str]:
    """The name, and what it was before ONNX Runtime decorated it."""
    yield name
    plain = name.removesuffix("/duplicated")
    if plain != name:
        yield plain
    if plain.startswith(_CAST):
        yield plain.removeprefix(_CAST)
        yield _TOKEN.sub("", plain.removeprefix(_CAST))


def _node_members(edge: Edge, known: Known) -> list[str]:
    """By the name of the node, which the fusions keep; a scale that is another edge's speaks against it."""
    node_name = _TOKEN.sub("", edge.node.name)
    outputs = known.given.nodes.get(edge.node.name) or known.given.nodes.get(node_name) or ()
    if edge.index >= len(outputs) or not outputs[edge.index]:
        return []
    members = known.members(outputs[edge.index])
    own = {form.scale.scale for form in edge.forms.values() if form.scale is not None}
    theirs = known.scale_names(outputs[edge.index])
    return [] if own and theirs and not own & theirs else members


def _blocked_members(node: Any, known: Known) -> list[str]:
    """A blocked node is called after its first output's name; what was fused into it later moved that on.

    A fourth input is a sum that was fused in, an activation is one unless it had been fused before the name was given.
    """
    name = _TOKEN.sub("", node.name)
    if not name.endswith("_nchwc"):
        return _node_members(Edge(root="", node=node, index=0, constant=False, forms={}), known)
    name = name.removesuffix("_nchwc")
    tensor = next(
        (plain for text in (name, name.removesuffix("_bn")) for plain in _spellings(text) if known.members(plain)), ""
    )
    if tensor and node.op_type == "Conv":
        if len(node.input) > 3 and node.input[3]:
            tensor = _step(tensor, {"Add", "Sum"}, known)
        activation = next((item.s.decode() for item in node.attribute if item.name == "activation"), "")
        maker = known.given.producer.get(tensor)
        if activation and tensor and maker is not None and maker.op_type != activation:
            tensor = _step(tensor, {activation}, known)
    return known.members(tensor) if tensor else []


def _step(tensor: str, op_types: set[str], known: Known) -> str:
    """The output of the one consumer of such a type; "" where there is not exactly one."""
    edge = known.edge_of.get(tensor)
    names = list(edge.forms) if edge is not None else [tensor]
    next_nodes = [node for name in names for node in known.given.consumers.get(name, ()) if node.op_type in op_types]
    return next_nodes[0].output[0] if len(next_nodes) == 1 else ""


def _assign(
    members: tuple[str, ...], edges: list[Edge], known: Known, outputs: frozenset[str], types: Types, scope: Scope
) -> Iterator[tuple[str, Holding]]:
    everything = [(name, form, edge) for edge in edges for name, form in edge.forms.items()]
    if len(members) > 1:
        yield from _assign_by_stage(members, everything, known)
        return
    source = members[0]
    places = {name: place for place, (name, _, _) in enumerate(everything)}

    def rank(item: tuple[str, Form, Edge]) -> tuple[bool, int, bool, bool, bool, int, int]:
        return _preference(item[0], item[1], source, outputs, places[item[0]])

    chosen = min(everything, key=rank)
    alike: dict[tuple[int, str], list[tuple[str, Form, Edge]]] = {}
    for item in everything:
        alike.setdefault((item[1].bits, item[1].code), []).append(item)
    for found in alike.values():
        first = chosen if chosen in found else min(found, key=rank)
        for name, form, edge in found:
            if name == chosen[0]:
                yield name, Holding(origin=source, form=form, root=edge.root)
            elif name != first[0]:
                yield name, Holding(form=form, root=edge.root, same_as=first[0])
            elif form.bits <= chosen[1].bits:
                yield name, Holding(form=form, root=edge.root)
            else:
                own = _own_output(edge, known) if edge.root in {item[0] for item in found} else ""
                other = own if own and own != source and own not in places else ""
                how = "before quantisation" if chosen[1].code else "before rounding"
                yield name, Holding(origin=other, form=form, root=edge.root, before="" if other else how)


def _own_output(edge: Edge, known: Known) -> str:
    """What the node that computed an edge is called after in the source: another tensor where a Relu was dropped."""
    if edge.node is None:
        return ""
    outputs = known.source.nodes.get(edge.node.name, ())
    return outputs[edge.index] if edge.index < len(outputs) else ""


def _preference(
    name: str, form: Form, source: str, outputs: frozenset[str], place: int
) -> tuple[bool, int, bool, bool, bool, int, int]:
    """Smallest first: the model's output itself, else the most rounded form, plain before quantised or blocked."""
    return (
        not (name == source and name in outputs),
        form.bits,
        form.blocked,
        form.scale is not None,
        name != source,
        -form.width,
        place,
    )


def _assign_by_stage(
    members: tuple[str, ...], everything: list[tuple[str, Form, Edge]], known: Known
) -> Iterator[tuple[str, Holding]]:
    """The source model has the carriers itself: each of its tensors by name, other forms by how they are rounded."""
    names = {name for name, _, _ in everything}
    for name, form, own in everything:
        if name in members:
            yield name, Holding(origin=name, form=form, root=name)
            continue
        rounded = bool(form.code)
        edge = known.edge_of[members[0]]
        like = [member for member in members if bool(edge.forms[member].code) == rounded]
        present = next((m for m in like if m in names), "")
        if present:
            yield name, Holding(form=form, root=own.root, same_as=present)
        else:
            yield name, Holding(origin=like[-1] if like else "", form=form, root=own.root)
