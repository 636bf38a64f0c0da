"""Modules that stay in float32 inside a model of lower precision. Needs nothing but torch: users get a copy of it."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

__all__ = ["BETWEEN", "is_line", "keep_in_float32", "keep_outermost", "list_between_tensors"]

BETWEEN = "(between)"
"""Stands, among the names of modules, for what is computed between modules."""


_LINE = re.compile(r"[^/\\]+\.py:\d+$")
_PASSED_ON = tuple(
    os.path.join(os.path.dirname(torch.__file__), name)
    for name in ("_jit_internal.py", "_tensor.py", "functional.py", os.path.join("nn", "functional.py"), "overrides.py")
)
"""Files through which a call of torch's functions passes before a mode hears of it."""


def is_line(name: str) -> bool:
    """Return whether it stands for a line of the model's source, "model.py:57", rather than a module."""
    return bool(_LINE.match(name))


def keep_in_float32(module: Any, names: Iterable[str], low: Any = None) -> None:
    """Let modules compute in float32, in place: autocast is off inside, and their inputs are made float32.

    names: paths of modules, "" for the whole. low: the type of everything else, which their results are given back in;
    a kept module that reads another one's result reads it before that. None: results stay as they are (autocast).

    With BETWEEN among the names, what lies between modules is float32: one that is not kept, and has parameters of its
    own, makes what it reads narrow and what it gives wide again. The model's inputs are then left as they are, and so
    are ``list_between_tensors``, which whoever narrows the module leaves out.

    Under autocast a name may also be that of a line of source: what it calls of torch itself, in whatever module.
    """
    kept = [name for name in names if name != BETWEEN and not is_line(name)]
    lines = frozenset(name for name in names if is_line(name))
    between = low is not None and BETWEEN in names
    if lines:
        module._kept_lines, module._kept_modes = lines, []
        module.register_forward_pre_hook(_begin_lines)
        module.register_forward_hook(_end_lines, always_call=True)
    for name in kept:
        part = module.get_submodule(name)
        part._kept_low, part._kept_inside = None if between else low, []
        part.register_forward_pre_hook(_enter, with_kwargs=True)
        part.register_forward_hook(_leave, always_call=True)
    for name, part in module.named_modules() if between else ():
        inside = any(one in ("", name) or name.startswith(f"{one}.") for one in kept)
        if not inside and _has_own(part) and not _computes_between(name, part):
            part.register_forward_pre_hook(_reader(low), with_kwargs=True)
            part.register_forward_hook(_widen)


def list_between_tensors(module: Any) -> dict[str, Any]:
    """Return parameters and buffers, by name, that are read where modules without weights compute: a mask, a table of
    positions, a cache, what the model's own forward multiplies with."""
    return {
        f"{path}.{name}" if path else name: tensor for path, part in module.named_modules()
        if _computes_between(path, part) or not _has_own(part)
        for name, tensor in (*part.named_parameters(recurse=False), *part.named_buffers(recurse=False))
    }  # fmt: skip


def _computes_between(path: str, part: Any) -> bool:
    """Return whether it is the model itself, whose forward calls others."""
    return not path and next(part.children(), None) is not None


def _has_own(part: Any) -> bool:
    """Return whether a module has parameters beside those of the modules inside it."""
    return next(part.parameters(recurse=False), None) is not None


def _reader(low: Any) -> Any:
    def narrow(value: Any) -> Any:
        return value.to(low) if isinstance(value, torch.Tensor) and value.dtype == torch.float32 else value

    return lambda _, args, kwargs: (tree_map(narrow, args), tree_map(narrow, kwargs))


def keep_outermost(names: Iterable[str]) -> list[str]:
    """Without those inside of another one."""
    ordered = sorted(set(names))
    return [name for name in ordered if not any(name != o and (o == "" or name.startswith(f"{o}.")) for o in ordered)]


def _widen(_part: Any, _args: Any, output: Any) -> Any:
    return tree_map(_single, output)


class _Lines(TorchFunctionMode):
    """Calls from some lines of source run in float32, without autocast. What writes into a tensor keeps its types."""

    def __init__(self, lines: frozenset[str]) -> None:
        super().__init__()
        self._lines = lines

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if _line_of(sys._getframe(1)) not in self._lines:
            return func(*args, **kwargs)
        kinds = {value.device.type for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)}
        name = getattr(func, "__name__", "")
        writes = "out" in kwargs or name.startswith(("__i", "__set")) or (name.endswith("_") and name[-2:] != "__")
        with torch.autocast(next(iter(kinds), "cpu"), enabled=False):
            return func(*args, **kwargs) if writes else func(*tree_map(_single, args), **tree_map(_single, kwargs))


def _line_of(frame: Any) -> str:
    while frame is not None and frame.f_code.co_filename in _PASSED_ON:
        frame = frame.f_back
    return "" if frame is None else f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _begin_lines(part: Any, _args: Any) -> None:
    mode = _Lines(part._kept_lines)
    mode.__enter__()
    part._kept_modes.append(mode)


def _end_lines(part: Any, _args: Any, _output: Any) -> None:
    part._kept_modes.pop().__exit__(None, None, None)


def _enter(part: Any, args: Any, kwargs: Any) -> Any:
    kinds = {value.device.type for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)}
    outside = torch.autocast(next(iter(kinds), "cpu"), enabled=False)
    outside.__enter__()
    part._kept_inside.append(outside)
    return tree_map(_single, args), tree_map(_single, kwargs)


def _leave(part: Any, _args: Any, output: Any) -> Any:
    part._kept_inside.pop().__exit__(None, None, None)
    if part._kept_low is None:
        return output
    return tree_map(lambda value: _narrow(value, part._kept_low), output)


def _single(value: Any) -> Any:
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or value.dtype.itemsize >= 4:
        return value
    exact, version = getattr(value, "_kept_exact", (None, -1))
    return exact if exact is not None and version == value._version else value.float()


def _narrow(value: Any, low: Any) -> Any:
    if not isinstance(value, torch.Tensor) or value.dtype != torch.float32:
        return value
    narrow: Any = value.to(low)
    narrow._kept_exact = (value, narrow._version)
    return narrow
