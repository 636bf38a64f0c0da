"""The tensors and plain values among what an operator was given and what it made."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from precision_debug.reasons import NOTHING, Reason

from ..reasons import say
from .ragged import packed
from .written_constants import targets

__all__ = ["held", "held_type", "leaf_tensors", "settings_in", "tensors_in", "values_of", "visible_part"]


def values_of(func: Any, args: Any, kwargs: Any, result: Any, writes: bool) -> tuple[list[Any], bool]:
    """What an operator made, and whether that is several: what it wrote into, where it returns nothing."""
    if writes and (result is None or (isinstance(result, tuple) and not result)):
        written = targets(func, args, kwargs)
        return written or [result], len(written) > 1
    several = isinstance(result, (tuple, list))
    return (list(result) if several else [result]), several


def tensors_in(values: Any) -> Iterator[Any]:
    """Of an operator's arguments or results, which are nested in plain containers only."""
    if isinstance(values, torch.Tensor):
        yield values
    elif isinstance(values, (tuple, list)):
        for value in values:
            if isinstance(value, torch.Tensor):
                yield value
            elif isinstance(value, (tuple, list)):
                yield from tensors_in(value)
    elif isinstance(values, dict):
        yield from tensors_in(list(values.values()))


_PLAIN = (bool, int, float, str, type(None))


def settings_in(args: Any, kwargs: Any) -> str:
    """Numbers, flags and their lists among an operator's arguments, without types and devices, which a mode chooses."""
    found = [*args, *sorted(kwargs.items())] if kwargs else args
    return " ".join(
        [str(value) for value in found if isinstance(value, _PLAIN)
         or (isinstance(value, (list, tuple)) and all(isinstance(item, _PLAIN) for item in value))]
    )  # fmt: skip


def leaf_tensors(values: Any) -> list[Any]:
    return [value for value in pytree.tree_leaves(values) if isinstance(value, torch.Tensor)]


def _is_scaled(tensor: Any) -> bool:
    """Whether it is a library's own (torchao's Float8TrainingTensor): narrow numbers that stand for others."""
    return type(tensor) is not torch.Tensor and hasattr(tensor, "_scale") and hasattr(tensor, "_orig_dtype")


def held_type(tensor: Any) -> torch.dtype:
    """The type of the numbers in a tensor's memory."""
    kind: torch.dtype = held(tensor).dtype
    return kind


def held(tensor: Any) -> Any:
    """The tensor in whose memory a tensor's numbers are: its own, but for a library's own kind."""
    return tensor._data if _is_scaled(tensor) else tensor


def visible_part(tensor: Any) -> tuple[Any, str, Reason]:
    """The values as a plain strided tensor that numpy can hold, and how they were taken from what the run has; None,
    "" and why there are none."""
    try:
        if _is_scaled(tensor):
            return tensor._data.to(tensor._orig_dtype) / tensor._scale, "dequantised", NOTHING
        value = tensor.detach()
        if value.is_nested:
            return packed(value), "packed", NOTHING
        if value.is_quantized:
            return value.dequantize(), "dequantised", NOTHING
        if value.layout is not torch.strided:
            return value.to_dense(), "dense", NOTHING
        if value.is_conj() or value.is_neg():
            return value.resolve_conj().resolve_neg(), "", NOTHING
        if value.dtype.is_floating_point and value.dtype.itemsize == 1:
            return value.float(), "cast", NOTHING
    except (RuntimeError, TypeError) as error:
        return None, "", say("not_readable", kind=type(tensor).__name__, detail=str(error).partition("\n")[0][:120])
    return value, "", NOTHING
