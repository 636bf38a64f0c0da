"""Calls of torch.compile, and what has to hold of the process while one runs."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch

from precision_debug.errors import UsageError

__all__ = [
    "as_compiling",
    "call_compiled",
    "compile_module",
    "first_line",
    "leave_out",
    "run_eagerly",
    "silence_warnings",
    "unfuse_attention",
]

_OPTIONS: Mapping[str, Any] = {"fallback_random": True}


def compile_module(module: Any, *, backend: str, options: Mapping[str, Any]) -> Any:
    """``torch.compile(module)`` for inputs of fixed shapes. Raises UsageError for options that it does not take."""
    with silence_warnings():
        if backend != "inductor":
            return torch.compile(module, dynamic=False, backend=backend)
        try:
            return torch.compile(module, dynamic=False, options={**_OPTIONS, **options})
        except RuntimeError as error:  # it names all that there are
            why = first_line(error).partition(", known options")[0]
            hint = "torch._inductor.list_options() lists them"
            raise UsageError(f"torch.compile refuses it: {why}", where="--option inductor", hint=hint) from error


def leave_out(module: Any, names: Iterable[str], where: str) -> None:
    """Let modules inside of one run eagerly, in place, and without a trace that could be taken for state: each gets a
    class of its own. Raises UsageError for a path that it does not have."""
    for name in names:
        try:
            part = module.get_submodule(name) if name else None
        except AttributeError:
            part = None
        if part is None:
            raise UsageError(f"no module '{name}' inside the model", where=where, hint="name one by its path")
        kind = type(part)
        if "forward" in part.__dict__:  # somebody's own, in front of the class's
            part.forward = torch.compiler.disable(part.forward)
        else:
            part.__class__ = type(kind.__name__, (kind,), {
                "forward": torch.compiler.disable(kind.forward), "__module__": kind.__module__,
                "__qualname__": kind.__qualname__,
            })  # fmt: skip


def run_eagerly(operator: Any) -> Any:
    """Return an operator as a function that breaks a compiled graph, so that torch runs it as it does without."""

    def run(*args: Any, **kwargs: Any) -> Any:
        return operator(*args, **kwargs)

    return torch.compiler.disable(run)


def call_compiled(run: Callable[[], Any]) -> Any:
    """Return what ``run`` gives, compiled. torch compiles one function in so many ways alone (``recompile_limit``, 8:
    other options are another way), and then runs it uncompiled without an error: its caches are emptied then. A model
    that needs more ways by itself runs as torch runs it."""
    config = torch._dynamo.config
    if hasattr(config, "fail_on_recompile_limit_hit"):
        from torch._dynamo.exc import FailOnRecompileLimitHit

        for _ in range(2):
            try:
                with config.patch(fail_on_recompile_limit_hit=True):
                    return run()
            except FailOnRecompileLimitHit:
                torch.compiler.reset()
    return run()


def first_line(error: Exception) -> str:
    """Return what an error says in its first line; its type where it says nothing."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


@contextlib.contextmanager
def as_compiling() -> Iterator[None]:
    """What asks torch.compiler.is_compiling() is told so. The flag is the process's."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


@contextlib.contextmanager
def unfuse_attention() -> Iterator[None]:
    """Without the one operator that eager runs of nn.MultiheadAttention and nn.TransformerEncoderLayer take where no
    gradient is asked for: neither tracing nor torch.compile takes it. The switch is the process's."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextlib.contextmanager
def silence_warnings() -> Iterator[None]:
    """Keep warnings to ourselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
