"""Shows what a backward pass makes: each gradient that a node of Paddle's graph returns, as the node has run.

A node is the backward of one operator, and is named by the forward row that made it: ``backward/fc/linear/matmul_grad``
is the gradient of the operator's first differentiable input, ``…[1]`` that of the second. Seen in runs of Paddle 3.3.1:

- ``grad_fn._register_post_hook`` is called with what a node returned, and takes others in its place. It cannot return
  those of a node that has a list of inputs (concat), and reads memory that is not its own where it is given them: such
  nodes are closed, and what arrives at each of these inputs is shown by ``Tensor.register_hook``.
- The node of a PyLayer calls no such hook, and passes over what ``Tensor.register_hook`` of its results returns; its
  ``backward`` is Python's, and is wrapped (see dynamic_calls).
- ``next_functions`` lists where a node's gradients go, in the order in which it returns them.
- What several readers of one tensor return is added up before its node runs: ``Tensor.register_hook`` is called with
  the sum, which is a row of its own.
"""

from __future__ import annotations

import collections
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import numpy as np

from precision_debug.errors import BackendUnavailable
from precision_debug.reasons import Reason
from precision_debug.records import TensorMeta
from precision_debug.settings.setting import BACKWARD

from ...reasons import say
from ..framework import import_paddle

__all__ = ["Backward"]


class Rows(Protocol):
    """Where a run's tensors are shown and named: see dynamic_watch.Watch."""

    def row(self, name: str, op_type: str, tensor: Any, inputs: Collection[str]) -> Any:
        """Show a tensor; returns what the run goes on with in its place, or None."""

    def unseen_row(self, name: str, op_type: str, reason: Reason) -> None:
        """A tensor that cannot be shown."""

    def hold(self, tensor: Any, name: str) -> None:
        """A tensor is the row of this name from here on."""

    def row_of(self, tensor: Any) -> str:
        """Return its name; "": it has none."""

    def meta_of(self, name: str) -> TensorMeta | None:
        """Return a row that was shown before."""

    def name_once(self, name: str) -> str:
        """Return a name with the number of times that it was asked for."""

    def tensor_like(self, values: Any, like: Any) -> Any:
        """Return values as a tensor of another one's type and place."""


_LEAF, _PY_LAYER = "GradNodeAccumulation", "GradNodePyLayer_"

_NAME = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Backward:
    """Of one run. closed: kinds of nodes whose gradients a hook cannot return; a run that meets another one ends."""

    def __init__(self, watch: Rows, closed: Collection[str]) -> None:
        self.closed = set(closed)
        self._watch = watch
        self._nodes: dict[int, Any] = {}  # held, so that no address is given twice
        self._owner: dict[int, str] = {}  # node to the forward row that made it
        self._made: dict[int, list[tuple[str, Any]]] = {}  # node to its rows, with their tensors
        self._reads: collections.Counter[int] = collections.Counter()  # by the tensor's id
        self._read: dict[int, Any] = {}  # those tensors, held, so that no id is given twice
        self._shut: set[int] = set()
        self._base: dict[int, str] = {}
        self._next: dict[int, list[int]] = {}
        self._arrived: dict[int, list[str]] = collections.defaultdict(list)
        self._fed_by_shut: dict[int, list[tuple[int, int]]] = collections.defaultdict(list)
        self._contexts: dict[int, int] = {}  # PyLayer's context to its node
        self._hooks: list[Any] = []

    def end(self) -> None:
        """The run has ended: nothing of its graph is held."""
        for hook in self._hooks:
            hook.remove()
        for held in (self._hooks, self._nodes, self._made, self._read, self._contexts):
            held.clear()

    # forward

    def called(self, rows: Sequence[tuple[str, Any]], arguments: tuple[Any, Any]) -> None:
        """An operator has run. rows: what it returned, by their names."""
        if not any(_is_learning(tensor) for _, tensor in rows):
            return  # inside a PyLayer nothing is kept for the backward pass
        made = {id(tensor) for _, tensor in rows}
        args, kwargs = arguments
        for value in (*args, *kwargs.values()):
            several = isinstance(value, (list, tuple))
            learning = [one for one in (value if several else [value]) if _is_learning(one) and id(one) not in made]
            self._reads.update(id(one) for one in learning)
            self._read.update((id(one), one) for one in learning)
            if several and learning:
                self._shut.update(_address(tensor) for _, tensor in rows if _is_learning(tensor))
        for name, tensor in rows:
            if _is_learning(tensor):
                address = _address(tensor)
                self._nodes.setdefault(address, tensor.grad_fn)
                self._owner.setdefault(address, name)
                self._made.setdefault(address, []).append((name, tensor))

    def applied(self, context: Any, result: Sequence[Any]) -> None:
        """A PyLayer has run, and returned these tensors."""
        node = next((_address(one) for one in result if _is_learning(one)), None)
        if node is not None:
            self._contexts[id(context)] = node

    # where it begins

    def begin(self, tensors: Sequence[Any], gradients: Sequence[Any] | None) -> None:
        """A pass begins. gradients: of the tensors; None, and None in it: ones."""
        starts = [one for one in tensors if _is_learning(one)]
        for place, tensor in enumerate(starts):
            if gradients is None or len(gradients) <= place or gradients[place] is None:
                name = self._watch.name_once(f"{BACKWARD}/ones_like")
                self._hooks.append(tensor.register_hook(self._shows(name, "ones_like", _address(tensor))))
        fresh = self._walk([tensor.grad_fn for tensor in starts])
        for address in fresh:
            for place, target in enumerate(self._next[address] if address in self._shut else ()):
                self._fed_by_shut[target].append((address, place))
        for address in fresh:
            self._hook(address)

    def _walk(self, starts: Sequence[Any]) -> list[int]:
        """Return nodes that were not met before, with their names and where their gradients go."""
        found: list[int] = []
        waiting = collections.deque(starts)
        while waiting:
            node = waiting.popleft()
            address = node.node_ptr()
            if address in self._next:
                continue
            self._nodes[address] = node
            following = [one for one in node.next_functions if one is not None]
            self._next[address] = [one.node_ptr() for one in following]
            if node.name() == _LEAF:
                continue
            found.append(address)
            kind = _kind(node.name())
            if kind in self.closed:
                self._shut.add(address)
            owner = self._owner.setdefault(address, "").removeprefix(f"{BACKWARD}/")
            self._base[address] = self._watch.name_once("/".join(one for one in (BACKWARD, owner, kind) if one))
            for one in following:  # what an operator is made of inside has no row: it is its reader's
                if one.name() != _LEAF:
                    self._owner.setdefault(one.node_ptr(), self._owner[address])
            waiting.extend(following)
        return found

    def _hook(self, address: int) -> None:
        node = self._nodes[address]
        if node.name().startswith(_PY_LAYER):
            return
        shut = self._fed_by_shut.get(address, ())
        for name, tensor in self._made.get(address, ()):
            if self._watch.row_of(tensor) != name or not (self._reads[id(tensor)] > 1 or shut):
                continue  # an operator in place has another node since
            if self._reads[id(tensor)] == 1 and len(shut) == 1 and len(self._made[address]) == 1:
                from_node, place = shut[0]
                full, kind = f"{self._base[from_node]}[{place}]", _kind(self._nodes[from_node].name())
            else:
                full, kind = self._watch.name_once(f"{BACKWARD}/{name.removeprefix(f'{BACKWARD}/')}"), "add"
            self._hooks.append(tensor.register_hook(self._shows(full, kind, address, arrives=True)))
        if address in self._shut:
            return
        if not hasattr(node, "_register_post_hook"):
            raise BackendUnavailable(
                "this Paddle does not show what a backward pass computes", where="--step",
                hint="use Paddle 3.3, or --step forward",
            )  # fmt: skip
        node._register_post_hook(self._returns(address))

    # while it goes

    def _returns(self, address: int) -> Callable[[Any, Any], list[Any]]:
        kind = _kind(self._nodes[address].name())

        def hook(outputs: Any, inputs: Any) -> list[Any]:
            if any(isinstance(one, (list, tuple)) for one in outputs):
                self.closed.add(kind)
                raise TypeError(f"the gradients of {kind} cannot be returned")
            given = None if isinstance(inputs[0], (list, tuple)) else tuple(inputs[0].shape)
            return self._rows(address, kind, list(outputs), self._sources(address), given)

        return hook

    def _rows(
        self, address: int, kind: str, outputs: list[Any], inputs: Sequence[str], given: tuple[int, ...] | None = None
    ) -> list[Any]:
        """Show what a node returned; returns what the pass goes on with. given: shape of the gradient it was given."""
        places = [place for place, one in enumerate(outputs) if one is not None and one._is_initialized()]
        rows = []
        for number, place in enumerate(places):
            name = self._base[address] if number == 0 else f"{self._base[address]}[{number}]"
            if outputs[place].is_selected_rows():
                self._watch.unseen_row(name, kind, say("sparse_gradient"))
            else:
                one = outputs[place]
                summed = kind == "add_grad" and given is not None and tuple(one.shape) != given
                outputs[place] = self._shown(name, "sum" if summed else kind, one, inputs)
            rows.append(name)
        self._give(address, rows)
        return outputs

    def _shown(self, name: str, kind: str, tensor: Any, inputs: Sequence[str]) -> Any:
        """Show a gradient; returns it, or what stands in its place, in memory of its own: gradients share theirs."""
        new = self._watch.row(name, kind, tensor, inputs)
        if new is None or tuple(np.shape(new)) != tuple(tensor.shape):
            return tensor
        put = self._watch.tensor_like(new, tensor)
        self._watch.hold(put, name)
        return put

    def _shows(self, name: str, kind: str, address: int, *, arrives: bool = False) -> Callable[[Any], Any]:
        """arrives: what is shown is what the node is given, in place of the rows that were added up."""

        def hook(gradient: Any) -> Any:
            if gradient.is_selected_rows():
                return None
            inputs = self._gradients(address)
            put = self._shown(name, kind, gradient, inputs)
            self._arrived[address] = [name]
            self._fed_by_shut.pop(address, None)
            return None if put is gradient else put

        return hook if arrives else lambda gradient: self._first(name, kind, address, gradient)

    def _first(self, name: str, kind: str, address: int, gradient: Any) -> Any:
        put = self._shown(name, kind, gradient, ())
        self._arrived[address].append(name)
        return None if put is gradient else put

    def _give(self, address: int, rows: Sequence[str]) -> None:
        """A node's gradients go where the graph says."""
        following = self._next.get(address, [])
        for place, target in enumerate(following):
            self._arrived[target] += [rows[place]] if len(rows) == len(following) else rows

    def _gradients(self, address: int) -> list[str]:
        """Return rows that what a node is given is made of."""
        found = [*self._arrived.get(address, ())]
        for shut, _ in self._fed_by_shut.get(address, ()):
            found += self._gradients(shut)
        return found

    def _sources(self, address: int) -> list[str]:
        """Return what a node reads: gradients, and the operator's inputs and results of the forward pass."""
        owner = self._owner.get(address, "")
        meta = self._watch.meta_of(owner)
        return [*self._gradients(address), *(() if meta is None else (*meta.inputs, owner))]

    # PyLayers

    def owner_of(self, context: Any) -> str:
        """Return the forward row of the PyLayer that a context is of; "": it is not known."""
        return self._owner.get(self._contexts.get(id(context), 0), "")

    def given(self, context: Any, gradients: Sequence[Any]) -> list[Any]:
        """Return the gradients that a PyLayer's backward begins with; shown where they are of no row that was."""
        address, found = self._contexts[id(context)], []
        rows = self._gradients(address)
        for one in gradients:
            known = not isinstance(one, import_paddle().Tensor) or self._watch.row_of(one) or not rows
            if known or len(rows) == 1:
                if not known:
                    self._watch.hold(one, rows[0])
                found.append(one)
                continue
            name = self._watch.name_once(f"{BACKWARD}/{self._owner[address].removeprefix(f'{BACKWARD}/')}")
            found.append(self._shown(name, "add", one, rows))
        return found

    def returned(self, context: Any, result: Any) -> Any:
        """A PyLayer's backward has ended; returns what the pass goes on with."""
        address = self._contexts[id(context)]
        several = isinstance(result, (list, tuple))
        parts = [*result] if several else [result]
        tensors = [one for one in parts if isinstance(one, import_paddle().Tensor)]
        inside = [name for one in tensors if (name := self._watch.row_of(one))]
        kind = _kind(self._nodes[address].name())
        shown = iter(self._rows(address, kind, tensors, inside or self._sources(address)))
        parts = [next(shown) if isinstance(one, import_paddle().Tensor) else one for one in parts]
        return tuple(parts) if several else parts[0]

    # parameters

    def sources_of(self, parameter: Any) -> list[str]:
        """Return rows that a parameter's gradient is the sum of."""
        node = parameter.grad_fn
        return [] if node is None else self._gradients(node.node_ptr())


def _is_learning(value: Any) -> bool:
    return isinstance(value, import_paddle().Tensor) and not value.stop_gradient and value.grad_fn is not None


def _address(tensor: Any) -> int:
    return int(tensor.grad_fn.node_ptr())


def _kind(node: str) -> str:
    """Return "MatmulGradNode" to Paddle's own name for that operator, "matmul_grad"; a PyLayer's to "Act.backward"."""
    if node.startswith(_PY_LAYER):
        return f"{node.removeprefix(_PY_LAYER)}.backward"
    plain = node.removesuffix("Final").removesuffix("GradNode")
    return f"{_NAME.sub('_', plain).lower()}_grad"
