"""The builder configuration: flags, memory, tactic sources, and the range of shapes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from precision_debug.errors import BackendError, InputError, UsageError

from ..engine.network import LayerFacts
from ..engine.options import Options
from ..engine.versions import Api
from ..modes import Recipe

__all__ = ["LOOKED_AT", "add_profile", "needs_calibration", "set_chips", "set_flags", "set_resources"]

_CONSTRAINTS = {"obey": "OBEY_PRECISION_CONSTRAINTS", "prefer": "PREFER_PRECISION_CONSTRAINTS"}


def set_flags(api: Api, config: Any, recipe: Recipe, options: Options, *, strong: bool) -> None:
    """Precisions that TensorRT may choose from, and how binding constraints are."""
    flags = api.trt.BuilderFlag
    if recipe.tf32 if options.tf32 is None else options.tf32:
        config.set_flag(flags.TF32)
    else:
        config.clear_flag(flags.TF32)
    if strong:
        return
    for name in recipe.precisions:
        if api.can_hold(name):
            config.set_flag(getattr(flags, name))
    if options.precision_constraints in _CONSTRAINTS:
        config.set_flag(getattr(flags, _CONSTRAINTS[options.precision_constraints]))


def set_chips(api: Api, config: Any, chips: Sequence[str]) -> None:
    """Build for these compute capabilities ("8.9") and not for this machine's card; () leaves that to TensorRT."""
    if not chips:
        return
    config.num_compute_capabilities = len(chips)
    for place, chip in enumerate(chips):
        member = getattr(api.trt.ComputeCapability, f"SM{chip.replace('.', '')}")
        config.set_compute_capability(member, place)


LOOKED_AT = 1
"""Optimisation level, at most, of engines whose tensors are looked at: TensorRT's own is 3. Their layers' precisions
follow the real engine's, and how fast they run is nobody's concern."""


def set_resources(api: Api, config: Any, options: Options, *, looked_at: bool = False) -> None:
    """Detail for the inspector, workspace, optimisation level, tactic sources. looked_at: of an engine that is built
    for its marked tensors alone. Raises UsageError."""
    trt = api.trt
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if options.workspace is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, options.workspace)
    level = options.optimization_level
    if looked_at:
        level = LOOKED_AT if level is None else min(level, LOOKED_AT)
    if level is not None:
        config.builder_optimization_level = level
    if options.tactic_sources is None:
        return
    known = dict(trt.TacticSource.__members__)
    unknown = [name for name in options.tactic_sources if name not in known]
    if unknown:
        raise UsageError(
            f"TensorRT {api.version} has no tactic source '{unknown[0]}'", where="--tactic_sources",
            hint=f"it has {', '.join(known)}; none turns all off",
        )  # fmt: skip
    mask = sum(1 << int(known[name]) for name in options.tactic_sources)
    if not config.set_tactic_sources(mask):
        raise BackendError(
            f"TensorRT does not take the tactic sources {', '.join(options.tactic_sources) or 'none'}",
            where="--tactic_sources", hint="leave them out",
        )  # fmt: skip


def add_profile(
    builder: Any, network: Any, config: Any, options: Options, feeds: Mapping[str, np.ndarray[Any, Any]]
) -> Any:
    """Return the range of shapes, where an input is dynamic: the user's, else just the feed's. None where all is fixed.

    Raises UsageError or InputError.
    """
    inputs = [network.get_input(place) for place in range(network.num_inputs)]
    names = {tensor.name for tensor in inputs}
    for name in options.shapes:
        if name not in names:
            raise UsageError(
                f"the model has no input '{name}'", where="--min_shapes", hint=f"it has {', '.join(sorted(names))}"
            )
    profile, used = builder.create_optimization_profile(), False
    for tensor in inputs:
        feed = feeds[tensor.name]
        if tensor.is_shape_tensor:
            values = [int(value) for value in np.ravel(feed)]
            profile.set_shape_input(tensor.name, values, values, values)
            used = True
        elif -1 in tuple(tensor.shape):
            low, best, high = options.shapes.get(tensor.name, (feed.shape,) * 3)
            _check_range(tensor.name, feed.shape, low, high)
            profile.set_shape(tensor.name, low, best, high)
            used = True
    if not used:
        return None
    config.add_optimization_profile(profile)
    return profile


def _check_range(name: str, shape: tuple[int, ...], low: tuple[int, ...], high: tuple[int, ...]) -> None:
    fits = len(shape) == len(low) == len(high) and all(a <= b <= c for a, b, c in zip(low, shape, high, strict=True))
    if not fits:
        raise InputError(
            f"input '{name}' has shape {list(shape)}, outside {list(low)} to {list(high)}",
            where="--min_shapes, --max_shapes",
            hint="widen the range, or feed another shape with --input_shapes",
        )  # fmt: skip


def needs_calibration(api: Api, recipe: Recipe, layers: Sequence[LayerFacts], network: Any, *, strong: bool) -> bool:
    """INT8 without scales in the model: no QDQ, and no dynamic range set by a script."""
    if strong or "INT8" not in recipe.precisions or not api.calibrates:
        return False
    if any(layer.type in {"QUANTIZE", "DEQUANTIZE"} for layer in layers):
        return False
    first = network.get_input(0) if network.num_inputs else None
    return first is None or getattr(first, "dynamic_range", None) is None
