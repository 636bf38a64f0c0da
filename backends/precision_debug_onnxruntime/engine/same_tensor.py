"""Which values of a graph are one tensor in several forms: quantised, cast, transposed, blocked.

ONNX Runtime and the converters put *carriers* on an edge: QuantizeLinear, DequantizeLinear, and casts, transposes and
reorders that the source model does not have. What they join is one edge; its root is what an operator computed.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from precision_debug.onnx.graph import Scope, read_attribute, split_words
from precision_debug.onnx.scales import Scale, find_scales

from .types import Types

__all__ = ["NCHWC", "Edge", "Form", "find_edges", "is_carrier"]

NCHWC = "com.microsoft.nchwc"
_QUANTISE = {"QuantizeLinear", "DequantizeLinear"}
_REORDER = {"ReorderInput", "ReorderOutput"}
_COPY = {"MemcpyFromHost", "MemcpyToHost"}
# what ONNX Runtime calls its own; a node that had no name is called after its type and output instead
_TRANSPOSE = re.compile(r"Transpose(_token_\d+)?$")
# operators that give their output the layout of their inputs, element by element or along an axis that is turned too
_ANY_LAYOUT = split_words("""
    Add Sub Mul Div Sum Max Min Relu LeakyRelu Sigmoid Tanh Clip HardSigmoid HardSwish Elu Selu Softplus Softsign
    Abs Neg Exp Sqrt Gelu QuickGelu FastGelu BiasGelu QLinearAdd QLinearMul QLinearSigmoid QLinearLeakyRelu
    PRelu Pow Erf Floor Ceil Round Reciprocal Sign Not Where ThresholdedRelu Celu Mish And Or Greater Less Equal
    Concat QLinearConcat Slice Split Resize Pad Softmax QLinearSoftmax Identity Cast QuantizeLinear DequantizeLinear
""")
_OVER_AXES = split_words("""
    Squeeze Unsqueeze ReduceMean ReduceSum ReduceMax ReduceMin ReduceProd ReduceL1 ReduceL2 ReduceLogSum
    ReduceLogSumExp ReduceSumSquare
""")
_FARTHEST = 4
_CHANNELS_LAST = frozenset({"NhwcConv", "NhwcFusedConv", "NhwcMaxPool"})


class Layouts(Protocol):
    """What is known of how values are transposed against the source model's tensors."""

    def layout(self, name: str) -> tuple[int, ...] | None:
        """Of a value, by its name; None where that is not known."""

    def guessed(self, name: str) -> bool:
        """Return whether a transposition was moved past what gives a value: its shape alone tells the layout, if at
        all."""

    def made(self, node: Any, index: int) -> tuple[int, ...]:
        """Of a node's output, by the node's name, before the node's inputs were transposed; () where not known."""


@dataclass(frozen=True, kw_only=True)
class Form:
    """How a value holds its edge's tensor.

    bits: the fewest bits a number had on the way from the root to here; what was rounded away does not come back.
    width: the bits of the value's own type.
    scale: how to dequantise it. perm: the value is the tensor transposed by it; () as it is; None: not known.
    blocked: it has ONNX Runtime's NCHWc layout.
    """

    bits: int
    width: int = 64
    scale: Scale | None = None
    rounded_by: Scale | None = None
    perm: tuple[int, ...] | None = ()
    blocked: bool = False

    @property
    def code(self) -> str:
        """The scale that the numbers are multiples of; "" where they are not quantised."""
        found = self.rounded_by or self.scale
        return "" if found is None else found.code


@dataclass(frozen=True, kw_only=True)
class Edge:
    """root: the value that an operator computed; node: that operator, None for an input or a constant.

    forms: every value of the edge, the root first, each after the one it was made from.
    """

    root: str
    node: Any
    index: int
    constant: bool
    forms: Mapping[str, Form]


def is_carrier(node: Any, source_nodes: Collection[str]) -> bool:
    """Return whether a node only changes the form of a tensor."""
    if node.op_type in _QUANTISE | _COPY or (node.domain == NCHWC and node.op_type in _REORDER):
        return True
    if node.name in source_nodes or node.name.startswith(f"{node.op_type}:"):
        return False
    return node.op_type == "Cast" or (node.op_type == "Transpose" and bool(_TRANSPOSE.match(node.name)))


def find_edges(
    scope: Scope, nodes: Iterable[Any], types: Types, source_nodes: Collection[str], layouts: Layouts
) -> list[Edge]:
    """Return the edges of one graph, whose nodes come in an order in which they can run.

    source_nodes: names of the source model's nodes; a cast or transpose with another name is a carrier.
    """
    return _Finder(scope, types, source_nodes, layouts).edges(nodes)


class _Finder:
    def __init__(self, scope: Scope, types: Types, source_nodes: Collection[str], layouts: Layouts) -> None:
        self.scope, self.types, self.source_nodes, self.layouts = scope, types, source_nodes, layouts
        self.scales = find_scales(scope.graph)
        self.root: dict[str, str] = {}
        self.forms: dict[str, dict[str, Form]] = {}
        self.made: dict[str, tuple[Any, int]] = {}
        self.readers: dict[str, list[Any]] = {}

    def edges(self, nodes: Iterable[Any]) -> list[Edge]:
        nodes = list(nodes)
        for node in nodes:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        graph = self.scope.graph
        constants = [item.name for item in graph.initializer]
        for name in (*(item.name for item in graph.input), *constants):
            self._start(name, Form(bits=self._bits(name), width=self._bits(name), scale=self.scales.get(name)), None, 0)
        for node in nodes:
            carrier = is_carrier(node, self.source_nodes) and node.input[0] in self.root and not self._is_real(node)
            for index, name in enumerate(node.output):
                if name and carrier:
                    self._carry(node, node.input[0], name)
                elif name:
                    self._start(name, self._computed(node, index), node, index)
        fixed = set(constants)
        return [
            Edge(
                root=root, node=self.made[root][0], index=self.made[root][1], constant=root in fixed,
                forms=self.forms[root],
            )
            for root in self.forms
        ]  # fmt: skip

    def _start(self, name: str, form: Form, node: Any, index: int) -> None:
        self.root[name] = name
        self.forms[name] = {name: form}
        self.made[name] = (node, index)

    def _bits(self, name: str) -> int:
        """Return bits of the mantissa's carrier: 8 for int8 and so on; a plain integer or string counts as exact."""
        scale = self.scales.get(name)
        dtype = self.types.of(self.scope.key, name).dtype
        digits = "".join(c for c in dtype.split("_")[0] if c.isdigit())
        if scale is not None or "float" in dtype:
            return int(digits) if digits else 64
        return 64

    def _form(self, name: str) -> Form | None:
        root = self.root.get(name)
        return None if root is None else self.forms[root][name]

    def _is_real(self, node: Any) -> bool:
        """Return whether a transposition leads from one of the source's tensors to another: ONNX Runtime merged some
        then, and some into the reordering of a blocked value."""
        turn = self._turn(node)
        if not turn:
            return False
        source, then = node.input[0], self._layout_ahead(node.output[0])
        forms = self.forms[self.root[source]]
        if then is None:
            return False
        if self._is_anchored(forms):
            return _after(forms[source].perm, turn) != then
        beside = (reader for reader in self.readers[source] if reader.op_type in _REORDER and not self._turn(reader))
        here = {self.layouts.layout(reader.output[0]) for reader in beside} - {None}
        return node.op_type in _REORDER and any(_after(perm, turn) != then for perm in here)

    def _is_anchored(self, forms: Iterable[str]) -> bool:
        """Return whether ``layouts`` knows the layout of one of these values by its name."""
        return any(self.layouts.layout(name) is not None for name in forms)

    def _turn(self, node: Any) -> tuple[int, ...]:
        """Return how a carrier transposes what it reads; () where it does not."""
        if node.op_type == "Transpose":
            return tuple(read_attribute(node, "perm") or ())
        if node.op_type not in _REORDER or not read_attribute(node, "channels_last", 0):
            return ()
        rank = len(self.types.of(self.scope.key, node.output[0]).shape or ())
        # blocks have the order of NCHW, the other side is NHWC
        found = (0, rank - 1, *range(1, rank - 1)) if node.op_type == "ReorderInput" else (0, *range(2, rank), 1)
        return found if rank else ()

    def _layout_ahead(self, name: str) -> tuple[int, ...] | None:
        """Return the layout of a value, or of what it is quantised to or from: the name may stand there alone."""
        for _ in range(_FARTHEST):
            found = self.layouts.layout(name)
            read = self.readers.get(name, ())
            if found is not None or len(read) != 1 or read[0].op_type not in _QUANTISE or read[0].input[0] != name:
                return found
            name = read[0].output[0]
        return None

    def _carry(self, node: Any, source: str, name: str) -> None:
        root = self.root[source]
        before = self.forms[root][source]
        bits = self._bits(name)
        form = dataclasses.replace(before, bits=min(before.bits, bits), width=bits, scale=self.scales.get(name))
        if node.op_type == "QuantizeLinear":
            form = dataclasses.replace(form, rounded_by=self.scales.get(name))
        elif node.op_type == "DequantizeLinear":
            form = dataclasses.replace(form, scale=None, bits=before.bits, rounded_by=before.rounded_by or before.scale)
        elif node.op_type == "Transpose":
            form = dataclasses.replace(form, perm=_after(before.perm, read_attribute(node, "perm")))
        elif node.op_type in _REORDER:
            form = dataclasses.replace(form, blocked=node.op_type == "ReorderInput")
            if read_attribute(node, "channels_last", 0):
                form = dataclasses.replace(form, perm=_after(before.perm, self._turn(node) or None))
        self.root[name] = root
        self.forms[root][name] = form
        self._settle(root, name)

    def _settle(self, root: str, name: str) -> None:
        """Where a value's layout is known, it tells the layouts of the edge's other values."""
        forms, known = self.forms[root], self.layouts.layout(name)
        found = forms[name].perm
        if known is None or found == known:
            return
        if self._is_anchored(other for other in forms if other != name):  # each has the layout that its own name tells
            if not self.layouts.guessed(name):
                forms[name] = dataclasses.replace(forms[name], perm=known)
            return
        shift = _after(known, _inverse(found)) if found is not None else None
        for other, form in forms.items():
            perm = known if other == name else _after(shift, form.perm)
            forms[other] = dataclasses.replace(form, perm=perm)

    def _computed(self, node: Any, index: int) -> Form:
        name = node.output[index]
        form = Form(bits=self._bits(name), width=self._bits(name), scale=self.scales.get(name))
        moved = self._form(node.input[0]) if self._turn(node) else None
        if moved is not None and not moved.code:  # a transposition gives no digits back
            form = dataclasses.replace(form, bits=min(form.bits, moved.bits))
        known, guessed = self.layouts.layout(name), self.layouts.guessed(name)
        if known or (known is not None and not guessed):
            return dataclasses.replace(form, perm=known)
        form = self._from_inputs(node, name, form)
        if guessed and not form.perm:  # what it reads is no transposed tensor, but it may be another than the model's
            return dataclasses.replace(form, perm=known)
        return dataclasses.replace(form, perm=_after(self.layouts.made(node, index), form.perm))

    def _from_inputs(self, node: Any, name: str, form: Form) -> Form:
        """Return the layout that the operator gives its output."""
        if node.domain == NCHWC:
            return dataclasses.replace(form, blocked=True)
        rank = len(self.types.of(self.scope.key, name).shape or ())
        if node.op_type in _CHANNELS_LAST or read_attribute(node, "channels_last", 0):
            return dataclasses.replace(form, perm=(0, *range(2, rank), 1) if rank else None)
        read = [found for found in map(self._form, node.input) if found is not None]
        if any(item.blocked for item in read):
            return dataclasses.replace(form, blocked=True)
        perms = {item.perm for item in read if item.perm != ()}
        if not perms:
            return form
        if len(perms) > 1 or None in perms:
            return dataclasses.replace(form, perm=None)
        perm = next(iter(perms))
        if node.op_type not in _ANY_LAYOUT:
            perm = self._over_axes(node, perm) if perm else None
        return dataclasses.replace(form, perm=perm)

    def _over_axes(self, node: Any, perm: tuple[int, ...]) -> tuple[int, ...] | None:
        """Return the layout behind an operator that drops axes of a transposed value, or inserts some; None where its
        axes are not known. Inserted axes lie where the tensor has them: ONNX Runtime moves transpositions past them
        so."""
        axes = self._axes(node)
        if axes is None:
            return None
        if node.op_type == "Unsqueeze":
            rank = len(perm) + len(axes)
            new = {axis % rank for axis in axes}
            places = [place for place in range(rank) if place not in new]
            rest = iter(perm)
            return tuple(place if place in new else places[next(rest)] for place in range(rank))
        if node.op_type != "Squeeze" and read_attribute(node, "keepdims", 1):
            return perm
        gone = {axis % len(perm) for axis in axes}
        left = [axis for place, axis in enumerate(perm) if place not in gone]
        return _after((), [sorted(left).index(axis) for axis in left])

    def _axes(self, node: Any) -> tuple[int, ...] | None:
        """Return the axes that an operator drops, inserts or reduces; None where it has none, or they are computed."""
        if node.op_type not in _OVER_AXES:
            return None
        given = read_attribute(node, "axes")
        if given is None and len(node.input) > 1 and node.input[1]:
            from onnx import numpy_helper

            constant = next((item for item in self.scope.graph.initializer if item.name == node.input[1]), None)
            given = None if constant is None else numpy_helper.to_array(constant).reshape(-1)
        return None if given is None else tuple(int(axis) for axis in given)


def _after(first: tuple[int, ...] | None, then: Any) -> tuple[int, ...] | None:
    """Transposing by ``first`` and then by ``then``; () stands for no transposition, None for unknown."""
    if first is None or then is None:
        return None
    step = tuple(int(i) for i in then)
    if not step:
        return first
    result = step if not first else tuple(first[i] for i in step)
    return () if result == tuple(range(len(result))) else result


def _inverse(perm: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(perm.index(i) for i in range(len(perm)))
