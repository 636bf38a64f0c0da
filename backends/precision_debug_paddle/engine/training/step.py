"""A training step of an nn.Layer: forward, loss, backward, and the optimiser's step; every run is a first one.

On a CPU paddle.amp.GradScaler is off (Paddle 3.3.1 says so, and multiplies by 1), so its arithmetic is done here, by
the operator that it calls itself: check_finite_and_unscale.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from precision_debug.feeds.training_step import (
    StepOutputs,
    StepParts,
    compute_loss,
    make_loss_error,
    make_no_optimiser_error,
    make_nothing_learns_error,
    make_optimiser,
)
from precision_debug.settings.setting import BACKWARD, OPTIMISER

from ..framework import import_paddle, sparse_values

if TYPE_CHECKING:
    from ..dynamic_watch import Watch

__all__ = ["Step"]


@dataclass(frozen=True, kw_only=True)
class Step:
    """What a step is made of. until: its last phase. scale: what the loss is multiplied by; 1: by nothing.

    clip: the gradients' largest norm; None: they are left alone. seed: of Paddle's generator, set before each run.
    master: the type of parameters of which the optimiser keeps copies in float32 (paddle.amp.decorate); "": it keeps
    none.
    """

    parts: StepParts
    until: str
    scale: float = 1.0
    clip: float | None = None
    seed: int = 0
    path: str = ""
    master: str = ""

    @property
    def learned(self) -> dict[str, Any]:
        """The parameters that learn, by name."""
        return {name: one for name, one in self.parts.module.named_parameters() if not one.stop_gradient}

    def run(self, arguments: Mapping[str, Any], amp: Any, watch: Watch | None) -> StepOutputs:
        """Run it, and leave model and optimiser as they were. amp: a context for forward and loss. Raises BackendError,
        and what the model raises."""
        paddle = import_paddle()
        learned = self.learned
        if not learned:
            raise make_nothing_learns_error(self.path)
        with self._as_before(watch):
            paddle.seed(self.seed)
            for one in learned.values():
                one.clear_gradient(False)
            with amp:
                loss = self._checked(compute_loss(self.parts, self.parts.module(**arguments), _is_tensor))
            optimiser = self._made([*learned.values()])
            with _inside(watch, "GradScaler"):
                scaled = loss * self.scale if self.scale != 1 else loss
            _tell(watch, BACKWARD)
            scaled.backward()
            with paddle.no_grad():
                return self._rest(loss, learned, optimiser, watch)

    def _rest(self, loss: Any, learned: dict[str, Any], optimiser: Any, watch: Watch | None) -> StepOutputs:
        outputs = StepOutputs(loss=loss.detach())
        got = {name: one for name, one in learned.items() if one.grad is not None}
        if watch is not None:
            watch.gradients_made()
        outputs.skipped = self._unscaled([one.grad for one in got.values()])
        with _quiet(watch):
            outputs |= {f"gradient/{name}": _to_dense(one).clone() for name, one in got.items()}
        if self.until == BACKWARD:
            return _show_outputs(watch, outputs)
        _tell(watch, OPTIMISER)
        with _quiet(watch):
            before = {name: _to_wide(one).clone() for name, one in learned.items()}
        if self.clip is not None:
            import_paddle().nn.utils.clip_grad_norm_([*got.values()], self.clip)
        if not outputs.skipped:
            optimiser.step()
        with _quiet(watch):
            outputs |= {f"update/{name}": _to_wide(one) - before[name] for name, one in learned.items()}
        states = _states(optimiser, learned)
        with _quiet(watch):
            outputs |= {name: one.clone() for name, one in states.items()}  # they may be put back
        return _show_outputs(watch, outputs, states)

    def _unscaled(self, gradients: list[Any]) -> bool:
        """Divide gradients by the scale; whether one is NaN or Inf, so that the optimiser's step is left out."""
        paddle = import_paddle()
        if self.scale == 1:
            return False
        found = False
        for dtype in dict.fromkeys(str(one.dtype) for one in gradients if not one.is_selected_rows()):
            same = [one for one in gradients if str(one.dtype) == dtype and not one.is_selected_rows()]
            wide = "float64" if "float64" in dtype else "float32"
            scale = paddle.to_tensor([self.scale], dtype=wide)
            _, broken = paddle._C_ops.check_finite_and_unscale_(same, scale, paddle.zeros([1], "bool"))
            found = found or bool(broken.numpy()[0])
        return found

    def _checked(self, loss: Any) -> Any:
        if not _is_tensor(loss) or loss.size != 1 or not loss.is_floating_point():
            found = f"{list(loss.shape)} {loss.dtype!s}" if _is_tensor(loss) else type(loss).__name__
            raise make_loss_error(found, self.path)
        if loss.stop_gradient:
            raise make_loss_error("", self.path)
        return loss

    def _made(self, parameters: list[Any]) -> Any:
        if self.until == BACKWARD:
            return None
        given = self.parts.optimiser
        if given is None:
            raise make_no_optimiser_error(self.path)
        made = make_optimiser(given, parameters, self.path)
        if not self.master:
            return made
        decorate = import_paddle().amp.decorate
        return decorate(models=self.parts.module, optimizers=made, level="O2", dtype=self.master)[1]

    @contextlib.contextmanager
    def _as_before(self, watch: Watch | None) -> Iterator[None]:
        """Put parameters, buffers, gradients and an optimiser's own state back."""
        paddle, module = import_paddle(), self.parts.module
        given = self.parts.optimiser
        with _quiet(watch), paddle.no_grad():
            held = [(one, one.clone()) for one in (*module.parameters(), *module.buffers())]
            state = _Kept(given) if hasattr(given, "step") and self.until == OPTIMISER else None
        try:
            yield
        finally:
            with _quiet(watch), paddle.no_grad():
                for one, before in held:
                    one.copy_(before, True)
            for one in self.learned.values():
                one.clear_gradient(False)
            if state is not None:
                state.put_back()


class _Kept:
    """An optimiser's attributes, and the values of the tensors in them."""

    def __init__(self, optimiser: Any) -> None:
        self._optimiser, self._values = optimiser, list[tuple[Any, Any]]()
        self._held = {name: self._copied(value) for name, value in vars(optimiser).items()}

    def put_back(self) -> None:
        """As they were."""
        vars(self._optimiser).clear()
        vars(self._optimiser).update(self._held)
        with import_paddle().no_grad():
            for one, before in self._values:
                one.copy_(before, True)

    def _copied(self, value: Any) -> Any:
        if _is_tensor(value) and value.stop_gradient:
            self._values.append((value, value.clone()))
        if isinstance(value, dict):
            fresh = copy.copy(value)
            fresh.update({key: self._copied(one) for key, one in value.items()})
            return fresh
        if isinstance(value, (list, tuple)):
            return type(value)(self._copied(one) for one in value)
        return set(value) if isinstance(value, set) else value


def _states(optimiser: Any, learned: Mapping[str, Any]) -> dict[str, Any]:
    """States of more than one number, by parameter; Paddle keeps them by the parameter's own name."""
    found = {}
    for name, one in learned.items():
        for kind, states in getattr(optimiser, "_accumulators", {}).items():
            state = states.get(one.name)
            if state is not None and state.size > 1:
                found[f"state/{name}/{kind}"] = state
        master = getattr(optimiser, "_master_weights", {}).get(one.name)
        if master is not None:
            found[f"state/{name}/master_weight"] = master
    return found


def _to_dense(parameter: Any) -> Any:
    gradient = parameter.grad
    return import_paddle().to_tensor(sparse_values(parameter)) if gradient.is_selected_rows() else gradient


def _to_wide(tensor: Any) -> Any:
    return tensor.detach() if "float64" in str(tensor.dtype) else tensor.detach().astype("float32")


def _is_tensor(value: Any) -> bool:
    return isinstance(value, import_paddle().Tensor)


def _tell(watch: Watch | None, phase: str) -> None:
    if watch is not None:
        watch.begin(phase)


def _quiet(watch: Watch | None) -> Any:
    return contextlib.nullcontext() if watch is None else watch.quiet()


def _inside(watch: Watch | None, scope: str) -> Any:
    return contextlib.nullcontext() if watch is None else watch.inside(scope)


def _show_outputs(watch: Watch | None, outputs: StepOutputs, states: Mapping[str, Any] | None = None) -> StepOutputs:
    """states: those that are among the outputs as copies."""
    if watch is not None:
        outputs.update(watch.outputs(outputs, states or {}))
    return outputs
