"""Calls of torch's own functions, which may become other operators from one dtype or device to the next.

A call's result is the same tensor whatever operators made it, and is paired as such; the operators inside are paired
only where both runs did the call by the same ones (``pairing``). Of a *family* (attention, recurrent layers, …) they
are named after the call, and so shift no other name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from .dispatch import Trace
from .loans import HANDS_OUT, Loans

__all__ = ["FAMILIES", "Families", "hide_from_families"]

FAMILIES = frozenset({"gru", "lstm", "rms_norm", "rnn_relu", "rnn_tanh", "scaled_dot_product_attention"})

_RECURRENT = frozenset({"gru", "lstm", "rnn_relu", "rnn_tanh"})

_ASK = (torch.nn.MultiheadAttention, torch.nn.TransformerDecoderLayer, torch.nn.TransformerEncoder,
        torch.nn.TransformerEncoderLayer)  # fmt: skip
"""Modules that compute something else where a function mode is active, and must not notice it."""


class Families(TorchFunctionMode):
    """Tells a trace where a call of a function begins and ends, and loans where memory is given away."""

    def __init__(self, trace: Trace, loans: Loans | None = None) -> None:
        super().__init__()
        self._trace, self._loans = trace, loans

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "").partition(".")[0]
        if name in HANDS_OUT:
            self._trace.unwritten.clear()  # who got the memory may write into it
            if self._loans is not None:
                self._loans.hand_out()
        begun = self._trace.begin(name)
        result = None
        try:
            result = self._family(func, args, kwargs or {}, name) if name in FAMILIES else func(*args, **(kwargs or {}))
        finally:
            self._trace.end(begun, result)
        return result

    def _family(self, func: Any, args: Any, kwargs: Any, name: str) -> Any:
        self._trace.enter_family(name, held=name in _RECURRENT and _may_use_cudnn(args))
        try:
            result = func(*args, **kwargs)
        except BaseException:
            self._trace.abandon()
            raise
        self._trace.leave_family()
        return result


def _may_use_cudnn(args: Any) -> bool:
    """Return whether torch may give a recurrent call to cuDNN, in any type: ``cudnn.is_acceptable`` says no to
    bfloat16, which newer versions give it all the same. It holds a lock of the device meanwhile, that the other run's
    call waits for: no hook may wait inside."""
    first = next((value for value in args if isinstance(value, torch.Tensor)), None)
    return first is not None and first.is_cuda and bool(torch.backends.cudnn.enabled)


@contextlib.contextmanager
def hide_from_families(module: Any) -> Iterator[None]:
    """While one of torch's own transformer layers runs: without the mode. A model's own modes and its weights' own
    functions stay, since torch asks for those, too."""
    stack = _active_modes() if isinstance(module, _ASK) else []
    if not any(isinstance(mode, Families) for mode in stack):
        yield
        return
    _activate(mode for mode in stack if not isinstance(mode, Families))
    try:
        yield
    finally:
        _activate(stack)


def _active_modes() -> list[Any]:
    return [torch._C._get_function_stack_at(place) for place in range(torch._C._len_torch_function_stack())]


def _activate(modes: Iterable[Any]) -> None:
    """Replace PyTorch's stack of function modes by these, the innermost last."""
    for _ in range(torch._C._len_torch_function_stack()):
        torch._C._pop_torch_function_stack()
    for mode in modes:
        torch._C._push_on_torch_function_stack(mode)
