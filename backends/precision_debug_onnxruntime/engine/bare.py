"""A model in ONNX Runtime as a script of a few lines runs it: no taps, no other graph than the file's."""

from __future__ import annotations

from precision_debug.protocols import Feeds
from precision_debug.records import SessionSpec

from .. import modes
from ..settings import setting

__all__ = ["run_bare"]


def run_bare(spec: SessionSpec, feeds: Feeds) -> bool:
    """See ``protocols.BareRunner``: of modes that give the model to ONNX Runtime as it is."""
    import onnxruntime as ort

    recipe = modes.recipe(spec.mode)
    if recipe.change or recipe.plugin or not recipe.providers:
        return False
    options = ort.SessionOptions()
    if not recipe.optimise:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    for library in setting(spec.options, "custom_ops_library"):
        options.register_custom_ops_library(library)
    session = ort.InferenceSession(spec.model.model_file, options, providers=list(recipe.providers))
    session.run(None, dict(feeds))
    return True
