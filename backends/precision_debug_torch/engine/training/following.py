"""Follows somebody's own training loop: numbers of its gradients at some steps, and what other steps started from."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from precision_debug.errors import OutputError
from precision_debug.ownership import guard_output, refuse_foreign
from precision_debug.recording.rank_log import RankStep, rank_file, rank_line
from precision_debug.recording.training_log import (
    LOG,
    SMALLEST,
    ParameterNumbers,
    StepNumbers,
    begin_log,
    compare_left,
    encode_step,
    is_log,
)

from .ranks import Rank, gather_whole, local_part, rank_of, unwrap

__all__ = ["following", "step_file"]

_PART, _LARGE_PART = 1 << 17, 1 << 26
"""Elements that are looked at at once, on a CPU and on a device, where each look is a kernel."""

_FOLLOWED = 4096
"""Elements of a parameter of which it is known whether they ever change."""

_SKIPPED = 3
"""Steps in a row that GradScaler leaves out and that are kept: a loop that never gets on would fill the disk."""


def step_file(folder: str | Path, step: int, rank: int | None = None) -> Path:
    """Where a whole step is kept. rank: of several; None: there is one."""
    return Path(folder, f"step_{step:06d}.pt" if rank is None else f"step_{step:06d}_rank{rank}.pt")


@dataclass(kw_only=True)
class _Sample:
    """Some elements of a parameter, spread over it: what they were at first, and which ever had a gradient."""

    first: Any
    touched: Any

    def still(self, now: Any) -> float | None:
        """Return the share of those that had a gradient and are what they were."""
        many = int(self.touched.sum())
        return float((self.touched & (now == self.first)).sum()) / many if many else None


@dataclass(kw_only=True)
class _Left:
    """What a parameter's gradient was when one arrived to be added, between two steps of the optimiser."""

    arrived: bool = False
    empty: bool = False

    def look(self, gradient: Any) -> None:
        self.arrived = True
        self.empty |= gradient is None or gradient.layout is not torch.strided or not bool(gradient.any())

    @property
    def kept(self) -> bool:
        """Whether there was always something that a gradient was added to: the one of the step before."""
        return self.arrived and not self.empty


class _Between:
    """Some elements of each parameter that an optimiser moves, and of what it keeps of them, as a step left them."""

    def __init__(self, named: Collection[tuple[str, Any]], optimiser: Any) -> None:
        self._named, self._optimiser = named, optimiser
        self._left: dict[tuple[str, str], Any] = {}

    def keep(self) -> None:
        """A step has ended, and the next one will be asked about."""
        self._left = {key: value.clone() for key, value in self._iterate_samples()}

    def compare(self) -> tuple[dict[str, float], dict[str, float]]:
        """Return the parameters that are others now and by how much of their size, and those whose state is."""
        found = compare_left(self._left, dict(self._iterate_samples()) if self._left else {}, _measure_change)
        self._left = {}
        return found

    def _iterate_samples(self) -> Iterator[tuple[tuple[str, str], Any]]:
        given = {id(one) for group in self._optimiser.param_groups for one in group["params"]}
        for name, one in self._named:
            if id(one) in given and one.layout is torch.strided:
                yield (name, ""), _sample_spread(local_part(one))
                for what, value in self._optimiser.state.get(one, {}).items():
                    if isinstance(value, torch.Tensor) and value.is_floating_point():
                        yield (name, str(what)), _sample_spread(local_part(value))


def _measure_change(before: Any, now: Any) -> tuple[float, float] | None:
    """Return the L2 of what was there, and of its change; None where nothing changed."""
    if torch.equal(before, now):
        return None
    if torch.equal(before.isnan(), now.isnan()) and torch.equal(before.nan_to_num(), now.nan_to_num()):
        return None
    return _norm(before), _norm(now, before)


@contextlib.contextmanager
def following(
    model: Any, optimiser: Any, scaler: Any, folder: str, every: int, steps: Collection[int]
) -> Iterator[_Follower]:
    """See ``precision_debug.training``."""
    follower = _Follower(model, optimiser, scaler, folder, every, frozenset(steps))
    try:
        yield follower
    finally:
        follower.end()


class _Follower:
    """``step``: how many steps the optimiser has done. Steps that GradScaler leaves out are none of them; of several
    ranks they are kept all the same, as skipped, for it is there that a rank made NaN or Inf."""

    def __init__(
        self, model: Any, optimiser: Any, scaler: Any, folder: str, every: int, steps: frozenset[int]
    ) -> None:
        self.step = 0
        self._model, self._optimiser, self._scaler = model, optimiser, scaler
        self._folder, self._every, self._steps = Path(folder), every, steps
        self._named = [(name, one) for name, one in unwrap(model).named_parameters() if one.requires_grad]
        self._sizes: dict[str, tuple[Any, Any]] = {}
        self._samples: dict[str, _Sample] = {}
        self._decays: dict[str, tuple[float, float]] = {}
        self._depth = 0
        self._left, self._between = _Left(), _Between(self._named, optimiser)
        self._changed: tuple[dict[str, float], dict[str, float]] = {}, {}
        self._settings: dict[str, dict[str, float]] = {}
        self._kept: set[int] = set()
        self._number, self._of = rank_of()
        self._skipped = 0
        self._rank = Rank(model, self._wanted, self._left_out) if self._of > 1 else None
        self._log = rank_file(folder, self._number) if self._of > 1 else Path(folder, LOG)
        for step in self._steps:  # here, and not in the middle of somebody's loop
            refuse_foreign(self._file(step))
        try:
            if self._number == 0:
                _forget_other_run(self._folder, self._of)
            begin_log(self._log)
        except OSError as error:
            raise OutputError(f"cannot be written: {error.strerror}", where=str(self._log)) from error
        self._handles = [optimiser.register_step_pre_hook(self._before), optimiser.register_step_post_hook(self._after)]
        given = {id(one) for group in optimiser.param_groups for one in group["params"]}  # it sets no others back
        here = (one for _, one in self._named if id(one) in given)
        smallest = min(here, key=lambda one: one.numel(), default=None)
        if smallest is not None:
            self._handles.append(smallest.register_hook(lambda _: self._look_at_left(smallest)))
        if steps:
            self._handles.append(model.register_forward_pre_hook(self._start, with_kwargs=True, prepend=True))

    def end(self) -> None:
        """Take the hooks away."""
        self._left_out()
        for handle in self._handles:
            handle.remove()
        if self._rank is not None:
            self._rank.end()

    def _look_at_left(self, parameter: Any) -> None:
        """A gradient arrives; of a step that is not logged nothing is asked, which a device would have to wait for."""
        if self._wanted():
            self._left.look(parameter.grad)

    def _wanted(self) -> bool:
        return self.step % self._every == 0

    def _start(self, model: Any, args: Any, kwargs: Any) -> None:
        if self.step not in self._steps or self.step in self._kept or not model.training:
            return
        self._kept.add(self.step)
        head = {
            "step": self.step, "model": _copy_value(unwrap(model).state_dict()),
            "optimiser": _copy_value(self._optimiser.state_dict()), "args": _copy_value(tuple(args)),
            "kwargs": _copy_value(dict(kwargs)), "random": torch.get_rng_state(), "scale": self._scale(),
        }  # fmt: skip
        with guard_output(self._file(self.step)) as place:
            torch.save(head, place)

    def _file(self, step: int) -> Path:
        return step_file(self._folder, step, self._number if self._of > 1 else None)

    def _before(self, *_: Any) -> None:
        self._depth += 1
        if self._depth == 1:  # a class that calls its parent's step() has the hooks called by both
            self._begin_step()

    def _begin_step(self) -> None:
        if not self._wanted() or self._leaves_out():
            return
        scale = self._inside_scale()
        with torch.no_grad():
            self._sizes = {
                name: (local_part(one).detach().clone(), local_part(one.grad))
                for name, one in self._named if one.grad is not None
            }  # fmt: skip
            self._gradients = {
                name: _numbers(grad if scale == 1 else grad / scale, self._scale())
                for name, (_, grad) in self._sizes.items()
            }
            self._groups = {id(one): group for group in self._optimiser.param_groups for one in group["params"]}
            self._changed = self._between.compare()
            self._sample()
            if self._rank is not None:
                self._rank.at_optimiser()

    def _leaves_out(self) -> bool:
        """Return whether the optimiser, which was handed GradScaler's findings, will not do this step."""
        found = getattr(self._optimiser, "found_inf", None)
        return found is not None and bool(found)

    def _inside_scale(self) -> float:
        """Return what the gradients are still multiplied by: an optimiser that unscales them itself is handed the
        scale."""
        scale = getattr(self._optimiser, "grad_scale", None)
        return 1.0 if scale is None else float(scale)

    def _sample(self) -> None:
        for name, one in self._named:
            if one.layout is not torch.strided:
                continue
            values, sample = _sample_spread(local_part(one).detach()), self._samples.get(name)
            if sample is None:  # also without a gradient, which a closure makes only inside of the step
                untouched = torch.zeros_like(values, dtype=torch.bool)
                sample = self._samples[name] = _Sample(first=values.clone(), touched=untouched)
            if name not in self._sizes or one.grad.layout is not torch.strided:
                continue
            sample.touched |= _sample_spread(self._sizes[name][1]) != 0
            if (decay := _decay(self._optimiser, self._groups.get(id(one)))) and values.numel():
                some = values[values != 0]
                kept = float((some.clone().mul_(1 - decay) == some).double().mean()) if some.numel() else 0.0
                self._decays[name] = decay, kept

    def _after(self, *_: Any) -> None:
        self._depth -= 1
        if self._depth or self._leaves_out():
            return
        if self._wanted():
            self._tell()
        self.step += 1
        self._skipped = 0
        self._left = _Left()
        if self._wanted() and self._rank is None:
            self._between.keep()

    def _left_out(self) -> None:
        """A backward pass begins, or all ends, and the optimiser did not do the last one's step."""
        if self._rank is None or self._scale() == 1 or not self._rank.broken:
            return
        self._skipped += 1
        if self._skipped <= _SKIPPED:
            self._tell_rank(StepNumbers(step=self.step, scale=self._scale()), skipped=True)
        self._rank.forget()

    def _tell_rank(self, numbers: StepNumbers, *, skipped: bool) -> None:
        assert self._rank is not None
        unseen, shards = self._rank.unseen, self._rank.shards
        line = RankStep(
            numbers=numbers, rank=self._number, ranks=self._of, skipped=skipped, gradients=self._rank.gradients(),
            shards=shards, unseen=unseen, inputs=self._rank.inputs(),
        )  # fmt: skip
        with self._log.open("a", encoding="utf-8") as log:
            log.write(rank_line(line))

    def _tell(self) -> None:
        rows = {}
        for name, one in self._named:
            if name not in self._sizes:
                continue
            before, _ = self._sizes[name]
            size = _norm(before)
            moved = _norm(local_part(one), before) / size if size else None
            norm, zeros, below, broken = self._gradients[name]
            group, sample = self._groups.get(id(one)), self._samples.get(name)
            decay, undecayed = self._decays.get(name, (None, None))
            rows[name] = ParameterNumbers(
                norm=norm, zeros=zeros, below=below, broken=broken, size=size, moved=moved, rate=_rate(group),
                still=sample.still(_sample_spread(local_part(one))) if sample is not None else None,
                decay=decay, undecayed=undecayed,
            )  # fmt: skip
        without = frozenset(
            name for name, one in self._named
            if name not in rows and one.requires_grad and id(one) in self._groups
        )  # fmt: skip
        self._sizes.clear()
        numbers = StepNumbers(
            step=self.step, scale=self._scale(), parameters=rows, without=without, kept=self._left.kept,
            changed=self._changed[0], state=self._changed[1], settings=self._find_new_settings(),
        )  # fmt: skip
        if self._rank is not None:
            self._tell_rank(numbers, skipped=False)
            return
        with self._log.open("a", encoding="utf-8") as log:
            log.write(encode_step(numbers))

    def _find_new_settings(self) -> dict[str, dict[str, float]]:
        """Return what the optimiser's groups are set to, by the first parameter of each, where it was not told yet."""
        first = {id(one): name for name, one in self._named}
        settings = {
            name: _list_settings(group) for group in self._optimiser.param_groups
            if (name := next((first[id(one)] for one in group["params"] if id(one) in first), ""))
        }  # fmt: skip
        new = {name: one for name, one in settings.items() if one != self._settings.get(name)}
        self._settings = settings
        return new

    def _scale(self) -> float:
        return float(self._scaler.get_scale()) if self._scaler is not None and self._scaler.is_enabled() else 1.0


def _numbers(gradient: Any, scale: float) -> tuple[float, float, float, int]:
    """Norm, share of zeros, share below float16's smallest at the scale, and how many are no number."""
    values = (gradient.to_dense() if gradient.layout is not torch.strided else gradient).detach()
    squares, some, small, broken = 0.0, 0, 0, 0
    for part in _parts(values):
        fair, here = part, float(part.double().square_().sum())
        if not math.isfinite(here):
            fair = part[torch.isfinite(part)]
            here = float(fair.double().square_().sum())
        broken += part.numel() - fair.numel()
        squares += here
        filled = int(torch.count_nonzero(fair))
        some += filled
        small += int(torch.count_nonzero(fair.abs() < SMALLEST / 2 / scale)) - (fair.numel() - filled)
    many = values.numel()
    zeros = many - broken - some
    return math.sqrt(squares), zeros / max(1, many), small / max(1, many - zeros), broken


def _norm(values: Any, less: Any = None) -> float:
    """L2 of a tensor, or of the difference of two."""
    if less is None:
        return math.sqrt(sum(float(one.double().square_().sum()) for one in _parts(values)))
    pairs = zip(_parts(values), _parts(less), strict=True)
    return math.sqrt(sum(float((one.double() - other).square_().sum()) for one, other in pairs))


def _sample_spread(values: Any) -> Any:
    """Some of a tensor's elements, from all over it."""
    flat = values.detach().reshape(-1)
    return flat[:: max(1, flat.numel() // _FOLLOWED)][:_FOLLOWED]


def _rate(group: Any) -> float | None:
    """Return the learning rate of a parameter; None where this optimiser does not move it, or makes its own."""
    rate = group.get("lr") if group is not None else None
    return None if rate is None else float(rate)


def _list_settings(group: Any) -> dict[str, float]:
    """Return the numbers that a group of an optimiser is set to; those of a tuple by their places. Its rate is
    told of each parameter."""
    found = {}
    for key, value in ((key, value) for key, value in group.items() if key != "lr"):
        whole = not isinstance(value, (tuple, list))
        several = {key: value} if whole else {f"{key}[{at}]": one for at, one in enumerate(value)}
        found.update({
            name: float(one) for name, one in several.items()
            if isinstance(one, (int, float)) and not isinstance(one, bool)
        })  # fmt: skip
    return found


def _decay(optimiser: Any, group: Any) -> float | None:
    """Return what decoupled weight decay takes off at this step; None of others, which is a part of the gradient."""
    if group is None or not group.get("weight_decay") or _rate(group) is None:
        return None
    decoupled = group.get("decoupled_weight_decay", False) or isinstance(optimiser, torch.optim.AdamW)
    return float(group["lr"]) * float(group["weight_decay"]) if decoupled else None


def _parts(values: Any) -> Any:
    """On a CPU as much at once as its cache holds: several looks at it then take as long as one."""
    flat = values.detach().reshape(-1)
    return flat.split(_PART if flat.device.type == "cpu" else _LARGE_PART)


def _copy_value(value: Any) -> Any:
    from torch.utils._pytree import tree_map

    return tree_map(
        lambda one: gather_whole(one).detach().cpu().clone() if isinstance(one, torch.Tensor) else one, value
    )


def _forget_other_run(folder: Path, ranks: int) -> None:
    """What another run of other ranks kept here would be read as this one's."""
    if is_log(folder / LOG):
        (folder / LOG).unlink(missing_ok=True)
    for path in folder.glob("statistics_rank*.jsonl"):
        number = path.stem.removeprefix("statistics_rank")
        if number.isdigit() and (ranks == 1 or int(number) >= ranks) and is_log(path):
            path.unlink()
