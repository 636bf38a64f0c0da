"""Reads a dynamic-graph model: a factory in a Python file that returns an nn.Layer, or it and example inputs."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from precision_debug import protocols
from precision_debug.errors import ModelError
from precision_debug.feeds.factory import call_factory, list_inputs
from precision_debug.feeds.training_step import StepParts, read_step_parts
from precision_debug.records import InputMeta

from ..reasons import say
from .framework import import_paddle
from .predictor import decode_bfloat16

__all__ = ["Layer", "arrays_of", "is_factory", "layers_of", "read_layer"]

_ROLES = {"_mean": "mean", "_variance": "variance"}
_HINT = say("factory_returns")


@dataclass(frozen=True, kw_only=True)
class Layer:
    """arguments: parameter of ``forward`` to the example's array, in order; {}: none known. names: those required.
    guessed: what forward takes, where no arguments are known. parts: the nn.Layer, and what a training step needs.
    """

    parts: StepParts
    path: str
    arguments: Mapping[str, np.ndarray[Any, Any]] = field(default_factory=dict)
    names: tuple[str, ...] = ()
    guessed: tuple[InputMeta, ...] = ()

    @property
    def module(self) -> Any:
        """The nn.Layer, as its author built it."""
        return self.parts.module

    @property
    def inputs(self) -> tuple[InputMeta, ...]:
        if not self.arguments:
            return self.guessed
        return tuple(
            InputMeta(name=name, dtype=array.dtype.name, shape=array.shape, example=True)
            for name, array in self.arguments.items()
        )


def is_factory(path: str) -> bool:
    """Return whether a model file names Python code: FILE.py:FUNCTION."""
    return ".py:" in path or path.endswith(".py")


def read_layer(text: str, *, seed: int) -> Layer:
    """Run the factory. seed: of Paddle's generator, set before, so that random weights are the same in every run.

    Raises ModelError.
    """
    paddle = import_paddle()
    parts = read_step_parts(call_factory(text, lambda: nullcontext(paddle.seed(seed)), returns=_HINT), text, _HINT)
    module = parts.module
    if not isinstance(module, paddle.nn.Layer):
        what = type(module).__name__
        foreign = what != "Layer" and hasattr(module, "state_dict")
        hint = "for a PyTorch module take a torch mode: --run_mode torch_fp32" if foreign else _HINT
        raise ModelError(f"the factory gave {what}, not a paddle.nn.Layer", where=text, hint=hint)
    return _describe_layer(parts, text)


def _describe_layer(parts: StepParts, text: str) -> Layer:
    module, example = parts.module, parts.inputs
    signature = inspect.signature(module.forward)
    required = tuple(
        name
        for name, p in signature.parameters.items()
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    )
    if example is None:
        tables = [part for part in module.sublayers(include_self=True) if type(part).__name__ == "Embedding"]
        table = int(tables[0].weight.shape[0]) if tables else None
        return Layer(parts=parts, path=text, names=required, guessed=list_inputs(signature, table=table))
    inputs = example if isinstance(example, (Mapping, tuple, list)) else (example,)
    try:
        bound = signature.bind(**inputs) if isinstance(inputs, Mapping) else signature.bind(*inputs)
    except TypeError as error:
        raise ModelError(f"the example inputs do not fit forward: {error}", where=text, hint=_HINT) from error
    arguments = {name: np.asarray(value) for name, value in bound.arguments.items() if value is not None}
    return Layer(parts=parts, path=text, arguments=arguments, names=required)


def arrays_of(module: Any) -> dict[str, np.ndarray[Any, Any]]:
    """Return parameters and buffers of an nn.Layer, by their names in its state dict."""
    return {name: decode_bfloat16(np.asarray(tensor.numpy()), str(tensor.dtype)) for name, tensor in _state(module)}


def layers_of(module: Any) -> dict[str, protocols.Layer]:
    """By the sublayer's path: its parameters by what they are for, and its epsilon."""
    grouped: dict[str, dict[str, str]] = {}
    for full, _ in _state(module):
        path, _, name = full.rpartition(".")
        grouped.setdefault(path, {})[_ROLES.get(name, name)] = full
    parts = dict(module.named_sublayers(include_self=True))
    found = {}
    for path, parameters in grouped.items():
        epsilon = getattr(parts.get(path), "_epsilon", None)
        attributes = {"epsilon": float(epsilon)} if isinstance(epsilon, float) else {}
        found[path] = protocols.Layer(parameters=parameters, attributes=attributes)
    return found


def _state(module: Any) -> list[tuple[str, Any]]:
    return [(name, tensor) for name, tensor in module.state_dict().items() if tensor.size]
