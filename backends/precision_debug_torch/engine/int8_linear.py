"""Linear layers in int8 by torchao: weights a channel, activations a token, products in int8."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from precision_debug.errors import BackendError, ModelError
from precision_debug.reasons import Reason

from ..reasons import say
from .torchao import quantization

__all__ = ["quantise"]


def quantise(module: Any, path: str, kept: Sequence[str] = ()) -> tuple[frozenset[str], Reason]:
    """Quantise a module's linear layers in place, but those in ``kept`` modules; their paths and a note on the rest.

    Raises ModelError where it has none, BackendError where torchao fails.
    """
    linear = {name for name, child in module.named_modules() if isinstance(child, torch.nn.Linear)}
    if not linear:
        raise ModelError("has no nn.Linear, and torchao's int8 changes nothing else", where=path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torchao = quantization()
            config = torchao.Int8DynamicActivationInt8WeightConfig()
            torchao.quantize_(module, config, filter_fn=lambda _, name: name in linear and not _inside(name, kept))
    except Exception as error:
        raise BackendError(f"torchao cannot quantise it: {type(error).__name__}: {error}", where=path) from error
    changed = frozenset(name for name in linear if type(module.get_submodule(name).weight) is not torch.nn.Parameter)
    others = sum(1 for child in module.modules() if isinstance(child, torch.nn.modules.conv._ConvNd))
    count, every = len(changed), len(linear)
    if others:
        return changed, say("int8_linear_but", count=count, all=every, others=others)
    return changed, say("int8_linear", count=count, all=every)


def _inside(name: str, kept: Sequence[str]) -> bool:
    return any(one in ("", name) or name.startswith(f"{one}.") for one in kept)
