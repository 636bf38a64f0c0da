"""Tensors whose parts have lengths of their own (torch's nested tensors, strided or jagged): the parts in a row."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["filled", "like", "packed"]


def packed(tensor: Any) -> Any:
    """All elements and no padding: parts of shapes [n, *rest] as [sum of n, *rest], parts of other shapes flat. A copy
    of a strided one."""
    parts = [part.detach() for part in tensor.unbind()]
    if not parts:
        return torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    rows = all(part.dim() and part.shape[1:] == parts[0].shape[1:] for part in parts)
    return torch.cat(parts if rows else [part.reshape(-1) for part in parts])


def like(tensor: Any, values: Any) -> Any:
    """A new one with the parts of ``tensor``, made of ``values`` as ``packed`` gives them."""
    shapes = [part.shape for part in tensor.unbind()]
    parts = [part.reshape(shape) for part, shape in zip(_split(values, shapes), shapes, strict=True)]
    return torch.nested.nested_tensor(parts, dtype=values.dtype, device=values.device, layout=tensor.layout)


def filled(tensor: Any, values: Any) -> None:
    """Write ``values``, as ``packed`` gives them, into a tensor's own memory."""
    parts = tensor.unbind()
    for part, new in zip(parts, _split(values, [part.shape for part in parts]), strict=True):
        part.copy_(new.reshape(part.shape))


def _split(values: Any, shapes: Any) -> Any:
    flat = values.reshape(-1)
    return flat.split([shape.numel() for shape in shapes])
