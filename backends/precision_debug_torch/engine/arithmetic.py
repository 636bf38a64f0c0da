"""How one run computes where a run mode must differ from plain torch: TF32, equal random numbers, float64 throughout.

Two runs may share a process and take turns (lockstep), but torch keeps its random state and TF32 switch once a
process; each call that depends on them therefore gets its own run's under one lock.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..modes import Recipe
from .process_switches import GLOBALS

__all__ = ["DROPOUTS", "Arithmetic"]


_WHOLE = frozenset({
    "aten::_native_multi_head_attention", "aten::_sparse_addmm", "aten::_transformer_encoder_layer_fwd",
    "aten::_trilinear", "aten::linalg_pinv",
})  # fmt: skip
"""Single operators that call others inside, which autocast casts in a plain run, too. Found by running torch's own
database of operators (torch.testing's op_db, 2386 samples, torch 2.13) under autocast with and without a mode."""

_AUTOCAST = (torch._C.DispatchKey.AutocastCPU, torch._C.DispatchKey.AutocastCUDA)


class Arithmetic:
    """One run's rules. ``needed``: whether a run without hooks needs them too."""

    def __init__(self, recipe: Recipe, *, device: torch.device, seed: int) -> None:
        self._recipe = recipe
        self._cuda = device.type == "cuda"
        self._device = device
        self._states: tuple[Any, Any] = (None, None)
        self._seeded: tuple[Any, Any] | None = None
        self._seed = seed
        self.kept_casts = 0
        self.drawn = 0
        self.needed = recipe.promotes or recipe.same_draws
        self.plain = not (recipe.promotes or recipe.autocast or self._cuda)
        """Whether an operator that draws no numbers runs as it is."""

    def reset(self) -> None:
        """A run begins: its random numbers start from the seed."""
        if self._seeded is None:  # once: without a driver torch notes the whole stack of each call, for each device
            with GLOBALS:
                before = self._get()
                torch.manual_seed(self._seed)
                self._seeded = self._get()
                self._set(before)
        self._states = self._seeded
        self.kept_casts = self.drawn = 0

    @contextlib.contextmanager
    def globally(self) -> Iterator[None]:
        """Seed and TF32 switch for a whole run without a dispatch mode; the process's own come back afterwards."""
        with GLOBALS:
            before = self._get()
            self._set(self._states)
            try:
                with self._tf32():
                    yield
            finally:
                self._states = self._get()
                self._set(before)

    def call(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Run one ATen operator as this run would."""
        if not hasattr(func, "_schema"):  # takes functions; none of them draws numbers
            return self._plainly(func, args, kwargs)
        if self._recipe.promotes:
            if func._schema.name.startswith("aten::_amp_"):
                return _run_scaler_operator(func, args, kwargs)
            args, kwargs = self._promoted(func, args, kwargs)
        if _is_seeded(func):
            return self._random(func, args, kwargs)
        if self._recipe.autocast and func._schema.name in _WHOLE:
            with _restore_autocast():
                return self._plainly(func, args, kwargs)
        return self._plainly(func, args, kwargs)

    def _plainly(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        if not self._cuda:
            return func(*args, **kwargs)
        with GLOBALS:
            if _read_tf32() == (self._recipe.tf32, self._recipe.tf32):
                return func(*args, **kwargs)
            with self._tf32():
                return func(*args, **kwargs)

    def _random(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        only_draws = func._schema.name.removeprefix("aten::").rstrip("_") in _DRAWS
        self.drawn += only_draws
        with self.globally():
            if only_draws and self._recipe.same_draws:
                return self._drawn(func, args, kwargs)
            return func(*args, **kwargs)

    def _drawn(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Return the operator in float32 on float32 arguments, its result in the types that it would have had."""
        wide = kwargs.get("dtype")
        like = next((t for t in pytree.tree_leaves((args, kwargs)) if _is_float(t)), None)
        dtype = wide if wide is not None and wide.is_floating_point else like.dtype if like is not None else None
        if dtype in (None, torch.float32):
            return func(*args, **kwargs)
        plain_args, plain_kwargs = pytree.tree_map(lambda v: v.float() if _is_float(v) else v, (args, kwargs))
        if wide is not None and wide.is_floating_point:
            plain_kwargs = {**plain_kwargs, "dtype": torch.float32}
        result = func(*plain_args, **plain_kwargs)
        if func._schema.is_mutable and isinstance(result, torch.Tensor) and _is_float(args[0]):
            return args[0].copy_(result)
        return pytree.tree_map(lambda v: v.to(dtype) if _is_float(v) else v, result)

    def _promoted(self, func: Any, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        dtype = kwargs.get("dtype")
        if dtype is not None and dtype.is_floating_point and dtype != torch.float64:
            self.kept_casts += 1
            return args, {**kwargs, "dtype": torch.float64}
        if dtype is None and "dtype" in _argument_names(func) and not _has_tensor(args) and func in _FLOAT_FACTORIES:
            return args, {**kwargs, "dtype": torch.float64}
        return args, kwargs

    @contextlib.contextmanager
    def _tf32(self) -> Iterator[None]:
        if not self._cuda:
            yield
            return
        wanted = self._recipe.tf32
        before = _read_tf32()
        if before == (wanted, wanted):
            yield
            return
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = wanted
        try:
            yield
        finally:
            torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before

    def _get(self) -> tuple[Any, Any]:
        return torch.get_rng_state(), torch.cuda.get_rng_state(self._device) if self._cuda else None

    def _set(self, states: tuple[Any, Any]) -> None:
        torch.set_rng_state(states[0])
        if states[1] is not None:
            torch.cuda.set_rng_state(states[1], self._device)


@functools.lru_cache(maxsize=4096)
def _is_seeded(func: Any) -> bool:
    """Return whether an operator draws random numbers."""
    return torch.Tag.nondeterministic_seeded in func.tags


_DRAWS = {
    "bernoulli", "binomial", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "native_dropout",
    "normal", "normal_functional", "poisson", "rand", "rand_like", "randn", "randn_like", "rrelu_with_noise", "uniform",
}  # fmt: skip
"""Operators whose result is little but random numbers; attention with dropout is none, and keeps its own type."""

DROPOUTS = frozenset({"bernoulli", "native_dropout", "rrelu_with_noise"})
"""Of these, what dropout and its kind come to: nothing that a module in evaluation mode has."""

_FLOAT_FACTORIES = {
    torch.ops.aten.zeros.default,
    torch.ops.aten.ones.default,
    torch.ops.aten.empty.memory_format,
    torch.ops.aten.rand.default,
    torch.ops.aten.randn.default,
    torch.ops.aten.linspace.default,
    torch.ops.aten.eye.default,
}


@contextlib.contextmanager
def _restore_autocast() -> Iterator[None]:
    """Autocast as it was where the model called the operator that is dispatched now: a dispatch mode turns it off."""
    with torch._C._RestorePythonTLSSnapshot():
        off = torch._C._dispatch_tls_local_exclude_set()
    included, excluded = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
    for key in _AUTOCAST:
        if not off.has(key):
            excluded = excluded - torch._C.DispatchKeySet(key)  # type: ignore[operator]
    with torch._C._ForceDispatchKeyGuard(included, excluded):
        yield


def _run_scaler_operator(func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return an operator of GradScaler, whose scale must be float32 (and is a power of two), of one that was
    promoted."""
    narrow = [value.float() if _is_float(value) else value for value in args]
    result = func(*narrow, **kwargs)
    for value, new in zip(args, narrow, strict=True):
        if new is not value:
            value.copy_(new)
    return args[0] if result is narrow[0] else result


def _read_tf32() -> tuple[bool, bool]:
    return torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32


def _argument_names(func: Any) -> set[str]:
    return {argument.name for argument in func._schema.arguments}


def _has_tensor(args: Any) -> bool:
    return any(isinstance(value, torch.Tensor) for value in pytree.tree_leaves(args))


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.is_floating_point()
