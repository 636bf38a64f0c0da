"""Paddle's troubleshooting ladder: memory optimisation, passes, oneDNN, mixed precision, TensorRT, one at a time."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from precision_debug.errors import BackendError
from precision_debug.protocols import Rung, Switch
from precision_debug.records import SessionSpec
from precision_debug.safety import own_process

from .. import modes
from ..make import make_config
from ..model import Model, read_model
from ..settings import setting
from . import capability
from .bfloat16 import list_all_but, list_lowered_names
from .framework import import_inference

__all__ = ["Operators", "Passes", "passes_of", "rungs", "switches"]

_PASS = re.compile(r"--- Running P?IR pass \[([^\]]+)\]")
# passes that bring a program into the form that an executor needs; without them it does not run
_NEEDED = frozenset({
    "add_shadow_output_after_dead_parameter_pass", "graph_viz_pass", "onednn_placement_pass", "remove_shadow_feed_pass",
    "replace_fetch_with_shadow_output_pass", "tensorrt_subgraph_pass",
})  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Passes:
    """Passes, switched off by delete_pass."""

    items: tuple[str, ...]
    before: tuple[str, ...] = ()
    name: str = "passes"
    needs: str = ""
    quick: bool = False

    def options(self, off: Collection[str]) -> Mapping[str, Any]:
        return {"delete_pass": [*self.before, *off]}

    def snippet(self, off: Collection[str]) -> str:
        return "\n".join(f'config.delete_pass("{name}")' for name in off)


@dataclass(frozen=True, kw_only=True)
class Operators:
    """Operator types that are kept out of the lower precision or of TensorRT. key: the backend's setting for it.

    needs: why it cannot be tried here, or "".
    """

    items: tuple[str, ...]
    key: str
    before: tuple[str, ...] = ()
    needs: str = ""
    quick: bool = False

    @property
    def name(self) -> str:
        return {
            "bfloat16_ops": "operators that run in bfloat16", "disable_tensorrt_ops": "operators that TensorRT takes",
        }.get(self.key, "operators that run in lower precision")  # fmt: skip

    def options(self, off: Collection[str]) -> Mapping[str, Any]:
        return {self.key: self._left(off) if self.key == "bfloat16_ops" else [*self.before, *off]}

    def snippet(self, off: Collection[str]) -> str:
        if self.key == "bfloat16_ops":
            return f"config.set_bfloat16_op({set(self._left(off)) or set()})  # all but {', '.join(off)}"
        if self.key == "disable_tensorrt_ops":
            return f"config.exp_disable_tensorrt_ops({[*self.before, *off]})"
        return f"config.exp_disable_mixed_precision_ops({ {*self.before, *off} })"

    def _left(self, off: Collection[str]) -> list[str]:
        return list(list_all_but(off))


def rungs(spec: SessionSpec) -> tuple[Rung, ...]:
    """Return the stages up to ``spec.mode``."""
    target = modes.recipe(spec.mode)
    if target.device == "gpu":
        off, names = "gpu_fp32", [("passes", "gpu_opt")]
        if target.precision in {"float16", "bfloat16"}:
            names.append(("mixed precision", modes.mixed_precision(target.precision)))
        if target.tensorrt and target.precision != "float32":
            names.append(("TensorRT in FP32", "trt_fp32"))
    else:
        off, names = "cpu_fp32", [("passes", "cpu_opt")]
        if target.onednn and target.precision != "float32":
            names.append(("oneDNN in FP32", "onednn_fp32"))
    if spec.mode not in {mode for _, mode in names} | {off}:
        names.append(("TensorRT" if target.tensorrt else "oneDNN", spec.mode))
    memory = _rung("memory optimisation", off, {"memory_optim": True})
    if not memory.needs and read_model(spec.model).program.pir:
        memory = dataclasses.replace(memory, needs="Paddle 3.3 raises on enable_memory_optim with a PIR program")
    found = [_rung("everything off", off, {}), memory, *(_rung(name, mode, {}) for name, mode in names)]
    last = next((place for place, rung in enumerate(found) if rung.mode == spec.mode and not rung.options), None)
    return tuple(found if last is None or spec.mode == off else found[: last + 1])


def switches(spec: SessionSpec, rung: Rung, op_types: Collection[str]) -> tuple[Switch, ...]:
    """Return operators first, where the stage has a precision or an engine of its own; then passes."""
    recipe = modes.recipe(rung.mode)
    if not recipe.optimise:
        return ()
    model = read_model(spec.model)
    types = tuple(dict.fromkeys((*op_types, *(value.op_type for value in model.program.values))))
    types = tuple(name for name in types if name != "tensorrt_engine")
    found: list[Switch] = []
    key = (
        "disable_tensorrt_ops" if recipe.tensorrt
        else "" if recipe.onednn and model.program.pir
        else "bfloat16_ops" if recipe.onednn and recipe.precision == "bfloat16"
        else "disable_mixed_precision_ops" if recipe.precision != "float32" else ""
    )  # fmt: skip
    if key:
        before = () if key == "bfloat16_ops" else setting(spec.options, key)
        if key == "bfloat16_ops":
            types = tuple(name for name in types if list_lowered_names(name))
        card = capability.gpu() if recipe.tensorrt else None
        needs = card.problem if card is not None else ""  # what TensorRT does not take, Paddle's own kernels run
        found.append(Operators(items=types, key=key, before=before, needs=needs))
    known = passes_of(model, rung.mode, spec.options)
    if known:
        before = setting(spec.options, "delete_pass")
        found.append(Passes(items=tuple(name for name in known if name not in before), before=before))
    return tuple(found)


def passes_of(model: Model, mode: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the passes that Paddle runs for a mode, as a predictor in a process of its own logs them; without those
    that it cannot do without. Raises BackendError. """
    args = (mode, str(model.file), str(model.params), json.dumps(dict(options)))
    done = own_process.run_code(f"from precision_debug_paddle.engine.ladder import _log; _log(*{args!a})")
    found = _PASS.findall(done.stdout + done.stderr)
    if done.returncode != 0 and not found:
        lines = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise BackendError(
            f"Paddle's passes could not be listed ({lines[-1] if lines else 'no output'})", where=model.path,
            hint=f"does --run_mode {mode} run by itself?",
        )  # fmt: skip
    return tuple(name for name in dict.fromkeys(found) if name not in _NEEDED)


def _log(mode: str, file: str, params: str, options: str) -> None:
    """Build a predictor that logs its passes. With TensorRT they are others: it is on, but takes no subgraph."""
    from pathlib import Path

    recipe = modes.recipe(mode)
    config = make_config(recipe, Path(file), Path(params), json.loads(options), device=recipe.device, quiet=False)
    if recipe.tensorrt and not file.endswith(".json"):
        config.enable_tensorrt_engine(
            workspace_size=1 << 20, max_batch_size=1, min_subgraph_size=1 << 20,
            precision_mode=import_inference().PrecisionType.Float32, use_static=False, use_calib_mode=False,
        )  # fmt: skip
    import_inference().create_predictor(config)


def _rung(name: str, mode: str, options: Mapping[str, Any]) -> Rung:
    return Rung(name=name, mode=mode, options=options, needs=modes.availability(mode).needs)
