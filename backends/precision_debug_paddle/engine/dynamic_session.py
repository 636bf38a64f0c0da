"""A session on a dynamic-graph nn.Layer: each operator that Python calls, and each sublayer, is shown as it returns.

Paddle has no hook for operators in dynamic graphs. ``paddle._C_ops`` holds one function for each, which its own layers
and functions call by attribute, so they are wrapped there while the layer runs. Arithmetic that a tensor's own methods
do (``x + y``) stays in C++ and is seen in what the sublayer returns. AMP casts inside the operators, so both modes make
the same calls, and a name counts the calls of one operator in one sublayer: ``encoder.fc1/linear``, ``/linear#2``.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import importlib
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from precision_debug.errors import BackendError, InputError
from precision_debug.inspector import EngineLayer
from precision_debug.numbers.narrowing import narrow_type, rounded
from precision_debug.protocols import Feeds, Hook, Replace, Replacer
from precision_debug.reasons import Reason
from precision_debug.records import Doubt, Operator, TensorMeta

from .. import naming
from ..failures import our_errors
from ..modes import Recipe
from ..reasons import say
from .dynamic_model import Layer
from .framework import paddle_module
from .predictor import decoded

__all__ = ["DygraphSession"]

Show = Callable[[TensorMeta, Any], None]


class DygraphSession:
    """layer: as its author built it; a copy is cast and run. feeds: for listing the tensors before the first run."""

    doubts: Sequence[Doubt] = ()
    layers: Sequence[EngineLayer] = ()
    alone = arithmetic = ""

    def __init__(
        self, layer: Layer, recipe: Recipe, *, versions: Mapping[str, str], feeds: Feeds | None, device: str
    ) -> None:
        paddle = paddle_module()
        self.versions = versions
        self.notes: Sequence[Reason] = (say("dynamic_shown"),)
        self._layer, self._recipe = layer, recipe
        self._place = paddle.CUDAPlace(0) if device == "gpu" else paddle.CPUPlace()
        self._metas: tuple[TensorMeta, ...] | None = None
        self._calls: Mapping[str, tuple[str, Any]] = {}
        self._feeds = feeds
        with our_errors(layer.path, mode=recipe.mode.name):
            module = copy.deepcopy(layer.module)
            module.to(device=self._place, dtype=None if recipe.amp else recipe.precision)
            if recipe.amp == "O2":
                module = paddle.amp.decorate(models=module, level="O2", dtype=recipe.precision)
        self._module: Any = module
        self._module.eval()

    @property
    def tensors(self) -> Sequence[TensorMeta]:
        """Before the first run, asking takes a run on the feeds of ``open``."""
        if self._metas is None and self._feeds is not None:
            self._execute(self._feeds, lambda _meta, _tensor: None)
        return self._metas or ()

    def run(self, feeds: Feeds, hook: Hook | None = None, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """Outputs: "output", or "output[0]", "output.key" where the layer returns several."""

        def show(meta: TensorMeta, tensor: Any) -> None:
            if hook is not None and (names is None or meta.name in names):
                hook(meta.op_type, meta.name, _array(tensor))

        outputs = self._execute(feeds, show if hook is not None else None)
        return {name: _array(tensor) for name, tensor in outputs.items()}

    @property
    def replacer(self) -> Replacer:
        return self

    @property
    def replaces(self) -> bool:
        """See protocols.Replacer: a tensor is Python's, and takes what is copied into it."""
        return True

    def run_replacing(self, feeds: Feeds, replace: Replace, names: Collection[str] | None = None) -> Mapping[str, Any]:
        """See protocols.Replacer."""

        def show(meta: TensorMeta, tensor: Any) -> None:
            if names is not None and meta.name not in names:
                return
            new = replace(meta.op_type, meta.name, _array(tensor))
            if new is not None and tuple(np.shape(new)) == tuple(tensor.shape):
                _put(tensor, np.asarray(new))

        outputs = self._execute(feeds, show)
        return {name: _array(tensor) for name, tensor in outputs.items()}

    def held(self, name: str, value: Any) -> Any:
        """See protocols.Replacer."""
        meta = next((meta for meta in self._metas or () if meta.name == name), None)
        array = np.asarray(value)
        return None if meta is None else array if array.dtype.kind != "f" else _rounded(array, meta.dtype)

    def operator(self, name: str) -> Operator | None:
        """See protocols.Replacer."""
        call = self._calls.get(name)
        if call is None or self._module is None:
            return None
        op_type, arguments = call
        held = {id(tensor): key for key, tensor in self._module.state_dict().items()}
        parameters = {held[id(tensor)]: _array(tensor) for _, tensor in _leaves(arguments, "") if id(tensor) in held}
        return Operator(op_type=op_type, attributes=dict(_plain(arguments, "")), parameters=parameters)

    def close(self) -> None:
        self._module = None
        self._calls = {}

    def _execute(self, feeds: Feeds, show: Show | None) -> dict[str, Any]:
        paddle = paddle_module()
        if self._module is None:
            raise BackendError("the session is closed", where=self._layer.path, hint="open it again")
        arguments = self._arguments(feeds)
        watch: Any = _Watch(self._module, show, arguments.values()) if show is not None else contextlib.nullcontext()
        amp: Any = contextlib.nullcontext()
        if self._recipe.amp:
            amp = paddle.amp.auto_cast(True, level=self._recipe.amp, dtype=self._recipe.precision)
        try:
            with our_errors(self._layer.path, mode=self._recipe.mode.name), paddle.no_grad(), watch as seen, amp:
                result = self._module(**arguments)
        except Exception:
            if show is not None and watch.failures:
                raise watch.failures[0] from None  # what a hook raises reaches the caller as it is
            raise
        outputs = dict(_leaves(result, "output"))
        if seen is not None:
            self._metas, self._calls = seen.listed(), seen.calls
        return outputs

    def _arguments(self, feeds: Feeds) -> dict[str, Any]:
        paddle = paddle_module()
        known = [*self._layer.arguments] or [meta.name for meta in self._layer.guessed]
        unknown = sorted(set(feeds) - set(known))
        if unknown:
            raise InputError(
                f"forward has no input {unknown[0]}", where=self._layer.path, hint=f"its inputs: {' '.join(known)}"
            )
        missing = [name for name in self._layer.names if name not in feeds]
        if missing:
            raise InputError(f"no value for input {missing[0]}", where=self._layer.path, hint="give it with --inputs")
        tensors = {
            name: paddle.to_tensor(np.asarray(feeds[name]), place=self._place) for name in known if name in feeds
        }
        if self._recipe.amp:
            return tensors
        return {
            name: tensor.astype(self._recipe.precision) if tensor.is_floating_point() else tensor
            for name, tensor in tensors.items()
        }


class _Watch:
    """Wraps the operators and the sublayers while it is entered, and names what they return."""

    def __init__(self, module: Any, show: Show, arguments: Collection[Any]) -> None:
        self._module, self._show = module, show
        self._stack: list[str] = []
        self._counts: collections.Counter[str] = collections.Counter()
        self._metas: dict[str, TensorMeta] = {}
        self._names: dict[int, str] = {}
        self._held: list[Any] = []  # so that no id is given twice
        known = [*arguments, *module.parameters(), *module.buffers()]
        self._held += known
        self._known = {id(tensor) for tensor in known}
        self._constant = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
        self._hooks: list[Any] = []
        self._outer: _Watch | None = None
        self._deep = 0
        self.failures: list[BaseException] = []
        self.calls: dict[str, tuple[str, Any]] = {}  # operator type; parameters and plain values that it was given

    def listed(self) -> tuple[TensorMeta, ...]:
        """What was shown, and what was not."""
        return tuple(self._metas.values())

    def __enter__(self) -> _Watch:
        _wrap_operators()
        self._outer = getattr(_HERE, "watch", None)
        _HERE.watch = self
        for path, layer in self._module.named_sublayers(include_self=True):
            self._hooks.append(layer.register_forward_pre_hook(self._entering(path)))
            self._hooks.append(layer.register_forward_post_hook(self._leaving(path, type(layer).__name__)))
        return self

    def __exit__(self, *error: object) -> None:
        _HERE.watch = self._outer
        _unwrap_operators()
        for hook in self._hooks:
            hook.remove()

    def called(self, op_type: str, function: Any, args: Any, kwargs: Any) -> Any:
        """Run an operator, and show what it returned unless another operator called it."""
        self._deep += 1
        try:
            result = function(*args, **kwargs)
        finally:
            self._deep -= 1
        if not self._deep:
            kind = op_type.rstrip("_")
            self._returned(kind, f"{self._stack[-1] if self._stack else ''}/{kind}", result, (args, kwargs))
        return result

    def _entering(self, path: str) -> Any:
        def enter(_layer: Any, _inputs: Any) -> None:
            self._stack.append(path)

        return enter

    def _leaving(self, path: str, kind: str) -> Any:
        def leave(_layer: Any, inputs: Any, result: Any) -> None:
            self._stack.pop()
            shown = [self._metas.get(self._names.get(id(tensor), "")) for _, tensor in _leaves(result, "")]
            if path and all(meta is not None and not meta.unseen for meta in shown):
                return
            tensors = result if not path else inputs  # a layer gives what an operator in it made
            self._returned(kind, path or "output", result, tensors)

        return leave

    def _input(self, tensor: Any, reader: str) -> str:
        """The name of a tensor that an operator reads; one that was never shown is listed as such."""
        if id(tensor) not in self._names:
            count = sum(name.startswith(f"{reader}<") for name in self._metas)
            name = f"{reader}<{count}"
            self._held.append(tensor)
            self._names[id(tensor)] = name
            self._metas[name] = TensorMeta(
                name=name, op_type="tensor method", dtype=str(tensor.dtype).removeprefix("paddle."),
                shape=tuple(tensor.shape), unseen=say("method"),
            )  # fmt: skip
        return self._names[id(tensor)]

    def _returned(self, op_type: str, name: str, result: Any, arguments: Any) -> None:
        found = list(_leaves(result, ""))
        if op_type in naming.ONE_OUTPUT:
            found = [("", tensor) for _, tensor in found[:1]]
        if not found:
            return
        self._counts[name] += 1
        base = name.lstrip("/") if self._counts[name] == 1 else f"{name.lstrip('/')}#{self._counts[name]}"
        inputs = tuple(
            dict.fromkeys(
                self._input(tensor, base) for _, tensor in _leaves(arguments, "") if id(tensor) not in self._known
            )
        )
        for place, tensor in found:
            if not tensor._is_initialized() or not tensor.size:
                continue
            own = f"{base}{place}"
            meta = TensorMeta(
                name=own, op_type=op_type, node=self._stack[-1] if self._stack else "",
                dtype=str(tensor.dtype).removeprefix("paddle."), shape=tuple(tensor.shape), inputs=inputs,
                is_output=base == "output",
            )  # fmt: skip
            self._held.append(tensor)
            self._names[id(tensor)] = own
            self._metas[own] = meta
            self.calls[own] = op_type, _kept(arguments, self._constant)
            try:
                self._show(meta, tensor)
            except BaseException as error:
                self.failures.append(error)
                raise


_HERE = threading.local()  # watch: what this thread's run is shown to
_LOCK = threading.Lock()
_PLAIN: dict[str, Any] = {}
_users = 0


def _wrap_operators() -> None:
    """Operators are wrapped for all threads, as they are functions of a module; only a watching thread shows any."""
    global _users  # noqa: PLW0603
    operators = importlib.import_module("paddle._C_ops")
    with _LOCK:
        _users += 1
        if _users > 1:
            return
        found = {name: item for name, item in vars(operators).items() if callable(item) and not name.startswith("_")}
        _PLAIN.update(found)
        for name, function in found.items():
            setattr(operators, name, _wrapped(name, function))


def _unwrap_operators() -> None:
    global _users  # noqa: PLW0603
    operators = importlib.import_module("paddle._C_ops")
    with _LOCK:
        _users -= 1
        if not _users:
            for name, function in _PLAIN.items():
                setattr(operators, name, function)
            _PLAIN.clear()


def _wrapped(name: str, function: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        watch: _Watch | None = getattr(_HERE, "watch", None)
        return function(*args, **kwargs) if watch is None else watch.called(name, function, args, kwargs)

    return call


def _leaves(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Tensors in a nest of lists and dicts, with where they are: "name", "name[0]", "name.key"."""
    if isinstance(value, paddle_module().Tensor):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{name}.{key}")
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from _leaves(item, f"{name}[{place}]")


def _kept(value: Any, constant: Collection[int]) -> Any:
    """What an operator was given, without the tensors that were computed: they are not to outlive the run."""
    if isinstance(value, paddle_module().Tensor):
        return value if id(value) in constant else None
    if isinstance(value, Mapping):
        return {key: _kept(item, constant) for key, item in value.items()}
    return [_kept(item, constant) for item in value] if isinstance(value, (list, tuple)) else value


def _plain(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    """Numbers and texts in a nest of lists and dicts, with where they are."""
    if isinstance(value, (bool, int, float, str)):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _plain(item, f"{name}.{key}".strip("."))
    elif isinstance(value, (list, tuple)):
        for place, item in enumerate(value):
            yield from _plain(item, f"{name}[{place}]")


def _rounded(array: Any, dtype: str) -> Any:
    """An array as a tensor of a type holds it, in the array's own type; finite numbers stay finite."""
    return rounded(array, narrow_type(dtype)) if dtype in {"bfloat16", "float16"} else array


def _put(tensor: Any, values: Any) -> None:
    """Copy values into a tensor, rounded to its type."""
    held = np.asarray(values, np.float32) if values.dtype.kind == "V" or values.dtype.name == "bfloat16" else values
    dtype = str(tensor.dtype).removeprefix("paddle.")
    held = _rounded(held, dtype) if held.dtype.kind == "f" else held
    tensor.copy_(paddle_module().to_tensor(np.ascontiguousarray(held), place=tensor.place).astype(tensor.dtype), True)


def _array(tensor: Any) -> Any:
    return decoded(np.asarray(tensor.numpy()), str(tensor.dtype))
