"""Whether a run has left a trace in a module: state that a next run would start from."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["touched"]

_PLAIN = (bool, int, float, complex, str, bytes, type(None))


def touched(module: Any, original: Any) -> bool:
    """Whether buffers, numbers, or tensors and numbers in lists, dicts and sets differ between a module and what it was
    copied from. Other objects are taken to be unchanged.
    """
    pairs = zip(module.modules(), original.modules(), strict=False)
    return any(_differs(own.__dict__, other.__dict__) for own, other in pairs)


def _differs(own: Any, other: Any) -> bool:
    if own is other:
        return False
    if isinstance(own, torch.Tensor) or isinstance(other, torch.Tensor):
        return not _same_tensor(own, other)
    if isinstance(own, _PLAIN) or isinstance(other, _PLAIN):
        return type(own) is not type(other) or not (own == other or (own != own and other != other))  # noqa: PLR0124
    if isinstance(own, dict) and isinstance(other, dict):
        return own.keys() != other.keys() or any(
            _differs(own[key], other[key]) for key in own if key not in ("_modules", "_parameters", "_call_impl")
        )
    if isinstance(own, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(own) != len(other) or any(map(_differs, own, other))
    if isinstance(own, (set, frozenset)) and isinstance(other, (set, frozenset)):
        return len(own) != len(other) or _plain_of(own) != _plain_of(other)
    return False


def _plain_of(items: Any) -> set[Any]:
    return {item for item in items if isinstance(item, _PLAIN)}


def _same_tensor(own: Any, other: Any) -> bool:
    if not (isinstance(own, torch.Tensor) and isinstance(other, torch.Tensor)):
        return False
    if own.shape != other.shape or own.dtype != other.dtype:
        return False
    return torch.equal(own, other) or bool(own.is_floating_point() and torch.equal(own.isnan(), other.isnan())
                                           and torch.equal(own.nan_to_num(), other.nan_to_num()))  # fmt: skip
