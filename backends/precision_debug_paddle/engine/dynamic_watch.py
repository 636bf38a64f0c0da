"""Names what a run of a dynamic-graph model makes, and shows it: operators, sublayers, and the steps of training.

AMP casts inside the operators, so both modes make the same calls, and a name counts the calls of one operator in one
sublayer: ``encoder.fc1/linear``, ``/linear#2``. In a training step what belongs to the backward pass and to the
optimiser has these words before it: ``optimiser/encoder.fc1.weight/adamw``.
"""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from precision_debug.numbers.narrowing import narrow_type, round_values
from precision_debug.records import TensorMeta
from precision_debug.settings.setting import BACKWARD, FORWARD, OPTIMISER

from .. import naming
from ..reasons import say
from .dynamic_calls import watch_calls
from .framework import import_paddle, memory_of
from .training.backward import Backward

__all__ = ["Show", "Watch", "iterate_leaves", "round_as_type"]

Show = Callable[[TensorMeta, Any], Any]
"""Told of each tensor; returns an array that the run goes on with in its place, or None."""


class Watch:
    """Of one run, entered while it goes. arguments: the tensors that it is fed. step: whether it is a training step.

    failures: what a hook raised. calls: by a tensor's name, the operator's type with the parameters and plain values
    that it was given.
    """

    def __init__(
        self, module: Any, show: Show, arguments: Collection[Any], *, step: bool = False, scale: float = 1.0,
        closed: Collection[str] = (),
    ) -> None:  # fmt: skip
        self._module, self._show = module, show
        self._stack: list[str] = []
        self._counts: collections.Counter[str] = collections.Counter()
        self._metas: dict[str, TensorMeta] = {}
        self._names: dict[int, str] = {}
        self._held: list[Any] = []  # so that no id and no memory is given twice
        known = [*arguments, *module.parameters(), *module.buffers()]
        self._held += known
        self._known = {id(tensor) for tensor in known}
        self._constant = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
        self._deep = 0
        self._step, self._scale, self.phase = step, scale, FORWARD
        self._parameters = dict(module.named_parameters()) if step else {}
        self._owners = {memory_of(one): name for name, one in self._parameters.items()}
        self._at: dict[int, str] = {}
        self._within: list[str] = []
        self._contexts: list[Any] = []
        self._backward = Backward(self, closed)
        self._exits = contextlib.ExitStack()
        self.failures: list[BaseException] = []
        self.calls: dict[str, tuple[str, Any]] = {}

    def listed(self) -> tuple[TensorMeta, ...]:
        """Return what was shown, and what was not."""
        return tuple(self._metas.values())

    @property
    def closed(self) -> Collection[str]:
        """See ``Backward.closed``."""
        return self._backward.closed

    def __enter__(self) -> Watch:
        self._exits.enter_context(watch_calls(self))
        for path, layer in self._module.named_sublayers(include_self=True):
            for hook in (
                layer.register_forward_pre_hook(self._entering(path)),
                layer.register_forward_post_hook(self._leaving(path, type(layer).__name__)),
            ):
                self._exits.callback(hook.remove)
        return self

    def __exit__(self, *error: object) -> None:
        self._exits.close()
        self._backward.end()

    # what is told by dynamic_calls

    def called(self, op_type: str, function: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator, and show what it returned unless another operator called it."""
        self._deep += 1
        try:
            result = function(*args, **kwargs)
        finally:
            self._deep -= 1
        if not self._deep:
            kind = op_type if self.phase == OPTIMISER else op_type.rstrip("_")
            if kind == "pool2d" and any(isinstance(one, str) and one == "max" for one in args):
                kind = "max_pool2d"  # which chooses, as the average does not
            made = args[0] if op_type == "setitem" else result
            scope = self._scope((args, kwargs)) if self.phase != OPTIMISER else ""
            self._returned(kind, f"{scope}/{op_type.rstrip('_')}", made, (args, kwargs))
        return result

    def applied(self, kind: str, function: Any, args: Any, kwargs: Any) -> Any:
        """Run a PyLayer, and show what it returned after what it called."""
        if self._deep:
            return function(*args, **kwargs)
        before = len(self._contexts)
        result = function(*args, **kwargs)
        name = self._returned(kind, f"{self._scope((args, kwargs))}/{kind}", result, (args, kwargs))
        if name and len(self._contexts) > before:
            self._backward.applied(self._contexts[before], [tensor for _, tensor in iterate_leaves(result, "")])
        return result

    def context_made(self, context: Any) -> None:
        """See dynamic_calls."""
        self._contexts.append(context)

    def goes_back(self, tensors: Sequence[Any], gradients: Sequence[Any] | None) -> None:
        """See dynamic_calls."""
        if self._step:
            with self.quiet():
                self._backward.begin(tensors, gradients)

    def went_back(self, context: Any, function: Any, gradients: Sequence[Any]) -> Any:
        """Run a PyLayer's backward, whose operators are rows of their own, and show what it returned."""
        owner = self._backward.owner_of(context)
        if not self._step or not owner:
            return function(context, *gradients)
        gradients = self._backward.given(context, gradients)
        self._within.append(owner)
        try:
            result = function(context, *gradients)
        finally:
            self._within.pop()
        return self._backward.returned(context, result)

    # rows

    @contextlib.contextmanager
    def quiet(self) -> Iterator[None]:
        """What is called inside is not the model's."""
        self._deep += 1
        try:
            yield
        finally:
            self._deep -= 1

    def begin(self, phase: str) -> None:
        """The next phase begins."""
        self.phase = phase

    def gradients_made(self) -> None:
        """The backward pass has ended: each parameter's gradient is its own from here on."""
        for name, one in self._parameters.items():
            if one.grad is not None and not one.grad.is_selected_rows():
                gradient = one.grad
                self._held.append(gradient)
                self._owners[memory_of(gradient)] = f"{name}.grad"
                rows = self._backward.sources_of(one)
                if len(rows) == 1:
                    self._at[memory_of(gradient)] = rows[0]

    @contextlib.contextmanager
    def inside(self, scope: str) -> Iterator[None]:
        """What is called inside stands in this scope."""
        self._stack.append(scope)
        try:
            yield
        finally:
            self._stack.pop()

    def row_of(self, tensor: Any) -> str:
        """Return the name of the row that a tensor has; "": none."""
        name = self._names.get(id(tensor), "")
        return name if name or not self._step else self._at.get(memory_of(tensor), "")

    def meta_of(self, name: str) -> TensorMeta | None:
        """Return a row that was there before."""
        return self._metas.get(name)

    def is_leaf(self, tensor: Any) -> bool:
        """Return whether a tensor was there before the run."""
        return id(tensor) in self._known

    def name_once(self, name: str) -> str:
        """Return a name with the number of times that it was asked for."""
        self._counts[name] += 1
        return name if self._counts[name] == 1 else f"{name}#{self._counts[name]}"

    def row(
        self, name: str, op_type: str, tensor: Any, inputs: Collection[str], *, node: str = "", is_output: bool = False,
        phase: str = "",
    ) -> Any:  # fmt: skip
        """Show a tensor under a name; returns what the run goes on with in its place, or None."""
        facts: dict[str, Any] = {"phase": phase or self.phase, "scaled": self._scale} if self._step else {}
        if self._step and node:
            facts["extra"] = {"Phase": facts["phase"]}
        meta = TensorMeta(
            name=name, op_type=op_type, node=node, dtype=str(tensor.dtype).removeprefix("paddle."),
            shape=tuple(tensor.shape), inputs=tuple(dict.fromkeys(inputs)), is_output=is_output, **facts,
        )  # fmt: skip
        self.hold(tensor, name)
        self._metas[name] = meta
        try:
            with self.quiet(), import_paddle().no_grad():
                return self._show(meta, tensor)
        except BaseException as error:
            self.failures.append(error)
            raise

    def tensor_like(self, values: Any, like: Any) -> Any:
        """Return values as a tensor of another one's type and place, which is no operator of the model's."""
        with self.quiet(), import_paddle().no_grad():
            return make_tensor(values, like)

    def hold(self, tensor: Any, name: str) -> None:
        """A tensor is the row of this name from here on."""
        self._held.append(tensor)
        self._names[id(tensor)] = name
        if self._step:
            self._at[memory_of(tensor)] = name

    def unseen_row(self, name: str, op_type: str, reason: Any) -> None:
        """A row that cannot be shown."""
        phase = self.phase if self._step else ""
        self._metas[name] = TensorMeta(name=name, op_type=op_type, unseen=reason, phase=phase)

    def outputs(self, made: Mapping[str, Any], copied: Mapping[str, Any]) -> dict[str, Any]:
        """Return rows of what a step gave, and what it goes on with in their place. copied: what some are copies of."""
        found = {}
        for name, tensor in made.items():
            kind, _, parameter = name.partition("/")
            phase = {"loss": FORWARD, "gradient": BACKWARD}.get(kind, OPTIMISER)
            if kind == "gradient":
                sources = self._backward.sources_of(self._parameters[parameter])
            elif kind == "update":
                sources = [self.row_of(self._parameters[parameter])]
            else:
                sources = [self.row_of(copied.get(name, tensor))]
            known = [one for one in sources if one in self._metas and one != name]
            new = self.row(name, "Output", tensor, known, is_output=True, phase=phase)
            found[name] = tensor if new is None else self.tensor_like(new, tensor)
        return found

    def _scope(self, arguments: Any) -> str:
        """Where an operator on these arguments stands."""
        if self.phase == FORWARD or self._stack:
            inside = self._stack[-1] if self._stack else ""
            return inside if self.phase == FORWARD else f"{self.phase}/{inside}"
        if self._within:
            return f"{BACKWARD}/{self._within[-1]}"
        owner = self._owner_of(arguments)
        return f"{self.phase}/{owner}" if owner else self.phase

    def _owner_of(self, arguments: Any) -> str:
        """Return the parameter that the first of some tensors belongs to, where one does."""
        places = [memory_of(one) for _, one in iterate_leaves(arguments, "")]
        return next((self._owners[at] for at in places if at in self._owners), "")

    def _entering(self, path: str) -> Any:
        def enter(_layer: Any, _inputs: Any) -> None:
            self._stack.append(path)

        return enter

    def _leaving(self, path: str, kind: str) -> Any:
        def leave(_layer: Any, inputs: Any, result: Any) -> None:
            self._stack.pop()
            shown = [self._metas.get(self._names.get(id(tensor), "")) for _, tensor in iterate_leaves(result, "")]
            if (path or self._step) and all(meta is not None and not meta.unseen for meta in shown):
                return
            tensors = result if not path else inputs  # a layer gives what an operator in it made
            self._returned(kind, path or "output", result, (tensors,), is_call=False)

        return leave

    def _input(self, tensor: Any, reader: str) -> str:
        """Return the name of a tensor that an operator reads; one that was never shown is listed as such; "": a
        constant."""
        known = self.row_of(tensor)
        if known or self.phase != FORWARD or (self._step and tensor.stop_gradient):
            return known  # labels, an optimiser's rate and its states are constants of the step
        count = sum(name.startswith(f"{reader}<") for name in self._metas)
        name = f"{reader}<{count}"
        self._held.append(tensor)
        self._names[id(tensor)] = name
        self._metas[name] = TensorMeta(
            name=name, op_type="tensor method", dtype=str(tensor.dtype).removeprefix("paddle."),
            shape=tuple(tensor.shape), unseen=say("method"),
        )  # fmt: skip
        return name

    def _returned(self, op_type: str, name: str, result: Any, arguments: Any, *, is_call: bool = True) -> str:
        """Show what a call returned; returns the name of the first of it, "" where there is none.

        is_call: of an operator or a PyLayer; arguments are then args and kwargs."""
        found = list(iterate_leaves(result, ""))
        if op_type in naming.ONE_OUTPUT:
            found = [("", tensor) for _, tensor in found[:1]]
        found = [(place, tensor) for place, tensor in found if tensor._is_initialized() and tensor.size]
        if not found:
            return ""
        if self.phase == OPTIMISER:
            return self._optimised(op_type, name, found, arguments)
        base = self.name_once(name.lstrip("/"))
        read = [tensor for _, tensor in iterate_leaves(arguments, "") if id(tensor) not in self._known]
        inputs = [one for one in (self._input(tensor, base) for tensor in read) if one]
        rows = []
        for place, tensor in found:
            own = f"{base}{place}"
            if len(found) > 1 and (owner := self._owners.get(memory_of(tensor), "") if self.phase == BACKWARD else ""):
                own = self.name_once(f"{BACKWARD}/{owner}/{op_type}")  # of an operator on many gradients
            node = self._stack[-1] if self._stack else ""
            new = self.row(own, op_type, tensor, inputs, node=node, is_output=base == "output" and not self._step)
            self.calls[own] = op_type, _keep_constants(arguments, self._constant)
            _put(self, tensor, new)
            rows.append((own, tensor))
            self._follow(tensor, arguments)
        if self._step and is_call:
            self._backward.called(rows, arguments)
        return f"{base}{found[0][0]}"

    def _optimised(self, op_type: str, name: str, found: Sequence[tuple[str, Any]], arguments: Any) -> str:
        """Return rows of an operator of the optimiser's, each by the parameter that it belongs to, itself the last.

        One that reads nothing of the step makes a constant, a state as it begins or a rate, and has none."""
        inputs = [self.row_of(tensor) for _, tensor in iterate_leaves(arguments, "")]
        if not any(inputs) and not self._owner_of(arguments):
            return ""
        own = {memory_of(one) for one in self._parameters.values()}
        for _, tensor in sorted(found, key=lambda one: memory_of(one[1]) in own):
            self._follow(tensor, arguments)
            owner = self._owners.get(memory_of(tensor), "").removesuffix(".grad")
            full = self.name_once("/".join(one for one in (OPTIMISER, owner, name.lstrip("/")) if one))
            new = self.row(full, op_type, tensor, [one for one in inputs if one])
            _put(self, tensor, new)
        return ""

    def _follow(self, tensor: Any, arguments: Any) -> None:
        """What the optimiser makes of a parameter's tensors is that parameter's."""
        if not self._step or self.phase == FORWARD or self._within or self._stack:
            return
        owner = self._owner_of(arguments)
        if owner:
            self._owners.setdefault(memory_of(tensor), owner)


def iterate_leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Yield tensors in a nest of lists and dicts, with where they are: "name", "name[0]", "name.key"."""
    if isinstance(value, import_paddle().Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from iterate_leaves(item, f"{name}.{key}")
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from iterate_leaves(item, f"{name}[{place}]")


def round_as_type(array: Any, dtype: str) -> Any:
    """Return an array as a tensor of a type holds it, in the array's own type; finite numbers stay finite."""
    return round_values(array, narrow_type(dtype)) if dtype in {"bfloat16", "float16", "float32"} else array


def make_tensor(values: Any, like: Any) -> Any:
    """Return values as a tensor of another one's type and place, rounded to it."""
    held = np.asarray(values)
    held = held.astype(np.float32) if held.dtype.kind == "V" or held.dtype.name == "bfloat16" else held
    held = round_as_type(held, str(like.dtype).removeprefix("paddle.")) if held.dtype.kind == "f" else held
    whole = np.ascontiguousarray(held).reshape(held.shape)  # which makes a number an array of one
    return import_paddle().to_tensor(whole, place=like.place).astype(like.dtype)


def _put(watch: Watch, tensor: Any, values: Any) -> None:
    """Copy values into a tensor; None, and those of another shape, are left."""
    if values is None or tuple(np.shape(values)) != tuple(tensor.shape):
        return
    with watch.quiet(), import_paddle().no_grad():
        tensor.copy_(make_tensor(values, tensor), True)


def _keep_constants(value: Any, constant: Collection[int]) -> Any:
    """Return what an operator was given, without the tensors that were computed: they are not to outlive the run."""
    if isinstance(value, import_paddle().Tensor):
        return value if id(value) in constant else None
    if isinstance(value, Mapping):
        return {key: _keep_constants(item, constant) for key, item in value.items()}
    return [_keep_constants(item, constant) for item in value] if isinstance(value, (list, tuple)) else value
