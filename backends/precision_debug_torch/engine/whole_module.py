"""A module as one process runs it eagerly: with values, all of its weights, and without torch.compile around parts."""

from __future__ import annotations

import copy
import sys
from typing import Any

from precision_debug.errors import ModelError

__all__ = ["refuse_parts", "strip_compile"]

_FULL = (
    "give the module before fully_shard(), parallelize_module() or FSDP(), with the whole weights: "
    "torch.distributed.checkpoint.state_dict.get_model_state_dict(model, options=StateDictOptions(full_state_dict="
    "True)) gathers them"
)


def refuse_parts(module: Any, path: str) -> None:
    """Raise ModelError where some of the weights are not here: on the meta device, or on other ranks."""
    named = [*module.named_parameters(), *module.named_buffers()]
    empty = [name for name, tensor in named if tensor.is_meta]
    if empty:
        raise ModelError(
            f"{len(empty)} of {len(named)} weights lie on the meta device and have no values ({_some(empty)})",
            where=path, hint="load them first: module.to_empty(device='cpu'), then load_state_dict(); or "
            "load_state_dict(weights, assign=True)",
        )  # fmt: skip
    parts = [name for name, tensor in named if any(one.__name__ == "DTensor" for one in type(tensor).__mro__)]
    wrapped = [name or "(model)" for name, part in module.named_modules()
               if any(one.__name__ == "FullyShardedDataParallel" for one in type(part).__mro__)]  # fmt: skip
    if parts or wrapped:
        what = f"{len(parts)} of {len(named)} weights are DTensors of several ranks ({_some(parts)})" if parts else (
            f"{len(wrapped)} modules are sharded by FSDP ({_some(wrapped)})"
        )  # fmt: skip
        raise ModelError(f"{what}, and one process runs a model here", where=path, hint=_FULL)


def strip_compile(module: Any) -> tuple[Any, int]:
    """Return the module without torch.compile around it and its parts, and how many were: the user's own stays as it
    is, and parameters and buffers are the same."""
    dynamo = sys.modules.get("torch._dynamo.eval_frame")  # who has compiled anything has imported it
    if dynamo is None:
        return module, 0
    OptimizedModule: Any = dynamo.OptimizedModule  # noqa: N806
    compiled = [part for part in module.modules()
                if isinstance(part, OptimizedModule) or part._compiled_call_impl is not None]  # fmt: skip
    if not compiled:
        return module, 0
    done: dict[int, Any] = {}

    def plain(part: Any) -> Any:
        if isinstance(part, OptimizedModule):
            return plain(part._orig_mod)
        if id(part) not in done:
            done[id(part)] = fresh = copy.copy(part)
            fresh.__dict__.pop("_compiled_call_impl", None)
            fresh.__dict__["_modules"] = {
                name: None if child is None else plain(child) for name, child in part._modules.items()
            }
        return done[id(part)]

    return plain(module), len(compiled)


def _some(names: list[str]) -> str:
    return ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
