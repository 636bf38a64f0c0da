"""Linear layers quantised by torchao: weights alone, or activations too, as they come."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch

from precision_debug.errors import BackendError, ModelError, NothingToQuantise
from precision_debug.reasons import Reason

from ..reasons import say
from .torchao import quantization

__all__ = ["quantise", "type_of"]

_TYPES = {"int8": "int8", "fp8": "float8", "fp8_weights": "float8", "int4_weights": "int4"}
_GROUP = 128
_READ_BY_OTHERS = torch.nn.modules.linear.NonDynamicallyQuantizableLinear
"""What torchao's own filter leaves out: nn.MultiheadAttention reads its weight and does not call it."""


def type_of(change: str) -> str:
    """Return the type of a recipe's quantised layers, as it stands in their names; "" of a recipe that quantises
    nothing."""
    return _TYPES.get(change, "")


def quantise(
    module: Any, path: str, kept: Sequence[str] = (), change: str = "int8"
) -> tuple[frozenset[str], Reason]:  # fmt: skip
    """Quantise a module's linear layers in place, but those in ``kept`` modules; their paths and a note on the rest.

    change: the recipe's. Raises ModelError where it has none, BackendError where torchao fails.
    """
    every = {name: child for name, child in module.named_modules() if isinstance(child, torch.nn.Linear)}
    linear = {name: child for name, child in every.items() if not isinstance(child, _READ_BY_OTHERS)}
    if not linear:
        only = " but what nn.MultiheadAttention reads itself" if every else ""
        raise NothingToQuantise(
            f"has no nn.Linear{only}, and torchao's {type_of(change)} changes nothing else", where=path
        )

    def wanted(_child: Any, name: str) -> bool:
        if name not in linear or _is_inside(name, kept):
            return False
        return change != "int4_weights" or linear[name].in_features % _GROUP == 0

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            config = _config(change, any(one.is_cuda for one in module.parameters()))
            quantization().quantize_(module, config, filter_fn=wanted)
    except Exception as error:
        raise BackendError(f"torchao cannot quantise it: {type(error).__name__}: {error}", where=path) from error
    changed = frozenset(name for name in linear if type(module.get_submodule(name).weight) is not torch.nn.Parameter)
    if not changed and not kept:
        what = f"none of its {len(linear)} linear layers could be made {type_of(change)}"
        hint = {
            "int4_weights": f"int4 needs inputs of a multiple of {_GROUP}",
            "int8": "torchao leaves layers of 16 inputs and fewer as they are",
        }.get(change, "")
        raise ModelError(what, where=path, hint=hint)
    others = sum(1 for child in module.modules() if isinstance(child, torch.nn.modules.conv._ConvNd))
    count, kind = len(changed), type_of(change)
    if change.endswith("_weights"):
        if others:
            return changed, say("weights_linear_but", count=count, all=len(every), type=kind, others=others)
        return changed, say("weights_linear", count=count, all=len(every), type=kind)
    if others:
        return changed, say("quantised_linear_but", count=count, all=len(every), type=kind, others=others)
    return changed, say("quantised_linear", count=count, all=len(every), type=kind)


def _config(change: str, on_gpu: bool) -> Any:
    """Return torchao's own, with what it does by default."""
    torchao = quantization()
    if change == "int8":
        return torchao.Int8DynamicActivationInt8WeightConfig()
    if change == "fp8":
        return torchao.Float8DynamicActivationFloat8WeightConfig()
    if change == "fp8_weights":
        return torchao.Float8WeightOnlyConfig()
    if on_gpu:  # torch's own kernel, which needs no further library
        return torchao.Int4WeightOnlyConfig(group_size=_GROUP, int4_packing_format="tile_packed_to_4d")
    from torchao.quantization.granularity import PerGroup  # type: ignore[import-untyped, import-not-found, unused-ignore]

    return torchao.IntxWeightOnlyConfig(weight_dtype=torch.int4, granularity=PerGroup(_GROUP))


def _is_inside(name: str, kept: Sequence[str]) -> bool:
    return any(one in ("", name) or name.startswith(f"{one}.") for one in kept)
