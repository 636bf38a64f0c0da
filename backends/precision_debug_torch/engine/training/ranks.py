"""A rank of a training run: each gradient as its own batch gives it, behind the reduction, and at the optimiser."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from precision_debug.recording.rank_log import BINS, GradientNumbers, InputNumbers, RankShard, Reduction

__all__ = ["Rank", "gather_whole", "local_part", "rank_of", "unwrap"]

_PERIOD = 4093
"""A prime: no row of a weight is as long, so that what is 0 by columns (a softmax's) is not 0 in a sketch."""

_NARROW = (torch.bfloat16, torch.float16)

_IGNORED = -100
"""What torch's losses leave out of labels, unless told otherwise."""

_MOST, _LEAST = 0.999, 16
"""Share of a gradient's elements that a type holds exactly, and how many there are, where it was rounded to it."""


def rank_of() -> tuple[int, int]:
    """This process's rank, and how many there are; (0, 1) where torch.distributed was not started."""
    import torch.distributed as dist

    if not dist.is_available() or not dist.is_initialized():
        return 0, 1
    return dist.get_rank(), dist.get_world_size()


def unwrap(model: Any) -> Any:
    """Return the module inside of DistributedDataParallel: what a factory returns."""
    return model.module if isinstance(model, torch.nn.parallel.DistributedDataParallel) else model


def local_part(tensor: Any) -> Any:
    """Of a DTensor, this rank's shard; of other tensors, themselves."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def gather_whole(tensor: Any) -> Any:
    """Of a DTensor, all of it: every rank must ask."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


class Rank:
    """Sees the gradients of one rank at the steps for which ``wanted`` says so.

    ``on_again``: told where a backward pass begins although the optimiser did not do the last one's step.
    """

    def __init__(self, model: Any, wanted: Callable[[], bool], on_again: Callable[[], None]) -> None:
        self._named = [(name, one) for name, one in unwrap(model).named_parameters() if one.requires_grad]
        self._wanted, self._on_again = wanted, on_again
        self._local: dict[str, GradientNumbers] = {}
        self._reduced: dict[str, GradientNumbers] = {}
        self._final: dict[str, GradientNumbers] | None = None
        self._times: dict[str, int] = {}
        self._queued = False
        self._hooked: set[int] = set()
        self._handles: list[Any] = []
        self._inputs: dict[str, list[InputNumbers]] = {}
        if _parallel_by_data(model):
            hook = model.register_forward_pre_hook(self._entered, with_kwargs=True, prepend=True)
            self._handles.append(hook)
        sharded = {name for name, one in self._named if hasattr(one, "to_local")}
        for name, one in self._named:
            if name not in sharded:
                self._watch(name, one)
        self._sharded = sharded
        for path, module in unwrap(model).named_modules() if sharded else ():
            if module._parameters:  # FSDP2 exchanges the parameters for whole ones before a module's forward
                self._handles.append(module.register_forward_pre_hook(functools.partial(self._unsharded, path)))

    def end(self) -> None:
        """Take the hooks away."""
        for handle in self._handles:
            handle.remove()

    @property
    def broken(self) -> bool:
        """Whether there is a gradient behind the reduction that is NaN or Inf."""
        return any(one.broken for one in self._reduced.values())

    @property
    def shards(self) -> Mapping[str, RankShard]:
        """Of parameters that are sharded by their first axis."""
        return {name: shard for name, one in self._named if (shard := _shard(one)) is not None}

    @property
    def unseen(self) -> frozenset[str]:
        """Several backward passes were added up in a place of FSDP2's own."""
        return frozenset(name for name in self._sharded if self._times.get(name, 0) > 1)

    def at_optimiser(self) -> None:
        """The optimiser is about to read the gradients."""
        self._final = {name: _numbers(one.grad, _start(one)) for name, one in self._named if one.grad is not None}

    def gradients(self) -> Mapping[str, Reduction]:
        """In the order of the backward pass, then those that had none; what was seen is forgotten."""
        names = [*self._local, *(name for name, _ in self._named if name not in self._local)]
        found = {
            name: Reduction(
                local=self._local.get(name), reduced=self._reduced.get(name), final=(self._final or {}).get(name)
            )
            for name in names
        }
        self.forget()
        return found

    def inputs(self) -> Mapping[str, InputNumbers]:
        """Of the forward passes since the last step; they are forgotten."""
        found = {name: _join_inputs(ones) for name, ones in self._inputs.items()}
        self._inputs = {}
        return found

    def forget(self) -> None:
        """A step begins."""
        self._local, self._reduced, self._final, self._times = {}, {}, None, {}

    def _entered(self, model: Any, args: Any, kwargs: Any) -> None:
        if not model.training or not torch.is_grad_enabled():
            return
        if not self._wanted():
            self._inputs = {}
            return
        for name, value in {**{str(place): one for place, one in enumerate(args)}, **kwargs}.items():
            if isinstance(value, torch.Tensor) and value.layout is torch.strided and value.numel():
                self._inputs.setdefault(name, []).append(_of_input(name, local_part(value).detach()))

    def _unsharded(self, path: str, module: Any, _args: Any) -> None:
        for key, one in module._parameters.items():
            name = f"{path}.{key}" if path else key
            if one is not None and name in self._sharded and not hasattr(one, "to_local"):
                self._watch(name, one)

    def _watch(self, name: str, parameter: Any) -> None:
        if id(parameter) in self._hooked or not parameter.requires_grad:
            return
        self._hooked.add(id(parameter))
        hook = functools.partial(self._arrived, name)
        self._handles.append(parameter.register_post_accumulate_grad_hook(hook))

    def _arrived(self, name: str, parameter: Any) -> None:
        """A parameter's own gradient is whole, and waits for the reduction."""
        if not self._queued:
            if self._reduced:
                self._on_again()
            if not self._wanted():
                return
            self._queued = True
            engine = torch.autograd.Variable._execution_engine  # type: ignore[attr-defined]
            # a wrapper waits for its reduction in a callback, queued before this one's is
            engine.queue_callback(lambda: engine.queue_callback(self._ended))
        with torch.no_grad():
            self._local.pop(name, None)
            self._local[name] = _numbers(parameter.grad, 0)
        self._times[name] = self._times.get(name, 0) + 1

    def _ended(self) -> None:
        """The backward pass has ended, and the reduction with it."""
        self._queued = False
        with torch.no_grad():
            self._reduced = {name: _numbers(one.grad, _start(one)) for name, one in self._named if one.grad is not None}


def _parallel_by_data(model: Any) -> bool:
    """Return whether each rank should have a batch of its own: there is no second way in which the model is split."""
    meshes = [one.device_mesh for one in model.parameters() if hasattr(one, "device_mesh")]
    if not meshes:
        return True
    sharded = any(type(one).__name__.startswith("FSDP") for one in model.modules())
    return sharded and all(one.ndim == 1 for one in meshes)


def _of_input(name: str, value: Any) -> InputNumbers:
    sketch = _sketch(torch.nan_to_num(torch.view_as_real(value) if value.is_complex() else value).reshape(-1), 0)
    printed = hashlib.blake2b(repr((tuple(value.shape), sketch)).encode(), digest_size=8).hexdigest()
    if value.is_floating_point():
        return InputNumbers(print=printed, rms=float(value.double().square().mean().sqrt()))
    tokens = None
    if "mask" in name:
        tokens = int(torch.count_nonzero(value))
    elif "label" in name or bool((value == _IGNORED).any()):
        tokens = int((value != _IGNORED).sum())
    return InputNumbers(print=printed, tokens=tokens)


def _join_inputs(ones: list[InputNumbers]) -> InputNumbers:
    """Of the batches of a step as of one."""
    if len(ones) == 1:
        return ones[0]
    squares = [one.rms**2 for one in ones if one.rms is not None]
    tokens = [one.tokens for one in ones if one.tokens is not None]
    return InputNumbers(
        print=" ".join(one.print for one in ones), rms=(sum(squares) / len(squares)) ** 0.5 if squares else None,
        tokens=sum(tokens) if tokens else None,
    )  # fmt: skip


def _shard(parameter: Any) -> RankShard | None:
    """None where a rank holds all of it; count 0 where its part is no run of the whole's elements."""
    if not hasattr(parameter, "to_local") or not any(one.is_shard() for one in parameter.placements):
        return None
    part = parameter.to_local()
    row = parameter.numel() // max(1, parameter.shape[0])
    return RankShard(start=_first_row(parameter) * row, count=part.numel())


def _first_row(parameter: Any) -> int:
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    offset = compute_local_shape_and_global_offset(parameter.shape, parameter.device_mesh, parameter.placements)[1]
    return int(offset[0])


def _start(parameter: Any) -> int | None:
    """Return place of a rank's first element in the whole; None where its elements do not follow each other there."""
    placements = getattr(parameter, "placements", ())
    if any(one.is_shard() and not one.is_shard(0) for one in placements):
        return None
    shard = _shard(parameter)
    return shard.start if shard is not None else 0


def _numbers(gradient: Any, start: int | None) -> GradientNumbers:
    """start: of the whole's elements, that of the first."""
    values = local_part(gradient).detach()
    values = (values.to_dense() if values.layout is not torch.strided else values).reshape(-1)
    finite = torch.isfinite(values)
    broken = int(values.numel() - finite.sum())
    fair = torch.where(finite, values, torch.zeros_like(values)) if broken else values
    norm = float(fair.double().norm()) if values.numel() else 0.0
    sketch = _sketch(fair, start) if start is not None else ()
    return GradientNumbers(norm=norm, broken=broken, narrow=_narrow(fair), sketch=sketch)


def _narrow(values: Any) -> str | None:
    """Return the type of 16 bits that holds what is not 0 exactly, of a gradient in a wider one; "" where none does;
    None where too few elements tell."""
    some = values[values != 0]
    if values.dtype in _NARROW or some.numel() < _LEAST:
        return None
    for dtype in _NARROW:
        if float((some.to(dtype).to(some.dtype) == some).double().mean()) > _MOST:
            return str(dtype).removeprefix("torch.")
    return ""


def _sketch(values: Any, start: int) -> tuple[float, ...]:
    before = start % _PERIOD
    after = -(before + values.numel()) % _PERIOD
    folded = torch.nn.functional.pad(values, (before, after)).view(-1, _PERIOD).sum(0, dtype=torch.float64)
    signed = folded * _signs(values.device)
    # in turns, so that those of a short bias have a bin each
    summed = torch.nn.functional.pad(signed, (0, -_PERIOD % BINS)).view(-1, BINS).sum(0)
    return _round_values(summed.tolist())


def _round_values(values: Iterable[float]) -> tuple[float, ...]:
    """As a line keeps them."""
    return tuple(torch.tensor(list(values), dtype=torch.float32).tolist())


@functools.cache
def _signs(device: Any) -> Any:
    drawn = torch.Generator().manual_seed(1)
    return (torch.randint(0, 2, (_PERIOD,), generator=drawn, dtype=torch.float64) * 2 - 1).to(device)
