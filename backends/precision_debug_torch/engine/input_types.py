"""Types in which a module takes inputs that it came without examples of."""

from __future__ import annotations

import collections
import contextlib
import copy
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from precision_debug.reasons import Reason

from ..model import Model
from ..reasons import say

__all__ = ["find_types", "tell_types"]

_PROBING = threading.Lock()


def find_types(
    model: Model, module: Any, tensors: Mapping[str, Any], run: Callable[[Any, Mapping[str, Any]], Any],
    device: torch.device,
) -> Mapping[str, torch.dtype]:  # fmt: skip
    """Return the types that inputs have to be cast to for the module, as its author built it, to run; {} where none.

    What runs as it is given is left so: a module may cast its inputs itself. Else floating inputs go in with the type
    that most of the parameters have, and of several inputs only those without which it fails. An input that is not
    floating keeps its type. run: calls a module with these tensors. Found once per model and set of types.
    """
    floats = {name: tensor.dtype for name, tensor in tensors.items() if tensor.is_floating_point()}
    types = [one for one in _types_of(module) if any(one != dtype for dtype in floats.values())]
    if model.arguments or not types:  # examples have decided, before the inputs came here
        return {}
    key = tuple(floats.items())
    with _PROBING:
        if key not in model.taken:
            model.taken[key] = _find(module, tensors, list(floats), types, run, device)
        return model.taken[key]


def tell_types(model: Model) -> list[Reason]:
    """Return a note for each type that inputs were cast to."""
    named: dict[str, dict[str, None]] = {}
    for taken in model.taken.values():
        for name, dtype in taken.items():
            named.setdefault(str(dtype).removeprefix("torch."), {})[name] = None
    return [say("types_taken", names=", ".join(names), dtype=dtype) for dtype, names in named.items()]


def _find(
    module: Any, tensors: Mapping[str, Any], floats: list[str], types: list[torch.dtype],
    run: Callable[[Any, Mapping[str, Any]], Any], device: torch.device,
) -> dict[str, torch.dtype]:  # fmt: skip
    def runs(chosen: Mapping[str, torch.dtype]) -> bool:
        given = {name: one.to(device=device, dtype=chosen.get(name), copy=True) for name, one in tensors.items()}
        try:
            with _on_trial():
                run(_copy_whole(module, device), given)
        except Exception:
            return False
        return True

    if runs({}):
        return {}
    for dtype in types:
        chosen = dict.fromkeys(floats, dtype)
        if runs(chosen):
            for name in floats if len(floats) > 1 else ():
                fewer = {other: one for other, one in chosen.items() if other != name}
                chosen = fewer if runs(fewer) else chosen
            return chosen
    return {}


def _copy_whole(module: Any, device: torch.device) -> Any:
    """Return a copy of the module with memory of its own, which may be written into; where all of it lies on one
    device, on this one. The module itself where it cannot be copied."""
    try:
        twin = copy.deepcopy(module)
    except Exception:
        return module
    there = {tensor.device for tensor in (*twin.parameters(), *twin.buffers())}
    return twin.to(device) if len(there) == 1 else twin


def _types_of(module: Any) -> list[torch.dtype]:
    """Return the floating types of the parameters and buffers, that of most numbers first."""
    counts = collections.Counter[torch.dtype]()
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point() and tensor.dtype.itemsize > 1:  # float8: nothing multiplies in it by itself
            counts[tensor.dtype] += tensor.numel()
    return [dtype for dtype, _ in counts.most_common()]


@contextlib.contextmanager
def _on_trial() -> Iterator[None]:
    """Around a run that nobody looks at: it draws from a random state of its own, and warns nobody."""
    with torch.random.fork_rng(), torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
