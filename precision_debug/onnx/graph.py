"""Plain facts about an ONNX graph: its scopes, values, producers and consumers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = [
    "External",
    "Scope",
    "Value",
    "copy_but",
    "initializers_of",
    "iterate_external_tensors",
    "iterate_graphs",
    "iterate_scopes",
    "iterate_subgraphs",
    "iterate_values",
    "label_values",
    "list_outer_reads",
    "map_carried_inputs",
    "move_external_data",
    "order_nodes",
    "read_attribute",
    "read_external_data",
    "read_external_location",
    "reorder",
    "split_words",
]


@dataclass(frozen=True, kw_only=True)
class External:
    """A tensor's place in a file beside the model; length 0: to the end of the file."""

    location: str
    offset: int
    length: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Scope:
    """A graph and where it hangs. key: output of the owning node and attribute, from the outermost inwards."""

    graph: Any
    key: tuple[tuple[str, str], ...] = ()
    owner: Any = None
    parent: Scope | None = None

    @property
    def loops(self) -> bool:
        """Whether the graph is the body of a Loop or Scan."""
        return self.owner is not None and self.owner.op_type in {"Loop", "Scan"}

    @property
    def loop_depth(self) -> int:
        """How many Loops and Scans the graph runs inside."""
        return int(self.loops) + (self.parent.loop_depth if self.parent is not None else 0)

    @property
    def path(self) -> str:
        """Names of the owning nodes, outermost first."""
        if self.parent is None:
            return ""
        return "/".join(part for part in (self.parent.path, f"{self.owner.name}.{self.key[-1][1]}") if part)


@dataclass(frozen=True, kw_only=True, eq=False)
class Value:
    """One output of one node, or an input of the main graph (``node`` is None)."""

    name: str
    scope: Scope
    node: Any = None
    index: int = 0

    @property
    def key(self) -> tuple[tuple[tuple[str, str], ...], str]:
        return self.scope.key, self.name


def iterate_subgraphs(node: Any) -> Iterator[tuple[str, Any]]:
    """Yield the graphs in a node's attributes, by attribute name."""
    for item in node.attribute:
        if item.HasField("g"):
            yield item.name, item.g
        for place, graph in enumerate(item.graphs):
            yield f"{item.name}[{place}]", graph


def iterate_graphs(graph: Any) -> Iterator[Any]:
    """Yield the graph and every graph inside it."""
    yield graph
    for node in graph.node:
        for item in node.attribute:  # as ``iterate_subgraphs`` does, without a generator for each of a million nodes
            if item.HasField("g") or item.graphs:
                for _, inner in iterate_subgraphs(node):
                    yield from iterate_graphs(inner)
                break


def iterate_scopes(graph: Any) -> Iterator[Scope]:
    """Yield the main graph, then those inside it, in node order."""
    yield from _iterate_inner_scopes(Scope(graph=graph))


def _iterate_inner_scopes(scope: Scope) -> Iterator[Scope]:
    yield scope
    for node in scope.graph.node:
        for name, inner in iterate_subgraphs(node):
            step = (next((out for out in node.output if out), node.name), name)
            yield from _iterate_inner_scopes(Scope(graph=inner, key=(*scope.key, step), owner=node, parent=scope))


def iterate_values(graph: Any) -> Iterator[Value]:
    """Yield inputs of the main graph, then every node output, in execution order: a subgraph's before its owner's."""
    main = Scope(graph=graph)
    defaults = initializers_of(graph)
    for item in graph.input:
        if item.name not in defaults:
            yield Value(name=item.name, scope=main)
    yield from _iterate_scope_values(main)


def _iterate_scope_values(scope: Scope) -> Iterator[Value]:
    for node in scope.graph.node:
        for name, inner in iterate_subgraphs(node):
            step = (next((out for out in node.output if out), node.name), name)
            yield from _iterate_scope_values(Scope(graph=inner, key=(*scope.key, step), owner=node, parent=scope))
        for index, output in enumerate(node.output):
            if output:
                yield Value(name=output, scope=scope, node=node, index=index)


def label_values(found: list[Value]) -> dict[tuple[tuple[tuple[str, str], ...], str], str]:
    """Return a name of its own for each value: the ONNX name, with the path of its graph where that name occurs
    twice."""
    count = Counter(value.name for value in found)
    return {
        value.key: value.name if count[value.name] == 1 else f"{value.scope.path}/{value.name}".lstrip("/")
        for value in found
    }


def map_carried_inputs(scope: Scope) -> dict[str, tuple[str, str]]:
    """Map each input of a loop's body to where its value comes from.

    That is the outer value it begins with or is a slice of, and the body's own output that it is in the next iteration,
    "" for a slice."""
    if not scope.loops:
        return {}
    inputs = [item.name for item in scope.graph.input]
    outputs = [item.name for item in scope.graph.output]
    outer = list(scope.owner.input)
    if scope.owner.op_type == "Loop":
        return {inputs[i]: (outer[i], outputs[i - 1]) for i in range(2, min(len(inputs), len(outer)))}
    states = len(inputs) - int(read_attribute(scope.owner, "num_scan_inputs", 0))
    return {name: (outer[i], outputs[i] if i < states else "") for i, name in enumerate(inputs) if i < len(outer)}


def list_outer_reads(node: Any) -> list[str]:
    """Return the names that the node's subgraphs read from the graph around them, in order, each once."""
    found: dict[str, None] = {}
    for _, inner in iterate_subgraphs(node):
        own = initializers_of(inner) | {item.name for item in inner.input}
        for inside in inner.node:
            for name in (*inside.input, *list_outer_reads(inside)):
                if name and name not in own:
                    found.setdefault(name)
            own.update(inside.output)
        for item in inner.output:
            if item.name not in own:
                found.setdefault(item.name)
    return list(found)


def order_nodes(graph: Any, wish: Mapping[str, int] | None = None) -> list[Any]:
    """Return the nodes, each after those whose outputs it reads; otherwise in the order of the file.

    wish: place by node or output name. Nodes that it does not name come right before the first one that needs them.
    """
    nodes = list(graph.node)
    maker = {name: place for place, node in enumerate(nodes) for name in node.output if name}
    wished = [_wished_place(node, wish or {}) for node in nodes]
    named = sorted((place for place in range(len(nodes)) if wished[place] >= 0), key=lambda place: wished[place])
    done: set[int] = set()
    opened: set[int] = set()
    result: list[Any] = []
    for start in (*named, *range(len(nodes))):
        stack = [start]
        while stack:
            place = stack.pop()
            if place in done:
                continue
            if place in opened:
                done.add(place)
                result.append(nodes[place])
                continue
            opened.add(place)
            needs = [maker[name] for name in (*nodes[place].input, *list_outer_reads(nodes[place])) if name in maker]
            stack.append(place)
            stack.extend(need for need in reversed(needs) if need not in opened)
    return result


def _wished_place(node: Any, wish: Mapping[str, int]) -> int:
    found = [wish[name] for name in (node.name, *node.output) if name in wish]
    return min(found) if found else -1


def reorder(graph: Any, wish: Mapping[str, int]) -> None:
    """Put the nodes of a graph and of those inside it into the order of ``order_nodes``."""
    for inner in list(iterate_graphs(graph)):
        nodes = [type(node).FromString(node.SerializeToString()) for node in order_nodes(inner, wish)]
        del inner.node[:]
        inner.node.extend(nodes)


def initializers_of(graph: Any) -> set[str]:
    """Return names of a graph's constants, sparse ones included."""
    return {item.name for item in graph.initializer} | {item.values.name for item in graph.sparse_initializer}


def read_external_location(tensor: Any) -> str:
    """Return the file that a tensor names for its bytes, whatever it says of the place in it; "": none."""
    return next((str(entry.value) for entry in tensor.external_data if entry.key == "location"), "")


def read_external_data(tensor: Any) -> External:
    """Return where a tensor's bytes lie, relative to the model's folder."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    return External(
        location=entries.get("location", ""),
        offset=int(entries.get("offset", 0)),
        length=int(entries.get("length", 0)),
    )


def move_external_data(tensor: Any, place: External) -> None:
    """Say where a tensor's bytes lie now."""
    del tensor.external_data[:]
    for key, value in asdict(place).items():
        if value:
            entry = tensor.external_data.add()
            entry.key, entry.value = key, str(value)


def iterate_external_tensors(graph: Any) -> Iterator[Any]:
    """Weights of the graph, and of every graph inside it, whose bytes lie in a file."""
    for inner in iterate_graphs(graph):
        yield from (tensor for tensor in inner.initializer if tensor.external_data)


def read_attribute(node: Any, name: str, default: Any = None) -> Any:
    """Return the value of a node's attribute, decoded; ``default`` where it has none."""
    from onnx import helper

    for item in node.attribute:
        if item.name == name:
            value = helper.get_attribute_value(item)
            return value.decode() if isinstance(value, bytes) else value
    return default


def copy_but(proto: Any, *, graph: str) -> Any:
    """Return a copy of a model without one field of its graph (the weights, say, which may be large)."""
    copy = type(proto)()
    for field, value in proto.ListFields():
        if field.name != "graph":
            _copy_field(copy, field, value)
    for field, value in proto.graph.ListFields():
        if field.name != graph:
            _copy_field(copy.graph, field, value)
    return copy


def _copy_field(message: Any, field: Any, value: Any) -> None:
    if field.message_type is None and not _is_repeated(field):
        setattr(message, field.name, value)
    elif _is_repeated(field):
        getattr(message, field.name).extend(value)
    else:
        getattr(message, field.name).CopyFrom(value)


def _is_repeated(field: Any) -> bool:
    """Protobuf 7 has no ``label`` any more, older ones have no ``is_repeated``."""
    return bool(field.is_repeated) if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED


def split_words(text: str) -> frozenset[str]:
    """Return the words of a text, for tables of operator names."""
    return frozenset(text.split())
