"""Kept modules as a few lines for a user's own program, which needs nothing of this project."""

from __future__ import annotations

from collections.abc import Sequence

from .keep_float32 import BETWEEN

__all__ = ["autocast_lines", "float8_lines", "low_lines", "torchao_lines"]

_CAST = """\
import torch
from torch.utils._pytree import tree_map

keep = {names!r}


def cast(dtype):
    return lambda tree: tree_map(lambda v: v.to(dtype) if torch.is_tensor(v) and v.is_floating_point() else v, tree)
"""

_AUTOCAST = """
for part in map(model.get_submodule, keep):
    part.forward = torch.autocast(next(model.parameters()).device.type, enabled=False)(part.forward)
    part.register_forward_pre_hook(lambda _, args, kwargs: cast(torch.float32)((args, kwargs)), with_kwargs=True)
"""

_LOW = """

def reads(part, dtype):
    part.register_forward_pre_hook(lambda _, args, kwargs: cast(dtype)((args, kwargs)), with_kwargs=True)


for name, part in model.named_modules():
    if any(name == one or name.startswith(one + ".") or not one for one in keep):
        reads(part, torch.float32)
    elif next(part.parameters(recurse=False), None) is not None{root}:
        part._apply(cast(torch.{low}), recurse=False)
        reads(part, torch.{low}){wide}
"""

_WIDE = """
        part.register_forward_hook(lambda _, args, output: cast(torch.float32)(output))"""

_TORCHAO = """\
import torch
from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

keep = {names!r}
inside = torch.nn.modules.linear.NonDynamicallyQuantizableLinear
quantize_(model, Int8DynamicActivationInt8WeightConfig(), filter_fn=lambda part, name:
          isinstance(part, torch.nn.Linear) and not isinstance(part, inside)
          and not any(name == one or name.startswith(one + ".") or not one for one in keep))
"""

_FLOAT8 = """\
import torch
from torchao.float8 import Float8LinearConfig, convert_to_float8_training

keep = {names!r}
inside = torch.nn.modules.linear.NonDynamicallyQuantizableLinear
convert_to_float8_training(model, config=Float8LinearConfig(pad_inner_dim=True), module_filter_fn=lambda part, name:
                           not (part.in_features % 16 or part.out_features % 16 or isinstance(part, inside))
                           and not any(name == one or name.startswith(one + ".") or not one for one in keep))
"""


def low_lines(names: Sequence[str], low: str) -> str:
    """``model`` is in float32 and becomes ``low`` but for the modules of these paths ("": all of it), and, with
    BETWEEN, for what is computed between modules. A kept module's result is read as it is by another kept one."""
    paths, between = [name for name in names if name != BETWEEN], BETWEEN in names
    root, wide = (" and name", _WIDE) if between else ("", "")
    return _CAST.format(names=paths) + _LOW.format(low=low, root=root, wide=wide)


def autocast_lines(names: Sequence[str], sources: Sequence[str] = ()) -> str:
    """Autocast is off inside the modules of these paths, and what they read is made float32. sources: lines of the
    model's own program ("model.py:57 forward: y = torch.cumsum(x, -1)") that are to be edited so."""
    kept = [name for name in names if name != BETWEEN]
    modules = _CAST.format(names=kept) + _AUTOCAST if kept else ""
    return "\n".join(filter(None, (modules, *map(_edit_line, sources))))


def _edit_line(source: str) -> str:
    """Return what to make of a line; a statement that goes on behind it is to be moved with it."""
    place, _, rest = source.partition(" ")
    _, _, code = rest.partition(": ")
    return (
        f"# {place}: what it reads, as float32 (name.float()), and without autocast\n"
        f'with torch.autocast("cuda", enabled=False):  # or "cpu"\n    {code or "..."}\n'
    )


def float8_lines(names: Sequence[str]) -> str:
    """The modules of these paths are not made float8 for training."""
    return _FLOAT8.format(names=list(names))


def torchao_lines(names: Sequence[str]) -> str:
    """The modules of these paths are not quantised."""
    return _TORCHAO.format(names=list(names))
