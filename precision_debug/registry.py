"""From a model file and a run mode to the backend that runs it; the only place that loads plugins.

The built-in backends are named here, so that they work from a bare checkout; installed wheels add theirs under the
entry-point group ``precision_debug.backends`` and may replace a built-in one of the same name.
"""

from __future__ import annotations

import functools
import importlib
import sys
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import BackendUnavailable, UsageError
from .reasons import CORE, Catalogue, Wording, say
from .records import ModelFiles, RunMode

if TYPE_CHECKING:
    from .protocols import Backend

__all__ = ["BUILT_IN", "GROUP", "Plugin", "backends", "find", "modes_for", "plugins", "wording"]

GROUP = "precision_debug.backends"

BUILT_IN = {
    "litert": "precision_debug_litert:LiteRtBackend",
    "llamacpp": "precision_debug_llamacpp:LlamaCppBackend",
    "onnxruntime": "precision_debug_onnxruntime:OnnxRuntimeBackend",
    "openvino": "precision_debug_openvino:OpenVinoBackend",
    "paddle": "precision_debug_paddle:PaddleBackend",
    "tensorrt": "precision_debug_tensorrt:TensorRTBackend",
    "torch": "precision_debug_torch:TorchBackend",
}


_WEIGHTS = {".pth", ".bin", ".safetensors", ".ckpt", ".pdparams", ".gguf", ".npz"}
_ELSEWHERE = {".h5", ".keras", ".mlmodel", ".mlpackage", ".caffemodel", ".prototxt", ".uff"}
"""Models of frameworks that no backend is for."""


@dataclass(frozen=True, kw_only=True)
class Plugin:
    """One registered backend: the object, or why it could not be loaded."""

    name: str
    target: str
    backend: Backend | None
    problem: str = ""


@functools.cache
def plugins() -> tuple[Plugin, ...]:
    """Every registered backend, loaded or not, built-in ones first."""
    targets = dict(BUILT_IN)
    for entry in metadata.entry_points(group=GROUP):
        targets[entry.name] = entry.value
    return tuple(_load(name, target) for name, target in targets.items())


def backends() -> tuple[Backend, ...]:
    """The backends that could be loaded."""
    return tuple(plugin.backend for plugin in plugins() if plugin.backend is not None)


def wording(code: str) -> Wording | None:
    """What a catalogue has under a code; a backend's own are asked for where the code starts with its name."""
    owner, dot, _ = code.partition(".")
    return (reasons_of(owner) if dot else CORE).get(code)


@functools.cache
def reasons_of(name: str) -> Catalogue:
    """A backend's own reasons, by its name; none where it is not here."""
    found = next((plugin.backend for plugin in plugins() if plugin.name == name), None)
    return found.reasons if found is not None else Catalogue(name, {})


def suffix(model: ModelFiles) -> str:
    """The ending by which run modes choose: ".onnx", ".pdmodel", …; "" for a folder."""
    if not model.model_file:
        return ""
    return Path(
        model.model_file.split(".py:")[0] + ".py" if ".py:" in model.model_file else model.model_file
    ).suffix.lower()


def modes_for(model: ModelFiles) -> tuple[tuple[Backend, RunMode], ...]:
    """Every run mode that some backend has for this kind of model file."""
    ending = suffix(model)
    return tuple((backend, mode) for backend in backends() for mode in backend.run_modes if ending in mode.suffixes)


def find(model: ModelFiles, mode: str) -> tuple[Backend, RunMode]:
    """The backend for a model file and a run mode.

    Raises UsageError where no backend knows the mode or none has it for this kind of file, and BackendUnavailable
    where the backend's own package could not be imported.
    """
    offered = modes_for(model)
    for backend, candidate in offered:
        if candidate.name == mode:
            return backend, candidate
    elsewhere = sorted({ending for b in backends() for m in b.run_modes if m.name == mode for ending in m.suffixes})
    kind = suffix(model) or say("model_folder")
    names = [candidate.name for _, candidate in offered]
    broken = "; ".join(f"backend {p.name} could not be loaded: {p.problem}" for p in plugins() if p.problem)
    if broken and not names:
        raise BackendUnavailable(f"no loaded backend reads {kind}", where=model.path, hint=broken)
    if not names:
        endings = sorted({ending for b in backends() for m in b.run_modes for ending in m.suffixes if ending})
        known = say("known_endings", endings=" ".join(endings))
        hint = known
        if suffix(model) in _WEIGHTS:
            hint = say("weights_alone", known=known)
        elif suffix(model) in _ELSEWHERE:
            hint = say("export_it", known=known)
        raise UsageError(say("no_backend_reads", kind=kind), where=model.path, hint=hint)
    if elsewhere:
        wanted = " ".join(ending or "a model folder" for ending in elsewhere)
        hint = say("modes_for", kind=kind, modes=" ".join(names))
        own = {b.name: m.baseline for b, m in offered if b.capabilities.exporter is not None}
        if ".onnx" in elsewhere and own:
            baseline = [*own.values()][-1]
            hint = say(
                "beside_its_export", ending=".onnx", mode=mode, baseline=baseline, model=model.path, modes=hint
            )  # fmt: skip
        raise UsageError(say("mode_does_not_read", mode=mode, kind=kind, wanted=wanted), where=model.path, hint=hint)
    import difflib  # only a mistyped mode needs it

    near = difflib.get_close_matches(mode, names, n=3)
    modes = " ".join(names)
    hint = (
        say("near_modes_for", near=near, kind=kind, modes=modes) if near
        else say("modes_for", kind=kind, modes=modes)
    )  # fmt: skip
    raise UsageError(say("unknown_mode", mode=mode), hint=hint)


def _load(name: str, target: str) -> Plugin:
    module, _, attribute = target.partition(":")
    try:
        backend = getattr(_import(module), attribute)()
    except Exception as error:
        return Plugin(name=name, target=target, backend=None, problem=f"{type(error).__name__}: {error}")
    return Plugin(name=name, target=target, backend=backend)


def _import(module: str) -> object:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        # a bare checkout: the plugins lie beside the package; appended, so that nothing installed is shadowed
        source_root = Path(__file__).resolve().parent.parent / "backends"
        if error.name != module or not (source_root / module).is_dir() or str(source_root) in sys.path:
            raise
        sys.path.append(str(source_root))
        return importlib.import_module(module)
