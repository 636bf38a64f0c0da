"""What a factory returns for a training step, and what the step gives: the same for every framework."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from ..errors import ModelError
from ..protocols import tell
from ..reasons import Reason, say
from ..settings import get_passed
from ..settings.setting import BACKWARD, SCALE

__all__ = [
    "StepOutputs",
    "StepParts",
    "choose_loss_scale",
    "compute_loss",
    "list_changed_by_evaluation",
    "list_step_notes",
    "make_loss_error",
    "make_no_optimiser_error",
    "make_nothing_learns_error",
    "make_optimiser",
    "read_step_parts",
    "tell_memory",
]  # fmt: skip

_BY_MODE = re.compile(r"Drop|BatchNorm|InstanceNorm|RReLU|StochasticDepth")
"""Kinds of modules whose result depends on the mode."""

_HINT = "return (module, inputs, loss) from the factory: loss takes what the module returns, and gives one number"


class StepOutputs(dict[str, Any]):
    """Everything that a training step made, by name.

    "loss", "gradient/<parameter>" (unscaled, before it is clipped), and after an optimiser "update/<parameter>" (after
    less before) and "state/<parameter>/<key>". Of several ranks "rank<n>/loss" and "rank<n>/gradient/<parameter>", with
    an optimiser also "gradient/<parameter>": their mean.

    skipped: GradScaler found NaN or Inf in a gradient, and left the optimiser's step out.
    """

    skipped = False

    def with_all(self, more: StepOutputs) -> StepOutputs:
        """These and what the optimiser made, which knows whether it stepped."""
        self.update(more)
        self.skipped = more.skipped
        return self


@dataclass(frozen=True, kw_only=True)
class StepParts:
    """The loss function and the optimiser of a training step.

    loss: of what the module returns, and of the module too where it takes two; None: the module returns it. optimiser:
    one over the module's parameters, or what makes one of a list of them; None: there is none."""

    module: Any
    inputs: Any = None
    loss: Callable[..., Any] | None = None
    optimiser: Any = None


def list_changed_by_evaluation(parts: Iterable[tuple[str, Any]]) -> list[str]:
    """Return the paths of modules that are in training mode and compute something else there than in evaluation mode.

    parts: path and module, of torch or Paddle. That is a dropout that drops, a normalisation with running statistics,
    and a class of the user's whose forward reads ``training``.
    """
    return [
        path or type(part).__name__ for path, part in parts if getattr(part, "training", False) and _differs(part)
    ]


def _differs(part: Any) -> bool:
    kind = str(getattr(part, "original_name", "") or type(part).__name__)
    if type(part).__module__.partition(".")[0] not in ("torch", "paddle"):
        try:
            return "training" in inspect.getsource(type(part).forward)
        except (OSError, TypeError, AttributeError):
            return bool(_BY_MODE.search(kind))
    if "Norm" in kind:
        statistics = (getattr(part, name, None) for name in ("running_mean", "_mean"))
        return bool(_BY_MODE.search(kind)) and any(one is not None for one in statistics)
    drops = getattr(part, "p", 0) if "Drop" in kind else getattr(part, "dropout", 0)
    return "RReLU" in kind or (isinstance(drops, (int, float)) and drops > 0)


def read_step_parts(made: Any, where: str, hint: str | Reason) -> StepParts:
    """Return what a factory returned, be it for a step or not. Raises ModelError."""
    parts = made if isinstance(made, tuple) and 2 <= len(made) <= 4 else (made,)
    module, inputs, loss, optimiser = (*parts, None, None, None)[:4]
    steps = optimiser is None or callable(optimiser) or hasattr(optimiser, "step")
    if not steps or not (loss is None or callable(loss)):
        wrong = "optimiser" if not steps else "loss"
        raise ModelError(f"the factory's {wrong} cannot be called", where=where, hint=hint)
    return StepParts(module=module, inputs=inputs, loss=loss, optimiser=optimiser)


def compute_loss(parts: StepParts, returned: Any, is_tensor: Callable[[Any], bool]) -> Any:
    """Return what the loss's function makes of what the module returned, or the loss in that; of any kind."""
    if parts.loss is not None:
        return _call_loss(parts.loss, returned, parts.module)
    if is_tensor(returned):
        return returned
    found = returned["loss"] if isinstance(returned, Mapping) and "loss" in returned else None
    found = getattr(returned, "loss", None) if found is None else found
    return returned[0] if found is None and isinstance(returned, (tuple, list)) and returned else found


def _call_loss(loss: Callable[..., Any], returned: Any, module: Any) -> Any:
    try:  # a loss that is a module itself says in its forward what it takes
        taken = inspect.signature(getattr(loss, "forward", loss)).parameters.values()
    except (TypeError, ValueError):
        return loss(returned)
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    required = [one for one in taken if one.default is one.empty and one.kind in by_place]
    return loss(returned, module) if len(required) > 1 else loss(returned)


def make_loss_error(found: str, where: str) -> ModelError:
    """Return the error for a loss that is no number with a gradient. found: what it is; "": it has no gradient."""
    if not found:
        return ModelError("the loss depends on no parameter", where=where, hint=_HINT)
    return ModelError(f"the loss is one number with a gradient, got {found}", where=where, hint=_HINT)


def make_nothing_learns_error(where: str) -> ModelError:
    """Return the error for a module no parameter of which is trained."""
    return ModelError("no parameter requires a gradient, so there is no step to compare", where=where)


def make_no_optimiser_error(where: str) -> ModelError:
    """Return the error for a step of the optimiser's phase whose factory gives no optimiser."""
    return ModelError(
        "no optimiser was given", where=where,
        hint="return (module, inputs, loss, optimiser) from the factory, or use --option step=backward",
    )  # fmt: skip


def make_optimiser(given: Any, parameters: list[Any], where: str) -> Any:
    """Return what the factory's optimiser is, or makes of the parameters that learn. Raises ModelError."""
    if hasattr(given, "step"):
        return given
    try:
        made = given(parameters)
    except Exception as error:
        what = f"the factory's optimiser fails: {type(error).__name__}: {error}"
        raise ModelError(what, where=where, hint="--verbose shows the traceback") from error
    if hasattr(made, "step"):
        return made
    raise ModelError(
        f"the factory's optimiser gives {type(made).__name__}, which has no step()", where=where,
        hint="return an optimiser from the factory, or a function of the parameters that returns one",
    )  # fmt: skip


def choose_loss_scale(options: Mapping[str, Any], given: float | None, *scaled: str) -> float:
    """Return what the loss is multiplied by. given: by the setting. scaled: targets whose loss is where nobody says."""
    if given is not None:
        return float(given)
    return SCALE if get_passed(options, "target_mode") in scaled else 1.0


def tell_memory(until: str, learned: int, *, ranks: int = 1) -> None:
    """Announce how much memory a training step takes, before it runs.

    until: its last phase. learned: bytes of the parameters that learn. ranks: how many run one after the other, whose
    gradients are all kept."""
    # the gradient; with an optimiser also the parameter that it writes, and before, its update, and Adam's two states,
    # and of each rank its gradient and its part of their mean
    many = learned * (max(1, ranks) if until == BACKWARD else 6 + (2 * ranks if ranks > 1 else 0))
    tell(say("step_memory", phase=until, size=f"{many / 1e9:.3g} GB"))


def list_step_notes(until: str, scale: float, *, skipped: bool, autocast: bool) -> list[Reason]:
    """Return what the reader of a report must know of a step. skipped: GradScaler left the optimiser's step out."""
    found = [say("step_phases", phase=until)]
    if autocast:
        found.append(say("step_autocast"))
    if scale != 1:
        found.append(say("step_scale", scale=scale))
    if skipped:
        found.append(say("step_skipped"))
    return found
