"""The user's settings for TensorRT, checked and typed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from precision_debug.errors import UsageError
from precision_debug.settings import get_passed

from ..settings import setting

__all__ = ["Options", "Shape", "read_options"]

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Options:
    """layer_precisions, layer_output_types: layer name or pattern to precision ("FP32", "FP16", …).

    keep_layers: nodes of the ONNX model that stay in FP32, with their outputs; a node may be several layers.
    tf32: whether FP32 layers may compute in TF32; None: as the mode says. precision_constraints: "obey" where layers
    are given and nothing else is said: a precision that the user names is one that he wants. tactic_sources: names;
    None: TensorRT's own choice. workspace, memory_budget: bytes.
    optimization_level: TensorRT's, 0 (fast builds) to 5. shapes: input name to (min, opt, max). typing: "", "weak" or
    "strong". observe: "marks" sees intermediate tensors as marked outputs even where TensorRT has a debug listener.
    side: "baseline" or "target". on_device: the hook takes tensors of the device.
    """

    layer_precisions: Mapping[str, str] = field(default_factory=dict)
    layer_output_types: Mapping[str, str] = field(default_factory=dict)
    keep_layers: tuple[str, ...] = ()
    precision_constraints: str = "none"
    tf32: bool | None = None
    network_script: str = ""
    save_tactics: str = ""
    load_tactics: str = ""
    timing_cache: str = ""
    tactic_sources: tuple[str, ...] | None = None
    workspace: int | None = None
    optimization_level: int | None = None
    plugins: tuple[str, ...] = ()
    save_engine: str = ""
    save_model: str = ""
    save_inspector: str = ""
    shapes: Mapping[str, tuple[Shape, Shape, Shape]] = field(default_factory=dict)
    fused_only: bool = False
    marked_builds: int | None = None
    memory_budget: int | None = None
    typing: str = ""
    observe: str = ""
    side: str = "target"
    on_device: bool = False

    @property
    def asks_for_layers(self) -> bool:
        """Some layer's precision or output type was asked for."""
        return bool(self.layer_precisions or self.layer_output_types or self.keep_layers)


def read_options(typed: Mapping[str, Any]) -> Options:
    """Read ``SessionSpec.options``. Raises UsageError.

    What decides or keeps the target's build (layer precisions, constraints, tactics, saved files) is not for a
    baseline that is a TensorRT run too: there ``side`` is "baseline".
    """
    side = str(get_passed(typed, "side"))
    common: dict[str, Any] = {
        "network_script": setting(typed, "network_script"),
        "timing_cache": setting(typed, "timing_cache"),
        "tf32": setting(typed, "tf32"),
        "tactic_sources": setting(typed, "tactic_sources"),
        "workspace": setting(typed, "workspace"),
        "optimization_level": setting(typed, "optimization_level"),
        "plugins": setting(typed, "plugins"),
        "shapes": _shapes(typed),
        "memory_budget": setting(typed, "memory_budget"),
        "typing": setting(typed, "typing") or "",
        "observe": setting(typed, "observe") or "",
        "side": side,
    }
    if side == "baseline":
        return Options(**common)
    precisions, output_types = setting(typed, "layer_precisions"), setting(typed, "layer_output_types")
    kept, constraints = setting(typed, "keep_layers"), setting(typed, "precision_constraints")
    return Options(
        layer_precisions=precisions,
        layer_output_types=output_types,
        keep_layers=kept,
        precision_constraints=constraints or ("obey" if precisions or output_types or kept else "none"),
        save_tactics=setting(typed, "save_tactics"),
        load_tactics=setting(typed, "load_tactics"),
        save_engine=setting(typed, "save_engine"),
        save_model=setting(typed, "save_model"),
        save_inspector=setting(typed, "save_inspector"),
        fused_only=setting(typed, "fused_only"),
        marked_builds=setting(typed, "marked_builds"),
        **common,
    )


def _shapes(typed: Mapping[str, Any]) -> dict[str, tuple[Shape, Shape, Shape]]:
    ranges = [setting(typed, key) for key in ("min_shapes", "opt_shapes", "max_shapes")]
    names = list(dict.fromkeys(name for part in ranges for name in part))
    dynamic = setting(typed, "use_dynamic_shape")
    if dynamic and not names:
        raise UsageError(
            "a range of shapes is not given", where="--use_dynamic_shape 1",
            hint="add --min_shapes, --opt_shapes and --max_shapes, or leave it out",
        )  # fmt: skip
    if dynamic is False and names:
        raise UsageError("--use_dynamic_shape 0 contradicts the given range of shapes", hint="leave one of them out")
    found = {}
    for name in names:
        low, best, high = (part.get(name) for part in ranges)
        if low is None or high is None:
            missing = "--min_shapes" if low is None else "--max_shapes"
            raise UsageError(f"input '{name}' has no {missing}", where=missing, hint="give min and max of each input")
        chosen = best if best is not None else high
        lists: list[Shape] = [low, chosen, high]
        if len({len(shape) for shape in lists}) != 1 or any(not a <= b <= c for a, b, c in zip(*lists, strict=True)):
            text = " ".join(str(list(shape)) for shape in lists)
            raise UsageError(f"input '{name}': min, opt and max do not rise: {text}", where="--min_shapes",
                             hint="each dimension needs min <= opt <= max")  # fmt: skip
        found[name] = (lists[0], lists[1], lists[2])
    return found
