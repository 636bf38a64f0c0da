"""A module called once, as a script calls it: no dispatch mode, no hooks."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import torch

from precision_debug.protocols import Feeds

from .. import modes
from ..make import arguments_of, build, tensors_of, use_device
from ..model import Model
from ..settings import setting

__all__ = ["run_bare"]


def run_bare(model: Model, mode: str, options: Mapping[str, Any], feeds: Feeds) -> bool:
    """See ``protocols.BareRunner``: of the module in the mode's type, with autocast or torch.compile where the mode is
    that; a training step is more than a call."""
    recipe = modes.recipe(mode)
    if setting(options, "step") != "forward":
        return False
    built = build(model, recipe, options)
    module: Any = torch.compile(built.module) if recipe.change == "compile" else built.module
    args, kwargs = arguments_of(built.model, tensors_of(built, feeds))
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(use_device(built.device))
        if recipe.autocast:
            stack.enter_context(torch.autocast(built.device.type, dtype=getattr(torch, recipe.autocast)))
        module(*args, **kwargs)
    return True
