"""Reads a model file once for all that ask: its large weights stay in it, so that copies of the graph are small."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

from precision_debug.onnx.graph import external_data, external_tensors
from precision_debug.onnx.model import Model, named, opened, parsed, read_model
from precision_debug.onnx.without_weights import cut
from precision_debug.records import SessionSpec

__all__ = ["of_run", "read_source"]

_SMALL = 1024


@dataclass(frozen=True, kw_only=True)
class _Kept:
    """A model that was read: its graph's bytes, which refer to the weights in its file."""

    key: tuple[str, int, int, str]
    graph: bytes
    folder: Path


_lock = threading.Lock()
_kept: list[_Kept] = []


def of_run(spec: SessionSpec) -> str:
    """What both sides of a run have in common: the folder that their own folders lie in."""
    return str(Path(spec.work_dir).parent) if spec.work_dir else ""


def read_source(path: str, run: str = "") -> Model:
    """The model of a file; its large weights are external data, namely parts of that very file.

    ONNX Runtime maps them from there, as it does any external data: whatever their offset is, nothing is copied.
    run: a name that all share who read the file only once; "" shares nothing. A model that has external weights already
    keeps its other ones in the graph. Raises ModelError.
    """
    with _lock:
        key = _key(path, run)
        kept = next((item for item in _kept if item.key == key), None)
        if kept is None:
            model = _read(path)
            if run:
                _kept[:] = [_Kept(key=key, graph=model.proto.SerializeToString(), folder=model.folder)]
            return model
    return Model(proto=parsed(kept.graph, path), folder=kept.folder, path=path)


def _key(path: str, run: str) -> tuple[str, int, int, str]:
    try:
        file = Path(os.path.realpath(path))
        state = file.stat()
    except OSError:
        return path, 0, 0, run
    return str(file), state.st_mtime_ns, state.st_size, run


def _read(path: str) -> Model:
    data = opened(Path(path))
    file = Path(os.path.realpath(path))  # not a link: external data behind one is refused
    try:
        light = cut(data, larger=_SMALL, location=file.name)
    except ValueError:
        return read_model(path)
    proto = parsed(light, path)
    if {external_data(tensor).location for tensor in external_tensors(proto.graph)} != {file.name}:
        return read_model(path)
    return Model(proto=named(proto, path), folder=file.parent, path=path)
