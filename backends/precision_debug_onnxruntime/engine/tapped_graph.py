"""Puts the taps into a copy of the running graph, and tells a session which tap saw what, in which iteration."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, MutableSequence
from dataclasses import dataclass, field
from typing import Any

from precision_debug.onnx.graph import copy_but, iterate_graphs, iterate_subgraphs, list_outer_reads
from precision_debug.onnx.model import Model
from precision_debug.onnx.types import elem_of

from .taps import DOMAIN, put_of
from .tensor_list import Entry

__all__ = ["Tap", "TappedGraph", "insert_taps"]

_PREFIX = "precision_debug.tap"
_MARKER = "precision_debug.marker"
_LENT = 4 << 20
"""Elements that stay lent for longer than one node: the more, the less the runs wait; but it takes memory."""

_LOANS = 32
"""Tensors that do so."""

_DOMAINS = ("com.microsoft", "com.microsoft.nchwc")


@dataclass(frozen=True, kw_only=True)
class Tap:
    """What one tap means: a tensor (entry), or one of these events.

    "enter"    a loop begins
    "iterate"  a loop's body begins
    "return"   ONNX Runtime is about to let go of the tensor of another tap
    "write"    the engine's own memory of a tensor, which another tap has shown in another form, can be written to
    "put"      the engine asks for what goes on in place of a tensor

    loop: the key of the loop's body. lent: the place of the other tap.
    """

    entry: Entry | None = None
    event: str = ""
    loop: Any = ()
    lent: int = -1


@dataclass(frozen=True, kw_only=True)
class TappedGraph:
    """The graph to run, and its taps; a tap's place in the tuple is the one it reports.

    renamed: the model's inputs that are fed under another name, as what they are called is what their readers get.
    """

    model: Model
    taps: tuple[Tap, ...]
    renamed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Loan:
    """end: the node that ends it. elements: of the tensor; many where that is not known."""

    end: Any
    elements: int


class _Builder:
    def __init__(
        self, entries: Collection[Entry], session: int, sizes: Mapping[str, int] | None, writing: bool, kind: str,
        exchanging: bool,
    ) -> None:  # fmt: skip
        self.by_key: dict[Any, list[Entry]] = {}
        for entry in entries:
            self.by_key.setdefault(entry.value.key, []).append(entry)
        self.scopes = {
            key[:depth] for entry in entries for key in [entry.value.scope.key] for depth in range(len(key) + 1)
        }
        self.taps: list[Tap] = []
        self.session = session
        self.sizes = sizes
        self.writing = writing
        self.kind = kind
        self.exchanging = exchanging
        self.renamed: dict[str, str] = {}
        self.copies: Mapping[str, str] = {}

    def graph(self, graph: Any, key: Any, loops: bool) -> None:
        """Rewrite one graph's nodes in place."""
        nodes: list[Any] = []
        lent: deque[_Loan] = deque()
        if loops:
            nodes.append(self._tap(_MARKER, Tap(event="iterate", loop=key)))
        made_by_nodes = {name for node in graph.node for name in node.output}
        reads = Counter(name for node in graph.node for name in (*node.input, *list_outer_reads(node)))
        reads.update(item.name for item in graph.output)
        for entry in [e for (scope, name), found in self.by_key.items() if scope == key for e in found]:
            if entry.value.node is None and entry.value.name not in made_by_nodes:
                raw = self._raw(entry)
                for item in graph.input if raw else ():
                    if item.name == entry.value.name:
                        item.name = raw
                        if not key:
                            self.renamed[entry.value.name] = raw
                nodes += self._seen(entry, lent, raw)
        for node in graph.node:
            for name, inner in iterate_subgraphs(node):
                step = (next((out for out in node.output if out), node.name), name)
                inside = (*key, step)
                if inside in self.scopes:
                    if node.op_type in {"Loop", "Scan"}:
                        nodes.append(self._tap(_MARKER, Tap(event="enter", loop=inside)))
                    self.graph(inner, inside, node.op_type in {"Loop", "Scan"})
            kept = _copy_of(node)
            for place, name in enumerate(kept.input):
                kept.input[place] = self.copies.get(name, name)
            shares = self.writing and node.op_type in _SHARE_MEMORY and reads[node.input[0]] > 1
            if shares and any(one.meta.dtype in _COPIED for one in self.by_key.get((key, node.output[0]), ())):
                nodes.append(_make_copy(kept))
            nodes.append(kept)
            made: list[_Loan] = []
            for place, output in enumerate(node.output):
                for entry in self.by_key.get((key, output), ()):
                    raw = self._raw(entry)
                    kept.output[place] = raw or kept.output[place]
                    nodes += self._seen(entry, made, raw)
            held = sum(loan.elements for loan in lent)
            while held > _LENT or len(lent) > _LOANS:
                held -= lent[0].elements
                nodes.append(lent.popleft().end)
            lent += made
        nodes += [loan.end for loan in lent]
        del graph.node[:]
        graph.node.extend(nodes)

    def _raw(self, entry: Entry) -> str:
        """Return what the engine's own tensor of an entry is called where another goes on in its place; "" where none
        can."""
        exchanged = self.exchanging and not entry.never_written and put_of(elem_of(entry.meta.dtype))[0]
        several = len(self.by_key[entry.value.key]) > 1
        return f"{_PREFIX}.raw.{entry.value.name}" if exchanged and not several else ""

    def _put(self, entry: Entry, raw: str) -> Iterator[Any]:
        """Yield the nodes that let another tensor go on in place of an entry's own."""
        from onnx import helper

        elem = elem_of(entry.meta.dtype)
        kind, via = put_of(elem)
        number, given, made = len(self.taps), raw, entry.value.name
        if via != elem:
            given, made = f"{raw}.wide", f"{raw}.put"
            yield helper.make_node("Cast", [raw], [given], name=f"{_PREFIX}{number}.wide", to=via)
        self.taps.append(Tap(entry=entry, event="put"))
        yield helper.make_node(
            kind, [given], [made], name=f"{_PREFIX}{number}", domain=DOMAIN, session=self.session, place=number
        )
        if via != elem:
            yield helper.make_node("Cast", [made], [entry.value.name], name=f"{_PREFIX}{number}.back", to=elem)

    def _seen(self, entry: Entry, lent: MutableSequence[_Loan], raw: str) -> Iterator[Any]:
        """Yield the nodes that show an entry; where it is lent, that is added to ``lent``."""
        place = len(self.taps)
        made, end = entry.view.nodes(raw or entry.value.name, f"{_PREFIX}{place}")
        yield from made
        yield self._tap(end, Tap(entry=entry))
        if raw:
            yield from self._put(entry, raw)
        elif self.writing and made and not self.exchanging:
            yield self._tap(entry.value.name, Tap(entry=entry, event="write"))
        if self.sizes is not None:
            shape = ("",) if entry.meta.shape is None else entry.meta.shape
            known = (size if isinstance(size, int) else self.sizes.get(size, _LENT + 1) for size in shape)
            elements = math.prod(known)
            lent.append(_Loan(end=self._tap(end, Tap(event="return", lent=place)), elements=elements))

    def _tap(self, name: str, tap: Tap) -> Any:
        from onnx import helper

        number = len(self.taps)
        self.taps.append(tap)
        return helper.make_node(
            self.kind, [name], [], name=f"{_PREFIX}{number}", domain=DOMAIN, session=self.session, place=number
        )


def insert_taps(
    model: Model, entries: Collection[Entry], session: int, *, lending: Mapping[str, int] | None = None,
    writing: bool = False, on_device: bool = False, exchanging: bool = False,
) -> TappedGraph:  # fmt: skip
    """Return a copy of the running graph with a tap for each entry, for the session number that ``taps.connect`` gave.

    lending: what a tap shows stays as it is until the next node of its graph has run, or some more of them where it is
    small; then a second tap says so. Its value: sizes of axes that the graph only names, as far as they are known.
    writing: where an entry is shown in another form than the graph holds it, a second tap has the graph's own memory.
    exchanging: another tensor can go on in place of an entry's, through an operator that stands between it and its
    readers. on_device: the taps are CUDA's, all of them, so that they run in the order of the graph.
    """
    import numpy as np
    from onnx import helper, numpy_helper

    proto = copy_but(model.proto, graph="initializer")
    builder = _Builder(entries, session, lending, writing, "DeviceTap" if on_device else "Tap", exchanging)
    builder.copies = _find_copies(model) if writing or exchanging else {}
    builder.graph(proto.graph, (), False)
    if writing:
        proto.graph.initializer.append(numpy_helper.from_array(np.zeros(0, np.int64), _NO_SHAPE))
    if any(tap.event for tap in builder.taps):
        proto.graph.initializer.append(numpy_helper.from_array(np.zeros((), np.bool_), _MARKER))
    proto.graph.initializer.extend(model.proto.graph.initializer)
    proto.ir_version = max(proto.ir_version, 4)
    known = {item.domain for item in proto.opset_import}
    for domain in (DOMAIN, *_DOMAINS):
        if domain not in known:
            proto.opset_import.append(helper.make_opsetid(domain, 1))
    running = Model(proto=proto, folder=model.folder, path=model.path)
    return TappedGraph(model=running, taps=tuple(builder.taps), renamed=builder.renamed)


def _copy_of(node: Any) -> Any:
    copy = type(node)()
    copy.CopyFrom(node)
    return copy


_NO_SHAPE = f"{_PREFIX}.no_shape"
_SHARE_MEMORY = frozenset({"Reshape", "Unsqueeze", "Squeeze", "Flatten", "Identity"})
_COPIED = frozenset({"float32", "float64", "float16", "int64", "int32"})


def _make_copy(node: Any) -> Any:
    """Return the operator that gives a node memory of its own, and let the node read that.

    What such an operator gives is the memory of what it reads: a number that is put there would stand in that tensor
    and in all its other forms, too."""
    from onnx import helper

    own = f"{_PREFIX}.own.{node.output[0]}"
    copied = helper.make_node("Expand", [node.input[0], _NO_SHAPE], [own], name=own)
    node.input[0] = own
    return copied


def _find_copies(model: Model) -> dict[str, str]:
    """Return tensors that ONNX Runtime dequantises once more for a further reader, each with the first of its kind in
    the same graph: what is put in place of the first is then for all of its readers."""
    found: dict[str, str] = {}
    for graph in iterate_graphs(model.proto.graph):
        first: dict[tuple[Any, ...], str] = {}
        for node in graph.node:
            if node.op_type == "DequantizeLinear":
                said = *node.input, *sorted(one.SerializeToString() for one in node.attribute)
                one = first.setdefault(said, node.output[0])
                found |= {node.output[0]: one} if one != node.output[0] else {}
    return found
