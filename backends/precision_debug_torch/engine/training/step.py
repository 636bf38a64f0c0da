"""A training step as one module: forward, loss, backward, and the optimiser's step; every run is a first one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn

from precision_debug.feeds.training_step import (
    StepOutputs,
    StepParts,
    compute_loss,
    make_loss_error,
    make_no_optimiser_error,
    make_nothing_learns_error,
    make_optimiser,
)
from precision_debug.records import Operator
from precision_debug.settings.setting import BACKWARD, OPTIMISER

from .rank_starts import RankStart, own_tensors, prefix_of

__all__ = ["TrainingStep", "find_optimiser"]

_MOVED = frozenset({OPTIMISER, "update", "state"})
"""What names of the last phase begin with."""

_HOW = frozenset({"params", "foreach", "fused", "capturable", "differentiable", "initial_lr"})
"""What a group of an optimiser holds beside what it computes by."""


class TrainingStep(nn.Module):
    """Stands for a module whose step is run: parameters, buffers and modules are that module's, under its own names.

    until: the last phase that is run. loss: of what the module returns, and of the module too where it takes two; None:
    the module returns it. optimiser: one over the module's parameters, or what makes one of a list of them.
    scale: what the loss is multiplied with by a GradScaler, from 1 up; 1: there is none. clip: the gradients' largest
    norm; None: they are left alone. ranks: of a step of several ranks, which are run one after the other, each on its
    own batch; what they make is named after them ("rank1/loss"). The optimiser steps once, on the mean of their
    gradients, made as DistributedDataParallel makes it: each is divided before they are added.
    on_phase: told as each phase begins; on_rank: as a rank does, and with None when all are done.
    """

    def __init__(
        self, module: Any, *, until: str, loss: Callable[..., Any] | None = None, optimiser: Any = None,
        scale: float = 1.0, clip: float | None = None, path: str = "", ranks: Mapping[int, RankStart] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        held = {"inner": module, "until": until, "loss": loss, "optimiser": optimiser, "scale": scale, "clip": clip}
        # past nn.Module, which would register it
        self.__dict__.update(held, path=path, ranks=ranks or {}, on_phase=None, on_rank=None, optimisers={})

    @property
    def written(self) -> dict[str, int] | None:
        """Parameters that a run may write into, and their bytes; None where it has no optimiser.

        Known before any run: where GradScaler leaves the first step out, nothing is seen to be written, and a run in
        which the gradient is replaced by a finite one writes all the same.
        """
        if self.until != OPTIMISER:
            return None
        return {name: one.nbytes for name, one in self.inner.named_parameters() if one.requires_grad}

    def forward(self, *args: Any, **kwargs: Any) -> StepOutputs:
        if not self.ranks:
            return self._step(*args, **kwargs)
        if self.until == OPTIMISER:
            return self._step_together(kwargs)
        outputs = StepOutputs()
        for rank, start in self.ranks.items():
            own, named = start.begin(rank, self.inner, kwargs)
            self._tell_rank(rank)
            found = self._step(*own, **named)
            outputs |= {prefix_of(rank) + name: value for name, value in found.items()}
        self._tell_rank(None)
        return outputs

    def _step(self, *args: Any, **kwargs: Any) -> StepOutputs:
        named, device = self._learning()
        scaler, optimiser = self._scaler(device), self._made([*named.values()])
        with torch.enable_grad():
            loss = self._loss(self.inner(*args, **kwargs))
        with torch.no_grad(), torch.autocast(device, enabled=False):
            before = self._before(named)
            self._pass_back(loss, scaler)
            return StepOutputs(loss=loss.detach()).with_all(self._rest(named, scaler, optimiser, before))

    def _step_together(self, feeds: Mapping[str, Any]) -> StepOutputs:
        """One step of the optimiser after the backward passes of all ranks."""
        named, device = self._learning()
        scaler, optimiser = self._scaler(device), self._made([*named.values()])
        outputs, parts = StepOutputs(), {name: list[Any]() for name in named}
        with torch.no_grad(), torch.autocast(device, enabled=False):
            before = self._before(named)
        for rank, start in self.ranks.items():
            own, by_name = start.begin(rank, self.inner, feeds)
            self._tell_rank(rank)
            self._learning()
            with torch.enable_grad():
                loss = self._loss(self.inner(*own, **by_name))
            outputs[f"{prefix_of(rank)}loss"] = loss.detach()
            with torch.no_grad(), torch.autocast(device, enabled=False):
                self._pass_back(loss, scaler)
                got = {name: one.grad for name, one in named.items() if one.grad is not None}
                for name, gradient in got.items():
                    unscaled = gradient / self.scale if scaler.is_enabled() else gradient
                    outputs[f"{prefix_of(rank)}gradient/{name}"] = unscaled
                self._tell(OPTIMISER)
                for name, gradient in got.items():
                    parts[name].append(gradient * (1 / len(self.ranks)))
        self._tell_rank(None)
        with torch.no_grad(), torch.autocast(device, enabled=False):
            for name, one in named.items():
                one.grad = next(iter(parts[name]), None)
            self._tell(OPTIMISER)
            for name, one in named.items():
                for part in parts[name][1:]:
                    one.grad = one.grad + part
            return outputs.with_all(self._rest(named, scaler, optimiser, before))

    def _learning(self) -> tuple[dict[str, Any], str]:
        """Return the parameters that learn, by name, without a gradient; and where they lie."""
        named = {name: one for name, one in self.inner.named_parameters() if one.requires_grad}
        if not named:
            raise make_nothing_learns_error(self.path)
        for parameter in named.values():
            parameter.grad = None
        return named, next(iter(named.values())).device.type

    def _scaler(self, device: str) -> Any:
        return torch.amp.GradScaler(device, init_scale=self.scale, enabled=self.scale != 1)

    def _before(self, named: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters as they are; {} where nothing will write them."""
        if self.until != OPTIMISER:
            return {}
        self._tell(OPTIMISER)
        return {name: one.detach().clone() for name, one in named.items()}

    def _loss(self, returned: Any) -> Any:
        parts = StepParts(module=self.inner, loss=self.loss)
        loss = compute_loss(parts, returned, lambda one: isinstance(one, torch.Tensor))
        if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or not loss.is_floating_point():
            found = f"{list(loss.shape)} {loss.dtype}" if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise make_loss_error(found, self.path)
        if not loss.requires_grad:
            raise make_loss_error("", self.path)
        return loss

    def _pass_back(self, loss: Any, scaler: Any) -> None:
        self._tell(BACKWARD)
        # not loss.backward(), which is one function of torch's with all of the phase inside; in this thread, because a
        # device has one thread for all backward passes of the process, in which two runs would wait for each other
        with (
            torch.enable_grad(), torch._C.DisableTorchFunction(), torch.autograd.set_multithreading_enabled(False)
        ):  # fmt: skip
            torch.autograd.backward(scaler.scale(loss.reshape(())))

    def _rest(self, named: dict[str, Any], scaler: Any, optimiser: Any, before: dict[str, Any]) -> StepOutputs:
        """Return what the gradients make, which lie with the parameters."""
        outputs = StepOutputs()
        got = {name: one for name, one in named.items() if one.grad is not None}
        if scaler.is_enabled():
            if any(one.grad.dtype is torch.float16 for one in got.values()):
                for one in got.values():  # GradScaler refuses these
                    one.grad = one.grad / self.scale
            else:
                scaler.unscale_(optimiser)
        self._tell(OPTIMISER)
        last = self.until == BACKWARD
        stays = last or (self.clip is None and _does_only_read(optimiser))
        outputs |= {f"gradient/{name}": one.grad if stays else one.grad.clone() for name, one in got.items()}
        if last:
            return outputs
        if self.clip is not None:
            nn.utils.clip_grad_norm_([*named.values()], self.clip)
        outputs.skipped = self._stepped(scaler, optimiser, got)
        for name, one in named.items():
            outputs[f"update/{name}"] = _to_wide(one.detach()) - _to_wide(before[name])
        for name, one in named.items():
            for key, value in optimiser.state.get(one, {}).items():
                if isinstance(value, torch.Tensor) and value.numel() > 1:
                    outputs[f"state/{name}/{key}"] = value
        return outputs

    @staticmethod
    def _stepped(scaler: Any, optimiser: Any, got: dict[str, Any]) -> bool:
        """Return whether the step was left out."""
        if not scaler.is_enabled() or any(one.grad.dtype is torch.float16 for one in got.values()):
            optimiser.step()
            return False
        scaler.step(optimiser)
        return any(bool(one) for one in scaler._found_inf_per_device(optimiser).values())

    def _made(self, parameters: list[Any]) -> Any:
        if self.until == BACKWARD or self.optimiser is None:
            if self.until == OPTIMISER:
                raise make_no_optimiser_error(self.path)
            return torch.optim.SGD(parameters, lr=0.0)
        made = make_optimiser(self.optimiser, parameters, self.path)
        self.optimisers.update(_list_settings(made, self.inner))
        return made

    def _tell(self, phase: str) -> None:
        if self.on_phase is not None:
            self.on_phase(phase)

    def _tell_rank(self, rank: int | None) -> None:
        if self.on_rank is not None:
            self.on_rank(rank)

    # what follows is the module's own, and the ranks'

    def named_modules(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        return self.inner.named_modules(*args, **kwargs)  # type: ignore[no-any-return]

    def named_parameters(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        yield from self.inner.named_parameters(*args, **kwargs)
        for rank, name, one in own_tensors(self.ranks, parameters=True):
            yield prefix_of(rank) + name, one

    def named_buffers(self, *args: Any, **kwargs: Any) -> Iterator[tuple[str, Any]]:
        yield from self.inner.named_buffers(*args, **kwargs)
        for rank, name, one in own_tensors(self.ranks, parameters=False):
            yield prefix_of(rank) + name, one

    def get_submodule(self, target: str) -> Any:
        return self.inner.get_submodule(target)


def _does_only_read(optimiser: Any) -> bool:
    """Return whether an optimiser is known to leave gradients as they are: a copy of all takes as much as the
    parameters."""
    return type(optimiser) in (torch.optim.Adam, torch.optim.AdamW) and not optimiser.defaults.get("fused")


def _to_wide(tensor: Any) -> Any:
    return tensor if tensor.dtype is torch.float64 else tensor.float()


def _to_plain(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return tuple(map(_to_plain, value))
    return value.item() if isinstance(value, torch.Tensor) and value.numel() == 1 else value


def _list_settings(optimiser: Any, module: Any) -> Iterator[tuple[str, Operator]]:
    """Yield each parameter's name, and the optimiser as an operator with the settings of its group."""
    names = {id(one): name for name, one in module.named_parameters()}
    for group in getattr(optimiser, "param_groups", ()):
        settings = {key: _to_plain(value) for key, value in group.items() if key not in _HOW}
        operator = Operator(op_type=type(optimiser).__name__, attributes=settings)
        yield from ((names[id(one)], operator) for one in group["params"] if id(one) in names)


def find_optimiser(step: TrainingStep, name: str) -> tuple[str, Operator] | None:
    """Return what moves the parameter of an operator or an output of the last phase, and the name it is known by: the
    optimiser with its group's settings, known once a step ran; None of any other."""
    phase, _, rest = name.partition("/")
    of = [one for one in step.optimisers if f"{rest}/".startswith(f"{one}/")] if phase in _MOVED else []
    return (f"{OPTIMISER}/{max(of, key=len)}", step.optimisers[max(of, key=len)]) if of else None
