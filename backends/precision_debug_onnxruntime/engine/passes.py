"""ONNX Runtime's optimisers: which of them change a model, and how each is switched off."""

from __future__ import annotations

import json
import re
import sys
import tempfile
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from precision_debug.errors import BackendError, PrecisionDebugError
from precision_debug.records import ModelFiles, SessionSpec
from precision_debug.safety import own_process

from .. import modes
from ..settings import setting
from .own_options import is_read

__all__ = ["Optimisers", "passes_of", "switches"]

_CHANGED = re.compile(r"GraphTransformer (\S+) modified: ([01])")

_ENDED = "precision_debug: an optimiser ended the session"

# rules of the transformers named Level1_ and Level2_RuleBasedTransformer, whose log does not tell them apart: the
# names that onnxruntime/core/optimizer gives them, of the releases from 1.15 on. One that a release lacks is ignored
_RULES = (
    "ConvAddFusion", "ConvMulFusion", "ConvBNFusion", "Pad_Fusion", "GemmTransposeFusion", "GemmSumFusion",
    "MatMul_BatchNormalization_Fusion", "DivMulFusion", "FuseReluClip", "NotWhereFusion", "LabelEncoderFusion",
    "CastElimination", "CastChainElimination", "EliminateIdentity", "EliminateSlice", "EliminateDropout",
    "ExpandElimination", "UnsqueezeElimination", "NoopElimination", "PreShapeNodeElimination", "ClipQuantRewrite",
    "ReluQuantRewrite",
)  # fmt: skip
_RULE_BASED = "RuleBasedTransformer"

_ENTRY = "optimization.disable_specified_optimizers"
"""What other languages than Python switch them off with, of the releases that know it."""


@dataclass(frozen=True, kw_only=True)
class Optimisers:
    """Switched off by name; before: those that the user switched off already."""

    items: tuple[str, ...]
    before: tuple[str, ...] = ()
    name: str = "optimisers"
    needs: str = ""
    quick: bool = True

    def options(self, off: Collection[str]) -> Mapping[str, Any]:
        return {"disabled_optimizers": [*self.before, *off]}

    def snippet(self, off: Collection[str]) -> str:
        names = [*self.before, *off]
        entry = f"  # other languages: session config entry {_ENTRY}={';'.join(names)}" if is_read(_ENTRY) else ""
        return f"onnxruntime.InferenceSession(model, disabled_optimizers={names}){entry}"


def switches(spec: SessionSpec) -> tuple[Optimisers, ...]:
    """Return those that change the model; then all others that run, which matter once the first are off."""
    recipe = modes.recipe(spec.mode)
    if not recipe.optimise:
        return ()
    before = tuple(setting(spec.options, "disabled_optimizers"))
    known = [name for name in passes_of(spec) if name[0] not in before]
    changing = _with_rules([name for name, changes in known if changes])
    others = tuple(name for name, changes in known if not changes and name not in changing)
    found = [Optimisers(items=tuple(name for name in changing if name not in before), before=before)]
    if others:
        found.append(Optimisers(items=(*others, *found[0].items), before=before, name="all optimisers"))
    return tuple(one for one in found if one.items)


def _with_rules(names: Sequence[str]) -> tuple[str, ...]:
    """The last that is applied comes first, so that of two that only together change the result the later is told: what
    the earlier makes alone is right. A transformer made of rules stands for them, and comes after them: it is the
    answer where none of them is."""
    based = [name for name in names if name.endswith(_RULE_BASED)]
    return (*(name for name in reversed(names) if name not in based), *(_RULES if based else ()), *based)


def passes_of(spec: SessionSpec) -> tuple[tuple[str, bool], ...]:
    """Return the graph transformers that ONNX Runtime applies to a model in a mode, and whether each changes it, as a
    session in a process of its own logs them, in the order of their last change; all that this release has, as if each
    did, where one of them ends the session, since those after it are not reached. Raises BackendError. """
    options = {name: one for name, one in spec.options.items() if name != "save_model"}
    args = (spec.mode, spec.model.model_file, json.dumps(options, default=list))
    done = own_process.run_code(f"from precision_debug_onnxruntime.engine.passes import _log; _log(*{args!a})")
    ended = _ENDED in done.stderr
    passes: dict[str, bool] = {}
    for name, changed in _CHANGED.findall(done.stderr):
        before = passes.pop(name, False) if changed == "1" else passes.get(name, False)
        passes[name] = before or ended or changed == "1"
    if not passes:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        raise BackendError(
            f"ONNX Runtime's optimisers could not be listed ({lines[-1] if lines else 'it logged none'})",
            where=spec.model.path, hint=f"does --run_mode {spec.mode} run by itself?",
        )  # fmt: skip
    return tuple(passes.items())


def _log(mode: str, file: str, options: str) -> None:
    """Open the optimised session of a mode, which logs its optimisers. What is calibrated is so on random inputs."""
    from precision_debug.feeds.random import draw_feeds
    from precision_debug.onnx.model import read_inputs

    from ..make import change_model
    from ..model import find_run_folder, read_source
    from .runtime import Runtime

    recipe = modes.recipe(mode)
    settings = json.loads(options)
    spec = SessionSpec(model=ModelFiles(model_file=file), mode=mode, options=settings)
    runtime = Runtime(
        providers=recipe.providers, provider_options=recipe.provider_options(settings), settings=settings, telling=True
    )
    source = read_source(file, find_run_folder(spec))
    feeds = [draw_feeds(read_inputs(source), {}, {}, 0)[0]] if recipe.change == "int8" else []
    with tempfile.TemporaryDirectory(prefix="precision_debug-") as folder:
        model, _ = change_model(source, recipe, runtime, feeds, Path(folder))
        try:
            runtime.open(model, optimise="all", dump=Path(folder, "optimised.onnx"))
        except PrecisionDebugError:
            sys.stderr.write(f"{_ENDED}\n")
            runtime.open(_make_smallest_model(), optimise="all")


def _make_smallest_model() -> Any:
    """Return a model of one operator, on which every transformer of the release runs and says so."""
    from onnx import TensorProto, helper

    from precision_debug.onnx.model import Model

    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph([helper.make_node("Neg", ["x"], ["y"])], "smallest", values[:1], values[1:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    return Model(proto=proto, folder=Path(), path="smallest.onnx")
