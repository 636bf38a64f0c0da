"""Where in a model's own program a tensor was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["CallSite"]


@dataclass(frozen=True, kw_only=True)
class CallSite:
    """The call of the model's own program that made a tensor; its backend pairs two runs of one program by it.

    scope: the module call that it ran in. part: the call of the framework's own function that it is a part of, unique
    in a run ("linear~3"); "" outside of one. reads: parameters and buffers that the operator reads. settings: numbers
    and flags among its arguments.
    results: calls whose result it is, to the tensors that the call was given; "()" is the call of ``part``.
    """

    scope: str = ""
    part: str = ""
    reads: tuple[str, ...] = ()
    settings: str = ""
    results: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
