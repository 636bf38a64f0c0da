"""Linear layers in float8 as torchao trains them: the operands of all three products are scaled and rounded as they
come, forward and backward."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import torch

from precision_debug.errors import BackendError, ModelError
from precision_debug.reasons import Reason
from precision_debug.records import TensorMeta
from precision_debug.settings.setting import BACKWARD

from ...reasons import say
from ..torchao import float8
from .step import TrainingStep

__all__ = ["TYPE", "convert", "multiplies_float8", "products"]

TYPE = "float8"

_WHOLE = 16
"""What the sizes of a product in float8 are multiples of (torch._scaled_mm)."""

_READ_BY_OTHERS = torch.nn.modules.linear.NonDynamicallyQuantizableLinear


def multiplies_float8(device: Any) -> bool:
    """Return whether a device multiplies float8 numbers itself."""
    return bool(device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 9))


def convert(step: TrainingStep, path: str, kept: Sequence[str]) -> tuple[frozenset[str], Reason]:
    """Exchange a step's linear layers in place, but those in ``kept`` modules; their paths, and a note on what runs.

    Their parameters stay the module's own. Where the device does not multiply float8, torchao rounds the operands and
    multiplies them as they are. Raises ModelError where it has no such layer, BackendError where torchao fails.
    """
    every = {name: child for name, child in step.named_modules() if isinstance(child, torch.nn.Linear)}
    able = {
        name for name, child in every.items()
        if not (child.in_features % _WHOLE or child.out_features % _WHOLE or isinstance(child, _READ_BY_OTHERS))
    }  # fmt: skip
    if not able:
        raise ModelError(
            f"none of its {len(every)} linear layers can be trained in float8" if every else "has no nn.Linear",
            where=path, hint=f"float8 needs inputs and outputs of a multiple of {_WHOLE}" if every else "",
        )  # fmt: skip
    chosen = {name for name in able if not any(one in ("", name) or name.startswith(f"{one}.") for one in kept)}
    emulated = not all(multiplies_float8(child.weight.device) for child in every.values())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            library = float8()
            config = library.Float8LinearConfig(emulate=emulated, pad_inner_dim=not emulated)
            step.__dict__["inner"] = library.convert_to_float8_training(
                step.inner, module_filter_fn=lambda _child, name: name in chosen, config=config
            )
    except Exception as error:
        what = f"torchao cannot make it train in float8: {type(error).__name__}: {error}"
        raise BackendError(what, where=path) from error
    if emulated:
        return frozenset(chosen), say("float8_step_emulated", count=len(chosen), all=len(every))
    return frozenset(chosen), say("float8_step", count=len(chosen), all=len(every))


def products(metas: Iterable[TensorMeta], paths: Collection[str]) -> Mapping[str, str]:
    """Return the rows of the backward products of float8 layers to those that the same layers have without float8.

    torchao multiplies for the gradient of the input first, then for that of the weight; torch has another order where
    there is no bias, and leaves out what nobody asks for. metas: of a step without float8. paths: the float8 layers'.
    """
    found: dict[tuple[str, str], list[str]] = {}
    learned = set()
    for meta in metas:
        scope, _, operator = meta.name.rpartition("/")
        layer, _, product = scope.removeprefix(f"{BACKWARD}/").rpartition("/")
        if scope.startswith(f"{BACKWARD}/") and operator.partition("#")[0] == "mm":
            found.setdefault((layer, product), []).append(meta.name)
        if scope.startswith(f"{BACKWARD}/") and scope.endswith(".weight.grad"):
            learned.add(scope.removeprefix(f"{BACKWARD}/").removesuffix(".weight.grad"))
    rows: dict[str, str] = {}
    for (layer, product), names in found.items():
        if len(names) > 2 or layer.partition("@")[0] not in paths:
            continue
        of_input, of_weight = f"{BACKWARD}/{layer}/{TYPE}/mm", f"{BACKWARD}/{layer}/{TYPE}/mm#2"
        if len(names) == 1:
            rows[of_weight if layer.partition("@")[0] in learned else of_input] = names[0]
        else:
            order = (of_weight, of_input) if product.partition("#")[0] == "mm" else (of_input, of_weight)
            rows.update(zip(order, names, strict=True))
    return rows
