"""Wraps what a dynamic-graph model calls, while a run is watched: operators, tensor methods, PyLayers, backward passes.

Paddle has no hook for operators in dynamic graphs. ``paddle._C_ops`` holds one function for each, which its own layers
and functions call by attribute, or have imported; arithmetic signs are methods of its Tensor; ``PyLayer.apply`` runs
somebody's own operator, whose backward is a method of a context. They are wrapped for all threads, as they belong to
modules and classes; a thread that watches nothing runs them as they are.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from .framework import import_paddle

__all__ = ["Watcher", "watch_calls"]


class Watcher(Protocol):
    """What the calls of a thread are told to; each method runs what it is given and returns its result."""

    def called(self, op_type: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return an operator, by Paddle's name for it."""

    def applied(self, kind: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Return a PyLayer, by its class's name."""

    def context_made(self, context: Any) -> None:
        """A PyLayer's context, of the one that is applied last."""

    def went_back(self, context: Any, function: Callable[..., Any], gradients: Sequence[Any]) -> Any:
        """Return the backward of the PyLayer that the context is of."""

    def goes_back(self, tensors: Sequence[Any], gradients: Sequence[Any] | None) -> None:
        """A backward pass is about to begin from these tensors, with gradients of them, None for ones."""


_METHODS = {
    "__add__": "add", "__radd__": "add", "__sub__": "subtract", "__rsub__": "subtract", "__mul__": "multiply",
    "__rmul__": "multiply", "__truediv__": "divide", "__rtruediv__": "divide", "__div__": "divide",
    "__rdiv__": "divide", "__pow__": "pow", "__rpow__": "pow", "__matmul__": "matmul", "__rmatmul__": "matmul",
    "__floordiv__": "floor_divide", "__mod__": "remainder", "__eq__": "equal", "__ne__": "not_equal",
    "__gt__": "greater_than", "__ge__": "greater_equal", "__lt__": "less_than", "__le__": "less_equal",
    "__getitem__": "getitem", "__setitem__": "setitem", "clone": "assign",
}  # fmt: skip
"""Tensor methods that compute in C++, to what their operators are called."""

_HERE = threading.local()  # watch: what this thread's run is told to
_LOCK = threading.Lock()
_undo: list[Callable[[], None]] = []
_users = 0


@contextlib.contextmanager
def watch_calls(watch: Watcher) -> Iterator[None]:
    """This thread's calls go through a watcher."""
    outer = getattr(_HERE, "watch", None)
    _wrap()
    _HERE.watch = watch
    try:
        yield
    finally:
        _HERE.watch = outer
        _unwrap()


def _wrap() -> None:
    global _users  # noqa: PLW0603
    with _LOCK:
        _users += 1
        if _users > 1:
            return
        operators = importlib.import_module("paddle._C_ops")
        found = {name: one for name, one in vars(operators).items() if callable(one) and not name.startswith("_")}
        wrapped = {id(one): _operator(name, one) for name, one in found.items()}
        for name, one in found.items():
            _put(operators, name, wrapped[id(one)])
        for module, name, one in _list_importers(found):
            _put(module, name, wrapped[id(one)])
        tensor = import_paddle().Tensor
        for name, kind in _METHODS.items():
            if name in vars(tensor):
                _put(tensor, name, _operator(kind, vars(tensor)[name]))
        _wrap_backward()


def _unwrap() -> None:
    global _users  # noqa: PLW0603
    with _LOCK:
        _users -= 1
        if not _users:
            while _undo:
                _undo.pop()()


def _put(owner: Any, name: str, new: Any) -> None:
    """Set an attribute until the last user has gone."""
    missing = object()
    old = vars(owner).get(name, missing)
    setattr(owner, name, new)
    _undo.append(lambda: delattr(owner, name) if old is missing else setattr(owner, name, old))


def _list_importers(operators: Mapping[str, Any]) -> list[tuple[Any, str, Any]]:
    """Return modules that hold an operator by a name of their own, as Paddle's do (from paddle._C_ops import
    matmul)."""
    known = {id(one) for one in operators.values()}
    own = {"paddle._C_ops", "paddle.base.libpaddle"}  # and those inside the library itself
    modules = [one for name, one in [*sys.modules.items()] if ".".join(name.split(".")[:3]) not in own]
    return [
        (module, name, one) for module in modules for name, one in [*getattr(module, "__dict__", {}).items()]
        if id(one) in known
    ]


def _watch() -> Watcher | None:
    """Return the Watcher of this thread; None where nobody watches."""
    return getattr(_HERE, "watch", None)


def _operator(name: str, function: Any) -> Any:
    def call(*args: Any, **kwargs: Any) -> Any:
        watch = _watch()
        return function(*args, **kwargs) if watch is None else watch.called(name, function, args, kwargs)

    return call


def _wrap_backward() -> None:
    layers = importlib.import_module("paddle.autograd.py_layer")
    eager = importlib.import_module("paddle.base.core").eager
    applied, run, back = layers.PyLayer.__mro__, eager.run_backward, layers.PyLayerBackward.backward
    own = next(vars(one)["apply"] for one in applied if "apply" in vars(one))

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        watch, function = _watch(), own.__get__(None, cls)
        return function(*args, **kwargs) if watch is None else watch.applied(cls.__name__, function, args, kwargs)

    def init(self: Any, *args: Any) -> None:  # noqa: ARG001
        watch = _watch()
        if watch is not None:
            watch.context_made(self)

    def backward(self: Any, *gradients: Any) -> Any:
        watch = _watch()
        return back(self, *gradients) if watch is None else watch.went_back(self, back, gradients)

    def run_backward(tensors: Any, gradients: Any = None, *args: Any) -> Any:
        watch = _watch()
        if watch is not None:
            watch.goes_back(tensors, gradients)
        return run(tensors, gradients, *args)

    _put(layers.PyLayer, "apply", classmethod(apply))
    _put(layers.PyLayerBackward, "__init__", init)
    _put(layers.PyLayerBackward, "backward", backward)
    _put(eager, "run_backward", run_backward)
