"""Interpreters of one run: the plain one, the one that keeps every tensor, and one of each operator alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .engine.graph import Graph, Value
from .failures import building

__all__ = ["Interpreted", "Maker", "Part", "Variable"]


@dataclass(kw_only=True)
class Interpreted:
    """An interpreter, and the shapes of its inputs that it has memory for; None: it has none yet.

    renewed: makes another one for each run of a model with variables, which LiteRT sets to their first values once.
    """

    interpreter: Any
    shapes: tuple[tuple[int, ...], ...] | None = ()
    renewed: Callable[[], Any] | None = None
    ran: bool = False

    def run(self, feeds: Mapping[int, Any]) -> None:
        """Feed these inputs, by tensor, and run. What LiteRT raises goes through."""
        if self.renewed is not None and self.ran:
            self.interpreter, self.shapes = self.renewed(), ()
        self.ran = True
        shapes = tuple(np.shape(array) for array in feeds.values())
        if shapes != self.shapes:
            self.shapes = None
            for index, array in feeds.items():
                held = self.interpreter._get_tensor_details(index, 0)["shape"]
                if tuple(held) != np.shape(array):
                    self.interpreter.resize_tensor_input(index, np.shape(array))
            self.interpreter.allocate_tensors()
            self.shapes = shapes
        self.interpreter.reset_all_variables()
        for index, array in feeds.items():
            self.interpreter.set_tensor(index, array)
        self.interpreter.invoke()

    def get(self, index: int) -> Any:
        """Return a copy of a tensor of the main subgraph."""
        return self.interpreter.get_tensor(index)


@dataclass(frozen=True, kw_only=True)
class Part:
    """One operator alone. feeds, gives: its tensors' numbers in the whole graph to those in its own."""

    interpreted: Interpreted
    feeds: Mapping[int, int]
    gives: Mapping[int, int]

    def run(self, fed: Mapping[int, Any]) -> Mapping[int, Any]:
        """Return what it makes of these, by their numbers in the whole graph. What LiteRT raises goes through."""
        self.interpreted.run({self.feeds[index]: array for index, array in fed.items()})
        return {index: self.interpreted.get(there) for index, there in self.gives.items()}


@dataclass(frozen=True, kw_only=True)
class Variable:
    """What reads a variable: what was written to it before, else what it holds as a run begins."""

    index: int
    first: Any

    def run(self, fed: Mapping[int, Any]) -> Mapping[int, Any]:
        """Return what it reads. fed: what was written, if anything was."""
        return {self.index: next(iter(fed.values()), self.first)}


@dataclass(frozen=True, kw_only=True)
class Maker:
    """content: the flatbuffer. reference: by reference kernels, else as LiteRT ships. threads: 0: LiteRT's choice.

    stateful: it has variables, which each run finds as the file begins. flags: switches of the Interpreter.
    """

    content: bytes
    path: str
    mode: str
    reference: bool
    threads: int = 0
    stateful: bool = False
    flags: Mapping[str, bool] = field(default_factory=dict)

    def plain(self) -> Interpreted:
        """As a program would load it; by reference kernels every tensor is kept, which changes nothing there."""
        return self._interpreted(self.content, keep=self.reference)

    def keeping(self) -> Interpreted:
        """With every tensor kept: XNNPACK then takes each operator by itself."""
        return self._interpreted(self.content, keep=True)

    def part(self, graph: Graph, made: Sequence[Value]) -> Part:
        """Return the operator that makes these alone, with the constants that it reads and what computes those."""
        content, feeds, gives = _cut_alone(graph, made)
        one = self._interpreted(content, keep=self.reference, allocates=False)
        return Part(interpreted=one, feeds=feeds, gives=gives)

    def _interpreted(self, content: bytes, *, keep: bool, allocates: bool = True) -> Interpreted:
        """allocates: not of an operator alone: the shapes that a file holds of what lies inside may be stand-ins, which
        only hold as long as nothing asks; the first run brings the true ones."""
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        kernels = OpResolverType.BUILTIN_REF if self.reference else OpResolverType.BUILTIN

        def make() -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that keeping all tensors takes memory
                made = Interpreter(
                    model_content=content, experimental_op_resolver_type=kernels,
                    experimental_preserve_all_tensors=keep, num_threads=self.threads or None, **self.flags,
                )  # fmt: skip
                if allocates:
                    made.allocate_tensors()
                return made

        with building(self.path, self.mode, content):
            made = make()
        return Interpreted(interpreter=made, shapes=() if allocates else None, renewed=make if self.stateful else None)


def _cut_alone(graph: Graph, made: Sequence[Value]) -> tuple[bytes, Mapping[int, int], Mapping[int, int]]:
    from ai_edge_litert import schema_py_generated as schema

    flat = graph.flat
    main = flat.main
    places = _with_what_is_fixed(graph, made[0].place)
    used: dict[int, int] = {}
    model = schema.ModelT()
    model.version, model.description = flat.model.version, b"one operator"
    empty = schema.BufferT()
    model.buffers, model.operatorCodes, model.metadataBuffer = [empty], [], []
    sub = schema.SubGraphT()
    sub.tensors, sub.operators = [], []

    def tensor(index: int) -> int:
        if index < 0:
            return index
        if index not in used:
            old, new = main.tensors[index], schema.TensorT()
            vars(new).update(vars(old))
            new.buffer = 0
            if flat.is_constant(old):
                buffer = schema.BufferT()
                buffer.data = flat.stored(flat.model.buffers[old.buffer])
                model.buffers.append(buffer)
                new.buffer = len(model.buffers) - 1
            used[index] = len(sub.tensors)
            sub.tensors.append(new)
        return used[index]

    for place in places:
        old, new = main.operators[place], schema.OperatorT()
        vars(new).update(vars(old))
        model.operatorCodes.append(flat.model.operatorCodes[old.opcodeIndex])
        new.opcodeIndex = len(model.operatorCodes) - 1
        new.inputs = [tensor(int(one)) for one in old.inputs]
        new.outputs = [tensor(int(one)) for one in old.outputs]
        sub.operators.append(new)
    feeds = {index: used[index] for index in made[0].reads}
    gives = {value.index: used[value.index] for value in made}
    sub.inputs, sub.outputs = list(feeds.values()), list(gives.values())
    model.subgraphs = [sub]
    return type(flat)(path=flat.path, model=model, content=flat.content).packed(), feeds, gives


def _with_what_is_fixed(graph: Graph, place: int) -> list[int]:
    """Return an operator behind those that compute its constants, in order."""
    found: set[int] = set()
    waiting: Collection[int] = [place]
    while waiting:
        found.update(waiting)
        reads = {int(one) for here in waiting for one in graph.flat.main.operators[here].inputs}
        waiting = {graph.fixed[one] for one in reads if one in graph.fixed} - found
    return sorted(found)
