"""From a model file and a recipe to a session: read it, widen it where it is to be float32, load it."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Collection
from pathlib import Path
from typing import Any

from precision_debug.errors import OutputError
from precision_debug.protocols import Session
from precision_debug.reasons import Reason
from precision_debug.records import SessionSpec
from precision_debug.settings import get_passed

from .engine.file import GgufFile, Weight, read_numbers, write_widened
from .engine.library import load_library
from .failures import building, reading
from .keep import find_counterpart, find_weights
from .make import Maker
from .model import read_inputs, read_model
from .modes import Recipe
from .reasons import say
from .session import LlamaCppSession
from .settings import setting

__all__ = ["open_session"]


def open_session(spec: SessionSpec, recipe: Recipe) -> Session:
    """Raises ModelError, UsageError, OutputError or BackendError."""
    path, options = spec.model.model_file, spec.options
    made, model = load_library(), read_model(path)
    inputs, notes = read_inputs(model), list[Reason]()

    def size(weight: Weight) -> int:
        return made.data_size(weight.kind, weight.elements)

    def numbers(weight: Weight) -> Any:
        with reading(weight.file):
            return read_numbers(weight, size(weight), made.decode)

    target = get_passed(options, "side") == "target" and not recipe.widened
    kept = find_weights(model, setting(options, "keep_fp32")) if target else ()
    saved = setting(options, "save_gguf") if target else ""
    origin = read_model(source) if kept and (source := setting(options, "keep_from")) else model
    wide = [name for name, one in model.weights.items() if one.kind] if recipe.widened else kept
    with tempfile.TemporaryDirectory(dir=spec.work_dir or None, prefix="gguf_") as folder:
        running = path
        if wide or saved:
            place = Path(saved) if saved else Path(folder) / "float32.gguf"
            _write(model, place, wide, size, lambda weight: numbers(find_counterpart(origin, weight)))
            running = str(place)
            told = say("kept", count=len(wide)) if target else say("widened", count=len(wide))
            notes += [told] if wide else []
            notes += [say("written", path=saved)] if saved else []
        maker = Maker(
            path=running, vocabulary=inputs[0].limit or 0,
            threads=setting(options, "llama_threads") or spec.cores or len(os.sched_getaffinity(0)),
            flash="off" if recipe.widened else setting(options, "flash_attention"),
            cache="f32" if recipe.widened else setting(options, "kv_cache"),
            repack=not recipe.widened and setting(options, "repack") == "on",
        )  # fmt: skip
        with building(path, recipe.mode.name):
            loaded = maker.load(made)  # what is mapped stays when the file goes
        running_model = model if running == path else read_model(running)
    try:
        return LlamaCppSession(
            library=made, model=running_model, maker=maker, mode=recipe.mode.name, loaded=loaded, inputs=inputs,
            numbers=lambda weight: numbers(find_counterpart(origin if weight.name in wide else model, weight)),
            widened=recipe.widened, notes=notes, where=path,
        )  # fmt: skip
    except BaseException:
        loaded.close()
        raise


def _write(model: GgufFile, place: Path, wide: Collection[str], size: Any, numbers: Any) -> None:
    try:
        place.unlink(missing_ok=True)
        with reading(model.path):
            write_widened(model, place, wide, size, numbers)
    except OSError as error:
        raise OutputError(f"cannot be written ({error.strerror or error})", where=str(place)) from error
