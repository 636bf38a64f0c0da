"""Finds the backend that runs a model file in a run mode; the only place that loads plugins and products.

The built-in backends are named here, so that they work from a bare checkout; installed wheels add theirs under the
entry-point group ``precision_debug.backends`` and may replace a built-in one of the same name.

A product is a folder of ``precision_debug/products`` whose ``DOORS`` says what it puts behind which door of the core,
as entry points do: door to name to "module:attribute". No module of the core imports one, and without its folder the
rest works.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .errors import BackendUnavailable, UsageError
from .reasons import CORE, Catalogue, Reason, Wording, say
from .records import ModelFiles, RunMode

if TYPE_CHECKING:
    from importlib.metadata import Distribution, EntryPoint

    from .protocols import Backend

__all__ = [
    "BUILT_IN",
    "GROUP",
    "Plugin",
    "backends",
    "explain_host_only",
    "find",
    "find_behind_door",
    "find_wording",
    "import_from_door",
    "is_mode_like",
    "iterate_declared",
    "list_behind_door",
    "modes_for",
    "plugins",
    "products",
]  # fmt: skip

GROUP = "precision_debug.backends"

BUILT_IN = {
    "litert": "precision_debug_litert:LiteRtBackend",
    "llamacpp": "precision_debug_llamacpp:LlamaCppBackend",
    "onnxruntime": "precision_debug_onnxruntime:OnnxRuntimeBackend",
    "openvino": "precision_debug_openvino:OpenVinoBackend",
    "paddle": "precision_debug_paddle:PaddleBackend",
    "tensorrt": "precision_debug_tensorrt:TensorRTBackend",
    "torch": "precision_debug_torch:TorchBackend",
    "vllm": "precision_debug_vllm:VllmBackend",
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
    """Return every registered backend, loaded or not, built-in ones first."""
    targets = dict(BUILT_IN) | {entry.name: entry.value for _, entry in iterate_declared()}
    return tuple(_load(name, target) for name, target in targets.items())


def iterate_declared() -> Iterator[tuple[Distribution, EntryPoint]]:
    """Yield what installed wheels declare, as ``metadata.entry_points`` does, which parses what all others declare."""
    from importlib import metadata  # imports much, and a command first leaves the current folder's files out

    seen = set()
    for wheel in metadata.distributions():
        if GROUP in (wheel.read_text("entry_points.txt") or "") and (name := wheel.name.lower()) not in seen:
            seen.add(name)  # what lies behind it on the path is not imported
            for entry in wheel.entry_points.select(group=GROUP):
                yield wheel, entry


def backends() -> tuple[Backend, ...]:
    """Return the backends that could be loaded."""
    return tuple(plugin.backend for plugin in plugins() if plugin.backend is not None)


@functools.cache
def products() -> Mapping[str, Mapping[str, Mapping[str, str]]]:
    """Return the products that are here, by name, and what each puts behind which door; nothing else of them is
    imported."""
    folder = f"{__package__}.products"
    try:
        names = [found.name for found in pkgutil.iter_modules(importlib.import_module(folder).__path__)]
    except ModuleNotFoundError as error:
        if error.name != folder:
            raise
        names = []
    return {name: importlib.import_module(f"{folder}.{name}").DOORS for name in sorted(names)}


def list_behind_door(door: str) -> Mapping[str, str]:
    """Return what the products put behind a door: its name to "module" or "module:attribute"."""
    return {name: target for doors in products().values() for name, target in doors.get(door, {}).items()}


def find_behind_door(door: str, name: str) -> Any:
    """Import what a product put behind a door; None where no product that is here did."""
    module, _, attribute = list_behind_door(door).get(name, "").partition(":")
    if not module:
        return None
    found = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found


def import_from_door(door: str, name: str) -> Any:
    """Import what a product put behind a door. Raises UsageError where no product that is here did."""
    found = find_behind_door(door, name)
    if found is None:
        raise UsageError(say("no_product"), where=name, hint=say("install_whole"))
    return found


def explain_host_only(name: str) -> Reason | None:
    """Return why tensors of a card are compared in the host's memory where no product that is here has what compares
    them (door "comparers"); None where one has."""
    return None if name in list_behind_door("comparers") else say("no_device_product")


def find_wording(code: str) -> Wording | None:
    """Return what a catalogue has under a code; a backend's own are asked for where the code starts with its name."""
    owner, dot, _ = code.partition(".")
    return (reasons_of(owner) if dot else CORE).get(code)


@functools.cache
def reasons_of(name: str) -> Catalogue:
    """Return a backend's own reasons, by its name; none where it is not here."""
    found = next((plugin.backend for plugin in plugins() if plugin.name == name), None)
    return found.reasons if found is not None else Catalogue(name, {})


def suffix(model: ModelFiles) -> str:
    """Return the ending by which run modes choose: ".onnx", ".pdmodel", …; "" for a folder.

    TorchScript goes by many: a file whose ending no run mode knows is looked into."""
    if not model.model_file:
        return ""
    ending = Path(
        model.model_file.split(".py:")[0] + ".py" if ".py:" in model.model_file else model.model_file
    ).suffix.lower()
    known = any(ending in mode.suffixes for backend in backends() for mode in backend.run_modes)
    return ".ts" if (not known or not ending) and _is_torchscript(model.model_file) else ending


def _is_torchscript(path: str) -> bool:
    """Return whether a file is an archive with TorchScript's code in it, which one of weights alone has not."""
    import zipfile  # only an unknown ending needs it

    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return False
    return any("/code/" in name for name in names) and any(name.endswith("/constants.pkl") for name in names)


def modes_for(model: ModelFiles) -> tuple[tuple[Backend, RunMode], ...]:
    """Return every run mode that some backend has for this kind of model file."""
    ending = suffix(model)
    return tuple((backend, mode) for backend in backends() for mode in backend.run_modes if ending in mode.suffixes)


def find(model: ModelFiles, mode: str) -> tuple[Backend, RunMode]:
    """Return the backend for a model file and a run mode.

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
    several = mode.replace(",", " ").split()
    if len(several) > 1:
        raise UsageError(say("several_modes", mode=mode), hint=say("sweep_them", modes=shlex.join(several)))
    hint = say("near_modes_for", near=_find_near_modes(mode, names), kind=kind)
    raise UsageError(say("unknown_mode", mode=mode), hint=hint)


_WORDS = {
    "tensorrt": "trt", "onnxruntime": "ort", "onnx": "ort", "openvino": "ov", "pytorch": "torch", "half": "fp16",
    "float16": "fp16", "float32": "fp32", "float": "fp32", "float64": "fp64", "double": "fp64", "bfloat16": "bf16",
    "quantized": "int8", "quant": "int8", "dynamic": "dynamic", "amp": "autocast",
}  # fmt: skip
"""What people call an engine or a precision, and what run modes call it."""


def _find_near_modes(mode: str, names: Sequence[str]) -> list[str]:
    """Return three modes that a mistyped one may have meant.

    First those that share most of its words, then the most similar, then the first ones of the list."""
    import difflib  # only a mistyped mode needs it

    words = [_WORDS.get(word, word) for word in re.split(r"[^a-z0-9]+", mode.lower()) if word]

    def near(name: str) -> tuple[int, float]:
        own = name.split("_")
        shared = sum(word in own for word in words)
        return shared, difflib.SequenceMatcher(None, "_".join(words), name).ratio()

    ranked = sorted(names, key=near, reverse=True)
    return [*dict.fromkeys(name for name in ranked if near(name) > (0, 0.6))][:3] or [*names][1:4]


def is_mode_like(text: str) -> bool:
    """Return whether a word may be a mistyped run mode, and no path.

    It may where a part of it is an engine's or a precision's, or it is close to a mode's name."""
    import difflib

    names = [mode.name for backend in backends() for mode in backend.run_modes]
    parts = {part for name in names for part in name.split("_")} | {*_WORDS}
    words = [word for word in re.split(r"[^a-z0-9]+", text.lower()) if word]
    return any(word in parts for word in words) or bool(difflib.get_close_matches(text, names, n=1))


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
