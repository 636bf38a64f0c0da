"""From a model file and a recipe to a session: read it, widen what is to be float32, say what came of it."""

from __future__ import annotations

from collections.abc import Mapping

from precision_debug.errors import OutputError, UsageError
from precision_debug.ownership import guard_output
from precision_debug.protocols import Session
from precision_debug.reasons import Reason
from precision_debug.records import SessionSpec
from precision_debug.settings import get_passed

from .engine.graph import holds_state, read_graph
from .engine.widen import widen_operators
from .keep import find_places
from .make import Maker
from .model import read_inputs, read_model
from .modes import Recipe
from .reasons import say
from .session import LiteRtSession
from .settings import FLAGS, setting

__all__ = ["open_session"]


def open_session(spec: SessionSpec, recipe: Recipe) -> Session:
    """Raises ModelError, UsageError, OutputError or BackendError."""
    import ai_edge_litert

    path, options = spec.model.model_file, spec.options
    target = get_passed(options, "side") == "target"
    raw = setting(options, "quantised_inputs") == "raw"
    flat = read_model(path)
    source = read_graph(flat)
    inputs, real = read_inputs(source, raw=raw), flat.real_numbers()
    notes: list[Reason] = []
    keep = setting(options, "keep_fp32") if target else ()
    own: frozenset[str] = frozenset()
    if recipe.widened or keep:
        made = widen_operators(flat, None if recipe.widened else find_places(source, keep))
        own = made.own
        if made.wide:
            notes.append(say("widened", count=made.wide) if recipe.widened else say("kept", count=made.wide))
        if made.left:
            notes.append(say("stays", count=len(made.left), some=", ".join(made.left[:4])))
    running = read_graph(flat)
    for meta in inputs:
        if meta.name in running.flat.real_numbers() and not raw:
            notes.append(say("fed_real", name=meta.name, dtype=running.named[meta.name].dtype))
    content = flat.packed() if own else flat.content
    if target and (file := setting(options, "save_tflite")):
        try:
            with guard_output(file) as place:
                place.write_bytes(content)
        except OSError as error:
            raise OutputError(f"cannot be written ({error.strerror or error})", where=file) from error
        notes.append(say("written", path=file))
    return LiteRtSession(
        graph=running, inputs=inputs, file_numbers=real, raw=raw, own=own, notes=notes, tells=target,
        maker=Maker(
            content=content, path=path, mode=recipe.mode.name, reference=recipe.reference,
            threads=setting(options, "litert_threads") or spec.cores, stateful=holds_state(flat),
            flags=_read_flags(setting(options, "config")),
        ),
        versions={"ai-edge-litert": str(getattr(ai_edge_litert, "__version__", "unknown"))},
    )  # fmt: skip


_SWITCHED = {"1": True, "true": True, "0": False, "false": False}


def _read_flags(given: Mapping[str, str]) -> dict[str, bool]:
    """Raises UsageError."""
    for name, value in given.items():
        if name not in FLAGS:
            raise UsageError(f"LiteRT has no switch {name} here", where="--option config", hint=", ".join(FLAGS))
        if value.lower() not in _SWITCHED:
            raise UsageError(f"{name} is {value}, and a switch", where="--option config", hint="say 1 or 0")
    return {name: _SWITCHED[value.lower()] for name, value in given.items()}
