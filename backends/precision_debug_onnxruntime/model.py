"""Reads a model file once for all that ask: its large weights stay in it, so that copies of the graph are small."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from precision_debug.onnx.model import Model, parse_model
from precision_debug.onnx.without_weights import read_light
from precision_debug.records import SessionSpec

__all__ = ["find_run_folder", "read_source"]

@dataclass(frozen=True, kw_only=True)
class _Kept:
    """A model that was read: its graph's bytes, which refer to the weights in its file."""

    key: tuple[str, int, int, str]
    graph: bytes
    folder: Path


_lock = threading.Lock()
_kept: list[_Kept] = []


def find_run_folder(spec: SessionSpec) -> str:
    """Return what both sides of a run have in common: the folder that their own folders lie in."""
    return str(Path(spec.work_dir).parent) if spec.work_dir else ""


def read_source(path: str, run: str = "") -> Model:
    """``read_light``, once for all that ask.

    ONNX Runtime maps the weights from where they lie, as it does any external data: whatever their offset is, nothing
    is copied. run: a name that all share who read the file only once; "" shares nothing. Raises ModelError.
    """
    with _lock:
        key = _key(path, run)
        kept = next((item for item in _kept if item.key == key), None)
        if kept is None:
            model = read_light(path)
            if run:
                _kept[:] = [_Kept(key=key, graph=model.proto.SerializeToString(), folder=model.folder)]
            return model
    return Model(proto=parse_model(kept.graph, path), folder=kept.folder, path=path)


def _key(path: str, run: str) -> tuple[str, int, int, str]:
    try:
        file = Path(os.path.realpath(path))
        state = file.stat()
    except OSError:
        return path, 0, 0, run
    return str(file), state.st_mtime_ns, state.st_size, run
